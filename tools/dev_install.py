"""Makes the source tree importable in this Python as the installed distribution torch-xla.

What `pip install -e` does, in a second and without compiling: a .pth file and the metadata.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from scikit_build_core.build import prepare_metadata_for_build_wheel

ROOT = Path(__file__).resolve().parents[1]
PTH = "_torch_xla_dev.pth"


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    pth = site / PTH
    metadata = next(iter(site.glob("torch_xla-*.dist-info/METADATA")), None)
    newest = (ROOT / "pyproject.toml").stat().st_mtime
    if pth.is_file() and metadata is not None and metadata.stat().st_mtime > newest:
        return
    if metadata is not None:  # an older one, or a wheel that somebody installed
        pip = [sys.executable, "-m", "pip", "uninstall", "-q", "-y", "--root-user-action=ignore"]
        subprocess.run([*pip, "torch-xla"], check=True)
    for left in site.glob("torch_xla-*.dist-info"):
        shutil.rmtree(left)
    info = site / prepare_metadata_for_build_wheel(str(site))
    pth.write_text(f"{ROOT}\n")
    (info / "INSTALLER").write_text("make dev\n")
    files = [PTH, *(f"{p.relative_to(site)}" for p in info.rglob("*") if p.is_file())]
    (info / "RECORD").write_text("".join(f"{f},,\n" for f in [*files, f"{info.name}/RECORD"]))
    print(f"torch-xla of {ROOT} is importable in {sys.prefix}")


if __name__ == "__main__":
    main()
