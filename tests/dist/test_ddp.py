"""The backend xla beside torch's own DistributedDataParallel over gloo, in the same processes."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import torch_xla
import torch_xla.distributed.xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp

N = 3


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh(), torch.nn.Linear(6, 2)
    )


def both(group, **options):
    """(device, model) of ours and of torch's."""
    gloo = DistributedDataParallel(model(), bucket_cap_mb=0.0001, **options)
    ours = DistributedDataParallel(
        model().to("xla"), process_group=group, bucket_cap_mb=0.0001, **options
    )
    return ("xla", ours), ("cpu", gloo)


def same_models(ours, theirs, **tolerance):
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b, msg=lambda m, name=name: f"{name}: {m}", **tolerance)


def train(device, ddp, batches):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for i in range(batches):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * dist.get_rank() + i))
        optimizer.zero_grad()
        ddp(x.to(device)).pow(2).sum().backward()
        optimizer.step()
        if device == "xla":
            torch_xla.sync()


def uneven_inputs(group):
    for divide in (True, False):
        pair = both(group)
        for device, ddp in pair:
            with ddp.join(divide_by_initial_world_size=divide):
                train(device, ddp, 2 + 2 * dist.get_rank())
        same_models(pair[0][1], pair[1][1], rtol=1e-4, atol=1e-5)


def halved(group, bucket):
    """A hook of the user's own: half of the average."""
    assert bucket.buffer().numel() == sum(g.numel() for g in bucket.gradients())
    assert [g.shape for g in bucket.gradients()] == [p.shape for p in bucket.parameters()]
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future.then(lambda f: f.value()[0] / (2 * N))


def hooks(group):
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, halved):
        pair = both(group)
        for (device, ddp), its in zip(pair, (group, dist.group.WORLD), strict=True):
            ddp.register_comm_hook(its, hook)
            train(device, ddp, 3)
        low = hook is default_hooks.fp16_compress_hook
        same_models(pair[0][1], pair[1][1], rtol=0.01 if low else 1e-4, atol=1e-2 if low else 1e-5)
    with pytest.raises(RuntimeError, match="only be called once"):
        pair[0][1].register_comm_hook(group, halved)
    ours, plain = both(group), both(group)
    ours[0][1]._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    train(*ours[0], 2)
    train(*plain[0], 2)
    same_models(ours[0][1].cpu(), plain[0][1].cpu())


def find_unused(group):
    """Rank 0 reads the loss, which needs the buffers' broadcast, before the ranks meet."""
    pair = both(group, find_unused_parameters=True)
    for device, ddp in pair:
        for i in range(3):
            g = torch.Generator().manual_seed(10 * dist.get_rank() + i)
            loss = ddp(torch.randn(5, 4, generator=g).to(device)).pow(2).sum()
            if dist.get_rank() == 0:
                assert loss.item() > 0
            loss.backward()
            with torch.no_grad():
                for p in ddp.parameters():
                    p -= 0.1 * p.grad
            ddp.zero_grad()
    same_models(pair[0][1], pair[1][1], rtol=1e-4, atol=1e-5)


def uneven_splits(group):
    all_to_all(group, [[1, 0, 2], [3, 2, 1], [0, 4, 2]])
    all_to_all(group, [[2, 2, 2], [2, 3, 2], [2, 2, 2]])  # to rank 0 all sizes are equal
    pair = dist.new_group([0, 1], backend="xla")
    beside = dist.new_group([0, 1], backend="gloo")
    if dist.get_rank() < 2:
        all_to_all(pair, [[2, 2], [2, 3]], beside)


def all_to_all(group, sizes, beside=None):
    """`sizes`: rows that rank i sends to rank j."""
    r = dist.get_rank()
    mine, coming = sizes[r], [s[r] for s in sizes]
    x = torch.arange(sum(mine) * 2.0).view(-1, 2) + 100 * r
    out, expected = torch.zeros(sum(coming), 2, device="xla"), torch.zeros(sum(coming), 2)
    dist.all_to_all_single(out, x.to("xla"), coming, mine, group=group)
    dist.all_to_all_single(expected, x, coming, mine, group=beside)
    assert torch.equal(out.cpu(), expected)
    outs = [torch.zeros(n, 2, device="xla") for n in coming]
    dist.all_to_all(outs, list(x.to("xla").split(mine)), group=group)
    assert torch.equal(torch.cat(outs).cpu(), expected)


def messages(group):
    r = dist.get_rank()
    after, before = (r + 1) % N, (r - 1) % N
    x = torch.full((2, 2), float(r), device="xla")
    if r == 0:
        dist.send(x, 2, group=group)
    elif r == 2:
        t = torch.empty(2, 2, device="xla")
        assert dist.recv(t, 0, group=group) == 0
        assert t.tolist() == [[0.0, 0.0]] * 2
    # All send first, and wait then.
    t = torch.empty(2, 2, device="xla")
    works = [dist.isend(x, after, group=group), dist.irecv(t, before, group=group)]
    for work in works:
        work.wait()
    assert t.tolist() == [[float(before)] * 2] * 2
    t = torch.empty(2, 2, device="xla")
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, t, after, group=group),
            dist.P2POp(dist.isend, x, before, group=group),
        ]
    )
    for work in works:
        work.wait()
    assert t.tolist() == [[float(after)] * 2] * 2
    for done in (lambda w: w.is_completed(), lambda w: w.get_future().done(), lambda w: w.result()):
        t = torch.empty(2, 2, device="xla")
        works = [dist.isend(x, after, group=group), dist.irecv(t, before, group=group)]
        assert all(done(w) for w in works)
        assert t.tolist() == [[float(before)] * 2] * 2
    on_host = torch.zeros(2)
    dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, on_host, before, group=group),
            dist.P2POp(dist.isend, torch.full((2,), 5.0 + r), after, group=group),
        ]
    )[0].wait()
    assert on_host.tolist() == [5.0 + before] * 2
    with pytest.raises(NotImplementedError, match="any source"):
        dist.recv(t, group=group)


def run(index):
    dist.init_process_group("gloo")
    group = dist.new_group(backend="xla")
    for part in (uneven_splits, messages, hooks, uneven_inputs, find_unused):
        part(group)
        dist.barrier()
    dist.destroy_process_group()


def test_beside_gloo(monkeypatch):
    monkeypatch.setenv("XLA_WAIT_TIMEOUT_S", "60")
    xmp.spawn(run, nprocs=N)
