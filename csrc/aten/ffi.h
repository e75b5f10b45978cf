// FFI handlers written as functions that throw.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "base/error.h"
#include "pjrt/ffi.h"

namespace torch_xla::ffi {

// The handler whose work is `fn`; what that throws is the execution's error.
template <void (*fn)(const CallFrame&)>
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

}  // namespace torch_xla::ffi
