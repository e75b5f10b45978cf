"""Reductions, running sums and softmax against PyTorch on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from .oracle import check, check_error, floats, ints

HALF = torch.bfloat16
NAN = torch.tensor([[1.0, torch.nan, 3.0], [torch.inf, 2.0, 2.0], [5.0, 5.0, -torch.inf]])

# Over some, one and all dimensions.
SHAPED = {
    "sum": torch.sum,
    "mean": torch.mean,
    "nansum": torch.nansum,
    "amax": torch.amax,
    "amin": torch.amin,
    "var": torch.var,
    "std": torch.std,
    "var_mean": torch.var_mean,
    "std_mean": torch.std_mean,
    "logsumexp": torch.logsumexp,
    "vector_norm": lambda x, dim, keepdim=False: torch.linalg.vector_norm(
        x, 2, dim, keepdim=keepdim
    ),
}


@pytest.mark.parametrize("name", SHAPED)
def test_shaped(name):
    fn = SHAPED[name]

    def run(x):
        return (
            fn(x, 1),
            fn(x, (0, 2), keepdim=True),
            fn(x, (-1, 0)),
            fn(x, -1, keepdim=True),
            fn(x, (0, 1, 2)),
            None if "var" in name or "std" in name else fn(x[0, 0, 0], 0),
        )

    check(run, floats(3, 4, 2))
    check(lambda x: fn(x, 1), floats(3, 4))
    check(
        lambda x, h: (None if name.endswith("mean") else fn(x, 1), fn(h, 0)),
        NAN,
        floats(300, 2, dtype=HALF, low=0),
        grad=False,
        rtol=1.6e-2,
        atol=1e-2,
    )


def test_whole():
    def run(x):
        return x.sum(), x.mean(), x.prod(1), x.max(), x.min(), x.var(), x.std(), x.norm()

    check(run, floats(3, 4), rtol=1e-4)
    check(lambda i: (i.sum(), i.prod(), i.max(), i.min(), i.any(), i.all()), ints(9))
    check(lambda b: (b.sum(), b.sum(0), b.any(), b.all(), b.max()), ints(9, low=0, high=2).bool())


def test_types():
    i, u = ints(3, 4), ints(3, 4, dtype=torch.uint8, low=0)
    check(
        lambda i, u: (
            i.sum(0),
            i.sum(dtype=torch.float32),
            i.prod(1),
            u.sum(1),
            u.any(),
            u.all(0),
            i.amax(1),
            u.amin(0),
            i.mean(dtype=torch.float32),
            i.logsumexp(0),
        ),
        i,
        u,
    )
    check(
        lambda x: (x.sum(0, dtype=torch.float64), x.mean(dtype=torch.float64), x.prod(1)),
        floats(3, 4),
    )
    z = torch.complex(floats(3, 4), floats(3, 4))
    check(
        lambda z: (z.sum(0), z.mean(), z.prod(1), z.var(0), torch.linalg.vector_norm(z)),
        z,
        grad=False,
        rtol=1e-4,
        atol=1e-5,
    )


def test_half_accumulates_in_float32():
    check(
        lambda h: (h.sum(), h.mean(), h.softmax(0), h.cumsum(0)),
        torch.ones(5000, dtype=HALF),
        grad=False,
    )


def test_extremes_and_their_places():
    ties = ints(5, 6, low=0, high=3).float()
    for x in (ties, NAN, floats(2, 3, 4), torch.tensor(2.0)):
        check(
            lambda x: (
                x.max(-1),
                x.min(0, keepdim=True),
                x.argmax(),
                x.argmin(-1),
                x.argmax(0, keepdim=True),
                x.aminmax(dim=0),
                x.max(),
                x.min(),
            ),
            x,
            grad=False,
        )
    check(lambda x: (x.max(1)[0], x.min(0)[0], x.amax(1)), floats(4, 5))
    check(lambda i: (i.max(0), i.argmin(1), i.aminmax()), ints(4, 5))
    check(lambda b: (b.max(0), b.min(1)), ints(4, 5, low=0, high=2).bool())


def test_truth():
    for x in (ints(3, 4, low=0, high=2), NAN, ints(3, 4, low=0, high=2).bool()):
        check(
            lambda x: (
                x.any(0),
                x.all(1, keepdim=True),
                x.any(dim=(0, 1)),
                x.all(dim=(0,)),
                torch.any(x, dim=()),
                x.count_nonzero(),
                torch.count_nonzero(x, 0),
            ),
            x,
            grad=False,
        )


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, float("inf"), -float("inf"), -1])
def test_norms(p):
    check(
        lambda x: (
            torch.linalg.vector_norm(x, p),
            torch.linalg.vector_norm(x, p, 1),
            torch.linalg.vector_norm(x, p, (0, 1), keepdim=True),
            x.norm(p, 0),
        ),
        floats(4, 5, low=0.2),
        rtol=1e-4,
        atol=1e-5,
    )


def test_warns_of_too_few_elements():
    with pytest.warns(UserWarning, match=r"var_mean\(\): degrees of freedom is <= 0"):
        torch.var_mean(floats(1, 3).to("xla"), 0)


def test_trace_and_renorm():
    check(lambda x, i: (x.trace(), x[:2].trace(), i.trace()), floats(4, 3), ints(3, 3))
    check(lambda x: (x.renorm(2, 0, 1.5), x.renorm(1, 1, 2.0)), floats(4, 3), rtol=1e-4)


def test_corrections():
    check(
        lambda x: (
            x.var(0, correction=0),
            x.var(1, correction=2),
            x.std(0, unbiased=False),
            x.var(correction=2.5),
        ),
        floats(4, 5),
        rtol=1e-4,
    )


def test_empty():
    def run(x):
        return (
            x.sum(),
            x.sum(0),
            x.sum(1),
            x.prod(1),
            x.mean(1),
            x.any(),
            x.all(1),
            x.cumsum(1),
            x.amax(0),
            x.logsumexp(1),
            x.softmax(1),
            torch.linalg.vector_norm(x),
        )

    check(run, torch.ones(3, 0), grad=False)


CUMULATIVE = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "logcumsumexp": torch.logcumsumexp,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
}


@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative(name):
    fn = CUMULATIVE[name]
    check(lambda x: (fn(x, 0), fn(x, -1)), floats(3, 5), rtol=1e-4, atol=1e-5)
    for n in (1, 2, 31, 33, 300):  # short, in blocks, in blocks of blocks
        x = floats(2, n, 2, low=-1.2, high=1.2)
        check(lambda x: fn(x, 1), x, grad=False, rtol=1e-4, atol=1e-5)
    check(lambda x, s: (fn(x, 1), fn(s, 0)), NAN, torch.tensor(3.0), grad=False)
    if name != "logcumsumexp":
        check(lambda i, b: (fn(i, 0), fn(b, 0)), ints(3, 4), ints(5, low=0, high=2).bool())


SOFTMAX = {
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "softmin": F.softmin,
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax(name):
    fn = SOFTMAX[name]
    check(lambda x: (fn(x, 0), fn(x, 1), fn(x, -1)), floats(3, 4, 5))
    check(
        lambda x, h: (fn(x, 1), fn(h, 0), fn(x * 100, 0)),
        floats(3, 4),
        floats(6, dtype=HALF),
        rtol=1.6e-2,
        atol=1e-2,
    )
    check(
        lambda x, s: (fn(x, 1), fn(s, 0), fn(x, 1, dtype=torch.float64)),
        NAN,
        torch.tensor(3.0),
        grad=False,
    )


def test_safe_softmax():
    x = torch.tensor([[-torch.inf, -torch.inf], [1.0, -torch.inf], [0.0, 1.0]])
    check(lambda x: torch.ops.aten._safe_softmax(x, -1), x, grad=False)


ERRORS = {
    "dim": lambda x, i: x.sum(2),
    "repeated": lambda x, i: x.sum((0, 0)),
    "mean_of_ints": lambda x, i: i.mean(),
    "var_of_ints": lambda x, i: i.var(),
    "softmax_dim": lambda x, i: x.softmax(3),
    "softmax_of_ints": lambda x, i: torch.softmax(i, 0),
    "argmax_of_nothing": lambda x, i: x[:0].argmax(),
    "max_of_nothing": lambda x, i: x[:0].max(),
    "max_along_nothing": lambda x, i: x[:0].max(0),
    "amax_of_nothing": lambda x, i: x[:0].amax(),
    "norm_of_ints": lambda x, i: torch.linalg.vector_norm(i),
    "inf_norm_of_nothing": lambda x, i: torch.linalg.vector_norm(x[:0], float("inf")),
    "cumsum_dim": lambda x, i: x.cumsum(2),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    check_error(ERRORS[name], floats(3, 2), ints(3, 2))
