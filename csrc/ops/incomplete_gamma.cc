// The regularised incomplete gamma functions P (igamma) and Q (igammac) of a and x. As in PyTorch's
// CPU kernel: the series of P, the series and the continued fraction of Q, and N. M. Temme's
// uniform expansion where a is large and x near it; here that reaches further, so that the loops
// are short, and the common factor is computed without cancellation.
#include <ATen/ops/igamma_ops.h>
#include <ATen/ops/igammac_ops.h>

#include <algorithm>
#include <numbers>

#include "ops/common.h"
#include "ops/lowering.h"
#include "ops/math.h"
#include "ops/repeat.h"

namespace torch_xla::ops {

// From a = 10 on by Stirling's series, taken apart so that nothing large cancels (C. Loader, "Fast
// and accurate computation of binomial probabilities", 2000):
// a log(a / x) + x - a = x ((1 + d) log(1 + d) - d) with d = (a - x) / x.
Value LogPoisson(Value a, Value x) {
  Value small = hlo::Sub(hlo::Sub(hlo::Mul(a, hlo::Log(x)), x), Lgamma(Plus(a, 1)));
  Value gap = hlo::Sub(a, x), d = hlo::Div(gap, x);
  Value near = hlo::Mul(x, hlo::Sub(hlo::Mul(Plus(d, 1), hlo::Log1p(d)), d));
  Value far = hlo::Sub(hlo::Mul(a, hlo::Log(hlo::Div(a, x))), gap);
  Value deviance = hlo::Select(hlo::Lt(hlo::Abs(d), FullLike(d, 0.5)), near, far);
  Value z = hlo::Div(FullLike(a, 1), a);
  Value tail = hlo::Mul(z, Polynomial(Square(z), {1.0 / 156, -691.0 / 360360, 1.0 / 1188,
                                                  -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12}));
  Value root = Times(hlo::Log(Times(a, 2 * std::numbers::pi)), 0.5);
  Value large = hlo::Neg(hlo::Add(hlo::Add(deviance, tail), root));
  return hlo::Select(hlo::Lt(a, FullLike(a, 10)), small, large);
}

namespace {

using Values = std::vector<Value>;

// Row k: the coefficients of the powers of eta that a^-k has in Temme's expansion (DLMF 8.12.4).
constexpr double kTemme[][16] = {
    {-3.3333333333333333e-1, 8.3333333333333333e-2, -1.4814814814814815e-2, 1.1574074074074074e-3,
     3.527336860670194e-4, -1.7875514403292181e-4, 3.9192631785224378e-5, -2.1854485106799922e-6,
     -1.85406221071516e-6, 8.296711340953086e-7, -1.7665952736826079e-7, 6.7078535434014986e-9,
     1.0261809784240308e-8, -4.3820360184533532e-9, 9.1476995822367902e-10, -2.551419399494625e-11},
    {-1.8518518518518519e-3, -3.4722222222222222e-3, 2.6455026455026455e-3, -9.9022633744855967e-4,
     2.0576131687242798e-4, -4.0187757201646091e-7, -1.8098550334489978e-5, 7.6491609160811101e-6,
     -1.6120900894563446e-6, 4.6471278028074343e-9, 1.378633446915721e-7, -5.752545603517705e-8,
     1.1951628599778147e-8, -1.7543241719747648e-11, -1.0091543710600413e-9,
     4.1627929918425826e-10},
    {4.1335978835978836e-3, -2.6813271604938272e-3, 7.7160493827160494e-4, 2.0093878600823045e-6,
     -1.0736653226365161e-4, 5.2923448829120125e-5, -1.2760635188618728e-5, 3.4235787340961381e-8,
     1.3721957309062933e-6, -6.298992138380055e-7, 1.4280614206064242e-7, -2.0477098421990866e-10,
     -1.4092529910867521e-8, 6.228974084922022e-9, -1.3670488396617113e-9, 9.4283561590146782e-13},
    {6.4943415637860082e-4, 2.2947209362139918e-4, -4.6918949439525571e-4, 2.6772063206283885e-4,
     -7.5618016718839764e-5, -2.3965051138672967e-7, 1.1082654115347302e-5, -5.6749528269915966e-6,
     1.4230900732435884e-6, -2.7861080291528142e-11, -1.6958404091930277e-7, 8.0994649053880824e-8,
     -1.9111168485973654e-8, 2.3928620439808118e-12, 2.0620131815488798e-9,
     -9.4604966618551322e-10},
    {-8.618882909167117e-4, 7.8403922172006663e-4, -2.9907248030319018e-4, -1.4638452578843418e-6,
     6.6414982154651222e-5, -3.9683650471794347e-5, 1.1375726970678419e-5, 2.5074972262375328e-10,
     -1.6954149536558306e-6, 8.9075075322053097e-7, -2.2929348340008049e-7, 2.956794137544049e-11,
     2.8865829742708784e-8, -1.4189739437803219e-8, 3.4463580499464897e-9, -2.3024517174528067e-13},
    {-3.3679855336635815e-4, -6.9728137583658578e-5, 2.7727532449593921e-4, -1.9932570516188848e-4,
     6.7977804779372078e-5, 1.419062920643967e-7, -1.3594048189768693e-5, 8.0184702563342015e-6,
     -2.2914811765080952e-6, -3.252473551298454e-10, 3.4652846491085265e-7, -1.8447187191171343e-7,
     4.8240967037894181e-8, -1.7989466721743515e-14, -6.3061945000135234e-9, 3.1624176287745679e-9},
    {5.3130793646399222e-4, -5.9216643735369388e-4, 2.7087820967180448e-4, 7.9023532326603279e-7,
     -8.1539693675619688e-5, 5.6116827531062497e-5, -1.8329116582843376e-5, -3.0796134506033048e-9,
     3.4651553688036091e-6, -2.0291327396058604e-6, 5.7887928631490037e-7, 2.338630673826657e-13,
     -8.8286007463304835e-8, 4.7435958880408128e-8, -1.2545415020710382e-8, 8.6496488580102925e-14},
    {3.4436760689237767e-4, 5.1717909082605922e-5, -3.3493161081142236e-4, 2.812695154763237e-4,
     -1.0976582244684731e-4, -1.2741009095484485e-7, 2.7744451511563644e-5, -1.8263488805711333e-5,
     5.7876949497350524e-6, 4.9387589339362704e-10, -1.0595367014026043e-6, 6.1667143761104075e-7,
     -1.7562973359060462e-7, -1.2974473287015439e-12, 2.695423606288966e-8, -1.4578352908731271e-8},
    {-6.5262391859530942e-4, 8.3949872067208728e-4, -4.3829709854172101e-4, -6.969091458420552e-7,
     1.6644846642067548e-4, -1.2783517679769219e-4, 4.6299532636913043e-5, 4.5579098679227077e-9,
     -1.0595271125805195e-5, 6.7833429048651666e-6, -2.1075476666258804e-6, -1.7213731432817145e-11,
     3.7735877416110979e-7, -2.1867506700122867e-7, 6.2202288040189269e-8, 6.5977038267330006e-16}};

double Epsilon(Value x) { return x.dtype() == DType::kF64 ? 0x1p-53 : 0x1p-24; }

// Repeats `step` where `open`; it gets the number of the step, from 1 on, and the state, whose
// first value is the sum.
template <typename F>
Value Sum(Value open, const Values& state, F step) {
  return RepeatWhereOpen(open, state, 1, [&](Value number, const Values& v) {
    return step(FitTo(number, v[0]), v);
  })[0];
}

// P by its series at x = 0 (DLMF 8.11.4), without the factor.
Value LowerSeries(Value open, Value a, Value x) {
  Value one = FullLike(x, 1);
  return Sum(open, {one, one}, [&](Value k, const Values& v) {
    Value term = hlo::Mul(v[1], hlo::Div(x, hlo::Add(a, k)));
    Value sum = hlo::Add(v[0], term);
    return Round{hlo::Le(term, Times(sum, Epsilon(x))), {sum, term}};
  });
}

// Q for small x (DLMF 8.7.3).
Value UpperSeries(Value open, Value a, Value x) {
  Value zero = FullLike(x, 0), one = FullLike(x, 1);
  Value sum = Sum(open, {zero, one}, [&](Value k, const Values& v) {
    Value power = hlo::Neg(hlo::Mul(v[1], hlo::Div(x, k)));
    Value term = hlo::Div(power, hlo::Add(a, k));
    Value sum = hlo::Add(v[0], term);
    return Round{hlo::Le(hlo::Abs(term), Times(hlo::Abs(sum), Epsilon(x))), {sum, power}};
  });
  Value log = hlo::Sub(hlo::Mul(a, hlo::Log(x)), Lgamma(Plus(a, 1)));
  return hlo::Neg(hlo::Add(hlo::Expm1(log), hlo::Mul(hlo::Mul(a, hlo::Exp(log)), sum)));
}

// Q by its continued fraction (DLMF 8.9.2), without the factor.
Value UpperFraction(Value open, Value a, Value x) {
  Value one = FullLike(x, 1);
  double big = Is64(x) ? 0x1p52 : 0x1p24;
  Value z = Plus(hlo::Sub(x, a), 2);
  Value p1 = Plus(x, 1), q1 = hlo::Mul(z, x);
  Values state{hlo::Div(p1, q1), p1, q1, one, x};
  return Sum(open, state, [&](Value k, const Values& v) {
    Value y = hlo::Mul(hlo::Sub(Plus(k, 1), a), k);
    Value zk = hlo::Add(z, Times(k, 2));
    Value p = hlo::Sub(hlo::Mul(v[1], zk), hlo::Mul(v[3], y));
    Value q = hlo::Sub(hlo::Mul(v[2], zk), hlo::Mul(v[4], y));
    Value ratio = hlo::Div(p, q), none = IsZero(q);
    Value change = hlo::Abs(hlo::Div(hlo::Sub(v[0], ratio), ratio));
    Value done = hlo::And(hlo::Not(none), hlo::Le(change, FullLike(x, Epsilon(x))));
    Value scale = Where(hlo::Gt(hlo::Abs(p), FullLike(p, big)), 1 / big, one);
    auto scaled = [&](Value u) { return hlo::Mul(u, scale); };
    Values next{hlo::Select(none, v[0], ratio), scaled(p), scaled(q), scaled(v[1]), scaled(v[2])};
    return Round{done, next};
  });
}

// P and Q for large a and |x - a| < 0.3 a.
struct Both {
  Value p, q;
};
Both Temme(Value a, Value x) {
  size_t rows = Is64(x) ? 9 : 4, columns = Is64(x) ? 16 : 8;
  Value sigma = hlo::Div(hlo::Sub(x, a), a);
  // eta^2 / 2 = sigma - log(1 + sigma), near 0 by the series.
  std::vector<double> c;
  for (int k = Is64(x) ? 20 : 10; k >= 2; --k) c.push_back((k % 2 == 0 ? 1.0 : -1.0) / k);
  Value series = hlo::Mul(Polynomial(sigma, c), Square(sigma));
  Value close = hlo::Lt(hlo::Abs(sigma), FullLike(sigma, 0.1));
  Value half = hlo::Select(close, series, hlo::Sub(sigma, hlo::Log1p(sigma)));
  Value eta = CopySign(hlo::Sqrt(Times(half, 2)), sigma);
  Value inverse = hlo::Div(FullLike(a, 1), a), sum;
  for (size_t k = rows; k-- > 0;) {
    std::vector<double> row(kTemme[k], kTemme[k] + columns);
    std::reverse(row.begin(), row.end());
    Value ck = Polynomial(eta, row);
    sum = k + 1 == rows ? ck : hlo::Add(hlo::Mul(sum, inverse), ck);
  }
  Value rest = hlo::Mul(hlo::Exp(hlo::Neg(hlo::Mul(a, half))), sum);
  rest = hlo::Div(rest, hlo::Sqrt(Times(a, 2 * std::numbers::pi)));
  Value t = hlo::Mul(eta, hlo::Sqrt(Times(a, 0.5)));
  return {hlo::Sub(Times(Erfc(hlo::Neg(t)), 0.5), rest), hlo::Add(Times(Erfc(t), 0.5), rest)};
}

template <bool kUpper>
Value IncompleteGamma(Value a, Value x) {
  auto lt = [](Value v, double c) { return hlo::Lt(v, FullLike(v, c)); };
  auto gt = [](Value v, double c) { return hlo::Gt(v, FullLike(v, c)); };
  Value usual =
      hlo::And(hlo::And(gt(a, 0), gt(x, 0)), hlo::And(hlo::IsFinite(a), hlo::IsFinite(x)));
  Value above = hlo::Gt(x, a);
  Value distance = hlo::Div(hlo::Abs(hlo::Sub(x, a)), a);
  Value uniform = hlo::And(gt(a, 200), lt(distance, 0.3));

  // Where Q is computed rather than P, and by its fraction rather than its series.
  Value fraction = gt(x, 1.1);
  Value small_x = hlo::Le(x, FullLike(x, 0.5));
  Value limit = hlo::Select(small_x, hlo::Div(FullLike(x, -0.4), hlo::Log(x)), Times(x, 1.1));
  Value upper = hlo::Select(fraction, hlo::Ge(x, a), hlo::Ge(limit, a));
  if (!kUpper) upper = hlo::And(gt(x, 1), above);
  Value open = hlo::And(usual, hlo::Not(uniform));
  Value open_upper = hlo::And(open, upper), open_lower = hlo::And(open, hlo::Not(upper));

  // Where the factor is 0, the rest may overflow.
  Value factor = hlo::Exp(LogPoisson(a, x)), nothing = IsZero(factor);
  open_lower = hlo::And(open_lower, hlo::Not(nothing));
  Value open_fraction = hlo::And(hlo::And(open_upper, fraction), hlo::Not(nothing));
  Value p = Where(nothing, 0, hlo::Mul(factor, LowerSeries(open_lower, a, x)));
  Value q = hlo::Mul(hlo::Mul(factor, a), UpperFraction(open_fraction, a, x));
  q = Where(nothing, 0, q);
  Value series = UpperSeries(hlo::And(open_upper, hlo::Not(fraction)), a, x);
  q = hlo::Select(fraction, q, series);
  Value y = kUpper ? hlo::Select(upper, q, RSub(1, p)) : hlo::Select(upper, RSub(1, q), p);
  Both near = Temme(a, x);
  y = hlo::Select(uniform, kUpper ? near.q : near.p, y);

  // The ends: P is 1 at infinite x and of a = 0, 0 at x = 0 and of infinite a.
  double one = kUpper ? 0 : 1;
  Value undefined = hlo::And(IsZero(a), hlo::Not(gt(x, 0)));
  undefined = hlo::Or(undefined, hlo::And(IsInf(a), IsInf(x)));
  undefined = hlo::Or(undefined, hlo::Or(LtZero(a), LtZero(x)));
  y = Where(IsInf(x), one, y);
  y = Where(hlo::Or(IsZero(x), IsInf(a)), 1 - one, y);
  y = Where(IsZero(a), one, y);
  return Where(undefined, NAN, y);
}

template <bool kUpper, Name kName>
struct Igamma : Binary<IncompleteGamma<kUpper>> {
  static Shape Infer(const Arg& a, const Arg& x) {
    Shape out = Binary<IncompleteGamma<kUpper>>::Infer(a, x);
    CheckImplemented(IsFloat(out.dtype), kName.text, out.dtype);
    return out;
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::igamma, Igamma<false, "igamma_cpu">>(m);
  Register<at::_ops::igammac, Igamma<true, "igammac_cpu">>(m);
}

}  // namespace torch_xla::ops
