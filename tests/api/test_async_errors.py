"""Failures of the device: raised at the next use, with what ran; the process goes on."""

import threading

import pytest
import torch

import torch_xla

from .conftest import assert_same, compiles

TIB_16 = 1 << 42  # float32 elements, 16 TiB: more than any machine has, less than the address space


def test_absurd_sizes_are_refused_at_the_call(device):
    with pytest.raises(torch.OutOfMemoryError, match=r"out of memory\. Tried to allocate"):
        torch.empty((1 << 50,), device=device)
    x = torch.ones(1, device=device)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        x.expand(1 << 50) + 1
    with pytest.raises(RuntimeError):
        torch.empty((1 << 40, 1 << 40), device=device)
    assert_same(x + 1, torch.full((1,), 2.0))


def test_a_view_needs_no_memory(device):
    x = torch.ones(1, device=device).expand(1 << 50)
    assert x.shape == (1 << 50,)
    assert_same(x[7], torch.tensor(1.0))


def test_a_sync_that_cannot_fit_changes_nothing(device):
    w = torch.ones(4, device=device)
    torch_xla.sync()
    w.mul_(3)
    huge = w.sum().expand(TIB_16) + 1
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError, match=r"16384\.00 GiB.*aten::add"):
            torch_xla.sync()
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch_xla._XLAC._xla_materialize([huge])
    del huge
    torch_xla.sync()
    assert_same(w, torch.full((4,), 3.0))


LIMITED = """
    import os, resource, torch, torch_xla
    device = torch_xla.device()
    x = torch.ones(1024, device=device)
    print((x + 1).sum().item())
    w = x * 1
    torch_xla.sync(wait=True)
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), resource.RLIM_INFINITY))
"""


def test_a_limit_of_memory_is_an_error(run_python):
    done = run_python(
        LIMITED
        + """
    for attempt in range(2):
        y = x.sum() * torch.ones(1 << 28, device=device)  # 1 GiB
        try:
            y.cpu()
            print("no error")
        except RuntimeError as e:
            print("refused" if "memory" in str(e) else e)
        del y
    w.add_(1)
    torch_xla.sync()
    print(w.sum().item())
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2048.0", "refused", "refused", "2048.0"], done.stderr


def test_an_execution_that_runs_out_of_memory(run_python):
    """The plugin's own failure: the limit comes between the launch and the execution."""
    done = run_python(
        """
    import os, resource, torch, torch_xla
    device = torch_xla.device()
    a = torch.ones(1500, 1500, device=device)
    x = torch.ones(1024, device=device)
    b = a
    def slow():
        global b
        for _ in range(8):
            b = (a @ b) / 1500
    def large():
        return b.sum() * torch.ones(1 << 28, device=device)  # 1 GiB, after b
    slow(); y = large()
    torch_xla.sync(wait=True)
    del y
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    slow()
    torch_xla.sync()
    y = large()
    torch_xla.sync()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), resource.RLIM_INFINITY))
    for attempt in range(2):
        try:
            (y[:2] + 1).cpu()
            print("no error")
        except RuntimeError as e:
            print(str(e))
    print("alive", (x + 1).sum().item(), b[0, 0].item())
        """,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "alive 2048.0 1.0", done.stdout


def test_threads_on_one_device_compile_their_own_steps(device):
    """Each thread's step is one program, however the threads' recordings fall into each other."""
    errors, results = [], {}
    steps = 20
    start = threading.Barrier(2)

    def train(seed: int, width: int) -> None:
        try:
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1))
            model.to(device)
            optimizer = torch.optim.SGD(model.parameters(), 0.01)
            x = torch.ones(8, 4, device=device)
            start.wait()
            for _ in range(steps):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                torch_xla.sync()
            results[width] = loss.item()
        except Exception as e:
            errors.append(e)

    torch_xla.sync(wait=True)
    before = compiles()
    threads = [threading.Thread(target=train, args=(0, w)) for w in (8, 16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert set(results) == {8, 16}
    # One program each; the first steps may meet before either thread has synced.
    assert compiles() - before <= 4
