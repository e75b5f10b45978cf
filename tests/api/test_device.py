"""Devices: names, counts, the current one, and torch's own device module."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

from .conftest import assert_same


def test_device_names(device):
    assert device == torch.device("xla", 0)
    assert xm.xla_device() == device
    assert torch_xla.devices() == [device]
    assert torch_xla.device_count() == 1
    assert torch_xla.real_devices() == ["CPU:0"]
    assert xm.xla_real_devices() == ["CPU:0"]
    assert xm.xla_real_devices([device]) == ["CPU:0"]
    assert xm.get_xla_supported_devices() == ["xla:0"]
    assert xm.get_xla_supported_devices("CPU") == ["xla:0"]
    assert xm.get_xla_supported_devices("TPU") == []
    assert xm.get_xla_supported_devices(max_devices=0) == []
    assert xm.xla_device_hw(device) == "CPU"
    assert xm.xla_device_hw("cpu") == "CPU"
    assert xm.xla_device_kind()


def test_device_that_does_not_exist():
    with pytest.raises(RuntimeError, match="xla:7 does not exist: this process has 1"):
        torch_xla.device(7)
    with pytest.raises(ValueError, match="expected an xla device, got 'cpu'"):
        xm.get_rng_state("cpu")


def test_lazy_attributes():
    assert torch_xla.xm is xm
    assert torch_xla.runtime is xr
    assert "xm" in dir(torch_xla)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        torch_xla.nothing  # noqa: B018


def test_several_devices(run_python):
    done = run_python(
        """
        import torch, torch_xla, torch_xla.core.xla_model as xm
        assert torch.xla.device_count() == 3
        a = torch.ones(2, device=torch_xla.device(2))
        assert a.device == torch.device("xla:2") and torch_xla.device() == a.device
        with torch.xla.device(1):
            assert torch.ones(1, device="xla").device.index == 1
        assert torch.xla.current_device() == 2
        assert (a.to("xla:0") + 1).tolist() == [2, 2]
        try:
            a + torch.ones(2, device="xla:1")
        except RuntimeError as e:
            assert "xla:1" in str(e) and "xla:2" in str(e), e
        else:
            raise AssertionError("devices mixed")
        print(torch_xla.real_devices())
        """,
        CPU_NUM_DEVICES="3",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['CPU:0', 'CPU:1', 'CPU:2']"


def test_sparse_tensors_on_a_second_device(run_python):
    """Sparse tensors are on the device that is named, whichever is the current one."""
    done = run_python(
        """
        import warnings; warnings.simplefilter("ignore")
        import torch, torch_xla
        d = torch.device("xla:1")
        i, v = torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([3.0, 4, 5])
        c = torch.sparse_coo_tensor(i, v, (2, 2))
        zeros = torch.zeros(2, 2, layout=torch.sparse_coo, device=d)
        csr = c.coalesce().to_sparse_csr().to(d)
        made = {
            "moved": c.to(d), "made": torch.sparse_coo_tensor(i.to(d), v.to(d), (2, 2)),
            "named": torch.sparse_coo_tensor(i, v, (2, 2), device=d), "zeros": zeros,
            "to_sparse": c.to_dense().to(d).to_sparse(), "coalesced": c.to(d).coalesce(),
            "copied": zeros.clone().copy_(c.to("xla:0")), "like": torch.zeros_like(c, device=d),
            "cat": torch.cat([c.to(d), c.to(d)]), "sum": c.to(d) + c.to(d), "neg": -c.to(d),
            "detached": c.to(d).detach(), "csr": csr, "csr neg": -csr,
            "csr to coo": csr.to_sparse(), "softmax": torch.sparse.softmax(c.to(d), 1),
        }
        with torch.xla.device(1):
            assert c.to("xla:0").device.index == c.to("xla:0").coalesce().device.index == 0
        for name, t in made.items():
            members = [t._indices(), t._values()] if t.is_sparse else [t.col_indices(), t.values()]
            assert {m.device for m in (t, *members)} == {d}, name
        assert torch.equal((made["moved"] @ torch.eye(2, device=d)).cpu(), c.to_dense())
        table = torch.nn.Embedding(5, 3, sparse=True).to(d)
        before = table.weight.detach().cpu()
        for make in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), torch.optim.SparseAdam):
            optimizer = make(list(table.parameters()))
            for _ in range(2):
                optimizer.zero_grad()
                table(torch.tensor([1, 1, 4], device=d)).sum().backward()
                assert table.weight.grad.device == d
                optimizer.step()
        changed = (table.weight.cpu() != before).any(1).tolist()
        assert changed == [False, True, False, False, True], changed
        try:
            csr + csr.to("xla:0")
        except RuntimeError as e:
            assert "xla:0" in str(e) and "xla:1" in str(e), e
        else:
            raise AssertionError("devices mixed")
        """,
        CPU_NUM_DEVICES="2",
    )
    assert done.returncode == 0, done.stderr


def test_runtime_of_one_process(device):
    assert xr.device_type() == "CPU"
    assert xr.world_size() == xr.process_count() == xr.local_process_count() == 1
    assert xr.global_ordinal() == xr.local_ordinal() == xr.process_index() == 0
    assert xr.host_index() == 0
    assert xr.global_device_count() == xr.local_device_count() == 1
    assert xr.addressable_device_count() == xr.addressable_runtime_device_count() == 1
    assert xr.global_runtime_device_count() == 1
    assert xr.is_bf16_supported()
    assert xr.using_pjrt() and not xr.is_spmd()
    assert isinstance(xr.runtime_device_attributes(device), dict)
    assert len(xr.global_runtime_device_attributes()) == 1
    with pytest.raises(RuntimeError, match="this process already uses CPU"):
        xr.set_device_type("TPU")
    xr.set_device_type("CPU")


def test_ordinals_of_a_launched_process(monkeypatch):
    for name, value in {
        "RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4, "GROUP_RANK": 1,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    assert xr.world_size() == xr.process_count() == 8
    assert xr.global_ordinal() == xr.process_index() == 5
    assert xr.local_ordinal() == 1 and xr.local_process_count() == 4 and xr.host_index() == 1
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(name)
    assert xr.local_ordinal() == 5 and xr.host_index() == 0
    monkeypatch.setenv("RANK", "8")
    with pytest.raises(ValueError, match="RANK=8, WORLD_SIZE=8"):
        xr.world_size()
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ValueError, match="RANK='one' is not a whole number"):
        xr.world_size()


def test_set_device_type_before_the_client(run_python):
    done = run_python(
        """
        import torch_xla.runtime as xr, torch_xla
        xr.set_device_type("cpu")
        print(xr.device_type(), torch_xla._XLAC._xla_runtime_created(), torch_xla.device())
        """,
        PJRT_DEVICE=None,
    )
    assert done.stdout.strip() == "CPU False xla:0", done.stderr


def test_device_module(device):
    assert torch.get_device_module("xla") is torch.xla
    assert torch.xla.is_available() and torch.xla.device_count() == 1
    with torch.xla.device(device):
        assert torch.xla.current_device() == 0
    with torch.xla.device_of(torch.ones(1)):
        assert torch.xla.current_device() == 0
    x = torch.ones(2, device="xla") + 1
    torch.xla.synchronize()
    assert x.tolist() == [2, 2]
    assert torch.bfloat16 in torch.xla.get_amp_supported_dtype()
    assert torch.xla.get_device_name()


def test_cpu_backward_before_the_first_device(run_python):
    """Autograd sizes its device queues at the first backward of the process."""
    done = run_python(
        """
        import torch, torch_xla
        torch.ones(2, requires_grad=True).sum().backward()
        x = torch.ones(2, device="xla", requires_grad=True)
        (x * x).sum().backward()
        print(x.grad.tolist())
        """
    )
    assert done.stdout.strip() == "[2.0, 2.0]", done.stderr


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
def test_function_transforms_of_shapes_changed_in_place(device):
    """torch itself uses them: vector @ matrix, linear of one row with a bias."""
    w, b, x = torch.randn(2, 3), torch.randn(2), torch.randn(4, 3)

    def results(d):
        grad, vmap = torch.func.grad, torch.func.vmap
        ones = torch.ones(1, 3, 1, device=d)
        yield grad(lambda p: (x[0].to(d) @ p.t()).square().sum())(w.to(d))
        loss = grad(lambda p, row: F.linear(row, p, b.to(d)).pow(2).sum())
        yield vmap(loss, (None, 0))(w.to(d), x.to(d))
        for change in (
            lambda t: t.squeeze_(),
            lambda t: t.squeeze_(0),
            lambda t: t.unsqueeze_(1),
            lambda t: t.transpose_(0, 1),
            lambda t: t.view(3, 1).t_(),
        ):
            yield grad(lambda t, change=change: change(t.clone()).square().sum())(ones)
            yield torch.func.jvp(lambda t, c=change: c(t.clone()) * 2, (ones,), (ones,))[1]

    for ours, theirs in zip(results(device), results("cpu"), strict=True):
        assert_same(ours, theirs)


def test_what_torchs_utilities_ask(device):
    """Loaders that pin, hooks that save on the CPU, sequences of checkpoints, default devices."""
    from torch.utils.checkpoint import checkpoint_sequential
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no accelerator to pin for
        assert [b.to(device).sum().item() for (b,) in loader] == [6, 22]
    x = torch.arange(4.0, device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).exp()
    y.sum().backward()
    c = torch.arange(4.0, requires_grad=True)
    (c * c).exp().sum().backward()
    assert_same(x.grad, c.grad, rtol=1e-5, atol=1e-5)
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4))).to(device)
    out = checkpoint_sequential(layers, 2, x, use_reentrant=False)
    assert_same(out, layers(x).detach().cpu())
    with torch.device("xla"):
        assert torch.ones(2).device == torch.nn.Linear(1, 1).weight.device == device
    assert torch.get_device_module(device) is torch.xla
    assert torch.func.vmap(lambda t: t * 2)(x.detach()).device == device


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
def test_forward_mode_gradients(device):
    def f(t):
        return (t * t).sin().sum(0)

    x, v = torch.rand(3, 2), torch.rand(3, 2)
    theirs = torch.func.jvp(f, (x,), (v,))
    ours = torch.func.jvp(f, (x.to(device),), (v.to(device),))
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a, b, rtol=1e-5, atol=1e-6)


def test_a_layout_that_the_device_has_not(device):
    with pytest.raises(NotImplementedError, match="XLA devices have dense and sparse ones only"):
        torch.ones(2, 2, device=device).to_mkldnn()


def test_compile_says_that_it_is_not_there_yet(device):
    compiled = torch.compile(lambda t: t + 1, backend="eager")
    with pytest.raises(Exception, match=r"torch\.compile does not take XLA tensors yet"):
        compiled(torch.ones(2, device=device))
