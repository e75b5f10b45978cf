#include "hlo/text.h"

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace torch_xla::hlo {

void AppendType(std::string& out, const Shape& shape) {
  out += "tensor<";
  for (int64_t d : shape.dims) {
    AppendInt(out, d);
    out += 'x';
  }
  out += HloName(shape.dtype);
  out += '>';
}

void AppendType(std::string& out, const Type& type) {
  if (type.token) {
    out += "!stablehlo.token";
  } else {
    AppendType(out, type.shape);
  }
}

std::string TypeName(const Type& type) {
  std::string out;
  AppendType(out, type);
  return out;
}

void AppendQuoted(std::string& out, std::string_view s) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  out += '"';
  for (char c : s) {
    auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u >= 0x7F) {
      out += '\\';
      out += kHex[u >> 4];
      out += kHex[u & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void AppendList(std::string& out, Span v) {
  out += '[';
  for (size_t i = 0; i < v.size(); ++i) {
    if (i != 0) out += ", ";
    AppendInt(out, v[i]);
  }
  out += ']';
}

namespace {

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_inf;
  bool fnuz;  // no negative zero; its pattern is the only NaN
};

FloatFormat FormatOf(DType t) {
  switch (t) {
    case DType::kF8E4M3FN: return {4, 3, 7, false, false};
    case DType::kF8E5M2: return {5, 2, 15, true, false};
    case DType::kF8E4M3FNUZ: return {4, 3, 8, false, true};
    case DType::kF8E5M2FNUZ: return {5, 2, 16, false, true};
    case DType::kF16: return {5, 10, 15, true, false};
    case DType::kBF16: return {8, 7, 127, true, false};
    case DType::kF32: return {8, 23, 127, true, false};
    case DType::kF64: return {11, 52, 1023, true, false};
    default: break;
  }
  Throw(Code::kInternal, "[hlo] ", HloName(t), " is not a floating type");
}

// The largest finite pattern without sign.
uint64_t MaxPattern(const FloatFormat& f) {
  uint64_t all = (uint64_t{1} << (f.exponent_bits + f.mantissa_bits)) - 1;
  if (f.has_inf) return all - (uint64_t{1} << f.mantissa_bits);
  return f.fnuz ? all : all - 1;
}

double FromMagnitude(const FloatFormat& f, uint64_t pattern) {
  auto exponent = static_cast<int>(pattern >> f.mantissa_bits);
  uint64_t mantissa = pattern & ((uint64_t{1} << f.mantissa_bits) - 1);
  if (exponent == 0) {
    exponent = 1;
  } else {
    mantissa |= uint64_t{1} << f.mantissa_bits;
  }
  return std::ldexp(static_cast<double>(mantissa), exponent - f.bias - f.mantissa_bits);
}

// The bit pattern of `value` rounded to nearest even. Beyond the range: infinity, or NaN where the
// type has none.
uint64_t ToPattern(const FloatFormat& f, double value) {
  uint64_t sign = uint64_t{std::signbit(value)} << (f.exponent_bits + f.mantissa_bits);
  uint64_t max = MaxPattern(f);
  uint64_t nan = f.fnuz      ? uint64_t{1} << (f.exponent_bits + f.mantissa_bits)
                 : f.has_inf ? max + 1 + (uint64_t{1} << (f.mantissa_bits - 1))  // quiet
                             : max + 1;
  if (std::isnan(value)) return f.fnuz ? nan : sign | nan;
  double a = std::fabs(value);
  uint64_t pattern = 0;
  if (std::isinf(a)) {
    pattern = max + 1;
  } else if (a != 0) {
    int exponent = std::max(std::ilogb(a), 1 - f.bias);  // of the leading bit; denormals share one
    double scaled = std::nearbyint(std::ldexp(a, f.mantissa_bits - exponent));  // ties to even
    // A carry out of the mantissa moves on to the exponent by itself.
    auto mantissa = static_cast<uint64_t>(scaled);
    pattern = mantissa + (static_cast<uint64_t>(exponent + f.bias - 1) << f.mantissa_bits);
  }
  if (pattern > max) return f.has_inf ? sign | (max + 1) : f.fnuz ? nan : sign | nan;
  if (f.fnuz && pattern == 0) return 0;
  return sign | pattern;
}

void AppendHex(std::string& out, uint64_t pattern, int digits) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  out += "0x";
  for (int i = digits - 1; i >= 0; --i) out += kHex[(pattern >> (4 * i)) & 15];
}

}  // namespace

double RoundFloat(DType dtype, double value) {
  if (!std::isfinite(value)) return value;
  FloatFormat f = FormatOf(dtype);
  uint64_t magnitude = ToPattern(f, std::fabs(value));
  return std::copysign(magnitude <= MaxPattern(f) ? FromMagnitude(f, magnitude) : HUGE_VAL, value);
}

void AppendFloat(std::string& out, DType dtype, double value) {
  FloatFormat f = FormatOf(dtype);
  uint64_t pattern = ToPattern(f, value);
  int total = 1 + f.exponent_bits + f.mantissa_bits;
  uint64_t magnitude = pattern & ((uint64_t{1} << (total - 1)) - 1);
  double exact = 0;
  if (pattern != 0) exact = magnitude <= MaxPattern(f) ? FromMagnitude(f, magnitude) : NAN;
  // Decimal where it is easy to read; the shortest text of the double is exact for all types.
  bool readable = magnitude == 0 ? (pattern == 0 || !f.fnuz) : exact >= 1e-30 && exact <= 1e30;
  if (!readable) {
    AppendHex(out, pattern, total / 4);
    return;
  }
  if (magnitude != pattern) out += '-';
  char buffer[40];
  bool plain = exact == 0 || (exact >= 1e-4 && exact < 1e7);
  auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string_view text(buffer,
                        std::to_chars(buffer, buffer + sizeof(buffer), exact, format).ptr - buffer);
  size_t e = text.find('e');
  std::string_view mantissa = text.substr(0, e);
  out += mantissa;
  if (mantissa.find('.') == std::string_view::npos) out += ".0";  // MLIR wants a point
  if (e != std::string_view::npos) out += text.substr(e);
}

void Props::Name(std::string_view name) {
  if (!text_.empty()) text_ += ", ";
  text_ += name;
  text_ += " = ";
}

Props& Props::Int(std::string_view name, int64_t v, std::string_view type) {
  Name(name);
  AppendInt(text_, v);
  text_ += " : ";
  text_ += type;
  return *this;
}

Props& Props::String(std::string_view name, std::string_view v) {
  Name(name);
  AppendQuoted(text_, v);
  return *this;
}

Props& Props::Array(std::string_view name, Span v) {
  Name(name);
  text_ += "array<i64";
  for (size_t i = 0; i < v.size(); ++i) {
    text_ += i == 0 ? ": " : ", ";
    AppendInt(text_, v[i]);
  }
  text_ += '>';
  return *this;
}

Props& Props::Raw(std::string_view name, std::string_view text) {
  Name(name);
  text_ += text;
  return *this;
}

Props& Props::Padding(Span low, Span high) {
  Name("padding");
  text_ += "dense<";
  if (!low.empty()) {
    text_ += '[';
    for (size_t i = 0; i < low.size(); ++i) {
      if (i != 0) text_ += ", ";
      const int64_t pair[] = {low[i], high[i]};
      AppendList(text_, pair);
    }
    text_ += ']';
  }
  text_ += "> : tensor<";
  AppendInt(text_, static_cast<int64_t>(low.size()));
  text_ += "x2xi64>";
  return *this;
}

Props& Props::Enum(std::string_view name, std::string_view kind, std::string_view value) {
  Name(name);
  text_ += "#stablehlo<";
  text_ += kind;
  text_ += ' ';
  text_ += value;
  text_ += '>';
  return *this;
}

void CheckTensors(std::string_view op, std::span<const Value> values) {
  for (const Value& v : values) {
    HLO_CHECK(v.valid(), op, "an operand is not a value");
    HLO_CHECK(!v.is_token(), op, "an operand is a token, not a tensor");
  }
}

void CheckTensors(std::string_view op, std::initializer_list<Value> values) {
  CheckTensors(op, std::span<const Value>(values.begin(), values.size()));
}

void CheckSameShape(std::string_view op, Value a, Value b) {
  HLO_CHECK(a.shape() == b.shape(), op, "operand shapes ", ToString(a.shape()), " and ",
            ToString(b.shape()), " differ");
}

void CheckDims(std::string_view op, const char* what, Span dims, int64_t rank) {
  for (size_t i = 0; i < dims.size(); ++i) {
    HLO_CHECK(dims[i] >= 0 && dims[i] < rank, op, what, " ", ToString(dims), ": ", dims[i],
              " is out of range for rank ", rank);
    HLO_CHECK(!Contains(dims.first(i), dims[i]), op, what, " ", ToString(dims), ": ", dims[i],
              " is repeated");
  }
}

void CheckCount(std::string_view op, const char* what, Span v, int64_t n) {
  HLO_CHECK(static_cast<int64_t>(v.size()) == n, op, what, " ", ToString(v), " should have ", n,
            " entries");
}

std::vector<Type> TypesOf(std::span<const Value> values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back(v.builder().type(v));
  return types;
}

std::vector<Type> ScalarTypesOf(std::span<const Value> values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back(Shape{v.dtype(), {}});
  return types;
}

namespace {

int64_t Dilate(int64_t size, int64_t dilation) { return size == 0 ? 0 : (size - 1) * dilation + 1; }

}  // namespace

Dims SlideWindow(std::string_view op, Span in, const Window& w) {
  auto n = static_cast<int64_t>(in.size());
  CheckCount(op, "window", w.size, n);
  CheckCount(op, "strides", w.strides, n);
  CheckCount(op, "low padding", w.pad_low, n);
  CheckCount(op, "high padding", w.pad_high, n);
  CheckCount(op, "base dilation", w.base_dilation, n);
  CheckCount(op, "window dilation", w.window_dilation, n);
  Dims out(in.size(), 0);
  for (size_t i = 0; i < in.size(); ++i) {
    HLO_CHECK(
        w.size[i] > 0 && w.strides[i] > 0 && w.base_dilation[i] > 0 && w.window_dilation[i] > 0, op,
        "window ", ToString(w.size), ", strides ", ToString(w.strides), ", base dilation ",
        ToString(w.base_dilation), " and window dilation ", ToString(w.window_dilation),
        " must be positive");
    int64_t padded = w.pad_low[i] + Dilate(in[i], w.base_dilation[i]) + w.pad_high[i];
    HLO_CHECK(padded >= 0, op, "padding ", w.pad_low[i], " and ", w.pad_high[i],
              " cut more than dimension ", i, " of ", ToString(in), " has");
    int64_t window = Dilate(w.size[i], w.window_dilation[i]);
    out[i] = padded == 0 || window > padded ? 0 : (padded - window) / w.strides[i] + 1;
  }
  return out;
}

}  // namespace torch_xla::hlo
