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
#include <cstring>
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

using Inputs = std::span<const void* const>;
using Outs = std::span<void* const>;

constexpr size_t kBlock = 1024;

// `Count`: a constant for whole blocks, which the compiler then vectorizes.
template <typename Op, typename T, typename Count>
void RunBlock(Inputs inputs, Outs outs, size_t begin, Count count) {
  using W = Wide<T>::type;
  std::array<W, kBlock> sum;
  const T* first = static_cast<const T*>(inputs[0]) + begin;
  for (size_t i = 0; i < count; ++i) sum[i] = static_cast<W>(first[i]);
  for (const void* input : inputs.subspan(1)) {
    const T* x = static_cast<const T*>(input) + begin;
    for (size_t i = 0; i < count; ++i) sum[i] = Op::template Apply<W>(sum[i], static_cast<W>(x[i]));
  }
  T* y = static_cast<T*>(outs[0]) + begin;
  for (size_t i = 0; i < count; ++i) y[i] = static_cast<T>(sum[i]);
  for (void* out : outs.subspan(1)) {
    std::memcpy(static_cast<T*>(out) + begin, y, count * sizeof(T));
  }
}

template <typename Op, typename T>
void Run(Inputs inputs, Outs outs, size_t count) {
  size_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    RunBlock<Op, T>(inputs, outs, begin, std::integral_constant<size_t, kBlock>{});
  }
  RunBlock<Op, T>(inputs, outs, begin, count - begin);
}

template <typename T>
void Run(Reduce op, Inputs inputs, Outs outs, size_t count) {
  constexpr bool kComplex =
      std::is_same_v<T, c10::complex<float>> || std::is_same_v<T, c10::complex<double>>;
  switch (op) {
    case Reduce::kSum: return Run<Sum, T>(inputs, outs, count);
    case Reduce::kMul: return Run<Mul, T>(inputs, outs, count);
    case Reduce::kMin:
      if constexpr (!kComplex) return Run<Min, T>(inputs, outs, count);
      break;
    case Reduce::kMax:
      if constexpr (!kComplex) return Run<Max, T>(inputs, outs, count);
      break;
    case Reduce::kAnd:
      if constexpr (std::is_integral_v<T>) return Run<And, T>(inputs, outs, count);
      break;
    case Reduce::kOr:
      if constexpr (std::is_integral_v<T>) return Run<Or, T>(inputs, outs, count);
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

void ReduceInto(Reduce op, DType dtype, Inputs inputs, void* out, size_t count) {
  ReduceInto(op, dtype, inputs, Outs(&out, 1), count);
}

void ReduceInto(Reduce op, DType dtype, Inputs inputs, Outs outs, size_t count) {
  switch (dtype) {
    case DType::kBool: return Run<bool>(op, inputs, outs, count);
    case DType::kS8: return Run<int8_t>(op, inputs, outs, count);
    case DType::kS16: return Run<int16_t>(op, inputs, outs, count);
    case DType::kS32: return Run<int32_t>(op, inputs, outs, count);
    case DType::kS64: return Run<int64_t>(op, inputs, outs, count);
    case DType::kU8: return Run<uint8_t>(op, inputs, outs, count);
    case DType::kU16: return Run<uint16_t>(op, inputs, outs, count);
    case DType::kU32: return Run<uint32_t>(op, inputs, outs, count);
    case DType::kU64: return Run<uint64_t>(op, inputs, outs, count);
    case DType::kF8E4M3FN: return Run<c10::Float8_e4m3fn>(op, inputs, outs, count);
    case DType::kF8E5M2: return Run<c10::Float8_e5m2>(op, inputs, outs, count);
    case DType::kF8E4M3FNUZ: return Run<c10::Float8_e4m3fnuz>(op, inputs, outs, count);
    case DType::kF8E5M2FNUZ: return Run<c10::Float8_e5m2fnuz>(op, inputs, outs, count);
    case DType::kF16: return Run<c10::Half>(op, inputs, outs, count);
    case DType::kBF16: return Run<c10::BFloat16>(op, inputs, outs, count);
    case DType::kF32: return Run<float>(op, inputs, outs, count);
    case DType::kF64: return Run<double>(op, inputs, outs, count);
    case DType::kC32:  // as XLA holds it; the program rounds the results
    case DType::kC64: return Run<c10::complex<float>>(op, inputs, outs, count);
    case DType::kC128: return Run<c10::complex<double>>(op, inputs, outs, count);
  }
}

}  // namespace torch_xla::dist
