// Reductions, windows and sort.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// kMax and kMin propagate NaN. On bool kSum and kMax are or, kProd and kMin are and.
enum class Reducer { kSum, kProd, kMax, kMin, kAnd, kOr };

// The operation of a reducer, and the scalar that it starts from.
Value Apply(Reducer reducer, Value a, Value b);
Value Identity(Builder& b, Reducer reducer, DType dtype);

// x[...] -> x without `dims`.
Value Reduce(Value x, const Dims& dims, Reducer reducer);
// (inputs[...]..., inits[]...) -> inputs without `dims`. `body` gets (accumulators...,
// elements...).
std::vector<Value> Reduce(std::span<const Value> inputs, std::span<const Value> inits,
                          const Dims& dims, const Body& body);

// x[n] -> [(low + dilated(n, base) + high - dilated(window, window_dilation)) / stride + 1] in
// every dimension, dilated(n, k) = (n - 1) * k + 1. Padding is filled with `init`.
Value ReduceWindow(Value x, Value init, const Dims& window_dims, const Dims& strides,
                   const Dims& base_dilation, const Dims& window_dilation, const Dims& pad_low,
                   const Dims& pad_high, Reducer reducer);
std::vector<Value> ReduceWindow(std::span<const Value> inputs, std::span<const Value> inits,
                                const Dims& window_dims, const Dims& strides,
                                const Dims& base_dilation, const Dims& window_dilation,
                                const Dims& pad_low, const Dims& pad_high, const Body& body);

// operand[...], source[windows...] -> operand's shape: the gradient of max pooling. In each window
// the element that `select` (by default >=) prefers gets the source added.
Value SelectAndScatter(Value operand, Value source, Value init, const Dims& window_dims,
                       const Dims& strides, const Dims& pad_low, const Dims& pad_high);
Value SelectAndScatter(Value operand, Value source, Value init, const Dims& window_dims,
                       const Dims& strides, const Dims& pad_low, const Dims& pad_high,
                       const Body& select, const Body& scatter);

// Sorts all operands together along `dim`. `comparator` gets (left 0, right 0, left 1, right 1,
// ...) and returns bool[]: whether left comes first.
std::vector<Value> Sort(std::span<const Value> operands, int64_t dim, bool is_stable,
                        const Body& comparator);

}  // namespace torch_xla::hlo
