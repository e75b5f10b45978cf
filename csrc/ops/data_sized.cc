// Operators whose result has a size that only the data tell: one number is read back (a
// synchronisation), everything else is recorded.
#include <ATen/ops/any.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "aten/ops_util.h"
#include "hlo/control.h"
#include "ops/lowering.h"
#include "ops/scatter_dim.h"

namespace torch_xla::ops {
namespace {

at::TensorOptions Long(const at::Tensor& like) { return like.options().dtype(at::kLong); }

struct Range2 {
  int64_t first, second;
};
// Two numbers in one read.
Range2 Read(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor both = at::stack({a.to(at::kLong), b.to(at::kLong)}).to(at::kCPU);
  const auto* v = both.const_data_ptr<int64_t>();
  return {v[0], v[1]};
}

// ---- unique

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Elements in runs of equal ones: the number of each one's run, and where each run begins.
struct Runs {
  at::Tensor run, begin;

  // changes[i]: whether element i + 1 differs from element i.
  explicit Runs(const at::Tensor& changes) {
    at::TensorOptions options = Long(changes);
    run = at::cat({at::zeros({1}, options), at::cumsum(changes, 0)});
    int64_t count = run.select(0, -1).item<int64_t>() + 1;
    begin = at::searchsorted(run, at::arange(count, options));
  }

  at::Tensor Lengths() const {
    at::Tensor end = at::full({1}, run.size(0), run.options());
    return at::diff(begin, 1, -1, {}, end);
  }
};

at::Tensor Changes(const at::Tensor& rows) {
  int64_t n = rows.size(0);
  at::Tensor changes = at::ne(rows.slice(0, 1, n), rows.slice(0, 0, n - 1));
  return rows.dim() == 1 ? changes : at::any(changes, 1);
}

at::Tensor None(const at::Tensor& like) { return at::empty({0}, Long(like)); }

// Of elements or rows that `order` sorts; no order: they stay where they are.
Three Unique(const at::Tensor& sorted, const std::optional<at::Tensor>& order, bool inverse,
             bool counts) {
  Runs runs(Changes(sorted));
  at::Tensor at = runs.run;
  if (order && inverse) at = at::scatter(at::zeros_like(*order), 0, *order, runs.run);
  return {sorted.index_select(0, runs.begin), inverse ? at : None(sorted),
          counts ? runs.Lengths() : None(sorted)};
}

Three OfNothing(const at::Tensor& self, bool inverse) {
  at::Tensor places = inverse ? at::empty(self.sizes(), Long(self)) : None(self);
  return {at::empty({0}, self.options()), places, None(self)};
}

Three Unique2(const at::Tensor& self, bool, bool inverse, bool counts) {
  CheckImplemented(!self.is_complex(), "unique", ToDType(self.scalar_type()));
  if (self.numel() == 0) return OfNothing(self, inverse);
  auto [sorted, order] = at::sort(self.reshape({-1}), /*stable=*/true, 0, false);
  Three out = Unique(sorted, order, inverse, counts);
  if (inverse) std::get<1>(out) = std::get<1>(out).reshape(self.sizes());
  return out;
}

std::tuple<at::Tensor, at::Tensor> UniqueOld(const at::Tensor& self, bool sorted, bool inverse) {
  auto [values, places, counts] = Unique2(self, sorted, inverse, false);
  return {values, places};
}

// rows[n, m] -> the order [n] that sorts them, the first column before the second: by stable sorts
// from the last column on.
void LowerRowOrder(const ir::Node&, Builder& b, std::span<const Value> in,
                   std::vector<Value>& out) {
  Value columns = hlo::Transpose(in[0], {1, 0});
  int64_t m = columns.dim(0), n = columns.dim(1);
  auto sort_by = [&](Value column, Value order) {
    const Value operands[] = {GatherAlong(column, 0, order), order};
    return hlo::Sort(operands, 0, /*is_stable=*/true, [](Builder&, std::span<const Value> v) {
      Value before = hlo::Lt(v[0], v[1]);
      if (IsFloat(v[0].dtype()))
        before = hlo::Or(before, hlo::And(IsNan(v[1]), hlo::Not(IsNan(v[0]))));
      return std::vector<Value>{before};
    })[1];
  };
  const Value inits[] = {hlo::ScalarInt(b, DType::kS64, m - 1),
                         hlo::Iota(b, {DType::kS64, {n}}, 0)};
  auto cond = [](Builder&, std::span<const Value> v) {
    return std::vector<Value>{hlo::Ge(v[0], FullLike(v[0], 0))};
  };
  auto body = [&](Builder&, std::span<const Value> v) {
    const Value starts[] = {v[0], FullLike(v[0], 0)};
    Value column = hlo::Reshape(hlo::DynamicSlice(columns, starts, {1, n}), {n});
    return std::vector<Value>{Plus(v[0], -1), sort_by(column, v[1])};
  };
  out.push_back(hlo::While(inits, cond, body)[1]);
}

at::Tensor RowOrder(const at::Tensor& rows) {
  static const ir::OpDef op("aten::unique_dim", LowerRowOrder);
  op.CountRecorded();
  const lazy::Tensor& tensor = Unwrap(rows);
  c10::SmallVector<ir::Value, 1> operands{tensor.value()};
  return Wrap(ir::Value{ir::Node::Make(op, {operands.data(), operands.size()},
                                       Shape{DType::kS64, {rows.size(0)}}),
                        0},
              tensor.device());
}

Three UniqueAlong(const at::Tensor& self, int64_t dim, bool consecutive, bool inverse,
                  bool counts) {
  CheckImplemented(!self.is_complex(), "unique_dim", ToDType(self.scalar_type()));
  TORCH_CHECK_INDEX(self.dim() != 0, "Dimension specified as ", dim,
                    " but tensor has no dimensions");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  auto zeros = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(zeros == 1,
                "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {at::empty(self.sizes(), self.options()), None(self), None(self)};
  }
  TORCH_CHECK(zeros == 0,
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
              "applied");
  at::Tensor first = self.movedim(dim, 0);
  at::Tensor rows = first.reshape({first.size(0), -1});
  std::optional<at::Tensor> order;
  if (!consecutive) {
    order = RowOrder(rows);
    rows = rows.index_select(0, *order);
  }
  auto [values, places, lengths] = Unique(rows, order, inverse, counts);
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = values.size(0);
  return {values.reshape(sizes).movedim(0, dim), places, lengths};
}

Three UniqueDim(const at::Tensor& self, int64_t dim, bool, bool inverse, bool counts) {
  return UniqueAlong(self, dim, /*consecutive=*/false, inverse, counts);
}
Three UniqueDimConsecutive(const at::Tensor& self, int64_t dim, bool inverse, bool counts) {
  return UniqueAlong(self, dim, /*consecutive=*/true, inverse, counts);
}

Three UniqueConsecutive(const at::Tensor& self, bool inverse, bool counts,
                        std::optional<int64_t> dim) {
  if (dim) return UniqueDimConsecutive(self, *dim, inverse, counts);
  CheckImplemented(!self.is_complex(), "unique", ToDType(self.scalar_type()));
  if (self.numel() == 0) return OfNothing(self, inverse);
  Three out = Unique(self.reshape({-1}), {}, inverse, counts);
  if (inverse) std::get<1>(out) = std::get<1>(out).reshape(self.sizes());
  return out;
}

// ---- bincount

at::Tensor Bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                    c10::SymInt minlength) {
  constexpr const char* kWrong = "bincount only supports 1-d non-negative integral inputs.";
  int64_t least = minlength.guard_int(__FILE__, __LINE__);
  CheckImplemented(c10::isIntegralType(self.scalar_type(), /*includeBool=*/false), "bincount_cpu",
                   ToDType(self.scalar_type()));
  TORCH_CHECK(least >= 0, "minlength should be >= 0");
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({least}, Long(self));
  TORCH_CHECK(self.dim() == 1, kWrong);
  at::Tensor index = self.to(at::kLong);
  bool weighted = weights && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  auto [low, high] = Read(index.min(), index.max());
  TORCH_CHECK(low >= 0, kWrong);
  at::Tensor each = at::ones({1}, Long(self)).expand_as(index);
  if (weighted) each = weights->scalar_type() == at::kFloat ? *weights : weights->to(at::kDouble);
  return at::scatter_add(at::zeros({std::max(least, high + 1)}, each.options()), 0, index, each);
}

// ---- repeat_interleave: i as often as repeats[i] says. Without reading when the size is given; it
// is then not compared with the sum.

at::Tensor RepeatInterleave(const at::Tensor& repeats, std::optional<c10::SymInt> output_size) {
  at::ScalarType t = repeats.scalar_type();
  CheckImplemented(t == at::kLong || t == at::kInt, "repeat_interleave_cpu", ToDType(t));
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  if (repeats.numel() == 0) return at::empty({0}, repeats.options());
  at::Tensor ends = at::cumsum(repeats, 0);
  int64_t size;
  if (output_size) {
    size = output_size->guard_int(__FILE__, __LINE__);
  } else {
    auto [least, total] = Read(repeats.min(), ends.select(0, -1));
    TORCH_CHECK(least >= 0, "repeats can not be negative");
    size = total;
  }
  // How many elements end at each place or before it.
  at::Tensor marks = at::scatter_add(at::zeros({size + 1}, Long(repeats)), 0, ends.clamp_max(size),
                                     at::ones({1}, Long(repeats)).expand_as(ends));
  return at::cumsum(marks.slice(0, 0, size), 0).to(t);
}

}  // namespace

XLA_OPS(m) {
  m.impl("_unique", TORCH_FN(UniqueOld));
  m.impl("_unique2", TORCH_FN(Unique2));
  m.impl("unique_dim", TORCH_FN(UniqueDim));
  m.impl("unique_consecutive", TORCH_FN(UniqueConsecutive));
  m.impl("unique_dim_consecutive", TORCH_FN(UniqueDimConsecutive));
  m.impl("bincount", TORCH_FN(Bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(RepeatInterleave));
}

}  // namespace torch_xla::ops
