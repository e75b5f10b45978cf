#include "ir/node.h"

#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/pool.h"

namespace torch_xla::ir {
namespace {

constexpr size_t kMaxOperands = UINT16_MAX;

std::atomic<LineSource> line_source{nullptr};
std::atomic<LineSource> node_line_source{nullptr};

const OpDef& DataOp() {
  static const OpDef op("xla::device_data", nullptr, OpKind::kData);
  return op;
}

const OpDef& ScalarOp() {
  static const OpDef op("xla::scalar", nullptr, OpKind::kScalar);
  return op;
}

uint64_t HashName(std::string_view name) {
  Hasher h;
  h.AddBytes(name);
  return h.Finish().lo;
}

// "aten::add.Tensor" counts as "xla::add".
std::string CounterName(std::string_view name) {
  auto colon = name.rfind("::");
  if (colon != std::string_view::npos) name.remove_prefix(colon + 2);
  return "xla::" + std::string(name.substr(0, name.find('.')));
}

}  // namespace

void SetLineSource(LineSource source, bool every_node) {
  line_source.store(source);
  node_line_source.store(every_node ? source : nullptr);
}

const SourceLine* CurrentLine() {
  LineSource source = line_source.load();
  return source != nullptr ? source() : nullptr;
}

OpDef::OpDef(const char* name, LowerFn lower, OpKind kind)
    : name_(name),
      lower_(lower),
      kind_(kind),
      id_(HashName(name)),
      recorded_(metrics::GetCounter(CounterName(name))) {}

size_t Node::bytes() const {
  return sizeof(Node) + operand_slots_ * sizeof(Value) + (num_outputs_ - 1) * sizeof(Shape) +
         num_words_ * sizeof(int64_t);
}

Ref<Node> Node::Make(const OpDef& op, std::span<Value> operands, std::span<const Shape> shapes,
                     std::span<const int64_t> words) {
  XLA_CHECK(operands.size() <= kMaxOperands && shapes.size() <= kMaxOperands, kUnimplemented, "[",
            op.name(), "] more than ", kMaxOperands, " operands or results");
  XLA_INTERNAL_CHECK(!shapes.empty());
  size_t bytes = sizeof(Node) + operands.size() * sizeof(Value) +
                 (shapes.size() - 1) * sizeof(Shape) + words.size() * sizeof(int64_t);
  Node* n = new (pool::Allocate(bytes)) Node;
  n->num_operands_ = n->operand_slots_ = static_cast<uint16_t>(operands.size());
  n->num_outputs_ = static_cast<uint16_t>(shapes.size());
  n->num_words_ = static_cast<uint32_t>(words.size());
  n->op_.store(&op, std::memory_order_relaxed);  // nobody else sees the node yet
  n->shape_ = shapes[0];
  Value* slot = n->operands_begin();
  for (Value& v : operands) new (slot++) Value(std::move(v));
  Shape* shape = n->more_shapes();
  for (size_t i = 1; i < shapes.size(); ++i) new (shape++) Shape(shapes[i]);
  if (!words.empty()) std::memcpy(n->words_begin(), words.data(), words.size_bytes());
  n->ComputeHash();
  if (op.kind() == OpKind::kOp) {
    n->recorder_ = ThisRecorder();
    if (n->recorder_ == kNobody) [[unlikely]] {
      for (const Value& v : n->operands()) {
        if (n->recorder_ == kNobody) n->recorder_ = v.node->recorder_;
      }
    }
    if (LineSource source = node_line_source.load(std::memory_order_relaxed)) n->line_ = source();
  }
  return Ref<Node>::Adopt(n);
}

Ref<Node> Node::MakeData(const Shape& shape, Ref<Payload> payload) {
  Ref<Node> n = Make(DataOp(), {}, shape);
  n->payload_ = std::move(payload);
  return n;
}

Ref<Node> Node::MakeScalar(DType dtype, int64_t lane0, int64_t lane1) {
  int64_t lanes[] = {lane0, lane1};
  return Make(ScalarOp(), {}, Shape{dtype, {}},
              std::span<const int64_t>(lanes, IsComplex(dtype) ? 2 : 1));
}

void Node::ComputeHash() {
  Hasher h;
  h.Add(op().id());
  h.Add(num_outputs_);
  for (size_t i = 0; i < num_outputs_; ++i) {
    const Shape& s = shape(i);
    h.Add(static_cast<uint64_t>(s.dtype) << 32 | s.dims.size());
    for (int64_t d : s.dims) h.Add(static_cast<uint64_t>(d));
  }
  // A scalar's lanes are its value: an input, not part of the program.
  if (kind() == OpKind::kOp) {
    h.Add(num_words_);
    for (int64_t w : words()) h.Add(static_cast<uint64_t>(w));
  }
  hash_ = h.Finish();
}

void Node::DropOperands(Node** dead) {
  for (Value* v = operands_begin(); v != operands_begin() + num_operands_; ++v) {
    Node* n = v->node.Detach();
    v->~Value();
    if (n != nullptr && n->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      n->next_dead_ = *dead;
      *dead = n;
    }
  }
  num_operands_ = 0;
}

// Without recursion: a graph may be a chain of 100,000 nodes.
void Node::Destroy(Node* node) {
  node->next_dead_ = nullptr;
  while (node != nullptr) {
    Node* n = node;
    node = n->next_dead_;
    n->DropOperands(&node);
    for (size_t i = 1; i < n->num_outputs_; ++i) n->more_shapes()[i - 1].~Shape();
    size_t bytes = n->bytes();
    n->~Node();
    pool::Free(n, bytes);
  }
}

void Node::BecomeData(Ref<Payload> payload) {
  XLA_INTERNAL_CHECK(num_outputs_ == 1 && kind() == OpKind::kOp);
  Node* dead = nullptr;
  DropOperands(&dead);
  payload_ = std::move(payload);
  op_.store(&DataOp(), std::memory_order_release);
  ComputeHash();
  while (dead != nullptr) {
    Node* n = dead;
    dead = n->next_dead_;
    Destroy(n);
  }
}

}  // namespace torch_xla::ir
