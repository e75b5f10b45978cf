#include "lazy/launch.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"

namespace torch_xla::lazy {
namespace {

pjrt::BufferPtr Zeros(Runtime& runtime, const Shape& shape, int device) {
  std::vector<char> zeros(shape.bytes());
  return runtime.client().BufferFromHost(zeros.data(), shape.with(Stored(shape.dtype)), device,
                                         pjrt::HostBuffer::kCopiedDuringCall);
}

// The arguments of a launch, on the launcher's thread.
class Arguments {
 public:
  explicit Arguments(Launch& launch) {
    Runtime& runtime = launch.runtime;
    const bool packed = !launch.lanes.empty();
    if (packed) {
      Shape shape{DType::kS64, {static_cast<int64_t>(launch.lanes.size())}};
      Add(runtime.client().BufferFromHost(launch.lanes.data(), shape, launch.device,
                                          pjrt::HostBuffer::kCopiedDuringCall));
    }
    const std::vector<bool>& donatable = launch.program->donatable();
    std::vector<bool> failed;
    std::vector<pjrt::BufferPtr> taken(launch.arguments.size());
    for (size_t i = 0; i < launch.arguments.size(); ++i) {
      Ref<Data>& data = launch.arguments[i];
      const size_t parameter = i + (packed ? 1 : 0);
      const bool may = parameter < donatable.size() && donatable[parameter];
      // Whoever could still ask for the buffer refers to the Data, and nobody can begin to who
      // does not: with a count of one it is this launch's alone.
      Data::Argument a = data->Take(may && data->use_count() == 1);
      if (may && !a.last) non_donatable_.push_back(static_cast<int64_t>(parameter));
      if (a.execution) inputs_.push_back(std::move(a.execution));
      taken[i] = std::move(a.buffer);
      if (a.error.ok()) continue;
      failed.resize(launch.arguments.size());
      failed[i] = true;
      if (error_.ok()) error_ = a.error;
    }
    if (!error_.ok()) {
      // What does not depend on the failure is computed all the same, unless others, such as the
      // replicas of a collective, would take what stands for the missing values for real.
      lost_ = launch.program->flow().Reached(failed);
      for (size_t effect : launch.program->effects()) {
        if (lost_[effect]) lost_.assign(lost_.size(), true);
      }
      if (all_lost()) return;
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      if (!failed.empty() && failed[i]) {
        taken[i] = Zeros(runtime, launch.arguments[i]->shape(), launch.device);
      }
      Add(std::move(taken[i]));
    }
  }

  const std::vector<std::vector<pjrt::Buffer*>>& lists() const { return lists_; }
  std::vector<int64_t> non_donatable() const { return non_donatable_; }
  std::vector<std::shared_ptr<Execution>> TakeInputs() { return std::move(inputs_); }
  // Whether a result depends on an argument that failed, and the first such failure.
  bool Lost(size_t result) const { return !lost_.empty() && lost_[result]; }
  bool all_lost() const {
    return !lost_.empty() && std::find(lost_.begin(), lost_.end(), false) == lost_.end();
  }
  const Status& error() const { return error_; }

 private:
  void Add(pjrt::BufferPtr buffer) {
    lists_[0].push_back(buffer.get());
    buffers_.push_back(std::move(buffer));
  }

  std::vector<pjrt::BufferPtr> buffers_;
  std::vector<std::vector<pjrt::Buffer*>> lists_{1};
  std::vector<int64_t> non_donatable_;
  std::vector<std::shared_ptr<Execution>> inputs_;
  Status error_;
  std::vector<bool> lost_;
};

// Before a program that takes much of the host's memory. Plugins take it for results when Execute
// is called, not when the device comes to it, so the executions before it finish first and give
// back theirs; and the allocator gives back what it keeps free, which costs page faults that only
// large programs do not notice.
void MakeRoom(const Launch& launch) {
  constexpr int64_t kLarge = int64_t{1} << 26;
  const auto& memory = launch.program->memory();
  if (launch.runtime.platform() != "CPU" || !memory) return;
  if (memory->output - memory->alias + memory->temp < kLarge) return;
  launch.runtime.WaitForExecutions(launch.device);
  malloc_trim(0);
}

void Run(Launch& launch, const std::shared_ptr<Execution>& execution) {
  static metrics::Counter* executions = metrics::GetCounter("ExecuteComputation");
  Runtime& runtime = launch.runtime;
  Arguments arguments(launch);
  if (arguments.all_lost()) {
    for (const Ref<Data>& r : launch.results) r->SetError(arguments.error());
    runtime.LaunchDone(launch.device);
    return;
  }
  execution->SetInputs(arguments.TakeInputs());
  pjrt::ExecuteOptions options;
  options.device = launch.device;
  options.non_donatable = arguments.non_donatable();
  executions->Add();
  MakeRoom(launch);
  pjrt::ExecuteResult result = launch.program->Get().Execute(arguments.lists(), options);
  XLA_INTERNAL_CHECK(result.outputs[0].size() == launch.results.size());
  for (size_t i = 0; i < launch.results.size(); ++i) {
    if (arguments.Lost(i)) {
      launch.results[i]->SetError(arguments.error());
    } else {
      launch.results[i]->Set(std::move(result.outputs[0][i]), execution);
    }
  }
  runtime.ExecutionStarted(launch.device);
  try {
    result.done[0].OnReady([execution, &runtime, device = launch.device](const Status& status) {
      if (!status.ok()) execution->Failed(status);
      execution->Finished();
      runtime.ExecutionDone(device);
      runtime.LaunchDone(device);
    });
  } catch (...) {
    runtime.ExecutionDone(launch.device);
    throw;
  }
}

}  // namespace

void RunOrFail(Launch& launch) {
  auto execution =
      std::make_shared<Execution>(LaunchedGraph{launch.program->operators(), launch.line});
  Status error;
  try {
    Run(launch, execution);
    return;
  } catch (const Error& e) {
    error = {e.code(), e.what()};
  } catch (const std::exception& e) {
    error = {Code::kInternal, e.what()};
  }
  error = execution->Failed(error);
  for (const Ref<Data>& r : launch.results) r->SetError(error);
  launch.runtime.LaunchDone(launch.device);
}
}  // namespace torch_xla::lazy
