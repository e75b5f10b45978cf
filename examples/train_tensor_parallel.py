"""Trains a small transformer whose every layer is cut over the replicas (tensor parallelism).

    python examples/train_tensor_parallel.py [--replicas 2] [--steps 300]

It learns the Zen of Python by heart, letter by letter, and says some of it at the end. Each replica
holds a part of the vocabulary, of the heads and of the hidden features; all see the same batches.
With --replicas 1 the same model trains undivided, with the same losses.
"""

import argparse
import codecs
import contextlib
import io
import time

import torch
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.tensor_parallel as tp
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

with contextlib.redirect_stdout(io.StringIO()):  # it prints itself
    import this

TEXT = codecs.decode(this.s, "rot13")
LETTERS = sorted(set(TEXT))
VOCABULARY = 64  # a multiple of the replicas
TIME, WIDTH, HEADS, LAYERS, BATCH = 48, 64, 4, 2, 16


class Block(nn.Module):
    """Attention and a perceptron, each after a layer norm: float32[batch, time, width], same."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = tp.ParallelSelfAttention(WIDTH, HEADS)
        self.up = tp.ColumnParallelLinear(WIDTH, 4 * WIDTH, gather_output=False)
        self.down = tp.RowParallelLinear(4 * WIDTH, WIDTH, input_is_parallel=True)

    def forward(self, x):
        x = x + self.attention(self.norm1(x), is_causal=True)
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Letters int64[batch, time] -> this replica's logits float32[batch, time, letters / n]."""

    def __init__(self):
        super().__init__()
        self.embed = tp.VocabParallelEmbedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.zeros(TIME, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = tp.ColumnParallelLinear(WIDTH, VOCABULARY, gather_output=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x) + self.position)))


def encode(text):
    return torch.tensor([LETTERS.index(c) for c in text])


def recite(model, device, start="Beautiful is", length=100):
    """Goes on from `start` with the likeliest letters; all replicas call it."""
    numbers = encode(start).tolist()
    for _ in range(length):
        window = numbers[-TIME:]
        at = len(window) - 1
        padded = torch.tensor([window + [0] * (TIME - len(window))])  # one shape, one program
        logits = tp.gather_from_group(model(padded.to(device)))[0]
        numbers.append(logits.cpu()[at].argmax().item())
    return "".join(LETTERS[n] if n < len(LETTERS) else "?" for n in numbers)


def train(index, args):
    device = torch_xla.device()
    torch.manual_seed(0)  # the same on all replicas: each keeps its slices of one model
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = encode(TEXT)
    weights = sum(p.numel() for p in model.parameters())
    xm.master_print(f"{xr.world_size()} replica(s), {weights} weights in each")
    start = time.monotonic()
    for step in range(args.steps + 1):
        at = torch.randint(len(text) - TIME, (BATCH,)).unsqueeze(1) + torch.arange(TIME)
        x, y = text[at].to(device), text[at + 1].to(device)
        optimizer.zero_grad()
        loss = tp.vocab_parallel_cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        if step % 20 == 0:
            seconds = time.monotonic() - start
            xm.master_print(
                f"step {step:4}/{args.steps}  loss {loss.item():.3f}  {seconds:5.1f} s", flush=True
            )
    with torch.no_grad():
        said = recite(model, device)
    xm.master_print(f"\n{said}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=2, choices=(1, 2, 4))
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    xmp.spawn(train, (args,), args.replicas)


if __name__ == "__main__":
    main()
