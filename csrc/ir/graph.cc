#include "ir/graph.h"

#include <atomic>

#include "base/error.h"
#include "hlo/cast.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"

namespace torch_xla::ir {
namespace {

std::atomic<uint64_t> next_epoch{1};
std::atomic<PrecisionSource> precision_source{nullptr};

// Reads lane `lane` of the packed s64 parameter as a 0-d value of the scalar's type.
hlo::Value Unpack(hlo::Value packed, int64_t lane, DType dtype) {
  auto read = [&](int64_t i) {
    return hlo::Reshape(hlo::Slice(packed, {i}, {i + 1}, {1}), Dims{});
  };
  if (IsComplex(dtype)) {
    DType real = RealPart(dtype);
    auto part = [&](int64_t i) {
      return hlo::Convert(hlo::BitcastConvert(read(i), DType::kF64), real);
    };
    return hlo::Complex(part(lane), part(lane + 1));
  }
  hlo::Value bits = read(lane);
  if (IsFloat(dtype)) return hlo::Convert(hlo::BitcastConvert(bits, DType::kF64), dtype);
  if (dtype == DType::kBool) {
    return hlo::Ne(bits, hlo::ScalarInt(bits.builder(), DType::kS64, 0));
  }
  return hlo::Convert(bits, dtype);
}

}  // namespace

void SetPrecisionSource(PrecisionSource source) { precision_source.store(source); }

size_t Graph::num_lanes() const {
  size_t n = 0;
  for (const Node* s : scalars) n += s->words().size();
  return n;
}

Graph Collect(std::vector<Value> roots) {
  Graph g;
  g.epoch = next_epoch.fetch_add(1);
  g.roots = std::move(roots);
  if (PrecisionSource source = precision_source.load()) g.precision = source();
  Hasher hash;
  hash.Add(static_cast<uint64_t>(g.precision));
  struct Frame {
    Node* node;
    size_t next;
  };
  std::vector<Frame> stack;
  auto visit = [&](Node* node) {
    if (node->mark.epoch == g.epoch) return;
    node->mark = {g.epoch, UINT32_MAX, 0};
    stack.push_back({node, 0});
    while (!stack.empty()) {
      Frame& f = stack.back();
      Node* n = f.node;
      if (f.next < n->num_operands()) {
        Node* child = n->operand(f.next++).node.get();
        if (child->mark.epoch != g.epoch) {
          child->mark = {g.epoch, UINT32_MAX, 0};
          stack.push_back({child, 0});
        }
        continue;
      }
      stack.pop_back();
      n->mark.ordinal = static_cast<uint32_t>(g.nodes.size());
      g.nodes.push_back(n);
      hash.Add(n->hash());
      for (const Value& v : n->operands()) {
        ++v.node->mark.uses;
        hash.Add(static_cast<uint64_t>(v.node->mark.ordinal) << 32 | v.index);
      }
      if (n->kind() == OpKind::kData) g.data.push_back(n);
      if (n->kind() == OpKind::kScalar) g.scalars.push_back(n);
    }
  };
  for (const Value& root : g.roots) {
    visit(root.node.get());
    hash.Add(static_cast<uint64_t>(root.node->mark.ordinal) << 32 | root.index);
  }
  g.hash = hash.Finish();
  return g;
}

Lowered Lower(const Graph& g, std::span<const Donor> donors) {
  Lowered out;
  hlo::Builder b("graph_" + ToString(g.hash).substr(0, 12), g.precision);
  std::vector<std::vector<hlo::Value>> values(g.nodes.size());
  if (!g.scalars.empty()) {
    out.has_packed_scalars = true;
    auto lanes = static_cast<int64_t>(g.num_lanes());
    hlo::Value packed = b.Parameter({DType::kS64, {lanes}});
    int64_t lane = 0;
    for (const Node* s : g.scalars) {
      values[s->mark.ordinal] = {Unpack(packed, lane, s->shape().dtype)};
      lane += static_cast<int64_t>(s->words().size());
    }
  }
  for (size_t i = 0; i < g.data.size(); ++i) {
    const Node* d = g.data[i];
    Donor donor = donors.empty() ? Donor{} : donors[i];
    values[d->mark.ordinal] = {b.Parameter(d->shape(), donor.any, donor.output)};
    out.parameters.push_back(d->shape());
  }
  std::vector<hlo::Value> operands;
  for (const Node* n : g.nodes) {
    if (n->is_leaf()) continue;
    operands.clear();
    for (const Value& v : n->operands()) operands.push_back(values[v.node->mark.ordinal][v.index]);
    hlo::Location loc{n->op().name(), {}, 0};
    if (n->line() != nullptr) {
      loc.file = n->line()->file;
      loc.line = n->line()->line;
    }
    b.SetLocation(std::move(loc));
    std::vector<hlo::Value>& results = values[n->mark.ordinal];
    n->op().lower()(*n, b, operands, results);
    XLA_INTERNAL_CHECK(results.size() == n->num_outputs(), n->op().name(), " lowered to ",
                       results.size(), " values instead of ", n->num_outputs());
    for (size_t i = 0; i < results.size(); ++i) {
      // The lowering computes with f32 parts.
      bool halves = n->shape(i).dtype == DType::kC32 && results[i].valid();
      if (halves) results[i] = hlo::RoundToHalves(results[i]);
      // An invalid value stands for an output that nobody can ask for.
      XLA_INTERNAL_CHECK(!results[i].valid() || results[i].shape() == n->shape(i), n->op().name(),
                         " output ", i, " lowered to ",
                         results[i].valid() ? ToString(results[i].shape()) : "", " instead of ",
                         ToString(n->shape(i)));
    }
  }
  std::vector<hlo::Value> results;
  for (const Value& root : g.roots) {
    results.push_back(values[root.node->mark.ordinal][root.index]);
    out.results.push_back(root.shape());
  }
  out.module = b.Finish(results);
  return out;
}

std::string Dump(const Graph& g) {
  std::string out;
  for (const Node* n : g.nodes) {
    out += "%" + std::to_string(n->mark.ordinal) + " =";
    for (size_t i = 0; i < n->num_outputs(); ++i) out += " " + ToString(n->shape(i));
    out += std::string(" ") + n->op().name() + "(";
    for (size_t i = 0; i < n->num_operands(); ++i) {
      const Value& v = n->operand(i);
      out += (i == 0 ? "%" : ", %") + std::to_string(v.node->mark.ordinal);
      if (v.node->num_outputs() > 1) out += "#" + std::to_string(v.index);
    }
    out += ")";
    if (n->kind() == OpKind::kOp && !n->words().empty()) out += " attrs=" + ToString(n->words());
    if (n->line() != nullptr)
      out += " # " + n->line()->file + ":" + std::to_string(n->line()->line);
    out += "\n";
  }
  out += "return";
  for (size_t i = 0; i < g.roots.size(); ++i) {
    const Value& v = g.roots[i];
    out += (i == 0 ? " %" : ", %") + std::to_string(v.node->mark.ordinal);
    if (v.node->num_outputs() > 1) out += "#" + std::to_string(v.index);
  }
  return out + "\n";
}

}  // namespace torch_xla::ir
