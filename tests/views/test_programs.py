"""Views and mutation against eager: random programs, with and without autograd."""

import os
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import pytest

from .program import run


@pytest.mark.parametrize("with_grad", [False, True])
def test_random_programs(with_grad: bool) -> None:
    """A few, with the compiler as it comes; hypothesis shrinks a difference."""

    @hypothesis.settings(
        max_examples=4, deadline=None, derandomize=True, database=None, print_blob=False
    )
    @hypothesis.given(st.data())
    def check(data: st.DataObject) -> None:
        length = data.draw(st.integers(5, 10))
        run(lambda n: data.draw(st.integers(0, n - 1)), length, with_grad)

    check()


def test_programs_of_fixed_seeds() -> None:
    """As `make fuzz` runs them: together, and compiled in haste."""
    command = [sys.executable, "-m", "tests.views.fuzz", "--programs", "144", "--workers", "1"]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XLA_VERIFY": "0"},  # words of meta kernels differ
    )
    assert done.returncode == 0, done.stdout
