"""Many random programs: python -m tests.views.fuzz --programs 20000 [--seed 0] [--workers 2].

Each worker is a process of its own. A difference prints the program and the command that repeats
it; a crash or a hang costs the worker's current programs. Exits with 1 when anything differed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

CHUNK = 480  # programs per process: bounds what a crash costs, and the compile cache
TOGETHER = 48  # programs that share their compilations
TIME_LIMIT_S = 900
# Compiling is what this takes; the code's speed doesn't matter. 12 times faster than by default.
XLA_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)


def run_chunk(first: int, count: int) -> int:
    """Runs these programs; one that differs runs again alone, to say how it can be repeated."""
    import warnings

    from .program import run_together, seeded

    warnings.simplefilter("ignore")
    failed = 0
    for start in range(first, first + count, TOGETHER):
        n = min(TOGETHER, first + count - start)
        try:
            failures = run_together(seeded(start, n))
        except Exception as e:  # the graph of all of them
            print(f"--- seeds {start} to {start + n - 1}: {type(e).__name__}: {e:.500}", flush=True)
            failures = [run_together(seeded(start + i, 1))[0] for i in range(n)]
            failed += 1
        for i, failure in enumerate(failures):
            if failure is None:
                continue
            failed += 1
            seed = start + i
            alone = run_together(seeded(seed, 1))[0]
            how = f"--seed {seed} --programs 1" if alone else f"--seed {start} --programs {n}"
            print(f"--- seed {seed}, repeat by {how}\n{alone or failure}", flush=True)
    print(f"failed {failed}", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chunk", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.chunk:
        sys.exit(run_chunk(*args.chunk) > 0)

    todo = list(range(args.seed, args.seed + args.programs, CHUNK))
    running = []
    failed = 0
    environment = {"XLA_FLAGS": XLA_FLAGS, "XLA_COMPILE_NOTICE_S": "600", **os.environ}
    done, began = 0, time.monotonic()
    while todo or running:
        while todo and len(running) < args.workers:
            first = todo.pop(0)
            count = min(CHUNK, args.seed + args.programs - first)
            command = [sys.executable, "-m", "tests.views.fuzz", "--chunk"]
            output = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed below)
            p = subprocess.Popen(
                [*command, str(first), str(count)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
            running.append((p, output, first, count, time.monotonic()))
        for entry in list(running):
            p, output, first, count, start = entry
            if p.poll() is None and time.monotonic() - start < TIME_LIMIT_S:
                continue
            p.kill()
            p.wait()
            output.seek(0)
            text = output.read()
            output.close()
            running.remove(entry)
            done += count
            print(f"{done} programs, {done / (time.monotonic() - began):.1f}/s", flush=True)
            if p.returncode != 0:
                closing = text.rstrip().rpartition("\n")[2]
                counted = closing.startswith("failed ")
                failed += int(closing.split()[1]) if counted else 1
                print(f"programs from seed {first}: exit {p.returncode}\n{text[-6000:]}")
        time.sleep(0.05)
    print(f"{args.programs} programs, {failed} with differences")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
