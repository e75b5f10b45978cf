// What several kernels need: errors in PyTorch's words, host scalars, conversion, promotion.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "aten/tensor_impl.h"
#include "base/shape.h"
#include "ir/node.h"

namespace torch_xla {

[[noreturn]] void RaiseDeviceMismatch(c10::Device a, c10::Device b);

// The value of a 0-d CPU tensor as a scalar leaf keeps it (ir::Node::MakeScalar).
struct HostScalar {
  DType dtype;
  int64_t lane0 = 0, lane1 = 0;
};
HostScalar ReadHostScalar(const at::Tensor& t);

// The value in another dtype (itself when equal), with PyTorch's rules of conversion.
ir::Value Convert(ir::Value value, DType to);
// Throws "value cannot be converted to type int without overflow" where it cannot.
void CheckFits(const at::Scalar& value, DType to);
// A tensor of the shape filled with a static number, or with an input one.
ir::Value FullStatic(const Shape& shape, double value);
ir::Value Full(const Shape& shape, const at::Scalar& value);

// The device that a factory call names, or the current one; throws where it does not exist.
int DeviceOf(std::optional<c10::Device> device);

}  // namespace torch_xla
