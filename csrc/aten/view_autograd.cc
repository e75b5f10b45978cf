// Views at the autograd key, where torch's own kernels are slow or wrong for tensors without
// strides.
//
// aten::view where no gradient flows: by far the most frequent view, and torch's own kernels make a
// replay function over symbolic sizes and a reversed one for it at every call of a device without
// strides, which costs more than all the rest (benchmarks/record.py, row `view`).
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <vector>

#include "aten/autograd.h"
#include "aten/tensor_impl.h"
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
  if (HasGradient(self)) {
    return at::_ops::view::redispatch(ToTorchAutograd(keys), self, size);
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

// In-place views (t_, unsqueeze_, ...) of a tensor that is itself a view. Torch replays a view of a
// device without strides by the function that made it, but its own kernels leave this function what
// it was before the in-place view: every later replay would have the old shape. So the tensor takes
// the place of its view `make()`, which knows the whole way from the base.
template <typename InPlace, typename Make, typename... Args>
at::Tensor& InPlaceView(c10::DispatchKeySet keys, at::Tensor& self, const Make& make,
                        Args&&... args) {
  // A wrapper of torch.func, whose levels are autograd's own.
  if (dynamic_cast<XLATensorImpl*>(self.unsafeGetTensorImpl()) == nullptr) {
    return InPlace::redispatch(ToTorchAutograd(keys), self, std::forward<Args>(args)...);
  }
  auto* old = torch::autograd::impl::get_view_autograd_meta(self);
  if (old == nullptr || !old->has_bw_view() || self.is_inference() ||
      c10::InferenceMode::is_enabled()) {
    // Views that autograd made of this tensor are replayed on it as it is then.
    TORCH_CHECK(!self.requires_grad() || !Unwrap(self).HasOtherViews(), InPlace::name,
                " would change the shape of a tensor whose views autograd has recorded, which XLA "
                "tensors do not support: use the form that returns a view");
    return InPlace::redispatch(ToTorchAutograd(keys), self, std::forward<Args>(args)...);
  }
  torch::autograd::check_inplace(self, self.requires_grad());
  at::Tensor view;
  {
    at::AutoGradMode grad(true);  // what autograd knows stays known
    view = make();
  }
  auto* made = torch::autograd::impl::get_view_autograd_meta(view);
  const torch::autograd::ViewInfo& info = made->get_backward_view();
  auto creation = old->get_creation_meta();
  torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(view);
  XLATensorImpl& impl = ImplOf(self);
  impl.Rebind(Unwrap(view), ShapeOf(view));
  impl.set_autograd_meta(std::make_unique<torch::autograd::DifferentiableViewMeta>(
      &impl,
      torch::autograd::ViewInfo(info.base_, info.view_fn().clone_and_set(), info.rev_view_fn_),
      std::nullopt, /*shared_view_info=*/true, creation));
  if (edge.function != nullptr) torch::autograd::impl::set_gradient_edge(self, std::move(edge));
  torch::autograd::impl::bump_version(self);
  torch::autograd::impl::get_view_autograd_meta(self)->set_attr_version(self._version());
  return self;
}

at::Tensor& T_(c10::DispatchKeySet keys, at::Tensor& self) {
  return InPlaceView<at::_ops::t_>(keys, self, [&] { return self.t(); });
}
at::Tensor& Transpose_(c10::DispatchKeySet keys, at::Tensor& self, int64_t a, int64_t b) {
  return InPlaceView<at::_ops::transpose_>(
      keys, self, [&] { return self.transpose(a, b); }, a, b);
}
at::Tensor& Squeeze_(c10::DispatchKeySet keys, at::Tensor& self) {
  return InPlaceView<at::_ops::squeeze_>(keys, self, [&] { return self.squeeze(); });
}
at::Tensor& SqueezeDim_(c10::DispatchKeySet keys, at::Tensor& self, int64_t dim) {
  return InPlaceView<at::_ops::squeeze__dim>(
      keys, self, [&] { return self.squeeze(dim); }, dim);
}
at::Tensor& SqueezeDims_(c10::DispatchKeySet keys, at::Tensor& self, at::IntArrayRef dims) {
  return InPlaceView<at::_ops::squeeze__dims>(
      keys, self, [&] { return self.squeeze(dims); }, dims);
}
at::Tensor& Unsqueeze_(c10::DispatchKeySet keys, at::Tensor& self, int64_t dim) {
  return InPlaceView<at::_ops::unsqueeze_>(
      keys, self, [&] { return self.unsqueeze(dim); }, dim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("view", TORCH_FN(View));
  m.impl("t_", TORCH_FN(T_));
  m.impl("transpose_", TORCH_FN(Transpose_));
  m.impl("squeeze_", TORCH_FN(Squeeze_));
  m.impl("squeeze_.dim", TORCH_FN(SqueezeDim_));
  m.impl("squeeze_.dims", TORCH_FN(SqueezeDims_));
  m.impl("unsqueeze_", TORCH_FN(Unsqueeze_));
}

}  // namespace torch_xla
