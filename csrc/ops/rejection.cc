// Distributions that are drawn by rejection: gamma, Dirichlet, Poisson, binomial. A while loop runs
// until every element has accepted; each element reads its own stream of blocks, so that its number
// depends on the seed, the offset and its parameters alone. Poisson and binomial numbers are
// computed in float64, as PyTorch does.
//
// Rates and counts are not looked at: where the CPU raises for a negative or NaN rate, the number
// is NaN.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/math.h"
#include "ops/random.h"
#include "ops/repeat.h"

namespace torch_xla::ops {
namespace {

using Values = std::vector<Value>;

Value Flat(Value x, const Shape& out, DType dtype) {
  x = hlo::BroadcastTo(hlo::ConvertTo(x, dtype), out.dims);
  return hlo::Reshape(x, {out.numel()});
}

// ---- Gamma

// A gamma number is value * exp(log_scale).
struct Gamma {
  Value value, log_scale;
};

// G. Marsaglia and W. Tsang, "A simple method for generating gamma variables" (2000): d v with
// v = (1 + t)^3, t = x / sqrt(9 d) of a normal x. Below 1, a gamma number of alpha + 1 times
// u^(1 / alpha). Where alpha is no positive number: 0.
Gamma DrawGamma(const RandomBits& bits, Value alpha) {
  DType t = alpha.dtype();
  Value positive = hlo::Gt(alpha, FullLike(alpha, 0));
  Value small = hlo::Lt(alpha, FullLike(alpha, 1));
  Value d = Plus(Where(positive, hlo::Select(small, Plus(alpha, 1), alpha), 1), -1.0 / 3);
  Value c = hlo::Div(FullLike(d, 1.0 / 3), hlo::Sqrt(d));
  auto block = [&](Value step) { return bits.Block(step); };
  auto round = [&](Value step, const Values&) {
    // Two blocks a round: the normal number may need all bits of one.
    RandomBits first = block(Times(step, 2)), second = block(Plus(Times(step, 2), 1));
    Value x = first.Normal(t), u = second.OpenUniform(t);
    Value step_t = hlo::Mul(c, x), y = Plus(step_t, 1);
    Value x2 = Square(x);
    Value squeeze = hlo::Lt(u, RSub(1, Times(Square(x2), 0.0331)));
    // x^2 / 2 + d (1 - v + log(v)) without its cancellation for large d.
    Value rest = Polynomial(step_t, {-1.0 / 3, 0.5, -1, 0});
    rest = hlo::Mul(Times(d, 3), hlo::Add(hlo::Log1p(step_t), rest));
    Value accepted = hlo::Or(squeeze, hlo::Lt(hlo::Log(u), rest));
    accepted = hlo::And(accepted, hlo::Gt(y, FullLike(y, 0)));
    return Round{accepted, {hlo::Mul(y, Square(y))}};
  };
  Value v = RepeatWhereOpen(positive, {FullLike(d, 1)}, 1, round)[0];
  Value u = block(hlo::ScalarInt(d.builder(), DType::kU32, 0)).OpenUniform(t);
  Value log_scale = Where(small, hlo::Div(hlo::Log(u), alpha), 0);
  return {hlo::Mul(d, v), Where(positive, log_scale, -HUGE_VAL)};
}

double Smallest(DType t) {  // normal number
  return t == DType::kF64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

Value StandardGamma(const RandomBits& bits, Inputs in, const Shape& out) {
  Gamma g = DrawGamma(bits, Flat(in[0], out, out.dtype));
  Value x = hlo::Mul(g.value, hlo::Exp(g.log_scale));
  return hlo::Max(x, FullLike(x, Smallest(out.dtype)));
}

// Gamma numbers divided by their sum; the largest scale of a row is taken out of them first, so
// that they do not all underflow.
Value Dirichlet(const RandomBits& bits, Inputs in, const Shape& out) {
  Gamma g = DrawGamma(bits, Flat(in[0], out, out.dtype));
  Dims dims = out.dims.empty() ? Dims{1} : out.dims;
  Dims last{static_cast<int64_t>(dims.size()) - 1};
  auto spread = [&](Value row) {
    return hlo::BroadcastInDim(row, dims, Range(static_cast<int64_t>(dims.size()) - 1));
  };
  Value scale = hlo::Reshape(g.log_scale, dims);
  scale = hlo::Max(scale, FullLike(scale, -hlo::MaxFinite(out.dtype)));
  scale = hlo::Sub(scale, spread(hlo::Reduce(scale, last, hlo::Reducer::kMax)));
  Value x = hlo::Mul(hlo::Reshape(g.value, dims), hlo::Exp(scale));
  x = hlo::Div(x, spread(Sum(x, last)));
  bool wide = out.dtype == DType::kF64;
  return hlo::Clamp(ScalarOf(x, Smallest(out.dtype)), x,
                    ScalarOf(x, wide ? 1 - 0x1p-53 : 1 - 0x1p-24));
}

// ---- Poisson and binomial

// What the tables of W. Hoermann's transformed rejection have in common: a candidate
// floor((2 a / us + b) u + centre) from a point of the unit square.
struct Hat {
  Value b, a, centre, squeeze;
};
struct Candidate {
  Value k, us, v, height;  // height: the hat's density there is v / height
};
Candidate Propose(const RandomBits& block, const Hat& hat) {
  Value u = Plus(RandomBits::OpenUniform(block.low(), DType::kF64), -0.5);
  Value v = RandomBits::OpenUniform(block.high(), DType::kF64);
  Value us = RSub(0.5, hlo::Abs(u));
  Value slope = hlo::Add(Times(hlo::Div(hat.a, us), 2), hat.b);
  Value k = hlo::Floor(hlo::Add(hlo::Mul(slope, u), hat.centre));
  return {k, us, v, hlo::Add(hlo::Div(hat.a, Square(us)), hat.b)};
}
Value Squeezed(const Candidate& c, const Hat& hat) {
  return hlo::And(hlo::Ge(c.us, FullLike(c.us, 0.07)), hlo::Le(c.v, hat.squeeze));
}

// Below 10, the number of uniform numbers whose product stays above exp(-rate); from there on
// W. Hoermann's PTRS ("The transformed rejection method for generating Poisson random variables",
// 1993).
Value Poisson(const RandomBits& bits, Inputs in, const Shape& out) {
  Value rate = Flat(in[0], out, DType::kF64);
  Value valid = hlo::And(hlo::Ge(rate, FullLike(rate, 0)), hlo::IsFinite(rate));
  Value small = hlo::And(valid, hlo::Lt(rate, FullLike(rate, 10)));
  Value large = hlo::And(valid, hlo::Not(small));
  Value zero = FullLike(rate, 0), one = FullLike(rate, 1);

  Value floor = hlo::Exp(hlo::Neg(Where(small, rate, 0)));
  auto multiply = [&](Value step, const Values& v) {
    RandomBits block = bits.Block(step);
    Value first = hlo::Mul(v[1], RandomBits::OpenUniform(block.low(), DType::kF64));
    Value second = hlo::Mul(first, RandomBits::OpenUniform(block.high(), DType::kF64));
    Value k = hlo::Add(v[0], Where(hlo::Gt(first, floor), one, 0));
    k = hlo::Add(k, Where(hlo::Gt(second, floor), one, 0));
    return Round{hlo::Le(second, floor), {k, second}};
  };
  Value few = RepeatWhereOpen(small, {zero, one}, 0, multiply)[0];

  Value mean = Where(large, rate, 10);
  Hat hat;
  hat.b = Plus(Times(hlo::Sqrt(mean), 2.53), 0.931);
  hat.a = Plus(Times(hat.b, 0.02483), -0.059);
  hat.centre = Plus(mean, 0.43);
  hat.squeeze = RSub(0.9277, hlo::Div(FullLike(mean, 3.6224), Plus(hat.b, -2)));
  Value inverse_alpha = Plus(hlo::Div(FullLike(mean, 1.1328), Plus(hat.b, -3.4)), 1.1239);
  auto attempt = [&](Value step, const Values&) {
    Candidate c = Propose(bits.Block(step), hat);
    Value outside = hlo::And(hlo::Lt(c.us, FullLike(c.us, 0.013)), hlo::Gt(c.v, c.us));
    outside = hlo::Or(outside, LtZero(c.k));
    Value v = hlo::Log(hlo::Div(hlo::Mul(c.v, inverse_alpha), c.height));
    Value inside = hlo::Le(v, LogPoisson(c.k, mean));
    return Round{hlo::Or(Squeezed(c, hat), hlo::And(hlo::Not(outside), inside)), {c.k}};
  };
  Value many = RepeatWhereOpen(large, {zero}, 0, attempt)[0];
  Value x = hlo::Select(small, few, many);
  // An infinite rate is its own number.
  return hlo::Select(valid, x, Where(hlo::Gt(rate, zero), rate, NAN));
}

// Of `prob` at most 1/2. Below a mean of 10, how many geometric numbers have a sum of at most
// `count`; from there on W. Hoermann's BTRS ("The generation of binomial random variates", 1993),
// with the probabilities by those of two Poisson numbers.
Value BinomialBelowHalf(const RandomBits& bits, Value active, Value count, Value prob) {
  Value mean = hlo::Mul(count, prob);
  Value large = hlo::And(active, hlo::Ge(mean, FullLike(mean, 10)));
  Value small = hlo::And(active, hlo::Lt(mean, FullLike(mean, 10)));
  Value zero = FullLike(mean, 0), one = FullLike(mean, 1);

  Value log_q = hlo::Log1p(hlo::Neg(Where(small, prob, 0.5)));
  auto skip = [&](Value step, const Values& v) {
    RandomBits block = bits.Block(step);
    auto geometric = [&](Value word) {
      return hlo::Ceil(hlo::Div(hlo::Log(RandomBits::OpenUniform(word, DType::kF64)), log_q));
    };
    Value first = hlo::Add(v[1], geometric(block.low()));
    Value second = hlo::Add(first, geometric(block.high()));
    Value k = hlo::Add(v[0], Where(hlo::Le(first, count), one, 0));
    k = hlo::Add(k, Where(hlo::Le(second, count), one, 0));
    return Round{hlo::Gt(second, count), {k, second}};
  };
  Value few = RepeatWhereOpen(small, {zero, zero}, 0, skip)[0];

  Value n = Where(large, count, 40), p = Where(large, prob, 0.5), q = RSub(1, p);
  Value np = hlo::Mul(n, p), nq = hlo::Mul(n, q);
  Value deviation = hlo::Sqrt(hlo::Mul(np, q));
  Hat hat;
  hat.b = Plus(Times(deviation, 2.53), 1.15);
  hat.a = hlo::Add(Plus(Times(hat.b, 0.0248), -0.0873), Times(p, 0.01));
  hat.centre = Plus(np, 0.5);
  hat.squeeze = RSub(0.92, hlo::Div(FullLike(n, 4.2), hat.b));
  Value alpha = hlo::Mul(Plus(hlo::Div(FullLike(n, 5.1), hat.b), 2.83), deviation);
  auto log_probability = [&](Value k) {  // less a constant
    return hlo::Add(LogPoisson(k, np), LogPoisson(hlo::Sub(n, k), nq));
  };
  Value mode = log_probability(hlo::Floor(hlo::Mul(Plus(n, 1), p)));
  auto attempt = [&](Value step, const Values&) {
    Candidate c = Propose(bits.Block(step), hat);
    Value outside = hlo::Or(LtZero(c.k), hlo::Gt(c.k, n));
    Value v = hlo::Log(hlo::Div(hlo::Mul(c.v, alpha), c.height));
    Value inside = hlo::Le(v, hlo::Sub(log_probability(c.k), mode));
    return Round{hlo::And(hlo::Not(outside), hlo::Or(Squeezed(c, hat), inside)), {c.k}};
  };
  Value many = RepeatWhereOpen(large, {zero}, 0, attempt)[0];
  return hlo::Select(large, many, few);
}

Value Binomial(const RandomBits& bits, Inputs in, const Shape& out) {
  Value count = Flat(in[0], out, DType::kF64), prob = Flat(in[1], out, DType::kF64);
  Value zero = FullLike(count, 0), one = FullLike(count, 1);
  Value never = hlo::Or(hlo::Le(count, zero), hlo::Le(prob, zero));
  Value always = hlo::Ge(prob, one);
  Value defined = hlo::And(hlo::IsFinite(count), hlo::Not(IsNan(prob)));
  Value active = hlo::And(defined, hlo::Not(hlo::Or(never, always)));
  Value flip = hlo::Gt(prob, FullLike(prob, 0.5));
  Value k = BinomialBelowHalf(bits, active, count, hlo::Select(flip, hlo::Sub(one, prob), prob));
  k = hlo::Select(flip, hlo::Sub(count, k), k);
  k = hlo::Select(active, k, FullLike(k, NAN));
  return hlo::Select(never, zero, hlo::Select(always, count, k));
}

// ---- Kernels

template <auto kFn>
at::Tensor DrawLike(const char* name, const at::Tensor& self, const Generator& generator) {
  const lazy::Tensor& tensor = Unwrap(self);
  return Wrap(Draw<kFn>(name, ShapeOf(self), tensor.device(), generator, {tensor.value()}),
              tensor.device());
}

bool IsSingleOrDouble(const at::Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
}

at::Tensor PoissonLike(const at::Tensor& rate, Generator generator) {
  CheckImplemented(rate.is_floating_point(), "poisson_cpu", ToDType(rate.scalar_type()));
  return DrawLike<Poisson>("aten::poisson", rate, generator);
}

at::Tensor StandardGammaLike(const at::Tensor& alpha, Generator generator) {
  CheckImplemented(IsSingleOrDouble(alpha), "gamma_cpu", ToDType(alpha.scalar_type()));
  return DrawLike<StandardGamma>("aten::_standard_gamma", alpha, generator);
}

at::Tensor SampleDirichlet(const at::Tensor& alpha, Generator generator) {
  CheckImplemented(IsSingleOrDouble(alpha), "dirichlet", ToDType(alpha.scalar_type()));
  return DrawLike<Dirichlet>("aten::_sample_dirichlet", alpha, generator);
}

at::Tensor BinomialOf(const at::Tensor& count, const at::Tensor& prob, Generator generator) {
  TORCH_CHECK_VALUE(
      at::isFloatingType(count.scalar_type()),
      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(
      at::isFloatingType(prob.scalar_type()),
      "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
  TORCH_CHECK(count.scalar_type() == prob.scalar_type(), "Found dtype ", prob.scalar_type(),
              " but expected ", count.scalar_type());
  CheckImplemented(IsSingleOrDouble(count), "binomial_cpu", ToDType(count.scalar_type()));
  if (!IsXla(count) || !IsXla(prob)) RaiseDeviceMismatch(count.device(), prob.device());
  const lazy::Tensor &n = Unwrap(count), &p = Unwrap(prob);
  if (n.device() != p.device()) RaiseDeviceMismatch(count.device(), prob.device());
  Shape shape = ShapeOf(count);
  shape.dims = Broadcast(shape.dims, ShapeOf(prob).dims);
  return Wrap(
      Draw<Binomial>("aten::binomial", shape, n.device(), generator, {n.value(), p.value()}),
      n.device());
}

}  // namespace

XLA_OPS(m) {
  m.impl("poisson", TORCH_FN(PoissonLike));
  m.impl("binomial", TORCH_FN(BinomialOf));
  m.impl("_standard_gamma", TORCH_FN(StandardGammaLike));
  m.impl("_sample_dirichlet", TORCH_FN(SampleDirichlet));
}

}  // namespace torch_xla::ops
