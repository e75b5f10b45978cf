"""Writes docs/env_vars.md and docs/metrics.md from the tables in csrc/base, and docs/ops.md from
torch's dispatcher and what the sweep of the operator tests found.

    python tools/gen_docs.py [--check]

With --check nothing is written, and the exit status is 1 where a file is not up to date.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

import torch_xla
from torch_xla import _XLAC
from torch_xla.debug import ops as debug_ops

ROOT = Path(torch_xla.__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from tests.ops import sweep  # noqa: E402


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def env_vars() -> str:
    rows = [
        (f"`{name}`", f"`{default}`" if default else "unset", text)
        for name, default, text in _XLAC._xla_flags()
    ]
    return (
        "# Environment variables\n\n"
        "`python -m torch_xla.debug.env` prints them with their present values. The core reads\n"
        "a variable when it needs it; what concerns the client is fixed once the client is made.\n"
        "This page is written by `tools/gen_docs.py` from the table in `csrc/base/flags.cc`.\n\n"
        + table(("Variable", "Default", "Meaning"), rows)
    )


def metrics() -> str:
    rows = [(f"`{name}`", text) for name, text in _XLAC._xla_documented_metrics()]
    return (
        "# Counters and metrics\n\n"
        "Read them with `torch_xla.debug.metrics`: `metrics_report()` for all as text,\n"
        "`counter_value(name)`, `metric_data(name)`. Times are nanoseconds. This page is written\n"
        "by `tools/gen_docs.py` from the table in `csrc/base/metrics.cc`.\n\n"
        + table(("Name", "Meaning"), rows)
        + "\nBesides these, one counter per operator:\n\n"
        + table(
            ("Name", "Meaning"),
            [
                ("`xla::<operator>`", "how often the operator was recorded"),
                (
                    "`aten::<operator>`",
                    "how often the operator left the device and ran on the host: each time costs "
                    "a break of the graph and two copies",
                ),
            ],
        )
    )


TORCH = torch.__version__.split("+")[0]

# How the page names them.
SHORT = {
    "float8_e4m3fn": "f8",
    "bfloat16": "bf16",
    "bool": "bool",
    "complex64": "c64",
    "complex32": "c32",
    "uint8": "u8",
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (32, 64)},
}
DTYPES = {dtype: SHORT[dtype] for dtype in sweep.DTYPES}


def ops() -> str:
    expected, reached = sweep.Expected.read(), sweep.Reached()
    entries = defaultdict(list)
    for entry in sweep.entries():
        entries[entry.aten_name].append(entry)
    rows: list[tuple[str, ...]] = []
    counts: Counter[str] = Counter()
    for op in debug_ops.operators():
        right = []
        for dtype, short in DTYPES.items():
            results = {
                expected.of("forward", dtype, sweep.name_of(entry))
                for entry in entries[op.name]
                if getattr(torch, dtype) in entry.supported_dtypes("cpu")
            }
            if results and results <= {"native", "fallback"}:
                right.append(short)
        found = [*map(sweep.name_of, entries[op.name]), *reached.entries.get(op.name, [])]
        tested = list(dict.fromkeys(found))[: sweep.Reached.FEW]
        served = ", ".join(op.statuses)
        if op.reason:
            served += f" ({op.reason})"
        elif op.name in ("convolution", "convolution_backward"):  # their lowerings choose
            served += ", host call on CPU plugins"
        counts[op.statuses[0]] += 1
        rows.append((f"`{op.name}`", served, " ".join(right), " ".join(f"`{t}`" for t in tested)))
    statuses = str(debug_ops.__doc__).split("operator:\n\n")[1].split("\n\n")[0]
    return (
        "# Operators\n\n"
        f"All {len(rows)} operators of ATen (torch {TORCH}) that have a "
        "kernel for a CPU: "
        + ", ".join(f"{counts[s]} {s}" for s in debug_ops.STATUSES)
        + ". `python -m torch_xla.debug.ops PATTERN` prints them for the installed torch.\n\n"
        f"```\n{statuses}\n```\n\n"
        "*Dtypes*: those in which all samples of the operator's own entries in PyTorch's `op_db` "
        f"give what the CPU gives ({', '.join(f'{s} {d}' for d, s in DTYPES.items())}); empty "
        "where it has no entry. *Tested by*: entries of `op_db` in which it is called, "
        "`backward:` in their gradients (`make test-ops`). In-place and `out=` forms are "
        "served as the operator is.\n\n"
        "This page is written by `tools/gen_docs.py` from the dispatcher and from "
        "`tests/ops/expectations.txt` and `reached.txt`, which `make test-ops` writes.\n\n"
        + table(("Operator", "Served", "Dtypes", "Tested by"), rows)
    )


def main() -> int:
    stale = []
    pages = (("env_vars.md", env_vars()), ("metrics.md", metrics()), ("ops.md", ops()))
    for name, text in pages:
        path = DOCS / name
        old = path.read_text() if path.is_file() else ""
        if old == text:
            continue
        if name == "ops.md" and old and f"(torch {TORCH})" not in old and "--check" in sys.argv[1:]:
            continue  # another torch has other operators
        if "--check" in sys.argv[1:]:
            stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"not up to date: {', '.join(stale)}; run tools/gen_docs.py", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
