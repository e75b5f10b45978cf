"""The collectives over one replica."""

import io

import pytest
import torch

import torch_xla.core.xla_model as xm

from .conftest import assert_same


@pytest.fixture
def x(device):
    return torch.arange(4.0).to(device)


@pytest.mark.parametrize("reduce_type", ["sum", "mul", "min", "max"])
def test_all_reduce(x, reduce_type):
    y = xm.all_reduce(reduce_type, x, scale=0.5)
    assert y.tolist() == [0, 0.5, 1, 1.5] and x.tolist() == [0, 1, 2, 3]
    same = xm.all_reduce(reduce_type, x)
    same += 1
    assert x.tolist() == [0, 1, 2, 3]
    assert xm.all_reduce(reduce_type, [x], scale=2.0)[0] is x
    assert x.tolist() == [0, 2, 4, 6]


def test_bits(x):
    assert xm.all_reduce(xm.REDUCE_AND, x.int()).tolist() == [0, 1, 2, 3]
    y = x.clone()
    lists = xm.all_reduce([(xm.REDUCE_SUM, [y], [[0]]), (xm.REDUCE_OR, [x.int()])], scale=1.0)
    assert lists[0][0] is y and y.tolist() == [0, 1, 2, 3]


def test_gather_and_scatter(x, device):
    assert_same(xm.all_gather(x), x.cpu())
    out = torch.empty(4, device=device)
    assert xm.all_gather(x, output=out) is out
    assert_same(out, x.cpu())
    assert_same(xm.all_gather([x, x], pin_layout=False)[1], x.cpu())
    assert_same(xm.reduce_scatter(xm.REDUCE_SUM, x, 2.0, 0, 1), x.cpu() * 2)
    assert_same(xm.reduce_scatter(xm.REDUCE_SUM, [x], 2.0, 0, 1)[0], x.cpu() * 2)
    assert_same(xm.all_to_all(x, 0, 0, 1), x.cpu())
    assert_same(xm.collective_permute(x, [[0, 0]]), x.cpu())
    assert_same(xm.collective_permute(x, []), torch.zeros(4))
    xm.collective_broadcast([x])
    xm.broadcast_master_param(torch.nn.Linear(1, 1).to(device))


def test_bad_arguments(x):
    with pytest.raises(ValueError, match="reduce_type 'mean'"):
        xm.all_reduce("mean", x)
    with pytest.raises(ValueError, match="each of the 1 replica"):
        xm.all_reduce(xm.REDUCE_SUM, x, groups=[[0, 1]])
    with pytest.raises(ValueError, match="on an xla device"):
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(1))
    with pytest.raises(TypeError, match="float32 has no reduction 'and'"):
        xm.all_reduce(xm.REDUCE_AND, x)
    with pytest.raises(TypeError, match="cannot scale integers"):
        xm.all_reduce(xm.REDUCE_SUM, [x.int()], scale=0.5)
    with pytest.raises(ValueError, match="shard_count 2"):
        xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, 2)
    with pytest.raises(ValueError, match="root_ordinal 1"):
        xm.collective_broadcast([x], root_ordinal=1)
    with pytest.raises(ValueError, match="pairs"):
        xm.collective_permute(x, [[0, 1]])
    with pytest.raises(IndexError, match="but got 3"):
        xm.all_gather(x, dim=3)


def test_rendezvous():
    assert xm.rendezvous("tag", b"payload") == [b"payload"]
    assert xm.rendezvous("tag", replicas=[0]) == [b""]
    assert xm.xla_rendezvous(b"p") == [b"p"]
    with pytest.raises(ValueError, match="replica"):
        xm.rendezvous("tag", replicas=[0, 1])


def test_reductions_on_the_host(x):
    def check(values):
        assert [v.device.type for v in values] == ["cpu"]
        return sum(values)

    assert xm.mesh_reduce("tag", x, check).tolist() == [0, 1, 2, 3]
    assert xm.do_on_ordinals(lambda t: t.device.type, (x,)) == "cpu"
    assert xm.do_on_ordinals(lambda: 1, ordinals=(1,)) is None


def test_ordinals():
    assert xm.get_ordinal() == xm.get_local_ordinal() == 0 and xm.xrt_world_size() == 1
    assert xm.is_master_ordinal() and xm.is_master_ordinal(local=False)
    out = io.StringIO()
    xm.master_print("a", 1, fd=out)
    assert out.getvalue() == "a 1\n"
    xm.set_replication("xla:0", ["xla:0"])
    with pytest.raises(ValueError, match="xla:1 does not exist"):
        xm.set_replication("xla:0", ["xla:0", "xla:1"])
    with pytest.raises(ValueError, match="xla:0 must be one of"):
        xm.set_replication("xla:0", ["xla:1", "xla:2"])
    xm.set_replication("xla:0", None)
    assert xm.xla_replication_devices(["xla:0"]) == ["CPU:0"]


def test_names_of_later_versions():
    for name in ("optimization_barrier_", "get_stablehlo_bytecode"):
        with pytest.raises(NotImplementedError, match=f"xm.{name} is not in this version"):
            getattr(xm, name)()


def test_memory_info(device):
    try:
        info = xm.get_memory_info(device)
    except RuntimeError as e:
        assert "does not report memory" in str(e)
    else:
        assert set(info) == {"bytes_used", "bytes_limit", "peak_bytes_used"}


def test_rate_tracker(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(xm.time, "monotonic", lambda: now[0])
    tracker = xm.RateTracker(smooth_factor=0.5)
    assert tracker.rate() == 0
    tracker.add(10)
    now[0] = 1.0
    assert tracker.rate() == 10
    tracker.add(20)
    now[0] = 2.0
    assert tracker.rate() == 15
    assert tracker.global_rate() == 15
