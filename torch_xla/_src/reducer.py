"""What DistributedDataParallel's reducer is for parameters on xla.

torch's own one compares the storages of gradients and buckets, and ours have none. This one has its
rules: buckets start in one order on all ranks, each as soon as the gradients in it and in those
before it are there, and backward ends with the averages in ``.grad``.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from . import world as _world


class XlaReducer:
    """See `torch.distributed.Reducer`."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        buckets: Sequence[Sequence[int]],
        process_group: Any,
        find_unused: bool,
        names: dict[int, str],
    ) -> None:
        self._parameters = list(parameters)
        self._buckets = [list(b) for b in buckets]
        self._group = process_group
        self._find_unused = find_unused
        self._names = names
        self._armed = False  # the next backward reduces
        self._running = False  # between its first gradient and its end
        self._ready: set[int] = set()
        self._started: list[tuple[list[int], Any]] = []
        self._hook: Callable[[GradBucket], Any] | None = None
        self._active: torch.Tensor | None = None  # ranks that still have inputs (join)
        this = weakref.ref(self)
        self._hooks = [
            p.register_post_accumulate_grad_hook(_Hook(this, i))  # type: ignore[no-untyped-call]
            for i, p in enumerate(self._parameters)
        ]

    # --- what DistributedDataParallel calls

    def set_logger(self, logger: Any) -> None:
        del logger

    def prepare_for_forward(self) -> None:
        self._check_reducer_finalized()

    def prepare_for_backward(self, outputs: Sequence[torch.Tensor]) -> None:
        """The next backward reduces; without this call (``no_sync``) gradients accumulate."""
        del outputs
        self._armed, self._running = True, False
        self._ready, self._started = set(), []

    def _rebuild_buckets(self) -> bool:
        return False

    def _set_static_graph(self) -> None:
        """Parameters that are unused are unused in every step."""
        self._find_unused = True

    def _delay_all_reduce(self) -> None:
        """At the end of a static graph's first backward pass: nothing was held back."""

    def _remove_autograd_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()

    # --- ranks that have run out of inputs (DistributedDataParallel.join)

    def _set_forward_pass_work_handle(self, work: Any, divide_by_initial_world_size: bool) -> None:
        """`work`: the all_reduce that counts the ranks that are still active."""
        self._active = None if divide_by_initial_world_size else work.result()[0]

    def _get_zeros_like_grad_buckets(self) -> list["GradBucket"]:
        return [
            self._bucket(i, [torch.zeros_like(self._parameters[j]) for j in indices])
            for i, indices in enumerate(self._buckets)
        ]

    def _run_comm_hook(self, bucket: "GradBucket") -> Any:
        """Takes part in a bucket's reduction with nothing to add."""
        if self._hook is not None:
            return self._hook(bucket)
        self._group._start_sum(bucket.gradients()).finish()
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def _push_all_rebuilt_params(self) -> None:
        """Buckets stay what they are."""

    def _get_local_used_map(self) -> torch.Tensor:
        raise NotImplementedError(
            "DistributedDataParallel.join with find_unused_parameters=True is not there for xla "
            "parameters"
        )

    # --- communication hooks

    def set_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """``hook(state, bucket)`` gives a future of the bucket's averages, in one flat tensor."""
        if self._hook is not None:
            raise RuntimeError("register_comm_hook can only be called once")
        self._hook = lambda bucket: hook(state, bucket)

    def _bucket(self, index: int, gradients: list[torch.Tensor]) -> "GradBucket":
        parameters = [self._parameters[i] for i in self._buckets[index]]
        return GradBucket(index, index == len(self._buckets) - 1, parameters, gradients)

    def _check_reducer_finalized(self) -> None:
        if not self._running:
            return
        missing = [self._names.get(i, str(i)) for i in self._missing()]
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new "
            "one. Parameters that did not receive grad: "
            f"{', '.join(missing)}. If the model does not use them in every step, pass "
            "find_unused_parameters=True to torch.nn.parallel.DistributedDataParallel"
        )

    # --- backward

    def _missing(self) -> list[int]:
        return [i for i in range(len(self._parameters)) if i not in self._ready]

    def _gradient_is_there(self, index: int) -> None:
        if not self._armed:
            return
        if not self._running:
            self._running = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._backward_is_over)
        if index in self._ready:
            raise RuntimeError(
                "Expected to mark a variable ready only once. Parameter "
                f"'{self._names.get(index, index)}' has got a gradient twice in one backward"
            )
        self._ready.add(index)
        self._start_buckets()

    def _start_buckets(self) -> None:
        while len(self._started) < len(self._buckets):
            bucket = self._buckets[len(self._started)]
            if not all(i in self._ready for i in bucket):
                return
            self._start(bucket)

    def _start(self, bucket: list[int]) -> None:
        gradients = []
        for i in bucket:
            p = self._parameters[i]
            gradients.append(torch.zeros_like(p) if p.grad is None else p.grad.detach())
        if self._hook is None:
            started = self._group._start_sum(gradients)
        else:
            started = _Hooked(self._hook(self._bucket(len(self._started), gradients)), gradients)
        self._started.append((bucket, started))

    def _backward_is_over(self) -> None:
        unused: list[int] = []
        if self._find_unused:
            unused = self._unused_everywhere()
            for i in self._missing():
                self._ready.add(i)
            self._start_buckets()
        if len(self._started) < len(self._buckets):
            return  # said at the next forward
        scale: Any = 1.0 / self._group.size()
        if self._hook is not None:
            scale = 1.0  # its own business
        elif self._active is not None:
            scale = 1.0 / self._active
        with torch.no_grad():
            for bucket, started in self._started:
                for i, total in zip(bucket, started.finish()[0], strict=True):
                    p = self._parameters[i]
                    if i in unused:
                        continue
                    if p.grad is None:
                        p.grad = total * scale
                    else:
                        p.grad.copy_(total * scale)
        self._armed = self._running = False
        self._started = []

    def _unused_everywhere(self) -> list[int]:
        """Their gradients stay what they are; asked on the host, since it decides on `None`."""
        mine = set(self._missing())
        if self._group.size() == 1:
            return sorted(mine)
        payload = ",".join(map(str, sorted(mine))).encode()
        for other in _world.rendezvous("torch_xla.ddp", payload, self._group._ranks):
            mine &= {int(i) for i in other.decode().split(",") if i}
        return sorted(mine)


class GradBucket:
    """What `torch.distributed.GradBucket` is to a communication hook."""

    def __init__(
        self,
        index: int,
        last: bool,
        parameters: list[torch.nn.Parameter],
        gradients: list[torch.Tensor],
    ) -> None:
        self._index, self._last, self._parameters = index, last, parameters
        self._shapes = [g.shape for g in gradients]
        self._buffer = torch.cat([g.flatten() for g in gradients])

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last

    def buffer(self) -> torch.Tensor:
        """All gradients, flat, one behind the other."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer."""
        return _cut(self._buffer, self._shapes)

    def parameters(self) -> list[torch.nn.Parameter]:
        return self._parameters


def _cut(flat: torch.Tensor, shapes: Sequence[torch.Size]) -> list[torch.Tensor]:
    pieces = torch.split(flat, [s.numel() for s in shapes])
    return [p.view(s) for p, s in zip(pieces, shapes, strict=True)]


class _Hooked:
    """A bucket that a communication hook reduces."""

    def __init__(self, future: Any, like: list[torch.Tensor]) -> None:
        self._future, self._like = future, like

    def finish(self) -> list[list[torch.Tensor]]:
        value = self._future.wait()
        flat = value if isinstance(value, torch.Tensor) else value[0]
        return [_cut(flat, [t.shape for t in self._like])]


class _Hook:
    def __init__(self, reducer: "weakref.ref[XlaReducer]", index: int) -> None:
        self._reducer, self._index = reducer, index

    def __call__(self, parameter: torch.Tensor) -> None:
        del parameter
        if reducer := self._reducer():
            reducer._gradient_is_there(self._index)


class XlaLogger:
    """Keeps what DistributedDataParallel tells about itself."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def set_construction_data_and_log(self, module_name: str, *args: Any) -> None:
        self.data["module_name"] = module_name

    def set_runtime_stats_and_log(self) -> None:
        self.data["iteration"] = self.data.get("iteration", 0) + 1

    def set_error_and_log(self, error: str) -> None:
        self.data["error"] = error

    def _set_static_graph(self) -> None:
        self.data["static_graph"] = True

    def _set_comm_hook_name(self, name: str) -> None:
        self.data["comm_hook"] = name

    def _set_uneven_input_join(self) -> None:
        self.data["join_uneven_inputs"] = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return dict(self.data)


def wrap() -> None:
    """DistributedDataParallel gets the reducer that its parameters need."""
    module: Any = dist
    torch_reducer, torch_logger = module.Reducer, module.Logger

    def make_reducer(parameters: Sequence[Any], buckets: Any, *rest: Any, **kwargs: Any) -> Any:
        if parameters[0].device.type != "xla":
            return torch_reducer(parameters, buckets, *rest, **kwargs)
        _, group, _, _, find_unused, _, names, *_ = rest
        if not hasattr(group, "_start_sum"):
            raise ValueError(
                "DistributedDataParallel with parameters on xla needs a process group of the "
                'backend "xla"'
            )
        return XlaReducer(parameters, buckets, group, find_unused, names)

    def make_logger(reducer: Any) -> Any:
        return XlaLogger() if isinstance(reducer, XlaReducer) else torch_logger(reducer)

    register_hook = module._register_comm_hook
    register_builtin = module._register_builtin_comm_hook

    def register(reducer: Any, state: Any, hook: Any) -> None:
        if isinstance(reducer, XlaReducer):
            reducer.set_hook(state, hook)
        else:
            register_hook(reducer, state, hook)

    def register_known(reducer: Any, kind: Any) -> None:
        if not isinstance(reducer, XlaReducer):
            register_builtin(reducer, kind)
            return
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        compress = kind == module.BuiltinCommHookType.FP16_COMPRESS
        hook: Any = default_hooks.fp16_compress_hook if compress else default_hooks.allreduce_hook
        reducer.set_hook(reducer._group, hook)

    module.Reducer, module.Logger = make_reducer, make_logger
    module._register_comm_hook, module._register_builtin_comm_hook = register, register_known
