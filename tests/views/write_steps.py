"""The writes and computations of random programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .steps import (
    COMPUTATIONS,
    WRITES,
    Maker,
    Step,
    a_dim,
    fits,
    like,
    number,
    other_than,
    permutation,
    ramp,
)

if TYPE_CHECKING:
    from .program import Pair, Program


# ---- Computations: new tensors, some of which save what autograd must guard.


def _computations(f: Maker) -> Maker:
    COMPUTATIONS.append(f)
    return f


@_computations
def _product(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    o = program.pairs[program.draw(len(program.pairs))]
    if p.bits or o.bits or t.numel() > 64 or not fits(t, o.cpu) or t.dtype != o.cpu.dtype:
        return None
    if program.draw(2):
        return Step("+ other", lambda x, y: x + y, [o])
    return Step("* (other * 0.5)" if t.is_floating_point() else "* other", _half_product, [o])


def _half_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * (y * 0.5) if x.is_floating_point() else x * y


@_computations
def _reads(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(6)
    if p.bits:
        return None
    if kind == 0 and t.dim() >= 1 and t.size(0) > 0:
        i = [program.draw(t.size(0)) for _ in range(2)]
        return Step(f"[{i}]", lambda x: x[i])
    if kind == 1 and t.dim() >= 1:
        d = a_dim(program, t)
        return Step(f"flip({d})", lambda x: x.flip(d))
    if kind == 2 and t.numel() <= 32:
        return Step("cat", lambda x: torch.cat([x.reshape(-1), x.reshape(-1)]))
    if kind == 3 and t.dtype not in (torch.bool, torch.complex64):
        return Step("where", lambda x: torch.where(x > 2, x, -x if x.dtype != torch.uint8 else x))
    if kind == 4:
        return Step("to(float64)", lambda x: x.to(torch.float64 if not x.is_complex() else x.dtype))
    return Step("sum()", torch.sum)


# ---- Writes.


def _writes(f: Maker) -> Maker:
    WRITES.append(f)
    return f


@_writes
def _arithmetic(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    value = number(program, t)
    kind = program.draw(8)
    if kind == 0:
        return Step(f"add_({value})", lambda x: x.add_(value))
    if kind == 1:
        return Step("mul_(2)", lambda x: x.mul_(2))
    if kind == 2:
        return Step("mul_(0.5)", lambda x: x.mul_(0.5))
    if kind == 3:
        return Step("neg_()", lambda x: x.neg_())
    if kind == 4:
        return Step(f"sub_({value})", lambda x: x.sub_(value))
    if kind == 5:
        return Step("clamp_(1, 5)", lambda x: x.clamp_(1, 5))
    if kind == 6:
        return Step("add_(1.5)", lambda x: x.add_(1.5))

    def increment(x: torch.Tensor) -> None:
        x += value

    return Step(f"+= {value}", increment)


@_writes
def _fill(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    value = number(program, t)
    kind = program.draw(4)
    if kind == 0:
        return Step("zero_()", lambda x: x.zero_())
    if kind == 1:
        return Step(f"fill_({value})", lambda x: x.fill_(value))
    if kind == 2:
        return Step("fill_(tensor)", lambda x: x.fill_(like(x, 3, ())))
    if t.dim() >= 2 and not program.with_grad:
        return Step(f"fill_diagonal_({value})", lambda x: x.fill_diagonal_(value))
    return None


@_writes
def _copy(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    first = program.draw(9)
    if program.draw(3) == 0:
        return Step(f"copy_(cpu ramp {first})", lambda x: x.copy_(like(x, first).cpu()))
    dtype = (t.dtype, torch.float64, torch.int32)[program.draw(3)]
    return Step(
        f"copy_(ramp {first}, {dtype})", lambda x: x.copy_(ramp(x.shape, dtype, first).to(x.device))
    )


@_writes
def _copy_other(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    o = other_than(program, t)
    if o is None:
        return None
    return Step(f"copy_(t{program.pairs.index(o)})", lambda x, y: x.copy_(y), [o])


@_writes
def _add_other(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    o = other_than(program, t)
    if o is None:
        return None
    name = f"t{program.pairs.index(o)}"
    kind = program.draw(5)
    if kind == 0:
        return Step(f"add_({name}, alpha=2)", lambda x, y: x.add_(y, alpha=2), [o])
    if kind == 1:
        return Step(f"sub_({name})", lambda x, y: x.sub_(y), [o])
    if kind == 2:
        return Step(f"mul_({name} * 0 + 2)", lambda x, y: x.mul_(y * 0 + 2), [o])
    if kind == 3 and not t.is_conj() and not t.is_neg():  # eager refuses lazy bits in lists
        return Step(f"_foreach_add_({name})", lambda x, y: torch._foreach_add_([x], [y]), [o])

    if program.with_grad and o.cpu.is_complex() != t.is_complex():
        return None  # eager's derivative of fill_ fails

    def assign(x: torch.Tensor, y: torch.Tensor) -> None:
        x[...] = y

    return Step(f"[...] = {name}", assign, [o])


@_writes
def _mul_saving(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    """Autograd saves what is written and what it is written with."""
    o = other_than(program, t)
    if o is None or not program.with_grad or program.draw(3):
        return None
    return Step(f"mul_(t{program.pairs.index(o)} * 0.25)", lambda x, y: x.mul_(y * 0.25), [o])


@_writes
def _set_item(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0:
        return None
    value = number(program, t)
    n = t.size(0)
    kind = program.draw(6)
    key: Any
    if kind == 0 and n > 0:
        key = program.draw(n) - (n if program.draw(2) else 0)
    elif kind == 1:
        key = slice(None, None, 2)
    elif kind == 2:
        key = (Ellipsis, slice(program.draw(t.size(-1) + 1), None))
    elif kind == 3:
        start = program.draw(n + 1)
        key = slice(start, start + 2)
        return Step(f"[{key}] = ramp", lambda x: x.__setitem__(key, like(x, 4, x[key].shape[1:])))
    elif kind == 4 and n > 0:
        key = [program.draw(n)]
        return Step(f"[{key}] = ramp", lambda x: x.__setitem__(key, like(x, 5, (1, *x.shape[1:]))))
    else:
        key = slice(1, None)
    return Step(f"[{key}] = {value}", lambda x: x.__setitem__(key, value))


@_writes
def _mask(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    value = number(program, t)

    def mask(x: torch.Tensor) -> torch.Tensor:
        return (
            like(x, 1).bool() if x.dtype == torch.bool else ramp(x.shape, torch.bool).to(x.device)
        )

    kind = program.draw(3)
    if kind == 0:
        return Step("masked_fill_", lambda x: x.masked_fill_(mask(x), value))
    if kind == 1 and t.dtype not in (torch.bool, torch.complex64):
        return Step("[x > 3] = value", lambda x: x.__setitem__(x.detach() > 3, value))
    return Step("[mask] = value", lambda x: x.__setitem__(mask(x), value))


@_writes
def _index_put(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0 or t.size(0) == 0:
        return None
    n = t.size(0)
    accumulate = program.draw(2) == 0 and t.dtype != torch.bool
    rows = [program.draw(n) for _ in range(2)] if accumulate else permutation(program, n)[:2]

    def put(x: torch.Tensor) -> None:
        i = torch.tensor(rows, device=x.device)
        x.index_put_((i,), like(x, 2, (len(rows), *x.shape[1:])), accumulate=accumulate)

    return Step(f"index_put_({rows}, {accumulate=})", put)


@_writes
def _index_writes(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0 or t.size(d := a_dim(program, t)) == 0:
        return None
    rows = permutation(program, t.size(d))[: 1 + program.draw(2)]
    shape = list(t.shape)
    shape[d] = len(rows)
    kind = program.draw(4)
    value = number(program, t)

    def index(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(rows, device=x.device)

    if kind == 0:
        return Step(
            f"index_copy_({d},{rows})", lambda x: x.index_copy_(d, index(x), like(x, 6, shape))
        )
    if kind == 1:
        return Step(f"index_fill_({d},{rows})", lambda x: x.index_fill_(d, index(x), value))
    if kind == 2 and t.dtype != torch.bool:
        rows += rows
        shape[d] *= 2
        return Step(
            f"index_add_({d},{rows})", lambda x: x.index_add_(d, index(x), like(x, 1, shape))
        )

    def scatter(x: torch.Tensor) -> None:
        wide = [-1 if k == d % x.dim() else 1 for k in range(x.dim())]
        i = index(x).view(wide).expand(shape)
        if kind == 3 and x.dtype != torch.bool:
            x.scatter_add_(d, i, like(x, 2, shape))
        else:
            x.scatter_(d, i, like(x, 7, shape))

    return Step(f"scatter({d},{rows})", scatter)


@_writes
def _out(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(8)
    if kind == 0:
        return Step("out= of add", lambda x: torch.add(like(x, 1), 1, out=x))
    if kind == 1:
        return Step("out= of itself", lambda x: torch.mul(x, 2, out=x))
    if kind == 2:
        return Step(
            "out= of float add",
            lambda x: torch.add(ramp(x.shape, torch.float32).to(x.device), 1, out=x),
        )
    if kind == 3 and t.dim() >= 1 and t.size(0) >= 1:
        return Step(
            "out= of cat",
            lambda x: torch.cat([like(x, 1, x[:1].shape), like(x, 3, x[1:].shape)], out=x),
        )
    if kind == 4 and t.dtype in (torch.float32, torch.int64, torch.int32) and t.dim() >= 1:
        return Step("out= of cumsum", lambda x: torch.cumsum(like(x, 1), 0, out=x))
    if kind == 5 and t.dtype in (torch.float32, torch.int64) and t.dim() >= 1 and t.size(0) > 0:
        return Step("out= of sum", lambda x: torch.sum(like(x, 1, (2, *x.shape)), 0, out=x))
    if kind == 6:
        return Step(
            "out= of where",
            lambda x: torch.where(
                ramp(x.shape, torch.bool).to(x.device), like(x, 1), like(x, 4), out=x
            ),
        )
    if kind == 7 and t.dtype == torch.float32 and t.dim() == 2:
        return Step(
            "out= of mm",
            lambda x: torch.mm(like(x, 1, (x.size(0), 2)), like(x, 2, (2, x.size(1))), out=x),
        )
    return None


@_writes
def _of_dtype(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    """Writes that some dtypes refuse: both devices in the same words."""
    kind = program.draw(6)
    if kind == 0:
        return Step("logical_not_()", lambda x: x.logical_not_())
    if kind == 1:
        return Step("bitwise_xor_(1)", lambda x: x.bitwise_xor_(1))
    if kind == 2:
        return Step("div_(2)", lambda x: x.div_(2))
    if kind == 3:
        return Step("add_(1j)", lambda x: x.add_(1j))
    if kind == 4:
        return Step("abs_()", lambda x: x.abs_())
    return Step("eq_(1)", lambda x: x.eq_(1))


@_writes
def _triangle(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() < 2:
        return None
    k = program.draw(3) - 1
    if program.draw(2):
        return Step(f"triu_({k})", lambda x: x.triu_(k))
    return Step(f"tril_({k})", lambda x: x.tril_(k))


@_writes
def _through_alias(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(3)
    if kind == 0:
        return Step("data.add_(1)", lambda x: x.data.add_(like(x, 1, ())))
    if kind == 1:
        return Step("detach().zero_()", lambda x: x.detach().zero_())
    if t.dim() == 0:
        return None
    if t.is_conj() or t.is_neg():
        return None
    return Step(
        "foreach zero", lambda x: torch._foreach_zero_(list(x.detach())) if len(x) else None
    )


@_writes
def _wrong_shape(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if program.draw(4):
        return None
    shape = (2, *t.shape)
    if program.draw(2):
        return Step("add_(wrong shape)", lambda x: x.add_(like(x, 0, shape)))
    return Step("copy_(wrong shape)", lambda x: x.copy_(like(x, 0, (3, *x.shape))))
