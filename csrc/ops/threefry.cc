#include "ops/threefry.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace torch_xla::ops {

namespace {

Value Constant32(Value like, uint32_t v) {
  return hlo::FullInt(like.builder(), like.shape(), static_cast<int64_t>(v));
}
Value Shifted(Value x, int by) {
  return hlo::ShiftRightLogical(x, hlo::FullInt(x.builder(), x.shape(), by));
}
Value RotateLeft(Value x, uint32_t by) {
  return hlo::Or(hlo::ShiftLeft(x, Constant32(x, by)),
                 hlo::ShiftRightLogical(x, Constant32(x, 32 - by)));
}

struct Words {
  Value low, high;
};
Words Split(Value x) {
  return {hlo::ConvertTo(x, DType::kU32),
          hlo::ConvertTo(Shifted(hlo::ConvertTo(x, DType::kU64), 32), DType::kU32)};
}

// offset + 0, 1, ..., n - 1.
Words Counters(Builder& b, Value offset, int64_t n) {
  if (n > std::numeric_limits<uint32_t>::max()) {
    Value i = hlo::Iota(b, {DType::kU64, {n}}, 0);
    return Split(hlo::Add(i, FitTo(offset, i)));
  }
  Value i = hlo::Iota(b, {DType::kU32, {n}}, 0);
  Words o = Split(offset);
  Value first = FitTo(o.low, i);
  Value low = hlo::Add(first, i);
  Value carry = hlo::ConvertTo(hlo::Lt(low, first), DType::kU32);
  return {low, hlo::Add(FitTo(o.high, i), carry)};
}

// The key is of the counters' dimensions or a pair of scalars.
Words Threefry(const Words& k, Words x) {
  constexpr uint32_t kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  constexpr int kRounds = 13;
  Value parity = hlo::Xor(hlo::Xor(k.low, k.high), Constant32(k.low, 0x1BD11BDA));
  const Value key[3] = {k.low, k.high, parity};
  x.low = hlo::Add(x.low, FitTo(key[0], x.low));
  x.high = hlo::Add(x.high, FitTo(key[1], x.high));
  for (int round = 0; round < kRounds; ++round) {
    x.low = hlo::Add(x.low, x.high);
    x.high = hlo::Xor(RotateLeft(x.high, kRotations[round / 4 % 2][round % 4]), x.low);
    if (round % 4 != 3) continue;
    int turn = round / 4 + 1;
    Value second = hlo::Add(key[(turn + 1) % 3], Constant32(key[0], static_cast<uint32_t>(turn)));
    x.low = hlo::Add(x.low, FitTo(key[turn % 3], x.low));
    x.high = hlo::Add(x.high, FitTo(second, x.high));
  }
  return x;
}

}  // namespace

RandomBits::RandomBits(Value seed, Value offset, int64_t n) {
  Words x = Threefry(Split(seed), Counters(seed.builder(), offset, n));
  low_ = x.low;
  high_ = x.high;
}

RandomBits RandomBits::Block(Value step) const {
  Words x = Threefry({low_, high_}, {FitTo(step, low_), FullLike(low_, 0)});
  return {x.low, x.high};
}

Value RandomBits::all() const {
  Value high = hlo::ConvertTo(high_, DType::kU64);
  high = hlo::ShiftLeft(high, hlo::FullInt(high.builder(), high.shape(), 32));
  return hlo::Or(high, hlo::ConvertTo(low_, DType::kU64));
}

// The top `mantissa` bits as a fraction of 1. Through a signed type: conversions from unsigned
// ones are slow on CPUs.
Value RandomBits::Below(Value bits, int mantissa, DType dtype) const {
  bool wide = bits.dtype() == DType::kU64;
  bits = Shifted(bits, (wide ? 64 : 32) - mantissa);
  Value x = hlo::ConvertTo(hlo::ConvertTo(bits, wide ? DType::kS64 : DType::kS32), dtype);
  return Times(x, std::ldexp(1.0, -mantissa));
}

Value RandomBits::Uniform(DType dtype) const {
  switch (dtype) {
    case DType::kF64: return Below(all(), 53, dtype);
    case DType::kF16: return Below(low_, 11, dtype);
    case DType::kF32: return Below(low_, 24, dtype);
    default: return hlo::ConvertTo(Below(low_, 8, DType::kF32), dtype);
  }
}

Value RandomBits::OpenUniform(DType dtype) const {
  int bits = dtype == DType::kF64 ? 52 : 23;
  Value x = Below(dtype == DType::kF64 ? all() : low_, bits, dtype);
  return Plus(x, std::ldexp(1.0, -bits - 1));
}

Value RandomBits::OpenUniform(Value word, DType dtype) {
  if (dtype == DType::kF64) {
    Value x = hlo::ConvertTo(hlo::BitcastConvert(word, DType::kS32), dtype);
    return Times(Plus(x, 0x1p31 + 0.5), 0x1p-32);
  }
  Value x = hlo::ConvertTo(hlo::ConvertTo(Shifted(word, 9), DType::kS32), dtype);
  return Times(Plus(x, 0.5), 0x1p-23);
}

// float32: the inverse of the distribution function, by M. Giles' approximation of erfinv ("GPU
// Computing Gems", 2011), from a sign and a tail probability of 31 bits. float64: Box and Muller.
Value RandomBits::Normal(DType dtype) const {
  if (dtype == DType::kF64) {
    Value u = Times(Plus(hlo::ConvertTo(low_, dtype), 1), 0x1p-32);
    Value angle = Times(hlo::ConvertTo(high_, dtype), 2 * std::numbers::pi * 0x1p-32);
    return hlo::Mul(hlo::Sqrt(Times(hlo::Log(u), -2)), hlo::Cos(angle));
  }
  Value tail = hlo::ConvertTo(hlo::ConvertTo(Shifted(low_, 1), DType::kS32), dtype);
  tail = Times(Plus(tail, 0.5), 0x1p-31);
  Value w = hlo::Neg(hlo::Log(hlo::Mul(tail, RSub(2, tail))));
  Value centre = Polynomial(
      Plus(w, -2.5), {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                      0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941});
  Value far = Polynomial(Plus(hlo::Sqrt(w), -3),
                         {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844,
                          0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682});
  Value erfinv = hlo::Mul(hlo::Select(hlo::Lt(w, FullLike(w, 5)), centre, far), RSub(1, tail));
  Value z = Times(erfinv, std::numbers::sqrt2);
  Value negative = hlo::Ne(hlo::And(low_, Constant32(low_, 1)), Constant32(low_, 0));
  return hlo::Select(negative, hlo::Neg(z), z);
}

}  // namespace torch_xla::ops
