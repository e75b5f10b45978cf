"""``python -m torch_xla.debug.ops [PATTERN]``: how each ATen operator is served on an XLA device.

Read off torch's dispatcher, in which the package has registered its kernels. Status of an operator:

    native      a kernel of ours: recorded, and lowered to StableHLO
    host call   PyTorch's CPU kernel inside of the compiled program on CPU plugins, elsewhere a
                fallback
    composite   torch's own composition of other operators
    fallback    PyTorch's CPU kernel between two programs: counted as ``aten::<operator>``
    sparse      of sparse tensors only
    refused     asks for tensors that an XLA device does not have: raises NotImplementedError

An operator whose overloads are served in several ways has several. Its out= forms count only where
they are a fallback and it is not. Sparse tensors have kernels of their own: native, composite
(PyTorch's, made of operators on indices and values) or fallback; without any, an operator does
what it does for sparse tensors of the CPU.
"""

import re
import sys
from collections import defaultdict
from typing import NamedTuple

import torch

from torch_xla import _XLAC

STATUSES = ("native", "host call", "composite", "fallback", "sparse", "refused")

# Why an operator is a fallback, or refused: the first pattern that its whole name matches.
_REASONS = (
    ("refused", r".*nested.*|.*jagged.*", "nested tensors"),
    ("refused", r"slice_inverse", "functional tensors"),
    ("refused", r".*mkldnn.*", "tensors in the layout of oneDNN"),
    (
        "refused",
        r"(?!.*fake_quant)(.*quantize.*|quantized_.*|_make_per_.*|_empty_(affine|per).*)"
        "|_foobar|_test_.*",
        "quantized tensors, or kernels for PyTorch's own tests",
    ),
    (
        "fallback",
        r"nonzero|masked_select|_?unique.*|bincount|repeat_interleave|_to_sparse.*",
        "the shape of the result depends on data",
    ),
    (
        "fallback",
        r"_spdiags|sspaddmm|_validate_compressed.*|.*_convert_indices.*",
        "PyTorch has it for CPUs, or makes and checks sparse tensors with it",
    ),
    ("fallback", r"linalg_lstsq", "the shape of the residuals depends on the rank that is found"),
    (
        "fallback",
        r"record_stream|from_file|set_|is_set_to|_make_dep_token|.*assert_async|.*_resize.*",
        "has a meaning only on the host",
    ),
    (
        "fallback",
        r".*fake_quant.*|_fused_moving_avg.*|_dyn_quant.*|.*_int4pack.*|.*_int8pack.*",
        "quantization: no native kernel yet",
    ),
    ("fallback", r"_fused_(ada|sgd).*", "torch.optim offers fused=True for devices that it lists"),
    (
        "fallback",
        r"_slow_conv.*|slow_conv.*|_conv_depthwise.*|_cum.*_helper|_scaled_dot_product_.*"
        r"|_(native_)?batch_norm.*|batch_norm.*|.*cudnn.*|_compute_linear_combination|_aminmax"
        r"|rrelu_with_noise|_addmm_activation|_add_relu_?|_philox.*|_fill_mem.*|_flash_attention.*"
        r"|adaptive_avg_pool3d_backward|dequantize|_jagged.*|_padded.*",
        "a form that no public function of PyTorch calls on this device",
    ),
)


class Operator(NamedTuple):
    """One row: an operator of ATen with all of its overloads."""

    name: str  # "add", without "aten::"
    forms: dict[str, list[str]]  # status: overloads ("add.Tensor")
    sparse: list[str]  # statuses of the kernels for sparse tensors

    @property
    def statuses(self) -> list[str]:
        return [s for s in STATUSES if s in self.forms]

    @property
    def reason(self) -> str:
        """Why some form is a fallback or refused; "" where none is, or where none is known."""
        for status, pattern, text in _REASONS:
            if status in self.forms and re.fullmatch(pattern, self.name):
                return text
        return ""


def operators() -> list[Operator]:
    """Of all of ATen, less what has no kernel for a CPU either. Makes no client."""
    dispatched = set(torch._C._dispatch_get_all_op_names())
    routes = {name: how for name, how, _ in _XLAC._xla_mutation_routes()}
    host_calls = set(_XLAC._xla_host_calls())
    refused = set(_XLAC._xla_refused_views())
    sparse: dict[str, set[str]] = defaultdict(set)
    for name, how in _XLAC._xla_sparse_routes():
        sparse[name[6:].split(".")[0]].add(how)
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    outs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if not name.startswith("aten::") or name not in dispatched:
            continue
        status = _status(name, routes.get(name), host_calls, refused)
        if status in ("", "refused") and schema.name[6:] in sparse:
            status = "sparse"
        out = any(a.kwarg_only and a.alias_info is not None for a in schema.arguments)
        if status:
            (outs if out else found)[schema.name[6:]][status].append(name[6:])
    for name, forms in outs.items():
        if name not in found:
            found[name] = forms
        elif "fallback" in forms:
            found[name]["fallback"] += forms["fallback"]
    return [
        Operator(name, dict(forms), [s for s in STATUSES if s in sparse[name]])
        for name, forms in sorted(found.items())
    ]


def _status(name: str, route: str | None, host_calls: set[str], refused: set[str]) -> str:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if name in host_calls:
        return "host call"
    if name in refused:
        return "refused"
    if route in ("native", "adapter") or (route is None and has(name, "XLA")):
        return "native"
    if any(
        has(name, f"Composite{kind}")
        for kind in ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    ):
        return "composite"
    if not has(name, "CPU"):
        return ""
    base = name[6:].split(".")[0]
    for status, pattern, _ in _REASONS:
        if re.fullmatch(pattern, base):
            return status
    return "fallback"


def main() -> None:
    pattern = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    for op in operators():
        if pattern.search(op.name):
            reason = f"  ({op.reason})" if op.reason else ""
            sparse = f"  sparse tensors: {', '.join(op.sparse)}" if op.sparse else ""
            print(f"{op.name:40} {', '.join(op.statuses)}{reason}{sparse}")


if __name__ == "__main__":
    main()
