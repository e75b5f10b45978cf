"""torch.distributed's backend ``xla``; importing this module registers it.

    import torch.distributed as dist
    import torch_xla.distributed.xla_backend

    dist.init_process_group("xla", init_method="xla://")  # or env://

Collectives are recorded like other operations on xla tensors. Tensors on the CPU may be given, too:
they go through the device.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.rendezvous import register_rendezvous_handler

from .._src import collectives as _c
from .._src import point_to_point as _p2p
from .._src import reducer as _reducer
from .._src import world as _world

_REDUCE = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "sum",  # and divided
    dist.ReduceOp.PRODUCT: "mul",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
}


class _Work(dist.Work):
    """Done as far as the host sees: the device runs it in its turn."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._result)
        return future


class _PostedWork(_Work):
    def __init__(self, result: Any, group: "ProcessGroupXla") -> None:
        super().__init__(result)
        self._group = group

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        self._group._exchange_posted()
        return True

    def is_completed(self) -> bool:
        return self.wait()

    def is_success(self) -> bool:
        return self.wait()

    def result(self) -> Any:
        self.wait()
        return super().result()

    def get_future(self) -> torch.futures.Future[Any]:
        self.wait()
        return super().get_future()


_Base: Any = ProcessGroup  # its stubs list overloads that Python classes cannot have


class ProcessGroupXla(_Base):  # type: ignore[misc]
    """The collectives of one group of ranks."""

    def __init__(self, store: Any, rank: int, size: int, ranks: Sequence[int]) -> None:
        super().__init__(rank, size)
        self._store = store
        self._ranks = list(ranks)
        self._posted: list[_p2p.Message] = []  # what `send` and `recv` have not started yet

    def getBackendName(self) -> str:
        return "xla"

    def _get_backend_name(self) -> str:
        return "xla"

    # --- what all of them stand on

    def _on_device(self, t: torch.Tensor) -> torch.Tensor:
        return t.detach() if t.device.type == "xla" else t.detach().to("xla")

    def _run(self, parts: list[_c.Part]) -> list[torch.Tensor]:
        if self.size() == 1:
            return [_alone(p) for p in parts]
        self._exchange_posted()
        whole = len(self._ranks) == _world.of_process().size
        return _c.start(parts, () if whole else self._ranks).finish()

    def _reduce(self, tensors: Sequence[torch.Tensor], op: Any, kind: str) -> list[torch.Tensor]:
        op = op.op if hasattr(op, "op") else op
        if op not in _REDUCE:
            raise ValueError(f"the backend xla does not have the reduction {op}")
        given = [self._on_device(t) for t in tensors]
        _c.check_reduce(kind, _REDUCE[op], given)
        results = self._run([_c.Part(kind, [t], _REDUCE[op]) for t in given])
        return [r / self.size() for r in results] if op == dist.ReduceOp.AVG else results

    def _write(self, targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for t, v in zip(targets, values, strict=True):
                t.detach().copy_(v.reshape(t.shape))

    def _start_sum(self, tensors: list[torch.Tensor]) -> Any:
        """A bucket of DistributedDataParallel; ``finish()[0]`` are the sums."""
        if self.size() == 1:
            return _Alone(tensors)
        whole = len(self._ranks) == _world.of_process().size
        item = ("all_reduce", "sum", tensors, None, 0)
        return _c.start_lists([item], () if whole else self._ranks)

    # --- collectives; `opts` are c10d's

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> dist.Work:
        tensors = _as_list(tensors)
        op = getattr(opts, "reduceOp", opts) if opts is not None else dist.ReduceOp.SUM
        self._write(tensors, self._reduce(tensors, op, "all_reduce"))
        return _Work(tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> dist.Work:
        return self.allreduce(tensors, opts)

    def _check_root(self, root: int) -> int:
        if not 0 <= root < self.size():
            raise ValueError(f"invalid root rank: {root}, in a group of {self.size()}")
        return root

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> dist.Work:
        tensors = _as_list(tensors)
        root = self._check_root(opts if isinstance(opts, int) else getattr(opts, "rootRank", 0))
        given = [self._on_device(t) for t in tensors]
        at = self._ranks[root]
        parts = [_c.Part("collective_broadcast", [t], root=at) for t in given]
        self._write(tensors, self._run(parts))
        return _Work(tensors)

    def reduce(self, tensors: Any, opts: Any) -> dist.Work:
        tensors = _as_list(tensors)
        root = self._check_root(opts.rootRank)
        results = self._reduce(tensors, opts.reduceOp, "all_reduce")
        if self.rank() == root:
            self._write(tensors, results)
        return _Work(tensors)

    def _gather(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self._run([_c.Part("all_gather", [self._on_device(t)]) for t in inputs])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        for out, rows in zip(outputs, self._gather(inputs), strict=True):
            self._write(out, list(rows.unbind(0)))
        return _Work(outputs)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        self._write([output], self._gather([input]))
        return _Work([output])

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return self._allgather_base(output, input, opts)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        self._write(outputs, self._gather(inputs))
        return _Work(outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> dist.Work:
        gathered = self._gather(inputs)
        for i, outs in enumerate(output_lists):  # one list per rank
            self._write(outs, [g[i] for g in gathered])
        return _Work(output_lists)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        root = self._check_root(opts.rootRank)
        rows = self._gather(inputs)[0]
        if self.rank() == root:
            self._write(outputs[0], list(rows.unbind(0)))
        return _Work(outputs)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        root = self._check_root(opts.rootRank)
        out = self._on_device(outputs[0])
        if self.rank() == root:
            rows = torch.stack([self._on_device(t) for t in inputs[0]])
        else:
            rows = torch.zeros([self.size(), *out.shape], dtype=out.dtype, device=out.device)
        part = _c.Part("collective_broadcast", [rows], root=self._ranks[root])
        everything = self._run([part])[0]
        index = torch.tensor([self.rank()]).to(out.device)  # data: one program on all ranks
        self._write(outputs, [everything.index_select(0, index)])
        return _Work(outputs)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        rows = [torch.stack([self._on_device(t) for t in ts]) for ts in inputs]
        self._write(outputs, self._reduce(rows, opts.reduceOp, "reduce_scatter"))
        return _Work(outputs)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        rows = [i.reshape(self.size(), *o.shape) for o, i in zip(outputs, inputs, strict=True)]
        self._write(outputs, self._reduce(rows, opts.reduceOp, "reduce_scatter"))
        return _Work(outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        return self._all_to_all_of_messages(outputs, inputs)

    def alltoall_base(
        self, output: torch.Tensor, input: torch.Tensor, out_sizes: Any, in_sizes: Any, opts: Any
    ) -> dist.Work:
        n = self.size()
        if out_sizes or in_sizes:
            return self._all_to_all_of_messages(
                torch.split(output, list(out_sizes) or output.size(0) // n),
                torch.split(input, list(in_sizes) or input.size(0) // n),
            )
        if input.dim() == 0 or input.size(0) % n:
            raise ValueError(f"dimension 0 of {list(input.shape)} cannot be cut into {n} slices")
        rows = _c.cut(self._on_device(input), 0, n)
        self._write([output], self._run([_c.Part("all_to_all", [rows])]))
        return _Work([output])

    all_to_all_single = alltoall_base

    def _all_to_all_of_messages(self, outputs: Any, inputs: Any) -> dist.Work:
        """Between pairs; ranks that do not agree on a size are told so.

        Also where all sizes of this rank are equal: those of the others are not known here, and
        all ranks have to take the same way.
        """
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(f"all_to_all needs one input and one output for each of {self.size()}")
        self._exchange_posted()
        me = self.rank()
        messages = []
        for i, (o, t) in enumerate(zip(outputs, inputs, strict=True)):
            if i == me:
                self._write([o], [self._on_device(t)])
                continue
            if t.numel():
                messages.append(_p2p.Message(self._ranks[me], self._ranks[i], t))
            if o.numel():
                messages.append(_p2p.Message(self._ranks[i], self._ranks[me], o))
        _p2p.exchange(messages)
        return _Work(outputs)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> dist.Work:
        """Starts when somebody waits for it, with what was sent and received before: see `_p2p`."""
        return self._post(self._ranks[self.rank()], self._ranks[dst], tensors)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> dist.Work:
        return self._post(self._ranks[src], self._ranks[self.rank()], tensors)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> dist.Work:
        raise NotImplementedError("the backend xla has no receive from any source: name it")

    def _post(self, source: int, target: int, tensors: Any) -> dist.Work:
        if source == target:
            raise ValueError(f"rank {source} sends to itself")
        self._posted.extend(_p2p.Message(source, target, t) for t in _as_list(tensors))
        return _PostedWork(tensors, self)

    def _exchange_posted(self) -> None:
        posted, self._posted = self._posted, []
        _p2p.exchange(posted)

    def barrier(self, opts: Any = None) -> dist.Work:
        if self.size() > 1:
            self._exchange_posted()
            _world.rendezvous("torch_xla.barrier", b"", self._ranks)
        return _Work([])


class _Alone:
    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors

    def finish(self) -> list[list[torch.Tensor]]:
        return [self._tensors]


def _alone(p: _c.Part) -> torch.Tensor:
    (t,) = p.tensors
    if p.kind == "all_gather":
        return t.unsqueeze(0)
    return t[0] if p.kind == "reduce_scatter" else t


def _as_list(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _create(options: Any, backend_options: Any) -> ProcessGroupXla:
    if _world.of_thread() is not None:
        raise RuntimeError(
            "torch.distributed has one rank per process, and the replicas here are threads: use "
            "the collectives of torch_xla.core.xla_model, or start the replicas as processes"
        )
    world = _world.of_process()
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if max(ranks) >= world.size or ranks[options.group_rank] != world.rank:
        raise RuntimeError(
            f"this process is rank {world.rank} of {world.size} (RANK, WORLD_SIZE), but "
            f"init_process_group says rank {ranks[options.group_rank]} of {options.group_size}: "
            "start the processes by torchrun, xmp.spawn or torch_xla.launch"
        )
    return ProcessGroupXla(options.store, options.group_rank, options.group_size, ranks)


def _rendezvous(
    url: str, timeout: datetime.timedelta | None = None, **kwargs: Any
) -> Iterator[tuple[Any, int, int]]:
    from torch._C._distributed_c10d import HashStore

    world = _world.of_process()
    yield (_world.store() if world.size > 1 else HashStore()), world.rank, world.size
    raise RuntimeError("xla:// cannot meet again")


def _register() -> None:
    if "XLA" not in dist.Backend._plugins:
        register: Callable[..., None] = dist.Backend.register_backend
        register("xla", _create, extended_api=True, devices=["xla"])
        register_rendezvous_handler("xla", _rendezvous)  # type: ignore[no-untyped-call]
        _reducer.wrap()


_register()
