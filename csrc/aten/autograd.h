// For kernels of ours at the autograd key.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>

namespace torch_xla {

// Leads to torch's own kernel, which stands at the autograd keys of all backends.
inline c10::DispatchKeySet ToTorchAutograd(c10::DispatchKeySet keys) {
  return keys.remove(c10::DispatchKey::AutogradXLA).add(c10::DispatchKey::AutogradOther);
}

// Whether a derivative by `t` is recorded, or follows it (forward mode).
inline bool HasGradient(const at::Tensor& t) {
  return (at::GradMode::is_enabled() && t.requires_grad()) || t._fw_grad(/*level=*/0).defined();
}

}  // namespace torch_xla
