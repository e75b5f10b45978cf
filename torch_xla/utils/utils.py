"""Helpers that examples and third parties import as `xu`."""

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO, TypeVar

from torch.utils._pytree import tree_leaves, tree_map_only

T = TypeVar("T")


class SampleGenerator:
    """A loader that gives the same sample `sample_count` times.

    Args:
        data: what each iteration yields.
    """

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data = data
        self._count = sample_count

    def __iter__(self) -> Iterator[Any]:
        return iter([self._data] * self._count)

    def __len__(self) -> int:
        return self._count


def getenv_as(name: str, type: Callable[[str], T], defval: T | None = None) -> T | None:
    """The environment variable as `type`, or `defval` when it is unset; bool takes 0 and 1."""
    value = os.environ.get(name)
    if not value:
        return defval
    if type is bool:
        return value.strip().lower() in ("1", "true", "yes", "on")  # type: ignore[return-value]
    return type(value)


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether the variable is 1, true, yes or on."""
    return os.environ.get(name, default).strip().lower() in ("1", "true", "yes", "on", "y")


def as_list(value: Any) -> list[Any]:
    """Lists and tuples as a list, anything else as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def for_each_instance(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> None:
    """Calls `fn` on each leaf of the nested value that `select_fn` chooses."""
    for leaf in tree_leaves(value):
        if select_fn(leaf):
            fn(leaf)


def for_each_instance_rewrite(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> Any:
    """The nested value with each leaf that `select_fn` chooses replaced by `fn` of it."""
    return tree_map_only(object, lambda x: fn(x) if select_fn(x) else x, value)


def eprint(*args: Any, **kwargs: Any) -> None:
    """Prints to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def timed(fn: Callable[[], T], msg: str = "", printfn: Callable[..., Any] = eprint) -> T:
    """``fn()``, and a line with how long it took."""
    start = time.perf_counter()
    result = fn()
    printfn(f"{msg}{time.perf_counter() - start:.3f}s")
    return result


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("", 0))
        return [int(s.getsockname()[1]) for s in sockets]


def parallel_work(num_workers: int, fn: Callable[..., T], *args: Sequence[Any]) -> list[T]:
    """``fn`` over the zipped argument sequences in `num_workers` threads, results in order."""
    with ThreadPoolExecutor(max_workers=num_workers) as executor:
        return list(executor.map(fn, *args))


class TmpFolder:
    """A folder that is there inside a ``with`` block."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self.name, ignore_errors=True)


def get_print_fn(fd: TextIO | None = None) -> Callable[..., None]:
    """A print function for a stream, stdout by default."""

    def print_fn(*args: Any, **kwargs: Any) -> None:
        print(*args, file=fd or sys.stdout, **kwargs)

    return print_fn
