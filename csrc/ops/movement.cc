// Operators that join, repeat and rearrange elements. Padding: padding.cc; gradients of views:
// slices.cc.
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/channel_shuffle_ops.h>
#include <ATen/ops/diag_embed_ops.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/pixel_shuffle_ops.h>
#include <ATen/ops/pixel_unshuffle_ops.h>
#include <ATen/ops/repeat_ops.h>
#include <ATen/ops/roll_ops.h>
#include <ATen/ops/stack_ops.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/triu_ops.h>

#include "aten/ops_util.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

// Empty vectors join tensors of any shape, for the sake of old programs.
bool IsSkipped(const Dims& dims) { return dims.size() == 1 && dims[0] == 0; }

struct Cat {
  static Shape Infer(std::span<const Arg> tensors, int64_t dim) {
    XLA_CHECK(!tensors.empty(), kInvalidArgument,
              "torch.cat(): expected a non-empty list of Tensors");
    const Arg* first = nullptr;
    int64_t total = 0;
    for (const Arg& t : tensors) {
      XLA_CHECK(t.rank() > 0, kInvalidArgument, "zero-dimensional tensor cannot be concatenated");
      if (IsSkipped(t.dims())) continue;
      if (first == nullptr) {
        first = &t;
        dim = WrapDim(dim, t.rank());
      }
      XLA_CHECK(t.rank() == first->rank(), kInvalidArgument,
                "Tensors must have same number of dimensions: got ", first->rank(), " and ",
                t.rank());
      for (int64_t d = 0; d < t.rank(); ++d) {
        XLA_CHECK(d == dim || t.dim(d) == first->dim(d), kInvalidArgument,
                  "Sizes of tensors must match except in dimension ", dim);
      }
      total += t.dim(dim);
    }
    Shape out{Promote(tensors), {0}};
    if (first != nullptr) {
      out.dims = first->dims();
      out.dims[At(dim)] = total;
    }
    return out;
  }
  static Value Lower(const Shape& out, std::span<const Value> tensors, int64_t dim) {
    std::vector<Value> parts;
    for (const Value& t : tensors) {
      if (!IsSkipped(t.dims())) parts.push_back(hlo::ConvertTo(t, out.dtype));
    }
    if (parts.empty()) return hlo::ConvertTo(tensors[0], out.dtype);
    return hlo::Concatenate(parts, WrapDim(dim, out.rank()));
  }
};

struct Stack {
  static Shape Infer(std::span<const Arg> tensors, int64_t dim) {
    TORCH_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
    for (size_t i = 1; i < tensors.size(); ++i) {
      TORCH_CHECK(tensors[i].dims() == tensors[0].dims(),
                  "stack expects each tensor to be equal size, but got ",
                  ToString(tensors[0].dims()), " at entry 0 and ", ToString(tensors[i].dims()),
                  " at entry ", i);
    }
    Dims out = tensors[0].dims();
    out.insert(At(WrapDim(dim, tensors[0].rank() + 1)), static_cast<int64_t>(tensors.size()));
    return {Promote(tensors), out};
  }
  static Value Lower(const Shape& out, std::span<const Value> tensors, int64_t dim) {
    dim = WrapDim(dim, out.rank());
    Dims one = out.dims;
    one[At(dim)] = 1;
    std::vector<Value> parts;
    for (const Value& t : tensors) {
      parts.push_back(hlo::Reshape(hlo::ConvertTo(t, out.dtype), one));
    }
    return hlo::Concatenate(parts, dim);
  }
};

struct Flip {
  static Dims Of(Span dims, int64_t rank) { return dims.empty() ? Dims{} : WrapDims(dims, rank); }
  static Shape Infer(const Arg& self, Span dims) {
    Of(dims, self.rank());
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, Span dims) {
    Dims flipped = Of(dims, self.rank());
    return self.rank() == 0 || flipped.empty() ? self : hlo::Reverse(self, flipped);
  }
};

struct Roll {
  static Shape Infer(const Arg& self, Span shifts, Span dims) {
    TORCH_CHECK(!shifts.empty(), "`shifts` required");
    TORCH_CHECK(shifts.size() == dims.size() || (dims.empty() && shifts.size() == 1),
                "shifts and dimensions must align. shifts: ", shifts.size(),
                ", dims:", dims.size());
    for (int64_t d : dims) {
      TORCH_CHECK_INDEX(self.rank() != 0, "Dimension specified as ", d,
                        " but tensor has no dimensions");
      WrapDim(d, self.rank());
    }
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Span shifts, Span dims) {
    if (out.numel() == 0 || out.rank() == 0) return self;
    if (dims.empty()) {
      return hlo::Reshape(Shift(hlo::Reshape(self, {out.numel()}), 0, shifts[0]), out.dims);
    }
    for (size_t i = 0; i < dims.size(); ++i)
      self = Shift(self, WrapDim(dims[i], out.rank()), shifts[i]);
    return self;
  }

 private:
  static Value Shift(Value x, int64_t dim, int64_t by) {
    int64_t n = x.dim(dim);
    int64_t start = ((-by) % n + n) % n;
    if (start == 0) return x;
    return hlo::Concatenate({hlo::SliceDim(x, dim, start, n), hlo::SliceDim(x, dim, 0, start)},
                            dim);
  }
};

struct Repeat {
  static Shape Infer(const Arg& self, Span repeats) {
    TORCH_CHECK(static_cast<int64_t>(repeats.size()) >= self.rank(),
                "Number of dimensions of repeat dims can not be smaller than number of dimensions "
                "of tensor");
    Dims out = Padded(self.dims(), repeats.size());
    for (size_t i = 0; i < repeats.size(); ++i) {
      TORCH_CHECK(repeats[i] >= 0, "Trying to create tensor with negative dimension ",
                  repeats[i] * out[i], ": ", ToString(repeats));
      out[i] *= repeats[i];
    }
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, Span repeats) {
    Dims padded = Padded(self.dims(), repeats.size());
    Dims stretched, from;
    for (size_t i = 0; i < repeats.size(); ++i) {
      stretched.push_back(repeats[i]);
      if (i + self.dims().size() >= repeats.size())
        from.push_back(static_cast<int64_t>(stretched.size()));
      stretched.push_back(padded[i]);
    }
    return hlo::Reshape(hlo::BroadcastInDim(self, stretched, from), out.dims);
  }

 private:
  static Dims Padded(const Dims& dims, size_t rank) {
    Dims d(rank - dims.size(), 1);
    for (int64_t n : dims) d.push_back(n);
    return d;
  }
};

// Keeps what lies below (or above) a diagonal; its number is an input.
template <bool kLower>
struct Triangle {
  static Shape Infer(const Arg& self, int64_t) {
    XLA_CHECK(self.rank() >= 2, kInvalidArgument, kLower ? "tril" : "triu",
              ": input tensor must have at least 2 dimensions");
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, Value diagonal) {
    Value row = IotaLike(self, self.rank() - 2, DType::kS64);
    Value distance = hlo::Sub(IotaLike(self, self.rank() - 1), row);
    Value k = FitTo(diagonal, distance);
    return Where(kLower ? hlo::Le(distance, k) : hlo::Ge(distance, k), self, 0);
  }
};

struct DiagEmbed {
  static std::pair<int64_t, int64_t> Planes(int64_t dim1, int64_t dim2, int64_t rank) {
    int64_t a = WrapDim(dim1, rank), b = WrapDim(dim2, rank);
    TORCH_CHECK(a != b, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
    return {a, b};
  }
  static Shape Infer(const Arg& self, int64_t offset, int64_t dim1, int64_t dim2) {
    auto [a, b] = Planes(dim1, dim2, self.rank() + 1);
    int64_t n = self.dim(-1) + std::abs(offset);
    Dims out = self.dims();
    out.resize(out.size() - 1);
    out.insert(At(std::min(a, b)), n);
    out.insert(At(std::max(a, b)), n);
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, int64_t offset, int64_t dim1, int64_t dim2) {
    auto [row, column] = Planes(dim1, dim2, out.rank());
    // Element i lies in row i, or in column i for diagonals below the main one.
    Dims zeros(At(self.rank()), 0), high = zeros;
    high.back() = std::abs(offset);
    Value x = hlo::Pad(self, ScalarOf(self, 0), zeros, high, zeros);
    int64_t along = offset >= 0 ? row : column;
    Dims to;
    for (int64_t d = 0; d < out.rank(); ++d) {
      if (d != row && d != column) to.push_back(d);
    }
    to.push_back(along);
    // broadcast_dimensions ascend; the last dimension of x moves to where `along` is.
    Dims perm = Range(x.rank());
    std::sort(perm.begin(), perm.end(),
              [&](int64_t i, int64_t j) { return to[At(i)] < to[At(j)]; });
    std::sort(to.begin(), to.end());
    x = hlo::BroadcastInDim(hlo::Transpose(x, perm), out.dims, to);
    Value distance = hlo::Sub(IotaLike(x, column), IotaLike(x, row));
    return Where(hlo::Eq(distance, FullLike(distance, static_cast<double>(offset))), x, 0);
  }
};

// [..., c * r * r, h, w] <-> [..., c, h * r, w * r]
template <bool kUnshuffle>
struct PixelShuffle {
  static Shape Infer(const Arg& self, int64_t r) {
    const char* name = kUnshuffle ? "pixel_unshuffle" : "pixel_shuffle";
    XLA_CHECK(self.rank() >= 3 && r > 0, kInvalidArgument, name,
              " expects input to have at least 3 dimensions, and a positive factor");
    Dims out = self.dims();
    int64_t &c = out[out.size() - 3], &h = out[out.size() - 2], &w = out[out.size() - 1];
    if (kUnshuffle) {
      XLA_CHECK(h % r == 0 && w % r == 0, kInvalidArgument, name,
                " expects height and width to be divisible by downscale_factor");
      c *= r * r, h /= r, w /= r;
    } else {
      XLA_CHECK(c % (r * r) == 0, kInvalidArgument, name,
                " expects its input's 'channel' dimension to be divisible by the square of "
                "upscale_factor");
      c /= r * r, h *= r, w *= r;
    }
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, int64_t r) {
    // Batch, then c and the two factors of each of h and w.
    const Dims& small = kUnshuffle ? out.dims : self.dims();
    size_t n = small.size() - 3;
    int64_t c = self.dim(-3), h = small[n + 1], w = small[n + 2];
    if (!kUnshuffle) c /= r * r;
    Dims split(Span(small).first(n)), perm = Range(static_cast<int64_t>(n));
    for (int64_t d : kUnshuffle ? Dims{c, h, r, w, r} : Dims{c, r, r, h, w}) split.push_back(d);
    for (int64_t d : kUnshuffle ? Dims{0, 2, 4, 1, 3} : Dims{0, 3, 1, 4, 2})
      perm.push_back(static_cast<int64_t>(n) + d);
    return hlo::Reshape(hlo::Transpose(hlo::Reshape(self, split), perm), out.dims);
  }
};

struct ChannelShuffle {
  static Shape Infer(const Arg& self, int64_t groups) {
    TORCH_CHECK(self.rank() > 2,
                "channel_shuffle expects input with > 2 dims, but got input with "
                "sizes ",
                ToString(self.dims()));
    TORCH_CHECK(groups > 0, "Number of groups to divide channels in must be positive.",
                " Value of groups:", groups);
    TORCH_CHECK(self.dim(1) % groups == 0, "Number of channels must be divisible by groups. Got ",
                self.dim(1), " channels and ", groups, " groups.");
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, int64_t groups) {
    Dims split = out.dims;
    split[1] = groups;
    split.insert(2, out.dims[1] / groups);
    Dims perm = Range(out.rank() + 1);
    std::swap(perm[1], perm[2]);
    return hlo::Reshape(hlo::Transpose(hlo::Reshape(self, split), perm), out.dims);
  }
};

// Two rows of numbers that depend on nothing: computed on the host.
template <auto kIndices>
at::Tensor TriangleIndices(int64_t row, int64_t col, int64_t offset,
                           std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                           std::optional<at::Device> device, std::optional<bool>) {
  at::TensorOptions options = at::TensorOptions().dtype(dtype.value_or(at::kLong));
  at::Tensor cpu = kIndices(row, col, offset, options.device(at::kCPU));
  return cpu.to(c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(DeviceOf(device))));
}

at::Tensor TrilIndices(int64_t r, int64_t c, int64_t k, at::TensorOptions o) {
  return at::tril_indices(r, c, k, o);
}
at::Tensor TriuIndices(int64_t r, int64_t c, int64_t k, at::TensorOptions o) {
  return at::triu_indices(r, c, k, o);
}

// All tensors look contiguous. F.pad(mode="circular") asks for this one.
at::Tensor NewEmptyStrided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef,
                           std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                           std::optional<at::Device> device, std::optional<bool>) {
  return self.new_empty_symint(size, dtype, layout, device, /*pin_memory=*/{});
}

}  // namespace

XLA_OPS(m) {
  m.impl("new_empty_strided", TORCH_FN(NewEmptyStrided));
  Register<at::_ops::cat, Cat>(m);
  Register<at::_ops::stack, Stack>(m);
  Register<at::_ops::flip, Flip>(m);
  Register<at::_ops::roll, Roll>(m);
  Register<at::_ops::repeat, Repeat>(m);
  Register<at::_ops::tril, Triangle<true>>(m);
  Register<at::_ops::tril_, Triangle<true>>(m);
  Register<at::_ops::triu, Triangle<false>>(m);
  Register<at::_ops::triu_, Triangle<false>>(m);
  Register<at::_ops::diag_embed, DiagEmbed>(m);
  Register<at::_ops::pixel_shuffle, PixelShuffle<false>>(m);
  Register<at::_ops::pixel_unshuffle, PixelShuffle<true>>(m);
  Register<at::_ops::channel_shuffle, ChannelShuffle>(m);
  m.impl("tril_indices", TORCH_FN(TriangleIndices<TrilIndices>));
  m.impl("triu_indices", TORCH_FN(TriangleIndices<TriuIndices>));
}

}  // namespace torch_xla::ops
