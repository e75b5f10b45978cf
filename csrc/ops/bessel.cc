// Bessel functions of the first and second kind and Airy's function, after Cephes. Its denominators
// have a leading 1 that PyTorch's kernels leave out (it moves a value by up to 4e-7, Ai by 3e-6):
// left out here, too, so that a device gives the numbers of the CPU.
#include <ATen/ops/special_airy_ai_ops.h>
#include <ATen/ops/special_bessel_j0_ops.h>
#include <ATen/ops/special_bessel_j1_ops.h>
#include <ATen/ops/special_bessel_y0_ops.h>
#include <ATen/ops/special_bessel_y1_ops.h>
#include <ATen/ops/special_spherical_bessel_j0_ops.h>

#include <numbers>

#include "ops/common.h"

namespace torch_xla::ops {
namespace {

using Coefficients = std::span<const double>;

// Of order 0: P and Q of the expansion at infinity, R near 0, Y the rest of the second kind near 0.
constexpr double kPP0[] = {7.96936729297347051624e-04, 8.28352392107440799803e-02,
                           1.23953371646414299388e+00, 5.44725003058768775090e+00,
                           8.74716500199817011941e+00, 5.30324038235394892183e+00,
                           9.99999999999999997821e-01};
constexpr double kPQ0[] = {9.24408810558863637013e-04, 8.56288474354474431428e-02,
                           1.25352743901058953537e+00, 5.47097740330417105182e+00,
                           8.76190883237069594232e+00, 5.30605288235394617618e+00,
                           1.00000000000000000218e+00};
constexpr double kQP0[] = {-1.13663838898469149931e-02, -1.28252718670509318512e+00,
                           -1.95539544257735972385e+01, -9.32060152123768231369e+01,
                           -1.77681167980488050595e+02, -1.47077505154951170175e+02,
                           -5.14105326766599330220e+01, -6.05014350600728481186e+00};
constexpr double kQQ0[] = {6.43178256118178023184e+01, 8.56430025976980587198e+02,
                           3.88240183605401609683e+03, 7.24046774195652478189e+03,
                           5.93072701187316984827e+03, 2.06209331660327847417e+03,
                           2.42005740240291393179e+02};
constexpr double kRP0[] = {-4.79443220978201773821e+09, 1.95617491946556577543e+12,
                           -2.49248344360967716204e+14, 9.70862251047306323952e+15};
constexpr double kRQ0[] = {4.99563147152651017219e+02, 1.73785401676374683123e+05,
                           4.84409658339962045305e+07, 1.11855537045356834862e+10,
                           2.11277520115489217587e+12, 3.10518229857422583814e+14,
                           3.18121955943204943306e+16, 1.71086294081043136091e+18};
constexpr double kYP0[] = {1.55924367855235737965e+04, -1.46639295903971606143e+07,
                           5.43526477051876500413e+09, -9.82136065717911466409e+11,
                           8.75906394395366999549e+13, -3.46628303384729719441e+15,
                           4.42733268572569800351e+16, -1.84950800436986690637e+16};
constexpr double kYQ0[] = {1.04128353664259848412e+03, 6.26107330137134956842e+05,
                           2.68919633393814121987e+08, 8.64002487103935000337e+10,
                           2.02979612750105546709e+13, 3.17157752842975028269e+15,
                           2.50596256172653059228e+17};

// Of order 1.
constexpr double kPP1[] = {7.62125616208173112003e-04, 7.31397056940917570436e-02,
                           1.12719608129684925192e+00, 5.11207951146807644818e+00,
                           8.42404590141772420927e+00, 5.21451598682361504063e+00,
                           1.00000000000000000254e+00};
constexpr double kPQ1[] = {5.71323128072548699714e-04, 6.88455908754495404082e-02,
                           1.10514232634061696926e+00, 5.07386386128601488557e+00,
                           8.39985554327604159757e+00, 5.20982848682361821619e+00,
                           9.99999999999999997461e-01};
constexpr double kQP1[] = {5.10862594750176621635e-02, 4.98213872951233449420e+00,
                           7.58238284132545283818e+01, 3.66779609360150777800e+02,
                           7.10856304998926107277e+02, 5.97489612400613639965e+02,
                           2.11688757100572135698e+02, 2.52070205858023719784e+01};
constexpr double kQQ1[] = {7.42373277035675149943e+01, 1.05644886038262816351e+03,
                           4.98641058337653607651e+03, 9.56231892404756170795e+03,
                           7.99704160447350683650e+03, 2.82619278517639096600e+03,
                           3.36093607810698293419e+02};
constexpr double kRP1[] = {-8.99971225705559398224e+08, 4.52228297998194034323e+11,
                           -7.27494245221818276015e+13, 3.68295732863852883286e+15};
constexpr double kRQ1[] = {6.20836478118054335476e+02, 2.56987256757748830383e+05,
                           8.35146791431949253037e+07, 2.21511595479792499675e+10,
                           4.74914122079991414898e+12, 7.84369607876235854894e+14,
                           8.95222336184627338078e+16, 5.32278620332680085395e+18};
constexpr double kYP1[] = {1.26320474790178026440e+09, -6.47355876379160291031e+11,
                           1.14509511541823727583e+14, -8.12770255501325109621e+15,
                           2.02439475713594898196e+17, -7.78877196265950026825e+17};
constexpr double kYQ1[] = {5.94301592346128195359e+02, 2.35564092943068577943e+05,
                           7.34811944459721705660e+07, 1.87601316108706159478e+10,
                           3.88231277496238566008e+12, 6.20557727146953693363e+14,
                           6.87141087355300489866e+16, 3.97270608116560655612e+18};

Value Ratio(Value x, Coefficients p, Coefficients q) {
  return hlo::Div(Polynomial(x, p), Polynomial(x, q));
}

// sqrt(2 / (pi x)) (P cos(x - phase) - 5 / x Q sin(x - phase)), of the second kind
// (P sin(x - phase) + 5 / x Q cos(x - phase)). For x > 5.
template <bool kOrderOne, bool kSecond>
Value Far(Value x) {
  Value w = hlo::Div(FullLike(x, 5), x), z = Square(w);
  Value p = kOrderOne ? Ratio(z, kPP1, kPQ1) : Ratio(z, kPP0, kPQ0);
  Value q = hlo::Mul(w, kOrderOne ? Ratio(z, kQP1, kQQ1) : Ratio(z, kQP0, kQQ0));
  Value t = Plus(x, (kOrderOne ? -0.75 : -0.25) * std::numbers::pi);
  Value sum = kSecond ? hlo::Add(hlo::Mul(p, hlo::Sin(t)), hlo::Mul(q, hlo::Cos(t)))
                      : hlo::Sub(hlo::Mul(p, hlo::Cos(t)), hlo::Mul(q, hlo::Sin(t)));
  return hlo::Div(Times(sum, 0.797884560802865355879892119868763737), hlo::Sqrt(x));
}

Value J0(Value x) {
  Value a = hlo::Abs(x), z = Square(a);
  Value near = hlo::Mul(Plus(z, -5.78318596294678452118), Plus(z, -30.4712623436620863991));
  near = hlo::Mul(near, Ratio(z, kRP0, kRQ0));
  near = hlo::Select(hlo::Lt(a, FullLike(a, 1e-5)), RSub(1, Times(z, 0.25)), near);
  return hlo::Select(hlo::Le(a, FullLike(a, 5)), near, Far<false, false>(a));
}

Value J1(Value x) {
  Value a = hlo::Abs(x), z = Square(a);
  Value near = hlo::Mul(Plus(z, -14.6819706421238932572), Plus(z, -49.2184563216946036703));
  near = hlo::Mul(hlo::Mul(Ratio(z, kRP1, kRQ1), a), near);
  Value y = hlo::Select(hlo::Le(a, FullLike(a, 5)), near, Far<true, false>(a));
  return hlo::Select(LtZero(x), hlo::Neg(y), y);
}

Value OfPositive(Value x, Value near, Value far) {
  Value y = hlo::Select(hlo::Le(x, FullLike(x, 5)), near, far);
  return Where(IsZero(x), -HUGE_VAL, Where(LtZero(x), NAN, y));
}

Value Y0(Value x) {
  Value log = hlo::Mul(Times(hlo::Log(x), 2 * std::numbers::inv_pi), J0(x));
  return OfPositive(x, hlo::Add(Ratio(Square(x), kYP0, kYQ0), log), Far<false, true>(x));
}

Value Y1(Value x) {
  Value log = hlo::Sub(hlo::Mul(J1(x), hlo::Log(x)), hlo::Div(FullLike(x, 1), x));
  Value near = hlo::Mul(x, Ratio(Square(x), kYP1, kYQ1));
  return OfPositive(x, hlo::Add(near, Times(log, 2 * std::numbers::inv_pi)), Far<true, true>(x));
}

Value SphericalJ0(Value x) {
  Value near = Polynomial(Square(x), {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                                      1.0 / 120, -1.0 / 6, 1});
  Value y = hlo::Select(hlo::Lt(hlo::Abs(x), FullLike(x, 0.5)), near, hlo::Div(hlo::Sin(x), x));
  return Where(IsInf(x), 0, y);
}

// ---- Airy: of zeta = 2/3 |x|^1.5 beyond 2.09 on either side, Maclaurin's series within.
constexpr double kAN[] = {3.46538101525629032477e-01, 1.20075952739645805542e+01,
                          7.62796053615234516538e+01, 1.68089224934630576269e+02,
                          1.59756391350164413639e+02, 7.05360906840444183113e+01,
                          1.40264691163389668864e+01, 9.99999999999999995305e-01};
constexpr double kAD[] = {5.67594532638770212846e-01, 1.47562562584847203173e+01,
                          8.45138970141474626562e+01, 1.77318088145400459522e+02,
                          1.64234692871529701831e+02, 7.14778400825575695274e+01,
                          1.40959135607834029598e+01, 1.00000000000000000470e+00};
constexpr double kAFN[] = {
    -1.31696323418331795333e-01, -6.26456544431912369773e-01, -6.93158036036933542233e-01,
    -2.79779981545119124951e-01, -4.91900132609500318020e-02, -4.06265923594885404393e-03,
    -1.59276496239262096340e-04, -2.77649108155232920844e-06, -1.67787698489114633780e-08};
constexpr double kAFD[] = {
    1.33560420706553243746e+01, 3.26825032795224613948e+01, 2.67367040941499554804e+01,
    9.18707402907259625840e+00, 1.47529146771666414581e+00, 1.15687173795188044134e-01,
    4.40291641615211203805e-03, 7.54720348287414296618e-05, 4.51850092970580378464e-07};
constexpr double kAGN[] = {
    1.97339932091685679179e-02, 3.91103029615688277255e-01, 1.06579897599595591108e+00,
    9.39169229816650230044e-01, 3.51465656105547619242e-01, 6.33888919628925490927e-02,
    5.85804113048388458567e-03, 2.82851600836737019778e-04, 6.98793669997260967291e-06,
    8.11789239554389293311e-08, 3.41551784765923618484e-10};
constexpr double kAGD[] = {9.30892908077441974853e+00, 1.98352928718312140417e+01,
                           1.55646628932864612953e+01, 5.47686069422975497931e+00,
                           9.54293611618961883998e-01, 8.64580826352392193095e-02,
                           4.12656523824222607191e-03, 1.01259085116509135510e-04,
                           1.17166733214413521882e-06, 4.91834570062930015649e-09};

Value AiryAi(Value x) {
  Value a = hlo::Abs(x), root = hlo::Sqrt(a), zeta = Times(hlo::Mul(a, root), 2.0 / 3);
  Value z = hlo::Div(FullLike(x, 1), zeta), z2 = Square(z), quarter = hlo::Sqrt(root);
  constexpr double kInvSqrtPi = std::numbers::inv_sqrtpi;

  Value right = hlo::Div(Ratio(z, kAN, kAD), hlo::Mul(Times(quarter, 2), hlo::Exp(zeta)));
  right = Times(right, kInvSqrtPi);

  Value t = Plus(zeta, 0.25 * std::numbers::pi);
  Value sine = Plus(hlo::Mul(z2, Ratio(z2, kAFN, kAFD)), 1);
  Value cosine = hlo::Mul(z, Ratio(z2, kAGN, kAGD));
  Value left = hlo::Sub(hlo::Mul(sine, hlo::Sin(t)), hlo::Mul(cosine, hlo::Cos(t)));
  left = hlo::Div(Times(left, kInvSqrtPi), quarter);

  // f = 1 + x^3 / (2 3) + x^6 / (2 3 5 6) + ..., g = x + x^4 / (3 4) + x^7 / (3 4 6 7) + ...
  std::array<double, 16> f{}, g{};
  f.back() = g.back() = 1;
  for (size_t i = f.size() - 1; i > 0; --i) {
    double k = 3 * static_cast<double>(f.size() - i);
    f[i - 1] = f[i] / (k * (k - 1));
    g[i - 1] = g[i] / (k * (k + 1));
  }
  Value cube = hlo::Mul(Square(x), x);
  Value middle = hlo::Sub(Times(Polynomial(cube, f), 0.355028053887817239260),
                          hlo::Mul(x, Times(Polynomial(cube, g), 0.258819403792806798405)));

  Value y = hlo::Select(hlo::Ge(x, FullLike(x, 2.09)), right, middle);
  y = hlo::Select(hlo::Lt(x, FullLike(x, -2.09)), left, y);
  y = Where(hlo::Gt(x, FullLike(x, 103.892)), 0, y);
  return Where(IsInf(x), NAN, y);
}

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<special_bessel_j0, FullFloatUnary<J0, "bessel_j0_cpu">>(m);
  Register<special_bessel_j1, FullFloatUnary<J1, "bessel_j1_cpu">>(m);
  Register<special_bessel_y0, FullFloatUnary<Y0, "bessel_y0_cpu">>(m);
  Register<special_bessel_y1, FullFloatUnary<Y1, "bessel_y1_cpu">>(m);
  Register<special_spherical_bessel_j0, FullFloatUnary<SphericalJ0, "spherical_bessel_j0_cpu">>(m);
  Register<special_airy_ai, FullFloatUnary<AiryAi, "airy_ai_cpu">>(m);
}

}  // namespace torch_xla::ops
