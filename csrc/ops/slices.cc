// Writing a part of a tensor functionally, and the gradients of the operators that take a part.
// Where the part begins is a program input: moving it compiles nothing.
#include <ATen/ops/as_strided_scatter_ops.h>
#include <ATen/ops/diagonal_scatter_ops.h>
#include <ATen/ops/select_backward_ops.h>
#include <ATen/ops/select_scatter_ops.h>
#include <ATen/ops/slice_backward_ops.h>
#include <ATen/ops/slice_scatter_ops.h>
#include <ATen/ops/unfold_backward_ops.h>

#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

// `part` written into x along dim, its elements `step` apart from `start` on.
Value WriteSlice(Value x, Value part, int64_t dim, Value start, int64_t step) {
  if (part.shape().numel() == 0) return x;
  std::vector<Value> starts(At(x.rank()), hlo::ScalarInt(x.builder(), DType::kS64, 0));
  starts[At(dim)] = start;
  if (step == 1) return hlo::DynamicUpdateSlice(x, part, starts);
  Dims none(At(x.rank()), 0), between = none;
  between[At(dim)] = step - 1;
  Value spread = hlo::Pad(part, ScalarOf(part, 0), none, none, between);
  Value ones = hlo::Full(x.builder(), part.shape().with(DType::kBool), 1);
  Value written = hlo::Pad(ones, ScalarOf(ones, 0), none, none, between);
  Value old = hlo::DynamicSlice(x, starts, spread.dims());
  return hlo::DynamicUpdateSlice(x, hlo::Select(written, spread, old), starts);
}

// Start or end of a slice as Python clamps it.
int64_t ClampIndex(int64_t i, int64_t size) {
  return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
}

// select: index of one element.
int64_t CheckSelect(const Dims& dims, int64_t dim, int64_t index) {
  TORCH_CHECK_INDEX(!dims.empty(), "select() cannot be applied to a 0-dim tensor.");
  int64_t d = WrapDim(dim, static_cast<int64_t>(dims.size()));
  int64_t n = dims[At(d)];
  TORCH_CHECK_INDEX(index >= -n && index < n, "select(): index ", index,
                    " out of range for tensor of size ", ToString(dims), " at dimension ", d);
  return d;
}

Value WriteElement(Value x, Value element, int64_t dim, Value index) {
  dim = WrapDim(dim, x.rank());
  Dims one = x.dims();
  one[At(dim)] = 1;
  return WriteSlice(x, hlo::Reshape(element, one), dim, WrapIndex(index, x.dim(dim)), 1);
}

struct SelectBackward {
  static Shape Infer(const Arg& g, Span input_sizes, int64_t dim, int64_t index) {
    CheckSelect(input_sizes, dim, index);
    return g.shape().with(Dims(input_sizes));
  }
  static Value Lower(const Shape& out, Value g, Span, int64_t dim, Value index) {
    return WriteElement(hlo::Full(g.builder(), out, 0), g, dim, index);
  }
};

struct SelectScatter {
  static Shape Infer(const Arg& self, const Arg& src, int64_t dim, int64_t index) {
    Dims part = self.dims();
    part.erase(At(CheckSelect(self.dims(), dim, index)));
    TORCH_CHECK(src.dims() == part,
                "expected src to have a size equal to the slice of self. src size = ",
                ToString(src.dims()), ", slice size = ", ToString(part));
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Value src, int64_t dim, Value index) {
    return WriteElement(self, hlo::ConvertTo(src, out.dtype), dim, index);
  }
};

struct SliceBackward {
  static Shape Infer(const Arg& g, Span input_sizes, int64_t dim, int64_t, int64_t, int64_t) {
    WrapDim(dim, static_cast<int64_t>(input_sizes.size()));
    return g.shape().with(Dims(input_sizes));
  }
  static Value Lower(const Shape& out, Value g, Span, int64_t dim, Value start, Value,
                     int64_t step) {
    dim = WrapDim(dim, out.rank());
    return WriteSlice(hlo::Full(g.builder(), out, 0), g, dim, WrapIndex(start, out.dims[At(dim)]),
                      step);
  }
};

struct SliceScatter {
  static Shape Infer(const Arg& self, const Arg& src, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step) {
    TORCH_CHECK(step > 0, "slice step must be positive");
    dim = WrapDim(dim, self.rank());
    int64_t n = self.dim(dim);
    int64_t from = ClampIndex(start.value_or(0), n);
    int64_t to = std::max(ClampIndex(end.value_or(n), n), from);
    Dims part = self.dims();
    part[At(dim)] = (to - from + step - 1) / step;
    TORCH_CHECK(src.dims() == part,
                "expected src to have a size equal to the slice of self. src size = ",
                ToString(src.dims()), ", slice size = ", ToString(part));
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Value src, int64_t dim,
                     std::optional<Value> start, std::optional<Value>, int64_t step) {
    dim = WrapDim(dim, out.rank());
    Value from = start ? WrapIndex(*start, out.dims[At(dim)])
                       : hlo::ScalarInt(self.builder(), DType::kS64, 0);
    // A start before the first element counts as the first.
    from = hlo::Max(from, FullLike(from, 0));
    return WriteSlice(self, hlo::ConvertTo(src, out.dtype), dim, from, step);
  }
};

// Each of the windows adds to what it was cut from.
struct UnfoldBackward {
  static Shape Infer(const Arg& g, Span input_sizes, int64_t dim, int64_t, int64_t) {
    WrapDim(dim, static_cast<int64_t>(input_sizes.size()));
    return g.shape().with(Dims(input_sizes));
  }
  static Value Lower(const Shape& out, Value g, Span, int64_t dim, int64_t size, int64_t step) {
    if (g.shape().numel() == 0) return hlo::Full(g.builder(), out, 0);
    if (out.rank() == 0) return hlo::Reshape(Sum(g, Range(g.rank())), {});
    dim = WrapDim(dim, out.rank());
    int64_t windows = g.dim(dim);
    // [..., windows, ..., size] -> [..., windows * size, ...]
    Dims perm = Range(g.rank() - 1);
    perm.insert(At(dim) + 1, g.rank() - 1);
    Dims joined = out.dims;
    joined[At(dim)] = windows * size;
    Value parts = hlo::Reshape(hlo::Transpose(g, perm), joined);
    Value zeros = hlo::Full(g.builder(), out, 0);
    if (step >= size) {  // no element is in two windows
      Dims spread = out.dims, none(At(g.rank()), 0), high = none;
      spread[At(dim)] = windows;
      spread.insert(At(dim) + 1, size);
      high[At(dim) + 1] = step - size;
      Value x = hlo::Pad(hlo::Reshape(parts, spread), ScalarOf(g, 0), none, high, none);
      joined[At(dim)] = windows * step;
      x = hlo::Reshape(x, joined);
      Dims low(At(out.rank()), 0), rest = low;
      rest[At(dim)] = out.dims[At(dim)] - windows * step;
      return hlo::Pad(x, ScalarOf(g, 0), low, rest, low);
    }
    std::vector<int64_t> at;
    for (int64_t w = 0; w < windows; ++w) {
      for (int64_t i = 0; i < size; ++i) at.push_back(w * step + i);
    }
    return ScatterDim(zeros, dim, Int64s(g.builder(), at), parts, Combine(hlo::Reducer::kSum));
  }
};

at::Tensor DiagonalScatter(const at::Tensor& self, const at::Tensor& src, int64_t offset,
                           int64_t dim1, int64_t dim2) {
  at::Tensor out = self.clone();
  at::Tensor part = out.diagonal(offset, dim1, dim2);
  TORCH_CHECK(part.sizes() == src.sizes(),
              "expected src to have a size equal to the slice of self. src size = ", src.sizes(),
              ", slice size = ", part.sizes());
  part.copy_(src);
  return out;
}

at::Tensor AsStridedScatter(const at::Tensor& self, const at::Tensor& src, c10::SymIntArrayRef size,
                            c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  at::Tensor out = self.clone();
  at::Tensor part = out.as_strided_symint(size, stride, std::move(offset));
  TORCH_CHECK(part.sizes() == src.sizes(),
              "expected src to have a size equal to the slice of self. src size = ", src.sizes(),
              ", slice size = ", part.sizes());
  part.copy_(src);
  return out;
}

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::select_backward, SelectBackward>(m);
  Register<at::_ops::select_scatter, SelectScatter>(m);
  Register<at::_ops::slice_backward, SliceBackward>(m);
  Register<at::_ops::slice_scatter, SliceScatter>(m);
  Register<at::_ops::unfold_backward, UnfoldBackward>(m);
  m.impl("diagonal_scatter", TORCH_FN(DiagonalScatter));
  m.impl("as_strided_scatter", TORCH_FN(AsStridedScatter));
}

}  // namespace torch_xla::ops
