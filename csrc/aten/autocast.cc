// torch.autocast("xla"): PyTorch's own cast lists at the AutocastXLA key.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

constexpr auto kXla = c10::DeviceType::XLA;

// Everything else falls through: without a kernel every operator would raise inside autocast.
TORCH_LIBRARY_IMPL(_, AutocastXLA, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define XLA_LOWER(...) KERNEL(kXla, __VA_ARGS__, lower_precision_fp)
#define XLA_FP32(...) KERNEL(kXla, __VA_ARGS__, fp32)
#define XLA_OPT_DTYPE(...) KERNEL(kXla, __VA_ARGS__, fp32_set_opt_dtype)
#define XLA_PROMOTE(...) KERNEL(kXla, __VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
  AT_FORALL_LOWER_PRECISION_FP(XLA_LOWER)
  AT_FORALL_FP32(XLA_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(XLA_OPT_DTYPE)
  AT_FORALL_PROMOTE(XLA_PROMOTE)
}

}  // namespace
}  // namespace at::autocast
