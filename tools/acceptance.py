"""Runs the acceptance checks and cases that tests/promised.txt names, with this Python.

    python tools/acceptance.py [name...]

The checks (a01, b02, ...) are in ../shared/acceptance, or $ACCEPTANCE, the cases (02, 13, ...) in
the folder `cases` beside it. Each is a script that prints PASS or FAIL and exits 0 or 1. A line
`34 after: STATEMENT` runs the statement in the script's process before it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 600


def run(script: Path, before: str) -> bool:
    command = [sys.executable, str(script)]
    if before:
        start = f"runpy.run_path({str(script)!r}, {{}}, '__main__')"
        command[1:] = ["-c", f"import runpy, torch, torch_xla\n{before}\n{start}"]
    env = {"PJRT_DEVICE": "CPU", **os.environ}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        verdicts = [x for x in done.stdout.splitlines() if x.startswith(("PASS", "FAIL"))]
        verdict = verdicts[-1] if verdicts else "FAIL without a verdict"
        if done.returncode != 0:
            verdict = verdict.replace("PASS", "FAIL") + f"; exit {done.returncode}"
        if verdict.startswith("FAIL"):
            verdict += "\n" + "\n".join(done.stderr.splitlines()[-20:])
    except subprocess.TimeoutExpired:
        verdict = f"FAIL over {TIMEOUT_S} s"
    print(f"{script.stem} ({time.monotonic() - began:.1f} s): {verdict}", flush=True)
    return verdict.startswith("PASS")


def main() -> int:
    folder = Path(os.environ.get("ACCEPTANCE", ROOT.parent / "shared/acceptance"))
    if not folder.is_dir():
        print(f"no acceptance checks in {folder}: skipped")
        return 0
    lines = (ROOT / "tests/promised.txt").read_text().splitlines()
    promised = [x.partition(" after: ") for x in lines if x and not x.startswith("#")]
    before = {name: statement for name, _, statement in promised}
    names = sys.argv[1:] or list(before)
    cases = folder.parent / "cases"
    scripts = {
        name: sorted((cases if name[0].isdigit() else folder).glob(f"{name}_*.py"))
        for name in names
    }
    if missing := [name for name, found in scripts.items() if len(found) != 1]:
        print(f"promised, but not one file in {folder} or {cases}: {' '.join(missing)}")
        return 1
    passed = [run(found[0], before.get(name, "")) for name, found in scripts.items()]
    print(f"acceptance: {sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
