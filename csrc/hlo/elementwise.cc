#include "hlo/elementwise.h"

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

namespace {

// Which types an operation takes.
enum Kinds : unsigned {
  kBoolK = 1,
  kSignedK = 2,
  kUnsignedK = 4,
  kFloatK = 8,
  kComplexK = 16,
  kIntK = kSignedK | kUnsignedK,
  kNumberK = kIntK | kFloatK | kComplexK,
};

unsigned KindOf(DType t) {
  return t == DType::kBool ? kBoolK
         : IsSigned(t)     ? kSignedK
         : IsUnsigned(t)   ? kUnsignedK
         : IsFloat(t)      ? kFloatK
                           : kComplexK;
}

void CheckKind(std::string_view op, Value x, unsigned kinds) {
  HLO_CHECK((KindOf(x.dtype()) & kinds) != 0, op, "is not defined for ", ToString(x.shape()));
}

Value Unary(std::string_view op, unsigned kinds, Value x) {
  CheckTensors(op, {x});
  CheckKind(op, x, kinds);
  return x.builder().Emit(op, {x}, "", x.shape());
}

Value Binary(std::string_view op, unsigned kinds, Value a, Value b) {
  CheckTensors(op, {a, b});
  CheckSameShape(op, a, b);
  CheckKind(op, a, kinds);
  return a.builder().Emit(op, {a, b}, "", a.shape());
}

// complex[...] -> float[...]
Value ToReal(std::string_view op, unsigned kinds, Value x) {
  CheckTensors(op, {x});
  CheckKind(op, x, kinds);
  Value real = x.builder().Emit(op, {x}, "", x.shape().with(RealPart(Stored(x.dtype()))));
  return Convert(real, RealPart(x.dtype()));
}

}  // namespace

Value Add(Value a, Value b) { return Binary("add", kNumberK | kBoolK, a, b); }
Value Sub(Value a, Value b) { return Binary("subtract", kNumberK, a, b); }
Value Mul(Value a, Value b) { return Binary("multiply", kNumberK | kBoolK, a, b); }
Value Div(Value a, Value b) { return Binary("divide", kNumberK, a, b); }
Value Rem(Value a, Value b) { return Binary("remainder", kIntK | kFloatK, a, b); }
Value Max(Value a, Value b) { return Binary("maximum", kBoolK | kIntK | kFloatK, a, b); }
Value Min(Value a, Value b) { return Binary("minimum", kBoolK | kIntK | kFloatK, a, b); }
Value Pow(Value a, Value b) { return Binary("power", kNumberK, a, b); }
Value Atan2(Value a, Value b) { return Binary("atan2", kFloatK | kComplexK, a, b); }
Value And(Value a, Value b) { return Binary("and", kBoolK | kIntK, a, b); }
Value Or(Value a, Value b) { return Binary("or", kBoolK | kIntK, a, b); }
Value Xor(Value a, Value b) { return Binary("xor", kBoolK | kIntK, a, b); }
Value ShiftLeft(Value a, Value b) { return Binary("shift_left", kIntK, a, b); }
Value ShiftRightArithmetic(Value a, Value b) {
  return Binary("shift_right_arithmetic", kIntK, a, b);
}
Value ShiftRightLogical(Value a, Value b) { return Binary("shift_right_logical", kIntK, a, b); }

Value Neg(Value x) { return Unary("negate", kNumberK, x); }
Value Sign(Value x) { return Unary("sign", kSignedK | kFloatK | kComplexK, x); }
Value Exp(Value x) { return Unary("exponential", kFloatK | kComplexK, x); }
Value Expm1(Value x) { return Unary("exponential_minus_one", kFloatK | kComplexK, x); }
Value Log(Value x) { return Unary("log", kFloatK | kComplexK, x); }
Value Log1p(Value x) { return Unary("log_plus_one", kFloatK | kComplexK, x); }
Value Sqrt(Value x) { return Unary("sqrt", kFloatK | kComplexK, x); }
Value Rsqrt(Value x) { return Unary("rsqrt", kFloatK | kComplexK, x); }
Value Cbrt(Value x) { return Unary("cbrt", kFloatK, x); }
Value Tanh(Value x) { return Unary("tanh", kFloatK | kComplexK, x); }
Value Logistic(Value x) { return Unary("logistic", kFloatK | kComplexK, x); }
Value Sin(Value x) { return Unary("sine", kFloatK | kComplexK, x); }
Value Cos(Value x) { return Unary("cosine", kFloatK | kComplexK, x); }
Value Tan(Value x) { return Unary("tan", kFloatK | kComplexK, x); }
Value Ceil(Value x) { return Unary("ceil", kFloatK, x); }
Value Floor(Value x) { return Unary("floor", kFloatK, x); }
Value RoundNearestEven(Value x) { return Unary("round_nearest_even", kFloatK, x); }
Value RoundNearestAfz(Value x) { return Unary("round_nearest_afz", kFloatK, x); }
Value Not(Value x) { return Unary("not", kBoolK | kIntK, x); }
Value Popcnt(Value x) { return Unary("popcnt", kIntK, x); }
Value Clz(Value x) { return Unary("count_leading_zeros", kIntK, x); }

Value Abs(Value x) { return ToReal("abs", kSignedK | kFloatK | kComplexK, x); }
Value Real(Value x) { return ToReal("real", kFloatK | kComplexK, x); }
Value Imag(Value x) { return ToReal("imag", kFloatK | kComplexK, x); }

Value IsFinite(Value x) {
  CheckTensors("is_finite", {x});
  CheckKind("is_finite", x, kFloatK);
  return x.builder().Emit("is_finite", {x}, "", x.shape().with(DType::kBool));
}

Value Complex(Value re, Value im) {
  CheckTensors("complex", {re, im});
  CheckSameShape("complex", re, im);
  Shape out = re.shape().with(ComplexOf(re.dtype()));
  HLO_CHECK(RealPart(out.dtype) == re.dtype(), "complex", "is not defined for ",
            ToString(re.shape()));
  DType part = RealPart(Stored(out.dtype));
  return re.builder().Emit("complex", {Convert(re, part), Convert(im, part)}, "", out);
}

Value Compare(Value a, Value b, Direction direction) {
  CheckTensors("compare", {a, b});
  CheckSameShape("compare", a, b);
  DType t = a.dtype();
  static constexpr const char* kNames[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  const char* name = kNames[static_cast<int>(direction)];
  HLO_CHECK(!IsComplex(t) || direction == Direction::kEQ || direction == Direction::kNE, "compare",
            name, " is not defined for ", ToString(a.shape()));
  const char* type = IsFloat(t) || IsComplex(t) ? "FLOAT" : IsSigned(t) ? "SIGNED" : "UNSIGNED";
  Props props;
  props.Enum("comparison_direction", "comparison_direction", name)
      .Enum("compare_type", "comparison_type", type);
  return a.builder().Emit("compare", {a, b}, props, a.shape().with(DType::kBool));
}

Value Eq(Value a, Value b) { return Compare(a, b, Direction::kEQ); }
Value Ne(Value a, Value b) { return Compare(a, b, Direction::kNE); }
Value Lt(Value a, Value b) { return Compare(a, b, Direction::kLT); }
Value Le(Value a, Value b) { return Compare(a, b, Direction::kLE); }
Value Gt(Value a, Value b) { return Compare(a, b, Direction::kGT); }
Value Ge(Value a, Value b) { return Compare(a, b, Direction::kGE); }

Value Select(Value pred, Value on_true, Value on_false) {
  CheckTensors("select", {pred, on_true, on_false});
  HLO_CHECK(pred.dtype() == DType::kBool && (pred.rank() == 0 || pred.dims() == on_true.dims()),
            "select", "predicate ", ToString(pred.shape()), " does not fit ",
            ToString(on_true.shape()));
  CheckSameShape("select", on_true, on_false);
  return pred.builder().Emit("select", {pred, on_true, on_false}, "", on_true.shape());
}

Value Clamp(Value min, Value x, Value max) {
  CheckTensors("clamp", {min, x, max});
  for (Value limit : {min, max}) {
    HLO_CHECK(limit.dtype() == x.dtype() && (limit.rank() == 0 || limit.dims() == x.dims()),
              "clamp", "limit ", ToString(limit.shape()), " does not fit ", ToString(x.shape()));
  }
  CheckKind("clamp", x, kBoolK | kIntK | kFloatK);
  return x.builder().Emit("clamp", {min, x, max}, "", x.shape());
}

Value Convert(Value x, DType to) {
  CheckTensors("convert", {x});
  if (x.dtype() == to) return x;
  HLO_CHECK(to != DType::kC32, "convert", "does not round to ", TorchName(to), ": see cast.h");
  return x.builder().Emit("convert", {x}, "", x.shape().with(to));
}

Value BitcastConvert(Value x, DType to) {
  constexpr std::string_view op = "bitcast_convert";
  CheckTensors(op, {x});
  if (x.dtype() == to) return x;
  // A bool is one bit to StableHLO and a byte to its compilers, which do not take complex either.
  for (DType t : {x.dtype(), to}) {
    HLO_CHECK(t != DType::kBool && !IsComplex(t), op, "is not defined for ", HloName(t));
  }
  auto from_bits = static_cast<int64_t>(8 * ByteSize(x.dtype()));
  auto to_bits = static_cast<int64_t>(8 * ByteSize(to));
  Shape out = x.shape().with(to);
  if (from_bits > to_bits) {
    HLO_CHECK(from_bits % to_bits == 0, op, ToString(x.shape()), " to ", HloName(to),
              ": sizes do not divide");
    out.dims.push_back(from_bits / to_bits);
  } else if (from_bits < to_bits) {
    HLO_CHECK(x.rank() > 0 && to_bits % from_bits == 0 && x.dim(-1) == to_bits / from_bits, op,
              ToString(x.shape()), " to ", HloName(to), ": the last dimension should be ",
              to_bits / from_bits);
    out.dims.resize(out.dims.size() - 1);
  }
  return x.builder().Emit(op, {x}, "", out);
}

Value ReducePrecision(Value x, int exponent_bits, int mantissa_bits) {
  constexpr std::string_view op = "reduce_precision";
  CheckTensors(op, {x});
  CheckKind(op, x, kFloatK);
  HLO_CHECK(exponent_bits >= 1 && mantissa_bits >= 0, op, exponent_bits, " exponent bits and ",
            mantissa_bits, " mantissa bits are no float");
  Props props;
  props.Int("exponent_bits", exponent_bits, "i32").Int("mantissa_bits", mantissa_bits, "i32");
  return x.builder().Emit(op, {x}, props, x.shape());
}

}  // namespace torch_xla::hlo
