// embedding_bag: rows of a table added up, averaged or maximised over bags of consecutive indices,
// and the gradients of the table and of the weights of the samples.
#include <ATen/ops/_embedding_bag_backward_ops.h>
#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_ops.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>

#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

void CheckIndexType(const char* name, const Arg& a) {
  TORCH_CHECK(a.dtype() == DType::kS64 || a.dtype() == DType::kS32, "expected ", name,
              " to be long or int, got ", TorchName(a.dtype()));
}

Value Int64(Value x) { return hlo::ConvertTo(x, DType::kS64); }

// For each of n indices the bag that it is in: how many of the sorted offsets are not behind it,
// less one, found by bisection.
Value BagOf(Value offsets, int64_t n) {
  Builder& b = offsets.builder();
  const Shape shape{DType::kS64, {n}};
  Value position = hlo::Iota(b, shape, 0);
  Value count = hlo::Full(b, shape, 0);
  int64_t size = offsets.dim(0), step = 1;
  if (size == 0) return count;
  while (step * 2 <= size) step *= 2;
  for (; step > 0; step /= 2) {
    Value next = Plus(count, static_cast<double>(step));
    Value last = Take(offsets, 0, Plus(next, -1));
    Value fits = hlo::Le(next, FullLike(next, static_cast<double>(size)));
    count = hlo::Select(hlo::And(fits, hlo::Le(last, position)), next, count);
  }
  return Plus(count, -1);
}

// Whether an index counts; the padding row does not.
Value Counts(Value indices, int64_t padding_idx) {
  return hlo::Ne(indices, FullLike(indices, static_cast<double>(padding_idx)));
}

// v[n] along the rows of x[n, d].
Value Rows(Value v, Value x) { return AlongDim(hlo::ConvertTo(v, x.dtype()), x.dims(), 0); }

struct EmbeddingBag {
  static std::array<Shape, 4> Infer(const Arg& weight, const Arg& indices, const Arg& offsets, bool,
                                    int64_t mode, bool, const Arg* per_sample_weights,
                                    bool include_last_offset, int64_t) {
    CheckIndexType("indices", indices);
    CheckIndexType("offsets", offsets);
    XLA_CHECK(weight.rank() == 2 && indices.rank() == 1 && offsets.rank() == 1 &&
                  IsFloat(weight.dtype()) && mode >= kSum && mode <= kMax,
              kInvalidArgument, "embedding_bag: unexpected arguments");
    int64_t bags = offsets.dim(0);
    if (include_last_offset) {
      TORCH_CHECK(bags >= 1, "include_last_offset: numBags should be at least 1");
      --bags;
    }
    if (per_sample_weights) {
      TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights only supported with mode='sum'");
      XLA_CHECK(per_sample_weights->rank() == 1 && per_sample_weights->dtype() == weight.dtype() &&
                    per_sample_weights->numel() == indices.numel(),
                kInvalidArgument, "expected per_sample_weights to be the same as indices");
    }
    Shape like_indices{indices.dtype(), {indices.dim(0)}};
    Shape best = like_indices.with(mode == kMax ? Dims{bags, weight.dim(1)} : Dims{0});
    return {weight.shape().with({bags, weight.dim(1)}), like_indices,
            like_indices.with(Dims{offsets.dim(0)}), best};
  }
  static std::array<Value, 4> Lower(const std::vector<Shape>& out, Value weight, Value indices,
                                    Value offsets, bool, int64_t mode, bool,
                                    std::optional<Value> per_sample_weights, bool,
                                    int64_t padding_idx) {
    Builder& b = weight.builder();
    int64_t n = indices.dim(0), bags = out[0].dims[0];
    indices = Int64(indices);
    Value bag = BagOf(Int64(offsets), n);
    // What comes after the last offset (include_last_offset) counts as the last bag's.
    bag = hlo::Min(bag, FullLike(bag, static_cast<double>(std::max<int64_t>(bags - 1, 0))));
    Value counts = Counts(indices, padding_idx);
    // What doesn't count is sent to no bag.
    Value into = Where(counts, bag, -1);
    into = hlo::Select(LtZero(into), FullLike(into, static_cast<double>(out[2].dims[0])), into);
    Value sizes = hlo::Full(b, {DType::kS64, out[2].dims}, 0);
    sizes = ScatterDim(sizes, 0, into, hlo::Full(b, bag.shape(), 1), Combine(hlo::Reducer::kSum));
    Value x = Widen(Take(weight, 0, indices));
    if (per_sample_weights) x = hlo::Mul(x, Rows(*per_sample_weights, x));
    Value y, best = hlo::Full(b, out[3], 0);
    if (mode == kMax) {
      std::tie(y, best) = Maximum(x, indices, bag, into, out[0].dims);
    } else {
      y = hlo::Full(b, x.shape().with(out[0].dims), 0);
      y = ScatterDim(y, 0, into, x, Combine(hlo::Reducer::kSum));
      if (mode == kMean) {
        Value divisor = hlo::SliceDim(sizes, 0, 0, bags);
        divisor = hlo::Max(divisor, FullLike(divisor, 1));
        y = hlo::Div(y, Rows(divisor, y));
      }
    }
    return {hlo::ConvertTo(y, out[0].dtype), hlo::ConvertTo(bag, out[1].dtype),
            hlo::ConvertTo(sizes, out[2].dtype), hlo::ConvertTo(best, out[3].dtype)};
  }

 private:
  // Maxima of x[n, d] over the bags, and the index of the first sample that has it; 0 of no sample.
  static std::pair<Value, Value> Maximum(Value x, Value indices, Value bag, Value into,
                                         const Dims& dims) {
    Builder& b = x.builder();
    int64_t n = x.dim(0);
    if (n == 0) return {hlo::Full(b, {x.dtype(), dims}, 0), hlo::Full(b, {DType::kS64, dims}, 0)};
    Value lowest = hlo::BroadcastTo(hlo::LowestValue(b, x.dtype()), dims);
    Value y = ScatterDim(lowest, 0, into, x, Combine(hlo::Reducer::kMax));
    Value position = IotaLike(x, 0);
    Value none = FullLike(position, static_cast<double>(n));
    Value hit = hlo::Eq(x, Take(y, 0, bag));
    hit = hlo::Or(hit, IsNan(x));
    Value first = hlo::Full(b, {DType::kS64, dims}, static_cast<double>(n));
    first =
        ScatterDim(first, 0, into, hlo::Select(hit, position, none), Combine(hlo::Reducer::kMin));
    Value found = hlo::Lt(first, FullLike(first, static_cast<double>(n)));
    return {Where(found, y, 0), Where(found, Take(indices, 0, first), 0)};
  }
};

// The gradient of the table.
struct EmbeddingBagDenseBackward {
  static Shape Infer(const Arg& grad, const Arg&, const Arg&, const Arg&, const Arg&,
                     int64_t num_weights, bool, int64_t, const Arg*, int64_t) {
    return grad.shape().with({num_weights, grad.dim(1)});
  }
  static Value Lower(const Shape& out, Value grad, Value indices, Value offset2bag, Value bag_size,
                     Value maximum_indices, int64_t num_weights, bool scale_grad_by_freq,
                     int64_t mode, std::optional<Value> per_sample_weights, int64_t padding_idx) {
    Builder& b = grad.builder();
    Value g = Widen(grad);
    Value table = hlo::Full(b, out.with(g.dtype()), 0);
    auto sum = Combine(hlo::Reducer::kSum);
    if (indices.dim(0) == 0) return hlo::ConvertTo(table, out.dtype);
    if (mode == kMax) {
      Value sizes = hlo::SliceDim(bag_size, 0, 0, g.dim(0));
      Value some = AlongDim(hlo::Gt(sizes, FullLike(sizes, 0)), g.dims(), 0);
      table = ScatterAlong(table, 0, Int64(maximum_indices), Where(some, g, 0), sum);
      return hlo::ConvertTo(table, out.dtype);
    }
    indices = Int64(indices);
    Value bag = Int64(offset2bag);
    Value rows = Take(g, 0, bag);
    if (mode == kMean) rows = hlo::Div(rows, Rows(Take(bag_size, 0, bag), rows));
    if (per_sample_weights) rows = hlo::Mul(rows, Rows(*per_sample_weights, rows));
    if (scale_grad_by_freq) {
      Value counts = hlo::Full(b, {g.dtype(), {num_weights}}, 0);
      Value ones = hlo::Full(b, {g.dtype(), indices.dims()}, 1);
      counts = ScatterDim(counts, 0, indices, ones, sum);
      rows = hlo::Div(rows, Rows(Take(counts, 0, indices), rows));
    }
    Value at = Where(Counts(indices, padding_idx), indices, static_cast<double>(num_weights));
    return hlo::ConvertTo(ScatterDim(table, 0, at, rows, sum), out.dtype);
  }
};

struct EmbeddingBagPerSampleWeightsBackward {
  static Shape Infer(const Arg& grad, const Arg&, const Arg& indices, const Arg&, const Arg&,
                     int64_t mode, int64_t) {
    TORCH_CHECK(mode == kSum,
                "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
    return grad.shape().with({indices.dim(0)});
  }
  static Value Lower(const Shape& out, Value grad, Value weight, Value indices, Value,
                     Value offset2bag, int64_t, int64_t padding_idx) {
    indices = Int64(indices);
    Value rows = Widen(Take(weight, 0, indices));
    Value g = hlo::ConvertTo(Take(grad, 0, Int64(offset2bag)), rows.dtype());
    Value dot = Sum(hlo::Mul(g, rows), {1});
    return hlo::ConvertTo(Where(Counts(indices, padding_idx), dot, 0), out.dtype);
  }
};

using OptionalTensor = std::optional<at::Tensor>;

// Gradients are dense: the device has no sparse tensors.
at::Tensor Backward(const at::Tensor& grad, const at::Tensor& indices, const at::Tensor& offsets,
                    const at::Tensor& offset2bag, const at::Tensor& bag_size,
                    const at::Tensor& maximum_indices, c10::SymInt num_weights,
                    bool scale_grad_by_freq, int64_t mode, bool sparse,
                    const OptionalTensor& per_sample_weights, int64_t padding_idx) {
  if (sparse) {
    return at::_embedding_bag_sparse_backward_symint(grad, indices, offsets, offset2bag, bag_size,
                                                     std::move(num_weights), scale_grad_by_freq,
                                                     mode, per_sample_weights, padding_idx);
  }
  return at::_ops::_embedding_bag_dense_backward::call(
      grad, indices, offset2bag, bag_size, maximum_indices, std::move(num_weights),
      scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

}  // namespace

XLA_OPS(m) {
  namespace op = at::_ops;
  Register<op::_embedding_bag, EmbeddingBag>(m);
  Register<op::_embedding_bag_forward_only, EmbeddingBag>(m);
  Register<op::_embedding_bag_dense_backward, EmbeddingBagDenseBackward>(m);
  Register<op::_embedding_bag_per_sample_weights_backward, EmbeddingBagPerSampleWeightsBackward>(m);
  m.impl("_embedding_bag_backward", TORCH_FN(Backward));
}

}  // namespace torch_xla::ops
