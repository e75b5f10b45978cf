"""Random programs of views, writes, reads and syncs, run on the CPU and on xla:0 side by side.

A program is a list of choices drawn by `draw(n)` (an int in [0, n)), so that hypothesis and a plain
random generator can both drive it. What the two devices are documented to differ in is left out by
name: `contiguous`, `reshape` and `flatten` of a non-trivial view (ours alias, eager copies), writes
through overlapping views (expand, unfold, overlapping as_strided), views that eager refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

import torch_xla

Draw = Callable[[int], int]


@dataclass
class Pair:
    """One tensor on both devices; `overlapping`: elements share memory, so it is never written."""

    cpu: torch.Tensor
    xla: torch.Tensor
    overlapping: bool = False


@dataclass
class Program:
    draw: Draw
    with_grad: bool = False
    pairs: list[Pair] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def dim(self, t: torch.Tensor) -> int:
        return self.draw(t.dim()) - (t.dim() if self.draw(3) == 0 else 0)

    # ---- Steps: each returns a function to run on both tensors, or None when it does not fit.

    def view_step(self, p: Pair) -> tuple[str, Callable, bool] | None:
        t = p.cpu
        kind = self.draw(16)
        if self.with_grad and kind in (11, 12, 14):
            return None  # autograd forbids writes beside views of one multi-output operator
        if kind == 0 and t.is_contiguous():
            shape = self.factor(t.numel())
            return f"view{shape}", lambda x: x.view(shape), False
        if kind == 1 and t.dim() >= 1:
            perm = list(range(t.dim()))
            for i in range(len(perm) - 1, 0, -1):
                j = self.draw(i + 1)
                perm[i], perm[j] = perm[j], perm[i]
            return f"permute{perm}", lambda x: x.permute(perm), False
        if kind == 2 and t.dim() >= 2:
            a, b = self.dim(t), self.dim(t)
            return f"transpose({a},{b})", lambda x: x.transpose(a, b), False
        if kind == 3 and t.dim() >= 1:
            d = self.dim(t)
            n = t.size(d)
            start, length, step = self.draw(n + 1), self.draw(n + 1), 1 + self.draw(3)
            index = (slice(None),) * (d % t.dim()) + (slice(start, start + length, step),)
            return f"slice{index}", lambda x: x[index], False
        if kind == 4 and t.dim() >= 1 and t.size(d := self.dim(t)) > 0:
            i = self.draw(t.size(d))
            return f"select({d},{i})", lambda x: x.select(d, i), False
        if kind == 5 and t.dim() <= 4:
            d = self.draw(t.dim() + 1)
            return f"unsqueeze({d})", lambda x: x.unsqueeze(d), False
        if kind == 6:
            return "squeeze()", lambda x: x.squeeze(), False
        if kind == 7 and t.dim() >= 1:
            d = self.dim(t)
            return f"squeeze({d})", lambda x: x.squeeze(d), False
        if kind == 8 and t.dim() <= 3:
            n = 1 + self.draw(3)
            shape = (n, *(2 if s == 1 and self.draw(2) else s for s in t.shape))
            return f"expand{shape}", lambda x: x.expand(shape), True
        if kind == 9 and t.dim() >= 2:
            a = self.draw(t.dim())
            b = (a + 1 + self.draw(t.dim() - 1)) % t.dim()
            offset = self.draw(5) - 2
            return f"diagonal({offset},{a},{b})", lambda x: x.diagonal(offset, a, b), False
        if kind == 10 and t.dim() >= 1 and t.size(d := self.dim(t)) > 0:
            size = 1 + self.draw(t.size(d))
            step = 1 + self.draw(3)
            return f"unfold({d},{size},{step})", lambda x: x.unfold(d, size, step), step < size
        if kind == 11 and t.dim() >= 1:
            d, n, i = self.dim(t), 1 + self.draw(3), self.draw(3)
            return f"split({n},{d})[{i}]", lambda x: pick(x.split(n, d), i), False
        if kind == 12 and t.dim() >= 1 and t.size(d := self.dim(t)) > 0:
            i = self.draw(t.size(d))
            return f"unbind({d})[{i}]", lambda x: x.unbind(d)[i], False
        if kind == 13:
            return "detach()", lambda x: x.detach(), False
        if kind == 14 and t.dim() >= 1:
            d, n, i = self.dim(t), 1 + self.draw(4), self.draw(4)
            return f"chunk({n},{d})[{i}]", lambda x: pick(x.chunk(n, d), i), False
        if kind == 15 and t.dim() >= 1:
            d = self.dim(t)
            n = t.size(d)
            start = self.draw(n + 1)
            length = self.draw(n - start + 1)
            return f"narrow({d},{start},{length})", lambda x: x.narrow(d, start, length), False
        return None

    def factor(self, n: int) -> tuple[int, ...]:
        shape: list[int] = []
        while n > 1 and len(shape) < 3:
            divisors = [d for d in range(1, n + 1) if n % d == 0]
            d = divisors[self.draw(len(divisors))]
            shape.append(d)
            n //= d
        return (*shape, n) if n != 1 or not shape else tuple(shape)

    def write_step(self, p: Pair) -> tuple[str, Callable] | None:
        t = p.cpu
        kind = self.draw(11)
        value = 1.5 + self.draw(7)
        if kind == 0:
            return f"add_({value})", lambda x: x.add_(value)
        if kind == 1:
            return f"mul_({value})", lambda x: x.mul_(value)
        if kind == 2:
            return f"fill_({value})", lambda x: x.fill_(value)
        if kind == 3:
            return "zero_()", lambda x: x.zero_()
        if kind == 4:
            return "copy_(arange)", lambda x: x.copy_(ramp(x).to(x.device))
        if kind == 5:
            return "neg_()", lambda x: x.neg_()
        if kind == 6 and t.dim() >= 1 and t.size(0) > 0:
            i = self.draw(t.size(0))
            return f"[{i}] = {value}", lambda x: x.__setitem__(i, value)
        if kind == 7 and t.dim() >= 1:
            return f"[::2] = {value}", lambda x: x.__setitem__(slice(None, None, 2), value)
        if kind == 8:
            return "out=", lambda x: torch.mul(x.detach().clone(), 2.0, out=x)
        if kind == 9:
            return "masked_fill_", lambda x: x.masked_fill_(x.detach() > 3, value)
        if kind == 10 and t.dim() >= 1 and t.size(0) > 1:
            return "index_put_", lambda x: x.index_put_(
                (torch.tensor([1, 0], device=x.device),), torch.tensor(value, device=x.device)
            )
        return None

    # ---- Running.

    def start(self) -> None:
        shape = tuple(1 + self.draw(4) for _ in range(1 + self.draw(3)))
        cpu = ramp(torch.empty(shape))
        xla = cpu.to("xla")
        if self.with_grad:
            cpu, xla = cpu.requires_grad_(), xla.requires_grad_()
            self.leaf = Pair(cpu, xla)
            cpu, xla = cpu * 1.5, xla * 1.5
        self.pairs.append(Pair(cpu, xla))
        self.log.append(f"t0 = ramp{shape}")

    def step(self) -> None:
        i = self.draw(len(self.pairs))
        p = self.pairs[i]
        kind = self.draw(12)
        if kind < 5:
            chosen = self.view_step(p)
            if chosen is None:
                return
            name, fn, overlapping = chosen
            if name == "detach()" and self.with_grad:
                return
            self.log.append(f"t{len(self.pairs)} = t{i}.{name}")
            self.pairs.append(Pair(fn(p.cpu), fn(p.xla), p.overlapping or overlapping))
        elif kind < 9:
            write = self.write_step(p)
            if write is None or p.overlapping or (write[0] == "out=" and self.with_grad):
                return
            self.log.append(f"t{i}.{write[0]}")
            try:
                write[1](p.cpu)
            except RuntimeError as e:
                # Autograd forbids some writes (views made by split...): it must on both.
                self.log.append(f"  raised {str(e)[:60]}")
                try:
                    write[1](p.xla)
                except RuntimeError:
                    return
                raise AssertionError(f"only eager raised: {e}") from None
            write[1](p.xla)
        elif kind == 9:
            self.log.append(f"t{len(self.pairs)} = t{i}.clone()")
            self.pairs.append(Pair(p.cpu.clone(), p.xla.clone(), False))
        elif kind == 10:
            self.log.append("sync")
            torch_xla.sync()
        else:
            self.log.append(f"read t{i}")
            self.compare(i)

    def compare(self, i: int) -> None:
        p = self.pairs[i]
        got = p.xla.detach().cpu()
        if got.shape != p.cpu.shape or not torch.equal(got, p.cpu.detach()):
            raise AssertionError(f"t{i} differs: {got} instead of {p.cpu.detach()}\n" + self.text())

    def finish(self) -> None:
        for i in range(len(self.pairs)):
            self.compare(i)
        if self.with_grad:
            losses = [
                sum((d(p).sum() * (k + 1) for k, p in enumerate(self.pairs)), start=torch.zeros(()))
                for d in (lambda p: p.cpu, lambda p: p.xla)
            ]
            if losses[0].requires_grad:
                losses[0].backward()
                losses[1].backward()
                want, got = self.leaf.cpu.grad, self.leaf.xla.grad
                if (want is None) != (got is None):
                    raise AssertionError(f"grad {got} instead of {want}\n" + self.text())
                if want is not None and got is not None:
                    torch.testing.assert_close(
                        got.cpu(), want, msg=lambda m: m + "\n" + self.text()
                    )

    def text(self) -> str:
        return "\n".join(self.log)


def pick(parts: tuple[torch.Tensor, ...] | list[torch.Tensor], i: int) -> torch.Tensor:
    return parts[i % len(parts)]


def ramp(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(float(x.numel())).reshape(x.shape)


def run(draw: Draw, steps: int, with_grad: bool = False) -> Program:
    """Runs a random program; raises AssertionError with its text on a difference."""
    program = Program(draw, with_grad)
    program.start()
    try:
        for _ in range(steps):
            program.step()
        program.finish()
    except AssertionError:
        raise
    except Exception as e:
        raise AssertionError(f"{type(e).__name__}: {e}\n" + program.text()) from e
    return program
