"""The table of operators: docs/ops.md is made of it."""

import subprocess
import sys

import pytest
import torch

from tests.ops import sweep
from torch_xla.debug import metrics, ops

FEW = 25  # entries of op_db that may leave the device, forward in float32


def test_every_fallback_has_a_reason():
    table = ops.operators()
    assert len(table) > 1000
    silent = [
        op.name for op in table if {"fallback", "refused"} & set(op.statuses) and not op.reason
    ]
    assert silent == []


def test_statuses_of_some():
    found = {op.name: op.statuses[0] for op in ops.operators()}
    assert found["add"] == found["add_"] == found["sort"] == "native"
    assert found["linalg_qr"] == "host call"
    assert found["reshape"] == "composite"
    assert found["nonzero"] == "fallback"
    assert found["_to_sparse"] == "native"
    assert found["_values"] == "sparse"
    assert found["_nested_get_values"] == "refused"
    sparse = {op.name: op.sparse for op in ops.operators()}
    assert (sparse["addmm"], sparse["neg"], sparse["bmm"]) == (
        ["native"],
        ["composite", "fallback"],  # of COO, and of compressed
        ["fallback"],
    )


def test_a_fallback_is_counted_and_a_refusal_raises():
    x = torch.tensor([1.0, 0, 2], device="xla:0")
    before = metrics.counter_value("aten::nonzero") or 0
    assert torch.nonzero(x).tolist() == [[0], [2]]
    assert metrics.counter_value("aten::nonzero") == before + 1
    with pytest.raises(NotImplementedError, match="Mkldnn"):
        x.to_mkldnn()


def test_few_entries_leave_the_device():
    results = sweep.Expected.read().results
    forward = [
        (name, result)
        for (mode, dtype, name), result in results.items()
        if (mode, dtype) == ("forward", "float32")
    ]
    assert len([name for name, result in forward if result == "fallback"]) <= FEW
    assert {result for _, result in forward} <= {"fallback", "raises"}


def test_the_command_searches():
    done = subprocess.run(
        [sys.executable, "-m", "torch_xla.debug.ops", "^nonz"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split(maxsplit=1)[0] == "nonzero"
    assert "the shape of the result depends on data" in lines[0]
    assert all(line.startswith("nonz") for line in lines)
