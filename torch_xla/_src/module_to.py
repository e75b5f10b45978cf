"""``nn.Module.to`` keeps the Parameter objects when a module moves to or from XLA, as on CUDA.

An optimizer made before the move then still trains the module, and tied parameters stay tied. torch
would replace the objects, because an xla tensor's implementation differs from a CPU tensor's. Its
own switch (`torch.__future__.set_swap_module_params_on_conversion`) acts on the whole process and
raises where a swap is refused; here, only moves to and from XLA are touched.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module, Parameter


def wrap() -> None:
    """Wraps `torch.nn.Module._apply`, through which every move goes."""
    original = Module._apply

    @functools.wraps(original)
    def _apply(self: Module, fn: Callable[[Any], Any], recurse: bool = True) -> Module:
        before = dict(self._parameters)
        # torch sets `.data` of sparse compressed ones, which leaves the members where they were.
        apart = {n: p for n, p in before.items() if p is not None and _crosses_compressed(p, fn)}
        self._parameters.update(dict.fromkeys(apart))
        try:
            original(self, fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._parameters.update(apart)
        for name, p in apart.items():
            with torch.no_grad():
                moved = Parameter(fn(p), p.requires_grad)
                if p.grad is not None:
                    moved.grad = fn(p.grad)
            self._parameters[name] = moved
        if not torch.__future__.get_overwrite_module_params_on_conversion():
            _restore_identities(self, before)
        return self

    Module._apply = _apply  # type: ignore[method-assign]


def _crosses_compressed(p: Parameter, fn: Callable[[Any], Any]) -> bool:
    if p.layout in (torch.strided, torch.sparse_coo):
        return False
    with torch.no_grad():
        return bool((p.device.type == "xla") != (fn(p).device.type == "xla"))


def _restore_identities(module: Module, before: dict[str, Parameter | None]) -> None:
    for name, old in before.items():
        new = module._parameters.get(name)
        if old is None or new is None or new is old:
            continue
        if (old.device.type == "xla") == (new.device.type == "xla"):
            continue
        try:
            torch.utils.swap_tensors(old, new)  # type: ignore[no-untyped-call]
        except RuntimeError as e:
            warnings.warn(
                f"{type(module).__name__}.{name} is a new Parameter after the move to "
                f"{new.device}: its object could not be kept ({e}); make the optimizer after the "
                "move",
                stacklevel=3,
            )
        else:
            module._parameters[name] = old
