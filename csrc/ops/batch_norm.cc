// Batch normalisation. Training also writes the running statistics, so these kernels are written by
// hand around the recorder. Statistics are kept in float32 for half types.
#include <ATen/native/Resize.h>
#include <ATen/ops/_batch_norm_no_update_ops.h>
#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_native_batch_norm_legit_no_training_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/batch_norm_backward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>

#include "aten/ops_util.h"
#include "ops/lowering.h"
#include "ops/norm_types.h"

namespace torch_xla::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// A vector of channels along dimension 1 of x, in x's type.
Value Channels(Value v, Value x) {
  return AlongDim(hlo::ConvertTo(v, x.dtype()), x.dims(), x.rank() == 1 ? 0 : 1);
}
Value SumOverBatch(Value x) { return Sum(x, AllBut(x.rank(), 1)); }

// The node of every forward form: y, mean and invstd (in evaluation of no elements, as on CPU),
// then in training the new running mean and variance where they are given.
struct BatchNorm {
  static std::vector<Shape> Infer(const Arg& x, const Arg* weight, const Arg* bias,
                                  const Arg* running_mean, const Arg* running_var, bool training,
                                  double, double) {
    CheckNormTypes(x, {weight, bias, running_mean, running_var});
    Shape stats{Wide(x.dtype()), {training ? x.dim(1) : 0}};
    std::vector<Shape> shapes{x.shape(), stats, stats};
    if (training && running_mean) shapes.push_back(running_mean->shape());
    if (training && running_var) shapes.push_back(running_var->shape());
    return shapes;
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value x,
                                  std::optional<Value> weight, std::optional<Value> bias,
                                  std::optional<Value> running_mean,
                                  std::optional<Value> running_var, bool training, Value momentum,
                                  double eps) {
    x = Widen(x);
    double n = static_cast<double>(x.shape().numel()) / static_cast<double>(x.dim(1));
    Value mean, var;
    if (training) {
      mean = Times(SumOverBatch(x), 1 / n);
      var = Times(SumOverBatch(Square(hlo::Sub(x, Channels(mean, x)))), 1 / n);
    } else {
      mean = hlo::ConvertTo(*running_mean, x.dtype());
      var = hlo::ConvertTo(*running_var, x.dtype());
    }
    Value invstd = hlo::Rsqrt(Plus(var, eps));
    Value scale = weight ? hlo::Mul(invstd, hlo::ConvertTo(*weight, x.dtype())) : invstd;
    Value y = hlo::Mul(hlo::Sub(x, Channels(mean, x)), Channels(scale, x));
    if (bias) y = hlo::Add(y, Channels(*bias, x));
    std::vector<Value> results{hlo::ConvertTo(y, out[0].dtype)};
    if (!training) {
      Value none = hlo::Full(x.builder(), out[1], 0);
      return {results[0], none, none};
    }
    results.push_back(mean);
    results.push_back(invstd);
    if (running_mean) results.push_back(Moved(*running_mean, mean, momentum));
    if (running_var) {
      // Of one value per channel: 0 / 0, as on CPU.
      results.push_back(Moved(*running_var, Times(var, n / (n - 1)), momentum));
    }
    return results;
  }

 private:
  static Value Moved(Value running, Value now, Value momentum) {
    Value m = FitTo(momentum, now);
    Value old = hlo::Mul(RSub(1, m), hlo::ConvertTo(running, now.dtype()));
    return hlo::ConvertTo(hlo::Add(old, hlo::Mul(m, now)), running.dtype());
  }
};

struct BatchNormBackward {
  static std::vector<Shape> Infer(const Arg&, const Arg& x, const Arg* weight, const Arg*,
                                  const Arg*, const Arg*, const Arg*, bool, double,
                                  std::array<bool, 3> mask) {
    Shape parameter{weight ? weight->dtype() : x.dtype(), {x.dim(1)}};
    std::vector<Shape> shapes;
    if (mask[0]) shapes.push_back(x.shape());
    if (mask[1]) shapes.push_back(parameter);
    if (mask[2]) shapes.push_back(parameter);
    return shapes;
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value g, Value x,
                                  std::optional<Value> weight, std::optional<Value> running_mean,
                                  std::optional<Value> running_var, std::optional<Value> save_mean,
                                  std::optional<Value> save_invstd, bool training, double eps,
                                  std::array<bool, 3> mask) {
    x = Widen(x);
    g = FitTo(g, x);
    double n = static_cast<double>(x.shape().numel()) / static_cast<double>(x.dim(1));
    Value mean = hlo::ConvertTo(training ? *save_mean : *running_mean, x.dtype());
    Value invstd = training ? hlo::ConvertTo(*save_invstd, x.dtype())
                            : hlo::Rsqrt(Plus(hlo::ConvertTo(*running_var, x.dtype()), eps));
    Value xhat = hlo::Mul(hlo::Sub(x, Channels(mean, x)), Channels(invstd, x));
    Value sum_g = SumOverBatch(g);
    Value sum_gx = SumOverBatch(hlo::Mul(g, xhat));
    std::vector<Value> grads;
    if (mask[0]) {
      Value d = g;
      if (training) {
        d = hlo::Sub(d, Channels(Times(sum_g, 1 / n), x));
        d = hlo::Sub(d, hlo::Mul(xhat, Channels(Times(sum_gx, 1 / n), x)));
      }
      Value scale = weight ? hlo::Mul(invstd, hlo::ConvertTo(*weight, x.dtype())) : invstd;
      grads.push_back(hlo::Mul(d, Channels(scale, x)));
    }
    if (mask[1]) grads.push_back(sum_gx);
    if (mask[2]) grads.push_back(sum_g);
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = hlo::ConvertTo(grads[i], out[i].dtype);
    return grads;
  }
};

using Results3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Results4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

bool Given(const OptionalTensor& t) { return t.has_value() && t->defined(); }

Results3 NativeBatchNorm(const at::Tensor& input, const OptionalTensor& weight,
                         const OptionalTensor& bias, const OptionalTensor& running_mean,
                         const OptionalTensor& running_var, bool training, double momentum,
                         double eps) {
  using Kernel = record::Kernel<at::_ops::native_batch_norm, BatchNorm>;
  TORCH_CHECK(input.dim() >= 2, "batch_norm: expected an input of at least 2 dimensions, got ",
              input.dim());
  TORCH_CHECK(training || (Given(running_mean) && Given(running_var)),
              "Expected running_mean and running_var to be defined when training=False");
  for (const OptionalTensor* t : {&weight, &bias, &running_mean, &running_var}) {
    TORCH_CHECK(!Given(*t) || (*t)->numel() == input.size(1), "batch_norm: expected ",
                input.size(1), " channels, got a parameter of ", (*t)->numel());
  }
  record::Recording r(Kernel::Op());
  Kernel::Code::Encode(r, input, weight, bias, running_mean, running_var, training, momentum, eps);
  int device = r.device();
  std::vector<Shape> shapes = Kernel::Code::Infer<BatchNorm>(r, input, weight, bias, running_mean,
                                                             running_var, training, momentum, eps);
  Ref<ir::Node> node = r.Finish(shapes);
  uint32_t next = 3;
  for (const OptionalTensor* t : {&running_mean, &running_var}) {
    if (training && Given(*t)) Unwrap(**t).Write({node, next++});
  }
  return {Wrap(ir::Value{node, 0}, device), Wrap(ir::Value{node, 1}, device),
          Wrap(ir::Value{node, 2}, device)};
}

Results3 Legit(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
               at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum,
               double eps) {
  return NativeBatchNorm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Results3 LegitNoStats(const at::Tensor& input, const OptionalTensor& weight,
                      const OptionalTensor& bias, bool training, double momentum, double eps) {
  return NativeBatchNorm(input, weight, bias, {}, {}, training, momentum, eps);
}

Results3 LegitNoTraining(const at::Tensor& input, const OptionalTensor& weight,
                         const OptionalTensor& bias, const at::Tensor& running_mean,
                         const at::Tensor& running_var, double momentum, double eps) {
  return NativeBatchNorm(input, weight, bias, running_mean, running_var, false, momentum, eps);
}

Results4 WithReserve(Results3 r, const at::Tensor& input) {
  at::Tensor reserve = at::empty({0}, input.options().dtype(at::kByte));
  return {std::get<0>(r), std::get<1>(r), std::get<2>(r), reserve};
}

Results4 WithUpdate(const at::Tensor& input, const OptionalTensor& weight,
                    const OptionalTensor& bias, at::Tensor& running_mean, at::Tensor& running_var,
                    double momentum, double eps) {
  return WithReserve(
      NativeBatchNorm(input, weight, bias, running_mean, running_var, true, momentum, eps), input);
}

Results4 NoUpdate(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                  double momentum, double eps) {
  return WithReserve(
      NativeBatchNorm(input, weight, bias, running_mean, running_var, false, momentum, eps), input);
}

Results3 Backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                  const OptionalTensor& save_mean, const OptionalTensor& save_var, bool update,
                  double eps, std::array<bool, 3> mask, const at::Tensor&) {
  return record::Kernel<at::_ops::native_batch_norm_backward, BatchNormBackward>::Call(
      grad, input, weight, running_mean, running_var, save_mean, save_var, update, eps, mask);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> LegitOut(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum, double eps,
    at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  auto [y, mean, invstd] =
      Legit(input, weight, bias, running_mean, running_var, training, momentum, eps);
  for (auto& [to, from] : {std::pair(&out, &y), {&save_mean, &mean}, {&save_invstd, &invstd}}) {
    at::native::resize_output(*to, from->sizes());
    to->copy_(*from);
  }
  return {out, save_mean, save_invstd};
}

}  // namespace

XLA_OPS(m) {
  m.impl("native_batch_norm", TORCH_FN(NativeBatchNorm));
  m.impl("_native_batch_norm_legit", TORCH_FN(Legit));
  m.impl("_native_batch_norm_legit.out", TORCH_FN(LegitOut));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(LegitNoStats));
  m.impl("_native_batch_norm_legit_no_training", TORCH_FN(LegitNoTraining));
  m.impl("_batch_norm_with_update", TORCH_FN(WithUpdate));
  m.impl("_batch_norm_no_update", TORCH_FN(NoUpdate));
  m.impl("batch_norm_backward", TORCH_FN(Backward));
  Register<at::_ops::native_batch_norm_backward, BatchNormBackward>(m);
}

}  // namespace torch_xla::ops
