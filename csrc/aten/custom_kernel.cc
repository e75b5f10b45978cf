#include "aten/custom_kernel.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "aten/ffi.h"
#include "aten/record.h"
#include "base/error.h"
#include "hlo/embed.h"
#include "lazy/runtime.h"
#include "pjrt/signature.h"

namespace torch_xla {
namespace {

// Carries a version: it is part of compiled programs.
constexpr const char* kTarget = "torch_xla.user.1";
constexpr const char* kHandlerAttribute = "torch_xla.handler";

using Handler = void* (*)(ffi::CallFrame*);

struct KnownHandler {
  Handler call;
  size_t frame_size;  // the one that it accepts
};

struct Tables {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const ir::OpDef>> ops;
  std::unordered_map<Hash, std::unique_ptr<const CustomKernel>, HashOfHash> kernels;
  std::unordered_map<std::string, KnownHandler> handlers;

  static Tables& Get() {
    static auto* tables = new Tables;
    return *tables;
  }
};

std::string ToString(std::span<const Shape> shapes) {
  std::string out = "(";
  for (const Shape& s : shapes) out += (out.size() > 1 ? ", " : "") + torch_xla::ToString(s);
  return out + ')';
}

// As a module has them.
std::vector<Shape> AsStored(std::vector<Shape> shapes) {
  for (Shape& s : shapes) s.dtype = Stored(s.dtype);
  return shapes;
}

const ir::OpDef& OpOf(const std::string& name, ir::LowerFn lower) {
  Tables& tables = Tables::Get();
  std::lock_guard<std::mutex> lock(tables.mutex);
  auto it = tables.ops.try_emplace(name).first;  // the key lives as long as the operator
  if (!it->second) it->second = std::make_unique<const ir::OpDef>(it->first.c_str(), lower);
  return *it->second;
}

// ---- Handlers.

// The plugin's functions, then room for those of newer versions.
struct WideApi {
  ffi::Api api;
  void* more[16];
};

void Fill(WideApi& api, size_t from, void* (*function)(void*)) {
  for (; from + sizeof(function) <= sizeof(api); from += sizeof(function)) {
    std::memcpy(reinterpret_cast<char*>(&api) + from, static_cast<const void*>(&function),
                sizeof(function));
  }
}

// Without a plugin, to learn which size of a frame the handler accepts.
std::string& ProbedError() {
  static thread_local std::string error;
  return error;
}
void* RefuseProbe(void*) { return &ProbedError(); }
void* KeepProbedError(ffi::ErrorCreateArgs* args) {
  ProbedError() = args->message;
  return &ProbedError();
}

KnownHandler Probe(const std::string& name, Handler handler) {
  WideApi api{};
  Fill(api, offsetof(ffi::Api, error_create), &RefuseProbe);
  api.api.struct_size = sizeof(api);
  api.api.api_version = {sizeof(ffi::Version), nullptr, 0, 1};
  api.api.error_create = &KeepProbedError;
  for (size_t size : {offsetof(ffi::CallFrame, future), sizeof(ffi::CallFrame)}) {
    struct {
      ffi::Metadata metadata{sizeof(ffi::Metadata), {sizeof(ffi::Version), nullptr, 0, 0}, 0};
      char room[64] = {};  // newer handlers write more
    } answer;
    ffi::MetadataExtension extension{{sizeof(extension), ffi::kMetadata, nullptr},
                                     &answer.metadata};
    ffi::CallFrame frame{};
    frame.struct_size = size;
    frame.extensions = &extension.base;
    frame.api = &api.api;
    if (handler(&frame) == nullptr) return {handler, size};
  }
  Throw(Code::kFailedPrecondition, name,
        ": the handler speaks another version of XLA's FFI: ", ProbedError());
}

const ffi::Api*& PluginApi() {
  static const ffi::Api* api = nullptr;
  return api;
}

void* MakeError(const ffi::Api& api, Code code, const std::string& message) {
  ffi::ErrorCreateArgs args{sizeof(args), nullptr, message.c_str(), static_cast<int>(code)};
  return api.error_create(&args);
}

void* NotInThePlugin(void*) {
  return MakeError(*PluginApi(), Code::kUnimplemented,
                   "the PJRT plugin is older than the handler, and has not what it asks for");
}

// One for all programs: there is one plugin.
const ffi::Api* Widen(const ffi::Api* plugin) {
  static const WideApi wide = [plugin] {
    PluginApi() = plugin;
    WideApi api{};
    std::memcpy(&api, plugin, std::min(plugin->struct_size, sizeof(api)));
    Fill(api, std::min(plugin->struct_size, sizeof(api)), &NotInThePlugin);
    api.api.struct_size = sizeof(api);
    return api;
  }();
  return &wide.api;
}

// XLA's own size of a frame ends before `future` even where it is there; it came together with the
// functions for it.
bool HasFuture(const ffi::CallFrame& frame) {
  return frame.struct_size >= sizeof(ffi::CallFrame) || frame.api->struct_size >= sizeof(ffi::Api);
}

// The handler that an attribute names, with the other attributes.
void* CallUser(ffi::CallFrame* frame) {
  if (ffi::AnswerMetadata(frame)) return nullptr;
  std::vector<int> types;
  std::vector<ffi::Text*> names;
  std::vector<void*> values;
  std::string name;
  for (int64_t i = 0; i < frame->attrs.size; ++i) {
    const ffi::Text& attribute = *frame->attrs.names[i];
    if (std::string_view(attribute.data, attribute.size) == kHandlerAttribute) {
      auto* text = static_cast<ffi::Text*>(frame->attrs.values[i]);
      name.assign(text->data, text->size);
      continue;
    }
    types.push_back(frame->attrs.types[i]);
    names.push_back(frame->attrs.names[i]);
    values.push_back(frame->attrs.values[i]);
  }
  KnownHandler handler{};
  {
    Tables& tables = Tables::Get();
    std::lock_guard<std::mutex> lock(tables.mutex);
    auto it = tables.handlers.find(name);
    if (it == tables.handlers.end()) {
      return MakeError(*frame->api, Code::kNotFound, "no FFI handler " + name + " in this process");
    }
    handler = it->second;
  }
  ffi::CallFrame own{};
  std::memcpy(&own, frame, offsetof(ffi::CallFrame, future));
  own.struct_size = handler.frame_size;
  own.api = Widen(frame->api);
  own.attrs.size = static_cast<int64_t>(types.size());
  own.attrs.types = types.data();
  own.attrs.names = names.data();
  own.attrs.values = values.data();
  void* error = handler.call(&own);
  if (own.future == nullptr) return error;
  if (!HasFuture(*frame)) return NotInThePlugin(nullptr);
  frame->future = own.future;
  return error;
}

}  // namespace

const CustomKernel& CustomKernel::Find(CustomKernel made) {
  Hasher hasher;
  hasher.AddBytes(made.op_->name());
  hasher.Add(made.ffi_);
  hasher.AddBytes(made.text_);
  hasher.AddBytes(hlo::Dictionary(made.attributes_));
  hasher.AddBytes(ToString(made.results_));
  for (const Shape& s : made.results_) hasher.Add(static_cast<uint64_t>(s.dtype));
  made.hash_ = hasher.Finish();
  Tables& tables = Tables::Get();
  {
    std::lock_guard<std::mutex> lock(tables.mutex);
    auto it = tables.kernels.find(made.hash_);
    if (it != tables.kernels.end()) return *it->second;
  }
  made.CheckSignature();
  std::lock_guard<std::mutex> lock(tables.mutex);
  auto& kernel = tables.kernels[made.hash_];
  if (!kernel) kernel.reset(new CustomKernel(std::move(made)));
  return *kernel;
}

// Embedded by itself: what is wrong in it is found here, and not in the program that it will be a
// part of.
void CustomKernel::CheckSignature() {
  if (ffi_) return;
  std::vector<Shape> given;
  try {
    pjrt::Signature signature = pjrt::ParseSignature(text_);
    parameters_ = std::move(signature.parameters);
    given = std::move(signature.results);
    pjrt::Client& client = lazy::Runtime::Get().client();
    try {
      hlo::Builder b;
      std::vector<hlo::Value> operands;
      for (const Shape& s : parameters_) operands.push_back(b.Parameter(s));
      client.Compile(b.Finish(hlo::CallModule(b, text_, operands, given)), {});
    } catch (const Error&) {
      client.Compile(text_, {});  // may say the same with the lines of the user's text
      throw;
    }
  } catch (const Error& e) {
    Throw(Code::kInvalidArgument, op_->name(), ": its StableHLO is refused: ", e.what());
  }
  XLA_CHECK(given == AsStored(results_), kInvalidArgument, op_->name(), ": its StableHLO gives ",
            ToString(given), ", its declared results are ", ToString(results_));
}

const CustomKernel& CustomKernel::StableHlo(const std::string& op, const std::string& module,
                                            std::vector<Shape> results) {
  CustomKernel made;
  made.op_ = &OpOf(op, &Lower);
  made.text_ = module;
  made.results_ = std::move(results);
  return Find(std::move(made));
}

const CustomKernel& CustomKernel::Ffi(const std::string& op, const std::string& handler,
                                      hlo::Attrs attributes, std::vector<Shape> results) {
  CustomKernel made;
  made.op_ = &OpOf(op, &Lower);
  made.text_ = handler;
  made.ffi_ = true;
  made.attributes_ = std::move(attributes);
  made.attributes_.emplace_back(kHandlerAttribute, handler);
  made.results_ = std::move(results);
  return Find(std::move(made));
}

// words: the hash, two of them
void CustomKernel::Lower(const ir::Node& node, hlo::Builder& b,
                         std::span<const hlo::Value> operands, std::vector<hlo::Value>& outputs) {
  const Hash hash{static_cast<uint64_t>(node.words()[0]), static_cast<uint64_t>(node.words()[1])};
  const CustomKernel* kernel = nullptr;
  {
    Tables& tables = Tables::Get();
    std::lock_guard<std::mutex> lock(tables.mutex);
    kernel = tables.kernels.at(hash).get();
  }
  outputs = kernel->ffi_
                ? hlo::CustomCall(b, kTarget, operands, kernel->results_, kernel->attributes_)
                : hlo::CallModule(b, kernel->text_, operands, kernel->results_);
}

std::vector<at::Tensor> CustomKernel::Record(at::TensorList tensors) const {
  record::Recording r(*op_);
  for (const at::Tensor& t : tensors) r.Tensor(t);
  const int device = r.device();
  if (!ffi_) {
    std::vector<Shape> given;
    for (size_t i = 0; i < r.num_operands(); ++i) given.push_back(r.arg(i).shape());
    XLA_CHECK(AsStored(given) == parameters_, kInvalidArgument, op_->name(),
              ": its StableHLO takes ", ToString(parameters_), ", not ", ToString(given));
  }
  r.Word(static_cast<int64_t>(hash_.lo));
  r.Word(static_cast<int64_t>(hash_.hi));
  return record::Results<std::vector<at::Tensor>>::From(r.Finish(results_), device);
}

void RegisterFfiHandler(const std::string& name, void* handler) {
  lazy::Runtime& runtime = lazy::Runtime::Get();
  XLA_CHECK(runtime.client().RegisterFfiHandler(kTarget, reinterpret_cast<void*>(&CallUser)),
            kUnimplemented, "the PJRT plugin of ", runtime.platform(), " takes no FFI handlers");
  const KnownHandler known = Probe(name, reinterpret_cast<Handler>(handler));
  Tables& tables = Tables::Get();
  std::lock_guard<std::mutex> lock(tables.mutex);
  const KnownHandler& taken = tables.handlers.try_emplace(name, known).first->second;
  XLA_CHECK(taken.call == known.call, kAlreadyExists, name,
            ": there is another handler of that name");
}

}  // namespace torch_xla
