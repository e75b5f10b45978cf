"""Copies of nested data to the host, all tensors in one batch."""

from collections import OrderedDict
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .. import _XLAC


def to_cpu(data: Any) -> Any:
    """`data`, any nesting of lists, tuples and dicts, with its xla tensors copied to the CPU.

    One tensor that occurs twice is copied once, and so is what several tensors are as a whole (tied
    weights in a state_dict): their copies share memory, too. Parameters stay parameters.
    """
    leaves, spec = tree_flatten(data)
    unique = {id(x): x for x in leaves if isinstance(x, torch.Tensor) and x.device.type == "xla"}
    whole: dict[tuple[Any, ...], torch.Tensor] = {_memory(x): x for x in unique.values()}
    values = dict(zip(whole, _XLAC._xla_to_cpu(list(whole.values())), strict=True))
    copies = {key: values[_memory(x)].detach() for key, x in unique.items()}
    for key, source in unique.items():
        if isinstance(source, torch.nn.Parameter):
            copies[key] = torch.nn.Parameter(copies[key], source.requires_grad)
        elif source.requires_grad:
            copies[key].requires_grad_()
    result = tree_unflatten([copies.get(id(x), x) for x in leaves], spec)
    if isinstance(data, OrderedDict) and hasattr(data, "_metadata"):  # a module's state_dict
        result._metadata = data._metadata
    return result


def _memory(x: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same values in the same memory."""
    if x.layout != torch.strided or not _XLAC._xla_is_root(x):
        return ("view", id(x))
    return (x.device.index, _XLAC._xla_get_tensor_id(x), x.shape, x.dtype)
