// Losses against class numbers: nll_loss of any rank, multi_margin_loss, multilabel_margin_loss.
#include <ATen/ops/multi_margin_loss_backward_ops.h>
#include <ATen/ops/multi_margin_loss_ops.h>
#include <ATen/ops/multilabel_margin_loss_backward_ops.h>
#include <ATen/ops/multilabel_margin_loss_forward_ops.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The dimension of the classes: 1, and 0 of a single sample.
int64_t ClassDim(int64_t rank) { return rank == 1 ? 0 : 1; }

// x[..., classes, ...] at the class numbers `target`, which have x's dimensions without that one.
Value AtClass(Value x, Value target, int64_t dim) {
  if (target.shape().numel() == 0) return hlo::Full(x.builder(), x.shape().with(target.dims()), 0);
  hlo::GatherDims g;
  Dims index_dims = target.dims();
  index_dims.push_back(1);
  Dims sizes(x.dims().size(), 1);
  g.collapsed_slice_dims = {dim};
  g.start_index_map = {dim};
  g.index_vector_dim = target.rank();
  int64_t batch = 0;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i == dim) continue;
    g.operand_batching_dims.push_back(i);
    g.start_indices_batching_dims.push_back(batch++);
  }
  return hlo::Gather(x, hlo::Reshape(target, index_dims), g, sizes);
}

// The weight of every target: weight[target], or 1, and 0 of those to ignore.
Value TargetWeight(Value target, std::optional<Value> weight, int64_t ignore_index, DType t) {
  Shape shape = target.shape().with(t);
  Value w = hlo::Full(target.builder(), shape, 1);
  if (weight && shape.numel() > 0) {
    hlo::GatherDims g;
    g.collapsed_slice_dims = {0};
    g.start_index_map = {0};
    g.index_vector_dim = target.rank();
    Dims index_dims = target.dims();
    index_dims.push_back(1);
    w = hlo::Gather(hlo::ConvertTo(*weight, t), hlo::Reshape(target, index_dims), g, {1});
  }
  Value ignored = hlo::FullInt(target.builder(), target.shape(), ignore_index);
  return Where(hlo::Eq(target, ignored), 0, w);
}

// Along the classes: whether the class is the target.
Value IsTarget(Value target, const Shape& out, int64_t dim) {
  Shape classes = out.with(target.dtype());
  Dims kept;
  for (int64_t i = 0; i < out.rank(); ++i) {
    if (i != dim) kept.push_back(i);
  }
  return hlo::Eq(hlo::Iota(target.builder(), classes, dim),
                 hlo::BroadcastInDim(target, classes.dims, kept));
}

// A value of the shape of the targets (or 0-d) along the classes.
Value AlongClasses(Value x, const Shape& out, int64_t dim) {
  if (x.rank() == 0) return hlo::BroadcastTo(x, out.dims);
  Dims kept;
  for (int64_t i = 0; i < out.rank(); ++i) {
    if (i != dim) kept.push_back(i);
  }
  return hlo::BroadcastInDim(x, out.dims, kept);
}

void CheckNll(const Arg& self, const Arg& target, const Arg* weight, bool spatial) {
  if (spatial) {
    TORCH_CHECK(target.rank() == 3,
                "only batches of spatial targets supported (3D tensors) but got targets of "
                "dimension: ",
                target.rank());
    TORCH_CHECK(self.rank() == 4,
                "only batches of spatial inputs supported (4D tensors), but got input of "
                "dimension: ",
                self.rank());
  }
  XLA_CHECK(self.rank() > 0 && (spatial || self.rank() <= 2), kInvalidArgument,
            "input tensor should be 1D or 2D");
  TORCH_CHECK(target.dtype() == DType::kS64 || target.dtype() == DType::kU8,
              "expected target dtype to be Long or Byte, but got ", TorchName(target.dtype()));
  TORCH_CHECK(!spatial || target.dtype() == DType::kS64,
              "expected scalar type Long but found Byte");
  Dims dims = self.dims();
  dims.erase(static_cast<size_t>(ClassDim(self.rank())));
  XLA_CHECK(dims == target.dims() || (self.rank() == 1 && target.numel() == 1), kInvalidArgument,
            "size mismatch (got input: ", ToString(self.dims()),
            ", target: ", ToString(target.dims()), ")");
  XLA_CHECK(weight == nullptr || weight->dtype() == self.dtype(), kInvalidArgument,
            "expected scalar type ", TorchName(self.dtype()), " but found ",
            weight ? TorchName(weight->dtype()) : "");
  int64_t classes = self.dim(ClassDim(self.rank()));
  TORCH_CHECK(weight == nullptr || weight->numel() == classes,
              "weight tensor should be defined either for all ", classes,
              " classes or no classes but got weight tensor of shape: ",
              weight ? ToString(weight->dims()) : "");
}

template <bool kSpatial>
struct NllForward {
  static std::array<Shape, 2> Infer(const Arg& self, const Arg& target, const Arg* weight,
                                    int64_t reduction, int64_t) {
    CheckNll(self, target, weight, kSpatial);
    Shape total{self.dtype(), {}};
    bool none = reduction == kNone && self.rank() > 1;
    return {none ? total.with(target.dims()) : total, total};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, Value target,
                                    std::optional<Value> weight, int64_t reduction,
                                    int64_t ignore_index) {
    DType t = Wide(out[0].dtype);
    int64_t dim = ClassDim(self.rank());
    if (self.rank() == 1) target = hlo::Reshape(target, {});
    Value w = TargetWeight(target, weight, ignore_index, t);
    // An ignored row counts as 0 whatever it holds.
    Value loss = hlo::Neg(hlo::Mul(hlo::ConvertTo(AtClass(self, target, dim), t), w));
    loss = Where(IsZero(w), 0, loss);
    Dims all = WrapDims({}, target.rank());
    Value total = SumOf(w, all);
    if (reduction == kNone) total = FullLike(total, 0);
    if (reduction != kNone) loss = SumOf(loss, all);
    if (reduction == kMean) loss = hlo::Div(loss, total);
    return {hlo::ConvertTo(loss, out[0].dtype), hlo::ConvertTo(total, out[1].dtype)};
  }
};

template <bool kSpatial>
struct NllBackward {
  static Shape Infer(const Arg&, const Arg& self, const Arg& target, const Arg* weight, int64_t,
                     int64_t, const Arg&) {
    CheckNll(self, target, weight, kSpatial);
    return self.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target,
                     std::optional<Value> weight, int64_t reduction, int64_t ignore_index,
                     Value total_weight) {
    DType t = Wide(out.dtype);
    Shape wide = out.with(t);
    int64_t dim = ClassDim(self.rank());
    if (self.rank() == 1) target = hlo::Reshape(target, {});
    Value w = TargetWeight(target, weight, ignore_index, t);
    Value g = hlo::ConvertTo(grad, t);
    if (g.rank() == target.rank()) g = hlo::Reshape(g, target.dims());
    if (reduction == kMean) g = hlo::Div(g, FitTo(total_weight, g));
    Value at_target = hlo::Neg(hlo::Mul(FitTo(g, w), w));
    at_target = Where(IsZero(w), 0, at_target);
    Value dx = Where(IsTarget(target, wide, dim), AlongClasses(at_target, wide, dim), 0);
    return hlo::ConvertTo(dx, out.dtype);
  }
};

// ---- multi_margin_loss: the mean over the classes of max(0, margin - x[target] + x)^p, without
// the target's own.

Value AtLeast1d(Value x) { return x.rank() == 0 ? hlo::Reshape(x, {1}) : x; }

struct MarginTerms {
  Value other;   // not the target, along the classes
  Value excess;  // margin - x[target] + x
  Value weight;  // of the target, along the classes

  MarginTerms(Value x, Value target, Value margin, std::optional<Value> weights) {
    int64_t dim = x.rank() - 1;
    target = hlo::Reshape(target, Span(x.dims()).first(x.dims().size() - 1));
    other = hlo::Not(IsTarget(target, x.shape(), dim));
    Value own = AlongClasses(AtClass(x, target, dim), x.shape(), dim);
    excess = hlo::Add(hlo::Sub(FitTo(margin, x), own), x);
    other = hlo::And(other, hlo::Gt(excess, FullLike(x, 0)));
    Value w = TargetWeight(target, weights, -1, x.dtype());
    weight = AlongClasses(w, x.shape(), dim);
  }
};

struct MultiMarginLoss {
  static Shape Infer(const Arg& self, const Arg& target, const at::Scalar& p, const at::Scalar&,
                     const Arg* weight, int64_t reduction) {
    Check(self, target, p, weight);
    Shape out{self.dtype(), {}};
    return reduction == kNone ? out.with(target.dims()) : out;
  }
  static void Check(const Arg& self, const Arg& target, const at::Scalar& p, const Arg* weight) {
    TORCH_CHECK_VALUE(p.equal(1) || p.equal(2), "only p == 1 and p == 2 supported");
    bool batch = self.rank() == 2 && target.rank() == 1 && target.dim(0) == self.dim(0);
    TORCH_CHECK(batch || (self.rank() <= 1 && target.numel() == 1),
                "multi_margin_loss: target tensor should be 1-D with size equal to the number of "
                "input samples (batch size). Expected target size [",
                self.rank() == 2 ? self.dim(0) : 1, "], but got ", ToString(target.dims()),
                ". Input has shape ", ToString(self.dims()), ".");
    TORCH_CHECK(target.dtype() == DType::kS64, "expected scalar type Long but found ",
                ToScalarType(target.dtype()));
    int64_t classes = self.rank() == 0 ? 1 : self.dim(-1);
    TORCH_CHECK(weight == nullptr || weight->numel() == classes,
                "inconsistent weight size, expected ", classes, " but got ",
                weight ? ToString(weight->dims()) : "");
  }
  static Value Lower(const Shape& out, Value self, Value target, Number p, Value margin,
                     std::optional<Value> weight, int64_t reduction) {
    Value x = AtLeast1d(Widen(self));
    MarginTerms m(x, target, margin, weight);
    Value term = p.real() == 2 ? Square(m.excess) : m.excess;
    term = Where(m.other, hlo::Mul(term, m.weight), 0);
    Value loss = MeanOf(term, {x.rank() - 1});
    Dims all = WrapDims({}, loss.rank());
    if (reduction == kMean) loss = MeanOf(loss, all);
    if (reduction == kSum) loss = SumOf(loss, all);
    return hlo::ConvertTo(hlo::Reshape(loss, out.dims), out.dtype);
  }
};

struct MultiMarginLossBackward {
  static Shape Infer(const Arg&, const Arg& self, const Arg& target, const at::Scalar& p,
                     const at::Scalar&, const Arg* weight, int64_t) {
    MultiMarginLoss::Check(self, target, p, weight);
    return self.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target, Number p, Value margin,
                     std::optional<Value> weight, int64_t reduction) {
    Value x = AtLeast1d(Widen(self));
    int64_t dim = x.rank() - 1;
    MarginTerms m(x, target, margin, weight);
    Value slope = p.real() == 2 ? Times(m.excess, 2) : FullLike(x, 1);
    slope = Where(m.other, hlo::Mul(slope, m.weight), 0);
    Value own = hlo::Neg(AlongKept(SumOf(slope, {dim}), x, {dim}));
    Value row = hlo::Reshape(target, Span(x.dims()).first(x.dims().size() - 1));
    slope = hlo::Select(IsTarget(row, x.shape(), dim), own, slope);
    double count = static_cast<double>(x.dim(-1));
    if (reduction == kMean) count *= static_cast<double>(target.shape().numel());
    Value g = hlo::ConvertTo(grad, x.dtype());
    if (g.rank() > 0) g = hlo::Reshape(g, row.dims());
    Value dx = hlo::Mul(AlongClasses(g, x.shape(), dim), slope);
    return hlo::ConvertTo(hlo::Reshape(Times(dx, 1 / count), out.dims), out.dtype);
  }
};

// ---- multilabel_margin_loss: targets of a row are class numbers up to the first negative one. The
// sum over pairs of a target and another class of max(0, 1 - x[target] + x[class]) / classes.

struct MultilabelTerms {
  Value x;          // [rows, classes]
  Value named;      // [rows, targets, classes]: whether the class is this target
  Value is_target;  // [rows, classes]
  Value counts;     // [rows, targets, classes]: whether the pair has a part in the loss
  Value excess;     // [rows, targets, classes]

  MultilabelTerms(Value self, Value target) {
    int64_t classes = self.rank() == 0 ? 1 : self.dim(-1),
            rows = self.rank() == 2 ? self.dim(0) : 1;
    x = hlo::Reshape(Widen(self), {rows, classes});
    target = hlo::Reshape(target, {rows, classes});
    const Dims pairs{rows, classes, classes};
    Value place = hlo::Iota(x.builder(), target.shape(), 1);
    Value end = FullLike(place, static_cast<double>(classes));
    Value first = hlo::Reduce(hlo::Select(LtZero(target), place, end), {1}, hlo::Reducer::kMin);
    Value valid = hlo::Lt(place, hlo::BroadcastInDim(first, place.dims(), {0}));
    valid = hlo::BroadcastInDim(valid, pairs, {0, 1});
    Value number = hlo::BroadcastInDim(target, pairs, {0, 1});
    named = hlo::And(valid, hlo::Eq(number, hlo::Iota(x.builder(), number.shape(), 2)));
    is_target = hlo::Reduce(named, {1}, hlo::Reducer::kOr);
    Value all = hlo::BroadcastInDim(x, pairs, {0, 2});
    Value own = hlo::BroadcastInDim(SumOf(Where(named, all, 0), {2}), pairs, {0, 1});
    excess = hlo::Add(RSub(1, own), all);
    counts = hlo::And(valid, hlo::Not(hlo::BroadcastInDim(is_target, pairs, {0, 2})));
    counts = hlo::And(counts, hlo::Gt(excess, FullLike(excess, 0)));
  }
};

struct MultilabelMarginLoss {
  static std::array<Shape, 2> Infer(const Arg& self, const Arg& target, int64_t reduction) {
    XLA_CHECK(self.rank() <= 2 && (self.rank() < 2 || self.dim(1) > 0) &&
                  target.numel() == self.numel() && target.dtype() == DType::kS64 &&
                  (self.rank() < 2 ? target.rank() <= 1 : target.dims() == self.dims()),
              kInvalidArgument, "inconsistent target size: ", ToString(target.dims()),
              " for input of size: ", ToString(self.dims()));
    bool none = reduction == kNone && self.rank() == 2;
    return {self.shape().with(none ? Dims{self.dim(0)} : Dims{}), self.shape().with(target.dims())};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, Value target,
                                    int64_t reduction) {
    if (self.shape().numel() == 0) {
      Value none = hlo::Full(self.builder(), out[0], reduction == kMean ? NAN : 0);
      return {none, hlo::Full(self.builder(), out[1], 0)};
    }
    MultilabelTerms m(self, target);
    Value loss = SumOf(Where(m.counts, m.excess, 0), {1, 2});
    loss = Times(loss, 1 / static_cast<double>(m.x.dim(1)));
    if (reduction == kMean) loss = MeanOf(loss, {0});
    if (reduction == kSum) loss = SumOf(loss, {0});
    return {hlo::ConvertTo(hlo::Reshape(loss, out[0].dims), out[0].dtype),
            hlo::ConvertTo(hlo::Reshape(m.is_target, out[1].dims), out[1].dtype)};
  }
};

struct MultilabelMarginLossBackward {
  static Shape Infer(const Arg&, const Arg& self, const Arg&, int64_t, const Arg&) {
    return self.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value self, Value target, int64_t reduction,
                     Value) {
    if (out.numel() == 0) return hlo::Full(self.builder(), out, 0);
    MultilabelTerms m(self, target);
    Value one = hlo::ConvertTo(m.counts, m.x.dtype());
    Value own = hlo::BroadcastInDim(SumOf(one, {2}), one.dims(), {0, 1});
    Value dx = hlo::Sub(SumOf(one, {1}), SumOf(Where(m.named, own, 0), {1}));
    double count = static_cast<double>(m.x.dim(1));
    if (reduction == kMean) count *= static_cast<double>(m.x.dim(0));
    Value g = hlo::ConvertTo(grad, dx.dtype());
    g = g.rank() == 0 ? FitTo(g, dx) : hlo::BroadcastInDim(g, dx.dims(), {0});
    return hlo::ConvertTo(hlo::Reshape(Times(hlo::Mul(dx, g), 1 / count), out.dims), out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<nll_loss_forward, NllForward<false>>(m);
  Register<nll_loss_backward, NllBackward<false>>(m);
  Register<nll_loss2d_forward, NllForward<true>>(m);
  Register<nll_loss2d_backward, NllBackward<true>>(m);
  Register<multi_margin_loss, MultiMarginLoss>(m);
  Register<multi_margin_loss_backward, MultiMarginLossBackward>(m);
  Register<multilabel_margin_loss_forward, MultilabelMarginLoss>(m);
  Register<multilabel_margin_loss_backward, MultilabelMarginLossBackward>(m);
}

}  // namespace torch_xla::ops
