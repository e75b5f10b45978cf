"""`xm.all_reduce` in its forms, and the reduction of gradients."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import collectives as _c
from . import world as _world

Groups = _c.Groups
Reduction = tuple[str, list[torch.Tensor]] | tuple[str, list[torch.Tensor], Groups]


def all_reduce(
    reduce_type: str | Sequence[Reduction],
    inputs: torch.Tensor | list[torch.Tensor] | None = None,
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> Any:
    """``scale * reduce(inputs of the replicas)``, without a gradient.

    Returns the result for a tensor; changes the tensors of a list in place and returns the list.
    Several reductions go together, each with groups of its own::

        xm.all_reduce([(xm.REDUCE_SUM, [a, b], groups1), (xm.REDUCE_MAX, [c], groups2)])

    Args:
        reduce_type: REDUCE_SUM, REDUCE_MUL, REDUCE_MIN, REDUCE_MAX; for integers and bool also
            REDUCE_AND and REDUCE_OR, of the bits. Or a list of (reduce type, list of tensors,
            groups), whose tensors are changed in place.
        groups: which replicas reduce together: lists of their ordinals, each in one list. By
            default all.
        pin_layout: accepted for compatibility.

    Raises:
        ValueError: unknown `reduce_type`, groups that do not name every replica once, or tensors
            that are not on an xla device.
        TypeError: the dtype does not have the reduction.
    """
    if not isinstance(reduce_type, str):
        if inputs is not None:
            raise TypeError("all_reduce of a list of reductions takes no other tensors")
        return _all_reduce_lists([_Reduction(*r) for r in reduce_type], scale)
    if isinstance(inputs, torch.Tensor):
        result = _all_reduce_one(reduce_type, inputs, groups)
        return result if scale == 1.0 else result * scale
    if not isinstance(inputs, list | tuple):
        raise TypeError(
            f"all_reduce expects a tensor or a list of tensors, got {type(inputs).__name__}"
        )
    _all_reduce_lists([_Reduction(reduce_type, inputs, groups)], scale)
    return inputs


class _Reduction(NamedTuple):
    reduce_type: str
    tensors: list[torch.Tensor]
    groups: Groups = None


def _all_reduce_one(reduce_type: str, t: torch.Tensor, groups: Groups) -> torch.Tensor:
    _c.check_tensors("all_reduce", [t])
    _c.check_reduce("all_reduce", reduce_type, [t])
    _c.check_groups(groups)
    if _world.current().size == 1:
        return t.detach().clone()
    return _c.run(_c.Part("all_reduce", [t], reduce_type, groups))


def _all_reduce_lists(reductions: list[_Reduction], scale: float) -> list[list[torch.Tensor]]:
    for r in reductions:
        _c.check_tensors("all_reduce", r.tensors)
        _c.check_reduce("all_reduce", r.reduce_type, r.tensors)
        _c.check_groups(r.groups)
        if scale != 1.0 and not all(t.is_floating_point() or t.is_complex() for t in r.tensors):
            raise TypeError(f"all_reduce in place cannot scale integers by {scale}")
    with torch.no_grad():
        if _world.current().size == 1:
            results = [r.tensors for r in reductions]
            if scale == 1.0:
                return results
        else:
            started = _c.start_lists(
                [("all_reduce", r.reduce_type, r.tensors, r.groups, 0) for r in reductions]
            )
            results = started.finish() if started else [[] for _ in reductions]
        for r, values in zip(reductions, results, strict=True):
            for t, value in zip(r.tensors, values, strict=True):
                t.copy_(value if scale == 1.0 else value * scale)
    return [r.tensors for r in reductions]


def reduce_gradients(
    optimizer: torch.optim.Optimizer, groups: Groups = None, pin_layout: bool = True
) -> None:
    """Averages the gradients of the optimizer's parameters over the replicas, in place.

    They go in buckets of about ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB (25) megabytes, the last
    parameters first, so that the first buckets travel while the rest of backward is computed.
    """
    gradients = fetch_gradients(optimizer)
    n = _c.check_groups(groups)
    if _world.current().size == 1 or not gradients:
        return
    _reduce_buckets(gradients, 1.0 / n, groups, 0, _which_have_gradients(optimizer))


def _which_have_gradients(optimizer: torch.optim.Optimizer) -> str:
    """Compared by the replicas: gradients of equal shapes may be of other parameters."""
    has = [p.grad is not None for group in optimizer.param_groups for p in group["params"]]
    if all(has):
        return ""
    missing = [str(i) for i, there in enumerate(has) if not there]
    return f"all parameters but {', '.join(missing)} of {len(has)}"


def all_reduce_bucketized_gradients(
    gradients: list[torch.Tensor],
    scale: float,
    groups: Groups,
    pin_layout: bool = True,
    bucket_cap_mb: float = 0,
) -> None:
    """``scale`` times the sum of the gradients over the replicas, in place and in buckets.

    Args:
        bucket_cap_mb: megabytes of a bucket; 0 is ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB, or 25.
    """
    _reduce_buckets(gradients, scale, groups, bucket_cap_mb, "")


def _reduce_buckets(
    gradients: list[torch.Tensor], scale: float, groups: Groups, bucket_cap_mb: float, label: str
) -> None:
    _c.check_tensors("all_reduce", gradients)
    _c.check_groups(groups)
    if not bucket_cap_mb:
        bucket_cap_mb = float(os.environ.get("ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB") or 25)
    if _world.current().size == 1:
        _all_reduce_lists([_Reduction("sum", gradients, groups)], scale)
        return
    buckets = _c.buckets(gradients, bucket_cap_mb)
    with torch.no_grad():
        started = [
            (b, _c.start_lists([("all_reduce", "sum", b, groups, 0)], label=label)) for b in buckets
        ]
        for bucket, s in started:
            assert s is not None
            for t, value in zip(bucket, s.finish()[0], strict=True):
                t.copy_(value * scale)


def fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The gradients that an optimizer would use."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return [p.grad for p in params if p.grad is not None]
