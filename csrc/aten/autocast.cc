// torch.autocast("xla"): PyTorch's own cast lists at the AutocastXLA key.
#include <ATen/autocast_mode.h>
#include <ATen/ops/_convolution.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_thnn_fused_gru_cell.h>
#include <ATen/ops/_thnn_fused_lstm_cell.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bilinear.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/chain_matmul.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/conv_tbc.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/conv_transpose3d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/cosine_embedding_loss.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/cross.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/dist.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/frobenius_norm.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/gru_cell.h>
#include <ATen/ops/hinge_embedding_loss.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linalg_matrix_norm.h>
#include <ATen/ops/linalg_multi_dot.h>
#include <ATen/ops/linalg_vecdot.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/lstm_cell.h>
#include <ATen/ops/margin_ranking_loss.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/multi_margin_loss.h>
#include <ATen/ops/multilabel_margin_loss.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/nll_loss2d.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/nuclear_norm.h>
#include <ATen/ops/pdist.h>
#include <ATen/ops/poisson_nll_loss.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/renorm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rnn_relu_cell.h>
#include <ATen/ops/rnn_tanh_cell.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/soft_margin_loss.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tensordot.h>
#include <ATen/ops/triplet_margin_loss.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/vdot.h>
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
#define XLA_REDISPATCH(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(kXla, __VA_ARGS__)

// In float32, as on the CPU; refused in float16 as on CUDA, whose gradient overflows.
Tensor BinaryCrossEntropy(const Tensor& input, const Tensor& target,
                          const std::optional<Tensor>& weight, int64_t reduction) {
  TORCH_CHECK(
      get_autocast_dtype(kXla) != kHalf,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
      "In this case, combine the two layers using torch.nn.functional."
      "binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  "
      "binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast.");
  c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastXLA);
  return at::binary_cross_entropy(cached_cast(kFloat, input, kXla),
                                  cached_cast(kFloat, target, kXla),
                                  cached_cast(kFloat, weight, kXla), reduction);
}

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
  AT_FORALL_LOWER_PRECISION_FP(XLA_LOWER)
  AT_FORALL_FP32(XLA_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(XLA_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(XLA_REDISPATCH)
  AT_FORALL_PROMOTE(XLA_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(BinaryCrossEntropy));
}

}  // namespace
}  // namespace at::autocast
