"""What goes wrong between replicas: everybody ends in time, and says why."""

import socket
import time

import pytest

PROGRAM = """
import os, signal, sys, time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

def step(x):
    y = xm.all_reduce(xm.REDUCE_SUM, x)
    torch_xla.sync()
    return y.cpu()

def train(index, how):
    x = torch.full((1000,), float(index)).to(torch_xla.device())
    for _ in range(3):
        step(x)
    if index == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stall":
            time.sleep(600)
        if how == "raise":
            raise LookupError("rank 1 gives up")
        if how == "leave":
            return
        if how == "operation":
            torch_xla.sync()
            xm.all_gather(x).cpu()  # line A
        if how == "shape":
            step(x[:10])
        if how == "groups":
            xm.all_reduce(xm.REDUCE_SUM, x, groups=[[0], [1], [2]]).cpu()
    try:
        step(x)
    except Exception as e:
        print(f"<rank {index}: {type(e).__name__}: {e}>", flush=True)
        # A rank that has failed stays failed, at once.
        start = time.monotonic()
        try:
            step(x)
            print("NO ERROR", flush=True)
        except Exception:
            assert time.monotonic() - start < 1
        raise

if __name__ == "__main__":
    start = time.monotonic()
    try:
        xmp.spawn(train, args=(sys.argv[1],), nprocs=3, start_method=sys.argv[2])
    except Exception as e:
        print(f"[parent: {type(e).__name__}: {e}]")
    print("seconds", time.monotonic() - start)
"""
LIMIT = "10"


def rank_text(out, rank):
    assert f"<rank {rank}: " in out, out
    return out.split(f"<rank {rank}: ")[1].split(">")[0]


def run(run_program, how, start_method="spawn", **env):
    p = run_program(PROGRAM, how, start_method, timeout=120, XLA_WAIT_TIMEOUT_S=LIMIT, **env)
    assert p.returncode == 0 and "NO ERROR" not in p.stdout, p.stdout + p.stderr
    return p.stdout


@pytest.mark.parametrize("shared_memory", ["1", "0"])
def test_a_rank_is_killed(run_program, shared_memory):
    out = run(run_program, "kill", XLA_SHARED_MEMORY=shared_memory)
    parent = out.split("[parent: ")[1]
    assert parent.startswith("ProcessExitedException: process 1 was ended by SIGKILL"), out
    told = [rank_text(out, r) for r in (0, 2) if f"<rank {r}: " in out]
    assert told and all("collective 3, all_reduce(sum, Float[1000]) at " in t for t in told), out
    assert all("rank 1 has failed: was ended by SIGKILL" in t for t in told), out


def test_a_rank_raises(run_program):
    out = run(run_program, "raise")
    parent = out.split("[parent: ")[1]
    assert parent.startswith("ProcessRaisedException") and "LookupError: rank 1 gives" in parent
    assert "rank 1 has failed: LookupError" in rank_text(out, 0) + rank_text(out, 2), out


def test_a_rank_leaves_early(run_program):
    out = run(run_program, "leave")
    assert "rank 1 has ended" in rank_text(out, 0) + rank_text(out, 2), out


@pytest.mark.parametrize("shared_memory", ["1", "0"])
def test_a_rank_stalls(run_program, shared_memory):
    start = time.monotonic()
    out = run(run_program, "stall", XLA_SHARED_MEMORY=shared_memory)
    assert "no sign of rank 1" in rank_text(out, 0), out
    assert "collective 3, all_reduce(sum, Float[1000]) at " in rank_text(out, 0)
    assert time.monotonic() - start < 80


def test_a_thread_raises(run_program):
    out = run(run_program, "raise", "thread")
    parent = out.split("[parent: ")[1]
    assert parent.startswith("ThreadRaisedException: replica 1 (a thread with xla:1) raised "), out
    assert "raised LookupError: rank 1 gives up" in parent
    for rank in (0, 2):
        assert "rank 1 has failed: LookupError" in rank_text(out, rank), out
        assert "collective 3, all_reduce(sum, Float[1000]) at " in rank_text(out, rank)


def test_a_thread_leaves_early(run_program):
    out = run(run_program, "leave", "thread")
    assert "rank 1 has ended" in rank_text(out, 0) + rank_text(out, 2), out


def test_a_thread_stalls(run_program):
    """It cannot be ended alone, so the process ends in time and says where the thread is."""
    start = time.monotonic()
    p = run_program(PROGRAM, "stall", "thread", timeout=90, XLA_WAIT_TIMEOUT_S=LIMIT)
    assert p.returncode == 1 and time.monotonic() - start < 60
    assert "no sign of rank 1" in rank_text(p.stdout, 0) + rank_text(p.stdout, 2), p.stdout
    assert "this process ends, because a thread cannot be ended alone" in p.stderr
    stalled = p.stderr.split("-- Replica 1 still runs:")[1]
    assert "time.sleep(600)" in stalled, p.stderr


@pytest.mark.parametrize("start_method", ["spawn", "thread"])
@pytest.mark.parametrize(
    "how, other",
    [
        ("operation", "all_gather(Float[1000]) at "),
        ("shape", "all_reduce(sum, Float[10]) at "),
        ("groups", "all_reduce(sum, Float[1000], groups=[[0], [1], [2]]) at "),
    ],
)
def test_ranks_record_different_graphs(run_program, how, other, start_method):
    text = rank_text(run(run_program, how, start_method), 0)
    assert "the ranks run different collectives" in text
    assert "rank 0: collective 3, all_reduce(sum, Float[1000]) at " in text, text
    assert f"rank 1: collective 3, {other}" in text, text
    assert text.count("program.py:") >= 2


def test_a_taken_port(run_program):
    """A launcher that names a port at which somebody else listens."""
    code = """
    import torch_xla
    import torch_xla.core.xla_model as xm
    try:
        xm.rendezvous("x")
    except RuntimeError as e:
        print(e)
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        p = run_program(
            code,
            RANK="0",
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            XLA_WAIT_TIMEOUT_S="5",
        )
    assert f"rank 0 cannot listen at 127.0.0.1:{port} (MASTER_ADDR, MASTER_PORT)" in p.stdout
    p = run_program(code, RANK="1", WORLD_SIZE="2", MASTER_PORT=str(port), XLA_WAIT_TIMEOUT_S="2")
    assert f"rank 1 cannot reach rank 0's store at 127.0.0.1:{port}" in p.stdout, p.stderr
    p = run_program(code, RANK="0", WORLD_SIZE="2", MASTER_PORT=None)
    assert "MASTER_PORT is not set: start the program by torchrun" in p.stdout, p.stderr


def test_what_threads_leave(run_program):
    """A failed program of threads leaves the process and its devices as they were."""
    p = run_program(
        """
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp
        import torch_xla.runtime as xr

        def total(index, fail):
            x = torch.full((3,), float(index)).to(xm.xla_device())
            if fail and index == 1:
                raise LookupError("no")
            return xm.all_reduce("sum", x).tolist()

        kept = torch.ones(3).to("xla:1")
        for i in range(20):
            try:
                xmp.spawn(total, args=(i % 2 == 0,), nprocs=2, start_method="thread")
                print("fine")
            except xmp.ThreadRaisedException as e:
                assert e.error_index == 1 and isinstance(e.__cause__, LookupError), e
        assert xr.world_size() == 1 and (kept + 1).tolist() == [2, 2, 2]
        assert xm.all_reduce("sum", kept).tolist() == [1, 1, 1]
        try:
            xmp.spawn(total, nprocs=3, start_method="thread")
        except ValueError as e:
            print(e)
        """,
        CPU_NUM_DEVICES="2",
    )
    assert p.stdout.count("fine") == 10, p.stderr
    assert "3 replicas as threads need 3 devices, and this process has 2: set CPU_NUM" in p.stdout


@pytest.mark.parametrize("start_method", ["spawn", "thread"])
def test_ctrl_c(run_program, start_method):
    """In the parent, while a rank waits for another one."""
    p = run_program(
        """
        import os, signal, sys, threading, time
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        def wait(index):
            print("started", flush=True)
            if index == 0:
                xm.all_reduce("sum", torch.ones(1, device="xla")).item()
            else:
                time.sleep(600)

        if __name__ == "__main__":
            threading.Timer(8, lambda: os.killpg(0, signal.SIGINT)).start()
            try:
                xmp.spawn(wait, nprocs=2, start_method=sys.argv[1])
            except KeyboardInterrupt:
                print("interrupted")
        """,
        start_method,
        timeout=60,
    )
    if start_method == "thread":  # which sleeps and cannot be ended
        assert p.returncode == 130 and "time.sleep(600)" in p.stderr, p.stderr
        return
    assert "interrupted" in p.stdout, p.stderr
