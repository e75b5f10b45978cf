"""The XLA devices of this process."""

import torch

from .. import _XLAC

DeviceLike = torch.device | str | int | None


def device(index: int | None = None) -> torch.device:
    """The current XLA device, or the `index`-th, which then becomes the current one.

    Makes the PJRT client at the first call of the process.

    Raises:
        RuntimeError: no PJRT plugin can be used, or there is no such device.
    """
    count = _XLAC._xla_num_devices()
    if index is None:
        return torch.device("xla", _XLAC._xla_current_device())
    if not 0 <= index < count:
        raise RuntimeError(f"xla:{index} does not exist: this process has {count} XLA device(s)")
    _XLAC._xla_set_current_device(index)
    return torch.device("xla", index)


def devices() -> list[torch.device]:
    """All XLA devices of this process."""
    return [torch.device("xla", i) for i in range(_XLAC._xla_num_devices())]


def device_count() -> int:
    """How many XLA devices this process has."""
    return _XLAC._xla_num_devices()


def real_devices() -> list[str]:
    """What the devices are, in order: ``["CPU:0"]``."""
    return [real_device(i) for i in range(_XLAC._xla_num_devices())]


def real_device(index: int) -> str:
    return f"{_XLAC._xla_platform()}:{_XLAC._xla_device_info(index)['id']}"


def index_of(device: DeviceLike) -> int:
    """The index of an XLA device given in any form; None and ``"xla"`` are the current one.

    Raises:
        ValueError: it is a device of another type.
    """
    if device is None:
        return _XLAC._xla_current_device()
    if isinstance(device, int):
        return device
    d = torch.device(device)
    if d.type != "xla":
        raise ValueError(f"expected an xla device, got '{d}'")
    return _XLAC._xla_current_device() if d.index is None else d.index
