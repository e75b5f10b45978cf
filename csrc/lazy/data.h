// A buffer on a device that may still be on its way.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "ir/node.h"
#include "pjrt/client.h"

namespace torch_xla::lazy {

// One execution of a program. Its time is recorded once, by whoever first knows that it is over:
// the plugin's event or a reader of its results, who may look at the metrics at once.
class Execution {
 public:
  void Finished();

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<bool> recorded_{false};
};

// Made when a program is launched or a copy begins; filled once, by the launcher or the uploading
// thread, with a buffer or with the error that took its place.
class Data : public ir::Payload {
 public:
  Data(Shape shape, int device) : shape_(std::move(shape)), device_(device) {}
  ~Data() override;

  const Shape& shape() const { return shape_; }
  int device() const { return device_; }

  // `execution`: the one that computes the buffer, null for an upload.
  void Set(pjrt::BufferPtr buffer, std::shared_ptr<Execution> execution = nullptr);
  void SetError(Status error);
  // Waits until filled (interruptible, limited), throws the error that took the buffer's place.
  pjrt::BufferPtr Wait() const;
  // To be called when the buffer is known to be ready.
  void Finished() const;
  // For the launcher, whose order guarantees that it is filled: buffer, or null and the error.
  pjrt::BufferPtr Get(Status* error) const;

 private:
  const Shape shape_;
  const int device_;
  mutable std::mutex mutex_;
  mutable std::condition_variable filled_cv_;
  bool filled_ = false;
  pjrt::BufferPtr buffer_;
  std::shared_ptr<Execution> execution_;
  Status error_;
};

}  // namespace torch_xla::lazy
