// Sorting and what is made of it. NaN counts as larger than every number, as in PyTorch.
#include <ATen/ops/kthvalue_ops.h>
#include <ATen/ops/median_ops.h>
#include <ATen/ops/nanmedian_ops.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/topk_ops.h>

#include <limits>

#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

// Whether a comes before b.
Value Before(Value a, Value b, bool descending) {
  Value before = descending ? hlo::Gt(a, b) : hlo::Lt(a, b);
  if (!IsFloat(a.dtype())) return before;
  Value first = descending ? a : b;
  Value second = descending ? b : a;
  return hlo::Or(before, hlo::And(IsNan(first), hlo::Not(IsNan(second))));
}

struct Sorted {
  Value values, indices;
};

// Along dim; a 0-d x must have become a vector.
Sorted SortDim(Value x, int64_t dim, bool descending) {
  const Value operands[] = {x, IotaLike(x, dim)};
  auto sorted =
      hlo::Sort(operands, dim, /*is_stable=*/true, [&](Builder&, std::span<const Value> v) {
        return std::vector<Value>{Before(v[0], v[1], descending)};
      });
  return {sorted[0], sorted[1]};
}

std::array<Shape, 2> WithIndices(const Shape& values) { return {values, values.with(DType::kS64)}; }

void CheckOrdered(const char* name, const Arg& self) {  // PyTorch's words, blank and all
  TORCH_CHECK(!IsComplex(self.dtype()), ' ', name, " does not support complex dtypes on CPU");
}

struct SortStable {
  static std::array<Shape, 2> Infer(const Arg& self, std::optional<bool>, int64_t dim, bool) {
    WrapDim(dim, self.rank());
    CheckOrdered("Sort", self);
    return WithIndices(self.shape());
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, std::optional<bool>,
                                    int64_t dim, bool descending) {
    Sorted s = SortDim(AtLeast1d(self), WrapDim(dim, self.rank()), descending);
    return {hlo::Reshape(s.values, out[0].dims), hlo::Reshape(s.indices, out[1].dims)};
  }
};

struct TopK {
  static std::array<Shape, 2> Infer(const Arg& self, int64_t k, int64_t dim, bool, bool) {
    dim = WrapDim(dim, self.rank());
    XLA_CHECK(k >= 0 && k <= (self.rank() == 0 ? 1 : self.dim(dim)), kInvalidArgument,
              "selected index k out of range");
    CheckOrdered("topk", self);
    Dims out = self.dims();
    if (!out.empty()) out[At(dim)] = k;
    return WithIndices(self.shape().with(out));
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, int64_t k,
                                    int64_t dim, bool largest, bool) {
    dim = WrapDim(dim, self.rank());
    Value x = AtLeast1d(self);
    Sorted s = Wide(x.dtype()) == DType::kF32 && k < x.dim(dim) ? Float(x, k, dim, largest)
                                                                : SortDim(x, dim, largest);
    return {hlo::Reshape(hlo::SliceDim(s.values, dim, 0, k), out[0].dims),
            hlo::Reshape(hlo::SliceDim(s.indices, dim, 0, k), out[1].dims)};
  }

 private:
  // In the form that XLA turns into a selection: rows of float32 with int32 positions, compared by
  // their bits as integers. NaN gets the bits of the largest or, of the negated, the lowest.
  static Sorted Float(Value x, int64_t k, int64_t dim, bool largest) {
    Builder& b = x.builder();
    Value key = hlo::ConvertTo(x, DType::kF32);
    uint32_t nan = largest ? 0x7FC00000 : 0xFFC00000;
    Value nans = hlo::BroadcastTo(hlo::Constant(b, {DType::kF32, {}}, &nan), x.dims());
    key = hlo::Select(IsNan(key), nans, largest ? key : hlo::Neg(key));
    Dims perm = AllBut(x.rank(), dim);
    perm.push_back(dim);
    key = hlo::Transpose(key, perm);
    Dims sorted = key.dims();
    int64_t n = sorted.back();
    key = hlo::Reshape(key, {x.shape().numel() / n, n});
    const Value operands[] = {key, IotaLike(key, 1, DType::kS32)};
    auto in_order = hlo::Sort(operands, 1, /*is_stable=*/true, [](Builder& c, auto v) {
      auto bits = [&](Value f) {
        Value i = hlo::BitcastConvert(f, DType::kS32);
        Value flipped =
            hlo::Xor(i, hlo::ScalarInt(c, DType::kS32, std::numeric_limits<int32_t>::max()));
        return hlo::Select(hlo::Lt(i, hlo::ScalarInt(c, DType::kS32, 0)), flipped, i);
      };
      return std::vector<Value>{hlo::Gt(bits(v[0]), bits(v[1]))};
    });
    sorted.back() = k;
    Dims back = Range(x.rank() - 1);
    back.insert(At(dim), x.rank() - 1);
    for (Value& v : in_order)
      v = hlo::Transpose(hlo::Reshape(hlo::SliceDim(v, 1, 0, k), sorted), back);
    Value values = largest ? in_order[0] : hlo::Neg(in_order[0]);
    return {hlo::ConvertTo(values, x.dtype()), hlo::ConvertTo(in_order[1], DType::kS64)};
  }
};

Dims Reduced(const Arg& self, int64_t dim, bool keepdim) {
  return self.rank() == 0 ? self.dims() : ReducedDims(self.dims(), {dim}, keepdim);
}

void CheckNotEmpty(const char* name, const Arg& self, int64_t dim) {
  TORCH_CHECK_INDEX(self.rank() == 0 || self.dim(dim) != 0, name, ": Expected reduction dim ", dim,
                    " to have non-zero size.");
}

// One element of the sorted values and where it was.
std::array<Value, 2> Pick(const Sorted& s, int64_t dim, int64_t k, const std::vector<Shape>& out) {
  return {hlo::Reshape(hlo::SliceDim(s.values, dim, k, k + 1), out[0].dims),
          hlo::Reshape(hlo::SliceDim(s.indices, dim, k, k + 1), out[1].dims)};
}

struct KthValue {
  static std::array<Shape, 2> Infer(const Arg& self, int64_t k, int64_t dim, bool keepdim) {
    dim = WrapDim(dim, self.rank());
    CheckNotEmpty("kthvalue()", self, dim);
    TORCH_CHECK(k >= 1 && k <= (self.rank() == 0 ? 1 : self.dim(dim)),
                "kthvalue(): selected number k out of range for dimension ", dim);
    CheckImplemented(!IsComplex(self.dtype()), "kthvalue_cpu", self.dtype());
    return WithIndices(self.shape().with(Reduced(self, dim, keepdim)));
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, int64_t k,
                                    int64_t dim, bool) {
    dim = WrapDim(dim, self.rank());
    return Pick(SortDim(AtLeast1d(self), dim, false), dim, k - 1, out);
  }
};

// The lower of the two middle elements. NaN: the first NaN wins, or (nanmedian) is left out, unless
// there is nothing else.
template <bool kIgnoreNan>
std::array<Value, 2> MedianOf(Value x, int64_t dim) {
  Sorted s = SortDim(x, dim, false);
  Dims one = x.dims();
  one[At(dim)] = 1;
  int64_t n = x.dim(dim);
  Value middle = hlo::FullInt(x.builder(), {DType::kS64, one}, (n - 1) / 2);
  if (IsFloat(x.dtype())) {
    Value nans = hlo::ConvertTo(IsNan(x), DType::kS64);
    Value numbers = RSub(static_cast<double>(n), hlo::Reshape(Sum(nans, {dim}), one));
    Value zero = FullLike(numbers, 0);
    if (kIgnoreNan) {
      middle = hlo::Max(hlo::Div(Plus(numbers, -1), FullLike(numbers, 2)), zero);
    } else {
      Value any = hlo::Lt(numbers, FullLike(numbers, static_cast<double>(n)));
      middle = hlo::Select(any, numbers, middle);
    }
  }
  return {GatherAlong(s.values, dim, middle), GatherAlong(s.indices, dim, middle)};
}

template <bool kIgnoreNan>
struct MedianDim {
  static std::array<Shape, 2> Infer(const Arg& self, int64_t dim, bool keepdim) {
    dim = WrapDim(dim, self.rank());
    CheckNotEmpty(kIgnoreNan ? "nanmedian()" : "median()", self, dim);
    CheckImplemented(!IsComplex(self.dtype()), "median_out", self.dtype());
    return WithIndices(self.shape().with(Reduced(self, dim, keepdim)));
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, int64_t dim, bool) {
    auto m = MedianOf<kIgnoreNan>(AtLeast1d(self), WrapDim(dim, self.rank()));
    return {hlo::Reshape(m[0], out[0].dims), hlo::Reshape(m[1], out[1].dims)};
  }
};

template <bool kIgnoreNan>
struct Median {
  static Shape Infer(const Arg& self) {
    CheckImplemented(!IsComplex(self.dtype()), "median_cpu", self.dtype());
    return self.shape().with(Dims{});
  }
  static Value Lower(const Shape& out, Value self) {
    if (self.shape().numel() == 0) {  // NaN; of integers the lowest number
      return IsFloat(out.dtype) ? hlo::Scalar(self.builder(), out.dtype, NAN)
                                : hlo::MinValue(self.builder(), out.dtype);
    }
    Value flat = hlo::Reshape(self, {self.shape().numel()});
    return hlo::Reshape(MedianOf<kIgnoreNan>(flat, 0)[0], out.dims);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::sort_stable, SortStable>(m);
  Register<at::_ops::topk, TopK>(m);
  Register<at::_ops::kthvalue, KthValue>(m);
  Register<at::_ops::median_dim, MedianDim<false>>(m);
  Register<at::_ops::nanmedian_dim, MedianDim<true>>(m);
  Register<at::_ops::median, Median<false>>(m);
  Register<at::_ops::nanmedian, Median<true>>(m);
}

}  // namespace torch_xla::ops
