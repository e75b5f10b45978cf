// Layer and group normalisation. Statistics are kept in float32 for half types. Batch norm: see
// batch_norm.cc.
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

#include "ops/lowering.h"
#include "ops/norm_types.h"

namespace torch_xla::ops {
namespace {

struct Moments {
  Value mean, rstd;  // with size 1 in the reduced dimensions
};

Value MeanKeep(Value x, const Dims& dims) {
  Dims kept = x.dims();
  double n = 1;
  for (int64_t d : dims) {
    n *= static_cast<double>(kept[At(d)]);
    kept[At(d)] = 1;
  }
  return hlo::Reshape(Times(Sum(x, dims), 1 / n), kept);
}

Moments MomentsOf(Value x, const Dims& dims, double eps) {
  Value mean = MeanKeep(x, dims);
  Value centred = hlo::Sub(x, FitTo(mean, x));
  Value var = MeanKeep(Square(centred), dims);
  return {mean, hlo::Rsqrt(Plus(var, eps))};
}

// The gradient of x in y = (x - mean) * rstd, all of them statistics over `dims`, g being y's.
Value NormGradient(Value g, Value xhat, Value rstd, const Dims& dims) {
  Value a = FitTo(MeanKeep(g, dims), g);
  Value b = FitTo(MeanKeep(hlo::Mul(g, xhat), dims), g);
  return hlo::Mul(FitTo(rstd, g), hlo::Sub(hlo::Sub(g, a), hlo::Mul(xhat, b)));
}

struct LayerNorm {
  static std::array<Shape, 3> Infer(const Arg& x, Span normalized, const Arg* weight,
                                    const Arg* bias, double) {
    auto n = static_cast<int64_t>(normalized.size());
    TORCH_CHECK(n >= 1,
                "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
                "one element, but got normalized_shape = ",
                ToString(normalized));
    CheckParameter(weight, "weight", normalized);
    CheckParameter(bias, "bias", normalized);
    CheckNormTypes(x, {weight, bias});
    bool fits =
        x.rank() >= n && std::equal(normalized.begin(), normalized.end(), x.dims().end() - n);
    if (!fits) {
      std::string expected = "*";
      for (int64_t d : normalized) expected += StrCat(", ", d);
      TORCH_CHECK(false, "Given normalized_shape=", ToString(normalized),
                  ", expected input with shape [", expected, "], but got input of size",
                  ToString(x.dims()));
    }
    Dims stats = x.dims();
    std::fill(stats.end() - n, stats.end(), 1);
    return {x.shape(), Shape{Wide(x.dtype()), stats}, Shape{Wide(x.dtype()), stats}};
  }
  static std::array<Value, 3> Lower(const std::vector<Shape>& out, Value x, Span normalized,
                                    std::optional<Value> weight, std::optional<Value> bias,
                                    double eps) {
    auto n = static_cast<int64_t>(normalized.size());
    x = Widen(x);
    Moments m = MomentsOf(x, Range(n, x.rank() - n), eps);
    Value y = hlo::Mul(hlo::Sub(x, FitTo(m.mean, x)), FitTo(m.rstd, x));
    if (weight) y = hlo::Mul(y, FitTo(*weight, x));
    if (bias) y = hlo::Add(y, FitTo(*bias, x));
    return {hlo::ConvertTo(y, out[0].dtype), m.mean, m.rstd};
  }

 private:
  static void CheckParameter(const Arg* p, const char* name, Span normalized) {
    TORCH_CHECK(p == nullptr || p->dims() == Dims(normalized), "Expected ", name,
                " to be of same shape as normalized_shape, but got ", name, " of shape ",
                ToString(p->dims()), " and normalized_shape = ", ToString(normalized));
  }
};

struct LayerNormBackward {
  static std::vector<Shape> Infer(const Arg&, const Arg& x, Span normalized, const Arg&, const Arg&,
                                  const Arg* weight, const Arg* bias, std::array<bool, 3> mask) {
    std::vector<Shape> shapes;
    if (mask[0]) shapes.push_back(x.shape());
    if (mask[1]) shapes.push_back({weight ? weight->dtype() : x.dtype(), normalized});
    if (mask[2]) shapes.push_back({bias ? bias->dtype() : x.dtype(), normalized});
    return shapes;
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value g, Value x, Span normalized,
                                  Value mean, Value rstd, std::optional<Value> weight,
                                  std::optional<Value>, std::array<bool, 3> mask) {
    auto n = static_cast<int64_t>(normalized.size());
    int64_t outer = x.rank() - n;
    x = Widen(x);
    g = FitTo(g, x);
    Value xhat = hlo::Mul(hlo::Sub(x, FitTo(mean, x)), FitTo(rstd, x));
    std::vector<Value> grads;
    if (mask[0]) {
      Value gw = weight ? hlo::Mul(g, FitTo(*weight, x)) : g;
      grads.push_back(NormGradient(gw, xhat, rstd, Range(n, outer)));
    }
    if (mask[1]) grads.push_back(Sum(hlo::Mul(g, xhat), Range(outer)));
    if (mask[2]) grads.push_back(Sum(g, Range(outer)));
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = hlo::ConvertTo(grads[i], out[i].dtype);
    return grads;
  }
};

// x as [N, groups, C / groups, HxW], a vector of channels broadcast to it, and back.
struct Grouped {
  Dims dims;
  Grouped(int64_t n, int64_t c, int64_t hxw, int64_t group) : dims{n, group, c / group, hxw} {}
  Value Of(Value x) const { return hlo::Reshape(Widen(x), dims); }
  Value Channels(Value w, DType t) const {
    Value v = hlo::Reshape(hlo::ConvertTo(w, t), {dims[1], dims[2]});
    return hlo::BroadcastInDim(v, dims, {1, 2});
  }
  Value Stats(Value s, DType t) const {
    return hlo::BroadcastInDim(hlo::ConvertTo(s, t), dims, {0, 1});
  }
};

struct GroupNorm {
  static std::array<Shape, 3> Infer(const Arg& x, const Arg* weight, const Arg* bias, int64_t n,
                                    int64_t c, int64_t hxw, int64_t group, double) {
    XLA_CHECK(group > 0 && c % group == 0, kInvalidArgument,
              "Expected number of channels in input to be divisible by num_groups, but got input "
              "of shape ",
              ToString(x.dims()), " and num_groups=", group);
    XLA_CHECK(x.numel() == n * c * hxw, kInvalidArgument, "N * C * HxW must be input.numel()");
    for (const Arg* p : {weight, bias}) {
      XLA_CHECK(p == nullptr || (p->rank() == 1 && p->dim(0) == c), kInvalidArgument,
                "Expected weight and bias to be vectors of size ", c);
    }
    CheckNormTypes(x, {weight, bias});
    Shape stats{x.dtype(), {n, group}};
    return {x.shape(), stats, stats};
  }
  static std::array<Value, 3> Lower(const std::vector<Shape>& out, Value x,
                                    std::optional<Value> weight, std::optional<Value> bias,
                                    int64_t n, int64_t c, int64_t hxw, int64_t group, double eps) {
    Grouped grouped(n, c, hxw, group);
    Value v = grouped.Of(x);
    Moments m = MomentsOf(v, {2, 3}, eps);
    Value y = hlo::Mul(hlo::Sub(v, FitTo(m.mean, v)), FitTo(m.rstd, v));
    if (weight) y = hlo::Mul(y, grouped.Channels(*weight, v.dtype()));
    if (bias) y = hlo::Add(y, grouped.Channels(*bias, v.dtype()));
    auto stats = [&](Value s) {
      return hlo::Reshape(hlo::ConvertTo(s, out[1].dtype), out[1].dims);
    };
    return {hlo::Reshape(hlo::ConvertTo(y, out[0].dtype), out[0].dims), stats(m.mean),
            stats(m.rstd)};
  }
};

struct GroupNormBackward {
  static std::vector<Shape> Infer(const Arg&, const Arg& x, const Arg&, const Arg&,
                                  const Arg* weight, int64_t, int64_t c, int64_t, int64_t,
                                  std::array<bool, 3> mask) {
    Shape parameter{weight ? weight->dtype() : x.dtype(), {c}};
    std::vector<Shape> shapes;
    if (mask[0]) shapes.push_back(x.shape());
    if (mask[1]) shapes.push_back(parameter);
    if (mask[2]) shapes.push_back(parameter);
    return shapes;
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value g, Value x, Value mean,
                                  Value rstd, std::optional<Value> weight, int64_t n, int64_t c,
                                  int64_t hxw, int64_t group, std::array<bool, 3> mask) {
    Grouped grouped(n, c, hxw, group);
    Value v = grouped.Of(x);
    Value gv = grouped.Of(g);
    Value r = grouped.Stats(rstd, v.dtype());
    Value xhat = hlo::Mul(hlo::Sub(v, grouped.Stats(mean, v.dtype())), r);
    std::vector<Value> grads;
    if (mask[0]) {
      Value gw = weight ? hlo::Mul(gv, grouped.Channels(*weight, v.dtype())) : gv;
      grads.push_back(NormGradient(gw, xhat, r, {2, 3}));
    }
    if (mask[1]) grads.push_back(Sum(hlo::Mul(gv, xhat), {0, 3}));
    if (mask[2]) grads.push_back(Sum(gv, {0, 3}));
    for (size_t i = 0; i < grads.size(); ++i) {
      grads[i] = hlo::Reshape(hlo::ConvertTo(grads[i], out[i].dtype), out[i].dims);
    }
    return grads;
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::native_layer_norm, LayerNorm>(m);
  Register<at::_ops::native_layer_norm_backward, LayerNormBackward>(m);
  Register<at::_ops::native_group_norm, GroupNorm>(m);
  Register<at::_ops::native_group_norm_backward, GroupNormBackward>(m);
}

}  // namespace torch_xla::ops
