// Matrix products and convolutions.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// DotGeneral: lhs[batch, m..., k...], rhs[batch, k..., n...] (in any order of dimensions) ->
// [batch, m..., n...]. `result` is the type of the accumulation, by default the operands'.
Value DotGeneral(Value lhs, Value rhs, const Dims& lhs_batch, const Dims& rhs_batch,
                 const Dims& lhs_contract, const Dims& rhs_contract,
                 Precision precision = Precision::kHighest, std::optional<DType> result = {});

struct ConvDims {
  int64_t input_batch = 0;
  int64_t input_feature = 1;
  Dims input_spatial;
  int64_t kernel_in = 1;
  int64_t kernel_out = 0;
  Dims kernel_spatial;
  int64_t out_batch = 0;
  int64_t out_feature = 1;
  Dims out_spatial;

  // [N, C, spatial...] x [O, I, spatial...] -> [N, O, spatial...], PyTorch's order.
  static ConvDims Default(int64_t spatial_rank);
};

// Convolution: lhs[n, ci, x...], rhs[co, ci / groups, k...] -> [n / batch_group_count, co, y...]
// with y = (low + dilated(x, lhs_dilation) + high - dilated(k, rhs_dilation)) / stride + 1.
Value Convolution(Value lhs, Value rhs, const ConvDims& dims, const Dims& strides,
                  const Dims& pad_low, const Dims& pad_high, const Dims& lhs_dilation,
                  const Dims& rhs_dilation, int64_t feature_group_count = 1,
                  int64_t batch_group_count = 1, const std::vector<bool>& window_reversal = {},
                  Precision precision = Precision::kHighest, std::optional<DType> result = {});

}  // namespace torch_xla::hlo
