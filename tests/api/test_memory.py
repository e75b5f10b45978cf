"""What training holds: buffers once, and nothing more after 2,000 steps than after a few."""

import pytest
import torch

import torch_xla

from .conftest import assert_same

# Each leaves the tensor `kept` with the value that it had before its buffer's owner went on.
KEEPERS = {
    "clone": lambda w: w.clone(),
    "detach of a clone": lambda w: w.clone().detach(),
    "add zero": lambda w: w + 0,
    "state dict": lambda w: {"w": w.clone()}["w"],
    "view of a clone": lambda w: w.clone().view(-1).view(4, 4),
    "host copy": lambda w: w.cpu(),
}


@pytest.mark.parametrize("how", KEEPERS)
@pytest.mark.parametrize("read_late", [False, True])
def test_what_is_kept_is_not_donated(device, how, read_late):
    cpu = torch.arange(16.0).view(4, 4)
    w = cpu.to(device)
    torch_xla.sync()
    kept, expected = [], []
    for step in range(5):
        kept.append(KEEPERS[how](w))
        expected.append(cpu.clone())
        w.mul_(2).add_(step)
        cpu.mul_(2).add_(step)
        torch_xla.sync()
        if not read_late:
            assert_same(kept[-1], expected[-1])
    for a, b in zip(kept, expected, strict=True):
        assert_same(a, b)
    assert_same(w, cpu)


def test_one_tensor_used_twice_in_a_step(device):
    cpu = torch.arange(4.0)
    w, v = cpu.to(device), cpu.to(device)
    for _ in range(3):
        w, v = w * v + w, v * w - v
        torch_xla.sync()
    a = b = cpu
    for _ in range(3):
        a, b = a * b + a, b * a - b
    assert_same(w, a)
    assert_same(v, b)


def test_swapped_parameters(device):
    a, b = torch.zeros(8, device=device), torch.ones(8, device=device)
    for _ in range(5):
        a, b = b, a
        a.add_(1)
        torch_xla.sync()
    c, d = torch.zeros(8), torch.ones(8)
    for _ in range(5):
        c, d = d, c
        c.add_(1)
    assert_same(a, c)
    assert_same(b, d)


def test_no_growth_in_2000_steps(run_python):
    done = run_python(
        """
        import re, torch, torch_xla
        from torch_xla import _XLAC

        def resident():
            with open("/proc/self/status") as f:
                return int(re.search(r"VmRSS:\\s+(\\d+)", f.read())[1])

        device = torch_xla.device()
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                                    torch.nn.Linear(16, 1)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
        x, y = torch.randn(32, 8, device=device), torch.randn(32, 1, device=device)

        def steps(n):
            for i in range(n):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                scheduler.step()
                torch_xla.sync()
                if i % 50 == 0:
                    loss.item()
            torch_xla.sync(wait=True)

        steps(300)
        before = resident(), _XLAC._xla_cached_programs(), _XLAC._xla_live_tensors(0)
        steps(2000)
        after = resident(), _XLAC._xla_cached_programs(), _XLAC._xla_live_tensors(0)
        assert after[1:] == before[1:], (before, after)
        print(after[0] - before[0])
        """,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4096, f"{done.stdout} KiB more after 2,000 steps"
