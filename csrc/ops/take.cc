// Reads and writes by position in the flattened tensor. A device cannot raise for a position out of
// range: take clamps it, put skips it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/put_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/take.h>
#include <ATen/ops/take_ops.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

Value Flat(Value x) { return hlo::Reshape(x, {x.shape().numel()}); }

struct TakeFlat {
  static Shape Infer(const Arg& self, const Arg& index) {
    TORCH_CHECK(index.dtype() == DType::kS64, "take(): Expected a long tensor for index, but got ",
                TorchName(index.dtype()));
    TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                      "take(): tried to take from an empty tensor");
    return self.shape().with(index.dims());
  }
  static Value Lower(const Shape&, Value self, Value index) {
    return Take(Flat(self), 0, WrapIndex(index, self.shape().numel()));
  }
};

struct Put {
  static Shape Infer(const Arg& self, const Arg& index, const Arg& source, bool) {
    TORCH_CHECK(index.dtype() == DType::kS64, "put_(): Expected a long tensor for index, but got ",
                TorchName(index.dtype()));
    TORCH_CHECK(self.dtype() == source.dtype(),
                "put_(): self and source expected to have the same dtype, but got self.dtype = ",
                TorchName(self.dtype()), " and source.dtype = ", TorchName(source.dtype()));
    TORCH_CHECK_INDEX(source.numel() == index.numel(),
                      "put_(): Expected source and index to have the same number of elements, but "
                      "got source.numel() = ",
                      source.numel(), ", index.numel() = ", index.numel());
    TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                      "put_(): Tried to put elements into an empty tensor");
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Value index, Value source, bool accumulate) {
    Value at = Flat(WrapIndex(index, out.numel()));
    Value y = ScatterDim(Flat(self), 0, at, Flat(source),
                         accumulate ? Combine(hlo::Reducer::kSum) : Replace());
    return hlo::Reshape(y, out.dims);
  }
};

// The k-th true element of the mask takes the k-th of source, of which a device cannot tell whether
// there are enough: the last one is repeated.
at::Tensor MaskedScatterTo(at::IntArrayRef sizes, const at::Tensor& self, const at::Tensor& mask,
                           const at::Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ",
              self.scalar_type(), " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  at::Tensor everywhere = mask.expand(sizes);
  if (source.numel() == 0) return self.expand(sizes).clone();
  at::Tensor position = at::cumsum(everywhere.reshape({-1}), 0).sub_(1).reshape(sizes);
  return at::where(everywhere, at::take(source, position), self);
}

at::Tensor MaskedScatter(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  Dims out = Broadcast(ShapeOf(self).dims, ShapeOf(mask).dims);
  return MaskedScatterTo({out.data(), out.size()}, self, mask, source);
}

at::Tensor& MaskedScatterInPlace(at::Tensor& self, const at::Tensor& mask,
                                 const at::Tensor& source) {
  return self.copy_(MaskedScatterTo(self.sizes(), self, mask, source));
}

// The gradient of masked_scatter's source: its k-th element is that of the k-th true one of the
// mask.
at::Tensor MaskedScatterBackward(const at::Tensor& grad, const at::Tensor& mask,
                                 c10::SymIntArrayRef sizes) {
  int64_t n = c10::multiply_integers(C10_AS_INTARRAYREF_SLOW(sizes));
  at::Tensor everywhere = mask.expand(grad.sizes()).reshape({-1});
  at::Tensor place = at::where(everywhere, at::cumsum(everywhere, 0) - 1, n);
  place = place.clamp_max(n);  // what the source does not have is cut off
  at::Tensor flat = at::zeros({n + 1}, grad.options()).scatter(0, place, grad.reshape({-1}));
  return flat.slice(0, 0, n).reshape_symint(sizes);
}

// nonzero with a given number of rows: where no element is left, fill_value.
at::Tensor NonzeroStatic(const at::Tensor& self, c10::SymInt rows, int64_t fill_value) {
  int64_t size = rows.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  auto options = self.options().dtype(at::kLong);
  at::Tensor mask = self.ne(0).reshape({-1});
  at::Tensor place = at::cumsum(mask, 0) - 1;
  place = at::where(mask.logical_and(place < size), place, size);  // the last one is cut off
  at::Tensor flat = at::full({size + 1}, -1, options)
                        .scatter(0, place, at::arange(mask.numel(), options))
                        .slice(0, 0, size);
  std::vector<at::Tensor> coordinates;
  int64_t below = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    int64_t n = std::max<int64_t>(self.size(d), 1);
    coordinates.insert(coordinates.begin(), flat.div(below, "floor").remainder(n));
    below *= n;
  }
  if (coordinates.empty()) return at::empty({size, 0}, options);
  return at::where((flat < 0).unsqueeze(1), fill_value, at::stack(coordinates, 1));
}

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::take, TakeFlat>(m);
  Register<at::_ops::put, Put>(m);
  Register<at::_ops::put_, Put>(m);
  m.impl("nonzero_static", TORCH_FN(NonzeroStatic));
  m.impl("masked_scatter", TORCH_FN(MaskedScatter));
  m.impl("masked_scatter_backward", TORCH_FN(MaskedScatterBackward));
  m.impl("masked_scatter_", TORCH_FN(MaskedScatterInPlace));
}

}  // namespace torch_xla::ops
