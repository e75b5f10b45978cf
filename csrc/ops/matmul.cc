// Products of matrices and vectors. matmul, linear and einsum are torch's composites over these.
#include <ATen/native/Resize.h>
#include <ATen/ops/_int_mm_ops.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/_scaled_mm_ops.h>
#include <ATen/ops/_trilinear_ops.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>
#include <ATen/ops/vdot_ops.h>

#include "aten/mutation_adapter.h"
#include "hlo/dot.h"
#include "ops/lowering.h"

namespace torch_xla {
namespace ops {

// beta: nothing is added for exactly 0, whatever self has (NaN too), so that one is static.
struct Beta {
  bool zero = false;
  Factor factor;
};

}  // namespace ops

namespace record {

template <>
struct Codec<at::Scalar, ops::Beta> {
  static bool Zero(const at::Scalar& s) { return s.equal(0.0); }
  static void Encode(Recording& r, const at::Scalar& s) {
    r.Word(Zero(s));
    if (!Zero(s)) Codec<at::Scalar, Factor>::Encode(r, s);
  }
  static const at::Scalar& Infer(InferCursor& c, const at::Scalar& s) {
    if (!Zero(s)) Codec<at::Scalar, Factor>::Infer(c, s);
    return s;
  }
  static ops::Beta Decode(Decoder& d) {
    if (d.Word() != 0) return {.zero = true, .factor = {}};
    return {.zero = false, .factor = Codec<at::Scalar, Factor>::Decode(d)};
  }
};

}  // namespace record

namespace ops {
namespace {

// What a product contracts and batches over.
struct Product {
  Span batch, lhs_contract, rhs_contract;
};
constexpr int64_t k0[] = {0}, k1[] = {1}, k2[] = {2}, k01[] = {0, 1}, k02[] = {0, 2};
constexpr Product kMm{{}, k1, k0};
constexpr Product kBmm{k0, k2, k1};
constexpr Product kAddbmm{{}, k02, k01};
constexpr Product kDot{{}, k0, k0};

void CheckSameType(const Arg& a, const Arg& b) {
  XLA_CHECK(a.dtype() == b.dtype(), kInvalidArgument,
            "expected m1 and m2 to have the same dtype, but got: ", TorchName(a.dtype()),
            " != ", TorchName(b.dtype()));
}

// Half types are summed in float32.
Value Multiply(Value a, Value b, const Product& p, std::optional<DType> result = {}) {
  const Dims batch(p.batch);
  return hlo::DotGeneral(a, b, batch, batch, Dims(p.lhs_contract), Dims(p.rhs_contract),
                         a.builder().precision(), result.value_or(Wide(a.dtype())));
}

// beta * self + alpha * product, in the type of the accumulation until the end.
Value AddScaled(const Shape& out, Value self, Value product, const Beta& beta,
                const Factor& alpha) {
  product = alpha.Times(product);
  if (!beta.zero) {
    Value s = hlo::BroadcastTo(hlo::ConvertTo(self, product.dtype()), out.dims);
    product = hlo::Add(beta.factor.Times(s), product);
  }
  return hlo::ConvertTo(product, out.dtype);
}

Shape InferMm(const Arg& a, const Arg& b) {
  XLA_CHECK(a.rank() == 2 && b.rank() == 2 && a.dim(1) == b.dim(0), kInvalidArgument,
            "mat1 and mat2 shapes cannot be multiplied");
  CheckSameType(a, b);
  return {a.dtype(), {a.dim(0), b.dim(1)}};
}

Shape InferBmm(const Arg& a, const Arg& b) {
  XLA_CHECK(a.rank() == 3 && b.rank() == 3 && a.dim(0) == b.dim(0) && a.dim(2) == b.dim(1),
            kInvalidArgument, "batch1 must be a 3D tensor and fit batch2");
  CheckSameType(a, b);
  return {a.dtype(), {a.dim(0), a.dim(1), b.dim(2)}};
}

Shape InferMv(const Arg& a, const Arg& b) {
  XLA_CHECK(a.rank() == 2 && b.rank() == 1 && a.dim(1) == b.dim(0), kInvalidArgument,
            "size mismatch, got input (", a.dim(0), "), mat (", ToString(a.dims()), "), vec (",
            ToString(b.dims()), ")");
  CheckSameType(a, b);
  return {a.dtype(), {a.dim(0)}};
}

Shape InferDot(const Arg& a, const Arg& b) {
  TORCH_CHECK(a.rank() == 1 && b.rank() == 1, "1D tensors expected, but got ", a.rank(), "D and ",
              b.rank(), "D tensors");
  TORCH_CHECK(a.dtype() == b.dtype(), "dot : expected both vectors to have same dtype, but found ",
              TorchName(a.dtype()), " and ", TorchName(b.dtype()));
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(),
              "] and src [", b.numel(), "] to have the same number of elements, but got ",
              a.numel(), " and ", b.numel(), " elements respectively");
  return {a.dtype(), {}};
}

template <auto kInfer, const Product& kProduct>
struct Matmul {
  static Shape Infer(const Arg& a, const Arg& b) { return kInfer(a, b); }
  static Value Lower(const Shape& out, Value a, Value b) {
    return hlo::ConvertTo(Multiply(a, b, kProduct), out.dtype);
  }
};

// mm.dtype and bmm.dtype: half operands, float32 result.
template <auto kInfer, const Product& kProduct>
struct MatmulTo {
  static Shape Infer(const Arg& a, const Arg& b, DType dtype) { return kInfer(a, b).with(dtype); }
  static Value Lower(const Shape& out, Value a, Value b, DType) {
    return hlo::ConvertTo(Multiply(a, b, kProduct), out.dtype);
  }
};

Shape InferAdd(const Arg& self, const Shape& out) {
  XLA_CHECK(self.dtype() == out.dtype, kInvalidArgument,
            "self and mat2 must have the same dtype, but got ", TorchName(self.dtype()), " and ",
            TorchName(out.dtype));
  CheckExpands(self.dims(), out.dims);
  return out;
}

template <auto kInfer, const Product& kProduct>
struct AddMatmul {
  static Shape Infer(const Arg& self, const Arg& a, const Arg& b, const at::Scalar&,
                     const at::Scalar&) {
    return InferAdd(self, kInfer(a, b));
  }
  static Value Lower(const Shape& out, Value self, Value a, Value b, Beta beta, Factor alpha) {
    return AddScaled(out, self, Multiply(a, b, kProduct), beta, alpha);
  }
};

template <auto kInfer, const Product& kProduct>
struct AddMatmulTo {
  static Shape Infer(const Arg& self, const Arg& a, const Arg& b, DType dtype, const at::Scalar&,
                     const at::Scalar&) {
    Shape out = kInfer(a, b).with(dtype);
    CheckExpands(self.dims(), out.dims);
    return out;
  }
  static Value Lower(const Shape& out, Value self, Value a, Value b, DType, Beta beta,
                     Factor alpha) {
    return AddScaled(out, self, Multiply(a, b, kProduct), beta, alpha);
  }
};

Shape InferAddbmm(const Arg& a, const Arg& b) {
  TORCH_CHECK(a.rank() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(b.rank() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(a.dim(0) == b.dim(0), "batch1 and batch2 must have same number of batches, got ",
              a.dim(0), " and ", b.dim(0));
  TORCH_CHECK(a.dim(2) == b.dim(1), "Incompatible matrix sizes for bmm (", a.dim(1), "x", a.dim(2),
              " and ", b.dim(1), "x", b.dim(2), ")");
  CheckSameType(a, b);
  return {a.dtype(), {a.dim(1), b.dim(2)}};
}

struct VDot {
  static Shape Infer(const Arg& a, const Arg& b) { return InferDot(a, b); }
  static Value Lower(const Shape& out, Value a, Value b) {
    if (IsComplex(a.dtype())) a = hlo::Complex(hlo::Real(a), hlo::Neg(hlo::Imag(a)));
    return hlo::ConvertTo(Multiply(a, b, kDot), out.dtype);
  }
};

struct IntMm {
  static Shape Infer(const Arg& a, const Arg& b) {
    TORCH_CHECK(a.rank() == 2 && b.rank() == 2,
                "Expected self and mat2 to be of dimension 2 but got ", a.rank(), " and ",
                b.rank());
    TORCH_CHECK(a.dtype() == DType::kS8 && b.dtype() == DType::kS8,
                "Expected self and mat2 to be of type int8 but got ", TorchName(a.dtype()), " and ",
                TorchName(b.dtype()));
    return InferMm(a, b).with(DType::kS32);
  }
  static Value Lower(const Shape& out, Value a, Value b) { return Multiply(a, b, kMm, out.dtype); }
};

// The sum over some dimensions of three factors, each stretched along its new dimensions.
struct Trilinear {
  static Dims Expanded(const Dims& dims, Span at) {
    Dims out = dims;
    for (int64_t d : at) out.insert(At(d), 1);
    return out;
  }
  static Shape Infer(const Arg& a, const Arg& b, const Arg& c, Span expand_a, Span expand_b,
                     Span expand_c, Span sum, int64_t) {
    Dims all = Broadcast(Expanded(a.dims(), expand_a), Expanded(b.dims(), expand_b));
    all = Broadcast(all, Expanded(c.dims(), expand_c));
    return {a.dtype(), ReducedDims(all, WrapDims(sum, static_cast<int64_t>(all.size())), false)};
  }
  static Value Lower(const Shape& out, Value a, Value b, Value c, Span expand_a, Span expand_b,
                     Span expand_c, Span sum, int64_t) {
    Dims da = Expanded(a.dims(), expand_a);
    Dims db = Expanded(b.dims(), expand_b);
    Dims dc = Expanded(c.dims(), expand_c);
    Dims all = Broadcast(Broadcast(da, db), dc);
    auto stretch = [&](Value x, const Dims& d) {
      return hlo::BroadcastTo(Widen(hlo::Reshape(x, d)), all);
    };
    Value product = hlo::Mul(hlo::Mul(stretch(a, da), stretch(b, db)), stretch(c, dc));
    Dims dims = WrapDims(sum, static_cast<int64_t>(all.size()));
    if (!dims.empty()) product = hlo::Reduce(product, dims, hlo::Reducer::kSum);
    return hlo::ConvertTo(product, out.dtype);
  }
};

// Products of float8 matrices, each scaled as a whole or by rows of the result's dimension.
struct ScaledMm {
  static bool Scales(const Arg& scale, const Dims& by_rows) {
    return scale.dtype() == DType::kF32 && (scale.numel() == 1 || scale.dims() == by_rows);
  }
  static Shape Infer(const Arg& a, const Arg& b, const Arg& scale_a, const Arg& scale_b,
                     const Arg* bias, const Arg*, std::optional<DType> dtype, bool) {
    TORCH_CHECK(a.rank() == 2, "mat1 must be a matrix");
    TORCH_CHECK(b.rank() == 2, "mat2 must be a matrix");
    TORCH_CHECK(a.dim(1) == b.dim(0), "mat_a and mat_b shapes cannot be multiplied (", a.dim(0),
                "x", a.dim(1), " and ", b.dim(0), "x", b.dim(1), ")");
    TORCH_CHECK(bias == nullptr || bias->numel() == b.dim(1), "Bias must be size ", b.dim(1),
                " but got ", bias == nullptr ? 0 : bias->numel());
    const bool one = scale_a.numel() == 1 && scale_b.numel() == 1;
    const bool rows = scale_a.numel() == a.dim(0) && scale_b.numel() == b.dim(1);
    TORCH_CHECK_VALUE(IsFloat8(a.dtype()) && IsFloat8(b.dtype()) && (one || rows) &&
                          Scales(scale_a, {a.dim(0), 1}) && Scales(scale_b, {1, b.dim(1)}),
                      "Invalid scaling configuration.\n"
                      "- For TensorWise scaling, a and b should be float8, scales should be float "
                      "and singletons.\n"
                      "- For RowWise scaling, a and b should be float8, scales should be float, "
                      "scale_a should be (",
                      a.dim(0), ", 1) and scale_b should be (1, ", b.dim(1), ").\nGot ",
                      TorchName(a.dtype()), ", ", TorchName(b.dtype()), ", scale_a ",
                      ToString(scale_a.dims()), ", scale_b ", ToString(scale_b.dims()));
    return {dtype.value_or(a.dtype()), {a.dim(0), b.dim(1)}};
  }
  // Compilers look for this form: operands scaled in the wider type, then multiplied.
  static Value Lower(const Shape& out, Value a, Value b, Value scale_a, Value scale_b,
                     std::optional<Value> bias, std::optional<Value> scale_result,
                     std::optional<DType> dtype, bool) {
    auto scaled = [](Value x, Value scale) {
      if (scale.shape().numel() == 1) scale = hlo::Reshape(scale, {});
      return hlo::Mul(hlo::ConvertTo(x, DType::kF32), hlo::BroadcastTo(scale, x.dims()));
    };
    Value y = Multiply(scaled(a, scale_a), scaled(b, scale_b), kMm, DType::kF32);
    if (bias) {
      Value row = hlo::Reshape(hlo::ConvertTo(*bias, DType::kF32), {out.dims[1]});
      y = hlo::Add(y, hlo::BroadcastTo(row, out.dims));
    }
    // As the CPU has it: of a float8 result that is asked for by name.
    if (scale_result && dtype && IsFloat8(*dtype)) {
      y = hlo::Div(y, hlo::BroadcastTo(hlo::Reshape(*scale_result, {}), out.dims));
    }
    return hlo::ConvertTo(y, out.dtype);
  }
};

at::Tensor ScaledMmV2(const at::Tensor& a, const at::Tensor& b, at::TensorList scale_a,
                      at::IntArrayRef recipe_a, at::IntArrayRef, at::TensorList scale_b,
                      at::IntArrayRef recipe_b, at::IntArrayRef,
                      const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> dtype,
                      at::IntArrayRef, bool fast) {
  auto known = [](at::IntArrayRef recipe) {  // whole tensors, and rows
    return recipe.size() == 1 && (recipe[0] == 0 || recipe[0] == 1);
  };
  TORCH_CHECK_NOT_IMPLEMENTED(
      known(recipe_a) && known(recipe_b) && scale_a.size() == 1 && scale_b.size() == 1,
      "_scaled_mm_v2: XLA devices scale whole tensors or rows");
  return at::_scaled_mm(a, b, scale_a[0], scale_b[0], bias, {}, dtype, fast);
}

// Torch's own writes through out's storage.
at::Tensor& MatmulOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  at::Tensor product = at::matmul(a, b);
  CheckOut(out, product);
  at::native::resize_output(out, product.sizes());
  return out.copy_(product);
}

at::Tensor& MatmulOutGrad(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  TORCH_CHECK(!at::GradMode::is_enabled() ||
                  !(a.requires_grad() || b.requires_grad() || out.requires_grad()),
              "matmul(): functions with out=... arguments don't support automatic "
              "differentiation, but one of the arguments requires grad.");
  at::AutoDispatchBelowAutograd below;
  return MatmulOut(a, b, out);
}

}  // namespace

XLA_OPS(m) {
  m.impl("matmul.out", TORCH_FN(MatmulOut));
  m.impl("_scaled_mm_v2", TORCH_FN(ScaledMmV2));
  Register<at::_ops::_scaled_mm, ScaledMm>(m);
  Register<at::_ops::mm, Matmul<InferMm, kMm>>(m);
  Register<at::_ops::bmm, Matmul<InferBmm, kBmm>>(m);
  Register<at::_ops::mv, Matmul<InferMv, kMm>>(m);
  Register<at::_ops::dot, Matmul<InferDot, kDot>>(m);
  Register<at::_ops::vdot, VDot>(m);
  Register<at::_ops::mm_dtype, MatmulTo<InferMm, kMm>>(m);
  Register<at::_ops::bmm_dtype, MatmulTo<InferBmm, kBmm>>(m);
  Register<at::_ops::_int_mm, IntMm>(m);
  Register<at::_ops::addmm, AddMatmul<InferMm, kMm>>(m);
  Register<at::_ops::addmm_, AddMatmul<InferMm, kMm>>(m);
  Register<at::_ops::baddbmm, AddMatmul<InferBmm, kBmm>>(m);
  Register<at::_ops::baddbmm_, AddMatmul<InferBmm, kBmm>>(m);
  Register<at::_ops::addmv, AddMatmul<InferMv, kMm>>(m);
  Register<at::_ops::addmv_, AddMatmul<InferMv, kMm>>(m);
  Register<at::_ops::addbmm, AddMatmul<InferAddbmm, kAddbmm>>(m);
  Register<at::_ops::addbmm_, AddMatmul<InferAddbmm, kAddbmm>>(m);
  Register<at::_ops::addmm_dtype, AddMatmulTo<InferMm, kMm>>(m);
  Register<at::_ops::baddbmm_dtype, AddMatmulTo<InferBmm, kBmm>>(m);
  Register<at::_ops::_trilinear, Trilinear>(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("matmul.out", TORCH_FN(MatmulOutGrad)); }

}  // namespace ops
}  // namespace torch_xla
