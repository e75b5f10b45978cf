"""The demo: few compilations, no fallbacks, the same losses on both devices."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import environment

SCRIPT = Path(__file__).parents[2] / "examples/train_digits.py"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")

    def run(device: str, *args: str) -> dict:
        done = subprocess.run(
            [sys.executable, SCRIPT, "--device", device, "--out", out, *args],
            env=environment(OMP_NUM_THREADS="1"),  # many small operators: eager's best
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        stem = out / f"digits_{device.split(':')[0]}"
        assert Path(f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        return json.loads(Path(f"{stem}.json").read_text())

    return run


def check_counts(result: dict) -> None:
    compiled = result["compilations"]
    assert 1 <= compiled["training"] <= 3 and compiled["after step 2"] == 0
    assert compiled["evaluation"] == 1
    assert result["fallbacks"] == []


def test_same_losses_on_both_devices(demo):
    xla, cpu = demo("xla:0"), demo("cpu")
    check_counts(xla)
    assert xla["accuracies"][-1][1] >= 0.97
    assert len(xla["losses"]) == len(cpu["losses"]) > 20
    for (i, a), (j, b) in zip(xla["losses"], cpu["losses"], strict=True):
        assert i == j and abs(a - b) < 1e-4 + 1e-3 * b, (i, a, b)


def test_dropout_on_the_device(demo):
    result = demo("xla:0", "--dropout-on", "device", "--epochs", "2")
    check_counts(result)
    assert result["losses"][-1][1] < result["losses"][0][1]
