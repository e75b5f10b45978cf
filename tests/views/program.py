"""Random programs of views, writes, reads and syncs, run on the CPU and on xla:0 side by side.

A program is a list of choices drawn by `draw(n)` (an int in [0, n)), so that hypothesis and a plain
random generator can both drive it. It is a coroutine that stops where values are wanted, so that
many programs can share one compilation: `run_together`.

What the devices are documented to differ in is left out by name:
- `contiguous`, `reshape`, `flatten` of what eager would copy: ours alias, the result is cloned;
- views that eager refuses (ours are accepted): `view` is only asked where eager can;
- writes through overlapping views, and copies between overlapping ones that are not the same;
- `as_strided`, `resize_` and `view(dtype)` read the layout: asked of contiguous tensors;
- a change of shape in place (`t_`, `squeeze_`) of a base that has views, beside autograd: torch
  replays these views on the base as it is then (ours raises where the base requires a gradient);
- a tensor that `resize_` makes larger has memory of its own: asked where nothing else shares it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import torch_xla
from torch_xla import _XLAC

from . import steps, view_steps, write_steps  # noqa: F401  (these two fill the lists of steps)

Draw = Callable[[int], int]
# What a program waits for: its tensors' values, or a sync (None).
Request = Sequence[torch.Tensor] | None
Coroutine = Generator[Request, Sequence[torch.Tensor], None]

FLOATS = (torch.float32, torch.float64, torch.complex64, torch.bfloat16)
DTYPES = (
    *(torch.float32,) * 6,
    *(torch.int64, torch.int32) * 2,
    torch.float64,
    torch.bool,
    torch.uint8,
    torch.int16,
    *(torch.complex64,) * 3,
    torch.bfloat16,
)


@dataclass(eq=False)
class Pair:
    """One tensor on both devices."""

    cpu: torch.Tensor
    xla: torch.Tensor
    # A view by another dtype: only whole, well-formed numbers are written through it.
    bits: bool = False
    # A view, or one of a view, that autograd replays by a function in eager, too.
    replayed: bool = False


@dataclass
class Program:
    draw: Draw
    with_grad: bool = False
    pairs: list[Pair] = field(default_factory=list)
    leaves: list[Pair] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    hooks: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = field(default_factory=list)
    first_calls: list[Any] = field(default_factory=list)

    # ---- Running.

    def run(self, length: int) -> Coroutine:
        try:
            for _ in range(1 + self.draw(2)):
                self.start()
            for _ in range(length):
                yield from self.step()
            yield from self.compare(self.pairs)
            if self.with_grad:
                yield from self.compare_gradients()
        except Difference:
            raise
        except Exception as e:
            raise Difference(f"{type(e).__name__}: {e}\n{self.text()}") from e

    def start(self) -> None:
        shape = tuple(self.draw(5) for _ in range(self.draw(4)))
        if self.draw(4) > 0:
            shape = tuple(max(n, 1) for n in shape)
        if self.with_grad:
            dtype = (torch.float32, torch.float32, torch.complex64)[self.draw(3)]
        else:
            dtype = DTYPES[self.draw(len(DTYPES))]
        cpu = steps.ramp(shape, dtype)
        xla = cpu.to("xla")
        self.log.append(f"t{len(self.pairs)} = ramp({shape}, {dtype})")
        if self.with_grad and self.draw(5) > 0:
            cpu, xla = cpu.requires_grad_(), xla.requires_grad_()
            self.leaves.append(Pair(cpu, xla))
            self.log[-1] += ".requires_grad_()"
            if self.draw(8) > 0:
                cpu, xla = cpu * 1.5, xla * 1.5
                self.log[-1] += " * 1.5"
        self.pairs.append(Pair(cpu, xla))

    def step(self) -> Coroutine:
        i = self.draw(len(self.pairs))
        kind = self.draw(24)
        if kind < 9 and len(self.pairs) < 12:
            self.apply(i, steps.view(self, self.pairs[i]), new=True)
        elif kind < 17:
            p = self.pairs[i]
            if not steps.overlaps_itself(p.cpu):
                self.apply(i, steps.write(self, p), new=False)
        elif kind == 17:
            self.apply(i, steps.in_place_view(self, self.pairs[i]), new=False)
        elif kind == 18:
            self.apply(i, steps.Step("clone()", torch.clone), new=True)
        elif kind == 19:
            self.apply(i, steps.compute(self, self.pairs[i]), new=True)
        elif kind == 20 and self.with_grad:
            self.add_hook(self.pairs[i])
        elif kind <= 22:
            self.log.append("sync")
            yield None
        else:
            self.log.append(f"read t{i}")
            yield from self.compare([self.pairs[i]])

    def apply(self, i: int, step: steps.Step | None, new: bool) -> None:
        if step is None:
            return
        p = self.pairs[i]
        name = f"t{len(self.pairs)} = " if new else ""
        self.log.append(f"{name}t{i}.{step.text}")
        cpu = self.attempt(step, p.cpu, [o.cpu for o in step.others])
        xla = self.attempt(step, p.xla, [o.xla for o in step.others])
        if isinstance(cpu, Exception) or isinstance(xla, Exception):
            self.same_error(cpu, xla)
        elif new and not _error_of(lambda: cpu.grad_fn):  # some stale views eager cannot replay
            self.check_metadata(cpu, xla)
            self.pairs.append(Pair(cpu, xla, p.bits or step.bits, p.replayed or step.replayed))

    def attempt(self, step: steps.Step, x: torch.Tensor, others: list[torch.Tensor]) -> Any:
        try:
            if step.no_grad:
                with torch.no_grad():
                    return step.fn(x, *others)
            return step.fn(x, *others)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as e:
            return e

    def same_error(self, cpu: Any, xla: Any) -> None:
        self.log.append(f"  raised {_words(cpu)} | {_words(xla)}")
        if type(cpu) is not type(xla) or _words(cpu) != _words(xla):
            raise Difference(f"{cpu!r:.300} on the CPU, {xla!r:.300} on xla\n{self.text()}")

    def check_metadata(self, cpu: torch.Tensor, xla: torch.Tensor) -> None:
        for what in ("shape", "dtype", "requires_grad", "is_leaf", "_version"):
            if getattr(cpu, what) != getattr(xla, what):
                raise Difference(
                    f"{what} is {getattr(xla, what)} instead of {getattr(cpu, what)}\n{self.text()}"
                )

    def add_hook(self, p: Pair) -> None:
        if not (p.cpu.requires_grad and p.xla.requires_grad):
            return
        # torch 2.13 crashes on a hook of a view whose base was written since, unless asked before.
        if _error_of(lambda: p.cpu.grad_fn) or _error_of(lambda: p.xla.grad_fn):
            return
        self.log.append(f"t{self.pairs.index(p)}.register_hook(g * 2)")
        seen: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for t, grads in ((p.cpu, seen[0]), (p.xla, seen[1])):
            t.register_hook(lambda g, grads=grads: grads.append(g.detach()) or g * 2)
        self.hooks.append(seen)

    def compare(self, pairs: Sequence[Pair]) -> Coroutine:
        pairs = list(pairs)
        for p in list(pairs):
            # Autograd refuses to look at some views after a write to their base.
            if _error_of(lambda: p.cpu.grad_fn):  # noqa: B023
                self.log.append(f"  eager does not look at t{self.pairs.index(p)}")
                self.pairs[self.pairs.index(p)] = Pair(p.cpu.detach(), p.xla.detach(), p.bits)
                pairs.remove(p)
        got = yield [p.xla.detach() for p in pairs]
        for p, g in zip(pairs, got, strict=True):
            self.check_metadata(p.cpu, p.xla)
            self.same(f"t{self.pairs.index(p)}", g, p.cpu.detach())

    def same(self, what: str, got: torch.Tensor, want: torch.Tensor) -> None:
        want = want.resolve_conj().resolve_neg()
        if got.shape == want.shape and got.dtype == want.dtype and torch.equal(got, want):
            return
        try:
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
        except AssertionError as e:
            raise Difference(
                f"{what} differs: {got} instead of {want}\n{e}\n{self.text()}"
            ) from None

    def compare_gradients(self) -> Coroutine:
        double = self.draw(2) == 0
        self.log.append(f"gradients, {double=}")
        results = []
        for d in ("cpu", "xla"):
            try:
                results.append(self.gradients(d, double))
            except RuntimeError as e:
                results.append(e)
        cpu, xla = results
        if isinstance(cpu, Exception) or isinstance(xla, Exception):
            self.same_error(cpu, xla)
            return
        for want, got in self.first_calls:
            cpu.append(len(want))
            xla.append(len(got))
            cpu += want
            xla += got
        if len(cpu) != len(xla):
            raise Difference(f"{len(xla)} gradients instead of {len(cpu)}\n{self.text()}")
        values = yield [g for g in xla if isinstance(g, torch.Tensor)]
        values = list(values)
        for i, (want, got) in enumerate(zip(cpu, xla, strict=True)):
            if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
                self.same(f"gradient {i}", values.pop(0), want)
            elif want is not got and want != got:
                raise Difference(f"gradient {i} is {got} instead of {want}\n{self.text()}")

    def gradients(self, device: str, double: bool) -> list[Any]:
        loss = torch.zeros((), device=device)
        for k, p in enumerate(self.pairs):
            t = getattr(p, device)
            if not (t.is_floating_point() or t.is_complex()):
                continue
            weight = steps.ramp(t.shape, torch.float32).to(device) + k
            if t.is_complex():
                loss = loss + (t.real * weight).sum() + (t.imag * (weight + 1)).sum()
            else:
                loss = loss + (t * weight).sum()
        leaves = [getattr(p, device) for p in self.leaves]
        if not loss.requires_grad or not leaves:
            self.first_calls = []
            return []
        first = torch.autograd.grad(loss, leaves, create_graph=double, allow_unused=True)
        out: list[Any] = [None if g is None else g.detach() for g in first]
        # The second pass may call them once more on one device, with zeros.
        calls = [list(seen[device == "xla"]) for seen in self.hooks]
        self.first_calls = (
            calls if device == "cpu" else list(zip(self.first_calls, calls, strict=True))
        )
        squares = [(g * g.conj()).real.sum() for g in first if g is not None and g.requires_grad]
        if double:
            # Where nothing depends on a leaf, one device may say None and the other 0.
            zeros = [torch.zeros_like(x) for x in leaves]
            second: Sequence[torch.Tensor | None] = zeros
            if squares:
                second = torch.autograd.grad(sum(squares), leaves, allow_unused=True)
            out += [z if g is None else g.detach() for g, z in zip(second, zeros, strict=True)]
        return out

    def text(self) -> str:
        return "\n".join(self.log)


class Difference(AssertionError):
    """The devices differ; the text has the program."""


def _error_of(fn: Callable[[], Any]) -> Exception | None:
    try:
        fn()
    except RuntimeError as e:
        return e
    return None


def _words(e: Any) -> str:
    """The first line of an error, less the names that say which device it was."""
    if not isinstance(e, Exception):
        return "nothing"
    line = str(e).split("\n")[0]
    for ours, theirs in (("torch.XLAFloatType", "torch.FloatType"), ("XLA", ""), ("CPU", "")):
        line = line.replace(ours, theirs)
    return line[:80].lower()


def seeded(first: int, count: int) -> list[tuple[Program, int]]:
    """The programs of these seeds; odd ones have gradients."""
    made = []
    for seed in range(first, first + count):
        rng = random.Random(seed)
        made.append((Program(rng.randrange, with_grad=seed % 2 == 1), rng.randint(5, 30)))
    return made


def run(draw: Draw, length: int, with_grad: bool = False) -> Program:
    """Runs one random program; raises Difference with its text when the devices differ."""
    program = Program(draw, with_grad)
    (failure,) = run_together([(program, length)])
    if failure is not None:
        raise failure
    return program


def run_together(programs: Sequence[tuple[Program, int]]) -> list[Difference | None]:
    """Runs programs in lock-step: what they wait for is computed by one graph for all of them."""
    failures: list[Difference | None] = [None] * len(programs)
    waiting: dict[int, tuple[Coroutine, Request]] = {}

    def resume(i: int, coroutine: Coroutine, values: Sequence[torch.Tensor] | None) -> None:
        try:
            waiting[i] = (coroutine, coroutine.send(values))  # type: ignore[arg-type]
        except StopIteration:
            pass
        except Difference as e:
            failures[i] = e

    for i, (program, length) in enumerate(programs):
        resume(i, program.run(length), None)
    while waiting:
        now, waiting = waiting, {}
        wanted = [t for _, request in now.values() for t in request or ()]
        values = iter(_XLAC._xla_to_cpu(wanted) if wanted else ())
        if any(request is None for _, request in now.values()):
            torch_xla.sync()
        for i, (coroutine, request) in now.items():
            resume(i, coroutine, None if request is None else [next(values) for _ in request])
    return failures
