"""Special functions beyond elementary ones against PyTorch on the CPU: Bessel functions, orthogonal
polynomials, incomplete gamma functions, and accuracy where formulas cancel."""

import pytest
import torch

import torch_xla

from .oracle import DEVICE, check, check_error

S = torch.special
NAN, INF = torch.nan, torch.inf

BESSEL = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
]
POLYNOMIALS = [
    *(f"{shifted}chebyshev_polynomial_{k}" for shifted in ("", "shifted_") for k in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]
INCOMPLETE = ["gammainc", "gammaincc"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BESSEL)
def test_bessel(name, dtype):
    edges = [0.0, -0.0, NAN, INF, -INF, 1e-30, 1e30, 2, -2, 5, 8, 2.09, -2.09, 103.8, 104, 150]
    x = torch.cat([torch.linspace(-40, 40, 801), torch.tensor(edges)]).to(dtype)
    tolerance = {"rtol": 1e-12, "atol": 1e-13} if dtype == torch.float64 else {}
    check(getattr(S, name), x, grad=False, **tolerance)
    check(getattr(S, name), torch.arange(1, 5), grad=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name, dtype):
    fn = getattr(S, name)
    edges = torch.tensor([0.0, -0.0, INF, -INF, 1, -1, 2, 3, -7, 20, 1e-20, 0.99999])
    x = torch.cat([torch.linspace(-1.3, 1.3, 53), edges]).to(dtype)
    n = torch.tensor([-3, -0.5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12.7, 33, NAN, INF, -INF, 1e20])
    x, n = (v.contiguous() for v in torch.meshgrid(x, n.to(dtype), indexing="ij"))
    check(fn, x, n, grad=False)
    # A NaN has no degree from 2 on that PyTorch defines.
    low = torch.tensor([-1.0, 0, 1], dtype=dtype)
    check(fn, torch.full((3,), NAN, dtype=dtype), low, grad=False)
    assert fn(torch.tensor([NAN], device=DEVICE), 5).isnan().all()


def test_hermite_of_large_degrees():
    for dtype in (torch.float32, torch.float64):
        n = torch.tensor([100.0, 128, 129, 512, 513], dtype=dtype)
        for fn in (S.hermite_polynomial_h, S.hermite_polynomial_he):
            check(lambda n, f=fn: (f(n / n, n), f(n * 0 + 0.3, n)), n, grad=False)


def test_legendre_and_laguerre_of_large_degrees():
    x, n = torch.tensor([0.3, 0.9, 2.0]).double(), torch.tensor([500.0, 300, 60]).double()
    check(
        lambda x, n: (S.legendre_polynomial_p(x, n), S.laguerre_polynomial_l(x, n)),
        x,
        n,
        grad=False,
    )


def test_numbers_as_x_and_as_degree():
    """They are inputs: another degree does not compile again."""
    x = torch.tensor([0.3, -2.0, 1.0])
    for name in POLYNOMIALS:
        fn = getattr(S, name)
        check(lambda x, f=fn: (f(x, 3), f(0.4, x.abs()), f(x.long(), 2)), x, grad=False)

    def step(n):
        y = S.hermite_polynomial_h(x.to(DEVICE), n)
        torch_xla.sync()
        return y.cpu()

    step(3)
    before = torch_xla._XLAC._xla_metric_data("CompileTime")[0]
    assert torch.equal(step(5), S.hermite_polynomial_h(x, 5))
    assert torch_xla._XLAC._xla_metric_data("CompileTime")[0] == before


def pairs(a, x):
    a, x = torch.meshgrid(a, x, indexing="ij")
    return a.contiguous(), x.contiguous()


@pytest.mark.parametrize("name", INCOMPLETE)
def test_incomplete_gamma(name):
    fn = getattr(S, name)
    a = torch.cat([torch.logspace(-8, 8, 60), torch.tensor([20.0, 200.0])]).double()
    near = torch.cat([torch.logspace(-6, 3, 30), torch.linspace(0.6, 1.5, 40)]).double()
    a, r = pairs(a, near)
    # PyTorch's expansion has a float32 pi in its factor.
    check(fn, a, a * r, grad=False, rtol=1e-7, atol=1e-9)
    check(
        fn,
        *pairs(torch.logspace(-3, 3, 40).double(), torch.logspace(-5, 3, 40).double()),
        grad=False,
        rtol=1e-7,
        atol=1e-9,
    )
    check(fn, a.float(), (a * r).float(), grad=False, rtol=1e-5, atol=3e-6)
    for dtype in (torch.bfloat16, torch.float16):
        half = a.clamp(max=1e4).to(dtype)
        check(fn, half, (half * r).clamp(max=3e4).to(dtype), grad=False)


@pytest.mark.parametrize("name", INCOMPLETE)
def test_incomplete_gamma_at_the_edges(name):
    fn = getattr(S, name)
    edges = torch.tensor([0.0, -0.0, -1, INF, -INF, NAN, 1, 0.5, 1.1, 250])
    check(fn, *pairs(edges, edges), grad=False)
    check(fn, torch.zeros(0, 3), torch.zeros(3), grad=False)
    check(lambda a: fn(a, torch.tensor(2.0)), torch.tensor(3.0).double(), grad=False)
    # Differentiable in x.
    a = torch.tensor([0.5, 3, 40.0]).double()
    check(lambda x: fn(a.to(x.device), x), torch.tensor([0.2, 4.0, 38.0]).double(), rtol=1e-8)


# ---- Accuracy.


def relative(got, want):
    return ((got.cpu().double() - want) / want).abs().max().item()


def test_lgamma_at_its_zeros():
    """1 and 2 are zeros; beside them the error stays relative to the value."""
    one_two = torch.tensor([1.0, 2.0])
    for dtype in (torch.float32, torch.float64):
        assert torch.lgamma(one_two.to(dtype).to(DEVICE)).tolist() == [0, 0]
    x = torch.cat([1 + torch.logspace(-6, -0.31, 40), 2 - torch.logspace(-6, -0.31, 40)])
    assert relative(torch.lgamma(x.to(DEVICE)), torch.lgamma(x.double())) < 1e-6
    check(torch.lgamma, x.double(), rtol=1e-13, atol=0, grad=False)


def test_polygamma_of_negative_numbers():
    x = torch.tensor([-100.5, -20.3, -3.7, -0.2, 0.5, 1e5, 3e7])
    for n in (2, 3, 5):
        check(lambda x, n=n: torch.polygamma(n, x), x, atol=0)
    check(lambda x: S.zeta(2.5, x), x.abs(), atol=0)


def test_logit_gradient_of_nan():
    check(lambda x: (torch.logit(x, 1e-3), torch.logit(x)), torch.tensor([NAN, 0.0, 1, 0.5, 2, -1]))


ERRORS = {
    "bessel_half": lambda x: S.bessel_j0(x.half()),
    "bessel_complex": lambda x: S.airy_ai(x.to(torch.complex64)),
    "modified_half": lambda x: S.modified_bessel_k0(x.bfloat16()),
    "polynomial_half": lambda x: S.hermite_polynomial_h(x.half(), x.half()),
    "polynomial_shapes": lambda x: S.legendre_polynomial_p(x, x[:2]),
    "gammainc_int": lambda x: S.gammainc(x.long(), x.long()),
    "gammaincc_complex": lambda x: S.gammaincc(x.to(torch.complex64), x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check_error(ERRORS[name], torch.rand(3))
