"""Indexing, gather, scatter, movement and sort against PyTorch on the CPU."""

import pytest
import torch
import torch.nn.functional as F

import torch_xla

from .oracle import assert_same, check, check_error, floats, host_runs, ints, to_xla

pytestmark = [
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta"),
    pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter"),
]

X = floats(4, 5, 6)
ROWS = torch.tensor([2, 0, 3, 2])
INDEX = ints(3, 5, 4, low=0, high=4)

READS = {
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select_last": lambda x, i: x.index_select(-1, i),
    "gather": lambda x, i: x.gather(0, i[:, None, None].expand(4, 3, 2)),
    "take": lambda x, i: x.take(i - 4),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None, None], 0),
    "one": lambda x, i: x[i],
    "second": lambda x, i: x[:, i],
    "two": lambda x, i: x[i, i + 1],
    "apart": lambda x, i: x[i, :, i],
    "last_two": lambda x, i: x[:, i, i],
    "broadcast": lambda x, i: x[i[:, None], i],
    "negative": lambda x, i: x[i - 4, -1],
    "matrix": lambda x, i: x[i.view(2, 2)],
    "none": lambda x, i: x[None, i],
    "int32": lambda x, i: x[i.int()],
    "embedding": lambda x, i: F.embedding(i.view(2, 2), x[0], padding_idx=2),
    "embedding_freq": lambda x, i: F.embedding(i, x[0], scale_grad_by_freq=True),
}


@pytest.mark.parametrize("name", READS)
def test_read(name):
    check(READS[name], X, ROWS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_types(dtype):
    x = X.to(dtype)
    check(lambda x, i: x[i, i], x, ROWS)
    check(lambda x, i: x.gather(0, i.view(1, 4, 1)), x, ROWS)
    check(lambda x, i: x.index_put((i[:2],), x[:2, :1]), x, ROWS)
    check(lambda x, i: torch.cat([x, x[:1]]).roll(3), x, ROWS)


def test_cpu_index():
    got = to_xla(X)[ROWS]
    assert_same(got, X[ROWS])
    assert_same(to_xla(X)[:, [1, 3]], X[:, [1, 3]])


def test_mask_reads_are_counted():
    check_mask = X > 1
    got = to_xla(X)[to_xla(check_mask)]
    torch.testing.assert_close(got.cpu(), X[check_mask])


WRITES = {
    "scatter": lambda x, i, s: x.scatter(1, i, s),
    "scatter_value": lambda x, i, s: x.scatter(0, i, 2.5),
    "scatter_multiply": lambda x, i, s: x.detach().scatter(0, i, s.detach(), reduce="multiply"),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s),
    "scatter_add_in_place": lambda x, i, s: x.clone().scatter_add_(2, i, s),
    "sum": lambda x, i, s: x.scatter_reduce(0, i, s, "sum"),
    "prod": lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
    "mean": lambda x, i, s: x.scatter_reduce(0, i, s, "mean"),
    "mean_exclusive": lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False),
    "amax": lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    "amin_exclusive": lambda x, i, s: x.scatter_reduce(0, i, s, "amin", include_self=False),
}


@pytest.mark.parametrize("name", WRITES)
def test_scatter(name):
    index = INDEX
    if name == "scatter":  # no position twice: which of the values wins is not defined
        index = torch.stack([torch.randperm(5)[:5] for _ in range(12)]).view(3, 4, 5).mT
    source = floats(3, 5, 4) + 0.1
    check(WRITES[name], X, index, source, rtol=1e-4, atol=1e-4)


def put(*index, accumulate=False):
    def fn(x, v, i):
        at = tuple(i if k == "i" else k for k in index)
        return x.index_put(at, v, accumulate)

    return fn


PUTS = {
    "rows": (put("i"), floats(4, 5, 6)),
    "rows_broadcast": (put("i"), floats(6)),
    "accumulate": (lambda x, v, i: x.index_put((i,), v, True), floats(4, 5, 6)),
    "setitem": (lambda x, v, i: assign(x, (slice(None), i[:2]), v), floats(4, 2, 6)),
    "setitem_number": (lambda x, v, i: assign(x, i, 3.5), floats(1)),
    "setitem_mask": (lambda x, v, i: assign(x, x > 0, 3.5), floats(1)),
    "setitem_row_mask": (lambda x, v, i: assign(x, x[:, 0, 0] > 0, v.detach()), floats(1)),
    "setitem_view": (lambda x, v, i: assign(x.clone()[1], i, v), floats(4, 6)),
    "index_add": (lambda x, v, i: x.index_add(0, i, v, alpha=2), floats(4, 5, 6)),
    "index_copy": (lambda x, v, i: x.index_copy(1, i[:3], v), floats(4, 3, 6)),
    "index_fill": (lambda x, v, i: x.index_fill(2, i - 6, 2.5), floats(1)),
    "index_fill_tensor": (lambda x, v, i: x.index_fill(0, i, v[0].detach()), floats(1)),
    "index_reduce": (lambda x, v, i: x.index_reduce(0, i, v, "amax"), floats(4, 5, 6)),
    "index_reduce_mean": (
        lambda x, v, i: x.index_reduce(0, i, v, "mean", include_self=False),
        floats(4, 5, 6),
    ),
    "put": (lambda x, v, i: x.put(i - 4, v, True), floats(4)),
    "masked_fill": (lambda x, v, i: x.masked_fill(x[0] > 0, -torch.inf), floats(1)),
    "masked_fill_tensor": (lambda x, v, i: x.masked_fill(x > 0, v[0].detach()), floats(1)),
    "masked_fill_in_place": (lambda x, v, i: x.clone().masked_fill_(x > 0, 2), floats(1)),
    "masked_scatter": (lambda x, v, i: x.masked_scatter(x > 0, v.detach()), floats(130)),
    "masked_scatter_in_place": (
        lambda x, v, i: x.clone().masked_scatter_(x[0] > 0, v.detach()),
        floats(130),
    ),
}


def assign(x, index, value):
    y = x.clone()
    y[index] = value
    return y


@pytest.mark.parametrize("name", PUTS)
def test_put(name):
    fn, values = PUTS[name]
    index = torch.tensor([2, 0, 3, 1]) if "copy" in name or "rows" in name else ROWS
    check(fn, X, values, index, rtol=1e-4, atol=1e-4)


def test_mask_assignment_stays_on_the_device():
    before = host_runs()
    x = to_xla(X).clone()
    x[x > 0] = 0
    x[:, x[0, :, 0] < 0] = torch.ones((), device="xla:0")
    torch_xla.sync()
    assert host_runs() == before


# Values that are the same for each element of a mask: no positions are looked for.
SAME = {
    "long": lambda x, m: torch.tensor(2, device=x.device),
    "cpu": lambda x, m: torch.tensor(2),
    "one": lambda x, m: torch.tensor([2.5], device=x.device),
    "double": lambda x, m: torch.tensor(2.5, dtype=torch.float64, device=x.device),
    "row": lambda x, m: x[0, 0] * 2,
    "rows": lambda x, m: x[0, :1] * 2,
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_mask_assignment_of_the_same(name, dtype):
    def fn(x, m):
        values = SAME[name](x, m)
        y = x.clone()
        y[m] = values
        z = x.index_put((m,), values) if values.dtype == x.dtype else y
        added = x.index_put((m,), values, accumulate=True) if values.dtype == x.dtype else y
        return y, z, added

    mask = torch.tensor([True, False, True, False])
    check(fn, X.to(dtype), mask, grad=False)
    check(fn, X.to(dtype), mask[:, None].expand(X.shape[:2]).contiguous(), grad=False)


def test_gradients_of_fills_wait_for_nothing():
    def fn(x, value, mask, index):
        return x.masked_fill(mask, value), x.index_fill(1, index, value), torch.prod(x), x.prod(1)

    check(fn, X, torch.tensor(0.5), X > 0, torch.tensor([0, 2]), rtol=1e-4, atol=1e-4)
    zeros = X.clone()
    zeros[:, 1] = 0
    zeros[0, 2] = 0
    check(lambda x: (x.prod(), x.prod(1), x.prod(-1, keepdim=True), x[:0].prod(0)), zeros)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_sums_are_rounded_once(dtype):
    s, i = floats(4000, low=-40, high=40).to(dtype), torch.arange(4000) % 4
    exact = torch.zeros(4, dtype=torch.float64).scatter_add(0, i, s.double()).to(dtype)
    zero, i, s = torch.zeros(4, dtype=dtype, device="xla:0"), to_xla(i), to_xla(s)
    for got in (
        zero.scatter_add(0, i, s),
        zero.scatter_reduce(0, i, s, "sum"),
        zero.index_add(0, i, s),
        zero.index_put((i,), s, accumulate=True),
    ):
        torch.testing.assert_close(got.cpu(), exact, rtol=1e-2, atol=1e-2)
    mean = zero.scatter_reduce(0, i, s * 0 + 1, "mean", include_self=False)
    assert mean.tolist() == [1, 1, 1, 1]  # of 1000 each: bfloat16 counts to 256


def test_out_of_range_is_clamped_or_dropped():
    x = to_xla(torch.arange(4.0))
    far = torch.tensor([9], device="xla:0")
    assert x.index_select(0, far).item() == 3
    assert x.scatter(0, far, 5.0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("classes", [6, -1])
def test_one_hot(classes):
    i = ints(2, 3, low=0, high=6)
    got = F.one_hot(to_xla(i), classes)
    assert_same(got, F.one_hot(i, classes))


# ---- Movement.

MOVED = {
    "cat": lambda x: torch.cat([x, x[:2], x[:0]]),
    "cat_legacy": lambda x: torch.cat([torch.empty(0, device=x.device), x], 1),
    "cat_types": lambda x: torch.cat([x, x.to(torch.int32), x.double()], -1),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "stack_types": lambda x: torch.stack([x, x > 0], -1),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: x.roll(7),
    "roll_dims": lambda x: x.roll((1, -2), (0, 2)),
    "repeat": lambda x: x.repeat(2, 1, 1, 3),
    "tile": lambda x: x.tile(2, 2),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "tril_in_place": lambda x: x.clone().tril_(-1),
    "diag_embed": lambda x: x.diag_embed(1, 0, 2),
    "diag_embed_below": lambda x: x.diag_embed(-2),
    "select": lambda x: x.select(1, -2),
    "slice": lambda x: x[1:3, ::2, -3:],
    "unfold": lambda x: x.unfold(2, 3, 2),
    "unfold_apart": lambda x: x.unfold(2, 2, 3),
    "select_scatter": lambda x: x.select_scatter(x[0] * 2, 0, -1),
    "slice_scatter": lambda x: x.slice_scatter(x[:2], 0, -2),
    "slice_scatter_step": lambda x: x.slice_scatter(x[:, :2], 1, 1, 5, 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, :4].mT, 0, 0, 1),
    "as_strided_scatter": lambda x: x.as_strided_scatter(x[0, 0, :4], (4,), (3,), 2),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2, 1),
    "unbind": lambda x: x.unbind(1),
    "rot90": lambda x: x.rot90(1, (0, 2)),
    "cartesian": lambda x: torch.cartesian_prod(x[0, 0], x[0, 1]),
}


@pytest.mark.parametrize("name", MOVED)
def test_moved(name):
    check(MOVED[name], X)


def test_triangle_indices():
    got = torch.tril_indices(3, 4, -1, device="xla:0"), torch.triu_indices(3, 4, device="xla:0")
    assert_same(got, (torch.tril_indices(3, 4, -1), torch.triu_indices(3, 4)))


# ---- Sort.

SORTS = {
    "sort": lambda x: x.sort(),
    "sort_descending": lambda x: x.sort(dim=1, descending=True, stable=True),
    "argsort": lambda x: x.argsort(dim=0, stable=True),
    "topk": lambda x: x.topk(3),
    "topk_smallest": lambda x: x.topk(2, 1, largest=False),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "median": lambda x: x.median(),
    "median_dim": lambda x: x.median(1, keepdim=True),
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian_dim": lambda x: x.nanmedian(-1),
    "msort": torch.msort,
    "quantile": lambda x: x.quantile(0.3, dim=1),
}


@pytest.mark.parametrize("name", SORTS)
def test_sort(name):
    check(SORTS[name], X + torch.arange(X.numel()).view(X.shape) * 1e-4)


@pytest.mark.parametrize("name", ["sort", "sort_descending", "argsort", "median", "nanmedian"])
def test_sort_special_values(name):
    x = torch.tensor([1, torch.nan, -torch.inf, 3, torch.inf, -2, torch.nan])
    check(SORTS[name], x.view(1, 7, 1).expand(2, 7, 2), grad=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.uint8])
def test_sort_types(dtype):
    x = ints(3, 7, low=0, high=5).to(dtype)
    check(lambda x: x.sort(stable=True), x)
    check(lambda x: x.kthvalue(3)[0], x, grad=False)


def test_scalars():
    x = torch.tensor(3.0)
    check(lambda x: (x.sort(), x.topk(1), x.median(0), x.flip(0), x.roll(1)), x)
    check(lambda x: x.index_select(0, torch.zeros(1, dtype=torch.long, device=x.device)), x)
    check(lambda x: x.gather(0, torch.zeros((), dtype=torch.long, device=x.device)), x)


# ---- Errors.

ERRORS = {
    "index_select_vector": lambda x, i: x.index_select(0, i.view(2, 2)),
    "index_select_dim": lambda x, i: x.index_select(3, i),
    "index_select_float": lambda x, i: x.index_select(0, x[0, 0]),
    "gather_rank": lambda x, i: x.gather(0, i),
    "gather_size": lambda x, i: x.gather(0, i.view(1, 1, 4).expand(1, 9, 4)),
    "scatter_type": lambda x, i: x.scatter(0, i.view(4, 1, 1), x.double()),
    "too_many": lambda x, i: x[i, i, i, i],
    "float_index": lambda x, i: x[x],
    "shapes": lambda x, i: x[i, i[:3]],
    "mask_shape": lambda x, i: x[x[:3] > 0],
    "value_shape": lambda x, i: x.index_put((i,), x[:, :3]),
    "value_type": lambda x, i: x.index_put((i,), x.double()),
    "masked_fill_type": lambda x, i: x.masked_fill(i, 1),
    "masked_fill_complex": lambda x, i: x.masked_fill(x > 0, 1j),
    "masked_fill_overflow": lambda x, i: i.int().masked_fill(i > 0, 1e20),
    "masked_fill_vector": lambda x, i: x.masked_fill(x > 0, x[0, 0]),
    "index_add_type": lambda x, i: x.index_add(0, i, x.double()),
    "index_copy_rank": lambda x, i: x.index_copy(0, i, x[0]),
    "take_type": lambda x, i: x.take(i.int()),
    "put_number": lambda x, i: x.put(i, x[0, 0]),
    "cat_sizes": lambda x, i: torch.cat([x, x[:, :2]]),
    "cat_ranks": lambda x, i: torch.cat([x, x[0]]),
    "cat_scalar": lambda x, i: torch.cat([x[0, 0, 0], x]),
    "stack_sizes": lambda x, i: torch.stack([x, x[:2]]),
    "flip_twice": lambda x, i: x.flip(0, 0),
    "roll_scalar": lambda x, i: x[0, 0, 0].roll(1, 0),
    "roll_align": lambda x, i: x.roll((1, 2), 0),
    "repeat_rank": lambda x, i: x.repeat(2),
    "tril_rank": lambda x, i: i.tril(),
    "diag_embed_dims": lambda x, i: x.diag_embed(0, 1, 1),
    "topk_range": lambda x, i: x.topk(9),
    "sort_dim": lambda x, i: x.sort(3),
    "kthvalue_range": lambda x, i: x.kthvalue(9),
    **{
        f"{fn.__name__}_complex": lambda x, i, fn=fn, k=k: fn(x.to(torch.complex64), *k)
        for fn, k in {
            torch.sort: (),
            torch.topk: (1,),
            torch.kthvalue: (1,),
            torch.median: (),
        }.items()
    },
    "one_hot_type": lambda x, i: F.one_hot(x),
    "embedding_type": lambda x, i: F.embedding(i, i),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check_error(ERRORS[name], X, ROWS)
