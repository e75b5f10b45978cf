// Conversion between element types with PyTorch's rules, for lowerings.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// float -> int truncates, anything -> bool is `!= 0`, complex -> real takes the real part.
Value ConvertTo(Value x, DType to);

// complex[...] -> C32[...], also of a C32 that was computed with, and so may have parts that are no
// halves.
Value RoundToHalves(Value x);

// The bits as an unsigned integer of the same width (bool: u8), so that a NaN equals itself and
// zeros have signs; and back. Not for complex numbers.
Value ToBits(Value x);
Value FromBits(Value bits, DType to);

}  // namespace torch_xla::hlo
