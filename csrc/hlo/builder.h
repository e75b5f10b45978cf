// Builds the text of one StableHLO module, operation by operation.
//
// The constructors of the operations are free functions, one header per family (elementwise.h,
// constant.h, movement.h, reduce.h, dot.h, control.h); they infer the result types, check the
// constraints and append one line in MLIR's generic form, which old and new parsers read alike.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace torch_xla::hlo {

class Builder;

// With how much of its operands' mantissas a product is computed.
enum class Precision { kDefault, kHigh, kHighest };

// An SSA value of a builder: a tensor, or a token that orders side effects. Cheap to copy; valid
// as long as its builder lives.
class Value {
 public:
  Value() = default;
  bool valid() const { return builder_ != nullptr; }
  const Shape& shape() const;  // of a token: of no meaning
  DType dtype() const { return shape().dtype; }
  const Dims& dims() const { return shape().dims; }
  int64_t rank() const { return shape().rank(); }
  int64_t dim(int64_t i) const;  // negative i counts from the end
  bool is_token() const;
  Builder& builder() const;

 private:
  friend class Builder;
  Value(Builder* builder, int32_t id) : builder_(builder), id_(id) {}
  Builder* builder_ = nullptr;
  int32_t id_ = -1;
};

// Builds the operations of a region from its arguments and returns what the region returns.
using Body = std::function<std::vector<Value>(Builder&, std::span<const Value>)>;

// Where an operation comes from, e.g. {"aten::add", "train.py", 12}.
struct Location {
  std::string op;
  std::string file;
  int line = 0;
};

// The type of a value.
struct Type {
  Shape shape;
  bool token = false;
  Type(Shape s) : shape(std::move(s)) {}  // NOLINT: implicit on purpose
  static Type Token() {
    Type t{Shape{}};
    t.token = true;
    return t;
  }
  friend bool operator==(const Type&, const Type&) = default;
};
std::string TypeName(const Type& type);

// A finished region: its text and the types that it returns.
struct Region {
  std::string text;
  std::vector<Type> results;
};

class Builder {
 public:
  // `precision`: of the products that the user's program asks for.
  explicit Builder(std::string module_name = "graph", Precision precision = Precision::kHighest);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // The next parameter of @main. `may_donate` lets the compiler reuse its buffer for any output of
  // the same size, `alias_output` for exactly that output.
  Value Parameter(const Shape& shape, bool may_donate = false,
                  std::optional<int> alias_output = {});
  int64_t num_parameters() const { return static_cast<int64_t>(parameters_.size()); }

  // For the operations built from now on; without a file no location is printed.
  void SetLocation(Location loc);

  // The module's text. May be called again after more operations were added.
  std::string Finish(std::span<const Value> outputs);
  std::string Finish(std::initializer_list<Value> outputs);

  int64_t num_operations() const { return num_operations_; }
  Precision precision() const { return precision_; }

  // The functions of a user's module (embed.h) become part of this one, once: with which prefix.
  std::string AddModule(std::string_view module);

  // ---- For the families: operations are given by their name without "stablehlo." (those of other
  // dialects, which have a dot, by all of it), and their
  // properties as text without the braces ("dimension = 0 : i64").
  Value Emit(std::string_view op, std::span<const Value> operands, std::string_view properties,
             const Shape& result);
  Value Emit(std::string_view op, std::initializer_list<Value> operands,
             std::string_view properties, const Shape& result);
  std::vector<Value> Emit(std::string_view op, std::span<const Value> operands,
                          std::string_view properties, std::span<const Region> regions,
                          std::span<const Type> results);
  // Runs `body` with fresh arguments; what it builds goes to the region, not to the function.
  Region BuildRegion(std::string_view op, std::span<const Type> arguments, const Body& body);
  // A constant of the given literal text ("1.0", "[1, 2]"); scalars of @main are built once.
  Value EmitConstant(const Shape& shape, std::string_view literal);

  const Type& type(const Value& v) const { return values_[static_cast<size_t>(v.id_)].type; }

 private:
  struct ValueInfo {
    Type type;
    int32_t parameter;  // number of the parameter, or -1
    int32_t scope;      // the region that defines it, 0 is @main
  };
  struct ParameterInfo {
    int32_t id;
    bool may_donate;
    std::optional<int> alias_output;
  };

  Value NewValue(Type type, int32_t parameter = -1);
  void AppendName(int32_t id);
  void AppendOperation(std::string_view op);
  void AppendOperands(std::string_view op, std::span<const Value> operands);
  void AppendLocation();
  void CheckUsable(std::string_view op, const Value& v) const;

  std::string name_;
  Precision precision_;
  std::string text_;  // of the operations of the innermost open region
  std::deque<ValueInfo> values_;
  std::vector<ParameterInfo> parameters_;
  std::vector<int32_t> scopes_{0};  // open regions, outermost first
  int32_t next_scope_ = 1;
  int64_t num_operations_ = 0;
  std::unordered_map<std::string, int32_t> scalars_;
  std::unordered_map<std::string, std::string> modules_;  // of users: text to prefix
  std::string aliases_, functions_;                       // of these
  std::unordered_map<std::string, int> location_numbers_;
  std::string location_table_;
  int location_ = -1;  // number in the table, -1: none
};

}  // namespace torch_xla::hlo
