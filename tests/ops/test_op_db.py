"""A slice of PyTorch's op_db against the expectations; `make test-ops` runs all of it."""

import pytest

from tests.ops import sweep

EVERY = 12
# Many samples each, and tests of their own.
LEFT_OUT = ("nn.", "masked.", "max_pool2d", "logspace", "linspace", "svd", "pca")


@pytest.mark.filterwarnings("ignore")
def test_slice():
    ops = [(i, sweep.name_of(op)) for i, op in enumerate(sweep.entries())]
    chosen = dict([o for o in ops if not o[1].startswith(LEFT_OUT)][5::EVERY])
    results = sweep.sweep(list(chosen), "forward", "float32", workers=2, progress=False)
    expected = sweep.Expected.read()
    found = {chosen[i]: r for i, r in results.items() if r.result != "skip"}
    assert len(found) > len(chosen) * 0.8
    unexpected = {
        name: (r.result, r.note)
        for name, r in found.items()
        if r.result != expected.of("forward", "float32", name)
    }
    assert unexpected == {}
