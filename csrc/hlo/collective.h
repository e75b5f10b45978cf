// Operations between the replicas of one program.
//
// `groups` are the replicas that take part together, in the order of their places; every replica is
// in one of them. Where a group's size is part of the result's shape, all have the same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "hlo/reduce.h"

namespace torch_xla::hlo {

using ReplicaGroups = std::vector<std::vector<int64_t>>;

// x -> the reduction of the group's x.
Value AllReduce(Value x, const ReplicaGroups& groups, Reducer reducer);
// x[..., d, ...] -> [..., n * d, ...]
Value AllGather(Value x, int64_t dim, const ReplicaGroups& groups);
// x[..., n * d, ...] -> [..., d, ...], the group's reduction cut into n pieces.
Value ReduceScatter(Value x, int64_t dim, const ReplicaGroups& groups, Reducer reducer);
// x[..., n * d, ...] -> the same, piece i is what replica i of the group has for this one.
Value AllToAll(Value x, int64_t dim, const ReplicaGroups& groups);
// (source, target) pairs; who is no target gets zeros.
Value CollectivePermute(Value x, const std::vector<std::pair<int64_t, int64_t>>& pairs);
// u32[], the number of the replica.
Value ReplicaId(Builder& b);

}  // namespace torch_xla::hlo
