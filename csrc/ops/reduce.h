// What reductions, softmax and losses share.
#pragma once

#include "hlo/control.h"
#include "hlo/reduce.h"
#include "ops/common.h"

namespace torch_xla::ops {

// The one dimension, wrapped; none of a 0-d tensor.
inline Dims OneDim(int64_t dim, int64_t rank) {
  dim = WrapDim(dim, rank);
  return rank == 0 ? Dims{} : Dims{dim};
}

inline Shape ReducedShape(const Arg& self, const Dims& reduced, bool keepdim) {
  return self.shape().with(ReducedDims(self.dims(), reduced, keepdim));
}

// Reduced in the wide type of the result, in its shape.
inline Value ReduceIn(const Shape& out, Value x, const Dims& dims, hlo::Reducer reducer) {
  Value y = hlo::Reduce(hlo::ConvertTo(x, Wide(out.dtype)), dims, reducer);
  return hlo::ConvertTo(hlo::Reshape(y, out.dims), out.dtype);
}

// A value without the dimensions `reduced` of x, along them.
inline Value AlongKept(Value y, Value x, const Dims& reduced) {
  Dims kept;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (std::find(reduced.begin(), reduced.end(), i) == reduced.end()) kept.push_back(i);
  }
  return hlo::BroadcastInDim(y, x.dims(), kept);
}

// How many elements one result is made of.
inline int64_t CountOf(Value x, const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= x.dim(d);
  return n;
}

inline Value SumOf(Value x, const Dims& dims) { return hlo::Reduce(x, dims, hlo::Reducer::kSum); }
// XLA multiplies by the reciprocal of a constant that it sees: the mean of 49 ones would not be 1.
inline Value DivideBy(Value x, int64_t n) {
  Value divisor = hlo::Full(x.builder(), Shape{x.dtype(), {}}, static_cast<double>(n));
  return hlo::Div(x, hlo::BroadcastTo(hlo::OptimizationBarrier(divisor), x.dims()));
}
inline Value MeanOf(Value x, const Dims& dims) {
  return DivideBy(SumOf(x, dims), CountOf(x, dims));
}

// Of nonnegative numbers: 0 where there are none.
inline Value MaxOrZero(Value x, const Dims& dims) {
  Value y = hlo::Reduce(x, dims, hlo::Reducer::kMax);
  return CountOf(x, dims) == 0 ? FullLike(y, 0) : y;
}

// The first index along the one dimension of `dims` where x is `best`, or NaN if that is NaN.
inline Value FirstIndex(Value x, Value best, const Dims& dims) {
  if (dims.empty()) return hlo::FullInt(x.builder(), {DType::kS64, {}}, 0);
  int64_t n = x.dim(dims[0]);
  DType t = n < INT32_MAX ? DType::kS32 : DType::kS64;
  Value hit = hlo::Eq(x, AlongKept(best, x, dims));
  if (IsFloat(x.dtype())) hit = hlo::Or(hit, IsNan(x));
  Value index = hlo::Iota(x.builder(), x.shape().with(t), dims[0]);
  index = hlo::Select(hit, index, FullLike(index, static_cast<double>(n)));
  return hlo::ConvertTo(hlo::Reduce(index, dims, hlo::Reducer::kMin), DType::kS64);
}

}  // namespace torch_xla::ops
