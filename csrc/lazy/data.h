// A buffer on a device that may still be on its way.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/node.h"
#include "pjrt/client.h"

namespace torch_xla::lazy {

// kResourceExhausted in PyTorch's words.
[[noreturn]] void ThrowOutOfMemory(double bytes, const std::string& what);

// What was run, for messages.
struct LaunchedGraph {
  std::string operators;                 // summary of the graph
  const ir::SourceLine* line = nullptr;  // of the sync or read that launched it
};

// One execution of a program. Its time is recorded once, by whoever first knows that it is over:
// the plugin's event or a reader of its results, who may look at the metrics at once.
class Execution {
 public:
  explicit Execution(LaunchedGraph graph) : graph_(std::move(graph)) {}

  // Executions whose results it takes. Set before the launch.
  void SetInputs(std::vector<std::shared_ptr<Execution>> inputs);
  void Finished();
  // It failed: returns the error that all its results raise, with what was run; that of the first
  // failure when it failed for want of another execution's result.
  Status Failed(const Status& error);
  Status error() const;  // ok as far as it is known

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const LaunchedGraph graph_;
  std::atomic<bool> recorded_{false};
  mutable std::mutex mutex_;                        // guards what follows
  std::vector<std::shared_ptr<Execution>> inputs_;  // until it is over
  Status error_;
};

// Made when a program is launched or a copy begins; filled once, by the launcher or the uploading
// thread, with a buffer or with the error that took its place.
class Data : public ir::Payload {
 public:
  Data(Shape shape, int device) : shape_(std::move(shape)), device_(device) {}
  // The result of `producer`, which is asked for its name and line.
  Data(const Shape& shape, int device, const ir::Node& producer)
      : shape_(shape), device_(device), op_(&producer.op()), line_(producer.line()) {}
  ~Data() override;

  const Shape& shape() const { return shape_; }
  int device() const { return device_; }

  // `execution`: the one that computes the buffer, null for an upload.
  void Set(pjrt::BufferPtr buffer, std::shared_ptr<Execution> execution = nullptr);
  void SetError(Status error);
  // Waits until filled (interruptible, limited), throws the error that took the buffer's place.
  pjrt::BufferPtr Wait() const;
  // Waits until the buffer that Wait returned is ready. An execution's error is thrown with the
  // operator that computes this result.
  void WaitReady(pjrt::Buffer& buffer) const;

  // For the launcher, whose order guarantees that it is filled.
  struct Argument {
    pjrt::BufferPtr buffer;  // null: the error
    Status error;
    std::shared_ptr<Execution> execution;
    bool last = false;  // nobody else has the buffer, nor will: it was moved out
  };
  // `dies`: nobody but the caller refers to this object.
  Argument Take(bool dies);

 private:
  // The error with this result's operator and line.
  Status Explain(const Status& error) const;

  const Shape shape_;
  const int device_;
  const ir::OpDef* const op_ = nullptr;  // of the computation, null for an upload
  const ir::SourceLine* const line_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::condition_variable filled_cv_;
  bool filled_ = false;
  bool donated_ = false;
  pjrt::BufferPtr buffer_;
  std::shared_ptr<Execution> execution_;
  Status error_;
};

}  // namespace torch_xla::lazy
