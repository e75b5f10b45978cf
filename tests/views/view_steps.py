"""The views of random programs, out of place and in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .steps import (
    IN_PLACE_VIEWS,
    VIEWS,
    Fn,
    Maker,
    Step,
    a_dim,
    factors,
    permutation,
    shares,
)

if TYPE_CHECKING:
    from .program import Pair, Program


# ---- Views.


def _views(f: Maker) -> Maker:
    VIEWS.append(f)
    return f


@_views
def _view(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if not t.is_contiguous():
        return None
    shape = factors(program, t.numel())
    if program.draw(4) == 0 and t.numel() > 0:
        i = program.draw(len(shape))
        shape = (*shape[:i], -1, *shape[i + 1 :])
    return Step(f"view{shape}", lambda x: x.view(shape))


def _alias_or_clone(t: torch.Tensor, text: str, fn: Fn) -> Step | None:
    """What eager may copy: then ours, which alias, are copied, too."""
    try:
        with torch.no_grad():
            if shares(fn(t), t):
                return Step(text, fn)
    except RuntimeError:  # a view that eager refuses
        return None
    return Step(f"{text}.clone()", lambda x: fn(x).clone())


@_views
def _reshape(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(6)
    if kind == 0:
        return _alias_or_clone(t, "flatten()", torch.flatten)
    if kind == 1:
        return _alias_or_clone(t, "contiguous()", lambda x: x.contiguous())
    if kind == 2:
        return _alias_or_clone(t, "ravel()", torch.ravel)
    if kind == 3 and t.dim() >= 2:
        a = program.draw(t.dim())
        b = a + program.draw(t.dim() - a)
        return _alias_or_clone(t, f"flatten({a},{b})", lambda x: x.flatten(a, b))
    shape = factors(program, t.numel())
    return _alias_or_clone(t, f"reshape{shape}", lambda x: x.reshape(shape))


@_views
def _unflatten(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0 or t.dim() > 3:
        return None
    d = a_dim(program, t)
    n = t.size(d)
    if n == 0:
        return None
    divisors = [k for k in range(1, n + 1) if n % k == 0]
    k = divisors[program.draw(len(divisors))]
    sizes = (k, -1) if program.draw(2) else (k, n // k)
    return Step(f"unflatten({d},{sizes})", lambda x: x.unflatten(d, sizes))


@_views
def _view_as(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    o = program.pairs[program.draw(len(program.pairs))]
    if not t.is_contiguous() or o.cpu.numel() != t.numel():
        return None
    return Step(f"view_as{tuple(o.cpu.shape)}", lambda x, y: x.view_as(y), [o])


@_views
def _permute(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    perm = permutation(program, t.dim())
    return Step(f"permute{perm}", lambda x: x.permute(perm))


@_views
def _transpose(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() < 2:
        return Step("t()", torch.t)
    a, b = a_dim(program, t), a_dim(program, t)
    kind = program.draw(7)
    if kind == 0:
        return Step(f"swapaxes({a},{b})", lambda x: x.swapaxes(a, b))
    if kind == 1:
        return Step(f"movedim({a},{b})", lambda x: x.movedim(a, b))
    if kind == 2:
        return Step("mT", lambda x: x.mT)
    if kind == 3:
        return Step("mH", lambda x: x.mH)
    if kind == 4 and t.dim() == 2:
        return Step("H" if program.draw(2) else "t()", torch.t)
    return Step(f"transpose({a},{b})", lambda x: x.transpose(a, b))


@_views
def _slice(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0:
        return None
    d = program.draw(t.dim())
    n = t.size(d)
    start, length, by = program.draw(n + 1), program.draw(n + 1), 1 + program.draw(3)
    if program.draw(2):
        by = 1
    index = (slice(None),) * d + (slice(start, start + length, by),)
    return Step(f"[{index}]", lambda x: x[index])


@_views
def _index(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    """Basic indexing of any mixture."""
    index: list[Any] = []
    for n in t.shape:
        kind = program.draw(5)
        if kind == 0 and n > 0:
            index.append(program.draw(n) - (n if program.draw(2) else 0))
        elif kind == 1:
            index.append(slice(program.draw(n + 1), None, 1 + program.draw(2)))
        elif kind == 2 and t.dim() + index.count(None) < 4:
            index += [None, slice(None)]
        elif kind == 3:
            index.append(Ellipsis)
            break
        else:
            index.append(slice(None))
    key = tuple(index)
    return Step(f"[{key}]", lambda x: x[key])


@_views
def _select(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0 or t.size(d := a_dim(program, t)) == 0:
        return None
    i = program.draw(t.size(d)) - (t.size(d) if program.draw(2) else 0)
    return Step(f"select({d},{i})", lambda x: x.select(d, i))


@_views
def _narrow(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0:
        return None
    d = a_dim(program, t)
    n = t.size(d)
    start = program.draw(n + 1)
    length = program.draw(n - start + 1)
    return Step(f"narrow({d},{start},{length})", lambda x: x.narrow(d, start, length))


@_views
def _squeeze(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(4)
    if kind == 0 and t.dim() <= 3:
        d = a_dim(program, t, 1)
        return Step(f"unsqueeze({d})", lambda x: x.unsqueeze(d))
    if kind == 1 and t.dim() >= 1:
        d = a_dim(program, t)
        return Step(f"squeeze({d})", lambda x: x.squeeze(d))
    if kind == 2 and t.dim() >= 2:
        dims = (0, t.dim() - 1)
        return Step(f"squeeze({dims})", lambda x: x.squeeze(dims))
    return Step("squeeze()", torch.squeeze)


@_views
def _expand(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() > 3 or t.numel() > 64:
        return None
    shape = [2 if s == 1 and program.draw(2) else s for s in t.shape]
    if program.draw(2) and t.dim() <= 3:
        shape.insert(0, 1 + program.draw(3))
    if program.draw(2):
        return Step(f"broadcast_to{shape}", lambda x: x.broadcast_to(shape))
    wildcard = [-1 if i >= len(shape) - t.dim() and n != 2 else n for i, n in enumerate(shape)]
    return Step(f"expand{wildcard}", lambda x: x.expand(wildcard))


@_views
def _diagonal(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() < 2:
        return None
    a = program.draw(t.dim())
    b = (a + 1 + program.draw(t.dim() - 1)) % t.dim()
    offset = program.draw(5) - 2
    return Step(f"diagonal({offset},{a},{b})", lambda x: x.diagonal(offset, a, b))


@_views
def _unfold(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0 or t.dim() > 3 or t.size(d := a_dim(program, t)) == 0:
        return None
    size, by = 1 + program.draw(t.size(d)), 1 + program.draw(3)
    return Step(f"unfold({d},{size},{by})", lambda x: x.unfold(d, size, by))


@_views
def _as_strided(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if not t.is_contiguous() or t.numel() < 2 or t.is_conj() or t.is_neg():
        return None
    if t.requires_grad:
        return None  # torch's derivative of as_strided reads the geometry of eager's storage
    rows = 1 + program.draw(3)
    columns = 1 + program.draw(3)
    by, down = program.draw(3), program.draw(4)
    offset = program.draw(2)
    if offset + (rows - 1) * down + (columns - 1) * by >= t.numel():
        return None
    size, stride = (rows, columns), (down, by)
    if t.storage_offset() == 0:
        return Step(
            f"as_strided({size},{stride},{offset})", lambda x: x.as_strided(size, stride, offset)
        )
    if (rows - 1) * down + (columns - 1) * by >= t.numel():
        return None
    return Step(f"as_strided({size},{stride})", lambda x: x.as_strided(size, stride))


@_views
def _split(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dim() == 0 or t.size(d := a_dim(program, t)) == 0:
        return None
    if program.with_grad and program.draw(3):
        return None  # writes beside views of an operator with several results raise
    n, i = 1 + program.draw(3), program.draw(4)
    at = sorted((program.draw(t.size(d) + 1), program.draw(t.size(d) + 1)))
    sizes = [at[0], at[1] - at[0], t.size(d) - at[1]]
    made: list[tuple[str, Fn]] = [
        (f"split({n},{d})", lambda x: x.split(n, d)),
        (f"split({sizes},{d})", lambda x: x.split(sizes, d)),
        (f"chunk({n},{d})", lambda x: x.chunk(n, d)),
        (f"tensor_split({n},{d})", lambda x: x.tensor_split(n, d)),
        (f"tensor_split({at},{d})", lambda x: x.tensor_split(at, d)),
        (f"unbind({d})", lambda x: x.unbind(d)),
        ("unsafe_chunk", lambda x: [c.clone() for c in x.unsafe_chunk(n, d)]),
        (f"hsplit({at})", lambda x: x.hsplit(at)),
        ("list(x)", lambda x: list(x) or [x[:0]]),
    ]
    if t.dim() >= 2:
        made.append((f"vsplit({at})", lambda x: x.vsplit(at)))
    text, fn = made[program.draw(len(made))]
    return Step(f"{text}[{i}]", lambda x: (parts := fn(x))[i % len(parts)])


@_views
def _aliases(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(6)
    if kind == 0:
        return Step("detach()", lambda x: x.detach())
    if kind == 1:
        return Step("data", lambda x: x.data)
    if kind == 2:
        return Step("alias()", lambda x: torch.ops.aten.alias(x))
    if kind == 3:
        return Step("[...]", lambda x: x[...])
    if kind == 4:
        return Step("view_as(self)", lambda x: x.view_as(x))
    return Step("expand_as(self)", lambda x: x.expand_as(x))


@_views
def _complex_parts(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if t.dtype == torch.complex64:
        kind = program.draw(6)
        if kind == 0:
            return Step("real", lambda x: x.real, replayed=True)
        if kind == 1:
            return Step("imag", lambda x: x.imag, replayed=True)
        if kind == 2 and not t.is_conj() and t.dim() <= 3:
            return Step("view_as_real", torch.view_as_real, replayed=True)
        if kind == 3:
            return Step("_neg_view()", torch._neg_view, replayed=True)
        return Step("conj()", torch.conj, replayed=True)
    if t.dtype == torch.float32 and not t.is_neg() and t.dim() >= 1 and t.size(-1) == 2:
        last = t.stride(-1) == 1 and t.storage_offset() % 2 == 0
        if last and all(s % 2 == 0 for s in t.stride()[:-1]):
            return Step("view_as_complex", torch.view_as_complex, replayed=True)
    if t.dtype == torch.float32:
        return Step("_neg_view()", torch._neg_view, replayed=True)
    return None


@_views
def _other_dtype(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if program.with_grad or not t.is_contiguous() or t.is_conj() or t.is_neg() or p.bits:
        return None
    same = {
        torch.float32: torch.int32,
        torch.int32: torch.float32,
        torch.float64: torch.int64,
        torch.bool: torch.uint8,
        torch.uint8: torch.int8,
        torch.bfloat16: torch.int16,
    }
    if t.dtype in same and program.draw(2):
        to = same[t.dtype]
        return Step(f"view({to})", lambda x: x.view(to), bits=True)
    if t.dtype.is_floating_point or t.dtype.is_complex or t.dtype == torch.bool or t.dim() == 0:
        return None
    to = (torch.int16, torch.uint8, torch.int32, torch.int64)[program.draw(4)]
    if t.storage_offset() * t.element_size() % to.itemsize or t.stride(-1) != 1 or t.numel() == 0:
        return None
    # Integers of any bits are integers: written like others.
    return Step(f"view({to})", lambda x: x.view(to))


# ---- Views in place, and tensors that take another's memory.


def _in_place_views(f: Maker) -> Maker:
    IN_PLACE_VIEWS.append(f)
    return f


@_in_place_views
def _metadata(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    kind = program.draw(5)
    base = program.with_grad and not t._is_view()
    if base and any(o is not p and shares(o.cpu, t) for o in program.pairs):
        return None
    replayed = t.is_neg() or t.is_conj() or p.replayed
    if program.with_grad and t._base is not None and replayed:
        return None  # eager, too, replays these by functions that don't know of the change
    if kind == 0:
        return Step("squeeze_()", lambda x: x.squeeze_())
    if kind == 1 and t.dim() <= 3:
        d = a_dim(program, t, 1)
        return Step(f"unsqueeze_({d})", lambda x: x.unsqueeze_(d))
    if kind == 2 and t.dim() <= 2:
        return Step("t_()", lambda x: x.t_())
    if t.dim() >= 1:
        a, b = a_dim(program, t), a_dim(program, t)
        if kind == 3:
            return Step(f"squeeze_({a})", lambda x: x.squeeze_(a))
        return Step(f"transpose_({a},{b})", lambda x: x.transpose_(a, b))
    return None


@_in_place_views
def _take_memory(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    o = program.pairs[program.draw(len(program.pairs))]
    if program.with_grad or o.bits or p.bits or o.cpu.dtype != t.dtype:
        return None
    if o.cpu.is_conj() or o.cpu.is_neg() or t.is_conj() or t.is_neg():
        return None
    kind = program.draw(4)
    if kind == 0:
        return Step("set_(other)", lambda x, y: x.set_(y), [o])
    if kind == 1:
        return Step("set_()", lambda x: x.set_())
    if kind == 2:
        return Step("resize_as_(self)", lambda x: x.resize_as_(x))

    def assign(x: torch.Tensor, y: torch.Tensor) -> None:
        x.data = y

    return Step("data = other", assign, [o])


@_in_place_views
def _resize(program: Program, p: Pair, t: torch.Tensor) -> Step | None:
    if program.with_grad or p.bits or not t.is_contiguous() or t.is_conj() or t.is_neg():
        return None
    shape = tuple(program.draw(4) for _ in range(program.draw(3)))
    if torch.Size(shape).numel() <= t.numel():
        return Step(f"resize_{shape}", lambda x: x.resize_(shape))
    if any(shares(t, o.cpu) for o in program.pairs if o is not p):
        return None
    old = t.numel()

    def grow(x: torch.Tensor) -> None:
        x.resize_(shape)
        x.view(-1)[old:] = 1

    return Step(f"resize_{shape}, new ones = 1", grow)
