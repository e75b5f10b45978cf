// Tensors from nothing: empty, zeros, ones, full, arange and their kin.
#include <ATen/native/Resize.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "aten/device.h"
#include "aten/dtype_map.h"
#include "aten/ops_util.h"
#include "aten/record.h"
#include "base/flags.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/control.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"

namespace torch_xla {
namespace {

using OptDtype = std::optional<at::ScalarType>;
using OptLayout = std::optional<at::Layout>;
using OptDevice = std::optional<at::Device>;
using OptBool = std::optional<bool>;
using OptFormat = std::optional<at::MemoryFormat>;

// Of a tensor that enters the device: XLA_USE_BF16=1 makes float32 bfloat16.
DType Entering(at::ScalarType type) {
  return type == at::kFloat && flags::UseBf16() ? DType::kBF16 : ToDType(type);
}

DType DtypeOr(OptDtype dtype, at::ScalarType otherwise) {
  return Entering(dtype.value_or(otherwise));
}

at::ScalarType DefaultDtype() { return c10::typeMetaToScalarType(c10::get_default_dtype()); }

Shape CheckedShape(DType dtype, at::SymIntArrayRef size) {
  at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  for (int64_t d : sizes) {
    TORCH_CHECK(d >= 0, "Trying to create tensor with negative dimension ", d, ": ", sizes);
  }
  return {dtype, Span(sizes.data(), sizes.size())};
}

at::Tensor Empty(at::SymIntArrayRef size, OptDtype dtype, OptLayout layout, OptDevice device,
                 OptBool pin_memory, OptFormat) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "XLA devices have no ",
              layout.value_or(at::kStrided), " tensors");
  return Wrap(FullStatic(CheckedShape(DtypeOr(dtype, DefaultDtype()), size), 0), DeviceOf(device));
}

at::Tensor EmptyStrided(at::SymIntArrayRef size, at::SymIntArrayRef, OptDtype dtype,
                        OptLayout layout, OptDevice device, OptBool pin_memory) {
  return Empty(size, dtype, layout, device, pin_memory, std::nullopt);
}

at::Tensor Zeros(at::SymIntArrayRef size, OptDtype dtype, OptLayout layout, OptDevice device,
                 OptBool pin_memory) {
  return Empty(size, dtype, layout, device, pin_memory, std::nullopt);
}

at::Tensor Ones(at::SymIntArrayRef size, OptDtype dtype, OptLayout, OptDevice device, OptBool) {
  return Wrap(FullStatic(CheckedShape(DtypeOr(dtype, DefaultDtype()), size), 1), DeviceOf(device));
}

at::ScalarType TypeOf(const at::Scalar& s) {
  if (s.isBoolean()) return at::kBool;
  if (s.isIntegral(false)) return at::kLong;
  return s.isComplex() ? c10::toComplexType(DefaultDtype()) : DefaultDtype();
}

at::Tensor FullKernel(at::SymIntArrayRef size, const at::Scalar& value, OptDtype dtype, OptLayout,
                      OptDevice device, OptBool) {
  return Wrap(Full(CheckedShape(DtypeOr(dtype, TypeOf(value)), size), value), DeviceOf(device));
}

// The *_like forms: self's device and dtype unless given; for another device's sake torch's own.
template <int kValue>
at::Tensor FilledLike(const at::Tensor& self, OptDtype dtype, OptLayout layout, OptDevice device,
                      OptBool pin_memory, OptFormat) {
  at::Device where = device.value_or(self.device());
  at::ScalarType type = dtype.value_or(self.scalar_type());
  if (!where.is_xla()) {
    auto options =
        at::TensorOptions().dtype(type).layout(layout).device(where).pinned_memory(pin_memory);
    return kValue == 0 ? at::zeros(self.sizes(), options) : at::ones(self.sizes(), options);
  }
  return Wrap(FullStatic(ShapeOf(self).with(Entering(type)), kValue), DeviceOf(where));
}

at::Tensor& Fill_(at::Tensor& self, const at::Scalar& value) {
  Unwrap(self).Write(Full(ShapeOf(self), value));
  return self;
}

at::Tensor& FillTensor_(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  return self.copy_(value);
}

at::Tensor& Zero_(at::Tensor& self) {
  Unwrap(self).Write(FullStatic(ShapeOf(self), 0));
  return self;
}

// ---- Ranges: the length is static, start and step are inputs.

void LowerArange(const ir::Node& n, hlo::Builder& b, std::span<const hlo::Value> in,
                 std::vector<hlo::Value>& out) {
  // Computed wide, then cast, as PyTorch's accumulation type does.
  DType wide = IsIntOrBool(n.shape().dtype) ? DType::kS64 : DType::kF64;
  Shape shape = n.shape().with(wide);
  auto fill = [&](hlo::Value s) { return hlo::BroadcastTo(hlo::ConvertTo(s, wide), shape.dims); };
  hlo::Value i = hlo::Iota(b, shape, 0);
  out.push_back(hlo::ConvertTo(hlo::Add(fill(in[0]), hlo::Mul(i, fill(in[1]))), n.shape().dtype));
}

at::Tensor Range(const Shape& shape, const at::Scalar& start, const at::Scalar& step, int device) {
  static const ir::OpDef op("aten::arange", LowerArange);
  record::Recording r(op);
  r.ScalarInput(start);
  r.ScalarInput(step);
  return Wrap(ir::Value{r.Finish({&shape, 1}), 0}, device);
}

at::Tensor ArangeStep(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                      OptDtype dtype, OptLayout, OptDevice device, OptBool) {
  bool integral = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  DType type = DtypeOr(dtype, integral ? at::kLong : DefaultDtype());
  double from = start.toDouble(), to = end.toDouble(), by = step.toDouble();
  TORCH_CHECK(by != 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(from) && std::isfinite(to), "unsupported range: ", from, " -> ", to);
  TORCH_CHECK((by > 0 && to >= from) || (by < 0 && to <= from),
              "upper bound and larger bound inconsistent with step sign");
  if (IsIntOrBool(type)) {  // numbers lose their fractions first
    TORCH_CHECK_VALUE(step.toLong() != 0, "step must be nonzero");
  }
  int64_t n =
      type == DType::kS64 || (integral && IsIntOrBool(type))
          ? (end.toLong() - start.toLong() + step.toLong() - (by > 0 ? 1 : -1)) / step.toLong()
          : static_cast<int64_t>(std::ceil((to - from) / by));
  return Range({type, {n}}, start, step, DeviceOf(device));
}

at::Tensor ArangeStart(const at::Scalar& start, const at::Scalar& end, OptDtype dtype,
                       OptLayout layout, OptDevice device, OptBool pin_memory) {
  return ArangeStep(start, end, 1, dtype, layout, device, pin_memory);
}

at::Tensor Arange(const at::Scalar& end, OptDtype dtype, OptLayout layout, OptDevice device,
                  OptBool pin_memory) {
  return ArangeStep(0, end, 1, dtype, layout, device, pin_memory);
}

// A bound of linspace or logspace in the type of the computation; integers lose fractions first.
hlo::Value Bound(hlo::Value s, const ir::Node& n, const Shape& wide) {
  if (IsIntOrBool(n.shape().dtype)) s = hlo::ConvertTo(s, DType::kS64);
  return hlo::BroadcastTo(hlo::ConvertTo(s, wide.dtype), wide.dims);
}

void LowerLinspace(const ir::Node& n, hlo::Builder& b, std::span<const hlo::Value> in,
                   std::vector<hlo::Value>& out) {
  Shape shape = n.shape().with(IsComplex(n.shape().dtype) ? DType::kC128 : DType::kF64);
  int64_t steps = shape.dims[0];
  hlo::Value start = Bound(in[0], n, shape), end = Bound(in[1], n, shape);
  // XLA multiplies by the reciprocal of a constant that it sees, and a step of 1 would not be 1.
  hlo::Value gaps = hlo::OptimizationBarrier(
      hlo::FullLike(start, static_cast<double>(std::max<int64_t>(1, steps - 1))));
  hlo::Value step = hlo::Div(hlo::Sub(end, start), gaps);
  hlo::Value number = hlo::Iota(b, shape.with(DType::kF64), 0);
  hlo::Value i = hlo::ConvertTo(number, shape.dtype);
  // From both ends, so that the last value is exact.
  hlo::Value up = hlo::Add(start, hlo::Mul(i, step));
  hlo::Value down =
      hlo::Sub(end, hlo::Mul(hlo::Sub(hlo::FullLike(i, static_cast<double>(steps - 1)), i), step));
  int64_t half = steps / 2;
  hlo::Value low = hlo::Lt(number, hlo::FullLike(number, static_cast<double>(half)));
  out.push_back(hlo::ConvertTo(steps == 1 ? start : hlo::Select(low, up, down), n.shape().dtype));
}

at::Tensor Linspace(const at::Scalar& start, const at::Scalar& end, int64_t steps, OptDtype dtype,
                    OptLayout, OptDevice device, OptBool) {
  static const ir::OpDef op("aten::linspace", LowerLinspace);
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  bool complex = start.isComplex() || end.isComplex();
  at::ScalarType otherwise = complex ? c10::toComplexType(DefaultDtype()) : DefaultDtype();
  Shape shape{DtypeOr(dtype, otherwise), {steps}};
  record::Recording r(op);
  r.ScalarInput(start);
  r.ScalarInput(end);
  return Wrap(ir::Value{r.Finish({&shape, 1}), 0}, DeviceOf(device));
}

// base to the power of the evenly spaced exponents.
void LowerLogspace(const ir::Node& n, hlo::Builder& b, std::span<const hlo::Value> in,
                   std::vector<hlo::Value>& out) {
  Shape shape = n.shape().with(IsComplex(n.shape().dtype) ? DType::kC128 : DType::kF64);
  int64_t steps = shape.dims[0];
  hlo::Value start = Bound(in[0], n, shape), end = Bound(in[1], n, shape);
  hlo::Value base = hlo::BroadcastTo(hlo::ConvertTo(in[2], shape.dtype), shape.dims);
  hlo::Value last = hlo::OptimizationBarrier(
      hlo::FullLike(start, static_cast<double>(std::max<int64_t>(1, steps - 1))));
  hlo::Value i = hlo::ConvertTo(hlo::Iota(b, shape.with(DType::kF64), 0), shape.dtype);
  hlo::Value step = hlo::Div(hlo::Sub(end, start), last);
  hlo::Value exponent = steps == 1 ? start : hlo::Add(start, hlo::Mul(i, step));
  out.push_back(hlo::ConvertTo(hlo::Pow(base, exponent), n.shape().dtype));
}

at::Tensor Logspace(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
                    OptDtype dtype, OptLayout, OptDevice device, OptBool) {
  static const ir::OpDef op("aten::logspace", LowerLogspace);
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  bool complex = start.isComplex() || end.isComplex();
  at::ScalarType otherwise = complex ? c10::toComplexType(DefaultDtype()) : DefaultDtype();
  Shape shape{DtypeOr(dtype, otherwise), {steps}};
  record::Recording r(op);
  r.ScalarInput(start);
  r.ScalarInput(end);
  r.ScalarInput(base);
  return Wrap(ir::Value{r.Finish({&shape, 1}), 0}, DeviceOf(device));
}

at::Tensor RangeStep(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                     OptDtype dtype, OptLayout, OptDevice device, OptBool) {
  DType type = DtypeOr(dtype, DefaultDtype());
  double from = start.toDouble(), to = end.toDouble(), by = step.toDouble();
  TORCH_CHECK(by != 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(from) && std::isfinite(to), "unsupported range: ", from, " -> ", to);
  TORCH_CHECK((by > 0 && to >= from) || (by < 0 && to <= from),
              "upper bound and larger bound inconsistent with step sign");
  auto n = static_cast<int64_t>((to - from) / by + 1);  // with the end
  return Range({type, {n}}, start, step, DeviceOf(device));
}

at::Tensor RangeStart(const at::Scalar& start, const at::Scalar& end, OptDtype dtype,
                      OptLayout layout, OptDevice device, OptBool pin_memory) {
  return RangeStep(start, end, 1, dtype, layout, device, pin_memory);
}

// Writes a fresh tensor of out's dtype and device into it.
template <typename Fn>
at::Tensor& Into(at::Tensor& out, Fn make) {
  at::Tensor made = make(out.scalar_type(), out.device());
  // As PyTorch has it: elements in out's own shape, if there are as many.
  if (out.numel() != made.numel()) at::native::resize_output(out, made.sizes());
  return out.copy_(made.view(out.sizes()));
}

at::Tensor& ArangeOut(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                      at::Tensor& out) {
  return Into(out, [&](OptDtype dtype, OptDevice device) {
    return ArangeStep(start, end, step, dtype, {}, device, {});
  });
}

at::Tensor& RangeOut(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                     at::Tensor& out) {
  return Into(out, [&](OptDtype dtype, OptDevice device) {
    return RangeStep(start, end, step, dtype, {}, device, {});
  });
}

at::Tensor& LinspaceOut(const at::Scalar& start, const at::Scalar& end, int64_t steps,
                        at::Tensor& out) {
  return Into(out, [&](OptDtype dtype, OptDevice device) {
    return Linspace(start, end, steps, dtype, {}, device, {});
  });
}

at::Tensor& LogspaceOut(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
                        at::Tensor& out) {
  return Into(out, [&](OptDtype dtype, OptDevice device) {
    return Logspace(start, end, steps, base, dtype, {}, device, {});
  });
}

void LowerEye(const ir::Node& n, hlo::Builder& b, std::span<const hlo::Value>,
              std::vector<hlo::Value>& out) {
  Shape index = n.shape().with(DType::kS64);
  out.push_back(
      hlo::ConvertTo(hlo::Eq(hlo::Iota(b, index, 0), hlo::Iota(b, index, 1)), n.shape().dtype));
}

at::Tensor EyeM(c10::SymInt rows, c10::SymInt columns, OptDtype dtype, OptLayout, OptDevice device,
                OptBool) {
  static const ir::OpDef op("aten::eye", LowerEye);
  int64_t n = rows.guard_int(__FILE__, __LINE__), m = columns.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  op.CountRecorded();
  Shape shape{DtypeOr(dtype, DefaultDtype()), {n, m}};
  return Wrap(ir::Value{ir::Node::Make(op, {}, shape), 0}, DeviceOf(device));
}

at::Tensor Eye(c10::SymInt n, OptDtype dtype, OptLayout layout, OptDevice device, OptBool pin) {
  return EyeM(n, n, dtype, layout, device, pin);
}

at::Tensor& EyeMOut(c10::SymInt n, c10::SymInt m, at::Tensor& out) {
  at::Tensor made = EyeM(n, m, out.scalar_type(), {}, out.device(), {});
  at::native::resize_output(out, made.sizes());
  return out.copy_(made);
}

at::Tensor& EyeOut(c10::SymInt n, at::Tensor& out) { return EyeMOut(n, n, out); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  m.impl("empty.memory_format", TORCH_FN(Empty));
  m.impl("empty_strided", TORCH_FN(EmptyStrided));
  m.impl("zeros", TORCH_FN(Zeros));
  m.impl("_efficientzerotensor", TORCH_FN(Zeros));  // the gradient of sign and its kin
  m.impl("ones", TORCH_FN(Ones));
  m.impl("full", TORCH_FN(FullKernel));
  m.impl("zeros_like", TORCH_FN(FilledLike<0>));
  m.impl("ones_like", TORCH_FN(FilledLike<1>));
  m.impl("fill_.Scalar", TORCH_FN(Fill_));
  m.impl("fill_.Tensor", TORCH_FN(FillTensor_));
  m.impl("zero_", TORCH_FN(Zero_));
  m.impl("arange", TORCH_FN(Arange));
  m.impl("arange.start", TORCH_FN(ArangeStart));
  m.impl("arange.start_step", TORCH_FN(ArangeStep));
  m.impl("arange.start_out", TORCH_FN(ArangeOut));
  m.impl("range", TORCH_FN(RangeStart));
  m.impl("range.step", TORCH_FN(RangeStep));
  m.impl("range.out", TORCH_FN(RangeOut));
  m.impl("linspace", TORCH_FN(Linspace));
  m.impl("linspace.out", TORCH_FN(LinspaceOut));
  m.impl("logspace", TORCH_FN(Logspace));
  m.impl("logspace.out", TORCH_FN(LogspaceOut));
  m.impl("eye", TORCH_FN(Eye));
  m.impl("eye.m", TORCH_FN(EyeM));
  m.impl("eye.out", TORCH_FN(EyeOut));
  m.impl("eye.m_out", TORCH_FN(EyeMOut));
}

}  // namespace torch_xla
