"""What the tests of the Python names share."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import torch

import torch_xla
from torch_xla.debug import metrics


@pytest.fixture
def device() -> torch.device:
    return torch_xla.device()


def samples(metric: str) -> int:
    """How often a metric was recorded."""
    data = metrics.metric_data(metric)
    return data[0] if data else 0


def compiles() -> int:
    return samples("CompileTime")


def executions() -> int:
    return samples("ExecuteTime")


def assert_same(actual: torch.Tensor, expected: torch.Tensor, **tolerance: float) -> None:
    """Shapes, dtypes and values agree; `actual` may be anywhere."""
    torch.testing.assert_close(
        actual.detach().cpu(), expected.detach(), equal_nan=True, **tolerance
    )


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_python() -> Run:
    """Runs a program in a fresh process: run(code, timeout=60, **environment)."""

    def run(
        code: str, *args: str, timeout: float = 60, **env: str | None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *args],
            env=environment(**env),
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    return run


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment with changes; None takes a variable away."""
    env = {**os.environ, "XLA_VERIFY": "0", **changes}
    return {k: v for k, v in env.items() if v is not None}
