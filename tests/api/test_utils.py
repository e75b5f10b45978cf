"""The helpers of torch_xla.utils.utils."""

import io
import os

import torch

import torch_xla.utils.utils as xu


def test_sample_generator():
    data = (torch.ones(2), torch.zeros(1))
    loader = xu.SampleGenerator(data, 3)
    assert len(loader) == 3
    assert [x is data for x in loader] == [True] * 3
    assert len(list(loader)) == 3


def test_environment(monkeypatch):
    monkeypatch.setenv("A_NUMBER", "3")
    monkeypatch.setenv("A_FLAG", "true")
    monkeypatch.setenv("NO_FLAG", "0")
    assert xu.getenv_as("A_NUMBER", int) == 3
    assert xu.getenv_as("NOT_THERE", int, 5) == 5
    assert xu.getenv_as("A_FLAG", bool) is True
    assert xu.getenv_as("NO_FLAG", bool) is False
    assert xu.check_env_flag("A_FLAG") and not xu.check_env_flag("NO_FLAG")


def test_nested():
    data = {"a": [1, "s"], "b": (2.5, 3)}
    seen = []
    xu.for_each_instance(data, lambda v: isinstance(v, int), seen.append)
    assert seen == [1, 3]
    out = xu.for_each_instance_rewrite(data, lambda v: isinstance(v, int), lambda v: -v)
    assert out == {"a": [-1, "s"], "b": (2.5, -3)}
    assert xu.as_list(3) == [3] and xu.as_list((1, 2)) == [1, 2]


def test_small_ones():
    lines = []
    assert xu.timed(lambda: 4, msg="took ", printfn=lines.append) == 4
    assert lines[0].startswith("took 0.")
    assert len(set(xu.get_free_tcp_ports(3))) == 3
    assert xu.parallel_work(2, lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
    with xu.TmpFolder() as folder:
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)
    out = io.StringIO()
    xu.get_print_fn(out)("x")
    assert out.getvalue() == "x\n"
