"""Nothing runs before a value is needed; each graph compiles once."""

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm

from .conftest import assert_same, compiles, executions


@pytest.fixture
def pair(device):
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    xa, xb = a.to(device), b.to(device)
    torch_xla.sync(wait=True)
    return a, b, xa, xb


def test_recording_runs_nothing(pair):
    a, b, xa, xb = pair
    before = compiles(), executions()
    y = (xa + xb).mm(xa).relu()
    assert y.shape == (3, 3) and y.dtype == torch.float32 and y.device.type == "xla"
    assert (compiles(), executions()) == before
    value = y.cpu()
    assert executions() > before[1]
    assert_same(value, (a + b).mm(a).relu())


READS = {
    "cpu": lambda t: t.cpu(),
    "item": lambda t: t.sum().item(),
    "bool": lambda t: bool((t == t).all()),
    "float": lambda t: float(t.sum()),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.cpu().numpy(),
    "print": str,
    "copy": lambda t: torch.empty(3, 3).copy_(t),
}


@pytest.mark.parametrize("how", READS)
def test_reads_execute(pair, how):
    _, _, xa, _ = pair
    y = xa * 2 + 1
    before = executions()
    READS[how](y)
    torch_xla.sync(wait=True)
    assert executions() > before


def test_prints_as_on_the_cpu(pair):
    a, _, xa, _ = pair
    assert str(xa) == str(a)[:-1] + ", device='xla:0')"
    assert f"{xa[0, 0]:.3f}" == f"{a[0, 0]:.3f}"
    assert repr(torch.tensor(3, device="xla")) == "tensor(3, device='xla:0')"


def test_a_value_is_computed_once(pair):
    _, _, xa, xb = pair
    y = xa.mm(xb)
    y.cpu()
    before = executions()
    y.cpu(), y.tolist()
    assert executions() == before


def test_one_compilation_per_graph(pair):
    _, _, xa, _ = pair
    counts = []
    for i in range(5):
        x = torch.full((3, 3), float(i)).to("xla")
        y = torch.relu(x @ xa).sum(1)
        torch_xla.sync()
        assert_same(y, torch.relu(x.cpu() @ xa.cpu()).sum(1))
        counts.append(compiles())
    assert counts[0] == counts[-1]


def test_python_numbers_are_inputs(pair):
    _, _, xa, _ = pair
    counts = []
    for i in range(4):
        y = (xa * (0.5 + i)).add(xa, alpha=i + 2) / (i + 3)
        assert_same(y, (xa.cpu() * (0.5 + i)).add(xa.cpu(), alpha=i + 2) / (i + 3))
        counts.append(compiles())
    assert counts[0] == counts[-1]


def test_unequal_connections_are_unequal_graphs(pair):
    """Leaves of one shape hash alike; only the order of their use differs here."""
    a, b, xa, xb = pair
    assert_same((xa - xb) * (xa - xb), (a - b) * (a - b))
    assert_same((xa - xb) * (xb - xa), (a - b) * (b - a))


def test_sync_waits(pair):
    _, _, xa, _ = pair
    before = executions()
    y = xa + 1
    torch_xla.sync(wait=True)
    assert executions() == before + 1
    del y


def test_sync_of_nothing():
    torch_xla.sync(wait=True)
    before = executions()
    xm.mark_step()
    xm.wait_device_ops()
    assert executions() == before


def test_dead_tensors_are_not_computed(pair):
    _, _, xa, _ = pair
    before = executions()
    xa.exp()
    torch_xla.sync(wait=True)
    assert executions() == before


def test_unlazy(pair):
    _, _, xa, _ = pair
    before = executions()
    y = xa + 3
    xm.unlazy([y])
    assert executions() == before + 1


def test_stablehlo(pair):
    _, _, xa, xb = pair
    text = xm.get_stablehlo([xa @ xb])
    assert "stablehlo.dot_general" in text
    kept = xa.tanh()
    assert "stablehlo.tanh" in xm.get_stablehlo()
    del kept


def test_always_contiguous(device):
    c = torch.arange(24.0).reshape(2, 3, 4)
    x = c.to(device)
    for view in (
        lambda t: t.permute(2, 0, 1),
        lambda t: t.transpose(0, 1),
        lambda t: t[:1].expand(5, 3, 4),
        lambda t: t[:, ::2],
    ):
        v = view(x)
        assert v.is_contiguous() and v.stride() == torch.empty(v.shape).stride()
        assert_same(v.view(-1), view(c).reshape(-1))
