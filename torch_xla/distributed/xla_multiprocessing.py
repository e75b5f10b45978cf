"""`xmp`: starting a replica of the program for each device."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from .._src import launch as _launch
from .._src import world as _world
from .._src.devices import DeviceLike
from .._src.launch import SpawnContext as SpawnContext

T = TypeVar("T")


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | None:
    """Calls ``fn(index, *args)`` in one process per device, each with a client of its own.

    The parent may use the device before and after. When a process fails, the others are ended and
    the error is raised here.

    Args:
        nprocs: number of processes, by default that of the devices (on the CPU
            ``CPU_NUM_DEVICES``, or 1; there it may be any number). With ``nprocs=1`` the function
            is called in this process.
        join: wait for the processes. Otherwise a context is returned, whose ``join`` does that.
        daemon: the processes are daemons, which end with this process and start none themselves.
        start_method: ``"spawn"`` or ``"forkserver"``. A fork is refused: it would hang.

    Raises:
        ProcessRaisedException: the function raised; the message has the traceback.
        ProcessExitedException: a process was killed or left by another way.
        RuntimeError: the function or its arguments cannot be sent to another process.
    """
    return _launch.spawn(fn, args, nprocs, join, daemon, start_method)


class MpModelWrapper:
    """A model on the host that the replicas of a process move to their devices one at a time.

    Args:
        model: on the CPU. A process that is spawned gets a copy of it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._lock = threading.Lock()

    def to(self, device: DeviceLike) -> torch.nn.Module:
        """The model, moved to the device."""
        with self._lock:
            return self._model.to(device)

    def __getstate__(self) -> dict[str, Any]:
        return {"_model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_model"])  # type: ignore[misc]


class MpSerialExecutor:
    """Runs a function in one replica of the host after the other, such as a download.

    Every replica has to call `run` equally often.
    """

    _turns = 0

    def run(self, fn: Callable[[], T]) -> T:
        """``fn()``, when the replicas before this one are done with theirs."""
        MpSerialExecutor._turns += 1
        world = _world.of_process()
        if world.size == 1:
            return fn()
        store = _world.store()
        name = f"serial/{MpSerialExecutor._turns}/{world.host}"
        if world.local_rank > 0:
            before = world.local_rank - 1
            rank = world.rank - 1
            _world.wait_for({rank: f"{name}/{before}"}, "its turn in MpSerialExecutor.run")
        try:
            return fn()
        finally:
            store.set(f"{name}/{world.local_rank}", "1")
