// PyTorch's CPU kernels called inside of the compiled program, by an FFI handler: for algorithms
// that StableHLO does not have (qr, svd, eigh...), where elsewhere the operator is a counted
// fallback, and for those where the CPU plugins' own code is much slower (convolutions) or less
// exact (functions of complex numbers).
#pragma once

#include <torch/library.h>

#include <span>
#include <string>
#include <vector>

#include "base/shape.h"
#include "hlo/builder.h"

namespace torch_xla {

// The result shapes, of an operator that has no meta kernel; none where they depend on data, which
// then is a counted fallback.
using ShapesFn = std::vector<Shape> (*)(const std::vector<c10::IValue>& args);

// Registers such a kernel for aten::<name>, a functional operator whose result shapes follow from
// the shapes of its arguments. PyTorch's meta kernel says them and raises for wrong arguments,
// unless `shapes` does.
void RegisterHostCall(torch::Library& m, const char* name, ShapesFn shapes = nullptr);

// "aten::<name>" of those registered, for the docs.
std::vector<std::string>& HostCallNames();

// Whether the plugin runs on the host and takes our handler.
bool HostCallsAvailable();

// The arguments of a call that a lowering writes, in the order of the operator's schema.
class HostCallArguments {
 public:
  HostCallArguments& Tensor(bool defined = true);  // the next operand, or None
  HostCallArguments& Int(int64_t v);
  HostCallArguments& Bool(bool v);
  HostCallArguments& Ints(Span v);
  HostCallArguments& Bools(std::span<const bool> v);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The results of aten::<name> in the program that `b` builds; those that a mask leaves out of the
// operator's results are left out of `results`, too.
std::vector<hlo::Value> CallHost(hlo::Builder& b, const std::string& name,
                                 const HostCallArguments& arguments,
                                 std::span<const hlo::Value> operands,
                                 std::span<const Shape> results);

}  // namespace torch_xla
