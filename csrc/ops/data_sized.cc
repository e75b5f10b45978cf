// Operators whose result has a size that an argument tells, or only the data. In the second case
// they run on the host, as `unique` and `nonzero` do: a program of ours would be compiled anew for
// each size that the data give.
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "aten/fallback.h"
#include "aten/ops_util.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

at::TensorOptions Long(const at::Tensor& like) { return like.options().dtype(at::kLong); }

// Counts up to a least size are as a rule all: two numbers are read to know.
at::Tensor Bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                    c10::SymInt minlength) {
  constexpr const char* kWrong = "bincount only supports 1-d non-negative integral inputs.";
  int64_t least = minlength.guard_int(__FILE__, __LINE__);
  auto on_host = [&] {
    return OnHost<at::_ops::bincount>(
               {self, weights ? c10::IValue(*weights) : c10::IValue(), least})[0]
        .toTensor();
  };
  if (least == 0) return on_host();
  CheckImplemented(c10::isIntegralType(self.scalar_type(), /*includeBool=*/false), "bincount_cpu",
                   ToDType(self.scalar_type()));
  TORCH_CHECK(least >= 0, "minlength should be >= 0");
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({least}, Long(self));
  TORCH_CHECK(self.dim() == 1, kWrong);
  at::Tensor index = self.to(at::kLong);
  bool weighted = weights && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  at::Tensor bounds = at::stack({index.min(), index.max()}).to(at::kCPU);  // one read
  const auto* bound = bounds.const_data_ptr<int64_t>();
  TORCH_CHECK(bound[0] >= 0, kWrong);
  if (bound[1] >= least) return on_host();
  at::Tensor each = at::ones({1}, Long(self)).expand_as(index);
  if (weighted) each = weights->scalar_type() == at::kFloat ? *weights : weights->to(at::kDouble);
  return at::scatter_add(at::zeros({least}, each.options()), 0, index, each);
}

// i as often as repeats[i] says. A size that is given is not compared with the sum.
at::Tensor RepeatInterleave(const at::Tensor& repeats, std::optional<c10::SymInt> output_size) {
  if (!output_size) {
    return OnHost<at::_ops::repeat_interleave_Tensor>({repeats, c10::IValue()})[0].toTensor();
  }
  at::ScalarType t = repeats.scalar_type();
  CheckImplemented(t == at::kLong || t == at::kInt, "repeat_interleave_cpu", ToDType(t));
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  if (repeats.numel() == 0) return at::empty({0}, repeats.options());
  at::Tensor ends = at::cumsum(repeats, 0);
  int64_t size = output_size->guard_int(__FILE__, __LINE__);
  // How many elements end at each place or before it.
  at::Tensor marks = at::scatter_add(at::zeros({size + 1}, Long(repeats)), 0, ends.clamp_max(size),
                                     at::ones({1}, Long(repeats)).expand_as(ends));
  return at::cumsum(marks.slice(0, 0, size), 0).to(t);
}

}  // namespace

XLA_OPS(m) {
  m.impl("bincount", TORCH_FN(Bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(RepeatInterleave));
}

}  // namespace torch_xla::ops
