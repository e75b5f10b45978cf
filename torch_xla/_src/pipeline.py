"""Batches on their way to devices: a thread reads them, others upload them."""

import atexit
import contextlib
import copy
import dataclasses
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch


class Closed(Exception):
    """The queue was closed."""


class _Failed:
    """What a thread raised, for the consumer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


class BoundedQueue:
    """First in, first out; `close` wakes everybody up for good."""

    def __init__(self, size: int) -> None:
        self._size = max(size, 1)
        self._items: deque[Any] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: Any) -> None:
        with self._changed:
            while len(self._items) >= self._size and not self._closed:
                self._changed.wait()
            if self._closed:
                raise Closed
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> Any:
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait(0.05)  # Ctrl-C is seen between waits
            if self._closed:
                raise Closed
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _Lane:
    """The way to one device: host queue, uploading threads, device queue."""

    def __init__(self, device: torch.device, host_size: int, device_size: int) -> None:
        self.device = device
        self.host = BoundedQueue(host_size)
        self.ready = BoundedQueue(device_size)
        self._order = threading.Condition()
        self._taken = self._given = 0
        self.closed = False
        self._taking = threading.Lock()

    def upload(self) -> None:
        """Runs in each uploading thread; batches come out in the order in which they came."""
        try:
            while True:
                with self._taking:
                    batch = self.host.get()
                    turn = self._taken
                    self._taken += 1
                last = batch is _END or isinstance(batch, _Failed)
                if not last:
                    try:
                        batch = to_device(batch, self.device)
                    except BaseException as e:
                        batch = _Failed(e)
                with self._order:
                    while self._given != turn and not self.closed:
                        self._order.wait()
                self.ready.put(batch)
                with self._order:
                    self._given += 1
                    self._order.notify_all()
        except Closed:
            self.close()  # the threads that wait for their turn

    def close(self) -> None:
        self.host.close()
        self.ready.close()
        with self._order:
            self.closed = True
            self._order.notify_all()


class Pipeline:
    """Reads an iterable in the background and deals its batches to the devices in turn.

    With several devices all get equally many: the batches of an incomplete last round are dropped.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        devices: list[torch.device],
        host_size: int,
        device_size: int,
        threads: int,
    ) -> None:
        self._lanes = [_Lane(d, host_size, device_size) for d in devices]
        targets: list[Callable[[], None]] = [partial(_read, self._lanes, loader)]
        targets += [lane.upload for lane in self._lanes for _ in range(max(threads, 1))]
        self._threads = [
            threading.Thread(target=f, daemon=True, name="torch_xla-loader") for f in targets
        ]
        _open.add(self)
        for t in self._threads:
            t.start()

    def next(self, lane: int) -> Any:
        """The lane's next batch.

        Raises:
            StopIteration: there are no more.
            BaseException: what the loader or an upload raised.
        """
        ready = self._lanes[lane].ready
        try:
            item = ready.get()
        except Closed:
            raise StopIteration from None
        if item is _END or isinstance(item, _Failed):
            self._lanes[lane].close()
            if all(x.ready._closed for x in self._lanes):
                self.close()
            if isinstance(item, _Failed):
                raise item.error
            raise StopIteration
        return item

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()

    def join(self, timeout: float) -> None:
        for t in self._threads:
            t.join(timeout)


def _read(lanes: list[_Lane], loader: Iterable[Any]) -> None:
    end: Any = _END
    iterator = None
    try:
        iterator = iter(loader)
        while not lanes[0].closed:
            batches = []
            for _ in lanes:
                try:
                    batches.append(next(iterator))
                except StopIteration:
                    break
            if len(batches) < len(lanes):
                break
            for lane, batch in zip(lanes, batches, strict=True):
                lane.host.put(batch)
            del batches, batch
    except Closed:
        return
    except BaseException as e:
        end = _Failed(e)
    finally:
        del iterator  # a DataLoader's workers end here
    with contextlib.suppress(Closed):
        for lane in lanes:
            lane.host.put(end)


_open: "weakref.WeakSet[Pipeline]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for p in list(_open):
        p.close()
        p.join(5.0)


def to_device(batch: Any, device: torch.device) -> Any:
    """`batch`, any nesting of containers, with its tensors on the device.

    Containers are dicts and other mappings, lists, tuples, named tuples, dataclasses, and whatever
    has a method ``to``; anything else stays as it is.
    """
    if isinstance(batch, torch.Tensor):
        moved = batch.detach().to(device)
        return moved.requires_grad_() if batch.requires_grad else moved
    if isinstance(batch, Mapping):
        items = {k: to_device(v, device) for k, v in batch.items()}
        if type(batch) is dict:
            return items
        copied = copy.copy(batch)
        copied.update(items)  # type: ignore[attr-defined]
        return copied
    if callable(getattr(batch, "to", None)):  # PackedSequence
        return batch.to(device)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(x, device) for x in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(x, device) for x in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        changed: Any = copy.copy(batch)
        for f in dataclasses.fields(batch):
            object.__setattr__(changed, f.name, to_device(getattr(batch, f.name), device))
        return changed
    return batch
