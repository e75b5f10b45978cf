#include "pjrt/key_value.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "pjrt/c_api.h"

namespace torch_xla::pjrt {
namespace {

std::atomic<std::shared_ptr<KeyValueStore>*> current{nullptr};

KeyValueStore& StoreOf(void* user_arg) { return *static_cast<KeyValueStore*>(user_arg); }

// What the plugin copies, and then gives back by Delete.
template <typename Args>
void Return(Args& args, const std::string& value) {
  args.value = new char[value.size() + 1];
  std::memcpy(args.value, value.data(), value.size());
  args.value_size = value.size();
  args.value_deleter_callback = [](char* p) { delete[] p; };
}

// No exception may cross the plugin.
template <typename Args, typename Fn>
PJRT_Error* Guarded(Args& args, Fn fn) {
  auto fail = [&](Code code, std::string_view message) {
    return (*args.callback_error)(static_cast<PJRT_Error_Code>(code), message.data(),
                                  message.size());
  };
  try {
    fn();
    return nullptr;
  } catch (const Error& e) {
    return fail(e.code(), e.what());
  } catch (const std::exception& e) {
    return fail(Code::kInternal, e.what());
  }
}

PJRT_Error* Get(PJRT_KeyValueGetCallback_Args* args) {
  return Guarded(*args, [&] {
    Return(*args, StoreOf(args->user_arg)
                      .Get(std::string(args->key, args->key_size),
                           std::chrono::milliseconds(args->timeout_in_ms)));
  });
}

PJRT_Error* TryGet(PJRT_KeyValueTryGetCallback_Args* args) {
  return Guarded(*args, [&] {
    const std::string key(args->key, args->key_size);
    std::optional<std::string> value = StoreOf(args->user_arg).TryGet(key);
    if (!value) Throw(Code::kNotFound, "nobody has set ", key);
    Return(*args, *value);
  });
}

PJRT_Error* Put(PJRT_KeyValuePutCallback_Args* args) {
  return Guarded(*args, [&] {
    StoreOf(args->user_arg)
        .Set(std::string(args->key, args->key_size), std::string(args->value, args->value_size));
  });
}

}  // namespace

void SetKeyValueStore(std::shared_ptr<KeyValueStore> store) {
  current.store(new std::shared_ptr<KeyValueStore>(std::move(store)));
}

KeyValueStore* GetKeyValueStore() {
  auto* store = current.load();
  return store != nullptr ? store->get() : nullptr;
}

void SetCallbacks(PJRT_Client_Create_Args& args, KeyValueStore& store) {
  args.kv_get_callback = Get;
  args.kv_get_user_arg = &store;
  args.kv_put_callback = Put;
  args.kv_put_user_arg = &store;
  args.kv_try_get_callback = TryGet;
  args.kv_try_get_user_arg = &store;
}

}  // namespace torch_xla::pjrt
