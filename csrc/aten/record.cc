#include "aten/record.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>

#include "aten/ops_util.h"
#include "base/flags.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"

namespace torch_xla {

hlo::Value Number::As(hlo::Builder& b, DType t) const {
  if (dtype == DType::kC128) return hlo::ScalarComplex(b, ComplexOf(t), {re, im});
  if (IsComplex(t)) return hlo::ScalarComplex(b, t, {real(), 0});
  if (dtype == DType::kF64)
    return IsFloat(t) ? hlo::Scalar(b, t, re) : hlo::ScalarInt(b, t, static_cast<int64_t>(re));
  return IsFloat(t) ? hlo::Scalar(b, t, static_cast<double>(i)) : hlo::ScalarInt(b, t, i);
}

hlo::Value Factor::Times(hlo::Value x) const {
  if (!value.has_value()) return x;
  return hlo::Mul(x, hlo::BroadcastTo(hlo::ConvertTo(*value, x.dtype()), x.dims()));
}

namespace record {

void Recording::Scalar(DType dtype, int64_t lane0, int64_t lane1) {
  values_.push_back({ir::Node::MakeScalar(dtype, lane0, lane1), 0});
  wrapped_.push_back(true);
}

void Recording::ScalarInput(const at::Scalar& s) {
  if (s.isFloatingPoint()) {
    ScalarInput(s.toDouble());
  } else if (s.isComplex()) {
    c10::complex<double> c = s.toComplexDouble();
    Scalar(DType::kC128, std::bit_cast<int64_t>(c.real()), std::bit_cast<int64_t>(c.imag()));
  } else if (s.isBoolean()) {
    Scalar(DType::kBool, s.toBool());
  } else if (s.type() == at::kUInt64) {  // from 2^63 on
    Scalar(DType::kU64, static_cast<int64_t>(s.toUInt64()));
  } else {
    ScalarInput(s.toLong());
  }
}

void Recording::StaticScalar(const at::Scalar& s) {
  if (s.isFloatingPoint()) {
    Word(static_cast<int64_t>(DType::kF64));
    Word(std::bit_cast<int64_t>(s.toDouble()));
    Word(0);
  } else if (s.isComplex()) {
    c10::complex<double> c = s.toComplexDouble();
    Word(static_cast<int64_t>(DType::kC128));
    Word(std::bit_cast<int64_t>(c.real()));
    Word(std::bit_cast<int64_t>(c.imag()));
  } else {
    Word(static_cast<int64_t>(s.isBoolean() ? DType::kBool : DType::kS64));
    Word(s.isBoolean() ? s.toBool() : s.toLong());
    Word(0);
  }
}

Number Decoder::StaticScalar() {
  Number n{static_cast<DType>(Word())};
  int64_t lane0 = Word(), lane1 = Word();
  if (n.dtype == DType::kF64 || n.dtype == DType::kC128) {
    n.re = std::bit_cast<double>(lane0);
    n.im = std::bit_cast<double>(lane1);
  } else {
    n.i = lane0;
  }
  return n;
}

void Recording::String(std::string_view s) {
  Word(static_cast<int64_t>(s.size()));
  for (size_t i = 0; i < s.size(); i += 8) {
    int64_t w = 0;
    std::memcpy(&w, s.data() + i, std::min<size_t>(8, s.size() - i));
    Word(w);
  }
}

std::string_view Decoder::String() {
  auto n = static_cast<size_t>(Word());
  std::string_view s(reinterpret_cast<const char*>(words.data()), n);
  words = words.subspan((n + 7) / 8);
  return s;
}

void Recording::Tensor(const at::Tensor& t) {
  if (IsXla(t)) [[likely]] {
    const lazy::Tensor& tensor = Unwrap(t);
    if (device_ < 0) {
      device_ = tensor.device();
    } else if (device_ != tensor.device()) [[unlikely]] {
      RaiseDeviceMismatch(c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(device_)),
                          t.device());
    }
    values_.push_back(tensor.value());
    wrapped_.push_back(t.unsafeGetTensorImpl()->is_wrapped_number());
    return;
  }
  TORCH_CHECK(t.defined(), "[", op_.name(), "] expected a tensor, got None");
  if (t.dim() == 0 && t.is_cpu()) {  // PyTorch lets 0-d CPU tensors mix with any device
    HostScalar s = ReadHostScalar(t);
    Scalar(s.dtype, s.lane0, s.lane1);
    wrapped_.back() = t.unsafeGetTensorImpl()->is_wrapped_number();
    return;
  }
  RaiseDeviceMismatch(c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(std::max(device_, 0))),
                      t.device());
}

int Recording::device() const {
  TORCH_CHECK(device_ >= 0, "[", op_.name(), "] none of the arguments is on an XLA device");
  return device_;
}

Ref<ir::Node> Recording::Finish(std::span<const Shape> shapes) {
  op_.CountRecorded();
  return ir::Node::Make(op_, {values_.data(), values_.size()}, shapes,
                        {words_.data(), words_.size()});
}

namespace {

// Of the same sizes and dtype on the host; 0-d CPU tensors stay as they are.
at::Tensor Like(const at::Tensor& t, c10::DeviceType device) {
  if (!IsXla(t)) return t;
  return at::zeros(t.sizes(), at::TensorOptions().dtype(t.scalar_type()).device(device));
}

void MoveTo(c10::DeviceType device, torch::jit::Stack& stack) {
  for (c10::IValue& v : stack) {
    if (v.isTensor()) {
      v = Like(v.toTensor(), device);
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(Like(t, device));
      v = list;
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector()) {
        list.push_back(t.has_value() ? std::optional(Like(*t, device)) : std::nullopt);
      }
      v = list;
    } else if (v.isDevice()) {
      v = c10::Device(device);
    }
  }
}

bool HasKernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// False where there is no meta kernel.
bool CallMeta(const char* name, const char* overload, torch::jit::Stack& stack) {
  auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op || !HasKernel(*op, c10::DispatchKey::Meta)) return false;
  MoveTo(c10::kMeta, stack);
  op->callBoxed(stack);
  return true;
}

int64_t LargestTensor(const torch::jit::Stack& stack) {
  int64_t n = 0;
  for (const c10::IValue& v : stack) {
    if (v.isTensor() && v.toTensor().defined()) n = std::max(n, v.toTensor().numel());
    if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) n = std::max(n, t.numel());
    }
  }
  return n;
}

}  // namespace

void RaiseInTorchWords(const char* name, const char* overload, torch::jit::Stack stack,
                       const std::exception& ours) {
  // The CPU kernel has the words that users know (meta kernels are partly other code), but it also
  // computes where our rule refused wrongly: not for large tensors.
  constexpr int64_t kSmall = 1 << 20;
  std::string called = name;
  if (called == "aten::convolution_overrideable") called = "aten::convolution";  // same arguments
  auto op = c10::Dispatcher::singleton().findSchema({called, overload});
  try {
    if (op && HasKernel(*op, c10::DispatchKey::CPU) && LargestTensor(stack) <= kSmall) {
      MoveTo(c10::kCPU, stack);
      op->callBoxed(stack);
    } else {
      CallMeta(name, overload, stack);
    }
  } catch (const c10::NotImplementedError&) {  // NOLINT(bugprone-empty-catch)
    // A kernel that says only this knows less than we do.
  }
  TORCH_CHECK(false, ours.what());
}

bool VerifyOn() {
  static const bool on = flags::GetBool(flags::Flag::kVerify);
  return on;
}

void Verify(const char* name, const char* overload, torch::jit::Stack stack,
            std::span<const Shape> shapes) {
  if (std::string_view(name) == "aten::_scaled_mm") return;  // its meta kernel wants CUDA's strides
  try {
    if (!CallMeta(name, overload, stack)) return;
  } catch (const c10::NotImplementedError&) {
    return;  // convolution_overrideable has a kernel that says only this
  }
  std::vector<Shape> theirs;
  for (const c10::IValue& v : stack) {
    if (v.isTensor() && v.toTensor().defined()) theirs.push_back(ShapeOf(v.toTensor()));
    if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) theirs.push_back(ShapeOf(t));
    }
  }
  bool equal = theirs.size() == shapes.size();
  for (size_t i = 0; equal && i < shapes.size(); ++i) equal = theirs[i] == shapes[i];
  std::string a, b;
  for (const Shape& s : shapes) a += " " + ToString(s);
  for (const Shape& s : theirs) b += " " + ToString(s);
  TORCH_INTERNAL_ASSERT(equal, "[", name, ".", overload, "] the shape rule says", a,
                        ", PyTorch's meta kernel", b);
}

void WriteInPlace(const at::Tensor& self, ir::Value value) {
  XLATensorImpl& impl = ImplOf(self);
  const Shape& shape = value.shape();
  if (self.sizes() != at::IntArrayRef(shape.dims.data(), shape.dims.size())) [[unlikely]] {
    TORCH_CHECK(false, "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
                ToString(shape.dims));
  }
  at::ScalarType from = ToScalarType(shape.dtype);
  if (from != self.scalar_type()) {
    TORCH_CHECK(c10::canCast(from, self.scalar_type()), "result type ", c10::toString(from),
                " can't be cast to the desired output type ", c10::toString(self.scalar_type()));
    value = Convert(std::move(value), ToDType(self.scalar_type()));
  }
  impl.tensor().Write(std::move(value));
}

}  // namespace record
}  // namespace torch_xla
