// Conversion between element types with PyTorch's rules, for lowerings.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// float -> int truncates, anything -> bool is `!= 0`, complex -> real takes the real part.
Value ConvertTo(Value x, DType to);

}  // namespace torch_xla::hlo
