#include "aten/sparse.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/ops_util.h"
#include "aten/tensor_impl.h"

namespace torch_xla {
namespace {

using c10::DispatchKey;

// PyTorch's constructor of compressed tensors knows its own devices only: made as of the meta
// device, then given ours.
class CompressedImpl final : public at::SparseCsrTensorImpl {
 public:
  CompressedImpl(c10::Device device, at::Layout layout, caffe2::TypeMeta dtype)
      : SparseCsrTensorImpl(c10::DispatchKeySet(DispatchKey::SparseCsrMeta), c10::kMeta, layout,
                            dtype) {
    using c10::BackendComponent;
    key_set_ = key_set_.remove_backend(BackendComponent::MetaBit) |
               c10::DispatchKeySet(BackendComponent::XLABit) |
               c10::getAutocastRelatedKeySetFromBackend(BackendComponent::XLABit);
    device_opt_ = device;
  }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                              bool allow_change) const override {
    return Copy(version, allow_change);
  }
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                              bool allow_change) const override {
    return Copy(std::move(version), allow_change);
  }

 private:
  template <typename Version>
  c10::intrusive_ptr<c10::TensorImpl> Copy(Version&& version, bool allow_change) const {
    auto impl = c10::make_intrusive<CompressedImpl>(device(), layout_impl(), dtype());
    TensorImpl::copy_tensor_metadata(this, impl.get(), std::forward<Version>(version),
                                     allow_change);
    impl->crow_indices_ = crow_indices_;
    impl->col_indices_ = col_indices_;
    impl->values_ = values_;
    impl->refresh_numel();
    return impl;
  }
};

// Kernels for sparse CPU tensors that PyTorch has for CPUs only: they read memory.
constexpr std::string_view kCooOnHost[] = {
    "_pin_memory",
    "_sparse_log_softmax",
    "_sparse_log_softmax_backward_data",
    "_sparse_mask_projection",
    "_sparse_softmax",
    "_sparse_softmax_backward_data",
    "_sparse_sparse_matmul",
    "_sparse_sum_backward",
    "_to_sparse_bsc",
    "_to_sparse_bsr",
    "bmm",
    "bmm.out",
    "hspmm",
    "hspmm.out",
    "index_select",
    "sspaddmm.out",
};
// Most kernels for compressed tensors make their results with a constructor that knows PyTorch's
// own devices only. Not these:
constexpr std::string_view kCompressedOnMembers[] = {
    "_nnz", "_to_dense", "ccol_indices", "col_indices", "crow_indices", "dense_dim",
    "mm",   "mm.out",    "row_indices",  "sparse_dim",  "sum",          "values",
};
// Composites that call that constructor, or read from the indices the size that is not given.
constexpr std::string_view kCompressedComposites[] = {
    "_sparse_compressed_tensor_with_dims",
    "sparse_bsc_tensor.ccol_row_value",
    "sparse_bsr_tensor.crow_col_value",
    "sparse_compressed_tensor.comp_plain_value",
    "sparse_csc_tensor.ccol_row_value",
    "sparse_csr_tensor.crow_col_value",
    "zeros_like",
};

enum class Route { kNone, kComposite, kFallback };

Route RouteOf(const c10::OperatorHandle& op, const std::string& form, DispatchKey key) {
  if (key == DispatchKey::SparseXLA) {
    if (!op.hasKernelForDispatchKey(DispatchKey::SparseCPU)) return Route::kNone;
    return std::ranges::count(kCooOnHost, form) > 0 ? Route::kFallback : Route::kComposite;
  }
  if (std::ranges::count(kCompressedComposites, form) > 0) return Route::kFallback;
  if (!op.hasKernelForDispatchKey(DispatchKey::SparseCsrCPU)) return Route::kNone;
  return std::ranges::count(kCompressedOnMembers, form) > 0 ? Route::kComposite : Route::kFallback;
}

// PyTorch's kernel for sparse CPU tensors, on ours. A COO tensor is made on the current device.
template <DispatchKey kCpu>
void RunTorchs(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  c10::OptionalDeviceGuard guard;
  for (const c10::IValue& v : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (v.isTensor() && OnXla(v.toTensor()) && !guard.current_device()) {
      guard.reset_device(v.toTensor().device());
    } else if (v.isTensorList() && !guard.current_device()) {
      for (const at::Tensor& t : v.toTensorVector()) {
        if (OnXla(t)) guard.reset_device(t.device());
      }
    } else if (v.isDevice() && v.toDevice().is_xla()) {
      guard.reset_device({c10::kXLA, static_cast<int8_t>(DeviceOf(v.toDevice()))});
      break;
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(kCpu), stack);
}

std::vector<std::pair<std::string, std::string>>& Routes() {
  static auto* routes = new std::vector<std::pair<std::string, std::string>>;
  return *routes;
}

template <DispatchKey kKey, DispatchKey kCpu>
void Install() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  static auto* kernels = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    std::string form =
        name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    if (op->hasKernelForDispatchKey(kKey)) {
      Routes().emplace_back("aten::" + form, "native");
      continue;
    }
    switch (RouteOf(*op, form, kKey)) {
      case Route::kNone: continue;
      case Route::kComposite:
        kernels->impl(form.c_str(), torch::CppFunction::makeFromBoxedFunction<&RunTorchs<kCpu>>());
        Routes().emplace_back("aten::" + form, "composite");
        break;
      case Route::kFallback:
        kernels->impl(form.c_str(), torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
        Routes().emplace_back("aten::" + form, "fallback");
        break;
    }
  }
  // An operator that sparse CPU tensors do not have either raises what it raises for those.
  static auto* rest = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  rest->fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}

}  // namespace

at::Tensor MakeCompressed(const at::Tensor& compressed, const at::Tensor& plain,
                          const at::Tensor& values, at::IntArrayRef size, at::Layout layout) {
  auto impl = c10::make_intrusive<CompressedImpl>(values.device(), layout, values.dtype());
  impl->set_member_tensors(compressed, plain, values, size);
  return at::Tensor(std::move(impl));
}

at::Tensor MapSparse(const at::Tensor& t, c10::Device device,
                     const std::function<at::Tensor(const at::Tensor&)>& move) {
  at::TensorOptions options = t.options().device(device);
  if (t.layout() == at::kSparse) {
    return at::_sparse_coo_tensor_with_dims_and_tensors(t.sparse_dim(), t.dense_dim(), t.sizes(),
                                                        move(t._indices()), move(t._values()),
                                                        options, t.is_coalesced());
  }
  auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(t);
  return at::_sparse_compressed_tensor_unsafe(move(compressed), move(plain), move(t.values()),
                                              t.sizes(), options);
}

namespace {

bool Alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

}  // namespace

void TakeSparse(const at::Tensor& self, const at::Tensor& from) {
  // As PyTorch's kernels do: a COO tensor gets new members; those of a compressed one are written
  // if they fit, and views and detached tensors see it.
  if (self.layout() == at::kSparse) {
    at::SparseTensorImpl* impl = at::sparse::get_sparse_impl(self);
    impl->raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
    impl->set_indices_and_values_unsafe(from._indices(), from._values());
    impl->set_coalesced(from.is_coalesced());
    return;
  }
  auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(self);
  auto [new_compressed, new_plain] = at::sparse_csr::getCompressedPlainIndices(from);
  if (self.sizes() == from.sizes() && Alike(compressed, new_compressed) &&
      Alike(plain, new_plain) && Alike(self.values(), from.values())) {
    compressed.copy_(new_compressed);
    plain.copy_(new_plain);
    self.values().copy_(from.values());
    return;
  }
  at::sparse_csr::get_sparse_csr_impl(self)->set_member_tensors(new_compressed, new_plain,
                                                                from.values(), from.sizes());
}

void InstallSparse() {
  Install<DispatchKey::SparseXLA, DispatchKey::SparseCPU>();
  Install<DispatchKey::SparseCsrXLA, DispatchKey::SparseCsrCPU>();
}

std::vector<std::pair<std::string, std::string>> SparseRoutes() { return Routes(); }

}  // namespace torch_xla
