// PyTorch's CPU kernels called inside of the compiled program, by an FFI handler: for algorithms
// that StableHLO does not have (qr, svd, eigh...), on plugins that run on the host. Elsewhere the
// operator is a counted fallback.
#pragma once

#include <torch/library.h>

#include <vector>

#include "base/shape.h"

namespace torch_xla {

// The result shapes, of an operator that has no meta kernel; none where they depend on data, which
// then is a counted fallback.
using ShapesFn = std::vector<Shape> (*)(const std::vector<c10::IValue>& args);

// Registers such a kernel for aten::<name>, a functional operator whose result shapes follow from
// the shapes of its arguments. PyTorch's meta kernel says them and raises for wrong arguments,
// unless `shapes` does.
void RegisterHostCall(torch::Library& m, const char* name, ShapesFn shapes = nullptr);

}  // namespace torch_xla
