// Softmax, its logarithm, and their gradients. Computed in float32 at least.
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_safe_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>

#include "ops/common.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// x minus its largest element along dims.
Value Shifted(Value x, const Dims& dims) {
  return hlo::Sub(x, AlongKept(hlo::Reduce(x, dims, hlo::Reducer::kMax), x, dims));
}

Value SoftmaxOf(Value x, const Dims& dims) {
  Value e = hlo::Exp(Shifted(x, dims));
  return hlo::Div(e, AlongKept(SumOf(e, dims), e, dims));
}

Value LogSoftmaxOf(Value x, const Dims& dims) {
  Value s = Shifted(x, dims);
  return hlo::Sub(s, AlongKept(hlo::Log(SumOf(hlo::Exp(s), dims)), s, dims));
}

template <auto kFn>
struct Softmax {
  static Shape Infer(const Arg& self, int64_t dim, bool half_to_float) {
    TORCH_CHECK(!half_to_float || self.dtype() == DType::kF16 || self.dtype() == DType::kBF16,
                "conversion is supported for Half type only");
    bool last = WrapDim(dim, self.rank()) >= self.rank() - 1;
    std::string kernel = kFn == &SoftmaxOf ? "softmax" : "log_softmax";
    kernel += last ? "_lastdim_kernel_impl" : "_kernel_impl";
    CheckImplemented(IsFloat(self.dtype()), kernel.c_str(), self.dtype());
    return self.shape().with(half_to_float ? DType::kF32 : self.dtype());
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, bool) {
    Value x = Widen(self);
    return hlo::ConvertTo(kFn(x, OneDim(dim, x.rank())), out.dtype);
  }
};

// Rows of nothing but -inf are 0, not NaN.
struct SafeSoftmax {
  static Shape Infer(const Arg& self, int64_t dim, std::optional<DType> dtype) {
    WrapDim(dim, self.rank());
    return self.shape().with(dtype.value_or(self.dtype()));
  }
  static Value Lower(const Shape& out, Value self, int64_t dim, std::optional<DType>) {
    Dims dims = OneDim(dim, self.rank());
    Value x = Widen(hlo::ConvertTo(self, out.dtype));
    Value high = hlo::Reduce(x, dims, hlo::Reducer::kMax);
    Value empty = hlo::Eq(high, FullLike(high, -HUGE_VAL));
    Value e = hlo::Exp(hlo::Sub(x, AlongKept(high, x, dims)));
    e = hlo::Div(e, AlongKept(SumOf(e, dims), e, dims));
    return hlo::ConvertTo(Where(AlongKept(empty, e, dims), 0, e), out.dtype);
  }
};

template <bool kLog>
struct SoftmaxBackward {
  static Shape Infer(const Arg& grad, const Arg& output, int64_t dim, DType input_dtype) {
    WrapDim(dim, grad.rank());
    return {input_dtype, Broadcast({grad, output})};
  }
  static Value Lower(const Shape& out, Value grad, Value output, int64_t dim, DType) {
    Dims dims = OneDim(dim, output.rank());
    Value y = Widen(output);
    Value g = FitTo(grad, y);
    Value dx;
    if (kLog) {
      dx = hlo::Sub(g, hlo::Mul(hlo::Exp(y), AlongKept(SumOf(g, dims), y, dims)));
    } else {
      Value sum = SumOf(hlo::Mul(g, y), dims);
      dx = hlo::Mul(hlo::Sub(g, AlongKept(sum, y, dims)), y);
    }
    return hlo::ConvertTo(dx, out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_softmax, Softmax<SoftmaxOf>>(m);
  Register<at::_ops::_log_softmax, Softmax<LogSoftmaxOf>>(m);
  Register<at::_ops::_safe_softmax, SafeSoftmax>(m);
  Register<at::_ops::_softmax_backward_data, SoftmaxBackward<false>>(m);
  Register<at::_ops::_log_softmax_backward_data, SoftmaxBackward<true>>(m);
}

}  // namespace torch_xla::ops
