"""Loaders that read and upload in the background."""

import collections
import dataclasses
import gc
import threading
import time

import pytest
import torch

import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch_xla.debug import metrics


@pytest.fixture
def device():
    return torch_xla.device()


@pytest.fixture(autouse=True)
def no_threads_left():
    yield
    gc.collect()
    end = time.monotonic() + 5
    while loader_threads() and time.monotonic() < end:
        time.sleep(0.01)
    assert not loader_threads()


def loader_threads():
    return [t for t in threading.enumerate() if t.name == "torch_xla-loader"]


def batches(n=5):
    return [torch.full((2,), float(i)) for i in range(n)]


class Slow:
    """Counts what was read."""

    def __init__(self, n, fail_at=None):
        self.n, self.fail_at, self.read = n, fail_at, 0

    def __len__(self):
        return self.n

    def __iter__(self):
        for i in range(self.n):
            if i == self.fail_at:
                raise OSError(f"batch {i} is broken")
            self.read += 1
            yield torch.full((2,), float(i))


def steps():
    return metrics.counter_value("MarkStep") or 0


def test_all_batches_in_order_again_and_again(device):
    loader = pl.MpDeviceLoader(batches(), device)
    assert len(loader) == 5
    for _ in range(2):
        got = list(loader)
        assert [t.device for t in got] == [device] * 5
        assert [t[0].item() for t in got] == [0, 1, 2, 3, 4]
    many = pl.MpDeviceLoader(batches(40), device, host_to_device_transfer_threads=4)
    assert [t[0].item() for t in many] == list(range(40))


def test_each_batch_ends_a_step(device):
    before, seen = steps(), []
    for _ in pl.MpDeviceLoader(batches(4), device):
        seen.append(steps() - before)
    assert seen == [1, 2, 3, 4] and steps() - before == 5
    before = steps()
    for _ in pl.MpDeviceLoader(batches(5), device, batches_per_execution=2):
        pass
    assert steps() - before == 4  # before batches 1, 3, 5 and at the end


def test_a_step_s_work_is_launched(device):
    total = torch.zeros(2, device=device)
    for x in pl.MpDeviceLoader(batches(3), device):
        total += x
    assert "add" not in torch_xla._XLAC._xla_dump_graph(0, [total], False)
    assert total.tolist() == [3, 3]


Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Record:
    x: torch.Tensor
    name: str


class HasTo:
    def __init__(self, x):
        self.x = x

    def to(self, device):
        return HasTo(self.x.to(device))


def test_nested_batches(device):
    x = torch.arange(3)
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    batch = {
        "list": [x, (x, "text", None, 3)],
        "pair": Pair(x, [x]),
        "record": Record(x, "name"),
        "user": collections.UserDict(x=x),
        "ordered": collections.OrderedDict(b=x, a=x),
        "to": HasTo(x),
        "packed": packed,
        "grad": torch.ones(2, requires_grad=True),
    }
    (got,) = pl.MpDeviceLoader([batch], device)
    assert x.device.type == "cpu" and batch["user"]["x"] is x and batch["record"].x is x
    assert got["list"][1][1:] == ("text", None, 3) and isinstance(got["list"][1], tuple)
    assert isinstance(got["pair"], Pair) and isinstance(got["record"], Record)
    assert isinstance(got["user"], collections.UserDict) and list(got["ordered"]) == ["b", "a"]
    assert got["record"].name == "name" and got["grad"].requires_grad and got["grad"].is_leaf
    for t in (
        got["list"][0], got["list"][1][0], got["pair"].x, got["pair"].y[0], got["record"].x,
        got["user"]["x"], got["ordered"]["a"], got["to"].x,
    ):  # fmt: skip
        assert t.device == device and t.tolist() == [0, 1, 2]
    assert got["packed"].data.device == device


def test_reads_ahead_and_no_further_than_asked(device):
    source = Slow(100)
    loader = pl.ParallelLoader(source, [device], loader_prefetch_size=3, device_prefetch_size=2)
    it = loader.per_device_loader(device)
    next(it)
    end = time.monotonic() + 10
    while source.read < 7 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    # One given, 2 on the device, 3 on the host, one in the hands of each thread.
    assert 6 <= source.read <= 8
    assert len(it) == loader.per_device_samples() == 100
    loader.close()
    with pytest.raises(StopIteration):
        next(it)


def test_reading_overlaps_with_the_consumer(device):
    class Sleepy:
        def __iter__(self):
            for x in batches(8):
                time.sleep(0.1)
                yield x

    next(iter(pl.MpDeviceLoader(batches(1), device)))
    start = time.monotonic()
    for x in pl.MpDeviceLoader(Sleepy(), device):
        x.cpu()
        time.sleep(0.1)
    assert time.monotonic() - start < 1.5  # 1.6 one after the other


def test_errors_of_the_loader_reach_the_consumer(device):
    got = []
    with pytest.raises(OSError, match="batch 3 is broken") as e:
        for x in pl.MpDeviceLoader(Slow(5, fail_at=3), device):
            got.append(x[0].item())
    assert got == [0, 1, 2]
    assert any("__iter__" in str(entry.name) for entry in e.traceback)  # where it happened
    del e

    class Broken:
        def __iter__(self):
            raise KeyError("no data")

    with pytest.raises(KeyError, match="no data"):
        next(iter(pl.MpDeviceLoader(Broken(), device)))

    class Unmovable:
        def to(self, device):
            raise ValueError("stays here")

    it = iter(pl.MpDeviceLoader([torch.ones(1), Unmovable(), torch.ones(1)], device))
    next(it)
    with pytest.raises(ValueError, match="stays here"):
        next(it)
    with pytest.raises(StopIteration):
        next(it)


class Failing(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            raise ZeroDivisionError("item 5")
        return torch.full((2,), float(i))


def test_errors_of_a_worker_process(device):
    loader = torch.utils.data.DataLoader(Failing(), batch_size=2, num_workers=1)
    got = []
    with pytest.raises(ZeroDivisionError, match="item 5"):
        for x in pl.MpDeviceLoader(loader, device):
            got.append(x.shape)
    assert len(got) == 2


def test_leaving_early(device):
    for x in pl.MpDeviceLoader(Slow(1000), device):
        if x[0] == 2:
            break
    it = iter(pl.MpDeviceLoader(Slow(1000), device))
    next(it)
    del it
    with pytest.raises(RuntimeError, match="mine"):
        for _ in pl.MpDeviceLoader(Slow(1000), device):
            raise RuntimeError("mine")
    never = pl.ParallelLoader(Slow(1000), [device])
    del never


def test_wrong_arguments(device):
    with pytest.raises(ValueError, match="batches_per_execution 0"):
        pl.ParallelLoader(batches(), [device], batches_per_execution=0)
    with pytest.raises(ValueError, match="at least one device"):
        pl.ParallelLoader(batches(), [])
    with pytest.raises(ValueError, match="not all different"):
        pl.ParallelLoader(batches(), [device, device])
    with pytest.raises(ValueError, match="xla:1 is none of"):
        pl.ParallelLoader(batches(), [device]).per_device_loader("xla:1")
    with pytest.raises(NotImplementedError, match="shard"):
        pl.ParallelLoader(batches(), [device], input_sharding=1)
    with pytest.raises(TypeError):
        len(pl.MpDeviceLoader(iter([]), device))


TWO_DEVICES = """
import torch, torch_xla
import torch_xla.distributed.parallel_loader as pl
devices = torch_xla.devices()
loader = pl.ParallelLoader([torch.full((1,), float(i)) for i in range(7)], devices)
got = [[], []]
lanes = [loader.per_device_loader(d) for d in devices]
for _ in range(3):
    for d, lane in enumerate(lanes):
        x = next(lane)
        assert x.device == devices[d]
        got[d].append(x.item())
for lane in lanes:
    assert len(lane) == 3
    for x in lane:
        raise AssertionError(x)
assert got == [[0, 2, 4], [1, 3, 5]], got

# At exit, in the middle of a loop that nobody will go on with.
kept = iter(pl.MpDeviceLoader([torch.ones(1)] * 1000, devices[1]))
next(kept)
print("done")
"""


def test_batches_are_dealt_to_the_devices_in_turn(run_program):
    p = run_program(TWO_DEVICES, CPU_NUM_DEVICES="2")
    assert p.returncode == 0 and p.stdout == "done\n", p.stderr
    assert not p.stderr
