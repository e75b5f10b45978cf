// Copies between host and devices, and reads of values.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_copy_from_and_resize_ops.h>
#include <ATen/ops/_copy_from_ops.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_to_cpu_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "aten/device.h"
#include "aten/dtype_map.h"
#include "aten/host_copy.h"
#include "aten/ops_util.h"
#include "aten/sparse.h"
#include "base/error.h"
#include "hlo/movement.h"
#include "lazy/executor.h"

namespace torch_xla {
namespace {

void LowerExpand(const ir::Node& n, hlo::Builder&, std::span<const hlo::Value> in,
                 std::vector<hlo::Value>& out) {
  out.push_back(hlo::BroadcastTo(in[0], n.shape().dims));
}

ir::Value Expand(ir::Value value, const Dims& dims) {
  static const ir::OpDef op("xla::expand", LowerExpand);
  if (value.shape().dims == dims) return value;
  Shape shape = value.shape().with(dims);
  return {ir::Node::Make(op, {&value, 1}, shape), 0};
}

void CheckExpandable(const at::Tensor& self, const at::Tensor& src) {
  if (self.sizes() == src.sizes()) return;
  at::DimVector both = at::infer_size_dimvector(self.sizes(), src.sizes());
  TORCH_CHECK(self.sizes() == at::IntArrayRef(both), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(both));
}

// self (on the device) takes src's values, cast and broadcast.
void CopyToDevice(const at::Tensor& self, const at::Tensor& src) {
  CheckExpandable(self, src);
  const lazy::Tensor& dst = Unwrap(self);
  DType to = ToDType(self.scalar_type());
  ir::Value value;
  if (IsXla(src)) {
    const lazy::Tensor& from = Unwrap(src);
    if (from.device() != dst.device()) {
      at::Tensor host = ToCpu(src);
      value = Unwrap(FromCpu(host, dst.device())).value();
    } else {
      value = from.value();
    }
    value = Convert(std::move(value), to);
  } else {
    TORCH_CHECK(src.is_cpu(), "copy_ from ", src.device(), " to ", self.device(),
                " is not supported");
    // Cast on the host: it has every type and moves no more bytes than the device will hold.
    value = Unwrap(FromCpu(src.to(self.scalar_type()), dst.device())).value();
  }
  dst.Write(Expand(std::move(value), ShapeOf(self).dims));
}

at::Tensor& Copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  (void)non_blocking;  // uploads copy during the call, downloads have to wait
  if (self.unsafeGetTensorImpl() == src.unsafeGetTensorImpl()) return self;
  if (IsXla(self)) {
    CopyToDevice(self, src);
  } else {
    self.copy_(ToCpu(src));
  }
  return self;
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor to = dst;
  return Copy_(to, self, non_blocking);
}

at::Tensor CopyFromAndResize(const at::Tensor& self, const at::Tensor& dst) {
  at::Tensor to = dst;
  to.resize_(self.sizes());
  return Copy_(to, self, false);
}

at::Scalar LocalScalarDense(const at::Tensor& self) { return ToCpu(self).item(); }

at::Tensor Clone(const at::Tensor& self, std::optional<at::MemoryFormat>) {
  const lazy::Tensor& t = Unwrap(self);
  return Wrap(t.value(), t.device());  // values never change: sharing one is a copy
}

// Within a device another dtype is an operator, which XLA_USE_BF16 does not touch; torch's kernel
// would make an empty tensor and copy into it.
at::Tensor ToCopy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                  std::optional<at::Layout> layout, std::optional<at::Device> device,
                  std::optional<bool> pin_memory, bool non_blocking,
                  std::optional<at::MemoryFormat> format) {
  bool stays = !device.has_value() || (device->is_xla() && DeviceOf(device) == self.get_device());
  if (!stays || (layout.has_value() && *layout != at::kStrided)) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  const lazy::Tensor& t = Unwrap(self);
  return Wrap(Convert(t.value(), ToDType(dtype.value_or(self.scalar_type()))), t.device());
}

// The type of the host's copy that is moved: see DType::kC32.
at::ScalarType Moved(DType t) { return ToScalarType(Stored(t)); }

std::vector<at::Tensor> ToCpuList(at::TensorList tensors) { return ToCpu(tensors); }

}  // namespace

std::vector<at::Tensor> ToCpu(at::TensorList tensors) {
  auto shared = std::make_shared<std::vector<at::Tensor>>(tensors.begin(), tensors.end());
  std::vector<at::Tensor>& out = *shared;
  std::vector<lazy::Tensor> from;
  std::vector<void*> to;
  for (at::Tensor& t : out) {
    if (!IsXla(t)) {
      if (OnXla(t) && IsSparse(t)) {
        t = MapSparse(t, at::kCPU, [](const at::Tensor& member) { return ToCpu(member); });
      }
      continue;
    }
    from.push_back(Unwrap(t));
    t = at::empty(t.sizes(), at::device(at::kCPU).dtype(Moved(ToDType(t.scalar_type()))));
    to.push_back(t.mutable_data_ptr());
  }
  try {
    if (!from.empty()) lazy::ToHost(from, to, shared);
  } catch (const Error& e) {
    TORCH_CHECK_WITH(OutOfMemoryError, e.code() != Code::kResourceExhausted, e.what());
    throw;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (tensors[i].defined() && tensors[i].scalar_type() == at::kComplexHalf) {
      out[i] = out[i].to(at::kComplexHalf);
    }
  }
  return out;
}

at::Tensor ToCpu(const at::Tensor& tensor) { return ToCpu(at::TensorList(tensor))[0]; }

at::Tensor FromCpu(const at::Tensor& tensor, int device) {
  if (IsSparse(tensor)) {
    c10::Device to(c10::kXLA, static_cast<c10::DeviceIndex>(device));
    return MapSparse(tensor, to, [&](const at::Tensor& t) { return FromCpu(t, device); });
  }
  at::Tensor dense = tensor.resolve_conj().resolve_neg().contiguous();
  Shape shape = ShapeOf(dense);
  if (Stored(shape.dtype) != shape.dtype) dense = dense.to(Moved(shape.dtype));
  return Wrap(lazy::FromHost(dense.const_data_ptr(), shape, device), shape);
}

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  m.impl("_copy_from", TORCH_FN(CopyFrom));
  m.impl("_copy_from_and_resize", TORCH_FN(CopyFromAndResize));
  m.impl("_local_scalar_dense", TORCH_FN(LocalScalarDense));
  m.impl("_to_copy", TORCH_FN(ToCopy));
  m.impl("_to_cpu", TORCH_FN(ToCpuList));
  m.impl("clone", TORCH_FN(Clone));
  m.impl("copy_", TORCH_FN(Copy_));
}

}  // namespace torch_xla
