// Sparse tensors: what PyTorch has for CPUs only and is worth recording. The rest of their
// operators are PyTorch's own kernels over indices and values, or the fallback (aten/sparse.cc).
#include "aten/sparse.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_coalesce_ops.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr_ops.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_ops.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_sparse_mm_reduce_impl_backward_ops.h>
#include <ATen/ops/_sparse_mm_reduce_impl_ops.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_to_sparse_csc_ops.h>
#include <ATen/ops/_to_sparse_csr_ops.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sparse_mask_native.h>
#include <ATen/ops/sparse_mask_ops.h>
#include <ATen/ops/sparse_sampled_addmm_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "aten/fallback.h"
#include "aten/host_copy.h"
#include "aten/ops_util.h"
#include "aten/record.h"
#include "ops/common.h"

namespace torch_xla::ops {
namespace {

bool IsDense(const at::Tensor& t) { return IsXla(t); }
bool IsCoo(const at::Tensor& t) { return OnXla(t) && t.layout() == at::kSparse; }
bool IsRowsOrColumns(const at::Tensor& t) {
  return OnXla(t) && (t.layout() == at::kSparseCsr || t.layout() == at::kSparseCsc);
}

at::Tensor Coo(const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values,
               bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      like.sparse_dim(), like.dense_dim(), like.sizes(), indices, values,
      like.options().dtype(values.scalar_type()), coalesced);
}

int64_t SparseNumel(const at::Tensor& t) {
  return c10::multiply_integers(t.sizes().slice(0, t.sparse_dim()));
}

// [nnz]: each element's place among the sparse dimensions, row-major.
at::Tensor Places(const at::Tensor& coo) {
  at::Tensor indices = coo._indices();
  if (coo.sparse_dim() == 0) return at::zeros({coo._nnz()}, indices.options());
  at::Tensor places = indices.select(0, 0);
  for (int64_t d = 1; d < coo.sparse_dim(); ++d) {
    places = places.mul(coo.size(d)).add(indices.select(0, d));
  }
  return places;
}

// A dense tensor with its sparse dimensions made one.
at::Tensor Flat(const at::Tensor& dense, const at::Tensor& coo) {
  at::DimVector sizes{SparseNumel(coo)};
  for (int64_t d : dense.sizes().slice(coo.sparse_dim())) sizes.push_back(d);
  return dense.reshape(sizes);
}

// Sums values[i] into row places[i] of zeros; bools are or'ed.
at::Tensor SumRows(int64_t rows, const at::Tensor& places, const at::Tensor& values) {
  at::DimVector sizes(values.sizes().begin(), values.sizes().end());
  sizes[0] = rows;
  bool logical = values.scalar_type() == at::kBool;
  at::Tensor v = logical ? values.to(at::kLong) : values;
  at::Tensor sums = at::zeros(sizes, v.options()).index_add_(0, places, v);
  return logical ? sums.ne(0) : sums;
}

// Sorted, each place once. How many there are is read from the device.
at::Tensor Coalesce(const at::Tensor& self) {
  if (self.is_coalesced()) return self;
  at::Tensor values = self._values();
  if (self._nnz() < 2) return Coo(self, self._indices().clone(), values.clone(), true);
  auto [places, index, counts] = at::_unique2(Places(self), true, /*return_inverse=*/true);
  std::vector<at::Tensor> rows(static_cast<size_t>(self.sparse_dim()));
  at::Tensor rest = places;
  for (size_t d = rows.size(); d-- > 0;) {
    int64_t size = self.size(static_cast<int64_t>(d));
    rows[d] = rest.remainder(size);
    rest = rest.floor_divide(size);
  }
  at::Tensor indices =
      rows.empty() ? at::empty({0, places.size(0)}, places.options()) : at::stack(rows);
  return Coo(self, indices, SumRows(places.size(0), index, values), true);
}

// `like` with other values. Indices are copies, as PyTorch makes them: either may be written.
at::Tensor WithValues(const at::Tensor& like, const at::Tensor& values,
                      std::optional<at::ScalarType> indices = std::nullopt) {
  if (like.layout() == at::kSparse) {
    return Coo(like, like._indices().clone(), values, like.is_coalesced());
  }
  auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(like);
  auto copy = [&](const at::Tensor& t) {
    return t.to(indices.value_or(t.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
  };
  return MakeCompressed(copy(compressed), copy(plain), values, like.sizes(), like.layout());
}

// What a kernel leaves to the CPU's: unusual operands, and wrong ones, which raise in its words.
template <typename AtOp>
at::Tensor& OutOnHost(at::Tensor& out, torch::jit::Stack arguments) {
  OnHost<AtOp>(std::move(arguments));
  return out;
}

at::Tensor Scaled(const at::Tensor& t, const at::Scalar& by) { return by.equal(1) ? t : t.mul(by); }

at::Tensor& Put(at::Tensor& out, const at::Tensor& result) {
  at::Tensor cast = result.to(out.scalar_type());
  if (IsSparse(out)) {
    TakeSparse(out, cast);
  } else {
    out.resize_(cast.sizes()).copy_(cast);
  }
  return out;
}

// dense + sparse is dense; the sum of sparse tensors is their elements one after the other.
at::Tensor& AddOut(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                   at::Tensor& out) {
  at::ScalarType common = at::result_type(self, other);
  bool fits = OnXla(self) && IsCoo(other) && self.sizes() == other.sizes() &&
              c10::canCast(common, out.scalar_type()) && OnXla(out) &&
              out.layout() == self.layout();
  if (fits) CheckFits(alpha, ToDType(common));
  if (fits && IsDense(self)) {
    at::Tensor values = Scaled(other._values().to(common), alpha);
    at::Tensor sum = Flat(self.to(common), other).index_add(0, Places(other), values);
    return Put(out, sum.reshape(self.sizes()));
  }
  if (fits && IsCoo(self) && self.sparse_dim() == other.sparse_dim() && common != at::kBool) {
    at::Tensor indices = at::cat({self._indices(), other._indices()}, 1);
    at::Tensor values =
        at::cat({self._values().to(common), Scaled(other._values().to(common), alpha)}, 0);
    at::Tensor sum = Coo(self, indices, values, false);
    // More elements than places: sums of sums would grow without end.
    bool coalesce = (self.is_coalesced() && other.is_coalesced()) || sum._nnz() > SparseNumel(sum);
    return Put(out, coalesce ? sum.coalesce() : sum);
  }
  return OutOnHost<at::_ops::add_out>(out, {self, other, alpha, out});
}

// By a number, or by a dense tensor of the same shape, which is read at the elements.
at::Tensor& MulOut(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const at::Tensor& coo = IsCoo(self) ? self : other;
  const at::Tensor& by = IsCoo(self) ? other : self;
  at::ScalarType common = at::result_type(self, other);
  bool number = by.layout() == at::kStrided && by.dim() == 0 && coo.dim() > 0;
  bool fits = IsCoo(coo) && IsCoo(out) && (number || (IsDense(by) && by.sizes() == coo.sizes()));
  TORCH_CHECK(c10::canCast(common, out.scalar_type()), "result type ", common,
              " can't be cast to the desired output type ", out.scalar_type());
  if (!fits) return OutOnHost<at::_ops::mul_out>(out, {self, other, out});
  at::Tensor factor = number ? by : Flat(by, coo).index_select(0, Places(coo));
  at::Tensor values = coo._values().to(common).mul(factor.to(common));
  return Put(out, WithValues(coo, values));
}

// ---- Matrices as lists of elements.

// [nnz]: the row of each element, from where the rows start.
at::Tensor Expand(const at::Tensor& compressed, int64_t nnz) {
  at::Tensor elements = at::arange(nnz, compressed.options());
  return at::searchsorted(compressed, elements, /*out_int32=*/compressed.scalar_type() == at::kInt,
                          /*right=*/true)
      .sub(1);
}

struct Elements {
  at::Tensor row, column, value;

  Elements Transposed() const { return {column, row, value}; }
};

bool IsMatrixOfElements(const at::Tensor& t) {
  return (IsCoo(t) && t.sparse_dim() == 2 && t.dense_dim() == 0) ||
         (IsRowsOrColumns(t) && t.dim() == 2 && t.values().dim() == 1);
}

Elements ElementsOf(const at::Tensor& t) {
  if (IsCoo(t)) return {t._indices().select(0, 0), t._indices().select(0, 1), t._values()};
  auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(t);
  Elements rows{Expand(compressed, t._nnz()), plain, t.values()};
  return t.layout() == at::kSparseCsr ? rows : rows.Transposed();
}

// [nnz]: each element's place in rows of so many columns.
at::Tensor Places(const Elements& m, int64_t columns) {
  return m.row.to(at::kLong).mul(columns).add(m.column);
}

// self's values at the mask's places, zero where it has none.
at::Tensor SparseMask(const at::Tensor& self, const at::Tensor& mask) {
  if (IsDense(self) && IsRowsOrColumns(mask) && IsMatrixOfElements(mask) &&
      self.sizes() == mask.sizes()) {
    at::Tensor places = Places(ElementsOf(mask), self.size(1));
    return WithValues(mask, self.reshape(-1).index_select(0, places), at::kLong);
  }
  if (IsDense(self) && IsCoo(mask)) return at::native::sparse_mask(self, mask);
  bool fits = IsCoo(self) && IsCoo(mask) && self.sizes() == mask.sizes() &&
              self.sparse_dim() == mask.sparse_dim();
  if (!fits) return OnHost<at::_ops::sparse_mask>({self, mask})[0].toTensor();
  at::Tensor all = self.coalesce();
  at::Tensor values;
  if (all._nnz() == 0) {
    values = at::zeros_like(mask._values(), self.options().layout(at::kStrided));
  } else {
    at::Tensor places = Places(all), wanted = Places(mask);
    at::Tensor at = at::searchsorted(places, wanted).clamp_max(all._nnz() - 1);
    at::Tensor missing = places.index_select(0, at).ne(wanted);
    at::DimVector sizes(static_cast<size_t>(all._values().dim()), 1);
    sizes[0] = mask._nnz();
    values = all._values().index_select(0, at).masked_fill(missing.view(sizes), 0);
  }
  return WithValues(mask, values);
}

// [nnz, n]: each element times the row of a dense matrix that it meets in a product.
at::Tensor Terms(const Elements& m, const at::Tensor& dense) {
  return dense.index_select(0, m.column).mul(m.value.unsqueeze(1));
}

// [rows, n]: a sparse matrix of so many rows times a dense one.
at::Tensor Product(int64_t rows, const Elements& m, const at::Tensor& dense) {
  return SumRows(rows, m.row, Terms(m, dense));
}

at::Tensor& AddMMOut(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                     const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  bool left = IsMatrixOfElements(mat1) && IsDense(mat2);
  bool right = IsDense(mat1) && IsMatrixOfElements(mat2);
  at::ScalarType type = self.scalar_type();
  bool fits = (left || right) && IsDense(self) && IsDense(out) && mat1.dim() == 2 &&
              mat2.dim() == 2 && mat1.size(1) == mat2.size(0) && mat1.scalar_type() == type &&
              mat2.scalar_type() == type && out.scalar_type() == type &&
              !c10::isIntegralType(type, /*includeBool=*/true) &&
              at::is_expandable_to(self.sizes(), {mat1.size(0), mat2.size(1)});
  if (!fits) {
    return OutOnHost<at::_ops::addmm_out>(out, {self, mat1, mat2, beta, alpha, out});
  }
  CheckFits(alpha, ToDType(type));
  CheckFits(beta, ToDType(type));
  at::Tensor product = left ? Product(mat1.size(0), ElementsOf(mat1), mat2)
                            : Product(mat2.size(1), ElementsOf(mat2).Transposed(), mat1.t()).t();
  product = Scaled(product, alpha);
  // As BLAS has it: what beta = 0 multiplies is not read, NaN or not.
  return Put(out, beta.equal(0) ? product : product.add(Scaled(self, beta)));
}

at::Tensor AddMM(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  if (IsSparse(self)) {
    return OnHost<at::_ops::addmm>({self, mat1, mat2, beta, alpha})[0].toTensor();
  }
  at::Tensor out = at::empty({0}, self.options());
  return AddMMOut(self, mat1, mat2, beta, alpha, out);
}

at::Tensor& AddMM_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  bool whole = !IsSparse(self) && mat1.dim() == 2 && mat2.dim() == 2 &&
               self.sizes() == at::IntArrayRef({mat1.size(0), mat2.size(1)});
  if (!whole) return OutOnHost<at::_ops::addmm_>(self, {self, mat1, mat2, beta, alpha});
  return AddMMOut(self, mat1, mat2, beta, alpha, self);
}

// alpha * (mat1 @ mat2) where self has elements, plus beta * self.
at::Tensor SampledAddMM(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                        const at::Scalar& beta, const at::Scalar& alpha) {
  bool fits = IsMatrixOfElements(self) && self.layout() == at::kSparseCsr && IsDense(mat1) &&
              IsDense(mat2) && mat1.dim() == 2 && mat2.dim() == 2 && mat1.size(1) == mat2.size(0) &&
              mat1.size(0) == self.size(0) && mat2.size(1) == self.size(1) &&
              mat1.scalar_type() == self.scalar_type() &&
              mat2.scalar_type() == self.scalar_type() &&
              !c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  if (!fits) {
    return OnHost<at::_ops::sparse_sampled_addmm>({self, mat1, mat2, beta, alpha})[0].toTensor();
  }
  CheckFits(alpha, ToDType(self.scalar_type()));
  CheckFits(beta, ToDType(self.scalar_type()));
  Elements e = ElementsOf(self);
  at::Tensor products = mat1.index_select(0, e.row).mul(mat2.t().index_select(0, e.column)).sum(1);
  at::Tensor values = Scaled(products, alpha);
  if (!beta.equal(0)) values = values.add(Scaled(e.value, beta));
  return WithValues(self, values, at::kLong);
}

// ---- torch.sparse.mm(csr, dense, reduce): rows of products, reduced.

bool ReducesHere(const at::Tensor& self, const at::Tensor& other, c10::string_view reduce) {
  return IsMatrixOfElements(self) && self.layout() == at::kSparseCsr && IsDense(other) &&
         other.dim() == 2 && other.size(0) == self.size(1) &&
         other.scalar_type() == self.scalar_type() && at::isFloatingType(self.scalar_type()) &&
         (reduce == "sum" || reduce == "mean" || reduce == "amax" || reduce == "amin");
}

// [rows, 1]: how many elements each has, at least 1.
at::Tensor Counts(const at::Tensor& csr) {
  return csr.crow_indices().diff().clamp_min(1).unsqueeze(1);
}

// Also which element an extreme is from: the last NaN, else the first of equals, else (in an empty
// row, or one of the infinity that the search starts from) their number.
std::tuple<at::Tensor, at::Tensor> MMReduce(const at::Tensor& self, const at::Tensor& other,
                                            c10::string_view reduce) {
  if (!ReducesHere(self, other, reduce)) {
    auto both = OnHost<at::_ops::_sparse_mm_reduce_impl>({self, other, std::string(reduce)});
    return {both[0].toTensor(), both[1].toTensor()};
  }
  Elements e = ElementsOf(self);
  int64_t rows = self.size(0), n = self._nnz();
  at::Tensor none = at::empty({0}, self.crow_indices().options());
  if (reduce == "sum" || reduce == "mean") {
    at::Tensor sums = Product(rows, e, other);
    return {reduce == "mean" ? sums.div(Counts(self)) : sums, none};
  }
  at::Tensor terms = Terms(e, other);
  at::Tensor into = e.row.to(at::kLong).unsqueeze(1).expand_as(terms);
  at::Tensor best = at::zeros({rows, other.size(1)}, other.options())
                        .scatter_reduce(0, into, terms, reduce, /*include_self=*/false);
  at::Tensor number = at::arange(n, none.options()).unsqueeze(1);
  double start = reduce == "amax" ? -HUGE_VAL : HUGE_VAL;
  at::Tensor wins = terms.eq(best.index_select(0, e.row)).logical_and(terms.ne(start));
  at::Tensor first = at::full(best.sizes(), n, none.options())
                         .scatter_reduce(0, into, at::where(wins, number, n), "amin");
  at::Tensor nan = at::full(best.sizes(), -1, none.options())
                       .scatter_reduce(0, into, at::where(terms.ne(terms), number, -1), "amax");
  at::Tensor from = at::where(nan.ge(0), nan, first);
  return {best, from};
}

std::tuple<at::Tensor, at::Tensor> MMReduceBackward(const at::Tensor& self, const at::Tensor& grad,
                                                    const at::Tensor& other,
                                                    c10::string_view reduce, const at::Tensor& from,
                                                    std::array<bool, 2> mask) {
  if (!ReducesHere(self, other, reduce)) {
    auto both = OnHost<at::_ops::_sparse_mm_reduce_impl_backward>(
        {self, grad, other, std::string(reduce), from, c10::List<bool>({mask[0], mask[1]})});
    return {both[0].toTensor(), both[1].toTensor()};
  }
  Elements e = ElementsOf(self);
  at::Tensor factors = other.index_select(0, e.column);
  at::Tensor values, dense;
  if (reduce == "sum" || reduce == "mean") {
    at::Tensor rows = (reduce == "mean" ? grad.div(Counts(self)) : grad).index_select(0, e.row);
    if (mask[0]) values = rows.mul(factors).sum(1);
    if (mask[1]) dense = SumRows(other.size(0), e.column, rows.mul(e.value.unsqueeze(1)));
  } else if (self._nnz() == 0) {
    values = e.value.clone();
    dense = at::zeros_like(other);
  } else {
    at::Tensor won = from.to(at::kLong), empty = won.eq(self._nnz());
    won = won.masked_fill(empty, 0);
    at::Tensor rows = grad.masked_fill(empty, 0), places = won.reshape(-1);
    if (mask[0]) {
      at::Tensor terms = rows.mul(factors.gather(0, won)).masked_fill(empty, 0);
      values = SumRows(self._nnz(), places, terms.reshape(-1));
    }
    if (mask[1]) {
      auto of_won = [&](const at::Tensor& t) { return t.index_select(0, places).view_as(won); };
      at::Tensor terms = rows.mul(of_won(e.value)).masked_fill(empty, 0);
      dense = at::zeros_like(other).scatter_add(0, of_won(e.column).to(at::kLong), terms);
    }
  }
  return {mask[0] ? WithValues(self, values) : at::Tensor(), mask[1] ? dense : at::Tensor()};
}

// ---- Between forms.

at::Tensor RowStarts(const at::Tensor& self, int64_t size, bool out_int32) {
  if (self.dim() != 1 || !(self.scalar_type() == at::kLong || self.scalar_type() == at::kInt)) {
    return OnHost<at::_ops::_convert_indices_from_coo_to_csr>({self, size, out_int32})[0]
        .toTensor();
  }
  return at::searchsorted(self, at::arange(size + 1, self.options()), out_int32);
}

// A matrix of any form but blocks; the elements go row by row, or column by column.
template <at::Layout kLayout, typename AtOp>
at::Tensor ToCompressed(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  if (IsDense(self) && self.dim() == 2 && !dense_dim) {
    return ToCompressed<kLayout, AtOp>(self.to_sparse(), dense_dim);
  }
  if (!IsMatrixOfElements(self) || self.layout() == kLayout || dense_dim.value_or(0) != 0) {
    return OnHost<AtOp>({self, dense_dim})[0].toTensor();
  }
  bool by_row = kLayout == at::kSparseCsr;
  bool sorted = IsCoo(self) && by_row;
  Elements e = ElementsOf(IsCoo(self) ? self.coalesce() : self);
  if (!by_row) e = e.Transposed();
  int64_t rows = self.size(by_row ? 0 : 1), columns = self.size(by_row ? 1 : 0);
  if (!sorted) {
    at::Tensor order = Places(e, columns).argsort();
    e = {e.row.index_select(0, order), e.column.index_select(0, order),
         e.value.index_select(0, order)};
  }
  at::Tensor starts = RowStarts(e.row, rows, e.row.scalar_type() == at::kInt);
  return MakeCompressed(starts, e.column.contiguous(), e.value, self.sizes(), kLayout);
}

at::Tensor ToCsr(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return ToCompressed<at::kSparseCsr, at::_ops::_to_sparse_csr>(self, dense_dim);
}
at::Tensor ToCsc(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return ToCompressed<at::kSparseCsc, at::_ops::_to_sparse_csc>(self, dense_dim);
}

at::Tensor RowsAndColumns(const at::Tensor& starts, const at::Tensor& columns, bool out_int32,
                          bool transpose) {
  if (starts.dim() != 1) {
    return OnHost<at::_ops::_convert_indices_from_csr_to_coo>(
               {starts, columns, out_int32, transpose})[0]
        .toTensor();
  }
  at::Tensor rows = Expand(starts, columns.numel());
  at::Tensor both = transpose ? at::stack({columns, rows}) : at::stack({rows, columns});
  return both.to(out_int32 ? at::kInt : at::kLong);
}

// Every way to PyTorch's constructor of compressed tensors, which knows its own devices only.
at::Tensor Compressed(const at::Tensor& compressed, const at::Tensor& plain,
                      const at::Tensor& values, at::SymIntArrayRef sizes,
                      std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                      std::optional<at::Device>, std::optional<bool>) {
  TORCH_CHECK(layout.has_value() && *layout != at::kStrided && *layout != at::kSparse,
              "sparse_compressed_tensor expected sparse compressed tensor layout but got ",
              layout.value_or(at::kStrided));
  at::IntArrayRef size = C10_AS_INTARRAYREF_SLOW(sizes);
  if (at::globalContext().checkSparseTensorInvariants()) {
    at::_validate_sparse_compressed_tensor_args(compressed, plain, values, size, *layout);
  }
  return MakeCompressed(compressed, plain, values.to(dtype.value_or(values.scalar_type())), size,
                        *layout);
}

template <at::Layout kLayout>
at::Tensor CompressedOf(const at::Tensor& compressed, const at::Tensor& plain,
                        const at::Tensor& values, at::IntArrayRef size,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return Compressed(compressed, plain, values, c10::fromIntArrayRefSlow(size), dtype, kLayout,
                    device, pin_memory);
}

at::Tensor EmptyCompressed(at::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout> layout, std::optional<at::Device> device,
                           std::optional<bool> pin_memory, std::optional<at::MemoryFormat>) {
  auto options = at::TensorOptions().dtype(dtype).layout(layout).pinned_memory(pin_memory);
  at::Tensor host = at::empty_symint(size, options.device(at::kCPU));
  return FromCpu(host, DeviceOf(device));
}

// PyTorch's own makes the members first and calls its constructor directly.
at::Tensor ToCopyCompressed(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                            std::optional<at::Layout> layout, std::optional<at::Device> device,
                            std::optional<bool> pin_memory, bool non_blocking,
                            std::optional<at::MemoryFormat> format) {
  c10::Device to = device.value_or(self.device());
  // A dense gradient of a compressed tensor comes here by the layout that is asked for.
  if (!to.is_xla() || layout.value_or(self.layout()) != self.layout()) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  auto copy = [&](const at::Tensor& t, at::ScalarType type) {
    return t.to(to, type, non_blocking, /*copy=*/true);
  };
  auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(self);
  return MakeCompressed(
      copy(compressed, compressed.scalar_type()), copy(plain, plain.scalar_type()),
      copy(self.values(), dtype.value_or(self.scalar_type())), self.sizes(), self.layout());
}

at::Tensor ToSparse(const at::Tensor& self, std::optional<at::Layout> layout,
                    at::OptionalIntArrayRef blocksize, std::optional<int64_t> dense_dim) {
  return at::native::dense_to_sparse(self, layout, blocksize, dense_dim);
}

at::Tensor ToSparseDims(const at::Tensor& self, int64_t sparse_dim) {
  return at::native::dense_to_sparse(self, sparse_dim);
}

}  // namespace

XLA_OPS(m) {
  m.impl("_convert_indices_from_coo_to_csr", TORCH_FN(RowStarts));
  m.impl("_convert_indices_from_csr_to_coo", TORCH_FN(RowsAndColumns));
  m.impl("_to_sparse", TORCH_FN(ToSparse));
  m.impl("_to_sparse.sparse_dim", TORCH_FN(ToSparseDims));
  m.impl("_to_sparse_csc", TORCH_FN(ToCsc));
  m.impl("_to_sparse_csr", TORCH_FN(ToCsr));
  m.impl("sparse_mask", TORCH_FN(SparseMask));
}

TORCH_LIBRARY_IMPL(aten, SparseXLA, m) {
  m.impl("_coalesce", TORCH_FN(Coalesce));
  m.impl("_to_sparse_csc", TORCH_FN(ToCsc));
  m.impl("_to_sparse_csr", TORCH_FN(ToCsr));
  m.impl("add.out", TORCH_FN(AddOut));
  m.impl("addmm", TORCH_FN(AddMM));
  m.impl("addmm.out", TORCH_FN(AddMMOut));
  m.impl("addmm_", TORCH_FN(AddMM_));
  m.impl("mul.out", TORCH_FN(MulOut));
  m.impl("sparse_mask", TORCH_FN(SparseMask));
}

// Constructors are found by layout and device, whatever holds the indices.
TORCH_LIBRARY_IMPL(aten, SparseCsrXLA, m) {
  m.impl("_sparse_bsc_tensor_unsafe", TORCH_FN(CompressedOf<at::kSparseBsc>));
  m.impl("_sparse_bsr_tensor_unsafe", TORCH_FN(CompressedOf<at::kSparseBsr>));
  m.impl("_sparse_compressed_tensor_unsafe", TORCH_FN(Compressed));
  m.impl("_sparse_csc_tensor_unsafe", TORCH_FN(CompressedOf<at::kSparseCsc>));
  m.impl("_sparse_csr_tensor_unsafe", TORCH_FN(CompressedOf<at::kSparseCsr>));
  m.impl("sparse_bsc_tensor.ccol_row_value_size", TORCH_FN(CompressedOf<at::kSparseBsc>));
  m.impl("sparse_bsr_tensor.crow_col_value_size", TORCH_FN(CompressedOf<at::kSparseBsr>));
  m.impl("sparse_compressed_tensor.comp_plain_value_size", TORCH_FN(Compressed));
  m.impl("sparse_csc_tensor.ccol_row_value_size", TORCH_FN(CompressedOf<at::kSparseCsc>));
  m.impl("sparse_csr_tensor.crow_col_value_size", TORCH_FN(CompressedOf<at::kSparseCsr>));
  m.impl("_to_copy", TORCH_FN(ToCopyCompressed));
  m.impl("_to_sparse_csc", TORCH_FN(ToCsc));
  m.impl("_to_sparse_csr", TORCH_FN(ToCsr));
  m.impl("_sparse_mm_reduce_impl", TORCH_FN(MMReduce));
  m.impl("_sparse_mm_reduce_impl_backward", TORCH_FN(MMReduceBackward));
  m.impl("addmm", TORCH_FN(AddMM));
  m.impl("addmm.out", TORCH_FN(AddMMOut));
  m.impl("empty.memory_format", TORCH_FN(EmptyCompressed));
  m.impl("sparse_mask", TORCH_FN(SparseMask));
  m.impl("sparse_sampled_addmm", TORCH_FN(SampledAddMM));
}

// From the CPU to ours: the source chooses the kernel. Elsewhere it is PyTorch's.
TORCH_LIBRARY_IMPL(aten, SparseCsrCPU, m) { m.impl("_to_copy", TORCH_FN(ToCopyCompressed)); }

}  // namespace torch_xla::ops
