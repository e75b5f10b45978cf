"""`Tensor.new` and `Tensor.type` of sparse xla tensors, for which torch knows no names."""

import functools
from typing import Any

import torch


def wrap() -> None:
    """Gives the two methods an answer where torch knows no name."""
    torch.Tensor.new = _new(torch.Tensor.new)  # type: ignore[method-assign]
    torch.Tensor.type = _type(torch.Tensor.type)  # type: ignore[method-assign]


def _unnamed(t: torch.Tensor) -> bool:
    return t.device.type == "xla" and t.layout != torch.strided


def _new(original: Any) -> Any:
    @functools.wraps(original)
    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not _unnamed(self):
            return original(self, *args, **kwargs)  # type: ignore[no-any-return]
        options: dict[str, Any] = {"dtype": self.dtype, "device": kwargs.get("device", self.device)}
        if len(args) > 1 and all(isinstance(a, torch.Tensor) for a in args[:2]):
            return torch.sparse_coo_tensor(*args, **options)
        size = args if args and isinstance(args[0], int) else args[0] if args else (0,)
        return torch.empty(size, layout=self.layout, **options)

    return new


def _type(original: Any) -> Any:
    @functools.wraps(original)
    def type(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not _unnamed(self):
            return original(self, *args, **kwargs)
        dense = original(torch.empty(0, dtype=self.dtype, device=self.device))
        return dense.replace("torch.xla.", "torch.xla.sparse.")

    return type
