"""`xm`: devices, the end of a step, random state, saving, and collectives.

A collective is recorded like any other operation, and every replica has to record the same ones in
the same order. Gradients through collectives are in `torch_xla.core.functions`.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, TypedDict

import torch
from torch.utils._pytree import tree_map_only

from .. import _XLAC, runtime
from .._src import collectives as _c
from .._src import point_to_point as _p2p
from .._src import random as _random
from .._src import threads as _threads
from .._src import world as _world
from .._src.devices import DeviceLike
from .._src.devices import device as _device
from .._src.devices import devices as _devices
from .._src.devices import index_of as _index_of
from .._src.devices import real_device as _real_device
from .._src.gather_scatter import all_gather as all_gather
from .._src.gather_scatter import all_gather_bucketized as all_gather_bucketized
from .._src.gather_scatter import reduce_scatter as reduce_scatter
from .._src.gather_scatter import reduce_scatter_bucketized as reduce_scatter_bucketized
from .._src.host_copy import to_cpu as _to_cpu
from .._src.reductions import all_reduce as all_reduce
from .._src.reductions import all_reduce_bucketized_gradients as all_reduce_bucketized_gradients
from .._src.reductions import fetch_gradients as _fetch_gradients  # noqa: F401
from .._src.reductions import reduce_gradients as reduce_gradients
from .._src.step import add_step_closure as add_step_closure
from .._src.step import sync as _sync

Groups = Sequence[Sequence[int]] | None

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

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
    """Makes the calling thread the replica of `device` among `devices` of this process.

    For threads that a program starts itself, one per device; with at most one device, or None, the
    thread stops being a replica, which each of them has to do in the end. `xmp.spawn` with
    ``start_method="thread"`` and `DataParallel` do all that, and end the others when one fails.

    Raises:
        ValueError: `device` is none of `devices`.
        RuntimeError: a device belongs to another set of replicas; or, where the thread stops being
            a replica (which it does all the same), a collective has failed that nobody has read.
    """
    index = _index_of(device)
    indices = [_index_of(d) for d in devices or ()]
    if len(indices) < 2:
        _threads.leave()
        return
    if index not in indices or len(set(indices)) != len(indices):
        raise ValueError(f"xla:{index} must be one of {[f'xla:{i}' for i in indices]}, once")
    _threads.join(index, indices)


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
    """Waits until all that was launched on the given devices, by default all, is finished.

    In a replica that is a thread: on its device.

    Raises:
        RuntimeError: a collective on them has failed.
    """
    if not _XLAC._xla_runtime_created():
        return
    for d in [_index_of(d) for d in devices] or _world.own_devices():
        _XLAC._xla_wait_device_ops(d)
        _world.raise_failure(d)


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


# --- replicas


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


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Sends the i-th slice of a dimension to replica i and concatenates what comes back."""
    _c.check_tensors("all_to_all", [value])
    n = _c.check_groups(groups)
    split = _c.check_split("all_to_all", "split_count", split_count, n, value, split_dimension)
    concat = _c.check_dim(concat_dimension, value)
    if runtime.world_size() == 1:
        return value.detach().clone()
    return _c.all_to_all(value, split, concat, n, groups)


def collective_permute(value: torch.Tensor, pairs: list[list[int]]) -> torch.Tensor:
    """Sends the value along ``pairs`` of (source, target); who is no target gets zeros."""
    _c.check_tensors("collective_permute", [value])
    size = runtime.world_size()
    given = [(int(source), int(target)) for source, target in pairs]
    for what, ranks in (("source", [p[0] for p in given]), ("target", [p[1] for p in given])):
        if len(set(ranks)) != len(ranks) or not all(0 <= r < size for r in ranks):
            raise ValueError(
                f"pairs {[list(p) for p in given]}: each {what} must be a replica (0 to "
                f"{size - 1}), at most once"
            )
    if size == 1:
        return value.detach().clone() if given else torch.zeros_like(value)
    return _c.run(_c.Part("collective_permute", [value], pairs=given))


def collective_broadcast(
    tensors: list[torch.Tensor],
    root_ordinal: int = 0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> None:
    """Overwrites the tensors with those of the root replica.

    With `groups`, the root has to be in every group of more than one replica.
    """
    _c.check_tensors("collective_broadcast", tensors)
    size = runtime.world_size()
    _c.check_groups(groups)
    if not 0 <= root_ordinal < size:
        raise ValueError(f"root_ordinal {root_ordinal} must be a replica, 0 to {size - 1}")
    if groups and not all(root_ordinal in g for g in groups if len(g) > 1):
        raise ValueError(
            f"root_ordinal {root_ordinal} is not in every group of {[list(g) for g in groups]}"
        )
    if size == 1 or not tensors:
        return
    started = _c.start_lists([("collective_broadcast", "sum", tensors, groups, root_ordinal)])
    assert started is not None
    with torch.no_grad():
        for t, value in zip(tensors, started.finish()[0], strict=True):
            t.copy_(value)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrites parameters and buffers with those of replica 0."""
    tensors = [*model.parameters(), *model.buffers()]
    collective_broadcast([t.detach() for t in tensors])


def send(value: torch.Tensor, channel_id: int) -> None:
    """Sends the value to the replica that calls `recv` with the same channel.

    A channel belongs to one pair of replicas, one that sends and one that receives. The n-th `send`
    meets the n-th `recv`; the two wait for each other on the host, so a replica that does both has
    to do them in an order that the others can follow.

    Raises:
        RuntimeError: all other replicas have ended.
        TimeoutError: nobody has received within XLA_WAIT_TIMEOUT_S seconds.
    """
    _c.check_tensors("send", [value])
    _p2p.exchange([_p2p.Message(runtime.global_ordinal(), _p2p.meet(channel_id, "send"), value)])


def recv(output: torch.Tensor, channel_id: int) -> None:
    """Overwrites `output` with what a replica sends by `send` with the same channel.

    Shape and dtype have to be those of what is sent; where they are not, both get an error.
    """
    _c.check_tensors("recv", [output])
    source = _p2p.meet(channel_id, "receive")
    _p2p.exchange([_p2p.Message(source, runtime.global_ordinal(), output)])


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Waits for the replicas, by default all, and returns their payloads in order.

    They meet on the host, not on the device. A collective that was recorded before is launched.

    Raises:
        RuntimeError: a replica has ended.
        TimeoutError: a replica did not come within XLA_WAIT_TIMEOUT_S seconds.
    """
    size, me = runtime.world_size(), runtime.global_ordinal()
    ranks = list(replicas) or list(range(size))
    if sorted(set(ranks)) != sorted(ranks) or not all(0 <= r < size for r in ranks):
        raise ValueError(f"replicas {ranks} must be different replicas of 0 to {size - 1}")
    if me not in ranks:
        raise ValueError(f"replica {me} waits for replicas {ranks}, but is none of them")
    if size == 1:
        return [bytes(payload)]
    return _world.rendezvous(tag, bytes(payload), ranks)


def xla_rendezvous(
    payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """The same as `rendezvous`, with other arguments."""
    return rendezvous(tag or "", payload, list(ordinals or ()))


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """``reduce_fn`` of the list of all replicas' `data`, whose tensors are on the CPU.

    The data goes between processes by `pickle`.
    """
    data = _maybe_convert_to_cpu(data)
    if runtime.world_size() == 1:
        return reduce_fn([data])
    buffer = io.BytesIO()
    torch.save(data, buffer)
    payloads = rendezvous(tag, buffer.getvalue())
    return reduce_fn([torch.load(io.BytesIO(p), weights_only=False) for p in payloads])


def do_on_ordinals(
    target: Callable[..., Any], data: Sequence[Any] = (), ordinals: Sequence[int] = (0,)
) -> Any:
    """Calls ``target(*data)``, tensors on the CPU, on some replicas; None on the others.

    All replicas return when those are done.
    """
    data = _maybe_convert_to_cpu(tuple(data), convert=runtime.global_ordinal() in ordinals)
    result = target(*data) if runtime.global_ordinal() in ordinals else None
    rendezvous("torch_xla.do_on_ordinals")
    return result


def _later(name: str, what: str) -> Callable[..., Any]:
    def raise_(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"xm.{name} is not in this version of torch_xla: {what}")

    raise_.__name__ = raise_.__qualname__ = name
    raise_.__doc__ = f"Not in this version: {what}."
    return raise_


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
