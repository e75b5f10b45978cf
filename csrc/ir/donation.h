// Which parameters of a program may give their memory to its results, and what depends on what.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace torch_xla::ir {

// Decided when a program is compiled; a launch takes back what lives on then, which costs a copy of
// it. So a leaf is a donor when it dies now, or when a result is its own update in place
// (`updates[i]`: root i is one).
std::vector<Donor> PlanDonation(const Graph& graph, const std::vector<bool>& updates);

// The edges of a graph without its nodes, kept with the compiled program: when an argument turns
// out to be a failed result, it says which results are lost.
class Flow {
 public:
  Flow() = default;
  explicit Flow(const Graph& graph);
  // `failed`: per data leaf; returns per root.
  std::vector<bool> Reached(const std::vector<bool>& failed) const;

 private:
  std::vector<uint32_t> begin_;  // of each node's operands in from_
  std::vector<uint32_t> from_;
  std::vector<uint32_t> data_;
  std::vector<uint32_t> roots_;
};

// The operators of a graph for messages: "3 operators (aten::mm, aten::add.Tensor, aten::relu)".
std::string Summary(const Graph& graph);

}  // namespace torch_xla::ir
