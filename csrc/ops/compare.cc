// Comparisons, logic and bits.
#include <ATen/ops/all.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/isfinite_ops.h>
#include <ATen/ops/isinf_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/isneginf_ops.h>
#include <ATen/ops/isposinf_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/logical_xor_ops.h>
#include <ATen/ops/lshift_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/rshift_ops.h>
#include <ATen/ops/signbit_ops.h>

#include "ops/common.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

using hlo::Direction;

template <Direction kDirection>
void CheckOrdered(DType t) {
  static constexpr const char* kKernels[] = {"", "", "lt_cpu", "le_cpu", "gt_cpu", "ge_cpu"};
  const char* kernel = kKernels[static_cast<int>(kDirection)];
  CheckImplemented(*kernel == '\0' || !IsComplex(t), kernel, t);
}

// The operands are compared in their common dtype, which the result does not tell: Lower finds it
// again from the operands.
Value CompareIn(DType t, const Shape& out, Value a, Value b, Direction direction) {
  Shape common = out.with(t);
  return hlo::Compare(Fit(a, common), Fit(b, common), direction);
}

template <Direction kDirection>
struct Compare {
  static Shape Infer(const Arg& a, const Arg& b) {
    CheckOrdered<kDirection>(Promote({a, b}));
    return {DType::kBool, Broadcast({a, b})};
  }
  static Value Lower(const Shape& out, Value a, Value b) {
    DType t = Promote({Arg(a.shape(), false), Arg(b.shape(), false)});
    return CompareIn(t, out, a, b, kDirection);
  }
};

template <Direction kDirection>
struct CompareScalar {
  static Shape Infer(const Arg& self, const at::Scalar& s) {
    CheckOrdered<kDirection>(Promote(self, s));
    return self.shape().with(DType::kBool);
  }
  static Value Lower(const Shape& out, Value self, Value s) {
    DType t = Promote({Arg(self.shape(), false), Arg(s.shape(), true)});
    return CompareIn(t, out, self, s, kDirection);
  }
};

template <auto kFn>
struct Logical {
  static Shape Infer(const Arg& a, const Arg& b) { return {DType::kBool, Broadcast({a, b})}; }
  static Value Lower(const Shape& out, Value a, Value b) { return kFn(Fit(a, out), Fit(b, out)); }
};

struct LogicalNot {
  static Shape Infer(const Arg& self) { return self.shape().with(DType::kBool); }
  static Value Lower(const Shape&, Value self) {
    return hlo::Not(hlo::ConvertTo(self, DType::kBool));
  }
};

struct BitwiseNot {
  static Shape Infer(const Arg& self) {
    CheckImplemented(IsIntOrBool(self.dtype()), "bitwise_not_cpu", self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape&, Value self) { return hlo::Not(self); }
};

// kBool: whether bools are taken.
template <auto kFn, Name kName, bool kBool>
struct Bitwise : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    DType t = Promote({a, b});
    CheckImplemented(IsInt(t) || (kBool && t == DType::kBool), kName.text, t);
    return {t, Broadcast({a, b})};
  }
};

// With a Scalar of the schema as the second operand.
template <typename Op>
struct WithScalar {
  static Shape Infer(const Arg& self, const at::Scalar& s) {
    Shape number{s.isBoolean()         ? DType::kBool
                 : s.isFloatingPoint() ? DType::kF64
                 : s.isComplex()       ? DType::kC128
                                       : DType::kS64,
                 {}};
    return Op::Infer(self, Arg(number, true));
  }
  static Value Lower(const Shape& out, Value self, Value s) { return Op::Lower(out, self, s); }
};

int64_t Bits(Value x) { return 8 * static_cast<int64_t>(ByteSize(x.dtype())); }

// Amounts below 0 and beyond the width shift everything out.
Value InWidth(Value amount) {
  Value low = hlo::Ge(amount, FullLike(amount, 0));
  return hlo::And(low, hlo::Lt(amount, FullLike(amount, static_cast<double>(Bits(amount)))));
}

Value LeftShift(Value a, Value b) { return Where(InWidth(b), hlo::ShiftLeft(a, b), 0); }

Value RightShift(Value a, Value b) {
  if (IsUnsigned(a.dtype())) return Where(InWidth(b), hlo::ShiftRightLogical(a, b), 0);
  b = Where(InWidth(b), b, static_cast<double>(Bits(a) - 1));
  return hlo::ShiftRightArithmetic(a, b);
}

using LeftShiftOp = Bitwise<LeftShift, "lshift_cpu", false>;
using RightShiftOp = Bitwise<RightShift, "rshift_cpu", false>;

// A test of floats (of a complex number: of its parts, joined by kJoin) that is kElse for others.
template <auto kTest, auto kJoin, bool kElse>
struct FloatTest {
  static Shape Infer(const Arg& self) { return self.shape().with(DType::kBool); }
  static Value Lower(const Shape& out, Value x) {
    if (IsComplex(x.dtype())) return kJoin(kTest(hlo::Real(x)), kTest(hlo::Imag(x)));
    return IsFloat(x.dtype()) ? kTest(x) : hlo::Full(x.builder(), out, kElse);
  }
};

template <auto kTest, Name kName>
struct RealFloatTest : FloatTest<kTest, hlo::Or, false> {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK(!IsComplex(self.dtype()), kName.text, " does not support complex inputs.");
    return self.shape().with(DType::kBool);
  }
};

Value IsPosInf(Value x) { return hlo::Eq(x, FullLike(x, HUGE_VAL)); }
Value IsNegInf(Value x) { return hlo::Eq(x, FullLike(x, -HUGE_VAL)); }

struct SignBitOp : FloatTest<SignBit, hlo::Or, false> {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK_NOT_IMPLEMENTED(!IsComplex(self.dtype()),
                                "signbit is not implemented for complex tensors.");
    return self.shape().with(DType::kBool);
  }
  static Value Lower(const Shape& out, Value x) {
    return x.dtype() == DType::kBool ? hlo::Full(x.builder(), out, 0) : SignBit(x);
  }
};

// Reads its result, so it runs what it needs.
bool Equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes()) return false;
  return at::all(at::eq(self, other)).item<bool>();
}

template <typename Tensor, typename Scalar, typename Op>
void RegisterBoth(torch::Library& m) {
  Register<Tensor, Op>(m);
  Register<Scalar, WithScalar<Op>>(m);
}

template <typename Tensor, typename Scalar, Direction kDirection>
void RegisterCompare(torch::Library& m) {
  Register<Tensor, Compare<kDirection>>(m);
  Register<Scalar, CompareScalar<kDirection>>(m);
}

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  RegisterCompare<eq_Tensor, eq_Scalar, Direction::kEQ>(m);
  RegisterCompare<ne_Tensor, ne_Scalar, Direction::kNE>(m);
  RegisterCompare<lt_Tensor, lt_Scalar, Direction::kLT>(m);
  RegisterCompare<le_Tensor, le_Scalar, Direction::kLE>(m);
  RegisterCompare<gt_Tensor, gt_Scalar, Direction::kGT>(m);
  RegisterCompare<ge_Tensor, ge_Scalar, Direction::kGE>(m);
  Register<logical_and, Logical<hlo::And>>(m);
  Register<logical_or, Logical<hlo::Or>>(m);
  Register<logical_xor, Logical<hlo::Xor>>(m);
  Register<logical_not, LogicalNot>(m);
  Register<bitwise_not, BitwiseNot>(m);
  RegisterBoth<bitwise_and_Tensor, bitwise_and_Scalar, Bitwise<hlo::And, "bitwise_and_cpu", true>>(
      m);
  RegisterBoth<bitwise_or_Tensor, bitwise_or_Scalar, Bitwise<hlo::Or, "bitwise_or_cpu", true>>(m);
  RegisterBoth<bitwise_xor_Tensor, bitwise_xor_Scalar, Bitwise<hlo::Xor, "bitwise_xor_cpu", true>>(
      m);
  RegisterBoth<bitwise_left_shift_Tensor, bitwise_left_shift_Tensor_Scalar, LeftShiftOp>(m);
  RegisterBoth<bitwise_right_shift_Tensor, bitwise_right_shift_Tensor_Scalar, RightShiftOp>(m);
  RegisterBoth<__lshift___Tensor, __lshift___Scalar, LeftShiftOp>(m);
  RegisterBoth<__rshift___Tensor, __rshift___Scalar, RightShiftOp>(m);
  Register<isnan, FloatTest<IsNan, hlo::Or, false>>(m);
  Register<isinf, FloatTest<IsInf, hlo::Or, false>>(m);
  Register<isfinite, FloatTest<hlo::IsFinite, hlo::And, true>>(m);
  Register<isposinf, RealFloatTest<IsPosInf, "isposinf">>(m);
  Register<isneginf, RealFloatTest<IsNegInf, "isneginf">>(m);
  Register<signbit, SignBitOp>(m);
}

// Not above: at::_ops has an operator `std`, and TORCH_FN names the namespace.
XLA_OPS(m) { m.impl("equal", TORCH_FN(Equal)); }

}  // namespace torch_xla::ops
