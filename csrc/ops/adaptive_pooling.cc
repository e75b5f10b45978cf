// Pooling to a given output size: window i of `out` over `in` elements is [i * in / out, ceil((i +
// 1) * in / out)). Windows of neighbours may overlap.
#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_ops.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/adaptive_max_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool3d_ops.h>

#include "ops/pooling.h"

namespace torch_xla::ops {
namespace {

int64_t Start(int64_t i, int64_t in, int64_t out) { return i * in / out; }
int64_t End(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

std::vector<double> Sizes(int64_t in, int64_t out) {
  std::vector<double> sizes;
  for (int64_t i = 0; i < out; ++i) {
    sizes.push_back(static_cast<double>(End(i, in, out) - Start(i, in, out)));
  }
  return sizes;
}

// x[..., in, ...] -> [..., out, longest, ...]: each window, its last element repeated where it is
// shorter than the longest; and how much of each counts.
struct Windows {
  Value elements, counts;  // counts: bool [out, longest], invalid when all do
};
Windows Unfold(Value x, int64_t dim, int64_t out) {
  int64_t in = x.dim(dim);
  Builder& b = x.builder();
  Dims split = x.dims();
  if (in % out == 0) {
    split[At(dim)] = out;
    split.insert(At(dim) + 1, in / out);
    return {hlo::Reshape(x, split), {}};
  }
  std::vector<double> sizes = Sizes(in, out);
  auto longest = static_cast<int64_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<int64_t> at;
  std::unique_ptr<bool[]> counts(new bool[At(out * longest)]);
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t j = 0; j < longest; ++j) {
      counts[at.size()] = Start(i, in, out) + j < End(i, in, out);
      at.push_back(std::min(Start(i, in, out) + j, End(i, in, out) - 1));
    }
  }
  Value indices = hlo::Constant(b, {DType::kS64, {out, longest}}, at.data());
  return {Take(x, dim, indices), hlo::Constant(b, {DType::kBool, {out, longest}}, counts.get())};
}

// The sums over the windows of the last dimensions.
Value AdaptiveSum(Value x, Span out) {
  auto n = static_cast<int64_t>(out.size());
  Dims split, kept, summed;
  for (int64_t d = 0; d < x.rank(); ++d) {
    int64_t in = x.dim(d), to = d < x.rank() - n ? in : out[At(d - x.rank() + n)];
    kept.push_back(in % to == 0 ? to : in);
    split.push_back(kept.back());
    if (kept.back() == in) continue;
    summed.push_back(static_cast<int64_t>(split.size()));
    split.push_back(in / to);
  }
  // Windows that share nothing: all dimensions at once.
  if (!summed.empty()) x = hlo::Reshape(Sum(hlo::Reshape(x, split), summed), kept);
  for (int64_t i = 0; i < n; ++i) {
    int64_t dim = x.rank() - n + i, to = out[At(i)];
    if (to == x.dim(dim)) continue;
    if (to % x.dim(dim) == 0) {  // each element is a window several times
      x = RepeatEach(x, dim, to / x.dim(dim));
      continue;
    }
    Windows w = Unfold(x, dim, to);
    Value counts = hlo::BroadcastInDim(w.counts, w.elements.dims(), {dim, dim + 1});
    x = Sum(Where(counts, w.elements, 0), {dim + 1});
  }
  return x;
}

// x divided by the sizes of the windows from `in` to `out` in its last dimensions.
Value DivideBySizes(Value x, Span in, Span out) {
  auto n = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < n; ++i) {
    Value sizes = Floats(x.builder(), x.dtype(), Sizes(in[At(i)], out[At(i)]));
    x = hlo::Div(x, AlongDim(sizes, x.dims(), x.rank() - n + i));
  }
  return x;
}

Span Last(const Dims& dims, int64_t n) { return Span(dims).last(At(n)); }

Dims ResultDims(const char* name, const Dims& x, Span out, int64_t n) {
  auto rank = static_cast<int64_t>(x.size());
  XLA_CHECK(static_cast<int64_t>(out.size()) == n, kInvalidArgument, name, ": output_size must be ",
            n);
  XLA_CHECK(rank == n + 1 || rank == n + 2, kInvalidArgument, name, "(): Expected ", n + 1, "D or ",
            n + 2, "D tensor, but got ", ToString(x));
  for (int64_t d : Last(x, n)) {
    XLA_CHECK(d > 0, kInvalidArgument, name,
              "(): Expected input to have non-zero size for non-batch dimensions, but input has "
              "sizes ",
              ToString(x));
  }
  Dims dims = x;
  std::copy(out.begin(), out.end(), dims.end() - n);
  for (int64_t d : out) {
    TORCH_CHECK(d >= 0, "Trying to create tensor with negative dimension ", d, ": ",
                ToString(dims));
  }
  return dims;
}

template <int64_t kN>
struct AdaptiveAvgPool {
  static Shape Infer(const Arg& x, Span out) {
    for (int64_t d : out) {
      TORCH_CHECK(d >= 0, "adaptive_avg_pool", kN, "d: elements of output_size must be greater ",
                  "than or equal to 0 but received {", ToString(out), "}");
    }
    return x.shape().with(
        ResultDims(kN == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d", x.dims(), out, kN));
  }
  static Value Lower(const Shape& out, Value x, Span size) {
    if (out.numel() == 0) return hlo::Full(x.builder(), out, 0);
    Dims in = x.dims();
    x = AdaptiveSum(Widen(x), size);
    return hlo::ConvertTo(DivideBySizes(x, Last(in, kN), size), out.dtype);
  }
};

// The windows that element i is in are again such a range, of `out` seen from `in`.
template <int64_t kN>
struct AdaptiveAvgPoolBackward {
  static Shape Infer(const Arg& g, const Arg& x) {
    XLA_CHECK(g.rank() == x.rank() && x.rank() >= kN, kInvalidArgument,
              "expected grad_output of the rank of the input");
    return x.shape();
  }
  static Value Lower(const Shape& out, Value g, Value x) {
    if (g.shape().numel() == 0) return hlo::Full(x.builder(), out, 0);
    Span in = Last(x.dims(), kN);
    Value each = DivideBySizes(Widen(g), in, Last(g.dims(), kN));
    return hlo::ConvertTo(AdaptiveSum(each, in), out.dtype);
  }
};

template <int64_t kN>
struct AdaptiveMaxPool {
  static std::array<Shape, 2> Infer(const Arg& x, Span out) {
    Dims dims =
        ResultDims(kN == 2 ? "adaptive_max_pool2d" : "adaptive_max_pool3d", x.dims(), out, kN);
    return {x.shape().with(dims), Shape{DType::kS64, dims}};
  }
  // The last dimension first, so that the first of equal maxima in row-major order wins.
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value x, Span size) {
    Builder& b = x.builder();
    if (out[0].numel() == 0) return {hlo::Full(b, out[0], 0), hlo::Full(b, out[1], 0)};
    Value at = FlatPositions(x, kN);
    for (int64_t i = kN - 1; i >= 0; --i) {
      int64_t dim = x.rank() - kN + i;
      if (size[At(i)] == x.dim(dim)) continue;
      const Value elements[] = {Unfold(x, dim, size[At(i)]).elements,
                                Unfold(at, dim, size[At(i)]).elements};
      const Value inits[] = {hlo::LowestValue(b, x.dtype()), hlo::ScalarInt(b, DType::kS64, -1)};
      auto best = hlo::Reduce(elements, inits, {dim + 1}, PickMaximum);
      x = best[0];
      at = best[1];
    }
    return {x, at};
  }
};

template <int64_t kN>
struct AdaptiveMaxPoolBackward {
  static Shape Infer(const Arg& g, const Arg& x, const Arg& indices) {
    XLA_CHECK(g.rank() == x.rank() && g.dims() == indices.dims() && g.dtype() == x.dtype(),
              kInvalidArgument, "expected grad_output and indices of one shape");
    return x.shape();
  }
  static Value Lower(const Shape& out, Value g, Value, Value indices) {
    if (g.shape().numel() == 0) return hlo::Full(g.builder(), out, 0);
    return ScatterPlanes(g, indices, out, kN);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_adaptive_avg_pool2d, AdaptiveAvgPool<2>>(m);
  Register<at::_ops::_adaptive_avg_pool2d_backward, AdaptiveAvgPoolBackward<2>>(m);
  Register<at::_ops::_adaptive_avg_pool3d, AdaptiveAvgPool<3>>(m);
  Register<at::_ops::_adaptive_avg_pool3d_backward, AdaptiveAvgPoolBackward<3>>(m);
  Register<at::_ops::adaptive_max_pool2d, AdaptiveMaxPool<2>>(m);
  Register<at::_ops::adaptive_max_pool2d_backward, AdaptiveMaxPoolBackward<2>>(m);
  Register<at::_ops::adaptive_max_pool3d, AdaptiveMaxPool<3>>(m);
  Register<at::_ops::adaptive_max_pool3d_backward, AdaptiveMaxPoolBackward<3>>(m);
}

}  // namespace torch_xla::ops
