"""copy, deepcopy, pickle and torch.save: values, identity, and which copies share memory."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import _XLAC
from torch_xla.debug import metrics

from .conftest import assert_same

same_memory = _XLAC._xla_get_tensor_id


def test_deepcopy_keeps_what_shares_memory():
    """Like the CPU, through storages: views, transposed ones, detached ones."""

    def program(device: str) -> list[torch.Tensor]:
        a = torch.arange(6.0).to(device).view(2, 3)
        parts = (a, a[1], a.t(), a.detach(), a.view(-1)[1:5].view(2, 2).t(), a.clone())
        copies = copy.deepcopy({"parts": parts, "again": [a]})
        assert copies["again"][0] is copies["parts"][0]
        copies["parts"][1].mul_(10)  # seen by its relatives, not by the originals
        copies["parts"][2][0, 0] = 7
        return [*copies["parts"], *parts]

    for ours, theirs in zip(program("xla"), program("cpu"), strict=True):
        assert_same(ours, theirs)


def test_deepcopy_of_parameters_and_their_data(device):
    p = nn.Parameter(torch.ones(3, device=device))
    q, data = copy.deepcopy([p, p.data])
    assert type(q) is nn.Parameter and q.is_leaf and q.requires_grad
    data.fill_(5)
    assert q.tolist() == [5, 5, 5] and p.tolist() == [1, 1, 1]
    x = torch.ones(3, device=device, requires_grad=True)
    x.grad = torch.full((3,), 2.0, device=device)
    y = copy.deepcopy(x)
    y.grad += 1
    assert y.requires_grad and x.grad.tolist() == [2, 2, 2] and y.grad.tolist() == [3, 3, 3]


def test_deepcopies_are_apart(device):
    a = torch.zeros(2, device=device)
    b, c = copy.deepcopy(a), copy.deepcopy(a)
    b += 1
    assert (a.tolist(), b.tolist(), c.tolist()) == ([0, 0], [1, 1], [0, 0])
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(torch.ones(1, device=device, requires_grad=True) * 2)


def test_deepcopy_of_a_module_with_tied_and_viewed_weights(device):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(4, 3)
            self.out = nn.Linear(3, 4, bias=False)
            self.out.weight = self.embedding.weight
            self.register_buffer("row", torch.zeros(4, 3))

    net = Net().to(device)
    net.row = net.embedding.weight.data[0]
    twin = copy.deepcopy(net)
    assert twin.out.weight is twin.embedding.weight is not net.out.weight
    with torch.no_grad():
        twin.out.weight.fill_(3)
    assert twin.row.tolist() == [3, 3, 3]
    assert_same(net.row, net.out.weight[0].cpu())


@pytest.mark.parametrize("requires_grad", [False, True])
def test_copy_is_shallow(requires_grad):
    def program(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.zeros(3, device=device).requires_grad_(requires_grad)
        b = copy.copy(a)
        assert type(b) is torch.Tensor and b is not a and b.is_leaf
        assert b.requires_grad == requires_grad
        with torch.no_grad():
            b[1] = 4
        return a, b

    for ours, theirs in zip(program("xla"), program("cpu"), strict=True):
        assert_same(ours, theirs)


def test_copy_of_a_parameter_and_of_a_module(device):
    p = nn.Parameter(torch.zeros(2, device=device))
    q = copy.copy(p)
    assert type(q) is nn.Parameter and same_memory(q) == same_memory(p)
    layer = nn.Linear(2, 2).to(device)
    assert copy.copy(layer).weight is layer.weight


def test_pickle_and_torch_save_of_views(device):
    a = torch.arange(12.0, device=device).view(3, 4)
    views = {"a": a, "row": a[1], "t": a.t(), "strided": a[:, ::2], "again": a}
    for back in (pickle.loads(pickle.dumps(views)), _saved(views)):
        for name, value in views.items():
            assert back[name].device == device
            assert_same(back[name], value.cpu())
        assert back["again"] is back["a"]
    p = nn.Parameter(a.clone(), requires_grad=False)
    back = pickle.loads(pickle.dumps(p))
    assert type(back) is nn.Parameter and not back.requires_grad and back.device == device


def _saved(data):
    buffer = io.BytesIO()
    torch.save(data, buffer)
    buffer.seek(0)
    return torch.load(buffer)


def test_tied_weights_are_saved_once(device, tmp_path):
    """A state_dict has a tensor of its own for each name; on the CPU they share a storage."""
    net = nn.Sequential(nn.Linear(50, 50, bias=False), nn.Linear(50, 50, bias=False)).to(device)
    net[1].weight = net[0].weight
    xm.save(net.state_dict(), tmp_path / "tied.pt")
    back = torch.load(tmp_path / "tied.pt")
    assert back["0.weight"].data_ptr() == back["1.weight"].data_ptr()
    assert (tmp_path / "tied.pt").stat().st_size < 50 * 50 * 4 * 1.5
    assert_same(net[0].weight, back["1.weight"])


def test_files_load_where_torch_xla_is_not_installed(device, tmp_path, run_python):
    a = torch.arange(6.0, device=device).view(2, 3)
    xm.save({"a": a, "row": a[1], "bf16": a.bfloat16(), "p": nn.Parameter(a[0])}, tmp_path / "x.pt")
    torch.save({"a": a, "t": a.t()}, tmp_path / "torch.pt")
    done = run_python(
        """
        import importlib.abc, sys
        class Missing(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name.split(".")[0] == "torch_xla":
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Missing())
        import torch
        try:
            import torch_xla
        except ModuleNotFoundError:
            print("blocked")
        x = torch.load(sys.argv[1] + "/x.pt")
        assert all(v.device.type == "cpu" for v in x.values())
        print(x["row"].tolist(), x["bf16"].dtype, type(x["p"]).__name__)
        t = torch.load(sys.argv[1] + "/torch.pt", map_location="cpu")
        print(t["t"].tolist(), t["a"].device)
        """,
        str(tmp_path),
        PYTHONPATH=None,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "blocked",
        "[3.0, 4.0, 5.0] torch.bfloat16 Parameter",
        "[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] cpu",
        "",
    ]


def test_tied_weights_stay_tied_under_every_optimizer(device):
    for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop):
        torch.manual_seed(0)
        cpu = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
        cpu[2].weight = cpu[0].weight
        xla = copy.deepcopy(cpu).to(device)
        assert xla[2].weight is xla[0].weight
        x = torch.randn(4, 3)
        for model in (cpu, xla):
            optimizer = make(model.parameters(), lr=0.05)
            for _ in range(3):
                optimizer.zero_grad()
                model(x.to(model[0].weight.device)).square().sum().backward()
                optimizer.step()
        assert xla[2].weight is xla[0].weight
        assert_same(xla[0].weight, cpu[0].weight, rtol=1e-4, atol=1e-5)


def test_copies_run_nothing(device):
    a = torch.ones(3, device=device)
    torch_xla.sync(wait=True)
    before = metrics.metric_data("ExecuteTime")
    copy.copy(a), copy.deepcopy((a, a[1:]))
    assert metrics.metric_data("ExecuteTime") == before
