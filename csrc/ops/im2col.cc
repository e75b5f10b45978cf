// Sliding blocks as columns (F.unfold), and columns added up to an image (F.fold).
#include <ATen/ops/col2im_ops.h>
#include <ATen/ops/im2col_ops.h>

#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

struct Blocks {
  std::array<int64_t, 2> image, kernel, dilation, padding, stride, count;

  Blocks(const char* name, Span image_size, Span kernel_size, Span dilations, Span paddings,
         Span strides) {
    for (Span s : {kernel_size, dilations, paddings, strides}) {
      XLA_CHECK(s.size() == 2, kInvalidArgument, name,
                ": kernel_size, dilation, padding and stride have 2 elements");
    }
    for (size_t i = 0; i < 2; ++i) {
      image[i] = image_size[i];
      kernel[i] = kernel_size[i];
      dilation[i] = dilations[i];
      padding[i] = paddings[i];
      stride[i] = strides[i];
      XLA_CHECK(kernel[i] > 0 && dilation[i] > 0 && padding[i] >= 0 && stride[i] > 0,
                kInvalidArgument, name, ": kernel_size, dilation and stride are greater than zero");
      int64_t span = image[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
      count[i] = span < 0 ? 0 : span / stride[i] + 1;
      XLA_CHECK(count[i] > 0, kInvalidArgument, name,
                ": the calculated shape of the array of sliding blocks has components that are "
                "not positive");
    }
  }
  int64_t columns() const { return count[0] * count[1]; }
  int64_t block() const { return kernel[0] * kernel[1]; }
};

// Of a batch of images: a single one is a batch of one.
Dims Batched(const Dims& dims, size_t rank) {
  Dims d = dims;
  if (d.size() < rank) d.insert(0, 1);
  return d;
}

struct Im2Col {
  static Blocks Of(const Dims& self, Span kernel, Span dilation, Span padding, Span stride) {
    XLA_CHECK(self.size() == 3 || self.size() == 4, kInvalidArgument,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
              "non-zero dimensions for input, but got: ",
              ToString(self));
    return {"im2col", Span(self).last(2), kernel, dilation, padding, stride};
  }
  static Shape Infer(const Arg& self, Span kernel, Span dilation, Span padding, Span stride) {
    Blocks b = Of(self.dims(), kernel, dilation, padding, stride);
    Dims out = self.dims();
    out.resize(out.size() - 2);
    out.back() *= b.block();
    out.push_back(b.columns());
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, Span kernel, Span dilation, Span padding,
                     Span stride) {
    Blocks b = Of(self.dims(), kernel, dilation, padding, stride);
    self = hlo::Reshape(self, Batched(self.dims(), 4));
    int64_t n = self.dim(0), c = self.dim(1);
    Dims pads{0, 0, b.padding[0], b.padding[1]};
    Value x = hlo::Pad(self, ScalarOf(self, 0), pads, pads, {0, 0, 0, 0});
    std::vector<Value> parts;  // one for each position in the block
    for (int64_t i = 0; i < b.kernel[0]; ++i) {
      for (int64_t j = 0; j < b.kernel[1]; ++j) {
        int64_t y0 = i * b.dilation[0], x0 = j * b.dilation[1];
        Value part = hlo::Slice(x, {0, 0, y0, x0},
                                {n, c, y0 + (b.count[0] - 1) * b.stride[0] + 1,
                                 x0 + (b.count[1] - 1) * b.stride[1] + 1},
                                {1, 1, b.stride[0], b.stride[1]});
        parts.push_back(hlo::Reshape(part, {n, c, 1, b.columns()}));
      }
    }
    return hlo::Reshape(hlo::Concatenate(parts, 2), out.dims);
  }
};

struct Col2Im {
  static Shape Infer(const Arg& self, Span output, Span kernel, Span dilation, Span padding,
                     Span stride) {
    XLA_CHECK(self.rank() == 2 || self.rank() == 3, kInvalidArgument,
              "Expected 2D or 3D (batch mode) tensor for input");
    Blocks b("col2im", output, kernel, dilation, padding, stride);
    XLA_CHECK(self.dim(-2) % b.block() == 0 && self.dim(-1) == b.columns(), kInvalidArgument,
              "Expected size of input's dimensions to match the calculated number of sliding "
              "blocks ",
              b.columns());
    Dims out = self.dims();
    out.resize(out.size() - 1);
    out.back() /= b.block();
    out.push_back(output[0]);
    out.push_back(output[1]);
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, Span output, Span kernel, Span dilation,
                     Span padding, Span stride) {
    Blocks b("col2im", output, kernel, dilation, padding, stride);
    Value x = hlo::Reshape(Widen(self), Batched(self.dims(), 3));
    int64_t n = x.dim(0), c = x.dim(1) / b.block();
    x = hlo::Reshape(x, {n, c, b.block(), b.count[0], b.count[1]});
    Value sum;
    for (int64_t k = 0; k < b.block(); ++k) {
      Value part = hlo::Reshape(hlo::SliceDim(x, 2, k, k + 1), {n, c, b.count[0], b.count[1]});
      Dims low{0, 0, 0, 0}, high = low, between = low;
      const std::array<int64_t, 2> at{k / b.kernel[1], k % b.kernel[1]};
      for (size_t i = 0; i < 2; ++i) {
        low[i + 2] = at[i] * b.dilation[i] - b.padding[i];
        between[i + 2] = b.stride[i] - 1;
        high[i + 2] = b.image[i] - low[i + 2] - (b.count[i] - 1) * b.stride[i] - 1;
      }
      part = hlo::Pad(part, ScalarOf(part, 0), low, high, between);
      sum = sum.valid() ? hlo::Add(sum, part) : part;
    }
    return hlo::ConvertTo(hlo::Reshape(sum, out.dims), out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::im2col, Im2Col>(m);
  Register<at::_ops::col2im, Col2Im>(m);
}

}  // namespace torch_xla::ops
