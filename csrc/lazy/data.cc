#include "lazy/data.h"

#include <utility>

#include "base/metrics.h"
#include "base/wait.h"

namespace torch_xla::lazy {

void Execution::Finished() {
  static metrics::Metric* execute_time = metrics::GetMetric("ExecuteTime");
  if (recorded_.exchange(true)) return;
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start_;
  metrics::AddSample(execute_time, took.count());
}

Data::~Data() {
  // The plugin's threads do not exist in a forked child: leave its memory alone.
  if (InForkedChild()) new pjrt::BufferPtr(std::move(buffer_));
}

void Data::Set(pjrt::BufferPtr buffer, std::shared_ptr<Execution> execution) {
  std::lock_guard<std::mutex> lock(mutex_);
  buffer_ = std::move(buffer);
  execution_ = std::move(execution);
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

void Data::Finished() const {
  std::shared_ptr<Execution> execution;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    execution = execution_;
  }
  if (execution) execution->Finished();
}

pjrt::BufferPtr Data::Get(Status* error) const {
  std::lock_guard<std::mutex> lock(mutex_);
  XLA_INTERNAL_CHECK(filled_, "an argument's producer was not launched before its user");
  *error = error_;
  return buffer_;
}

}  // namespace torch_xla::lazy
