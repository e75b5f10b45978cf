"""Collectives on tensors: what is behind `xm` and `torch_xla.core.functions`.

`start` records the beginning of a collective and `Started.finish` its end; in between the program
may record other work, which runs while the replicas communicate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _XLAC
from . import world as _world

Groups = Sequence[Sequence[int]] | None

REDUCE_TYPES = ("sum", "mul", "and", "or", "min", "max")


@dataclass
class Part:
    """One operation over some tensors."""

    kind: str
    tensors: list[torch.Tensor]
    reduce: str = "sum"
    groups: Groups = None
    root: int = 0
    pairs: Sequence[tuple[int, int]] = ()


class Started:
    """A collective on its way."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def finish(self) -> list[torch.Tensor]:
        """A result for each part (csrc/dist/recorder.h says of which shape)."""
        results: list[torch.Tensor] = self._handle.finish()
        return results


def start(parts: Sequence[Part], scope: Sequence[int] = (), label: str = "") -> Started:
    """Records the start of the parts, together.

    Args:
        scope: the ranks that record it, by default all.
        label: what the tensors are, for the ranks to compare.
    """
    device = parts[0].tensors[0].get_device()
    _world.ensure_communicator(device)
    tuples = [
        (
            p.kind,
            p.reduce,
            p.tensors,
            [list(g) for g in p.groups or ()],
            p.root,
            [(source, target) for source, target in p.pairs],
        )
        for p in parts
    ]
    return Started(_XLAC._xla_collective_start(tuples, list(scope), label))


def run(part: Part, scope: Sequence[int] = ()) -> torch.Tensor:
    return start([part], scope).finish()[0]


# --- checks, equal for one replica and for many


def check_groups(groups: Groups) -> int:
    """Returns the size of this replica's group.

    Raises:
        ValueError: the groups do not name every replica exactly once.
    """
    world = _world.current()
    if not groups:
        return world.size
    named = sorted(r for g in groups for r in g)
    if named != list(range(world.size)):
        raise ValueError(
            f"groups {[list(g) for g in groups]} must name each of the {world.size} replica(s), "
            f"0 to {world.size - 1}, exactly once"
        )
    return next(len(g) for g in groups if world.rank in g)


def index_in_group(groups: Groups) -> int:
    """This replica's place in its group."""
    rank = _world.current().rank
    for g in groups or ():
        if rank in g:
            return list(g).index(rank)
    return rank


def check_tensors(name: str, tensors: Sequence[torch.Tensor]) -> None:
    for t in tensors:
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} expects tensors, got {type(t).__name__}")
        if t.device.type != "xla":
            raise ValueError(f"{name} expects tensors on an xla device, got one on '{t.device}'")
        _world.check_device(t.get_device())


def check_reduce(name: str, reduce_type: str, tensors: Sequence[torch.Tensor]) -> None:
    if reduce_type not in REDUCE_TYPES:
        raise ValueError(f"reduce_type '{reduce_type}' is none of {', '.join(REDUCE_TYPES)}")
    for t in tensors:
        if not _XLAC._xla_reduction_supported(reduce_type, t):
            raise TypeError(f"{name}: {t.dtype} has no reduction '{reduce_type}'")


def check_dim(dim: int, t: torch.Tensor) -> int:
    """`dim`, not negative."""
    n = max(t.dim(), 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def check_split(
    name: str, count_name: str, count: int, group: int, t: torch.Tensor, dim: int
) -> int:
    if count != group:
        raise ValueError(f"{count_name} {count} must be {group}, the number of replicas in a group")
    dim = check_dim(dim, t)
    if t.dim() == 0 or t.size(dim) % count:
        raise ValueError(
            f"{name}: dimension {dim} of {list(t.shape)} cannot be cut into {count} equal slices"
        )
    return dim


# --- the operations, over several replicas


def flat_views(flat: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Cuts what a part of several tensors gives."""
    if len(like) == 1:
        return [flat]
    out, at = [], 0
    for t in like:
        out.append(flat[at : at + t.numel()].view(t.shape))
        at += t.numel()
    return out


def by_dtype(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of the tensors, in lists of one dtype."""
    lists: dict[torch.dtype, list[int]] = {}
    for i, t in enumerate(tensors):
        lists.setdefault(t.dtype, []).append(i)
    return list(lists.values())


def start_lists(
    items: Sequence[tuple[str, str, Sequence[torch.Tensor], Groups, int]],
    scope: Sequence[int] = (),
    label: str = "",
) -> "StartedLists | None":
    """Several lists (kind, reduce, tensors, groups, root) as one start: all_reduce, broadcast."""
    parts, places = [], []
    for i, (kind, reduce, tensors, groups, root) in enumerate(items):
        for indices in by_dtype(tensors):
            chosen = [tensors[j] for j in indices]
            parts.append(Part(kind, chosen, reduce, groups, root))
            places.append((i, indices))
    if not parts:
        return None
    return StartedLists(start(parts, scope, label), parts, places, [len(x[2]) for x in items])


class StartedLists:
    """What `start_lists` began."""

    def __init__(
        self,
        started: Started,
        parts: list[Part],
        places: list[tuple[int, list[int]]],
        lengths: list[int],
    ) -> None:
        self._started, self._parts, self._places, self._lengths = started, parts, places, lengths

    def finish(self) -> list[list[torch.Tensor]]:
        """The results, in the items' order."""
        out: list[list[Any]] = [[None] * n for n in self._lengths]
        results = self._started.finish()
        for flat, part, (item, indices) in zip(results, self._parts, self._places, strict=True):
            for j, r in zip(indices, flat_views(flat, part.tensors), strict=True):
                out[item][j] = r
        return out


def cut(t: torch.Tensor, dim: int, n: int) -> torch.Tensor:
    """[n, x...] where row i is the i-th slice of dimension `dim`."""
    shape = [*t.shape[:dim], n, t.size(dim) // n, *t.shape[dim + 1 :]]
    return t.reshape(shape).movedim(dim, 0)


def all_to_all(
    t: torch.Tensor, split_dim: int, concat_dim: int, n: int, groups: Groups
) -> torch.Tensor:
    rows = run(Part("all_to_all", [cut(t, split_dim, n)], groups=groups))
    return rows.movedim(0, concat_dim).flatten(concat_dim, concat_dim + 1)


def buckets(gradients: Sequence[torch.Tensor], cap_mb: float) -> list[list[torch.Tensor]]:
    """Lists of about `cap_mb` megabytes and one dtype, the last gradients first."""
    out: list[list[torch.Tensor]] = []
    open_: dict[torch.dtype, tuple[list[torch.Tensor], int]] = {}
    for t in reversed(gradients):
        bucket, size = open_.get(t.dtype, ([], 0))
        if not bucket:
            out.append(bucket)
        bucket.append(t)
        size += t.numel() * t.element_size()
        open_[t.dtype] = ([], 0) if size >= cap_mb * 2**20 else (bucket, size)
    return out
