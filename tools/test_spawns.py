"""Starts four replicas again and again: none may fail, and none may leave anything behind.

    python tools/test_spawns.py [--spawns 100] [--replicas 4]

Looks after each spawn for processes of this session, files in TMPDIR and /dev/shm, and open files,
threads and memory of this process.
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

WARM_UP = 3  # spawns after which nothing may grow any more


def work(index: int) -> None:
    n = xr.world_size()
    x = torch.full((100_000,), float(index + 1)).to(torch_xla.device())
    for _ in range(3):
        total = xm.all_reduce(xm.REDUCE_SUM, x)
        torch_xla.sync()
    assert total[0].item() == n * (n + 1) / 2
    assert xm.mesh_reduce("sum", index, sum) == n * (n - 1) // 2


def children() -> set[str]:
    """Processes of this session other than this one and multiprocessing's resource tracker."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            ours = int(fields[1]) == os.getpid() or int(fields[3]) == os.getsid(0)
            if ours and "resource_tracker" not in command and sys.executable in command:
                found.add(f"{entry.name} {command}")
    return found


def held() -> dict[str, int]:
    gc.collect()
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if line
    )
    return {
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "MB": int(status["VmRSS"].split()[0]) // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spawns", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=4)
    args = parser.parse_args()
    shared = set(os.listdir("/dev/shm"))
    already = children()
    start = time.monotonic()
    before: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        for i in range(1, args.spawns + 1):
            xmp.spawn(work, nprocs=args.replicas)
            left = [
                *children() - already,
                *os.listdir(folder),
                *set(os.listdir("/dev/shm")) - shared,
            ]
            assert not left, f"spawn {i} has left {left}"
            now = held()
            before = now if i <= WARM_UP else before
            grown = {k: (before[k], now[k]) for k in now if now[k] > before[k] + 20 * (k == "MB")}
            assert not grown, f"after spawn {i} there are more of {grown}"
            if i % 10 == 0 or i == 1:
                print(
                    f"{i}/{args.spawns} spawns, {time.monotonic() - start:.0f} s, {now}", flush=True
                )
        tempfile.tempdir = None


if __name__ == "__main__":
    main()
