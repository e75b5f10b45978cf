// Appends pieces of MLIR to a string. Private to the layer; no streams, because a training graph
// prints ten thousand operations.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"
#include "hlo/builder.h"

namespace torch_xla::hlo {

inline void AppendInt(std::string& out, int64_t v) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), v).ptr);
}
void AppendType(std::string& out, const Shape& shape);  // tensor<2x3xf32>
void AppendType(std::string& out, const Type& type);
void AppendQuoted(std::string& out, std::string_view s);  // with MLIR's escapes
void AppendList(std::string& out, Span v);                // [1, 2]
// A literal that reads back as exactly this value of the floating type (not complex).
void AppendFloat(std::string& out, DType dtype, double value);
// The number of the floating type that is nearest: infinity beyond its range.
double RoundFloat(DType dtype, double value);

// The properties of an operation: "a = 1 : i64, b = array<i64: 1, 2>".
class Props {
 public:
  Props& Int(std::string_view name, int64_t v, std::string_view type = "i64");
  Props& Bool(std::string_view name, bool v) { return Raw(name, v ? "true" : "false"); }
  Props& String(std::string_view name, std::string_view v);
  Props& Array(std::string_view name, Span v);
  Props& Raw(std::string_view name, std::string_view text);
  // low and high of each dimension, as a dense tensor<nx2xi64>.
  Props& Padding(Span low, Span high);
  // #stablehlo<kind VALUE>
  Props& Enum(std::string_view name, std::string_view kind, std::string_view value);

  operator std::string_view() const { return text_; }  // NOLINT: implicit on purpose

 private:
  void Name(std::string_view name);
  std::string text_;
};

// Throws kInvalidArgument with "[stablehlo.<op>] ..." unless all values are valid tensors (not
// tokens) of one builder.
void CheckTensors(std::string_view op, std::span<const Value> values);
void CheckTensors(std::string_view op, std::initializer_list<Value> values);
// Equal shapes, else "[stablehlo.add] operand shapes tensor<..> and tensor<..> differ".
void CheckSameShape(std::string_view op, Value a, Value b);
// 0 <= dim < rank, no repetition.
void CheckDims(std::string_view op, const char* what, Span dims, int64_t rank);
// Exactly `n` entries.
void CheckCount(std::string_view op, const char* what, Span v, int64_t n);
inline bool Contains(Span dims, int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}
std::vector<Type> TypesOf(std::span<const Value> values);
// The types of scalars with the dtypes of the values.
std::vector<Type> ScalarTypesOf(std::span<const Value> values);

// The window of reduce_window, select_and_scatter and convolution.
struct Window {
  Dims size, strides, pad_low, pad_high, base_dilation, window_dilation;
};
// The output's dimensions of a window that slides over `in`; all members must have in's rank.
Dims SlideWindow(std::string_view op, Span in, const Window& window);

}  // namespace torch_xla::hlo

// For what is wrong with the arguments of an operation; `op` is its name without "stablehlo.".
#define HLO_CHECK(cond, op, ...) \
  XLA_CHECK(cond, kInvalidArgument, "[stablehlo.", op, "] ", __VA_ARGS__)
