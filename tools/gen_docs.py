"""Writes docs/env_vars.md and docs/metrics.md from the tables in csrc/base.

    python tools/gen_docs.py [--check]

With --check nothing is written, and the exit status is 1 where a file is not up to date.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch_xla
from torch_xla import _XLAC

DOCS = Path(torch_xla.__file__).parents[1] / "docs"


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


def main() -> int:
    stale = []
    for name, text in (("env_vars.md", env_vars()), ("metrics.md", metrics())):
        path = DOCS / name
        if path.is_file() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"not up to date: {', '.join(stale)}; run tools/gen_docs.py", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
