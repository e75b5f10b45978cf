#include "dist/native.h"

#include <algorithm>

#include "base/error.h"
#include "hlo/cast.h"
#include "hlo/collective.h"
#include "hlo/constant.h"
#include "hlo/elementwise.h"
#include "hlo/movement.h"

namespace torch_xla::dist {
namespace {

using hlo::Value;

hlo::Reducer ReducerOf(Reduce reduce) {
  switch (reduce) {
    case Reduce::kSum: return hlo::Reducer::kSum;
    case Reduce::kMul: return hlo::Reducer::kProd;
    case Reduce::kAnd: return hlo::Reducer::kAnd;
    case Reduce::kOr: return hlo::Reducer::kOr;
    case Reduce::kMin: return hlo::Reducer::kMin;
    case Reduce::kMax: return hlo::Reducer::kMax;
  }
  Throw(Code::kInternal, "unknown reduction");
}

// The compiler wants to see every replica in a group: those that take no part, in which nobody
// looks at the result, are put together in groups of the same size, or of one where that is
// allowed.
hlo::ReplicaGroups GroupsOf(const Part& part, const Ranks& scope, int64_t world, bool same_size) {
  Ranks all(static_cast<size_t>(world));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  hlo::ReplicaGroups groups(part.groups.begin(), part.groups.end());
  if (groups.empty()) groups.push_back(scope.empty() ? all : scope);
  std::erase_if(all, [&](int64_t r) {
    return std::any_of(groups.begin(), groups.end(),
                       [&](const Ranks& g) { return std::find(g.begin(), g.end(), r) != g.end(); });
  });
  const size_t size = same_size ? groups[0].size() : 1;
  const bool equal = std::all_of(groups.begin(), groups.end(),
                                 [&](const Ranks& g) { return g.size() == groups[0].size(); });
  XLA_CHECK(!same_size || (equal && all.size() % size == 0), kUnimplemented, "[",
            KindName(part.kind), "] groups of unequal sizes on this plugin");
  for (size_t i = 0; i < all.size(); i += size) {
    groups.emplace_back(all.begin() + static_cast<int64_t>(i),
                        all.begin() + static_cast<int64_t>(i + size));
  }
  return groups;
}

// What a type is reduced in. Small floats are added up in float32 and rounded once, as between
// processes; not every plugin's collectives have 16-bit integers and truth values.
DType WideOf(DType t) {
  if (t == DType::kBool) return DType::kU8;
  if (t == DType::kS16) return DType::kS32;
  if (t == DType::kU16) return DType::kU32;
  return IsFloat(t) && ByteSize(t) < 4 ? DType::kF32 : t;
}

// The same reduction of values of type WideOf(t): a sum of truth values is whether any is true.
hlo::Reducer WideReducerOf(Reduce reduce, DType t) {
  if (t != DType::kBool) return ReducerOf(reduce);
  const bool any = reduce == Reduce::kSum || reduce == Reduce::kMax;
  return any ? hlo::Reducer::kMax : hlo::Reducer::kMin;
}

// All bits of the root's value, whatever they are: a NaN, the sign of a zero.
Value BroadcastFrom(Value x, Value mine, const hlo::ReplicaGroups& groups) {
  if (IsComplex(x.dtype())) {
    return hlo::Complex(BroadcastFrom(hlo::Real(x), mine, groups),
                        BroadcastFrom(hlo::Imag(x), mine, groups));
  }
  Value bits = hlo::ToBits(x);
  const DType narrow = bits.dtype();
  // One gives its bits and the others zeros: a sum of a type that every plugin can add up.
  if (ByteSize(narrow) < 4) bits = hlo::Convert(bits, DType::kU32);
  bits = hlo::Select(hlo::BroadcastTo(mine, bits.dims()), bits, hlo::FullLike(bits, 0));
  bits = hlo::AllReduce(bits, groups, hlo::Reducer::kSum);
  return hlo::FromBits(hlo::ConvertTo(bits, narrow), x.dtype());
}

// Whether this replica's value is what its group gets: the root, or who is alone in a group.
Value GivesItsValue(hlo::Builder& b, int64_t root, const hlo::ReplicaGroups& groups) {
  Value id = hlo::ReplicaId(b);
  auto is = [&](int64_t r) { return hlo::Eq(id, hlo::ScalarInt(b, DType::kU32, r)); };
  Value gives = is(root);
  for (const auto& g : groups) {
    if (g.size() == 1 && g[0] != root) gives = hlo::Or(gives, is(g[0]));
  }
  return gives;
}

// Plugins have all replicas take part in a permutation, whatever its pairs: one that only some
// record would wait for the others. So those share what each source has.
Value PermuteWithin(Value x, const std::vector<std::pair<int64_t, int64_t>>& pairs,
                    const hlo::ReplicaGroups& groups) {
  hlo::Builder& b = x.builder();
  Value id = hlo::ReplicaId(b);
  auto is = [&](int64_t r) { return hlo::Eq(id, hlo::ScalarInt(b, DType::kU32, r)); };
  Value result = hlo::FullLike(x, 0);
  for (auto [source, target] : pairs) {
    Value sent = BroadcastFrom(x, is(source), groups);
    result = hlo::Select(hlo::BroadcastTo(is(target), x.dims()), sent, result);
  }
  return result;
}

Dims InsertOne(const Dims& dims) {
  Dims out = dims;
  out.insert(0, 1);
  return out;
}

// x of each replica of the group -> [n, x...]
Value Gather(Value x, const hlo::ReplicaGroups& groups) {
  return hlo::AllGather(hlo::Reshape(x, InsertOne(x.dims())), 0, groups);
}

Value LowerPart(const Part& p, const Ranks& scope, int64_t world, Value x) {
  // Compilers offer the bits of numbers for no collective: all values come here.
  const bool bits = (p.reduce == Reduce::kAnd || p.reduce == Reduce::kOr) &&
                    (p.kind == Kind::kAllReduce || p.kind == Kind::kReduceScatter);
  const bool by_size = bits || p.kind == Kind::kAllGather || p.kind == Kind::kReduceScatter ||
                       p.kind == Kind::kAllToAll;
  const hlo::ReplicaGroups groups = GroupsOf(p, scope, world, by_size);
  switch (p.kind) {
    case Kind::kAllReduce: {
      if (bits) return hlo::Reduce(Gather(x, groups), {0}, ReducerOf(p.reduce));
      Value wide = hlo::ConvertTo(x, WideOf(x.dtype()));
      return hlo::ConvertTo(hlo::AllReduce(wide, groups, WideReducerOf(p.reduce, x.dtype())),
                            x.dtype());
    }
    case Kind::kAllGather: return Gather(x, groups);
    case Kind::kReduceScatter: {
      if (bits) {
        Value mine = hlo::AllToAll(x, 0, groups);
        return hlo::Reduce(mine, {0}, ReducerOf(p.reduce));
      }
      Value wide = hlo::ConvertTo(x, WideOf(x.dtype()));
      Value mine = hlo::ReduceScatter(wide, 0, groups, WideReducerOf(p.reduce, x.dtype()));
      return hlo::ConvertTo(hlo::Reshape(mine, Dims(Span(x.dims()).subspan(1))), x.dtype());
    }
    case Kind::kAllToAll: return hlo::AllToAll(x, 0, groups);
    case Kind::kPermute:
      if (p.pairs.empty()) return hlo::FullLike(x, 0);
      if (scope.empty() || std::ssize(scope) == world) return hlo::CollectivePermute(x, p.pairs);
      return PermuteWithin(x, p.pairs, groups);
    case Kind::kBroadcast:
      return BroadcastFrom(x, GivesItsValue(x.builder(), p.root, groups), groups);
  }
  Throw(Code::kInternal, "unknown collective");
}

}  // namespace

std::vector<Value> LowerNative(const Collective& c, int64_t world, std::span<const Value> tensors) {
  std::vector<Value> results;
  for (const Part& p : c.parts) {
    const auto n = static_cast<size_t>(p.num_tensors);
    Value x = tensors[0];
    if (n > 1) {  // one behind the other
      std::vector<Value> flat;
      for (Value t : tensors.first(n)) flat.push_back(hlo::Reshape(t, {t.shape().numel()}));
      x = hlo::Concatenate(flat, 0);
    }
    tensors = tensors.subspan(n);
    // Nothing travels, and compilers differ on collectives of nothing.
    results.push_back(x.shape().numel() == 0 ? Value() : LowerPart(p, c.scope, world, x));
  }
  return results;
}

}  // namespace torch_xla::dist
