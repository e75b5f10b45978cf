// Reductions. Float16 and bfloat16 accumulate in float32, as in PyTorch.
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/logsumexp_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

using hlo::Reducer;
using MaybeDims = std::optional<Span>;
using MaybeDType = std::optional<DType>;

// ---- sum, mean, prod

DType SumType(const Arg& self, MaybeDType dtype) {
  return dtype.value_or(IsIntOrBool(self.dtype()) ? DType::kS64 : self.dtype());
}

struct Sum {
  static Shape Infer(const Arg& self, MaybeDims dims, bool keepdim, MaybeDType dtype) {
    return ReducedShape(self, WrapDims(dims, self.rank()), keepdim).with(SumType(self, dtype));
  }
  static Value Lower(const Shape& out, Value self, MaybeDims dims, bool, MaybeDType) {
    return ReduceIn(out, self, WrapDims(dims, self.rank()), Reducer::kSum);
  }
};

struct Nansum : Sum {
  static Shape Infer(const Arg& self, MaybeDims dims, bool keepdim, MaybeDType dtype) {
    TORCH_CHECK(!IsComplex(self.dtype()), "nansum on CPU does not support complex inputs");
    return Sum::Infer(self, dims, keepdim, dtype);
  }
  static Value Lower(const Shape& out, Value self, MaybeDims dims, bool keepdim, MaybeDType dtype) {
    if (IsFloat(self.dtype())) self = Where(IsNan(self), 0, self);
    return Sum::Lower(out, self, dims, keepdim, dtype);
  }
};

struct Mean {
  static Shape Infer(const Arg& self, MaybeDims dims, bool keepdim, MaybeDType dtype) {
    DType t = dtype.value_or(self.dtype());
    TORCH_CHECK(!IsIntOrBool(t), "mean(): could not infer output dtype. ",
                dtype ? "Optional" : "Input",
                " dtype must be either a floating point or complex dtype. Got: ", ToScalarType(t));
    return ReducedShape(self, WrapDims(dims, self.rank()), keepdim).with(t);
  }
  static Value Lower(const Shape& out, Value self, MaybeDims dims, bool, MaybeDType) {
    Dims reduced = WrapDims(dims, self.rank());
    Value x = hlo::ConvertTo(self, Wide(out.dtype));
    return hlo::ConvertTo(hlo::Reshape(MeanOf(x, reduced), out.dims), out.dtype);
  }
};

struct MeanAll {
  static Shape Infer(const Arg& self, MaybeDType dtype) {
    return Mean::Infer(self, {}, false, dtype);
  }
  static Value Lower(const Shape& out, Value self, MaybeDType dtype) {
    return Mean::Lower(out, self, {}, false, dtype);
  }
};

struct SumAll {
  static Shape Infer(const Arg& self, MaybeDType dtype) {
    return Sum::Infer(self, {}, false, dtype);
  }
  static Value Lower(const Shape& out, Value self, MaybeDType dtype) {
    return Sum::Lower(out, self, {}, false, dtype);
  }
};

struct Prod {
  static Shape Infer(const Arg& self, MaybeDType dtype) { return {SumType(self, dtype), {}}; }
  static Value Lower(const Shape& out, Value self, MaybeDType) {
    return ReduceIn(out, self, WrapDims({}, self.rank()), Reducer::kProd);
  }
};

struct ProdDim {
  static Shape Infer(const Arg& self, int64_t dim, bool keepdim, MaybeDType dtype) {
    return ReducedShape(self, OneDim(dim, self.rank()), keepdim).with(SumType(self, dtype));
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, bool, MaybeDType) {
    return ReduceIn(out, self, OneDim(dim, self.rank()), Reducer::kProd);
  }
};

// ---- max and min. NaN wins, the first index among equals is taken.

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
    CheckImplemented(!IsComplex(self.dtype()),
                     kReducer == Reducer::kMax ? "max_all" : "min_all", self.dtype());
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

// ---- var and std

struct Moments {
  Value mean, var;  // without the reduced dimensions

  Moments(Value x, const Dims& dims, const std::optional<Number>& correction) {
    mean = MeanOf(x, dims);
    Value delta = hlo::Sub(x, AlongKept(mean, x, dims));
    Value square = IsComplex(x.dtype())
                       ? hlo::Add(Square(hlo::Real(delta)), Square(hlo::Imag(delta)))
                       : Square(delta);
    Value sum = hlo::Reduce(square, dims, Reducer::kSum);
    double n = static_cast<double>(CountOf(x, dims)) - (correction ? correction->real() : 1);
    var = hlo::Div(sum, FullLike(sum, std::max(n, 0.0)));
  }
};

using MaybeScalar = std::optional<at::Scalar>;

template <bool kStd>
struct Var {
  static Shape Infer(const Arg& self, MaybeDims dims, const MaybeScalar&, bool keepdim) {
    TORCH_CHECK(!IsIntOrBool(self.dtype()),
                "std and var only support floating point and complex dtypes");
    return ReducedShape(self, WrapDims(dims, self.rank()), keepdim).with(RealPart(self.dtype()));
  }
  static Value Lower(const Shape& out, Value self, MaybeDims dims, std::optional<Number> correction,
                     bool) {
    Moments m(Widen(self), WrapDims(dims, self.rank()), correction);
    Value y = kStd ? hlo::Sqrt(m.var) : m.var;
    return hlo::ConvertTo(hlo::Reshape(y, out.dims), out.dtype);
  }
};

template <bool kStd>
struct VarMean {
  static std::array<Shape, 2> Infer(const Arg& self, MaybeDims dims, const MaybeScalar& correction,
                                    bool keepdim) {
    TORCH_CHECK(!IsIntOrBool(self.dtype()), kStd ? "std_mean" : "var_mean",
                " only support floating point and complex dtypes");
    Shape out = Var<kStd>::Infer(self, dims, correction, keepdim);
    return {out, out.with(self.dtype())};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, MaybeDims dims,
                                    std::optional<Number> correction, bool) {
    Moments m(Widen(self), WrapDims(dims, self.rank()), correction);
    Value y = kStd ? hlo::Sqrt(m.var) : m.var;
    return {hlo::ConvertTo(hlo::Reshape(y, out[0].dims), out[0].dtype),
            hlo::ConvertTo(hlo::Reshape(m.mean, out[1].dims), out[1].dtype)};
  }
};

// ---- logsumexp and norms

struct Logsumexp {
  static Shape Infer(const Arg& self, Span dims, bool keepdim) {
    Shape out = ReducedShape(self, WrapDims(dims, self.rank()), keepdim);
    return out.with(ToFloat(self.dtype()));
  }
  static Value Lower(const Shape& out, Value self, Span dims, bool) {
    Dims reduced = WrapDims(dims, self.rank());
    Value x = hlo::ConvertTo(self, Wide(out.dtype));
    Value real = hlo::Real(x);
    Value high = hlo::Reduce(real, reduced, Reducer::kMax);
    high = Where(IsInf(high), 0, high);
    if (IsComplex(x.dtype())) high = hlo::ConvertTo(high, x.dtype());
    Value e = hlo::Exp(hlo::Sub(x, AlongKept(high, x, reduced)));
    Value y = hlo::Add(hlo::Log(hlo::Reduce(e, reduced, Reducer::kSum)), high);
    return hlo::ConvertTo(hlo::Reshape(y, out.dims), out.dtype);
  }
};

// The p-norm over `dims` of the absolute values of x.
Value NormOf(Value x, const Dims& dims, double p) {
  Value a = p == 2 && !IsComplex(x.dtype()) ? x : hlo::Abs(x);
  if (p == 2) return hlo::Sqrt(hlo::Reduce(Square(a), dims, Reducer::kSum));
  if (p == 1) return hlo::Reduce(a, dims, Reducer::kSum);
  if (p == HUGE_VAL) return MaxOrZero(a, dims);
  if (p == -HUGE_VAL) return hlo::Reduce(a, dims, Reducer::kMin);
  if (p == 0) {
    Value some = hlo::ConvertTo(hlo::Ne(a, FullLike(a, 0)), a.dtype());
    return hlo::Reduce(some, dims, Reducer::kSum);
  }
  Value sum = hlo::Reduce(hlo::Pow(a, FullLike(a, p)), dims, Reducer::kSum);
  return hlo::Pow(sum, FullLike(sum, 1 / p));
}

struct VectorNorm {
  static Shape Infer(const Arg& self, const at::Scalar& ord, MaybeDims dims, bool keepdim,
                     MaybeDType dtype) {
    DType t = dtype.value_or(self.dtype());
    TORCH_CHECK(!IsIntOrBool(self.dtype()),
                "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
                ToScalarType(self.dtype()));
    TORCH_CHECK(!IsIntOrBool(t), "linalg.vector_norm: dtype should be floating point or complex, "
                "but got ", ToScalarType(t));
    XLA_CHECK(!dtype || IsComplex(t) == IsComplex(self.dtype()), kInvalidArgument,
              "linalg.vector_norm: dtype should be of the kind of the input's");
    TORCH_CHECK(!ord.isComplex(),
              "linalg.vector_norm: Expected a non-complex scalar as the order of norm.");
    Dims reduced = WrapDims(dims, self.rank());
    double p = ord.to<double>();
    for (int64_t d : reduced) {
      if ((p >= 0 && p != HUGE_VAL) || self.rank() == 0 || self.dim(d) != 0) continue;
      TORCH_CHECK(dims && !dims->empty(), "linalg.vector_norm cannot compute the ", p,
                  " norm on an empty tensor because the operation does not have an identity");
      TORCH_CHECK(false, "linalg.vector_norm cannot compute the ", p, " norm on the dimension ", d,
                  " because this dimension is empty and the operation does not have an identity");
    }
    return ReducedShape(self, reduced, keepdim).with(RealPart(t));
  }
  static Value Lower(const Shape& out, Value self, Number ord, MaybeDims dims, bool,
                     MaybeDType dtype) {
    Dims reduced = WrapDims(dims, self.rank());
    Value x = hlo::ConvertTo(self, dtype.value_or(self.dtype()));
    Value y = NormOf(Widen(x), reduced, ord.real());
    return hlo::ConvertTo(hlo::Reshape(y, out.dims), out.dtype);
  }
};

struct NormDtype {
  static Shape Infer(const Arg& self, const MaybeScalar& p, Span dims, bool keepdim, DType dtype) {
    XLA_CHECK(!IsIntOrBool(dtype), kInvalidArgument,
              "norm(): the desired output dtype should be "
              "either floating point or complex.");
    return VectorNorm::Infer(Arg(self.shape().with(dtype), false), p.value_or(2), dims, keepdim,
                             {});
  }
  static Value Lower(const Shape& out, Value self, std::optional<Number> p, Span dims, bool keepdim,
                     DType dtype) {
    Number two{DType::kS64, 0, 0, 2};
    return VectorNorm::Lower(out, hlo::ConvertTo(self, dtype), p.value_or(two), dims, keepdim, {});
  }
};

struct NormDim {
  static Shape Infer(const Arg& self, const MaybeScalar& p, Span dims, bool keepdim) {
    TORCH_CHECK(!IsIntOrBool(self.dtype()),
                "norm(): input dtype should be either floating point or complex. Got ",
                ToScalarType(self.dtype()), " instead.");
    return VectorNorm::Infer(self, p.value_or(2), dims, keepdim, {});
  }
  static Value Lower(const Shape& out, Value self, std::optional<Number> p, Span dims,
                     bool keepdim) {
    return NormDtype::Lower(out, self, p, dims, keepdim, self.dtype());
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<sum, SumAll>(m);
  Register<sum_dim_IntList, Sum>(m);
  Register<nansum, Nansum>(m);
  Register<mean, MeanAll>(m);
  Register<mean_dim, Mean>(m);
  Register<prod, Prod>(m);
  Register<prod_dim_int, ProdDim>(m);
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
  Register<var_correction, Var<false>>(m);
  Register<std_correction, Var<true>>(m);
  Register<var_mean_correction, VarMean<false>>(m);
  Register<std_mean_correction, VarMean<true>>(m);
  Register<logsumexp, Logsumexp>(m);
  Register<linalg_vector_norm, VectorNorm>(m);
  Register<norm_ScalarOpt_dim, NormDim>(m);
  Register<norm_ScalarOpt_dim_dtype, NormDtype>(m);
}

}  // namespace torch_xla::ops
