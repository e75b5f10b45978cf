"""Starting the replicas of a program as processes."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from .. import _XLAC
from . import threads as _threads
from . import world as _world

_OTHERS_S = 2.0  # how long the others may take to report, too, when a replica has failed
_GRACE_S = 5.0  # between SIGTERM and SIGKILL


@dataclass
class _Failure:
    rank: int
    time: float
    traceback: str = ""
    summary: str = ""
    exit_code: int = 0
    pid: int = -1

    @property
    def killed(self) -> bool:
        return self.exit_code < 0


class SpawnContext:
    """The processes of an `xmp.spawn(..., join=False)`."""

    def __init__(self, processes: Sequence[Any], pipes: Sequence["Connection"], store: Any) -> None:
        self.processes = list(processes)
        self._pipes = list(pipes)
        self._store = store  # the server lives as long as this
        self._running = set(range(len(self.processes)))
        self._failures: list[_Failure] = []

    def pids(self) -> list[int | None]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the processes; True when all have ended well, False after `timeout` seconds.

        Raises:
            ProcessRaisedException: the function raised in a process; its traceback is in the
                message. The other processes are ended.
            ProcessExitedException: a process was killed, or left by another way.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self._running and not self._failures:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._collect(left)
        if self._failures:
            self._end_others(_GRACE_S if grace_period is None else grace_period)
            self._close()
            self._raise()
        self._close()
        return True

    def _collect(self, timeout: float | None) -> None:
        """Waits for some process to end and notes how it did."""
        sentinels = {self.processes[r].sentinel: r for r in self._running}
        for sentinel in wait(list(sentinels), timeout):
            self._note(sentinels[sentinel])

    def _note(self, rank: int) -> None:
        process, pipe = self.processes[rank], self._pipes[rank]
        process.join()
        self._running.discard(rank)
        report = None
        with contextlib.suppress(EOFError, OSError):
            if pipe.poll():
                report = pipe.recv()
        code = process.exitcode or 0
        if report is not None:
            self._failures.append(
                _Failure(rank, report[0], report[1], report[2], code, process.pid)
            )
        elif code != 0:
            self._failures.append(_Failure(rank, time.monotonic(), "", "", code, process.pid))
        why = "has ended" if code == 0 and report is None else f"has failed: {_how(code)}"
        if report is not None:
            why = f"has failed: {report[2]}"
        self._store.compare_set(_world.GONE.format(rank), "", why)

    def _end_others(self, grace: float) -> None:
        end = time.monotonic() + _OTHERS_S
        while self._running and time.monotonic() < end:
            self._collect(end - time.monotonic())
        before = len(self._failures)
        for stop in (_terminate, _kill):
            for r in self._running:
                stop(self.processes[r])
            end = time.monotonic() + grace
            while self._running and time.monotonic() < end:
                self._collect(end - time.monotonic())
        del self._failures[before:]  # ended by us

    def stop(self) -> None:
        """Ends what still runs."""
        for r in self._running:
            _terminate(self.processes[r])
        end = time.monotonic() + _GRACE_S
        while self._running and time.monotonic() < end:
            self._collect(end - time.monotonic())
        for r in list(self._running):
            _kill(self.processes[r])
            self._note(r)
        self._close()

    def _close(self) -> None:
        for p in self._pipes:
            p.close()
        for process in self.processes:
            if process.exitcode is not None:
                process.close()
        self.processes = []
        self._store = None

    def _raise(self) -> None:
        # Who was killed did not see it coming; among the others the first is the cause.
        first = min(self._failures, key=lambda f: (not f.killed, f.time))
        others = [f for f in self._failures if f is not first]
        also = "".join(f"\n-- Process {f.rank}, then: {f.summary}" for f in others if f.traceback)
        if first.traceback:
            raise ProcessRaisedException(
                f"\n\n-- Process {first.rank} terminated with the following error:\n"
                f"{first.traceback}{also}",
                first.rank,
                first.pid,
            )
        raise ProcessExitedException(
            f"process {first.rank} {_how(first.exit_code)}{also}",
            error_index=first.rank,
            error_pid=first.pid,
            exit_code=first.exit_code,
            signal_name=_signal_name(first.exit_code),
        )


def _terminate(process: Any) -> None:
    process.terminate()


def _kill(process: Any) -> None:
    process.kill()


def _signal_name(code: int) -> str | None:
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return f"signal {-code}"


def _how(code: int) -> str:
    if code < 0:
        return f"was ended by {_signal_name(code)}"
    return f"left with exit code {code}"


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | _threads.ThreadContext | None:
    """What `torch_xla.distributed.xla_multiprocessing.spawn` says."""
    if _world.inside_spawn:
        raise RuntimeError("xmp.spawn cannot be called in a process that xmp.spawn started")
    if _world.of_thread() is not None:
        raise RuntimeError("xmp.spawn cannot be called in a thread that is a replica")
    world = _world.of_process()
    if world.size > 1:
        raise RuntimeError(
            f"this process is rank {world.rank} of {world.size} already (WORLD_SIZE): call the "
            "function, or torch_xla.launch, which does that"
        )
    count = _count(nprocs)
    if start_method == "thread":
        return _spawn_threads(fn, tuple(args), nprocs, join, daemon)
    if start_method not in multiprocessing.get_all_start_methods():
        raise ValueError(
            f"start_method '{start_method}' is none of "
            f"{', '.join(multiprocessing.get_all_start_methods())}, thread"
        )
    if start_method == "fork":
        raise RuntimeError(
            "xmp.spawn cannot fork: the XLA client's threads do not exist in a forked process, "
            "which would hang; use start_method='spawn'"
        )
    if nprocs == 1 and join:
        fn(0, *args)
        return None
    context = _start(fn, tuple(args), count, daemon, start_method)
    if not join:
        return context
    try:
        context.join()
    except (ProcessRaisedException, ProcessExitedException):
        raise
    except BaseException:  # Ctrl-C
        context.stop()
        raise
    return None


def _spawn_threads(
    fn: Callable[..., Any], args: tuple[Any, ...], nprocs: int | None, join: bool, daemon: bool
) -> _threads.ThreadContext | None:
    count = _threads.device_count_for(nprocs)
    if count == 1 and join:
        fn(0, *args)
        return None
    context = _threads.ThreadContext(range(count), lambda rank: fn(rank, *args), daemon)
    if not join:
        return context
    context.join()
    return None


def _count(nprocs: int | None) -> int:
    if nprocs is not None and (not isinstance(nprocs, int) or nprocs < 1):
        raise ValueError(f"nprocs {nprocs!r} must be a positive number of processes, or None")
    from .. import runtime

    platform = runtime.device_type()
    if platform == "CPU":
        return nprocs or int(os.environ.get("CPU_NUM_DEVICES") or 1)
    devices = _XLAC._xla_expected_device_count()
    if nprocs is not None and nprocs > devices:
        raise ValueError(f"nprocs {nprocs} is more than the {devices} {platform} device(s)")
    return nprocs or devices


def _start(
    fn: Callable[..., Any], args: tuple[Any, ...], count: int, daemon: bool, method: str
) -> SpawnContext:
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    _check_function(fn)
    mp = multiprocessing.get_context(method)
    # Served by this process, which outlives the replicas; the system chooses a free port.
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[Any] = []
    pipes: list[Connection] = []
    context = SpawnContext(processes, pipes, PrefixStore("torch_xla/0", server))
    try:
        for rank in range(count):
            env = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "GROUP_RANK": "0",
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(server.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",  # the server is there: all are clients
                "TORCHELASTIC_RESTART_COUNT": "0",
            }
            reader, writer = mp.Pipe(duplex=False)
            process = mp.Process(  # type: ignore[attr-defined]
                target=_child, args=(fn, args, rank, env, writer), daemon=daemon
            )
            try:
                process.start()
            finally:
                writer.close()
            context.processes.append(process)
            context._pipes.append(reader)
            context._running.add(rank)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        context.stop()
        raise RuntimeError(
            f"xmp.spawn cannot hand {_name(fn)} and its arguments to another process: {e}. "
            "Define the function at the top level of a file (not as a lambda, inside of another "
            "function or in a notebook's cell), and give it arguments that can be pickled; or run "
            "it here with nprocs=1"
        ) from e
    except BaseException:
        context.stop()
        raise
    return context


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


def _check_function(fn: Callable[..., Any]) -> None:
    """A notebook's function is sent by name, but another process finds no file with it."""
    main = sys.modules.get("__main__")
    if getattr(fn, "__module__", None) == "__main__" and not (
        getattr(main, "__file__", None) or getattr(main, "__spec__", None)
    ):
        raise RuntimeError(
            f"xmp.spawn cannot find {_name(fn)} from another process: it is defined in a notebook "
            "or on the command line. Write it into a .py file and import it from there, or run it "
            "here with nprocs=1"
        )


def _child(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    rank: int,
    env: dict[str, str],
    pipe: "Connection",
) -> None:
    os.environ.update(env)
    _world.inside_spawn = True
    _world.prepare()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with _world.clean_exit():
            fn(rank, *args)
        _world.leave()
    except SystemExit:
        raise
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            _leave_at_once(130)
        # Both fit into the pipe: nobody reads it yet.
        text = traceback.format_exc().encode()[-30_000:].decode(errors="replace")
        summary = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:500]
        pipe.send((time.monotonic(), text, summary))
        _world.say_gone(f"has failed: {summary}")
        # Not the ordinary way: what is in flight would be waited for, and the others have no part
        # in it any more.
        _leave_at_once(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _leave_at_once(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def launch(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Runs ``fn(index, *args)`` on all devices of this machine, or in this process only.

    In this process, with its rank on this host as the index, where a launcher such as torchrun has
    started one process per device; and with index 0 when `debug_single_process` is set.

    Args:
        start_method: processes or threads; see `torch_xla.distributed.xla_multiprocessing.spawn`.
    """
    if _world.of_process().size > 1 or os.environ.get("TORCHELASTIC_RUN_ID"):
        fn(_world.of_process().local_rank, *args)
    else:
        spawn(fn, args, 1 if debug_single_process else None, start_method=start_method)
