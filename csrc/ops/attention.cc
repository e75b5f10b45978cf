// Attention. scaled_dot_product_attention is torch's composite over matmul, softmax and dropout
// here, which XLA fuses; the fused kernels that torch knows are other devices'. The same for the
// kernels that torch's modules call in evaluation.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_masked_softmax.h>
#include <ATen/ops/_masked_softmax_backward_ops.h>
#include <ATen/ops/_masked_softmax_ops.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/_transform_bias_rescale_qkv.h>
#include <ATen/ops/_transform_bias_rescale_qkv_ops.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

constexpr int64_t kMath = 0;  // at::SDPBackend::math

int64_t FusedSdpChoice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                       bool) {
  return kMath;
}

// ---- Softmax where a true mask leaves an element out.

enum MaskType : int64_t { kSource = 0, kPadding = 1, kWhole = 2 };

// The mask's dimensions among x[batch, heads, queries, keys]: [queries, keys] or [batch, keys].
Value MaskFor(Value mask, Value x, std::optional<int64_t> type) {
  if (mask.dims() == x.dims()) return mask;
  bool padding = type == kPadding;
  return hlo::BroadcastInDim(mask, x.dims(), padding ? Dims{0, 3} : Dims{2, 3});
}

struct MaskedSoftmax {
  static Shape Infer(const Arg& self, const Arg& mask, std::optional<int64_t> dim,
                     std::optional<int64_t> type) {
    TORCH_CHECK(mask.dtype() == DType::kBool, "Mask should be a boolean tensor");
    TORCH_CHECK(type.has_value(), "Mask Type should be defined");
    TORCH_CHECK(*type >= kSource && *type <= kWhole,
                "Mask Type should be 0 (src_mask), 1 "
                "(src_key_padding_mask), or 2 (default_mask)");
    if (mask.dims() != self.dims()) {
      bool fits = self.rank() == 4 && mask.rank() == 2 && mask.dim(1) == self.dim(3) &&
                  *type != kWhole && mask.dim(0) == self.dim(*type == kPadding ? 0 : 2);
      XLA_CHECK(fits, kInvalidArgument,
                "Mask shape should match input. mask: ", ToString(mask.dims()),
                " input: ", ToString(self.dims()));
    }
    if (dim) WrapDim(*dim, self.rank());
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Value mask, std::optional<int64_t> dim,
                     std::optional<int64_t> type) {
    Value x = Widen(self);
    Dims dims = OneDim(dim.value_or(-1), x.rank());
    x = Where(MaskFor(mask, x, type), -HUGE_VAL, x);
    // Rows without an element are NaN.
    Value e = hlo::Exp(hlo::Sub(x, AlongKept(hlo::Reduce(x, dims, hlo::Reducer::kMax), x, dims)));
    return hlo::ConvertTo(hlo::Div(e, AlongKept(SumOf(e, dims), e, dims)), out.dtype);
  }
};

struct MaskedSoftmaxBackward {
  static Shape Infer(const Arg& grad, const Arg& output, const Arg& mask,
                     std::optional<int64_t> dim) {
    TORCH_CHECK(grad.dims() == mask.dims(), "Mask shape should match grad shape");
    if (dim) WrapDim(*dim, output.rank());
    return grad.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value output, Value mask,
                     std::optional<int64_t> dim) {
    Value y = Widen(output);
    Dims dims = OneDim(dim.value_or(-1), y.rank());
    Value g = Where(mask, 0, FitTo(grad, y));
    y = Where(mask, 0, y);
    Value dx = hlo::Mul(hlo::Sub(g, AlongKept(SumOf(hlo::Mul(g, y), dims), y, dims)), y);
    return hlo::ConvertTo(dx, out.dtype);
  }
};

// Of queries with so many elements.
double Scaling(int64_t size) { return 1 / std::sqrt(static_cast<double>(size)); }

// qkv[b, t, 3 * d] with its bias -> q, k, v of [b, heads, t, d / heads], q divided by the root.
struct TransformBiasRescaleQkv {
  static std::array<Shape, 3> Infer(const Arg& qkv, const Arg& bias, int64_t heads) {
    XLA_CHECK(qkv.rank() == 3 && bias.rank() == 1 && heads > 0 && bias.dim(0) == qkv.dim(2) &&
                  qkv.dim(2) % (3 * heads) == 0,
              kInvalidArgument, "expected qkv of [batch, time, 3 * heads * size], got ",
              ToString(qkv.dims()), " for ", heads, " heads");
    Shape one = qkv.shape().with({qkv.dim(0), heads, qkv.dim(1), qkv.dim(2) / 3 / heads});
    return {one, one, one};
  }
  static std::array<Value, 3> Lower(const std::vector<Shape>& out, Value qkv, Value bias,
                                    int64_t heads) {
    Value x = hlo::Add(Widen(qkv), FitTo(bias, Widen(qkv)));
    int64_t d = x.dim(2) / 3;
    std::array<Value, 3> parts;
    for (int64_t i = 0; i < 3; ++i) {
      Value part = hlo::SliceDim(x, 2, i * d, (i + 1) * d);
      part = hlo::Reshape(part, {x.dim(0), x.dim(1), heads, d / heads});
      part = hlo::Transpose(part, {0, 2, 1, 3});
      if (i == 0) part = Times(part, Scaling(d / heads));
      parts[static_cast<size_t>(i)] = hlo::ConvertTo(part, out[0].dtype);
    }
    return parts;
  }
};

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// [b, heads, t, size] of the inputs, q divided by the root of the size.
std::tuple<Tensor, Tensor, Tensor> Project(const Tensor& query, const Tensor& key,
                                           const Tensor& value, int64_t d, int64_t heads,
                                           const Tensor& weight, const Tensor& bias) {
  if (key.is_same(value) && query.is_same(key)) {
    return at::_transform_bias_rescale_qkv(at::linear(query, weight), bias, heads);
  }
  auto part = [&](const Tensor& x, int64_t i) {
    Tensor y = at::linear(x, weight.narrow(0, i * d, d), bias.narrow(0, i * d, d));
    return y.view({x.size(0), x.size(1), heads, d / heads}).transpose(1, 2);
  };
  Tensor q = part(query, 0) * Scaling(d / heads);
  return {q, part(key, 1), part(value, 2)};
}

std::tuple<Tensor, Tensor> MultiHeadAttention(const Tensor& query, const Tensor& key,
                                              const Tensor& value, int64_t d, int64_t heads,
                                              const Tensor& qkv_weight, const Tensor& qkv_bias,
                                              const Tensor& proj_weight, const Tensor& proj_bias,
                                              const OptionalTensor& mask, bool need_weights,
                                              bool average, std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.sizes() == key.sizes() && key.sizes() == value.sizes(),
              "expected `query`/`key`/`value` shapes to match");
  TORCH_CHECK(qkv_weight.dim() == 2, "expected 2-D `qkv_weight`, got ", qkv_weight.dim(),
              "-D tensor");
  TORCH_CHECK(qkv_bias.dim() == 1, "expected 1-D `qkv_bias`, got ", qkv_bias.dim(), "-D tensor");
  TORCH_CHECK(d % heads == 0, "D must divide evenly by num_head");
  TORCH_CHECK(qkv_weight.size(0) == 3 * d, "expected `qkv_weight` first dim to be 3x embed_dim");
  auto [q, k, v] = Project(query, key, value, d, heads, qkv_weight, qkv_bias);
  Tensor scores = at::matmul(q, k.transpose(-2, -1));
  if (mask.has_value() && mask->defined()) {
    Tensor m = mask->scalar_type() == at::kBool ? *mask : mask->to(at::kBool);
    scores = at::_masked_softmax(scores, m, scores.dim() - 1, mask_type);
  } else {
    scores = at::softmax(scores, -1);
  }
  Tensor y = at::matmul(scores, v).transpose(1, 2).reshape({query.size(0), query.size(1), d});
  y = at::linear(y, proj_weight, proj_bias);
  if (!need_weights) return {y, Tensor()};
  return {y, average ? scores.mean(1) : scores};
}

Tensor EncoderLayer(const Tensor& src, int64_t d, int64_t heads, const Tensor& qkv_weight,
                    const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias,
                    bool use_gelu, bool norm_first, double eps, const Tensor& norm_weight_1,
                    const Tensor& norm_bias_1, const Tensor& norm_weight_2,
                    const Tensor& norm_bias_2, const Tensor& ffn_weight_1, const Tensor& ffn_bias_1,
                    const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                    const OptionalTensor& mask, std::optional<int64_t> mask_type) {
  auto norm = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return at::layer_norm(x, {d}, weight, bias, eps);
  };
  auto attend = [&](const Tensor& x) {
    return std::get<0>(at::_native_multi_head_attention(
        x, x, x, d, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
        /*need_weights=*/false, /*average_attn_weights=*/false, mask_type));
  };
  auto feed = [&](const Tensor& x) {
    Tensor y = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(y) : at::relu(y), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    Tensor x = src + attend(norm(src, norm_weight_1, norm_bias_1));
    return x + feed(norm(x, norm_weight_2, norm_bias_2));
  }
  Tensor x = norm(src + attend(src), norm_weight_1, norm_bias_1);
  return norm(x + feed(x), norm_weight_2, norm_bias_2);
}

// Whether nn.TransformerEncoder may go on with nested tensors, which are for CPU and CUDA only. To
// look at the mask would wait for the device, and change nothing.
bool MaskLeftAligned(const Tensor& t, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Expected mask to be of ScalarType Bool, but got ",
              mask.scalar_type(), " instead.");
  TORCH_CHECK(mask.dim() == 2, "Padding mask should be 2D");
  TORCH_CHECK(t.dim() == 3, "Input should be a 3D tensor, N * L * D");
  TORCH_CHECK(t.size(0) == mask.size(0) && t.size(1) == mask.size(1),
              "Mask size should match input size");
  return false;
}

}  // namespace

XLA_OPS(m) {
  m.impl("_fused_sdp_choice", TORCH_FN(FusedSdpChoice));
  Register<at::_ops::_masked_softmax, MaskedSoftmax>(m);
  Register<at::_ops::_masked_softmax_backward, MaskedSoftmaxBackward>(m);
  Register<at::_ops::_transform_bias_rescale_qkv, TransformBiasRescaleQkv>(m);
  m.impl("_native_multi_head_attention", TORCH_FN(MultiHeadAttention));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(EncoderLayer));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(MaskLeftAligned));
}

}  // namespace torch_xla::ops
