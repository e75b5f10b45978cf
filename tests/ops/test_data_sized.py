"""Operators whose result's size depends on values, unless an argument tells it."""

import pytest
import torch

import torch_xla

from .oracle import DEVICE, check, check_error, host_runs, ints

NAN = torch.nan

UNIQUE = {
    "ints": torch.tensor([3, 1, 3, 2, 1, 3]),
    "matrix": torch.tensor([[3, 1, 3], [2, 1, 3]]),
    "floats": torch.tensor([3.0, NAN, 0.0, 2, NAN, -0.0, torch.inf, 3]),
    "bools": torch.tensor([True, False, True]),
    "bytes": torch.tensor([200, 3, 200], dtype=torch.uint8),
    "halves": torch.tensor([2.0, 1, 2], dtype=torch.bfloat16),
    "one": torch.tensor([7]),
    "number": torch.tensor(7.0),
    "equal": torch.ones(5),
    "none": torch.empty(0, 3),
    "many": ints(1000, low=0, high=50),
}


@pytest.mark.parametrize("name", UNIQUE)
def test_unique(name):
    def fn(x):
        return (
            torch.unique(x),
            torch.unique(x, return_inverse=True),
            torch.unique(x, return_counts=True),
            torch.unique(x, sorted=False, return_inverse=True, return_counts=True),
            torch.unique_consecutive(x),
            torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            torch.ops.aten._unique2(x),
            torch.ops.aten._unique(x),
        )

    if name == "none":
        check(lambda x: torch.unique(x, True, True, True), UNIQUE[name], grad=False, on_host=True)
        check(
            lambda x: torch.unique_consecutive(x, True, True),
            UNIQUE[name],
            grad=False,
            on_host=True,
        )
    else:
        check(fn, UNIQUE[name], grad=False, on_host=True)


ROWS = {
    "ints": torch.tensor([[3, 3], [1, 3], [3, 3], [1, 2], [1, 3]]),
    "floats": torch.tensor([[0.5, 1.0], [-0.5, 2], [0.5, 1]]),
    "bools": torch.tensor([[True, False], [True, False], [False, True]]),
    "one": torch.tensor([[1, 2]]),
    "none": torch.empty(0, 3),
    "cube": ints(12, 3, 2, low=0, high=2),
    "wide": ints(40, 9, low=0, high=2),
    "vector": torch.tensor([3, 1, 3]),
}


@pytest.mark.parametrize("name", ROWS)
def test_unique_along_a_dimension(name):
    x = ROWS[name]
    for dim in range(-1, x.dim() - 1) if name != "none" else (0,):
        check(
            lambda x, dim=dim: (
                torch.unique(x, dim=dim),
                torch.unique(x, return_inverse=True, return_counts=True, dim=dim),
                torch.unique_consecutive(x, dim=dim),
                torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim),
            ),
            x,
            grad=False,
            on_host=True,
        )
    if x.dim() > 1 and name != "none":
        check(
            lambda x: torch.unique(x.t() if x.dim() == 2 else x.mT, dim=0),
            x,
            grad=False,
            on_host=True,
        )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_bincount(dtype):
    x = ints(60, low=0, high=9).to(dtype)
    w = torch.rand(60, generator=torch.Generator().manual_seed(0))
    check(
        lambda x, w: (
            torch.bincount(x),
            torch.bincount(x, minlength=20),
            torch.bincount(x, minlength=3),
            torch.bincount(x, w),
            torch.bincount(x, w.double(), minlength=11),
            torch.bincount(x, x),
            torch.bincount(x, w.half()),
            torch.bincount(x[:0], minlength=2),
            torch.bincount(x[:0]),
            torch.bincount(x[::7]),
        ),
        x,
        w,
        grad=False,
        on_host=True,
    )


def test_repeat_interleave():
    n = torch.tensor([2, 0, 3, 1])

    def fn(x, n):
        return (
            torch.repeat_interleave(n),
            torch.repeat_interleave(n.int()),
            torch.repeat_interleave(n, output_size=6),
            torch.repeat_interleave(n * 0),
            torch.repeat_interleave(n[:0]),
            torch.repeat_interleave(x, n, dim=0),
            torch.repeat_interleave(x, n[2:], dim=1),
            torch.repeat_interleave(x, n, dim=0, output_size=6),
            torch.repeat_interleave(x, 3, dim=1),
            torch.repeat_interleave(x, 2),
            torch.repeat_interleave(x, n[:1], dim=1),
        )

    check(fn, torch.arange(8.0).reshape(4, 2), n, on_host=True)


def test_a_given_size_reads_nothing():
    n = torch.tensor([2, 0, 3, 1], device=DEVICE)
    torch_xla.sync()
    assert n.cpu().tolist() == [2, 0, 3, 1]
    before = torch_xla._XLAC._xla_metric_data("ExecuteTime")
    y = torch.repeat_interleave(torch.arange(4.0, device=DEVICE), n, output_size=6)
    assert torch_xla._XLAC._xla_metric_data("ExecuteTime") == before
    assert y.tolist() == [0, 0, 2, 2, 2, 3]


def test_what_an_argument_tells_stays_on_the_device():
    before = host_runs()
    x = torch.tensor([3, 1, 3], device=DEVICE)
    assert torch.bincount(x, minlength=5).tolist() == [0, 1, 0, 2, 0]
    assert torch.repeat_interleave(x, output_size=7).tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert host_runs() == before


def counts_from_one(x):
    return torch.bincount(x, minlength=1)


@pytest.mark.parametrize("fn", [torch.unique, torch.nonzero, torch.bincount, counts_from_one])
def test_no_program_is_compiled_for_a_size_that_data_give(fn):
    def counted(n):
        x = (torch.arange(40) % n).to(DEVICE)
        torch_xla.sync()
        assert torch.equal(fn(x).cpu(), fn(x.cpu()))

    counted(3)
    before = torch_xla._XLAC._xla_metric_data("CompileTime")
    for n in range(4, 9):
        counted(n)
    assert torch_xla._XLAC._xla_metric_data("CompileTime") == before


ERRORS = {
    "unique_complex": lambda x: torch.unique(x.to(torch.complex64)),
    "unique_dim_complex": lambda x: torch.unique(x.to(torch.complex64), dim=0),
    "unique_dim_0d": lambda x: torch.unique(x[0, 0], dim=0),
    "unique_dim_range": lambda x: torch.unique(x, dim=2),
    "unique_dim_empty": lambda x: torch.unique(x[:0], dim=1),
    "unique_dim_two_empty": lambda x: torch.unique(x[:0, :0], dim=1),
    "bincount_float": lambda x: torch.bincount(x[0]),
    "bincount_bool": lambda x: torch.bincount(x[0] > 0),
    "bincount_2d": lambda x: torch.bincount(x.long()),
    "bincount_0d": lambda x: torch.bincount(x[0, 0].long()),
    "bincount_negative": lambda x: torch.bincount(x[0].long() - 5),
    "bincount_minlength": lambda x: torch.bincount(x[0].long(), minlength=-1),
    "bincount_weights": lambda x: torch.bincount(x[0].long(), x),
    "repeats_float": lambda x: torch.repeat_interleave(x[0]),
    "repeats_2d": lambda x: torch.repeat_interleave(x.long()),
    "repeats_0d": lambda x: torch.repeat_interleave(x[0, 0].long()),
    "repeats_negative": lambda x: torch.repeat_interleave(x[0].long() - 5),
    "repeats_many": lambda x: torch.repeat_interleave(x, x[0].long()[:2], dim=1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check_error(ERRORS[name], torch.arange(6.0).reshape(2, 3))
