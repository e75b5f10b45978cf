"""Slices of PyTorch's op_db against the expectations; `make test-ops` runs all of it."""

import pytest

from tests.ops import sweep

# Every n-th entry, from the m-th on.
SLICES = {
    ("forward", "float32"): (12, 5),
    ("forward", "bfloat16"): (60, 1),
    ("forward", "float64"): (60, 7),
    ("forward", "int64"): (60, 13),
    ("forward", "uint8"): (90, 19),
    ("forward", "bool"): (60, 25),
    ("forward", "complex64"): (60, 31),
    ("backward", "float32"): (40, 37),
    ("errors", "float32"): (20, 3),
    ("variants", "float32"): (40, 11),
}
# Many samples each, and tests of their own.
LEFT_OUT = ("nn.", "masked.", "max_pool2d", "logspace", "linspace", "svd", "pca", "grid_sampler")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mode", "dtype"), SLICES)
def test_slice(mode, dtype):
    every, start = SLICES[mode, dtype]
    ops = [(i, sweep.name_of(op)) for i, op in enumerate(sweep.entries())]
    left_out = LEFT_OUT if mode != "errors" else ()
    chosen = dict([o for o in ops if not o[1].startswith(left_out)][start::every])
    results = sweep.sweep(list(chosen), mode, dtype, workers=2, progress=False)
    expected = sweep.Expected.read()
    found = {chosen[i]: r for i, r in results.items() if r.result != "skip"}
    least = 0.8 if (mode, dtype) == ("forward", "float32") else 0.2  # what has no such dtype
    assert len(found) > len(chosen) * least
    unexpected = {
        name: (r.result, r.note)
        for name, r in found.items()
        if r.result != expected.of(mode, dtype, name)
    }
    assert unexpected == {}
