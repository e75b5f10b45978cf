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
        moved = _crossing_compressed(before, fn)
        self._parameters.update(dict.fromkeys(moved))
        try:
            original(self, fn, recurse)  # type: ignore[no-untyped-call]
        except BaseException:
            self._parameters.update({name: before[name] for name in moved})
            raise
        self._parameters.update(moved)
        if not torch.__future__.get_overwrite_module_params_on_conversion():
            _restore_identities(self, before)
        return self

    Module._apply = _apply  # type: ignore[method-assign]


@torch.no_grad()
def _crossing_compressed(
    parameters: dict[str, Parameter | None], fn: Callable[[Any], Any]
) -> dict[str, Parameter]:
    """Sparse compressed parameters that fn moves to or from XLA, moved."""
    crossing = {}
    for name, p in parameters.items():
        if p is None or p.layout in (torch.strided, torch.sparse_coo):
            continue
        value = fn(p)
        if (value.device.type == "xla") != (p.device.type == "xla"):
            crossing[name] = Parameter(value, p.requires_grad)
            if p.grad is not None:
                crossing[name].grad = fn(p.grad)
    return crossing


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
