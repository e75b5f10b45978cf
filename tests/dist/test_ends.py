"""What replicas owe each other before they wait, when they leave, and without a time limit."""

import pytest

METHODS = pytest.mark.parametrize("start_method", ["spawn", "thread"])

PROGRAM = """
import sys
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla._src import world

def total(index):
    return xm.all_reduce("sum", torch.full((5,), 1.0 + index).to(torch_xla.device()))

def leave(index, code):
    y = total(index)
    if index == 1:
        sys.exit(code)
    print("total", y.tolist()[0], flush=True)

def serial(index):
    y = total(index)
    print("total", xmp.MpSerialExecutor().run(lambda: y.tolist()[0] if index == 0 else 3.0))

def helper_meets(index):
    '''Another thread than the one that has recorded.'''
    import threading
    y = total(index)
    if index == 0:
        y.tolist()
    device = torch_xla.device()
    meet = lambda: met.append(world.rendezvous("m", b"x", [0, 1]))
    met = []
    thread = threading.Thread(target=meet)
    thread.start()
    thread.join()
    print("total", y.tolist()[0], len(met[0]))

def messages(index):
    x = torch.full((5,), 1.0 + index).to(torch_xla.device())
    keys = []
    for _ in range(4):
        for i in range(4):
            (xm.send if index == i % 2 else xm.recv)(x, i % 2)
        x.tolist()
        xm.rendezvous("after")
        keys.append(world.store().num_keys())
        xm.rendezvous("counted")
    if index == 0:
        assert x.tolist() == [1.0] * 5
        print("more keys", keys[3] - keys[2])

def unanswered(index):
    if index == 1:
        raise LookupError("no")
    xm.send(torch.ones(5).to(torch_xla.device()), 0)

def nobody_gives_up(index):
    y = total(index)
    xm.rendezvous("r")
    (xm.send if index == 0 else xm.recv)(y, 3)
    torch_xla.sync()
    print("total", y.tolist()[0], flush=True)
    if index == 1:
        raise LookupError("no")
    total(index).tolist()

def other_gradients(index):
    '''Of another parameter of the same shape.'''
    p, q = (torch.nn.Parameter(torch.ones(2).to(torch_xla.device())) for _ in range(2))
    optimizer = torch.optim.SGD([p, q], lr=1.0)
    (p if index == 0 else q).sum().backward()
    xm.optimizer_step(optimizer)
    print("stepped", (p + q).tolist())

def wait_for_own(index):
    for _ in range(20):
        y = total(index)
        torch_xla.sync()
        xm.wait_device_ops()
    print("total", y.tolist()[0], flush=True)

def wait_for_failed(index, by_sync):
    if index == 1:
        return
    y = total(index)
    torch_xla.sync()
    torch_xla.sync(wait=True) if by_sync else xm.wait_device_ops()
    print("waited")

if __name__ == "__main__":
    name, method, *args = sys.argv[1:]
    if name == "unanswered":
        try:
            xmp.spawn(unanswered, nprocs=2, start_method=method)
        except Exception as e:
            print(type(e).__name__)
        name = "messages"
    try:
        xmp.spawn(globals()[name], tuple(map(int, args)), nprocs=2, start_method=method)
    except xmp.ThreadRaisedException as e:
        print("raised", e.error_index, repr(e.__cause__))
    except Exception as e:
        print("raised", e.error_index, e)
"""


@METHODS
def test_sys_exit_finishes_what_others_wait_for(run_program, start_method):
    p = run_program(PROGRAM, "leave", start_method, "0", XLA_WAIT_TIMEOUT_S="20")
    assert p.stdout == "total 3.0\n", p.stdout + p.stderr
    p = run_program(PROGRAM, "leave", start_method, "3", XLA_WAIT_TIMEOUT_S="20")
    assert "raised" in p.stdout, p.stdout + p.stderr


@METHODS
def test_a_turn_that_reads_what_the_next_one_has_recorded(run_program, start_method):
    p = run_program(PROGRAM, "serial", start_method, XLA_WAIT_TIMEOUT_S="20")
    assert p.stdout == "total 3.0\n" * 2, p.stdout + p.stderr


def test_a_meeting_on_another_thread(run_program):
    p = run_program(PROGRAM, "helper_meets", "spawn", XLA_WAIT_TIMEOUT_S="20")
    assert p.stdout == "total 3.0 2\n" * 2, p.stdout + p.stderr


@METHODS
def test_gradients_of_other_parameters_are_not_added_up(run_program, start_method):
    p = run_program(PROGRAM, "other_gradients", start_method, XLA_WAIT_TIMEOUT_S="20")
    assert "stepped [" not in p.stdout, p.stdout + p.stderr
    for rank, missing in enumerate((1, 0)):
        words = f"all parameters but {missing} of 2"
        assert f"rank {rank}: " in p.stdout and words in p.stdout, p.stdout + p.stderr


@METHODS
def test_each_replica_waits_for_its_own_devices(run_program, start_method):
    p = run_program(PROGRAM, "wait_for_own", start_method, XLA_WAIT_TIMEOUT_S="20")
    assert p.stdout == "total 3.0\n" * 2, p.stdout + p.stderr


@METHODS
@pytest.mark.parametrize("by_sync", [0, 1])
def test_a_failure_that_nobody_reads_is_raised_by_a_wait(run_program, start_method, by_sync):
    p = run_program(PROGRAM, "wait_for_failed", start_method, str(by_sync), XLA_WAIT_TIMEOUT_S="20")
    assert "waited" not in p.stdout and "rank 1 has ended" in p.stdout, p.stdout + p.stderr


@METHODS
def test_channels_leave_no_keys(run_program, start_method):
    p = run_program(PROGRAM, "messages", start_method, XLA_WAIT_TIMEOUT_S="20")
    more = int(p.stdout.removeprefix("more keys "))
    assert more <= 2, p.stdout + p.stderr  # eight would be those of the messages


def test_a_channel_of_an_earlier_program(run_program):
    p = run_program(PROGRAM, "unanswered", "thread", XLA_WAIT_TIMEOUT_S="20")
    assert p.stdout.startswith("ThreadRaisedException\nmore keys "), p.stdout + p.stderr


@pytest.mark.parametrize(
    "start_method, shared_memory", [("spawn", "0"), ("spawn", "1"), ("thread", "1")]
)
def test_without_a_time_limit(run_program, start_method, shared_memory):
    p = run_program(
        PROGRAM,
        "nobody_gives_up",
        start_method,
        XLA_WAIT_TIMEOUT_S="0",
        XLA_SHARED_MEMORY=shared_memory,
    )
    assert p.stdout.count("total 3.0") == 2, p.stdout + p.stderr
    assert "raised 1" in p.stdout and "LookupError" in p.stdout, p.stdout + p.stderr


def test_a_failed_collective_leaves_no_replicas(run_program):
    """Of threads that the program has started itself."""
    p = run_program(
        """
        import threading
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.runtime as xr

        devices = xm.get_xla_supported_devices()
        results, errors = {}, {}

        def work(device, other):
            xm.set_replication(device, devices)
            try:
                x = torch.ones(2 + (other and xr.global_ordinal()), device=device)
                results[device] = xm.all_reduce("sum", x).tolist()
            except RuntimeError as e:
                errors[device] = str(e)
            finally:
                try:
                    xm.set_replication(device, None)
                except RuntimeError as e:
                    print("at the end:", str(e).splitlines()[0])
            assert xr.world_size() == 1

        def unread(device, other):
            xm.set_replication(device, devices)
            x = torch.ones(2 + (other and xr.global_ordinal()), device=device)
            y = xm.all_reduce("sum", x)
            try:
                xm.set_replication(device, None)
            except RuntimeError as e:
                errors[device] = str(e)
            assert xr.world_size() == 1

        for fn, other in ((work, 1), (work, 0), (unread, 1), (work, 0)):
            threads = [threading.Thread(target=fn, args=(d, other)) for d in devices]
            [t.start() for t in threads]
            [t.join() for t in threads]
            assert all("different collectives" in e for e in errors.values()), errors
            assert (len(errors), len(results)) == ((2, 0) if other else (0, 2)), (errors, results)
            errors.clear()
            results.clear()
            for d in devices:
                assert xm.all_reduce("sum", torch.ones(2, device=d)).tolist() == [1, 1]
        print("fine")
        """,
        CPU_NUM_DEVICES="2",
        XLA_WAIT_TIMEOUT_S="20",
    )
    assert p.stdout.endswith("fine\n"), p.stdout + p.stderr
