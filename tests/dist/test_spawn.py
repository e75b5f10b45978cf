"""xmp.spawn and torch_xla.launch."""

import os
import sys

import pytest
import torch
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def nothing(index):
    pass


def note(index, folder, tensor):
    assert xr.global_ordinal() == index and torch_xla.device_count() == 1
    assert os.environ["CPU_NUM_DEVICES"] == "1"
    total = (tensor.to(torch_xla.device()) + index).sum().item()
    with pytest.raises(RuntimeError, match="cannot be called in a process"):
        xmp.spawn(nothing)
    (folder / str(index)).write_text(f"{xr.world_size()} {total}")


def test_a_process_per_device(tmp_path, monkeypatch):
    """The parent has used its device and goes on using it."""
    x = torch.ones(3, device=torch_xla.device())
    monkeypatch.setenv("CPU_NUM_DEVICES", "2")
    xmp.spawn(note, args=(tmp_path, torch.ones(3)))
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == {"0": "2 3.0", "1": "2 6.0"}
    assert (x + 1).tolist() == [2, 2, 2]
    assert xr.world_size() == 1


def fail(index, how):
    if index == 1:
        if how == "exit":
            sys.exit(7)
        raise LookupError(f"in rank {index}")
    xm_rendezvous()


def xm_rendezvous():
    import torch_xla.core.xla_model as xm

    return xm.rendezvous("that never happens")


def test_the_error_of_a_process(capfd):
    context = xmp.spawn(fail, args=("raise",), nprocs=2, join=False)
    pids = context.pids()
    with pytest.raises(ProcessRaisedException) as e:
        while not context.join(timeout=0.1):
            pass
    text = str(e.value)
    assert e.value.error_index == 1 and e.value.error_pid == pids[1]
    assert "Process 1 terminated" in text and "LookupError: in rank 1" in text and "in fail" in text
    # The other one did not hang, and says what it waited for.
    assert "rendezvous 'that never happens': rank 1 has failed: LookupError" in text
    with pytest.raises(ProcessExitedException, match="process 1 left with exit code 7") as e:
        xmp.spawn(fail, args=("exit",), nprocs=2)
    assert e.value.exit_code == 7


def test_what_cannot_be_sent():
    with pytest.raises(RuntimeError, match=r"at the top level of a file.*nprocs=1"):
        xmp.spawn(lambda index: None, nprocs=2)
    with pytest.raises(RuntimeError, match="cannot hand nothing and its arguments"):
        xmp.spawn(nothing, args=(lambda: None,), nprocs=2)


def test_a_notebook_s_function(run_program):
    """As in a notebook: the main module has no file."""
    p = run_program(
        """
        import code, sys
        code.InteractiveConsole({"__name__": "__main__"}).runsource(sys.argv[1], symbol="exec")
        """,
        "import sys; del sys.modules['__main__'].__file__\n"
        "import torch_xla.distributed.xla_multiprocessing as xmp\n"
        "def fn(index): print('ran', index)\n"
        "sys.modules['__main__'].__spec__ = None\n"
        "xmp.spawn(fn, nprocs=1)\n"
        "xmp.spawn(fn, nprocs=2)\n",
    )
    assert p.stdout == "ran 0\n", p.stderr
    assert "defined in a notebook or on the command line. Write it into a .py file" in p.stderr


def test_wrong_arguments(monkeypatch):
    with pytest.raises(RuntimeError, match="cannot fork"):
        xmp.spawn(nothing, nprocs=2, start_method="fork")
    with pytest.raises(ValueError, match="start_method 'vfork' is none of"):
        xmp.spawn(nothing, nprocs=2, start_method="vfork")
    with pytest.raises(ValueError, match="nprocs 0 must be a positive"):
        xmp.spawn(nothing, nprocs=0)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="rank 1 of 2 already"):
        xmp.spawn(nothing)


def test_in_this_process():
    seen = []
    xmp.spawn(lambda index, x: seen.append((index, x, os.getpid())), args=(3,), nprocs=1)
    torch_xla.launch(
        lambda index, x: seen.append((index, x, os.getpid())), (4,), debug_single_process=True
    )
    assert seen == [(0, 3, os.getpid()), (0, 4, os.getpid())]
    with pytest.raises(KeyError):
        xmp.spawn(lambda index: {}[index], nprocs=1)


def test_launch_under_a_launcher(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    seen = []
    torch_xla.launch(seen.append)
    assert seen == [1]


def test_model_wrapper():
    import pickle

    wrapper = pickle.loads(pickle.dumps(xmp.MpModelWrapper(torch.nn.Linear(2, 1))))
    model = wrapper.to(torch_xla.device())
    assert model.weight.device.type == "xla"
    assert xmp.MpSerialExecutor().run(lambda: 3) == 3


def test_children_end_with_their_parent(run_program):
    """The parent is killed: nobody is left (run_program looks)."""
    p = run_program(
        """
        import os, signal, sys, time
        import torch_xla.distributed.xla_multiprocessing as xmp

        def wait(index):
            print("started", flush=True)
            time.sleep(600)

        if __name__ == "__main__":
            context = xmp.spawn(wait, nprocs=2, join=False, daemon=True)
            time.sleep(3)
            print(all(p.daemon for p in context.processes), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert p.returncode == -9 and "True" in p.stdout, p.stderr
