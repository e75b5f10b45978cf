// Arithmetic on one or two tensors.
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sub_ops.h>

#include "ops/common.h"

namespace torch_xla::ops {
namespace {

// out = self + alpha * other; the sum of bools is their disjunction.
template <bool kSubtract>
struct AddSub {
  static Shape Infer(const Arg& self, const Arg& other, const at::Scalar& alpha) {
    Shape out{Promote({self, other}), Broadcast({self, other})};
    XLA_CHECK(!alpha.isFloatingPoint() || !IsIntOrBool(out.dtype), kInvalidArgument,
              "For integral input tensors, argument alpha must not be a floating point number.");
    XLA_CHECK(!alpha.isBoolean() || out.dtype == DType::kBool, kInvalidArgument,
              "Boolean alpha only supported for Boolean results.");
    XLA_CHECK(!kSubtract || out.dtype != DType::kBool, kInvalidArgument,
              "Subtraction, the `-` operator, with a bool tensor is not supported.");
    return out;
  }
  static Value Lower(const Shape& out, Value self, Value other, Factor alpha) {
    Value a = Fit(self, out);
    Value b = Fit(other, out);
    if (out.dtype == DType::kBool)
      return hlo::Or(a, alpha.value ? hlo::And(b, Fit(*alpha.value, out)) : b);
    b = alpha.Times(b);
    return kSubtract ? hlo::Sub(a, b) : hlo::Add(a, b);
  }
};

Value MulOrAnd(Value a, Value b) {
  return a.dtype() == DType::kBool ? hlo::And(a, b) : hlo::Mul(a, b);
}

Value Relu(Value x) { return hlo::Max(x, hlo::FullLike(x, 0)); }

struct Abs {
  static Shape Infer(const Arg& self) { return self.shape().with(RealPart(self.dtype())); }
  static Value Lower(const Shape&, Value self) {
    return IsUnsigned(self.dtype()) ? self : hlo::Abs(self);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::abs, Abs>(m);
  Register<at::_ops::add_Tensor, AddSub<false>>(m);
  Register<at::_ops::add__Tensor, AddSub<false>>(m);
  Register<at::_ops::sub_Tensor, AddSub<true>>(m);
  Register<at::_ops::sub__Tensor, AddSub<true>>(m);
  Register<at::_ops::mul_Tensor, Binary<MulOrAnd>>(m);
  Register<at::_ops::mul__Tensor, Binary<MulOrAnd>>(m);
  Register<at::_ops::div_Tensor, FloatBinary<hlo::Div>>(m);
  Register<at::_ops::div__Tensor, FloatBinary<hlo::Div>>(m);
  Register<at::_ops::relu, Unary<Relu>>(m);
}

}  // namespace torch_xla::ops
