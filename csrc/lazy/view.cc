#include "lazy/view.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"
#include "hlo/reduce.h"

namespace torch_xla::lazy {
namespace {

using hlo::Builder;
using ir::Node;
using Operands = std::span<const hlo::Value>;
using Results = std::vector<hlo::Value>;

// ---- What each kind computes. Readers get (params, view shape, operands = {parent[, position]});
// writers get (params, operands = {parent, view[, position]}) and give the parent's new value.

Dims Inverse(Span perm) {
  Dims inverse(perm.size(), 0);
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return inverse;
}

// The first of the repeated elements along each stretched dimension.
hlo::Value Unexpand(hlo::Value view, const Dims& parent) {
  size_t extra = view.dims().size() - parent.size();
  Dims limit = view.dims();
  for (size_t i = 0; i < limit.size(); ++i) {
    bool stretched = i < extra || (parent[i - extra] == 1 && limit[i] != 1);
    if (stretched) limit[i] = std::min<int64_t>(limit[i], 1);
  }
  hlo::Value first = hlo::Slice(view, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
  return hlo::Reshape(first, parent);
}

// Where two values of one shape differ in a bit.
hlo::Value Changed(hlo::Value a, hlo::Value b) {
  if (!IsComplex(a.dtype())) return hlo::Ne(hlo::ToBits(a), hlo::ToBits(b));
  return hlo::Or(hlo::Ne(hlo::ToBits(hlo::Real(a)), hlo::ToBits(hlo::Real(b))),
                 hlo::Ne(hlo::ToBits(hlo::Imag(a)), hlo::ToBits(hlo::Imag(b))));
}

// The parent of an expanded view of which some elements were written: of the elements that are one
// in the parent it takes the changed one.
hlo::Value UnexpandChanged(hlo::Value parent, hlo::Value view) {
  if (IsComplex(view.dtype())) {
    return hlo::Complex(UnexpandChanged(hlo::Real(parent), hlo::Real(view)),
                        UnexpandChanged(hlo::Imag(parent), hlo::Imag(view)));
  }
  const Dims& small = parent.dims();
  size_t extra = view.dims().size() - small.size();
  Dims repeated;
  for (size_t i = 0; i < view.dims().size(); ++i) {
    if (i < extra || (small[i - extra] == 1 && view.dims()[i] != 1)) {
      repeated.push_back(static_cast<int64_t>(i));
    }
  }
  hlo::Value changed = Changed(view, hlo::BroadcastTo(parent, view.dims()));
  hlo::Value bits = hlo::ToBits(view);
  hlo::Value written = hlo::Select(changed, bits, hlo::FullLike(bits, 0));
  auto reduce = [&](hlo::Value x, hlo::Reducer reducer) {
    return hlo::Reshape(hlo::Reduce(x, repeated, reducer), small);
  };
  hlo::Value taken = hlo::FromBits(reduce(written, hlo::Reducer::kMax), parent.dtype());
  return hlo::Select(reduce(changed, hlo::Reducer::kOr), taken, parent);
}

hlo::Value ReadSlice(hlo::Value parent, Span params, const Shape& view) {
  auto dim = static_cast<size_t>(params[0]);
  int64_t start = params[1], step = params[2], n = view.dims[dim];
  return hlo::SliceDim(parent, params[0], start, n == 0 ? start : start + (n - 1) * step + 1, step);
}

hlo::Value WriteSlice(hlo::Value parent, hlo::Value view, Span params) {
  int64_t dim = params[0], start = params[1], step = params[2];
  int64_t n = view.dim(dim), size = parent.dim(dim);
  if (n == 0) return parent;
  if (n == size) return view;
  Builder& b = parent.builder();
  if (step == 1) {
    std::vector<hlo::Value> parts;
    if (start > 0) parts.push_back(hlo::SliceDim(parent, dim, 0, start));
    parts.push_back(view);
    if (start + n < size) parts.push_back(hlo::SliceDim(parent, dim, start + n, size));
    return hlo::Concatenate(parts, dim);
  }
  // Spread the view over the parent's extent and choose by position.
  auto rank = static_cast<size_t>(parent.rank());
  Dims low(rank, 0), high(rank, 0), interior(rank, 0);
  auto d = static_cast<size_t>(dim);
  low[d] = start;
  interior[d] = step - 1;
  high[d] = size - (start + (n - 1) * step + 1);
  auto spread = [&](hlo::Value x, hlo::Value fill) {
    return hlo::Pad(x, fill, low, high, interior);
  };
  hlo::Value here = spread(hlo::FullInt(b, view.shape().with(DType::kBool), 1),
                           hlo::ScalarInt(b, DType::kBool, 0));
  hlo::Value zero = hlo::Scalar(b, view.dtype(), 0);
  return hlo::Select(here, spread(view, zero), parent);
}

Results Starts(hlo::Value parent, int64_t dim, hlo::Value position) {
  Results starts(static_cast<size_t>(parent.rank()),
                 hlo::ScalarInt(parent.builder(), DType::kS64, 0));
  starts[static_cast<size_t>(dim)] = position;
  return starts;
}

// True on the parent's elements that the diagonal visits; with dim1 and dim2 moved to the end.
struct Diagonal {
  Dims to_end;  // permutation
  Dims moved;   // parent's dims after it
  int64_t row0, col0, n;

  Diagonal(Span params, const Dims& parent, int64_t length) : n(length) {
    int64_t offset = params[0], dim1 = params[1], dim2 = params[2];
    for (int64_t i = 0; i < static_cast<int64_t>(parent.size()); ++i) {
      if (i != dim1 && i != dim2) to_end.push_back(i);
    }
    to_end.push_back(dim1);
    to_end.push_back(dim2);
    for (int64_t d : to_end) moved.push_back(parent[static_cast<size_t>(d)]);
    row0 = offset < 0 ? -offset : 0;
    col0 = offset > 0 ? offset : 0;
  }

  // indices[n, 2] of the diagonal's elements in the last two dimensions
  hlo::Value Indices(Builder& b) const {
    auto column = [&](int64_t first) {
      hlo::Value i = hlo::Iota(b, {DType::kS64, {n, 1}}, 0);
      return hlo::Add(i, hlo::FullInt(b, i.shape(), first));
    };
    return hlo::Concatenate({column(row0), column(col0)}, 1);
  }
};

hlo::Value ReadDiagonal(hlo::Value parent, Span params, const Shape& view) {
  Diagonal d(params, parent.dims(), view.dims.back());
  hlo::Value x = hlo::Transpose(parent, d.to_end);
  int64_t rank = x.rank();
  hlo::GatherDims dims;
  Dims sizes = d.moved;
  for (int64_t i = 0; i < rank - 2; ++i) dims.offset_dims.push_back(i);
  dims.collapsed_slice_dims = {rank - 2, rank - 1};
  dims.start_index_map = dims.collapsed_slice_dims;
  dims.index_vector_dim = 1;
  sizes[sizes.size() - 2] = sizes[sizes.size() - 1] = 1;
  if (d.n == 0) return hlo::FullInt(parent.builder(), view, 0);
  return hlo::Gather(x, d.Indices(x.builder()), dims, sizes);
}

hlo::ScatterDims ToScatter(const Dims& window, const Dims& inserted) {
  hlo::ScatterDims dims;
  dims.update_window_dims = window;
  dims.inserted_window_dims = inserted;
  dims.scatter_dims_to_operand_dims = inserted;
  dims.index_vector_dim = 1;
  return dims;
}

hlo::Value Overwrite(hlo::Value into, hlo::Value indices, hlo::Value update,
                     const hlo::ScatterDims& dims) {
  return hlo::Scatter(into, indices, update, dims,
                      [](Builder&, Operands args) { return Results{args[1]}; });
}

hlo::Value WriteDiagonal(hlo::Value parent, hlo::Value view, Span params) {
  Diagonal d(params, parent.dims(), view.dims().back());
  if (d.n == 0) return parent;
  hlo::Value x = hlo::Transpose(parent, d.to_end);
  Dims window;
  for (int64_t i = 0; i < x.rank() - 2; ++i) window.push_back(i);
  hlo::Value y =
      Overwrite(x, d.Indices(x.builder()), view, ToScatter(window, {x.rank() - 2, x.rank() - 1}));
  return hlo::Transpose(y, Inverse(d.to_end));
}

// indices[numel, 1] into the flat parent
hlo::Value StridedIndices(Builder& b, Span params, const Dims& view) {
  Shape shape{DType::kS64, view};
  hlo::Value index = hlo::FullInt(b, shape, params[0]);
  for (int64_t d = 0; d < shape.rank(); ++d) {
    hlo::Value i = hlo::Iota(b, shape, d);
    index =
        hlo::Add(index, hlo::Mul(i, hlo::FullInt(b, shape, params[static_cast<size_t>(d) + 1])));
  }
  return hlo::Reshape(index, {shape.numel(), 1});
}

hlo::Value ReadStrided(hlo::Value parent, Span params, const Shape& view) {
  if (view.numel() == 0) return hlo::FullInt(parent.builder(), view, 0);
  hlo::Value flat = hlo::Reshape(parent, {parent.shape().numel()});
  hlo::GatherDims dims;
  dims.collapsed_slice_dims = {0};
  dims.start_index_map = {0};
  dims.index_vector_dim = 1;
  hlo::Value taken =
      hlo::Gather(flat, StridedIndices(parent.builder(), params, view.dims), dims, {1});
  return hlo::Reshape(taken, view.dims);
}

// `partly`: elements that are unchanged write nothing, so that they don't undo what was written to
// others at the same place.
hlo::Value WriteStrided(hlo::Value parent, hlo::Value view, Span params) {
  if (view.shape().numel() == 0) return parent;
  Builder& b = parent.builder();
  bool partly = params.size() > view.dims().size() + 1;
  hlo::Value flat = hlo::Reshape(parent, {parent.shape().numel()});
  hlo::Value indices = StridedIndices(b, params, view.dims());
  if (partly) {
    hlo::Value changed =
        hlo::Reshape(Changed(view, ReadStrided(parent, params, view.shape())), indices.dims());
    hlo::Value outside = hlo::FullInt(b, indices.shape(), parent.shape().numel());
    indices = hlo::Select(changed, indices, outside);
  }
  hlo::Value update = hlo::Reshape(view, {view.shape().numel()});
  return hlo::Reshape(Overwrite(flat, indices, update, ToScatter({}, {0})), parent.dims());
}

// Other element size: stablehlo.bitcast_convert adds or removes a trailing dimension.
hlo::Value AsReal(hlo::Value x);
hlo::Value AsComplex(hlo::Value x);

Dims Doubled(Dims dims) {
  if (dims.empty()) return {2};
  dims.back() *= 2;
  return dims;
}

hlo::Value Bitcast(hlo::Value x, const Shape& to) {
  // StableHLO casts neither bool nor complex: bool is a byte, complex two floats.
  if (x.dtype() == DType::kBool) x = hlo::Convert(x, DType::kU8);
  if (IsComplex(x.dtype())) x = hlo::Reshape(AsReal(x), Doubled(x.dims()));
  if (to.dtype == DType::kBool) {
    hlo::Value bytes = Bitcast(x, to.with(DType::kU8));
    return hlo::Ne(bytes, hlo::FullLike(bytes, 0));
  }
  if (IsComplex(to.dtype)) {
    Dims pairs = to.dims;
    pairs.push_back(2);
    return AsComplex(hlo::Reshape(Bitcast(x, {RealPart(to.dtype), Doubled(to.dims)}), pairs));
  }
  size_t from_bytes = ByteSize(x.dtype()), to_bytes = ByteSize(to.dtype);
  if (from_bytes == to_bytes) return hlo::BitcastConvert(x, to.dtype);
  if (from_bytes > to_bytes) return hlo::Reshape(hlo::BitcastConvert(x, to.dtype), to.dims);
  Dims split = to.dims;
  split.push_back(static_cast<int64_t>(to_bytes / from_bytes));
  return hlo::BitcastConvert(hlo::Reshape(x, split), to.dtype);
}

hlo::Value AsReal(hlo::Value x) {
  Dims dims = x.dims();
  dims.push_back(1);
  return hlo::Concatenate({hlo::Reshape(hlo::Real(x), dims), hlo::Reshape(hlo::Imag(x), dims)},
                          x.rank());
}

hlo::Value AsComplex(hlo::Value x) {
  Dims dims = x.dims();
  dims.erase(dims.size() - 1);
  auto part = [&](int64_t i) {
    return hlo::Reshape(hlo::SliceDim(x, x.rank() - 1, i, i + 1), dims);
  };
  return hlo::Complex(part(0), part(1));
}

hlo::Value Conj(hlo::Value x) {
  return IsComplex(x.dtype()) ? hlo::Complex(hlo::Real(x), hlo::Neg(hlo::Imag(x))) : x;
}

void LowerRead(ViewKind kind, const Node& node, Operands in, Results& out) {
  const Shape& view = node.shape();
  Span params = node.words();
  hlo::Value parent = in[0];
  switch (kind) {
    case ViewKind::kReshape: out.push_back(hlo::Reshape(parent, view.dims)); return;
    case ViewKind::kPermute: out.push_back(hlo::Transpose(parent, params)); return;
    case ViewKind::kExpand: out.push_back(hlo::BroadcastTo(parent, view.dims)); return;
    case ViewKind::kSlice: out.push_back(ReadSlice(parent, params, view)); return;
    case ViewKind::kDynamicSlice:
      out.push_back(hlo::DynamicSlice(parent, Starts(parent, params[0], in[1]), view.dims));
      return;
    case ViewKind::kDiagonal: out.push_back(ReadDiagonal(parent, params, view)); return;
    case ViewKind::kAsStrided: out.push_back(ReadStrided(parent, params, view)); return;
    case ViewKind::kBitcast: out.push_back(Bitcast(parent, view)); return;
    case ViewKind::kViewAsReal: out.push_back(AsReal(parent)); return;
    case ViewKind::kViewAsComplex: out.push_back(AsComplex(parent)); return;
    case ViewKind::kConj: out.push_back(Conj(parent)); return;
    case ViewKind::kNeg: out.push_back(hlo::Neg(parent)); return;
  }
}

void LowerWrite(ViewKind kind, const Node& node, Operands in, Results& out) {
  Span params = node.words();
  hlo::Value parent = in[0], view = in[1];
  switch (kind) {
    case ViewKind::kReshape: out.push_back(hlo::Reshape(view, parent.dims())); return;
    case ViewKind::kPermute: out.push_back(hlo::Transpose(view, Inverse(params))); return;
    case ViewKind::kExpand:
      if (view.shape().numel() == 0) {
        out.push_back(parent);
      } else {
        bool partly = !params.empty();
        out.push_back(partly ? UnexpandChanged(parent, view) : Unexpand(view, parent.dims()));
      }
      return;
    case ViewKind::kSlice: out.push_back(WriteSlice(parent, view, params)); return;
    case ViewKind::kDynamicSlice:
      out.push_back(hlo::DynamicUpdateSlice(parent, view, Starts(parent, params[0], in[2])));
      return;
    case ViewKind::kDiagonal: out.push_back(WriteDiagonal(parent, view, params)); return;
    case ViewKind::kAsStrided: out.push_back(WriteStrided(parent, view, params)); return;
    case ViewKind::kBitcast: out.push_back(Bitcast(view, parent.shape())); return;
    case ViewKind::kViewAsReal: out.push_back(AsComplex(view)); return;
    case ViewKind::kViewAsComplex: out.push_back(AsReal(view)); return;
    case ViewKind::kConj: out.push_back(Conj(view)); return;
    case ViewKind::kNeg: out.push_back(hlo::Neg(view)); return;
  }
}

struct Ops {
  ir::OpDef read, write;
};

template <ViewKind kKind>
Ops MakeOps(const char* read, const char* write) {
  return {ir::OpDef(read, [](const Node& n, Builder&, Operands in,
                             Results& out) { LowerRead(kKind, n, in, out); }),
          ir::OpDef(write, [](const Node& n, Builder&, Operands in, Results& out) {
            LowerWrite(kKind, n, in, out);
          })};
}

// In the order of ViewKind.
const Ops& OpsOf(ViewKind kind) {
  static const std::array<Ops, 12> ops = {
      MakeOps<ViewKind::kReshape>("xla::view_reshape", "xla::write_reshape"),
      MakeOps<ViewKind::kPermute>("xla::view_permute", "xla::write_permute"),
      MakeOps<ViewKind::kExpand>("xla::view_expand", "xla::write_expand"),
      MakeOps<ViewKind::kSlice>("xla::view_slice", "xla::write_slice"),
      MakeOps<ViewKind::kDynamicSlice>("xla::view_dynamic_slice", "xla::write_dynamic_slice"),
      MakeOps<ViewKind::kDiagonal>("xla::view_diagonal", "xla::write_diagonal"),
      MakeOps<ViewKind::kAsStrided>("xla::view_as_strided", "xla::write_as_strided"),
      MakeOps<ViewKind::kBitcast>("xla::view_bitcast", "xla::write_bitcast"),
      MakeOps<ViewKind::kViewAsReal>("xla::view_as_real", "xla::write_as_real"),
      MakeOps<ViewKind::kViewAsComplex>("xla::view_as_complex", "xla::write_as_complex"),
      MakeOps<ViewKind::kConj>("xla::view_conj", "xla::write_conj"),
      MakeOps<ViewKind::kNeg>("xla::view_neg", "xla::write_neg"),
  };
  return ops[static_cast<size_t>(kind)];
}

}  // namespace

ir::Value ViewStep::Read(ir::Value parent) const {
  const ir::OpDef& op = OpsOf(kind).read;
  op.CountRecorded();
  ir::Value operands[] = {std::move(parent), position};
  return {Node::Make(op, {operands, position ? 2u : 1u}, shape, params), 0};
}

ir::Value ViewStep::Write(ir::Value parent, ir::Value view) const {
  const ir::OpDef& op = OpsOf(kind).write;
  op.CountRecorded();
  Shape parent_shape = parent.shape();
  ir::Value operands[] = {std::move(parent), std::move(view), position};
  return {Node::Make(op, {operands, position ? 3u : 2u}, parent_shape, params), 0};
}

}  // namespace torch_xla::lazy
