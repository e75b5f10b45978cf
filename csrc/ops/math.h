// Functions that StableHLO does not have, over values of floating type; defined in special.cc.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::ops {

inline bool Is64(hlo::Value x) { return x.dtype() == DType::kF64; }

// Of bfloat16 and up to float64; of integers: negative.
hlo::Value SignBit(hlo::Value x);
// The bits of a float as a signed integer.
hlo::Value FloatBits(hlo::Value x);
// The magnitude of a with the sign bit of b.
hlo::Value CopySign(hlo::Value a, hlo::Value b);
// Towards zero.
hlo::Value Trunc(hlo::Value x);

// log(exp(a) + exp(b)) without overflow; equal infinities are their own result. Of complex numbers,
// too.
hlo::Value LogAddExp(hlo::Value a, hlo::Value b);

// Of float32 and float64.
hlo::Value Erf(hlo::Value x);
hlo::Value Erfc(hlo::Value x);
hlo::Value Erfcx(hlo::Value x);  // exp(x * x) erfc(x)
hlo::Value ErfInv(hlo::Value x);
hlo::Value Lgamma(hlo::Value x);
hlo::Value Digamma(hlo::Value x);
// log(x^a exp(-x) / gamma(a + 1)): of an integer a, the log of its Poisson probability.
hlo::Value LogPoisson(hlo::Value a, hlo::Value x);

}  // namespace torch_xla::ops
