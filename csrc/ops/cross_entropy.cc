// cross_entropy_loss is torch's composite, but for one form: with weights and smoothing it selects
// the targets that count, whose number depends on data.
#include <ATen/ops/cross_entropy_loss_native.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_nd.h>

#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

using at::Tensor;

// (1 - s) * nll + s / classes * sum(smooth) / sum(weights of the targets that count), where smooth
// is -sum over the classes of weight * log softmax.
Tensor WeightedSmoothMean(const Tensor& self, const Tensor& target, const Tensor& weight,
                          int64_t ignore_index, double smoothing) {
  const int64_t dim = self.dim() == 1 ? 0 : 1, classes = self.size(dim);
  const Tensor input = at::log_softmax(self, dim, self.scalar_type());
  const Tensor nll = at::nll_loss_nd(input, target, weight, at::Reduction::Mean, ignore_index);
  std::vector<int64_t> shape(static_cast<size_t>(self.dim()), 1);
  shape[static_cast<size_t>(dim)] = classes;
  const Tensor ignored = at::eq(target, ignore_index);
  const Tensor smooth = input.mul(weight.view(shape)).sum(dim).neg().masked_fill(ignored, 0);
  const Tensor of_target =
      at::gather(weight, 0, target.masked_fill(ignored, 0).flatten()).view_as(target);
  const Tensor mean = smooth.sum().div(of_target.masked_fill(ignored, 0).sum());
  return nll.mul(1 - smoothing).add(mean, smoothing / static_cast<double>(classes));
}

Tensor CrossEntropyLoss(const Tensor& self, const Tensor& target,
                        const std::optional<Tensor>& weight, int64_t reduction,
                        c10::SymInt ignore_index, double label_smoothing) {
  const bool ours = weight.has_value() && weight->defined() && label_smoothing > 0 &&
                    label_smoothing <= 1 && reduction == at::Reduction::Mean &&
                    !at::isFloatingType(target.scalar_type()) && self.dim() >= 1 &&
                    weight->dim() == 1 && weight->size(0) == self.size(self.dim() == 1 ? 0 : 1);
  if (!ours) {
    return at::native::cross_entropy_loss_symint(self, target, weight, reduction,
                                                 std::move(ignore_index), label_smoothing);
  }
  return WeightedSmoothMean(self, target, *weight, ignore_index.guard_int(__FILE__, __LINE__),
                            label_smoothing);
}

}  // namespace

XLA_OPS(m) { m.impl("cross_entropy_loss", TORCH_FN(CrossEntropyLoss)); }

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("cross_entropy_loss", TORCH_FN(CrossEntropyLoss));
}

}  // namespace torch_xla::ops
