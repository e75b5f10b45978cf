"""`pl`: loaders that read and upload batches in the background, while the device computes."""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from .._src import step as _step
from .._src.devices import DeviceLike
from .._src.devices import index_of as _index_of
from .._src.pipeline import Pipeline


class PerDeviceLoader:
    """The batches of one device; see `ParallelLoader.per_device_loader`."""

    def __init__(self, loader: "ParallelLoader", lane: int, device: torch.device) -> None:
        self._loader = loader
        self._lane = lane
        self._index = _index_of(device)
        self._given = 0
        self._done = False

    def __iter__(self) -> "PerDeviceLoader":
        return self

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        if self._given % self._loader.batches_per_execution == 0:
            _step.end(self._index)
        try:
            batch = self._loader._pipeline.next(self._lane)
        except BaseException as e:
            self._done = True
            if isinstance(e, StopIteration) and (
                self._given % self._loader.batches_per_execution != 0
            ):
                _step.end(self._index)
            raise
        self._given += 1
        return batch

    def next(self) -> Any:
        """The next batch; raises StopIteration after the last one."""
        return self.__next__()

    def close(self) -> None:
        """Ends the whole `ParallelLoader`."""
        self._loader.close()


class ParallelLoader:
    """Reads batches in the background and uploads them to one or more devices.

    The devices get batches in turn, all equally many: the batches of an incomplete last round are
    dropped. The threads end with the last batch, with `close`, or when the loader is no longer
    used, so a loop may be left early.

    Args:
        cpu_loader: any iterable of batches. A batch is any nesting of containers with tensors.
        devices: where the batches go.
        batchdim: accepted for compatibility.
        batches_per_execution: how many batches make a step.
        loader_prefetch_size: batches per device that wait on the host.
        device_prefetch_size: batches per device that wait on the device.
        host_to_device_transfer_threads: threads per device that upload; batches stay in order.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any],
        devices: Sequence[DeviceLike],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ) -> None:
        del batchdim
        if input_sharding is not None:
            raise NotImplementedError("this version of torch_xla does not shard tensors")
        for name, n in (
            ("batches_per_execution", batches_per_execution),
            ("loader_prefetch_size", loader_prefetch_size),
            ("device_prefetch_size", device_prefetch_size),
            ("host_to_device_transfer_threads", host_to_device_transfer_threads),
        ):
            if n < 1:
                raise ValueError(f"{name} {n} must be at least 1")
        if not devices:
            raise ValueError("ParallelLoader needs at least one device")
        self._cpu_loader = cpu_loader
        self._devices = [torch.device("xla", _index_of(d)) for d in devices]
        if len(set(self._devices)) != len(self._devices):
            raise ValueError(f"devices {[str(d) for d in self._devices]} are not all different")
        self.batches_per_execution = batches_per_execution
        self._pipeline = Pipeline(
            cpu_loader,
            self._devices,
            loader_prefetch_size,
            device_prefetch_size,
            host_to_device_transfer_threads,
        )
        # The threads know the pipeline and not us: without us they end.
        self._finalizer = weakref.finalize(self, self._pipeline.close)

    def per_device_loader(self, device: DeviceLike) -> PerDeviceLoader:
        """The batches of one device, in a loop that may be run once.

        Each step of the loop ends the step of training, as `torch_xla.sync` does (with
        `batches_per_execution`, every so many), and the end of the loop does it once more.

        Raises:
            ValueError: the loader does not serve the device.
        """
        wanted = torch.device("xla", _index_of(device))
        if wanted not in self._devices:
            raise ValueError(f"{wanted} is none of {[str(d) for d in self._devices]}")
        return PerDeviceLoader(self, self._devices.index(wanted), wanted)

    def per_device_samples(self) -> int:
        """How many batches each device gets.

        Raises:
            TypeError: the loader on the host has no length.
        """
        return len(self._cpu_loader) // len(self._devices)  # type: ignore[arg-type]

    def close(self) -> None:
        """Ends the threads; loops over the loader end."""
        self._finalizer()


class MpDeviceLoader:
    """Batches of a loader on a device, as often as wanted: each loop starts the loader again.

    Args:
        loader: any iterable of batches.
        device: where they go.
        kwargs: of `ParallelLoader`.
    """

    def __init__(self, loader: Iterable[Any], device: DeviceLike, **kwargs: Any) -> None:
        self._loader = loader
        self._device = device
        self._parallel_loader_kwargs = kwargs

    def __iter__(self) -> Iterator[Any]:
        parallel = ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs)
        return parallel.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]
