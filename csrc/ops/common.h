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
using hlo::Value;

// The operand in the result's dtype and dimensions.
inline Value Fit(Value x, const Shape& out) {
  return hlo::BroadcastTo(hlo::ConvertTo(x, out.dtype), out.dims);
}

// out = f(self) with self's dtype.
template <auto kFn>
struct Unary {
  static Shape Infer(const Arg& self) { return self.shape(); }
  static Value Lower(const Shape&, Value self) { return kFn(self); }
};

// out = f(self), integers computed in the default float type.
template <auto kFn>
struct FloatUnary {
  static Shape Infer(const Arg& self) { return self.shape().with(ToFloat(self.dtype())); }
  static Value Lower(const Shape& out, Value self) { return kFn(hlo::ConvertTo(self, out.dtype)); }
};

// out = f(self, other), both promoted and broadcast.
template <auto kFn>
struct Binary {
  static Shape Infer(const Arg& a, const Arg& b) { return {Promote({a, b}), Broadcast({a, b})}; }
  static Value Lower(const Shape& out, Value a, Value b) { return kFn(Fit(a, out), Fit(b, out)); }
};

// The same in floating point.
template <auto kFn>
struct FloatBinary {
  static Shape Infer(const Arg& a, const Arg& b) {
    return {PromoteToFloat({a, b}), Broadcast({a, b})};
  }
  static Value Lower(const Shape& out, Value a, Value b) { return kFn(Fit(a, out), Fit(b, out)); }
};

}  // namespace torch_xla::ops
