"""Products of matrices and vectors against PyTorch on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from .oracle import check, check_error, floats, ints

A, B = floats(3, 4), floats(4, 5)
BATCH_A, BATCH_B = floats(2, 3, 4), floats(2, 4, 5)

PRODUCTS = {
    "mm": (torch.mm, A, B),
    "bmm": (torch.bmm, BATCH_A, BATCH_B),
    "mv": (torch.mv, A, floats(4)),
    "dot": (torch.dot, floats(7), floats(7) + 1),
    "vdot": (torch.vdot, floats(7), floats(7) + 1),
    "outer": (torch.outer, floats(3), floats(4)),
    "matmul_broadcast": (torch.matmul, floats(2, 1, 3, 4), floats(5, 4, 6)),
    "linear": (F.linear, floats(2, 3, 4), floats(5, 4), floats(5)),
    "linear_no_bias": (F.linear, floats(3, 4), floats(5, 4)),
    "bilinear": (F.bilinear, floats(3, 4), floats(3, 5), floats(2, 4, 5), floats(2)),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->ik", a, b), BATCH_A, BATCH_B),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=1), A, B),
    "empty_inner": (torch.mm, torch.zeros(3, 0), torch.zeros(0, 2)),
    "empty_outer": (torch.mm, torch.zeros(0, 3), floats(3, 2)),
}

# function of (self, a, b, beta, alpha) -> operands
ADDED = {
    "addmm": (torch.addmm, floats(3, 5), A, B),
    "addmm_row": (torch.addmm, floats(5), A, B),
    "baddbmm": (torch.baddbmm, floats(2, 3, 5), BATCH_A, BATCH_B),
    "addbmm": (torch.addbmm, floats(3, 5), BATCH_A, BATCH_B),
    "addmv": (torch.addmv, floats(3), A, floats(4)),
    "addr": (torch.addr, floats(3, 4), floats(3), floats(4)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name):
    check(*PRODUCTS[name])


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2), (0, 1)])
def test_added(name, beta, alpha):
    fn, *args = ADDED[name]
    check(lambda *a: fn(*a, beta=beta, alpha=alpha), *args)


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addmv", "addbmm"])
def test_in_place(name):
    _fn, *args = ADDED[name]
    check(lambda x, *a: getattr(x.clone(), f"{name}_")(*a, beta=0.5, alpha=2), *args)


def test_beta_zero_ignores_nan():
    check(lambda a, b: torch.addmm(torch.full_like(a, torch.nan)[0, :1], a, b, beta=0), A, B)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_float_types(dtype):
    a, b = floats(5, 33, dtype=dtype), floats(33, 4, dtype=dtype)
    check(torch.mm, a, b)
    check(torch.addmm, floats(4, dtype=dtype), a, b)
    check(F.linear, a, b.t().contiguous(), floats(4, dtype=dtype))


def test_half_sums_in_float32():
    # 4096 ones: bfloat16 sums stop at 256.
    ones = torch.ones(1, 4096, dtype=torch.bfloat16)
    check(lambda a: a @ a.t(), ones, grad=False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers(dtype):
    low = 0 if dtype == torch.uint8 else -5
    a, b = ints(3, 4, dtype=dtype, low=low), ints(4, 5, dtype=dtype, low=low)
    check(torch.mm, a, b)
    check(lambda a, b: torch.addmm(a[:, :1], a, b, beta=2, alpha=3), a, b)


def test_int_mm():
    a, b = ints(32, 16, dtype=torch.int8), ints(16, 24, dtype=torch.int8)
    check(torch._int_mm, a, b)


def test_complex():
    a, b = torch.complex(A, A.flip(0)), torch.complex(B, B + 1)
    check(torch.mm, a, b)
    check(torch.vdot, a[0], b[:, 0])
    check(lambda a, b: a.conj() @ b, a, b)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (torch.mm, [(2, 3), (4, 5)]),
        (torch.mm, [(2, 3), (3,)]),
        (torch.bmm, [(2, 3, 4), (3, 4, 5)]),
        (torch.bmm, [(2, 3, 4), (2, 3, 5)]),
        (torch.mv, [(2, 3), (2,)]),
        (torch.dot, [(3,), (4,)]),
        (torch.dot, [(3, 1), (3,)]),
        (torch.addmm, [(7,), (2, 3), (3, 5)]),
        (torch.addmm, [(2, 5), (2, 3), (4, 5)]),
        (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 5, 5)]),
        (torch.matmul, [(2, 3), (2, 3)]),
        (F.linear, [(2, 3), (5, 4)]),
    ],
)
def test_errors(fn, shapes):
    check_error(fn, *(torch.ones(s) for s in shapes))
