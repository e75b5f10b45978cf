// scaled_dot_product_attention is torch's composite over matmul, softmax and dropout here, which
// XLA fuses; the fused kernels that torch knows are other devices'.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torch_xla::ops {
namespace {

constexpr int64_t kMath = 0;  // at::SDPBackend::math

int64_t FusedSdpChoice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                       bool) {
  return kMath;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, XLA, m) { m.impl("_fused_sdp_choice", TORCH_FN(FusedSdpChoice)); }

}  // namespace torch_xla::ops
