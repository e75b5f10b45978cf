// Reductions on the host: how values of the replicas become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace torch_xla::dist {

enum class Reduce : int64_t { kSum, kMul, kAnd, kOr, kMin, kMax };

const char* ReduceName(Reduce op);  // "sum"
// Whether the type has the operation: no order among complex numbers, no bits in floats.
bool Supports(Reduce op, DType dtype);

// out[i] = op over the inputs of input[i]. 16-bit and smaller floats are added up in float32 and
// rounded once. NaN wins over numbers in min and max. `out` may be one of the inputs.
void ReduceInto(Reduce op, DType dtype, std::span<const void* const> inputs, void* out,
                size_t count);
// The same into several outputs, each of which may be one of the inputs.
void ReduceInto(Reduce op, DType dtype, std::span<const void* const> inputs,
                std::span<void* const> outs, size_t count);

}  // namespace torch_xla::dist
