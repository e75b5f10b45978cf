"""Compares functions on ``xla:0`` with PyTorch on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import torch_xla
from torch_xla.debug import metrics

DEVICE = torch.device("xla:0")

EXACT = {"rtol": 0, "atol": 0}
TOLERANCE = {
    torch.float16: {"rtol": 4e-3, "atol": 1e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
    torch.float32: {"rtol": 2e-5, "atol": 1e-5},
    torch.float64: {"rtol": 1e-7, "atol": 1e-7},
    torch.complex64: {"rtol": 2e-5, "atol": 1e-5},
    torch.complex32: {"rtol": 4e-3, "atol": 1e-3},
}


def to_xla(x: Any) -> Any:
    """A leaf on the XLA device; devices in the arguments become it, too."""
    if isinstance(x, torch.Tensor):
        return x.detach().to(DEVICE).requires_grad_(x.requires_grad)
    return DEVICE if isinstance(x, torch.device) else x


def host_runs() -> dict[str, int | None]:
    """The counters of operators that ran on the host, but for reading scalars."""
    names = set(metrics.executed_fallback_ops()) - {"aten::_local_scalar_dense"}
    return {n: metrics.counter_value(n) for n in names}


def assert_same(got: Any, want: Any, what: str = "result", **tolerance: float) -> None:
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want), f"{what}: {len(got)} values, expected {len(want)}"
    for g, w in zip(got, want, strict=True):
        if not isinstance(w, torch.Tensor):
            assert g == w, f"{what}: {g}, expected {w}"
            continue
        assert g.device.type == "xla", f"{what} is on {g.device}"
        torch.testing.assert_close(
            g.detach().cpu(),
            w.detach(),
            equal_nan=True,
            msg=lambda m: f"{what}: {m}",
            **(TOLERANCE.get(w.dtype, EXACT) | tolerance),
        )


def gradients(outputs: Any, inputs: Any, cotangents: list[torch.Tensor]) -> list[Any]:
    wanted = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    outs = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not outs:
        return []
    cts = [c.to(o.device) for c, o in zip(cotangents, outs, strict=True)]
    return list(torch.autograd.grad(outs, wanted, cts, allow_unused=True))


def check(
    fn: Callable[..., Any],
    *args: Any,
    grad: bool = True,
    on_host: bool = False,
    **tolerance: float,
) -> None:
    """fn gives the same values, dtypes, shapes and gradients on both devices, all on the device;
    on_host: with counted fallbacks.

    Gradients are taken with respect to every floating-point tensor of the arguments.
    """

    def prepare(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        float_type = x.is_floating_point() or x.is_complex()
        return x.detach().clone().requires_grad_(grad and float_type)

    cpu_args = tree_map(prepare, args)
    xla_args = tree_map(to_xla, cpu_args)
    before = host_runs()
    want = fn(*cpu_args)
    got = fn(*xla_args)
    generator = torch.Generator().manual_seed(0)
    cts = [
        torch.randn(t.shape, dtype=t.dtype, generator=generator)
        for t in tree_leaves(want)
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    want_grads = gradients(want, cpu_args, cts)
    got_grads = gradients(got, xla_args, cts)
    torch_xla.sync()  # one graph for all that is compared
    assert_same(got, want, **tolerance)
    assert [g is None for g in got_grads] == [w is None for w in want_grads]
    pairs = [(g, w) for g, w in zip(got_grads, want_grads, strict=True) if w is not None]
    for i, (g, w) in enumerate(pairs):
        assert_same(g, w, f"gradient {i}", **tolerance)
    assert (host_runs() != before) == on_host, "what ran on the host is not what was expected"


def check_error(fn: Callable[..., Any], *args: Any) -> None:
    """fn raises what it raises on the CPU, in the same words."""
    with pytest.raises(Exception) as want:
        fn(*args)
    with pytest.raises(want.type) as got:
        fn(*tree_map(to_xla, args))
    first = [str(e.value).splitlines()[0] for e in (got, want)]
    assert first[0] == first[1]


def floats(*shape: int, dtype: torch.dtype = torch.float32, low: float = -3, high: float = 3):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    x = torch.rand(shape, dtype=torch.float64, generator=generator)
    return (x * (high - low) + low).to(dtype)


def ints(*shape: int, dtype: torch.dtype = torch.int64, low: int = -5, high: int = 6):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randint(low, high, shape, generator=generator).to(dtype)


# What breaks careless formulas.
SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 88.0, torch.inf, -torch.inf, torch.nan]
)
