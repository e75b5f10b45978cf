"""What a number is on the device: XLA_USE_BF16, the precision of float32, copies of host memory."""

import numpy as np
import pytest
import torch

import torch_xla
from torch_xla import _XLAC
from torch_xla.debug import metrics

from .conftest import assert_same


def test_bf16_of_what_enters_the_device(run_python):
    """Factories and copies from the host, with the dtype spelled out or not; float32 alone."""
    done = run_python(
        """
        import os, torch, torch_xla
        f32, f64, bf16 = torch.float32, torch.float64, torch.bfloat16
        d = torch_xla.device()
        before = torch.ones(2, device=d)
        assert before.dtype == f32
        os.environ["XLA_USE_BF16"] = "1"  # seen from now on
        made = [torch.zeros(2, device=d), torch.ones(2, dtype=f32, device=d),
                torch.rand(2, device=d), torch.tensor([1.5], device=d),
                torch.full((2,), 1.0, device=d), torch.empty(2, device=d),
                torch.arange(2.0, device=d), torch.ones(2).to(d), torch.ones(2).to(d, f32),
                torch.nn.Linear(2, 2).to(d).weight, torch.nn.Linear(2, 2, device=d).weight]
        for i, x in enumerate(made):
            assert x.dtype == bf16, (i, x.dtype)
            assert x.cpu().dtype == bf16, i
        assert torch.ones(2, dtype=f64, device=d).dtype == f64
        assert torch.ones(2, dtype=f64).to(d).dtype == f64
        assert torch.ones(2, dtype=torch.int32).to(d).dtype == torch.int32
        x = made[0]
        assert x.float().dtype == f32 and (x + before).dtype == f32  # operators are not touched
        assert (before * 2).dtype == before.clone().dtype == before.cpu().dtype == f32
        assert torch.full((2,), 1 + 2**-10, device=d).tolist() == [1, 1]  # rounded
        assert torch.ones(2).dtype == f32  # nor is the CPU
        os.environ["XLA_USE_BF16"] = "0"
        assert torch.zeros(2, device=d).dtype == f32
        os.environ["XLA_USE_BF16"] = "1"
        del os.environ["XLA_USE_BF16"]
        assert torch.zeros(2, device=d).dtype == f32
        print("ok")
        """
    )
    assert done.stdout == "ok\n", done.stderr


def test_bf16_in_the_environment(run_python):
    done = run_python(
        "import torch, torch_xla; print(torch.ones(1).to('xla').dtype)", XLA_USE_BF16="1"
    )
    assert done.stdout == "torch.bfloat16\n", done.stderr


def test_float32_products_have_its_precision(device):
    torch.manual_seed(0)
    a, b = torch.rand(16, 300) + 1000, torch.rand(300, 16) - 0.5
    x = a.to(device) @ b.to(device)
    text = _XLAC._xla_dump_graph(0, [x], True)
    assert "dot" in text and text.count("HIGHEST") == 2
    exact = a.double() @ b.double()
    assert (x.cpu() - exact).abs().max() < 3 * (a @ b - exact).abs().max() + 1e-3
    image, kernel = torch.rand(1, 2, 8, 8), torch.rand(3, 2, 3, 3)
    y = torch.nn.functional.conv2d(image.to(device), kernel.to(device))
    text = _XLAC._xla_dump_graph(0, [y], True)
    assert "aten::convolution" in text or "HIGHEST" in text  # on the host PyTorch's own kernel
    assert_same(y, torch.nn.functional.conv2d(image, kernel), rtol=1e-5, atol=1e-5)


@pytest.fixture
def precision():
    """Puts back what it was, for this process and for torch."""
    before = torch.get_float32_matmul_precision()
    yield
    _XLAC._xla_set_mat_mul_precision(None)
    torch.set_float32_matmul_precision(before)


def products(device):
    """Tensors that are, or contain, a product that the user asked for."""
    x = torch.rand(4, 4, device=device)
    lstm = torch.nn.LSTM(4, 4).to(device)
    image = torch.rand(1, 2, 6, 6, device=device)
    convolution = torch.nn.Conv2d(2, 2, 3).to(device)
    return {
        "mm": x @ x,
        "linear": torch.nn.functional.linear(x, x),
        "convolution": convolution(image),
        "attention": torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        "lstm": lstm(x[None])[0],
    }


@pytest.mark.filterwarnings("error")
def test_precision_of_products_can_be_lowered(device, precision):
    def text(y):
        return _XLAC._xla_dump_graph(0, [y], True)

    get, choose = torch_xla.backends.get_mat_mul_precision, torch_xla.backends.set_mat_mul_precision
    assert get() == "highest"
    torch.set_float32_matmul_precision("high")
    assert get() == "high"
    for name, y in products(device).items():
        assert "<precision HIGH>" in text(y) and "HIGHEST" not in text(y), name
    torch.set_float32_matmul_precision("medium")
    assert get() == "default"
    for name, y in products(device).items():
        assert "<precision HIGH" not in text(y), name
    choose("highest")  # counts more
    assert get() == "highest" and torch.get_float32_matmul_precision() == "medium"
    for name, y in products(device).items():
        # With all of it, convolutions on the host are PyTorch's own.
        own = name == "convolution" and "aten::convolution" in text(y)
        assert own or "HIGHEST" in text(y), name
    with pytest.raises(ValueError, match="highest"):
        choose("medium")
    assert get() == "highest"


def test_another_precision_is_another_program(device, precision):
    x = torch.rand(3, 3)
    d = x.to(device)
    assert_same(d @ d, x @ x)
    compiled = metrics.counter_value("UncachedCompile")
    torch_xla.backends.set_mat_mul_precision("default")
    assert_same(d @ d, x @ x, rtol=1e-2, atol=1e-2)
    torch_xla.backends.set_mat_mul_precision("highest")
    assert_same(d @ d, x @ x)
    assert metrics.counter_value("UncachedCompile") == compiled + 1


@pytest.mark.parametrize("size", [3, 1_000_000])
@pytest.mark.parametrize("pending", [False, True])
def test_later_writes_to_the_host_are_not_seen(device, size, pending):
    source = np.zeros(size, np.float32)
    uploads = {
        "to": lambda c: c.to(device),
        "non_blocking": lambda c: c.to(device, non_blocking=True),
        "copy_": lambda c: torch.ones(size, device=device).copy_(c, non_blocking=True),
        "view": lambda c: c[1:].to(device),
        "tensor": lambda c: torch.tensor(source, device=device),
        "setitem": lambda c: torch.ones(2, size, device=device).index_put_(
            (torch.tensor(0, device=device),), c.to(device)
        )[0],
    }
    for name, upload in uploads.items():
        source[:] = 0
        x = upload(torch.from_numpy(source))
        if pending:
            x = x + 0
        source[:] = 7
        assert x.abs().max().item() == 0, name


@pytest.mark.parametrize("size", [3, 1_000_000])
def test_later_writes_to_either_side_of_a_download_are_not_seen(device, size):
    x = torch.zeros(size, device=device)
    torch_xla.sync(wait=True)
    a, b = x.cpu(), x.to("cpu", non_blocking=True)
    c = torch.empty(size).copy_(x)
    x += 1  # may reuse the buffer
    torch_xla.sync(wait=True)
    for host in (a, b, c):
        assert host.abs().max() == 0
        host.fill_(5)
    assert x.min().item() == x.max().item() == 1
    d = x.cpu()
    assert d.data_ptr() != x.cpu().data_ptr()
