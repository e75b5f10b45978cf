// Embedding tables and one-hot vectors.
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/embedding_renorm_ops.h>
#include <ATen/ops/max.h>
#include <ATen/ops/one_hot_ops.h>

#include <cmath>

#include "ops/lowering.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

void CheckIndices(const Arg& indices) {
  TORCH_CHECK(indices.dtype() == DType::kS64 || indices.dtype() == DType::kS32,
              "Expected tensor for argument #1 'indices' to have one of the following scalar "
              "types: Long, Int; but got torch.xla.",
              TorchName(indices.dtype()),
              "Tensor instead (while checking arguments for embedding)");
}

struct Embedding {
  static Shape Infer(const Arg& weight, const Arg& indices, int64_t, bool, bool) {
    TORCH_CHECK(weight.rank() == 2, "'weight' must be 2-D");
    CheckIndices(indices);
    Dims out = indices.dims();
    out.push_back(weight.dim(1));
    return weight.shape().with(out);
  }
  static Value Lower(const Shape&, Value weight, Value indices, int64_t, bool, bool) {
    return Take(weight, 0, indices);
  }
};

struct EmbeddingDenseBackward {
  static Shape Infer(const Arg& g, const Arg& indices, int64_t num_weights, int64_t, bool) {
    CheckIndices(indices);
    return g.shape().with({num_weights, g.dim(-1)});
  }
  static Value Lower(const Shape& out, Value g, Value indices, int64_t num_weights,
                     int64_t padding_idx, bool scale_grad_by_freq) {
    int64_t n = indices.shape().numel();
    Value zeros = hlo::Full(g.builder(), out.with(Wide(out.dtype)), 0);
    if (g.shape().numel() == 0) return hlo::ConvertTo(zeros, out.dtype);
    Value at = hlo::Reshape(indices, {n});
    Value rows = hlo::Reshape(Widen(g), {n, out.dims[1]});
    if (scale_grad_by_freq) {
      Value ones = hlo::Full(g.builder(), {rows.dtype(), {n}}, 1);
      Value counts = hlo::Scatter(hlo::Full(g.builder(), {rows.dtype(), {num_weights}}, 0), at,
                                  ones, Numbers({}), Combine(hlo::Reducer::kSum));
      rows = hlo::Div(rows, AlongDim(Take(counts, 0, at), rows.dims(), 0));
    }
    // The padding row is sent out of range, where a scatter drops it.
    if (padding_idx >= 0) {
      Value padding = hlo::Eq(at, FullLike(at, static_cast<double>(padding_idx)));
      at = Where(padding, static_cast<double>(num_weights), at);
    }
    Value sum = hlo::Scatter(zeros, at, rows, Numbers({1}), Combine(hlo::Reducer::kSum));
    return hlo::ConvertTo(sum, out.dtype);
  }

 private:
  static hlo::ScatterDims Numbers(const Dims& window) {
    return {.update_window_dims = window,
            .inserted_window_dims = {0},
            .input_batching_dims = {},
            .scatter_indices_batching_dims = {},
            .scatter_dims_to_operand_dims = {0},
            .index_vector_dim = 1};
  }
};

// Rows that are looked up are scaled down to the largest norm.
struct EmbeddingRenorm {
  static Shape Infer(const Arg& weight, const Arg& indices, double, double) {
    TORCH_CHECK(weight.rank() == 2, "Expected 2-dimensional tensor, but got ", weight.rank(),
                "-dimensional tensor for argument #1 'self' (while checking arguments for "
                "embedding_renorm_)");
    CheckIndices(indices);
    return weight.shape();
  }
  static Value Lower(const Shape& out, Value weight, Value indices, Value max_norm,
                     double norm_type) {
    Builder& b = weight.builder();
    int64_t n = indices.shape().numel();
    if (n == 0 || out.numel() == 0) return weight;
    Value looked_up = hlo::Full(b, {DType::kBool, {out.dims[0]}}, 0);
    looked_up = ScatterDim(looked_up, 0, hlo::Reshape(indices, {n}),
                           hlo::Full(b, {DType::kBool, {n}}, 1), Replace());
    Value x = Widen(weight), norm = NormOf(hlo::Abs(x), norm_type);
    Value limit = FitTo(max_norm, norm);
    Value scale = hlo::Div(limit, Plus(norm, 1e-7));
    scale = Where(hlo::And(looked_up, hlo::Gt(norm, limit)), scale, 1);
    return hlo::ConvertTo(hlo::Mul(x, AlongDim(scale, x.dims(), 0)), out.dtype);
  }

 private:
  // Of the rows of x, which is nowhere negative.
  static Value NormOf(Value x, double p) {
    if (std::isinf(p)) {
      return hlo::Reduce(x, {1}, p > 0 ? hlo::Reducer::kMax : hlo::Reducer::kMin);
    }
    if (p == 0) return Sum(Where(IsZero(x), 0, FullLike(x, 1)), {1});
    if (p == 1) return Sum(x, {1});
    if (p == 2) return hlo::Sqrt(Sum(Square(x), {1}));
    Value sum = Sum(hlo::Pow(x, FullLike(x, p)), {1});
    return hlo::Pow(sum, FullLike(sum, 1 / p));
  }
};

// A comparison instead of the composite's scatter: it fuses with what uses it.
struct OneHot {
  static Shape Infer(const Arg& self, int64_t num_classes) {
    Dims out = self.dims();
    out.push_back(num_classes);
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, int64_t) {
    Value x = hlo::BroadcastInDim(self, out.dims, Range(self.rank()));
    Value classes = hlo::Iota(self.builder(), out, out.rank() - 1);
    return hlo::ConvertTo(hlo::Eq(x, classes), out.dtype);
  }
};

at::Tensor OneHotOf(const at::Tensor& self, int64_t num_classes) {
  TORCH_CHECK(self.scalar_type() == at::kLong,
              "one_hot is only applicable to index tensor of type LongTensor.");
  TORCH_CHECK(self.numel() != 0 || num_classes > 0,
              "Can not infer total number of classes from empty tensor.");
  TORCH_CHECK(num_classes == -1 || num_classes >= 1, "num_classes should be positive");
  // Only this form has to look at the values.
  if (num_classes == -1) num_classes = at::max(self).item().toLong() + 1;
  return record::Kernel<at::_ops::one_hot, OneHot>::Call(self, num_classes);
}

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::embedding, Embedding>(m);
  Register<at::_ops::embedding_dense_backward, EmbeddingDenseBackward>(m);
  Register<at::_ops::embedding_renorm_, EmbeddingRenorm>(m);
  m.impl("one_hot", TORCH_FN(OneHotOf));
}

}  // namespace torch_xla::ops
