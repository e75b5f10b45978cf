// Collecting, hashing, lowering and printing the graph behind some values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "ir/node.h"

namespace torch_xla::ir {

struct Graph {
  std::vector<Node*> nodes;    // operands before users; kept alive by `roots`
  std::vector<Node*> data;     // kData leaves: parameters of the program, in this order
  std::vector<Node*> scalars;  // kScalar leaves: lanes of the packed parameter, in this order
  std::vector<Value> roots;    // results of the program
  hlo::Precision precision = hlo::Precision::kHighest;  // of its products
  uint64_t epoch = 0;  // nodes of this graph carry it in their mark
  Hash hash;           // of everything but the leaves' values

  size_t num_lanes() const;  // of the packed parameter
};

// Asked for each graph that is collected; without a source products have the highest precision.
using PrecisionSource = hlo::Precision (*)();
void SetPrecisionSource(PrecisionSource source);

// Depth first from the roots in their order, so equal programs give equal graphs. The caller holds
// the lock of the device's graph: marks are written into the nodes. Mark::uses counts how often a
// node is an operand within the graph.
Graph Collect(std::vector<Value> roots);

struct Lowered {
  std::string module;  // StableHLO text
  bool has_packed_scalars = false;
  std::vector<Shape> parameters;  // of the data leaves, after the packed one
  std::vector<Shape> results;
};

// What a data leaf's parameter may do with its memory when it dies with the launch.
struct Donor {
  std::optional<int> output;  // give it to this result
  bool any = false;           // or to whichever result the compiler finds
};

// Parameters: s64[num_lanes] when there are scalars, then the data leaves. Must follow Collect
// under the same lock. `donors`: per data leaf, or none.
Lowered Lower(const Graph& graph, std::span<const Donor> donors = {});

// One line per node: "%3 = f32[2,3] aten::add.Tensor(%0, %1, %2) attrs=[...]".
std::string Dump(const Graph& graph);

}  // namespace torch_xla::ir
