"""`xf`: collectives with gradients, and modules made of them.

The gradients follow one rule: the loss is the same on every replica and is counted once.
"""

from typing import Any

import torch

from .._src import collectives as _c
from . import xla_model as xm


class AllReduce(torch.autograd.Function):
    """See `all_reduce`."""

    @staticmethod
    def forward(
        ctx: Any,
        value: torch.Tensor,
        reduce_type: str,
        scale: float,
        groups: _c.Groups,
    ) -> torch.Tensor:
        ctx.reduce_type, ctx.scale, ctx.groups = reduce_type, scale, groups
        reduced: torch.Tensor = xm.all_reduce(reduce_type, value, 1.0, groups)
        if reduce_type in (xm.REDUCE_MIN, xm.REDUCE_MAX):
            ctx.save_for_backward(value, reduced)
        return reduced if scale == 1.0 else reduced * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if ctx.scale != 1.0:
            grad = grad * ctx.scale
        if ctx.reduce_type == xm.REDUCE_SUM:
            return grad, None, None, None
        if ctx.reduce_type in (xm.REDUCE_MIN, xm.REDUCE_MAX):
            value, reduced = ctx.saved_tensors
            mine = (value == reduced).to(grad.dtype)
            return (
                grad * mine / xm.all_reduce(xm.REDUCE_SUM, mine, 1.0, ctx.groups),
                None,
                None,
                None,
            )
        raise NotImplementedError(f"all_reduce('{ctx.reduce_type}') has no gradient")


class AllReduceSumLayer(torch.autograd.Function):
    """The sum over the replicas forward, and the sum of the gradients backward."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, groups: _c.Groups = None) -> torch.Tensor:
        ctx.groups = groups
        reduced: torch.Tensor = xm.all_reduce(xm.REDUCE_SUM, value, 1.0, groups)
        return reduced

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return xm.all_reduce(xm.REDUCE_SUM, grad, 1.0, ctx.groups), None


class AllGather(torch.autograd.Function):
    """See `all_gather`."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, dim: int, groups: _c.Groups = None) -> torch.Tensor:
        ctx.index = _c.index_in_group(groups)
        ctx.dim = _c.check_dim(dim, value)
        ctx.scalar = value.dim() == 0
        ctx.size = 1 if ctx.scalar else value.size(ctx.dim)
        gathered: torch.Tensor = xm.all_gather(value, dim, groups)
        return gathered

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # The position differs between the replicas: data, so that all run one program.
        at = torch.tensor(ctx.index * ctx.size).to(grad.device)
        mine = grad.index_select(ctx.dim, at + torch.arange(ctx.size, device=grad.device))
        return mine.reshape(()) if ctx.scalar else mine, None, None


def all_reduce(
    reduce_type: str, value: torch.Tensor, scale: float = 1.0, groups: xm.Groups = None
) -> torch.Tensor:
    """``y = scale * reduce(value of the replicas)`` with the gradient ``scale * grad(y)``.

    For REDUCE_MIN and REDUCE_MAX the gradient goes to the replicas that have the value, in equal
    parts. REDUCE_MUL, REDUCE_AND and REDUCE_OR have none.
    """
    result: torch.Tensor = AllReduce.apply(value, reduce_type, scale, groups)  # type: ignore[no-untyped-call]
    return result


def all_gather(value: torch.Tensor, dim: int = 0, groups: xm.Groups = None) -> torch.Tensor:
    """``y = cat(values of the replicas, dim)``; the gradient is this replica's slice of grad(y)."""
    result: torch.Tensor = AllGather.apply(value, dim, groups)  # type: ignore[no-untyped-call]
    return result


class _DistributedMm(torch.autograd.Function):
    """w[rows, k / n], x[k, columns] -> [rows, columns]; see `distributed_mm`."""

    @staticmethod
    def forward(ctx: Any, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        n = xm.xrt_world_size()
        mine = _DistributedMm._rows_of_all(x, w.size(1), n)
        ctx.save_for_backward(w, mine)
        ctx.n = n
        product: torch.Tensor = xm.reduce_scatter(xm.REDUCE_SUM, w.mm(mine), 1.0, 1, n)
        return product

    @staticmethod
    def _rows_of_all(x: torch.Tensor, rows: int, n: int) -> torch.Tensor:
        """The rows that belong to this replica's slice of the weight, of all replicas' x."""
        columns = x.size(1)
        exchanged = xm.all_to_all(x, 0, 0, n).view(n, rows, columns)
        return exchanged.movedim(0, 1).reshape(rows, n * columns)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w, mine = ctx.saved_tensors
        grads = xm.all_gather(grad, 1)
        back = w.t().mm(grads).view(w.size(1), ctx.n, grad.size(1)).movedim(1, 0)
        return grads.mm(mine.t()), xm.all_to_all(back.flatten(0, 1), 0, 0, ctx.n)


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """``y = cat(w of the replicas, 1) @ x``: a product with a weight that is cut over the replicas.

    Each replica has an x of its own, a batch in columns, and gets its own y. Gradients are those of
    the sum of all replicas' losses.

    Args:
        w: float[rows, k / n], this replica's slice of the weight; n is the number of replicas.
        x: float[k, columns].
        split: multiply so many slices of the columns one after the other, which takes less memory.

    Returns:
        float[rows, columns]

    Raises:
        ValueError: shapes that do not fit.
    """
    n = xm.xrt_world_size()
    if w.dim() != 2 or x.dim() != 2 or w.size(1) * n != x.size(0):
        raise ValueError(
            f"distributed_mm: the weight's shape {list(w.shape)} over {n} replicas does not fit "
            f"the input's shape {list(x.shape)}"
        )
    if split < 1 or x.size(1) % split:
        raise ValueError(
            f"distributed_mm: {x.size(1)} columns cannot be cut into {split} equal slices"
        )
    pieces = [_DistributedMm.apply(w, part) for part in x.chunk(split, 1)]  # type: ignore[no-untyped-call]
    return pieces[0] if split == 1 else torch.cat(pieces, 1)


class SyncBatchNorm(torch.nn.Module):
    """Batch normalisation over the batches of all replicas.

    Statistics are those of all replicas' batches together, which must have one size.

    Args:
        num_features: size of dimension 1 of the input.
        eps: added to the variance.
        momentum: weight of the new batch in the running statistics.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.running_mean: torch.Tensor
        self.running_var: torch.Tensor
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() < 2 or x.size(1) != self.num_features:
            raise ValueError(
                f"expected an input of {self.num_features} features, got shape {list(x.shape)}"
            )
        if self.training:
            mean, var = self._statistics(x)
        else:
            mean, var = self.running_mean, self.running_var
        shape = [1, -1] + [1] * (x.dim() - 2)
        scale = self.weight * (var + self.eps).rsqrt()
        return x * scale.view(shape) + (self.bias - mean * scale).view(shape)

    def _statistics(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dims = [d for d in range(x.dim()) if d != 1]
        n = x.numel() // self.num_features
        replicas = xm.xrt_world_size()
        # Each replica's input has a part in every replica's output: gradients add up. In two steps,
        # because the difference of two large numbers would be nothing but rounding errors.
        x = x.float()
        mean = AllReduceSumLayer.apply(x.mean(dims))  # type: ignore[no-untyped-call]
        mean = mean / replicas
        centred = x - mean.view([1, -1] + [1] * (x.dim() - 2))
        var = AllReduceSumLayer.apply((centred * centred).mean(dims))  # type: ignore[no-untyped-call]
        var = var / replicas
        with torch.no_grad():
            count = n * replicas
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(var.detach() * (count / max(count - 1, 1)), self.momentum)
        return mean, var
