// Looking values up in sorted ones, and counting equal ones. NaN counts as larger than every
// number.
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/isin_ops.h>
#include <ATen/ops/mode_ops.h>
#include <ATen/ops/searchsorted_ops.h>

#include <bit>

#include "ops/reduce.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

// Of rows of sorted numbers [b, n] and rows of values [b, m]: how many numbers stand before each
// value, or (right) before or at it. One gather for each halving.
Value CountBefore(Value sorted, Value values, bool right) {
  int64_t n = sorted.dim(1);
  Builder& b = sorted.builder();
  Shape index = values.shape().with(DType::kS64);
  Value low = hlo::Full(b, index, 0);
  if (n == 0 || values.shape().numel() == 0) return low;
  Value high = hlo::FullInt(b, index, n);
  for (int i = std::bit_width(static_cast<uint64_t>(n)); i > 0; --i) {
    Value middle = hlo::Div(hlo::Add(low, high), FullLike(low, 2));
    Value at = GatherAlong(sorted, 1, middle);
    // PyTorch's comparison, that NaN values pass to the end.
    Value after = hlo::Not(right ? hlo::Gt(at, values) : hlo::Ge(at, values));
    Value open = hlo::Lt(low, high);
    low = hlo::Select(hlo::And(open, after), Plus(middle, 1), low);
    high = hlo::Select(hlo::And(open, hlo::Not(after)), middle, high);
  }
  return low;
}

DType Common(Value sorted, Value v, bool is_number) {
  bool as_sorted = is_number && !(IsFloat(v.dtype()) && IsIntOrBool(sorted.dtype()));
  if (as_sorted) return sorted.dtype();
  if (is_number) return DType::kF32;
  return ToDType(c10::promoteTypes(ToScalarType(sorted.dtype()), ToScalarType(v.dtype())));
}

Value Search(const Shape& out, Value sorted, Value values, bool right, bool is_number) {
  DType t = Common(sorted, values, is_number);
  bool one = sorted.rank() == 1;
  int64_t rows = one ? 1 : Product(Span(sorted.dims()).first(sorted.dims().size() - 1));
  auto as_rows = [&](Value x, int64_t n) {
    return hlo::Reshape(hlo::ConvertTo(x, t), {rows, rows == 0 ? 0 : n / rows});
  };
  if (out.numel() == 0) return hlo::Full(sorted.builder(), out, 0);
  Value found = CountBefore(as_rows(sorted, sorted.shape().numel()),
                            as_rows(values, values.shape().numel()), right);
  return hlo::Reshape(hlo::ConvertTo(found, out.dtype), out.dims);
}

Shape FoundShape(const Dims& sorted, const Dims& values, bool out_int32) {
  bool fits = !sorted.empty() && (sorted.size() == 1 || sorted.size() == values.size());
  for (size_t i = 0; fits && sorted.size() > 1 && i + 1 < sorted.size(); ++i) {
    fits = sorted[i] == values[i];
  }
  XLA_CHECK(fits, kInvalidArgument, "torch.searchsorted(): boundaries of shape ", ToString(sorted),
            " for values of shape ", ToString(values));
  return {out_int32 ? DType::kS32 : DType::kS64, values};
}

struct SearchSorted {
  template <typename V>
  static Shape Infer(const Arg& sorted, const V& values, bool out_int32, bool right,
                     std::optional<std::string_view> side, const Arg* sorter) {
    XLA_CHECK(!side || *side == "left" || *side == "right", kInvalidArgument,
              "torch.searchsorted(): side can only be 'left' or 'right' but got ", *side);
    XLA_CHECK(!side || !right || *side == "right", kInvalidArgument,
              "torch.searchsorted(): side and right can't be set to opposites");
    XLA_CHECK(!sorter || (sorter->dims() == sorted.dims() && sorter->dtype() == DType::kS64),
              kInvalidArgument, "torch.searchsorted(): sorter must be int64 and of the same shape");
    XLA_CHECK(!IsComplex(sorted.dtype()) && sorted.rank() > 0, kInvalidArgument,
              "torch.searchsorted(): boundaries must be real and have a dimension");
    if constexpr (std::is_same_v<V, Arg>) {
      XLA_CHECK(values.wrapped() || values.dtype() == sorted.dtype(), kInvalidArgument,
                "torch.searchsorted(): boundaries and values differ in dtype");
      return FoundShape(sorted.dims(), values.dims(), out_int32);
    } else {
      XLA_CHECK(sorted.rank() == 1, kInvalidArgument,
                "torch.searchsorted(): a number needs boundaries of one dimension");
      return FoundShape(sorted.dims(), {}, out_int32);
    }
  }
  static Value Lower(const Shape& out, Value sorted, Value values, bool, bool right,
                     std::optional<std::string_view> side, std::optional<Value> sorter) {
    if (sorter) sorted = GatherAlong(sorted, sorted.rank() - 1, *sorter);
    return Search(out, sorted, values, right || (side && *side == "right"), values.rank() == 0);
  }
};

struct Bucketize {
  template <typename V>
  static Shape Infer(const V& values, const Arg& boundaries, bool out_int32, bool) {
    XLA_CHECK(boundaries.rank() == 1 && !IsComplex(boundaries.dtype()), kInvalidArgument,
              "bucketize(): boundaries tensor must be 1 dimension");
    if constexpr (std::is_same_v<V, Arg>) {
      XLA_CHECK(!IsComplex(values.dtype()), kInvalidArgument, "bucketize(): complex values");
      return FoundShape(boundaries.dims(), values.dims(), out_int32);
    } else {
      return FoundShape(boundaries.dims(), {}, out_int32);
    }
  }
  static Value Lower(const Shape& out, Value values, Value boundaries, bool, bool right) {
    return Search(out, boundaries, values, right, values.rank() == 0);
  }
};

// ---- isin

Value IsIn(const Shape& out, Value x, Value among, bool invert) {
  Builder& b = x.builder();
  DType t = ToDType(c10::promoteTypes(ToScalarType(x.dtype()), ToScalarType(among.dtype())));
  x = hlo::ConvertTo(x, t);
  among = hlo::Reshape(hlo::ConvertTo(among, t), {1, among.shape().numel()});
  Value found;
  int64_t n = among.dim(1), m = x.shape().numel();
  constexpr int64_t kFew = 16;  // comparisons that cost less than sorting
  if (n == 0 || m == 0) {
    found = hlo::Full(b, out, 0);
  } else if (n <= kFew) {
    Dims all = x.dims();
    all.push_back(n);
    Value hit = hlo::Eq(hlo::BroadcastInDim(x, all, Range(x.rank())),
                        hlo::BroadcastTo(hlo::Reshape(among, {n}), all));
    found = hlo::Reduce(hit, {x.rank()}, hlo::Reducer::kOr);
  } else {
    const Value operands[] = {among};
    Value sorted = hlo::Sort(operands, 1, true, [](Builder&, std::span<const Value> v) {
      Value before = hlo::Lt(v[0], v[1]);
      if (IsFloat(v[0].dtype()))
        before = hlo::Or(before, hlo::And(IsNan(v[1]), hlo::Not(IsNan(v[0]))));
      return std::vector<Value>{before};
    })[0];
    Value row = hlo::Reshape(x, {1, m});
    Value at = CountBefore(sorted, row, false);
    at = hlo::Min(at, FullLike(at, static_cast<double>(n - 1)));
    found = hlo::Reshape(hlo::Eq(GatherAlong(sorted, 1, at), row), out.dims);
  }
  return invert ? hlo::Not(found) : found;
}

void CheckIsIn(DType t) {
  XLA_CHECK(!IsComplex(t) && t != DType::kBool, kInvalidArgument, "isin(): unsupported dtype ",
            TorchName(t));
}

struct IsInTensor {
  template <typename V>
  static Shape Infer(const Arg& x, const V& among, bool, bool) {
    CheckIsIn(x.dtype());
    if constexpr (std::is_same_v<V, Arg>) CheckIsIn(among.dtype());
    return x.shape().with(DType::kBool);
  }
  static Value Lower(const Shape& out, Value x, Value among, bool, bool invert) {
    if (among.rank() == 0 && IsFloat(x.dtype()) && IsFloat(among.dtype())) {
      among = hlo::ConvertTo(among, x.dtype());  // a number takes part in promotion last
    }
    return IsIn(out, x, among, invert);
  }
};

struct IsInScalar {
  static Shape Infer(const at::Scalar&, const Arg& among, bool, bool) {
    CheckIsIn(among.dtype());
    return {DType::kBool, {}};
  }
  static Value Lower(const Shape& out, Value x, Value among, bool, bool invert) {
    if (IsFloat(x.dtype()) && IsFloat(among.dtype())) x = hlo::ConvertTo(x, among.dtype());
    return IsIn(out, x, among, invert);
  }
};

// ---- histc

struct Histc {
  static Shape Infer(const Arg& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
    CheckImplemented(IsFloat(self.dtype()), "histogram_cpu", self.dtype());
    TORCH_CHECK(bins > 0, "bins must be > 0, but got ", bins, " for dimension 0");
    TORCH_CHECK(min.toDouble() <= max.toDouble(), "torch.histc: max must be larger than min");
    XLA_CHECK(std::isfinite(min.toDouble()) && std::isfinite(max.toDouble()), kInvalidArgument,
              "torch.histc: range of [", min.toDouble(), ", ", max.toDouble(), "] is not finite");
    return self.shape().with(Dims{bins});
  }
  static Value Lower(const Shape& out, Value self, int64_t bins, Value min, Value max) {
    Value x = hlo::Reshape(Widen(self), {self.shape().numel()});
    if (x.dim(0) == 0) return hlo::Full(x.builder(), out, 0);
    // Half types are counted in float32, but their places are rounded step by step.
    auto rounded = [&](Value v) {
      if (out.dtype == DType::kBF16) return hlo::ReducePrecision(v, 8, 7);
      return out.dtype == DType::kF16 ? hlo::ReducePrecision(v, 5, 10) : v;
    };
    Value low = rounded(hlo::ConvertTo(min, x.dtype()));
    Value high = rounded(hlo::ConvertTo(max, x.dtype()));
    // No range given: that of the numbers; of equal ones, one to each side.
    Value given = hlo::Ne(low, high);
    low = hlo::Select(given, low, hlo::Reduce(x, {0}, hlo::Reducer::kMin));
    high = hlo::Select(given, high, hlo::Reduce(x, {0}, hlo::Reducer::kMax));
    Value equal = hlo::Eq(low, high);
    low = hlo::Select(equal, Plus(low, -1), low);
    high = hlo::Select(equal, Plus(high, 1), high);
    low = hlo::BroadcastTo(low, x.dims());
    high = hlo::BroadcastTo(high, x.dims());
    Value place = rounded(Times(rounded(hlo::Sub(x, low)), static_cast<double>(bins)));
    place = rounded(hlo::Div(place, rounded(hlo::Sub(high, low))));
    Value inside = hlo::And(hlo::Ge(x, low), hlo::Le(x, high));
    Value bin = hlo::ConvertTo(hlo::Floor(Where(inside, place, 0)), DType::kS64);
    bin = hlo::Min(bin, FullLike(bin, static_cast<double>(bins - 1)));
    bin = Where(inside, bin, static_cast<double>(bins));  // out of range: skipped
    Value count = ScatterDim(hlo::Full(x.builder(), out.with(x.dtype()), 0), 0, bin, FullLike(x, 1),
                             Combine(hlo::Reducer::kSum));
    return hlo::ConvertTo(count, out.dtype);
  }
};

// ---- mode: the smallest of the most frequent values, and the last place where it is.

struct Mode {
  static std::array<Shape, 2> Infer(const Arg& self, int64_t dim, bool keepdim) {
    dim = WrapDim(dim, self.rank());
    CheckImplemented(!IsComplex(self.dtype()), "mode", self.dtype());
    TORCH_CHECK_INDEX(self.rank() == 0 || self.dim(dim) != 0, "mode(): Expected reduction dim ",
                      dim, " to have non-zero size.");
    Dims out = self.rank() == 0 ? self.dims() : ReducedDims(self.dims(), {dim}, keepdim);
    return {self.shape().with(out), Shape{DType::kS64, out}};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, int64_t dim, bool) {
    Value x = AtLeast1d(self);
    dim = WrapDim(dim, x.rank());
    int64_t n = x.dim(dim);
    Value operands[] = {x, IotaLike(x, dim)};
    auto sorted = hlo::Sort(operands, dim, true, [](Builder&, std::span<const Value> v) {
      Value before = hlo::Lt(v[0], v[1]);
      if (IsFloat(v[0].dtype()))
        before = hlo::Or(before, hlo::And(IsNan(v[1]), hlo::Not(IsNan(v[0]))));
      return std::vector<Value>{before};
    });
    Value values = sorted[0], i = operands[1];
    // A run begins where the value changes; a running maximum carries its beginning along.
    Value begins = i;
    if (n > 1) {
      Value same = hlo::Eq(hlo::SliceDim(values, dim, 1, n), hlo::SliceDim(values, dim, 0, n - 1));
      Value first = hlo::Full(x.builder(), Sized(values, dim, 1).with(DType::kBool), 0);
      same = hlo::Concatenate({first, same}, dim);
      begins = RunningMax(Where(same, FullLike(i, 0), i), dim);
    }
    Value length = hlo::Sub(i, begins);
    Value longest = hlo::Reduce(length, {dim}, hlo::Reducer::kMax);
    Value place = hlo::Reshape(FirstIndex(length, longest, {dim}), Sized(values, dim, 1).dims);
    return {hlo::Reshape(GatherAlong(values, dim, place), out[0].dims),
            hlo::Reshape(GatherAlong(sorted[1], dim, place), out[1].dims)};
  }

 private:
  static Shape Sized(Value x, int64_t dim, int64_t n) {
    Dims dims = x.dims();
    dims[At(dim)] = n;
    return x.shape().with(dims);
  }
  static Value RunningMax(Value x, int64_t dim) {
    Dims ones(At(x.rank()), 1), window = ones, low(At(x.rank()), 0), high = low;
    window[At(dim)] = x.dim(dim);
    low[At(dim)] = x.dim(dim) - 1;
    return hlo::ReduceWindow(x, ScalarOf(x, 0), window, ones, ones, ones, low, high,
                             hlo::Reducer::kMax);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::searchsorted_Tensor, SearchSorted>(m);
  Register<at::_ops::searchsorted_Scalar, SearchSorted>(m);
  Register<at::_ops::bucketize_Tensor, Bucketize>(m);
  Register<at::_ops::bucketize_Scalar, Bucketize>(m);
  Register<at::_ops::isin_Tensor_Tensor, IsInTensor>(m);
  Register<at::_ops::isin_Tensor_Scalar, IsInTensor>(m);
  Register<at::_ops::isin_Scalar_Tensor, IsInScalar>(m);
  Register<at::_ops::histc, Histc>(m);
  Register<at::_ops::mode, Mode>(m);
}

}  // namespace torch_xla::ops
