// Arithmetic on two or three tensors.
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/complex_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/polar_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/where_ops.h>

#include "ops/common.h"
#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

void CheckNotBool(DType a, DType b) {
  TORCH_CHECK(a != DType::kBool || b != DType::kBool,
              "Subtraction, the `-` operator, with two bool tensors is not supported. "
              "Use the `^` or `logical_xor()` operator instead.");
  TORCH_CHECK(a != DType::kBool && b != DType::kBool,
              "Subtraction, the `-` operator, with a bool tensor is not supported. "
              "If you are trying to invert a mask, use the `~` or `logical_not()` operator "
              "instead.");
}

// Sums of products PyTorch computes wide; in complex32 step by step, each rounded.
DType StepType(DType t) { return t == DType::kC32 ? t : Wide(t); }
Value Step(Value x) { return x.dtype() == DType::kC32 ? hlo::RoundToHalves(x) : x; }

// out = self + alpha * other; the sum of bools is their disjunction.
// A factor is a number of the type that PyTorch computes in. All of those hold small integers.
void CheckFactor(const at::Scalar& factor, DType t) {
  if (IsInt(t) || t == DType::kC32 || !factor.isIntegral(true)) CheckFits(factor, Wide(t));
}

template <bool kSubtract>
struct AddSub {
  static Shape Infer(const Arg& self, const Arg& other, const at::Scalar& alpha) {
    Shape out{Promote({self, other}), Broadcast({self, other})};
    TORCH_CHECK(!alpha.isFloatingPoint() || !IsIntOrBool(out.dtype),
                "For integral input tensors, argument alpha must not be a floating point number.");
    TORCH_CHECK(!alpha.isComplex() || IsComplex(out.dtype),
                "For non-complex input tensors, argument alpha must not be a complex number.");
    TORCH_CHECK(!alpha.isBoolean() || out.dtype == DType::kBool,
                "Boolean alpha only supported for Boolean results.");
    CheckFactor(alpha, out.dtype);
    if (kSubtract) CheckNotBool(self.dtype(), other.dtype());
    return out;
  }
  static Value Lower(const Shape& out, Value self, Value other, Factor alpha) {
    Shape wide = out.with(StepType(out.dtype));
    Value a = Fit(self, wide);
    Value b = Fit(other, wide);
    if (out.dtype == DType::kBool)
      return hlo::Or(a, alpha.value ? hlo::And(b, Fit(*alpha.value, out)) : b);
    if (alpha.value) b = Step(alpha.Times(b));
    return hlo::ConvertTo(kSubtract ? hlo::Sub(a, b) : hlo::Add(a, b), out.dtype);
  }
};

// out = other - alpha * self
struct Rsub {
  static Shape Infer(const Arg& self, const Arg& other, const at::Scalar& alpha) {
    return AddSub<true>::Infer(other, self, alpha);
  }
  static Value Lower(const Shape& out, Value self, Value other, Factor alpha) {
    return AddSub<true>::Lower(out, other, self, alpha);
  }
};

Value MulOrAnd(Value a, Value b) {
  return a.dtype() == DType::kBool ? hlo::And(a, b) : hlo::Mul(a, b);
}

template <auto kFn, Name kName>
struct MaxMin : Binary<kFn> {
  static Shape Infer(const Arg& a, const Arg& b) {
    Shape out = Binary<kFn>::Infer(a, b);
    TORCH_CHECK(!IsComplex(out.dtype), kName.text, " not implemented for complex tensors.");
    return out;
  }
};

// self + w * (end - self), computed from the nearer end.
Value LerpOf(Value self, Value end, Value weight) {
  Value size = IsComplex(weight.dtype()) ? hlo::Abs(weight) : weight;
  Value low = hlo::Lt(size, FullLike(size, 0.5));
  Value base = hlo::Select(low, self, end);
  Value w = hlo::Select(low, weight, Plus(weight, -1));
  return hlo::Add(base, hlo::Mul(FitTo(w, self), hlo::Sub(end, self)));
}

caffe2::TypeMeta TypeMeta(const Arg& a) {
  return c10::scalarTypeToTypeMeta(ToScalarType(a.dtype()));
}

void CheckLerpTypes(const Arg& self, const Arg& end) {
  TORCH_CHECK(self.dtype() == end.dtype(), "expected dtype ", TypeMeta(self),
              " for `end` but got dtype ", TypeMeta(end));
  CheckImplemented(!IsIntOrBool(self.dtype()), "lerp_kernel_scalar", self.dtype());
}

struct LerpScalar {
  static Shape Infer(const Arg& self, const Arg& end, const at::Scalar& weight) {
    CheckLerpTypes(self, end);
    CheckFactor(weight, self.dtype());
    return {self.dtype(), Broadcast({self, end})};
  }
  static Value Lower(const Shape& out, Value self, Value end, Value weight) {
    Shape wide = out.with(Wide(out.dtype));
    Value w = hlo::ConvertTo(weight, wide.dtype);
    return hlo::ConvertTo(LerpOf(Fit(self, wide), Fit(end, wide), w), out.dtype);
  }
};

struct LerpTensor {
  static Shape Infer(const Arg& self, const Arg& end, const Arg& weight) {
    CheckLerpTypes(self, end);
    TORCH_CHECK(self.dtype() == weight.dtype(), "expected dtype ", TypeMeta(self),
                " for `weight` but got dtype ", TypeMeta(weight));
    return {self.dtype(), Broadcast({self, end, weight})};
  }
  static Value Lower(const Shape& out, Value self, Value end, Value weight) {
    Shape wide = out.with(Wide(out.dtype));
    Value w = weight.rank() == 0 ? hlo::ConvertTo(weight, wide.dtype) : Fit(weight, wide);
    return hlo::ConvertTo(LerpOf(Fit(self, wide), Fit(end, wide), w), out.dtype);
  }
};

// out = self + value * t1 * t2, or self + value * t1 / t2.
template <bool kDivide>
struct Addc {
  static Shape Infer(const Arg& self, const Arg& t1, const Arg& t2, const at::Scalar& value) {
    // PyTorch's words, up to the double blank.
    TORCH_CHECK(!kDivide || !IsIntOrBool(t1.dtype()) || !IsIntOrBool(t2.dtype()),
                "Integer division with addcdiv is no longer supported, and in a future  release "
                "addcdiv will perform a true division of tensor1 and tensor2. The historic addcdiv "
                "behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2))"
                ".to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) "
                "for float inputs. The future addcdiv behavior is just the latter implementation: "
                "(input + value * tensor1 / tensor2), for all dtypes.");
    DType t = Promote({self, t1, t2});
    CheckImplemented(t != DType::kBool, kDivide ? "addcdiv_cpu_out" : "addcmul_cpu_out", t);
    CheckFactor(value, t);
    return {t, Broadcast({self, t1, t2})};
  }
  static Value Lower(const Shape& out, Value self, Value t1, Value t2, Factor value) {
    Shape wide = out.with(StepType(out.dtype));
    Value a = Step(value.Times(Fit(t1, wide)));
    Value b = Fit(t2, wide);
    Value product = Step(kDivide ? hlo::Div(a, b) : hlo::Mul(a, b));
    return hlo::ConvertTo(hlo::Add(Fit(self, wide), product), out.dtype);
  }
};

// The bounds are inputs; only their presence is part of the program.
Value Bounded(const Shape& out, Value self, std::optional<Value> min, std::optional<Value> max) {
  Value x = Fit(self, out);
  if (min) x = hlo::Max(x, Fit(*min, out));
  if (max) x = hlo::Min(x, Fit(*max, out));
  return x;
}

void CheckClampType(DType t) {
  TORCH_CHECK_NOT_IMPLEMENTED(!IsComplex(t), "clamp is not supported for complex types");
}

struct Clamp {
  using MaybeScalar = std::optional<at::Scalar>;
  static Shape Infer(const Arg& self, const MaybeScalar& min, const MaybeScalar& max) {
    TORCH_CHECK(min || max, "torch.clamp: At least one of 'min' or 'max' must not be None");
    Shape out = self.shape();
    for (const MaybeScalar& bound : {min, max}) {
      if (bound) out.dtype = Promote(Arg(out, self.wrapped()), *bound);
    }
    CheckClampType(out.dtype);
    for (const MaybeScalar& bound : {min, max}) {
      if (bound) CheckFits(*bound, out.dtype);
    }
    return out;
  }
  static Value Lower(const Shape& out, Value self, std::optional<Value> min,
                     std::optional<Value> max) {
    return Bounded(out, self, min, max);
  }
};

struct ClampTensor {
  static Shape Infer(const Arg& self, const Arg* min, const Arg* max) {
    TORCH_CHECK(min || max, "torch.clamp: At least one of 'min' or 'max' must not be None");
    std::vector<Arg> args{self};
    Dims dims = self.dims();
    for (const Arg* bound : {min, max}) {
      if (bound == nullptr) continue;
      args.push_back(*bound);
      dims = Broadcast(dims, bound->dims());
    }
    Shape out{Promote(std::span<const Arg>(args)), dims};
    CheckClampType(out.dtype);
    return out;
  }
  static Value Lower(const Shape& out, Value self, std::optional<Value> min,
                     std::optional<Value> max) {
    return Bounded(out, self, min, max);
  }
};

template <bool kMin>
struct ClampOne {
  static Shape Infer(const Arg& self, const at::Scalar& bound) {
    Shape out = self.shape().with(Promote(self, bound));
    CheckClampType(out.dtype);
    CheckFits(bound, out.dtype);
    return out;
  }
  static Value Lower(const Shape& out, Value self, Value bound) {
    return kMin ? Bounded(out, self, bound, {}) : Bounded(out, self, {}, bound);
  }
};

template <bool kMin>
struct ClampOneTensor {
  static Shape Infer(const Arg& self, const Arg& bound) {
    Shape out{Promote({self, bound}), Broadcast({self, bound})};
    CheckClampType(out.dtype);
    return out;
  }
  static Value Lower(const Shape& out, Value self, Value bound) {
    return kMin ? Bounded(out, self, bound, {}) : Bounded(out, self, {}, bound);
  }
};

struct WhereSelf {
  static Shape Infer(const Arg& condition, const Arg& self, const Arg& other) {
    TORCH_CHECK(condition.dtype() == DType::kBool || condition.dtype() == DType::kU8,
                "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                ToScalarType(condition.dtype()));
    return {Promote({self, other}), Broadcast({condition, self, other})};
  }
  static Value Lower(const Shape& out, Value condition, Value self, Value other) {
    return hlo::Select(Fit(condition, out.with(DType::kBool)), Fit(self, out), Fit(other, out));
  }
};

template <bool kPolar>
struct MakeComplex {
  static Shape Infer(const Arg& a, const Arg& b) {
    TORCH_CHECK((a.dtype() == DType::kF32 || a.dtype() == DType::kF64 || a.dtype() == DType::kF16),
                "Expected both inputs to be Half, Float or Double tensors but got ",
                ToScalarType(a.dtype()), " and ", ToScalarType(b.dtype()));
    TORCH_CHECK(a.dtype() == b.dtype(), "Expected object of scalar type ", ToScalarType(a.dtype()),
                " but got scalar type ", ToScalarType(b.dtype()), " for second argument");
    CheckImplemented(!kPolar || a.dtype() != DType::kF16, "polar_cpu", a.dtype());
    return {ComplexOf(a.dtype()), Broadcast({a, b})};
  }
  static Value Lower(const Shape& out, Value a, Value b) {
    Shape part = out.with(RealPart(out.dtype));
    a = Fit(a, part);
    b = Fit(b, part);
    return kPolar ? hlo::Complex(hlo::Mul(a, hlo::Cos(b)), hlo::Mul(a, hlo::Sin(b)))
                  : hlo::Complex(a, b);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::add_Tensor, AddSub<false>>(m);
  Register<at::_ops::add__Tensor, AddSub<false>>(m);
  Register<at::_ops::sub_Tensor, AddSub<true>>(m);
  Register<at::_ops::sub__Tensor, AddSub<true>>(m);
  Register<at::_ops::rsub_Tensor, Rsub>(m);
  Register<at::_ops::mul_Tensor, Binary<MulOrAnd>>(m);
  Register<at::_ops::mul__Tensor, Binary<MulOrAnd>>(m);
  Register<at::_ops::maximum, MaxMin<hlo::Max, "maximum">>(m);
  Register<at::_ops::minimum, MaxMin<hlo::Min, "minimum">>(m);
  Register<at::_ops::lerp_Scalar, LerpScalar>(m);
  Register<at::_ops::lerp__Scalar, LerpScalar>(m);
  Register<at::_ops::lerp_Tensor, LerpTensor>(m);
  Register<at::_ops::lerp__Tensor, LerpTensor>(m);
  Register<at::_ops::addcmul, Addc<false>>(m);
  Register<at::_ops::addcmul_, Addc<false>>(m);
  Register<at::_ops::addcdiv, Addc<true>>(m);
  Register<at::_ops::addcdiv_, Addc<true>>(m);
  Register<at::_ops::clamp, Clamp>(m);
  Register<at::_ops::clamp_, Clamp>(m);
  Register<at::_ops::clamp_Tensor, ClampTensor>(m);
  Register<at::_ops::clamp_min, ClampOne<true>>(m);
  Register<at::_ops::clamp_min_, ClampOne<true>>(m);
  Register<at::_ops::clamp_min_Tensor, ClampOneTensor<true>>(m);
  Register<at::_ops::clamp_max, ClampOne<false>>(m);
  Register<at::_ops::clamp_max_, ClampOne<false>>(m);
  Register<at::_ops::clamp_max_Tensor, ClampOneTensor<false>>(m);
  Register<at::_ops::where_self, WhereSelf>(m);
  Register<at::_ops::complex, MakeComplex<false>>(m);
  Register<at::_ops::polar, MakeComplex<true>>(m);
}

}  // namespace torch_xla::ops
