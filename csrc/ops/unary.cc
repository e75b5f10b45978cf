// Mathematical functions of one tensor.
#include <ATen/ops/_conj_physical_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/acosh_ops.h>
#include <ATen/ops/angle_ops.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/asinh_ops.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/atanh_ops.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/digamma_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/frac_ops.h>
#include <ATen/ops/lgamma_ops.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logit_ops.h>
#include <ATen/ops/nan_to_num_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sinc_ops.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/special_entr_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_ops.h>

#include <numbers>

#include "aten/host_call.h"
#include "ops/common.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kLn2 = std::numbers::ln2;

bool IsComplexValue(Value x) { return IsComplex(x.dtype()); }

// XLA's formulas for complex numbers lose small imaginary parts, the sign of zero on branch cuts
// and much of what is infinite: on the host PyTorch's own kernel, whose name this is, takes their
// place.
template <auto kFn, Name kName>
struct ComplexUnary : FloatUnary<kFn> {
  static Value Lower(const Shape& out, Value self) {
    if (!IsComplex(out.dtype) || out.numel() == 0 || !HostCallsAvailable()) {
      return FloatUnary<kFn>::Lower(out, self);
    }
    HostCallArguments a;
    a.Tensor();
    return CallHost(self.builder(), kName.text, a, std::span(&self, 1), std::span(&out, 1))[0];
  }
};

struct Abs {
  static Shape Infer(const Arg& self) {
    CheckImplemented(self.dtype() != DType::kBool, "abs_cpu", self.dtype());
    return self.shape().with(RealPart(self.dtype()));
  }
  static Value Lower(const Shape&, Value self) {
    if (IsUnsigned(self.dtype())) return self;
    Value size = hlo::Abs(self);
    if (!IsComplexValue(self)) return size;
    // Infinite with a NaN in the other part, too.
    return Where(hlo::Or(IsInf(hlo::Real(self)), IsInf(hlo::Imag(self))), HUGE_VAL, size);
  }
};

struct Neg : Unary<hlo::Neg> {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK(self.dtype() != DType::kBool,
                "Negation, the `-` operator, on a bool tensor is not supported. "
                "If you are trying to invert a mask, use the `~` or `logical_not()` operator "
                "instead.");
    return self.shape();
  }
};

// A real function that is not defined for complex numbers, in self's dtype.
template <auto kFn, Name kName>
struct RealUnary : Unary<kFn> {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK_NOT_IMPLEMENTED(!IsComplex(self.dtype()), kName.text,
                                " is not supported for complex inputs");
    return self.shape();
  }
};

template <auto kFn, Name kName>
struct RealFloatUnary : FloatUnary<kFn> {
  static Shape Infer(const Arg& self) {
    Shape out = FloatUnary<kFn>::Infer(self);
    CheckImplemented(!IsComplex(out.dtype), kName.text, out.dtype);
    return out;
  }
};

// Rounding leaves integers as they are.
template <auto kFn>
Value OfFloat(Value x) {
  return IsFloat(x.dtype()) ? kFn(x) : x;
}

// NaN counts as 0, as PyTorch has it.
Value SignOf(Value x) {
  if (!IsFloat(x.dtype())) {
    if (IsSigned(x.dtype())) return hlo::Sign(x);
    return hlo::ConvertTo(hlo::ConvertTo(x, DType::kBool), x.dtype());
  }
  return Where(IsNan(x), 0, Plus(hlo::Sign(x), 0));
}

struct SignOp : Unary<SignOf> {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !IsComplex(self.dtype()),
        "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
        "torch.sgn instead.");
    return self.shape();
  }
};

Value Sgn(Value x) {
  if (!IsComplexValue(x)) return SignOf(x);
  Value size = hlo::Abs(x);
  Value unit = hlo::Complex(hlo::Div(hlo::Real(x), size), hlo::Div(hlo::Imag(x), size));
  return hlo::Select(IsZero(size), FullLike(x, 0), unit);
}

Value FracOf(Value x) { return hlo::Sub(x, Trunc(x)); }

struct Frac : Unary<FracOf> {
  static Shape Infer(const Arg& self) {
    CheckImplemented(IsFloat(self.dtype()), "frac_cpu", self.dtype());
    return self.shape();
  }
};

struct RoundDecimals {
  static Shape Infer(const Arg& self, int64_t decimals) {
    CheckImplemented(IsFloat(self.dtype()) || (decimals == 0 && IsInt(self.dtype())), "round_cpu",
                     self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, int64_t decimals) {
    if (!IsFloat(out.dtype)) return self;
    Value x = Widen(self);
    Value ten = FullLike(x, std::pow(10.0, std::abs(static_cast<double>(decimals))));
    if (decimals > 0) x = hlo::Div(hlo::RoundNearestEven(hlo::Mul(x, ten)), ten);
    if (decimals < 0) x = hlo::Mul(hlo::RoundNearestEven(hlo::Div(x, ten)), ten);
    if (decimals == 0) x = hlo::RoundNearestEven(x);
    return hlo::ConvertTo(x, out.dtype);
  }
};

// z c and z / c, a part at a time: a complex number's 0 part times infinity would be NaN.
Value TimesReal(Value z, double c) {
  if (!IsComplexValue(z)) return Times(z, c);
  return hlo::Complex(Times(hlo::Real(z), c), Times(hlo::Imag(z), c));
}
Value OverReal(Value z, double c) {
  if (!IsComplexValue(z)) return hlo::Div(z, FullLike(z, c));
  return hlo::Complex(OverReal(hlo::Real(z), c), OverReal(hlo::Imag(z), c));
}
Value TimesI(Value z) { return hlo::Complex(hlo::Neg(hlo::Imag(z)), hlo::Real(z)); }
Value OverI(Value z) { return hlo::Complex(hlo::Imag(z), hlo::Neg(hlo::Real(z))); }

Value Exp2(Value x) {
  return IsComplexValue(x) ? hlo::Exp(TimesReal(x, kLn2)) : hlo::Pow(FullLike(x, 2), x);
}
Value LogBase(Value x, double base) { return OverReal(hlo::Log(x), std::log(base)); }
Value Log2(Value x) { return LogBase(x, 2); }
Value Log10(Value x) { return LogBase(x, 10); }
Value Reciprocal(Value x) { return hlo::Div(FullLike(x, 1), x); }

// The imaginary part's sign on the cut, which XLA's does not keep.
Value SqrtOf(Value x) {
  Value root = hlo::Sqrt(x);
  if (!IsComplexValue(x)) return root;
  return hlo::Complex(hlo::Real(root), CopySign(hlo::Imag(root), hlo::Imag(x)));
}

Value Cosh(Value x);
Value Sinh(Value x) {
  if (IsComplexValue(x)) {
    Value a = hlo::Real(x), b = hlo::Imag(x);
    Value im = hlo::Select(IsZero(b), b, hlo::Mul(Cosh(a), hlo::Sin(b)));
    return hlo::Complex(hlo::Mul(Sinh(a), hlo::Cos(b)), im);
  }
  Value a = hlo::Abs(x);
  Value e = hlo::Exp(Times(a, 0.5));  // squared later, so that it overflows where sinh does
  Value half = Times(e, 0.5);
  Value large = CopySign(hlo::Sub(hlo::Mul(half, e), hlo::Div(FullLike(x, 0.5), Square(e))), x);
  Value m = hlo::Expm1(x);
  Value small = Times(hlo::Add(m, hlo::Div(m, Plus(m, 1))), 0.5);
  return hlo::Select(hlo::Lt(a, FullLike(a, 1)), small, large);
}

Value Cosh(Value x) {
  if (IsComplexValue(x)) {
    Value a = hlo::Real(x), b = hlo::Imag(x);
    Value im = hlo::Select(IsZero(b), hlo::Mul(hlo::Sign(a), b), hlo::Mul(Sinh(a), hlo::Sin(b)));
    return hlo::Complex(hlo::Mul(Cosh(a), hlo::Cos(b)), im);
  }
  Value e = hlo::Exp(Times(hlo::Abs(x), 0.5));
  return hlo::Add(hlo::Mul(Times(e, 0.5), e), hlo::Div(FullLike(x, 0.5), Square(e)));
}

// XLA's lose imaginary parts much smaller than 1.
Value SinOf(Value x) { return IsComplexValue(x) ? OverI(Sinh(TimesI(x))) : hlo::Sin(x); }
Value CosOf(Value x) { return IsComplexValue(x) ? Cosh(TimesI(x)) : hlo::Cos(x); }

Value RealAsinh(Value x) {
  Value a = hlo::Abs(x);
  Value large = Plus(hlo::Log(a), kLn2);
  Value a2 = Square(a);
  Value root = Plus(hlo::Sqrt(Plus(a2, 1)), 1);
  Value small = hlo::Log1p(hlo::Add(a, hlo::Div(a2, root)));
  double limit = x.dtype() == DType::kF64 ? 1e150 : 1e18;
  return CopySign(hlo::Select(hlo::Ge(a, FullLike(a, limit)), large, small), x);
}

// Kahan, "Branch cuts for complex elementary functions".
// A real number's sum with a complex one leaves the sign of its imaginary zero.
Value PlusReal(Value z, double c) { return hlo::Complex(Plus(hlo::Real(z), c), hlo::Imag(z)); }
struct Roots {
  Value minus, plus;  // sqrt(1 - z) and sqrt(1 + z)
  explicit Roots(Value z) : minus(SqrtOf(PlusReal(hlo::Neg(z), 1))), plus(SqrtOf(PlusReal(z, 1))) {}
};
Value ImConj(Value a, Value b) {  // Im(conj(a) b)
  return hlo::Sub(hlo::Mul(hlo::Real(a), hlo::Imag(b)), hlo::Mul(hlo::Imag(a), hlo::Real(b)));
}
Value ReConj(Value a, Value b) {  // Re(conj(a) b)
  return hlo::Add(hlo::Mul(hlo::Real(a), hlo::Real(b)), hlo::Mul(hlo::Imag(a), hlo::Imag(b)));
}
Value ReProduct(Value a, Value b) {
  return hlo::Sub(hlo::Mul(hlo::Real(a), hlo::Real(b)), hlo::Mul(hlo::Imag(a), hlo::Imag(b)));
}

Value Asin(Value x) {
  if (IsComplexValue(x)) {
    Roots r(x);
    Value re = hlo::Atan2(hlo::Real(x), ReProduct(r.minus, r.plus));
    return hlo::Complex(re, RealAsinh(ImConj(r.minus, r.plus)));
  }
  return hlo::Atan2(x, hlo::Sqrt(hlo::Mul(RSub(1, x), Plus(x, 1))));
}

Value Acos(Value x) {
  if (IsComplexValue(x)) {
    Roots r(x);
    Value re = Times(hlo::Atan2(hlo::Real(r.minus), hlo::Real(r.plus)), 2);
    return hlo::Complex(re, RealAsinh(ImConj(r.plus, r.minus)));
  }
  return hlo::Atan2(hlo::Sqrt(hlo::Mul(RSub(1, x), Plus(x, 1))), x);
}

Value Asinh(Value x) { return IsComplexValue(x) ? OverI(Asin(TimesI(x))) : RealAsinh(x); }

Value Acosh(Value x) {
  if (IsComplexValue(x)) {
    Value minus = SqrtOf(PlusReal(x, -1));
    Value plus = SqrtOf(PlusReal(x, 1));
    Value im = Times(hlo::Atan2(hlo::Imag(minus), hlo::Real(plus)), 2);
    return hlo::Complex(RealAsinh(ReConj(minus, plus)), im);
  }
  Value large = Plus(hlo::Log(x), kLn2);
  Value t = Plus(x, -1);
  Value small = hlo::Log1p(hlo::Add(t, hlo::Sqrt(hlo::Mul(t, Plus(x, 1)))));
  double limit = x.dtype() == DType::kF64 ? 1e150 : 1e18;
  Value y = hlo::Select(hlo::Ge(x, FullLike(x, limit)), large, small);
  // Below -1 the product under the root is positive again.
  return Where(hlo::Lt(x, FullLike(x, 1)), std::nan(""), y);
}

Value Atanh(Value x) {
  if (!IsComplexValue(x)) return Times(hlo::Sub(hlo::Log1p(x), hlo::Log1p(hlo::Neg(x))), 0.5);
  Value a = hlo::Real(x), b = hlo::Imag(x);
  Value size = hlo::Abs(a);
  Value away = hlo::Abs(hlo::Complex(RSub(1, size), b));  // from the nearer of 1 and -1
  // A product: XLA makes (p / q) / r a division by q r, which may be infinite.
  Value ratio = hlo::Mul(hlo::Div(size, away), hlo::Div(FullLike(away, 4), away));
  Value close = Times(hlo::Log(hlo::Div(FullLike(away, 2), away)), 0.5);
  Value re = Times(hlo::Log1p(ratio), 0.25);
  re = hlo::Select(hlo::Lt(away, FullLike(away, 1e-9)), close, re);
  Value x2 = hlo::Sub(hlo::Mul(RSub(1, a), Plus(a, 1)), Square(b));
  Value im = Times(hlo::Atan2(b, Times(x2, 0.5)), 0.5);
  Value infinite = hlo::Or(IsInf(a), IsInf(b));
  re = CopySign(Where(infinite, 0, re), a);
  return hlo::Complex(re, Where(infinite, CopySign(FullLike(b, kPi / 2), b), im));
}

Value Atan(Value x) {
  return IsComplexValue(x) ? OverI(Atanh(TimesI(x))) : hlo::Atan2(x, FullLike(x, 1));
}

Value Sinc(Value x) {
  Value y = TimesReal(x, kPi);
  Value one = IsZero(x);
  return Where(one, 1, hlo::Div(SinOf(y), y));
}

// -x log(x), 0 at 0 and -inf below.
Value Entr(Value x) {
  Value y = hlo::Neg(hlo::Mul(x, hlo::Log(x)));
  return Where(LtZero(x), -HUGE_VAL, Where(IsZero(x), 0, y));
}

struct Logit {
  static Shape Infer(const Arg& self, std::optional<double>) {
    CheckImplemented(!IsComplex(self.dtype()), "logit_cpu", self.dtype());
    return self.shape().with(ToFloat(self.dtype()));
  }
  static Value Lower(const Shape& out, Value self, std::optional<double> eps) {
    Value x = hlo::ConvertTo(self, Wide(out.dtype));
    if (eps && *eps >= 0) {
      x = hlo::Max(x, FullLike(x, *eps));
      x = hlo::Min(x, FullLike(x, 1 - *eps));
    }
    return hlo::ConvertTo(hlo::Log(hlo::Div(x, RSub(1, x))), out.dtype);
  }
};

struct Angle {
  static Shape Infer(const Arg& self) { return self.shape().with(RealPart(ToFloat(self.dtype()))); }
  static Value Lower(const Shape& out, Value x) {
    if (IsComplex(x.dtype())) return hlo::Atan2(hlo::Imag(x), hlo::Real(x));
    x = hlo::ConvertTo(x, out.dtype);
    return hlo::Select(IsNan(x), x, Where(LtZero(x), kPi, FullLike(x, 0)));
  }
};

Value Conj(Value x) {
  return IsComplexValue(x) ? hlo::Complex(hlo::Real(x), hlo::Neg(hlo::Imag(x))) : x;
}

struct NanToNum {
  static Shape Infer(const Arg& self, std::optional<double>, std::optional<double>,
                     std::optional<double>) {
    return self.shape();
  }
  static Value Lower(const Shape& out, Value x, std::optional<Value> nan,
                     std::optional<Value> posinf, std::optional<Value> neginf) {
    if (IsIntOrBool(out.dtype)) return x;
    if (IsComplex(out.dtype)) {
      Shape part = out.with(RealPart(out.dtype));
      return hlo::Complex(Lower(part, hlo::Real(x), nan, posinf, neginf),
                          Lower(part, hlo::Imag(x), nan, posinf, neginf));
    }
    double limit = hlo::MaxFinite(out.dtype);
    Value low = hlo::Eq(x, FullLike(x, -HUGE_VAL));
    Value high = hlo::Eq(x, FullLike(x, HUGE_VAL));
    auto number = [&](std::optional<Value> v, double otherwise) {
      return v ? FitTo(*v, x) : FullLike(x, otherwise);
    };
    Value y = Where(low, number(neginf, -limit), Where(high, number(posinf, limit), x));
    return Where(IsNan(x), number(nan, 0), y);
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<at::_ops::abs, Abs>(m);
  Register<neg, Neg>(m);
  Register<neg_, Neg>(m);
  Register<sign, SignOp>(m);
  Register<sgn, Unary<Sgn>>(m);
  Register<at::_ops::ceil, RealUnary<OfFloat<hlo::Ceil>, "ceil">>(m);
  Register<at::_ops::floor, RealUnary<OfFloat<hlo::Floor>, "floor">>(m);
  Register<at::_ops::trunc, RealUnary<OfFloat<Trunc>, "trunc">>(m);
  Register<at::_ops::round, RealUnary<OfFloat<hlo::RoundNearestEven>, "round">>(m);
  Register<round_decimals, RoundDecimals>(m);
  Register<frac, Frac>(m);
  Register<at::_ops::exp, ComplexUnary<hlo::Exp, "exp">>(m);
  Register<exp_, ComplexUnary<hlo::Exp, "exp">>(m);
  Register<at::_ops::exp2, ComplexUnary<Exp2, "exp2">>(m);
  Register<at::_ops::expm1, ComplexUnary<hlo::Expm1, "expm1">>(m);
  Register<at::_ops::log, ComplexUnary<hlo::Log, "log">>(m);
  Register<at::_ops::log2, ComplexUnary<Log2, "log2">>(m);
  Register<at::_ops::log10, ComplexUnary<Log10, "log10">>(m);
  Register<at::_ops::log1p, ComplexUnary<hlo::Log1p, "log1p">>(m);
  Register<at::_ops::sqrt, ComplexUnary<SqrtOf, "sqrt">>(m);
  Register<sqrt_, ComplexUnary<SqrtOf, "sqrt">>(m);
  Register<rsqrt, ComplexUnary<hlo::Rsqrt, "rsqrt">>(m);
  Register<reciprocal, FloatUnary<Reciprocal>>(m);
  Register<reciprocal_, FloatUnary<Reciprocal>>(m);
  Register<at::_ops::sin, ComplexUnary<SinOf, "sin">>(m);
  Register<at::_ops::cos, ComplexUnary<CosOf, "cos">>(m);
  Register<at::_ops::tan, ComplexUnary<hlo::Tan, "tan">>(m);
  Register<at::_ops::sinh, ComplexUnary<Sinh, "sinh">>(m);
  Register<at::_ops::cosh, ComplexUnary<Cosh, "cosh">>(m);
  Register<at::_ops::tanh, ComplexUnary<hlo::Tanh, "tanh">>(m);
  Register<tanh_, ComplexUnary<hlo::Tanh, "tanh">>(m);
  Register<at::_ops::asin, ComplexUnary<Asin, "asin">>(m);
  Register<at::_ops::acos, ComplexUnary<Acos, "acos">>(m);
  Register<at::_ops::atan, ComplexUnary<Atan, "atan">>(m);
  Register<at::_ops::asinh, ComplexUnary<Asinh, "asinh">>(m);
  Register<at::_ops::acosh, ComplexUnary<Acosh, "acosh">>(m);
  Register<at::_ops::atanh, ComplexUnary<Atanh, "atanh">>(m);
  Register<at::_ops::erf, RealFloatUnary<Erf, "erf_vml_cpu">>(m);
  Register<at::_ops::erfc, RealFloatUnary<Erfc, "erfc_vml_cpu">>(m);
  Register<erfinv, RealFloatUnary<ErfInv, "erfinv_vml_cpu">>(m);
  Register<at::_ops::lgamma, RealFloatUnary<Lgamma, "lgamma_vml_cpu">>(m);
  Register<digamma, RealFloatUnary<Digamma, "digamma_cpu">>(m);
  Register<sinc, ComplexUnary<Sinc, "sinc">>(m);
  Register<special_entr, RealFloatUnary<Entr, "entr_cpu">>(m);
  Register<logit, Logit>(m);
  Register<angle, Angle>(m);
  Register<_conj_physical, Unary<Conj>>(m);
  Register<conj_physical_, Unary<Conj>>(m);
  Register<nan_to_num, NanToNum>(m);
}

}  // namespace torch_xla::ops
