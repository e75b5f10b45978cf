// Reductions. Float16 and bfloat16 accumulate in float32, as in PyTorch.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/hash_tensor_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/trace_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

#include "aten/autograd.h"
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

// At the autograd key. Torch's own gradient looks for zeros, and waits; that of a product of
// halves needs no division.
at::Tensor ProductOfHalves(at::Tensor x, int64_t dim) {
  while (x.size(dim) > 1) {
    int64_t half = x.size(dim) / 2;
    at::Tensor y = x.narrow(dim, 0, half).mul(x.narrow(dim, half, half));
    x = x.size(dim) % 2 == 0 ? y : at::cat({y, x.narrow(dim, 2 * half, 1)}, dim);
  }
  return x.squeeze(dim);
}

at::Tensor ProdDimGrad(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim, bool keepdim,
                       std::optional<at::ScalarType> dtype) {
  if (!HasGradient(self) || self.dim() == 0) {
    return at::_ops::prod_dim_int::redispatch(ToTorchAutograd(keys), self, dim, keepdim, dtype);
  }
  at::ScalarType to = dtype.value_or(self.scalar_type());
  if (self.size(dim) == 0) return self.sum(dim, keepdim, dtype).add(1);
  at::Tensor y =
      ProductOfHalves(self.to(c10::isReducedFloatingType(to) ? at::kFloat : to), dim).to(to);
  return keepdim ? y.unsqueeze(c10::maybe_wrap_dim(dim, self.dim())) : y;
}

at::Tensor ProdGrad(c10::DispatchKeySet keys, const at::Tensor& self,
                    std::optional<at::ScalarType> dtype) {
  if (!HasGradient(self) || self.dim() == 0) {
    return at::_ops::prod::redispatch(ToTorchAutograd(keys), self, dtype);
  }
  return ProdDimGrad(keys, self.flatten(), 0, false, dtype);
}

// ---- var and std

struct Moments {
  Value mean, var;  // without the reduced dimensions

  Moments(Value x, const Dims& dims, const std::optional<Value>& correction) {
    mean = MeanOf(x, dims);
    Value delta = hlo::Sub(x, AlongKept(mean, x, dims));
    Value square = IsComplex(x.dtype())
                       ? hlo::Add(Square(hlo::Real(delta)), Square(hlo::Imag(delta)))
                       : Square(delta);
    Value sum = hlo::Reduce(square, dims, Reducer::kSum);
    auto n = static_cast<double>(CountOf(x, dims));
    Value count = FullLike(sum, std::max(n - 1, 0.0));
    if (correction) {
      Value c = hlo::ConvertTo(*correction, sum.dtype());
      c = hlo::Max(RSub(n, c), FullLike(c, 0));
      count = hlo::BroadcastTo(c, sum.dims());
    }
    var = hlo::Div(sum, count);
  }
};

using MaybeScalar = std::optional<at::Scalar>;

Shape VarShape(const char* name, const Arg& self, MaybeDims dims, const MaybeScalar& correction,
               bool keepdim) {
  bool both = std::string_view(name).ends_with("mean");
  TORCH_CHECK(!IsIntOrBool(self.dtype()), both ? name : "std and var",
              " only support floating point and complex dtypes");
  Dims reduced = WrapDims(dims, self.rank());
  int64_t n = 1;
  for (int64_t d : reduced) n *= self.rank() == 0 ? 1 : self.dim(d);
  if (n - (correction ? correction->to<double>() : 1) <= 0) {
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the "
               "reduction factor (input numel divided by output numel).");
  }
  return ReducedShape(self, reduced, keepdim).with(RealPart(self.dtype()));
}

template <bool kStd>
struct Var {
  static Shape Infer(const Arg& self, MaybeDims dims, const MaybeScalar& correction, bool keepdim) {
    return VarShape(kStd ? "std" : "var", self, dims, correction, keepdim);
  }
  static Value Lower(const Shape& out, Value self, MaybeDims dims, std::optional<Value> correction,
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
    Shape out = VarShape(kStd ? "std_mean" : "var_mean", self, dims, correction, keepdim);
    return {out, out.with(self.dtype())};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value self, MaybeDims dims,
                                    std::optional<Value> correction, bool) {
    Moments m(Widen(self), WrapDims(dims, self.rank()), correction);
    Value y = kStd ? hlo::Sqrt(m.var) : m.var;
    return {hlo::ConvertTo(hlo::Reshape(y, out[0].dims), out[0].dtype),
            hlo::ConvertTo(hlo::Reshape(m.mean, out[1].dims), out[1].dtype)};
  }
};

// ---- trace

struct Trace {
  static Shape Infer(const Arg& self) {
    TORCH_CHECK(self.rank() == 2, "trace: expected a matrix, but got tensor with dim ",
                self.rank());
    return {SumType(self, {}), {}};
  }
  static Value Lower(const Shape& out, Value self) {
    Shape index = self.shape().with(DType::kS32);
    Builder& b = self.builder();
    Value diagonal = hlo::Eq(hlo::Iota(b, index, 0), hlo::Iota(b, index, 1));
    return ReduceIn(out, Where(diagonal, self, 0), {0, 1}, Reducer::kSum);
  }
};

// The exclusive or of all bits, of floats as float64.
struct HashTensor {
  static Shape Infer(const Arg& self, Span dims, bool keepdim, int64_t mode) {
    Dims reduced = WrapDims(dims, self.rank());
    CheckImplemented(!IsComplex(self.dtype()), "hash_tensor_cpu", self.dtype());
    XLA_CHECK(mode == 0 && (self.numel() != 0 || !dims.empty()), kInvalidArgument,
              "hash_tensor: mode ", mode, " of a tensor of ", self.numel(), " elements");
    return ReducedShape(self, reduced, keepdim).with(DType::kU64);
  }
  static Value Lower(const Shape& out, Value self, Span dims, bool, int64_t) {
    Value x = IsFloat(self.dtype())
                  ? hlo::BitcastConvert(hlo::ConvertTo(self, DType::kF64), DType::kU64)
                  : hlo::ConvertTo(self, DType::kU64);
    Value zero = hlo::FullInt(x.builder(), {DType::kU64, {}}, 0);
    auto combine = [](Builder&, std::span<const Value> v) {
      return std::vector<Value>{hlo::Xor(v[0], v[1])};
    };
    Value y =
        hlo::Reduce(std::span(&x, 1), std::span(&zero, 1), WrapDims(dims, self.rank()), combine)[0];
    return hlo::Reshape(y, out.dims);
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
  Register<var_correction, Var<false>>(m);
  Register<std_correction, Var<true>>(m);
  Register<var_mean_correction, VarMean<false>>(m);
  Register<std_mean_correction, VarMean<true>>(m);
  Register<trace, Trace>(m);
  Register<hash_tensor, HashTensor>(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("prod", TORCH_FN(ProdGrad));
  m.impl("prod.dim_int", TORCH_FN(ProdDimGrad));
}

}  // namespace torch_xla::ops
