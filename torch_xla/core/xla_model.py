"""`xm`: devices, the end of a step, random state, saving, and the names of the collectives.

This version runs one replica per process. Collectives over one replica are exact (a sum over one
replica is the value itself); what needs more raises NotImplementedError.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, TypedDict

import torch
from torch.utils._pytree import tree_map_only

from .. import _XLAC, runtime
from .._src import random as _random
from .._src.devices import DeviceLike
from .._src.devices import device as _device
from .._src.devices import devices as _devices
from .._src.devices import index_of as _index_of
from .._src.devices import real_device as _real_device
from .._src.host_copy import to_cpu as _to_cpu
from .._src.step import add_step_closure as add_step_closure
from .._src.step import sync as _sync

Groups = list[list[int]] | None

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"
_REDUCE_TYPES = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)

# --- devices


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The current XLA device, or the `n`-th, which then becomes the current one.

    Args:
        devkind: accepted for compatibility; a process has devices of one kind.

    Raises:
        RuntimeError: no PJRT plugin can be used, or there is no such device.
    """
    del devkind
    return _device(n)


def get_xla_supported_devices(
    devkind: str | int | None = None, max_devices: int | None = None
) -> list[str]:
    """Names of the devices, ``["xla:0"]``, at most `max_devices` of them.

    An integer in the first place is `max_devices`. A `devkind` that is not the platform (``"CPU"``)
    gives an empty list.
    """
    if isinstance(devkind, int):
        devkind, max_devices = None, devkind
    if devkind is not None and devkind.upper() != _XLAC._xla_platform():
        return []
    return [str(d) for d in _devices()][:max_devices]


def xla_real_devices(devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """What the given devices are, by default all: ``["CPU:0"]``."""
    return [_real_device(_index_of(d)) for d in (_devices() if devices is None else devices)]


def xla_device_hw(device: DeviceLike) -> str:
    """The platform of a device: CPU, CUDA, TPU."""
    if torch.device("cpu" if device is None else device).type == "cpu":
        return "CPU"
    _index_of(device)
    return _XLAC._xla_platform()


def xla_device_kind(device: DeviceLike = None) -> str:
    """The vendor's name of the device."""
    return str(_XLAC._xla_device_info(_index_of(device))["kind"])


def xla_replication_devices(local_devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """Who takes part in a replication over the given local devices: each by its real name."""
    return xla_real_devices(local_devices)


def set_replication(device: DeviceLike, devices: Sequence[DeviceLike] | None) -> None:
    """Accepted with at most one device; more replicas are not there yet."""
    _index_of(device)
    if devices is not None and len(devices) > 1:
        raise NotImplementedError("this version of torch_xla runs one replica per process")


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether the tensor is on an XLA device."""
    return tensor.device.type == "xla"


class MemoryInfo(TypedDict):
    """Bytes on a device."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int


def get_memory_info(device: DeviceLike = None) -> MemoryInfo:
    """Bytes used, available and used at most on a device.

    Raises:
        RuntimeError: the plugin counts no bytes (CPU plugins do not).
    """
    info = _XLAC._xla_memory_info(_index_of(device))
    if info is None:
        raise RuntimeError(
            f"the PJRT plugin of {_XLAC._xla_platform()} does not report memory statistics"
        )
    return MemoryInfo(
        bytes_used=info["bytes_in_use"],
        bytes_limit=info["bytes_limit"],
        peak_bytes_used=info["peak_bytes_in_use"],
    )


# --- the step


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Ends a step; the older name of `torch_xla.sync`."""
    _sync(wait, reset_scope)


def wait_device_ops(devices: Sequence[DeviceLike] = ()) -> None:
    """Waits until all that was launched on the given devices, by default all, is finished."""
    if not _XLAC._xla_runtime_created():
        return
    for d in devices or _devices():
        _XLAC._xla_wait_device_ops(_index_of(d))


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Computes the given tensors, and with them what is alive in their graph, and waits."""
    _XLAC._xla_materialize(list(tensors))
    wait_device_ops(sorted({str(t.device) for t in tensors}))


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: Groups = None,
    pin_layout: bool = True,
) -> Any:
    """Averages the gradients over the replicas, steps, and returns what ``step`` returns.

    Args:
        barrier: end the step, as `torch_xla.sync` does. Needed where no loader of ours does it.
        optimizer_args: keyword arguments of ``optimizer.step``.
        groups: which replicas average together.
        pin_layout: accepted for compatibility.
    """
    reduce_gradients(optimizer, groups, pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def get_stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """StableHLO text of the graph behind the tensors, by default of all that is pending."""
    tensors = list(tensors or ())
    index = tensors[0].get_device() if tensors else _XLAC._xla_current_device()
    return _XLAC._xla_dump_graph(index, tensors, True)


# --- random numbers


def get_rng_state(device: DeviceLike = None) -> int:
    """The state of the device's generator as one integer.

    It is the seed as long as nothing was drawn, and fits into an int64 as long as the seed and the
    count of drawn numbers have at most 56 bits together.
    """
    return _random.pack_state(*_XLAC._xla_get_rng_state(_index_of(device)))


def set_rng_state(seed: int, device: DeviceLike = None) -> None:
    """Restores what `get_rng_state` gave; a plain seed starts that seed's stream.

    Raises:
        RuntimeError: it is out of range.
    """
    _XLAC._xla_set_rng_state(_index_of(device), *_random.unpack_state(int(seed)))


@contextmanager
def fork_rng(device: DeviceLike = None, enabled: bool = True) -> Iterator[None]:
    """Draws inside the block leave the device's generator as it was."""
    index = _index_of(device)
    state = _XLAC._xla_get_rng_state(index)
    try:
        yield
    finally:
        if enabled:
            _XLAC._xla_set_rng_state(index, *state)


# --- host copies


def save(
    data: Any,
    file_or_path: str | os.PathLike[str] | Any,
    master_only: bool = True,
    global_master: bool = False,
) -> None:
    """Copies the tensors in `data` to the CPU, in one batch, and calls `torch.save`.

    Args:
        master_only: only the master replica writes.
        global_master: one master of all hosts, instead of one per host.
    """
    writes = not master_only or is_master_ordinal(local=not global_master)
    cpu_data = _maybe_convert_to_cpu(data, convert=writes)
    if writes:
        torch.save(cpu_data, file_or_path)


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    """`data` with its xla tensors copied to the CPU, or unchanged without `convert`."""
    return _to_cpu(data) if convert else data


def send_cpu_data_to_device(datas: Any, device: DeviceLike, input_sharding: Any = None) -> Any:
    """`datas`, any nesting of lists, tuples and dicts, with its CPU tensors on the device."""
    if input_sharding is not None:
        raise NotImplementedError("this version of torch_xla does not shard tensors")
    target = torch.device("xla", _index_of(device))
    return tree_map_only(torch.Tensor, lambda t: t.to(target), datas)


# --- replicas: one


def get_local_ordinal() -> int:
    """This replica's number on its host."""
    return runtime.local_ordinal()


def get_ordinal(defval: int = 0) -> int:
    """This replica's number; `defval` is accepted for compatibility."""
    del defval
    return runtime.global_ordinal()


def xrt_world_size(defval: int = 1) -> int:
    """The number of replicas; `defval` is accepted for compatibility."""
    del defval
    return runtime.world_size()


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this replica is the first: of its host, or of all with ``local=False``."""
    return (runtime.local_ordinal() if local else runtime.global_ordinal()) == 0


def master_print(
    *args: Any, fd: TextIO | None = None, local: bool = False, flush: bool = False
) -> None:
    """Prints on the master replica, to stdout by default."""
    if is_master_ordinal(local=local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)


def _check_collective(groups: Groups = None, reduce_type: str = REDUCE_SUM) -> None:
    if reduce_type not in _REDUCE_TYPES:
        raise ValueError(f"reduce_type '{reduce_type}' is none of {', '.join(_REDUCE_TYPES)}")
    if runtime.world_size() != 1:
        raise NotImplementedError("this version of torch_xla runs one replica per process")
    if groups is not None and [list(g) for g in groups] != [[0]]:
        raise ValueError(f"groups {groups} must name replica 0 exactly once: there is one replica")


def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor | list[torch.Tensor],
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor | list[torch.Tensor]:
    """``scale * reduce(inputs of the replicas)``.

    Returns the result for a tensor; changes the tensors of a list in place and returns the list.

    Raises:
        ValueError: unknown `reduce_type`, or groups that name replicas that do not exist.
    """
    _check_collective(groups, reduce_type)
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if scale == 1.0 else inputs * scale
    if scale != 1.0:
        with torch.no_grad():
            for t in inputs:
                t.mul_(scale)
    return inputs


def all_gather(
    value: torch.Tensor | list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: torch.Tensor | list[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> torch.Tensor | list[torch.Tensor]:
    """The replicas' values concatenated along `dim`."""
    _check_collective(groups)
    for t in [value] if isinstance(value, torch.Tensor) else value:
        if not -max(t.dim(), 1) <= dim < max(t.dim(), 1):
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-max(t.dim(), 1)}, "
                f"{max(t.dim(), 1) - 1}], but got {dim})"
            )
    return _copied(value, output)


def reduce_scatter(
    reduce_type: str,
    input: torch.Tensor | list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: torch.Tensor | list[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> torch.Tensor | list[torch.Tensor]:
    """``scale * reduce(input of the replicas)``, of which each replica keeps one slice."""
    _check_collective(groups, reduce_type)
    _check_count("shard_count", shard_count)
    if isinstance(input, torch.Tensor):
        return _copied(input * scale, output)
    return _copied([t * scale for t in input], output)


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Sends a slice to each replica and concatenates what comes back."""
    _check_collective(groups)
    _check_count("split_count", split_count)
    return value.clone()


def collective_permute(value: torch.Tensor, pairs: list[list[int]]) -> torch.Tensor:
    """Sends the value along ``pairs`` of (source, target); who is no target gets zeros."""
    _check_collective()
    if any(list(pair) != [0, 0] for pair in pairs) or len(pairs) > 1:
        raise ValueError(f"pairs {pairs} must be [] or [[0, 0]]: there is one replica")
    return value.clone() if pairs else torch.zeros_like(value)


def collective_broadcast(
    tensors: list[torch.Tensor],
    root_ordinal: int = 0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> None:
    """Overwrites the tensors with those of the root replica."""
    _check_collective(groups)
    if root_ordinal != 0:
        raise ValueError(f"root_ordinal {root_ordinal} does not exist: there is one replica")


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrites parameters and buffers with those of replica 0."""
    collective_broadcast([*model.parameters(), *model.buffers()])


def reduce_gradients(
    optimizer: torch.optim.Optimizer, groups: Groups = None, pin_layout: bool = True
) -> None:
    """Averages the gradients of the optimizer's parameters over the replicas, in place."""
    _check_collective(groups)


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The gradients that an optimizer would use."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return [p.grad for p in params if p.grad is not None]


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Waits for all replicas and returns their payloads in order."""
    _check_collective([list(replicas)] if replicas else None)
    return [payload]


def xla_rendezvous(
    payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """The same as `rendezvous`, with other arguments."""
    return rendezvous(tag or "", payload, list(ordinals or ()))


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """``reduce_fn`` of the list of all replicas' `data`, whose tensors are on the CPU."""
    _check_collective()
    return reduce_fn([_maybe_convert_to_cpu(data)])


def do_on_ordinals(
    target: Callable[..., Any], data: Sequence[Any] = (), ordinals: Sequence[int] = (0,)
) -> Any:
    """Calls ``target(*data)``, tensors on the CPU, on some replicas; None on the others."""
    _check_collective()
    if runtime.global_ordinal() not in ordinals:
        return None
    return target(*_maybe_convert_to_cpu(tuple(data)))


def _copied(
    value: torch.Tensor | list[torch.Tensor], output: torch.Tensor | list[torch.Tensor] | None
) -> torch.Tensor | list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if output is None:
            return value.clone()
        assert isinstance(output, torch.Tensor), "output must be a tensor, as the value is"
        return output.copy_(value)
    if output is None:
        return [t.clone() for t in value]
    assert isinstance(output, list), "output must be a list, as the value is"
    for o, t in zip(output, value, strict=True):
        o.copy_(t)
    return output


def _check_count(name: str, count: int) -> None:
    if count != 1:
        raise ValueError(f"{name} {count} must be 1: there is one replica")


def _later(name: str, what: str) -> Callable[..., Any]:
    def raise_(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"xm.{name} is not in this version of torch_xla: {what}")

    raise_.__name__ = raise_.__qualname__ = name
    raise_.__doc__ = f"Not in this version: {what}."
    return raise_


send = _later("send", "it needs two replicas")
recv = _later("recv", "it needs two replicas")
optimization_barrier_ = _later("optimization_barrier_", "compiler fences come later")
get_stablehlo_bytecode = _later("get_stablehlo_bytecode", "use xm.get_stablehlo for the text")


class RateTracker:
    """Samples per second, smoothed.

    Args:
        smooth_factor: weight of the past in [0, 1); 0.4 by default.
    """

    def __init__(self, smooth_factor: float | None = None) -> None:
        self._smooth = 0.4 if smooth_factor is None else smooth_factor
        self._start = self._last = time.monotonic()
        self._count = self._last_count = 0
        self._rate = 0.0

    def add(self, count: int) -> None:
        """Counts samples."""
        self._count += count

    def rate(self) -> float:
        """Samples per second since the last call, smoothed with the earlier rates."""
        now = time.monotonic()
        elapsed = now - self._last
        if elapsed > 0 and self._count > self._last_count:
            new = (self._count - self._last_count) / elapsed
            first = self._last_count == 0
            self._rate = new if first else self._smooth * self._rate + (1 - self._smooth) * new
            self._last, self._last_count = now, self._count
        return self._rate

    def global_rate(self) -> float:
        """Samples per second since the tracker was made."""
        elapsed = time.monotonic() - self._start
        return self._count / elapsed if elapsed > 0 else 0.0
