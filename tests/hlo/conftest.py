"""The modules that the C++ program hlo_emit_all prints, by name."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def find_program() -> pathlib.Path:
    if named := os.environ.get("HLO_EMIT_ALL"):
        return pathlib.Path(named)
    built = [p for p in (ROOT / "build").glob("**/hlo_emit_all") if p.is_file()]
    if not built:
        pytest.skip("hlo_emit_all is not built: `make dev`, or name it in HLO_EMIT_ALL")
    return max(built, key=lambda p: p.stat().st_mtime)


@pytest.fixture(scope="session")
def modules() -> dict[str, str]:
    text = subprocess.run([find_program()], check=True, capture_output=True, text=True).stdout
    parts = [part.split("\n", 1) for part in text.split("// ----- ")[1:]]
    assert len({name for name, _ in parts}) == len(parts), "two modules have one name"
    return dict(parts)
