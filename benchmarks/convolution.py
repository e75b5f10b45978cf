"""Convolutions: torch's eager mode, PyTorch's kernel inside of the program, and the compiler's own.

    python benchmarks/convolution.py [--rounds 15]

Forward and backward of one convolution of float32[16, 64, 56, 56]. The contenders take turns; the
table shows medians in milliseconds. The compiler's own code is what runs with a lowered precision,
which the CPU plugins compute in float32 all the same.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

import torch_xla

CASES = {  # kernel, stride, groups
    "3x3": (3, 1, 1),
    "3x3, stride 2": (3, 2, 1),
    "1x1": (1, 1, 1),
    "depthwise 3x3": (3, 1, 64),
}


def make(device, kernel, stride, groups, backward):
    torch.manual_seed(0)
    x = torch.randn(16, 64, 56, 56).to(device).requires_grad_(backward)
    w = torch.randn(64, 64 // groups, kernel, kernel).to(device).requires_grad_(backward)

    def run():
        y = F.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)
        if backward:
            y = torch.autograd.grad(y.sum(), (x, w))
        if device == "xla":
            torch_xla.sync(wait=True)
        return y

    return run


def own(run):
    def with_own_code():
        torch_xla.backends.set_mat_mul_precision("high")
        try:
            return run()
        finally:
            torch_xla.backends.set_mat_mul_precision("highest")

    return with_own_code


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{'milliseconds':<28}{'eager':>9}{'inside':>9}{'own':>9}{'inside/eager':>14}")
    for name, case in CASES.items():
        for backward in (False, True):
            inside = make("xla", *case, backward)
            contenders = {"eager": make("cpu", *case, backward), "inside": inside}
            contenders["own"] = own(inside)
            times = {c: [] for c in contenders}
            for i in range(args.rounds + 2):
                for c, run in contenders.items():
                    start = time.perf_counter()
                    run()
                    if i >= 2:
                        times[c].append((time.perf_counter() - start) * 1e3)
            eager, inside_ms, own_ms = (statistics.median(t) for t in times.values())
            name_ = name + (", gradients" if backward else "")
            ratio = inside_ms / eager
            print(f"{name_:<28}{eager:>9.2f}{inside_ms:>9.2f}{own_ms:>9.2f}{ratio:>14.2f}")


if __name__ == "__main__":
    main()
