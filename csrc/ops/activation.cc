// Activation functions and their gradients.
#include <ATen/ops/_prelu_kernel_backward_ops.h>
#include <ATen/ops/_prelu_kernel_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/glu_backward_jvp_ops.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/glu_jvp_ops.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/hardshrink_backward_ops.h>
#include <ATen/ops/hardshrink_ops.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <ATen/ops/logit_backward_ops.h>
#include <ATen/ops/mish_backward_ops.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/softshrink_backward_ops.h>
#include <ATen/ops/softshrink_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/threshold_ops.h>

#include <numbers>

#include "ops/common.h"
#include "ops/lowering.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

Shape FloatOnly(const Arg& self, const char* kernel) {
  CheckImplemented(IsFloat(self.dtype()), kernel, self.dtype());
  return self.shape();
}

// Gradients: of the promoted type and broadcast shape of grad and what was saved.
Shape GradShape(const Arg& grad, const Arg& saved) {
  return {Promote({grad, saved}), Broadcast({grad, saved})};
}

struct Wideners {
  Shape wide;
  explicit Wideners(const Shape& out) : wide(out.with(Wide(out.dtype))) {}
  Value operator()(Value x) const { return Fit(x, wide); }
};

Value Relu(Value x) { return hlo::Max(x, FullLike(x, 0)); }

struct ReluOp : Unary<Relu> {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK(self.dtype() != DType::kBool, "Boolean inputs not supported for relu");
    TORCH_CHECK_NOT_IMPLEMENTED(!IsComplex(self.dtype()),
                                "clamp is not supported for complex types");
    return self.shape();
  }
};

// NaN passes.
struct Threshold {
  static Shape Infer(const Arg& self, const at::Scalar& threshold, const at::Scalar& value) {
    CheckImplemented(!IsComplex(self.dtype()) && self.dtype() != DType::kBool, "threshold_cpu",
                     self.dtype());
    CheckFits(threshold, self.dtype());
    CheckFits(value, self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape&, Value x, Value threshold, Value value) {
    return hlo::Select(hlo::Le(x, FitTo(threshold, x)), FitTo(value, x), x);
  }
};

struct ThresholdBackward {
  static Shape Infer(const Arg& grad, const Arg& self, const at::Scalar&) {
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value threshold) {
    Value x = Fit(self, out);
    return Where(hlo::Le(x, FitTo(threshold, x)), 0, Fit(grad, out));
  }
};

// ---- Of one tensor, f(x) and f'(x): gradients are grad * f'(x).

Value SigmoidGrad(Value y) { return hlo::Mul(RSub(1, y), y); }
Value TanhGrad(Value y) { return RSub(1, Square(y)); }

Value Silu(Value x) { return hlo::Mul(x, hlo::Logistic(x)); }
Value SiluGrad(Value x) {
  Value s = hlo::Logistic(x);
  return hlo::Mul(s, Plus(hlo::Mul(x, RSub(1, s)), 1));
}

Value Softplus(Value x) { return hlo::Log1p(hlo::Exp(x)); }
Value Mish(Value x) { return hlo::Mul(x, hlo::Tanh(Softplus(x))); }
Value MishGrad(Value x) {
  Value t = hlo::Tanh(Softplus(x));
  return hlo::Add(t, hlo::Mul(hlo::Mul(x, hlo::Logistic(x)), RSub(1, Square(t))));
}

Value ReluSix(Value x) { return hlo::Min(Relu(x), FullLike(x, 6)); }
Value Hardsigmoid(Value x) { return hlo::Div(ReluSix(Plus(x, 3)), FullLike(x, 6)); }
Value HardsigmoidGrad(Value x) {
  Value inside = hlo::Lt(hlo::Abs(x), FullLike(x, 3));
  return Where(inside, FullLike(x, 1.0 / 6), 0);
}
Value Hardswish(Value x) { return hlo::Div(hlo::Mul(x, ReluSix(Plus(x, 3))), FullLike(x, 6)); }
Value HardswishGrad(Value x) {
  Value middle = Plus(hlo::Div(x, FullLike(x, 3)), 0.5);
  Value high = Where(hlo::Lt(x, FullLike(x, 3)), middle, 1);
  return Where(hlo::Le(x, FullLike(x, -3)), 0, high);
}

template <auto kFn, Name kName>
struct Activation : Unary<kFn> {
  static Shape Infer(const Arg& self) {
    CheckImplemented(!IsIntOrBool(self.dtype()), kName.text, self.dtype());
    return self.shape();
  }
};

template <auto kGrad>
struct ActivationBackward {
  static Shape Infer(const Arg& grad, const Arg& saved) { return GradShape(grad, saved); }
  static Value Lower(const Shape& out, Value grad, Value saved) {
    Wideners w(out);
    Value slope = kGrad(w(saved));
    if (IsComplex(out.dtype)) slope = hlo::Complex(hlo::Real(slope), hlo::Neg(hlo::Imag(slope)));
    return hlo::ConvertTo(hlo::Mul(w(grad), slope), out.dtype);
  }
};

// ---- gelu

constexpr double kGeluBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
constexpr double kGeluKappa = 0.044715;

Value GeluTanh(Value x) {
  Value inner = Times(hlo::Add(x, Times(hlo::Mul(Square(x), x), kGeluKappa)), kGeluBeta);
  return hlo::Tanh(inner);
}
Value NormalCdf(Value x) { return Times(Plus(Erf(Times(x, std::numbers::sqrt2 / 2)), 1), 0.5); }

void CheckApproximate(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh",
              "approximate argument must be either none or tanh.");
}

struct Gelu {
  static Shape Infer(const Arg& self, std::string_view approximate) {
    CheckApproximate(approximate);
    return FloatOnly(self, "GeluKernelImpl");
  }
  static Value Lower(const Shape& out, Value self, std::string_view approximate) {
    Value x = Widen(self);
    Value cdf = approximate == "tanh" ? Times(Plus(GeluTanh(x), 1), 0.5) : NormalCdf(x);
    return hlo::ConvertTo(hlo::Mul(x, cdf), out.dtype);
  }
};

struct GeluBackward {
  static Shape Infer(const Arg& grad, const Arg& self, std::string_view approximate) {
    CheckApproximate(approximate);
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, std::string_view approximate) {
    Wideners w(out);
    Value x = w(self);
    Value slope;
    if (approximate == "tanh") {
      Value t = GeluTanh(x);
      Value inner = Times(Plus(Times(Square(x), 3 * kGeluKappa), 1), kGeluBeta);
      Value right = hlo::Mul(hlo::Mul(Times(x, 0.5), RSub(1, Square(t))), inner);
      slope = hlo::Add(Times(Plus(t, 1), 0.5), right);
    } else {
      constexpr double kNorm = std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
      Value pdf = Times(hlo::Exp(Times(Square(x), -0.5)), kNorm);
      slope = hlo::Add(NormalCdf(x), hlo::Mul(x, pdf));
    }
    return hlo::ConvertTo(hlo::Mul(w(grad), slope), out.dtype);
  }
};

// ---- Families with parameters, which are inputs.

struct Elu {
  static Shape Infer(const Arg& self, const at::Scalar&, const at::Scalar&, const at::Scalar&) {
    return FloatOnly(self, "elu_cpu");
  }
  static Value Lower(const Shape& out, Value self, Factor alpha, Factor scale, Factor input_scale) {
    Value x = Widen(self);
    Value low = scale.Times(alpha.Times(hlo::Expm1(input_scale.Times(x))));
    Value y = hlo::Select(hlo::Le(x, FullLike(x, 0)), low, scale.Times(x));
    return hlo::ConvertTo(y, out.dtype);
  }
};

struct EluBackward {
  static Shape Infer(const Arg& grad, const at::Scalar& alpha, const at::Scalar&, const at::Scalar&,
                     bool is_result, const Arg& saved) {
    XLA_CHECK(!is_result || alpha.to<double>() >= 0, kInvalidArgument,
              "In-place elu backward calculation is triggered with a negative slope");
    return GradShape(grad, saved);
  }
  static Value Lower(const Shape& out, Value grad, Factor alpha, Factor scale, Factor input_scale,
                     bool is_result, Value saved) {
    Wideners w(out);
    Value g = w(grad), x = w(saved);
    Value size = scale.Times(alpha.Times(FullLike(x, 1)));
    Value low = is_result ? hlo::Add(x, size) : hlo::Mul(hlo::Exp(input_scale.Times(x)), size);
    low = hlo::Mul(input_scale.Times(g), low);
    Value y = hlo::Select(hlo::Le(x, FullLike(x, 0)), low, scale.Times(g));
    return hlo::ConvertTo(y, out.dtype);
  }
};

struct LeakyRelu {
  static Shape Infer(const Arg& self, const at::Scalar&) {
    return FloatOnly(self, "leaky_relu_cpu");
  }
  static Value Lower(const Shape& out, Value self, Value slope) {
    Value x = Widen(self);
    Value low = hlo::Mul(x, FitTo(slope, x));
    return hlo::ConvertTo(hlo::Select(hlo::Gt(x, FullLike(x, 0)), x, low), out.dtype);
  }
};

struct LeakyReluBackward {
  static Shape Infer(const Arg& grad, const Arg& self, const at::Scalar& slope, bool is_result) {
    XLA_CHECK(!is_result || slope.to<double>() >= 0, kInvalidArgument,
              "In-place leakyReLu backward calculation is triggered with a negative slope");
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value slope, bool) {
    Wideners w(out);
    Value g = w(grad), x = w(self);
    Value low = hlo::Mul(g, FitTo(slope, g));
    return hlo::ConvertTo(hlo::Select(hlo::Gt(x, FullLike(x, 0)), g, low), out.dtype);
  }
};

struct Hardtanh {
  static Shape Infer(const Arg& self, const at::Scalar& min, const at::Scalar& max) {
    TORCH_CHECK(self.dtype() != DType::kBool, "Bool inputs not supported for hardtanh");
    TORCH_CHECK(self.dtype() != DType::kU8 || min.to<double>() >= 0,
                "cannot do hardtanh on an unsigned type with negative limits");
    CheckFits(min, self.dtype());
    CheckFits(max, self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape&, Value x, Value min, Value max) {
    return hlo::Min(hlo::Max(x, FitTo(min, x)), FitTo(max, x));
  }
};

struct HardtanhBackward {
  static Shape Infer(const Arg& grad, const Arg& self, const at::Scalar&, const at::Scalar&) {
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value min, Value max) {
    Value x = Fit(self, out);
    Value outside = hlo::Or(hlo::Le(x, FitTo(min, x)), hlo::Ge(x, FitTo(max, x)));
    return Where(outside, 0, Fit(grad, out));
  }
};

// beta x, and where it is beyond the threshold.
struct Scaled {
  Value x, linear;
  Scaled(Value self, Factor beta, Value threshold)
      : x(beta.Times(self)), linear(hlo::Gt(x, FitTo(threshold, x))) {}
};

struct SoftplusOp {
  static Shape Infer(const Arg& self, const at::Scalar&, const at::Scalar&) {
    return FloatOnly(self, "softplus_cpu");
  }
  static Value Lower(const Shape& out, Value self, Factor beta, Value threshold) {
    Value x = Widen(self);
    Scaled s(x, beta, threshold);
    Value soft = hlo::Log1p(hlo::Exp(s.x));
    if (beta.value) soft = hlo::Div(soft, FitTo(*beta.value, x));
    return hlo::ConvertTo(hlo::Select(s.linear, x, soft), out.dtype);
  }
};

struct SoftplusBackward {
  static Shape Infer(const Arg& grad, const Arg& self, const at::Scalar&, const at::Scalar&) {
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, Factor beta, Value threshold) {
    Wideners w(out);
    Value g = w(grad);
    Scaled s(w(self), beta, threshold);
    Value y = hlo::Select(s.linear, g, hlo::Mul(g, hlo::Logistic(s.x)));
    return hlo::ConvertTo(y, out.dtype);
  }
};

// -l <= x <= l
Value InBand(Value x, Value lambd) {
  Value l = FitTo(lambd, x);
  return hlo::And(hlo::Ge(x, hlo::Neg(l)), hlo::Le(x, l));
}

struct Hardshrink {
  static Shape Infer(const Arg& self, const at::Scalar&) {
    return FloatOnly(self, "hardshrink_cpu");
  }
  static Value Lower(const Shape&, Value x, Value lambd) { return Where(InBand(x, lambd), 0, x); }
};

struct Softshrink {
  static Shape Infer(const Arg& self, const at::Scalar& lambd) {
    XLA_CHECK(lambd.to<double>() >= 0, kInvalidArgument, "lambda must be greater or equal to 0");
    return FloatOnly(self, "softshrink_check");
  }
  static Value Lower(const Shape& out, Value self, Value lambd) {
    Value x = Widen(self);
    Value l = FitTo(lambd, x);
    Value low = hlo::Select(hlo::Lt(x, hlo::Neg(l)), hlo::Add(x, l), Times(x, 0));
    return hlo::ConvertTo(hlo::Select(hlo::Gt(x, l), hlo::Sub(x, l), low), out.dtype);
  }
};

struct ShrinkBackward {
  static Shape Infer(const Arg& grad, const Arg& self, const at::Scalar&) {
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value lambd) {
    return Where(InBand(Fit(self, out), lambd), 0, Fit(grad, out));
  }
};

// ---- log_sigmoid, whose buffer PyTorch saves for the gradient; ours is computed again.

struct LogSigmoidForward {
  using Two = std::array<Shape, 2>;
  static Two Infer(const Arg& self) {
    Shape out = FloatOnly(self, "log_sigmoid_cpu");
    return {out, out};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self) {
    Value x = Widen(self);
    Value z = hlo::Exp(hlo::Neg(hlo::Abs(x)));
    Value y = hlo::Sub(hlo::Min(x, FullLike(x, 0)), hlo::Log1p(z));
    return {hlo::ConvertTo(y, out[0].dtype), hlo::ConvertTo(z, out[0].dtype)};
  }
};

struct LogSigmoidBackward {
  static Shape Infer(const Arg& grad, const Arg& self, const Arg&) { return GradShape(grad, self); }
  static Value Lower(const Shape& out, Value grad, Value self, Value) {
    Wideners w(out);
    Value y = hlo::Mul(w(grad), hlo::Logistic(hlo::Neg(w(self))));
    return hlo::ConvertTo(y, out.dtype);
  }
};

struct LogitBackward {
  static Shape Infer(const Arg& grad, const Arg& self, std::optional<double>) {
    return GradShape(grad, self);
  }
  static Value Lower(const Shape& out, Value grad, Value self, std::optional<double> eps) {
    Wideners w(out);
    Value x = w(self);
    bool clamped = eps && *eps >= 0;
    double low = clamped ? *eps : 0;
    // NaN counts as outside.
    Value inside = hlo::And(hlo::Ge(x, FullLike(x, low)), hlo::Le(x, FullLike(x, 1 - low)));
    Value outside = hlo::Not(inside);
    Value y = hlo::Div(w(grad), SigmoidGrad(x));
    return hlo::ConvertTo(Where(outside, clamped ? 0 : NAN, y), out.dtype);
  }
};

// ---- glu: the halves of one dimension.

std::array<Value, 2> Halves(Value x, int64_t dim) {
  int64_t half = x.dim(dim) / 2;
  return {hlo::SliceDim(x, dim, 0, half), hlo::SliceDim(x, dim, half, 2 * half)};
}

struct Glu {
  static Shape Infer(const Arg& self, int64_t dim) {
    TORCH_CHECK(self.rank() > 0, "glu does not support 0-dimensional tensors");
    dim = WrapDim(dim, self.rank());
    TORCH_CHECK(self.dim(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim,
                " is size ", self.dim(dim));
    Shape out = FloatOnly(self, "glu_cpu");
    out.dims[static_cast<size_t>(dim)] /= 2;
    return out;
  }
  static Value Lower(const Shape& out, Value self, int64_t dim) {
    auto [a, b] = Halves(Widen(self), WrapDim(dim, self.rank()));
    return hlo::ConvertTo(hlo::Mul(a, hlo::Logistic(b)), out.dtype);
  }
};

struct GluBackward {
  static Shape Infer(const Arg&, const Arg& self, int64_t dim) {
    Glu::Infer(self, dim);
    return self.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value self, int64_t dim) {
    dim = WrapDim(dim, self.rank());
    auto [a, b] = Halves(Widen(self), dim);
    Value s = hlo::Logistic(b);
    Value first = hlo::Mul(FitTo(grad, s), s);
    Value second = hlo::Mul(hlo::Mul(first, RSub(1, s)), a);
    return hlo::ConvertTo(hlo::Concatenate({first, second}, dim), out.dtype);
  }
};

// Derivatives in the direction dx, of glu and of its gradient in the direction (dg, dx).
struct GluJvp {
  static Shape Infer(const Arg& glu, const Arg&, const Arg&, int64_t dim) {
    WrapDim(dim, glu.rank());
    return glu.shape();
  }
  static Value Lower(const Shape& out, Value glu, Value x, Value dx, int64_t dim) {
    dim = WrapDim(dim, x.rank());
    Value s = hlo::Logistic(Halves(Widen(x), dim)[1]);
    auto [da, db] = Halves(FitTo(dx, Widen(x)), dim);
    Value change = hlo::Mul(hlo::Mul(FitTo(glu, s), RSub(1, s)), db);
    return hlo::ConvertTo(hlo::Add(hlo::Mul(da, s), change), out.dtype);
  }
};

struct GluBackwardJvp {
  static Shape Infer(const Arg& grad_x, const Arg&, const Arg&, const Arg&, const Arg&,
                     int64_t dim) {
    WrapDim(dim, grad_x.rank());
    return grad_x.shape();
  }
  static Value Lower(const Shape& out, Value, Value grad, Value x, Value dgrad, Value dx,
                     int64_t dim) {
    dim = WrapDim(dim, x.rank());
    auto [a, b] = Halves(Widen(x), dim);
    auto [da, db] = Halves(FitTo(dx, Widen(x)), dim);
    Value g = FitTo(grad, a), dg = FitTo(dgrad, a);
    Value s = hlo::Logistic(b), slope = hlo::Mul(s, RSub(1, s)), ds = hlo::Mul(slope, db);
    Value first = hlo::Add(hlo::Mul(dg, s), hlo::Mul(g, ds));
    Value second = hlo::Mul(hlo::Add(hlo::Mul(dg, a), hlo::Mul(g, da)), slope);
    second = hlo::Add(second, hlo::Mul(hlo::Mul(g, a), hlo::Mul(RSub(1, Times(s, 2)), ds)));
    return hlo::ConvertTo(hlo::Concatenate({first, second}, dim), out.dtype);
  }
};

// ---- prelu, whose weight has been broadcast by torch.

struct Prelu {
  static Shape Infer(const Arg& self, const Arg& weight) {
    return {self.dtype(), Broadcast({self, weight})};
  }
  static Value Lower(const Shape& out, Value self, Value weight) {
    Wideners w(out);
    Value x = w(self);
    Value y = hlo::Select(hlo::Gt(x, FullLike(x, 0)), x, hlo::Mul(w(weight), x));
    return hlo::ConvertTo(y, out.dtype);
  }
};

struct PreluBackward {
  static std::array<Shape, 2> Infer(const Arg& grad, const Arg& self, const Arg& weight) {
    Shape out{self.dtype(), Broadcast({grad, self, weight})};
    return {out, out.with(weight.dtype())};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value grad, Value self,
                                    Value weight) {
    Wideners w(out[0]);
    Value g = w(grad), x = w(self);
    Value positive = hlo::Gt(x, FullLike(x, 0));
    Value dx = hlo::Select(positive, g, hlo::Mul(w(weight), g));
    Value dw = Where(positive, 0, hlo::Mul(x, g));
    return {hlo::ConvertTo(dx, out[0].dtype), hlo::ConvertTo(dw, out[1].dtype)};
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<relu, ReluOp>(m);
  Register<relu_, ReluOp>(m);
  Register<threshold, Threshold>(m);
  Register<threshold_backward, ThresholdBackward>(m);
  Register<sigmoid, FloatUnary<hlo::Logistic>>(m);
  Register<sigmoid_, FloatUnary<hlo::Logistic>>(m);
  Register<sigmoid_backward, ActivationBackward<SigmoidGrad>>(m);
  Register<tanh_backward, ActivationBackward<TanhGrad>>(m);
  Register<silu, Activation<Silu, "silu_cpu">>(m);
  Register<silu_, Activation<Silu, "silu_cpu">>(m);
  Register<silu_backward, ActivationBackward<SiluGrad>>(m);
  Register<mish, Activation<Mish, "mish_cpu">>(m);
  Register<mish_backward, ActivationBackward<MishGrad>>(m);
  Register<hardsigmoid, Activation<Hardsigmoid, "hardsigmoid_cpu">>(m);
  Register<hardsigmoid_backward, ActivationBackward<HardsigmoidGrad>>(m);
  Register<hardswish, Activation<Hardswish, "hardswish_cpu">>(m);
  Register<hardswish_backward, ActivationBackward<HardswishGrad>>(m);
  Register<gelu, Gelu>(m);
  Register<gelu_backward, GeluBackward>(m);
  Register<elu, Elu>(m);
  Register<elu_backward, EluBackward>(m);
  Register<leaky_relu, LeakyRelu>(m);
  Register<leaky_relu_, LeakyRelu>(m);
  Register<leaky_relu_backward, LeakyReluBackward>(m);
  Register<hardtanh, Hardtanh>(m);
  Register<hardtanh_, Hardtanh>(m);
  Register<hardtanh_backward, HardtanhBackward>(m);
  Register<softplus, SoftplusOp>(m);
  Register<softplus_backward, SoftplusBackward>(m);
  Register<hardshrink, Hardshrink>(m);
  Register<hardshrink_backward, ShrinkBackward>(m);
  Register<softshrink, Softshrink>(m);
  Register<softshrink_backward, ShrinkBackward>(m);
  Register<log_sigmoid_forward, LogSigmoidForward>(m);
  Register<log_sigmoid_backward, LogSigmoidBackward>(m);
  Register<logit_backward, LogitBackward>(m);
  Register<glu, Glu>(m);
  Register<glu_backward, GluBackward>(m);
  Register<glu_jvp, GluJvp>(m);
  Register<glu_backward_jvp, GluBackwardJvp>(m);
  Register<_prelu_kernel, Prelu>(m);
  Register<_prelu_kernel_backward, PreluBackward>(m);
}

}  // namespace torch_xla::ops
