"""``torch.xla``: the device module that torch's utilities ask for.

`torch.random.fork_rng`, `torch.utils.checkpoint`, autocast, `torch.load` and others look for these
names. None of them makes a client, except `synchronize` and the two that describe a device.
"""

import secrets
import struct
from types import TracebackType

import torch

from .. import _XLAC
from . import random as _random
from .devices import DeviceLike
from .devices import index_of as _index_of

_initialized = True  # torch.utils.checkpoint saves random states of initialized modules only
_forked_from_user = False


def is_available() -> bool:
    """True: the package is imported. Whether a plugin works is seen when the client is made."""
    return True


def is_initialized() -> bool:
    """Whether this process has made its client."""
    return _XLAC._xla_runtime_created()


def init() -> None:
    """Makes the client."""
    _XLAC._xla_num_devices()


def device_count() -> int:
    """Number of devices, read off the environment while there is no client."""
    return _XLAC._xla_expected_device_count()


def current_device() -> int:
    """Index of this thread's current device."""
    return _XLAC._xla_current_device()


def set_device(device: DeviceLike) -> None:
    """Makes a device the current one of this thread; negative indices change nothing."""
    index = _index_of(device)
    if index >= 0:
        _XLAC._xla_set_current_device(index)


def synchronize(device: DeviceLike = None) -> None:
    """Launches what is pending on the device and waits until it is finished."""
    _XLAC._xla_sync(_index_of(device), True)


def get_device_name(device: DeviceLike = None) -> str:
    """The vendor's name of the device."""
    return str(_XLAC._xla_device_info(_index_of(device))["kind"])


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    del including_emulation
    return True


class device:
    """Makes a device the current one inside a ``with`` block."""

    def __init__(self, device: DeviceLike) -> None:
        self._index = _index_of(device)
        self._previous = -1

    def __enter__(self) -> None:
        self._previous = current_device()
        set_device(self._index)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        set_device(self._previous)


class device_of(device):
    """The same with the device of a tensor; nothing happens for tensors that are elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.get_device() if tensor.device.type == "xla" else -1)


# --- random numbers: a state is 16 bytes, seed and offset, little endian


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds all devices."""
    _random.manual_seed_all(seed)


def seed() -> None:
    """Seeds the current device with a random number."""
    manual_seed(secrets.randbits(63))


def seed_all() -> None:
    """Seeds all devices with one random number."""
    manual_seed_all(secrets.randbits(63))


def initial_seed() -> int:
    """The current device's seed."""
    return _XLAC._xla_get_rng_state(current_device())[0]


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """The device's state: uint8[16] on the CPU."""
    packed = struct.pack("<QQ", *_XLAC._xla_get_rng_state(_index_of(device)))
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    """Restores what `get_rng_state` gave.

    Raises:
        TypeError: it is no uint8 tensor on the CPU.
        RuntimeError: it does not have 16 bytes.
    """
    if new_state.dtype != torch.uint8 or new_state.device.type != "cpu":
        raise TypeError("RNG state must be a torch.ByteTensor on the CPU")
    if new_state.numel() != 16:
        raise RuntimeError(f"RNG state of an XLA device has 16 bytes, got {new_state.numel()}")
    seed, offset = struct.unpack("<QQ", bytes(new_state.tolist()))
    _XLAC._xla_set_rng_state(_index_of(device), seed, offset)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


# --- fork


def _is_in_bad_fork() -> bool:
    """Whether this is a forked child of a process that had a client."""
    return _forked_from_user


def _after_fork_in_child() -> None:
    global _forked_from_user
    _forked_from_user = _forked_from_user or _XLAC._xla_runtime_created()
