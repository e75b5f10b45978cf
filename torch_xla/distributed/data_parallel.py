"""`dp`: one thread per device of this process, each with a replica of a model."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .._src import devices as _devices
from .._src import threads as _threads
from .._src import world as _world
from .parallel_loader import ParallelLoader


class Context:
    """What a replica keeps from one call to the next, in attributes; `device` is its device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def getattr_or(self, name: str, defval: Any) -> Any:
        """The attribute; at first `defval`, or what it returns when it can be called."""
        if not hasattr(self, name):
            setattr(self, name, defval() if callable(defval) else defval)
        return getattr(self, name)


class DataParallel:
    """Replicas of a model on the devices of this process, trained by one thread each.

    The threads are replicas as the processes of `xmp.spawn` are: `xm.optimizer_step` averages
    their gradients, and `xr.world_size` and `xr.global_ordinal` tell who is who.

    Args:
        network: a module, or a function that makes one; each device gets a copy, in `models`.
        device_ids: the devices, by default all. An empty list trains on the CPU, without threads.
        kwargs: accepted for compatibility.
    """

    def __init__(
        self,
        network: torch.nn.Module | Callable[[], torch.nn.Module],
        device_ids: Sequence[_devices.DeviceLike] | None = None,
        **kwargs: Any,
    ) -> None:
        del kwargs
        ids = _devices.devices() if device_ids is None else device_ids
        self._indices = [_devices.index_of(d) for d in ids]
        if len(set(self._indices)) != len(self._indices):
            raise ValueError(f"device_ids {[str(d) for d in ids]} are not all different")
        module = network if isinstance(network, torch.nn.Module) else network()
        self._devices = [torch.device("xla", i) for i in self._indices]
        self.models = [copy.deepcopy(module).to(d) for d in self._devices]
        if not self.models:
            self._devices, self.models = [torch.device("cpu")], [module]
        self._contexts = [Context(d) for d in self._devices]

    @property
    def devices(self) -> list[str]:
        return [str(d) for d in self._devices]

    def __call__(
        self,
        loop_fn: Callable[..., Any],
        loader: Iterable[Any],
        batchdim: int = 0,
        **kwargs: Any,
    ) -> list[Any]:
        """Runs ``loop_fn(model, loader, device, context, **kwargs)`` for each device.

        The loader of a device gives every n-th batch of `loader`, uploaded; an incomplete last
        round is dropped. Without devices it is ``enumerate(loader)``.

        Returns:
            What the calls returned, in the order of the devices.

        Raises:
            ThreadRaisedException: a replica raised, from what it raised.
        """
        if not self._indices:
            one = loop_fn(
                self.models[0], enumerate(loader), self._devices[0], self._contexts[0], **kwargs
            )
            return [one]
        if _world.of_process().size > 1 or _world.of_thread() is not None:
            raise RuntimeError(
                "DataParallel makes replicas of its own: call it in a process that is none"
            )
        parallel = ParallelLoader(loader, self._devices, batchdim)

        def body(rank: int) -> Any:
            device = self._devices[rank]
            loader = parallel.per_device_loader(device)
            return loop_fn(self.models[rank], loader, device, self._contexts[rank], **kwargs)

        try:
            return _threads.run(self._indices, body)
        finally:
            parallel.close()
