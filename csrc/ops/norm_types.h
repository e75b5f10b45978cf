// The types of a normalisation's parameters.
#pragma once

#include "ops/lowering.h"

namespace torch_xla::ops {

// As the input's, or float32 where that is a smaller float.
inline void CheckNormTypes(const Arg& x, std::initializer_list<const Arg*> parameters) {
  for (const Arg* p : parameters) {
    XLA_CHECK(p == nullptr || p->dtype() == x.dtype() ||
                  (p->dtype() == DType::kF32 && IsFloat(x.dtype()) && ByteSize(x.dtype()) < 4),
              kInvalidArgument, "mixed dtype (CPU): expect parameter to have scalar type of ",
              TorchName(x.dtype()), ", but got ", TorchName(p->dtype()));
  }
}

}  // namespace torch_xla::ops
