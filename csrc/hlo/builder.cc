#include "hlo/builder.h"

#include <memory>

#include "base/error.h"
#include "hlo/embed.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

const Shape& Value::shape() const {
  XLA_CHECK(valid(), kInternal, "[hlo] this value was never set");
  return builder_->type(*this).shape;
}

int64_t Value::dim(int64_t i) const {
  const Dims& d = dims();
  int64_t rank = static_cast<int64_t>(d.size());
  int64_t at = i < 0 ? i + rank : i;
  XLA_CHECK(at >= 0 && at < rank, kInvalidArgument, "[hlo] dimension ", i, " is out of range for ",
            ToString(shape()));
  return d[static_cast<size_t>(at)];
}

bool Value::is_token() const { return valid() && builder_->type(*this).token; }

Builder& Value::builder() const {
  XLA_CHECK(valid(), kInternal, "[hlo] this value was never set");
  return *builder_;
}

Builder::Builder(std::string module_name, Precision precision)
    : name_(std::move(module_name)), precision_(precision) {}

Value Builder::NewValue(Type type, int32_t parameter) {
  auto id = static_cast<int32_t>(values_.size());
  values_.push_back({std::move(type), parameter, parameter >= 0 ? 0 : scopes_.back()});
  return Value(this, id);
}

Value Builder::Parameter(const Shape& shape, bool may_donate, std::optional<int> alias_output) {
  Value v = NewValue(shape, static_cast<int32_t>(parameters_.size()));
  parameters_.push_back({v.id_, may_donate, alias_output});
  return v;
}

void Builder::SetLocation(Location loc) {
  location_ = -1;
  if (loc.file.empty()) return;
  std::string text;
  if (!loc.op.empty()) {
    AppendQuoted(text, loc.op);
    text += '(';
  }
  AppendQuoted(text, loc.file);
  text += ':';
  AppendInt(text, loc.line);
  text += ":0";
  if (!loc.op.empty()) text += ')';
  auto [it, is_new] =
      location_numbers_.try_emplace(text, static_cast<int>(location_numbers_.size()));
  location_ = it->second;
  if (!is_new) return;
  location_table_ += "#loc";
  AppendInt(location_table_, location_);
  location_table_ += " = loc(";
  location_table_ += text;
  location_table_ += ")\n";
}

void Builder::AppendLocation() {
  if (location_ < 0) return;
  text_ += " loc(#loc";
  AppendInt(text_, location_);
  text_ += ')';
}

void Builder::AppendName(int32_t id) {
  int32_t parameter = values_[static_cast<size_t>(id)].parameter;
  text_ += parameter >= 0 ? "%arg" : "%";
  AppendInt(text_, parameter >= 0 ? parameter : id);
}

void Builder::CheckUsable(std::string_view op, const Value& v) const {
  HLO_CHECK(v.builder_ == this, op,
            v.valid() ? "an operand belongs to another builder" : "an operand is not a value");
  int32_t scope = values_[static_cast<size_t>(v.id_)].scope;
  if (scope == 0) return;
  // Innermost first: that is where most operands come from.
  for (auto it = scopes_.rbegin(); it != scopes_.rend(); ++it) {
    if (*it == scope) return;
  }
  XLA_CHECK(false, kInternal, "[stablehlo.", op,
            "] an operand was built inside a region that has ended");
}

void Builder::AppendOperation(std::string_view op) {
  text_ += op.find('.') == op.npos ? "\"stablehlo." : "\"";
  text_ += op;
  text_ += '"';
}

void Builder::AppendOperands(std::string_view op, std::span<const Value> operands) {
  text_ += '(';
  for (size_t i = 0; i < operands.size(); ++i) {
    CheckUsable(op, operands[i]);
    if (i != 0) text_ += ", ";
    AppendName(operands[i].id_);
  }
  text_ += ')';
}

namespace {

void AppendTypes(std::string& out, std::span<const Type> types) {
  out += '(';
  for (size_t i = 0; i < types.size(); ++i) {
    if (i != 0) out += ", ";
    AppendType(out, types[i]);
  }
  out += ')';
}

// The operands' types, without building a vector.
void AppendTypes(std::string& out, const Builder& builder, std::span<const Value> values) {
  out += '(';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out += ", ";
    AppendType(out, builder.type(values[i]));
  }
  out += ')';
}

}  // namespace

Value Builder::Emit(std::string_view op, std::span<const Value> operands,
                    std::string_view properties, const Shape& result) {
  size_t begin = text_.size();
  try {
    Value out = NewValue(result);
    text_ += "  ";
    AppendName(out.id_);
    text_ += " = ";
    AppendOperation(op);
    AppendOperands(op, operands);
    if (!properties.empty()) {
      text_ += " <{";
      text_ += properties;
      text_ += "}>";
    }
    text_ += " : ";
    AppendTypes(text_, *this, operands);
    text_ += " -> ";
    AppendType(text_, result);
    AppendLocation();
    text_ += '\n';
    ++num_operations_;
    return out;
  } catch (...) {
    text_.resize(begin);
    throw;
  }
}

Value Builder::Emit(std::string_view op, std::initializer_list<Value> operands,
                    std::string_view properties, const Shape& result) {
  return Emit(op, std::span<const Value>(operands.begin(), operands.size()), properties, result);
}

std::vector<Value> Builder::Emit(std::string_view op, std::span<const Value> operands,
                                 std::string_view properties, std::span<const Region> regions,
                                 std::span<const Type> results) {
  for (const Value& v : operands) CheckUsable(op, v);
  std::vector<Value> out;
  out.reserve(results.size());
  text_ += "  ";
  for (const Type& type : results) {
    out.push_back(NewValue(type));
    if (out.size() > 1) text_ += ", ";
    AppendName(out.back().id_);
  }
  if (!results.empty()) text_ += " = ";
  AppendOperation(op);
  AppendOperands(op, operands);
  if (!properties.empty()) {
    text_ += " <{";
    text_ += properties;
    text_ += "}>";
  }
  if (!regions.empty()) {
    text_ += " (";
    for (size_t i = 0; i < regions.size(); ++i) {
      if (i != 0) text_ += ", ";
      text_ += "{\n";
      text_ += regions[i].text;
      text_ += "  }";
    }
    text_ += ')';
  }
  text_ += " : ";
  AppendTypes(text_, *this, operands);
  text_ += " -> ";
  AppendTypes(text_, results);
  AppendLocation();
  text_ += '\n';
  ++num_operations_;
  return out;
}

Region Builder::BuildRegion(std::string_view op, std::span<const Type> arguments,
                            const Body& body) {
  std::string outer;
  outer.swap(text_);
  scopes_.push_back(next_scope_++);
  int location = location_;
  // Whatever happens inside, the outer function goes on where it was.
  auto restore = [&](std::string*) {
    text_.swap(outer);
    scopes_.pop_back();
    location_ = location;
  };
  std::unique_ptr<std::string, decltype(restore)> guard(&outer, restore);

  Region region;
  std::vector<Value> values;
  values.reserve(arguments.size());
  if (!arguments.empty()) text_ += "  ^bb0(";
  for (const Type& type : arguments) {
    if (!values.empty()) text_ += ", ";
    values.push_back(NewValue(type));
    AppendName(values.back().id_);
    text_ += ": ";
    AppendType(text_, type);
  }
  if (!arguments.empty()) text_ += "):\n";
  std::vector<Value> results = body(*this, values);
  for (const Value& v : results) CheckUsable(op, v);
  region.results = TypesOf(results);
  text_ += "  \"stablehlo.return\"";
  AppendOperands(op, results);
  text_ += " : ";
  AppendTypes(text_, region.results);
  text_ += " -> ()";
  AppendLocation();
  text_ += '\n';
  region.text = std::move(text_);
  text_.clear();
  return region;
}

Value Builder::EmitConstant(const Shape& shape, std::string_view literal) {
  std::string properties;
  properties.reserve(literal.size() + 32);
  properties += "value = dense<";
  properties += literal;
  properties += "> : ";
  AppendType(properties, shape);
  // Not inside regions: the bodies of reductions may not use what is outside. And not where the
  // text does not tell the type.
  bool shared = shape.rank() == 0 && scopes_.size() == 1 && Stored(shape.dtype) == shape.dtype;
  if (shared) {
    auto it = scalars_.find(properties);
    if (it != scalars_.end()) return Value(this, it->second);
  }
  Value out = Emit("constant", std::span<const Value>{}, properties, shape);
  if (shared) scalars_.emplace(std::move(properties), out.id_);
  return out;
}

std::string Builder::AddModule(std::string_view module) {
  auto [it, is_new] = modules_.try_emplace(std::string(module));
  if (is_new) {
    it->second = StrCat('u', modules_.size() - 1, '_');
    Embedded embedded = Embed(module, it->second);
    aliases_ += embedded.aliases;
    functions_ += embedded.functions;
  }
  return it->second;
}

std::string Builder::Finish(std::initializer_list<Value> outputs) {
  return Finish(std::span<const Value>(outputs.begin(), outputs.size()));
}

std::string Builder::Finish(std::span<const Value> outputs) {
  XLA_CHECK(scopes_.size() == 1, kInternal, "[hlo] Finish inside a region");
  for (const Value& v : outputs) CheckUsable("return", v);
  std::string body;
  body.swap(text_);  // so that the helpers write the head and the tail
  text_.reserve(body.size() + location_table_.size() + 256 + 64 * parameters_.size());
  text_ += location_table_;
  text_ += aliases_;
  text_ += "module @";
  AppendQuoted(text_, name_);
  text_ += " {\nfunc.func public @main(";
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterInfo& p = parameters_[i];
    if (i != 0) text_ += ", ";
    AppendName(p.id);
    text_ += ": ";
    AppendType(text_, values_[static_cast<size_t>(p.id)].type);
    // An alias to one output says more than "may be donated", and both at once are refused.
    if (p.alias_output) {
      text_ += " {tf.aliasing_output = ";
      AppendInt(text_, *p.alias_output);
      text_ += " : i32}";
    } else if (p.may_donate) {
      text_ += " {jax.buffer_donor = true}";
    }
  }
  text_ += ") -> ";
  AppendTypes(text_, *this, outputs);
  text_ += " {\n";
  text_ += body;
  text_ += "  \"func.return\"";
  AppendOperands("return", outputs);
  text_ += " : ";
  AppendTypes(text_, *this, outputs);
  text_ += " -> ()\n}\n";
  text_ += functions_;
  text_ += "}\n";
  std::string module = std::move(text_);
  text_ = std::move(body);
  return module;
}

}  // namespace torch_xla::hlo
