#include "lazy/data.h"

#include <iomanip>
#include <sstream>
#include <utility>

#include "base/metrics.h"
#include "base/wait.h"

namespace torch_xla::lazy {

void ThrowOutOfMemory(double bytes, const std::string& what) {
  std::ostringstream gib;
  gib << std::fixed << std::setprecision(2) << bytes / 0x1p30;
  Throw(Code::kResourceExhausted, "XLA out of memory. Tried to allocate ", gib.str(), " GiB for ",
        what);
}

void Execution::SetInputs(std::vector<std::shared_ptr<Execution>> inputs) {
  std::lock_guard<std::mutex> lock(mutex_);
  inputs_ = std::move(inputs);
}

void Execution::Finished() {
  static metrics::Metric* execute_time = metrics::GetMetric("ExecuteTime");
  std::vector<std::shared_ptr<Execution>> inputs;  // released after the lock
  {
    std::lock_guard<std::mutex> lock(mutex_);
    inputs.swap(inputs_);
  }
  if (recorded_.exchange(true)) return;
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start_;
  metrics::AddSample(execute_time, took.count());
}

Status Execution::Failed(const Status& error) {
  std::vector<std::shared_ptr<Execution>> inputs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.ok()) return error_;
    inputs.swap(inputs_);
  }
  Status first;
  for (const auto& input : inputs) {
    if (first.ok()) first = input->error();
  }
  if (first.ok()) {
    first = error;
    first.message += "\n  in a graph of " + graph_.operators;
    if (graph_.line != nullptr) {
      first.message += StrCat(", launched at ", graph_.line->file, ":", graph_.line->line);
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (error_.ok()) error_ = std::move(first);
  return error_;
}

Status Execution::error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_;
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

Status Data::Explain(const Status& error) const {
  Status explained = error;
  if (op_ != nullptr && explained.message.find("\n  computing ") == std::string::npos) {
    explained.message += StrCat("\n  computing ", op_->name());
    if (line_ != nullptr)
      explained.message += StrCat(", recorded at ", line_->file, ":", line_->line);
  }
  return explained;
}

pjrt::BufferPtr Data::Wait() const {
  CheckNotForked();
  std::unique_lock<std::mutex> lock(mutex_);
  WaitFor(
      lock, filled_cv_, [this] { return filled_; },
      [this] { return "the launch that computes " + ToString(shape_); });
  if (!error_.ok()) Explain(error_).ThrowIfError();
  XLA_INTERNAL_CHECK(!donated_, "a buffer was read after a program had taken it over");
  return buffer_;
}

void Data::WaitReady(pjrt::Buffer& buffer) const {
  std::shared_ptr<Execution> execution;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    execution = execution_;
  }
  try {
    buffer.ReadyEvent().Wait("the computation of a tensor");
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& e) {
    if (!execution || e.code() == Code::kDeadlineExceeded) throw;
    Explain(execution->Failed({e.code(), e.what()})).ThrowIfError();
  }
  if (execution) execution->Finished();
}

Data::Argument Data::Take(bool dies) {
  std::lock_guard<std::mutex> lock(mutex_);
  XLA_INTERNAL_CHECK(filled_, "an argument's producer was not launched before its user");
  if (error_.ok() && execution_) error_ = execution_->error();
  if (!error_.ok()) return {nullptr, Explain(error_), nullptr, false};
  XLA_INTERNAL_CHECK(!donated_, "a buffer was used after a program had taken it over");
  // A reader that was interrupted may hold the buffer without this object.
  if (!dies || buffer_.use_count() != 1) return {buffer_, {}, execution_, false};
  donated_ = true;
  return {std::move(buffer_), {}, std::move(execution_), true};
}

}  // namespace torch_xla::lazy
