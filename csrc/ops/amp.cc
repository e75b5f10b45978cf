// Loss scaling: what torch.amp.GradScaler calls, all of it on the device.
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <ATen/ops/_amp_update_scale_ops.h>

#include "ops/lowering.h"

namespace torch_xla::ops {
namespace {

void CheckOneElement(const at::Tensor& t, const char* name, at::ScalarType type) {
  TORCH_CHECK(t.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(t.scalar_type() == type, name, " must be ", type == at::kInt ? "an int" : "a float",
              " tensor.");
}

Value AsScalar(Value x) { return hlo::Reshape(x, Dims{}); }

// One gradient: times inv_scale, and found_inf, which stays what it was unless an element is
// infinite or NaN before that.
struct Unscale {
  static std::vector<Shape> Infer(std::span<const Arg> grads, const Arg& found_inf, const Arg&) {
    CheckImplemented(IsFloat(grads[0].dtype()), "_amp_foreach_non_finite_check_and_unscale_cpu",
                     grads[0].dtype());
    return {grads[0].shape(), found_inf.shape()};
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, std::span<const Value> grads,
                                  Value found_inf, Value inv_scale) {
    Value x = Widen(grads[0]);
    Value bad = hlo::Reduce(hlo::Not(hlo::IsFinite(x)), Range(x.rank()), hlo::Reducer::kOr);
    Value found = Where(hlo::BroadcastTo(bad, found_inf.dims()), 1, found_inf);
    return {hlo::ConvertTo(hlo::Mul(x, FitTo(AsScalar(inv_scale), x)), out[0].dtype), found};
  }
};

// One node for each: a gradient that is given twice, or that shares memory with another, is
// multiplied twice.
void UnscaleAll(at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  using Kernel = record::Kernel<at::_ops::_amp_foreach_non_finite_check_and_unscale_, Unscale>;
  CheckOneElement(inv_scale, "inv_scale", at::kFloat);
  CheckOneElement(found_inf, "found_inf", at::kFloat);
  for (size_t i = 0; i < grads.size(); ++i) {
    at::TensorList one = grads.slice(i, 1);
    record::Recording r(Kernel::Op());
    Kernel::Code::Encode(r, one, found_inf, inv_scale);
    Ref<ir::Node> node = r.Finish(Kernel::Code::Infer<Unscale>(r, one, found_inf, inv_scale));
    record::WriteInPlace(one[0], {node, 0});
    record::WriteInPlace(found_inf, {node, 1});
  }
}

// Halved (say) after a step with an infinity, doubled (say) after so many without one, unless that
// would be infinite.
struct UpdateScale {
  static std::vector<Shape> Infer(const Arg& scale, const Arg& tracker, const Arg&, double, double,
                                  int64_t) {
    return {scale.shape(), tracker.shape()};
  }
  static std::vector<Value> Lower(const std::vector<Shape>& out, Value scale, Value tracker,
                                  Value found_inf, Value growth, Value backoff, Value interval) {
    Value old = AsScalar(scale), wide = hlo::ConvertTo(old, DType::kF64);
    Value grown = hlo::ConvertTo(hlo::Mul(wide, growth), old.dtype());
    Value shrunk = hlo::ConvertTo(hlo::Mul(wide, backoff), old.dtype());
    Value found = hlo::Not(IsZero(AsScalar(found_inf)));
    Value steps = Plus(hlo::ConvertTo(AsScalar(tracker), DType::kS64), 1);
    Value due = hlo::Eq(steps, interval);
    Value kept = hlo::Select(hlo::And(due, hlo::IsFinite(grown)), grown, old);
    Value next = hlo::Select(hlo::Or(found, due), FullLike(steps, 0), steps);
    return {Fit(hlo::Select(found, shrunk, kept), out[0]), Fit(next, out[1])};
  }
};

at::Tensor& UpdateScaleInPlace(at::Tensor& scale, at::Tensor& tracker, const at::Tensor& found_inf,
                               double growth, double backoff, int64_t interval) {
  using Kernel = record::Kernel<at::_ops::_amp_update_scale_, UpdateScale>;
  CheckOneElement(tracker, "growth_tracker", at::kInt);
  CheckOneElement(scale, "current_scale", at::kFloat);
  CheckOneElement(found_inf, "found_inf", at::kFloat);
  record::Recording r(Kernel::Op());
  Kernel::Code::Encode(r, scale, tracker, found_inf, growth, backoff, interval);
  Ref<ir::Node> node = r.Finish(
      Kernel::Code::Infer<UpdateScale>(r, scale, tracker, found_inf, growth, backoff, interval));
  record::WriteInPlace(scale, {node, 0});
  record::WriteInPlace(tracker, {node, 1});
  return scale;
}

}  // namespace

XLA_OPS(m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(UnscaleAll));
  m.impl("_amp_update_scale_", TORCH_FN(UpdateScaleInPlace));
}

}  // namespace torch_xla::ops
