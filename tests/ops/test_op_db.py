"""A slice of PyTorch's op_db against the expectations; `make test-ops` runs all of it."""

from tests.ops import sweep

EVERY = 12


def test_slice():
    ops = sweep.entries()
    indices = list(range(5, len(ops), EVERY))
    results = sweep.sweep(indices, "forward", "float32", workers=2, progress=False)
    expected = sweep.Expected.read()
    found = {sweep.name_of(ops[i]): results[i] for i in indices if results[i].result != "skip"}
    assert len(found) > len(indices) * 0.9
    wanted = {name: expected.of("forward", "float32", name) for name in found}
    assert {name: r.result for name, r in found.items()} == wanted, {
        name: r for name, r in found.items() if r.result != wanted[name]
    }
