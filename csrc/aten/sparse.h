// Sparse tensors: PyTorch's own objects, of indices and values that are XLA tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace torch_xla {

inline bool IsSparse(const at::TensorBase& t) {
  return t.defined() &&
         t.unsafeGetTensorImpl()->key_set().has_any(c10::sparse_ks | c10::sparse_csr_ks);
}

// A CSR, CSC, BSR or BSC tensor on the device of its members.
at::Tensor MakeCompressed(const at::Tensor& compressed, const at::Tensor& plain,
                          const at::Tensor& values, at::IntArrayRef size, at::Layout layout);
// The tensor, of any sparse layout, with each of its members moved by `move` to the device.
at::Tensor MapSparse(const at::Tensor& tensor, c10::Device device,
                     const std::function<at::Tensor(const at::Tensor&)>& move);
// `self` takes sizes, indices and values of another tensor of its layout and device.
void TakeSparse(const at::Tensor& self, const at::Tensor& from);

// Registers what has no kernel of ours under the keys of sparse XLA tensors: PyTorch's kernels,
// which as a rule are made of operators on indices and values, or the counted fallback for those
// that read memory. Call once, after InstallFallback.
void InstallSparse();
// How each operator with a kernel for sparse XLA tensors is served: "aten::bmm", and "native" (a
// kernel of ours), "composite" (PyTorch's) or "fallback".
std::vector<std::pair<std::string, std::string>> SparseRoutes();

}  // namespace torch_xla
