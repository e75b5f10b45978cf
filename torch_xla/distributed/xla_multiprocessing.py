"""`xmp`: starting a replica of the program for each device."""

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from .._src import launch as _launch
from .._src import world as _world
from .._src.devices import DeviceLike
from .._src.launch import SpawnContext as SpawnContext
from .._src.threads import ThreadContext as ThreadContext
from .._src.threads import ThreadRaisedException as ThreadRaisedException

T = TypeVar("T")


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | ThreadContext | None:
    """Calls ``fn(index, *args)`` in one process per device, each with a client of its own.

    The parent may use the device before and after. When a process fails, the others are ended and
    the error is raised here.

    With ``start_method="thread"`` the replicas are threads of this process, which share its client
    and have a device each. Nothing is pickled, a graph is compiled once for all, and the gradients
    of the replicas meet in memory; but Python runs one thread at a time, and a thread that never
    returns cannot be ended: when the others fail, the process says so and ends.

    Args:
        nprocs: number of replicas, by default that of the devices (on the CPU
            ``CPU_NUM_DEVICES``, or 1; there it may be any number of processes). With ``nprocs=1``
            the function is called in this process.
        join: wait for the replicas. Otherwise a context is returned, whose ``join`` does that.
        daemon: the processes are daemons, which end with this process and start none themselves.
        start_method: ``"spawn"``, ``"forkserver"`` or ``"thread"``. A fork is refused: it would
            hang.

    Raises:
        ThreadRaisedException: the function raised in a thread; ``__cause__`` is what it raised.
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
            # Threads share this object: each has a model of its own.
            shared = _world.of_thread() is not None
            model = copy.deepcopy(self._model) if shared else self._model
            return model.to(device)

    def __getstate__(self) -> dict[str, Any]:
        return {"_model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_model"])  # type: ignore[misc]


class MpSerialExecutor:
    """Runs a function in one replica of the host after the other, such as a download.

    Every replica has to call `run` equally often.
    """

    def run(self, fn: Callable[[], T]) -> T:
        """``fn()``, when the replicas before this one are done with theirs."""
        turn = _world.next_round("torch_xla.serial")
        world = _world.current()
        if world.size == 1:
            return fn()
        _world.launch_collectives()  # `fn` of a replica before this one may wait for it
        store = _world.store()
        name = f"serial/{turn}/{world.host}"
        if world.local_rank > 0:
            before = world.local_rank - 1
            rank = world.rank - 1
            _world.wait_for({rank: f"{name}/{before}"}, "its turn in MpSerialExecutor.run")
        try:
            return fn()
        finally:
            store.set(f"{name}/{world.local_rank}", "1")
