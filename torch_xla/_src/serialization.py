"""``torch.load(..., map_location="xla")`` and files whose storages are tagged ``xla``.

`torch.save` itself needs nothing: it pickles an xla tensor as a CPU tensor and its device. Loading
onto a device, however, asks for a storage there, and xla tensors have none. So a storage that is to
be restored there stays on the CPU and only says that it is on the device; the tensor that is built
over it then copies from it (`aten::set_` below).
"""

from typing import Any

import torch

from .. import _XLAC

_library: torch.library.Library | None = None


class _StorageForXla(torch.UntypedStorage):
    """A CPU storage on its way to an XLA device."""

    xla_device: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.xla_device


def register() -> None:
    """Makes torch.load know the location ``xla[:N]``."""
    torch.serialization.register_package(36, _tag, _restore)


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> torch.UntypedStorage | None:
    if not location.startswith("xla"):
        return None
    device = torch.device(location)
    index = _XLAC._xla_current_device() if device.index is None else device.index
    count = _XLAC._xla_num_devices()
    if index >= count:
        raise RuntimeError(
            f"cannot load onto {location}: this process has {count} XLA device(s); use "
            "torch.load with map_location to choose another device"
        )
    _define_set()
    storage.__class__ = _StorageForXla
    assert isinstance(storage, _StorageForXla)
    storage.xla_device = torch.device("xla", index)
    return storage


def _define_set() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        _library.impl("set_.source_Storage_storage_offset", _set_from_storage, "XLA")  # type: ignore[no-untyped-call]


def _set_from_storage(
    self: torch.Tensor,
    source: torch.UntypedStorage,
    storage_offset: int,
    size: list[int],
    stride: tuple[int, ...] = (),
) -> torch.Tensor:
    if not isinstance(source, _StorageForXla):
        raise RuntimeError("an xla tensor has no storage that could be set; use copy_")
    on_cpu = torch.empty(0, dtype=self.dtype).set_(source, storage_offset, size, stride)
    self.data = on_cpu.to(self.device)
    return self
