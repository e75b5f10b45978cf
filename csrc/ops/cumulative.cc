// Running sums, products and extremes along a dimension.
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/cummax_ops.h>
#include <ATen/ops/cummin_ops.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/logcumsumexp_ops.h>

#include "ops/common.h"
#include "ops/math.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// One reduction of the window that ends at each element: XLA's compilers make a scan in blocks of
// it (of a single operand; they trip over several).
template <typename Fn>
Value Scan(Value x, int64_t dim, Value identity, Fn combine) {
  if (x.rank() == 0 || x.shape().numel() == 0) return x;
  auto d = static_cast<size_t>(WrapDim(dim, x.rank()));
  Dims ones(x.dims().size(), 1), window(ones.size(), 1), low(ones.size(), 0);
  Dims high(ones.size(), 0);
  window[d] = x.dims()[d];
  low[d] = window[d] - 1;
  auto body = [&](Builder&, std::span<const Value> v) {
    return std::vector<Value>{combine(v[0], v[1])};
  };
  return hlo::ReduceWindow(std::span(&x, 1), std::span(&identity, 1), window, ones, ones, ones, low,
                           high, body)[0];
}

Value IdentityOf(Value x, double v) { return hlo::Full(x.builder(), {x.dtype(), {}}, v); }

template <auto kFn, double kIdentity>
struct Cumulative {
  static Shape Infer(const Arg& self, int64_t dim, std::optional<DType> dtype) {
    WrapDim(dim, self.rank());
    return self.shape().with(
        dtype.value_or(IsIntOrBool(self.dtype()) ? DType::kS64 : self.dtype()));
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, std::optional<DType>) {
    Value x = Widen(hlo::ConvertTo(self, out.dtype));
    return hlo::ConvertTo(Scan(x, dim, IdentityOf(x, kIdentity), kFn), out.dtype);
  }
};

struct Logcumsumexp {
  static Shape Infer(const Arg& self, int64_t dim) {
    WrapDim(dim, self.rank());
    CheckImplemented(!IsIntOrBool(self.dtype()), "logcumsumexp_out_cpu", self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, int64_t dim) {
    return Cumulative<LogAddExp, -HUGE_VAL>::Lower(self.shape(), self, dim, {});
  }
};

// The last of equals, and NaN from the first one on.
template <bool kMax>
struct CumulativeExtreme {
  static std::array<Shape, 2> Infer(const Arg& self, int64_t dim) {
    WrapDim(dim, self.rank());
    CheckImplemented(!IsComplex(self.dtype()), kMax ? "cummax_cpu" : "cummin_cpu", self.dtype());
    return {self.shape(), self.shape().with(DType::kS64)};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, int64_t dim) {
    Builder& b = self.builder();
    Shape index = out[1].with(DType::kS32);
    Value i =
        self.rank() == 0 ? hlo::Full(b, index, 0) : hlo::Iota(b, index, WrapDim(dim, self.rank()));
    Value worst = kMax ? hlo::MinValue(b, self.dtype()) : hlo::MaxValue(b, self.dtype());
    Value best = Scan(self, dim, worst, kMax ? hlo::Max : hlo::Min);
    // The place is the last one where an element was the best so far.
    Value hit = hlo::Eq(self, best);
    if (IsFloat(self.dtype())) hit = hlo::Or(hit, IsNan(self));
    Value place = Scan(Where(hit, i, 0), dim, hlo::ScalarInt(b, DType::kS32, 0), hlo::Max);
    return {best, hlo::ConvertTo(place, DType::kS64)};
  }
};

// What cummax.out and cummin.out write with.
template <typename AtOp>
void CumulativeHelper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices,
                      int64_t dim) {
  auto [best, place] = AtOp::call(self, dim);
  values.copy_(best);
  indices.copy_(place);
}

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::cumsum, Cumulative<hlo::Add, 0.0>>(m);
  Register<at::_ops::cumprod, Cumulative<hlo::Mul, 1.0>>(m);
  Register<at::_ops::_logcumsumexp, Logcumsumexp>(m);
  Register<at::_ops::logcumsumexp, Logcumsumexp>(m);
  Register<at::_ops::cummax, CumulativeExtreme<true>>(m);
  Register<at::_ops::cummin, CumulativeExtreme<false>>(m);
  m.impl("_cummax_helper", TORCH_FN(CumulativeHelper<at::_ops::cummax>));
  m.impl("_cummin_helper", TORCH_FN(CumulativeHelper<at::_ops::cummin>));
}

}  // namespace torch_xla::ops
