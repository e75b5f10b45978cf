#include "aten/tensor_impl.h"

#include <typeinfo>
#include <utility>

#include "aten/dtype_map.h"

namespace torch_xla {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::XLA);

// No process can address so much: PyTorch's allocators refuse it at the call, and so do we. A view
// needs no memory.
void CheckAddressable(const lazy::Tensor& tensor, const Shape& shape) {
  auto n = static_cast<int64_t>(ByteSize(shape.dtype));
  bool overflow = false;
  for (int64_t d : shape.dims) overflow |= __builtin_mul_overflow(n, d, &n);
  if ((!overflow && n < int64_t{1} << 47) || tensor.is_view()) [[likely]]
    return;
  auto bytes = static_cast<double>(ByteSize(shape.dtype));
  for (int64_t d : shape.dims) bytes *= static_cast<double>(d);
  if (bytes < 0x1p47) return;  // a dimension of zero
  TORCH_CHECK_WITH(OutOfMemoryError, false, "XLA out of memory. Tried to allocate ", bytes / 0x1p30,
                   " GiB for ", ToString(shape.dims));
}

}  // namespace

XLATensorImpl::XLATensorImpl(lazy::Tensor tensor, const Shape& shape)
    : TensorImpl(kKeys, c10::scalarTypeToTypeMeta(ToScalarType(shape.dtype)),
                 c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(tensor.device()))),
      tensor_(std::move(tensor)) {
  CheckAddressable(tensor_, shape);
  set_storage_access_should_throw();
  set_sizes_contiguous(c10::IntArrayRef(shape.dims.data(), shape.dims.size()));
}

void XLATensorImpl::Rebind(lazy::Tensor tensor, const Shape& shape) {
  CheckAddressable(tensor, shape);
  tensor_ = std::move(tensor);
  data_type_ = c10::scalarTypeToTypeMeta(ToScalarType(shape.dtype));
  device_opt_ = c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(tensor_.device()));
  set_sizes_contiguous(c10::IntArrayRef(shape.dims.data(), shape.dims.size()));
}

template <typename Version>
c10::intrusive_ptr<c10::TensorImpl> XLATensorImpl::Copy(Version&& version,
                                                        bool allow_change) const {
  Shape shape{ToDType(c10::typeMetaToScalarType(data_type_)),
              Dims(Span(sizes().data(), sizes().size()))};
  auto impl = c10::make_intrusive<XLATensorImpl>(tensor_, shape);
  copy_tensor_metadata(this, impl.get(), std::forward<Version>(version), allow_change);
  return impl;
}

c10::intrusive_ptr<c10::TensorImpl> XLATensorImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version_counter, bool allow_tensor_metadata_change) const {
  return Copy(version_counter, allow_tensor_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> XLATensorImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version_counter, bool allow_tensor_metadata_change) const {
  return Copy(std::move(version_counter), allow_tensor_metadata_change);
}

void XLATensorImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) {
  auto* other = dynamic_cast<XLATensorImpl*>(impl.get());
  TORCH_CHECK(other != nullptr, "cannot make an XLA tensor share the data of a ",
              c10::toString(impl->key_set()), " tensor");
  tensor_ = other->tensor_;
  copy_tensor_metadata(other, this, version_counter(), allow_tensor_metadata_change());
}

XLATensorImpl& ImplOf(const at::TensorBase& t) {
  TORCH_CHECK(t.defined(), "expected a tensor, got None");
  c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
  TORCH_CHECK(typeid(impl) == typeid(XLATensorImpl),
              "expected a dense tensor on an XLA device, got a ", t.layout(), " one on ",
              t.device(), " (", c10::toString(t.key_set()), ")");
  return static_cast<XLATensorImpl&>(impl);
}

at::Tensor Wrap(lazy::Tensor tensor, const Shape& shape) {
  return at::Tensor(c10::make_intrusive<XLATensorImpl>(std::move(tensor), shape));
}

Shape ShapeOf(const at::TensorBase& t) {
  return {ToDType(t.scalar_type()), Dims(Span(t.sizes().data(), t.sizes().size()))};
}

}  // namespace torch_xla
