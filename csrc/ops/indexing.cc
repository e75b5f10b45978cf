// Indexing by tensors, index_put, and the index_* operators along one dimension. A device cannot
// raise for an index out of range: reads clamp it, writes skip it.
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/_unsafe_index_ops.h>
#include <ATen/ops/_unsafe_index_put_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/combinations.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/index_reduce_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "aten/autograd.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

// Where index tensors go and what shape indexing by them has.
struct IndexPlan {
  Dims indexed;  // dimensions with an index tensor
  Dims common;   // the index tensors broadcast together
  Dims out;
  Dims offsets;  // dimensions of `out` that are kept from self

  template <typename OptionalArgs>  // pointers to, or optionals of, things with dims()
  IndexPlan(const Dims& self, const OptionalArgs& indices) {
    std::string shapes;
    bool fits = true;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!indices[i]) continue;
      indexed.push_back(static_cast<int64_t>(i));
      const Dims& dims = indices[i]->dims();
      shapes += (shapes.empty() ? "" : ", ") + ToString(dims);
      fits = fits && Stretch(common, dims);
    }
    TORCH_CHECK_INDEX(fits,
                      "shape mismatch: indexing tensors could not be broadcast together with "
                      "shapes ",
                      shapes);
    // Adjacent indexed dimensions are replaced in their place, others go to the front.
    bool adjacent =
        !indexed.empty() && indexed.back() - indexed[0] + 1 == static_cast<int64_t>(indexed.size());
    size_t place = adjacent ? At(indexed[0]) : 0;
    size_t next = 0;
    for (size_t i = 0; i < self.size(); ++i) {
      if (next < indexed.size() && indexed[next] == static_cast<int64_t>(i)) {
        ++next;
        continue;
      }
      out.push_back(self[i]);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      offsets.push_back(static_cast<int64_t>(i < place ? i : i + common.size()));
    }
    for (size_t i = 0; i < common.size(); ++i) out.insert(place + i, common[i]);
  }

  // [common..., n]: the coordinates of each element, negative ones wrapped.
  Value Coordinates(const Dims& self, std::span<const std::optional<Value>> indices) const {
    Dims one = common;
    one.push_back(1);
    std::vector<Value> coordinates;
    for (int64_t d : indexed) {
      Value at = WrapIndex(*indices[At(d)], self[At(d)]);
      coordinates.push_back(hlo::Reshape(hlo::BroadcastTo(at, common), one));
    }
    return hlo::Concatenate(coordinates, static_cast<int64_t>(common.size()));
  }

 private:
  // Widens `to` by `by`; false if they do not broadcast.
  static bool Stretch(Dims& to, const Dims& by) {
    while (to.size() < by.size()) to.insert(0, 1);
    for (size_t i = 0; i < by.size(); ++i) {
      int64_t& d = to[to.size() - by.size() + i];
      if (d == 1) d = by[i];
      if (by[i] != 1 && d != by[i]) return false;
    }
    return true;
  }
};

struct Index {
  static Shape Infer(const Arg& self, std::span<const Arg* const> indices) {
    return self.shape().with(IndexPlan(self.dims(), indices).out);
  }
  static Value Lower(const Shape& out, Value self, std::vector<std::optional<Value>> indices) {
    IndexPlan plan(self.dims(), indices);
    if (plan.indexed.empty()) return self;
    if (out.numel() == 0) return hlo::Full(self.builder(), out, 0);
    Dims slice = self.dims();
    for (int64_t d : plan.indexed) slice[At(d)] = 1;
    return hlo::Gather(self, plan.Coordinates(self.dims(), indices),
                       {.offset_dims = plan.offsets,
                        .collapsed_slice_dims = plan.indexed,
                        .operand_batching_dims = {},
                        .start_indices_batching_dims = {},
                        .start_index_map = plan.indexed,
                        .index_vector_dim = static_cast<int64_t>(plan.common.size())},
                       slice);
  }
};

struct IndexPut {
  static Shape Infer(const Arg& self, std::span<const Arg* const> indices, const Arg& values,
                     bool) {
    TORCH_CHECK(self.dtype() == values.dtype(),
                "Index put requires the source and destination dtypes match, got ",
                TorchName(self.dtype()), " for the destination and ", TorchName(values.dtype()),
                " for the source.");
    IndexPlan plan(self.dims(), indices);
    bool fits = values.dims().size() <= plan.out.size();
    for (size_t i = 0; fits && i < values.dims().size(); ++i) {
      int64_t v = values.dims()[i];
      fits = v == 1 || v == plan.out[plan.out.size() - values.dims().size() + i];
    }
    TORCH_CHECK(fits || ToString(values.dims()) == ToString(plan.out),
                "shape mismatch: value tensor of shape ", ToString(values.dims()),
                " cannot be broadcast to indexing result of shape ", ToString(plan.out));
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, std::vector<std::optional<Value>> indices,
                     Value values, bool accumulate) {
    IndexPlan plan(self.dims(), indices);
    values = Fit(values, out.with(plan.out));
    if (plan.indexed.empty()) return accumulate ? hlo::Add(self, values) : values;
    if (values.shape().numel() == 0) return self;
    if (accumulate && Wide(out.dtype) != out.dtype) {  // rounded once
      Shape wide = out.with(Wide(out.dtype));
      return hlo::ConvertTo(Lower(wide, Widen(self), indices, Widen(values), true), out.dtype);
    }
    return hlo::Scatter(self, plan.Coordinates(self.dims(), indices), values,
                        {.update_window_dims = plan.offsets,
                         .inserted_window_dims = plan.indexed,
                         .input_batching_dims = {},
                         .scatter_indices_batching_dims = {},
                         .scatter_dims_to_operand_dims = plan.indexed,
                         .index_vector_dim = static_cast<int64_t>(plan.common.size())},
                        accumulate ? Combine(hlo::Reducer::kSum) : Replace());
  }
};

using Indices = c10::List<std::optional<at::Tensor>>;

bool IsMask(const at::Tensor& t) {
  return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
}

// Masks become the indices of their elements, which the host has to count; CPU tensors move.
Indices Prepare(const at::Tensor& self, const Indices& indices) {
  Indices out;
  for (size_t i = 0; i < indices.size(); ++i) {
    std::optional<at::Tensor> t = indices.get(i);
    if (!t.has_value() || !t->defined()) {
      out.push_back(std::nullopt);
      continue;
    }
    TORCH_CHECK_INDEX(IsMask(*t) || t->scalar_type() == at::kLong || t->scalar_type() == at::kInt,
                      "tensors used as indices must be long, int, byte or bool tensors");
    const at::Tensor& index = *t;
    if (!IsMask(index)) {
      out.push_back(IsXla(index) ? index : index.to(self.device()));
      continue;
    }
    for (int64_t j = 0; j < index.dim(); ++j) {
      int64_t at = static_cast<int64_t>(out.size()) + j;
      TORCH_CHECK_INDEX(at < self.dim() && index.size(j) == self.size(at), "The shape of the mask ",
                        index.sizes(), " at index ", j,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", at);
    }
    at::Tensor positions = at::nonzero(index).to(self.device());
    for (int64_t j = 0; j < index.dim(); ++j) out.push_back(positions.select(1, j));
  }
  TORCH_CHECK_INDEX(static_cast<int64_t>(out.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", out.size(),
                    ")");
  return out;
}

at::Tensor IndexTensor(const at::Tensor& self, const Indices& indices) {
  return record::Kernel<at::_ops::index_Tensor, Index>::Call(self, Prepare(self, indices));
}

// self where the mask is false, else the 0-d value.
struct MaskedFill {
  template <typename V>
  static Shape Infer(const Arg& self, const Arg& mask, const V& value) {
    Dims out = Broadcast(mask.dims(), self.dims());
    TORCH_CHECK(mask.dtype() == DType::kBool,
                "masked_fill_ only supports boolean masks, but got mask with dtype ",
                c10::scalarTypeToTypeMeta(ToScalarType(mask.dtype())));
    if constexpr (std::is_same_v<V, Arg>) {
      TORCH_CHECK(value.rank() == 0,
                  "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
                  value.rank(), " dimension(s).");
      XLA_CHECK(!IsComplex(value.dtype()) || IsComplex(self.dtype()), kInvalidArgument,
                "value cannot be converted to type ", TorchName(self.dtype()), " without overflow");
    } else {
      CheckFits(value, self.dtype());
    }
    return self.shape().with(out);
  }
  static Value Lower(const Shape& out, Value self, Value mask, Value value) {
    return hlo::Select(hlo::BroadcastTo(mask, out.dims), Fit(value, out), Fit(self, out));
  }
};

// A mask that is all of the indices, which then needs no positions.
struct MaskPlace {
  at::Tensor mask;
  int64_t before, after;  // dimensions of self around the mask's
  at::Tensor over_self;   // the mask with size 1 in the dimensions after it
};

std::optional<MaskPlace> OnlyMask(const at::Tensor& self, const Indices& indices) {
  std::optional<at::Tensor> mask;
  int64_t before = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    std::optional<at::Tensor> t = indices.get(i);
    if (!t.has_value() || !t->defined()) {
      before += !mask.has_value();
      continue;
    }
    if (mask.has_value() || t->scalar_type() != at::kBool) return {};
    mask = *t;
  }
  if (!mask.has_value() || before + mask->dim() > self.dim()) return {};
  std::vector<int64_t> sizes;
  for (int64_t d = before; d < self.dim(); ++d) {
    bool of_mask = d - before < mask->dim();
    if (of_mask && mask->size(d - before) != self.size(d)) return {};
    sizes.push_back(of_mask ? self.size(d) : 1);
  }
  if (!IsXla(*mask)) mask = mask->to(self.device());
  return MaskPlace{*mask, before, self.dim() - before - mask->dim(), mask->reshape(sizes)};
}

// The values in the shape that broadcasts to self, where each element of the mask gets the same.
std::optional<at::Tensor> SameForAll(const at::Tensor& self, const MaskPlace& place,
                                     const at::Tensor& values) {
  if (values.dim() > place.before + 1 + place.after) return {};
  int64_t of_mask = values.dim() - 1 - place.after;  // the dimension of the mask's elements
  if (of_mask >= 0 && values.size(of_mask) != 1) return {};
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < values.dim(); ++i) {
    if (i == of_mask) {
      sizes.insert(sizes.end(), static_cast<size_t>(place.mask.dim()), 1);
    } else {
      sizes.push_back(values.size(i));
    }
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t d = self.dim() - static_cast<int64_t>(sizes.size() - i);
    if (sizes[i] != 1 && sizes[i] != self.size(d)) return {};
  }
  return values.reshape(sizes);
}

// What index_put makes of self where it needs no positions.
std::optional<at::Tensor> PutByMask(const at::Tensor& self, const Indices& indices,
                                    const at::Tensor& values, bool accumulate) {
  const bool one = !accumulate && values.numel() == 1;
  if (values.scalar_type() != self.scalar_type() && !one) return {};
  std::optional<MaskPlace> place = OnlyMask(self, indices);
  if (!place) return {};
  if (one && values.is_cpu()) {
    return record::Kernel<at::_ops::masked_fill_Scalar, MaskedFill>::Call(self, place->over_self,
                                                                          values.item());
  }
  if (one) {  // of any type, as in PyTorch
    return record::Kernel<at::_ops::masked_fill_Tensor, MaskedFill>::Call(self, place->over_self,
                                                                          values.reshape({}));
  }
  std::optional<at::Tensor> fitted = SameForAll(self, *place, values);
  if (!fitted) return {};
  return at::where(place->over_self, accumulate ? self.add(*fitted) : *fitted, self);
}

at::Tensor& IndexPutImpl(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                         bool accumulate, bool) {
  if (auto put = PutByMask(self, indices, values, accumulate)) {
    record::WriteInPlace(self, Unwrap(*put).value());
    return self;
  }
  return record::Kernel<at::_ops::index_put_, IndexPut>::Call(self, Prepare(self, indices), values,
                                                              accumulate);
}

at::Tensor& IndexPutInPlace(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                            bool accumulate) {
  return IndexPutImpl(self, indices, values, accumulate, false);
}

at::Tensor IndexPutOf(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
                      bool accumulate) {
  if (auto put = PutByMask(self, indices, values, accumulate)) return *put;
  return record::Kernel<at::_ops::index_put, IndexPut>::Call(self, Prepare(self, indices), values,
                                                             accumulate);
}

// ---- Along one dimension.

void CheckVector(const char* name, const Arg& index) {
  TORCH_CHECK_INDEX(index.rank() <= 1, name, "(): Index is supposed to be a vector");
  XLA_CHECK(index.dtype() == DType::kS64 || index.dtype() == DType::kS32, kInvalidArgument, name,
            "(): Expected dtype int32 or int64 for index");
}

struct IndexSelect {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index) {
    CheckVector("index_select", index);
    dim = WrapDim(dim, self.rank());
    if (self.rank() == 0) {
      TORCH_CHECK(index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
                  index.numel(), " value(s)");
      return self.shape();
    }
    Dims out = self.dims();
    out[At(dim)] = index.numel();
    return self.shape().with(out);
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index) {
    if (self.rank() == 0) return self;
    return Take(self, WrapDim(dim, self.rank()), AtLeast1d(index));
  }
};

// The shape that the updates of n indices have.
Dims SliceDims(const Dims& self, int64_t dim, int64_t n) {
  Dims dims = self;
  if (!dims.empty()) dims[At(dim)] = n;
  return dims;
}

void CheckSource(const char* name, const Arg& self, int64_t dim, const Arg& index,
                 const Arg& source) {
  CheckVector(name, index);
  dim = WrapDim(dim, self.rank());
  XLA_CHECK(self.dtype() == source.dtype(), kInvalidArgument, name,
            "(): self and source expected to have the same dtype");
  Dims expected = SliceDims(self.dims(), dim, index.numel());
  bool fits = source.dims() == expected || (source.numel() == 1 && Product(expected) == 1);
  XLA_CHECK(fits, kInvalidArgument, name, "(): source of shape ", ToString(source.dims()),
            " should have ", ToString(expected));
}

Value DimScatter(Value self, int64_t dim, Value index, Value source, const hlo::Body& combine) {
  dim = WrapDim(dim, self.rank());
  Dims dims = SliceDims(self.dims(), dim, index.shape().numel());
  return ScatterDim(self, dim, index, hlo::Reshape(source, dims), combine);
}

struct IndexAdd {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& source,
                     const at::Scalar&) {
    CheckSource("index_add", self, dim, index, source);
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value source,
                     Factor alpha) {
    Value sum = DimScatter(Widen(self), dim, index, alpha.Times(Widen(source)),
                           Combine(hlo::Reducer::kSum));
    return hlo::ConvertTo(sum, self.dtype());
  }
};

struct IndexCopy {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& source) {
    CheckSource("index_copy_", self, dim, index, source);
    TORCH_CHECK(index.dtype() == DType::kS64,
                "index_copy_(): Expected a long tensor for index, but got ",
                ToScalarType(index.dtype()));
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value source) {
    return DimScatter(self, dim, index, source, Replace());
  }
};

struct IndexReduce {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& source,
                     std::string_view reduce, bool) {
    TORCH_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
                "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got ",
                reduce, ".");
    CheckSource("index_reduce", self, dim, index, source);
    return self.shape();
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value source,
                     std::string_view reduce, bool include_self) {
    if (source.shape().numel() == 0) return self;
    auto scatter = [&](Value x, Value updates, const hlo::Body& combine) {
      return DimScatter(x, dim, index, updates, combine);
    };
    return ScatterReduce(self, source, reduce, include_self, scatter);
  }
};

struct IndexFill {
  template <typename V>
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const V& value) {
    WrapDim(dim, self.rank());
    TORCH_CHECK_INDEX(index.dtype() == DType::kS64,
                      "index_fill_(): Expected dtype int64 for index.");
    TORCH_CHECK(index.rank() <= 1, "Index has to be a vector/scalar");
    if constexpr (std::is_same_v<V, Arg>) {
      TORCH_CHECK(value.rank() == 0,
                  "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
                  value.rank(), " dimension(s).");
    } else {
      CheckFits(value, self.dtype());
    }
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, Value index, Value value) {
    dim = WrapDim(dim, self.rank());
    index = WrapIndex(index, self.rank() == 0 ? 1 : self.dim(dim));
    Dims dims = SliceDims(self.dims(), dim, index.shape().numel());
    return ScatterDim(self, dim, index, Fit(value, out.with(dims)), Replace());
  }
};

// ---- At the autograd key. Torch's own gradients of these values select what was filled, a
// data-dependent shape; that of `where` sums the same elements without waiting.

// Where it is not, the kernels below autograd raise as PyTorch does.
bool IsDifferentiableFill(const at::Tensor& self, const at::Tensor& value) {
  return HasGradient(value) && value.dim() == 0 &&
         (self.is_floating_point() || self.is_complex()) &&
         c10::canCast(value.scalar_type(), self.scalar_type());
}

at::Tensor MaskedFillGrad(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& mask,
                          const at::Tensor& value) {
  if (!IsDifferentiableFill(self, value) || mask.scalar_type() != at::kBool) {
    return at::_ops::masked_fill_Tensor::redispatch(ToTorchAutograd(keys), self, mask, value);
  }
  return at::where(mask, value.to(self.scalar_type()), self);
}

at::Tensor IndexFillGrad(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim,
                         const at::Tensor& index, const at::Tensor& value) {
  if (!IsDifferentiableFill(self, value)) {
    return at::_ops::index_fill_int_Tensor::redispatch(ToTorchAutograd(keys), self, dim, index,
                                                       value);
  }
  at::Tensor mask = at::zeros(self.sizes(), self.options().dtype(at::kBool));
  return at::where(mask.index_fill(dim, index, true), value.to(self.scalar_type()), self);
}

// Which elements are combined is known without their values; torch's own selects them by a mask.
at::Tensor Combinations(const at::Tensor& self, int64_t r, bool with_replacement) {
  TORCH_CHECK(self.dim() == 1, "Expect a 1D vector, but got shape ", self.sizes());
  TORCH_CHECK(r >= 0, "Expect a non-negative number, but got ", r);
  if (r == 0) return at::empty({0}, self.options());
  at::Tensor rows = at::combinations(at::arange(self.size(0)), r, with_replacement);
  return self.index_select(0, rows.reshape({-1}).to(self.device())).view(rows.sizes());
}

}  // namespace

XLA_OPS(m) {
  m.impl("combinations", TORCH_FN(Combinations));
  m.impl("index.Tensor", TORCH_FN(IndexTensor));
  m.impl("_unsafe_index.Tensor", TORCH_FN(IndexTensor));
  m.impl("index_put", TORCH_FN(IndexPutOf));
  m.impl("_unsafe_index_put", TORCH_FN(IndexPutOf));
  m.impl("index_put_", TORCH_FN(IndexPutInPlace));
  m.impl("_index_put_impl_", TORCH_FN(IndexPutImpl));
  Register<at::_ops::index_select, IndexSelect>(m);
  Register<at::_ops::index_add, IndexAdd>(m);
  Register<at::_ops::index_add_, IndexAdd>(m);
  Register<at::_ops::index_copy, IndexCopy>(m);
  Register<at::_ops::index_copy_, IndexCopy>(m);
  Register<at::_ops::index_reduce, IndexReduce>(m);
  Register<at::_ops::index_fill_int_Scalar, IndexFill>(m);
  Register<at::_ops::index_fill__int_Scalar, IndexFill>(m);
  Register<at::_ops::index_fill_int_Tensor, IndexFill>(m);
  Register<at::_ops::index_fill__int_Tensor, IndexFill>(m);
  Register<at::_ops::masked_fill_Scalar, MaskedFill>(m);
  Register<at::_ops::masked_fill__Scalar, MaskedFill>(m);
  Register<at::_ops::masked_fill_Tensor, MaskedFill>(m);
  Register<at::_ops::masked_fill__Tensor, MaskedFill>(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("combinations", TORCH_FN(Combinations));
  m.impl("index_fill.int_Tensor", TORCH_FN(IndexFillGrad));
  m.impl("masked_fill.Tensor", TORCH_FN(MaskedFillGrad));
}

}  // namespace torch_xla::ops
