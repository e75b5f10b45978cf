// A loop over elements that need different numbers of rounds.
#pragma once

#include <utility>
#include <vector>

#include "hlo/control.h"
#include "hlo/reduce.h"
#include "ops/common.h"

namespace torch_xla::ops {

// What a round makes of each element: whether it is finished, and its next state.
struct Round {
  Value finished;
  std::vector<Value> state;
};

// Rounds number `first` and on while an element is `open`; each keeps the state of its last one.
// The limit is far beyond what any arguments need, and ends the loop for those that compare as
// nothing. round(number, state): the number is a 0-d uint32.
template <typename F>
std::vector<Value> RepeatWhereOpen(Value open, const std::vector<Value>& state, int first,
                                   F round) {
  constexpr int kLimit = 2000;
  std::vector<Value> inits{hlo::ScalarInt(open.builder(), DType::kU32, first), open};
  inits.insert(inits.end(), state.begin(), state.end());
  auto cond = [&](Builder&, std::span<const Value> v) {
    Value any = hlo::Reduce(v[1], Range(open.rank()), hlo::Reducer::kOr);
    return std::vector<Value>{hlo::And(any, hlo::Lt(v[0], FullLike(v[0], kLimit)))};
  };
  auto body = [&](Builder&, std::span<const Value> v) {
    Round r = round(v[0], std::vector<Value>(v.begin() + 2, v.end()));
    std::vector<Value> next{Plus(v[0], 1), hlo::And(v[1], hlo::Not(r.finished))};
    for (size_t i = 0; i < r.state.size(); ++i) {
      next.push_back(hlo::Select(v[1], r.state[i], v[i + 2]));
    }
    return next;
  };
  std::vector<Value> end = hlo::While(inits, cond, body);
  return {end.begin() + 2, end.end()};
}

}  // namespace torch_xla::ops
