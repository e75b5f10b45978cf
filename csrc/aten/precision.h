// With how much precision float32 products are computed.
#pragma once

#include <optional>

#include "hlo/builder.h"

namespace torch_xla {

// What torch.set_float32_matmul_precision says, unless `set` here; none takes it back.
void SetMatMulPrecision(std::optional<hlo::Precision> precision);
hlo::Precision MatMulPrecision();

// Graphs ask from now on.
void InstallMatMulPrecision();

}  // namespace torch_xla
