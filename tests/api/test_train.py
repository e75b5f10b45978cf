"""Training on the device does what training on the CPU does, with few compilations."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.debug import metrics

from .conftest import assert_same, compiles

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


def batches(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 6, generator=g), torch.randint(3, (5,), generator=g)) for _ in range(n)]


def train(model, optimizer, schedule, device, end_step) -> tuple[list[float], list[int]]:
    losses, counts = [], []
    for x, y in batches(6):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        end_step(optimizer)
        schedule.step()
        losses.append(loss.item())
        counts.append(compiles())
    return losses, counts


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_same_losses_and_no_recompilation(device, name):
    """The learning rate changes at each step, Adam's bias correction too."""
    metrics.clear_counters()
    results = {}
    for where in ("cpu", device):
        model = make_model().to(where)
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        end_step = (
            (lambda o: o.step()) if where == "cpu" else lambda o: xm.optimizer_step(o, barrier=True)
        )
        results[str(where)] = (
            *train(model, optimizer, schedule, where, end_step),
            model.state_dict(),
        )
    losses, counts, state = results[str(device)]
    torch.testing.assert_close(losses, results["cpu"][0], rtol=1e-4, atol=1e-5)
    for key, value in results["cpu"][2].items():
        assert state[key].device.type == "xla"
        assert_same(state[key], value, rtol=1e-4, atol=1e-5)
    assert counts[-1] == counts[1], f"compilations after each step: {counts}"
    assert metrics.executed_fallback_ops() in ([], ["aten::_local_scalar_dense"])


def test_loss_read_before_the_sync_settles(device):
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts = []
    for x, y in batches(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        loss.item()
        optimizer.step()
        torch_xla.sync()
        counts.append(compiles())
    assert counts[-1] == counts[1], counts


def test_loss_read_sometimes(device):
    model = make_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    counts = []
    for i, (x, y) in enumerate(batches(9)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        if i % 3 == 0:
            loss.item()
        counts.append(compiles())
    assert counts[-1] == counts[1], counts


def test_optimizer_step_returns_and_passes_on(device):
    p = torch.nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([p], lr=1.0)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    loss = xm.optimizer_step(optimizer, barrier=True, optimizer_args={"closure": closure})
    assert loss.item() == 2
    assert p.tolist() == [-1, -1]
    assert [g.tolist() for g in xm._fetch_gradients(optimizer)] == [[2, 2]]


def test_dropout_does_not_recompile(device):
    model = nn.Sequential(make_model(), nn.Dropout(0.5)).to(device)
    counts, outputs = [], []
    for x, _ in batches(4):
        outputs.append(model(torch.ones_like(x).to(device)))
        torch_xla.sync()
        counts.append(compiles())
    assert counts[-1] == counts[0]
    assert not torch.equal(outputs[0].cpu(), outputs[1].cpu())


def test_batch_norm_statistics(device):
    cpu = nn.BatchNorm2d(3)
    xla = copy.deepcopy(cpu).to(device)
    g = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randn(4, 3, 2, 2, generator=g)
        assert_same(xla(x.to(device)), cpu(x), rtol=1e-4, atol=1e-5)
        torch_xla.sync()
    assert_same(xla.running_mean, cpu.running_mean)
    assert_same(xla.running_var, cpu.running_var, rtol=1e-4, atol=1e-5)
    assert xla.num_batches_tracked.item() == 3
    x = torch.randn(4, 3, 2, 2, generator=g)
    assert_same(xla.eval()(x.to(device)), cpu.eval()(x), rtol=1e-4, atol=1e-5)


def test_step_closures(device):
    seen = []
    x = torch.arange(3.0).to(device)
    y = x * 2
    xm.add_step_closure(lambda t, label: seen.append((label, t.tolist())), args=(y, "a"))
    assert seen == []
    torch_xla.sync()
    assert seen == [("a", [0, 2, 4])]
    torch_xla.sync()
    assert len(seen) == 1


def test_asynchronous_step_closures(device):
    seen = []
    total = torch.zeros(2).to(device)
    for _ in range(3):
        total += 1
        xm.add_step_closure(lambda t: seen.append(t.tolist()), args=(total,), run_async=True)
        torch_xla.sync()
    xm.add_step_closure(lambda: seen.append("last"), run_async=True)
    torch_xla.sync()
    from torch_xla._src import step

    step._get_executor().submit(lambda: None).result(timeout=60)
    assert seen == [[1, 1], [2, 2], [3, 3], "last"]


def test_failing_step_closures(device):
    def fail():
        raise KeyError("mine")

    xm.add_step_closure(fail)
    with pytest.raises(KeyError, match="mine"):
        torch_xla.sync()
    torch_xla.sync()


def test_a_step_closure_must_be_callable():
    with pytest.raises(TypeError, match="must be callable, got int"):
        xm.add_step_closure(3)
