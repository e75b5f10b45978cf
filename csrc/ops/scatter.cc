// gather, scatter and their kin: an index of the rank of the operand. A device cannot raise for
// an index out of range: gather clamps it, scatter skips it.
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce_ops.h>

#include "ops/scatter_dim.h"

namespace torch_xla::ops {

Value GatherAlong(Value x, int64_t dim, Value index) {
  Dims out = index.dims();
  x = AtLeast1d(x);
  index = AtLeast1d(index);
  if (index.shape().numel() == 0) return hlo::Full(x.builder(), x.shape().with(out), 0);
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (d != dim) x = hlo::SliceDim(x, d, 0, index.dim(d));
  }
  Dims others = AllBut(x.rank(), dim);
  Value y = hlo::Gather(x, index,
                        {.offset_dims = {},
                         .collapsed_slice_dims = {dim},
                         .operand_batching_dims = others,
                         .start_indices_batching_dims = others,
                         .start_index_map = {dim},
                         .index_vector_dim = x.rank()},
                        Dims(At(x.rank()), 1));
  return hlo::Reshape(y, out);
}

Value ScatterAlong(Value x, int64_t dim, Value index, Value src, const hlo::Body& combine) {
  Dims out = x.dims();
  if (index.shape().numel() == 0) return x;
  x = AtLeast1d(x);
  index = AtLeast1d(index);
  src = AtLeast1d(src);
  int64_t rank = x.rank();
  src = hlo::Slice(src, Dims(At(rank), 0), index.dims(), Dims(At(rank), 1));
  Dims one = index.dims();
  one.push_back(1);
  std::vector<Value> coordinates;
  for (int64_t d = 0; d < rank; ++d) {
    Value c = d == dim ? index : IotaLike(index, d, index.dtype());
    coordinates.push_back(hlo::Reshape(c, one));
  }
  Value y = hlo::Scatter(x, hlo::Concatenate(coordinates, rank), src,
                         {.update_window_dims = {},
                          .inserted_window_dims = Range(rank),
                          .input_batching_dims = {},
                          .scatter_indices_batching_dims = {},
                          .scatter_dims_to_operand_dims = Range(rank),
                          .index_vector_dim = rank},
                         combine);
  return hlo::Reshape(y, out);
}

Value ScatterDim(Value x, int64_t dim, Value index, Value src, const hlo::Body& combine) {
  Dims out = x.dims();
  x = AtLeast1d(x);
  index = AtLeast1d(index);
  src = AtLeast1d(src);
  if (src.shape().numel() == 0) return hlo::Reshape(x, out);
  Value y = hlo::Scatter(x, index, src,
                         {.update_window_dims = AllBut(x.rank(), dim),
                          .inserted_window_dims = {dim},
                          .input_batching_dims = {},
                          .scatter_indices_batching_dims = {},
                          .scatter_dims_to_operand_dims = {dim},
                          .index_vector_dim = 1},
                         combine);
  return hlo::Reshape(y, out);
}

Value ScatterReduce(Value x, Value src, std::string_view reduce, bool include_self,
                    const ScatterFn& scatter) {
  if (DType t = x.dtype(); Wide(t) != t) {  // rounded once, and counted beyond 256
    return hlo::ConvertTo(ScatterReduce(Widen(x), Widen(src), reduce, include_self, scatter), t);
  }
  hlo::Reducer reducer = reduce == "prod"   ? hlo::Reducer::kProd
                         : reduce == "amax" ? hlo::Reducer::kMax
                         : reduce == "amin" ? hlo::Reducer::kMin
                                            : hlo::Reducer::kSum;
  Value base = x;
  if (!include_self) {
    Value start = hlo::Identity(x.builder(), reducer, x.dtype());
    base = scatter(x, hlo::BroadcastTo(start, src.dims()), Replace());
  }
  Value y = scatter(base, src, Combine(reducer));
  if (reduce != "mean") return y;
  Value counts = FullLike(x, 1);
  if (!include_self) counts = scatter(counts, FullLike(src, 0), Replace());
  counts = scatter(counts, FullLike(src, 1), Combine(hlo::Reducer::kSum));
  Value mean = hlo::Div(y, counts);
  if (IsFloat(x.dtype()) || IsComplex(x.dtype())) return mean;
  // Integers round down.
  Value inexact = hlo::Ne(hlo::Mul(mean, counts), y);
  return IsSigned(x.dtype()) ? hlo::Select(hlo::And(inexact, LtZero(y)), Plus(mean, -1), mean)
                             : mean;
}

namespace {

int64_t Size(const Arg& a, int64_t d) { return a.rank() == 0 ? 1 : a.dim(d); }
int64_t Rank(const Arg& a) { return std::max<int64_t>(a.rank(), 1); }

// An index that fits the operand except in dimension `dim`, and the source everywhere.
void CheckIndex(const char* name, const Arg& self, int64_t dim, const Arg& index, const Arg* src) {
  dim = WrapDim(dim, self.rank());
  if (index.numel() == 0) return;  // of any type and rank
  XLA_CHECK(index.dtype() == DType::kS64 || index.dtype() == DType::kS32, kInvalidArgument, name,
            "(): Expected dtype int32/int64 for index");
  XLA_CHECK(Rank(index) == Rank(self) && (!src || Rank(*src) == Rank(index)), kInvalidArgument,
            name, "(): Index, self and src should have the same number of dimensions");
  for (int64_t d = 0; d < Rank(index); ++d) {
    bool fits = d == dim || Size(index, d) <= Size(self, d);
    XLA_CHECK(fits && (!src || Size(index, d) <= Size(*src, d)), kInvalidArgument,
              "Expected index ", ToString(index.dims()), " to be no larger than self ",
              ToString(self.dims()), " apart from dimension ", dim);
  }
}

struct Gather {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, bool) {
    CheckIndex("gather", self, dim, index, nullptr);
    return self.shape().with(index.dims());
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, bool) {
    return GatherAlong(self, WrapDim(dim, self.rank()), index);
  }
};

Shape InferScatter(const char* name, const Arg& self, int64_t dim, const Arg& index,
                   const Arg& src) {
  CheckIndex(name, self, dim, index, &src);
  XLA_CHECK(src.dtype() == self.dtype(), kInvalidArgument, name,
            "(): Expected self.dtype to be equal to src.dtype");
  return self.shape();
}

Value Along(Value self, int64_t dim, Value index, Value src, const hlo::Body& combine) {
  return ScatterAlong(self, WrapDim(dim, self.rank()), index, src, combine);
}

hlo::Body BodyOf(std::string_view reduce) {
  return Combine(reduce == "add" ? hlo::Reducer::kSum : hlo::Reducer::kProd);
}
void CheckReduce(std::string_view reduce) {
  TORCH_CHECK(reduce == "add" || reduce == "multiply",
              "reduce argument must be either add or multiply.");
}

struct ScatterSrc {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& src) {
    return InferScatter("scatter", self, dim, index, src);
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value src) {
    return Along(self, dim, index, src, Replace());
  }
};

struct ScatterAdd {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& src) {
    return InferScatter("scatter_add", self, dim, index, src);
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value src) {
    Value sum = Along(Widen(self), dim, index, Widen(src), Combine(hlo::Reducer::kSum));
    return hlo::ConvertTo(sum, self.dtype());
  }
};

struct ScatterSrcReduce {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& src,
                     std::string_view reduce) {
    CheckReduce(reduce);
    return InferScatter("scatter", self, dim, index, src);
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value src,
                     std::string_view reduce) {
    return Along(self, dim, index, src, BodyOf(reduce));
  }
};

struct ScatterValue {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const at::Scalar& value) {
    CheckIndex("scatter", self, dim, index, nullptr);
    CheckFits(value, self.dtype());
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, Value index, Value value) {
    return Along(self, dim, index, Fit(value, out.with(index.dims())), Replace());
  }
};

struct ScatterValueReduce {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const at::Scalar& value,
                     std::string_view reduce) {
    CheckReduce(reduce);
    return ScatterValue::Infer(self, dim, index, value);
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, Value index, Value value,
                     std::string_view reduce) {
    return Along(self, dim, index, Fit(value, out.with(index.dims())), BodyOf(reduce));
  }
};

struct ScatterReduceTwo {
  static Shape Infer(const Arg& self, int64_t dim, const Arg& index, const Arg& src,
                     std::string_view reduce, bool) {
    TORCH_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" ||
                    reduce == "amin",
                "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce, ".");
    CheckImplemented(reduce != "mean" || self.dtype() != DType::kBool,
                     "scatter_gather_tensor_cpu_reduce_mean", self.dtype());
    return InferScatter("scatter", self, dim, index, src);
  }
  static Value Lower(const Shape&, Value self, int64_t dim, Value index, Value src,
                     std::string_view reduce, bool include_self) {
    if (index.shape().numel() == 0) return self;
    auto scatter = [&](Value x, Value updates, const hlo::Body& combine) {
      return Along(x, dim, index, updates, combine);
    };
    return ScatterReduce(self, src, reduce, include_self, scatter);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::gather, Gather>(m);
  Register<at::_ops::scatter_src, ScatterSrc>(m);
  Register<at::_ops::scatter__src, ScatterSrc>(m);
  Register<at::_ops::scatter_value, ScatterValue>(m);
  Register<at::_ops::scatter__value, ScatterValue>(m);
  Register<at::_ops::scatter_reduce, ScatterSrcReduce>(m);
  Register<at::_ops::scatter__reduce, ScatterSrcReduce>(m);
  Register<at::_ops::scatter_value_reduce, ScatterValueReduce>(m);
  Register<at::_ops::scatter__value_reduce, ScatterValueReduce>(m);
  Register<at::_ops::scatter_add, ScatterAdd>(m);
  Register<at::_ops::scatter_add_, ScatterAdd>(m);
  Register<at::_ops::scatter_reduce_two, ScatterReduceTwo>(m);
  Register<at::_ops::scatter_reduce__two, ScatterReduceTwo>(m);
}

}  // namespace torch_xla::ops
