// Dropout with its mask as a bool tensor.
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/ones_like.h>

#include "aten/generator.h"
#include "ops/threefry.h"

namespace torch_xla::ops {
namespace {

// Operands: input, seed, offset, p. Results: the scaled input and the mask.
void LowerDropout(const ir::Node& n, Builder&, std::span<const Value> in, std::vector<Value>& out) {
  Value x = Widen(in[0]);
  Value kept = RSub(1, hlo::ConvertTo(in[3], DType::kF64));
  RandomBits bits(in[1], in[2], x.shape().numel());
  Value u = bits.Uniform(DType::kF32);
  Value mask = hlo::Reshape(hlo::Lt(u, FitTo(kept, u)), x.dims());
  // p = 1 keeps nothing: 0 times anything finite.
  Value scale = hlo::Select(IsZero(kept), kept, hlo::Div(FullLike(kept, 1), kept));
  Value y = Where(mask, hlo::Mul(x, FitTo(scale, x)), 0);
  out.push_back(hlo::ConvertTo(y, n.shape().dtype));
  out.push_back(mask);
}

std::tuple<at::Tensor, at::Tensor> NativeDropout(const at::Tensor& input, double p,
                                                 std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if ((train.has_value() && !*train) || input.numel() == 0) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  static const ir::OpDef op("aten::native_dropout", LowerDropout);
  const lazy::Tensor& tensor = Unwrap(input);
  RandomInputs random = NextRandom({}, tensor.device(), input.numel());
  ir::Value operands[] = {tensor.value(),
                          std::move(random.seed),
                          std::move(random.offset),
                          {ir::Node::MakeScalar(DType::kF64, std::bit_cast<int64_t>(p)), 0}};
  Shape shape = ShapeOf(input);
  const Shape shapes[] = {shape, shape.with(DType::kBool)};
  op.CountRecorded();
  Ref<ir::Node> node = ir::Node::Make(op, operands, shapes, {});
  return {Wrap(ir::Value{node, 0}, tensor.device()), Wrap(ir::Value{node, 1}, tensor.device())};
}

struct DropoutBackward {
  static Shape Infer(const Arg& g, const Arg& mask, double) {
    XLA_CHECK(mask.dtype() == DType::kBool, kInvalidArgument, "Mask should be Bool Scalar Type ",
              TorchName(mask.dtype()));
    return g.shape().with(IsIntOrBool(g.dtype()) ? ToDType(c10::get_default_dtype_as_scalartype())
                                                 : g.dtype());
  }
  static Value Lower(const Shape& out, Value g, Value mask, Value scale) {
    Value x = hlo::ConvertTo(g, Wide(out.dtype));
    return hlo::ConvertTo(Where(mask, hlo::Mul(x, FitTo(scale, x)), 0), out.dtype);
  }
};

// torch's own dropout takes the native one only for devices that it lists.
at::Tensor Dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) return input;
  TORCH_CHECK(!c10::isIntegralType(input.scalar_type(), /*includeBool=*/true),
              "result type Float can't be cast to the desired output type ", input.scalar_type());
  return std::get<0>(at::native_dropout(input, p, train));
}

}  // namespace

XLA_OPS(m) {
  m.impl("native_dropout", TORCH_FN(NativeDropout));
  Register<at::_ops::native_dropout_backward, DropoutBackward>(m);
  m.impl("dropout", TORCH_FN(Dropout));
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("dropout", TORCH_FN(Dropout)); }

}  // namespace torch_xla::ops
