"""Optimizers that skip a step on the device.

`SGD`, `Adam` and `AdamW` are those of `torch.optim`, and compute the same. Where gradients overflow
(`found_inf` is not zero), parameters and state stay what they were, step counts included; the host
is not asked, so `GradScaler.step` does not wait for the device.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.sgd import sgd

__all__ = ["SGD", "Adam", "AdamW"]

Closure = Callable[[], Any] | None


class _SyncFree(torch.optim.Optimizer):
    """Before torch's class in the bases. Runs torch's step, then takes back what was to skip."""

    # GradScaler sets `grad_scale` and `found_inf` for the time of a step instead of reading them.
    _step_supports_amp_scaling = True

    def step(self, closure: Closure = None, found_inf: Tensor | float | None = None) -> Any:
        """Performs a step, unless `found_inf` says that the gradients overflowed.

        Args:
            closure: computes the loss again and returns it.
            found_inf: of one element; the step is skipped where it is not zero. By default what
                `GradScaler` found.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if found_inf is None:
            found_inf = getattr(self, "found_inf", None)
        with torch.no_grad():
            self._unscale(getattr(self, "grad_scale", None))
            self._update(None if found_inf is None else torch.as_tensor(found_inf).reshape(()) != 0)
        return loss

    def _parameters(self) -> list[tuple[Tensor, dict[str, Any]]]:
        """Those with a gradient, and their groups."""
        return [(p, g) for g in self.param_groups for p in g["params"] if p.grad is not None]

    def _unscale(self, scale: Tensor | None) -> None:
        for p, _ in self._parameters():
            if scale is not None and p.grad is not None:
                p.grad.div_(scale.to(p.device))

    def _torch_step(self) -> None:
        """Of the class after this one. Bare: its hooks and its closure are ours."""
        base = next(c for c in type(self).__mro__ if c.__module__.startswith("torch.optim."))
        names = ("grad_scale", "found_inf")  # torch's step refuses them
        held = {name: self.__dict__.pop(name) for name in names if name in self.__dict__}
        try:
            inspect.unwrap(base.step)(self)  # type: ignore[attr-defined]
        finally:
            self.__dict__.update(held)

    def _update(self, skip: Tensor | None) -> None:
        """`skip`: a bool, or None."""
        raise NotImplementedError


def _take_back(tensors: Iterable[tuple[Tensor, Tensor]], where: Tensor) -> None:
    """Each becomes what it was before, its partner, where the bool says so."""
    for now, before in tensors:
        now.copy_(torch.where(where.to(now.device), before, now))


class SGD(_SyncFree, torch.optim.SGD):
    """`torch.optim.SGD` that skips steps on the device."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{**kwargs, "fused": None})

    def _update(self, skip: Tensor | None) -> None:
        before = {}
        for p, _ in self._parameters():
            buffer = self.state.get(p, {}).get("momentum_buffer")
            before[p] = p.clone(), None if buffer is None else buffer.clone()
        self._torch_step()
        for p, group in self._parameters():
            state = self.state.get(p, {})
            parameter, buffer = before[p]
            now = state.get("momentum_buffer")
            started = state.get("momentum_started")
            if started is not None:
                self._begin_momentum(p, group, started, parameter)
            if skip is None:
                continue
            _take_back([(p, parameter)], skip)
            if now is None:
                continue
            _take_back([(now, torch.zeros_like(now) if buffer is None else buffer)], skip)
            # Without dampening, to begin with a gradient and to begin with zeros is the same.
            if started is not None:
                started.logical_or_(~skip.to(p.device))
            elif buffer is None and group["dampening"] != 0:
                state["momentum_started"] = ~skip.to(p.device)

    def _begin_momentum(
        self, p: Tensor, group: dict[str, Any], started: Tensor, before: Tensor
    ) -> None:
        """All steps before this one may have been skipped: then the buffer begins with it."""
        assert p.grad is not None
        parameter, buffers = before.clone(), list[Tensor | None]([None])
        names = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
        sgd([parameter], [p.grad], buffers, **{name: group[name] for name in names})
        buffer = self.state[p]["momentum_buffer"]
        assert buffers[0] is not None
        _take_back([(p, parameter), (buffer, buffers[0])], started == 0)

    def _torch_step(self) -> None:
        # Torch reads a learning rate on the device unless it seems to need a gradient.
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            lr = group["lr"]
            if isinstance(lr, Tensor) and not lr.is_cpu:
                group["lr"] = lr.detach().requires_grad_()
        try:
            super()._torch_step()
        finally:
            for group, lr in zip(self.param_groups, rates, strict=True):
                group["lr"] = lr


class Adam(_SyncFree, torch.optim.Adam):
    """`torch.optim.Adam` that skips steps on the device, where it counts them, too."""

    # How torch computes: all ways are one program here, and this one has tensors as step counts.
    _WAY: ClassVar = {"fused": None, "foreach": None, "capturable": True}

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{**kwargs, **self._WAY})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for group in self.param_groups:  # of a state that torch's own class has saved
            group.update(self._WAY)

    def _update(self, skip: Tensor | None) -> None:
        for group in self.param_groups:
            self._init_group(group, [], [], [], [], [], [])  # type: ignore[no-untyped-call]
        before, rates = [], []
        for p, group in self._parameters():
            state = self.state[p]
            # 1 - beta ** step has few digits left in float32.
            state["step"] = state["step"].to(p.device, torch.float64)
            if skip is not None:
                before += [(t, t.clone()) for t in state.values()]
            rates.append((p, p.clone(), group["lr"]))
        self._torch_step()
        if skip is not None:
            _take_back(before, skip)
        for p, parameter, lr in rates:
            # Torch divides by the learning rate, which is 0 where a schedule warms up.
            if not isinstance(lr, Tensor) or lr.is_cpu:
                lr = torch.full((), float(lr), dtype=torch.float64, device=p.device)
            still = lr.to(p.device).reshape(()) == 0
            _take_back([(p, parameter)], still if skip is None else still | skip.to(p.device))


class AdamW(Adam, torch.optim.AdamW):
    """`torch.optim.AdamW` that skips steps on the device, where it counts them, too."""
