// FFI handlers written as functions that throw.
#pragma once

#include <c10/util/Exception.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "pjrt/ffi.h"

namespace torch_xla::ffi {

// The handler whose work is `fn`; what that throws is the execution's error.
template <auto fn>
void* Handle(CallFrame* frame) {
  if (AnswerMetadata(frame)) return nullptr;
  std::string message;
  int code = kInternalError;
  try {
    fn(*frame);
    return nullptr;
  } catch (const Error& e) {
    message = e.what();
    code = static_cast<int>(e.code());
  } catch (const c10::Error& e) {
    message = e.what_without_backtrace();
  } catch (const std::exception& e) {
    message = e.what();
  }
  ErrorCreateArgs args{sizeof(args), nullptr, message.c_str(), code};
  return frame->api->error_create(&args);
}

// Of a handler that goes on elsewhere after it has returned: no thread of the plugin waits for it,
// and work of the program that does not need its results runs meanwhile.
class Promise {
 public:
  // Once, on any thread.
  void Keep(const Status& status) {
    if (future_ == nullptr) {
      std::lock_guard<std::mutex> lock(mutex_);
      status_ = status;
      kept_.notify_all();
      return;
    }
    if (status.ok()) {
      FutureArgs args{sizeof(args), nullptr, future_};
      api_->future_set_available(&args);
      return;
    }
    ErrorCreateArgs error{sizeof(error), nullptr, status.message.c_str(),
                          static_cast<int>(status.code)};
    FutureErrorArgs args{sizeof(args), nullptr, future_, api_->error_create(&error)};
    api_->future_set_error(&args);
  }

 private:
  template <auto start>
  friend void Asynchronously(CallFrame& frame);

  const Api* api_ = nullptr;
  void* future_ = nullptr;  // null where the plugin has none: the handler waits
  std::mutex mutex_;
  std::condition_variable kept_;
  std::optional<Status> status_;
};

// Calls start(frame, promise), which sees to it that the promise is kept, or throws before.
template <auto start>
void Asynchronously(CallFrame& frame) {
  auto promise = std::make_shared<Promise>();
  promise->api_ = frame.api;
  if (frame.struct_size >= sizeof(CallFrame) && frame.api->struct_size >= sizeof(Api)) {
    FutureArgs args{sizeof(args), nullptr, nullptr};
    if (frame.api->future_create(&args) == nullptr) frame.future = promise->future_ = args.future;
  }
  try {
    start(frame, promise);
  } catch (const Error& e) {
    promise->Keep({e.code(), e.what()});
  }
  if (promise->future_ != nullptr) return;
  std::unique_lock<std::mutex> lock(promise->mutex_);
  promise->kept_.wait(lock, [&] { return promise->status_.has_value(); });
  promise->status_->ThrowIfError();
}

}  // namespace torch_xla::ffi
