"""What one step of a random program may be: a view, a write, a view in place, a computation.

Every function draws its own arguments, looks only at the CPU tensor, and gives None where a step
does not fit or where the devices are documented to differ (see program.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .program import Pair, Program

Fn = Callable[..., Any]


@dataclass
class Step:
    text: str
    fn: Fn  # of the tensor and of the others
    others: list[Pair] = field(default_factory=list)
    bits: bool = False
    replayed: bool = False
    no_grad: bool = False


Maker = Callable[["Program", "Pair", torch.Tensor], Step | None]
VIEWS: list[Maker] = []
WRITES: list[Maker] = []
IN_PLACE_VIEWS: list[Maker] = []
COMPUTATIONS: list[Maker] = []


def _one_of(makers: list[Maker], program: Program, p: Pair) -> Step | None:
    return makers[program.draw(len(makers))](program, p, p.cpu)


def view(program: Program, p: Pair) -> Step | None:
    return _one_of(VIEWS, program, p)


def write(program: Program, p: Pair) -> Step | None:
    if p.bits:
        return _write_bits(p)
    step = _one_of(WRITES, program, p)
    if step is not None and program.with_grad and program.draw(8) == 0:
        step.no_grad = True
        step.text += " [no_grad]"
    return step


def _write_bits(p: Pair) -> Step | None:
    """Through a view of another dtype: the bits of 1.5, which no device reads differently."""
    t = p.cpu
    if t.dtype in (torch.float32, torch.bfloat16, torch.float64):
        return Step("fill_(2)", lambda x: x.fill_(2))
    if t.dtype in (torch.int8, torch.bool):
        return Step("fill_(1)", lambda x: x.fill_(1))
    bits = {torch.int32: 0x3FC00000, torch.int64: 0x3FF8000000000000, torch.int16: 0x3FC0}
    value = bits.get(t.dtype, 0)
    return Step(f"fill_({value})", lambda x: x.fill_(value))


def in_place_view(program: Program, p: Pair) -> Step | None:
    return _one_of(IN_PLACE_VIEWS, program, p)


def compute(program: Program, p: Pair) -> Step | None:
    return _one_of(COMPUTATIONS, program, p)


# ---- Values: small and exact, so that every order of additions gives the same.


def ramp(shape: Sequence[int], dtype: torch.dtype, first: int = 0) -> torch.Tensor:
    n = torch.Size(shape).numel()
    x = (torch.arange(first, first + n) % 11).reshape(tuple(shape))
    if dtype == torch.bool:
        return x % 2 == 0
    if dtype.is_complex:
        return torch.complex(x.float(), 3.0 - x.float()).to(dtype)
    return x.to(dtype)


def like(x: torch.Tensor, first: int, shape: Sequence[int] | None = None) -> torch.Tensor:
    return ramp(x.shape if shape is None else shape, x.dtype, first).to(x.device)


def number(program: Program, t: torch.Tensor) -> Any:
    n = 1 + program.draw(4)
    if t.dtype == torch.bool:
        return n > 2
    if t.is_complex() and program.draw(2):
        return complex(n, -1)
    if t.is_floating_point() and program.draw(2):
        return n + 0.5
    return n


# ---- Memory, as eager sees it.


def addresses(t: torch.Tensor) -> torch.Tensor:
    """The addresses of the tensor's elements."""
    size = t.untyped_storage().nbytes() // t.element_size()
    if t.numel() == 0:
        return torch.empty(t.shape, dtype=torch.int64)
    offsets = torch.arange(size).as_strided(t.shape, t.stride(), t.storage_offset())
    return offsets * t.element_size()


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def overlaps_itself(t: torch.Tensor) -> bool:
    if any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True)):
        return True
    if t.is_contiguous():
        return False
    return bool(addresses(t).unique().numel() != t.numel())


def clear_of(target: torch.Tensor, source: torch.Tensor, same_ok: bool = True) -> bool:
    """Whether reading `source` while `target` is written is defined: disjoint, or the same."""
    if not shares(target, source):
        return True
    if target.numel() == 0 or source.numel() == 0:
        return True
    if target.dtype != source.dtype or target.is_conj() != source.is_conj():
        return False
    if target.is_neg() != source.is_neg():
        return False
    a, b = addresses(target), addresses(source)
    if same_ok and a.shape == b.shape and torch.equal(a, b):
        return target.stride() == source.stride()  # else eager calls it a partial overlap
    return not bool(torch.isin(a.reshape(-1), b.reshape(-1)).any())


def fits(target: torch.Tensor, source: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(target.shape, source.shape) == target.shape
    except RuntimeError:
        return False


def other_than(program: Program, t: torch.Tensor, fit: bool = True) -> Pair | None:
    """Another tensor that may be read while `t` is written."""
    start = program.draw(len(program.pairs))
    for k in range(len(program.pairs)):
        o = program.pairs[(start + k) % len(program.pairs)]
        if o.bits or (fit and not fits(t, o.cpu)) or not clear_of(t, o.cpu):
            continue
        return o
    return None


def a_dim(program: Program, t: torch.Tensor, extra: int = 0) -> int:
    n = t.dim() + extra
    return program.draw(n) - (n if program.draw(3) == 0 else 0)


def factors(program: Program, n: int) -> tuple[int, ...]:
    shape: list[int] = []
    left = n
    while left > 1 and len(shape) < 3:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        d = divisors[program.draw(len(divisors))]
        shape.append(d)
        left //= d
    return (*shape, left) if left != 1 or not shape else tuple(shape)


def permutation(program: Program, n: int) -> list[int]:
    perm = list(range(n))
    for i in range(n - 1, 0, -1):
        j = program.draw(i + 1)
        perm[i], perm[j] = perm[j], perm[i]
    return perm
