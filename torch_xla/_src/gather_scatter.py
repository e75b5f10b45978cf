"""`xm.all_gather` and `xm.reduce_scatter`: of a tensor, of lists, and of lists in buckets."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import collectives as _c
from . import world as _world

Groups = _c.Groups
MB = 2**20


def all_gather(
    value: torch.Tensor | list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: torch.Tensor | list[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """The replicas' values concatenated along `dim`, without a gradient; 0-d ones stacked."""
    return _all_gather(value, dim, groups, output, None)


def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
    bucket_cap_mb: float = 160,
) -> list[torch.Tensor]:
    """`all_gather` of a list in buckets, of which each starts as soon as its tensors are computed.

    Args:
        bucket_cap_mb: megabytes of inputs in a bucket.
    """
    results: list[torch.Tensor] = _all_gather(input_list, dim, groups, output, bucket_cap_mb)
    return results


def reduce_scatter(
    reduce_type: str,
    input: torch.Tensor | list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: torch.Tensor | list[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """``scale * reduce(input of the replicas)``, of which each replica keeps one slice.

    Args:
        scatter_dim: the dimension that is cut into `shard_count` slices.
        shard_count: the number of replicas in a group.
    """
    return _reduce_scatter(
        reduce_type, input, scale, scatter_dim, shard_count, groups, output, None
    )


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
    bucket_cap_mb: float = 160,
) -> list[torch.Tensor]:
    """`reduce_scatter` of a list in buckets, of which each starts as soon as its tensors are there.

    Args:
        bucket_cap_mb: megabytes of inputs in a bucket.
    """
    results: list[torch.Tensor] = _reduce_scatter(
        reduce_type, input_list, scale, scatter_dim, shard_count, groups, output, bucket_cap_mb
    )
    return results


def _all_gather(
    value: torch.Tensor | list[torch.Tensor],
    dim: int,
    groups: Groups,
    output: torch.Tensor | list[torch.Tensor] | None,
    cap_mb: float | None,
) -> Any:
    values = _as_list(value)
    _c.check_tensors("all_gather", values)
    _c.check_groups(groups)
    dims = [_c.check_dim(dim, t) for t in values]
    if _world.current().size == 1:
        results = [t.detach().clone() if t.dim() else t.detach().reshape(1).clone() for t in values]
    else:
        stacked = _run_in_buckets(
            values, cap_mb, lambda t: _c.Part("all_gather", [t], groups=groups)
        )
        results = [
            r.movedim(0, d).flatten(d, d + 1) if r.dim() > 1 else r
            for r, d in zip(stacked, dims, strict=True)
        ]
    return _give(value, results, output)


def _reduce_scatter(
    reduce_type: str,
    input: torch.Tensor | list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups,
    output: torch.Tensor | list[torch.Tensor] | None,
    cap_mb: float | None,
) -> Any:
    inputs = _as_list(input)
    _c.check_tensors("reduce_scatter", inputs)
    _c.check_reduce("reduce_scatter", reduce_type, inputs)
    n = _c.check_groups(groups)
    rows = []
    for t in inputs:
        dim = _c.check_split("reduce_scatter", "shard_count", shard_count, n, t, scatter_dim)
        rows.append(_c.cut(t.detach(), dim, n))
    if _world.current().size == 1:
        results = [r[0].clone() for r in rows]
    else:
        results = _run_in_buckets(
            rows, cap_mb, lambda r: _c.Part("reduce_scatter", [r], reduce_type, groups)
        )
    return _give(input, [r if scale == 1.0 else r * scale for r in results], output)


def _run_in_buckets(
    tensors: Sequence[torch.Tensor],
    cap_mb: float | None,
    part: Callable[[torch.Tensor], _c.Part],
) -> list[torch.Tensor]:
    """A result per tensor; all buckets start before the first ends. Without a cap there is one."""
    buckets: list[list[_c.Part]] = []
    room = 0.0
    for t in tensors:
        if not buckets or (cap_mb is not None and room <= 0):
            buckets.append([])
            room = (cap_mb or 0) * MB
        buckets[-1].append(part(t))
        room -= t.numel() * t.element_size()
    started = [_c.start(b) for b in buckets]
    return [r for s in started for r in s.finish()]


def _as_list(value: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _give(
    given: torch.Tensor | list[torch.Tensor],
    results: list[torch.Tensor],
    output: torch.Tensor | list[torch.Tensor] | None,
) -> Any:
    """The results as they were asked for: one or a list, in `output` where there is one."""
    if output is not None:
        outputs = _as_list(output)
        if isinstance(given, torch.Tensor) != isinstance(output, torch.Tensor):
            raise TypeError("output must be a tensor for a tensor, and a list for a list")
        if len(outputs) != len(results):
            raise ValueError(f"{len(outputs)} output tensors for {len(results)} results")
        with torch.no_grad():
            for o, r in zip(outputs, results, strict=True):
                if o.shape != r.shape:
                    raise ValueError(
                        f"output has shape {list(o.shape)}, the result {list(r.shape)}"
                    )
                o.copy_(r)
        return output
    return results[0] if isinstance(given, torch.Tensor) else results
