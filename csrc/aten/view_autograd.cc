// aten::view where no gradient flows: by far the most frequent view, and torch's own kernels make a
// replay function over symbolic sizes and a reversed one for it at every call of a device without
// strides, which costs more than all the rest (benchmarks/record.py, row `view`).
#include <ATen/ops/_reshape_alias_ops.h>
#include <ATen/ops/view_ops.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/shape.h"

namespace torch_xla {
namespace {

// Replays view(sizes) on another base.
struct ReshapeFunc final : torch::autograd::ViewFunc {
  explicit ReshapeFunc(Dims dims) : dims(std::move(dims)) {}
  at::Tensor operator()(const at::Tensor& base) const override {
    return base.view(at::IntArrayRef(dims.data(), dims.size()));
  }
  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> = std::nullopt,
      std::optional<std::vector<at::Tensor>> = std::nullopt) const override {
    return std::make_unique<ReshapeFunc>(dims);
  }
  Dims dims;
};

at::Tensor View(c10::DispatchKeySet keys, const at::Tensor& self, at::SymIntArrayRef size) {
  if ((at::GradMode::is_enabled() && self.requires_grad()) ||
      self._fw_grad(/*level=*/0).defined()) {
    // The same operator under the name that has torch's own derivative.
    return at::_ops::_reshape_alias::redispatch(keys, self, size, size);
  }
  at::Tensor view;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    view = at::_ops::view::redispatch(keys & c10::after_ADInplaceOrView_keyset, self, size);
  }
  at::IntArrayRef sizes = view.sizes();
  return torch::autograd::as_view(
      self, view, /*is_bw_differentiable=*/true, /*is_fw_differentiable=*/true,
      std::make_unique<ReshapeFunc>(Span(sizes.data(), sizes.size())), nullptr,
      at::GradMode::is_enabled() || c10::InferenceMode::is_enabled()
          ? torch::autograd::CreationMeta::DEFAULT
          : torch::autograd::CreationMeta::NO_GRAD_MODE);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("view", TORCH_FN(View)); }

}  // namespace torch_xla
