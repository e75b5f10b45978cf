#include "ir/donation.h"

#include <algorithm>
#include <unordered_map>

namespace torch_xla::ir {
namespace {

// The leaf that a result is the update of, if it looks like one: in-place operators have what they
// write to as their first operand of the result's shape.
Node* Origin(const Value& root) {
  Node* n = root.node.get();
  while (n->kind() == OpKind::kOp) {
    auto ops = n->operands();
    auto same = std::find_if(ops.begin(), ops.end(),
                             [&](const Value& v) { return v.shape() == root.shape(); });
    if (same == ops.end()) return nullptr;
    n = same->node.get();
  }
  return n->kind() == OpKind::kData ? n : nullptr;
}

}  // namespace

std::vector<Donor> PlanDonation(const Graph& graph, const std::vector<bool>& updates) {
  std::unordered_map<const Node*, size_t> position;
  for (size_t i = 0; i < graph.data.size(); ++i) position[graph.data[i]] = i;
  std::vector<Donor> donors(graph.data.size());
  auto dies = [](const Node& n) { return n.use_count() == n.mark.uses; };
  // Updates first, so that no other result takes what is theirs.
  for (bool update : {true, false}) {
    for (size_t i = 0; i < graph.roots.size(); ++i) {
      if (updates[i] != update) continue;
      Node* leaf = Origin(graph.roots[i]);
      if (leaf == nullptr || !(update || dies(*leaf))) continue;
      Donor& donor = donors[position.at(leaf)];
      if (!donor.output) donor.output = static_cast<int>(i);
    }
  }
  for (size_t i = 0; i < donors.size(); ++i) {
    donors[i].any = !donors[i].output && dies(*graph.data[i]);
  }
  return donors;
}

Flow::Flow(const Graph& graph) {
  for (const Node* n : graph.nodes) {
    begin_.push_back(static_cast<uint32_t>(from_.size()));
    for (const Value& v : n->operands()) from_.push_back(v.node->mark.ordinal);
  }
  begin_.push_back(static_cast<uint32_t>(from_.size()));
  for (const Node* n : graph.data) data_.push_back(n->mark.ordinal);
  for (const Value& v : graph.roots) roots_.push_back(v.node->mark.ordinal);
}

std::vector<bool> Flow::Reached(const std::vector<bool>& failed) const {
  std::vector<bool> reached(begin_.size());
  for (size_t i = 0; i < data_.size(); ++i) reached[data_[i]] = failed[i];
  for (size_t n = 0; n + 1 < begin_.size(); ++n) {
    for (uint32_t e = begin_[n]; e < begin_[n + 1]; ++e) {
      if (reached[from_[e]]) reached[n] = true;
    }
  }
  std::vector<bool> out;
  for (uint32_t root : roots_) out.push_back(reached[root]);
  return out;
}

std::string Summary(const Graph& graph) {
  constexpr size_t kNamed = 6;
  std::vector<const char*> names;
  size_t operators = 0;
  for (const Node* n : graph.nodes) {
    if (n->is_leaf()) continue;
    ++operators;
    const char* name = n->op().name();
    if (names.size() <= kNamed && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  std::string out = std::to_string(operators) + (operators == 1 ? " operator (" : " operators (");
  for (size_t i = 0; i < names.size(); ++i) {
    out += i == 0 ? "" : ", ";
    out += i == kNamed ? "..." : names[i];
  }
  return out + ")";
}

}  // namespace torch_xla::ir
