#include "aten/view_copies.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <optional>
#include <string>

#include "base/shape.h"

namespace torch_xla {
namespace {

using c10::OperatorHandle;

class ViewCopy final : public c10::OperatorKernel {
 public:
  explicit ViewCopy(OperatorHandle view) : view_(std::move(view)) {}

  void operator()(const OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    view_.callBoxed(*stack);
    c10::IValue& result = stack->back();
    if (result.isTensor()) {
      result = at::clone(result.toTensor());
      return;
    }
    c10::List<at::Tensor> copies;
    for (const at::Tensor& t : result.toTensorVector()) copies.push_back(at::clone(t));
    result = copies;
  }

 private:
  OperatorHandle view_;
};

// The view operator that takes the same arguments.
std::optional<OperatorHandle> ViewOf(const OperatorHandle& copy) {
  const std::string& name = copy.operator_name().name;
  const std::string suffix = "_copy";
  if (name.rfind("aten::", 0) != 0 || !name.ends_with(suffix)) return {};
  auto view = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, name.size() - suffix.size()), copy.operator_name().overload_name});
  if (!view || view->schema().returns().size() != 1) return {};
  // Not index_copy or _to_copy, which only sound like one.
  const c10::AliasInfo* alias = view->schema().returns()[0].alias_info();
  if (alias == nullptr || alias->isWrite()) return {};
  const auto& a = copy.schema().arguments();
  const auto& b = view->schema().arguments();
  if (a.size() != b.size()) return {};
  for (size_t i = 0; i < a.size(); ++i) {
    if (*a[i].type() != *b[i].type()) return {};
  }
  return view;
}

}  // namespace

void InstallViewCopies() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XLA, __FILE__, __LINE__);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto copy = dispatcher.findSchema(name);
    if (!copy || copy->hasKernelForDispatchKey(c10::DispatchKey::XLA) ||
        copy->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      continue;
    }
    auto view = ViewOf(*copy);
    if (!view || !(view->hasKernelForDispatchKey(c10::DispatchKey::XLA) ||
                   view->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))) {
      continue;
    }
    std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library->impl(full.substr(6).c_str(),
                  torch::CppFunction::makeFromBoxedKernel(
                      c10::BoxedKernel::makeFromFunctor(std::make_unique<ViewCopy>(*view))));
  }
}

}  // namespace torch_xla
