// Control flow, calls out of the module, and operations that are whole algorithms.
#pragma once

#include <variant>

#include "hlo/builder.h"

namespace torch_xla::hlo {

// (T0[...], T1[...], ...) -> the same types. `cond` returns bool[], `body` the next values; both
// may use values from outside.
std::vector<Value> While(std::span<const Value> inits, const Body& cond, const Body& body);
// pred is bool[]. Both bodies get no arguments and return the same types.
std::vector<Value> If(Value pred, const Body& then_body, const Body& else_body);

// The results, with nothing moved across it.
std::vector<Value> OptimizationBarrier(std::span<const Value> xs);
Value OptimizationBarrier(Value x);

// A token from nothing, the start of a chain of side effects.
Value Token(Builder& b);

// Attributes of an FFI handler. A std::vector is an array.
using AttrValue = std::variant<bool, int32_t, int64_t, float, double, std::string,
                               std::vector<int64_t>, std::vector<double>>;
using Attrs = std::vector<std::pair<std::string, AttrValue>>;
// As MLIR has them: {"n" = 1 : i64}.
std::string Dictionary(const Attrs& attrs);

struct CustomCallOptions {
  // Appends a token to the results (an FFI handler's xla::ffi::Token result).
  bool returns_token = false;
  // (output, operand) pairs that share a buffer.
  std::vector<std::pair<int, int>> aliases = {};
};

// Calls the FFI handler `target` (typed API, version 4). All layouts are row-major. Tokens among
// the inputs order the call after what made them.
std::vector<Value> CustomCall(Builder& b, std::string_view target, std::span<const Value> inputs,
                              std::span<const Shape> results, const Attrs& attrs = {},
                              bool has_side_effect = false, const CustomCallOptions& options = {});

// x[..., n, n] -> the factor in the lower (or upper) triangle; the rest is of no meaning.
Value Cholesky(Value x, bool lower);

enum class TransposeKind { kNone, kTranspose, kAdjoint };
// Solves op(a) x = b (left) or x op(a) = b: a[..., n, n], b[..., n, m] or [..., m, n] -> b's shape.
Value TriangularSolve(Value a, Value b, bool left_side, bool lower, bool unit_diagonal,
                      TransposeKind transpose_a = TransposeKind::kNone);

enum class FftType { kFft, kIfft, kRfft, kIrfft };
// Over the last lengths.size() dimensions (1 to 3). kRfft: float[..., n] -> complex[..., n / 2 +
// 1], kIrfft: complex[..., n / 2 + 1] -> float[..., n], others complex[...] -> complex[...].
Value Fft(Value x, FftType type, const Dims& lengths);

}  // namespace torch_xla::hlo
