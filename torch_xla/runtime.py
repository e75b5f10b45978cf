"""`xr`: the platform, the devices and the replicas of a program.

A plain program is one replica, whatever number of devices it has. `xmp.spawn` and torchrun start
several processes, each of them a replica with one device. With `DataParallel` and
``xmp.spawn(..., start_method="thread")`` each thread is a replica, with a device of the process.
"""

import os
from typing import Any

import torch

from . import _XLAC
from ._src import plugins as _plugins
from ._src import world as _world
from ._src.devices import DeviceLike
from ._src.devices import index_of as _index_of


def device_type() -> str | None:
    """The platform: CPU, CUDA, TPU, ...; does not make the client."""
    if _XLAC._xla_runtime_created():
        return _XLAC._xla_platform()
    named = os.environ.get("PJRT_DEVICE", "")
    if named:
        return "CUDA" if named.upper() == "GPU" else named.upper().split("_")[0]
    try:
        return _plugins.resolve("")[0]
    except RuntimeError:
        return None


def set_device_type(pjrt_device: str) -> None:
    """Chooses the platform, as the environment variable PJRT_DEVICE does.

    Raises:
        RuntimeError: the client is there already, for another platform.
    """
    if _XLAC._xla_runtime_created() and device_type() != pjrt_device.upper():
        raise RuntimeError(
            f"cannot change the device type to {pjrt_device}: this process already uses "
            f"{device_type()}"
        )
    os.environ["PJRT_DEVICE"] = pjrt_device


def using_pjrt() -> bool:
    """True: there is no other runtime."""
    return True


def is_bf16_supported() -> bool:
    """Whether the device computes in bfloat16; runs one addition to see."""
    try:
        return bool((torch.ones(1, dtype=torch.bfloat16, device="xla") + 1).item() == 2)
    except RuntimeError:
        return False


def get_num_cached_compilation_graph() -> int:
    """Compiled graphs in memory."""
    return _XLAC._xla_cached_programs()


# --- replicas


def world_size() -> int:
    """Number of replicas of the program."""
    return _world.current().size


def global_ordinal() -> int:
    """This replica's number in [0, world_size())."""
    return _world.current().rank


def local_ordinal() -> int:
    """This replica's number on its host."""
    return _world.current().local_rank


def local_process_count() -> int:
    """Processes of the program on this host."""
    return _world.of_process().local_processes


def process_count() -> int:
    """Processes of the program."""
    return _world.of_process().num_processes


def process_index() -> int:
    """This process's number in [0, process_count())."""
    return _world.of_process().process


def host_index() -> int:
    """This host's number."""
    return _world.of_process().host


# --- devices


def addressable_device_count() -> int:
    """Devices of this process."""
    return _XLAC._xla_num_devices()


def local_device_count() -> int:
    """Devices of the program's processes on this host."""
    return local_process_count() * addressable_device_count()


def global_device_count() -> int:
    """Devices of all processes of the program."""
    return process_count() * addressable_device_count()


def addressable_runtime_device_count() -> int:
    """Hardware devices of this process."""
    return addressable_device_count()


def global_runtime_device_count() -> int:
    """Hardware devices of all processes."""
    return global_device_count()


def runtime_device_attributes(device: DeviceLike) -> dict[str, Any]:
    """What the plugin tells about a device."""
    return dict(_XLAC._xla_device_info(_index_of(device))["attributes"])


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    """`runtime_device_attributes` of all devices, each with its ``name``."""
    infos = [_XLAC._xla_device_info(i) for i in range(_XLAC._xla_num_devices())]
    return [{**info["attributes"], "name": info["debug_string"]} for info in infos]


def is_spmd() -> bool:
    """False: one virtual device over many is not in this version."""
    return False


def use_spmd(auto: bool = False) -> None:
    """Not in this version."""
    raise NotImplementedError("SPMD is not in this version of torch_xla")


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Not in this version."""
    raise NotImplementedError("a compile cache on disk is not in this version of torch_xla")
