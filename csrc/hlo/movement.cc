#include "hlo/movement.h"

#include <algorithm>

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {

Value BroadcastInDim(Value x, const Dims& out_dims, const Dims& broadcast_dimensions) {
  constexpr std::string_view op = "broadcast_in_dim";
  CheckTensors(op, {x});
  CheckCount(op, "broadcast_dimensions", broadcast_dimensions, x.rank());
  CheckDims(op, "broadcast_dimensions", broadcast_dimensions,
            static_cast<int64_t>(out_dims.size()));
  for (size_t i = 0; i < broadcast_dimensions.size(); ++i) {
    int64_t size = x.dims()[i];
    HLO_CHECK(size == 1 || size == out_dims[static_cast<size_t>(broadcast_dimensions[i])], op,
              ToString(x.shape()), " does not broadcast to ", ToString(out_dims), " along ",
              ToString(broadcast_dimensions));
  }
  for (int64_t d : out_dims) HLO_CHECK(d >= 0, op, ToString(out_dims), " has a negative size");
  Props props;
  props.Array("broadcast_dimensions", broadcast_dimensions);
  return x.builder().Emit(op, {x}, props, x.shape().with(out_dims));
}

Value BroadcastTo(Value x, const Dims& dims) {
  constexpr std::string_view op = "broadcast_in_dim";
  CheckTensors(op, {x});
  if (x.dims() == dims) return x;
  HLO_CHECK(x.dims().size() <= dims.size(), op, ToString(x.shape()), " does not broadcast to ",
            ToString(dims));
  Dims at;
  for (size_t i = dims.size() - x.dims().size(); i < dims.size(); ++i) {
    at.push_back(static_cast<int64_t>(i));
  }
  return BroadcastInDim(x, dims, at);
}

Value Reshape(Value x, const Dims& dims) {
  constexpr std::string_view op = "reshape";
  CheckTensors(op, {x});
  if (x.dims() == dims) return x;
  for (int64_t d : dims) HLO_CHECK(d >= 0, op, ToString(dims), " has a negative size");
  HLO_CHECK(x.shape().numel() == Product(dims), op, ToString(x.shape()),
            " has not as many elements as ", ToString(dims));
  return x.builder().Emit(op, {x}, "", x.shape().with(dims));
}

Value Transpose(Value x, const Dims& perm) {
  constexpr std::string_view op = "transpose";
  CheckTensors(op, {x});
  CheckCount(op, "permutation", perm, x.rank());
  CheckDims(op, "permutation", perm, x.rank());
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  Shape out = x.shape();
  for (size_t i = 0; i < perm.size(); ++i) out.dims[i] = x.dims()[static_cast<size_t>(perm[i])];
  return x.builder().Emit(op, {x}, Props().Array("permutation", perm), out);
}

Value Slice(Value x, const Dims& start, const Dims& limit, const Dims& strides) {
  constexpr std::string_view op = "slice";
  CheckTensors(op, {x});
  CheckCount(op, "start", start, x.rank());
  CheckCount(op, "limit", limit, x.rank());
  CheckCount(op, "strides", strides, x.rank());
  Shape out = x.shape();
  bool whole = true;
  for (size_t i = 0; i < start.size(); ++i) {
    HLO_CHECK(start[i] >= 0 && start[i] <= limit[i] && limit[i] <= x.dims()[i] && strides[i] > 0,
              op, "start ", ToString(start), ", limit ", ToString(limit), ", strides ",
              ToString(strides), " do not fit ", ToString(x.shape()));
    out.dims[i] = (limit[i] - start[i] + strides[i] - 1) / strides[i];
    whole = whole && out.dims[i] == x.dims()[i];
  }
  if (whole) return x;
  Props props;
  props.Array("start_indices", start).Array("limit_indices", limit).Array("strides", strides);
  return x.builder().Emit(op, {x}, props, out);
}

Value SliceDim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  CheckTensors("slice", {x});
  HLO_CHECK(dim >= 0 && dim < x.rank(), "slice", "dimension ", dim, " is out of range for ",
            ToString(x.shape()));
  auto at = static_cast<size_t>(dim);
  Dims starts(x.dims().size(), 0);
  Dims limits = x.dims();
  Dims strides(x.dims().size(), 1);
  starts[at] = start;
  limits[at] = limit;
  strides[at] = stride;
  return Slice(x, starts, limits, strides);
}

Value Concatenate(std::initializer_list<Value> xs, int64_t dim) {
  return Concatenate(std::span<const Value>(xs.begin(), xs.size()), dim);
}

Value Concatenate(std::span<const Value> xs, int64_t dim) {
  constexpr std::string_view op = "concatenate";
  HLO_CHECK(!xs.empty(), op, "no operands");
  CheckTensors(op, xs);
  Shape out = xs[0].shape();
  HLO_CHECK(dim >= 0 && dim < out.rank(), op, "dimension ", dim, " is out of range for ",
            ToString(out));
  auto at = static_cast<size_t>(dim);
  int64_t total = 0;
  for (const Value& x : xs) {
    Shape other = x.shape();
    bool same_rank = other.rank() == out.rank();
    if (same_rank) {
      total += other.dims[at];
      other.dims[at] = xs[0].dims()[at];
    }
    HLO_CHECK(same_rank && other == xs[0].shape(), op, "operand shapes ", ToString(xs[0].shape()),
              " and ", ToString(x.shape()), " do not concatenate along ", dim);
  }
  if (xs.size() == 1) return xs[0];
  out.dims[at] = total;
  return xs[0].builder().Emit(op, xs, Props().Int("dimension", dim), out);
}

Value Pad(Value x, Value value, const Dims& low, const Dims& high, const Dims& interior) {
  constexpr std::string_view op = "pad";
  CheckTensors(op, {x, value});
  CheckCount(op, "low", low, x.rank());
  CheckCount(op, "high", high, x.rank());
  CheckCount(op, "interior", interior, x.rank());
  HLO_CHECK(value.shape() == (Shape{x.dtype(), {}}), op, "the value ", ToString(value.shape()),
            " should be a scalar of the type of ", ToString(x.shape()));
  Shape out = x.shape();
  for (size_t i = 0; i < low.size(); ++i) {
    int64_t size = x.dims()[i];
    HLO_CHECK(interior[i] >= 0, op, "interior ", ToString(interior), " is negative");
    out.dims[i] = low[i] + size + std::max<int64_t>(size - 1, 0) * interior[i] + high[i];
    HLO_CHECK(out.dims[i] >= 0, op, "low ", ToString(low), " and high ", ToString(high),
              " cut more than ", ToString(x.shape()), " has");
  }
  Props props;
  props.Array("edge_padding_low", low)
      .Array("edge_padding_high", high)
      .Array("interior_padding", interior);
  return x.builder().Emit(op, {x, value}, props, out);
}

Value Reverse(Value x, const Dims& dims) {
  constexpr std::string_view op = "reverse";
  CheckTensors(op, {x});
  CheckDims(op, "dimensions", dims, x.rank());
  if (dims.empty()) return x;
  return x.builder().Emit(op, {x}, Props().Array("dimensions", dims), x.shape());
}

namespace {

void CheckStarts(std::string_view op, Value x, std::span<const Value> starts) {
  CheckTensors(op, starts);
  HLO_CHECK(static_cast<int64_t>(starts.size()) == x.rank(), op, starts.size(),
            " start indices for ", ToString(x.shape()));
  for (const Value& s : starts) {
    HLO_CHECK(s.rank() == 0 && IsInt(s.dtype()) && s.dtype() == starts[0].dtype(), op,
              "start indices should be integer scalars of one type, not ", ToString(s.shape()));
  }
}

}  // namespace

Value DynamicSlice(Value x, std::span<const Value> starts, const Dims& sizes) {
  constexpr std::string_view op = "dynamic_slice";
  CheckTensors(op, {x});
  CheckStarts(op, x, starts);
  CheckCount(op, "sizes", sizes, x.rank());
  for (size_t i = 0; i < sizes.size(); ++i) {
    HLO_CHECK(sizes[i] >= 0 && sizes[i] <= x.dims()[i], op, "sizes ", ToString(sizes),
              " do not fit ", ToString(x.shape()));
  }
  std::vector<Value> operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return x.builder().Emit(op, operands, Props().Array("slice_sizes", sizes), x.shape().with(sizes));
}

Value DynamicUpdateSlice(Value x, Value update, std::span<const Value> starts) {
  constexpr std::string_view op = "dynamic_update_slice";
  CheckTensors(op, {x, update});
  CheckStarts(op, x, starts);
  bool fits = update.dtype() == x.dtype() && update.rank() == x.rank();
  for (size_t i = 0; fits && i < x.dims().size(); ++i) fits = update.dims()[i] <= x.dims()[i];
  HLO_CHECK(fits, op, "update ", ToString(update.shape()), " does not fit ", ToString(x.shape()));
  std::vector<Value> operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return x.builder().Emit(op, operands, "", x.shape());
}

}  // namespace torch_xla::hlo
