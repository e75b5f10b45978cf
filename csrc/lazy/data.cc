#include "lazy/data.h"

#include <utility>

#include "base/wait.h"

namespace torch_xla::lazy {

Data::~Data() {
  // The plugin's threads do not exist in a forked child: leave its memory alone.
  if (InForkedChild()) new pjrt::BufferPtr(std::move(buffer_));
}

void Data::Set(pjrt::BufferPtr buffer) {
  std::lock_guard<std::mutex> lock(mutex_);
  buffer_ = std::move(buffer);
  filled_ = true;
  filled_cv_.notify_all();
}

void Data::SetError(Status error) {
  std::lock_guard<std::mutex> lock(mutex_);
  error_ = std::move(error);
  filled_ = true;
  filled_cv_.notify_all();
}

pjrt::BufferPtr Data::Wait() const {
  CheckNotForked();
  std::unique_lock<std::mutex> lock(mutex_);
  WaitFor(
      lock, filled_cv_, [this] { return filled_; },
      [this] { return "the launch that computes " + ToString(shape_); });
  error_.ThrowIfError();
  return buffer_;
}

pjrt::BufferPtr Data::Get(Status* error) const {
  std::lock_guard<std::mutex> lock(mutex_);
  XLA_INTERNAL_CHECK(filled_, "an argument's producer was not launched before its user");
  *error = error_;
  return buffer_;
}

}  // namespace torch_xla::lazy
