// Orthogonal polynomials of x and a degree n, both tensors: the recurrence in a while loop until
// every element has its degree, with PyTorch's closed forms and special cases. x and n are of one
// floating type; a degree is cut to an integer, and what is no int64 counts as negative, of which
// the polynomial is 0.
#include <ATen/ops/special_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/special_hermite_polynomial_h_ops.h>
#include <ATen/ops/special_hermite_polynomial_he_ops.h>
#include <ATen/ops/special_laguerre_polynomial_l_ops.h>
#include <ATen/ops/special_legendre_polynomial_p_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_ops.h>

#include <limits>

#include "hlo/control.h"
#include "hlo/reduce.h"
#include "ops/common.h"
#include "ops/lowering.h"
#include "ops/math.h"

namespace torch_xla::ops {
namespace {

using Values = std::vector<Value>;

Value Degree(Value n) {
  Value inside = hlo::Lt(hlo::Abs(n), FullLike(n, 0x1p63));
  return Where(inside, Trunc(n), -1);
}
Value IsEven(Value n) { return IsZero(hlo::Sub(n, Times(hlo::Floor(Times(n, 0.5)), 2))); }

// The polynomial of degree n >= 1 where `open`, from those of degrees 0 and 1, 1 and `first`;
// next(k, q, p) is the one of degree k + 1. Ends early where it is NaN.
template <typename F>
Value Recur(Value open, Value n, Value first, F next) {
  auto active = [&](Value k, Value q) {
    Value below = hlo::Lt(FitTo(k, n), n);
    return hlo::And(open, hlo::And(below, hlo::Not(IsNan(q))));
  };
  auto cond = [&](Builder&, std::span<const Value> v) {
    return Values{hlo::Reduce(active(v[0], v[1]), Range(n.rank()), hlo::Reducer::kOr)};
  };
  auto body = [&](Builder&, std::span<const Value> v) {
    Value k = FitTo(v[0], n), go = active(v[0], v[1]);
    Value q = hlo::Select(go, next(k, v[1], v[2]), v[1]);
    return Values{Plus(v[0], 1), q, v[1]};
  };
  const Value inits[] = {hlo::ScalarInt(n.builder(), DType::kS64, 1), first, FullLike(n, 1)};
  return hlo::While(inits, cond, body)[1];
}

// The value at the end: 0 of a negative degree, 1 of degree 0.
Value OfDegree(Value n, Value y) { return Where(LtZero(n), 0, Where(IsZero(n), 1, y)); }

enum class Kind { kT, kU, kV, kW };

// At 1, and the magnitude at -1.
template <Kind kKind>
Value AtEnd(Value n, bool right) {
  if (kKind == Kind::kU) return Plus(n, 1);
  if (kKind == (right ? Kind::kW : Kind::kV)) return Plus(Times(n, 2), 1);
  return FullLike(n, 1);
}

template <Kind kKind, bool kShifted>
Value Chebyshev(Value original, Value n) {
  n = Degree(n);
  Value x = kShifted ? Plus(hlo::Add(original, original), -1) : original;
  Value at_one = hlo::Eq(original, FullLike(x, 1));
  Value at_minus_one = hlo::Eq(original, FullLike(x, kShifted ? 0 : -1));
  Value one = AtEnd<kKind>(n, true), minus_one = AtEnd<kKind>(n, false);
  minus_one = hlo::Select(IsEven(n), minus_one, hlo::Neg(minus_one));

  constexpr double kFrom = kKind == Kind::kT ? 6 : !kShifted ? 8 : kKind == Kind::kW ? 4 : 6;
  Value closed = hlo::And(hlo::Gt(n, FullLike(n, kFrom)), hlo::Lt(hlo::Abs(x), FullLike(x, 1)));
  Value a = hlo::Atan2(hlo::Sqrt(hlo::Mul(RSub(1, x), Plus(x, 1))), x);
  Value half = Times(a, 0.5), middle = hlo::Mul(Plus(n, 0.5), a), next = hlo::Mul(Plus(n, 1), a);
  Value form;
  if (kKind == Kind::kT) {
    form = hlo::Cos(hlo::Mul(n, a));
  } else if (kKind == Kind::kU) {
    Value sine = hlo::Sin(a);
    Value limit = hlo::Div(hlo::Mul(Plus(n, 1), hlo::Cos(next)), x);
    form = hlo::Select(IsZero(sine), limit, hlo::Div(hlo::Sin(next), sine));
  } else if (kKind == Kind::kV) {
    Value edge = hlo::Eq(hlo::Sin(half), FullLike(x, 1));
    form = hlo::Select(edge, minus_one, hlo::Div(hlo::Cos(middle), hlo::Cos(half)));
  } else {
    Value edge = hlo::Eq(hlo::Cos(half), FullLike(x, 1));
    Value limit = hlo::Select(hlo::Gt(original, FullLike(x, 0)), one, minus_one);
    form = hlo::Select(edge, limit, hlo::Div(hlo::Sin(middle), hlo::Sin(half)));
  }

  Value twice = hlo::Add(x, x);
  Value first = kKind == Kind::kT   ? x
                : kKind == Kind::kU ? twice
                                    : Plus(twice, kKind == Kind::kV ? -1 : 1);
  Value known = hlo::Or(hlo::Or(at_one, at_minus_one), closed);
  Value y = Recur(hlo::Not(known), n, first,
                  [&](Value, Value q, Value p) { return hlo::Sub(hlo::Mul(twice, q), p); });
  y = hlo::Select(closed, form, y);
  y = hlo::Select(at_one, one, hlo::Select(at_minus_one, minus_one, y));
  return OfDegree(n, y);
}

// Of the physicists and (He) the probabilists. Degrees that surely overflow are NaN.
template <bool kHe>
Value Hermite(Value x, Value n) {
  n = Degree(n);
  Value large = hlo::Gt(n, FullLike(n, n.dtype() == DType::kF64 ? 512 : 128));
  Value first = kHe ? x : hlo::Add(x, x);
  Value y = Recur(hlo::Not(large), n, first, [&](Value k, Value q, Value p) {
    return hlo::Sub(hlo::Mul(first, q), hlo::Mul(kHe ? k : Times(k, 2), p));
  });
  return OfDegree(n, Where(large, NAN, y));
}

Value Laguerre(Value x, Value n) {
  n = Degree(n);
  Value first = RSub(1, x), zero = IsZero(x);
  Value y = Recur(hlo::Not(zero), n, first, [&](Value k, Value q, Value p) {
    Value up = hlo::Mul(hlo::Add(Times(k, 2), first), q);
    return hlo::Div(hlo::Sub(up, hlo::Mul(k, p)), Plus(k, 1));
  });
  return OfDegree(n, Where(zero, 1, y));
}

Value Legendre(Value x, Value n) {
  n = Degree(n);
  Value end = hlo::Eq(hlo::Abs(x), FullLike(x, 1));
  Value y = Recur(hlo::Not(end), n, x, [&](Value k, Value q, Value p) {
    Value up = hlo::Mul(hlo::Mul(Plus(Times(k, 2), 1), x), q);
    return hlo::Div(hlo::Sub(up, hlo::Mul(k, p)), Plus(k, 1));
  });
  Value positive = hlo::Or(hlo::Gt(x, FullLike(x, 0)), IsEven(n));
  Value sign = hlo::Select(positive, FullLike(x, 1), FullLike(x, -1));
  return OfDegree(n, hlo::Select(end, sign, y));
}

}  // namespace

XLA_OPS(m) {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace)
  Register<special_chebyshev_polynomial_t,
           FullFloatBinary<Chebyshev<Kind::kT, false>, "chebyshev_polynomial_t_cpu">>(m);
  Register<special_chebyshev_polynomial_u,
           FullFloatBinary<Chebyshev<Kind::kU, false>, "chebyshev_polynomial_u_cpu">>(m);
  Register<special_chebyshev_polynomial_v,
           FullFloatBinary<Chebyshev<Kind::kV, false>, "chebyshev_polynomial_v_cpu">>(m);
  Register<special_chebyshev_polynomial_w,
           FullFloatBinary<Chebyshev<Kind::kW, false>, "chebyshev_polynomial_w_cpu">>(m);
  Register<special_hermite_polynomial_h,
           FullFloatBinary<Hermite<false>, "hermite_polynomial_h_cpu">>(m);
  Register<special_hermite_polynomial_he,
           FullFloatBinary<Hermite<true>, "hermite_polynomial_he_cpu">>(m);
  Register<special_laguerre_polynomial_l, FullFloatBinary<Laguerre, "laguerre_polynomial_l_cpu">>(
      m);
  Register<special_legendre_polynomial_p, FullFloatBinary<Legendre, "legendre_polynomial_p_cpu">>(
      m);
  Register<special_shifted_chebyshev_polynomial_t,
           FullFloatBinary<Chebyshev<Kind::kT, true>, "shifted_chebyshev_polynomial_t_cpu">>(m);
  Register<special_shifted_chebyshev_polynomial_u,
           FullFloatBinary<Chebyshev<Kind::kU, true>, "shifted_chebyshev_polynomial_u_cpu">>(m);
  Register<special_shifted_chebyshev_polynomial_v,
           FullFloatBinary<Chebyshev<Kind::kV, true>, "shifted_chebyshev_polynomial_v_cpu">>(m);
  Register<special_shifted_chebyshev_polynomial_w,
           FullFloatBinary<Chebyshev<Kind::kW, true>, "shifted_chebyshev_polynomial_w_cpu">>(m);
}

}  // namespace torch_xla::ops
