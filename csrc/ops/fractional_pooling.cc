// Max pooling over windows that start at random positions, which torch draws and hands over.
#include <ATen/ops/fractional_max_pool2d_backward_ops.h>
#include <ATen/ops/fractional_max_pool2d_ops.h>
#include <ATen/ops/fractional_max_pool3d_backward_ops.h>
#include <ATen/ops/fractional_max_pool3d_ops.h>

#include "ops/pooling.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

// Where the windows of a dimension start: [planes, out].
Value Starts(Value sample, int64_t in, int64_t out, int64_t kernel) {
  const Dims dims{sample.dim(0), out};
  Value u = hlo::BroadcastInDim(sample, dims, {0});
  Value i = IotaLike(u, 1, u.dtype());
  Value last = FullLike(u, static_cast<double>(in - kernel));
  if (out == 1) return hlo::ConvertTo(last, DType::kS64);
  // Divided in the type of the samples, as on the CPU; here, for a compiler would multiply by the
  // reciprocal, and windows would start elsewhere.
  auto quotient = [&]<typename T>(T) {
    return static_cast<double>(static_cast<T>(in - kernel) / static_cast<T>(out - 1));
  };
  Value alpha = FullLike(u, u.dtype() == DType::kF64 ? quotient(double{}) : quotient(float{}));
  // Conversion rounds towards zero, as the CPU kernel does: samples may be negative.
  auto whole = [](Value x) { return hlo::ConvertTo(x, DType::kS64); };
  Value start = hlo::Sub(whole(hlo::Mul(hlo::Add(i, u), alpha)), whole(hlo::Mul(u, alpha)));
  Value is_last = hlo::Eq(i, FullLike(i, static_cast<double>(out - 1)));
  return hlo::Select(is_last, whole(last), start);
}

Dims PooledDims(const char* name, const Dims& in, Span kernel, Span out, int64_t n) {
  auto rank = static_cast<int64_t>(in.size());
  XLA_CHECK(kernel.size() == At(n) && out.size() == At(n) && (rank == n + 1 || rank == n + 2),
            kInvalidArgument, name, ": Expected ", n + 1, "D or ", n + 2, "D tensor, but got ",
            ToString(in));
  Dims dims = in;
  for (int64_t i = 0; i < n; ++i) {
    int64_t& d = dims[At(rank - n + i)];
    XLA_CHECK(d > 0 && out[At(i)] > 0 && kernel[At(i)] > 0 && out[At(i)] + kernel[At(i)] - 1 <= d,
              kInvalidArgument, name, ": pool size ", ToString(kernel),
              " too large relative to the input ", ToString(in));
    d = out[At(i)];
  }
  return dims;
}

template <int64_t kN>
struct FractionalMaxPool {
  static constexpr const char* kName = kN == 2 ? "fractional_max_pool2d" : "fractional_max_pool3d";

  static std::array<Shape, 2> Infer(const Arg& x, Span kernel, Span out, const Arg& samples) {
    Dims dims = PooledDims(kName, x.dims(), kernel, out, kN);
    bool batch = x.rank() == kN + 2;
    XLA_CHECK(samples.rank() == 3 && samples.dim(2) == kN && x.dtype() == samples.dtype() &&
                  samples.dim(1) >= x.dim(-kN - 1) && samples.dim(0) >= (batch ? x.dim(0) : 1),
              kInvalidArgument, kName, ": unexpected samples ", ToString(samples.dims()));
    return {x.shape().with(dims), Shape{DType::kS64, dims}};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value x, Span kernel, Span size,
                                    Value samples) {
    Builder& b = x.builder();
    if (out[0].numel() == 0) return {hlo::Full(b, out[0], 0), hlo::Full(b, out[1], 0)};
    int64_t channels = x.dim(-kN - 1), rows = x.rank() == kN + 2 ? x.dim(0) : 1;
    int64_t planes = rows * channels, plane = 1;
    samples = hlo::Slice(samples, {0, 0, 0}, {rows, channels, kN}, {1, 1, 1});
    samples = hlo::Reshape(samples, {planes, kN});
    // position[plane, out..., kernel...] of each element of each window
    Dims dims{planes};
    for (Span more : {size, kernel}) {
      for (int64_t d : more) dims.push_back(d);
    }
    Value position = hlo::Full(b, {DType::kS64, dims}, 0);
    for (int64_t d = 0; d < kN; ++d) {
      int64_t in = x.dim(d - kN);
      plane *= in;
      // The samples of 2 dimensions name the last one first.
      int64_t which = kN == 2 ? kN - 1 - d : d;
      Value sample = hlo::Reshape(hlo::SliceDim(samples, 1, which, which + 1), {planes});
      Value start = Starts(sample, in, size[At(d)], kernel[At(d)]);
      Value at =
          hlo::Add(hlo::BroadcastInDim(start, dims, {0, d + 1}), IotaLike(position, d + 1 + kN));
      position = hlo::Add(Times(position, static_cast<double>(in)), at);
    }
    int64_t windows = Product(size), elements = Product(kernel);
    Value flat = hlo::Reshape(position, {planes, windows * elements});
    Value v = GatherAlong(hlo::Reshape(x, {planes, plane}), 1, flat);
    const Value inputs[] = {hlo::Reshape(v, {planes, windows, elements}),
                            hlo::Reshape(position, {planes, windows, elements})};
    const Value inits[] = {hlo::LowestValue(b, x.dtype()), hlo::ScalarInt(b, DType::kS64, -1)};
    std::vector<Value> best = hlo::Reduce(inputs, inits, {2}, PickMaximum);
    return {hlo::Reshape(best[0], out[0].dims), hlo::Reshape(best[1], out[1].dims)};
  }
};

template <int64_t kN>
struct FractionalMaxPoolBackward {
  static Shape Infer(const Arg& g, const Arg& x, Span kernel, Span out, const Arg& indices) {
    Dims dims = PooledDims(FractionalMaxPool<kN>::kName, x.dims(), kernel, out, kN);
    XLA_CHECK(g.dims() == dims && indices.dims() == dims, kInvalidArgument,
              "expected grad_output and indices of shape ", ToString(dims), ", got ",
              ToString(g.dims()));
    return x.shape();
  }
  static Value Lower(const Shape& out, Value g, Value, Span, Span, Value indices) {
    return hlo::ConvertTo(ScatterPlanes(Widen(g), indices, out, kN), out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::fractional_max_pool2d, FractionalMaxPool<2>>(m);
  Register<at::_ops::fractional_max_pool2d_backward, FractionalMaxPoolBackward<2>>(m);
  Register<at::_ops::fractional_max_pool3d, FractionalMaxPool<3>>(m);
  Register<at::_ops::fractional_max_pool3d_backward, FractionalMaxPoolBackward<3>>(m);
}

}  // namespace torch_xla::ops
