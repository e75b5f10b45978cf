// Modified Bessel functions, the zeta family and the normal distribution, after Cephes.
#include <ATen/ops/i0_ops.h>
#include <ATen/ops/polygamma_ops.h>
#include <ATen/ops/special_erfcx_ops.h>
#include <ATen/ops/special_i0e_ops.h>
#include <ATen/ops/special_i1_ops.h>
#include <ATen/ops/special_i1e_ops.h>
#include <ATen/ops/special_log_ndtr_ops.h>
#include <ATen/ops/special_modified_bessel_i0_ops.h>
#include <ATen/ops/special_modified_bessel_i1_ops.h>
#include <ATen/ops/special_modified_bessel_k0_ops.h>
#include <ATen/ops/special_modified_bessel_k1_ops.h>
#include <ATen/ops/special_ndtri_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_ops.h>
#include <ATen/ops/special_zeta_ops.h>

#include <numbers>

#include "hlo/control.h"
#include "hlo/reduce.h"
#include "ops/common.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

// Chebyshev coefficients of exp(-x) I(x) on [0, 8] (A) and exp(-x) sqrt(x) I(x) beyond (B).
constexpr double kI0A[] = {
    -4.41534164647933937950E-18, 3.33079451882223809783E-17,  -2.43127984654795469359E-16,
    1.71539128555513303061E-15,  -1.16853328779934516808E-14, 7.67618549860493561688E-14,
    -4.85644678311192946090E-13, 2.95505266312963983461E-12,  -1.72682629144155570723E-11,
    9.67580903537323691224E-11,  -5.18979560163526290666E-10, 2.65982372468238665035E-9,
    -1.30002500998624804212E-8,  6.04699502254191894932E-8,   -2.67079385394061173391E-7,
    1.11738753912010371815E-6,   -4.41673835845875056359E-6,  1.64484480707288970893E-5,
    -5.75419501008210370398E-5,  1.88502885095841655729E-4,   -5.76375574538582365885E-4,
    1.63947561694133579842E-3,   -4.32430999505057594430E-3,  1.05464603945949983183E-2,
    -2.37374148058994688156E-2,  4.93052842396707084878E-2,   -9.49010970480476444210E-2,
    1.71620901522208775349E-1,   -3.04682672343198398683E-1,  6.76795274409476084995E-1};
constexpr double kI0B[] = {
    -7.23318048787475395456E-18, -4.83050448594418207126E-18, 4.46562142029675999901E-17,
    3.46122286769746109310E-17,  -2.82762398051658348494E-16, -3.42548561967721913462E-16,
    1.77256013305652638360E-15,  3.81168066935262242075E-15,  -9.55484669882830764870E-15,
    -4.15056934728722208663E-14, 1.54008621752140982691E-14,  3.85277838274214270114E-13,
    7.18012445138366623367E-13,  -1.79417853150680611778E-12, -1.32158118404477131188E-11,
    -3.14991652796324136454E-11, 1.18891471078464383424E-11,  4.94060238822496958910E-10,
    3.39623202570838634515E-9,   2.26666899049817806459E-8,   2.04891858946906374183E-7,
    2.89137052083475648297E-6,   6.88975834691682398426E-5,   3.36911647825569408990E-3,
    8.04490411014108831608E-1};
constexpr double kI1A[] = {
    2.77791411276104639959E-18,  -2.11142121435816608115E-17, 1.55363195773620046921E-16,
    -1.10559694773538630805E-15, 7.60068429473540693410E-15,  -5.04218550472791168711E-14,
    3.22379336594557470981E-13,  -1.98397439776494371520E-12, 1.17361862988909016308E-11,
    -6.66348972350202774223E-11, 3.62559028155211703701E-10,  -1.88724975172282928790E-9,
    9.38153738649577178388E-9,   -4.44505912879632808065E-8,  2.00329475355213526229E-7,
    -8.56872026469545474066E-7,  3.47025130813767847674E-6,   -1.32731636560394358279E-5,
    4.78156510755005422638E-5,   -1.61760815825896745588E-4,  5.12285956168575772895E-4,
    -1.51357245063125314899E-3,  4.15642294431288815669E-3,   -1.05640848946261981558E-2,
    2.47264490306265168283E-2,   -5.29459812080949914269E-2,  1.02643658689847095384E-1,
    -1.76416518357834055153E-1,  2.52587186443633654823E-1};
constexpr double kI1B[] = {
    7.51729631084210481353E-18,  4.41434832307170791151E-18,  -4.65030536848935832153E-17,
    -3.20952592199342395980E-17, 2.96262899764595013876E-16,  3.30820231092092828324E-16,
    -1.88035477551078244854E-15, -3.81440307243700780478E-15, 1.04202769841288027642E-14,
    4.27244001671195135429E-14,  -2.10154184277266431302E-14, -4.08355111109219731823E-13,
    -7.19855177624590851209E-13, 2.03562854414708950722E-12,  1.41258074366137813316E-11,
    3.25260358301548823856E-11,  -1.89749581235054123450E-11, -5.58974346219658380687E-10,
    -3.83538038596423702205E-9,  -2.63146884688951950684E-8,  -2.51223623787020892529E-7,
    -3.88256480887769039346E-6,  -1.10588938762623716291E-4,  -9.76109749136146840777E-3,
    7.78576235018280120474E-1};

// Of K(x) + log(x / 2) I(x), of order 1 x times that with the other sign, on [0, 2] (A), and of
// exp(x) sqrt(x) K(x) beyond (B).
constexpr double kK0A[] = {1.37446543561352307156e-16, 4.25981614279661018399e-14,
                           1.03496952576338420167e-11, 1.90451637722020886025e-09,
                           2.53479107902614945675e-07, 2.28621210311945178607e-05,
                           1.26461541144692592338e-03, 3.59799365153615016266e-02,
                           3.44289899924628486886e-01, -5.35327393233902768720e-01};
constexpr double kK0B[] = {
    5.30043377268626276149e-18,  -1.64758043015242134646e-17, 5.21039150503902756861e-17,
    -1.67823109680541210385e-16, 5.51205597852431940784e-16,  -1.84859337734377901440e-15,
    6.34007647740507060557e-15,  -2.22751332699166985548e-14, 8.03289077536357521100e-14,
    -2.98009692317273043925e-13, 1.14034058820847496303e-12,  -4.51459788337394416547e-12,
    1.85594911495471785253e-11,  -7.95748924447710747776e-11, 3.57739728140030116597e-10,
    -1.69753450938905987466e-09, 8.57403401741422608519e-09,  -4.66048989768794782956e-08,
    2.76681363944501510342e-07,  -1.83175552271911948767e-06, 1.39498137188764993662e-05,
    -1.28495495816278026384e-04, 1.56988388573005337491e-03,  -3.14481013119645005427e-02,
    2.44030308206595545468e+00};
constexpr double kK1A[] = {
    -7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13,
    -1.41148839263352776110e-10, -2.21338763073472585583e-08, -2.43340614156596823496e-06,
    -1.73028895751305206302e-04, -6.97572385963986435018e-03, -1.22611180822657148235e-01,
    -3.53155960776544875667e-01, 1.52530022733894777053e+00};
constexpr double kK1B[] = {
    -5.75674448366501715755e-18, 1.79405087314755922667e-17,  -5.68946255844285935196e-17,
    1.83809354436663880070e-16,  -6.05704724837331885336e-16, 2.03870316562433424052e-15,
    -7.01983709041831346144e-15, 2.47715442448130437068e-14,  -8.97670518232499435011e-14,
    3.34841966607842919884e-13,  -1.28917396095102890680e-12, 5.13963967348173025100e-12,
    -2.12996783842756842877e-11, 9.21831518760500529508e-11,  -4.19035475934189648750e-10,
    2.01504975519703286596e-09,  -1.03457624656780970260e-08, 5.74108412545004946722e-08,
    -3.50196060308781257119e-07, 2.40648494783721712015e-06,  -1.93619797416608296024e-05,
    1.95215518471351631108e-04,  -2.85781685962277938680e-03, 1.03923736576817238437e-01,
    2.72062619048444266945e+00};

// float32 is served by the last coefficients.
Value Chebyshev(Value x, std::span<const double> c, size_t f32_terms) {
  if (x.dtype() != DType::kF64) c = c.last(f32_terms);
  Value b0 = FullLike(x, c[0]), b1 = FullLike(x, 0), b2 = b1;
  for (double k : c.subspan(1)) {
    b2 = b1;
    b1 = b0;
    b0 = Plus(hlo::Sub(hlo::Mul(x, b1), b2), k);
  }
  return Times(hlo::Sub(b0, b2), 0.5);
}

template <bool kOrderOne, bool kScaled>
Value Bessel(Value x) {
  Value a = hlo::Abs(x);
  std::span<const double> low = kOrderOne ? std::span<const double>(kI1A) : kI0A;
  std::span<const double> high = kOrderOne ? std::span<const double>(kI1B) : kI0B;
  Value near = Chebyshev(Plus(Times(a, 0.5), -2), low, 18);
  if (kOrderOne) near = hlo::Mul(near, a);
  Value far = Chebyshev(Plus(hlo::Div(FullLike(a, 32), a), -2), high, 7);
  far = hlo::Div(far, hlo::Sqrt(a));
  Value y = hlo::Select(hlo::Le(a, FullLike(a, 8)), near, far);
  if (!kScaled) y = hlo::Mul(hlo::Exp(a), y);
  return kOrderOne ? hlo::Select(LtZero(x), hlo::Neg(y), y) : y;
}

template <bool kOrderOne, bool kScaled>
Value BesselK(Value x) {
  std::span<const double> low = kOrderOne ? std::span<const double>(kK1A) : kK0A;
  std::span<const double> high = kOrderOne ? std::span<const double>(kK1B) : kK0B;
  Value near = Chebyshev(Plus(Square(x), -2), low, low.size());
  Value log = hlo::Mul(hlo::Log(Times(x, 0.5)), Bessel<kOrderOne, false>(x));
  near = kOrderOne ? hlo::Add(log, hlo::Div(near, x)) : hlo::Sub(near, log);
  Value far = Chebyshev(Plus(hlo::Div(FullLike(x, 8), x), -2), high, high.size());
  far = hlo::Div(far, hlo::Sqrt(x));
  if (kScaled) {
    near = hlo::Mul(near, hlo::Exp(x));
  } else {
    far = hlo::Mul(hlo::Exp(hlo::Neg(x)), far);
  }
  Value y = hlo::Select(hlo::Le(x, FullLike(x, 2)), near, far);
  return Where(IsZero(x), HUGE_VAL, Where(LtZero(x), NAN, y));
}

// sum of (q + k)^-s: the first terms, until q + k > 9, and Euler and Maclaurin's formula. Terms of
// negative q cancel, so that PyTorch computes it in float64.
Value Zeta64(Value s, Value q) {
  static constexpr double kA[] = {12.0,
                                  -720.0,
                                  30240.0,
                                  -1209600.0,
                                  47900160.0,
                                  -1.8924375803183791606e9,
                                  7.47242496e10,
                                  -2.950130727918164224e12,
                                  1.1646782814350067249e14,
                                  -4.5979787224074726105e15,
                                  1.8152105401943546773e17,
                                  -7.1661652561756670113e18};
  auto term = [&](Value a) { return hlo::Pow(a, hlo::Neg(s)); };
  Value last = q, sum = term(q);
  for (int i = 0; i < 9; ++i) {
    last = Plus(last, 1);
    sum = hlo::Add(sum, term(last));
  }
  // Negative q take more terms.
  auto more = [](Value a) {
    return hlo::And(hlo::Le(a, FullLike(a, 9)), hlo::Gt(a, FullLike(a, -1e4)));
  };
  Dims all = WrapDims({}, q.rank());
  const Value inits[] = {last, sum};
  auto cond = [&](Builder&, std::span<const Value> v) {
    return std::vector<Value>{hlo::Reduce(more(v[0]), all, hlo::Reducer::kOr)};
  };
  auto body = [&](Builder&, std::span<const Value> v) {
    Value go = more(v[0]);
    Value a = hlo::Select(go, Plus(v[0], 1), v[0]);
    return std::vector<Value>{a, hlo::Add(v[1], Where(go, term(a), 0))};
  };
  std::vector<Value> end = hlo::While(inits, cond, body);
  Value w = end[0], power = term(w);
  sum = hlo::Add(end[1], hlo::Div(hlo::Mul(power, w), Plus(s, -1)));
  sum = hlo::Sub(sum, Times(power, 0.5));
  Value a = FullLike(s, 1);
  for (int i = 0; i < 12; ++i) {
    double k = 2.0 * i;
    a = hlo::Mul(a, Plus(s, k));
    power = hlo::Div(power, w);
    // Once nothing is left, a overflows.
    Value t = Where(IsZero(power), 0, hlo::Mul(a, power));
    sum = hlo::Add(sum, hlo::Div(t, hlo::FullLike(s, kA[i])));
    a = hlo::Mul(a, Plus(s, k + 1));
    power = hlo::Div(power, w);
  }
  Value pole = hlo::And(hlo::Le(q, FullLike(q, 0)), hlo::Eq(q, hlo::Floor(q)));
  Value undefined = hlo::And(LtZero(q), hlo::Ne(s, hlo::Floor(s)));
  sum = Where(undefined, NAN, sum);
  sum = Where(pole, HUGE_VAL, sum);
  sum = Where(hlo::Lt(s, FullLike(s, 1)), NAN, sum);
  sum = Where(hlo::Eq(s, FullLike(s, 1)), HUGE_VAL, sum);
  return hlo::Select(IsNan(q), q, sum);
}

Value Zeta(Value s, Value q) {
  Value y = Zeta64(hlo::ConvertTo(s, DType::kF64), hlo::ConvertTo(q, DType::kF64));
  return hlo::ConvertTo(y, q.dtype());
}

Value Trigamma(Value x) {
  Value reflect = hlo::Lt(x, FullLike(x, 0.5));
  Value sine = hlo::Sin(Times(x, std::numbers::pi));
  Value mirror = hlo::Div(FullLike(x, std::numbers::pi * std::numbers::pi), Square(sine));
  Value sum = Where(reflect, hlo::Neg(mirror), 0);
  Value z = hlo::Select(reflect, RSub(1, x), x);
  for (int i = 0; i < 6; ++i) {
    sum = hlo::Add(sum, hlo::Div(FullLike(z, 1), Square(z)));
    z = Plus(z, 1);
  }
  Value i2 = hlo::Div(FullLike(z, 1), Square(z));
  Value tail = RSub(1.0 / 30, Times(i2, 1.0 / 42));
  tail = RSub(1.0 / 6, hlo::Mul(i2, tail));
  tail = hlo::Add(Plus(hlo::Div(FullLike(z, 0.5), z), 1), hlo::Mul(i2, tail));
  sum = hlo::Add(sum, hlo::Div(tail, z));
  return hlo::Select(reflect, hlo::Neg(sum), sum);
}

struct Polygamma {
  static Shape Infer(int64_t n, const Arg& self) {
    TORCH_CHECK(n >= 0, "polygamma(n, x) does not support negative n.");
    CheckImplemented(!IsComplex(self.dtype()), "polygamma", self.dtype());
    return self.shape().with(ToFloat(self.dtype()));
  }
  static Value Lower(const Shape& out, int64_t n, Value self) {
    Value x = hlo::ConvertTo(self, Wide(out.dtype));
    Value y;
    if (n == 0) {
      y = Digamma(x);
    } else if (n == 1) {
      y = Trigamma(x);
    } else {
      double factor = (n % 2 != 0 ? 1 : -1) * std::tgamma(static_cast<double>(n) + 1);
      x = hlo::ConvertTo(x, DType::kF64);
      y = Times(Zeta64(FullLike(x, static_cast<double>(n) + 1), x), factor);
    }
    return hlo::ConvertTo(y, out.dtype);
  }
};

Value LogNdtr(Value x) {
  Value t = Times(x, std::numbers::sqrt2 / 2);
  Value low = hlo::Sub(hlo::Log(Times(Erfcx(hlo::Neg(t)), 0.5)), Square(t));
  Value high = hlo::Log1p(Times(Erfc(t), -0.5));
  return hlo::Select(hlo::Lt(x, FullLike(x, -1)), low, high);
}

// The quantile function of the normal distribution.
Value Ndtri(Value y0) {
  constexpr double kTail = 0.13533528323661269189;  // exp(-2)
  constexpr double kSqrt2Pi = 2.50662827463100050242;
  Value flip = hlo::Gt(y0, FullLike(y0, 1 - kTail));
  Value y = hlo::Select(flip, RSub(1, y0), y0);
  Value c = Plus(y, -0.5);
  Value c2 = Square(c);
  Value p0 = Polynomial(
      c2, {-5.99633501014107895267E1, 9.80010754185999661536E1, -5.66762857469070293439E1,
           1.39312609387279679503E1, -1.23916583867381258016});
  Value q0 = Polynomial(
      c2, {1.00000000000000000000, 1.95448858338141759834, 4.67627912898881538453,
           8.63602421390890590575E1, -2.25462687854119370527E2, 2.00260212380060660359E2,
           -8.20372256168333339912E1, 1.59056225126211695515E1, -1.18331621121330003142});
  Value middle = hlo::Add(c, hlo::Mul(c, hlo::Div(hlo::Mul(c2, p0), q0)));
  middle = Times(middle, kSqrt2Pi);
  Value x = hlo::Sqrt(Times(hlo::Log(y), -2));
  Value z = hlo::Div(FullLike(x, 1), x);
  Value p1 = Polynomial(
      z, {4.05544892305962419923, 3.15251094599893866154E1, 5.71628192246421288162E1,
          4.40805073893200834700E1, 1.46849561928858024014E1, 2.18663306850790267539,
          -1.40256079171354495875E-1, -3.50424626827848203418E-2, -8.57456785154685413611E-4});
  Value q1 = Polynomial(
      z, {1.00000000000000000000, 1.57799883256466749731E1, 4.53907635128879210584E1,
          4.13172038254672030440E1, 1.50425385692907503408E1, 2.50464946208309415979,
          -1.42182922854787788574E-1, -3.80806407691578277194E-2, -9.33259480895457427372E-4});
  Value p2 = Polynomial(
      z, {3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415,
          1.33303460815807542389, 2.01485389549179081538E-1, 1.23716634817820021358E-2,
          3.01581553508235416007E-4, 2.65806974686737550832E-6, 6.23974539184983293730E-9});
  Value q2 = Polynomial(
      z, {1.00000000000000000000, 6.02427039364742014255, 3.67983563856160859403,
          1.37702099489081330271, 2.16236993594496635890E-1, 1.34204006088543189037E-2,
          3.28014464682127739104E-4, 2.89247864745380683936E-6, 6.79019408009981274425E-9});
  Value near = hlo::Lt(x, FullLike(x, 8));
  Value ratio = hlo::Div(hlo::Select(near, p1, p2), hlo::Select(near, q1, q2));
  Value tail = hlo::Sub(hlo::Sub(x, hlo::Div(hlo::Log(x), x)), hlo::Mul(z, ratio));
  tail = hlo::Select(flip, tail, hlo::Neg(tail));
  Value out = hlo::Select(hlo::Gt(y, FullLike(y, kTail)), middle, tail);
  out = Where(IsZero(y0), -HUGE_VAL, out);
  out = Where(hlo::Eq(y0, FullLike(y0, 1)), HUGE_VAL, out);
  Value outside = hlo::Or(LtZero(y0), hlo::Gt(y0, FullLike(y0, 1)));
  return Where(outside, NAN, out);
}

template <auto kFn, Name kName>
struct RealFloatUnary : FloatUnary<kFn> {
  static Shape Infer(const Arg& self) {
    CheckImplemented(!IsComplex(self.dtype()), kName.text, self.dtype());
    return FloatUnary<kFn>::Infer(self);
  }
};

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<i0, RealFloatUnary<Bessel<false, false>, "i0_vml_cpu">>(m);
  Register<special_i0e, RealFloatUnary<Bessel<false, true>, "i0e">>(m);
  Register<special_i1, RealFloatUnary<Bessel<true, false>, "i1">>(m);
  Register<special_i1e, RealFloatUnary<Bessel<true, true>, "i1e">>(m);
  Register<special_modified_bessel_i0,
           FullFloatUnary<Bessel<false, false>, "modified_bessel_i0_cpu">>(m);
  Register<special_modified_bessel_i1,
           FullFloatUnary<Bessel<true, false>, "modified_bessel_i1_cpu">>(m);
  Register<special_modified_bessel_k0,
           FullFloatUnary<BesselK<false, false>, "modified_bessel_k0_cpu">>(m);
  Register<special_modified_bessel_k1,
           FullFloatUnary<BesselK<true, false>, "modified_bessel_k1_cpu">>(m);
  Register<special_scaled_modified_bessel_k0,
           FullFloatUnary<BesselK<false, true>, "scaled_modified_bessel_k0_cpu">>(m);
  Register<special_scaled_modified_bessel_k1,
           FullFloatUnary<BesselK<true, true>, "scaled_modified_bessel_k1_cpu">>(m);
  Register<polygamma, Polygamma>(m);
  Register<special_zeta, FloatBinary<Zeta>>(m);
  Register<special_erfcx, RealFloatUnary<Erfcx, "erfcx">>(m);
  Register<special_log_ndtr, RealFloatUnary<LogNdtr, "log_ndtr">>(m);
  Register<special_ndtri, RealFloatUnary<Ndtri, "ndtri">>(m);
}

}  // namespace torch_xla::ops
