"""Runs clang-tidy on the C++ files that changed, or on all with --all.

Changed: against origin/main, or against the commit before where this is origin/main itself.
A changed header counts as the .cc file of the same name.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATABASE = ROOT / "build/tidy"


def git(*args: str) -> list[str]:
    result = subprocess.run(["git", *args], cwd=ROOT, text=True, capture_output=True)
    return result.stdout.split() if result.returncode == 0 else []


def changed() -> list[str]:
    """The files that differ from the base, uncommitted and new ones included."""
    head = git("rev-parse", "HEAD")
    base = git("merge-base", "HEAD", "origin/main")
    if not base or base == head:
        base = git("rev-parse", "--verify", "-q", "HEAD~1") or head
    return git("diff", "--name-only", *base) + git("ls-files", "-o", "--exclude-standard")


def commands() -> dict[str, dict[str, str]]:
    """gcc's compile commands, with the precompiled headers' text: clang cannot read gcc's."""
    DATABASE.mkdir(parents=True, exist_ok=True)
    database = {}
    for entry in json.loads((ROOT / "build/dev/compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        while os.path.basename(words[0]) not in ("c++", "g++"):  # ccache
            del words[0]
        if "-include" in words:
            at = words.index("-include") + 1
            header = Path(words[at])
            # Away from the .gch file beside it, which clang would take.
            words[at] = str(DATABASE / f"{header.parent.stem}_{header.name}")
            shutil.copy(header, words[at])
        kept = [w for w in words if w not in ("-fpch-preprocess", "-Winvalid-pch")]
        name = os.path.relpath(entry["file"], ROOT)
        if "cmake_pch" not in name:
            database[name] = entry | {"command": shlex.join(kept)}
    return database


def tidy(name: str) -> int:
    command = [f"{sys.prefix}/bin/clang-tidy", "--quiet", "-p", str(DATABASE), name]
    run = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    print(f"{'ok  ' if run.returncode == 0 else 'FAIL'} {name}", flush=True)
    if run.returncode:
        print(run.stdout or run.stderr, flush=True)
    return run.returncode


def main() -> int:
    database = commands()
    (DATABASE / "compile_commands.json").write_text(json.dumps(list(database.values())))
    names = set(database)
    if "--all" not in sys.argv:
        names &= {str(Path(name).with_suffix(".cc")) for name in changed()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = sum(bool(code) for code in pool.map(tidy, sorted(names)))
    print(f"clang-tidy: {len(names)} files, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
