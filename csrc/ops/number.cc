// Functions of the digits of numbers: common divisors, mantissas.
#include <ATen/ops/frexp_ops.h>
#include <ATen/ops/gcd_ops.h>
#include <ATen/ops/lcm_ops.h>

#include "hlo/control.h"
#include "hlo/reduce.h"
#include "ops/common.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

Value Magnitude(Value x) { return IsUnsigned(x.dtype()) ? x : hlo::Abs(x); }

// Euclid's algorithm on all elements until none has a remainder.
Value Gcd(Value a, Value b) {
  Dims all = WrapDims({}, a.rank());
  auto some = [](Value b) { return hlo::Not(IsZero(b)); };
  auto cond = [&](Builder&, std::span<const Value> v) {
    return std::vector<Value>{hlo::Reduce(some(v[1]), all, hlo::Reducer::kOr)};
  };
  auto step = [&](Builder&, std::span<const Value> v) {
    Value go = some(v[1]);
    Value rest = hlo::Rem(v[0], Where(go, v[1], FullLike(v[1], 1)));
    return std::vector<Value>{hlo::Select(go, v[1], v[0]), Where(go, rest, 0)};
  };
  const Value inits[] = {Magnitude(a), Magnitude(b)};
  return hlo::While(inits, cond, step)[0];
}

Value Lcm(Value a, Value b) {
  Value g = Gcd(a, b);
  Value y = hlo::Mul(hlo::Div(a, Where(IsZero(g), 1, g)), b);
  return Where(IsZero(g), 0, Magnitude(y));
}

template <auto kFn, Name kName>
struct IntBinary : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<kFn>::Infer(a, b);
    CheckImplemented(IsInt(out.dtype), kName.text, out.dtype);
    return out;
  }
};

// x = mantissa * 2^exponent with 1/2 <= |mantissa| < 1, read off the bits of x.
struct Frexp {
  static std::array<Shape, 2> Infer(const Arg& self) {
    TORCH_CHECK(IsFloat(self.dtype()), "torch.frexp() only supports floating-point dtypes");
    return {self.shape(), self.shape().with(DType::kS32)};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self) {
    Value x = Widen(self);
    bool f64 = x.dtype() == DType::kF64;
    int mantissa_bits = f64 ? 52 : 23;
    int bias = f64 ? 1022 : 126;
    // Subnormals count as zeros: XLA's compilers flush them.
    Value bits = FloatBits(x);
    Value biased = hlo::ShiftRightArithmetic(bits, FullLike(bits, mantissa_bits));
    biased = hlo::And(biased, FullLike(bits, f64 ? 0x7FF : 0xFF));
    Value exponent = Plus(biased, -bias);
    Value clear = hlo::FullInt(x.builder(), bits.shape(),
                               ~(static_cast<int64_t>(f64 ? 0x7FF : 0xFF) << mantissa_bits));
    Value half =
        hlo::FullInt(x.builder(), bits.shape(), static_cast<int64_t>(bias) << mantissa_bits);
    Value mantissa = hlo::BitcastConvert(hlo::Or(hlo::And(bits, clear), half), x.dtype());
    Value plain = hlo::Or(IsZero(x), hlo::Not(hlo::IsFinite(x)));
    mantissa = hlo::Select(plain, x, mantissa);
    exponent = Where(plain, 0, hlo::ConvertTo(exponent, DType::kS32));
    return {hlo::ConvertTo(mantissa, out[0].dtype), exponent};
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<gcd, IntBinary<Gcd, "gcd_cpu">>(m);
  Register<lcm, IntBinary<Lcm, "lcm_cpu">>(m);
  Register<frexp_Tensor, Frexp>(m);
}

}  // namespace torch_xla::ops
