// Distances between the rows of two matrices (cdist) or of one (pdist), and their gradients.
#include <ATen/ops/_cdist_backward_ops.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/_pdist_backward_ops.h>
#include <ATen/ops/_pdist_forward_ops.h>

#include "ops/reduce.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

// Without the last two dimensions.
Dims Batch(const Dims& dims) { return Span(dims).first(dims.size() - 2); }

// x1[batch, p, m] and x2[batch, r, m] -> their differences [batch, p, r, m].
Value Differences(Value x1, Value x2) {
  Dims batch = Broadcast(Batch(x1.dims()), Batch(x2.dims()));
  Dims all = batch;
  all.push_back(x1.dim(-2));
  all.push_back(x2.dim(-2));
  all.push_back(x1.dim(-1));
  auto spread = [&](Value x, size_t from_end) {
    Dims dims = x.dims();
    dims.insert(dims.size() - from_end, 1);
    return hlo::BroadcastTo(hlo::Reshape(x, dims), all);
  };
  return hlo::Sub(spread(x1, 1), spread(x2, 2));
}

Value PowerOf(Value x, double p) { return hlo::Pow(x, FullLike(x, p)); }

Value Norm(Value d, double p) {
  const Dims last = {d.rank() - 1};
  Value a = hlo::Abs(d);
  if (p == 0)
    return SumOf(hlo::Select(IsNan(d), d, hlo::ConvertTo(hlo::Ne(d, FullLike(d, 0)), d.dtype())),
                 last);
  if (p == 1) return SumOf(a, last);
  if (p == 2) return hlo::Sqrt(SumOf(Square(d), last));
  if (std::isinf(p)) return MaxOrZero(a, last);
  return PowerOf(SumOf(PowerOf(a, p), last), 1 / p);
}

// The gradient of each difference: grad and dist are without its last dimension.
Value NormGradient(Value d, Value grad, Value dist, double p) {
  const Dims last = {d.rank() - 1};
  Value g = AlongKept(grad, d, last), n = AlongKept(dist, d, last);
  if (p == 0) return FullLike(d, 0);
  if (p == 1) return hlo::Mul(g, hlo::Sign(d));
  if (std::isinf(p))
    return hlo::Mul(hlo::Mul(g, hlo::Sign(d)), hlo::ConvertTo(hlo::Eq(hlo::Abs(d), n), d.dtype()));
  Value slope;
  if (p == 2) {
    slope = hlo::Div(hlo::Mul(g, d), n);
  } else {
    Value power = hlo::Mul(hlo::Sign(d), PowerOf(hlo::Abs(d), p - 1));
    if (p < 1) power = hlo::Select(IsZero(d), FullLike(d, 0), power);
    slope = hlo::Div(hlo::Mul(power, g), PowerOf(n, p - 1));
  }
  return hlo::Select(IsZero(n), FullLike(d, 0), slope);
}

void CheckReal(const Arg& x, const char* kernel) {
  CheckImplemented(x.dtype() == DType::kF32 || x.dtype() == DType::kF64, kernel, x.dtype());
}

struct CdistForward {
  static Shape Infer(const Arg& x1, const Arg& x2, double p, std::optional<int64_t> mode) {
    XLA_CHECK(x1.rank() >= 2 && x2.rank() >= 2 && x1.dim(-1) == x2.dim(-1) && p >= 0 &&
                  x1.dtype() == x2.dtype() && IsFloat(x1.dtype()) && mode.value_or(0) >= 0 &&
                  mode.value_or(0) <= 2,
              kInvalidArgument, "cdist of ", ToString(x1.shape()), " and ", ToString(x2.shape()));
    Dims out = Broadcast(Batch(x1.dims()), Batch(x2.dims()));
    out.push_back(x1.dim(-2));
    out.push_back(x2.dim(-2));
    if (x1.dim(-1) != 0 && Product(out) != 0) CheckReal(x1, "cdist");
    return x1.shape().with(out);
  }
  static Value Lower(const Shape& out, Value x1, Value x2, double p, std::optional<int64_t>) {
    if (out.numel() == 0 || x1.dim(-1) == 0) return hlo::Full(x1.builder(), out, 0);
    return Norm(Differences(x1, x2), p);
  }
};

struct CdistBackward {
  static Shape Infer(const Arg& grad, const Arg& x1, const Arg& x2, double, const Arg& dist) {
    // torch.func gives it a batch of gradients, and takes what comes for one of them.
    TORCH_CHECK_NOT_IMPLEMENTED(grad.rank() <= dist.rank(),
                                "_cdist_backward: vmap over the gradient alone is not implemented, "
                                "expected dimensions ",
                                ToString(dist.dims()), ", got ", ToString(grad.dims()));
    Dims out = Broadcast(Batch(x1.dims()), Batch(x2.dims()));
    out.push_back(x1.dim(-2));
    out.push_back(x1.dim(-1));
    return x1.shape().with(out);
  }
  static Value Lower(const Shape& out, Value grad, Value x1, Value x2, double p, Value dist) {
    if (out.numel() == 0 || x2.shape().numel() == 0) return hlo::Full(x1.builder(), out, 0);
    Value d = Differences(x1, x2);
    return SumOf(NormGradient(d, grad, dist, p), {d.rank() - 2});
  }
};

// Row and column of each pair i < j of n, in the order of pdist: of pair k, i is the largest with
// i * (2n - i - 1) / 2 <= k.
std::array<Value, 2> Pairs(Builder& b, int64_t n) {
  Shape shape{DType::kS64, {n * (n - 1) / 2}};
  Value k = hlo::Iota(b, shape, 0);
  Value m = hlo::FullInt(b, shape, 2 * n - 1);
  Value f = hlo::ConvertTo(m, DType::kF64);
  Value root = hlo::Sqrt(hlo::Sub(Square(f), Times(hlo::ConvertTo(k, DType::kF64), 8)));
  Value i = hlo::ConvertTo(hlo::Floor(Times(hlo::Sub(f, root), 0.5)), DType::kS64);
  auto before = [&](Value row) {
    return hlo::Div(hlo::Mul(row, hlo::Sub(m, row)), FullLike(row, 2));
  };
  i = hlo::Select(hlo::Gt(before(i), k), Plus(i, -1), i);  // the root may be rounded
  i = hlo::Select(hlo::Le(before(Plus(i, 1)), k), Plus(i, 1), i);
  return {i, hlo::Add(hlo::Sub(k, before(i)), Plus(i, 1))};
}

struct PdistForward {
  static Shape Infer(const Arg& self, double p) {
    XLA_CHECK(self.rank() == 2 && p >= 0, kInvalidArgument, "pdist of ", ToString(self.shape()));
    int64_t n = self.dim(0);
    if (n > 1 && self.dim(1) != 0) CheckReal(self, "pdist");
    return self.shape().with(Dims{n > 1 ? n * (n - 1) / 2 : 0});
  }
  static Value Lower(const Shape& out, Value self, double p) {
    if (out.numel() == 0 || self.dim(1) == 0) return hlo::Full(self.builder(), out, 0);
    auto [i, j] = Pairs(self.builder(), self.dim(0));
    return Norm(hlo::Sub(Take(self, 0, i), Take(self, 0, j)), p);
  }
};

struct PdistBackward {
  static Shape Infer(const Arg&, const Arg& self, double, const Arg&) { return self.shape(); }
  static Value Lower(const Shape& out, Value grad, Value self, double p, Value dist) {
    Value zero = hlo::Full(self.builder(), out, 0);
    if (out.numel() == 0 || dist.shape().numel() == 0) return zero;
    auto [i, j] = Pairs(self.builder(), self.dim(0));
    Value g = NormGradient(hlo::Sub(Take(self, 0, i), Take(self, 0, j)), grad, dist, p);
    Value y = ScatterDim(zero, 0, i, g, Combine(hlo::Reducer::kSum));
    return ScatterDim(y, 0, j, hlo::Neg(g), Combine(hlo::Reducer::kSum));
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_cdist_forward, CdistForward>(m);
  Register<at::_ops::_cdist_backward, CdistBackward>(m);
  Register<at::_ops::_pdist_forward, PdistForward>(m);
  Register<at::_ops::_pdist_backward, PdistBackward>(m);
}

}  // namespace torch_xla::ops
