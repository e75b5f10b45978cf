// The recorded graph: one node class, described by data.
//
// A node is one block from the pool: header, operands, further output shapes, attribute words. Its
// hash covers what the node is by itself (operator, attributes, output shapes); how nodes are
// connected is hashed when a graph is collected (graph.h), since a hash over operand hashes cannot
// tell (x - y) * (x - y) from (x - y) * (y - x) for leaves of one shape.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/metrics.h"
#include "base/ref.h"
#include "base/shape.h"
#include "hlo/builder.h"
#include "ir/recorder.h"

namespace torch_xla::ir {

class Node;

// One output of a node.
struct Value {
  Ref<Node> node;
  uint32_t index = 0;

  explicit operator bool() const { return static_cast<bool>(node); }
  inline const Shape& shape() const;
};

// Lowers one node: `operands` are the values of its operands in order; appends one value per
// output to `outputs`.
using LowerFn = void (*)(const Node& node, hlo::Builder& builder,
                         std::span<const hlo::Value> operands, std::vector<hlo::Value>& outputs);

enum class OpKind : uint8_t {
  kOp,
  kData,    // leaf: a buffer on the device
  kScalar,  // leaf: a host number, an input of the compiled program
};

// What an operator is; one static object per operator.
class OpDef {
 public:
  OpDef(const char* name, LowerFn lower, OpKind kind = OpKind::kOp);

  const char* name() const { return name_; }  // "aten::add.Tensor"
  LowerFn lower() const { return lower_; }
  OpKind kind() const { return kind_; }
  uint64_t id() const { return id_; }  // hash of the name: the same in every process
  void CountRecorded() const { recorded_->Add(); }

 private:
  const char* name_;
  LowerFn lower_;
  OpKind kind_;
  uint64_t id_;
  metrics::Counter* recorded_;  // "xla::add"
};

// What a kData leaf refers to; the lazy layer's business.
class Payload : public RefCounted {};

// Where in the user's program a node was recorded.
struct SourceLine {
  std::string file;
  int line = 0;
};

class Node {
 public:
  // Takes over the references in `operands`. `words` are the attributes.
  static Ref<Node> Make(const OpDef& op, std::span<Value> operands, std::span<const Shape> shapes,
                        std::span<const int64_t> words);
  static Ref<Node> Make(const OpDef& op, std::span<Value> operands, const Shape& shape,
                        std::span<const int64_t> words = {}) {
    return Make(op, operands, std::span<const Shape>(&shape, 1), words);
  }
  static Ref<Node> MakeData(const Shape& shape, Ref<Payload> payload);
  // A 0-d input with the given bits: one 64-bit lane for real types, two for complex ones. Floats
  // are kept as the bits of a double, integers and bool as int64.
  static Ref<Node> MakeScalar(DType dtype, int64_t lane0, int64_t lane1 = 0);

  const OpDef& op() const { return *op_.load(std::memory_order_acquire); }
  OpKind kind() const { return op().kind(); }
  bool is_leaf() const { return kind() != OpKind::kOp; }
  size_t num_operands() const { return num_operands_; }
  const Value& operand(size_t i) const { return operands()[i]; }
  std::span<const Value> operands() const {
    return {reinterpret_cast<const Value*>(this + 1), num_operands_};
  }
  size_t num_outputs() const { return num_outputs_; }
  const Shape& shape(size_t i = 0) const { return i == 0 ? shape_ : more_shapes()[i - 1]; }
  // Attributes in the operator's own encoding; for a kScalar leaf its lanes.
  std::span<const int64_t> words() const { return {words_begin(), num_words_}; }
  const Hash& hash() const { return hash_; }
  Payload* payload() const { return payload_.get(); }
  const SourceLine* line() const { return line_; }
  // Whose step it is part of; kNobody for leaves.
  RecorderId recorder() const { return recorder_; }
  uint32_t use_count() const { return refs_.load(std::memory_order_acquire); }

  // Turns a single-output node into a kData leaf, letting go of its operands: whoever refers to it
  // now reads the computed buffer. The caller holds the lock of the device's graph.
  void BecomeData(Ref<Payload> payload);

  void Retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Release() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) Destroy(this);
  }

  // Scratch of the graph traversal, under the lock of the device's graph.
  struct Mark {
    uint64_t epoch = 0;
    uint32_t ordinal = 0;
    uint32_t uses = 0;
  };
  Mark mark;

 private:
  Node() = default;
  ~Node() = default;
  static void Destroy(Node* node);
  void ComputeHash();
  void DropOperands(Node** dead);

  Value* operands_begin() { return reinterpret_cast<Value*>(this + 1); }
  Shape* more_shapes() { return reinterpret_cast<Shape*>(operands_begin() + operand_slots_); }
  const Shape* more_shapes() const { return const_cast<Node*>(this)->more_shapes(); }
  int64_t* words_begin() { return reinterpret_cast<int64_t*>(more_shapes() + num_outputs_ - 1); }
  const int64_t* words_begin() const { return const_cast<Node*>(this)->words_begin(); }
  size_t bytes() const;

  std::atomic<uint32_t> refs_{1};
  uint16_t num_operands_ = 0;
  uint16_t operand_slots_ = 0;  // as allocated; BecomeData leaves them empty
  uint16_t num_outputs_ = 1;
  RecorderId recorder_ = kNobody;
  uint32_t num_words_ = 0;
  std::atomic<const OpDef*> op_{nullptr};  // BecomeData: after the payload, for other threads
  Hash hash_;
  Ref<Payload> payload_;
  const SourceLine* line_ = nullptr;  // interned, lives for ever
  Node* next_dead_ = nullptr;
  Shape shape_;
};

inline const Shape& Value::shape() const { return node->shape(index); }

// Returns an interned line or null. The bindings register one that asks Python; it is called for
// each new node when `every_node` is set (XLA_IR_DEBUG=1), else by CurrentLine alone.
using LineSource = const SourceLine* (*)();
void SetLineSource(LineSource source, bool every_node);
// Where the calling thread is in the user's program; null without a source.
const SourceLine* CurrentLine();

}  // namespace torch_xla::ir
