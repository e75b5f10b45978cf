"""Many random programs: python -m tests.views.fuzz --programs 20000 [--seed 0] [--workers 2].

Each worker is a process of its own; a difference prints the program and its seed, a crash or a hang
costs the worker's current program. Exits with 1 when anything differed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time

from tqdm import tqdm

CHUNK = 100  # programs per process: bounds what one crash costs, and the compile cache
TIME_LIMIT_S = 300


def run_chunk(first: int, count: int) -> int:
    from .program import run

    failures = 0
    for seed in range(first, first + count):
        rng = random.Random(seed)
        try:
            run(rng.randrange, rng.randint(5, 30), with_grad=seed % 2 == 1)
        except AssertionError as e:
            failures += 1
            print(f"--- seed {seed}\n{e}", flush=True)
    return failures


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
    running: list[tuple[subprocess.Popen[str], int, float]] = []
    failed = 0
    with tqdm(total=args.programs, unit="program") as bar:
        while todo or running:
            while todo and len(running) < args.workers:
                first = todo.pop(0)
                count = min(CHUNK, args.seed + args.programs - first)
                command = [
                    sys.executable,
                    "-m",
                    "tests.views.fuzz",
                    "--chunk",
                    str(first),
                    str(count),
                ]
                p = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
                running.append((p, first, time.monotonic()))
            for entry in list(running):
                p, first, start = entry
                if p.poll() is None and time.monotonic() - start < TIME_LIMIT_S:
                    continue
                if p.poll() is None:
                    p.kill()
                out, _ = p.communicate()
                running.remove(entry)
                bar.update(CHUNK)
                if p.returncode != 0:
                    failed += 1
                    tqdm.write(f"programs from seed {first}: exit {p.returncode}\n{out[-3000:]}")
            time.sleep(0.05)
    print(f"{args.programs} programs, {failed} groups of {CHUNK} with differences")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
