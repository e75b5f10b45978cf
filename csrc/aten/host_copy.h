// Whole tensors, dense and sparse, between host and device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla {

// CPU copies of the XLA tensors of the list in one batch; others are passed through.
std::vector<at::Tensor> ToCpu(at::TensorList tensors);
at::Tensor ToCpu(const at::Tensor& tensor);
// A device copy of a CPU tensor of any strides, same dtype.
at::Tensor FromCpu(const at::Tensor& tensor, int device);

}  // namespace torch_xla
