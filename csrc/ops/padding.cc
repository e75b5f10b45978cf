// Padding by a number, by reflection and by repetition of the border, and their gradients.
#include <ATen/ops/constant_pad_nd_ops.h>
#include <ATen/ops/reflection_pad1d_backward_ops.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/reflection_pad2d_backward_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/reflection_pad3d_backward_ops.h>
#include <ATen/ops/reflection_pad3d_ops.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_backward_ops.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/replication_pad3d_backward_ops.h>
#include <ATen/ops/replication_pad3d_ops.h>

#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

// PyTorch's padding lists (low, high) from the last dimension backwards.
struct ConstantPad {
  static Shape Infer(const Arg& self, Span pad, const at::Scalar& value) {
    // It is filled in, which PyTorch does with any number in complex32.
    if (self.dtype() != DType::kC32) CheckFits(value, self.dtype());
    TORCH_CHECK(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ",
                pad.size());
    TORCH_CHECK(static_cast<int64_t>(pad.size()) <= 2 * self.rank(),
                "Length of pad should be no more than twice the number of dimensions of the "
                "input. Pad length is ",
                pad.size(), " while the input has ", self.rank(), " dimensions.");
    Dims out = self.dims();
    for (size_t i = 0; i < pad.size() / 2; ++i) {
      int64_t& d = out[out.size() - 1 - i];
      // Cutting off comes first.
      int64_t kept = d + std::min<int64_t>(pad[2 * i], 0);
      TORCH_CHECK(kept >= 0 && kept + std::min<int64_t>(pad[2 * i + 1], 0) >= 0,
                  "narrow(): length must be non-negative.");
      d += pad[2 * i] + pad[2 * i + 1];
    }
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, Span pad, Value value) {
    size_t rank = out.dims.size();
    Dims low(rank, 0), high(rank, 0);
    for (size_t i = 0; i < pad.size() / 2; ++i) {
      low[rank - 1 - i] = pad[2 * i];
      high[rank - 1 - i] = pad[2 * i + 1];
    }
    return hlo::Pad(self, hlo::ConvertTo(value, out.dtype), low, high, Dims(rank, 0));
  }
};

enum class Border { kReflect, kReplicate };

// Padded along one dimension; negative amounts cut off.
template <Border kBorder>
Value PadDim(Value x, int64_t dim, int64_t low, int64_t high) {
  int64_t n = x.dim(dim);
  auto repeat = [&](int64_t at, int64_t times) {
    Dims dims = x.dims();
    dims[At(dim)] = times;
    return hlo::BroadcastTo(hlo::SliceDim(x, dim, at, at + 1), dims);
  };
  auto reflect = [&](int64_t start, int64_t length) {
    return hlo::Reverse(hlo::SliceDim(x, dim, start, start + length), {dim});
  };
  std::vector<Value> parts;
  if (low > 0) parts.push_back(kBorder == Border::kReflect ? reflect(1, low) : repeat(0, low));
  parts.push_back(
      hlo::SliceDim(x, dim, std::max<int64_t>(-low, 0), n - std::max<int64_t>(-high, 0)));
  if (high > 0) {
    parts.push_back(kBorder == Border::kReflect ? reflect(n - 1 - high, high)
                                                : repeat(n - 1, high));
  }
  return hlo::Concatenate(parts, dim);
}

// The gradient of that: what was copied adds to where it came from in the n elements.
template <Border kBorder>
Value FoldDim(Value g, int64_t dim, int64_t n, int64_t low, int64_t high) {
  int64_t padded = g.dim(dim);
  // part, whose first element came from position `at`
  auto place = [&](Value part, int64_t at) {
    Dims zeros(At(g.rank()), 0), before = zeros, after = zeros;
    before[At(dim)] = at;
    after[At(dim)] = n - at - part.dim(dim);
    return hlo::Pad(part, ScalarOf(part, 0), before, after, zeros);
  };
  auto border = [&](int64_t start, int64_t length, int64_t reflected_to, int64_t replicated_to) {
    Value part = hlo::SliceDim(g, dim, start, start + length);
    if (kBorder == Border::kReflect) return place(hlo::Reverse(part, {dim}), reflected_to);
    Dims kept = part.dims();
    kept[At(dim)] = 1;
    return place(hlo::Reshape(Sum(part, {dim}), kept), replicated_to);
  };
  Value sum =
      place(hlo::SliceDim(g, dim, std::max<int64_t>(low, 0), padded - std::max<int64_t>(high, 0)),
            std::max<int64_t>(-low, 0));
  if (low > 0) sum = hlo::Add(sum, border(0, low, 1, 0));
  if (high > 0) sum = hlo::Add(sum, border(padded - high, high, n - 1 - high, n - 1));
  return sum;
}

template <Border kBorder, int64_t kN>
struct PadNd {
  static Dims OutDims(const Dims& in, Span padding) {
    constexpr const char* name = kBorder == Border::kReflect ? "reflection_pad" : "replication_pad";
    auto rank = static_cast<int64_t>(in.size());
    XLA_CHECK(padding.size() == At(2 * kN), kInvalidArgument, name, kN,
              "d: padding size is expected to be ", 2 * kN);
    XLA_CHECK(rank == kN + 1 || rank == kN + 2, kInvalidArgument, name, kN, "d: Expected ", kN + 1,
              "D or ", kN + 2, "D tensor, but got ", ToString(in));
    Dims out = in;
    for (int64_t i = 0; i < kN; ++i) {
      int64_t low = padding[At(2 * i)], high = padding[At(2 * i + 1)];
      int64_t& d = out[At(rank - 1 - i)];
      XLA_CHECK(d > 0 && (kBorder == Border::kReplicate || (low < d && high < d)), kInvalidArgument,
                name, kN, "d: Padding size should be less than the corresponding input dimension, ",
                "but got: padding (", low, ", ", high, ") at dimension ", rank - 1 - i,
                " of input ", ToString(in));
      d += low + high;
      XLA_CHECK(d >= 1, kInvalidArgument, name, kN, "d: input ", ToString(in),
                " is too small for padding ", ToString(padding));
    }
    return out;
  }
  static Shape Infer(const Arg& self, Span padding) {
    return self.shape().with(OutDims(self.dims(), padding));
  }
  static Value Lower(const Shape& out, Value self, Span padding) {
    for (int64_t i = 0; i < kN; ++i) {
      self = PadDim<kBorder>(self, out.rank() - 1 - i, padding[At(2 * i)], padding[At(2 * i + 1)]);
    }
    return self;
  }
};

template <Border kBorder, int64_t kN>
struct PadNdBackward {
  static Shape Infer(const Arg& g, const Arg& self, Span padding) {
    Dims out = PadNd<kBorder, kN>::OutDims(self.dims(), padding);
    XLA_CHECK(g.dims() == out, kInvalidArgument, "expected grad_output of shape ", ToString(out),
              ", got ", ToString(g.dims()));
    return self.shape();
  }
  static Value Lower(const Shape& out, Value g, Value, Span padding) {
    g = Widen(g);
    for (int64_t i = 0; i < kN; ++i) {
      int64_t dim = out.rank() - 1 - i;
      g = FoldDim<kBorder>(g, dim, out.dims[At(dim)], padding[At(2 * i)], padding[At(2 * i + 1)]);
    }
    return hlo::ConvertTo(g, out.dtype);
  }
};

constexpr Border kReflect = Border::kReflect;
constexpr Border kReplicate = Border::kReplicate;

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::constant_pad_nd, ConstantPad>(m);
  Register<at::_ops::reflection_pad1d, PadNd<kReflect, 1>>(m);
  Register<at::_ops::reflection_pad1d_backward, PadNdBackward<kReflect, 1>>(m);
  Register<at::_ops::reflection_pad2d, PadNd<kReflect, 2>>(m);
  Register<at::_ops::reflection_pad2d_backward, PadNdBackward<kReflect, 2>>(m);
  Register<at::_ops::reflection_pad3d, PadNd<kReflect, 3>>(m);
  Register<at::_ops::reflection_pad3d_backward, PadNdBackward<kReflect, 3>>(m);
  Register<at::_ops::replication_pad1d, PadNd<kReplicate, 1>>(m);
  Register<at::_ops::replication_pad1d_backward, PadNdBackward<kReplicate, 1>>(m);
  Register<at::_ops::replication_pad2d, PadNd<kReplicate, 2>>(m);
  Register<at::_ops::replication_pad2d_backward, PadNdBackward<kReplicate, 2>>(m);
  Register<at::_ops::replication_pad3d, PadNd<kReplicate, 3>>(m);
  Register<at::_ops::replication_pad3d_backward, PadNdBackward<kReplicate, 3>>(m);
}

}  // namespace torch_xla::ops
