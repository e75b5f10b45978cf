"""Collectives between replicas of one host: processes against torch.distributed's gloo, threads.

    python benchmarks/collectives.py [--rounds 15] [--processes 4] [--largest-mb 256]

The contenders take turns in the same processes, so that a busy machine slows both. A time is that
of the slowest process; the table shows medians over the rounds and the median of the rounds'
ratios. Bandwidth is the bytes of the tensor by the time from recording to result.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla.debug import metrics

MB = 2**20


def convnet():
    """float32[batch, 3, 32, 32] -> logits float32[batch, 10]; 0.6 million parameters."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 64, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def slowest(seconds):
    """The largest of all processes' values."""
    t = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(t, dist.ReduceOp.MAX)
    return t.item()


def in_turns(contenders, rounds, calls=1, warm_up=2):
    """Seconds per call of each contender in each round."""
    times = {name: [] for name in contenders}
    for i in range(warm_up + rounds):
        for name, fn in contenders.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            took = slowest((time.perf_counter() - start) / calls)
            if i >= warm_up:
                times[name].append(took)
    return times


def median_ratio(times, over, under):
    return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))


def say(*cells):
    if dist.get_rank() == 0:
        print(
            "".join(f"{c:<34}" if i == 0 else f"{c:>13}" for i, c in enumerate(cells)), flush=True
        )


def copy_seconds(count):
    source, target = torch.zeros(count), torch.ones(count)
    start = time.perf_counter()
    target.copy_(source)
    return time.perf_counter() - start


def all_reduce(rounds, largest_mb):
    say("all_reduce, float32", "gloo ms", "xla ms", "gloo GB/s", "xla GB/s", "xla / gloo")
    size = MB
    while size <= largest_mb * MB:
        count = size // 4
        there = torch.full((count,), 1.0 + dist.get_rank())
        here = [there.to("xla")]

        def gloo(t=there):
            dist.all_reduce(t)

        def xla(ts=here):
            xm.all_reduce("sum", ts)
            torch_xla.sync(wait=True)

        gloo()
        xla()
        assert torch.equal(here[0].cpu(), there)
        for t in (there, here[0]):
            t.zero_()  # sums stay what they are
        torch_xla.sync(wait=True)
        times = in_turns({"gloo": gloo, "xla": xla}, rounds, max(1, 4 * MB // size))
        g, x = statistics.median(times["gloo"]), statistics.median(times["xla"])
        say(
            f"  {size // MB} MB",
            f"{g * 1e3:.2f}",
            f"{x * 1e3:.2f}",
            f"{size / g / 1e9:.2f}",
            f"{size / x / 1e9:.2f}",
            f"{median_ratio(times, 'xla', 'gloo'):.2f}",
        )
        size *= 4
    dist.barrier()
    memcpy = 64 * MB / statistics.median(copy_seconds(16 * MB) for _ in range(5)) / 1e9
    say(f"  memcpy in {dist.get_world_size()} processes at once", "", "", f"{memcpy:.2f}")


def make_step(device, group, batch, reduce):
    """A training step as a function; `reduce`: with the gradients' average over the processes."""
    model = convnet().to(device)
    trained = DistributedDataParallel(model, process_group=group) if reduce else model
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    x, y = torch.randn(batch, 3, 32, 32).to(device), torch.randint(10, (batch,)).to(device)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(trained(x), y).backward()
        optimizer.step()
        if device == "xla":
            torch_xla.sync(wait=True)

    return step


def training(rounds, batch):
    group = dist.new_group(backend="xla")
    times = in_turns(
        {
            "torch, alone": make_step("cpu", None, batch, False),
            "torch DDP (gloo)": make_step("cpu", None, batch, True),
            "xla, alone": make_step("xla", group, batch, False),
            "xla DDP": make_step("xla", group, batch, True),
        },
        rounds,
    )
    say(f"convnet step, batch {batch}", "ms")
    for name, seconds in times.items():
        say(f"  {name}", f"{statistics.median(seconds) * 1e3:.1f}")
    say("  xla DDP / torch DDP", f"{median_ratio(times, 'xla DDP', 'torch DDP (gloo)'):.2f}")
    say("  xla alone / torch alone", f"{median_ratio(times, 'xla, alone', 'torch, alone'):.2f}")
    say("  xla DDP / xla alone", f"{median_ratio(times, 'xla DDP', 'xla, alone'):.2f}")


def perceptron_step(bucket_mb):
    """A step of a perceptron of 8 million weights; None: without averaging the gradients."""
    torch.manual_seed(0)
    layers = [m for _ in range(8) for m in (nn.Linear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*layers).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 1024).to("xla")

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if bucket_mb is not None:
            gradients = [p.grad for p in model.parameters()]
            xm.all_reduce_bucketized_gradients(gradients, 0.5, None, bucket_cap_mb=bucket_mb)
        optimizer.step()
        torch_xla.sync(wait=True)

    return step


def overlap(rounds):
    """How much of the communication a step waits for, in small buckets and in one."""
    steps = {"alone": None, "buckets of 4 MB": 4, "one bucket": 1000}
    times = in_turns({name: perceptron_step(mb) for name, mb in steps.items()}, rounds)
    say("perceptron step, 34 MB of gradients", "ms", "moving", "waiting")
    for name, bucket_mb in steps.items():
        step = perceptron_step(bucket_mb)
        for _ in range(3):
            step()
        dist.barrier()
        metrics.clear_metrics()
        for _ in range(rounds):
            step()
        data = [metrics.metric_data(f"Collective{what}Time") for what in ("", "Wait")]
        spent = [f"{d[1] / rounds / 1e6:.1f}" if d else "" for d in data]
        say(f"  {name}", f"{statistics.median(times[name]) * 1e3:.1f}", *spent)


def run_all_reduce(index, args):
    prepare()
    all_reduce(args.rounds, args.largest_mb)
    dist.destroy_process_group()


def run_training(index, args):
    prepare()
    training(args.rounds, args.batch)
    overlap(args.rounds)
    dist.destroy_process_group()


def run_threads(index, args):
    """Sums of one tensor per thread, in place and to a new tensor."""
    rank, device = xr.global_ordinal(), xm.xla_device()
    if rank == 0:
        print(f"{'all_reduce, threads, float32':<34}{'in place ms':>13}{'GB/s':>13}{'new ms':>13}")
    size = MB
    while size <= args.largest_mb * MB:
        # Two sizes, so that each has a program of its own.
        given = [torch.zeros(size // 4, device=device)]
        kept = torch.zeros(size // 4 + 1, device=device)

        def in_place(ts=given):
            xm.all_reduce("sum", ts)

        def new(t=kept):
            return xm.all_reduce("sum", t)

        medians = []
        for fn in (in_place, new):
            times = []
            for i in range(2 + args.rounds):
                xm.rendezvous("begin")
                start = time.perf_counter()
                result = fn()
                torch_xla.sync(wait=True)
                took = time.perf_counter() - start
                del result
                times += xm.mesh_reduce("took", [took], max) if i >= 2 else []
            medians.append(statistics.median(times))
        if rank == 0:
            print(
                f"{f'  {size // MB} MB':<34}{medians[0] * 1e3:>13.2f}"
                f"{size / medians[0] / 1e9:>13.2f}{medians[1] * 1e3:>13.2f}",
                flush=True,
            )
            if size == 64 * MB:
                memcpy = 64 * MB / statistics.median(copy_seconds(16 * MB) for _ in range(5))
                ratio = size / medians[0] / memcpy
                print(
                    f"  memcpy {memcpy / 1e9:.2f} GB/s; in place / memcpy {ratio:.2f}", flush=True
                )
        size *= 4
    del given, kept


def prepare():
    torch.set_num_threads(1)  # a process per core
    dist.init_process_group("gloo")
    torch_xla.device()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--largest-mb", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--only", choices=["processes", "threads"], help="one of the sections")
    args = parser.parse_args()
    if args.only != "threads":
        xmp.spawn(run_all_reduce, (args,), args.processes)
        xmp.spawn(run_training, (args,), 2)
    if args.only != "processes":
        torch.set_num_threads(1)  # of memcpy
        xmp.spawn(run_threads, (args,), args.processes, start_method="thread")


if __name__ == "__main__":
    main()
