"""Views and mutation against eager: random programs, with and without autograd."""

import hypothesis
import hypothesis.strategies as st
import pytest

from .program import run


@pytest.mark.parametrize("with_grad", [False, True])
def test_random_programs(with_grad: bool) -> None:
    @hypothesis.settings(
        max_examples=60, deadline=None, derandomize=True, database=None, print_blob=False
    )
    @hypothesis.given(st.data())
    def check(data: st.DataObject) -> None:
        steps = data.draw(st.integers(5, 30))
        run(lambda n: data.draw(st.integers(0, n - 1)), steps, with_grad)

    check()
