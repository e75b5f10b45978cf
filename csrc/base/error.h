// The one exception type of the core, and the status that asynchronous work carries.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace torch_xla {

// The codes are PJRT's (absl's), so that a plugin's error keeps its meaning on the way up.
enum class Code {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

const char* CodeName(Code code);

// Thrown by every layer below csrc/aten; csrc/bindings maps it to Python once.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// Thrown out of an interruptible wait when the user pressed Ctrl-C (base/wait.h).
class Interrupted : public Error {
 public:
  Interrupted() : Error(Code::kCancelled, "interrupted") {}
};

// Outcome of asynchronous work; ok by default.
struct Status {
  Code code = Code::kOk;
  std::string message;

  bool ok() const { return code == Code::kOk; }
  void ThrowIfError() const {
    if (!ok()) throw Error(code, message);
  }
};

template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <typename... Args>
[[noreturn]] void Throw(Code code, const Args&... args) {
  throw Error(code, StrCat(args...));
}

}  // namespace torch_xla

// For what a user can cause: XLA_CHECK(n > 0, kInvalidArgument, "[op] n is ", n).
#define XLA_CHECK(cond, code, ...)                              \
  do {                                                          \
    if (!(cond)) [[unlikely]]                                   \
      ::torch_xla::Throw(::torch_xla::Code::code, __VA_ARGS__); \
  } while (false)

// For what only a bug of ours can cause.
#define XLA_INTERNAL_CHECK(cond, ...)                                                          \
  XLA_CHECK(cond, kInternal, "internal error at ", __FILE__, ":", __LINE__, " (", #cond, ") ", \
            ##__VA_ARGS__)
