"""The end of a step: launch what is pending, then run the step closures."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from .. import _XLAC
from . import world as _world

Closure = tuple[Callable[..., Any], Sequence[Any], bool]


class _Pending(threading.local):
    """Each thread drives a device of its own, with closures of its own."""

    def __init__(self) -> None:
        self.closures: list[Closure] = []
        self.running: list[Future[Any]] = []


_pending = _Pending()
_executor: ThreadPoolExecutor | None = None
_executor_lock = threading.Lock()


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Ends a step: launches all that is pending on the current device and runs step closures.

    Returns when the work is launched. A graph that is new is compiled first; Ctrl-C during that
    leaves everything pending, and the call may be repeated.

    Args:
        wait: return when the work is finished.
        reset_scope: accepted for compatibility.

    Raises:
        RuntimeError: compiling failed, or earlier work on the device did.
    """
    del reset_scope
    end(_XLAC._xla_current_device(), wait)


def end(device: int, wait: bool = False) -> None:
    """`sync` of a device."""
    closures, _pending.closures = _pending.closures, []
    closures = [
        (f, _snapshot(args) if in_thread else args, in_thread) for f, args, in_thread in closures
    ]
    _XLAC._xla_sync(device, wait)
    if wait:
        _world.raise_failure(device)
    _raise_what_failed()
    for f, args, in_thread in closures:
        if in_thread:
            _pending.running.append(_get_executor().submit(f, *args))
        else:
            f(*args)


def add_step_closure(
    closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False
) -> None:
    """Calls ``closure(*args)`` at the end of this step, when the tensors in `args` are computed.

    Reading them there costs no extra graph.

    Args:
        run_async: call it in a background thread, on the values that the tensors have at the end
            of the step; what it raises is raised by a later `sync`.

    Raises:
        TypeError: `closure` cannot be called.
    """
    if not callable(closure):
        raise TypeError(f"a step closure must be callable, got {type(closure).__name__}")
    _pending.closures.append((closure, tuple(args), run_async))


def _snapshot(args: Sequence[Any]) -> Sequence[Any]:
    """Copies that the next steps' in-place updates do not reach; computed with the step."""
    with torch.no_grad():
        copied: Sequence[Any] = tree_map_only(torch.Tensor, torch.clone, args)
    return copied


def _get_executor() -> ThreadPoolExecutor:
    """One thread: closures run in order. Joined by Python at exit, before the client goes."""
    global _executor
    with _executor_lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(1, thread_name_prefix="torch_xla-closures")
        return _executor


def _raise_what_failed() -> None:
    running = _pending.running
    while running and running[0].done():
        running.pop(0).result()
