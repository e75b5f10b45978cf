// How gamma and Dirichlet numbers move with their parameters: -(d cdf / d alpha) / pdf, by the
// approximations that PyTorch uses (M. Jankowiak and F. Obermeyer, "Pathwise derivatives beyond the
// reparameterization trick", 2018). In float64, since they cancel.
#include <ATen/ops/_dirichlet_grad_ops.h>
#include <ATen/ops/_standard_gamma_grad_ops.h>

#include <numbers>

#include "ops/common.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

Value Add3(Value a, Value b, Value c) { return hlo::Add(hlo::Add(a, b), c); }
Value Mul3(Value a, Value b, Value c) { return hlo::Mul(hlo::Mul(a, b), c); }
Value OneOver(Value x) { return hlo::Div(FullLike(x, 1), x); }
Value NanToZero(Value x) { return Where(IsNan(x), 0, x); }
Value LogRatio(Value a, Value b) { return hlo::Log(hlo::Div(a, b)); }

// ---- Gamma

// Taylor's series of the distribution function at 0.
Value GammaSmall(Value alpha, Value x) {
  Value term = FullLike(x, 1), at = alpha;
  Value sum = OneOver(at), sum2 = Square(sum);
  for (int i = 1; i <= 5; ++i) {
    term = hlo::Mul(term, Times(x, -1.0 / i));
    at = Plus(at, 1);
    Value t = hlo::Div(term, at);
    sum = hlo::Add(sum, t);
    sum2 = hlo::Add(sum2, hlo::Div(t, at));
  }
  // Everything divided by x^alpha.
  Value slope = hlo::Sub(hlo::Mul(hlo::Sub(hlo::Log(x), Digamma(alpha)), sum), sum2);
  return NanToZero(hlo::Neg(Mul3(slope, x, hlo::Exp(x))));
}

// S. O. Rice's saddle point expansion, for alpha above 8; near the mean a polynomial.
Value GammaLarge(Value alpha, Value x) {
  Value a2 = Square(alpha);
  Value first = Plus(hlo::Mul(Times(alpha, 24), Plus(Times(alpha, 12), 1)), 1);
  Value second = hlo::Add(Times(a2, 1440), hlo::Mul(Times(x, 6), RSub(53, Times(x, 120))));
  second = hlo::Sub(second, Times(hlo::Div(Square(x), alpha), 65));
  second = hlo::Add(second, hlo::Mul(alpha, Plus(Times(x, 3600), 107)));
  Value near = hlo::Div(hlo::Mul(first, second), Times(Square(a2), 1244160));

  Value root = hlo::Sqrt(Times(alpha, 8)), gap = hlo::Sub(alpha, x), log = LogRatio(x, alpha);
  Value saddle = hlo::Pow(hlo::Sub(hlo::Neg(gap), hlo::Mul(alpha, log)), FullLike(x, -1.5));
  saddle = hlo::Select(LtZero(hlo::Neg(gap)), hlo::Neg(saddle), saddle);
  Value term = hlo::Mul(log, hlo::Add(hlo::Div(root, gap), saddle));
  Value rest = hlo::Div(hlo::Mul(hlo::Sqrt(hlo::Div(FullLike(x, 2), alpha)), hlo::Add(alpha, x)),
                        Square(gap));
  Value inverse = OneOver(alpha);
  Value stirling = Plus(hlo::Mul(Times(inverse, 1.0 / 12), Plus(Times(inverse, 1.0 / 24), 1)), 1);
  Value far = hlo::Neg(hlo::Div(Mul3(stirling, x, hlo::Sub(term, rest)), root));
  Value close = hlo::And(hlo::Le(Times(alpha, 0.9), x), hlo::Le(x, Times(alpha, 1.1)));
  return hlo::Select(close, near, far);
}

// A rational function of log(x / alpha) and log(alpha).
Value GammaMiddle(Value alpha, Value x) {
  static constexpr double kC[3][8] = {{0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1,
                                       0.32668115, 0.10406089, 0.0014179084},
                                      {0.53487893, 0.1298071, 0.065735949, -0.0015649758,
                                       0.16639465, 0.020070113, -0.0035938915, -0.00058392623},
                                      {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777,
                                       0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07}};
  Value u = LogRatio(x, alpha), v = hlo::Log(alpha);
  auto part = [&](int first) {
    Value sum = FullLike(x, 0);
    for (int i = first + 3; i >= first; --i) {
      sum = hlo::Add(hlo::Mul(sum, v), Polynomial(u, {kC[2][i], kC[1][i], kC[0][i]}));
    }
    return sum;
  };
  return hlo::Exp(hlo::Div(part(0), part(4)));
}

Value GammaGrad(Value alpha, Value x) {
  Value large = hlo::Gt(alpha, FullLike(alpha, 8));
  Value out = hlo::Select(large, GammaLarge(alpha, x), GammaMiddle(alpha, x));
  return hlo::Select(hlo::Lt(x, FullLike(x, static_cast<double>(0.8F))), GammaSmall(alpha, x), out);
}

// ---- Dirichlet: of the beta number x of alpha and beta, divided by 1 - x.

// Taylor's series at x = 0, with respect to alpha and to beta.
Value AlphaSmall(Value x, Value alpha, Value beta) {
  Value factor = hlo::Sub(hlo::Sub(Digamma(alpha), Digamma(hlo::Add(alpha, beta))), hlo::Log(x));
  Value term = FullLike(x, 1), sum = hlo::Div(hlo::Add(factor, OneOver(alpha)), alpha);
  for (int i = 1; i <= 10; ++i) {
    term = hlo::Mul(term, hlo::Mul(RSub(i, beta), Times(x, 1.0 / i)));
    Value at = Plus(alpha, i);
    sum = hlo::Add(sum, hlo::Mul(hlo::Div(term, at), hlo::Add(factor, OneOver(at))));
  }
  return NanToZero(Mul3(x, hlo::Pow(RSub(1, x), hlo::Neg(beta)), sum));
}
Value BetaSmall(Value x, Value alpha, Value beta) {
  Value factor = hlo::Sub(Digamma(hlo::Add(alpha, beta)), Digamma(beta));
  Value term = FullLike(x, 1), product = term, slope = FullLike(x, 0);
  Value sum = hlo::Div(factor, alpha);
  for (int i = 1; i <= 8; ++i) {
    term = hlo::Mul(term, Times(x, -1.0 / i));
    Value next = Plus(beta, -i);
    slope = hlo::Add(hlo::Mul(slope, next), product);
    product = hlo::Mul(product, next);
    Value bracket = hlo::Add(slope, hlo::Mul(factor, product));
    sum = hlo::Add(sum, hlo::Mul(hlo::Div(term, Plus(alpha, i)), bracket));
  }
  return NanToZero(hlo::Neg(hlo::Mul(hlo::Pow(RSub(1, x), RSub(1, beta)), sum)));
}

// Rice's expansion where alpha and beta are large; near the mean a polynomial.
Value AlphaLarge(Value x, Value alpha, Value beta) {
  Value total = hlo::Add(alpha, beta), mean = hlo::Div(alpha, total), y = RSub(1, x);
  Value product = hlo::Mul(alpha, beta);
  Value deviation = hlo::Div(hlo::Sqrt(hlo::Div(product, Plus(total, 1))), total);

  Value b2 = Square(beta), b3 = hlo::Mul(b2, beta);
  // The coefficients of the powers of alpha, from the highest on.
  Value poly = hlo::Mul(Times(y, 8), Plus(Times(beta, 135), -11));
  Value c3 = hlo::Sub(Plus(hlo::Mul(Times(beta, 1620), y), 453), Times(x, 455));
  Value c2 = Times(hlo::Sub(Plus(Times(beta, 180), 59), Times(x, 90)), 3);
  Value c1 = Plus(hlo::Mul(Times(Plus(Times(beta, 27), 16), 20), x), 43);
  poly = hlo::Add(hlo::Mul(poly, alpha), hlo::Mul(c3, beta));
  poly = hlo::Add(hlo::Mul(poly, alpha), hlo::Mul(c2, b2));
  poly = hlo::Add(hlo::Mul(poly, alpha), hlo::Mul(c1, b3));
  poly = hlo::Add(hlo::Mul(poly, alpha), Mul3(Times(x, 47), b2, b2));
  auto times12 = [](Value v) { return Plus(Times(v, 12), 1); };
  Value scale = hlo::Div(hlo::Mul(times12(alpha), times12(beta)), Square(total));
  Value below = hlo::Mul(Mul3(Times(Square(alpha), 12960), alpha, b2), times12(total));
  Value near = hlo::Div(hlo::Mul(hlo::Div(scale, y), poly), below);

  auto series = [](Value v) {
    Value z = OneOver(v);
    return Polynomial(z, {1.0 / 288, 1.0 / 12, 1});
  };
  Value stirling = hlo::Div(hlo::Mul(series(alpha), series(beta)), series(total));
  Value prefactor = hlo::Neg(hlo::Div(x, hlo::Sqrt(Times(hlo::Div(product, total), 2))));
  Value gap = hlo::Sub(hlo::Mul(beta, x), hlo::Mul(alpha, y));
  Value above = Add3(Times(hlo::Mul(Square(alpha), y), -2), hlo::Neg(hlo::Mul(product, y)),
                     hlo::Neg(hlo::Mul(x, b2)));
  Value under = Mul3(hlo::Sqrt(Times(hlo::Div(alpha, beta), 2)), hlo::Pow(total, FullLike(x, 1.5)),
                     Square(gap));
  Value log_x = LogRatio(alpha, hlo::Mul(total, x)), log_y = LogRatio(beta, hlo::Mul(total, y));
  Value third = hlo::Div(hlo::Sqrt(Times(hlo::Div(product, total), 8)), gap);
  Value fourth =
      hlo::Pow(hlo::Add(hlo::Mul(beta, log_y), hlo::Mul(alpha, log_x)), FullLike(x, -1.5));
  fourth = hlo::Select(hlo::Lt(x, mean), fourth, hlo::Neg(fourth));
  Value sum =
      hlo::Add(hlo::Div(above, under), Mul3(FullLike(x, 0.5), log_x, hlo::Add(third, fourth)));
  Value far = Mul3(stirling, prefactor, sum);
  Value close = hlo::Le(hlo::Abs(hlo::Sub(x, mean)), Times(deviation, 0.1));
  return hlo::Select(close, near, far);
}

// A rational correction to the slope of the mean.
Value AlphaMiddle(Value x, Value alpha, Value total) {
  static constexpr double kC[2][3][3][4] = {
      {{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
        {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
        {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
       {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
        {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
        {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
       {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
        {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
        {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
      {{{1, -0.02924021934, -0.04438342661, 0.007285809825},
        {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
        {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
       {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
        {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
        {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
       {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
        {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
        {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}}};
  Value u = hlo::Log(x), a = hlo::Sub(hlo::Log(alpha), u), b = hlo::Sub(hlo::Log(total), a);
  auto part = [&](int which) {
    Value sum = FullLike(x, 0);
    for (int i = 2; i >= 0; --i) {
      Value inner = FullLike(x, 0);
      for (int j = 2; j >= 0; --j) {
        const double* c = kC[which][i][j];
        inner = hlo::Add(hlo::Mul(inner, a), Polynomial(b, {c[3], c[2], c[1], c[0]}));
      }
      sum = hlo::Add(hlo::Mul(sum, u), inner);
    }
    return sum;
  };
  Value slope = hlo::Mul(x, hlo::Sub(Digamma(total), Digamma(alpha)));
  slope = hlo::Div(slope, hlo::Sub(total, alpha));
  return hlo::Mul(hlo::Div(part(0), part(1)), slope);
}

Value DirichletGrad(Value x, Value alpha, Value total) {
  Value beta = hlo::Sub(total, alpha), y = RSub(1, x);
  auto above = [](Value v, double c) { return hlo::Gt(v, FullLike(v, c)); };
  Value large = hlo::And(above(alpha, 6), above(beta, 6));
  Value out = hlo::Select(large, AlphaLarge(x, alpha, beta), AlphaMiddle(x, alpha, total));
  Value boundary = Mul3(total, x, y);
  auto within = [&](Value side, double limit) {
    return hlo::And(side, hlo::Lt(boundary, FullLike(x, limit)));
  };
  Value high = within(hlo::Ge(x, FullLike(x, 0.5)), 0.75);
  out = hlo::Select(high, hlo::Neg(BetaSmall(y, beta, alpha)), out);
  Value low = within(hlo::Le(x, FullLike(x, 0.5)), 2.5);
  return hlo::Select(low, AlphaSmall(x, alpha, beta), out);
}

// ----

void Check(const char* kernel, std::initializer_list<Arg> args) {
  DType t = args.begin()->dtype();
  CheckImplemented(t == DType::kF32 || t == DType::kF64, kernel, t);
  for (const Arg& a : args) {
    XLA_CHECK(a.dtype() == t, kInvalidArgument, "Found dtype ", TorchName(a.dtype()),
              " but expected ", TorchName(t));
  }
}

struct StandardGammaGrad {
  static Shape Infer(const Arg& alpha, const Arg& x) {
    Check("_standard_gamma_grad_cpu", {alpha, x});
    return {alpha.dtype(), Broadcast({alpha, x})};
  }
  static Value Lower(const Shape& out, Value alpha, Value x) {
    Shape wide = out.with(DType::kF64);
    return hlo::ConvertTo(GammaGrad(Fit(alpha, wide), Fit(x, wide)), out.dtype);
  }
};

struct DirichletGradient {
  static Shape Infer(const Arg& x, const Arg& alpha, const Arg& total) {
    Check("_dirichlet_grad_cpu", {x, alpha, total});
    return {x.dtype(), Broadcast({x, alpha, total})};
  }
  static Value Lower(const Shape& out, Value x, Value alpha, Value total) {
    Shape wide = out.with(DType::kF64);
    Value y = DirichletGrad(Fit(x, wide), Fit(alpha, wide), Fit(total, wide));
    return hlo::ConvertTo(y, out.dtype);
  }
};

}  // namespace

XLA_OPS(m) {
  Register<at::_ops::_standard_gamma_grad, StandardGammaGrad>(m);
  Register<at::_ops::_dirichlet_grad, DirichletGradient>(m);
}

}  // namespace torch_xla::ops
