// logsumexp and norms over dimensions.
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/logsumexp_ops.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/renorm_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

using hlo::Reducer;
using MaybeDims = std::optional<Span>;
using MaybeDType = std::optional<DType>;
using MaybeScalar = std::optional<at::Scalar>;

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
    TORCH_CHECK(!IsIntOrBool(t),
                "linalg.vector_norm: dtype should be floating point or complex, "
                "but got ",
                ToScalarType(t));
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

// ---- renorm: slices of a larger norm than maxnorm are scaled down to it.

struct Renorm {
  static Shape Infer(const Arg& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm) {
    TORCH_CHECK(!p.isComplex(), "renorm: p must be real-valued");
    TORCH_CHECK(p.toDouble() > 0.0, "renorm: non-positive-norm not supported");
    TORCH_CHECK(!maxnorm.isComplex(), "renorm: maxnorm must be real-valued");
    TORCH_CHECK(maxnorm.toDouble() >= 0.0, "renorm: expected maxnorm to be >= 0 but got ",
                maxnorm.toDouble());
    TORCH_CHECK(self.rank() > 1, "renorm: input needs at least 2 dimensions, got ", self.rank(),
                " dimensions");
    WrapDim(dim, self.rank());
    return self.shape();
  }
  static Value Lower(const Shape& out, Value self, Number p, int64_t dim, Value maxnorm) {
    Value x = Widen(self);
    Dims others = WrapDims({}, x.rank());
    others.erase(static_cast<size_t>(WrapDim(dim, x.rank())));
    Value norm = NormOf(x, others, p.real());
    Value limit = FitTo(maxnorm, norm);
    Value factor = hlo::Div(limit, Plus(norm, 1e-7));
    factor = Where(hlo::Gt(norm, limit), factor, 1);
    factor = AlongKept(hlo::ConvertTo(factor, x.dtype()), x, others);
    return hlo::ConvertTo(hlo::Mul(x, factor), out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<logsumexp, Logsumexp>(m);
  Register<linalg_vector_norm, VectorNorm>(m);
  Register<norm_ScalarOpt_dim, NormDim>(m);
  Register<norm_ScalarOpt_dim_dtype, NormDtype>(m);
  Register<renorm, Renorm>(m);
}

}  // namespace torch_xla::ops
