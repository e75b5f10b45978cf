// Operations that move elements: broadcast, reshape, slice, pad, gather, scatter.
// Dimension numbers are not negative; only Value::dim counts from the end.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// x[d0, ...] -> out_dims, where x's dimension i becomes out's broadcast_dimensions[i] and has its
// size or 1.
Value BroadcastInDim(Value x, const Dims& out_dims, const Dims& broadcast_dimensions);
// As numpy: aligned on the right, 1 stretches. x itself when the dimensions are equal.
Value BroadcastTo(Value x, const Dims& dims);
// x itself when the dimensions are equal.
Value Reshape(Value x, const Dims& dims);
// out[..., i] has the size of x[..., perm[i]]; x itself when perm is the identity.
Value Transpose(Value x, const Dims& perm);

// x[start:limit:strides]; 0 <= start <= limit <= size, strides > 0.
Value Slice(Value x, const Dims& start, const Dims& limit, const Dims& strides);
// The same in one dimension.
Value SliceDim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
Value Concatenate(std::span<const Value> xs, int64_t dim);
Value Concatenate(std::initializer_list<Value> xs, int64_t dim);
// x[n] -> [low + n + max(n - 1, 0) * interior + high]; negative low and high cut off.
Value Pad(Value x, Value value, const Dims& low, const Dims& high, const Dims& interior);
Value Reverse(Value x, const Dims& dims);

// x[starts : starts + sizes], one integer scalar per dimension, clamped so that the slice fits.
Value DynamicSlice(Value x, std::span<const Value> starts, const Dims& sizes);
Value DynamicUpdateSlice(Value x, Value update, std::span<const Value> starts);

struct GatherDims {
  Dims offset_dims;
  Dims collapsed_slice_dims;
  Dims operand_batching_dims;
  Dims start_indices_batching_dims;
  Dims start_index_map;
  int64_t index_vector_dim = 0;
};
// Gather: operand[...], indices[batch..., index_vector] -> out[batch... and slice... mixed], where
// offset_dims say which dimensions of out belong to the slice. Indices are clamped.
Value Gather(Value operand, Value indices, const GatherDims& dims, const Dims& slice_sizes,
             bool indices_sorted = false);

struct ScatterDims {
  Dims update_window_dims;
  Dims inserted_window_dims;
  Dims input_batching_dims;
  Dims scatter_indices_batching_dims;
  Dims scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
};
// Scatter: inputs[...], indices[batch..., index_vector], updates[batch... and window... mixed] ->
// inputs' shapes. `combine` gets (old of each input, update of each) and returns the new values.
// Updates out of bounds are skipped.
std::vector<Value> Scatter(std::span<const Value> inputs, Value indices,
                           std::span<const Value> updates, const ScatterDims& dims,
                           const Body& combine, bool sorted = false, bool unique = false);
Value Scatter(Value input, Value indices, Value update, const ScatterDims& dims,
              const Body& combine, bool sorted = false, bool unique = false);

}  // namespace torch_xla::hlo
