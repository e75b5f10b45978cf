#include "dist/reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/error.h"

namespace torch_xla::dist {
namespace {

// What a type is added up in.
template <typename T>
struct Wide {
  using type = T;
};
template <typename T>
requires(!std::is_arithmetic_v<T> && sizeof(T) <= 2) struct Wide<T> {
  using type = float;
};

struct Sum {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) return a || b;
    // Unsigned: integers wrap around.
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
    if constexpr (!std::is_integral_v<T>) return a + b;
  }
};
struct Mul {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) return a && b;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
    if constexpr (!std::is_integral_v<T>) return a * b;
  }
};
struct And {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Min {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a)) return a;
    }
    return b >= a ? a : b;
  }
};
struct Max {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a)) return a;
    }
    return b <= a ? a : b;
  }
};

constexpr size_t kBlock = 1024;

// `n` is a number, or a constant with which the compiler makes loops of vectors.
template <typename Op, typename T, typename N>
void RunBlock(std::span<const void* const> inputs, void* out, size_t begin, N n) {
  using W = Wide<T>::type;
  std::array<W, kBlock> sum;
  const T* first = static_cast<const T*>(inputs[0]) + begin;
  for (size_t i = 0; i < n; ++i) sum[i] = static_cast<W>(first[i]);
  for (const void* input : inputs.subspan(1)) {
    const T* x = static_cast<const T*>(input) + begin;
    for (size_t i = 0; i < n; ++i) sum[i] = Op::template Apply<W>(sum[i], static_cast<W>(x[i]));
  }
  T* y = static_cast<T*>(out) + begin;
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<T>(sum[i]);
}

template <typename Op, typename T>
void Run(std::span<const void* const> inputs, void* out, size_t count) {
  size_t begin = 0;
  for (; count - begin >= kBlock; begin += kBlock) {
    RunBlock<Op, T>(inputs, out, begin, std::integral_constant<size_t, kBlock>());
  }
  if (begin < count) RunBlock<Op, T>(inputs, out, begin, count - begin);
}

template <typename T>
void Run(Reduce op, std::span<const void* const> inputs, void* out, size_t count) {
  constexpr bool kComplex =
      std::is_same_v<T, c10::complex<float>> || std::is_same_v<T, c10::complex<double>>;
  switch (op) {
    case Reduce::kSum: return Run<Sum, T>(inputs, out, count);
    case Reduce::kMul: return Run<Mul, T>(inputs, out, count);
    case Reduce::kMin:
      if constexpr (!kComplex) return Run<Min, T>(inputs, out, count);
      break;
    case Reduce::kMax:
      if constexpr (!kComplex) return Run<Max, T>(inputs, out, count);
      break;
    case Reduce::kAnd:
      if constexpr (std::is_integral_v<T>) return Run<And, T>(inputs, out, count);
      break;
    case Reduce::kOr:
      if constexpr (std::is_integral_v<T>) return Run<Or, T>(inputs, out, count);
      break;
  }
  XLA_INTERNAL_CHECK(false, "unsupported reduction");
}

}  // namespace

const char* ReduceName(Reduce op) {
  static constexpr const char* kNames[] = {"sum", "mul", "and", "or", "min", "max"};
  return kNames[static_cast<size_t>(op)];
}

bool Supports(Reduce op, DType dtype) {
  switch (op) {
    case Reduce::kSum:
    case Reduce::kMul: return true;
    case Reduce::kMin:
    case Reduce::kMax: return !IsComplex(dtype);
    case Reduce::kAnd:
    case Reduce::kOr: return IsIntOrBool(dtype);
  }
  return false;
}

void ReduceInto(Reduce op, DType dtype, std::span<const void* const> inputs, void* out,
                size_t count) {
  switch (dtype) {
    case DType::kBool: return Run<bool>(op, inputs, out, count);
    case DType::kS8: return Run<int8_t>(op, inputs, out, count);
    case DType::kS16: return Run<int16_t>(op, inputs, out, count);
    case DType::kS32: return Run<int32_t>(op, inputs, out, count);
    case DType::kS64: return Run<int64_t>(op, inputs, out, count);
    case DType::kU8: return Run<uint8_t>(op, inputs, out, count);
    case DType::kU16: return Run<uint16_t>(op, inputs, out, count);
    case DType::kU32: return Run<uint32_t>(op, inputs, out, count);
    case DType::kU64: return Run<uint64_t>(op, inputs, out, count);
    case DType::kF8E4M3FN: return Run<c10::Float8_e4m3fn>(op, inputs, out, count);
    case DType::kF8E5M2: return Run<c10::Float8_e5m2>(op, inputs, out, count);
    case DType::kF8E4M3FNUZ: return Run<c10::Float8_e4m3fnuz>(op, inputs, out, count);
    case DType::kF8E5M2FNUZ: return Run<c10::Float8_e5m2fnuz>(op, inputs, out, count);
    case DType::kF16: return Run<c10::Half>(op, inputs, out, count);
    case DType::kBF16: return Run<c10::BFloat16>(op, inputs, out, count);
    case DType::kF32: return Run<float>(op, inputs, out, count);
    case DType::kF64: return Run<double>(op, inputs, out, count);
    case DType::kC64: return Run<c10::complex<float>>(op, inputs, out, count);
    case DType::kC128: return Run<c10::complex<double>>(op, inputs, out, count);
  }
}

}  // namespace torch_xla::dist
