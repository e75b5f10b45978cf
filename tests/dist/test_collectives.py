"""Collectives between three replicas, against the same operation on the host."""

import os

import pytest
import torch

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla.debug import metrics

from .conftest import LAUNCHERS

N = 3
PAIR = [[0, 2], [1]]  # groups of different sizes


@pytest.fixture(autouse=True)
def time_limit(monkeypatch):
    monkeypatch.setenv("XLA_WAIT_TIMEOUT_S", "60")


def value(rank, dtype=torch.float32, shape=(2, 3)):
    """What a rank gives: small, so that every type holds every sum."""
    g = torch.Generator().manual_seed(rank)
    x = torch.randint(0, 4, shape, generator=g)
    if dtype == torch.bool:
        return x > 1
    return x.to(dtype)


def same(actual, expected):
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def wide(x):  # the CPU adds up no complex32
    return x.to(torch.complex64) if x.dtype == torch.complex32 else x


HOST = {
    "sum": lambda s: wide(s).sum(0).to(s.dtype),
    "mul": lambda s: wide(s).prod(0).to(s.dtype),
    "min": lambda s: s.amin(0),
    "max": lambda s: s.amax(0),
    "and": lambda s: s[0] & s[1] & s[2],
    "or": lambda s: s[0] | s[1] | s[2],
}
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool, torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip


def every_reduction(dev, r):
    results = []
    for dtype in DTYPES:
        given = torch.stack([value(i, dtype) for i in range(N)])
        for name, host in HOST.items():
            if dtype.is_complex and name in ("min", "max"):
                with pytest.raises(TypeError, match=f"has no reduction '{name}'"):
                    xm.all_reduce(name, given[r].to(dev))
            elif name not in ("and", "or") or not (dtype.is_floating_point or dtype.is_complex):
                results.append((xm.all_reduce(name, given[r].to(dev)), host(given)))
    nan = torch.tensor([float("nan") if r == 1 else 1.0, r]).to(dev)
    results.append((xm.all_reduce("max", nan), torch.tensor([float("nan"), 2.0])))
    results.append((xm.all_reduce("min", nan), torch.tensor([float("nan"), 0.0])))
    big = torch.full((100_003,), 2.0**r).to(dev)  # not divisible by the replicas
    sevens = torch.full((100_003,), 7.0)
    results.append((xm.all_reduce("sum", big), sevens))
    results.append((xm.all_reduce("sum", big.bfloat16()), sevens.bfloat16()))
    results.append((xm.all_reduce("sum", torch.ones(0, 3, device=dev)), torch.ones(0, 3)))
    results.append((xm.all_reduce("sum", torch.tensor(1.0, device=dev) + r), torch.tensor(6.0)))
    torch_xla.sync()
    for actual, expected in results:
        same(actual, expected)


def lists_and_groups(dev, r):
    mine = [r] if r == 1 else [0, 2]
    x = [value(i) for i in range(N)]
    same(xm.all_reduce("sum", x[r].to(dev), groups=PAIR), sum(x[i] for i in mine))
    same(xm.all_reduce("sum", x[r].to(dev), scale=0.5), sum(x) * 0.5)
    # Different types, in place, in a view, twice the same operation.
    base = torch.zeros(4, 3, device=dev)
    a, b, c = base[1:3], value(r, torch.int32).to(dev), value(r).to(dev)
    a.copy_(x[r])
    given = [a, b, c]
    assert xm.all_reduce("sum", given) is given
    same(base, torch.cat([torch.zeros(1, 3), sum(x), torch.zeros(1, 3)]))
    same(b, sum(value(i, torch.int32) for i in range(N)))
    same(c, sum(x))
    # Different operations over different groups, as one.
    a, b, c = (value(r).to(dev) for _ in range(3))
    xm.all_reduce([("sum", [a, b], PAIR), (xm.REDUCE_MAX, [c], [[0, 1], [2]])])
    same(a, sum(x[i] for i in mine))
    same(b, sum(x[i] for i in mine))
    same(c, torch.stack([x[i] for i in ([2] if r == 2 else [0, 1])]).amax(0))
    leaf = torch.ones(2, device=dev, requires_grad=True)
    xm.all_reduce("sum", [leaf], scale=1 / N)
    assert leaf.is_leaf and leaf.requires_grad
    same(leaf.detach(), torch.ones(2))


def other_operations(dev, r):
    x = [value(i) for i in range(N)]
    for dim in (0, 1, -1):
        same(xm.all_gather(x[r].to(dev), dim), torch.cat(x, dim))
    same(xm.all_gather(torch.tensor(r).to(dev)), torch.arange(N))
    mine = [1] if r == 1 else [0, 2]
    same(xm.all_gather(x[r].to(dev), 1, groups=PAIR), torch.cat([x[i] for i in mine], 1))
    out = torch.empty(6, 3, device=dev)
    assert xm.all_gather(x[r].to(dev), output=out) is out
    same(out, torch.cat(x))
    flags = value(r, torch.bool).to(dev)
    both = xm.all_gather([x[r].to(dev), flags])
    same(both[1], torch.cat([value(i, torch.bool) for i in range(N)]))

    wide = [value(i, shape=(2, 6)) for i in range(N)]
    cut = sum(wide).chunk(N, 1)[r]
    same(xm.reduce_scatter("sum", wide[r].to(dev), 1.0, 1, N), cut)
    same(xm.reduce_scatter("sum", wide[r].bfloat16().to(dev), 1.0, 1, N), cut.bfloat16())
    same(xm.reduce_scatter("max", [wide[r].to(dev)], 2.0, 1, N)[0],
         torch.stack(wide).amax(0).chunk(N, 1)[r] * 2)  # fmt: skip

    parts = [w.chunk(N, 1)[r] for w in wide]
    same(xm.all_to_all(wide[r].to(dev), 1, 0, N), torch.cat(parts, 0))
    same(xm.all_to_all(wide[r].to(dev), 1, 1, N), torch.cat(parts, 1))

    same(xm.collective_permute(x[r].to(dev), [[0, 1], [1, 2], [2, 0]]), x[r - 1])
    moved = xm.collective_permute(x[r].to(dev), [[0, 2], [1, 1]])
    same(moved, [torch.zeros(2, 3), x[1], x[0]][r])

    t, i = x[r].to(dev), torch.tensor([r]).to(dev)
    xm.collective_broadcast([t, i], root_ordinal=2)
    same(t, x[2])
    same(i, torch.tensor([2]))
    model = torch.nn.BatchNorm1d(3).to(dev)
    with torch.no_grad():
        model.weight += r
        model.running_mean += r
    xm.broadcast_master_param(model)
    same(model.weight.detach(), torch.ones(3))
    same(model.running_mean, torch.zeros(3))


def gradients(dev, r):
    z = value(r).to(dev).requires_grad_()
    weight = torch.arange(18.0).reshape(6, 3)
    (xf.all_gather(z) * weight.to(dev)).sum().backward()
    same(z.grad, weight[2 * r : 2 * r + 2])
    z.grad = None
    (xf.all_gather(z, 1) * weight.reshape(2, 9).to(dev)).sum().backward()
    same(z.grad, weight.reshape(2, 9)[:, 3 * r : 3 * r + 3])
    z.grad = None
    (xf.all_reduce("sum", z, scale=0.5) ** 2).sum().backward()
    same(z.grad, sum(value(i) for i in range(N)) * 0.5)
    top = torch.tensor([float(r), 1.0]).to(dev).requires_grad_()
    xf.all_reduce("max", top).sum().backward()
    torch.testing.assert_close(top.grad.cpu(), torch.tensor([float(r == 2), 1 / 3]))
    with pytest.raises(NotImplementedError, match="no gradient"):
        xf.all_reduce("mul", z).sum().backward()

    g = torch.Generator().manual_seed(0)  # threads share the host's own
    x = torch.randn(2 * N, 4, 5, generator=g)
    ours, theirs = xf.SyncBatchNorm(4).to(dev), torch.nn.BatchNorm1d(4)
    mine = x[2 * r : 2 * r + 2].to(dev).requires_grad_()
    whole = x.clone().requires_grad_()
    factor = torch.randn(2 * N, 4, 5, generator=g)
    y, expected = ours(mine), theirs(whole)
    (y * factor[2 * r : 2 * r + 2].to(dev)).sum().backward()
    (expected * factor).sum().backward()
    for a, b in (
        (y, expected[2 * r : 2 * r + 2]),
        (mine.grad, whole.grad[2 * r : 2 * r + 2]),
        (ours.running_var, theirs.running_var),
        (ours.running_mean, theirs.running_mean),
        (ours.eval()(mine), theirs.eval()(whole)[2 * r : 2 * r + 2]),
    ):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-5)


def buckets_and_messages(dev, r):
    given = [value(i, shape=(6, 2 + i)) for i in range(4)]
    mine = [t.to(dev) * (r + 1) for t in given]
    for cap in (0.00001, 160):
        out = xm.all_gather_bucketized(mine, 1, bucket_cap_mb=cap)
        for a, t in zip(out, given, strict=True):
            same(a, torch.cat([t, 2 * t, 3 * t], 1))
        out = xm.reduce_scatter_bucketized("sum", mine, 0.5, 0, N, bucket_cap_mb=cap)
        for a, t in zip(out, given, strict=True):
            same(a, 3 * t[2 * r : 2 * r + 2])
    assert xm.all_gather_bucketized([]) == []

    # A ring, by channels; the last one receives before it sends.
    got = torch.zeros(3, device=dev)
    if r == 2:
        xm.recv(got, 1)
        xm.send(torch.full((3,), 2.0, device=dev), 2)
    else:
        xm.send(torch.full((3,), float(r), device=dev), r)
        xm.recv(got, 2 if r == 0 else 0)
    same(got, torch.full((3,), float((r - 1) % N)))

    w = [torch.randn(4, 2, generator=torch.Generator().manual_seed(i)) for i in range(N)]
    x = [torch.randn(2 * N, 6, generator=torch.Generator().manual_seed(9 + i)) for i in range(N)]
    for split in (1, 3):
        whole, inputs = torch.cat(w, 1).requires_grad_(), [t.clone().requires_grad_() for t in x]
        ours, mine = w[r].to(dev).requires_grad_(), x[r].to(dev).requires_grad_()
        y = xf.distributed_mm(ours, mine, split)
        (y**2).sum().backward()
        sum((whole.mm(t) ** 2).sum() for t in inputs).backward()
        for a, b in (
            (y, whole.mm(x[r])),
            (ours.grad, whole.grad[:, 2 * r : 2 * r + 2]),
            (mine.grad, inputs[r].grad),
        ):
            torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="cannot be cut into 4 equal"):
        xf.distributed_mm(ours, mine, 4)
    with pytest.raises(ValueError, match="does not fit"):
        xf.distributed_mm(ours, mine[1:])


def order_and_reads(dev, r):
    """Ranks read at different places, and throw away different results."""
    xm.all_reduce("sum", torch.ones(3, device=dev))  # nobody wants it
    a = xm.all_reduce("sum", torch.full((2,), 1.0 + r, device=dev))
    if r == 0:
        same(a, torch.full((2,), 6.0))  # runs a part of what the others still record
    b = xm.all_reduce("max", a + r)
    if r == 1:
        del a
    c = xm.all_gather(b)
    if r != 2:
        assert c.tolist() == [8.0] * 6
    torch_xla.sync()
    assert c.tolist() == [8.0] * 6
    # The same program again and again: nothing is compiled, numbers differ.
    compiled = []
    for step in range(4):
        x = torch.full((5,), float(step + r)).to(dev)
        y = xm.all_reduce("sum", x)
        if step % 2:
            del x
        torch_xla.sync()
        same(y, torch.full((5,), 3.0 * step + 3))
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert compiled[1] == compiled[3], compiled


def on_the_host(dev, r):
    assert xm.rendezvous("a", str(r).encode()) == [b"0", b"1", b"2"]
    assert xm.rendezvous("a") == [b""] * 3
    if r != 1:
        assert xm.rendezvous("b", bytes([r]), [2, 0]) == [b"\2", b"\0"]
    assert xm.xla_rendezvous(b"x", tag="c") == [b"x"] * 3
    tensor = torch.tensor([1.0 + r]).to(dev)
    assert xm.mesh_reduce("d", {"x": tensor}, lambda v: sum(d["x"] for d in v)).item() == 6
    assert xm.do_on_ordinals(lambda t: t.item(), (tensor,), (1,)) == (2 if r == 1 else None)
    assert xm.is_master_ordinal() == (r == 0)
    with pytest.raises(ValueError, match="is none of them"):
        xm.rendezvous("e", replicas=[r - 1 if r else 1])
    # Rank 0 waits on the host for ranks that wait for a collective that it has only recorded.
    y = xm.all_reduce("sum", torch.ones(1, device=dev))
    if r != 0:
        assert y.item() == 3
    xm.rendezvous("f")
    turns = []
    xmp.MpSerialExecutor().run(lambda: turns.append(xm.rendezvous("g", replicas=[r])))
    assert len(turns) == 1


def wrong_arguments(dev, r):
    x = value(r).to(dev)
    for call, error, words in (
        (lambda: xm.all_reduce("mean", x), ValueError, "reduce_type 'mean'"),
        (lambda: xm.all_reduce("and", x), TypeError, "float32 has no reduction 'and'"),
        (lambda: xm.all_reduce("sum", value(r)), ValueError, "on an xla device"),
        (lambda: xm.all_reduce("sum", x, groups=[[0, 1]]), ValueError, "each of the 3 replica"),
        (lambda: xm.all_reduce("sum", x, groups=[[0, 1], [1, 2]]), ValueError, "exactly once"),
        (lambda: xm.all_gather(x, 2), IndexError, "but got 2"),
        (lambda: xm.all_gather(x, output=x), ValueError, "output has shape"),
        (lambda: xm.reduce_scatter("sum", x, 1.0, 0, 2), ValueError, "shard_count 2 must be 3"),
        (lambda: xm.reduce_scatter("sum", x, 1.0, 0, 3), ValueError, "3 equal slices"),
        (lambda: xm.all_to_all(x, 0, 0, 3), ValueError, "3 equal slices"),
        (lambda: xm.collective_permute(x, [[0, 1], [2, 1]]), ValueError, "each target"),
        (lambda: xm.collective_permute(x, [[0, 3]]), ValueError, "each target"),
        (lambda: xm.collective_broadcast([x], 3), ValueError, "root_ordinal 3"),
        (lambda: xm.collective_broadcast([x], 0, [[0], [1, 2]]), ValueError, "not in every group"),
    ):
        with pytest.raises(error, match=words):
            call()


def devices(n):
    return [f"xla:{i}" for i in range(n)]


def everything(index, launcher):
    os.environ["XLA_WAIT_TIMEOUT_S"] = "60"
    assert xr.global_ordinal() == xr.local_ordinal() == index
    assert xr.world_size() == xr.global_device_count() == xr.local_device_count() == N
    dev = torch_xla.device()
    if launcher == "thread":
        assert xr.process_count() == xr.local_process_count() == 1 and xr.process_index() == 0
        assert torch_xla.device_count() == N and str(dev) == f"xla:{index}"
        assert xm.xla_device() == dev and xm.get_xla_supported_devices() == devices(N)
    else:
        assert xr.process_count() == xr.local_process_count() == N and xr.process_index() == index
        assert torch_xla.device_count() == 1 and str(dev) == "xla:0"
    for check in (
        every_reduction,
        lists_and_groups,
        other_operations,
        gradients,
        buckets_and_messages,
        order_and_reads,
        wrong_arguments,
        on_the_host,
    ):
        check(dev, index)
        xm.rendezvous(check.__name__)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_everything(launcher, run_replicas, monkeypatch):
    monkeypatch.setenv("CPU_NUM_DEVICES", "2")  # counts for the parent alone
    run_replicas(launcher, everything, N, launcher)


def test_everything_over_tcp(run_replicas, monkeypatch):
    """As between hosts."""
    monkeypatch.setenv("XLA_SHARED_MEMORY", "0")
    run_replicas("spawn", everything, N, "spawn")
