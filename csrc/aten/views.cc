// Every view operator: torch's composites would compute as_strided from the contiguous strides that
// we show, which is silently wrong.
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "aten/dtype_map.h"
#include "aten/ops_util.h"
#include "aten/tensor_impl.h"

namespace torch_xla {
namespace {

using lazy::ViewKind;
using lazy::ViewStep;

Span ToSpan(at::IntArrayRef v) { return {v.data(), v.size()}; }
int64_t Int(const c10::SymInt& v) { return v.guard_int(__FILE__, __LINE__); }

// A view of a tensor that is no inference tensor is none either: autograd counts its versions, in
// inference mode, too.
at::Tensor WrapLike(const at::Tensor& self, lazy::Tensor tensor, const Shape& shape) {
  if (c10::InferenceMode::is_enabled() && !self.is_inference()) [[unlikely]] {
    c10::InferenceMode off(false);
    return Wrap(std::move(tensor), shape);
  }
  return Wrap(std::move(tensor), shape);
}

at::Tensor View(const at::Tensor& self, ViewStep&& step) {
  lazy::Tensor view = Unwrap(self).View(std::move(step));
  const Shape& shape = view.view_shape();
  return WrapLike(self, std::move(view),
                  shape);  // the path, with its shape, lives on in the result
}

at::Tensor ReshapeTo(const at::Tensor& self, Dims dims) {
  return View(self, {ViewKind::kReshape, {ToDType(self.scalar_type()), std::move(dims)}, {}, {}});
}

// Another tensor object of the same state.
at::Tensor Alias(const at::Tensor& self) { return WrapLike(self, Unwrap(self), ShapeOf(self)); }

at::Tensor ViewKernel(const at::Tensor& self, at::SymIntArrayRef size) {
  at::IntArrayRef wanted = C10_AS_INTARRAYREF_SLOW(size);
  Span dims(wanted.data(), wanted.size());
  bool plain = std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; });
  if (plain && Product(dims) == self.numel()) return ReshapeTo(self, dims);
  auto inferred = at::infer_size_dv(wanted, self.numel());  // -1, or PyTorch's error
  return ReshapeTo(self, Span(inferred.data(), inferred.size()));
}

at::Tensor ReshapeAlias(const at::Tensor& self, at::SymIntArrayRef size, at::SymIntArrayRef) {
  return ViewKernel(self, size);
}

at::Tensor Permute(const at::Tensor& self, at::IntArrayRef dims) {
  TORCH_CHECK(static_cast<int64_t>(dims.size()) == self.dim(),
              "permute(sparse_coo): number of dimensions in the tensor input does not match the "
              "length of the desired ordering of dimensions i.e. input.dim() = ",
              self.dim(), " is not equal to len(dims) = ", dims.size());
  Dims perm, sizes;
  std::vector<bool> seen(dims.size(), false);
  for (int64_t d : dims) {
    d = c10::maybe_wrap_dim(d, self.dim());
    TORCH_CHECK(!seen[static_cast<size_t>(d)], "permute(): duplicate dims are not allowed.");
    seen[static_cast<size_t>(d)] = true;
    perm.push_back(d);
    sizes.push_back(self.size(d));
  }
  return View(self, {ViewKind::kPermute, ShapeOf(self).with(sizes), perm, {}});
}

at::Tensor Transpose(const at::Tensor& self, int64_t dim0, int64_t dim1) {
  dim0 = c10::maybe_wrap_dim(dim0, self.dim());
  dim1 = c10::maybe_wrap_dim(dim1, self.dim());
  if (self.dim() == 0 || dim0 == dim1) return Alias(self);
  Dims perm, sizes = ShapeOf(self).dims;
  for (int64_t i = 0; i < self.dim(); ++i) perm.push_back(i);
  std::swap(perm[static_cast<size_t>(dim0)], perm[static_cast<size_t>(dim1)]);
  std::swap(sizes[static_cast<size_t>(dim0)], sizes[static_cast<size_t>(dim1)]);
  return View(self, {ViewKind::kPermute, ShapeOf(self).with(sizes), perm, {}});
}

at::Tensor T(const at::Tensor& self) {
  TORCH_CHECK(self.dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ",
              self.dim(), "D");
  return self.dim() < 2 ? Alias(self) : Transpose(self, 0, 1);
}

at::Tensor Expand(const at::Tensor& self, at::SymIntArrayRef size, bool) {
  at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  TORCH_CHECK(static_cast<int64_t>(sizes.size()) >= self.dim(), "expand(", self.toString(), "{",
              self.sizes(), "}, size=", sizes, "): the number of sizes provided (", sizes.size(),
              ") must be greater or equal to the number of dimensions in the tensor (", self.dim(),
              ")");
  auto geometry = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), sizes);
  return View(self, {ViewKind::kExpand,
                     ShapeOf(self).with(Span(geometry.sizes.data(), geometry.sizes.size())),
                     {},
                     {}});
}

// `fixed`: the position is the operator's own (split, unbind), not an index that moves from step to
// step; only the latter is a program input.
at::Tensor SliceDim(const at::Tensor& self, int64_t dim, int64_t start, int64_t length,
                    int64_t step, bool fixed) {
  Shape shape = ShapeOf(self);
  int64_t& size = shape.dims[static_cast<size_t>(dim)];
  if (length == size && step == 1) return Alias(self);
  size = length;
  if (fixed || step != 1 || length == 0) {
    return View(self, {ViewKind::kSlice, shape, {dim, start, step}, {}});
  }
  ir::Value position{ir::Node::MakeScalar(DType::kS64, start), 0};
  return View(self, {ViewKind::kDynamicSlice, shape, {dim}, std::move(position)});
}

at::Tensor Slice(const at::Tensor& self, int64_t dim, std::optional<c10::SymInt> start,
                 std::optional<c10::SymInt> end, c10::SymInt step) {
  TORCH_CHECK_INDEX(self.dim() > 0, "slice() cannot be applied to a 0-dim tensor.");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  int64_t size = self.size(dim), by = Int(step);
  TORCH_CHECK(by > 0, "slice step must be positive");
  auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + size : v, 0, size); };
  int64_t from = clamp(start.has_value() ? Int(*start) : 0);
  int64_t to = std::max(clamp(end.has_value() ? Int(*end) : size), from);
  return SliceDim(self, dim, from, (to - from + by - 1) / by, by, false);
}

at::Tensor DropDim(const at::Tensor& self, int64_t dim) {
  Dims dims = ShapeOf(self).dims;
  dims.erase(static_cast<size_t>(dim));
  return ReshapeTo(self, std::move(dims));
}

at::Tensor SelectAt(const at::Tensor& self, int64_t dim, int64_t index, bool fixed) {
  return DropDim(SliceDim(self, dim, index, 1, 1, fixed), dim);
}

at::Tensor Select(const at::Tensor& self, int64_t dim, c10::SymInt at_index) {
  TORCH_CHECK_INDEX(self.dim() > 0, "select() cannot be applied to a 0-dim tensor.");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  int64_t size = self.size(dim), index = Int(at_index);
  TORCH_CHECK_INDEX(index >= -size && index < size, "select(): index ", index,
                    " out of range for tensor of size ", self.sizes(), " at dimension ", dim);
  return SelectAt(self, dim, index < 0 ? index + size : index, false);
}

std::vector<at::Tensor> SplitWithSizes(const at::Tensor& self, at::SymIntArrayRef split_sizes,
                                       int64_t dim) {
  TORCH_CHECK(self.dim() != 0, "split expects at least a 1-dimensional tensor");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(split_sizes);
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (int64_t n : sizes) {
    TORCH_CHECK(n >= 0,
                "split_with_sizes expects split_sizes have only non-negative entries, but "
                "got split_sizes=",
                sizes);
    TORCH_CHECK(start + n <= self.size(dim),
                "split_with_sizes expects split_sizes to sum exactly to ", self.size(dim),
                " (input tensor's size at dimension ", dim, "), but got split_sizes=", sizes);
    parts.push_back(SliceDim(self, dim, start, n, 1, true));
    start += n;
  }
  TORCH_CHECK(start == self.size(dim), "split_with_sizes expects split_sizes to sum exactly to ",
              self.size(dim), " (input tensor's size at dimension ", dim,
              "), but got split_sizes=", sizes);
  return parts;
}

std::vector<at::Tensor> Split(const at::Tensor& self, c10::SymInt split_size, int64_t dim) {
  TORCH_CHECK(self.dim() != 0, "split expects at least a 1-dimensional tensor");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  int64_t each = Int(split_size), size = self.size(dim);
  TORCH_CHECK(each >= 0, "split expects split_size be non-negative, but got split_size=", each);
  TORCH_CHECK(each > 0 || size == 0,
              "split_size can only be 0 if dimension size is 0, but got dimension size of ", size);
  std::vector<c10::SymInt> sizes;
  int64_t parts = each == 0 ? 1 : std::max<int64_t>((size + each - 1) / each, 1);
  for (int64_t i = 0; i < parts; ++i) sizes.emplace_back(std::min(each, size - i * each));
  return SplitWithSizes(self, sizes, dim);
}

std::vector<at::Tensor> Unbind(const at::Tensor& self, int64_t dim) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(self.dim() > 0, "Dimension specified as 0 but tensor has no dimensions");
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < self.size(dim); ++i) parts.push_back(SelectAt(self, dim, i, true));
  return parts;
}

at::Tensor SqueezeDims(const at::Tensor& self, at::IntArrayRef dims) {
  std::vector<bool> wanted(static_cast<size_t>(std::max<int64_t>(self.dim(), 1)), false);
  for (int64_t d : dims) {
    auto i = static_cast<size_t>(c10::maybe_wrap_dim(d, self.dim()));
    TORCH_CHECK(!wanted[i], "dim ", i, " appears multiple times in the list of dims");
    wanted[i] = true;
  }
  Dims sizes;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (!wanted[static_cast<size_t>(i)] || self.size(i) != 1) sizes.push_back(self.size(i));
  }
  return ReshapeTo(self, sizes);
}

at::Tensor Squeeze(const at::Tensor& self) {
  Dims sizes;
  for (int64_t n : self.sizes()) {
    if (n != 1) sizes.push_back(n);
  }
  return ReshapeTo(self, sizes);
}

at::Tensor SqueezeDim(const at::Tensor& self, int64_t dim) { return SqueezeDims(self, dim); }

at::Tensor Unsqueeze(const at::Tensor& self, int64_t dim) {
  dim = c10::maybe_wrap_dim(dim, self.dim() + 1);
  Dims dims = ShapeOf(self).dims;
  dims.insert(static_cast<size_t>(dim), 1);
  return ReshapeTo(self, dims);
}

at::Tensor Diagonal(const at::Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  dim1 = c10::maybe_wrap_dim(dim1, self.dim());
  dim2 = c10::maybe_wrap_dim(dim2, self.dim());
  TORCH_CHECK(dim1 != dim2, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  int64_t rows = self.size(dim1), columns = self.size(dim2);
  int64_t n = std::max<int64_t>(
      offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns), 0);
  Dims dims;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (i != dim1 && i != dim2) dims.push_back(self.size(i));
  }
  dims.push_back(n);
  return View(self, {ViewKind::kDiagonal, ShapeOf(self).with(dims), {offset, dim1, dim2}, {}});
}

at::Tensor AsStrided(const at::Tensor& self, at::SymIntArrayRef size, at::SymIntArrayRef stride,
                     std::optional<c10::SymInt> storage_offset) {
  at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  TORCH_CHECK(sizes.size() == strides.size(), "mismatch in length of strides and shape");
  int64_t offset = storage_offset.has_value() ? Int(*storage_offset) : 0;
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  Dims params{offset};
  int64_t last = offset;
  bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK(strides[i] >= 0,
                "as_strided: Negative strides are not supported at the moment, got "
                "strides: ",
                strides);
    TORCH_CHECK(sizes[i] >= 0, "Trying to create tensor with negative dimension ", sizes[i], ": ",
                sizes);
    TORCH_CHECK(empty || strides[i] == 0 || sizes[i] - 1 <= self.numel() / strides[i],
                "setStorage: sizes ", sizes, ", strides ", strides,
                " are out of bounds for a tensor of ", self.numel(), " elements");
    params.push_back(strides[i]);
    last += (sizes[i] - 1) * strides[i];
  }
  TORCH_CHECK(empty || last < self.numel(), "setStorage: sizes ", sizes, ", strides ", strides,
              ", storage offset ", offset, " are out of bounds for a tensor of ", self.numel(),
              " elements");
  return View(self, {ViewKind::kAsStrided, ShapeOf(self).with(ToSpan(sizes)), params, {}});
}

at::Tensor Unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  int64_t dim = c10::maybe_wrap_dim(dimension, self.dim());
  int64_t extent = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(size <= extent, "maximum size for tensor at dimension ", dim, " is ", extent,
              " but size is ", size);
  TORCH_CHECK(size >= 0, "size is ", size, " but must be >= 0");
  TORCH_CHECK(step > 0, "step is ", step, " but must be > 0");
  // All tensors are contiguous in their parent's eyes, so strides are right here.
  Dims sizes = ShapeOf(self).dims, params{0};
  for (int64_t stride : self.strides()) params.push_back(stride);
  int64_t along = self.dim() == 0 ? 1 : self.stride(dim);
  if (self.dim() > 0) {
    sizes[static_cast<size_t>(dim)] = (extent - size) / step + 1;
    params[static_cast<size_t>(dim) + 1] = along * step;
  }
  sizes.push_back(size);
  params.push_back(along);
  return View(self, {ViewKind::kAsStrided, ShapeOf(self).with(sizes), params, {}});
}

at::Tensor ViewDtype(const at::Tensor& self, at::ScalarType dtype) {
  DType from = ToDType(self.scalar_type()), to = ToDType(dtype);
  if (from == to) return Alias(self);
  Shape shape = ShapeOf(self).with(to);
  auto from_bytes = static_cast<int64_t>(c10::elementSize(self.scalar_type())),
       to_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  if (from_bytes != to_bytes) {
    TORCH_CHECK(self.dim() > 0, "self.dim() cannot be 0 to view ", self.scalar_type(), " as ",
                dtype, " (different element sizes)");
    int64_t bytes = shape.dims.back() * from_bytes;
    TORCH_CHECK(bytes % to_bytes == 0, "self.size(-1) must be divisible by ", to_bytes / from_bytes,
                " to view ", self.scalar_type(), " as ", dtype,
                " (different element sizes), but got ", shape.dims.back());
    shape.dims.back() = bytes / to_bytes;
  }
  return View(self, {ViewKind::kBitcast, shape, {}, {}});
}

at::Tensor ViewAsReal(const at::Tensor& self) {
  TORCH_CHECK(self.is_complex(), "view_as_real is only supported for complex tensors");
  Shape shape = ShapeOf(self);
  shape.dtype = RealPart(shape.dtype);
  shape.dims.push_back(2);
  return View(self, {ViewKind::kViewAsReal, shape, {}, {}});
}

at::Tensor ViewAsComplex(const at::Tensor& self) {
  Shape shape = ShapeOf(self);
  TORCH_CHECK(
      shape.dtype == DType::kF32 || shape.dtype == DType::kF64 || shape.dtype == DType::kF16,
      "view_as_complex is only supported for half, float and double tensors, but got a "
      "tensor of scalar type: ",
      self.scalar_type());
  TORCH_CHECK(self.dim() != 0, "Input tensor must have one or more dimensions");
  TORCH_CHECK(shape.dims.back() == 2, "Tensor must have a last dimension of size 2");
  shape.dtype = ComplexOf(shape.dtype);
  shape.dims.erase(shape.dims.size() - 1);
  return View(self, {ViewKind::kViewAsComplex, shape, {}, {}});
}

at::Tensor Conj(const at::Tensor& self) {
  return View(self, {ViewKind::kConj, ShapeOf(self), {}, {}});
}

at::Tensor NegView(const at::Tensor& self) {
  return View(self, {ViewKind::kNeg, ShapeOf(self), {}, {}});
}

at::Tensor FwPrimal(const at::Tensor& self, int64_t) { return Alias(self); }
at::Tensor MakeDual(const at::Tensor& primal, const at::Tensor&, int64_t) { return Alias(primal); }

// Forward AD asks before it keeps a tangent; a tensor without storage has its own elements only.
bool HasSameStorageNumel(const at::Tensor& self, const at::Tensor& other) {
  return self.numel() == other.numel();
}
// A tangent for `other`, with the leading dimensions that `self` is batched in.
at::Tensor NewZerosWithSameFeatureMeta(const at::Tensor& self, const at::Tensor& other,
                                       int64_t batch_dims) {
  at::DimVector sizes(self.sizes().slice(0, static_cast<size_t>(batch_dims)));
  sizes.append(other.sizes().begin(), other.sizes().end());
  return at::zeros(sizes, self.options());
}

// ---- In-place views: the tensor object takes the view's place.

at::Tensor& Become(at::Tensor& self, const at::Tensor& view) {
  ImplOf(self).Rebind(Unwrap(view), ShapeOf(view));
  return self;
}
at::Tensor& Squeeze_(at::Tensor& self) { return Become(self, Squeeze(self)); }
at::Tensor& SqueezeDim_(at::Tensor& self, int64_t dim) {
  return Become(self, SqueezeDim(self, dim));
}
at::Tensor& SqueezeDims_(at::Tensor& self, at::IntArrayRef dims) {
  return Become(self, SqueezeDims(self, dims));
}
at::Tensor& Unsqueeze_(at::Tensor& self, int64_t dim) { return Become(self, Unsqueeze(self, dim)); }
at::Tensor& T_(at::Tensor& self) { return Become(self, T(self)); }
at::Tensor& Transpose_(at::Tensor& self, int64_t a, int64_t b) {
  return Become(self, Transpose(self, a, b));
}
const at::Tensor& AsStrided_(const at::Tensor& self, at::SymIntArrayRef size,
                             at::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  at::Tensor to = self;
  Become(to, AsStrided(self, size, stride, offset));
  return self;
}

// ---- Tensors that take another's memory, or another size.

at::Tensor& SetTensor_(at::Tensor& self, const at::Tensor& source) { return Become(self, source); }

at::Tensor& Set_(at::Tensor& self) {
  return Become(self, Wrap(FullStatic(ShapeOf(self).with(Dims{0}), 0), Unwrap(self).device()));
}

const at::Tensor& Resize_(const at::Tensor& self, at::SymIntArrayRef size,
                          std::optional<at::MemoryFormat>) {
  at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (self.sizes() == sizes) return self;
  for (int64_t d : sizes) {
    TORCH_CHECK(d >= 0, "Trying to create tensor with negative dimension ", d, ": ", sizes);
  }
  Shape shape = ShapeOf(self).with(ToSpan(sizes));
  at::Tensor to = self, flat = ReshapeTo(self, {self.numel()});
  int64_t n = shape.numel();
  if (n > self.numel()) {
    // Elements beyond the old ones are undefined in PyTorch, zero here.
    at::Tensor larger = Wrap(FullStatic(shape.with(Dims{n}), 0), Unwrap(self).device());
    if (self.numel() > 0) SliceDim(larger, 0, 0, self.numel(), 1, true).copy_(flat);
    flat = std::move(larger);
  } else {
    flat = SliceDim(flat, 0, 0, n, 1, true);
  }
  Become(to, ReshapeTo(flat, shape.dims));
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  m.impl("view", TORCH_FN(ViewKernel));
  m.impl("_reshape_alias", TORCH_FN(ReshapeAlias));
  // An alias for which autograd keeps no version: out= forms of composites write through it.
  m.impl("_unsafe_view", TORCH_FN(ViewKernel));
  m.impl("alias", TORCH_FN(Alias));
  m.impl("detach", TORCH_FN(Alias));
  m.impl("lift_fresh", TORCH_FN(Alias));
  m.impl("_fw_primal", TORCH_FN(FwPrimal));
  m.impl("_make_dual", TORCH_FN(MakeDual));
  m.impl("_has_same_storage_numel", TORCH_FN(HasSameStorageNumel));
  m.impl("_new_zeros_with_same_feature_meta", TORCH_FN(NewZerosWithSameFeatureMeta));
  m.impl("permute", TORCH_FN(Permute));
  m.impl("transpose.int", TORCH_FN(Transpose));
  m.impl("t", TORCH_FN(T));
  m.impl("expand", TORCH_FN(Expand));
  m.impl("slice.Tensor", TORCH_FN(Slice));
  m.impl("select.int", TORCH_FN(Select));
  m.impl("split.Tensor", TORCH_FN(Split));
  m.impl("split_with_sizes", TORCH_FN(SplitWithSizes));
  m.impl("unbind.int", TORCH_FN(Unbind));
  m.impl("squeeze", TORCH_FN(Squeeze));
  m.impl("squeeze.dim", TORCH_FN(SqueezeDim));
  m.impl("squeeze.dims", TORCH_FN(SqueezeDims));
  m.impl("unsqueeze", TORCH_FN(Unsqueeze));
  m.impl("diagonal", TORCH_FN(Diagonal));
  m.impl("as_strided", TORCH_FN(AsStrided));
  m.impl("unfold", TORCH_FN(Unfold));
  m.impl("view.dtype", TORCH_FN(ViewDtype));
  m.impl("view_as_real", TORCH_FN(ViewAsReal));
  m.impl("view_as_complex", TORCH_FN(ViewAsComplex));
  m.impl("_conj", TORCH_FN(Conj));
  m.impl("_neg_view", TORCH_FN(NegView));
  m.impl("squeeze_", TORCH_FN(Squeeze_));
  m.impl("squeeze_.dim", TORCH_FN(SqueezeDim_));
  m.impl("squeeze_.dims", TORCH_FN(SqueezeDims_));
  m.impl("unsqueeze_", TORCH_FN(Unsqueeze_));
  m.impl("t_", TORCH_FN(T_));
  m.impl("transpose_", TORCH_FN(Transpose_));
  m.impl("as_strided_", TORCH_FN(AsStrided_));
  m.impl("set_.source_Tensor", TORCH_FN(SetTensor_));
  m.impl("set_", TORCH_FN(Set_));
  m.impl("resize_", TORCH_FN(Resize_));
}

}  // namespace torch_xla
