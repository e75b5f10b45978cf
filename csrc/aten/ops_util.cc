#include "aten/ops_util.h"

#include <bit>

#include "aten/device.h"
#include "aten/dtype_map.h"
#include "aten/record.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"
#include "lazy/executor.h"

namespace torch_xla {

void RaiseDeviceMismatch(c10::Device a, c10::Device b) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ", a,
              " and ", b, "!");
}

HostScalar ReadHostScalar(const at::Tensor& t) {
  const void* p = t.const_data_ptr();
  auto real = [&](double v) {
    return HostScalar{ToDType(t.scalar_type()), std::bit_cast<int64_t>(v)};
  };
  auto integer = [&](int64_t v) { return HostScalar{ToDType(t.scalar_type()), v}; };
  auto complex = [&](double re, double im) {
    return HostScalar{ToDType(t.scalar_type()), std::bit_cast<int64_t>(re),
                      std::bit_cast<int64_t>(im)};
  };
  switch (t.scalar_type()) {
    case at::kDouble: return real(*static_cast<const double*>(p));
    case at::kLong: return integer(*static_cast<const int64_t*>(p));
    case at::kFloat: return real(*static_cast<const float*>(p));
    case at::kBool: return integer(*static_cast<const bool*>(p));
    case at::kUInt64: return integer(std::bit_cast<int64_t>(*static_cast<const uint64_t*>(p)));
    case at::kInt: return integer(*static_cast<const int32_t*>(p));
    case at::kComplexDouble: {
      auto c = *static_cast<const c10::complex<double>*>(p);
      return complex(c.real(), c.imag());
    }
    default: break;
  }
  at::Scalar s = t.item();
  if (s.isComplex()) {
    auto c = s.toComplexDouble();
    return complex(c.real(), c.imag());
  }
  return s.isFloatingPoint() ? real(s.toDouble()) : integer(s.toLong());
}

namespace {

void LowerConvert(const ir::Node& n, hlo::Builder&, std::span<const hlo::Value> in,
                  std::vector<hlo::Value>& out) {
  out.push_back(hlo::ConvertTo(in[0], n.shape().dtype));
}

void LowerFullStatic(const ir::Node& n, hlo::Builder& b, std::span<const hlo::Value>,
                     std::vector<hlo::Value>& out) {
  out.push_back(hlo::Full(b, n.shape(), std::bit_cast<double>(n.words()[0])));
}

void LowerFull(const ir::Node& n, hlo::Builder&, std::span<const hlo::Value> in,
               std::vector<hlo::Value>& out) {
  out.push_back(hlo::BroadcastTo(hlo::ConvertTo(in[0], n.shape().dtype), n.shape().dims));
}

}  // namespace

ir::Value Convert(ir::Value value, DType to) {
  static const ir::OpDef op("xla::convert", LowerConvert);
  if (value.shape().dtype == to) return value;
  Shape shape = value.shape().with(to);
  return {ir::Node::Make(op, {&value, 1}, shape), 0};
}

ir::Value FullStatic(const Shape& shape, double value) {
  static const ir::OpDef op("xla::full_static", LowerFullStatic);
  int64_t word = std::bit_cast<int64_t>(value);
  return {ir::Node::Make(op, {}, shape, {&word, 1}), 0};
}

void CheckFits(const at::Scalar& value, DType to) {
  switch (to) {
    case DType::kS8: (void)value.toChar(); break;
    case DType::kU8: (void)value.toByte(); break;
    case DType::kS16: (void)value.toShort(); break;
    case DType::kS32: (void)value.toInt(); break;
    case DType::kS64: (void)value.toLong(); break;
    case DType::kU16: (void)value.toUInt16(); break;
    case DType::kU32: (void)value.toUInt32(); break;
    case DType::kU64: (void)value.toUInt64(); break;
    case DType::kF8E4M3FN: (void)value.toFloat8_e4m3fn(); break;
    case DType::kF8E5M2: (void)value.toFloat8_e5m2(); break;
    case DType::kF8E4M3FNUZ: (void)value.toFloat8_e4m3fnuz(); break;
    case DType::kF8E5M2FNUZ: (void)value.toFloat8_e5m2fnuz(); break;
    case DType::kF16: (void)value.toHalf(); break;
    case DType::kBF16: (void)value.toBFloat16(); break;
    case DType::kF32: (void)value.toFloat(); break;
    case DType::kF64: (void)value.toDouble(); break;
    case DType::kC32: (void)value.toComplexHalf(); break;
    case DType::kC64: (void)value.toComplexFloat(); break;
    case DType::kBool:
    case DType::kC128: break;
  }
}

ir::Value Full(const Shape& shape, const at::Scalar& value) {
  // PyTorch's kernel rounds a half that stands alone, and checks more of them; complex halves it
  // treats the other way round.
  bool half = ByteSize(shape.dtype) <= 2 && IsFloat(shape.dtype);
  bool rounds = shape.numel() == 1 ? half : shape.dtype == DType::kC32;
  CheckFits(value, !rounds ? shape.dtype : IsComplex(shape.dtype) ? DType::kC64 : DType::kF64);
  static const ir::OpDef op("aten::full", LowerFull);
  record::Recording r(op);
  r.ScalarInput(value);
  return {r.Finish({&shape, 1}), 0};
}

int DeviceOf(std::optional<c10::Device> device) {
  int index = device.has_value() && device->has_index() ? device->index() : CurrentDevice();
  lazy::CheckDevice(index);
  return index;
}

}  // namespace torch_xla
