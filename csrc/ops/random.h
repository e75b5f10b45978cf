// Draws: nodes with two inputs more, the seed and the offset of the numbers that they reserve.
#pragma once

#include "aten/dtype_map.h"
#include "aten/generator.h"
#include "aten/ops_util.h"
#include "ops/threefry.h"

namespace torch_xla::ops {

using Generator = std::optional<at::Generator>;
using Inputs = std::span<const Value>;

inline ir::Value Input(double v) {
  return {ir::Node::MakeScalar(DType::kF64, std::bit_cast<int64_t>(v)), 0};
}
inline ir::Value Input(int64_t v) { return {ir::Node::MakeScalar(DType::kS64, v), 0}; }

// The lowering of a draw: kFn(bits, inputs after seed and offset, shape of the result) in [n] of
// any dtype. Two blocks for an element where the result is complex.
template <auto kFn>
void LowerDraw(const ir::Node& n, Builder&, std::span<const Value> in, std::vector<Value>& out) {
  const Shape& shape = n.shape();
  RandomBits bits(in[0], in[1], shape.numel() * (IsComplex(shape.dtype) ? 2 : 1));
  Value x = kFn(bits, in.subspan(2), shape);
  out.push_back(hlo::Reshape(hlo::ConvertTo(x, shape.dtype), shape.dims));
}

template <auto kFn>
ir::Value Draw(const char* name, const Shape& shape, int device, const Generator& generator,
               std::initializer_list<ir::Value> inputs) {
  static const ir::OpDef op(name, LowerDraw<kFn>);
  RandomInputs random =
      NextRandom(generator, device, shape.numel() * (IsComplex(shape.dtype) ? 2 : 1));
  c10::SmallVector<ir::Value, 4> operands{std::move(random.seed), std::move(random.offset)};
  operands.append(inputs.begin(), inputs.end());
  op.CountRecorded();
  return {ir::Node::Make(op, {operands.data(), operands.size()}, shape), 0};
}

template <auto kFn>
at::Tensor& Fill(const char* name, at::Tensor& self, const Generator& generator,
                 std::initializer_list<ir::Value> inputs) {
  const lazy::Tensor& tensor = Unwrap(self);
  tensor.Write(Draw<kFn>(name, ShapeOf(self), tensor.device(), generator, inputs));
  return self;
}

}  // namespace torch_xla::ops
