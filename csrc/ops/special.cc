#include <cmath>
#include <numbers>
#include <vector>

#include "ops/common.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

DType BitsOf(DType t) {
  switch (ByteSize(t)) {
    case 1: return DType::kS8;
    case 2: return DType::kS16;
    case 4: return DType::kS32;
    default: return DType::kS64;
  }
}

// Rational approximations after Cephes (float64) and Eigen (float32).
Value Erf32(Value x) {
  Value inside = hlo::Lt(hlo::Abs(x), FullLike(x, 3.7439211627767994));  // erf is 1 beyond
  Value x2 = Square(x);
  Value p = Polynomial(x2, {0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861,
                            0.18520832239976145, 1.128379143519084});
  Value q = Polynomial(x2, {-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885,
                            0.014070470171167667, 0.11098505178285362, 0.49746925110067538, 1});
  return hlo::Select(inside, hlo::Div(hlo::Mul(x, p), q), hlo::Sign(x));
}

// For |x| < 1.
Value ErfSmall64(Value x) {
  Value x2 = Square(x);
  Value t =
      Polynomial(x2, {9.60497373987051638749E0, 9.00260197203842689217E1, 2.23200534594684319226E3,
                      7.00332514112805075473E3, 5.55923013010394962768E4});
  Value u = Polynomial(
      x2, {1, 3.35617141647503099647E1, 5.21357949780152679795E2, 4.59432382970980127987E3,
           2.26290000613890934246E4, 4.92673942608635921086E4});
  return hlo::Div(hlo::Mul(x, t), u);
}

Value ErfSmall32(Value x) {
  return hlo::Mul(
      x, Polynomial(Square(x), {7.853861353153693E-5, -8.010193625184903E-4, 5.188327685732524E-3,
                                -2.685381193529856E-2, 1.128358514861418E-1, -3.761262582423300E-1,
                                1.128379165726710E+0}));
}

// exp(x * x) erfc(x) for x >= 1.
Value ErfcxLarge64(Value x) {
  Value p = Polynomial(
      x, {2.46196981473530512524E-10, 5.64189564831068821977E-1, 7.46321056442269912687E0,
          4.86371970985681366614E1, 1.96520832956077098242E2, 5.26445194995477358631E2,
          9.34528527171957607540E2, 1.02755188689515710272E3, 5.57535335369399327526E2});
  Value q =
      Polynomial(x, {1, 1.32281951154744992508E1, 8.67072140885989742329E1,
                     3.54937778887819891062E2, 9.75708501743205489753E2, 1.82390916687909736289E3,
                     2.24633760818710981792E3, 1.65666309194161350182E3, 5.57535340817727675546E2});
  Value r =
      Polynomial(x, {5.64189583547755073984E-1, 1.27536670759978104416E0, 5.01905042251180477414E0,
                     6.16021097993053585195E0, 7.40974269950448939160E0, 2.97886665372100240670E0});
  Value s = Polynomial(
      x, {1, 2.26052863220117276590E0, 9.39603524938001434673E0, 1.20489539808096656605E1,
          1.70814450747565897222E1, 9.60896809063285878198E0, 3.36907645100081516050E0});
  Value small = hlo::Lt(x, FullLike(x, 8));
  Value y = hlo::Div(Where(small, p, r), Where(small, q, s));
  // Beyond, the terms overflow and the first one of the series at infinity is exact.
  Value far = hlo::Div(FullLike(x, std::numbers::inv_sqrtpi), x);
  return hlo::Select(hlo::Lt(x, FullLike(x, 1e9)), y, far);
}

Value ErfcxLarge32(Value x) {
  Value w = hlo::Div(FullLike(x, 1), Square(x));
  Value p = Polynomial(w, {2.326819970068386E-2, -1.387039388740657E-1, 3.687424674597105E-1,
                           -5.824733027278666E-1, 6.210004621745983E-1, -4.944515323274145E-1,
                           3.404879937665872E-1, -2.741127028184656E-1, 5.638259427386472E-1});
  Value r = Polynomial(w, {-1.047766399936249E+1, 1.297719955372516E+1, -7.495518717768503E+0,
                           2.921019019210786E+0, -1.015265279202700E+0, 4.218463358204948E-1,
                           -2.820767439740514E-1, 5.641895067754075E-1});
  Value y = Where(hlo::Lt(x, FullLike(x, 2)), p, r);
  return hlo::Div(y, x);
}

Value ErfcxLarge(Value x) { return Is64(x) ? ErfcxLarge64(x) : ErfcxLarge32(x); }
Value ErfcLarge(Value x) { return hlo::Mul(hlo::Exp(hlo::Neg(Square(x))), ErfcxLarge(x)); }

Value NanToo(Value x, Value y) { return Where(IsNan(x), x, y); }

// Giles, "Approximating the erfinv function".
Value ErfInv32(Value x) {
  Value w = hlo::Neg(hlo::Log1p(hlo::Neg(Square(x))));
  Value low = hlo::Lt(w, FullLike(w, 5));
  Value p = Polynomial(Plus(w, -2.5),
                       {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                        0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941});
  Value q = Polynomial(Plus(hlo::Sqrt(w), -3),
                       {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844,
                        0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682});
  Value y = hlo::Mul(Where(low, p, q), x);
  Value one = hlo::Eq(hlo::Abs(x), FullLike(x, 1));
  return hlo::Select(one, Times(x, HUGE_VAL), y);
}

// A rational start and two steps of Newton, as PyTorch's calc_erfinv.
Value ErfInv64(Value y) {
  Value y2 = Square(y);
  Value num = Polynomial(y2, {-0.140543331, 0.914624893, -1.645349621, 0.886226899});
  Value dem = Polynomial(y2, {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1});
  Value central = hlo::Div(hlo::Mul(y, num), dem);
  Value z = hlo::Sqrt(hlo::Neg(hlo::Log(Times(RSub(1, hlo::Abs(y)), 0.5))));
  num = Polynomial(z, {1.641345311, 3.429567803, -1.624906493, -1.970840454});
  dem = Polynomial(z, {1.637067800, 3.543889200, 1});
  Value outer = CopySign(hlo::Div(num, dem), y);
  Value x = hlo::Select(hlo::Le(hlo::Abs(y), FullLike(y, 0.7)), central, outer);
  for (int i = 0; i < 2; ++i) {
    Value slope = Times(hlo::Exp(hlo::Neg(Square(x))), 2 / std::sqrt(std::numbers::pi));
    x = hlo::Sub(x, hlo::Div(hlo::Sub(Erf(x), y), slope));
  }
  Value one = hlo::Eq(hlo::Abs(y), FullLike(y, 1));
  return hlo::Select(one, Times(y, HUGE_VAL), x);
}

// Lanczos' approximation, g = 7.
constexpr double kLanczosG = 7;
constexpr double kLanczosBase = 0.99999999999980993227684700473478;
constexpr double kLanczos[] = {
    676.520368121885098567009190444019, -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,   -176.61502916214059906584551354,
    12.507343278686904814458936853,     -0.13857109526572011689554707,
    9.984369578019570859563e-6,         1.50563273514931155834e-7};

}  // namespace

Value FloatBits(Value x) { return hlo::BitcastConvert(x, BitsOf(x.dtype())); }

Value SignBit(Value x) { return LtZero(IsFloat(x.dtype()) ? FloatBits(x) : x); }

Value CopySign(Value a, Value b) {
  Value magnitude = hlo::Abs(a);
  return hlo::Select(SignBit(b), hlo::Neg(magnitude), magnitude);
}

Value Trunc(Value x) { return hlo::Select(LtZero(x), hlo::Ceil(x), hlo::Floor(x)); }

Value LogAddExp(Value a, Value b) {
  bool complex = IsComplex(a.dtype());
  Value re_a = hlo::Real(a), re_b = hlo::Real(b);
  Value high, gap;
  if (complex) {
    Value larger = hlo::Ge(re_a, re_b);
    high = hlo::Select(larger, a, b);
    gap = hlo::Sub(hlo::Select(larger, b, a), high);
  } else {
    high = hlo::Max(a, b);
    gap = hlo::Neg(hlo::Abs(hlo::Sub(a, b)));
  }
  Value e = hlo::Exp(gap);
  Value y = hlo::Add(high, complex ? hlo::Log(Plus(e, 1)) : hlo::Log1p(e));
  return hlo::Select(hlo::And(IsInf(re_a), hlo::Eq(re_a, re_b)), high, y);
}

Value Erf(Value x) {
  if (!Is64(x)) return Erf32(x);
  Value a = hlo::Abs(x);
  Value large = CopySign(RSub(1, ErfcLarge(a)), x);
  return NanToo(x, hlo::Select(hlo::Lt(a, FullLike(a, 1)), ErfSmall64(x), large));
}

Value Erfc(Value x) {
  Value a = hlo::Abs(x);
  Value large = ErfcLarge(a);
  large = hlo::Select(LtZero(x), RSub(2, large), large);
  Value small = RSub(1, Is64(x) ? ErfSmall64(x) : ErfSmall32(x));
  return NanToo(x, hlo::Select(hlo::Lt(a, FullLike(a, 1)), small, large));
}

Value Erfcx(Value x) {
  Value a = hlo::Abs(x);
  Value e = hlo::Exp(Square(x));
  Value large = ErfcxLarge(a);
  large = hlo::Select(LtZero(x), hlo::Sub(Times(e, 2), large), large);
  Value small = hlo::Mul(e, RSub(1, Is64(x) ? ErfSmall64(x) : ErfSmall32(x)));
  return NanToo(x, hlo::Select(hlo::Lt(a, FullLike(a, 1)), small, large));
}

Value ErfInv(Value x) { return Is64(x) ? ErfInv64(x) : ErfInv32(x); }

// log(gamma(x)) on [1/2, 5/2], to its zeros at 1 and 2: Taylor's series at 2 (DLMF 5.7.3), below
// 3/2 after one step of the recurrence.
Value LgammaNearZeros(Value x) {
  Value low = hlo::Lt(x, FullLike(x, 1.5));
  Value s = hlo::Select(low, Plus(x, -1), Plus(x, -2));
  std::vector<double> c;
  for (int k = Is64(x) ? 26 : 12; k >= 2; --k) {
    c.push_back((k % 2 == 0 ? 1 : -1) * (std::riemann_zeta(static_cast<double>(k)) - 1) / k);
  }
  c.push_back(1 - std::numbers::egamma);
  Value y = hlo::Mul(s, Polynomial(s, c));
  return hlo::Sub(y, Where(low, hlo::Log1p(s), 0));
}

Value Lgamma(Value x) {
  // Below 1/2 by reflection: gamma(x) gamma(1 - x) = pi / sin(pi x).
  Value reflect = hlo::Lt(x, FullLike(x, 0.5));
  Value z = hlo::Select(reflect, hlo::Neg(x), Plus(x, -1));
  Value sum = FullLike(x, kLanczosBase);
  for (int i = 0; i < 8; ++i) {
    sum = hlo::Add(sum, hlo::Div(FullLike(x, kLanczos[i]), Plus(z, i + 1)));
  }
  Value t = Plus(z, kLanczosG + 0.5);
  // log(t) by log1p keeps the difference below exact.
  Value log_t = Plus(hlo::Log1p(Times(z, 1 / (kLanczosG + 0.5))), std::log(kLanczosG + 0.5));
  Value power = hlo::Mul(hlo::Sub(Plus(z, 0.5), hlo::Div(t, log_t)), log_t);
  Value y = hlo::Add(Plus(power, 0.5 * std::log(2 * std::numbers::pi)), hlo::Log(sum));
  // sin(pi x) from the distance to the next integer.
  Value a = hlo::Abs(x);
  Value frac = hlo::Sub(a, hlo::Floor(a));
  frac = hlo::Select(hlo::Gt(frac, FullLike(x, 0.5)), RSub(1, frac), frac);
  Value log_sin = hlo::Log(hlo::Sin(Times(frac, std::numbers::pi)));
  Value reflected = hlo::Sub(RSub(std::log(std::numbers::pi), log_sin), y);
  reflected = hlo::Select(hlo::IsFinite(log_sin), reflected, hlo::Neg(log_sin));
  Value near = hlo::And(hlo::Not(reflect), hlo::Lt(x, FullLike(x, 2.5)));
  y = hlo::Select(near, LgammaNearZeros(x), y);
  return Where(IsInf(x), HUGE_VAL, hlo::Select(reflect, reflected, y));
}

Value Digamma(Value x) {
  Value reflect = hlo::Lt(x, FullLike(x, 0.5));
  Value z = hlo::Select(reflect, hlo::Neg(x), Plus(x, -1));
  Value num = FullLike(x, 0);
  Value den = FullLike(x, kLanczosBase);
  for (int i = 0; i < 8; ++i) {
    Value term = Plus(z, i + 1);
    Value c = FullLike(x, kLanczos[i]);
    num = hlo::Sub(num, hlo::Div(c, Square(term)));
    den = hlo::Add(den, hlo::Div(c, term));
  }
  Value t = Plus(z, kLanczosG + 0.5);
  Value log_t = Plus(hlo::Log1p(Times(z, 1 / (kLanczosG + 0.5))), std::log(kLanczosG + 0.5));
  Value y = hlo::Sub(hlo::Add(log_t, hlo::Div(num, den)), hlo::Div(FullLike(x, kLanczosG), t));
  // pi / tan(pi x) of x reduced to [-1/2, 1/2]
  Value pi_x = Times(hlo::Add(x, hlo::Abs(hlo::Floor(Plus(x, 0.5)))), std::numbers::pi);
  Value cot = hlo::Div(hlo::Mul(FullLike(x, std::numbers::pi), hlo::Cos(pi_x)), hlo::Sin(pi_x));
  Value out = hlo::Select(reflect, hlo::Sub(y, cot), y);
  Value pole = hlo::And(LtZero(x), hlo::Eq(x, hlo::Floor(x)));
  out = hlo::Select(pole, FullLike(x, NAN), out);
  return hlo::Select(IsZero(x), CopySign(FullLike(x, HUGE_VAL), hlo::Neg(x)), out);
}

}  // namespace torch_xla::ops
