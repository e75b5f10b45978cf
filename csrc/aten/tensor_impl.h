// The tensor that PyTorch sees: sizes, dtype and device without storage; its value is lazy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "lazy/tensor.h"

namespace torch_xla {

class XLATensorImpl final : public c10::TensorImpl {
 public:
  // Sizes and dtype are the state's. All tensors look contiguous.
  XLATensorImpl(lazy::Tensor tensor, const Shape& shape);

  const lazy::Tensor& tensor() const { return tensor_; }
  // The impl takes another state, of any shape and dtype (set_data, resize_).
  void Rebind(lazy::Tensor tensor, const Shape& shape);

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version_counter,
      bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version_counter, bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;

 private:
  // Ends the message of everything that asks for the storage.
  const char* tensorimpl_type_name() const override {
    return "XLATensorImpl: tensors on XLA devices have none; copy to the CPU with .cpu(), or "
           "compare torch_xla._XLAC._xla_get_tensor_id to learn whether two share memory. "
           "(torch.compile does not take XLA tensors yet: call the function without it, XLA "
           "compiles what it records.)";
  }
  template <typename Version>
  c10::intrusive_ptr<TensorImpl> Copy(Version&& version, bool allow_change) const;

  lazy::Tensor tensor_;
};

// ---- The bridge between at::Tensor and lazy::Tensor.

inline bool IsXla(const at::TensorBase& t) {
  return t.defined() && t.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::XLA);
}
// Of any layout: a sparse one is PyTorch's own object, of XLA tensors.
inline bool OnXla(const at::TensorBase& t) { return t.defined() && t.device().is_xla(); }
// Checked: throws for anything that is no XLA tensor of ours (undefined, functional wrapper...).
XLATensorImpl& ImplOf(const at::TensorBase& t);
inline const lazy::Tensor& Unwrap(const at::TensorBase& t) { return ImplOf(t).tensor(); }

at::Tensor Wrap(lazy::Tensor tensor, const Shape& shape);
inline at::Tensor Wrap(ir::Value value, int device) {
  Shape shape = value.shape();
  return Wrap(lazy::Tensor(std::move(value), device), shape);
}

Shape ShapeOf(const at::TensorBase& t);

}  // namespace torch_xla
