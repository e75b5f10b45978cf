#include "hlo/cast.h"

#include "hlo/constant.h"
#include "hlo/elementwise.h"

namespace torch_xla::hlo {
namespace {

// f32 -> the nearest f16 as an f32. Not by two conversions, which a compiler may take for nothing;
// and reduce_precision makes the denormal halves zero.
Value RoundToHalf(Value x) {
  Value denormal = Lt(Abs(x), FullLike(x, 0x1p-14));
  Value units = RoundNearestEven(Mul(x, FullLike(x, 0x1p24)));
  return Select(denormal, Mul(units, FullLike(x, 0x1p-24)), ReducePrecision(x, 5, 10));
}

}  // namespace

Value ConvertTo(Value x, DType to) {
  if (x.dtype() == to) return x;
  Builder& b = x.builder();
  if (to == DType::kBool) {
    Value zero = IsComplex(x.dtype()) ? FullLike(x, 0) : Full(b, x.shape(), 0);
    return Ne(x, zero);
  }
  // Not by a conversion: XLA makes a product with a converted bool a choice between x and 0, which
  // loses NaN.
  if (x.dtype() == DType::kBool && IsFloat(to) && !IsFloat8(to)) {
    Shape shape = x.shape().with(to);
    return Select(x, Full(b, shape, 1), Full(b, shape, 0));
  }
  if (to == DType::kC32 && IsComplex(x.dtype())) return RoundToHalves(x);
  if (IsComplex(x.dtype()) && !IsComplex(to)) x = Real(x);
  if (IsComplex(to) && !IsComplex(x.dtype())) {
    Value re = ConvertTo(x, RealPart(to));
    return Complex(re, FullLike(re, 0));
  }
  // It has no infinity, and PyTorch gives its largest number where XLA would give NaN.
  if (to == DType::kF8E4M3FN && (IsInt(x.dtype()) || IsFloat8(x.dtype()))) {
    return ConvertTo(Convert(x, DType::kF32), to);
  }
  if (to == DType::kF8E4M3FN && IsFloat(x.dtype())) {
    Value high = FullLike(x, 448), low = FullLike(x, -448);
    Value above = Gt(x, high), below = Lt(x, low);
    return Convert(Select(above, high, Select(below, low, x)), to);
  }
  // Through a wider integer: the result wraps around, as PyTorch's does on CPU.
  if (IsFloat(x.dtype()) && IsInt(to) && ByteSize(to) < 4)
    return Convert(Convert(x, DType::kS32), to);
  if (IsFloat(x.dtype()) && to == DType::kU32) return Convert(Convert(x, DType::kS64), to);
  return Convert(x, to);
}

Value RoundToHalves(Value x) {
  Builder& b = x.builder();
  const DType wide = RealPart(Stored(x.dtype()));
  auto part = [&](std::string_view op) {
    Value v = b.Emit(op, {x}, "", x.shape().with(wide));
    return RoundToHalf(Convert(v, DType::kF32));
  };
  Value re = part("real"), im = part("imag");
  return b.Emit("complex", {re, im}, "", x.shape().with(DType::kC32));
}

Value ToBits(Value x) {
  if (x.dtype() == DType::kBool) return Convert(x, DType::kU8);
  switch (ByteSize(x.dtype())) {
    case 1: return BitcastConvert(x, DType::kU8);
    case 2: return BitcastConvert(x, DType::kU16);
    case 4: return BitcastConvert(x, DType::kU32);
    default: return BitcastConvert(x, DType::kU64);
  }
}

Value FromBits(Value bits, DType to) {
  return to == DType::kBool ? Convert(bits, to) : BitcastConvert(bits, to);
}

}  // namespace torch_xla::hlo
