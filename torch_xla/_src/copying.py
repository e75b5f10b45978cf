"""``copy.copy`` and ``copy.deepcopy`` of xla tensors share memory as those of CPU tensors do.

torch goes through storages for both, which xla tensors don't have: its own `__deepcopy__` clones
each tensor for itself, and its `__reduce_ex__`, which a shallow copy uses, goes through the host.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import _XLAC


def wrap() -> None:
    """Wraps the two `__deepcopy__` and gives `torch.Tensor` a `__copy__`."""
    torch.Tensor.__deepcopy__ = _sharing(torch.Tensor.__deepcopy__)  # type: ignore[method-assign]
    torch.nn.Parameter.__deepcopy__ = _sharing(torch.nn.Parameter.__deepcopy__)  # type: ignore
    torch.Tensor.__copy__ = _copy  # type: ignore[attr-defined]


def _sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Copies of tensors that share memory share memory, within one `copy.deepcopy`."""

    @functools.wraps(original)
    def deepcopy(self: torch.Tensor, memo: dict[Any, Any]) -> Any:
        seen = id(self) in memo
        result = original(self, memo)
        if seen or not all(
            t.device.type == "xla" and t.layout == torch.strided for t in (self, result)
        ):
            return result
        with torch.no_grad():
            # memo's other keys are the ids of objects.
            key = ("torch_xla", self.device.index, _XLAC._xla_get_tensor_id(self))
            if key not in memo:
                memo[key] = _XLAC._xla_root(self).clone()
            result.data = _XLAC._xla_rebase(self, memo[key])
        return result

    return deepcopy


def _copy(self: torch.Tensor) -> torch.Tensor:
    if self.device.type != "xla" or isinstance(self, torch.nn.Parameter):
        # What copy.copy does with a class that has no __copy__.
        made: torch.Tensor = copy._reconstruct(self, None, *self.__reduce_ex__(4))  # type: ignore
        return made
    result = self.detach()
    if type(self) is not torch.Tensor:
        result = result.as_subclass(type(self))
    result.requires_grad_(self.requires_grad)
    result.__dict__.update(self.__dict__)
    return result
