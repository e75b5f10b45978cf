"""PyTorch's op_db on xla:0 against the CPU: one command, one table, one expectations file.

    python -m tests.ops.sweep [--mode forward|backward|errors|variants] [--dtype float32]
                              [--only REGEX] [--workers 2] [--json FILE] [--update]

Without --mode and --dtype: all passes of the table PASSES, which takes an hour; with one of them:
that one pass, forward or float32 where it is not given.

`forward` and `backward` call every sample of an entry, `errors` its wrong ones; `variants` calls
its method, its in-place form and its out= form, into a result of the right shape, of no elements,
and into a view. Workers are processes of their own and an entry has a time limit, so a crash or a
hang costs one entry. The result of an entry is

    native     every sample right, without a counted fallback
    fallback   every sample right, some operator ran on the host (which ones is printed)
    raises     a sample that the CPU computes raised
    wrong      a value, shape, dtype or device differs
    crash      the process died, or the time limit passed

expectations.txt lists the entries that are not native. A result other than the listed one is an
error, a better one too: --update writes the file anew for what was run, and reached.txt: in which
entries each operator was recorded or ran on the host, for docs/ops.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

EXPECTATIONS = Path(__file__).with_name("expectations.txt")
REACHED = Path(__file__).with_name("reached.txt")
ENTRY_LIMIT_S = 120  # of the worker's CPU time: the machine may be busy
HANG_LIMIT_S = 600
# Which of equal elements an index names is not promised: what it names is compared. The dimension's
# position among the arguments.
TIES = {"kthvalue": 1, "topk": 1, "mode": 0, "sort": 0, "msort": 0, "argsort": 0}
# How much farther from what float64 gives than the CPU's result a result may be. Sums of many
# terms, of which both have many roundings.
AS_EXACT = 3
TOLERANCE = {"bfloat16": 2e-2, "float16": 2e-3, "complex32": 2e-3, "float64": 1e-7}
# Their statistics, all results but the first, stay float32 where all arguments are shorter, as on
# CUDA.
FLOAT32_STATISTICS = re.compile(r"^(_?native_(layer|batch)_norm|_batch_norm_with_update)")
# What the README says that a device accepts: overlapping writes.
ACCEPTED = ("unsupported operation: more than one element", "unsupported operation: some elements")
# The CPU's own result is wrong: gelu(out=) into a tensor that is not contiguous.
CPU_WRONG = {("variants", "nn.functional.gelu")}
# Their tensor arguments stay on the CPU, PyTorch says.
CPU_ARGUMENTS = ("tensor_split",)
SAMPLES_PER_READ = 64
VARIANT_SAMPLES = 12  # of an entry, evenly chosen: each is called up to five times
MODES = ("forward", "backward", "errors", "variants")
DTYPES = (
    "float64", "float32", "bfloat16", "float16", "float8_e4m3fn",
    "int64", "int32", "uint8", "bool", "complex64", "complex32",
)  # fmt: skip
# All of the sweep, which takes an hour.
PASSES = (
    *(("forward", dtype) for dtype in DTYPES),
    ("backward", "float32"),
    ("errors", "float32"),
    ("variants", "float32"),
)
# Values are the device's own random numbers, or whatever was in the memory: shapes and dtypes only.
RANDOM = re.compile(
    r"^(bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal|rand|randint|randn|"
    r"uniform|new_empty|empty|nn\.functional\.(alpha_dropout|dropout|dropout2d|dropout3d|"
    r"feature_alpha_dropout)|torch\.ops\.aten\._safe_softmax\.random|svd_lowrank|pca_lowrank)"
)
# Some of whose samples are random: those of which the CPU gives another value each time.
MAY_DRAW = re.compile(
    r"^nn\.functional\.(rrelu|fractional_max_pool|scaled_dot_product_attention|"
    r"multi_head_attention_forward)"
)


def entries() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


# ---- In the worker.


def to_device(value: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    def move(v: Any) -> Any:
        if isinstance(v, torch.Tensor) and v.device.type == "cpu":
            moved = v.detach().to("xla")
            return moved.requires_grad_(v.requires_grad)
        names_cpu = v == "cpu" if isinstance(v, str) else isinstance(v, torch.device)
        return torch.device("xla:0") if names_cpu else v

    return tree_map(move, value)


def tensors(value: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


class Wrong(Exception):
    pass


class Raised(Exception):
    pass


@dataclass
class Pair:
    """What the CPU and the device made of one sample; the device's values are not read yet."""

    sample: int
    want: Any
    got: Any
    random: bool = False  # the values are the device's own: shapes and dtypes only
    exact: Callable[[], Any] | None = None  # the CPU's in float64; raises where it has none
    wider: bool = False  # float32 for shorter ones is right


def compare(pairs: list[Pair]) -> dict[int, str]:
    """What is wrong with which sample. One read, so one graph, for all of them."""
    import torch_xla

    read = [t for p in pairs for t in tensors(p.got) if t.device.type == "xla"]
    try:
        host = torch_xla._XLAC._xla_to_cpu([t.detach() for t in read])
    except Exception as e:
        if len(pairs) == 1:
            return {pairs[0].sample: f"!{type(e).__name__}: " + " ".join(str(e).split())[:200]}
        found: dict[int, str] = {}
        for p in pairs:
            found |= compare([p])
        return found
    values = {id(t): h for t, h in zip(read, host, strict=True)}
    wrong: dict[int, str] = {}
    for p in pairs:
        why = difference(p, values)
        if why:
            wrong.setdefault(p.sample, why)
    return wrong


def difference(p: Pair, values: dict[int, Any]) -> str:
    import torch
    from torch.utils._pytree import tree_leaves

    want, got = tree_leaves(p.want), tree_leaves(p.got)
    if len(want) != len(got):
        return f"{len(got)} results instead of {len(want)}"
    for i, (w, g) in enumerate(zip(want, got, strict=True)):
        if not isinstance(w, torch.Tensor):
            if not (p.random or w == g or (w != w and g != g) or isinstance(w, torch.device)):
                return f"{g} instead of {w}"
            continue
        if not isinstance(g, torch.Tensor) or g.device.type != "xla":
            return f"result is on {getattr(g, 'device', type(g))}"
        g, w = values[id(g)], w.detach().resolve_conj().resolve_neg()
        wider = p.wider and i > 0 and g.dtype == torch.float32
        if (g.dtype != w.dtype and not wider) or g.shape != w.shape:
            return f"{g.dtype}{list(g.shape)} instead of {w.dtype}{list(w.shape)}"
        if p.random:
            continue
        tolerance = TOLERANCE.get(str(w.dtype).removeprefix("torch."), 1e-4)
        if w.is_floating_point() and w.itemsize == 1:  # nothing compares them
            w, g = w.float(), g.float()
        if w.dtype == torch.complex32:
            w, g = w.to(torch.complex64), g.to(torch.complex64)
        try:
            torch.testing.assert_close(
                g, w, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=not wider
            )
        except AssertionError as e:
            if not as_exact(p, i, w, g, tolerance):
                return " ".join(str(e).split())[:200]
    return ""


def as_exact(p: Pair, i: int, w: Any, g: Any, tolerance: float) -> bool:
    """Whether the i-th result is that of float64, or no farther from it than the CPU's is."""
    import torch
    from torch.utils._pytree import tree_leaves

    if p.exact is None or not (w.is_floating_point() or w.is_complex()):
        return False
    try:
        exact = tree_leaves(p.exact())[i].detach()
    except Exception:
        return False
    if exact.shape != w.shape:
        return False
    if torch.allclose(g.to(exact.dtype), exact, rtol=tolerance, atol=tolerance, equal_nan=True):
        return True
    finite = torch.isfinite(w) & torch.isfinite(g) & torch.isfinite(exact)
    if not torch.equal(torch.isfinite(w), torch.isfinite(g)) or not finite.any():
        return False
    error_w, error_g = ((t.to(exact.dtype) - exact)[finite].abs() for t in (w, g))
    # The mean, too: one element that the CPU has wrong excuses no other.
    return all(bool(of(error_g) <= AS_EXACT * of(error_w)) for of in (torch.max, torch.mean))


def in_float64(inputs: Any) -> Any:
    """The inputs, and a dtype that they name, in float64 or complex128."""
    import torch
    from torch.utils._pytree import tree_map

    wide = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
    wide |= dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64)

    def widen(v: Any) -> Any:
        if isinstance(v, torch.dtype):
            return wide.get(v, v)
        if isinstance(v, torch.Tensor) and v.dtype in wide:
            return v.detach().to(wide[v.dtype]).requires_grad_(v.requires_grad)
        return v

    return tree_map(widen, inputs)


def named(op: Any, inputs: Any, result: Any) -> Any:
    """Of (values, indices): the values, and what the indices name."""
    args, kwargs = inputs[1], inputs[2]
    position = TIES[op.name]
    dim = kwargs.get("dim", args[position] if len(args) > position else -1)
    if op.name == "msort":
        return result
    if op.name == "argsort":
        return inputs[0] if inputs[0].dim() == 0 else inputs[0].gather(dim, result)
    values, indices = result
    if inputs[0].dim() == 0:
        return values
    if indices.dim() < inputs[0].dim():
        indices = indices.unsqueeze(dim)
    return values, inputs[0].gather(dim, indices).reshape(values.shape)


def copied(inputs: Any) -> Any:
    """Samples may be views, and in-place variants write: each call starts from its own copies."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(
        lambda v: (
            v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
        ),
        inputs,
    )


def moved_inputs(op: Any, sample: Any) -> Any:
    """The sample's inputs on the device; None where nothing of them says where."""
    import torch
    from torch.utils._pytree import tree_leaves

    moved = to_device((sample.input, sample.args, sample.kwargs))
    if op.name in CPU_ARGUMENTS:
        moved = (moved[0], sample.args, sample.kwargs)
    if any(isinstance(v, torch.Tensor | torch.device) for v in tree_leaves(moved)):
        return moved
    return None  # asks for a tensor on the default device


def run_sample(op: Any, index: int, sample: Any, backward: bool) -> list[Pair]:
    import torch

    moved = moved_inputs(op, sample)
    if moved is None:
        return []
    given = (sample.input, sample.args, sample.kwargs)
    inputs = copied(given)
    try:
        want = sample.output_process_fn_grad(op(inputs[0], *inputs[1], **inputs[2]))
        want_grads = gradients(inputs, want) if backward else []
    except Exception:
        return []  # not a promise of the CPU's
    random = RANDOM.match(op.name) is not None
    if MAY_DRAW.match(op.name):
        seed = torch.manual_seed
        # op_db calls such an operator with a fixed seed. Two draws may come to the same.
        for other in range(1, 5):
            again = copied(given)
            with mock.patch("torch.manual_seed", lambda n, other=other: seed(n + other)):
                random = random or not same(want, op(again[0], *again[1], **again[2]))
    got = sample.output_process_fn_grad(op(moved[0], *moved[1], **moved[2]))
    wide: list[Any] = []

    def exactly(backward: bool) -> Any:
        if not wide:
            x = in_float64(copied(given))
            y = sample.output_process_fn_grad(op(x[0], *x[1], **x[2]))
            wide.extend((y, gradients(x, y) if backward else []))
        return wide[backward]

    grads = gradients(moved, got) if backward else []
    if op.name in TIES:
        want, got = named(op, inputs, want), named(op, moved, got)
    wider = FLOAT32_STATISTICS.match(op.name) is not None
    pairs = [Pair(index, want, got, random, lambda: exactly(False), wider)]
    if backward:
        pairs.append(Pair(index, want_grads, grads, random, lambda: exactly(True)))
    return pairs


def same(a: Any, b: Any) -> bool:
    import torch

    try:
        torch.testing.assert_close(tensors(a), tensors(b), equal_nan=True)
        return True
    except AssertionError:
        return False


def run_variants(op: Any, index: int, sample: Any) -> list[Pair]:
    """The method, the in-place form and the out= forms. An out= result is compared with the memory
    around it."""
    import torch

    pairs: list[Pair] = []
    random = (RANDOM.match(op.name) or MAY_DRAW.match(op.name)) is not None
    given = (sample.input, sample.args, sample.kwargs)

    def add(call: Callable[..., Any], **out: Callable[[], Any]) -> None:
        """`call(inputs, out)` returns what to compare."""
        moved = moved_inputs(op, sample)
        if moved is None:
            return
        make = out.get("out", lambda: None)
        inputs = copied(given)
        try:
            want = call(inputs, make())
        except Exception:
            return  # there is no such form, or not of these arguments
        pairs.append(Pair(index, want, call(moved, to_device(make())), random))

    def same_object(got: Any, wanted: Any) -> Any:
        if got is not wanted:
            raise Wrong("returns another object than it wrote")
        return got

    method, inplace = op.get_method(), op.get_inplace()
    if isinstance(sample.input, torch.Tensor):
        if method is not None:
            add(lambda i, _: method(i[0], *i[1], **i[2]))
        if inplace is not None:
            add(lambda i, _: same_object(inplace(i[0], *i[1], **i[2]), i[0]))
    if not op.supports_out:
        return pairs
    inputs = copied(given)
    try:
        result = op(inputs[0], *inputs[1], **inputs[2])
    except Exception:
        return pairs
    shapes = [(t.shape, t.dtype) for t in tensors(result)]
    if (isinstance(result, tuple) and len(result) != len(shapes)) or not shapes:
        return pairs

    def into(view: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def call(i: Any, memory: list[Any]) -> Any:
            out = [view(m) for m in memory]
            got = op(i[0], *i[1], **i[2], out=out[0] if len(out) == 1 else tuple(out))
            for g, o in zip(tensors(got), out, strict=True):
                same_object(g, o)
            return [memory, out]

        return call

    add(into(lambda m: m), out=lambda: [torch.zeros(s, dtype=t) for s, t in shapes])
    add(into(lambda m: m), out=lambda: [torch.zeros(0, dtype=t) for _, t in shapes])
    add(
        into(lambda m: m[1].t() if m.dim() == 3 else m[1]),
        out=lambda: [
            torch.zeros((3, *(reversed(s) if len(s) == 2 else s)), dtype=t) for s, t in shapes
        ],
    )
    return pairs


def run_samples(op: Any, dtype: Any, mode: str) -> None:
    """Raises Wrong, or Raised, for the first sample that is."""
    backward = mode == "backward"
    wrong: dict[int, str] = {}
    pairs: list[Pair] = []
    index = -1
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=backward))
    if mode == "variants":
        samples = samples[:: 1 + len(samples) // VARIANT_SAMPLES]
    for index, sample in enumerate(samples):
        try:
            if mode == "variants":
                pairs += run_variants(op, index, sample)
            else:
                pairs += run_sample(op, index, sample, backward)
        except Exception as e:
            wrong[index] = f"!{type(e).__name__}: " + " ".join(str(e).split())[:200]
        if len(pairs) >= SAMPLES_PER_READ:
            wrong |= compare(pairs)
            pairs = []
    wrong |= compare(pairs)
    if wrong:
        first = min(wrong, key=lambda i: (wrong[i].startswith("!"), i))
        note = f"{len(wrong)} of {index + 1} samples, #{first}: {wrong[first].lstrip('!')}"
        raise (Raised if wrong[first].startswith("!") else Wrong)(note)


def gradients(inputs: Any, outputs: Any) -> list[Any]:
    import torch

    leaves = [t for t in tensors(inputs) if t.requires_grad]
    outs = [t for t in tensors(outputs) if t.requires_grad]
    if not leaves or not outs:
        return []
    generator = torch.Generator().manual_seed(0)
    seeds = [seed_of(t, generator).to(t.device, t.dtype) for t in outs]
    return list(torch.autograd.grad(outs, leaves, seeds, allow_unused=True))


def seed_of(t: Any, generator: Any) -> Any:
    """Random numbers that every floating dtype holds exactly."""
    import torch

    def draw() -> Any:
        return torch.randint(-64, 65, t.shape, generator=generator) / 32

    return torch.complex(draw(), draw()) if t.is_complex() else draw()


def run_errors(op: Any) -> None:
    for error in op.error_inputs("cpu"):
        s = error.sample_input
        try:
            op(s.input, *s.args, **s.kwargs)
            continue
        except Exception as e:
            kind = type(e)
            if any(words in str(e) for words in ACCEPTED):
                continue
        moved = to_device((s.input, s.args, s.kwargs))
        try:
            got = op(moved[0], *moved[1], **moved[2])
            for t in tensors(got):
                t.cpu()
        except Exception as e:
            if not isinstance(e, kind):
                raise Wrong(
                    f"{type(e).__name__}: {str(e)[:120]} instead of {kind.__name__}"
                ) from None
            continue
        raise Wrong(f"accepted what CPU refuses: {error.error_regex[:120]}")


def run_entry(op: Any, mode: str, dtype_name: str) -> tuple[str, str, list[str]]:
    """(result, note, counters of operators that moved)"""
    import torch

    import torch_xla

    dtype = getattr(torch, dtype_name)
    backward = mode == "backward"
    if dtype not in op.supported_dtypes("cpu"):
        return "skip", "", []
    if backward and not (op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")):
        return "skip", "", []
    if mode == "errors" and op.error_inputs_func is None:
        return "skip", "", []
    if (mode, name_of(op)) in CPU_WRONG:
        return "skip", "", []
    before = operator_counters()
    result, note = "native", ""
    torch.manual_seed(0)
    try:
        if mode == "errors":
            run_errors(op)
        else:
            run_samples(op, dtype, mode)
    except Wrong as e:
        result, note = "wrong", str(e)
    except Raised as e:
        result, note = "raises", str(e)
    except Exception as e:
        result, note = "raises", f"{type(e).__name__}: " + " ".join(str(e).split())[:200]
    try:
        torch_xla.sync()
    except Exception as e:  # something was recorded that does not compile
        result, note = "raises", f"at the sync: {type(e).__name__}: {str(e)[:200]}"
    moved = sorted(k for k, v in operator_counters().items() if v != before.get(k, 0))
    ran_on_host = [k for k in moved if k.startswith("aten::")]
    if result == "native" and ran_on_host:
        result, note = "fallback", " ".join(ran_on_host)
    return result, note, moved


def operator_counters() -> dict[str, int]:
    """Of operators that were recorded, "xla::name", or ran on the host, "aten::name"."""
    import torch_xla

    x = torch_xla._XLAC
    return {
        n: x._xla_counter_value(n)
        for n in x._xla_counter_names()
        if n.startswith(("aten::", "xla::")) and n != "aten::_local_scalar_dense"
    }


def worker() -> None:
    import warnings

    warnings.filterwarnings("ignore")
    ops = entries()
    for line in sys.stdin:
        index, mode, dtype = json.loads(line)
        print("@" + json.dumps(run_entry(ops[index], mode, dtype)), flush=True)


# ---- In the parent.


class Worker:
    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.job: int | None = None
        self.since = 0.0
        self.used = 0.0

    def give(self, index: int, mode: str, dtype: str) -> None:
        if self.process is None:
            # Nearly all of the time is XLA's compiling of graphs that run once.
            env = {"XLA_VERIFY": "0", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
            env |= {"PYTHONFAULTHANDLER": "1"} | os.environ
            self.stderr = open(os.memfd_create("stderr"), "w+b")  # noqa: SIM115
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.ops.sweep", "--worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                text=True,
                env=env,
            )
        assert self.process.stdin is not None
        self.job, self.since, self.used = index, time.monotonic(), self.cpu_seconds()
        self.process.stdin.write(json.dumps([index, mode, dtype]) + "\n")
        self.process.stdin.flush()

    def poll(self) -> tuple[str, str, list[str]] | None:
        """The job's result when there is one."""
        assert self.process is not None and self.process.stdout is not None
        while select.select([self.process.stdout], [], [], 0)[0]:
            line = self.process.stdout.readline()
            if line.startswith("@"):
                result, note, reached = json.loads(line[1:])
                return result, note, reached
            if not line:
                return self.end(f"exit {self.process.wait()}")
        if self.cpu_seconds() - self.used > ENTRY_LIMIT_S:
            return self.end(f"over {ENTRY_LIMIT_S} s")
        if time.monotonic() - self.since > HANG_LIMIT_S:
            return self.end(f"hangs, over {HANG_LIMIT_S} s")
        return None

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, why: str) -> tuple[str, str, list[str]]:
        self.stderr.seek(0)
        told = self.stderr.read().decode(errors="replace").rpartition("Fatal Python error")
        self.close()
        return "crash", " ".join(f"{why} {told[2][:2000] if told[1] else ''}".split()), []

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.stderr.close()


class Result(NamedTuple):
    result: str
    note: str
    reached: list[str]
    seconds: float


@dataclass
class Expected:
    results: dict[tuple[str, str, str], str]

    @classmethod
    def read(cls) -> Expected:
        results = {}
        if EXPECTATIONS.exists():
            for line in EXPECTATIONS.read_text().splitlines():
                if line and not line.startswith("#"):
                    mode, dtype, name, result = line.split()
                    results[mode, dtype, name] = result
        return cls(results)

    def of(self, mode: str, dtype: str, name: str) -> str:
        return self.results.get((mode, dtype, name), "native")

    def write(self) -> None:
        lines = ["# What is not native: mode, dtype, entry of op_db, result. See sweep.py.\n"]
        lines += [
            " ".join((*k, v)) + "\n" for k, v in sorted(self.results.items()) if v != "native"
        ]
        EXPECTATIONS.write_text("".join(lines))


class Reached:
    """In which entries each operator was recorded, or ran on the host: the first few by name."""

    FEW = 3

    def __init__(self) -> None:
        self.entries: dict[str, list[str]] = {}
        if REACHED.exists():
            for line in REACHED.read_text().splitlines():
                if line and not line.startswith("#"):
                    operator, *entries = line.split()
                    self.entries[operator] = entries

    def add(self, mode: str, entry: str, reached: list[str]) -> None:
        where = entry if mode != "backward" else f"backward:{entry}"
        for counter in reached:
            operator = counter.split("::")[1]
            found = {*self.entries.get(operator, []), where}
            # An operator's own entry says most.
            found_first = sorted(found, key=lambda e: (e.split(".")[-1] != operator, e))
            self.entries[operator] = found_first[: self.FEW]

    def write(self) -> None:
        lines = ["# Operators and entries of op_db in which they are recorded. See sweep.py.\n"]
        lines += [" ".join((k, *v)) + "\n" for k, v in sorted(self.entries.items())]
        REACHED.write_text("".join(lines))


def sweep(
    indices: list[int],
    mode: str,
    dtype: str,
    workers: int,
    done: Callable[[dict[int, Result]], None] = lambda _: None,
    progress: bool = True,
) -> dict[int, Result]:
    from tqdm import tqdm

    results: dict[int, Result] = {}
    pool = [Worker() for _ in range(workers)]
    todo = list(indices)
    with tqdm(total=len(indices), unit="entry", disable=not progress) as bar:
        while todo or any(w.job is not None for w in pool):
            for w in pool:
                if w.job is None and todo:
                    w.give(todo.pop(0), mode, dtype)
                elif w.job is not None and (result := w.poll()) is not None:
                    results[w.job] = Result(*result, round(time.monotonic() - w.since, 1))
                    w.job = None
                    done(results)
                    bar.update()
            time.sleep(0.01)
    for w in pool:
        w.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--dtype")
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="FILE.mode.dtype.json get results and seconds")
    parser.add_argument("--update", action="store_true", help="write expectations.txt anew")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker()

    if args.mode or args.dtype:
        passes = [(args.mode or "forward", args.dtype or "float32")]
    else:
        passes = list(PASSES)
    ops = entries()
    indices = [i for i, op in enumerate(ops) if re.search(args.only, name_of(op))]
    expected, reached = Expected.read(), Reached()
    unexpected = 0
    for mode, dtype in passes:
        print(f"--- {mode} {dtype}", flush=True)

        def write(results: dict[int, Result], name: str = f"{mode}.{dtype}") -> None:
            if args.json:
                named = {name_of(ops[i]): r for i, r in results.items()}
                Path(f"{args.json}.{name}.json").write_text(json.dumps(named, indent=0))

        results = sweep(indices, mode, dtype, args.workers, write)
        unexpected += report(
            {name_of(ops[i]): results[i] for i in indices}, mode, dtype, expected, reached
        )
        if args.update:
            expected.write()
            reached.write()
    if unexpected and not args.update:
        sys.exit(1)


def report(
    results: dict[str, Result], mode: str, dtype: str, expected: Expected, reached: Reached
) -> int:
    """Prints what is not native and notes all of it; how many results were not the expected."""
    unexpected = 0
    for name, (result, note, operators, _) in results.items():
        if result == "skip":
            continue
        if mode in ("forward", "backward") and result in ("native", "fallback"):
            reached.add(mode, name, operators)
        want = expected.of(mode, dtype, name)
        if result != "native" or want != result:
            mark = "" if want == result else f"  UNEXPECTED, was {want}"
            print(f"{result:9} {name}  {note}{mark}")
        unexpected += want != result
        expected.results[mode, dtype, name] = result
    counts = Counter(r.result for r in results.values())
    print(", ".join(f"{n} {r}" for r, n in counts.most_common()), f"; {unexpected} unexpected")
    return unexpected


if __name__ == "__main__":
    main()
