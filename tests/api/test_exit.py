"""Leaving: with work in flight, from forks, by Ctrl-C."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from .conftest import environment

IN_FLIGHT = """
import torch, torch_xla
x = torch.randn(400, 400, device="xla")
for _ in range(6):
    for _ in range(10):
        x = (x @ x).tanh()
    torch_xla.sync()
y = x + 1  # pending
"""


def assert_clean(done) -> None:
    assert (done.returncode, done.stderr) == (0, "")


def test_exit_with_work_in_flight(run_python):
    assert_clean(run_python(IN_FLIGHT))


def test_sys_exit_with_work_in_flight(run_python):
    done = run_python(IN_FLIGHT + "import sys; sys.exit(3)")
    assert (done.returncode, done.stderr) == (3, "")


def test_exit_after_an_exception(run_python):
    done = run_python(IN_FLIGHT + "raise KeyError('mine')")
    assert done.returncode == 1 and done.stderr.endswith("KeyError: 'mine'\n")


def test_exit_without_using_a_device(run_python):
    assert_clean(run_python("import torch_xla"))


def test_exit_with_a_closure_running(run_python):
    done = run_python(
        """
        import time, torch, torch_xla, torch_xla.core.xla_model as xm
        x = torch.ones(2, device="xla") * 3
        xm.add_step_closure(lambda t: (time.sleep(1), print(t.tolist())), (x,), run_async=True)
        torch_xla.sync()
        """
    )
    assert_clean(done)
    assert done.stdout == "[3.0, 3.0]\n"


def test_exit_from_a_thread(run_python):
    assert_clean(
        run_python(
            """
            import threading, torch, torch_xla
            def work():
                x = torch.ones(50, 50, device="xla")
                for _ in range(20):
                    x = x @ x / 50
                    torch_xla.sync()
            threads = [threading.Thread(target=work) for _ in range(3)]
            [t.start() for t in threads]
            """
        )
    )


def test_data_loader_workers(run_python):
    done = run_python(
        """
        import torch, torch_xla
        w = torch.ones(4, 2, device="xla") * 2
        torch_xla.sync(wait=True)
        data = torch.utils.data.TensorDataset(torch.arange(32.0).view(8, 4))
        loader = torch.utils.data.DataLoader(
            data, 2, num_workers=2, multiprocessing_context="fork")
        total = 0
        for _ in range(2):
            for (x,) in loader:
                total += (x.to("xla") @ w).sum()
                torch_xla.sync()
        print(total.item())
        """
    )
    assert_clean(done)
    assert float(done.stdout) == 2 * 2 * 2 * sum(range(32))


FORK = """
import os, sys, torch, torch_xla
x = torch.ones(2, device="xla") + 1
torch_xla.sync(wait=True)
pid = os.fork()
if pid == 0:
    torch.manual_seed(3)  # what a data loader's worker does
    assert torch.xla._is_in_bad_fork()
    try:
        {use}
    except RuntimeError as e:
        print(e, flush=True)
        os._exit(0)
    os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
assert not torch.xla._is_in_bad_fork()
print(x.tolist())
"""

USES = {
    "read": "x.cpu()",
    "make": "torch.ones(2, device='xla')",
    "upload": "torch.ones(2).to('xla')",
    "sync": "y = x + 1; torch_xla.sync()",
    "device": "torch_xla.device()",
}


@pytest.mark.parametrize("how", USES)
def test_fork_guard(run_python, how):
    done = run_python(FORK.format(use=USES[how]), timeout=40)
    assert_clean(done)
    lines = done.stdout.splitlines()
    assert "fork" in lines[0] and "spawn" in lines[0]
    assert lines[-1] == "[2.0, 2.0]"


# A graph that takes the compiler many seconds.
COMPILING = """
import torch, torch_xla
x = torch.randn(8, 8, device="xla")
y = x
for i in range(4000):
    y = (y @ x + i).tanh() * y.sin().sum(i % 2, keepdim=True)
print("ready", flush=True)
torch_xla.sync(wait=True)
print("finished", flush=True)
"""

TRAINING = """
import torch, torch_xla
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
model.to("xla")
optimizer = torch.optim.AdamW(model.parameters())
step = 0
while True:
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64).to("xla")).square().mean()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    step += 1
    if step % 10 == 0:
        loss.item()
    if step == 5:
        print("ready", flush=True)
"""


@pytest.mark.parametrize("program", [COMPILING, TRAINING], ids=["compiling", "training"])
def test_ctrl_c(program):
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(1)
            assert process.poll() is None
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            first = process.stderr.readline()
            traceback_after = time.monotonic() - start
            err = process.stderr.read()
            out = process.stdout.read()
            process.wait(timeout=60)
            end_after = time.monotonic() - start
        finally:
            process.kill()
    assert "finished" not in out
    assert first.startswith("Traceback") and err.strip().endswith("KeyboardInterrupt"), err
    assert process.returncode == -signal.SIGINT
    assert traceback_after < 2 and end_after < 4, (traceback_after, end_after)


def test_ctrl_c_leaves_the_process_usable(run_python):
    done = run_python(
        """
        import os, signal, threading, time, torch, torch_xla
        x = torch.ones(8, 8, device="xla")
        y = x
        for i in range(1500):
            y = (y @ x + i).tanh() * y.sin().sum(i % 2, keepdim=True)
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            torch_xla.sync(wait=True)
        except KeyboardInterrupt:
            print("interrupted")
        del y
        print((x + 1).sum().item())
        """,
        timeout=120,
    )
    assert done.stdout.split() == ["interrupted", "128.0"], done.stderr
