// Running sums, products and extremes along a dimension.
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/cummax_ops.h>
#include <ATen/ops/cummin_ops.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/logcumsumexp_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

using Values = std::vector<Value>;
// (earlier, later) -> both together; associative. Values of several results go together.
using Combine = std::function<Values(const Values&, const Values&)>;

Values SliceAll(const Values& xs, int64_t dim, int64_t from, int64_t to) {
  Values out;
  for (Value x : xs) out.push_back(hlo::SliceDim(x, dim, from, to));
  return out;
}

Values ConcatAll(const Values& a, const Values& b, int64_t dim) {
  Values out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(hlo::Concatenate({a[i], b[i]}, dim));
  return out;
}

// In log2(n) steps: after step k every element is made of 2^k.
Values ScanShort(Values xs, int64_t dim, const Combine& combine) {
  int64_t n = xs[0].dim(dim);
  for (int64_t k = 1; k < n; k *= 2) {
    Values later = combine(SliceAll(xs, dim, 0, n - k), SliceAll(xs, dim, k, n));
    xs = ConcatAll(SliceAll(xs, dim, 0, k), later, dim);
  }
  return xs;
}

// Long dimensions in blocks: within them, over their ends, and the ends into the next block.
Values Scan(Values xs, int64_t dim, const Combine& combine) {
  constexpr int64_t kBlock = 16;
  int64_t n = xs[0].dim(dim);
  if (n <= 2 * kBlock) return ScanShort(std::move(xs), dim, combine);
  int64_t blocks = (n + kBlock - 1) / kBlock;
  auto d = static_cast<size_t>(dim);
  Dims high(xs[0].dims().size(), 0), none = high;
  high[d] = blocks * kBlock - n;
  Values parts;
  for (Value x : xs) {
    x = hlo::Pad(x, hlo::Scalar(x.builder(), x.dtype(), 0), none, high, none);
    Dims split = x.dims();
    split[d] = blocks;
    split.insert(d + 1, kBlock);
    parts.push_back(hlo::Reshape(x, split));
  }
  parts = ScanShort(std::move(parts), dim + 1, combine);
  Values ends;
  for (Value x : SliceAll(parts, dim + 1, kBlock - 1, kBlock)) {
    Dims dims = x.dims();
    dims.erase(d + 1);
    ends.push_back(hlo::Reshape(x, dims));
  }
  ends = SliceAll(Scan(std::move(ends), dim, combine), dim, 0, blocks - 1);
  Values rest = SliceAll(parts, dim, 1, blocks);
  Dims kept;
  for (int64_t i = 0; i <= xs[0].rank(); ++i) {
    if (i != dim + 1) kept.push_back(i);
  }
  Values carried;
  for (size_t i = 0; i < ends.size(); ++i) {
    carried.push_back(hlo::BroadcastInDim(ends[i], rest[i].dims(), kept));
  }
  parts = ConcatAll(SliceAll(parts, dim, 0, 1), combine(carried, rest), dim);
  Values out;
  for (size_t i = 0; i < parts.size(); ++i) {
    Dims joined = xs[i].dims();
    joined[d] = blocks * kBlock;
    out.push_back(hlo::SliceDim(hlo::Reshape(parts[i], joined), dim, 0, n));
  }
  return out;
}

// Along the dimension; nothing to do for 0-d and empty ones.
Values ScanDim(const Values& xs, int64_t dim, const Combine& combine) {
  if (xs[0].rank() == 0 || xs[0].shape().numel() == 0) return xs;
  return Scan(xs, WrapDim(dim, xs[0].rank()), combine);
}

template <auto kFn>
struct Cumulative {
  static Shape Infer(const Arg& self, int64_t dim, std::optional<DType> dtype) {
    WrapDim(dim, self.rank());
    return self.shape().with(
        dtype.value_or(IsIntOrBool(self.dtype()) ? DType::kS64 : self.dtype()));
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, std::optional<DType>) {
    Value x = Widen(hlo::ConvertTo(self, out.dtype));
    auto combine = [](const Values& a, const Values& b) { return Values{kFn(a[0], b[0])}; };
    return hlo::ConvertTo(ScanDim({x}, dim, combine)[0], out.dtype);
  }
};

Value LogAdd(Value a, Value b) {
  Value high = hlo::Max(a, b);
  Value y = hlo::Add(high, hlo::Log1p(hlo::Exp(hlo::Neg(hlo::Abs(hlo::Sub(a, b))))));
  return hlo::Select(hlo::And(IsInf(a), hlo::Eq(a, b)), a, y);
}

struct Logcumsumexp {
  static Shape Infer(const Arg& self, int64_t dim) {
    WrapDim(dim, self.rank());
    CheckImplemented(IsFloat(self.dtype()), "logcumsumexp_out_cpu", self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, int64_t dim) {
    return Cumulative<LogAdd>::Lower(self.shape(), self, dim, {});
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
    auto combine = [](const Values& a, const Values& c) {
      Value take = kMax ? hlo::Ge(c[0], a[0]) : hlo::Le(c[0], a[0]);
      if (IsFloat(a[0].dtype())) take = hlo::Or(take, IsNan(c[0]));
      return Values{hlo::Select(take, c[0], a[0]), hlo::Select(take, c[1], a[1])};
    };
    Values y = ScanDim({self, i}, dim, combine);
    return {y[0], hlo::ConvertTo(y[1], DType::kS64)};
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<cumsum, Cumulative<hlo::Add>>(m);
  Register<cumprod, Cumulative<hlo::Mul>>(m);
  Register<_logcumsumexp, Logcumsumexp>(m);
  Register<logcumsumexp, Logcumsumexp>(m);
  Register<cummax, CumulativeExtreme<true>>(m);
  Register<cummin, CumulativeExtreme<false>>(m);
}

}  // namespace torch_xla::ops
