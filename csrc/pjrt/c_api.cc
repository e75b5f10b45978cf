#include "pjrt/c_api.h"

#include <utility>

#include "base/wait.h"

namespace torch_xla::pjrt {
namespace {

struct TypeRow {
  DType dtype;
  PJRT_Buffer_Type type;
};

// In the order of DType.
constexpr TypeRow kTypes[] = {
    {DType::kBool, PJRT_Buffer_Type_PRED},
    {DType::kS8, PJRT_Buffer_Type_S8},
    {DType::kS16, PJRT_Buffer_Type_S16},
    {DType::kS32, PJRT_Buffer_Type_S32},
    {DType::kS64, PJRT_Buffer_Type_S64},
    {DType::kU8, PJRT_Buffer_Type_U8},
    {DType::kU16, PJRT_Buffer_Type_U16},
    {DType::kU32, PJRT_Buffer_Type_U32},
    {DType::kU64, PJRT_Buffer_Type_U64},
    {DType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {DType::kF8E5M2, PJRT_Buffer_Type_F8E5M2},
    {DType::kF8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ},
    {DType::kF8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ},
    {DType::kF16, PJRT_Buffer_Type_F16},
    {DType::kBF16, PJRT_Buffer_Type_BF16},
    {DType::kF32, PJRT_Buffer_Type_F32},
    {DType::kF64, PJRT_Buffer_Type_F64},
    {DType::kC64, PJRT_Buffer_Type_C64},
    {DType::kC128, PJRT_Buffer_Type_C128},
    {DType::kC32, PJRT_Buffer_Type_C64},
};

constexpr bool InOrder() {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kTypes[i].dtype != static_cast<DType>(i)) return false;
  }
  return true;
}
static_assert(sizeof(kTypes) / sizeof(kTypes[0]) == kNumDTypes && InOrder());

class PluginEvent : public Event::Impl, public std::enable_shared_from_this<PluginEvent> {
 public:
  PluginEvent(const PJRT_Api* api, PJRT_Event* event, const char* call)
      : api_(api), event_(event), call_(call) {}
  ~PluginEvent() override {
    if (!InForkedChild()) DestroyEvent(api_, event_);
  }

  bool Ready() override {
    PJRT_ARGS(PJRT_Event_IsReady, args);
    args.event = event_;
    PJRT_CALL(api_, PJRT_Event_IsReady, args);
    return args.is_ready;
  }

  void OnReady(std::function<void(const Status&)> fn) override {
    if (Ready()) {
      PJRT_ARGS(PJRT_Event_Error, args);
      args.event = event_;
      fn(TakeError(api_, api_->PJRT_Event_Error(&args), call_));
      return;
    }
    // Keeps the event alive until the callback ran: not every plugin would call it otherwise.
    auto pending = std::make_unique<Pending>(Pending{shared_from_this(), std::move(fn)});
    PJRT_ARGS(PJRT_Event_OnReady, args);
    args.event = event_;
    args.user_arg = pending.get();
    args.callback = [](PJRT_Error* error, void* user_arg) noexcept {
      std::unique_ptr<Pending> p(static_cast<Pending*>(user_arg));
      p->fn(TakeError(p->event->api_, error, p->event->call_));
    };
    PJRT_CALL(api_, PJRT_Event_OnReady, args);
    static_cast<void>(pending.release());  // the callback's now
  }

 private:
  struct Pending {
    std::shared_ptr<PluginEvent> event;
    std::function<void(const Status&)> fn;
  };

  const PJRT_Api* const api_;
  PJRT_Event* const event_;
  const char* const call_;
};

}  // namespace

Status TakeError(const PJRT_Api* api, PJRT_Error* error, const char* call) {
  if (error == nullptr) return {};
  PJRT_ARGS(PJRT_Error_Message, message);
  message.error = error;
  api->PJRT_Error_Message(&message);
  Status status{Code::kUnknown,
                StrCat(call, ": ", std::string_view(message.message, message.message_size))};
  PJRT_ARGS(PJRT_Error_GetCode, code);
  code.error = error;
  if (PJRT_Error* failed = api->PJRT_Error_GetCode(&code)) {
    PJRT_ARGS(PJRT_Error_Destroy, destroy);
    destroy.error = failed;
    api->PJRT_Error_Destroy(&destroy);
  } else if (int raw = RawEnum(code.code);
             raw > PJRT_Error_Code_OK && raw <= PJRT_Error_Code_UNAUTHENTICATED) {
    status.code = static_cast<Code>(raw);
  }
  PJRT_ARGS(PJRT_Error_Destroy, destroy);
  destroy.error = error;
  api->PJRT_Error_Destroy(&destroy);
  return status;
}

Event MakeEvent(const PJRT_Api* api, PJRT_Event* event, const char* call) {
  if (event == nullptr) return Event();
  return Event(std::make_shared<PluginEvent>(api, event, call));
}

void DestroyEvent(const PJRT_Api* api, PJRT_Event* event) {
  if (event == nullptr) return;
  PJRT_ARGS(PJRT_Event_Destroy, args);
  args.event = event;
  TakeError(api, api->PJRT_Event_Destroy(&args), "PJRT_Event_Destroy");
}

PJRT_Buffer_Type ToPjrt(DType dtype) { return kTypes[static_cast<int>(dtype)].type; }

std::optional<DType> FromPjrt(int type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.dtype;
  }
  return std::nullopt;
}

std::vector<PJRT_NamedValue> ToNamedValues(const Options& options) {
  std::vector<PJRT_NamedValue> values;
  values.reserve(options.size());
  for (const auto& [name, option] : options) {
    PJRT_NamedValue v{};
    v.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    v.name = name.data();
    v.name_size = name.size();
    v.value_size = 1;
    if (const auto* i = std::get_if<int64_t>(&option)) {
      v.type = PJRT_NamedValue_kInt64;
      v.int64_value = *i;
    } else if (const auto* d = std::get_if<double>(&option)) {
      v.type = PJRT_NamedValue_kFloat;
      v.float_value = static_cast<float>(*d);
    } else if (const auto* b = std::get_if<bool>(&option)) {
      v.type = PJRT_NamedValue_kBool;
      v.bool_value = *b;
    } else if (const auto* s = std::get_if<std::string>(&option)) {
      v.type = PJRT_NamedValue_kString;
      v.string_value = s->c_str();
      v.value_size = s->size();
    } else {
      const auto& list = std::get<std::vector<int64_t>>(option);
      v.type = PJRT_NamedValue_kInt64List;
      v.int64_array_value = list.data();
      v.value_size = list.size();
    }
    values.push_back(v);
  }
  return values;
}

Options FromNamedValues(const PJRT_NamedValue* values, size_t count) {
  Options options;
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& v = values[i];
    std::string name(v.name, v.name_size);
    switch (RawEnum(v.type)) {
      case PJRT_NamedValue_kString:
        options[name] = std::string(v.string_value, v.value_size);
        break;
      case PJRT_NamedValue_kInt64: options[name] = v.int64_value; break;
      case PJRT_NamedValue_kInt64List:
        options[name] =
            std::vector<int64_t>(v.int64_array_value, v.int64_array_value + v.value_size);
        break;
      case PJRT_NamedValue_kFloat: options[name] = static_cast<double>(v.float_value); break;
      case PJRT_NamedValue_kBool: options[name] = v.bool_value; break;
      default: break;  // of a newer interface
    }
  }
  return options;
}

}  // namespace torch_xla::pjrt
