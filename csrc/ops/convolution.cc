// Convolutions and their gradients. Everything is one of three: y = conv(x, w), the gradient of x
// given y's (also the transposed convolution) and the gradient of w.
#include <ATen/ops/convolution_backward_overrideable_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>

#include "aten/host_call.h"
#include "hlo/dot.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

struct Geometry {
  Dims stride, padding, dilation;
  int64_t groups;

  Geometry(Span s, Span p, Span d, int64_t g, int64_t n)
      : stride(Fill(s, n)), padding(Fill(p, n)), dilation(Fill(d, n)), groups(g) {}
  // One number stands for all dimensions.
  static Dims Fill(Span v, int64_t n) { return v.size() == 1 ? Dims(At(n), v[0]) : Dims(v); }
};

Dims Spatial(const Dims& dims) { return Dims(Span(dims).subspan(2)); }
int64_t Dilated(int64_t n, int64_t by) { return n == 0 ? 0 : (n - 1) * by + 1; }

// Sums of half types are kept in float32 until the bias is added, as on the CPU.

// y[n, o, ...] from x[n, i, ...] and w[o, i / groups, ...].
Value Convolve(Value x, Value w, const Geometry& g, const Dims& out) {
  size_t n = out.size();
  Dims high(n, 0);
  for (size_t i = 0; i < n; ++i) {
    high[i] = (out[i] - 1) * g.stride[i] + Dilated(w.dims()[i + 2], g.dilation[i]) -
              x.dims()[i + 2] - g.padding[i];
  }
  return hlo::Convolution(x, w, hlo::ConvDims::Default(static_cast<int64_t>(n)), g.stride,
                          g.padding, high, Dims(n, 1), g.dilation, g.groups,
                          /*batch_group_count=*/1, {}, x.builder().precision(), Wide(x.dtype()));
}

// x's gradient from y's and w[o, i / groups, ...]: the strides become dilations of y and w is
// turned around, its inputs and outputs exchanged within each group.
Value ConvolveBack(Value y, Value w, const Geometry& g, const Dims& in) {
  size_t n = in.size();
  int64_t o = w.dim(0), i = w.dim(1);
  Dims k = Spatial(w.dims());
  auto join = [&](std::initializer_list<int64_t> head) {
    Dims d(head);
    for (int64_t v : k) d.push_back(v);
    return d;
  };
  if (g.groups != 1) {
    Dims perm = Range(static_cast<int64_t>(n) + 3);
    std::swap(perm[0], perm[1]);
    w = hlo::Transpose(hlo::Reshape(w, join({g.groups, o / g.groups, i})), perm);
    w = hlo::Reshape(w, join({o / g.groups, g.groups * i}));
  }
  Dims low(n, 0), high(n, 0);
  for (size_t d = 0; d < n; ++d) {
    int64_t window = Dilated(k[d], g.dilation[d]);
    low[d] = window - 1 - g.padding[d];
    high[d] = in[d] + window - 1 - low[d] - Dilated(y.dims()[d + 2], g.stride[d]);
  }
  hlo::ConvDims dims = hlo::ConvDims::Default(static_cast<int64_t>(n));
  dims.kernel_in = 0;
  dims.kernel_out = 1;
  return hlo::Convolution(y, hlo::Reverse(w, Range(static_cast<int64_t>(n), 2)), dims, Dims(n, 1),
                          low, high, g.stride, g.dilation, g.groups, /*batch_group_count=*/1, {},
                          y.builder().precision(), Wide(y.dtype()));
}

// w's gradient: x and y convolved over the batch.
Value WeightGradient(Value x, Value y, const Geometry& g, const Dims& k) {
  size_t n = k.size();
  Dims high(n, 0);
  for (size_t d = 0; d < n; ++d) {
    high[d] = (k[d] - 1) * g.dilation[d] + Dilated(y.dims()[d + 2], g.stride[d]) - x.dims()[d + 2] -
              g.padding[d];
  }
  hlo::ConvDims dims = hlo::ConvDims::Default(static_cast<int64_t>(n));
  dims.input_batch = 1;
  dims.input_feature = 0;
  dims.kernel_in = 0;
  dims.kernel_out = 1;
  dims.out_batch = 1;
  dims.out_feature = 0;
  return hlo::Convolution(x, y, dims, g.dilation, g.padding, high, Dims(n, 1), g.stride,
                          /*feature_group_count=*/1, /*batch_group_count=*/g.groups, {},
                          x.builder().precision(), Wide(x.dtype()));
}

// On the host PyTorch's kernels are faster than the CPU plugins' own code, several times so for 1x1
// windows and for groups of a channel (benchmarks/convolution.py). For other types they have not
// all kernels, and a precision that is lowered is the compiler's business.
bool OnHost(const hlo::Builder& b, const Shape& y) {
  const DType t = y.dtype;
  return (t == DType::kF32 || t == DType::kF64 || t == DType::kBF16) && y.numel() != 0 &&
         b.precision() == hlo::Precision::kHighest && HostCallsAvailable();
}

// The arguments from `stride` to `groups`, which both operators have.
void AppendGeometry(HostCallArguments& a, const Geometry& g, bool transposed,
                    const Dims& output_padding) {
  a.Ints(g.stride)
      .Ints(g.padding)
      .Ints(g.dilation)
      .Bool(transposed)
      .Ints(output_padding)
      .Int(g.groups);
}

struct Convolution {
  static Shape Infer(const Arg& x, const Arg& w, const Arg* bias, Span stride, Span padding,
                     Span dilation, bool transposed, Span output_padding, int64_t groups) {
    int64_t n = x.rank() - 2;
    Geometry g(stride, padding, dilation, groups, n);
    Dims extra = Geometry::Fill(output_padding, n);
    XLA_CHECK(x.dtype() == w.dtype() && (bias == nullptr || bias->dtype() == x.dtype()),
              kInvalidArgument, "Input type (", TorchName(x.dtype()), ") and weight type (",
              TorchName(w.dtype()), ") or bias type should be the same");
    for (size_t i = 0; i < At(n); ++i) {
      XLA_CHECK(g.stride[i] > 0 && g.dilation[i] > 0 && g.padding[i] >= 0 && w.dims()[i + 2] > 0,
                kInvalidArgument,
                "kernel, stride and dilation should be greater than zero, and "
                "padding not negative");
      XLA_CHECK(!transposed || (extra[i] >= 0 && extra[i] < std::max(g.stride[i], g.dilation[i])),
                kInvalidArgument, "output padding must be smaller than either stride or dilation");
    }
    Shape out{x.dtype(), {x.dim(0), transposed ? w.dim(1) * groups : w.dim(0)}};
    for (size_t i = 0; i < At(n); ++i) {
      int64_t window = Dilated(w.dims()[i + 2], g.dilation[i]);
      int64_t in = x.dims()[i + 2];
      out.dims.push_back(transposed ? (in - 1) * g.stride[i] - 2 * g.padding[i] + window + extra[i]
                                    : (in + 2 * g.padding[i] - window) / g.stride[i] + 1);
      XLA_CHECK(out.dims.back() > 0, kInvalidArgument,
                "Given input size per channel: ", ToString(Spatial(x.dims())),
                ". Calculated output size per channel: ", ToString(Spatial(out.dims)),
                ". Output size is too small");
    }
    return out;
  }
  static Value Lower(const Shape& out, Value x, Value w, std::optional<Value> bias, Span stride,
                     Span padding, Span dilation, bool transposed, Span output_padding,
                     int64_t groups) {
    Geometry g(stride, padding, dilation, groups, out.rank() - 2);
    if (OnHost(x.builder(), out)) {
      HostCallArguments a;
      a.Tensor().Tensor().Tensor(bias.has_value());
      AppendGeometry(a, g, transposed, Geometry::Fill(output_padding, out.rank() - 2));
      std::vector<Value> operands{x, w};
      if (bias) operands.push_back(*bias);
      return CallHost(x.builder(), "convolution", a, operands, std::span(&out, 1))[0];
    }
    Value y = transposed ? ConvolveBack(x, w, g, Spatial(out.dims))
                         : Convolve(x, w, g, Spatial(out.dims));
    if (bias) y = hlo::Add(y, AlongDim(hlo::ConvertTo(*bias, y.dtype()), out.dims, 1));
    return hlo::ConvertTo(y, out.dtype);
  }
};

struct ConvolutionBackward {
  static std::vector<Shape> Infer(const Arg& y, const Arg& x, const Arg& w, Span, Span, Span, bool,
                                  Span, int64_t, const std::array<bool, 3>& mask) {
    std::vector<Shape> shapes;
    if (mask[0]) shapes.push_back(x.shape());
    if (mask[1]) shapes.push_back(w.shape());
    if (mask[2]) shapes.push_back({y.dtype(), {y.dim(1)}});
    return shapes;
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value y, Value x, Value w,
                                  Span stride, Span padding, Span dilation, bool transposed,
                                  Span output_padding, int64_t groups, std::array<bool, 3> mask) {
    int64_t n = x.rank() - 2;
    Geometry g(stride, padding, dilation, groups, n);
    const size_t products = size_t{mask[0]} + size_t{mask[1]};
    std::vector<Value> grads;
    if (products > 0 && OnHost(x.builder(), y.shape())) {
      HostCallArguments a;
      a.Tensor().Tensor().Tensor().Tensor(/*defined=*/false);  // no sizes of the bias
      AppendGeometry(a, g, transposed, Geometry::Fill(output_padding, n));
      const bool wanted[] = {mask[0], mask[1], false};
      a.Bools(wanted);
      const Value operands[] = {y, x, w};
      grads = CallHost(x.builder(), "convolution_backward", a, operands,
                       std::span(out).first(products));
    } else {
      if (mask[0]) {
        grads.push_back(transposed ? Convolve(y, w, g, Spatial(x.dims()))
                                   : ConvolveBack(y, w, g, Spatial(x.dims())));
      }
      if (mask[1]) {
        grads.push_back(transposed ? WeightGradient(y, x, g, Spatial(w.dims()))
                                   : WeightGradient(x, y, g, Spatial(w.dims())));
      }
    }
    if (mask[2]) grads.push_back(Sum(Widen(y), AllBut(y.rank(), 1)));
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = hlo::ConvertTo(grads[i], out[i].dtype);
    return grads;
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::convolution_overrideable, Convolution>(m);
  Register<at::_ops::convolution_backward_overrideable, ConvolutionBackward>(m);
}

}  // namespace torch_xla::ops
