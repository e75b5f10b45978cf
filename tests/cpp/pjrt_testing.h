// Shared by the tests of the PJRT layer.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {

// The error that `fn` throws; ok when it throws none.
template <typename F>
Status StatusOf(F&& fn) {
  try {
    std::forward<F>(fn)();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The plugin that the environment names; "" fails the tests that need one.
inline std::string ConformanceLibrary() {
  const char* path = std::getenv("PJRT_CONFORMANCE_LIBRARY");
  return path != nullptr ? path : "";
}

// Sets a variable (null: unsets it) for the scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) {
      old_ = old;
      had_ = true;
    }
    Set(value);
  }
  ~ScopedEnv() { Set(had_ ? old_.c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void Set(const char* value) {
    if (value != nullptr) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::string old_;
  bool had_ = false;
};

template <typename T>
BufferPtr ToDevice(Client& client, const std::vector<T>& values, const Shape& shape,
                   int device = 0) {
  return client.BufferFromHost(values.data(), shape, device, HostBuffer::kCopiedDuringCall);
}

template <typename T>
std::vector<T> ToHost(Buffer& buffer) {
  std::vector<T> values(static_cast<size_t>(buffer.shape().numel()));
  buffer.CopyToHost(values.data()).Wait("the copy");
  return values;
}

// One launch on one device; returns its results.
inline std::vector<BufferPtr> Launch(Executable& executable, std::vector<Buffer*> arguments,
                                     const ExecuteOptions& options = {}) {
  ExecuteResult result = executable.Execute(std::span(&arguments, 1), options);
  result.done.at(0).Wait("the execution");
  return std::move(result.outputs.at(0));
}

// Programs in the text form that our printer has.
inline std::string AddModule(const std::string& type, const std::string& first_attributes = "") {
  return "module @add {\n  func.func @main(%arg0: " + type + first_attributes + ", %arg1: " + type +
         ") -> (" + type + ") {\n    %0 = \"stablehlo.add\"(%arg0, %arg1) : (" + type + ", " +
         type + ") -> " + type + "\n    \"func.return\"(%0) : (" + type + ") -> ()\n  }\n}\n";
}

}  // namespace torch_xla::pjrt
