"""Sparse tensors: what PyTorch computes with those of the CPU, in values, layout and gradients."""

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch_xla.debug import metrics

from .oracle import DEVICE, TOLERANCE, host_runs

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

LAYOUTS = ("csr", "csc", "bsr", "bsc")


def dense(rows: int = 4, columns: int = 6, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * 7 + columns)
    x = torch.randn(rows, columns, generator=generator) * 3
    x[torch.rand(rows, columns, generator=generator) < 0.6] = 0
    return x.to(dtype)


def uncoalesced(device: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Of 4 x 6, with elements that occur twice and out of order."""
    i = torch.tensor([[3, 0, 1, 3, 0, 2], [5, 1, 1, 5, 0, 4]], device=device)
    v = torch.tensor([1.5, -2, 0.25, 4, 3, -1], device=device).to(dtype)
    return torch.sparse_coo_tensor(i, v, (4, 6))


def hybrid(device: Any) -> torch.Tensor:
    i = torch.tensor([[2, 0, 2], [0, 1, 0]], device=device)
    v = torch.arange(6.0, device=device).reshape(3, 2) - 2
    return torch.sparse_coo_tensor(i, v, (3, 2, 2))


def compressed(layout: str, device: Any, x: torch.Tensor | None = None) -> torch.Tensor:
    x = dense() if x is None else x
    block = ((2, 2),) if layout[0] == "b" else ()
    return getattr(x, f"to_sparse_{layout}")(*block).to(device)  # type: ignore[no-any-return]


def narrow(device: Any) -> torch.Tensor:
    """CSR with int32 indices."""
    starts, columns = (torch.tensor(i, dtype=torch.int32) for i in ([0, 1, 3], [1, 0, 1]))
    return torch.sparse_csr_tensor(starts, columns, torch.tensor([2.0, 3, 4]), (2, 2)).to(device)


def plain(t: Any) -> Any:
    """A result as dense CPU tensors and what names its form."""
    if not isinstance(t, torch.Tensor):
        return t
    t = t.detach()
    form = [str(t.layout), t.dtype, tuple(t.shape)]
    if t.layout == torch.sparse_coo:
        form += [t.sparse_dim(), t.dense_dim(), t.is_coalesced()]
    t = t.cpu()
    if t.layout == torch.strided:
        return form, t
    if t.layout == torch.sparse_coo:
        members = [t.coalesce().indices(), t.coalesce().values()]
    elif t.layout in (torch.sparse_csr, torch.sparse_bsr):
        members = [t.crow_indices(), t.col_indices(), t.values()]
    else:
        members = [t.ccol_indices(), t.row_indices(), t.values()]
    return form, *members


def same(fn: Callable[[Any], Any], **tolerance: float) -> None:
    """fn(device) gives the same on both devices, its tensors on the device that it was given."""
    got, want = fn(DEVICE), fn(torch.device("cpu"))
    for g in tree_leaves(got):
        if isinstance(g, torch.Tensor):
            assert g.device == DEVICE
    got = tree_leaves([plain(t) for t in tree_leaves(got)])
    want = tree_leaves([plain(t) for t in tree_leaves(want)])
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor):
            t = TOLERANCE.get(w.dtype, {"rtol": 0, "atol": 0}) | tolerance
            torch.testing.assert_close(g, w, equal_nan=True, **t)
        else:
            assert g == w


FORMS = {
    "to_dense": lambda d: (uncoalesced(d).to_dense(), hybrid(d).to_dense()),
    "coalesce": lambda d: (uncoalesced(d).coalesce(), hybrid(d).coalesce()),
    "to_sparse": lambda d: dense().to(d).to_sparse(),
    "to_sparse dim": lambda d: [dense().to(d).to_sparse(n) for n in (1, 2)],
    "to_sparse none": lambda d: (torch.zeros(2, 3, device=d).to_sparse(),),
    "to_sparse empty": lambda d: torch.empty(0, 3, device=d).to_sparse(),
    "to_sparse number": lambda d: torch.tensor(3.0, device=d).to_sparse(),
    "to_sparse layouts": lambda d: [
        dense().to(d).to_sparse(layout=at, **({"blocksize": (2, 3)} if "bs" in str(at) else {}))
        for at in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
    ],
    "to_sparse of sparse": lambda d: (uncoalesced(d).to_sparse(), compressed("csr", d).to_sparse()),
    "dtypes": lambda d: [
        uncoalesced(d).to(t) for t in (torch.float64, torch.bfloat16, torch.int64, torch.complex64)
    ],
    "transpose": lambda d: (uncoalesced(d).t(), hybrid(d).transpose(0, 1)),
    "permute": lambda d: hybrid(d).permute(1, 0, 2),
    "unsqueeze": lambda d: [hybrid(d).unsqueeze(k) for k in range(4)],
    "narrow_copy": lambda d: uncoalesced(d).narrow_copy(1, 1, 4),
    "select": lambda d: (uncoalesced(d).select(0, 3), uncoalesced(d)[0], hybrid(d)[2, 0]),
    "index_select": lambda d: uncoalesced(d).index_select(0, torch.tensor([3, 0, 3], device=d)),
    "cat": lambda d: (
        torch.cat([uncoalesced(d), uncoalesced(d)]),
        torch.cat([uncoalesced(d), uncoalesced(d)], 1),
        torch.cat([hybrid(d), hybrid(d)], 2),
    ),
    "stack": lambda d: torch.stack([uncoalesced(d), uncoalesced(d)]),
    "broadcast": lambda d: torch.ops.aten._sparse_broadcast_to(uncoalesced(d), (2, 4, 6)),
    "clone": lambda d: (uncoalesced(d).clone(), uncoalesced(d).coalesce().clone()),
    "like": lambda d: (
        torch.zeros_like(uncoalesced(d)),
        torch.empty_like(hybrid(d)),
        uncoalesced(d).new_zeros(2, 3),
    ),
    "zeros": lambda d: (
        torch.zeros(2, 3, layout=torch.sparse_coo, device=d),
        torch.empty(0, 3, layout=torch.sparse_coo, device=d),
    ),
    "bools": lambda d: uncoalesced(d, torch.bool).coalesce(),
    "mask": lambda d: (
        dense().to(d).sparse_mask(uncoalesced(d).coalesce()),
        dense().to(d).sparse_mask(compressed("csr", d, dense() * dense().gt(1))),
        dense().to(d).sparse_mask(compressed("bsr", d)),
        uncoalesced(d).coalesce().sparse_mask(dense().to(d).to_sparse()),
    ),
    "complex": lambda d: (
        torch.view_as_real(uncoalesced(d, torch.complex64)),
        uncoalesced(d, torch.complex64).conj().to_dense(),
    ),
    "no sparse dims": lambda d: torch.sparse_coo_tensor(
        torch.zeros(0, 3, dtype=torch.int64, device=d), torch.ones(3, device=d), ()
    ).coalesce(),
    "resize": lambda d: (
        uncoalesced(d).sparse_resize_((5, 7), 2, 0),
        uncoalesced(d).sparse_resize_and_clear_((5, 7), 2, 0),
    ),
}

ARITHMETIC = {
    "add": lambda d: (uncoalesced(d) + uncoalesced(d)).coalesce(),
    "add coalesced": lambda d: uncoalesced(d).coalesce() + dense().to(d).to_sparse(),
    "add alpha": lambda d: torch.add(uncoalesced(d), uncoalesced(d), alpha=-0.5).coalesce(),
    "add none": lambda d: uncoalesced(d) + torch.zeros(4, 6, layout=torch.sparse_coo, device=d),
    "add types": lambda d: (uncoalesced(d, torch.int64) + uncoalesced(d)).coalesce(),
    "sub": lambda d: (uncoalesced(d) - uncoalesced(d)).coalesce(),
    "dense add": lambda d: dense().to(d) + uncoalesced(d),
    "dense add hybrid": lambda d: torch.ones(3, 2, 2, device=d) + hybrid(d),
    "dense add types": lambda d: torch.ones(4, 6, dtype=torch.int64, device=d) + uncoalesced(d),
    "dense add_": lambda d: dense().to(d).add_(uncoalesced(d), alpha=2),
    "dense sub_": lambda d: dense().to(d).sub_(uncoalesced(d)),
    "add_": lambda d: uncoalesced(d).add_(uncoalesced(d)).coalesce(),
    "add out": lambda d: torch.add(
        dense().to(d), uncoalesced(d), out=torch.empty(0, dtype=torch.float64, device=d)
    ),
    "mul number": lambda d: (uncoalesced(d) * 2, 2 * uncoalesced(d), uncoalesced(d) * True),
    "mul number types": lambda d: (
        uncoalesced(d, torch.int64) * 2.5,
        uncoalesced(d) * torch.tensor(2.0, dtype=torch.float64, device=d),
        uncoalesced(d) * torch.tensor(2.0, dtype=torch.float64),
    ),
    "mul dense": lambda d: (uncoalesced(d) * dense().to(d), dense().to(d) * uncoalesced(d)),
    "mul dense hybrid": lambda d: hybrid(d) * torch.arange(12.0, device=d).reshape(3, 2, 2),
    "mul dense broadcast": lambda d: uncoalesced(d) * dense(1).to(d),
    "mul sparse": lambda d: uncoalesced(d).coalesce() * dense().to(d).to_sparse(),
    "mul_": lambda d: (uncoalesced(d).mul_(3), uncoalesced(d).mul_(dense().to(d))),
    "mul_ dense": lambda d: dense().to(d).mul_(uncoalesced(d)),
    "div": lambda d: (uncoalesced(d) / 4, uncoalesced(d).div(2, rounding_mode="floor")),
    "floor_divide": lambda d: uncoalesced(d) // 2,
    "pow": lambda d: uncoalesced(d).pow(2),
    "unary": lambda d: [
        getattr(torch, name)(uncoalesced(d))
        for name in [
            "abs",
            "asinh",
            "atan",
            "ceil",
            "deg2rad",
            "erf",
            "expm1",
            "floor",
            "frac",
            "isinf",
            "isnan",
            "nan_to_num",
            "neg",
            "rad2deg",
            "relu",
            "round",
            "sgn",
            "sign",
            "signbit",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
            "positive",
        ]
    ],
    "unary_": lambda d: [
        getattr(uncoalesced(d).coalesce(), name + "_")()
        for name in ["abs", "neg", "sin", "sqrt", "relu"]
    ],
    "unary of ints": lambda d: (torch.sin(uncoalesced(d, torch.int64)), -uncoalesced(d).int()),
    "sum": lambda d: (
        uncoalesced(d).sum(),
        torch.sparse.sum(uncoalesced(d), 0),
        torch.sparse.sum(hybrid(d), (0, 2)),
        torch.sparse.sum(uncoalesced(d), dtype=torch.float64),
        uncoalesced(d).sum(1, keepdim=True),
    ),
    "norm": lambda d: (uncoalesced(d).norm(), torch.norm(uncoalesced(d), 1)),
    "any": lambda d: uncoalesced(d, torch.bool).any(),
    "softmax": lambda d: (
        torch.sparse.softmax(uncoalesced(d), 1),
        torch.sparse.log_softmax(uncoalesced(d), 0),
    ),
    "zero_": lambda d: uncoalesced(d).zero_(),
    "copy_": lambda d: torch.zeros(4, 6, layout=torch.sparse_coo, device=d).copy_(uncoalesced(d)),
    "copy_ across": lambda d: torch.zeros(4, 6, layout=torch.sparse_coo, device=d).copy_(
        uncoalesced("cpu")
    ),
}


def matrices(d: Any, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [
        uncoalesced(d, dtype),
        *[compressed(at, d, dense(dtype=dtype)) for at in LAYOUTS],
    ]


MATRICES = {
    "mm": lambda d: [m @ dense(6, 3).to(d) for m in matrices(d)[:4]],
    "mm right": lambda d: [dense(3, 4).to(d) @ m for m in matrices(d)[:3]],
    "mm double": lambda d: [
        m @ dense(6, 3, torch.float64).to(d) for m in matrices(d, torch.float64)[:4]
    ],
    "mm blocks": lambda d: compressed("bsr", d) @ dense(6, 3).to(d),
    "mm complex": lambda d: uncoalesced(d, torch.complex64) @ dense(6, 3, torch.complex64).to(d),
    "mm sparse": lambda d: (
        (uncoalesced(d) @ uncoalesced(d).t()).to_dense(),
        (compressed("csr", d) @ compressed("csr", d).t()).to_dense(),
    ),
    "sparse.mm": lambda d: torch.sparse.mm(uncoalesced(d), dense(6, 3).to(d)),
    "sparse.mm reduce": lambda d: [
        torch.sparse.mm(compressed("csr", d), dense(6, 3).to(d), how)
        for how in ("sum", "mean", "amax", "amin")
    ],
    "mv": lambda d: [m.mv(dense(1, 6)[0].to(d)) for m in matrices(d)[:2]],
    "matmul vector": lambda d: uncoalesced(d) @ dense(1, 6)[0].to(d),
    "addmm": lambda d: [
        torch.addmm(dense(4, 3).to(d), m, dense(6, 3).to(d), beta=0.5, alpha=-2)
        for m in matrices(d)[:3]
    ],
    "addmm row": lambda d: torch.addmm(dense(1, 3)[0].to(d), uncoalesced(d), dense(6, 3).to(d)),
    "addmm beta 0": lambda d: torch.sparse.addmm(
        torch.full((4, 3), torch.nan, device=d), uncoalesced(d), dense(6, 3).to(d), beta=0
    ),
    "halves": lambda d: uncoalesced(d, torch.bfloat16) @ dense(6, 3, torch.bfloat16).to(d),
    "addmm_": lambda d: dense(4, 3).to(d).addmm_(uncoalesced(d), dense(6, 3).to(d)),
    "smm": lambda d: torch.smm(uncoalesced(d).coalesce(), dense(6, 3).to(d)),
    "sspaddmm": lambda d: torch.sspaddmm(
        dense(4, 3).to(d).to_sparse(), uncoalesced(d).coalesce(), dense(6, 3).to(d)
    ),
    "bmm": lambda d: torch.bmm(
        torch.stack([uncoalesced(d), uncoalesced(d)]), torch.ones(2, 6, 3, device=d)
    ),
    "hspmm": lambda d: torch.hspmm(uncoalesced(d).coalesce(), dense(6, 3).to(d)),
    "sampled": lambda d: torch.sparse.sampled_addmm(
        compressed("csr", d), dense(4, 5).to(d), dense(5, 6).to(d), beta=0.5, alpha=3
    ),
    "no elements": lambda d: (
        torch.zeros(4, 6, layout=torch.sparse_coo, device=d) @ dense(6, 3).to(d),
        compressed("csr", d, torch.zeros(4, 6)) @ dense(6, 3).to(d),
    ),
    "triangular": lambda d: (
        torch.triangular_solve(
            torch.ones(3, 2, device=d), compressed("csr", d, torch.ones(3, 3).tril()), upper=False
        ).solution
    ),
}

COMPRESSED = {
    "constructors": lambda d: (
        torch.sparse_csr_tensor([0, 1, 3], [2, 0, 1], [1.0, 2, 3], (2, 4), device=d),
        torch.sparse_csc_tensor([0, 1, 3], [1, 0, 1], [1.0, 2, 3], (2, 2), device=d),
        torch.sparse_csr_tensor([0, 1, 3], [2, 0, 1], [1.0, 2, 3], device=d),
        torch.sparse_bsr_tensor([0, 1], [0], [[[1.0, 2], [3, 4]]], (2, 2), device=d),
        torch.sparse_compressed_tensor(
            torch.tensor([0, 1], device=d),
            torch.tensor([0], device=d),
            torch.ones(1, dtype=torch.float64, device=d),
            (1, 1),
            layout=torch.sparse_csr,
        ),
    ),
    "to": lambda d: [compressed(at, d) for at in LAYOUTS],
    "dtypes": lambda d: [compressed(at, d).to(torch.float64) for at in LAYOUTS],
    "to_dense": lambda d: [compressed(at, d).to_dense() for at in LAYOUTS],
    "from dense": lambda d: [
        dense().to(d).to_sparse_csr(),
        dense().to(d).to_sparse_csc(),
        dense().to(d).to_sparse_bsr((2, 3)),
        dense().to(d).to_sparse_bsc((2, 3)),
    ],
    "from coo": lambda d: (uncoalesced(d).to_sparse_csr(), uncoalesced(d).to_sparse_csc()),
    "to coo": lambda d: [compressed(at, d).to_sparse() for at in LAYOUTS],
    "between": lambda d: (
        compressed("csr", d).to_sparse_csc(),
        compressed("csc", d).to_sparse_csr(),
    ),
    "transpose": lambda d: [compressed(at, d).t() for at in LAYOUTS],
    "clone": lambda d: [compressed(at, d).clone() for at in LAYOUTS],
    "zeros_like": lambda d: torch.zeros_like(compressed("csr", d)),
    "zeros": lambda d: torch.zeros(2, 3, layout=torch.sparse_csr, device=d),
    "empty": lambda d: torch.empty(2, 3, layout=torch.sparse_csr, device=d).shape,
    "unary": lambda d: [
        getattr(torch, name)(compressed("csr", d))
        for name in ["abs", "neg", "sin", "sqrt", "sign", "relu"]
    ],
    "add": lambda d: (
        compressed("csr", d) + compressed("csr", d),
        dense().to(d) + compressed("csr", d),
    ),
    "mul": lambda d: (compressed("csr", d) * 2, compressed("csr", d) * compressed("csr", d)),
    "mul_": lambda d: compressed("csr", d).mul_(2),
    "sum": lambda d: (compressed("csr", d).sum(), compressed("csr", d).sum(0, keepdim=True)),
    "select": lambda d: compressed("csr", d)[1],
    "forms and back": lambda d: (
        dense(5, 3).to(d).to_sparse_csc().to_sparse_csr().to_sparse(),
        dense(5, 3).to(d).to_sparse().to_sparse_csc().to_dense(),
        torch.zeros(3, 0, device=d).to_sparse_csr(),
        torch.ones(2, 3, 2, device=d).to_sparse_csr(dense_dim=1),
    ),
    "copy_": lambda d: compressed("csr", d).copy_(compressed("csr", d) * 3),
    "values": lambda d: (compressed("csr", d).values(), compressed("bsc", d).row_indices()),
    "batch": lambda d: torch.stack([torch.eye(2), torch.eye(2)]).to(d).to_sparse_csr(),
    "batches in place": lambda d: [
        getattr(torch.stack([torch.eye(2), torch.eye(2)]).to_sparse_csr().to(d), name)(2)
        for name in ("mul_", "fill_")
    ],
    "int32": lambda d: (
        dense(2, 2).to(d).sparse_mask(narrow(d)),
        torch.sparse.sampled_addmm(narrow(d), dense(2, 5).to(d), dense(5, 2).to(d)),
        narrow(d) @ dense(2, 3).to(d),
        narrow(d).to_sparse_csc(),
        narrow(d).to(torch.float64),
    ),
    "indices": lambda d: (
        torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 2, 3], device=d), 5),
        torch._convert_indices_from_csr_to_coo(
            torch.tensor([0, 2, 2, 3], device=d), torch.tensor([1, 0, 2], device=d)
        ),
        torch._convert_indices_from_csr_to_coo(
            torch.tensor([0, 2, 2, 3], device=d),
            torch.tensor([1, 0, 2], device=d),
            out_int32=True,
            transpose=True,
        ),
    ),
}

ALL = {
    f"{group} {name}": fn
    for group, table in (
        ("form", FORMS),
        ("arithmetic", ARITHMETIC),
        ("matrix", MATRICES),
        ("compressed", COMPRESSED),
    )
    for name, fn in table.items()
}


@pytest.mark.parametrize("name", ALL)
def test_same(name):
    same(ALL[name])


def grads(d: Any, fn: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [t.to(d).requires_grad_() for t in inputs]
    out = fn(*leaves)
    out = out.to_dense() if out.layout != torch.strided else out
    (out * torch.arange(float(out.numel()), device=d).reshape(out.shape)).sum().backward()
    return [t.grad for t in leaves]  # type: ignore[misc]


GRADIENTS = {
    "values": lambda: (
        lambda v: torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], v, (2, 3), device=v.device),
        torch.tensor([1.0, 2, 3]),
    ),
    "to_sparse": lambda: (lambda x: x.to_sparse(), dense()),
    "to_dense": lambda: (lambda s: s.to_dense(), uncoalesced("cpu").coalesce()),
    "mm": lambda: (torch.sparse.mm, uncoalesced("cpu").coalesce(), dense(6, 3)),
    "mm csr": lambda: (torch.mm, compressed("csr", "cpu"), dense(6, 3)),
    "addmm": lambda: (torch.sparse.addmm, dense(4, 3), uncoalesced("cpu").coalesce(), dense(6, 3)),
    "sum": lambda: (lambda s: torch.sparse.sum(s, 0), uncoalesced("cpu").coalesce()),
    "softmax": lambda: (lambda s: torch.sparse.softmax(s, 1), uncoalesced("cpu").coalesce()),
    "mul": lambda: (lambda s, x: s * x, uncoalesced("cpu").coalesce(), dense() + 1),
    "add": lambda: (lambda x, s: x + s, dense(), uncoalesced("cpu").coalesce()),
    "neg": lambda: (torch.neg, uncoalesced("cpu").coalesce()),
    "sampled": lambda: (
        torch.sparse.sampled_addmm,
        compressed("csr", "cpu"),
        dense(4, 5),
        dense(5, 6),
    ),
    **{
        f"reduce {how}": lambda how=how: (
            lambda s, x: torch.sparse.mm(s, x, how),
            compressed("csr", "cpu"),
            dense(6, 3),
        )
        for how in ("sum", "mean", "amax", "amin")
    },
    "reduce ties, NaN, empty rows": lambda: (
        lambda s, x: torch.sparse.mm(s, x, "amax"),
        torch.sparse_csr_tensor([0, 3, 3, 5], [0, 1, 2, 0, 2], torch.ones(5), (3, 3)),
        torch.tensor([[1.0, torch.nan], [2, 1], [2, 1]]),
    ),
    "reduce NaN and infinities": lambda: (
        lambda s, x: torch.sparse.mm(s, x, "amax"),
        torch.sparse_csr_tensor(
            [0, 1, 3, 3], [0, 0, 2], torch.tensor([1.0, torch.nan, torch.inf]), (3, 3)
        ),
        torch.tensor([[1.0, 0], [torch.nan, 1], [0, 1]]),
    ),
    "reduce nothing": lambda: (
        lambda s, x: torch.sparse.mm(s, x, "amin"),
        torch.zeros(3, 2).to_sparse_csr(),
        torch.ones(2, 2),
    ),
    "coalesce": lambda: (lambda s: s.coalesce(), uncoalesced("cpu")),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    same(lambda d: grads(d, *GRADIENTS[name]()))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), 0.1),
}


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_embeddings_train(name, kind):
    def train(d: Any) -> Any:
        torch.manual_seed(0)
        table = kind(7, 3, sparse=True).to(d)
        optimizer = OPTIMIZERS[name](table.parameters())
        for step in range(3):
            optimizer.zero_grad()
            index = torch.tensor([[1, 2, 1], [step, 4, 6]], device=d)
            (table(index) + table(index + 0)).pow(2).sum().backward()
            optimizer.step()
        return table.weight, table.weight.grad

    same(train)


def test_training_a_sparse_embedding_waits_for_nothing():
    """A step of SGD is recorded whole: no operator on the host, nothing executed before the end."""
    table = nn.Embedding(7, 3, sparse=True).to(DEVICE)
    optimizer = torch.optim.SGD(table.parameters(), 0.1)
    torch_xla.sync()
    before = host_runs(), metrics.metric_data("ExecuteTime")[0]
    table(torch.tensor([1, 2, 1], device=DEVICE)).pow(2).sum().backward()
    optimizer.step()
    assert (host_runs(), metrics.metric_data("ExecuteTime")[0]) == before


def test_sums_do_not_grow_without_end():
    """Gradients of many backward passes: at most an element for each row."""
    table = nn.Embedding(7, 3, sparse=True).to(DEVICE)
    for _ in range(8):
        table(torch.tensor([1, 2, 1], device=DEVICE)).sum().backward()
    assert table.weight.grad._nnz() <= 7
    assert table.weight.grad.to_dense()[:3, 0].tolist() == [0, 16, 8]


def test_halves_learn_sparse_matrices():
    for dtype in (torch.bfloat16, torch.float16):
        s = narrow(DEVICE).to(dtype).requires_grad_()
        torch.sparse.mm(s, torch.ones(2, 3, dtype=dtype, device=DEVICE)).sum().backward()
        assert s.grad.values().tolist() == [3, 3, 3]


def test_products_are_recorded():
    """Sparse matrices times dense ones, and their gradients, run nothing on the host."""
    coo, csr, x = uncoalesced(DEVICE), compressed("csr", DEVICE), dense(6, 3).to(DEVICE)
    x.requires_grad_()
    torch_xla.sync()
    before = host_runs()
    reduced = [torch.sparse.mm(csr, x, how).sum() for how in ("mean", "amax")]
    ((coo @ x).sum() + torch.addmm(x[:4], csr, x).sum() + sum(reduced)).backward()
    assert host_runs() == before


def test_members_share_memory():
    """`_values` and `values` are views, and what writes in place is seen where it is on the CPU."""

    def write(d: Any) -> Any:
        s, t = uncoalesced(d), uncoalesced(d)
        s._values().mul_(2)
        values = t._values()
        t.mul_(2)
        return s, t, values

    same(write)


WRITES = {
    "mul_": lambda c: c.mul_(2),
    "add_": lambda c: c.add_(c) if c.layout == torch.sparse_csr else c.mul_(2),
    "copy_": lambda c: c.copy_(c * 3),
    "neg_": lambda c: c.neg_(),
    "fill_": lambda c: c.fill_(3.0),
    "zero_": lambda c: c.zero_(),
    "values": lambda c: c.values().mul_(2),
    "detach": lambda c: c.detach().mul_(0.5),
    "data": lambda c: c.data.neg_(),
}


@pytest.mark.parametrize("layout", ["csr", "csc"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_into_compressed_tensors_are_seen(name, layout):
    def write(d: Any) -> Any:
        c = compressed(layout, d)
        values, t, copied = c.values(), c.t(), c.to(d, copy=True)
        WRITES[name](c)
        if name == "zero_":  # without elements: nothing is left to share
            return c, copied
        return c, values, t, copied

    same(write)


def test_results_have_indices_of_their_own():
    def write(d: Any) -> Any:
        c = compressed("csr", d)
        results = [
            dense().to(d).sparse_mask(c),
            c.to(torch.float64),
            torch.sparse.sampled_addmm(c, dense(4, 5).to(d), dense(5, 6).to(d)),
        ]
        for r in results:
            r.col_indices().zero_()
        return c

    same(write)


@pytest.mark.parametrize("layout", ["coo", *LAYOUTS])
def test_parameters_and_buffers_move_with_their_module(layout):
    def make() -> nn.Module:
        module = nn.Module()
        t = uncoalesced("cpu") if layout == "coo" else compressed(layout, "cpu")
        module.weight = nn.Parameter(t)
        module.register_buffer("adjacent", t.detach())
        return module

    moved, here = make(), make()
    weight = moved.weight
    moved.to(DEVICE)
    assert moved.weight is weight and moved.weight.requires_grad
    x = torch.ones(6, 2)
    if layout != "bsc":  # no kernel on the CPU
        with torch.no_grad():
            got, want = moved.weight @ x.to(DEVICE), here.weight @ x
        torch.testing.assert_close(got.cpu(), want)
    assert {t.device for t in moved.state_dict().values()} == {DEVICE}
    same(lambda d: list((moved if d.type == "xla" else here).state_dict().values()))
    moved.cpu()
    assert plain(moved.weight)[0] == plain(here.weight)[0]
    torch.testing.assert_close(moved.weight.to_dense(), here.weight.to_dense())


def test_moves_and_copies(tmp_path):
    for make in (uncoalesced, hybrid, *(lambda d, at=at: compressed(at, d) for at in LAYOUTS)):
        t = make(DEVICE)
        buffer = io.BytesIO()
        torch.save(t, buffer)
        buffer.seek(0)
        xm.save({"t": t}, path := tmp_path / "t.pt")
        saved = torch.load(path)["t"]
        assert saved.device.type == "cpu"
        others = [copy.copy(t), copy.deepcopy(t), torch.load(buffer), t.cpu().to(DEVICE)]
        (loaded,) = pl.MpDeviceLoader([saved], DEVICE)
        for other in (*others, saved.to(DEVICE), loaded):
            same(lambda d, other=other, make=make: other if d.type == "xla" else make(d))
        assert "xla" in repr(t) and t.is_sparse == (t.layout == torch.sparse_coo)
        assert t.detach().layout == t.layout and t.type().startswith("torch.xla.sparse.")


def test_what_takes_dense_tensors_says_so():
    with pytest.raises(
        RuntimeError, match="expected a dense tensor on an XLA device, got a Sparse"
    ):
        torch_xla._XLAC._xla_get_tensor_id(uncoalesced(DEVICE))


ERRORS = {
    "values of uncoalesced": lambda d: uncoalesced(d).values(),
    "sparse plus dense": lambda d: uncoalesced(d) + dense().to(d),
    "sizes": lambda d: uncoalesced(d) + uncoalesced(d).t(),
    "density": lambda d: dense().to(d).to_sparse(1) + uncoalesced(d),
    "dense sizes": lambda d: dense(4, 1).to(d) + uncoalesced(d),
    "dense types": lambda d: torch.ones(4, 6, dtype=torch.int64, device=d).add_(uncoalesced(d)),
    "mm": lambda d: uncoalesced(d) @ dense(5, 3).to(d),
    "mm types": lambda d: uncoalesced(d) @ dense(6, 3, torch.float64).to(d),
    "no kernel": lambda d: torch.exp(uncoalesced(d)),
    "view": lambda d: uncoalesced(d).view(24),
    "indices": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[4]], device=d), torch.ones(1, device=d), (3,), check_invariants=True
    ),
    "csr indices": lambda d: torch.sparse_csr_tensor(
        torch.tensor([0, 5], device=d),
        torch.tensor([0], device=d),
        torch.ones(1, device=d),
        (1, 1),
        check_invariants=True,
    ),
    "addmm_ broadcasts": lambda d: dense(1, 3).to(d).addmm_(uncoalesced(d), dense(6, 3).to(d)),
    "add alpha does not fit": lambda d: torch.add(
        uncoalesced(d, torch.int8), uncoalesced(d, torch.int8), alpha=1000
    ),
    "addmm alpha": lambda d: torch.addmm(
        dense(4, 3).to(d), uncoalesced(d), dense(6, 3).to(d), alpha=1j
    ),
    "add of bools": lambda d: uncoalesced(d, torch.bool) + uncoalesced(d, torch.bool),
    "coo to csr of floats": lambda d: torch._convert_indices_from_coo_to_csr(
        torch.ones(2, device=d), 3
    ),
    "gradient of a conversion": lambda d: (
        (compressed("csr", d).requires_grad_().double() @ dense(6, 3, torch.float64).to(d))
        .sum()
        .backward()
    ),
    "layout": lambda d: torch.sparse.sampled_addmm(uncoalesced(d), dense().to(d), dense().to(d)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """The CPU's error, and its words but for the device's name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as want:
            ERRORS[name](torch.device("cpu"))
        with pytest.raises(type(want.value)) as got:
            ERRORS[name](DEVICE)
    words = str(want.value).split(".")[0].replace("Sparse", "").replace("CPU", "")
    assert words[:30] in str(got.value).replace("Sparse", "").replace("XLA", "").replace("CPU", "")
