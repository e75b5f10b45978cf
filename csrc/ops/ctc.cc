// Connectionist temporal classification: the likelihood of all alignments of a target, in log
// space, by one loop over time forwards and one backwards. Lengths are inputs of the graph.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward_ops.h>
#include <ATen/ops/_ctc_loss_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/ctc_loss_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "hlo/control.h"
#include "ops/math.h"
#include "ops/scatter_dim.h"
#include "ops/step_rows.h"

namespace torch_xla::ops {
namespace {

constexpr double kNothing = -HUGE_VAL;  // the logarithm of probability 0

using Values = std::span<const Value>;

// targets[n, s] interleaved with blanks: labels[n, 2 s + 1], and where a label may follow the one
// two places before it, which is no blank and another label.
struct Alignment {
  Value labels, skips;
  int64_t steps, batch, places;

  Alignment(Value log_probs, Value targets, int64_t blank)
      : steps(log_probs.dim(0)), batch(log_probs.dim(1)), places(2 * targets.dim(1) + 1) {
    Builder& b = targets.builder();
    targets = hlo::ConvertTo(targets, DType::kS64);
    Value blanks = hlo::FullInt(b, targets.shape().with({batch, 1}), blank);
    Value spread = hlo::Pad(targets, hlo::ScalarInt(b, DType::kS64, blank), {0, 1}, {0, 1}, {0, 1});
    labels = targets.dim(1) == 0 ? blanks : spread;
    Value before = Shift(labels, 2, static_cast<double>(blank));
    Value odd = hlo::Eq(hlo::And(IotaLike(labels, 1), FullLike(labels, 1)), FullLike(labels, 1));
    skips = hlo::And(hlo::And(hlo::Ne(labels, before), odd),
                     hlo::Ge(IotaLike(labels, 1), FullLike(labels, 2)));
  }
  // x[n, place - by]; negative: from behind.
  static Value Shift(Value x, int64_t by, double fill) {
    return hlo::Pad(x, ScalarOf(x, fill), {0, by}, {0, -by}, {0, 0});
  }
  // log_probs[t, n, class] -> [t, n, place]
  Value Emissions(Value log_probs) const { return GatherAlong(log_probs, 2, Places()); }
  // The labels, for each time.
  Value Places() const { return hlo::BroadcastInDim(labels, {steps, batch, places}, {1, 2}); }
  Value AlongPlaces(Value v) const { return hlo::BroadcastInDim(v, {batch, places}, {0}); }
  Value PlaceIs(Value v) const { return hlo::Eq(IotaLike(labels, 1), AlongPlaces(v)); }
};

// state' = step(t, state) for each time, from the front or the back -> all states, and the last.
std::pair<Value, Value> Scan(Value like, Value first, bool backwards,
                             const std::function<Value(Value, Value)>& step) {
  int64_t steps = like.dim(0);
  const Value carried[] = {hlo::ScalarInt(like.builder(), DType::kS32, 0), first,
                           FullLike(like, kNothing)};
  auto cond = [&](Builder&, Values v) {
    return std::vector<Value>{hlo::Lt(v[0], FullLike(v[0], static_cast<double>(steps)))};
  };
  auto body = [&](Builder&, Values v) {
    Value t = backwards ? RSub(static_cast<double>(steps - 1), v[0]) : v[0];
    Value next = step(t, v[1]);
    return std::vector<Value>{Plus(v[0], 1), next, PutRow(v[2], t, next)};
  };
  std::vector<Value> end = hlo::While(carried, cond, body);
  return {end[2], end[1]};
}

// The logarithm of a state at a place of each row.
Value AtPlace(const Alignment& a, Value state, Value place) {
  return hlo::Reduce(Where(a.PlaceIs(place), state, kNothing), {1}, hlo::Reducer::kMax);
}

struct Ctc {
  static std::array<Shape, 2> Infer(const Arg& log_probs, const Arg& targets, const Arg&,
                                    const Arg&, int64_t, bool) {
    int64_t n = log_probs.dim(1);
    return {log_probs.shape().with(Dims{n}),
            log_probs.shape().with(Dims{n, log_probs.dim(0), 2 * targets.dim(1) + 1})};
  }
  static std::array<Value, 2> Lower(const std::vector<Shape>& out, Value log_probs, Value targets,
                                    Value input_lengths, Value target_lengths, int64_t blank,
                                    bool) {
    Alignment a(log_probs, targets, blank);
    Value emissions = a.Emissions(Widen(log_probs));
    Value place = IotaLike(a.labels, 1);
    Value ends = a.AlongPlaces(Times(target_lengths, 2));
    // Before the first time only the first two places can be entered.
    Value first = hlo::Full(a.labels.builder(), {emissions.dtype(), a.labels.dims()}, kNothing);
    auto step = [&](Value t, Value state) {
      Value start = hlo::Eq(t, FullLike(t, 0));
      Value from = LogAddExp(state, Alignment::Shift(state, 1, kNothing));
      Value skipped = Where(a.skips, Alignment::Shift(state, 2, kNothing), kNothing);
      from = LogAddExp(from, skipped);
      Value entered = Where(hlo::Lt(place, FullLike(place, 2)), FullLike(state, 0), kNothing);
      from = hlo::Select(start, entered, from);
      Value next = hlo::Add(from, RowAt(emissions, t));
      next = Where(hlo::Le(place, ends), next, kNothing);
      return hlo::Select(a.AlongPlaces(Lasts(t, input_lengths)), next, state);
    };
    auto [alphas, last] = Scan(emissions, first, /*backwards=*/false, step);
    Value end = Times(target_lengths, 2);
    Value both = LogAddExp(AtPlace(a, last, end), AtPlace(a, last, Plus(end, -1)));
    // Of no time at all only nothing is likely.
    Value none = IsZero(target_lengths);
    both = hlo::Select(IsZero(input_lengths), Where(none, FullLike(both, 0), kNothing), both);
    return {hlo::ConvertTo(hlo::Neg(both), out[0].dtype),
            hlo::ConvertTo(hlo::Transpose(alphas, {1, 0, 2}), out[1].dtype)};
  }
  static Value Lasts(Value t, Value lengths) {
    return hlo::Lt(FitTo(hlo::ConvertTo(t, lengths.dtype()), lengths), lengths);
  }
};

// exp(log_probs) less the share of each class in all alignments: the gradient of what the softmax
// was taken of, as PyTorch has it.
struct CtcBackward {
  static Shape Infer(const Arg&, const Arg& log_probs, const Arg&, const Arg&, const Arg&,
                     const Arg&, const Arg&, int64_t, bool) {
    return log_probs.shape();
  }
  static Value Lower(const Shape& out, Value grad, Value log_probs, Value targets,
                     Value input_lengths, Value target_lengths, Value nll, Value log_alpha,
                     int64_t blank, bool zero_infinity) {
    Alignment a(log_probs, targets, blank);
    Value x = Widen(log_probs);
    Value emissions = a.Emissions(x);
    Value end = Times(target_lengths, 2);
    Value ends = hlo::Or(a.PlaceIs(end), a.PlaceIs(Plus(end, -1)));
    Value first = hlo::Full(x.builder(), {x.dtype(), a.labels.dims()}, kNothing);
    Value may_skip =
        hlo::Pad(a.skips, hlo::ScalarInt(x.builder(), DType::kBool, 0), {0, -2}, {0, 2}, {0, 0});
    if (a.places < 2) may_skip = hlo::FullInt(x.builder(), a.skips.shape(), 0);
    auto step = [&](Value t, Value state) {
      Value last =
          hlo::Eq(FitTo(hlo::ConvertTo(t, DType::kS64), input_lengths), Plus(input_lengths, -1));
      Value from = LogAddExp(state, Alignment::Shift(state, -1, kNothing));
      Value skipped = Where(may_skip, Alignment::Shift(state, -2, kNothing), kNothing);
      from = LogAddExp(from, skipped);
      Value started = Where(ends, FullLike(state, 0), kNothing);
      from = hlo::Select(a.AlongPlaces(last), started, from);
      Value next = hlo::Add(from, RowAt(emissions, t));
      return Where(a.AlongPlaces(Ctc::Lasts(t, input_lengths)), next, kNothing);
    };
    Value betas = Scan(emissions, first, /*backwards=*/true, step).first;
    Value alphas = hlo::Transpose(hlo::ConvertTo(log_alpha, x.dtype()), {1, 0, 2});
    Value loss = hlo::ConvertTo(nll, x.dtype());
    auto along = [&](Value v, Value like) { return AlongDim(v, like.dims(), 1); };
    Value share = hlo::Add(hlo::Add(alphas, betas), along(loss, alphas));
    share = hlo::Exp(hlo::Sub(share, emissions));
    // Where both are impossible the emission may be so, too.
    Value possible = hlo::And(hlo::Gt(alphas, FullLike(alphas, kNothing)),
                              hlo::Gt(betas, FullLike(betas, kNothing)));
    share = Where(possible, share, 0);
    Value shares = ScatterAlong(FullLike(x, 0), 2, a.Places(), share, Combine(hlo::Reducer::kSum));
    Value dx = hlo::Mul(hlo::Sub(hlo::Exp(x), shares), along(FitTo(grad, loss), x));
    Value infinite = hlo::Eq(loss, FullLike(loss, HUGE_VAL));
    dx = Where(along(infinite, x), zero_infinity ? 0 : NAN, dx);
    Value time = IotaLike(x, 0);
    Value inside = hlo::Lt(time, along(input_lengths, x));
    return hlo::ConvertTo(Where(inside, dx, 0), out.dtype);
  }
};

using at::Tensor;

Tensor OnDeviceOf(const Tensor& like, at::IntArrayRef v) {
  return at::tensor(v, at::TensorOptions(at::kLong)).to(like.device());
}
Tensor Lengths(const Tensor& like, const Tensor& lengths) {
  return lengths.to(like.options().dtype(at::kLong));
}

// Targets as [n, longest]: those of one dimension stand behind each other.
Tensor Padded(const Tensor& targets, const Tensor& lengths, int64_t longest) {
  if (targets.dim() != 1) return targets;
  if (targets.numel() == 0) return targets.view({1, 0}).expand({lengths.size(0), 0});
  Tensor place = at::arange(longest, lengths.options()).unsqueeze(0);
  Tensor start = (lengths.cumsum(0) - lengths).unsqueeze(1);
  Tensor index = at::clamp(place + start, 0, targets.numel() - 1);
  return at::index_select(targets, 0, index.flatten()).view(index.sizes());
}

void Check(const Tensor& log_probs, const Tensor& targets, int64_t n_inputs, int64_t n_targets,
           int64_t blank) {
  constexpr const char* kWhere = " (while checking arguments for ctc_loss_allocate_outputs)";
  TORCH_CHECK(targets.scalar_type() == at::kLong || targets.scalar_type() == at::kInt,
              "Expected tensor for argument #2 'targets' to have scalar type Long; but got ",
              targets.toString(), " instead", kWhere);
  TORCH_CHECK(log_probs.dim() == 3, "Expected 3-dimensional tensor, but got ", log_probs.dim(),
              "-dimensional tensor for argument #1 'log_probs'", kWhere);
  TORCH_CHECK(targets.dim() == 1 || targets.dim() == 2, "Expected 1 to 2 dimensions, but got ",
              targets.dim(), "-dimensional tensor for argument #2 'targets'", kWhere);
  int64_t batch = log_probs.size(1);
  TORCH_CHECK(0 <= blank && blank < log_probs.size(2), "blank must be in label range");
  TORCH_CHECK(n_inputs == batch, "input_lengths must be of size batch_size");
  TORCH_CHECK(n_targets == batch, "target_lengths must be of size batch_size");
  TORCH_CHECK(targets.dim() == 1 || targets.size(0) == batch, "Expected tensor to have size ",
              batch, " at dimension 0, but got size ", targets.size(0),
              " for argument #2 'targets'", kWhere);
}

int64_t CheckLengths(const Tensor& log_probs, const Tensor& targets, at::IntArrayRef input_lengths,
                     at::IntArrayRef target_lengths, int64_t blank) {
  constexpr const char* kWhere = " (while checking arguments for ctc_loss_allocate_outputs)";
  Check(log_probs, targets, static_cast<int64_t>(input_lengths.size()),
        static_cast<int64_t>(target_lengths.size()), blank);
  int64_t longest = 0, all = 0;
  for (int64_t n : target_lengths) {
    TORCH_CHECK(n >= 0, "Expected target_lengths to have value at least ", 0, ", but got value ", n,
                kWhere);
    longest = std::max(longest, n);
    all += n;
  }
  TORCH_CHECK(targets.dim() != 1 || targets.size(0) == all, "Expected tensor to have size ", all,
              " at dimension 0, but got size ", targets.size(0), " for argument #2 'targets'",
              kWhere);
  TORCH_CHECK(targets.dim() == 1 || targets.size(1) >= longest,
              "Expected tensor to have size at least ", longest, " at dimension 1, but got size ",
              targets.dim() == 1 ? 0 : targets.size(1), " for argument #2 'targets'", kWhere);
  for (int64_t n : input_lengths) {
    TORCH_CHECK(n >= 0, "Expected input_lengths to have value at least ", 0, ", but got value ", n,
                kWhere);
    TORCH_CHECK(n <= log_probs.size(0), "Expected input_lengths to have value at most ",
                log_probs.size(0), ", but got value ", n, kWhere);
  }
  return longest;
}

// Recorded without the comparison with the meta kernel, which has tighter padding of log_alpha.
std::tuple<Tensor, Tensor> Record(const Tensor& log_probs, const Tensor& targets,
                                  const Tensor& input_lengths, const Tensor& target_lengths,
                                  int64_t blank, bool zero_infinity) {
  using Kernel = record::Kernel<at::_ops::_ctc_loss_Tensor, Ctc>;
  CheckImplemented(log_probs.is_floating_point(), "ctc_loss_cpu", ToDType(log_probs.scalar_type()));
  record::Recording r(Kernel::Op());
  Kernel::Code::Encode(r, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
  int device = r.device();
  auto shapes = Kernel::Code::Infer<Ctc>(r, log_probs, targets, input_lengths, target_lengths,
                                         blank, zero_infinity);
  Ref<ir::Node> node = r.Finish(shapes);
  return {Wrap(ir::Value{node, 0}, device), Wrap(ir::Value{node, 1}, device)};
}

Tensor RecordBackward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                      const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& nll,
                      const Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  using Kernel = record::Kernel<at::_ops::_ctc_loss_backward_Tensor, CtcBackward>;
  record::Recording r(Kernel::Op());
  Kernel::Code::Encode(r, grad, log_probs, targets, input_lengths, target_lengths, nll, log_alpha,
                       blank, zero_infinity);
  const Shape shapes[] = {ShapeOf(log_probs)};
  int device = r.device();
  return Wrap(ir::Value{r.Finish(shapes), 0}, device);
}

std::tuple<Tensor, Tensor> CtcLoss(const Tensor& log_probs, const Tensor& targets,
                                   at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                                   int64_t blank, bool zero_infinity) {
  int64_t longest = CheckLengths(log_probs, targets, input_lengths, target_lengths, blank);
  Tensor inputs = OnDeviceOf(log_probs, input_lengths);
  Tensor lengths = OnDeviceOf(log_probs, target_lengths);
  return Record(log_probs, Padded(targets.to(log_probs.device()), lengths, longest), inputs,
                lengths, blank, zero_infinity);
}

Tensor CtcLossBackward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                       at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                       const Tensor& nll, const Tensor& log_alpha, int64_t blank,
                       bool zero_infinity) {
  Tensor inputs = OnDeviceOf(log_probs, input_lengths);
  Tensor lengths = OnDeviceOf(log_probs, target_lengths);
  Tensor padded = Padded(targets.to(log_probs.device()), lengths, log_alpha.size(2) / 2);
  return RecordBackward(grad, log_probs, padded, inputs, lengths, nll, log_alpha, blank,
                        zero_infinity);
}

// Lengths on the device are not looked at.
std::tuple<Tensor, Tensor> CtcLossOfTensors(const Tensor& log_probs, const Tensor& targets,
                                            const Tensor& input_lengths,
                                            const Tensor& target_lengths, int64_t blank,
                                            bool zero_infinity) {
  Check(log_probs, targets, input_lengths.numel(), target_lengths.numel(), blank);
  Tensor lengths = Lengths(log_probs, target_lengths);
  Tensor padded = Padded(targets.to(log_probs.device()), lengths, targets.size(-1));
  return Record(log_probs, padded, Lengths(log_probs, input_lengths), lengths, blank,
                zero_infinity);
}

Tensor CtcLossOfTensorsBackward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                                const Tensor& input_lengths, const Tensor& target_lengths,
                                const Tensor& nll, const Tensor& log_alpha, int64_t blank,
                                bool zero_infinity) {
  Tensor lengths = Lengths(log_probs, target_lengths);
  Tensor padded = Padded(targets.to(log_probs.device()), lengths, targets.size(-1));
  return RecordBackward(grad, log_probs, padded, Lengths(log_probs, input_lengths), lengths, nll,
                        log_alpha, blank, zero_infinity);
}

// Lengths that are on the device stay there: torch's composite would wait for them.
Tensor CtcLossReduced(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                      const Tensor& target_lengths, int64_t blank, int64_t reduction,
                      bool zero_infinity) {
  if (!IsXla(log_probs) || !IsXla(input_lengths) || !IsXla(target_lengths)) {
    return at::native::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction,
                                zero_infinity);
  }
  bool batch = log_probs.dim() == 3;
  Tensor loss = std::get<0>(at::_ctc_loss(batch ? log_probs : log_probs.unsqueeze(1), targets,
                                          input_lengths.reshape({-1}), target_lengths.reshape({-1}),
                                          blank, zero_infinity));
  if (zero_infinity) loss = loss.masked_fill(at::isinf(loss), 0);
  constexpr int64_t kMean = 1, kSum = 2;
  if (reduction == kMean) {
    return (loss / at::clamp_min(Lengths(loss, target_lengths.reshape({-1})), 1)).mean();
  }
  if (reduction == kSum) return loss.sum();
  return batch ? loss : loss.squeeze(0);
}

}  // namespace

XLA_OPS(m) {
  m.impl("_ctc_loss", TORCH_FN(CtcLoss));
  m.impl("_ctc_loss.Tensor", TORCH_FN(CtcLossOfTensors));
  m.impl("_ctc_loss_backward", TORCH_FN(CtcLossBackward));
  m.impl("_ctc_loss_backward.Tensor", TORCH_FN(CtcLossOfTensorsBackward));
  m.impl("ctc_loss.Tensor", TORCH_FN(CtcLossReduced));
}
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("ctc_loss.Tensor", TORCH_FN(CtcLossReduced)); }

}  // namespace torch_xla::ops
