#include "hlo/control.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

std::vector<Value> While(std::span<const Value> inits, const Body& cond, const Body& body) {
  constexpr std::string_view op = "while";
  HLO_CHECK(!inits.empty(), op, "no values to carry");
  for (const Value& v : inits) HLO_CHECK(v.valid(), op, "an operand is not a value");
  Builder& b = inits[0].builder();
  std::vector<Type> types = TypesOf(inits);
  Region regions[] = {b.BuildRegion(op, types, cond), b.BuildRegion(op, types, body)};
  const Type pred = Shape{DType::kBool, {}};
  HLO_CHECK(regions[0].results == std::vector<Type>{pred}, op,
            "the condition does not return one tensor<i1>");
  HLO_CHECK(regions[1].results.size() == types.size(), op, "the body returns ",
            regions[1].results.size(), " values for ", types.size(), " carried ones");
  for (size_t i = 0; i < types.size(); ++i) {
    HLO_CHECK(regions[1].results[i] == types[i], op, "the body returns ",
              TypeName(regions[1].results[i]), " for the carried ", TypeName(types[i]), " at ", i);
  }
  return b.Emit(op, inits, "", regions, types);
}

std::vector<Value> If(Value pred, const Body& then_body, const Body& else_body) {
  constexpr std::string_view op = "if";
  CheckTensors(op, {pred});
  HLO_CHECK(pred.shape() == (Shape{DType::kBool, {}}), op, "the predicate ", ToString(pred.shape()),
            " should be tensor<i1>");
  Builder& b = pred.builder();
  Region regions[] = {b.BuildRegion(op, {}, then_body), b.BuildRegion(op, {}, else_body)};
  HLO_CHECK(regions[0].results == regions[1].results, op, "the branches return different types");
  std::vector<Type> types = regions[0].results;
  return b.Emit(op, std::span(&pred, 1), "", regions, types);
}

std::vector<Value> OptimizationBarrier(std::span<const Value> xs) {
  if (xs.empty()) return {};
  for (const Value& v : xs) {
    HLO_CHECK(v.valid(), "optimization_barrier", "an operand is not a value");
  }
  return xs[0].builder().Emit("optimization_barrier", xs, "", std::span<const Region>{},
                              TypesOf(xs));
}

Value OptimizationBarrier(Value x) { return OptimizationBarrier(std::span(&x, 1))[0]; }

Value Token(Builder& b) {
  const Type token = Type::Token();
  return b.Emit("after_all", std::span<const Value>{}, "", std::span<const Region>{},
                std::span(&token, 1))[0];
}

namespace {

struct AppendAttr {
  std::string& out;

  void operator()(bool v) const { out += v ? "true" : "false"; }
  void operator()(int32_t v) const {
    AppendInt(out, v);
    out += " : i32";
  }
  void operator()(int64_t v) const {
    AppendInt(out, v);
    out += " : i64";
  }
  void operator()(float v) const {
    AppendFloat(out, DType::kF32, static_cast<double>(v));
    out += " : f32";
  }
  void operator()(double v) const {
    AppendFloat(out, DType::kF64, v);
    out += " : f64";
  }
  void operator()(const std::string& v) const { AppendQuoted(out, v); }
  void operator()(const std::vector<int64_t>& v) const {
    out += "array<i64";
    for (size_t i = 0; i < v.size(); ++i) {
      out += i == 0 ? ": " : ", ";
      AppendInt(out, v[i]);
    }
    out += '>';
  }
  void operator()(const std::vector<double>& v) const {
    out += "array<f64";
    for (size_t i = 0; i < v.size(); ++i) {
      out += i == 0 ? ": " : ", ";
      AppendFloat(out, DType::kF64, v[i]);
    }
    out += '>';
  }
};

}  // namespace

std::string Dictionary(const Attrs& attrs) {
  std::string out = "{";
  for (const auto& [name, value] : attrs) {
    if (out.size() > 1) out += ", ";
    AppendQuoted(out, name);
    out += " = ";
    std::visit(AppendAttr{out}, value);
  }
  out += '}';
  return out;
}

namespace {

// "[dense<[1, 0]> : tensor<2xindex>, ...]": FFI handlers read plain row-major buffers.
std::string RowMajorLayouts(std::span<const Type> types) {
  std::string out = "[";
  for (const Type& type : types) {
    if (out.size() > 1) out += ", ";
    int64_t rank = type.token ? 0 : type.shape.rank();
    out += "dense<";
    if (rank > 0) {
      Dims order;
      for (int64_t i = rank - 1; i >= 0; --i) order.push_back(i);
      AppendList(out, order);
    }
    out += "> : tensor<";
    AppendInt(out, rank);
    out += "xindex>";
  }
  out += ']';
  return out;
}

}  // namespace

std::vector<Value> CustomCall(Builder& b, std::string_view target, std::span<const Value> inputs,
                              std::span<const Shape> results, const Attrs& attrs,
                              bool has_side_effect, const CustomCallOptions& options) {
  constexpr std::string_view op = "custom_call";
  for (const Value& v : inputs) HLO_CHECK(v.valid(), op, "an operand is not a value");
  std::vector<Type> types(results.begin(), results.end());
  if (options.returns_token) types.push_back(Type::Token());
  std::string aliases;
  for (auto [output, operand] : options.aliases) {
    HLO_CHECK(
        output >= 0 && static_cast<size_t>(output) < types.size() && operand >= 0 &&
            static_cast<size_t>(operand) < inputs.size() &&
            types[static_cast<size_t>(output)] == b.type(inputs[static_cast<size_t>(operand)]),
        op, target, ": output ", output, " cannot share the buffer of operand ", operand);
    aliases += aliases.empty() ? "[" : ", ";
    aliases += "#stablehlo.output_operand_alias<output_tuple_indices = [";
    if (types.size() > 1) AppendInt(aliases, output);
    aliases += "], operand_index = ";
    AppendInt(aliases, operand);
    aliases += ", operand_tuple_indices = []>";
  }
  Props props;
  props.String("call_target_name", target)
      .Bool("has_side_effect", has_side_effect)
      .Int("api_version", 4, "i32")
      .Raw("backend_config", Dictionary(attrs))
      .Raw("operand_layouts", RowMajorLayouts(TypesOf(inputs)))
      .Raw("result_layouts", RowMajorLayouts(types));
  if (!aliases.empty()) props.Raw("output_operand_aliases", aliases + "]");
  return b.Emit(op, inputs, props, std::span<const Region>{}, types);
}

Value Cholesky(Value x, bool lower) {
  constexpr std::string_view op = "cholesky";
  CheckTensors(op, {x});
  HLO_CHECK(IsFloat(x.dtype()) || IsComplex(x.dtype()), op, "is not defined for ",
            ToString(x.shape()));
  HLO_CHECK(x.rank() >= 2 && x.dim(-1) == x.dim(-2), op, ToString(x.shape()),
            " is not a batch of square matrices");
  return x.builder().Emit(op, {x}, Props().Bool("lower", lower), x.shape());
}

Value TriangularSolve(Value a, Value b, bool left_side, bool lower, bool unit_diagonal,
                      TransposeKind transpose_a) {
  constexpr std::string_view op = "triangular_solve";
  CheckTensors(op, {a, b});
  HLO_CHECK((IsFloat(a.dtype()) || IsComplex(a.dtype())) && a.dtype() == b.dtype(), op,
            "is not defined for ", ToString(a.shape()), " and ", ToString(b.shape()));
  bool fits = a.rank() >= 2 && a.rank() == b.rank() && a.dim(-1) == a.dim(-2) &&
              b.dim(left_side ? -2 : -1) == a.dim(-1);
  for (int64_t i = 0; fits && i < a.rank() - 2; ++i) fits = a.dim(i) == b.dim(i);
  HLO_CHECK(fits, op, "operand shapes ", ToString(a.shape()), " and ", ToString(b.shape()),
            " do not fit");
  static constexpr const char* kNames[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  Props props;
  props.Bool("left_side", left_side)
      .Bool("lower", lower)
      .Bool("unit_diagonal", unit_diagonal)
      .Enum("transpose_a", "transpose", kNames[static_cast<int>(transpose_a)]);
  return a.builder().Emit(op, {a, b}, props, b.shape());
}

Value Fft(Value x, FftType type, const Dims& lengths) {
  constexpr std::string_view op = "fft";
  CheckTensors(op, {x});
  size_t n = lengths.size();
  HLO_CHECK(n >= 1 && n <= 3 && n <= x.dims().size(), op, "lengths ", ToString(lengths),
            " do not fit ", ToString(x.shape()));
  bool real_in = type == FftType::kRfft;
  const DType real = real_in ? x.dtype() : RealPart(x.dtype());
  HLO_CHECK(real_in != IsComplex(x.dtype()) && (real == DType::kF32 || real == DType::kF64), op,
            "is not defined for ", ToString(x.shape()));
  Shape out = x.shape();
  if (real_in) out.dtype = ComplexOf(x.dtype());
  if (type == FftType::kIrfft) out.dtype = RealPart(x.dtype());
  for (size_t i = 0; i < n; ++i) {
    size_t at = x.dims().size() - n + i;
    bool last = i + 1 == n;
    int64_t half = lengths[i] == 0 ? 0 : lengths[i] / 2 + 1;
    int64_t expected = last && type == FftType::kIrfft ? half : lengths[i];
    HLO_CHECK(x.dims()[at] == expected, op, "lengths ", ToString(lengths), " do not fit ",
              ToString(x.shape()));
    out.dims[at] = last && real_in ? half : lengths[i];
  }
  static constexpr const char* kNames[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  Props props;
  props.Enum("fft_type", "fft_type", kNames[static_cast<int>(type)]).Array("fft_length", lengths);
  return x.builder().Emit(op, {x}, props, out);
}

}  // namespace torch_xla::hlo
