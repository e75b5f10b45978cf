// The window of a pooling over the last n dimensions.
#pragma once

#include "ops/lowering.h"

namespace torch_xla::ops {

struct PoolWindow {
  int64_t n;
  Dims kernel, stride, padding, dilation;
  Dims in, out;  // of the last n dimensions

  // `name` is for the messages, which are PyTorch's.
  PoolWindow(const char* name, int64_t rank_of_window, const Dims& input, Span kernel_size,
             Span strides, Span paddings, Span dilations, bool ceil_mode);

  // The result's dimensions for an input of these.
  Dims ResultDims(const Dims& input) const;

  // Padding at the end of dimension i so that exactly `out` windows fit.
  int64_t High(size_t i) const {
    return (out[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - in[i] - padding[i];
  }
  // x reduced over the windows, starting from `init`.
  Value Reduce(Value x, Value init, hlo::Reducer reducer) const;
  std::vector<Value> Reduce(std::span<const Value> xs, std::span<const Value> inits,
                            const hlo::Body& body) const;
  // The sum over the windows that an element is in: the gradient of a sum over windows.
  Value SumBack(Value g) const;

  // Values for all dimensions of x: `before` for the leading ones.
  Dims Full(int64_t rank, const Dims& v, int64_t before) const;
  Dims Highs() const;
};

// The position of each element within the last n dimensions.
Value FlatPositions(Value x, int64_t n);
// Whether the later b takes the maximum from a: when larger, or NaN.
Value TakesMaximum(Value a, Value b);
// A reduction of (element, position) to the maximum and where it is: of equals the first position,
// of NaN the last. Reductions may go through a window in any order. Position -1: nothing yet.
std::vector<Value> PickMaximum(Builder& b, std::span<const Value> v);
// g added up (or combined otherwise, over zeros) at the positions that the indices name within
// planes of the last n dimensions.
Value ScatterPlanes(Value g, Value indices, const Shape& out, int64_t n,
                    const hlo::Body& combine = Combine(hlo::Reducer::kSum));

}  // namespace torch_xla::ops
