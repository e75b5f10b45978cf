// Pieces that the lowerings of the nn, indexing and movement families share.
#pragma once

#include <numeric>

#include "hlo/reduce.h"
#include "ops/common.h"

namespace torch_xla::ops {

inline size_t At(int64_t i) { return static_cast<size_t>(i); }

// start, start + 1, ..., n of them.
inline Dims Range(int64_t n, int64_t start = 0) {
  Dims d(At(n), 0);
  std::iota(d.begin(), d.end(), start);
  return d;
}
inline Dims AllBut(int64_t rank, int64_t dim) {
  Dims d = Range(rank);
  d.erase(At(dim));
  return d;
}

// Throws in the words of expand() unless `from` broadcasts to `to`.
inline void CheckExpands(const Dims& from, const Dims& to) {
  TORCH_CHECK(from.size() <= to.size(), "expand: the number of sizes provided (", to.size(),
              ") must be greater or equal to the number of dimensions in the tensor (", from.size(),
              ")");
  for (size_t i = 0; i < from.size(); ++i) {
    size_t at = to.size() - from.size() + i;
    TORCH_CHECK(from[i] == 1 || from[i] == to[at], "The expanded size of the tensor (", to[at],
                ") must match the existing size (", from[i], ") at non-singleton dimension ", at,
                ".  Target sizes: ", ToString(to), ".  Tensor sizes: ", ToString(from));
  }
}

// Throws "value cannot be converted to type int without overflow" where it cannot.
inline void CheckFits(const at::Scalar& value, DType to) {
  switch (to) {
    case DType::kS8: (void)value.toChar(); break;
    case DType::kU8: (void)value.toByte(); break;
    case DType::kS16: (void)value.toShort(); break;
    case DType::kS32: (void)value.toInt(); break;
    case DType::kS64: (void)value.toLong(); break;
    case DType::kF16: (void)value.toHalf(); break;
    case DType::kBF16: (void)value.toBFloat16(); break;
    case DType::kF32: (void)value.toFloat(); break;
    case DType::kF64: (void)value.toDouble(); break;
    case DType::kC32: (void)value.toComplexHalf(); break;
    case DType::kC64: (void)value.toComplexFloat(); break;
    default: break;
  }
}

// v[n] along dimension `dim` of `dims`.
inline Value AlongDim(Value v, const Dims& dims, int64_t dim) {
  return hlo::BroadcastInDim(v, dims, {dim});
}
inline Value IotaLike(Value x, int64_t dim, DType dtype = DType::kS64) {
  return hlo::Iota(x.builder(), x.shape().with(dtype), dim);
}

// A number as a scalar of x's type.
inline Value ScalarOf(Value x, double v) { return hlo::Scalar(x.builder(), x.dtype(), v); }

inline Value Sum(Value x, const Dims& dims) {
  return dims.empty() ? x : hlo::Reduce(x, dims, hlo::Reducer::kSum);
}

// Constant vectors.
inline Value Int64s(Builder& b, Span v) {
  return hlo::Constant(b, {DType::kS64, {static_cast<int64_t>(v.size())}}, v.data());
}
inline Value Floats(Builder& b, DType t, std::span<const double> v) {
  return hlo::ConvertTo(hlo::Constant(b, {DType::kF64, {static_cast<int64_t>(v.size())}}, v.data()),
                        t);
}

// x[a, dim, z] at index[i...] along dim -> [a, i..., z]. Indices are clamped.
inline Value Take(Value x, int64_t dim, Value index) {
  Dims out = x.dims(), slice = x.dims(), offsets;
  out.erase(At(dim));
  for (int64_t i = 0; i < index.rank(); ++i) out.insert(At(dim + i), index.dim(i));
  if (Product(out) == 0) return hlo::Full(x.builder(), x.shape().with(out), 0);
  slice[At(dim)] = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) offsets.push_back(i < dim ? i : i + index.rank() - 1);
  }
  return hlo::Gather(x, index,
                     {.offset_dims = offsets,
                      .collapsed_slice_dims = {dim},
                      .operand_batching_dims = {},
                      .start_indices_batching_dims = {},
                      .start_index_map = {dim},
                      .index_vector_dim = index.rank()},
                     slice);
}

// Each element `times` times in a row along dim.
inline Value RepeatEach(Value x, int64_t dim, int64_t times) {
  Dims split = x.dims(), joined = x.dims(), kept = Range(x.rank());
  split.insert(At(dim) + 1, times);
  joined[At(dim)] *= times;
  for (int64_t& d : kept) d += d > dim;
  return hlo::Reshape(hlo::BroadcastInDim(x, split, kept), joined);
}

// Negative indices count from the end of `size`.
inline Value WrapIndex(Value index, int64_t size) {
  index = hlo::ConvertTo(index, DType::kS64);
  return hlo::Select(LtZero(index), Plus(index, static_cast<double>(size)), index);
}

// Bodies of scatters: combine with, or take the place of, what is there.
inline hlo::Body Combine(hlo::Reducer reducer) {
  return [reducer](Builder&, std::span<const Value> v) {
    return std::vector<Value>{hlo::Apply(reducer, v[0], v[1])};
  };
}
inline hlo::Body Replace() {
  return [](Builder&, std::span<const Value> v) { return std::vector<Value>{v[1]}; };
}

}  // namespace torch_xla::ops
