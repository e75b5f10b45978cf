// What loops over time steps keep: a buffer [t, b, n] at a step, and with the step replaced.
#pragma once

#include <vector>

#include "ops/lowering.h"

namespace torch_xla::ops {

inline std::vector<Value> StartsAt(Value step) {
  Value zero = FullLike(step, 0);
  return {step, zero, zero};
}
inline Value RowAt(Value buffer, Value step) {
  Dims sizes = buffer.dims();
  sizes[0] = 1;
  Value row = hlo::DynamicSlice(buffer, StartsAt(step), sizes);
  return hlo::Reshape(row, {sizes[1], sizes[2]});
}
inline Value PutRow(Value buffer, Value step, Value row) {
  Dims sizes = buffer.dims();
  sizes[0] = 1;
  return hlo::DynamicUpdateSlice(buffer, hlo::Reshape(row, sizes), StartsAt(step));
}

}  // namespace torch_xla::ops
