"""Which replica of the program this is, and the store through which replicas talk on the host.

A launcher tells by environment variables: `xmp.spawn` and torchrun set the same ones.
"""

import contextlib
import datetime
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import _XLAC
from .log import logger

GONE = "gone/{}"  # set when a rank ends, to why


@dataclass(frozen=True)
class World:
    """A replica's place in the program."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: int = 0
    process: int = 0
    num_processes: int = 1
    local_processes: int = 1


@dataclass
class Replica:
    """A replica that is a thread; that of a process is in the environment."""

    world: World
    device: int
    store: Any
    rounds: dict[str, int] = field(default_factory=dict)


class _PerThread(threading.local):
    replica: Replica | None = None


_thread = _PerThread()
by_device: dict[int, Replica] = {}  # of the replicas that are threads
_store: Any = None
_store_lock = threading.Lock()
_rounds: dict[str, int] = {}
inside_spawn = False  # this process was started by xmp.spawn


def current() -> World:
    """The calling thread's replica."""
    replica = of_thread()
    return of_process() if replica is None else replica.world


def of_thread() -> Replica | None:
    """The replica that the calling thread is, or that it computes a gradient for."""
    if _thread.replica is not None or not by_device:
        return _thread.replica
    # autograd has a thread for each device, which runs the backward passes of that replica.
    if torch._C._current_autograd_node() is not None:
        return by_device.get(_XLAC._xla_current_device())
    return None


def set_thread_replica(replica: Replica | None) -> None:
    """Makes the calling thread a replica of its own, or ends that."""
    _thread.replica = replica
    if replica is not None:
        _XLAC._xla_set_current_device(replica.device)


def check_device(device: int) -> None:
    """Raises RuntimeError for a device that is another replica's."""
    mine = of_thread()
    if mine is by_device.get(device):
        return
    who = "no replica" if mine is None else f"replica {mine.world.rank}, with xla:{mine.device},"
    raise RuntimeError(
        f"a collective of tensors on xla:{device} by a thread that is {who}: replicas are threads "
        "here, and each of them has one device"
    )


def of_process() -> World:
    """This process's replica, by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK.

    Raises:
        ValueError: they contradict each other.
    """
    if not os.environ.get("WORLD_SIZE") or not os.environ.get("RANK"):
        return World()
    size, rank = _number("WORLD_SIZE"), _number("RANK")
    local_size = _number("LOCAL_WORLD_SIZE", size)
    local_rank = _number("LOCAL_RANK", rank % local_size if local_size else 0)
    if not 0 <= rank < size or not 0 <= local_rank < local_size <= size:
        raise ValueError(
            f"RANK={rank}, WORLD_SIZE={size}, LOCAL_RANK={local_rank}, "
            f"LOCAL_WORLD_SIZE={local_size} do not fit each other"
        )
    host = _number("GROUP_RANK", rank // local_size)
    return World(rank, size, local_rank, local_size, host, rank, size, local_size)


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name) or ("" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}='{text}' is not a whole number") from None


def prepare() -> None:
    """A process of several has one device; called at import and when a spawned process begins."""
    if os.environ.get("WORLD_SIZE") and of_process().size > 1:
        os.environ["CPU_NUM_DEVICES"] = "1"


def client_options(platform: str) -> dict[str, Any]:
    """The device of this process among the host's."""
    world = of_process()
    if world.size == 1:
        return {}
    if platform == "CPU":
        return {"cpu_device_count": 1}
    # The plugin's clients find each other through our store, and have collectives of their own.
    from torch._C._distributed_c10d import PrefixStore

    _XLAC._xla_set_key_value_store(PrefixStore("pjrt", store().clone()))
    options: dict[str, Any] = {"num_nodes": world.size, "node_id": world.rank}
    if platform in ("CUDA", "ROCM"):
        options["visible_devices"] = [world.local_rank]
    return options


# --- the store


def time_limit() -> float:
    """XLA_WAIT_TIMEOUT_S in seconds; without a limit (0 or less) infinite."""
    text = os.environ.get("XLA_WAIT_TIMEOUT_S") or "300"
    try:
        limit = float(text)
    except ValueError:
        raise ValueError(f"XLA_WAIT_TIMEOUT_S='{text}' is not a number") from None
    return limit if limit > 0 else math.inf


def _c10d_timeout(seconds: float) -> datetime.timedelta:
    """For c10d, which always has a limit: the longest whose milliseconds fit into 32 bits."""
    return min(datetime.timedelta(days=24), datetime.timedelta(seconds=min(seconds, 1e9)))


def store() -> Any:
    """The key-value store of the program, connected at the first call.

    Raises:
        RuntimeError: nobody answers at MASTER_ADDR:MASTER_PORT, or the port is taken.
    """
    global _store
    if (replica := of_thread()) is not None:
        return replica.store
    with _store_lock:
        if _store is None:
            _store = _open_store()
        return _store


def _open_store() -> Any:
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    world = of_process()
    host = os.environ.get("MASTER_ADDR") or "127.0.0.1"
    if not os.environ.get("MASTER_PORT"):
        raise RuntimeError(
            f"WORLD_SIZE={world.size}, but MASTER_PORT is not set: start the program by torchrun "
            "or xmp.spawn, or set MASTER_ADDR and MASTER_PORT to where rank 0 can be reached"
        )
    port = _number("MASTER_PORT")
    serves = world.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        opened = interruptible(
            lambda: TCPStore(
                host,
                port,
                is_master=serves,
                timeout=_c10d_timeout(time_limit()),
                wait_for_workers=False,
                multi_tenant=True,
            )
        )
    except (RuntimeError, TimeoutError) as e:
        what = "cannot listen" if serves else "cannot reach rank 0's store"
        raise RuntimeError(
            f"rank {world.rank} {what} at {host}:{port} (MASTER_ADDR, MASTER_PORT): {e}"
        ) from None
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"torch_xla/{restart}", opened)


def interruptible(fn: Callable[[], Any]) -> Any:
    """`fn()` on another thread, so that Ctrl-C does not have to wait for it."""
    result: list[Any] = []
    error: list[BaseException] = []

    def call() -> None:
        try:
            result.append(fn())
        except BaseException as e:
            error.append(e)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
    if error:
        raise error[0]
    return result[0]


def has_store() -> bool:
    return _store is not None


def say_gone(why: str) -> None:
    """Tells the other ranks, once, that this one has ended."""
    with contextlib.suppress(RuntimeError):  # the store's host has ended before us
        if _store is not None:
            _store.compare_set(GONE.format(of_process().rank), "", why)


def wait_for(
    keys: dict[int, str],
    what: str,
    limit: float | None = None,
    using: Any = None,
) -> None:
    """Waits until every rank has set its key.

    Raises:
        RuntimeError: a rank has ended without.
        TimeoutError: after `limit` seconds, XLA_WAIT_TIMEOUT_S by default.
    """
    limit = time_limit() if limit is None else limit
    s = store() if using is None else using
    start = time.monotonic()
    pause, next_look = 0.0005, start + 0.1
    while not s.check(list(keys.values())):
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
        now = time.monotonic()
        if now < next_look:
            continue
        next_look = now + 0.1
        missing = [r for r, key in keys.items() if not s.check([key])]
        for r in missing:
            # A rank sets its key before it ends: look again for it.
            if s.check([GONE.format(r)]) and not s.check([keys[r]]):
                raise RuntimeError(f"waiting for {what}: rank {r} {_text(s, GONE.format(r))}")
        if missing and now - start > limit:
            raise TimeoutError(
                f"rank {current().rank} waited {limit:g} s for {what}: no sign of "
                f"{ranks_text(missing)} (XLA_WAIT_TIMEOUT_S)"
            )


def _text(s: Any, key: str) -> str:
    return bytes(s.get(key)).decode(errors="replace")


def ranks_text(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def next_round(name: str) -> int:
    """How often this replica has asked for the name."""
    replica = of_thread()
    rounds = _rounds if replica is None else replica.rounds
    rounds[name] = rounds.get(name, 0) + 1
    return rounds[name]


def rendezvous(tag: str, payload: bytes, ranks: Sequence[int]) -> list[bytes]:
    """Waits for the ranks and returns their payloads; the n-th time for a tag meets the n-th.

    Launches what is pending first: a rank may read a value on its way here that needs it.
    """
    launch_collectives()
    name = f"{tag}/{','.join(map(str, ranks))}"
    turn = next_round(name)
    me = current().rank
    s = store()
    keys = {r: f"rendezvous/{name}/{turn}/{r}" for r in ranks}
    s.set(keys[me], payload)
    wait_for(keys, f"rendezvous '{tag}'")
    payloads = [bytes(s.get(keys[r])) for r in ranks]
    if turn > 2:  # all were in the last turn, so nobody reads the one before it any more
        s.delete_key(f"rendezvous/{name}/{turn - 2}/{me}")
    return payloads


# --- the communicator


_OVER_TCP = "processes communicate over TCP, which is slower than shared memory: %s"


class _Callbacks:
    """What the communication thread asks of Python. Its connection to the store is its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = store().clone()
        self.shared = _open_shared_memory(world)

    def _exchange(self, name: str, ranks: list[int], mine: str) -> list[str]:
        keys = {r: f"{name}/{r}" for r in ranks}
        self.store.set(keys[self.world.rank], mine)
        wait_for(keys, "its first collective", 0.8 * time_limit(), self.store)
        return [_text(self.store, k) for k in keys.values()]

    def connect(self, ranks: list[int]) -> Any:
        """A transport for the group: shared memory where all are on one host, else gloo."""
        from torch._C._distributed_c10d import HashStore, PrefixStore, ProcessGroupGloo

        options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = _c10d_timeout(0.8 * time_limit())
        options._threads = 1
        options._devices = _gloo_devices()
        if len(ranks) == 1:
            return ProcessGroupGloo(HashStore(), 0, 1, options)
        name = "group/" + ",".join(map(str, ranks))
        index = ranks.index(self.world.rank)
        address = None
        if self.shared:
            try:
                address = _XLAC._xla_shared_address(len(ranks))
            except RuntimeError as e:
                logger.warning(_OVER_TCP, f"rank {self.world.rank}: {e}")
        here = self._exchange(f"{name}/here", ranks, json.dumps([_host(), address]))
        hosts, addresses = zip(*map(json.loads, here), strict=True)
        if all(addresses) and len(set(hosts)) == 1:
            transport, refused = None, ""
            try:
                transport = _XLAC._xla_shared_transport(index, list(addresses))
            except RuntimeError as e:
                refused = f"rank {self.world.rank}: {e}"
            everybody = self._exchange(f"{name}/shared", ranks, refused)
            if not any(everybody):
                return transport
            logger.warning(
                _OVER_TCP,
                next(filter(None, everybody)),
            )
        return ProcessGroupGloo(PrefixStore(name, self.store), index, len(ranks), options)

    def compare(self, sequence: int, ranks: list[int], mine: str) -> list[str]:
        ranks = ranks or list(range(self.world.size))
        name = f"compare/{','.join(map(str, ranks))}"
        keys = {r: f"{name}/{r}" for r in ranks}
        self.store.set(keys[self.world.rank], mine)
        with contextlib.suppress(RuntimeError, TimeoutError):
            wait_for(keys, "what it runs", min(5.0, 0.1 * time_limit()), self.store)
        return [_text(self.store, k) if self.store.check([k]) else "?" for k in keys.values()]

    def give_up(self, why: str) -> str:
        """Tells the others; returns what the others told, waiting for them a little."""
        try:
            self.store.compare_set(GONE.format(self.world.rank), "", f"has failed: {why}")
            if "run different collectives" in why:
                return ""
            others = [r for r in range(self.world.size) if r != self.world.rank]
            end = time.monotonic() + min(2.0, 0.1 * time_limit())
            silent = others
            while time.monotonic() < end:
                silent = [r for r in others if not self.store.check([GONE.format(r)])]
                if not silent:
                    break
                time.sleep(0.02)
            lines = [
                f"rank {r} {_text(self.store, GONE.format(r))}" for r in others if r not in silent
            ]
            if silent:
                lines.append(f"no sign of {ranks_text(silent)}")
            return "\n".join(lines)
        except RuntimeError:
            return "the program's store is gone, too"


def _open_shared_memory(world: World) -> bool:
    if world.local_size == 1:
        return False
    try:
        return _XLAC._xla_open_shared_memory()
    except RuntimeError as e:
        logger.warning(_OVER_TCP, e)
        return False


def _host() -> str:
    """Equal for processes that can reach each other by process number."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "/".join([boot, *(os.readlink(f"/proc/self/ns/{n}") for n in ("pid", "net"))])


def _gloo_devices() -> list[Any]:
    from torch.distributed import ProcessGroupGloo

    if names := os.environ.get("GLOO_SOCKET_IFNAME"):
        return [ProcessGroupGloo.create_device(interface=n) for n in names.split(",")]
    return [ProcessGroupGloo.create_device(hostname=_own_address())]


def _own_address() -> str:
    """This host's address on the way to rank 0's host."""
    master = os.environ.get("MASTER_ADDR") or "127.0.0.1"
    family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.connect(address)  # sends nothing
        return str(s.getsockname()[0])


def ensure_communicator(device: int) -> None:
    """Gives the device what collectives need; connects nothing yet."""
    if _XLAC._xla_has_communicator(device):
        return
    world = of_process()
    if _XLAC._xla_platform() != "CPU":
        _XLAC._xla_set_native_communicator(device, world.rank, world.size)
        return
    callbacks = _Callbacks(world)
    _XLAC._xla_set_communicator(
        device,
        world.rank,
        world.size,
        callbacks.connect,
        callbacks.compare,
        callbacks.give_up,
    )


def launch_collectives() -> None:
    """Launches what is pending when a collective is among it: the other ranks wait for it."""
    if not _XLAC._xla_runtime_created():
        return
    for d in own_devices():
        _XLAC._xla_launch_collectives(d)


@contextlib.contextmanager
def clean_exit() -> Iterator[None]:
    """``sys.exit()`` without an error is the ordinary end of a replica."""
    try:
        yield
    except SystemExit as e:
        if e.code:
            raise


def own_devices() -> Sequence[int]:
    """Of this replica: a thread has one device, and others' may wait for it."""
    replica = of_thread()
    return range(_XLAC._xla_num_devices()) if replica is None else [replica.device]


def raise_failure(device: int) -> None:
    """Raises RuntimeError when a collective of the device has failed, read or not."""
    _, failure = _XLAC._xla_collective_status(device)
    if failure:
        raise RuntimeError(failure)


def leave() -> None:
    """At the end of a process, before the client goes: finishes what others may wait for."""
    if _store is None or of_process().size == 1 or _XLAC._xla_in_forked_child():
        return
    try:
        launch_collectives()
        if _XLAC._xla_runtime_created():
            for d in own_devices():
                _XLAC._xla_wait_device_ops(d)
                if failure := _XLAC._xla_collective_status(d)[1]:
                    logger.error("rank %d ends after a failure: %s", of_process().rank, failure)
    finally:
        say_gone("has ended")
