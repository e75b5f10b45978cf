"""Copies of nested data to the host, all tensors in one batch."""

from collections import OrderedDict
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .. import _XLAC


def to_cpu(data: Any) -> Any:
    """`data`, any nesting of lists, tuples and dicts, with its xla tensors copied to the CPU.

    One tensor that occurs twice is copied once; parameters stay parameters.
    """
    leaves, spec = tree_flatten(data)
    unique = {id(x): x for x in leaves if isinstance(x, torch.Tensor) and x.device.type == "xla"}
    copies = dict(zip(unique, _XLAC._xla_to_cpu(list(unique.values())), strict=True))
    for key, source in unique.items():
        if isinstance(source, torch.nn.Parameter):
            copies[key] = torch.nn.Parameter(copies[key], source.requires_grad)
        elif source.requires_grad:
            copies[key].requires_grad_()
    result = tree_unflatten([copies.get(id(x), x) for x in leaves], spec)
    if isinstance(data, OrderedDict) and hasattr(data, "_metadata"):  # a module's state_dict
        result._metadata = data._metadata
    return result
