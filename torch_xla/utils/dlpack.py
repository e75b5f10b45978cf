"""DLPack: what `torch.Tensor.__dlpack__` asks for; exchange is not in this version."""

from typing import Any, NoReturn

import torch


def to_dlpack(xla_tensor: torch.Tensor) -> NoReturn:
    """Not in this version: copy with ``.cpu()`` first."""
    raise NotImplementedError("xla tensors are not exchanged by DLPack yet: use tensor.cpu()")


def from_dlpack(ext_tensor: Any) -> NoReturn:
    """Not in this version: copy with ``torch.from_dlpack(x).to("xla")``."""
    raise NotImplementedError(
        'xla tensors are not exchanged by DLPack yet: use torch.from_dlpack(x).to("xla")'
    )
