// Families of operators share their shape rule and the frame of their lowering; see elementwise.cc.
#pragma once

#include "aten/promote.h"
#include "aten/record.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"

namespace torch_xla::ops {

using hlo::Builder;
using hlo::FullLike;
using hlo::Value;

// The operand in the result's dtype and dimensions.
inline Value Fit(Value x, const Shape& out) {
  return hlo::BroadcastTo(hlo::ConvertTo(x, out.dtype), out.dims);
}
// The same for an operand of a computation that x is in.
inline Value FitTo(Value s, Value x) { return Fit(s, x.shape()); }

// PyTorch computes formulas over float16 and bfloat16 in float32, those over complex32 in
// complex64, and rounds once.
constexpr DType Wide(DType t) {
  return t < DType::kF32 && IsFloat(t) ? DType::kF32 : t == DType::kC32 ? DType::kC64 : t;
}
inline Value Widen(Value x) { return hlo::ConvertTo(x, Wide(x.dtype())); }

// A string as a template argument: the name of PyTorch's kernel in its error messages.
template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&s)[N]) { std::copy_n(s, N, text); }  // NOLINT: implicit on purpose
};

// "\"op\" not implemented for 'Bool'", as PyTorch's CPU kernels say it.
inline void CheckImplemented(bool ok, const char* kernel, DType t) {
  TORCH_CHECK_NOT_IMPLEMENTED(ok, '"', kernel, "\" not implemented for '", TorchName(t), "'");
}

// Numbers next to a value, in its dtype and dimensions.
inline Value Plus(Value x, double c) { return hlo::Add(x, FullLike(x, c)); }
inline Value Times(Value x, double c) { return hlo::Mul(x, FullLike(x, c)); }
inline Value RSub(double c, Value x) { return hlo::Sub(FullLike(x, c), x); }
inline Value Square(Value x) { return hlo::Mul(x, x); }

// x where pred is true, else the number.
inline Value Where(Value pred, Value x, double other) {
  return hlo::Select(pred, x, FullLike(x, other));
}
inline Value Where(Value pred, double x, Value other) {
  return hlo::Select(pred, FullLike(other, x), other);
}
inline Value Where(Value pred, Value x, Value other) { return hlo::Select(pred, x, other); }

inline Value LtZero(Value x) { return hlo::Lt(x, FullLike(x, 0)); }
inline Value IsZero(Value x) { return hlo::Eq(x, FullLike(x, 0)); }
// Of a float.
inline Value IsNan(Value x) { return hlo::Ne(x, x); }
inline Value IsInf(Value x) { return hlo::Eq(hlo::Abs(x), FullLike(x, HUGE_VAL)); }

// c[0] * x^(n-1) + ... + c[n-1]
inline Value Polynomial(Value x, std::span<const double> c) {
  Value sum = FullLike(x, c[0]);
  for (double k : c.subspan(1)) sum = Plus(hlo::Mul(sum, x), k);
  return sum;
}
inline Value Polynomial(Value x, std::initializer_list<double> c) {
  return Polynomial(x, std::span(c.begin(), c.size()));
}

// out = f(self) with self's dtype.
template <auto kFn>
struct Unary {
  static Shape Infer(const Arg& self) { return self.shape(); }
  static Value Lower(const Shape& out, Value self) {
    return hlo::ConvertTo(kFn(Widen(self)), out.dtype);
  }
};

// out = f(self), integers computed in the default float type.
template <auto kFn>
struct FloatUnary {
  static Shape Infer(const Arg& self) { return self.shape().with(ToFloat(self.dtype())); }
  static Value Lower(const Shape& out, Value self) {
    return hlo::ConvertTo(kFn(hlo::ConvertTo(self, Wide(out.dtype))), out.dtype);
  }
};

// f(a, b) in the wide type of the result. In complex32 PyTorch takes numbers for the nearest
// halves.
template <auto kFn>
Value LowerWide(const Shape& out, Value a, Value b) {
  auto fit = [&](Value x) {
    if (out.dtype == DType::kC32) x = hlo::ConvertTo(x, out.dtype);
    return Fit(x, out.with(Wide(out.dtype)));
  };
  return hlo::ConvertTo(kFn(fit(a), fit(b)), out.dtype);
}

// out = f(self, other), both promoted and broadcast.
template <auto kFn>
struct Binary {
  static Shape Infer(const Arg& a, const Arg& b) { return {Promote({a, b}), Broadcast({a, b})}; }
  static Value Lower(const Shape& out, Value a, Value b) { return LowerWide<kFn>(out, a, b); }
};

// The same in floating point.
template <auto kFn>
struct FloatBinary {
  static Shape Infer(const Arg& a, const Arg& b) {
    return {PromoteToFloat({a, b}), Broadcast({a, b})};
  }
  static Value Lower(const Shape& out, Value a, Value b) { return LowerWide<kFn>(out, a, b); }
};

// The same where PyTorch's CPU kernel has float32 and float64 only.
template <Name kName>
void CheckFullFloat(DType t) {
  CheckImplemented(!IsComplex(t) && Wide(t) == t, kName.text, t);
}
template <auto kFn, Name kName>
struct FullFloatUnary : FloatUnary<kFn> {
  static Shape Infer(const Arg& self) {
    CheckFullFloat<kName>(self.dtype());
    return FloatUnary<kFn>::Infer(self);
  }
};
template <auto kFn, Name kName>
struct FullFloatBinary : FloatBinary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = FloatBinary<kFn>::Infer(a, b);
    CheckFullFloat<kName>(out.dtype);
    return out;
  }
};

}  // namespace torch_xla::ops
