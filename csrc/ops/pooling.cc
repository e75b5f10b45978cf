// Max and average pooling over windows in 2 and 3 dimensions; torch composes the 1-d forms of them.
#include "ops/pooling.h"

#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_backward_ops.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>

#include <limits>

#include "ops/scatter_dim.h"

namespace torch_xla::ops {

namespace {

Dims FillTo(Span v, int64_t n, int64_t otherwise) {
  if (v.empty()) return Dims(At(n), otherwise);
  return v.size() == 1 ? Dims(At(n), v[0]) : Dims(v);
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

}  // namespace

PoolWindow::PoolWindow(const char* name, int64_t rank_of_window, const Dims& input,
                       Span kernel_size, Span strides, Span paddings, Span dilations,
                       bool ceil_mode)
    : n(rank_of_window),
      kernel(FillTo(kernel_size, n, 1)),
      stride(strides.empty() ? kernel : FillTo(strides, n, 1)),
      padding(FillTo(paddings, n, 0)),
      dilation(FillTo(dilations, n, 1)) {
  auto rank = static_cast<int64_t>(input.size());
  XLA_CHECK(rank == n + 1 || rank == n + 2, kInvalidArgument, name, ": Expected ", n + 1, "D or ",
            n + 2, "D tensor, but got ", ToString(input));
  XLA_CHECK(input[At(rank - n - 1)] > 0, kInvalidArgument, name,
            ": Expected input's non-batch dimensions to have positive length, but input has a "
            "shape of ",
            ToString(input));
  for (size_t i = 0; i < At(n); ++i) {
    XLA_CHECK(kernel[i] > 0 && stride[i] > 0 && dilation[i] > 0, kInvalidArgument, name,
              ": kernel size, stride and dilation should be greater than zero");
    XLA_CHECK(padding[i] >= 0 && padding[i] <= kernel[i] / 2, kInvalidArgument, name,
              ": pad should be at most half of effective kernel size");
    int64_t size = input[input.size() - At(n) + i];
    int64_t span = size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    int64_t windows = FloorDiv(span + (ceil_mode ? stride[i] - 1 : 0), stride[i]) + 1;
    // The last window starts inside the input or the padding before it.
    if (ceil_mode && (windows - 1) * stride[i] >= size + padding[i]) --windows;
    XLA_CHECK(windows >= 1 && size > 0, kInvalidArgument, name, ": the output of input ",
              ToString(input), " is too small");
    in.push_back(size);
    out.push_back(windows);
  }
}

Dims PoolWindow::ResultDims(const Dims& input) const {
  Dims dims = input;
  std::copy(out.begin(), out.end(), dims.end() - n);
  return dims;
}

Dims PoolWindow::Full(int64_t rank, const Dims& v, int64_t before) const {
  Dims all(At(rank), before);
  std::copy(v.begin(), v.end(), all.end() - n);
  return all;
}

Dims PoolWindow::Highs() const {
  Dims high;
  for (size_t i = 0; i < At(n); ++i) high.push_back(High(i));
  return high;
}

std::vector<Value> PoolWindow::Reduce(std::span<const Value> xs, std::span<const Value> inits,
                                      const hlo::Body& body) const {
  int64_t r = xs[0].rank();
  return hlo::ReduceWindow(xs, inits, Full(r, kernel, 1), Full(r, stride, 1), Dims(At(r), 1),
                           Full(r, dilation, 1), Full(r, padding, 0), Full(r, Highs(), 0), body);
}

Value PoolWindow::Reduce(Value x, Value init, hlo::Reducer reducer) const {
  return Reduce(std::span(&x, 1), std::span(&init, 1), Combine(reducer))[0];
}

Value PoolWindow::SumBack(Value g) const {
  Dims low, high;
  for (size_t i = 0; i < At(n); ++i) {
    int64_t span = (kernel[i] - 1) * dilation[i];
    low.push_back(span - padding[i]);
    high.push_back(in[i] + padding[i] - (out[i] - 1) * stride[i] - 1);
  }
  int64_t r = g.rank();
  return hlo::ReduceWindow(g, ScalarOf(g, 0), Full(r, kernel, 1), Dims(At(r), 1),
                           Full(r, stride, 1), Full(r, dilation, 1), Full(r, low, 0),
                           Full(r, high, 0), hlo::Reducer::kSum);
}

Value FlatPositions(Value x, int64_t n) {
  Value flat = hlo::Full(x.builder(), x.shape().with(DType::kS64), 0);
  int64_t factor = 1;
  for (int64_t d = x.rank() - 1; d >= x.rank() - n; --d) {
    flat = hlo::Add(flat, Times(IotaLike(x, d), static_cast<double>(factor)));
    factor *= x.dim(d);
  }
  return flat;
}

Value TakesMaximum(Value a, Value b) {
  Value larger = hlo::Gt(b, a);
  return IsFloat(b.dtype()) ? hlo::Or(larger, IsNan(b)) : larger;
}

std::vector<Value> PickMaximum(Builder& b, std::span<const Value> v) {
  Value x = v[0], i = v[1], y = v[2], j = v[3];
  Value later = hlo::Gt(j, i);
  Value take = hlo::Gt(y, x);
  Value equal = hlo::Eq(y, x);
  if (IsFloat(x.dtype())) {
    take = hlo::Or(take, hlo::And(IsNan(y), hlo::Or(hlo::Not(IsNan(x)), later)));
  }
  take = hlo::Or(take, hlo::And(equal, hlo::Not(later)));
  Value none = hlo::ScalarInt(b, i.dtype(), -1);
  take = hlo::And(hlo::Or(take, hlo::Eq(i, none)), hlo::Ne(j, none));
  return {hlo::Select(take, y, x), hlo::Select(take, j, i)};
}

Value ScatterPlanes(Value g, Value indices, const Shape& out, int64_t n, const hlo::Body& combine) {
  if (g.shape().numel() == 0) return hlo::Full(g.builder(), out.with(g.dtype()), 0);
  int64_t plane = 1, planes = 1;
  for (int64_t i = 0; i < out.rank(); ++i) {
    (i >= out.rank() - n ? plane : planes) *= out.dims[At(i)];
  }
  int64_t n_per_plane = g.shape().numel() / std::max<int64_t>(planes, 1);
  Value at = hlo::Reshape(indices, {planes, n_per_plane});
  // What is outside of its plane goes nowhere, and not into the next one.
  Value inside =
      hlo::And(hlo::Ge(at, FullLike(at, 0)), hlo::Lt(at, FullLike(at, static_cast<double>(plane))));
  at = hlo::Add(at, Times(IotaLike(at, 0), static_cast<double>(plane)));
  at = hlo::Select(inside, at, FullLike(at, static_cast<double>(planes * plane)));
  Value flat = hlo::Full(g.builder(), {g.dtype(), {planes * plane}}, 0);
  const Dims all = {g.shape().numel()};
  Value sum = ScatterDim(flat, 0, hlo::Reshape(at, all), hlo::Reshape(g, all), combine);
  return hlo::Reshape(sum, out.dims);
}

namespace {

// Windows of at most so many elements are unrolled; larger ones are reduced.
constexpr int64_t kUnrolled = 32;

// Calls visit(offset of the first window's element) for all elements of a window, in row-major
// order.
template <typename Visit>
void ForEachOffset(const PoolWindow& w, const Visit& visit) {
  Dims at(At(w.n), 0);
  for (int64_t i = Product(w.kernel); i > 0; --i) {
    Dims offset;
    for (size_t d = 0; d < At(w.n); ++d) offset.push_back(at[d] * w.dilation[d] - w.padding[d]);
    visit(offset);
    for (size_t d = At(w.n); d-- > 0;) {
      if (++at[d] < w.kernel[d]) break;
      at[d] = 0;
    }
  }
}

// The position of each window's maximum, one element of the windows after the other.
Value UnrolledIndices(const PoolWindow& w, Value x) {
  Builder& b = x.builder();
  int64_t r = x.rank();
  Dims high = w.Highs();
  for (int64_t& h : high) h = std::max<int64_t>(h, 0);
  Value padded = hlo::Pad(x, hlo::LowestValue(b, x.dtype()), w.Full(r, w.padding, 0),
                          w.Full(r, high, 0), Dims(At(r), 0));
  Shape out{DType::kS32, w.ResultDims(x.dims())};
  Value best, best_at = hlo::FullInt(b, out, -1);
  ForEachOffset(w, [&](const Dims& offset) {
    Dims start(At(r), 0), limit = x.dims(), strides = w.Full(r, w.stride, 1);
    Value at = hlo::FullInt(b, out, 0), inside = hlo::FullInt(b, out.with(DType::kBool), 1);
    for (size_t d = 0; d < At(w.n); ++d) {
      int64_t dim = r - w.n + static_cast<int64_t>(d);
      start[At(dim)] = offset[d] + w.padding[d];
      limit[At(dim)] = start[At(dim)] + (w.out[d] - 1) * w.stride[d] + 1;
      Value i = hlo::Iota(b, out, dim);
      i = Plus(Times(i, static_cast<double>(w.stride[d])), static_cast<double>(offset[d]));
      if (offset[d] < 0) inside = hlo::And(inside, hlo::Ge(i, FullLike(i, 0)));
      if (offset[d] + (w.out[d] - 1) * w.stride[d] >= w.in[d]) {
        inside = hlo::And(inside, hlo::Lt(i, FullLike(i, static_cast<double>(w.in[d]))));
      }
      at = hlo::Add(Times(at, static_cast<double>(w.in[d])), i);
    }
    Value v = hlo::Slice(padded, start, limit, strides);
    Value take = LtZero(best_at);
    if (best.valid()) take = hlo::Or(take, TakesMaximum(best, v));
    take = hlo::And(take, inside);
    best = best.valid() ? hlo::Select(take, v, best) : v;
    best_at = hlo::Select(take, at, best_at);
  });
  return best_at;
}

Value ReducedIndices(const PoolWindow& w, Value x) {
  const Value xs[] = {x, FlatPositions(x, w.n)};
  const Value inits[] = {hlo::LowestValue(x.builder(), x.dtype()),
                         hlo::ScalarInt(x.builder(), DType::kS64, -1)};
  return w.Reduce(xs, inits, PickMaximum)[1];
}

// Values by a plain window reduction; the indices fall away when nobody asks for them.
template <int64_t kN>
struct MaxPool {
  static PoolWindow Window(const Dims& x, Span kernel, Span stride, Span padding, Span dilation,
                           bool ceil_mode) {
    return {
        kN == 2 ? "max_pool2d" : "max_pool3d", kN, x, kernel, stride, padding, dilation, ceil_mode};
  }
  static std::array<Shape, 2> Infer(const Arg& x, Span kernel, Span stride, Span padding,
                                    Span dilation, bool ceil_mode) {
    Dims out = Window(x.dims(), kernel, stride, padding, dilation, ceil_mode).ResultDims(x.dims());
    return {x.shape().with(out), Shape{DType::kS64, out}};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value x, Span kernel,
                                    Span stride, Span padding, Span dilation, bool ceil_mode) {
    PoolWindow w = Window(x.dims(), kernel, stride, padding, dilation, ceil_mode);
    Value lowest = hlo::LowestValue(x.builder(), x.dtype());
    Value at = IsUnrolled(w) ? UnrolledIndices(w, x) : ReducedIndices(w, x);
    return {w.Reduce(x, lowest, hlo::Reducer::kMax), hlo::ConvertTo(at, out[1].dtype)};
  }
  static bool IsUnrolled(const PoolWindow& w) {
    return Product(w.kernel) <= kUnrolled && Product(w.in) < std::numeric_limits<int32_t>::max();
  }
};

// A scatter to the indices. Not select_and_scatter, which takes any of equal maxima and is several
// times slower on CPUs; nor a comparison for each element of a window, which fuses with the forward
// computation and repeats all of that.
template <int64_t kN>
struct MaxPoolBackward {
  static Shape Infer(const Arg& g, const Arg& x, Span kernel, Span stride, Span padding,
                     Span dilation, bool ceil_mode, const Arg& indices) {
    auto w = MaxPool<kN>::Window(x.dims(), kernel, stride, padding, dilation, ceil_mode);
    XLA_CHECK(g.dims() == w.ResultDims(x.dims()) && indices.dims() == g.dims(), kInvalidArgument,
              "expected grad_output and indices of shape ", ToString(w.ResultDims(x.dims())),
              ", got ", ToString(g.dims()));
    return x.shape();
  }
  static Value Lower(const Shape& out, Value g, Value, Span, Span, Span, Span, bool,
                     Value indices) {
    return hlo::ConvertTo(ScatterPlanes(Widen(g), indices, out, kN), out.dtype);
  }
};

// The number that each window's sum is divided by.
Value Divisors(const PoolWindow& w, bool count_include_pad, std::optional<int64_t> override_,
               Value sums) {
  if (override_) return FullLike(sums, static_cast<double>(*override_));
  Value all = FullLike(sums, 1);
  for (size_t i = 0; i < At(w.n); ++i) {
    std::vector<double> sizes;
    for (int64_t o = 0; o < w.out[i]; ++o) {
      int64_t start = o * w.stride[i] - w.padding[i];
      int64_t end = std::min(start + w.kernel[i], w.in[i] + w.padding[i]);
      if (!count_include_pad) {
        start = std::max<int64_t>(start, 0);
        end = std::min(end, w.in[i]);
      }
      sizes.push_back(static_cast<double>(end - start));
    }
    Value v = Floats(sums.builder(), sums.dtype(), sizes);
    int64_t dim = sums.rank() - w.n + static_cast<int64_t>(i);
    all = hlo::Mul(all, AlongDim(v, sums.dims(), dim));
  }
  return all;
}

template <int64_t kN>
struct AvgPool {
  static PoolWindow Window(const Dims& x, Span kernel, Span stride, Span padding, bool ceil_mode) {
    return {kN == 2 ? "avg_pool2d" : "avg_pool3d", kN, x, kernel, stride, padding, {}, ceil_mode};
  }
  static void CheckDivisor(std::optional<int64_t> divisor) {
    TORCH_CHECK(!divisor || *divisor != 0, "divisor must be not zero");
  }
  static Shape Infer(const Arg& x, Span kernel, Span stride, Span padding, bool ceil_mode, bool,
                     std::optional<int64_t> divisor) {
    CheckDivisor(divisor);
    return x.shape().with(
        Window(x.dims(), kernel, stride, padding, ceil_mode).ResultDims(x.dims()));
  }
  static Value Lower(const Shape& out, Value x, Span kernel, Span stride, Span padding,
                     bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
    PoolWindow w = Window(x.dims(), kernel, stride, padding, ceil_mode);
    x = Widen(x);
    Value sums = w.Reduce(x, ScalarOf(x, 0), hlo::Reducer::kSum);
    return hlo::ConvertTo(hlo::Div(sums, Divisors(w, count_include_pad, divisor, sums)), out.dtype);
  }
};

template <int64_t kN>
struct AvgPoolBackward {
  static Shape Infer(const Arg& g, const Arg& x, Span kernel, Span stride, Span padding,
                     bool ceil_mode, bool, std::optional<int64_t> divisor) {
    AvgPool<kN>::CheckDivisor(divisor);
    PoolWindow w = AvgPool<kN>::Window(x.dims(), kernel, stride, padding, ceil_mode);
    XLA_CHECK(g.dims() == w.ResultDims(x.dims()), kInvalidArgument,
              "expected grad_output of shape ", ToString(w.ResultDims(x.dims())), ", got ",
              ToString(g.dims()));
    return x.shape();
  }
  static Value Lower(const Shape& out, Value g, Value x, Span kernel, Span stride, Span padding,
                     bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
    PoolWindow w = AvgPool<kN>::Window(x.dims(), kernel, stride, padding, ceil_mode);
    g = Widen(g);
    Value each = hlo::Div(g, Divisors(w, count_include_pad, divisor, g));
    return hlo::ConvertTo(w.SumBack(each), out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::max_pool2d_with_indices, MaxPool<2>>(m);
  Register<at::_ops::max_pool2d_with_indices_backward, MaxPoolBackward<2>>(m);
  Register<at::_ops::max_pool3d_with_indices, MaxPool<3>>(m);
  Register<at::_ops::max_pool3d_with_indices_backward, MaxPoolBackward<3>>(m);
  Register<at::_ops::avg_pool2d, AvgPool<2>>(m);
  Register<at::_ops::avg_pool2d_backward, AvgPoolBackward<2>>(m);
  Register<at::_ops::avg_pool3d, AvgPool<3>>(m);
  Register<at::_ops::avg_pool3d_backward, AvgPoolBackward<3>>(m);
}

}  // namespace torch_xla::ops
