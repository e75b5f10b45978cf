// Gather and scatter (movement.h): the two operations with dimension numbers.
#include <algorithm>

#include "base/error.h"
#include "hlo/movement.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

namespace {

void AppendField(std::string& out, const char* name, const Dims& v) {
  if (v.empty()) return;  // the parser's default
  out += name;
  out += " = ";
  AppendList(out, v);
  out += ", ";
}

// What both operations share, under common names.
struct Numbers {
  const Dims& window_dims;  // offset_dims, update_window_dims
  const Dims& dropped;      // collapsed_slice_dims, inserted_window_dims
  const Dims& batching;     // operand_batching_dims, input_batching_dims
  const Dims& index_batching;
  const Dims& index_map;
  int64_t index_vector_dim;
};

void CheckNumbers(std::string_view op, const Shape& operand, Value indices, const Numbers& n,
                  int64_t result_rank) {
  HLO_CHECK(IsInt(indices.dtype()), op, "indices ", ToString(indices.shape()),
            " should be integers");
  int64_t rank = operand.rank();
  CheckDims(op, "dropped dimensions", n.dropped, rank);
  CheckDims(op, "batching dimensions", n.batching, rank);
  CheckDims(op, "index map", n.index_map, rank);
  CheckDims(op, "window dimensions", n.window_dims, result_rank);
  for (const Dims* dims : {&n.window_dims, &n.dropped, &n.batching}) {
    HLO_CHECK(std::is_sorted(dims->begin(), dims->end()), op, "dimensions ", ToString(*dims),
              " are not sorted");
  }
  for (int64_t d : n.batching) {
    HLO_CHECK(!Contains(n.dropped, d) && !Contains(n.index_map, d), op, "batching dimension ", d,
              " is used twice");
  }
  HLO_CHECK(n.index_vector_dim >= 0 && n.index_vector_dim <= indices.rank(), op,
            "index_vector_dim ", n.index_vector_dim, " is out of range for ",
            ToString(indices.shape()));
  CheckDims(op, "batching dimensions of the indices", n.index_batching, indices.rank());
  CheckCount(op, "batching dimensions of the indices", n.index_batching,
             static_cast<int64_t>(n.batching.size()));
  for (size_t i = 0; i < n.batching.size(); ++i) {
    auto of_operand = operand.dims[static_cast<size_t>(n.batching[i])];
    HLO_CHECK(
        n.index_batching[i] != n.index_vector_dim && of_operand == indices.dim(n.index_batching[i]),
        op, "batching dimensions of ", ToString(operand), " and ", ToString(indices.shape()),
        " differ");
  }
  int64_t vector = n.index_vector_dim < indices.rank() ? indices.dim(n.index_vector_dim) : 1;
  CheckCount(op, "index map", n.index_map, vector);
  CheckCount(op, "window dimensions", n.window_dims,
             rank - static_cast<int64_t>(n.dropped.size() + n.batching.size()));
}

// The indices' dimensions without the index vector.
Dims BatchDims(Value indices, int64_t index_vector_dim) {
  Dims batch = indices.dims();
  if (index_vector_dim < indices.rank()) batch.erase(static_cast<size_t>(index_vector_dim));
  return batch;
}

}  // namespace

Value Gather(Value operand, Value indices, const GatherDims& dims, const Dims& slice_sizes,
             bool indices_sorted) {
  constexpr std::string_view op = "gather";
  CheckTensors(op, {operand, indices});
  Dims batch;
  if (dims.index_vector_dim >= 0 && dims.index_vector_dim <= indices.rank()) {
    batch = BatchDims(indices, dims.index_vector_dim);
  }
  size_t rank = batch.size() + dims.offset_dims.size();
  CheckNumbers(op, operand.shape(), indices,
               {dims.offset_dims, dims.collapsed_slice_dims, dims.operand_batching_dims,
                dims.start_indices_batching_dims, dims.start_index_map, dims.index_vector_dim},
               static_cast<int64_t>(rank));
  CheckCount(op, "slice_sizes", slice_sizes, operand.rank());
  Dims window;
  for (size_t i = 0; i < slice_sizes.size(); ++i) {
    bool dropped = Contains(dims.collapsed_slice_dims, static_cast<int64_t>(i)) ||
                   Contains(dims.operand_batching_dims, static_cast<int64_t>(i));
    HLO_CHECK(slice_sizes[i] >= 0 && slice_sizes[i] <= operand.dims()[i] &&
                  (!dropped || slice_sizes[i] <= 1),
              op, "slice_sizes ", ToString(slice_sizes), " do not fit ", ToString(operand.shape()));
    if (!dropped) window.push_back(slice_sizes[i]);
  }
  Shape out{operand.dtype(), Dims(rank, 0)};
  size_t next_window = 0;
  size_t next_batch = 0;
  for (size_t i = 0; i < rank; ++i) {
    out.dims[i] = Contains(dims.offset_dims, static_cast<int64_t>(i)) ? window[next_window++]
                                                                      : batch[next_batch++];
  }
  std::string numbers = "#stablehlo.gather<";
  AppendField(numbers, "offset_dims", dims.offset_dims);
  AppendField(numbers, "collapsed_slice_dims", dims.collapsed_slice_dims);
  AppendField(numbers, "operand_batching_dims", dims.operand_batching_dims);
  AppendField(numbers, "start_indices_batching_dims", dims.start_indices_batching_dims);
  AppendField(numbers, "start_index_map", dims.start_index_map);
  numbers += "index_vector_dim = ";
  AppendInt(numbers, dims.index_vector_dim);
  numbers += '>';
  Props props;
  props.Raw("dimension_numbers", numbers)
      .Array("slice_sizes", slice_sizes)
      .Bool("indices_are_sorted", indices_sorted);
  return operand.builder().Emit(op, {operand, indices}, props, out);
}

Value Scatter(Value input, Value indices, Value update, const ScatterDims& dims,
              const Body& combine, bool sorted, bool unique) {
  return Scatter(std::span(&input, 1), indices, std::span(&update, 1), dims, combine, sorted,
                 unique)[0];
}

std::vector<Value> Scatter(std::span<const Value> inputs, Value indices,
                           std::span<const Value> updates, const ScatterDims& dims,
                           const Body& combine, bool sorted, bool unique) {
  constexpr std::string_view op = "scatter";
  CheckTensors(op, inputs);
  CheckTensors(op, updates);
  CheckTensors(op, {indices});
  HLO_CHECK(!inputs.empty() && inputs.size() == updates.size(), op, inputs.size(), " inputs and ",
            updates.size(), " updates");
  const Shape& input = inputs[0].shape();
  const Shape& update = updates[0].shape();
  CheckNumbers(op, input, indices,
               {dims.update_window_dims, dims.inserted_window_dims, dims.input_batching_dims,
                dims.scatter_indices_batching_dims, dims.scatter_dims_to_operand_dims,
                dims.index_vector_dim},
               update.rank());
  Dims batch = BatchDims(indices, dims.index_vector_dim);
  Dims window;  // the largest window that fits the input
  for (int64_t i = 0; i < input.rank(); ++i) {
    if (!Contains(dims.inserted_window_dims, i) && !Contains(dims.input_batching_dims, i)) {
      window.push_back(input.dims[static_cast<size_t>(i)]);
    }
  }
  bool fits = update.dims.size() == batch.size() + window.size();
  size_t next_window = 0;
  size_t next_batch = 0;
  for (size_t i = 0; fits && i < update.dims.size(); ++i) {
    fits = Contains(dims.update_window_dims, static_cast<int64_t>(i))
               ? update.dims[i] <= window[next_window++]
               : update.dims[i] == batch[next_batch++];
  }
  HLO_CHECK(fits, op, "updates ", ToString(update), " do not fit ", ToString(input),
            " and indices ", ToString(indices.shape()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    HLO_CHECK(inputs[i].dims() == input.dims && updates[i].dims() == update.dims &&
                  inputs[i].dtype() == updates[i].dtype(),
              op, "input ", ToString(inputs[i].shape()), " and update ",
              ToString(updates[i].shape()), " at ", i, " do not fit the first ones");
  }
  std::string numbers = "#stablehlo.scatter<";
  AppendField(numbers, "update_window_dims", dims.update_window_dims);
  AppendField(numbers, "inserted_window_dims", dims.inserted_window_dims);
  AppendField(numbers, "input_batching_dims", dims.input_batching_dims);
  AppendField(numbers, "scatter_indices_batching_dims", dims.scatter_indices_batching_dims);
  AppendField(numbers, "scatter_dims_to_operand_dims", dims.scatter_dims_to_operand_dims);
  numbers += "index_vector_dim = ";
  AppendInt(numbers, dims.index_vector_dim);
  numbers += '>';
  Props props;
  props.Raw("scatter_dimension_numbers", numbers)
      .Bool("indices_are_sorted", sorted)
      .Bool("unique_indices", unique);

  Builder& b = inputs[0].builder();
  std::vector<Type> scalars = ScalarTypesOf(inputs);
  std::vector<Type> arguments = scalars;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  Region region = b.BuildRegion(op, arguments, combine);
  HLO_CHECK(region.results == scalars, op, "the body does not return one scalar for each input");
  std::vector<Value> operands(inputs.begin(), inputs.end());
  operands.push_back(indices);
  operands.insert(operands.end(), updates.begin(), updates.end());
  return b.Emit(op, operands, props, std::span(&region, 1), TypesOf(inputs));
}

}  // namespace torch_xla::hlo
