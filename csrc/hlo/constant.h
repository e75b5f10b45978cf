// Constants: scalars, whole tensors, fills, iota, and the limits of the types.
#pragma once

#include <complex>

#include "hlo/builder.h"

namespace torch_xla::hlo {

// A scalar, rounded to the type as a C++ cast would. Integers: the value is truncated and must fit.
Value Scalar(Builder& b, DType dtype, double value);
// Exact for every int64; wraps around to the type's width. Bool: value != 0.
Value ScalarInt(Builder& b, DType dtype, int64_t value);
Value ScalarComplex(Builder& b, DType dtype, std::complex<double> value);

// From row-major bytes as PyTorch lays them out (bool: one byte each; of C32: complex<f32>).
// Bit-exact.
Value Constant(Builder& b, const Shape& shape, const void* data);

// -> T[...] of one value: a broadcast scalar, whatever the size.
Value Full(Builder& b, const Shape& shape, double value);
Value FullInt(Builder& b, const Shape& shape, int64_t value);
Value FullLike(Value x, double value);

// -> T[...] with out[i0, i1, ...] = i_dim
Value Iota(Builder& b, const Shape& shape, int64_t dim);

// Scalars that max and min reductions start from: -inf / +inf for floats (the finite limits where
// the type has no infinity), the limits of integers, false / true. LowestValue is MinValue.
Value MinValue(Builder& b, DType dtype);
Value MaxValue(Builder& b, DType dtype);
Value LowestValue(Builder& b, DType dtype);
// The largest finite value; for integers and bool MaxValue. The lowest one is its negative.
Value MaxFiniteValue(Builder& b, DType dtype);
// The same as a number, for floating types.
double MaxFinite(DType dtype);

}  // namespace torch_xla::hlo
