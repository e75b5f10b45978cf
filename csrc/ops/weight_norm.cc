// weight_norm: v scaled to the norm g along every slice of one dimension, and its gradients.
#include <ATen/ops/_weight_norm_interface_backward_ops.h>
#include <ATen/ops/_weight_norm_interface_ops.h>

#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

struct WeightNorm {
  static std::array<Shape, 2> Infer(const Arg& v, const Arg& g, int64_t dim) {
    XLA_CHECK(v.rank() > 0 && (dim == 0 || dim == v.rank() - 1) && g.numel() == v.dim(dim) &&
                  v.dtype() == g.dtype(),
              kInvalidArgument, "weight_norm: g of ", ToString(g.dims()), " does not fit v of ",
              ToString(v.dims()), " along dimension ", dim);
    return {v.shape(), g.shape().with(Wide(g.dtype()))};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value v, Value g, int64_t dim) {
    Value x = Widen(v);
    Value norm = hlo::Sqrt(Sum(Square(x), AllBut(x.rank(), dim)));
    Value scale = hlo::Div(hlo::Reshape(Widen(g), norm.dims()), norm);
    Value w = hlo::Mul(x, AlongDim(scale, x.dims(), dim));
    return {hlo::ConvertTo(w, out[0].dtype), hlo::Reshape(norm, out[1].dims)};
  }
};

struct WeightNormBackward {
  static std::array<Shape, 2> Infer(const Arg&, const Arg& v, const Arg& g, const Arg&, int64_t) {
    return {v.shape(), g.shape()};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value grad, Value v, Value g,
                                    Value norms, int64_t dim) {
    Value x = Widen(v), dw = FitTo(grad, x);
    Value sum = Sum(hlo::Mul(dw, x), AllBut(x.rank(), dim));
    Value norm = hlo::Reshape(hlo::ConvertTo(norms, x.dtype()), sum.dims());
    Value length = hlo::Reshape(Widen(g), sum.dims());
    Value dg = hlo::Div(sum, norm);
    auto along = [&](Value s) { return AlongDim(s, x.dims(), dim); };
    // Without the part along v.
    Value across = hlo::Sub(dw, hlo::Mul(x, along(hlo::Div(dg, norm))));
    Value dv = hlo::Mul(along(hlo::Div(length, norm)), across);
    return {hlo::ConvertTo(dv, out[0].dtype),
            hlo::Reshape(hlo::ConvertTo(dg, out[1].dtype), out[1].dims)};
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_weight_norm_interface, WeightNorm>(m);
  Register<at::_ops::_weight_norm_interface_backward, WeightNormBackward>(m);
}

}  // namespace torch_xla::ops
