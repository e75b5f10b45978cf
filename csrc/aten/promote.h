// PyTorch's type promotion and broadcasting for shape rules.
#pragma once

#include <initializer_list>

#include "aten/record.h"
#include "base/shape.h"

namespace torch_xla {

// The common dtype: dimensioned tensors before 0-d ones before Python numbers; a later group counts
// only where its category (bool, int, float, complex) is higher.
DType Promote(std::initializer_list<Arg> args);
DType Promote(std::span<const Arg> args);
// With a Scalar argument of the schema as a further Python number.
DType Promote(const Arg& a, const at::Scalar& s);
// Promoted to the default float type where it would be integral or bool.
DType PromoteToFloat(std::initializer_list<Arg> args);
DType ToFloat(DType t);

// "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1".
Dims Broadcast(Span a, Span b);
Dims Broadcast(std::initializer_list<Arg> args);

// dim in [0, rank), for rank 0 as for rank 1; throws IndexError in PyTorch's words.
int64_t WrapDim(int64_t dim, int64_t rank);
// Sorted and unique; an empty or missing list means all dimensions. Throws on repeats.
Dims WrapDims(std::optional<Span> dims, int64_t rank);
// Without (or, keepdim, with size 1 in) the given sorted dimensions.
Dims ReducedDims(const Dims& dims, const Dims& reduced, bool keepdim);

}  // namespace torch_xla
