// Element types, named as in StableHLO.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla {

enum class DType : uint8_t {
  kBool,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
  // Two halves, held as complex<f32>: XLA has no complex<f16>. After those that it has, so that a
  // search by XLA's name of a type finds these.
  kC32,
};
inline constexpr int kNumDTypes = static_cast<int>(DType::kC32) + 1;

// How XLA holds it: complex<f32> for kC32, others as they are.
constexpr DType Stored(DType t) { return t == DType::kC32 ? DType::kC64 : t; }
// Bytes of one element as XLA holds it (bool: 1).
size_t ByteSize(DType t);
// StableHLO's spelling: "i1", "i32", "ui8", "bf16", "complex<f32>".
const char* HloName(DType t);
// PyTorch's spelling as error messages have it: "Bool", "Int", "Byte", "BFloat16", "ComplexFloat".
const char* TorchName(DType t);

constexpr bool IsComplex(DType t) { return t >= DType::kC64; }
constexpr bool IsFloat8(DType t) { return t >= DType::kF8E4M3FN && t <= DType::kF8E5M2FNUZ; }
constexpr bool IsFloat(DType t) { return t >= DType::kF8E4M3FN && t <= DType::kF64; }
constexpr bool IsSigned(DType t) { return t >= DType::kS8 && t <= DType::kS64; }
constexpr bool IsUnsigned(DType t) { return t >= DType::kU8 && t <= DType::kU64; }
// Integers without bool.
constexpr bool IsInt(DType t) { return IsSigned(t) || IsUnsigned(t); }
constexpr bool IsIntOrBool(DType t) { return t <= DType::kU64; }
// C32 -> F16, C64 -> F32, C128 -> F64, others unchanged.
constexpr DType RealPart(DType t) {
  switch (t) {
    case DType::kC32: return DType::kF16;
    case DType::kC64: return DType::kF32;
    case DType::kC128: return DType::kF64;
    default: return t;
  }
}
// F16 -> C32, F64 -> C128, other reals -> C64, complex ones unchanged.
constexpr DType ComplexOf(DType t) {
  if (IsComplex(t)) return t;
  return t == DType::kF16 ? DType::kC32 : t == DType::kF64 ? DType::kC128 : DType::kC64;
}

}  // namespace torch_xla
