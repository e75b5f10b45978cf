// Gather and scatter with an index of the operand's rank, and along one dimension.
#pragma once

#include <string_view>

#include "ops/lowering.h"

namespace torch_xla::ops {

// At least one dimension: PyTorch takes a 0-d tensor for one of size 1.
inline Value AtLeast1d(Value x) { return x.rank() == 0 ? hlo::Reshape(x, {1}) : x; }

// out[i, j, k] = x[i, index[i, j, k], k]; the index may be smaller in other dimensions.
Value GatherAlong(Value x, int64_t dim, Value index);
// x[i, index[i, j, k], k] combined with src[i, j, k]. Indices out of range are skipped.
Value ScatterAlong(Value x, int64_t dim, Value index, Value src, const hlo::Body& combine);
// x[i, index[j], k] combined with src[i, j, k].
Value ScatterDim(Value x, int64_t dim, Value index, Value src, const hlo::Body& combine);

// (what is there, updates, how to combine) -> the new values
using ScatterFn = std::function<Value(Value, Value, const hlo::Body&)>;
// "sum", "prod", "mean", "amax" or "amin" of the updates, and what is there if `include_self`.
Value ScatterReduce(Value x, Value src, std::string_view reduce, bool include_self,
                    const ScatterFn& scatter);

}  // namespace torch_xla::ops
