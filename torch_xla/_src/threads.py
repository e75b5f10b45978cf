"""The replicas of a program as threads of one process, each with a device of the one client."""

import contextlib
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from .. import _XLAC
from . import world as _world

_INTERRUPTED_S = 2.0  # what the replicas have to end after Ctrl-C


class ThreadRaisedException(RuntimeError):
    """A replica raised; ``__cause__`` is what, `error_index` the replica's number."""

    def __init__(self, message: str, error_index: int) -> None:
        super().__init__(message)
        self.error_index = error_index


class ThreadWorld:
    """Devices of this process that are the replicas of a program, in this order.

    Raises:
        RuntimeError: a device is a replica of another such program.
    """

    _lock = threading.Lock()

    def __init__(self, devices: Sequence[int]) -> None:
        from torch._C._distributed_c10d import HashStore

        self.devices = list(devices)
        n = len(self.devices)
        store = HashStore()
        with ThreadWorld._lock:
            for d in self.devices:
                if d in _world.by_device:
                    raise RuntimeError(f"xla:{d} is a replica of a program of threads already")
            self._core = _XLAC._xla_join_devices(self.devices)
            self.replicas = [
                _world.Replica(_world.World(r, n, r, n), d, store)
                for r, d in enumerate(self.devices)
            ]
            _world.by_device.update({r.device: r for r in self.replicas})

    def finish(self, rank: int) -> None:
        """On the replica's thread, at its end: runs what others may wait for.

        Raises:
            RuntimeError: a collective has failed that nobody has read.
        """
        device = self.devices[rank]
        _world.launch_collectives()
        _XLAC._xla_wait_device_ops(device)
        if error := _XLAC._xla_collective_status(device)[1]:
            raise RuntimeError(error)

    def gone(self, rank: int, why: str) -> None:
        """Tells the others, wherever they wait, that a replica takes part no more."""
        self._core.gone(rank, why)
        self.replicas[rank].store.compare_set(_world.GONE.format(rank), "", why)

    def close(self) -> None:
        """When no replica runs any more: the devices belong to the process again.

        Also where waiting for one of them fails.
        """
        with contextlib.ExitStack() as stack:
            for d in self.devices:
                stack.callback(_world.by_device.pop, d, None)
                stack.callback(_XLAC._xla_drop_communicator, d)
                stack.callback(_XLAC._xla_wait_device_ops, d)


class ThreadContext:
    """The threads of an ``xmp.spawn(..., start_method="thread", join=False)``."""

    def __init__(
        self, devices: Sequence[int], body: Callable[[int], Any], daemon: bool = False
    ) -> None:
        self._world = ThreadWorld(devices)
        self._body = body
        self.results: list[Any] = [None] * len(devices)
        self._running = set(range(len(devices)))
        self._failures: list[tuple[int, BaseException]] = []  # the first is the cause
        self._changed = threading.Condition()
        self.threads = [
            threading.Thread(target=self._run, args=(r,), daemon=daemon, name=f"torch_xla-{r}")
            for r in range(len(devices))
        ]
        for t in self.threads:
            t.start()

    def _run(self, rank: int) -> None:
        why = "has ended"
        _world.set_thread_replica(self._world.replicas[rank])
        try:
            with _world.clean_exit():
                self.results[rank] = self._body(rank)
            self._world.finish(rank)
        except BaseException as e:
            why = _failure(e)
            with self._changed:
                self._failures.append((rank, e))
        finally:
            self._world.gone(rank, why)
            _world.set_thread_replica(None)
            with self._changed:
                self._running.discard(rank)
                self._changed.notify_all()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the threads; True when all have ended well, False after `timeout` seconds.

        When a replica fails, the others get `grace_period` seconds, by default a fifth of
        XLA_WAIT_TIMEOUT_S, to see that. A thread cannot be ended from outside: if one then still
        runs, the process says so and ends with exit code 1.

        Raises:
            ThreadRaisedException: a replica raised, from what it raised.
        """
        try:
            done = self._wait(timeout, or_failure=True)
            if not done and not self._failures:
                return False
            if not self._wait(self._grace(grace_period)):
                self._end_process(1)
        except KeyboardInterrupt:
            for r in list(self._running):
                self._world.gone(r, "was interrupted")
            if not self._wait(_INTERRUPTED_S if grace_period is None else grace_period):
                self._end_process(130)
            self._close()
            raise
        self._close()
        if self._failures:
            self._raise()
        return True

    def _grace(self, given: float | None) -> float | None:
        limit = _world.time_limit()
        if given is None and limit < math.inf:
            return max(2.0, 0.2 * limit)
        return given

    def _wait(self, timeout: float | None, or_failure: bool = False) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._running and not (or_failure and self._failures):
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            return not self._running

    def _close(self) -> None:
        for t in self.threads:
            t.join()
        if self.threads:
            self.threads = []
            # What a replica raised says more than what its device then says.
            with contextlib.suppress(*[RuntimeError] if self._failures else []):
                self._world.close()

    def _raise(self) -> None:
        rank, error = self._failures[0]
        others = "".join(
            f"\n-- Replica {r}, then: {type(e).__name__}: {_first_line(e)}"
            for r, e in self._failures[1:]
        )
        raise ThreadRaisedException(
            f"replica {rank} (a thread with xla:{self._world.devices[rank]}) raised "
            f"{type(error).__name__}: {error}{others}",
            rank,
        ) from error

    def _end_process(self, code: int) -> None:
        running = sorted(self._running)
        lines = ["torch_xla: this process ends, because a thread cannot be ended alone"]
        for rank, error in self._failures:
            lines.append(f"-- Replica {rank} has failed:")
            lines += traceback.format_exception(type(error), error, error.__traceback__)
        frames = sys._current_frames()
        for r in running:
            lines.append(f"-- Replica {r} still runs:")
            frame = frames.get(self.threads[r].ident or 0)
            if frame is not None:
                lines += traceback.format_stack(frame)
        with contextlib.suppress(OSError, ValueError):
            print("\n".join(x.rstrip("\n") for x in lines), file=sys.stderr, flush=True)
            sys.stdout.flush()
        os._exit(code)


def _failure(error: BaseException) -> str:
    return f"has failed: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:500]


def run(devices: Sequence[int], body: Callable[[int], Any]) -> list[Any]:
    """``body(rank)`` in a thread per device, all replicas of one program; the results in order."""
    context = ThreadContext(devices, body)
    context.join()
    return context.results


def device_count_for(nprocs: int | None) -> int:
    """How many devices `nprocs` replicas need, made where that is still possible.

    Raises:
        ValueError: this process has fewer.
    """
    if nprocs is not None and not _XLAC._xla_runtime_created():
        os.environ.setdefault("CPU_NUM_DEVICES", str(nprocs))
    have = _XLAC._xla_num_devices()
    if nprocs is not None and nprocs > have:
        raise ValueError(
            f"{nprocs} replicas as threads need {nprocs} devices, and this process has {have}: "
            f"set CPU_NUM_DEVICES={nprocs} before the device is used for the first time"
        )
    return nprocs or have


# --- threads that the user's program starts


_joined: dict[tuple[int, ...], tuple[ThreadWorld, set[int]]] = {}
_joined_lock = threading.Lock()


def join(device: int, devices: Sequence[int]) -> None:
    """Makes the calling thread the replica of `device` among `devices`."""
    key = tuple(devices)
    leave()
    with _joined_lock:
        if key not in _joined:
            _joined[key] = (ThreadWorld(key), set())
        world, ranks = _joined[key]
        ranks.add(key.index(device))
    _world.set_thread_replica(world.replicas[key.index(device)])


def leave() -> None:
    """Ends what `join` began; the last one of the replicas ends the program of threads.

    Raises:
        RuntimeError: a collective of this replica has failed that nobody has read.
    """
    replica = _world.of_thread()
    with _joined_lock:
        mine = [
            (key, world, ranks)
            for key, (world, ranks) in _joined.items()
            if replica is not None and replica in world.replicas
        ]
    for key, world, ranks in mine:
        assert replica is not None
        rank = replica.world.rank
        why = "has ended"
        try:
            world.finish(rank)
        except BaseException as e:
            why = _failure(e)
            raise
        finally:
            world.gone(rank, why)
            _world.set_thread_replica(None)
            with _joined_lock:
                ranks.discard(rank)
                if not ranks:
                    del _joined[key]
                    world.close()
