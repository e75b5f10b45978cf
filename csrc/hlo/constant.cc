#include "hlo/constant.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "hlo/movement.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

namespace {

// Wraps around to the type's width.
void AppendIntegerOf(std::string& out, DType t, int64_t v) {
  switch (t) {
    case DType::kBool: out += v != 0 ? "true" : "false"; return;
    case DType::kS8: AppendInt(out, static_cast<int8_t>(v)); return;
    case DType::kS16: AppendInt(out, static_cast<int16_t>(v)); return;
    case DType::kS32: AppendInt(out, static_cast<int32_t>(v)); return;
    case DType::kS64: AppendInt(out, v); return;
    case DType::kU8: AppendInt(out, static_cast<uint8_t>(v)); return;
    case DType::kU16: AppendInt(out, static_cast<uint16_t>(v)); return;
    case DType::kU32: AppendInt(out, static_cast<uint32_t>(v)); return;
    case DType::kU64: out += std::to_string(static_cast<uint64_t>(v)); return;
    default: Throw(Code::kInternal, "[hlo] ", HloName(t), " is not an integer type");
  }
}

void AppendComplex(std::string& out, DType t, std::complex<double> v) {
  DType part = RealPart(Stored(t));
  if (t == DType::kC32) v = {RoundFloat(DType::kF16, v.real()), RoundFloat(DType::kF16, v.imag())};
  out += '(';
  AppendFloat(out, part, v.real());
  out += ", ";
  AppendFloat(out, part, v.imag());
  out += ')';
}

int64_t LoadInteger(DType t, const char* p) {
  int64_t v = 0;  // little-endian: the low bytes come first
  size_t size = ByteSize(t);
  std::memcpy(&v, p, size);
  if (IsSigned(t) && size < 8) {
    auto shift = static_cast<int>(64 - 8 * size);
    v = static_cast<int64_t>(static_cast<uint64_t>(v) << shift) >> shift;
  }
  return v;
}

// "[[1, 2], [3, 4]]"; advances p.
void AppendNested(std::string& out, const Shape& shape, size_t dim, const char*& p) {
  if (dim == shape.dims.size()) {
    AppendIntegerOf(out, shape.dtype, LoadInteger(shape.dtype, p));
    p += ByteSize(shape.dtype);
    return;
  }
  out += '[';
  for (int64_t i = 0; i < shape.dims[dim]; ++i) {
    if (i != 0) out += ", ";
    AppendNested(out, shape, dim + 1, p);
  }
  out += ']';
}

// The one element that all are equal to, as a bit pattern; exact for every type.
void AppendPattern(std::string& out, DType t, const char* p) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  if (IsComplex(t)) {
    DType part = RealPart(Stored(t));
    out += '(';
    AppendPattern(out, part, p);
    out += ", ";
    AppendPattern(out, part, p + ByteSize(part));
    out += ')';
    return;
  }
  if (!IsFloat(t)) {
    AppendIntegerOf(out, t, LoadInteger(t, p));
    return;
  }
  if (t == DType::kF32 || t == DType::kF64) {  // in decimal when it is an ordinary number
    double value = 0;
    float single = 0;
    std::memcpy(&single, p, sizeof(single));
    if (t == DType::kF64) {
      std::memcpy(&value, p, sizeof(value));
    } else {
      value = static_cast<double>(single);
    }
    if (std::isfinite(value)) {
      AppendFloat(out, t, value);
      return;
    }
  }
  out += "0x";
  for (size_t i = ByteSize(t); i-- > 0;) {
    auto byte = static_cast<unsigned char>(p[i]);
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
}

bool IsSplat(const char* p, size_t element, size_t bytes) {
  // Every byte equals the byte one element before.
  return std::memcmp(p, p + element, bytes - element) == 0;
}

void AppendHexBytes(std::string& out, const char* p, size_t bytes) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  size_t at = out.size();
  out.resize(at + 2 * bytes + 4);
  out[at++] = '"';
  out[at++] = '0';
  out[at++] = 'x';
  for (size_t i = 0; i < bytes; ++i) {
    auto byte = static_cast<unsigned char>(p[i]);
    out[at++] = kHex[byte >> 4];
    out[at++] = kHex[byte & 15];
  }
  out[at] = '"';
}

constexpr int64_t kMaxListed = 32;  // longer integer constants are bytes

}  // namespace

Value Scalar(Builder& b, DType dtype, double value) {
  if (dtype == DType::kBool) return ScalarInt(b, dtype, value != 0);
  if (IsComplex(dtype)) return ScalarComplex(b, dtype, value);
  std::string literal;
  if (IsFloat(dtype)) {
    AppendFloat(literal, dtype, value);
  } else {
    // Both limits are exact doubles; NaN fails too.
    HLO_CHECK(value >= -0x1p63 && value < 0x1p64, "constant", value, " does not fit ",
              HloName(dtype));
    int64_t integer = value >= 0x1p63 ? static_cast<int64_t>(static_cast<uint64_t>(value))
                                      : static_cast<int64_t>(value);
    return ScalarInt(b, dtype, integer);
  }
  return b.EmitConstant({dtype, {}}, literal);
}

Value ScalarInt(Builder& b, DType dtype, int64_t value) {
  if (!IsIntOrBool(dtype)) return Scalar(b, dtype, static_cast<double>(value));
  std::string literal;
  AppendIntegerOf(literal, dtype, value);
  return b.EmitConstant({dtype, {}}, literal);
}

Value ScalarComplex(Builder& b, DType dtype, std::complex<double> value) {
  HLO_CHECK(IsComplex(dtype), "constant", HloName(dtype), " is not complex");
  std::string literal;
  AppendComplex(literal, dtype, value);
  return b.EmitConstant({dtype, {}}, literal);
}

Value Constant(Builder& b, const Shape& shape, const void* data) {
  const char* p = static_cast<const char*>(data);
  int64_t n = shape.numel();
  std::string literal;
  if (n == 0) return b.EmitConstant(shape, literal);
  size_t element = ByteSize(shape.dtype);
  if (IsSplat(p, element, shape.bytes())) {
    AppendPattern(literal, shape.dtype, p);
  } else if (shape.dtype == DType::kBool || (IsInt(shape.dtype) && n <= kMaxListed)) {
    // Bool always: parsers differ in whether its bytes are packed into bits.
    AppendNested(literal, shape, 0, p);
  } else {
    AppendHexBytes(literal, p, shape.bytes());
  }
  return b.EmitConstant(shape, literal);
}

Value Full(Builder& b, const Shape& shape, double value) {
  return BroadcastTo(Scalar(b, shape.dtype, value), shape.dims);
}

Value FullInt(Builder& b, const Shape& shape, int64_t value) {
  return BroadcastTo(ScalarInt(b, shape.dtype, value), shape.dims);
}

Value FullLike(Value x, double value) { return Full(x.builder(), x.shape(), value); }

Value Iota(Builder& b, const Shape& shape, int64_t dim) {
  HLO_CHECK(shape.dtype != DType::kBool, "iota", "is not defined for ", ToString(shape));
  HLO_CHECK(dim >= 0 && dim < shape.rank(), "iota", "dimension ", dim, " is out of range for ",
            ToString(shape));
  return b.Emit("iota", std::span<const Value>{}, Props().Int("iota_dimension", dim), shape);
}

double MaxFinite(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN: return 448;
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ: return 57344;
    case DType::kF8E4M3FNUZ: return 240;
    case DType::kF16: return 65504;
    case DType::kBF16: return 0x1.FEp127;
    case DType::kF32: return static_cast<double>(std::numeric_limits<float>::max());
    case DType::kF64: return std::numeric_limits<double>::max();
    default: Throw(Code::kInternal, "[hlo] ", HloName(dtype), " has no largest finite value");
  }
}

namespace {

bool HasInfinity(DType t) { return t == DType::kF8E5M2 || (IsFloat(t) && t >= DType::kF16); }

int64_t MaxInteger(DType t) {
  if (t == DType::kBool) return 1;
  if (IsUnsigned(t)) return -1;  // all ones, whatever the width
  return static_cast<int64_t>(~uint64_t{0} >> (65 - 8 * ByteSize(t)));
}

}  // namespace

Value MaxValue(Builder& b, DType dtype) {
  HLO_CHECK(!IsComplex(dtype), "constant", HloName(dtype), " has no order");
  if (!IsFloat(dtype)) return ScalarInt(b, dtype, MaxInteger(dtype));
  return Scalar(b, dtype, HasInfinity(dtype) ? INFINITY : MaxFinite(dtype));
}

Value MinValue(Builder& b, DType dtype) {
  HLO_CHECK(!IsComplex(dtype), "constant", HloName(dtype), " has no order");
  if (!IsSigned(dtype) && !IsFloat(dtype)) return ScalarInt(b, dtype, 0);
  if (!IsFloat(dtype)) return ScalarInt(b, dtype, ~MaxInteger(dtype));
  return Scalar(b, dtype, HasInfinity(dtype) ? -INFINITY : -MaxFinite(dtype));
}

Value LowestValue(Builder& b, DType dtype) { return MinValue(b, dtype); }

Value MaxFiniteValue(Builder& b, DType dtype) {
  return IsFloat(dtype) ? Scalar(b, dtype, MaxFinite(dtype)) : MaxValue(b, dtype);
}

}  // namespace torch_xla::hlo
