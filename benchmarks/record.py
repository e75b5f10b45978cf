"""What recording costs on the host, against torch's eager mode on the CPU.

    python benchmarks/record.py [--rounds 40]

Both contenders run in one process, in turns, so that a busy machine slows both; the table shows
medians over the rounds, and the median of the rounds' ratios. Recording never waits for the
device: pending graphs are launched and awaited between the timed sections.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
from torch_xla import _XLAC

CALLS = 200  # of one operator in a round

OPERATORS = {
    "add": lambda a, b: a + b,
    "mm": lambda a, b: a.mm(b),
    "relu": lambda a, b: a.relu(),
    "view": lambda a, b: a.view(16),
    "add_": lambda a, b: a.add_(b),
}


class Block(nn.Module):
    """Attention and a perceptron, each after a layer norm: float32[batch, time, width], same."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, w // self.heads).unbind(2)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * (w // self.heads) ** -0.5
        mixed = scores.softmax(-1) @ v.transpose(1, 2)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Token numbers int64[batch, time] -> logits float32[batch, time, tokens]."""

    def __init__(self, tokens=16, width=8, heads=2, layers=4, time=4):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.zeros(time, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, tokens)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x) + self.position))


def make_step(device):
    """One training step of a small transformer, as a function of no arguments."""
    torch.manual_seed(0)
    model = Transformer().to(device)
    x, y = (torch.randint(16, (2, 4)).to(device) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()

    return step


def microseconds(fn, calls):
    start = time.perf_counter_ns()
    for _ in range(calls):
        fn()
    return (time.perf_counter_ns() - start) / calls / 1e3


def in_turns(contenders, calls, rounds, warm_up=3):
    """Microseconds per call of each contender in each round; syncs between timed sections."""
    times = {name: [] for name in contenders}
    for i in range(warm_up + rounds):
        for name, fn in contenders.items():
            us = microseconds(fn, calls)
            torch_xla.sync(wait=True)
            if i >= warm_up:
                times[name].append(us)
    return times


def compare(name, eager, xla, calls, rounds):
    times = in_turns({"eager": eager, "xla": xla}, calls, rounds)
    ratio = statistics.median(x / e for e, x in zip(times["eager"], times["xla"], strict=True))
    row(name, statistics.median(times["eager"]), statistics.median(times["xla"]), ratio)


def row(name, eager, xla, ratio=None):
    eager = "" if eager is None else f"{eager:.2f}"
    ratio = "" if ratio is None else f"{ratio:.2f}"
    print(f"{name:<44}{eager:>12}{xla:>12.2f}{ratio:>9}", flush=True)


def compare_operators(rounds):
    for name, fn in OPERATORS.items():
        a, b = torch.randn(4, 4), torch.randn(4, 4)
        xa, xb = a.to("xla"), b.to("xla")
        compare(
            f"{name}, 4x4",
            lambda fn=fn, a=a, b=b: fn(a, b),
            lambda fn=fn, xa=xa, xb=xb: fn(xa, xb),
            CALLS,
            rounds,
        )


def compare_training_step(rounds):
    xla = make_step("xla")
    compare("training step, 4-layer transformer", make_step("cpu"), xla, 1, rounds)
    syncs, per_node = [], []
    for _ in range(rounds):
        xla()
        start = time.perf_counter_ns()
        torch_xla.sync()
        syncs.append((time.perf_counter_ns() - start) / 1e3)
        torch_xla.sync(wait=True)
        xla()
        torch_xla.sync(wait=True)
        nodes, nanoseconds = _XLAC._xla_latest_costs(0)
        per_node.append(nanoseconds / nodes / 1e3)
    row(f"  sync of its {nodes} nodes, without waiting", None, statistics.median(syncs))
    row("  collect, hash and look up, per node", None, statistics.median(per_node))


def measure_dispatch(rounds):
    x = torch.zeros(4, 4, device="xla")
    for wait in (False, True):

        def step(wait=wait):
            nonlocal x
            x = x + 1
            torch_xla.sync(wait)

        times = in_turns({"xla": step}, 20, rounds)["xla"]
        name = "launched and finished" if wait else "launched"
        row(f"cached graph of one add, {name}", None, statistics.median(times))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)  # what suits eager best: tensors this small are never split
    torch_xla.device()
    print(f"{'microseconds per call':<44}{'torch eager':>12}{'torch_xla':>12}{'ratio':>9}")
    compare_operators(args.rounds)
    compare_training_step(args.rounds)
    measure_dispatch(args.rounds)


if __name__ == "__main__":
    main()
