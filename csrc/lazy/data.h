// A buffer on a device that may still be on its way.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "base/error.h"
#include "ir/node.h"
#include "pjrt/client.h"

namespace torch_xla::lazy {

// Made when a program is launched or a copy begins; filled once, by the launcher or the uploading
// thread, with a buffer or with the error that took its place.
class Data : public ir::Payload {
 public:
  Data(Shape shape, int device) : shape_(std::move(shape)), device_(device) {}
  ~Data() override;

  const Shape& shape() const { return shape_; }
  int device() const { return device_; }

  void Set(pjrt::BufferPtr buffer);
  void SetError(Status error);
  // Waits until filled (interruptible, limited), throws the error that took the buffer's place.
  pjrt::BufferPtr Wait() const;
  // For the launcher, whose order guarantees that it is filled: buffer, or null and the error.
  pjrt::BufferPtr Get(Status* error) const;

 private:
  const Shape shape_;
  const int device_;
  mutable std::mutex mutex_;
  mutable std::condition_variable filled_cv_;
  bool filled_ = false;
  pjrt::BufferPtr buffer_;
  Status error_;
};

}  // namespace torch_xla::lazy
