"""Copies between host and device; saving and loading."""

import copy
import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn

import torch_xla.core.xla_model as xm

from .conftest import assert_same

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex32,
]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (3, 1, 2)], ids=str)
def test_round_trip(device, dtype, shape):
    c = (torch.randn(shape) * 50).to(dtype)
    x = c.to(device)
    assert x.dtype == dtype and x.shape == shape
    back = x.cpu()
    assert back.dtype == dtype
    assert_same(back, c, rtol=0, atol=0)


def test_host_copies_are_independent(device):
    c = torch.zeros(4)
    x = c.to(device)
    c.fill_(1)
    back = x.cpu()
    assert back.tolist() == [0] * 4
    back.fill_(2)
    x += 1
    assert x.tolist() == [1] * 4 and back.tolist() == [2] * 4


def test_strided_source(device):
    c = torch.arange(12.0).view(3, 4).t()[::2]
    assert_same(c.to(device), c)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.pt"


def test_device_tensors_load_where_they_were(device, path):
    x = torch.randn(3, device=device)
    torch.save({"x": x, "n": 1}, path)
    back = torch.load(path)
    assert back["x"].device == device
    assert_same(back["x"], x.cpu())


@pytest.mark.parametrize("location", ["xla", "xla:0", torch.device("xla")], ids=str)
def test_map_location_to_the_device(device, path, location):
    c = {"a": torch.randn(2, 3), "t": torch.arange(6).view(2, 3).t(), "s": torch.tensor(2.5)}
    c["view"] = c["a"][1]
    torch.save(c, path)
    back = torch.load(path, map_location=location)
    for key, value in c.items():
        assert back[key].device == device
        assert_same(back[key], value)


def test_map_location_of_a_module(device, path):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    torch.save(model.state_dict(), path)
    state = torch.load(path, map_location="xla")
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(device)
    other.load_state_dict(state)
    for key, value in model.state_dict().items():
        assert_same(other.state_dict()[key], value)


def test_map_location_to_a_missing_device(path):
    torch.save(torch.ones(1), path)
    with pytest.raises(RuntimeError, match="cannot load onto xla:5: this process has 1"):
        torch.load(path, map_location="xla:5")


def test_files_load_without_torch_xla(device, path, run_python):
    model = nn.Linear(3, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3, device=device)).sum().backward()
    optimizer.step()
    xm.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    done = run_python(
        """
        import sys, torch
        c = torch.load(sys.argv[1])
        assert "torch_xla" not in sys.modules
        assert c["optimizer"]["state"][0]["exp_avg"].device.type == "cpu"
        print(c["model"]["weight"].flatten().tolist())
        """,
        str(path),
    )
    assert done.returncode == 0, done.stderr
    loaded = torch.tensor([float(v) for v in done.stdout.strip()[1:-1].split(",")])
    assert_same(loaded.view(3, 3), model.weight.cpu())


def test_save_keeps_structure(device, path):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
    model[0].bias = nn.Parameter(model[0].bias.detach())
    state = model.state_dict()
    xm.save(state, path)
    back = torch.load(path)
    assert isinstance(back, OrderedDict) and list(back) == list(state)
    assert back._metadata == state._metadata
    assert all(v.device.type == "cpu" for v in back.values())


def test_save_by_a_master_only(device, path, monkeypatch):
    monkeypatch.setattr(xm, "is_master_ordinal", lambda local=True: False)
    xm.save(torch.ones(2, device=device), path)
    assert not path.exists()
    xm.save(torch.ones(2, device=device), path, master_only=False)
    assert torch.load(path).tolist() == [1, 1]


def test_convert_to_cpu(device):
    p = nn.Parameter(torch.ones(2, device=device))
    x = torch.zeros(1, device=device)
    data = {"p": p, "again": [p, (x, 3, "s", None)], "cpu": torch.ones(1)}
    out = xm._maybe_convert_to_cpu(data)
    assert isinstance(out["p"], nn.Parameter) and out["p"].requires_grad
    assert out["again"][0] is out["p"]
    assert out["again"][1][0].device.type == "cpu" and out["again"][1][1:] == (3, "s", None)
    assert out["cpu"] is data["cpu"]
    assert xm._maybe_convert_to_cpu(data, convert=False) is data


def test_send_to_device(device):
    out = xm.send_cpu_data_to_device([torch.ones(2), {"a": torch.zeros(1), "b": 2}], device)
    assert out[0].device == device and out[1]["a"].device == device and out[1]["b"] == 2
    with pytest.raises(NotImplementedError, match="shard"):
        xm.send_cpu_data_to_device([], device, input_sharding=object())


def test_copies_and_pickle(device):
    x = torch.arange(3.0).to(device)
    y = copy.deepcopy(x)
    y += 1
    assert x.tolist() == [0, 1, 2] and y.tolist() == [1, 2, 3]
    z = pickle.loads(pickle.dumps(x))
    assert z.device == device and z.tolist() == [0, 1, 2]
    model = copy.deepcopy(nn.Linear(2, 2).to(device))
    assert model.weight.is_leaf and model.weight.device == device


def test_no_storage(device):
    with pytest.raises((RuntimeError, NotImplementedError), match="storage"):
        torch.ones(1, device=device).untyped_storage()


def test_no_dlpack_yet(device):
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(1, device=device).__dlpack__()
