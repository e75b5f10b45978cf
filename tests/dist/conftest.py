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

Run = Callable[..., subprocess.CompletedProcess[str]]


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
        ours = [f for f in scratch.iterdir() if not f.name.startswith(("torchelastic_", "torchind"))]
        files = [str(f) for f in ours]
        assert not files, f"left behind: {files}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run
