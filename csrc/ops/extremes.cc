// Extremes and their places; any and all.
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

using hlo::Reducer;
using MaybeDims = std::optional<Span>;

// NaN wins, the first index among equals is taken.

// Where there are no elements: every reduced dimension is named and has some.
void CheckNonEmpty(const Arg& self, std::optional<Dims> dims, const char* name) {
  if (self.numel() != 0) return;
  if (std::string_view(name).starts_with("arg")) {
    TORCH_CHECK_INDEX(dims, name,
                      "(): Expected reduction dim to be specified for input.numel() == 0.");
  } else {
    TORCH_CHECK(dims, name,
                "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                "reduction dim with the 'dim' argument.");
  }
  for (int64_t d : *dims) {
    TORCH_CHECK_INDEX(self.dim(d) != 0, name, "(): Expected reduction dim ", d,
                      " to have non-zero size.");
  }
}

template <Reducer kReducer, Name kName>
struct Extreme {
  static Shape Infer(const Arg& self, Span dims, bool keepdim) {
    Dims reduced = WrapDims(dims, self.rank());
    CheckImplemented(!IsComplex(self.dtype()),
                     kReducer == Reducer::kMax ? "max_values_cpu" : "min_values_cpu", self.dtype());
    CheckNonEmpty(self, dims.empty() ? std::nullopt : std::optional(reduced), kName.text);
    return ReducedShape(self, reduced, keepdim);
  }
  static Value Lower(const Shape& out, Value self, Span dims, bool) {
    return ReduceIn(out, self, WrapDims(dims, self.rank()), kReducer);
  }
};

template <Reducer kReducer, Name kName>
struct ExtremeAll {
  static Shape Infer(const Arg& self) {
    CheckImplemented(!IsComplex(self.dtype()), kReducer == Reducer::kMax ? "max_all" : "min_all",
                     self.dtype());
    return Extreme<kReducer, kName>::Infer(self, {}, false);
  }
  static Value Lower(const Shape& out, Value self) {
    return Extreme<kReducer, kName>::Lower(out, self, {}, false);
  }
};

template <Reducer kReducer, Name kName>
struct ExtremeDim {
  static std::array<Shape, 2> Infer(const Arg& self, int64_t dim, bool keepdim) {
    Dims reduced = OneDim(dim, self.rank());
    TORCH_CHECK(!IsComplex(self.dtype()), kName.text, "(): does not support complex input");
    CheckNonEmpty(self, reduced, kName.text);
    Shape out = ReducedShape(self, reduced, keepdim);
    return {out, out.with(DType::kS64)};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, int64_t dim, bool) {
    Dims reduced = OneDim(dim, self.rank());
    Value best = hlo::Reduce(self, reduced, kReducer);
    Value index = FirstIndex(self, best, reduced);
    return {hlo::Reshape(best, out[0].dims), hlo::Reshape(index, out[1].dims)};
  }
};

template <Reducer kReducer, Name kName>
struct ArgExtreme {
  static Shape Infer(const Arg& self, std::optional<int64_t> dim, bool keepdim) {
    TORCH_CHECK(!IsComplex(self.dtype()), kName.text, "(): does not support complex input");
    TORCH_CHECK(self.dtype() != DType::kBool, kName.text, "(): does not support bool input");
    Dims reduced = dim ? OneDim(*dim, self.rank()) : WrapDims({}, self.rank());
    CheckNonEmpty(self, dim ? std::optional(reduced) : std::nullopt, kName.text);
    return ReducedShape(self, reduced, keepdim).with(DType::kS64);
  }
  static Value Lower(const Shape& out, Value self, std::optional<int64_t> dim, bool) {
    if (!dim) self = hlo::Reshape(self, {self.shape().numel()});
    Dims reduced = OneDim(dim.value_or(0), self.rank());
    Value best = hlo::Reduce(self, reduced, kReducer);
    return hlo::Reshape(FirstIndex(self, best, reduced), out.dims);
  }
};

struct Aminmax {
  static std::array<Shape, 2> Infer(const Arg& self, std::optional<int64_t> dim, bool keepdim) {
    Dims reduced = dim ? OneDim(*dim, self.rank()) : WrapDims({}, self.rank());
    CheckImplemented(!IsComplex(self.dtype()), "aminmax_cpu", self.dtype());
    CheckNonEmpty(self, dim ? std::optional(reduced) : std::nullopt, "aminmax");
    Shape out = ReducedShape(self, reduced, keepdim);
    return {out, out};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self,
                                    std::optional<int64_t> dim, bool) {
    Dims reduced = dim ? OneDim(*dim, self.rank()) : WrapDims({}, self.rank());
    return {ReduceIn(out[0], self, reduced, Reducer::kMin),
            ReduceIn(out[1], self, reduced, Reducer::kMax)};
  }
};

// ---- any and all, which keep uint8

Dims OnlyDims(MaybeDims dims, int64_t rank) {
  return dims && dims->empty() ? Dims{} : WrapDims(dims, rank);
}

template <Reducer kReducer>
struct Truth {
  static Shape Infer(const Arg& self, const Dims& reduced, bool keepdim) {
    DType t = self.dtype() == DType::kU8 ? DType::kU8 : DType::kBool;
    return ReducedShape(self, reduced, keepdim).with(t);
  }
  static Value Lower(const Shape& out, Value self, const Dims& reduced) {
    Value y = hlo::Reduce(hlo::ConvertTo(self, DType::kBool), reduced, kReducer);
    return hlo::ConvertTo(hlo::Reshape(y, out.dims), out.dtype);
  }
};

template <Reducer kReducer>
struct TruthAll {
  static Shape Infer(const Arg& self) {
    return Truth<kReducer>::Infer(self, WrapDims({}, self.rank()), false);
  }
  static Value Lower(const Shape& out, Value self) {
    return Truth<kReducer>::Lower(out, self, WrapDims({}, self.rank()));
  }
};

template <Reducer kReducer>
struct TruthDim {
  static Shape Infer(const Arg& self, int64_t dim, bool keepdim) {
    return Truth<kReducer>::Infer(self, OneDim(dim, self.rank()), keepdim);
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, bool) {
    return Truth<kReducer>::Lower(out, self, OneDim(dim, self.rank()));
  }
};

// An empty list of dims reduces nothing.
template <Reducer kReducer>
struct TruthDims {
  static Shape Infer(const Arg& self, MaybeDims dims, bool keepdim) {
    return Truth<kReducer>::Infer(self, OnlyDims(dims, self.rank()), keepdim);
  }
  static Value Lower(const Shape& out, Value self, MaybeDims dims, bool) {
    return Truth<kReducer>::Lower(out, self, OnlyDims(dims, self.rank()));
  }
};

struct CountNonzero {
  static Shape Infer(const Arg& self, Span dims) {
    return ReducedShape(self, WrapDims(dims, self.rank()), false).with(DType::kS64);
  }
  static Value Lower(const Shape& out, Value self, Span dims) {
    return ReduceIn(out, hlo::ConvertTo(self, DType::kBool), WrapDims(dims, self.rank()),
                    Reducer::kSum);
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<amax, Extreme<Reducer::kMax, "amax">>(m);
  Register<amin, Extreme<Reducer::kMin, "amin">>(m);
  Register<aminmax, Aminmax>(m);
  Register<at::_ops::max, ExtremeAll<Reducer::kMax, "max">>(m);
  Register<at::_ops::min, ExtremeAll<Reducer::kMin, "min">>(m);
  Register<max_dim, ExtremeDim<Reducer::kMax, "max">>(m);
  Register<min_dim, ExtremeDim<Reducer::kMin, "min">>(m);
  Register<argmax, ArgExtreme<Reducer::kMax, "argmax">>(m);
  Register<argmin, ArgExtreme<Reducer::kMin, "argmin">>(m);
  Register<any, TruthAll<Reducer::kOr>>(m);
  Register<any_dim, TruthDim<Reducer::kOr>>(m);
  Register<any_dims, TruthDims<Reducer::kOr>>(m);
  Register<all, TruthAll<Reducer::kAnd>>(m);
  Register<all_dim, TruthDim<Reducer::kAnd>>(m);
  Register<all_dims, TruthDims<Reducer::kAnd>>(m);
  Register<count_nonzero_dim_IntList, CountNonzero>(m);
}

}  // namespace torch_xla::ops
