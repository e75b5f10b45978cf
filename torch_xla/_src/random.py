"""Seeds and the state of the device generators: (seed, offset), both 64-bit."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import _XLAC
from .devices import DeviceLike, index_of

_MASK = 2**64 - 1


def manual_seed(seed: int, device: DeviceLike = None) -> None:
    """Seeds one device's generator, by default the current device's.

    `torch.manual_seed` seeds the CPU's and every device's generator.

    Args:
        seed: in [-2**63, 2**64); negative seeds wrap around, as in torch.

    Raises:
        RuntimeError: the seed is out of range.
    """
    _XLAC._xla_set_rng_state(index_of(device), normalize_seed(seed), 0)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices; does not make a client."""
    seed = normalize_seed(seed)
    for i in range(_XLAC._xla_expected_device_count()):
        _XLAC._xla_set_rng_state(i, seed, 0)


def normalize_seed(seed: int) -> int:
    seed = int(seed)
    if not -(2**63) <= seed < 2**64:
        raise RuntimeError(f"Overflow when unpacking long long: seed {seed} is out of range")
    return seed & _MASK


def wrap_torch_seeding() -> None:
    """Makes `torch.manual_seed` and `torch.seed` reach the device generators.

    Both call ``torch.random._seed_custom_device``, which knows one custom backend only. Wrapping
    it, not them, also reaches whoever did ``from torch import manual_seed`` earlier.
    """
    original: Callable[[Any], None] = torch.random._seed_custom_device

    @functools.wraps(original)
    def seed_devices(seed: Any) -> None:
        original(seed)
        if not torch.xla._is_in_bad_fork():  # type: ignore[attr-defined]
            manual_seed_all(int(seed) & _MASK)

    torch.random._seed_custom_device = seed_devices


# One integer for (seed, offset) that fits into an int64 wherever it can: people broadcast it as a
# tensor. 0 <= state < 2**62: a seed whose stream stands at its start. Bit 62: the offset above the
# seed, with 6 bits for the seed's width. From 2**128 on: all 128 bits.
_PACKED = 1 << 62
_WIDTH_BITS = 6
_WIDE = 1 << 128


def pack_state(seed: int, offset: int) -> int:
    if offset == 0 and seed < _PACKED:
        return seed
    width = seed.bit_length()
    if width + offset.bit_length() + _WIDTH_BITS <= 62:
        return _PACKED | (offset << width | seed) << _WIDTH_BITS | width
    return _WIDE | offset << 64 | seed


def unpack_state(state: int) -> tuple[int, int]:
    """(seed, offset) of what `pack_state` gave; any other integer of torch's range is a seed."""
    if state >= _WIDE:
        return state & _MASK, state >> 64 & _MASK
    if not _PACKED <= state < 2 * _PACKED:
        return normalize_seed(state), 0
    width = state & (1 << _WIDTH_BITS) - 1
    both = (state ^ _PACKED) >> _WIDTH_BITS
    return both & (1 << width) - 1, both >> width
