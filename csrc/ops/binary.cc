// Division, powers and other functions of two tensors.
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/heaviside_ops.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/logaddexp2_ops.h>
#include <ATen/ops/logaddexp_ops.h>
#include <ATen/ops/nextafter_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/special_xlog1py_ops.h>
#include <ATen/ops/xlogy_ops.h>

#include <numbers>

#include "ops/common.h"
#include "ops/lowering.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

// Whether r, the remainder of a division by b, has to move to b's sign.
Value OtherSign(Value r, Value b) {
  Value differ = hlo::Xor(LtZero(r), LtZero(b));
  return hlo::And(hlo::Not(IsZero(r)), differ);
}

// Python's %.
Value Remainder(Value a, Value b) {
  Value r = hlo::Rem(a, b);
  return IsUnsigned(a.dtype()) ? r : hlo::Select(OtherSign(r, b), hlo::Add(r, b), r);
}

// Python's //: for floats exact where a / b rounds to the wrong side of an integer.
Value FloorDivide(Value a, Value b) {
  if (IsUnsigned(a.dtype())) return hlo::Div(a, b);
  Value r = hlo::Rem(a, b);
  if (!IsFloat(a.dtype())) {
    Value q = hlo::Div(a, b);
    return hlo::Select(OtherSign(r, b), Plus(q, -1), q);
  }
  Value quotient = hlo::Div(a, b);
  Value q = hlo::Div(hlo::Sub(a, r), b);
  q = hlo::Select(OtherSign(r, b), Plus(q, -1), q);
  Value floor = hlo::Floor(q);
  floor = hlo::Select(hlo::Gt(hlo::Sub(q, floor), FullLike(q, 0.5)), Plus(floor, 1), floor);
  floor = hlo::Select(IsZero(q), CopySign(FullLike(q, 0), quotient), floor);
  return hlo::Select(IsZero(b), quotient, floor);
}

template <auto kFn, Name kName>
struct RealBinary : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<kFn>::Infer(a, b);
    CheckImplemented(out.dtype != DType::kBool && !IsComplex(out.dtype), kName.text, out.dtype);
    return out;
  }
};

// In floating point, not for complex numbers.
template <auto kFn, Name kName>
struct RealFloatBinary : FloatBinary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = FloatBinary<kFn>::Infer(a, b);
    CheckImplemented(!IsComplex(out.dtype), kName.text, out.dtype);
    return out;
  }
};

template <auto kFn, Name kName>
struct Extreme : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<kFn>::Infer(a, b);
    TORCH_CHECK(!IsComplex(out.dtype), kName.text, " not implemented for complex tensors.");
    return out;
  }
};

struct RemainderScalarTensor {
  static Shape Infer(const at::Scalar& self, const Arg& other) {
    return other.shape().with(Promote(other, self));
  }
  static Value Lower(const Shape& out, Value self, Value other) {
    return LowerWide<Remainder>(out, self, other);
  }
};

struct DivMode {
  using Mode = std::optional<std::string_view>;
  static Shape Infer(const Arg& a, const Arg& b, Mode mode) {
    TORCH_CHECK(!mode || *mode == "trunc" || *mode == "floor",
                "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
                mode.value_or(""), "'");
    if (!mode) return FloatBinary<hlo::Div>::Infer(a, b);
    Shape out{Promote({a, b}), Broadcast({a, b})};
    CheckImplemented(out.dtype != DType::kBool && !IsComplex(out.dtype),
                     *mode == "trunc" ? "div_trunc_cpu" : "div_floor_cpu", out.dtype);
    return out;
  }
  static Value Lower(const Shape& out, Value a, Value b, Mode mode) {
    if (!mode) return LowerWide<hlo::Div>(out, a, b);
    if (*mode == "floor") return LowerWide<FloorDivide>(out, a, b);
    // The quotient is rounded to the result's type before it is truncated.
    Value q = LowerWide<hlo::Div>(out, a, b);
    if (out.dtype == DType::kBF16) q = hlo::ReducePrecision(q, 8, 7);
    if (out.dtype == DType::kF16) q = hlo::ReducePrecision(q, 5, 10);
    return IsFloat(out.dtype) ? Trunc(q) : q;
  }
};

// Modulo 2^bits, for which the low bits of an exponent are not enough, of which XLA's own power
// takes six. To negative powers: 0 but for 1 and -1.
Value IntegerPower(Value x, Value e) {
  Value one = FullLike(x, 1), zero = FullLike(x, 0), y = one, factor = x, rest = e;
  int64_t bits = static_cast<int64_t>(8 * ByteSize(x.dtype())) - (IsSigned(x.dtype()) ? 1 : 0);
  auto is_odd = [&](Value v) { return hlo::Ne(hlo::And(v, one), zero); };
  for (int64_t i = 0; i < bits; ++i) {
    y = hlo::Select(is_odd(rest), hlo::Mul(y, factor), y);
    if (i + 1 == bits) break;
    factor = Square(factor);
    rest = hlo::ShiftRightLogical(rest, one);
  }
  if (!IsSigned(x.dtype())) return y;
  Value inverse = hlo::Select(hlo::Eq(x, one), one, zero);
  Value minus = FullLike(x, -1);
  inverse = hlo::Select(hlo::Eq(x, minus), hlo::Select(is_odd(e), minus, one), inverse);
  return hlo::Select(LtZero(e), inverse, y);
}

Value Power(Value x, Value e) { return IsInt(x.dtype()) ? IntegerPower(x, e) : hlo::Pow(x, e); }

struct PowTensorScalar {
  static Shape Infer(const Arg& self, const at::Scalar& exponent) {
    DType t = Promote(self, exponent);
    TORCH_CHECK(!IsInt(t) || !exponent.isIntegral(true) || exponent.toLong() >= 0,
                "Integers to negative integer powers are not allowed.");
    if (IsInt(t)) CheckFits(exponent, t);
    return self.shape().with(t);
  }
  static Value Lower(const Shape& out, Value self, Number exponent) {
    Value x = Fit(self, out.with(Wide(out.dtype)));
    return hlo::ConvertTo(ByExponent(x, exponent), out.dtype);
  }

 private:
  // Cheap where the exponent is one that programs use.
  static Value ByExponent(Value x, Number e) {
    if (x.dtype() == DType::kBool) {  // the exponent is a bool, too
      return e.i == 0 ? hlo::FullLike(x, 1) : x;
    }
    if (IsInt(x.dtype())) {
      Value y = FullLike(x, 1), factor = x;
      for (auto n = static_cast<uint64_t>(e.i); n != 0; n >>= 1, factor = Square(factor)) {
        if (n & 1) y = hlo::Mul(y, factor);
      }
      return y;
    }
    if (e.dtype != DType::kC128) {
      double p = e.real();
      if (p == 0) return FullLike(x, 1);
      if (p == 1) return x;
      if (p == 2) return Square(x);
      if (p == 3) return hlo::Mul(Square(x), x);
      if (p == 0.5) return hlo::Sqrt(x);
      if (p == -0.5) return hlo::Rsqrt(x);
      if (p == -1) return hlo::Div(FullLike(x, 1), x);
      if (p == -2) return hlo::Div(FullLike(x, 1), Square(x));
    }
    return Power(x, FitTo(e.As(x.builder(), x.dtype()), x));
  }
};

// The same with the exponent as an input of the program.
struct PowTensorInput {
  static Shape Infer(const Arg& self, const at::Scalar& exponent) {
    return PowTensorScalar::Infer(self, exponent);
  }
  static Value Lower(const Shape& out, Value self, Value exponent) {
    return LowerWide<Power>(out, self, exponent);
  }
};

// Exponents that choose the algorithm are part of the program, others may change from step to step.
bool ChoosesAlgorithm(const at::Tensor& self, const at::Scalar& exponent) {
  if (exponent.isComplex() || !(self.is_floating_point() || self.is_complex())) return true;
  double p = std::abs(exponent.toDouble());
  return p == 0 || p == 0.5 || p == 1 || p == 2 || p == 3;
}

at::Tensor PowOf(const at::Tensor& self, const at::Scalar& exponent) {
  using Op = at::_ops::pow_Tensor_Scalar;
  return ChoosesAlgorithm(self, exponent)
             ? record::Kernel<Op, PowTensorScalar>::Call(self, exponent)
             : record::Kernel<Op, PowTensorInput>::Call(self, exponent);
}

at::Tensor& PowInPlace(at::Tensor& self, const at::Scalar& exponent) {
  using Op = at::_ops::pow__Scalar;
  return ChoosesAlgorithm(self, exponent)
             ? record::Kernel<Op, PowTensorScalar>::Call(self, exponent)
             : record::Kernel<Op, PowTensorInput>::Call(self, exponent);
}

struct PowTensorTensor : Binary<Power> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<Power>::Infer(a, b);
    CheckImplemented(out.dtype != DType::kBool, "pow", out.dtype);
    return out;
  }
};

struct PowScalar {
  static Shape Infer(const at::Scalar& self, const Arg& exponent) {
    return exponent.shape().with(Promote(exponent, self));
  }
  static Value Lower(const Shape& out, Value self, Value exponent) {
    if (out.dtype == DType::kBool)  // b ** e is b or not e
      return hlo::Or(Fit(self, out), hlo::Not(Fit(exponent, out)));
    return LowerWide<Power>(out, self, exponent);
  }
};

// The other operand where one is NaN.
Value Fmax(Value a, Value b) {
  Value m = hlo::Max(a, b);
  if (!IsFloat(a.dtype())) return m;
  return hlo::Select(IsNan(a), b, hlo::Select(IsNan(b), a, m));
}
Value Fmin(Value a, Value b) {
  Value m = hlo::Min(a, b);
  if (!IsFloat(a.dtype())) return m;
  return hlo::Select(IsNan(a), b, hlo::Select(IsNan(b), a, m));
}

// Scaled, so that the squares neither overflow nor vanish.
Value Hypot(Value a, Value b) {
  a = hlo::Abs(a);
  b = hlo::Abs(b);
  Value high = hlo::Max(a, b);
  Value ratio = hlo::Div(hlo::Min(a, b), high);
  Value y = hlo::Mul(high, hlo::Sqrt(Plus(Square(ratio), 1)));
  y = hlo::Select(IsZero(high), high, y);
  return Where(hlo::Or(IsInf(a), IsInf(b)), HUGE_VAL, y);
}

Value XLogY(Value x, Value y) {
  Value zero = hlo::And(IsZero(x), hlo::Not(IsNan(y)));
  return Where(zero, 0, hlo::Mul(x, hlo::Log(y)));
}
Value XLog1pY(Value x, Value y) {
  Value zero = hlo::And(IsZero(x), hlo::Not(IsNan(y)));
  return Where(zero, 0, hlo::Mul(x, hlo::Log1p(y)));
}

Value LogAddExp2(Value a, Value b) {
  return Times(LogAddExp(Times(a, std::numbers::ln2), Times(b, std::numbers::ln2)),
               std::numbers::log2e);
}

// Of floating-point and complex numbers.
template <auto kFn, Name kName>
struct InexactBinary : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<kFn>::Infer(a, b);
    CheckImplemented(!IsIntOrBool(out.dtype), kName.text, out.dtype);
    return out;
  }
};

template <auto kFn, Name kName>
struct FloatOnlyBinary : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<kFn>::Infer(a, b);
    CheckImplemented(IsFloat(out.dtype), kName.text, out.dtype);
    return out;
  }
};

// The next representable number: one step of the integer that a float's bits are.
struct NextAfter {
  static Shape Infer(const Arg& a, const Arg& b) {
    DType t = Promote({a, b});
    CheckImplemented(IsFloat(t) && ByteSize(t) > 1, "nextafter_cpu", t);
    return {t, Broadcast({a, b})};
  }
  static Value Lower(const Shape& out, Value self, Value other) {
    Value a = Fit(self, out), b = Fit(other, out);
    Value up = hlo::Lt(a, b);
    Value i = FloatBits(a);
    Value away = hlo::Eq(up, hlo::Gt(a, FullLike(a, 0)));
    i = hlo::Add(i, hlo::Select(away, FullLike(i, 1), FullLike(i, -1)));
    Value step = hlo::BitcastConvert(i, out.dtype);
    Value tiny = hlo::BitcastConvert(FullLike(i, 1), out.dtype);
    step = hlo::Select(IsZero(a), hlo::Select(up, tiny, hlo::Neg(tiny)), step);
    Value y = hlo::Select(hlo::Eq(a, b), b, step);
    return hlo::Select(IsNan(b), b, hlo::Select(IsNan(a), a, y));
  }
};

Value HeavisideOf(Value x, Value values) {
  Value step = hlo::ConvertTo(hlo::Gt(x, FullLike(x, 0)), x.dtype());
  return hlo::Select(IsZero(x), values, step);
}

struct Heaviside : Binary<HeavisideOf> {
  static Shape Infer(const Arg& a, const Arg& b) {
    TORCH_CHECK(!IsComplex(a.dtype()) && !IsComplex(b.dtype()),
                "heaviside is not yet implemented for complex tensors.");
    TORCH_CHECK(a.dtype() == b.dtype(),
                "heaviside is not yet implemented for tensors with different dtypes.");
    return {a.dtype(), Broadcast({a, b})};
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<div_Tensor, FloatBinary<hlo::Div>>(m);
  Register<div__Tensor, FloatBinary<hlo::Div>>(m);
  Register<div_Tensor_mode, DivMode>(m);
  Register<floor_divide, RealBinary<FloorDivide, "div_floor_cpu">>(m);
  Register<remainder_Tensor, RealBinary<Remainder, "remainder_cpu">>(m);
  Register<remainder_Scalar_Tensor, RemainderScalarTensor>(m);
  Register<fmod_Tensor, RealBinary<hlo::Rem, "fmod_cpu">>(m);
  Register<pow_Tensor_Tensor, PowTensorTensor>(m);
  Register<pow_Scalar, PowScalar>(m);
  Register<at::_ops::fmax, Extreme<Fmax, "fmax">>(m);
  Register<at::_ops::fmin, Extreme<Fmin, "fmin">>(m);
  Register<at::_ops::atan2, RealFloatBinary<hlo::Atan2, "atan2_cpu">>(m);
  Register<at::_ops::hypot, FloatOnlyBinary<Hypot, "hypot_cpu">>(m);
  Register<copysign_Tensor, RealFloatBinary<CopySign, "copysign_cpu">>(m);
  Register<xlogy_Tensor, FloatBinary<XLogY>>(m);
  Register<special_xlog1py, RealFloatBinary<XLog1pY, "xlog1py_cpu">>(m);
  Register<logaddexp, InexactBinary<LogAddExp, "logaddexp_cpu">>(m);
  Register<logaddexp2, InexactBinary<LogAddExp2, "logaddexp2_cpu">>(m);
  Register<at::_ops::nextafter, NextAfter>(m);
  Register<heaviside, Heaviside>(m);
}

// Not above: at::_ops has an operator `std`, and TORCH_FN names the namespace.
XLA_OPS(m) {
  m.impl("pow.Tensor_Scalar", TORCH_FN(PowOf));
  m.impl("pow_.Scalar", TORCH_FN(PowInPlace));
}

}  // namespace torch_xla::ops
