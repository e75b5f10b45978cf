"""The conformance suite and the acceptance checks on the other CPU plugins.

    python tools/test_plugins.py FOLDER [name...]

FOLDER is where requirements/plugins.txt was installed to; names are those of tests/promised.txt. A
plugin is used by its path (PJRT_LIBRARY_PATH), as a user would try one that is not registered.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = {
    "fastatomstruct-xla-cpu": "fastatomstruct_xla_cpu/libpjrt_cpu.so",
    "lammps-jax-pjrt-cpu": "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
}


def main() -> int:
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    failed = []
    for plugin, library in LIBRARIES.items():
        path = folder / library
        print(f"=== {plugin}", flush=True)
        env = {
            **os.environ,
            "PJRT_DEVICE": "CPU",
            "PJRT_LIBRARY_PATH": str(path),
            "PJRT_CONFORMANCE_LIBRARY": str(path),
        }
        commands: list[list[str]] = [
            [str(ROOT / "build/dev/pjrt_conformance_test"), "--gtest_brief=1"],
            [sys.executable, "-m", "torch_xla.debug.env"],
            [sys.executable, str(ROOT / "tools/acceptance.py"), *names],
        ]
        for command in commands:
            if subprocess.run(command, env=env, cwd=ROOT).returncode != 0:
                failed.append(f"{plugin}: {Path(command[0]).name} {command[1]}")
    for line in failed:
        print(f"FAILED {line}")
    print(f"plugins: {len(LIBRARIES)} tried, {len(failed)} commands failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
