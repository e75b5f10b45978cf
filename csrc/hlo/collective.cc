#include "hlo/collective.h"

#include <algorithm>

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

// "dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>": shorter rows are padded.
std::string Matrix(const ReplicaGroups& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  std::string out = "dense<[";
  for (const auto& row : rows) {
    if (&row != rows.data()) out += ", ";
    Dims padded(width, -1);
    std::copy(row.begin(), row.end(), padded.begin());
    AppendList(out, padded);
  }
  out += "]> : tensor<";
  AppendInt(out, static_cast<int64_t>(rows.size()));
  out += 'x';
  AppendInt(out, static_cast<int64_t>(width));
  return out + "xi64>";
}

void CheckGroups(std::string_view op, const ReplicaGroups& groups) {
  HLO_CHECK(!groups.empty(), op, "no groups");
  for (const auto& g : groups) HLO_CHECK(!g.empty(), op, "an empty group");
}

// The size of all groups.
int64_t SizeOf(std::string_view op, const ReplicaGroups& groups) {
  CheckGroups(op, groups);
  for (const auto& g : groups) {
    HLO_CHECK(g.size() == groups[0].size(), op, "groups of ", groups[0].size(), " and of ",
              g.size(), " replicas");
  }
  return static_cast<int64_t>(groups[0].size());
}

Region ReductionOf(std::string_view op, Value x, Reducer reducer) {
  const Type arguments[] = {Shape{x.dtype(), {}}, Shape{x.dtype(), {}}};
  return x.builder().BuildRegion(op, arguments, [reducer](Builder&, std::span<const Value> v) {
    return std::vector<Value>{Apply(reducer, v[0], v[1])};
  });
}

Dims Times(const Dims& dims, int64_t dim, int64_t by) {
  Dims out = dims;
  out[static_cast<size_t>(dim)] *= by;
  return out;
}

Dims Divided(std::string_view op, Value x, int64_t dim, int64_t n) {
  HLO_CHECK(x.dim(dim) % n == 0, op, "dimension ", dim, " of ", ToString(x.shape()),
            " is not divided by ", n);
  Dims out = x.dims();
  out[static_cast<size_t>(dim)] /= n;
  return out;
}

}  // namespace

Value AllReduce(Value x, const ReplicaGroups& groups, Reducer reducer) {
  constexpr std::string_view op = "all_reduce";
  CheckTensors(op, {x});
  CheckGroups(op, groups);
  Region region = ReductionOf(op, x, reducer);
  const Type type = x.shape();
  return x.builder().Emit(op, std::span(&x, 1), Props().Raw("replica_groups", Matrix(groups)),
                          std::span(&region, 1), std::span(&type, 1))[0];
}

Value AllGather(Value x, int64_t dim, const ReplicaGroups& groups) {
  constexpr std::string_view op = "all_gather";
  CheckTensors(op, {x});
  CheckDims(op, "dimension", {&dim, 1}, x.rank());
  Props props;
  props.Int("all_gather_dim", dim).Raw("replica_groups", Matrix(groups));
  return x.builder().Emit(op, {x}, props, x.shape().with(Times(x.dims(), dim, SizeOf(op, groups))));
}

Value ReduceScatter(Value x, int64_t dim, const ReplicaGroups& groups, Reducer reducer) {
  constexpr std::string_view op = "reduce_scatter";
  CheckTensors(op, {x});
  CheckDims(op, "dimension", {&dim, 1}, x.rank());
  const Type type = x.shape().with(Divided(op, x, dim, SizeOf(op, groups)));
  Region region = ReductionOf(op, x, reducer);
  Props props;
  props.Int("scatter_dimension", dim).Raw("replica_groups", Matrix(groups));
  return x.builder().Emit(op, std::span(&x, 1), props, std::span(&region, 1),
                          std::span(&type, 1))[0];
}

Value AllToAll(Value x, int64_t dim, const ReplicaGroups& groups) {
  constexpr std::string_view op = "all_to_all";
  CheckTensors(op, {x});
  CheckDims(op, "dimension", {&dim, 1}, x.rank());
  const int64_t n = SizeOf(op, groups);
  Divided(op, x, dim, n);
  Props props;
  props.Int("split_dimension", dim)
      .Int("concat_dimension", dim)
      .Int("split_count", n)
      .Raw("replica_groups", Matrix(groups));
  return x.builder().Emit(op, {x}, props, x.shape());
}

Value CollectivePermute(Value x, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  constexpr std::string_view op = "collective_permute";
  CheckTensors(op, {x});
  HLO_CHECK(!pairs.empty(), op, "no pairs");
  ReplicaGroups rows;
  for (auto [source, target] : pairs) rows.push_back({source, target});
  return x.builder().Emit(op, {x}, Props().Raw("source_target_pairs", Matrix(rows)), x.shape());
}

Value ReplicaId(Builder& b) {
  return b.Emit("replica_id", std::initializer_list<Value>{}, "", Shape{DType::kU32, {}});
}

}  // namespace torch_xla::hlo
