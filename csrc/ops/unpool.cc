// Unpooling: elements go back to where max pooling took them from. Their gradient is torch's
// composite, a gather at the indices.
#include <ATen/ops/max_unpool2d_ops.h>
#include <ATen/ops/max_unpool3d_ops.h>

#include "ops/pooling.h"

namespace torch_xla::ops {
namespace {

// Everything that is refused is said in the words of the CPU's kernel.
Shape Unpooled(const Arg& x, const Arg& indices, Span output_size, int64_t n) {
  XLA_CHECK(indices.dtype() == DType::kS64, kInvalidArgument,
            "elements in indices should be type int64");
  XLA_CHECK(output_size.size() == At(n) && (x.rank() == n + 1 || x.rank() == n + 2) &&
                x.dims() == indices.dims(),
            kInvalidArgument, "max_unpool: no room for input ", ToString(x.dims()), " and indices ",
            ToString(indices.dims()), " in ", ToString(output_size));
  Dims out = x.dims();
  for (int64_t d = 0; d < x.rank(); ++d) {
    XLA_CHECK(out[At(d)] > 0 || (d == 0 && x.rank() == n + 2), kInvalidArgument,
              "max_unpool: Expected input to have non-zero size for non-batch dimensions");
  }
  std::copy(output_size.begin(), output_size.end(), out.end() - n);
  return x.shape().with(out);
}

Value Unpool(const Shape& out, Value x, Value indices, int64_t n) {
  return ScatterPlanes(x, indices, out, n, Replace());
}

struct MaxUnpool2d {
  static Shape Infer(const Arg& x, const Arg& indices, Span output_size) {
    return Unpooled(x, indices, output_size, 2);
  }
  static Value Lower(const Shape& out, Value x, Value indices, Span) {
    return Unpool(out, x, indices, 2);
  }
};

struct MaxUnpool3d {
  static Shape Infer(const Arg& x, const Arg& indices, Span output_size, Span stride,
                     Span padding) {
    XLA_CHECK(stride.size() == 3 && padding.size() == 3, kInvalidArgument,
              "max_unpool3d: stride and padding should have three elements");
    for (int64_t s : stride) {
      XLA_CHECK(s > 0, kInvalidArgument, "max_unpool3d: strides should be greater than zero");
    }
    return Unpooled(x, indices, output_size, 3);
  }
  static Value Lower(const Shape& out, Value x, Value indices, Span, Span, Span) {
    return Unpool(out, x, indices, 3);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::max_unpool2d, MaxUnpool2d>(m);
  Register<at::_ops::max_unpool3d, MaxUnpool3d>(m);
}

}  // namespace torch_xla::ops
