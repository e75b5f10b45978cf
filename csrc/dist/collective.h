// What a collective is: the same words in the recorded node, in the compiled program and on the
// communication thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shape.h"
#include "dist/reduce.h"

namespace torch_xla::dist {

enum class Kind : int64_t {
  kAllReduce,      // x -> op over the group of x
  kAllGather,      // x -> [n, x...]
  kReduceScatter,  // [n, x...] -> op over the group of x[rank]
  kAllToAll,       // [n, x...] -> [n, x...], row i is row `rank` of member i
  kPermute,        // x -> x of the source, or zeros
  kBroadcast,      // x -> x of the root
};

const char* KindName(Kind kind);

using Ranks = std::vector<int64_t>;

// One result of a collective. Ranks count in the whole program.
struct Part {
  Kind kind = Kind::kAllReduce;
  Reduce reduce = Reduce::kSum;
  DType dtype = DType::kF32;
  int64_t root = 0;
  int64_t num_tensors = 1;                              // laid one behind the other
  int64_t count = 0;                                    // elements that each replica gives
  std::vector<Ranks> groups;                            // who takes part together; empty: all
  std::vector<std::pair<int64_t, int64_t>> pairs = {};  // of kPermute: source, target

  // The group of a rank; all of `scope` where there are no groups.
  const Ranks& GroupOf(int64_t rank, const Ranks& scope) const;
  int64_t result_count(int64_t group_size) const {
    if (kind == Kind::kAllGather) return count * group_size;
    if (kind == Kind::kReduceScatter) return count / group_size;
    return count;
  }
};

// Several parts that start together. `scope` are the ranks that all record it, in order; empty:
// every replica.
struct Collective {
  int64_t fingerprint = 0;  // of its description
  Ranks scope;
  std::vector<Part> parts;

  std::vector<int64_t> Encode() const;
  static Collective Decode(std::span<const int64_t> words);
};

// "all_reduce(sum, f32[4,2], groups=[[0, 1], [2, 3]])". `shapes`: of all tensors of all parts.
std::string Describe(const Collective& c, std::span<const Shape> shapes);

}  // namespace torch_xla::dist
