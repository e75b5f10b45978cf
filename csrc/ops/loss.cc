// Losses of predictions against targets, and their gradients.
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/binary_cross_entropy_with_logits_ops.h>
#include <ATen/ops/huber_loss_backward_ops.h>
#include <ATen/ops/huber_loss_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/smooth_l1_loss_backward_ops.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/soft_margin_loss_backward_ops.h>
#include <ATen/ops/soft_margin_loss_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The shape of a loss whose elements have the shape `elements`.
Shape LossShape(Shape elements, int64_t reduction) {
  if (reduction != kNone) elements.dims.clear();
  return elements;
}

Value Reduced(const Shape& out, Value loss, int64_t reduction) {
  Dims all = WrapDims({}, loss.rank());
  if (reduction == kMean) loss = MeanOf(loss, all);
  if (reduction == kSum) loss = SumOf(loss, all);
  return hlo::ConvertTo(loss, out.dtype);
}

// grad * slope, where the mean has divided by the number of elements.
Value Chain(const Shape& out, Value grad, Value slope, int64_t reduction) {
  Value g = FitTo(grad, slope);
  if (reduction == kMean) g = Times(g, 1.0 / static_cast<double>(out.numel()));
  return hlo::ConvertTo(hlo::Mul(g, slope), out.dtype);
}

// ---- Of the difference x of prediction and target, and a parameter: f(x) and f'(x).

Value MseOf(Value x, std::optional<Value>) { return Square(x); }
Value MseSlope(Value x, std::optional<Value>) { return Times(x, 2); }

// Half a square below beta, linear above; scaled to slope 1.
Value SmoothL1Of(Value x, std::optional<Value> beta) {
  Value z = hlo::Abs(x);
  Value near = hlo::Div(hlo::Mul(Times(z, 0.5), z), *beta);
  return hlo::Select(hlo::Lt(z, *beta), near, hlo::Sub(z, Times(*beta, 0.5)));
}
Value SmoothL1Slope(Value x, std::optional<Value> beta) {
  Value near = hlo::Lt(hlo::Abs(x), *beta);
  return hlo::Select(near, hlo::Div(x, *beta), hlo::Sign(x));
}

Value HuberOf(Value x, std::optional<Value> delta) {
  Value z = hlo::Abs(x);
  Value near = hlo::Mul(Times(z, 0.5), z);
  Value far = hlo::Mul(*delta, hlo::Sub(z, Times(*delta, 0.5)));
  return hlo::Select(hlo::Le(z, *delta), near, far);
}
Value HuberSlope(Value x, std::optional<Value> delta) {
  return hlo::Max(hlo::Min(x, *delta), hlo::Neg(*delta));
}

struct PairLoss {
  static Shape Elements(const Arg& self, const Arg& target) {
    return {Promote({self, target}), Broadcast({self, target})};
  }
  template <auto kFn>
  static Value Of(const Shape& elements, Value self, Value target, std::optional<Value> parameter) {
    Shape wide = elements.with(Wide(elements.dtype));
    Value x = hlo::Sub(Fit(self, wide), Fit(target, wide));
    if (parameter) parameter = FitTo(*parameter, x);
    return kFn(x, parameter);
  }
  static Shape ElementsOf(const Shape& out, Value self, Value target) {
    return {out.dtype, Broadcast(self.dims(), target.dims())};
  }
};

struct MseLoss : PairLoss {
  static Shape Infer(const Arg& self, const Arg& target, int64_t reduction) {
    return LossShape(Elements(self, target), reduction);
  }
  static Value Lower(const Shape& out, Value self, Value target, int64_t reduction) {
    return Reduced(out, Of<MseOf>(ElementsOf(out, self, target), self, target, {}), reduction);
  }
};

struct MseLossBackward : PairLoss {
  static Shape Infer(const Arg& grad, const Arg& self, const Arg& target, int64_t) {
    return {Promote({grad, self, target}), Broadcast({self, target})};
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target, int64_t reduction) {
    return Chain(out, grad, Of<MseSlope>(out, self, target, {}), reduction);
  }
};

template <auto kFn, bool kHuber>
struct BetaLoss : PairLoss {
  static Shape Infer(const Arg& self, const Arg& target, int64_t reduction, double beta) {
    if (kHuber) {
      TORCH_CHECK(beta > 0, "huber_loss does not support non-positive values for delta.");
    } else {
      TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
    }
    return LossShape(Elements(self, target), reduction);
  }
  static Value Lower(const Shape& out, Value self, Value target, int64_t reduction, Value beta) {
    return Reduced(out, Of<kFn>(ElementsOf(out, self, target), self, target, beta), reduction);
  }
};

template <auto kSlope>
struct BetaLossBackward : PairLoss {
  static Shape Infer(const Arg& grad, const Arg& self, const Arg& target, int64_t, double) {
    return {Promote({grad, self, target}), Broadcast({self, target})};
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target, int64_t reduction,
                     Value beta) {
    return Chain(out, grad, Of<kSlope>(out, self, target, beta), reduction);
  }
};

// ---- Cross entropy of two classes

Value Weighted(Value x, std::optional<Value> weight) {
  return weight ? hlo::Mul(x, FitTo(*weight, x)) : x;
}

struct BinaryCrossEntropy {
  static Shape Infer(const Arg& self, const Arg& target, const Arg*, int64_t reduction) {
    XLA_CHECK(self.dtype() == target.dtype(), kInvalidArgument, "Found dtype ",
              TorchName(target.dtype()), " but expected ", TorchName(self.dtype()));
    return LossShape({self.dtype(), Broadcast({self, target})}, reduction);
  }
  static Value Lower(const Shape& out, Value self, Value target, std::optional<Value> weight,
                     int64_t reduction) {
    Value x = Widen(self);
    Value t = FitTo(target, x);
    Value low = FullLike(x, -100);  // the logarithm of 0
    Value no = hlo::Mul(Plus(t, -1), hlo::Max(hlo::Log1p(hlo::Neg(x)), low));
    Value yes = hlo::Mul(t, hlo::Max(hlo::Log(x), low));
    return Reduced(out, Weighted(hlo::Sub(no, yes), weight), reduction);
  }
};

struct BinaryCrossEntropyBackward {
  static Shape Infer(const Arg&, const Arg& self, const Arg&, const Arg*, int64_t) {
    return self.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target,
                     std::optional<Value> weight, int64_t reduction) {
    Value x = Widen(self);
    Value variance = hlo::Max(hlo::Mul(RSub(1, x), x), FullLike(x, 1e-12));
    Value slope = hlo::Div(hlo::Sub(x, FitTo(target, x)), variance);
    return Chain(out, grad, Weighted(slope, weight), reduction);
  }
};

struct BinaryCrossEntropyWithLogits {
  static Shape Infer(const Arg& self, const Arg& target, const Arg* weight, const Arg* pos_weight,
                     int64_t reduction) {
    // PyTorch computes in 1 - target.
    TORCH_CHECK(target.dtype() != DType::kBool,
                "Subtraction, the `-` operator, with two bool tensors is not supported. Use the "
                "`^` or `logical_xor()` operator instead.");
    TORCH_CHECK(!IsIntOrBool(target.dtype()) || IsIntOrBool(self.dtype()), "result type ",
                ToScalarType(self.dtype()), " can't be cast to the desired output type ",
                ToScalarType(target.dtype()));
    Shape elements{Promote({self, target}), Broadcast({self, target})};
    if (pos_weight) elements.dims = Broadcast(elements.dims, pos_weight->dims());
    if (weight) elements.dims = Broadcast(elements.dims, weight->dims());
    return LossShape(elements, reduction);
  }
  static Value Lower(const Shape& out, Value self, Value target, std::optional<Value> weight,
                     std::optional<Value> pos_weight, int64_t reduction) {
    Shape wide{Wide(out.dtype), Broadcast(self.dims(), target.dims())};
    for (const auto& w : {weight, pos_weight}) {
      if (w) wide.dims = Broadcast(wide.dims, w->dims());
    }
    Value x = Fit(self, wide);
    Value t = Fit(target, wide);
    // log(1 + exp(-x)) without overflow
    Value soft = hlo::Add(hlo::Log1p(hlo::Exp(hlo::Neg(hlo::Abs(x)))),
                          hlo::Max(hlo::Neg(x), FullLike(x, 0)));
    if (pos_weight) {
      Value w = Plus(hlo::Mul(Plus(Fit(*pos_weight, wide), -1), t), 1);
      soft = hlo::Mul(w, soft);
    }
    Value loss = hlo::Add(hlo::Mul(RSub(1, t), x), soft);
    return Reduced(out, Weighted(loss, weight), reduction);
  }
};

// ---- log(1 + exp(-target * x))

struct SoftMarginLoss {
  static Shape Infer(const Arg& self, const Arg& target, int64_t reduction) {
    return LossShape({self.dtype(), Broadcast({self, target})}, reduction);
  }
  static Value Lower(const Shape& out, Value self, Value target, int64_t reduction) {
    Value x = Widen(self);
    Value z = hlo::Mul(hlo::Neg(FitTo(target, x)), x);
    return Reduced(out, hlo::Log1p(hlo::Exp(z)), reduction);
  }
};

struct SoftMarginLossBackward {
  static Shape Infer(const Arg&, const Arg& self, const Arg& target, int64_t) {
    return {self.dtype(), Broadcast({self, target})};
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target, int64_t reduction) {
    Value x = Widen(self);
    Value minus = hlo::Neg(FitTo(target, x));
    return Chain(out, grad, hlo::Mul(minus, hlo::Logistic(hlo::Mul(minus, x))), reduction);
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<mse_loss, MseLoss>(m);
  Register<mse_loss_backward, MseLossBackward>(m);
  Register<smooth_l1_loss, BetaLoss<SmoothL1Of, false>>(m);
  Register<smooth_l1_loss_backward, BetaLossBackward<SmoothL1Slope>>(m);
  Register<huber_loss, BetaLoss<HuberOf, true>>(m);
  Register<huber_loss_backward, BetaLossBackward<HuberSlope>>(m);
  Register<binary_cross_entropy, BinaryCrossEntropy>(m);
  Register<binary_cross_entropy_backward, BinaryCrossEntropyBackward>(m);
  Register<binary_cross_entropy_with_logits, BinaryCrossEntropyWithLogits>(m);
  Register<soft_margin_loss, SoftMarginLoss>(m);
  Register<soft_margin_loss_backward, SoftMarginLossBackward>(m);
}

}  // namespace torch_xla::ops
