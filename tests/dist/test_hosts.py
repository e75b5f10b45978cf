"""Two hosts: network namespaces with a cable between them, a torchrun in each."""

import contextlib
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import os
import torch, torch_xla
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr
from torch.nn.parallel import DistributedDataParallel

def run(index):
    r, n = xr.global_ordinal(), xr.world_size()
    assert (n, xr.local_process_count(), xr.process_count()) == (4, 2, 4)
    assert (xr.local_ordinal(), xr.host_index(), index) == (r % 2, r // 2, r % 2)
    dist.init_process_group("xla", init_method="xla://")
    device = torch_xla.device()
    x = torch.full((1000,), float(r)).to(device)
    assert xm.all_reduce("sum", x).tolist() == [6.0] * 1000
    hosts = [[0, 1], [2, 3]]
    assert xm.all_reduce("sum", x, groups=hosts).tolist() == [[1.0, 5.0][r // 2]] * 1000
    across = [[0, 2], [1, 3]]
    assert xm.all_gather(x[:1], groups=across).tolist() == [float(r % 2), r % 2 + 2.0]
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1).to(device))
    expected = torch.nn.Linear(3, 1)
    expected.load_state_dict({k: v.cpu() for k, v in model.module.state_dict().items()})
    given = torch.arange(12.0).view(4, 3)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, expected)]
    for _ in range(5):
        for m, o, t in zip((model, expected), optimizers, (given[r : r + 1].to(device), given)):
            o.zero_grad()
            m(t).pow(2).mean().backward()
            o.step()
        torch_xla.sync()
    for a, b in zip(model.module.parameters(), expected.parameters()):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-5)
    assert xm.mesh_reduce("x", r, sum) == 6
    if os.environ.get("FAULT") and r == 3:
        os._exit(7)
    if os.environ.get("FAULT"):
        try:
            xm.all_reduce("sum", x).tolist()
        except RuntimeError as e:
            print(f"<rank {r}: {e}>", flush=True)
            raise
    print(f"rank {r} is done", flush=True)

torch_xla.launch(run)
"""


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts():
    """Names of two network namespaces; the first one's address is 10.77.0.1."""
    names = [f"torch_xla_{os.getpid()}_{i}" for i in range(2)]
    ends = [f"tx{os.getpid() % 100_000}{i}" for i in "ab"]
    with contextlib.ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "delete", name)  # the cable goes with it
            ip("link", "add", ends[0], "netns", names[0], "type", "veth",
               "peer", "name", ends[1], "netns", names[1])  # fmt: skip
            for i, (name, end) in enumerate(zip(names, ends, strict=True)):
                ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except FileNotFoundError:
            pytest.skip("two hosts need the program `ip` (Debian's iproute2)")
        except subprocess.CalledProcessError as e:
            pytest.skip(f"two hosts need network namespaces: {e.stderr.strip()}")
        yield names


def run_on(hosts, tmp_path, **env):
    """Runs the program with two replicas on each host."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    running = []
    for rank, name in enumerate(hosts):
        command = [
            "ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run",
            "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=2",
            "--master-addr=10.77.0.1", "--master-port=29517", str(file),
        ]  # fmt: skip
        running.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "XLA_VERIFY": "0", "TMPDIR": str(tmp_path), **env},
            )
        )
    try:
        return [(*p.communicate(timeout=150), p.returncode) for p in running]
    finally:
        for p in running:
            p.kill()
            p.wait()


def test_two_hosts(hosts, tmp_path):
    results = run_on(hosts, tmp_path)
    assert [code for *_, code in results] == [0, 0], results
    out = "".join(o for o, *_ in results)
    assert sorted(out.splitlines()) == [f"rank {r} is done" for r in range(4)]


def test_a_rank_of_the_other_host_ends(hosts, tmp_path):
    results = run_on(hosts, tmp_path, FAULT="1", XLA_WAIT_TIMEOUT_S="15")
    assert all(code != 0 for *_, code in results), results
    told = results[0][0]
    assert "<rank 0: " in told and "all_reduce(sum, Float[1000])" in told, results
