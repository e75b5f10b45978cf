// Torch's element types and ours.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/dtype.h"

namespace torch_xla {

// Throws TypeError, in PyTorch's manner, for types that no XLA device has (quantized, bits...).
DType ToDType(at::ScalarType type);
at::ScalarType ToScalarType(DType type);

}  // namespace torch_xla
