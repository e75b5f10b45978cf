"""Elementwise operators and activations against PyTorch on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from torch_xla.debug import metrics

from .oracle import SPECIAL, check, check_error, floats, ints

HALF = torch.bfloat16

# name -> (function, lowest and highest input)
UNARY = {
    "abs": (torch.abs, -3, 3),
    "acos": (torch.acos, -1, 1),
    "acosh": (torch.acosh, 1, 9),
    "angle": (torch.angle, -3, 3),
    "asin": (torch.asin, -1, 1),
    "asinh": (torch.asinh, -9, 9),
    "atan": (torch.atan, -9, 9),
    "atanh": (torch.atanh, -1, 1),
    "ceil": (torch.ceil, -9, 9),
    "cos": (torch.cos, -9, 9),
    "cosh": (torch.cosh, -9, 9),
    "digamma": (torch.digamma, -5, 9),
    "erfcx": (torch.special.erfcx, -2, 9),
    "i0": (torch.special.i0, -9, 12),
    "i0e": (torch.special.i0e, -9, 12),
    "i1": (torch.special.i1, -9, 12),
    "i1e": (torch.special.i1e, -9, 12),
    "log_ndtr": (torch.special.log_ndtr, -9, 4),
    "ndtri": (torch.special.ndtri, 0, 1),
    "polygamma_2": (lambda x: torch.polygamma(2, x), 0.3, 9),
    "trigamma": (lambda x: torch.polygamma(1, x), -5, 9),
    "entr": (torch.special.entr, 0, 3),
    "erf": (torch.erf, -4, 4),
    "erfc": (torch.erfc, -4, 6),
    "erfinv": (torch.erfinv, -1, 1),
    "exp": (torch.exp, -5, 5),
    "exp2": (torch.exp2, -5, 5),
    "expm1": (torch.expm1, -5, 5),
    "floor": (torch.floor, -9, 9),
    "frac": (torch.frac, -9, 9),
    "lgamma": (torch.lgamma, -5, 9),
    "log": (torch.log, 0, 9),
    "log10": (torch.log10, 0, 9),
    "log1p": (torch.log1p, -1, 9),
    "log2": (torch.log2, 0, 9),
    "logit": (torch.logit, 0, 1),
    "logit_eps": (lambda x: torch.logit(x, 0.2), 0, 1),
    "neg": (torch.neg, -3, 3),
    "nan_to_num": (lambda x: torch.nan_to_num(x, 1, 2, 3), -3, 3),
    "reciprocal": (torch.reciprocal, 0.1, 3),
    "round": (torch.round, -9, 9),
    "round_2": (lambda x: torch.round(x, decimals=2), -9, 9),
    "rsqrt": (torch.rsqrt, 0.1, 9),
    "sgn": (torch.sgn, -3, 3),
    "sigmoid": (torch.sigmoid, -9, 9),
    "sign": (torch.sign, -3, 3),
    "sin": (torch.sin, -9, 9),
    "sinc": (torch.sinc, -3, 3),
    "sinh": (torch.sinh, -9, 9),
    "sqrt": (torch.sqrt, 0.1, 9),
    "square": (torch.square, -3, 3),
    "tan": (torch.tan, -1, 1),
    "tanh": (torch.tanh, -5, 5),
    "trunc": (torch.trunc, -9, 9),
}

ACTIVATIONS = {
    "celu": lambda x: F.celu(x, 0.7),
    "elu": lambda x: F.elu(x, 0.7),
    "elu_inplace": lambda x: F.elu_(x * 1),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(x, 1),
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 1.5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "prelu": lambda x: F.prelu(x, torch.full((6,), 0.3, dtype=x.dtype, device=x.device)),
    "relu": F.relu,
    "relu6": F.relu6,
    "selu": F.selu,
    "silu": F.silu,
    "softplus": lambda x: F.softplus(x, 2, 3),
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.3, 7.0),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    fn, low, high = UNARY[name]
    x = floats(5, 7, low=low, high=high)
    check(lambda x, d: (fn(x), fn(d)), x, x[0].double(), rtol=5e-5, atol=1e-5)

    def others(half, special, i):
        return (
            None if name in ("erfcx", "log_ndtr", "ndtri") else fn(half),
            fn(special),
            None if name in ("frac", "round_2") else fn(i),
        )

    check(others, x[1].to(HALF), SPECIAL, ints(4, low=0), grad=False)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    fn = ACTIVATIONS[name]
    check(lambda x, d: (fn(x), fn(d)), floats(4, 6), floats(5, 6, dtype=torch.float64))
    check(fn, floats(3, 6, dtype=HALF), rtol=2e-2, atol=2e-2)
    special = torch.cat([SPECIAL, floats(1)]).reshape(2, 6)
    if name.startswith("gelu"):  # of infinity NaN on some processors
        special = special.where(~special.isinf(), 3.0)
    check(fn, special, grad=False)


BINARY = {
    "add": torch.add,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=3),
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "div": torch.div,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "eq": torch.eq,
    "floor_divide": torch.floor_divide,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "fmod": torch.fmod,
    "ge": torch.ge,
    "gt": torch.gt,
    "le": torch.le,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "lt": torch.lt,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "ne": torch.ne,
    "remainder": torch.remainder,
    "rsub": torch.rsub,
    "sub": torch.sub,
    "where": lambda a, b: torch.where(a > b, a, b),
    "xlogy": lambda a, b: torch.xlogy(a, b.abs()),
}

FLOAT_BINARY = {
    "heaviside": torch.heaviside,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "nextafter": torch.nextafter,
    "pow": lambda a, b: torch.pow(a.abs(), b),
    "xlog1py": lambda a, b: torch.special.xlog1py(a, b.abs()),
}


@pytest.mark.parametrize("name", BINARY | FLOAT_BINARY)
def test_binary(name):
    fn = (BINARY | FLOAT_BINARY)[name]
    differentiable = name not in ("heaviside", "nextafter", "floor_divide")
    check(fn, floats(5, 4), floats(4, low=0.2), grad=differentiable)
    left, right = SPECIAL.reshape(-1, 1), SPECIAL.clone()
    if name in ("remainder", "fmod", "div_floor", "floor_divide"):
        left, right = floats(7, 1, low=-9, high=9), torch.tensor([1.0, -0.7, 2.5, torch.inf])
    check(fn, left, right, grad=False)


@pytest.mark.parametrize("name", BINARY)
def test_binary_types(name):
    fn = BINARY[name]
    one = ints(6, dtype=torch.int32, low=1)

    def pairs(i, u, h, f, one):
        return fn(i, one), fn(u, one), fn(i, f), fn(f, one[:1]), fn(h, f), fn(i, one[0])

    unsigned = ints(6, dtype=torch.uint8, low=0, high=250)
    check(pairs, ints(6), unsigned, floats(6, dtype=HALF), floats(6, low=0.2), one, grad=False)


BITS = {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "left": torch.bitwise_left_shift,
    "right": torch.bitwise_right_shift,
}


@pytest.mark.parametrize("name", BITS)
def test_bits(name):
    fn = BITS[name]

    def run(a, b, small):
        return fn(a, b), fn(a, 3), fn(small, b.to(torch.int8)), a << 2, a >> b

    check(run, ints(7, low=-99, high=99), ints(7, low=0, high=9), ints(7, dtype=torch.int8))


def test_logic():
    mask = ints(5, low=0, high=2, dtype=torch.bool)
    check(
        lambda m, i: (~m, ~i, m & m, m | ~m, m ^ m, torch.logical_not(i), m + m, m * m),
        mask,
        ints(5),
    )


def test_float_tests():
    for fn in (
        torch.isnan,
        torch.isinf,
        torch.isfinite,
        torch.isposinf,
        torch.isneginf,
        torch.signbit,
    ):
        check(lambda x, i, fn=fn: (fn(x), fn(i)), SPECIAL, ints(3), grad=False)


def test_divisors_and_mantissas():
    pairs = ints(9, low=-40, high=40), ints(9, low=-3)
    check(lambda a, b: (torch.gcd(a, b), torch.lcm(a, b), torch.gcd(a.int(), b.int())), *pairs)
    x = torch.cat([SPECIAL, torch.tensor([3.0, -0.75])])
    check(lambda x, d: (torch.frexp(x), torch.frexp(d)), x, x.double() / 3, grad=False)


EXPONENTS = [2, 3, 0.5, -0.5, -1, -2, 0, 1, 2.5, -3]


def test_pow_of_numbers():
    check(lambda x: [x**e for e in EXPONENTS] + [2**x, 1**x, 0.5**x], floats(6, low=0.3))
    check(lambda i: (i**2, i**3, i**0, i**0.5, 2**i, i**i), ints(5, low=0), grad=False)
    check(lambda a, b: a**b, ints(7, low=-3), ints(7, low=-3), grad=False)


def test_ternary():
    a, b, c = floats(4, 5), floats(5, low=0.4), floats(4, 1, low=0.1, high=0.9)
    check(lambda a, b, c: torch.addcmul(a, b, c, value=0.3), a, b, c)
    check(lambda a, b, c: torch.addcdiv(a, c, b, value=-0.3), a, b, c)
    check(
        lambda a, b, c: (torch.lerp(a, b, c), torch.lerp(a, b, 0.2), torch.lerp(a, b, 0.8)), a, b, c
    )
    check(lambda a, b, c: (a.clamp(b - 1, c), a.clamp(min=c), a.clamp(max=b)), a, b, c)
    check(lambda a: (a.clamp(-1, 1), a.clamp(min=0.5), a.clamp(max=0.5), a.clamp_min(0)), a)
    check(lambda i: (i.clamp(-1, 2), i.clamp(0.5, 2.5)), ints(9), grad=False)
    check(lambda h: torch.addcmul(h, h, h, value=0.1), floats(6, dtype=HALF))


def test_numbers_take_part_last():
    h = floats(5, dtype=HALF)
    check(
        lambda h, i: (
            h + 0.1,
            h * 3,
            i + 1,
            i * 0.5,
            i / 2,
            1 - h,
            2 / (h + 9),
            i // 2,
            i % 3,
            h == 0.1,
            i == 1,
            i > 0.5,
        ),
        h,
        ints(4),
        grad=False,
    )
    zero = torch.tensor(2.5, dtype=torch.float64)
    check(lambda x, z, i: (x * z, i + z, z + 1, z > 1), floats(4), zero, ints(4), grad=False)


def test_optimizer_forms_in_place():
    def step(p, g, m, v):
        p, m, v = p.clone(), m.clone(), v.clone()
        m.lerp_(g, 0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        denom = (v.sqrt() / 0.5).add_(1e-8)
        p.addcdiv_(m, denom, value=-0.01)
        p.sub_(g, alpha=0.1).neg_().div_(3).clamp_(-1, 1)
        return p, m, v, v.sqrt_(), m.relu_()

    check(step, floats(7), floats(7), floats(7), floats(7, low=0), grad=False)


def test_complex():
    z = torch.complex(floats(6), floats(6, low=-2, high=1))
    w = torch.complex(floats(6, low=1), floats(6))
    fns = (
        torch.sin,
        torch.cos,
        torch.exp,
        torch.sqrt,
        torch.log,
        torch.tanh,
        torch.asin,
        torch.acos,
        torch.atan,
        torch.asinh,
        torch.acosh,
        torch.atanh,
        torch.sgn,
        torch.sinh,
    )
    check(
        lambda z, w: (z + w, z - w, z * w, z / w, z.abs(), z.angle(), z == w, -z, 1 / z),
        z,
        w,
        rtol=1e-4,
        atol=1e-5,
    )
    check(lambda z: [f(z) for f in fns], z, rtol=1e-4, atol=1e-5, grad=False)
    check(lambda a, b: (torch.complex(a, b), torch.polar(a, b)), floats(5), floats(5))


def test_acosh_below_one():
    x = torch.tensor([-torch.inf, -1e30, -1e20, -1e10, -1e4, -1.5, -1, -0.5, 0, 0.99, 1, 2, 1e30])
    check(lambda *xs: [x.acosh() for x in xs], x, x.double(), x.bfloat16(), x.half(), grad=False)


# Zeros, small and large numbers, infinities and NaN in both parts, points on all branch cuts.
PARTS = (0.0, 1e-30, 1e-8, 0.3, 1.0, 2.0, 30.0, 100.0, 1e10, 1e20, 3e38, torch.inf)
PARTS = torch.tensor([*PARTS, *(-p for p in PARTS), torch.nan], dtype=torch.float64)
COMPLEX = [
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
    "rsqrt",
    "log",
    "log2",
    "log10",
    "log1p",
    "exp",
    "exp2",
    "expm1",
    "sinc",
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_edges(name, dtype):
    fn = getattr(torch, name)
    z = torch.complex(*(p.to(dtype).flatten() for p in torch.meshgrid(PARTS, PARTS, indexing="ij")))
    want = torch.view_as_real(fn(z))
    got = torch.view_as_real(fn(z.to("xla"))).cpu()
    torch.testing.assert_close(got, want, rtol=2e-6, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() & ~want.isnan(), want.signbit() & ~want.isnan())


# torch's forward AD scripts its decompositions.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_function(name):
    fn = getattr(torch, name)
    z = torch.complex(floats(6), floats(6, low=-2, high=1))
    check(fn, z, rtol=1e-4, atol=1e-5)
    check(fn, z.to(torch.complex128), rtol=1e-9, atol=1e-9)
    check(lambda *zs: [fn(z) for z in zs], z[0], z[:0], z.reshape(2, 3).t(), grad=False)
    check(lambda z: getattr(z.clone(), f"{name}_")(), z, grad=False)

    def forward_gradient(z, t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(fn(forward_ad.make_dual(z, t))).tangent

    check(forward_gradient, z, z.flip(0), rtol=1e-4, atol=1e-5, grad=False)


def test_complex_abs_of_infinity():
    z = torch.complex(torch.tensor([torch.inf, torch.nan, 1.0]), torch.tensor([torch.nan] * 3))
    check(
        torch.abs, torch.cat([z, torch.view_as_complex(torch.view_as_real(z).flip(-1))]), grad=False
    )


ERRORS = {
    "bool_sub": lambda x, i, b: b - b,
    "bool_neg": lambda x, i, b: -b,
    "alpha": lambda x, i, b: torch.add(i, i, alpha=0.5),
    "shapes": lambda x, i, b: x + torch.cat([x, x]),
    "negative_power": lambda x, i, b: i**-1,
    "clamp": lambda x, i, b: x.clamp(),
    "lerp": lambda x, i, b: torch.lerp(x, x.double(), 0.5),
    "rounding": lambda x, i, b: torch.div(x, x, rounding_mode="up"),
    "float_and": lambda x, i, b: x & x,
    "glu": lambda x, i, b: F.glu(x),
    "gelu": lambda x, i, b: F.gelu(x, approximate="erf"),
    "relu": lambda x, i, b: F.relu(b),
    "heaviside": lambda x, i, b: torch.heaviside(x, i),
    "addcdiv": lambda x, i, b: torch.addcdiv(i, i, i),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    check_error(ERRORS[name], floats(3), ints(3), ints(3, dtype=torch.bool))


NUMBERS = {
    "pow": lambda x, n: x**n,
    "pow_": lambda x, n: x.clone().pow_(n),
    "nan_to_num": lambda x, n: x.nan_to_num(n, posinf=2 * n),
    "var": lambda x, n: x.var(0, correction=n),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_another_number_compiles_nothing(name):
    fn, x = NUMBERS[name], floats(7, low=0.1)
    compiled = []
    for n in (1.7, 2.6, 4.4):
        torch.testing.assert_close(fn(x.to("xla"), n).cpu(), fn(x, n), rtol=1e-5, atol=1e-5)
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert compiled[0] == compiled[1] == compiled[2]


NAN, INF = torch.nan, torch.inf
MASKED = {
    "product": lambda x, m: x * m,
    "converted": lambda x, m: x * m.float(),
    "compared": lambda x, m: (x > 0) * torch.log(x),
    "quotient": lambda x, m: (x == 9).float() / (x == 9).sum(),
    "sum": lambda x, m: (x * m).sum(),
    "half": lambda x, m: x.half() * m,
    "double": lambda x, m: x.double() * m,
    "complex": lambda x, m: torch.view_as_real(x.to(torch.complex64) + m),
    "amax": lambda x, m: torch.amax(x.reshape(2, 2), 1),
}


@pytest.mark.parametrize("name", MASKED)
def test_nan_survives_a_mask(name):
    """Compilers like to make a choice of a product with a mask."""
    x = torch.tensor([1.0, NAN, INF, 0.0])
    check(MASKED[name], x, torch.tensor([True, False, False, True]))


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers(dtype):
    base = torch.tensor([2, 3, 5, 7, 1, 0, 11], dtype=dtype)

    def fn(x):
        exponents = (0, 1, 2, 5, 31, 63, 64, 65, 100, 127)
        by_number = [x**e for e in exponents]
        by_tensor = [torch.pow(x, torch.full_like(x, e)) for e in exponents]
        of_number = [torch.pow(3, torch.full_like(x, e)) for e in exponents]
        return by_number, by_tensor, of_number

    check(fn, base, grad=False)
    if dtype != torch.uint8:
        check(fn, -base, grad=False)
        minus = torch.tensor([-1, -3, -1, -2, -2], dtype=dtype)
        check(torch.pow, torch.tensor([1, -1, 2, -2, -1], dtype=dtype), minus, grad=False)


def bytes_(x):
    return torch.ones_like(x, dtype=torch.uint8)


TOO_LARGE = {
    "clamp": lambda x: x.to(torch.int8).clamp(-300, 300),
    "clamp_min": lambda x: x.to(torch.int8).clamp_min(300),
    "clamp_half": lambda x: x.half().clamp(max=1e5),
    "hardtanh": lambda x: F.hardtanh(x.to(torch.int8), -300, 300),
    "scatter": lambda x: bytes_(x).scatter(0, torch.zeros_like(x, dtype=torch.int64), 300),
    "pad": lambda x: F.pad(bytes_(x), (1, 1), value=300),
    "alpha": lambda x: torch.add(bytes_(x), bytes_(x), alpha=300),
    "addcmul": lambda x: torch.addcmul(bytes_(x), bytes_(x), bytes_(x), value=300),
    "threshold": lambda x: F.threshold(x.to(torch.int8), 300, 300),
    "pow": lambda x: x.to(torch.int8) ** 300,
    "masked_fill": lambda x: bytes_(x).masked_fill(x > 0, 300),
    "full": lambda x: torch.full_like(bytes_(x), 300),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_that_do_not_fit(name):
    check_error(TOO_LARGE[name], torch.ones(3))


OUT = {
    "sum": (torch.int64, lambda x, out: torch.sum(x, 1, out=out)),
    "cumsum": (torch.int64, lambda x, out: torch.cumsum(x, 1, out=out)),
    "sum_double": (torch.float64, lambda x, out: torch.sum(x, 1, out=out)),
    "cat": (torch.float64, lambda x, out: torch.cat([x, x], out=out)),
    "matmul": (torch.float32, lambda x, out: torch.matmul(x, x.mT, out=out)),
    "linspace": (torch.int64, lambda x, out: torch.linspace(1.5, 50, 50, out=out)),
    "eye": (torch.float32, lambda x, out: torch.eye(2, 3, out=out)),
    "mode": (torch.int64, lambda x, out: torch.mode(x, 1, out=(torch.empty_like(x), out))[1]),
    "cummax": (torch.int64, lambda x, out: torch.cummax(x, 1, out=(torch.empty_like(x), out))[1]),
    "kron": (torch.float32, lambda x, out: torch.kron(x, x, out=out)),
    "matrix_power": (
        torch.float32,
        lambda x, out: torch.linalg.matrix_power(x[:, :2], 4, out=out),
    ),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", OUT)
def test_out(name):
    dtype, fn = OUT[name]
    check(lambda x: fn(x, torch.empty(0, dtype=dtype, device=x.device)), floats(2, 3), grad=False)


def test_out_takes_no_gradient():
    check_error(
        lambda x: torch.matmul(x, x, out=torch.empty_like(x)), floats(2, 2).requires_grad_()
    )
    with pytest.raises(RuntimeError, match="Expected out tensor to have device"):
        torch.matmul(*[torch.ones(2, 2, device="xla")] * 2, out=torch.ones(2, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_are_divided(dtype):
    """Not multiplied by a reciprocal, with which the mean of 49 ones is not 1."""
    for n in (41, 49, 98, 103):
        assert torch.ones(n, dtype=dtype, device="xla").mean().item() == 1
    assert torch.equal(
        torch.linspace(50, 1, 50, dtype=torch.int64, device="xla").cpu(), torch.arange(50, 0, -1)
    )


def test_float8():
    values = torch.tensor([0.0, 1, -2.5, 300, 449, 464, 1e9, -1e9, -1e-5, 0.3, INF])
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        for source in (torch.float32, torch.bfloat16, torch.float64, torch.float8_e5m2):
            x = values.to(source)
            got, want = x.to("xla").to(dtype).cpu(), x.to(dtype)
            assert got.dtype == dtype
            torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=0, equal_nan=True)
    a = floats(16, 16).to(torch.float8_e4m3fn)
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    for args in ({}, {"out_dtype": torch.bfloat16}, {"bias": floats(16)}):
        on = [t.to("xla") for t in (a, a.t(), one, two)]
        moved = {k: v.to("xla") if isinstance(v, torch.Tensor) else v for k, v in args.items()}
        got = torch._scaled_mm(*on, **moved).cpu().float()
        want = torch._scaled_mm(a, a.t(), one, two, **args).float()
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
