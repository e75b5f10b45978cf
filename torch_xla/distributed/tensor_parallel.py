"""Layers whose weights are cut over the replicas, inside of a layer.

Each replica of a group holds a slice of every weight and computes with the same inputs; the slices'
results are put together by collectives. A module made under a seed holds slices of the weights that
the plain module would have under that seed, so all replicas have to use the same seed.

Gradients follow the rule of `torch_xla.core.functions`: the loss is the same on every replica and
is counted once. Each parameter's gradient is the slice of the plain module's gradient; parameters
that are not cut (`RowParallelLinear.bias`) get the whole gradient on every replica. Hence nothing
of these modules is to be reduced over their group again.

`groups` are lists of ordinals as for `xm.all_reduce`: with ``groups=[[0, 1], [2, 3]]`` layers are
cut in two, and the pairs are copies of each other for data parallelism.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._src import collectives as _c
from ..core import functions as xf
from ..core import xla_model as xm

Groups = _c.Groups


# --- the four moves between whole and cut tensors


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, groups: Groups) -> torch.Tensor:
        ctx.groups = groups
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return xm.all_reduce(xm.REDUCE_SUM, grad, groups=ctx.groups), None


class _ScatterToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, groups: Groups) -> torch.Tensor:
        ctx.dim, ctx.groups = dim, groups
        size = x.size(dim) // _c.check_groups(groups)
        # The place is data, so that all replicas run one program.
        first = torch.tensor(_c.index_in_group(groups) * size).to(x.device)
        return x.index_select(dim, first + torch.arange(size, device=x.device))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return xm.all_gather(grad, ctx.dim, ctx.groups), None, None


def copy_to_group(x: torch.Tensor, groups: Groups = None) -> torch.Tensor:
    """``y = x``, equal on all replicas, for work that they share; grad(x) = sum of grad(y)."""
    y: torch.Tensor = _CopyToGroup.apply(x, groups)  # type: ignore[no-untyped-call]
    return y


def reduce_from_group(x: torch.Tensor, groups: Groups = None) -> torch.Tensor:
    """``y = sum of x`` over the replicas; grad(x) = grad(y)."""
    return xf.all_reduce(xm.REDUCE_SUM, x, groups=groups)


def gather_from_group(x: torch.Tensor, dim: int = -1, groups: Groups = None) -> torch.Tensor:
    """``y = cat(x of the replicas, dim)``; grad(x) is this replica's slice of grad(y)."""
    return xf.all_gather(x, dim, groups)


def scatter_to_group(x: torch.Tensor, dim: int = -1, groups: Groups = None) -> torch.Tensor:
    """``y = this replica's slice of x``; grad(x) = cat(grad(y) of the replicas, dim).

    Raises:
        ValueError: the dimension cannot be cut into equal slices.
    """
    dim = _c.check_dim(dim, x)
    _cut(x.size(dim), f"dimension {dim} of {list(x.shape)}", groups)
    y: torch.Tensor = _ScatterToGroup.apply(x, dim, groups)  # type: ignore[no-untyped-call]
    return y


def _cut(size: int, what: str, groups: Groups) -> int:
    """Size of a slice."""
    n = _c.check_groups(groups)
    if size % n:
        raise ValueError(f"{what} ({size}) cannot be cut over {n} replicas in equal slices")
    return size // n


def _slice(t: torch.Tensor, dim: int, groups: Groups) -> nn.Parameter:
    n, index = _c.check_groups(groups), _c.index_in_group(groups)
    return nn.Parameter(t.detach().chunk(n, dim)[index].clone())


def _check_plain(module: nn.Module, **wanted: Any) -> None:
    """Raises ValueError for a plain module with options that its parallel form does not have."""
    for name, value in wanted.items():
        if getattr(module, name) != value:
            raise ValueError(
                f"{type(module).__name__} cannot be cut over replicas here unless its {name} is "
                f"{value!r}"
            )


class _Parallel(nn.Module):
    """A module with parameters that are slices; ``_dims`` has their dimensions."""

    _dims: dict[str, int]

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self.groups = groups
        self._dims = {}

    def _add_slice(self, name: str, whole: torch.Tensor | None, dim: int) -> None:
        if whole is None:
            self.register_parameter(name, None)
        else:
            self.register_parameter(name, _slice(whole, dim, self.groups))
            self._dims[name] = dim

    def _whole(self, name: str) -> torch.Tensor:
        """The parameter as the plain module has it."""
        slice_ = self.get_parameter(name).detach()
        whole: torch.Tensor = xm.all_gather(slice_, self._dims[name], self.groups)
        return whole


def full_state_dict(module: nn.Module) -> dict[str, torch.Tensor]:
    """The module's state with every slice put together again: the plain modules can load it.

    A collective: all replicas have to call it, and all get the result.
    """
    state = {name: t.detach() for name, t in module.state_dict().items()}
    for prefix, m in module.named_modules():
        if isinstance(m, _Parallel):
            for name in m._dims:
                state[f"{prefix}.{name}" if prefix else name] = m._whole(name)
    return state


# --- layers


class ColumnParallelLinear(_Parallel):
    """`torch.nn.Linear` with its output features cut: ``y_i = x @ weight_i.T + bias_i``.

    float[..., in_features] -> float[..., out_features], or with ``gather_output=False`` this
    replica's float[..., out_features / n].

    Args:
        gather_output: put the replicas' outputs together.
        linear: take the weights of this module, by default those of a new one.

    Raises:
        ValueError: `out_features` cannot be cut over the replicas of a group, or `linear` has
            other features.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gather_output: bool = True,
        groups: Groups = None,
        linear: nn.Linear | None = None,
    ) -> None:
        super().__init__(groups)
        _cut(out_features, "out_features", groups)
        linear = linear or nn.Linear(in_features, out_features, bias)
        _check_plain(linear, in_features=in_features, out_features=out_features)
        self.gather_output = gather_output
        self._add_slice("weight", linear.weight, 0)
        self._add_slice("bias", linear.bias, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(copy_to_group(x, self.groups), self.weight, self.bias)
        return gather_from_group(y, -1, self.groups) if self.gather_output else y


class RowParallelLinear(_Parallel):
    """`torch.nn.Linear` with its input features cut: ``y = sum of x_i @ weight_i.T, + bias``.

    float[..., in_features], or with ``input_is_parallel=True`` this replica's
    float[..., in_features / n], -> float[..., out_features].

    Args:
        input_is_parallel: the input is a slice, such as `ColumnParallelLinear` gives it with
            ``gather_output=False``.
        linear: take the weights of this module, by default those of a new one.

    Raises:
        ValueError: `in_features` cannot be cut over the replicas of a group, or `linear` has other
            features.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        input_is_parallel: bool = False,
        groups: Groups = None,
        linear: nn.Linear | None = None,
    ) -> None:
        super().__init__(groups)
        _cut(in_features, "in_features", groups)
        linear = linear or nn.Linear(in_features, out_features, bias)
        _check_plain(linear, in_features=in_features, out_features=out_features)
        self.input_is_parallel = input_is_parallel
        self._add_slice("weight", linear.weight, 1)
        has_bias = linear.bias is not None
        self.bias = nn.Parameter(linear.bias.detach().clone()) if has_bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.input_is_parallel:
            x = scatter_to_group(x, -1, self.groups)
        y = reduce_from_group(F.linear(x, self.weight), self.groups)
        return y if self.bias is None else y + self.bias


class VocabParallelEmbedding(_Parallel):
    """`torch.nn.Embedding` with its rows cut: ``y = sum of weight_i[x] where x is in slice i``.

    int64[...] of numbers in [0, num_embeddings) -> float[..., embedding_dim]. As everywhere on the
    device, a number out of range raises nothing; its row is zeros.

    Args:
        embedding: take the weights and the `padding_idx`, whose row gets no gradient, of this
            module; by default those of a new one.

    Raises:
        ValueError: `num_embeddings` cannot be cut over the replicas of a group, or `embedding` has
            other sizes, a `max_norm`, `scale_grad_by_freq` or `sparse`.
    """

    weight: nn.Parameter
    first: torch.Tensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        groups: Groups = None,
        embedding: nn.Embedding | None = None,
    ) -> None:
        super().__init__(groups)
        self.rows = _cut(num_embeddings, "num_embeddings", groups)
        embedding = embedding or nn.Embedding(num_embeddings, embedding_dim)
        _check_plain(
            embedding,
            num_embeddings=num_embeddings,
            embedding_dim=embedding_dim,
            max_norm=None,
            scale_grad_by_freq=False,
            sparse=False,
        )
        self.padding_idx = embedding.padding_idx
        self._add_slice("weight", embedding.weight, 0)
        first = torch.tensor(_c.index_in_group(groups) * self.rows)
        self.register_buffer("first", first, persistent=False)  # data: one program on all replicas

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        local = x - self.first
        mine = (local >= 0) & (local < self.rows)
        y = F.embedding(local.clamp(0, self.rows - 1), self.weight)
        if self.padding_idx is not None:
            y = torch.where((x == self.padding_idx).unsqueeze(-1), y.detach(), y)
        return reduce_from_group(y.masked_fill(~mine.unsqueeze(-1), 0), self.groups)


class ParallelSelfAttention(_Parallel):
    """Self-attention with its heads cut: `torch.nn.MultiheadAttention` of one input, batch first.

    float[batch, time, embed_dim] -> the same. One all-reduce forward, one backward.

    Args:
        attention: take the weights of this module, by default those of a new one.

    Raises:
        ValueError: `num_heads` cannot be cut over the replicas of a group, or `attention` has
            other sizes, is not batch first, or has dropout, `bias_k` or `add_zero_attn`.
    """

    in_proj_weight: nn.Parameter
    in_proj_bias: nn.Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        groups: Groups = None,
        attention: nn.MultiheadAttention | None = None,
    ) -> None:
        super().__init__(groups)
        self.heads = _cut(num_heads, "num_heads", groups)
        whole = attention or nn.MultiheadAttention(
            embed_dim, num_heads, bias=bias, batch_first=True
        )
        _check_plain(
            whole,
            embed_dim=embed_dim,
            num_heads=num_heads,
            kdim=embed_dim,
            vdim=embed_dim,
            dropout=0.0,
            batch_first=True,
            bias_k=None,
            add_zero_attn=False,
        )
        self.head_dim = embed_dim // num_heads
        # [3, features of all heads, ...]: the heads are cut, not query, key and value.
        weight, bias_ = whole.in_proj_weight, whole.in_proj_bias
        self._add_slice("in_proj_weight", weight.view(3, embed_dim, embed_dim), 1)
        self._add_slice("in_proj_bias", None if bias_ is None else bias_.view(3, embed_dim), 1)
        self.out_proj = RowParallelLinear(
            embed_dim, embed_dim, bias, input_is_parallel=True, groups=groups, linear=whole.out_proj
        )

    def _whole(self, name: str) -> torch.Tensor:
        return super()._whole(name).flatten(0, 1)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, is_causal: bool = False
    ) -> torch.Tensor:
        """`mask`: bool, true where a query may look, or float to be added; [..., time, time]."""
        n, t, _ = x.shape
        weight = self.in_proj_weight.flatten(0, 1)
        bias = None if self.in_proj_bias is None else self.in_proj_bias.flatten()
        qkv = F.linear(copy_to_group(x, self.groups), weight, bias)
        q, k, v = qkv.view(n, t, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        mixed: torch.Tensor = self.out_proj(y.transpose(1, 2).reshape(n, t, -1))
        return mixed


# --- loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, first: torch.Tensor, groups: Groups
    ) -> torch.Tensor:
        x = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        x = x - xm.all_reduce(xm.REDUCE_MAX, x.amax(-1), groups=groups).unsqueeze(-1)
        local = target - first
        mine = (local >= 0) & (local < x.size(-1))
        local = local.clamp(0, x.size(-1) - 1)
        exp = x.exp()
        total = exp.sum(-1)
        # Not by a product: a logit may be -inf.
        chosen = x.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(~mine, 0)
        xm.all_reduce(xm.REDUCE_SUM, [total, chosen], groups=groups)
        ctx.dtype = logits.dtype
        ctx.save_for_backward(exp / total.unsqueeze(-1), local, mine)
        losses: torch.Tensor = total.log() - chosen
        return losses

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        softmax, local, mine = ctx.saved_tensors
        ones = mine.to(softmax.dtype).unsqueeze(-1)
        one_hot = torch.zeros_like(softmax).scatter(-1, local.unsqueeze(-1), ones)
        return ((softmax - one_hot) * grad.unsqueeze(-1)).to(ctx.dtype), None, None, None


def vocab_parallel_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    groups: Groups = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of logits whose last dimension, the classes, is cut over the replicas.

    ``loss = log(sum over all classes of exp(logits)) - logits[target]``, without ever putting the
    logits together.

    Args:
        logits: float[..., classes / n], this replica's slice.
        target: int64[...] in [0, classes), equal on all replicas.
        ignore_index: targets that do not count.
        reduction: ``"mean"`` over what counts (float[]), ``"sum"`` (float[]) or ``"none"``
            (float[...]); float32 for 16-bit logits, else the logits' dtype.

    Raises:
        ValueError: shapes that do not fit, or another `reduction`.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction '{reduction}' is none of mean, sum, none")
    if logits.shape[:-1] != target.shape:
        raise ValueError(
            f"expected a target of shape {list(logits.shape[:-1])} for logits of shape "
            f"{list(logits.shape)}, got {list(target.shape)}"
        )
    _c.check_groups(groups)
    first = torch.tensor(_c.index_in_group(groups) * logits.size(-1)).to(logits.device)
    counts = target != ignore_index
    kept = target.masked_fill(~counts, 0)
    losses: torch.Tensor = _CrossEntropy.apply(logits, kept, first, groups)  # type: ignore[no-untyped-call]
    losses = losses.masked_fill(~counts, 0)  # not by a product: it may be infinite
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()
