"""What the tests of several replicas share."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import torch_xla.distributed.xla_multiprocessing as xmp

Run = Callable[..., subprocess.CompletedProcess[str]]

LAUNCHERS = ["spawn", "thread", "torchrun"]
PROGRAM = """
import importlib, sys
import torch_xla

folder, module, name, start_method, *args = sys.argv[1:]
sys.path.insert(0, folder)
fn = getattr(importlib.import_module(module), name)
torch_xla.launch(fn, tuple(args), start_method=start_method)
"""


def alive_in_session(session: int) -> list[str]:
    """Command lines of the processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(command)
    return found


@pytest.fixture
def run_program(tmp_path: Path) -> Run:
    """Runs a program, as a file, that leaves no process and no temporary file behind.

    run_program(code, timeout=60, launcher=[...], **environment)
    """
    scratch = tmp_path / "tmp"
    scratch.mkdir()

    def run(
        code: str,
        *args: str,
        timeout: float = 90,
        launcher: list[str] | None = None,
        **env: str | None,
    ) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "program.py"
        file.write_text(textwrap.dedent(code))
        changed = {**os.environ, "XLA_VERIFY": "0", "TMPDIR": str(scratch), **env}
        process = subprocess.Popen(
            [*(launcher or [sys.executable]), str(file), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={k: v for k, v in changed.items() if v is not None},
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"not done after {timeout} s\n{out}\n{err}")
        end = time.monotonic() + 5  # the last moments of multiprocessing's resource tracker
        while (left := alive_in_session(process.pid)) and time.monotonic() < end:
            time.sleep(0.05)
        if left:
            os.killpg(process.pid, signal.SIGKILL)
        assert not left, f"still running: {left}\n{out}\n{err}"
        # torchrun and the compiler of torch.compile leave folders of theirs.
        ours = [
            f for f in scratch.iterdir() if not f.name.startswith(("torchelastic_", "torchind"))
        ]
        files = [str(f) for f in ours]
        assert not files, f"left behind: {files}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def run_replicas(run_program: Run) -> Callable[..., None]:
    """Runs the same work by processes, by threads and under torchrun.

    run_replicas(launcher, fn, nprocs, *args) calls fn(index, *args), all arguments as text.
    """

    def run(launcher: str, fn: Callable[..., None], nprocs: int, *args: object) -> None:
        texts = [str(a) for a in args]
        if launcher == "spawn":
            xmp.spawn(fn, args=texts, nprocs=nprocs)
            return
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nprocs}"]
        p = run_program(
            PROGRAM,
            str(Path(__file__).parents[1]),
            fn.__module__,
            fn.__name__,
            launcher if launcher == "thread" else "spawn",
            *texts,
            timeout=300,
            launcher=[sys.executable, *torchrun] if launcher == "torchrun" else None,
            CPU_NUM_DEVICES=str(nprocs),
        )
        assert p.returncode == 0, p.stdout[-1000:] + p.stderr[-3000:]

    return run
