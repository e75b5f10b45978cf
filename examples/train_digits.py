"""Trains a small convolutional network on handwritten digits, on an XLA device.

    python examples/train_digits.py                 # on xla:0
    python examples/train_digits.py --device cpu    # the same script on plain PyTorch

Both print and draw (out/digits_<device>.png, .json) the same losses within float tolerance. For
that, everything random is drawn on the CPU from one seed: the initial weights, the order of the
samples, and the dropout masks, which each step sends to the device. With `--dropout-on device`, the
usual nn.Dropout draws on the device: nothing is sent, but each device has its own stream of random
numbers, so the losses of two devices then agree only as two runs with different seeds do.
"""

import argparse
import json
import statistics
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

batch_size = 64
learning_rate = 3e-3
weight_decay = 1e-2
dropout = 0.2
channels = 16
hidden = 64
test_samples = 297
read_every = 10  # steps between two readings of the loss


class HostDropout(nn.Module):
    """nn.Dropout whose masks come from the CPU's generator, whatever device `x` is on."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        mask = torch.empty(x.shape).bernoulli_(1 - self.p) / (1 - self.p)
        return x * mask.to(x.device)


class Net(nn.Module):
    """uint8-valued images [N, 1, 8, 8] -> logits [N, 10]."""

    def __init__(self, make_dropout):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(2 * channels * 4, hidden),
            nn.ReLU(),
            make_dropout(dropout),
            nn.Linear(hidden, 10),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class Device(AbstractContextManager):
    """What differs between the two devices: the end of a step, and the counts at the end.

    Inside a `with` block, a thread writes to the progress bar while XLA compiles.
    """

    def __init__(self, name: str):
        self.is_xla = name.startswith("xla")
        if self.is_xla:
            import torch_xla
            from torch_xla.debug import metrics

            self.sync = torch_xla.sync
            self.wait = lambda: torch_xla.sync(wait=True)
            self.metrics = metrics
        else:
            self.sync = self.wait = lambda: None
        self.device = torch.device(name)
        self.bar = None
        self.stopped = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.watcher.start()
        return self

    def __exit__(self, *exc):
        self.stopped.set()
        self.watcher.join()

    def compilations(self) -> int:
        return (self.metrics.counter_value("UncachedCompile") or 0) if self.is_xla else 0

    def fallbacks(self) -> list[str]:
        return self.metrics.executed_fallback_ops() if self.is_xla else []

    def watch(self):
        said = False
        while self.is_xla and not self.stopped.wait(0.1):
            finished = self.metrics.metric_data("CompileTime")
            compiling = self.compilations() > (finished[0] if finished else 0)
            if self.bar is not None and compiling != said:
                said = compiling
                note = f"compiling graph {self.compilations()}" if compiling else "training"
                self.bar.set_description(note)


def digits():
    """(images float32[N, 1, 8, 8] in [-1, 1], labels int64[N]) for training, then for testing."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:test_samples], order[test_samples:]
    return (images[train], labels[train]), (images[test], labels[test])


def accuracy(model, images, labels) -> torch.Tensor:
    """Share of right answers: float32[]. One batch, so one graph."""
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean()
    model.train()
    return right


def train(dev: Device, args) -> dict:
    (images, labels), test_set = digits()
    make_dropout = nn.Dropout if args.dropout_on == "device" else HostDropout
    torch.manual_seed(args.seed)
    model = Net(make_dropout).to(dev.device)
    test_set = [t.to(dev.device) for t in test_set]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels),
        batch_size,
        shuffle=True,
        drop_last=True,  # every batch has the same shape, so every step has the same graph
        generator=torch.Generator().manual_seed(args.seed),
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), learning_rate, weight_decay=weight_decay, eps=1e-6
    )
    steps = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)

    losses, accuracies, times = [], [], []
    compiled = {"training": 0, "evaluation": 0, "after step 2": 0}
    step = 0
    with tqdm(total=steps, desc="training", unit="step", mininterval=0.2) as dev.bar:
        for _ in range(args.epochs):
            for x, y in loader:
                start, before = time.perf_counter(), dev.compilations()
                loss = F.cross_entropy(model(x.to(dev.device)), y.to(dev.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                dev.sync()
                if step % read_every == 0:
                    losses.append((step, loss.item()))
                    dev.bar.set_postfix(loss=f"{losses[-1][1]:.4f}")
                times.append(time.perf_counter() - start)
                new = dev.compilations() - before
                compiled["training"] += new
                compiled["after step 2"] += new if step >= 2 else 0
                step += 1
                dev.bar.update()
            before = dev.compilations()
            right = accuracy(model, *test_set)
            dev.sync()
            accuracies.append((step, right.item()))
            compiled["evaluation"] += dev.compilations() - before
    dev.wait()
    return {
        "device": args.device,
        "steps": step,
        "losses": losses,
        "accuracies": accuracies,
        "compilations": compiled,
        "fallbacks": dev.fallbacks(),
        # Reading the loss waits for the device: a window between two readings holds whole steps.
        "ms_per_step": 1e3
        * statistics.median(
            sum(times[i : i + read_every]) / read_every
            for i in range(1 + read_every, len(times) - read_every, read_every)
        ),
        "first_step_s": times[0],
    }


def draw(result: dict, path: Path):
    """Loss and test accuracy over the steps, as a PNG."""
    figure, left = plt.subplots(figsize=(7, 4))
    right = left.twinx()
    left.plot(*zip(*result["losses"], strict=True), color="tab:blue")
    left.set(xlabel="step", ylabel="loss", title=f"Handwritten digits on {result['device']}")
    right.plot(*zip(*result["accuracies"], strict=True), color="tab:orange", marker=".")
    right.set_ylabel("test accuracy")
    left.yaxis.label.set_color("tab:blue")
    right.yaxis.label.set_color("tab:orange")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="xla:0", help="xla:0 (default) or cpu")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dropout-on",
        choices=("host", "device"),
        default="host",
        help="who draws the dropout masks (see above)",
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    args = parser.parse_args()

    start = time.perf_counter()
    with Device(args.device) as dev:
        result = train(dev, args)
    args.out.mkdir(parents=True, exist_ok=True)
    stem = f"digits_{args.device.split(':')[0]}"
    (args.out / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, args.out / f"{stem}.png")

    compiled = result["compilations"]
    print(f"test accuracy   {result['accuracies'][-1][1]:.2%}")
    print(f"last loss       {result['losses'][-1][1]:.5f}")
    if dev.is_xla:
        print(
            f"compilations    {compiled['training']} for training, {compiled['after step 2']} of "
            f"them after its second step; {compiled['evaluation']} for evaluation"
        )
        print(f"fallbacks       {len(result['fallbacks'])} {' '.join(result['fallbacks'])}")
    print(
        f"time per step   {result['ms_per_step']:.1f} ms (first step "
        f"{result['first_step_s']:.1f} s)"
    )
    print(f"total           {time.perf_counter() - start:.1f} s")
    print(f"pictures        {args.out / stem}.png")


if __name__ == "__main__":
    main()
