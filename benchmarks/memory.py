"""Peak memory of training steps with AdamW against torch's eager mode on the CPU.

    python benchmarks/memory.py [--steps 4] [--width 768] [--layers 6]

Each contender trains the same transformer (50 million parameters unless told otherwise) in a
process of its own. What counts is the peak of the resident memory above that of the process after
the import and a first small operation, so that Python, torch and the plugin's code are left out.
The peak is that of everything, compiling the first steps included; the late peak is that of the
last two steps alone.
"""

import argparse
import subprocess
import sys

CONTENDERS = ("cpu", "xla")


def status(field):
    """A line of /proc/self/status in MiB."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(field))


def forget_peak():
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def train(device, args):
    """Prints the peaks in MiB above the start: of everything, and of the last two steps alone."""
    import torch
    import torch.nn.functional as F
    from record import Transformer

    if device == "xla":
        import torch_xla

        def sync():
            torch_xla.sync()
    else:

        def sync():
            pass

    torch.manual_seed(0)
    x = torch.ones(4, 4, device=device)
    (x @ x).sum().item()
    start = status("VmRSS")
    forget_peak()
    model = Transformer(args.tokens, args.width, args.width // 64, args.layers, args.time)
    parameters = sum(p.numel() for p in model.parameters())
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def train_for(steps):
        for _ in range(steps):
            x, y = (torch.randint(args.tokens, (args.batch, args.time)) for _ in range(2))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)).flatten(0, 1), y.to(device).flatten())
            loss.backward()
            optimizer.step()
            sync()
        loss.item()

    train_for(args.steps - 2)
    whole = status("VmHWM")
    forget_peak()
    train_for(2)
    late = status("VmHWM")
    print(parameters, max(whole, late) - start, late - start, status("VmRSS") - start)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--time", type=int, default=64)
    parser.add_argument(
        "--only", choices=CONTENDERS, help="train with one of them, in this process"
    )
    args = parser.parse_args()
    if args.only:
        train(args.only, args)
        return
    results = {}
    print(f"{'MiB above the start':<24}{'peak':>10}{'late peak':>12}{'at the end':>12}")
    for name in CONTENDERS:
        command = [sys.executable, *sys.argv, "--only", name]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        parameters, *results[name] = (float(v) for v in out.split())
        print(
            f"{name:<24}{results[name][0]:>10.0f}{results[name][1]:>12.0f}{results[name][2]:>12.0f}"
        )
    whole, late = (results["xla"][i] / results["cpu"][i] for i in range(2))
    size = parameters / 1e6
    print(f"{size:.1f} million parameters; ratio {whole:.3f}, of the late steps {late:.3f}")


if __name__ == "__main__":
    main()
