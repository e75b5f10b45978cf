"""Replicas as threads of one process: DataParallel, and what only threads can get wrong."""

import copy

import pytest
import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla._src import collectives as c
from torch_xla.debug import metrics

from .test_train import MODELS, build

N = 3


def same(actual, expected):
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def in_place_or_not(index):
    """A collective may take over its operand's buffer, but never what somebody else needs."""
    dev = torch_xla.device()
    for n in (7, 5000, 1_500_003):
        given = [torch.arange(float(n)) % 13 + k for k in range(N)]
        total, mine = sum(given), given[index]
        for leaf in (True, False):
            a = mine.to(dev)
            b = a if leaf else a + 0
            parts = [c.Part("all_reduce", [b], op) for op in ("sum", "max", "min")]
            results = c.start(parts).finish()
            after = b * 2 + results[0]
            torch_xla.sync()
            for result, expected in zip(results, (total, given[-1], given[0]), strict=True):
                same(result, expected)
            same(after, mine * 2 + total)
            same(a, mine)
            same(b, mine)
        a = mine.to(dev)
        view = a[1:3]
        reduced, doubled = xm.all_reduce("sum", a), view * 2
        a.copy_(reduced)
        torch_xla.sync()
        same(doubled, mine[1:3] * 2)
        same(a, total)
        same(view, total[1:3])
        xm.all_reduce("sum", [a])
        xm.all_reduce([("sum", [a, a], None), ("max", [a], None)])
        torch_xla.sync()
        same(a, total * N)
        # The same graph, first for an operand that dies, then for one that is kept.
        x = mine.to(dev)
        x = xm.all_reduce("mul", x)
        torch_xla.sync()
        kept = mine.to(dev)
        y = xm.all_reduce("mul", kept)
        torch_xla.sync()
        assert kept.cpu().equal(mine) and y.cpu().equal(x.cpu())
        for _ in range(3):
            a = xm.all_reduce("max", a) - 1
        torch_xla.sync()
        same(a, total * N - 3)


def compiled_once(index):
    dev = torch_xla.device()
    xm.rendezvous("begin")
    before = metrics.counter_value("UncachedCompile")
    xm.rendezvous("counted")
    for _ in range(3):
        x = torch.full((4, 4), float(index)).to(dev)
        y = xm.all_reduce("sum", x @ x)
        torch_xla.sync()
        same(y, torch.full((4, 4), 4.0 * sum(i * i for i in range(N))))
    xm.rendezvous("end")
    assert metrics.counter_value("UncachedCompile") == before + 1


def helpers_and_other_devices(index):
    """Another thread of a replica, or another device, is no replica: an error, no wrong number."""
    x = torch.ones(2).to(torch_xla.device())
    errors = []

    def help_out():
        try:
            xm.all_reduce("sum", x)
        except RuntimeError as e:
            errors.append(str(e))

    import threading

    helper = threading.Thread(target=help_out)
    helper.start()
    helper.join()
    assert f"on xla:{index} by a thread that is no replica" in errors[0]
    other = (index + 1) % N
    with pytest.raises(RuntimeError, match=f"on xla:{other} by a thread that is replica {index}"):
        xm.all_reduce("sum", torch.ones(2).to(f"xla:{other}"))
    with pytest.raises(RuntimeError, match="in a thread that is a replica"):
        xmp.spawn(compiled_once, start_method="thread")


def everything(index):
    for check in (in_place_or_not, compiled_once, helpers_and_other_devices):
        check(index)
        xm.rendezvous(check.__name__)


def test_everything(run_replicas):
    run_replicas("thread", everything, N)


def test_more_devices_than_cores(run_program):
    """Nobody waits on a thread that another device needs to go on."""
    p = run_program(
        """
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp
        import torch_xla.runtime as xr

        def work(index):
            n, r = xr.world_size(), xr.global_ordinal()
            w = torch.eye(300).to(xm.xla_device())
            x = torch.full((300, 300), 1.0 + r).to(xm.xla_device())
            for step in range(20):
                y = x
                for _ in range(1 + r):  # ranks come at different times
                    y = torch.sort(y @ w, 0)[0]
                x = xm.all_reduce("sum", y) / n
                x = xm.all_reduce("max", x)
                torch_xla.sync()
            assert (x.cpu() == (n + 1) / 2).all()

        xmp.spawn(work, start_method="thread")
        print("done")
        """,
        CPU_NUM_DEVICES="8",
    )
    assert "done" in p.stdout, p.stderr


class Failure(Exception):
    pass


def data_parallel():
    """In a process of its own with N devices."""
    names = xm.get_xla_supported_devices()
    assert names == [f"xla:{i}" for i in range(N)]
    for name in MODELS:
        train(name, names)
    model = torch.nn.Linear(2, 1)
    par = dp.DataParallel(model, device_ids=names[1:])
    assert par.devices == names[1:] and par.models[0] is not par.models[1]
    batches = [torch.full((2, 2), float(i)) for i in range(7)]

    def look(model, loader, device, context, extra):
        assert (xr.world_size(), xr.global_ordinal()) == (N - 1, device.index - 1)
        assert xm.xla_device() == device == context.device == next(model.parameters()).device
        seen = context.getattr_or("seen", list)
        for x in loader:
            assert x.device == device
            seen.append(x[0, 0].item())
        return device.index, list(seen), extra

    # The batches in turn, those of the last round dropped; contexts stay.
    first = par(look, batches, extra=3)
    assert first == [(1, [0, 2, 4], 3), (2, [1, 3, 5], 3)]
    assert par(look, batches[:2], extra=4)[1] == (2, [1, 3, 5, 1], 4)
    assert xr.world_size() == 1 and xr.global_ordinal() == 0

    def fail(model, loader, device, context):
        next(loader)
        if device.index == 1:
            raise Failure("here")
        xm.all_reduce("sum", torch.ones(1, device=device)).item()

    with pytest.raises(xmp.ThreadRaisedException, match=r"replica 0 .* raised Failure: here") as e:
        par(fail, batches)
    assert isinstance(e.value.__cause__, Failure)
    assert par(look, batches[:2], extra=5)[0] == (1, [0, 2, 4, 0, 0], 5)

    plain = dp.DataParallel(model, device_ids=[])
    assert plain(lambda m, loader, device, context: [i for i, _ in loader], batches) == [
        list(range(7))
    ]
    with pytest.raises(ValueError, match="not all different"):
        dp.DataParallel(model, device_ids=["xla:0", "xla:0"])


def train(name, names):
    """Replicas that each get a part of the batch are one model with the whole batch."""
    module = build(name)
    reference = copy.deepcopy(module)
    par = dp.DataParallel(module, device_ids=names)
    g = torch.Generator().manual_seed(1)
    shape = {"mlp": (4, 6), "convnet": (4, 2, 6, 6), "transformer": (4, 5)}[name]

    def batch():
        x = torch.rand(shape, generator=g)
        x = (x * 11).long() if name == "transformer" else x
        return x, torch.randint(3, (4,), generator=g)

    batches = [batch() for _ in range(20 * N)]

    def loop(model, loader, device, context):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            xm.optimizer_step(optimizer)

    par(loop, batches)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    for k in range(0, len(batches), N):
        optimizer.zero_grad()
        xs, ys = zip(*batches[k : k + N], strict=True)
        F.cross_entropy(reference(torch.cat(xs)), torch.cat(ys)).backward()
        optimizer.step()
    for model in par.models:
        for p, expected in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.detach().cpu(), expected.detach(), rtol=2e-4, atol=2e-5)


OWN_THREADS = """
import threading
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

devices = xm.get_xla_supported_devices()
results = {}

def work(device):
    xm.set_replication(device, devices)
    try:
        x = torch.ones(2, device=device) + xr.global_ordinal()
        results[device] = (xr.world_size(), xm.all_reduce("sum", x).tolist())
    finally:
        xm.set_replication(device, None)
    assert xr.world_size() == 1

for _ in range(2):
    threads = [threading.Thread(target=work, args=(d,)) for d in devices]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == {d: (3, [6.0, 6.0]) for d in devices}, results
    results.clear()
print(xm.xla_replication_devices(devices))
"""


def test_set_replication(run_program):
    p = run_program(OWN_THREADS, CPU_NUM_DEVICES=str(N))
    assert p.stdout == "['CPU:0', 'CPU:1', 'CPU:2']\n", p.stderr


def test_data_parallel(run_program):
    p = run_program(
        """
        import sys
        import torch_xla
        sys.path.insert(0, sys.argv[1])
        from dist.test_threads import data_parallel
        data_parallel()
        """,
        str(__file__).rsplit("/", 2)[0],
        timeout=200,
        CPU_NUM_DEVICES=str(N),
    )
    assert p.returncode == 0, p.stderr[-3000:]
