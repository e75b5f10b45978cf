"""Training on N devices is training on one with the whole batch, however they are started."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla.debug import metrics

from .conftest import LAUNCHERS

N, STEPS, BATCH = 2, 20, 4


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x)).mean(1))


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def convnet():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 9, 3),
    )


def data(name):
    """Batches of STEPS steps of all replicas."""
    g = torch.Generator().manual_seed(1)
    n = STEPS * BATCH * N
    x = {
        "mlp": lambda: torch.randn(n, 6, generator=g),
        "convnet": lambda: torch.randn(n, 2, 6, 6, generator=g),
        "transformer": lambda: torch.randint(11, (n, 5), generator=g),
    }[name]()
    return TensorDataset(x, torch.randint(3, (n,), generator=g))


# torch.distributed has one rank per process.
DDP = {"spawn": (False, True), "thread": (False,), "torchrun": (False, True)}
MODELS = {"mlp": mlp, "convnet": convnet, "transformer": Transformer}


def build(name):
    torch.manual_seed(0)
    return MODELS[name]()


def reference(name):
    """One model on the host; each batch holds what the replicas get in that step."""
    model = build(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    everything = data(name)
    for step in range(STEPS):
        # DistributedSampler deals the samples in turn.
        x, y = everything[step * BATCH * N : (step + 1) * BATCH * N]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.state_dict()


def train(name, ddp):
    device = torch_xla.device()
    # One after the other: threads share the host's random numbers.
    model = xmp.MpSerialExecutor().run(lambda: build(name)).to(device)
    if not ddp:
        with torch.no_grad():
            for p in model.parameters():
                p += xr.global_ordinal()
        xm.broadcast_master_param(model)
    trained = DistributedDataParallel(model, bucket_cap_mb=0.0001) if ddp else model
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    everything = data(name)
    sampler = DistributedSampler(everything, N, xr.global_ordinal(), shuffle=False)
    loader = DataLoader(everything, BATCH, sampler=sampler)
    compiled = []
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        F.cross_entropy(trained(x), y).backward()
        if ddp:
            optimizer.step()
        else:
            xm.optimizer_step(optimizer)
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert len(compiled) == STEPS and compiled[3] == compiled[-1], compiled
    xm.rendezvous("trained")  # threads count compilations together
    return xm._maybe_convert_to_cpu(model.state_dict())


def run(index, launcher, folder):
    folder = Path(folder)
    if launcher != "thread":
        dist.init_process_group("xla", init_method="xla://")
    for name in MODELS:
        for ddp in DDP[launcher]:
            torch.save(train(name, ddp), folder / f"{name}-{ddp}-{xr.global_ordinal()}.pt")
    if launcher == "thread":
        with pytest.raises(RuntimeError, match="one rank per process"):
            dist.init_process_group("xla", init_method="xla://")
        return
    other_features(folder / "checkpoint")
    every_collective()
    dist.destroy_process_group()


def other_features(folder):
    r, device = dist.get_rank(), torch_xla.device()
    # Gradients add up without synchronisation, then all are averaged.
    model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False).to(device))
    x = torch.tensor([[1.0, 2.0]]).to(device) * (r + 1)
    with model.no_sync():
        model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[r + 1.0, 2 * r + 2.0]]
    model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[3.0, 6.0]]

    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(3))

        def forward(self, x, i):
            return self.parts[i](x)

    one = torch.ones(1, 1).to(device)
    model = DistributedDataParallel(Branches().to(device), find_unused_parameters=True)
    model(one, r).sum().backward()
    grads = [p.grad for p in model.parameters()]
    assert grads[0].item() == grads[1].item() == 0.5 and grads[2] is None
    strict = DistributedDataParallel(Branches().to(device))
    strict(one, 0).sum().backward()
    with pytest.raises(RuntimeError, match="did not receive grad: parts"):
        strict(one, 0)

    state = {"x": torch.arange(4.0).to(device), "step": 3}
    dcp.save(state, checkpoint_id=folder)
    loaded = {"x": torch.zeros(4).to(device), "step": 0}
    dcp.load(loaded, checkpoint_id=folder)
    assert loaded["x"].tolist() == [0, 1, 2, 3] and loaded["step"] == 3


def every_collective():
    r, device = dist.get_rank(), torch_xla.device()
    x = torch.arange(4.0) + 10 * r
    both = [torch.arange(4.0), torch.arange(4.0) + 10]

    def give():
        return x.to(device)

    def zeros(*shape):
        return torch.zeros(shape, device=device)

    def same(actual, expected):
        torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)

    for op, expected in (
        (dist.ReduceOp.SUM, both[0] + both[1]),
        (dist.ReduceOp.AVG, (both[0] + both[1]) / 2),
        (dist.ReduceOp.MAX, both[1]),
        (dist.ReduceOp.PRODUCT, both[0] * both[1]),
    ):
        t = give()
        dist.all_reduce(t, op)
        same(t, expected)
    on_host = x.clone()
    work = dist.all_reduce(on_host, async_op=True)
    work.wait()
    same(on_host, both[0] + both[1])
    t = give()
    dist.broadcast(t, 1)
    same(t, both[1])
    t = give()
    dist.reduce(t, 0)
    same(t, both[0] + both[1] if r == 0 else x)
    out = [zeros(4), zeros(4)]
    dist.all_gather(out, give())
    same(torch.stack(out), torch.stack(both))
    flat = zeros(8)
    dist.all_gather_into_tensor(flat, give())
    same(flat, torch.cat(both))
    out = [zeros(4), zeros(4)] if r == 1 else None
    dist.gather(give(), out, dst=1)
    if r == 1:
        same(torch.stack(out), torch.stack(both))
    t = zeros(4)
    dist.scatter(t, [give(), give() + 1] if r == 0 else None, src=0)
    same(t, both[0] + r)
    t = zeros(2)
    dist.reduce_scatter(t, list(give().chunk(2)))
    same(t, (both[0] + both[1]).chunk(2)[r])
    t = zeros(2)
    dist.reduce_scatter_tensor(t, give(), dist.ReduceOp.AVG)
    same(t, (both[0] + both[1]).chunk(2)[r] / 2)
    expected = torch.stack([b.chunk(2)[r] for b in both])
    out = [zeros(2), zeros(2)]
    dist.all_to_all(out, list(give().chunk(2)))
    same(torch.stack(out), expected)
    t = zeros(4)
    dist.all_to_all_single(t, give())
    same(t, expected.flatten())
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": r})
    assert objects == [{"rank": 0}, {"rank": 1}]
    objects = [r]
    dist.broadcast_object_list(objects, 1)
    assert objects == [1]
    alone = dist.new_group([1])
    if r == 1:
        t = give()
        dist.all_reduce(t, group=alone)
        same(t, x)
    dist.barrier()
    t = zeros(4)
    if r == 0:
        dist.send(give(), 1)
        dist.recv(t, 1)
    else:
        dist.recv(t, 0)
        dist.send(give(), 0)
    same(t, both[1 - r])
    with pytest.raises(ValueError, match="does not have the reduction"):
        dist.all_reduce(give().int(), dist.ReduceOp.BXOR)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_training(launcher, run_replicas, tmp_path):
    run_replicas(launcher, run, N, launcher, tmp_path)
    for name in MODELS:
        expected = reference(name)
        for ddp in DDP[launcher]:
            for rank in range(N):
                got = torch.load(tmp_path / f"{name}-{ddp}-{rank}.pt")
                for key in expected:
                    torch.testing.assert_close(got[key], expected[key], rtol=2e-4, atol=2e-5)
