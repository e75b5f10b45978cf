// Elementwise operations: every operand and the result have the same dimensions. Nothing
// broadcasts (movement.h does that), nothing promotes (Convert does that).
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// (T[...], T[...]) -> T[...]. On bool Add is or, Mul is and.
Value Add(Value a, Value b);
Value Sub(Value a, Value b);
Value Mul(Value a, Value b);
Value Div(Value a, Value b);  // integers: towards zero
Value Rem(Value a, Value b);  // sign of the dividend, as C's fmod
Value Max(Value a, Value b);  // NaN if one is NaN
Value Min(Value a, Value b);  // NaN if one is NaN
Value Pow(Value a, Value b);
Value Atan2(Value a, Value b);
Value And(Value a, Value b);  // bitwise on integers, logical on bool; likewise Or, Xor, Not
Value Or(Value a, Value b);
Value Xor(Value a, Value b);
Value ShiftLeft(Value a, Value b);
Value ShiftRightArithmetic(Value a, Value b);
Value ShiftRightLogical(Value a, Value b);

// T[...] -> T[...]
Value Neg(Value x);
Value Abs(Value x);  // of complex: the real magnitude
Value Sign(Value x);
Value Exp(Value x);
Value Expm1(Value x);
Value Log(Value x);
Value Log1p(Value x);
Value Sqrt(Value x);
Value Rsqrt(Value x);
Value Cbrt(Value x);
Value Tanh(Value x);
Value Logistic(Value x);
Value Sin(Value x);
Value Cos(Value x);
Value Tan(Value x);
Value Ceil(Value x);
Value Floor(Value x);
Value RoundNearestEven(Value x);
Value RoundNearestAfz(Value x);  // ties away from zero
Value Not(Value x);
Value Popcnt(Value x);
Value Clz(Value x);

Value Real(Value x);      // complex[...] -> float[...]; a float is its own real part
Value Imag(Value x);      // complex[...] -> float[...]
Value IsFinite(Value x);  // float[...] -> bool[...]
// halves give C32
Value Complex(Value re, Value im);

enum class Direction { kEQ, kNE, kLT, kLE, kGT, kGE };
// (T[...], T[...]) -> bool[...]. Floats compare by IEEE: NaN is unequal to everything.
Value Compare(Value a, Value b, Direction direction);
Value Eq(Value a, Value b);
Value Ne(Value a, Value b);
Value Lt(Value a, Value b);
Value Le(Value a, Value b);
Value Gt(Value a, Value b);
Value Ge(Value a, Value b);

// (bool[...] or bool[], T[...], T[...]) -> T[...]
Value Select(Value pred, Value on_true, Value on_false);
// (T[...] or T[], T[...], T[...] or T[]) -> T[...]
Value Clamp(Value min, Value x, Value max);

// T[...] -> U[...]; x itself when it has the type already. To bool: x != 0. From complex to real:
// the real part.
Value Convert(Value x, DType to);
// Same bits. T[..., n] of 8 bits -> U[...] of n * 8 bits, and back.
Value BitcastConvert(Value x, DType to);
// Rounds to a float of so many bits and back.
Value ReducePrecision(Value x, int exponent_bits, int mantissa_bits);

}  // namespace torch_xla::hlo
