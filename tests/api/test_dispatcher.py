"""What serves the view operators and the mutating forms of the installed torch, read off its
dispatcher."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_xla import _XLAC

Schema = torch._C.FunctionSchema


def full_name(s: Schema) -> str:
    return s.name + (f".{s.overload_name}" if s.overload_name else "")


def has(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def schemas() -> list[Schema]:
    """Of aten's operators; TorchScript's own functions have no kernels."""
    dispatched = set(torch._C._dispatch_get_all_op_names())
    every = torch._C._jit_get_all_schemas()
    return [s for s in every if s.name.startswith("aten::") and full_name(s) in dispatched]


def is_view(s: Schema) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in s.returns)


# How to call each view operator that has a kernel of ours: on what, and the call.
x34 = (3, 4)
NATIVE: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], Any]]] = {
    "aten::_conj": (x34, torch._conj),
    "aten::_fw_primal": (x34, lambda x: torch.ops.aten._fw_primal(x, 0)),
    "aten::_make_dual": (x34, lambda x: _make_dual(x)),
    "aten::_neg_view": (x34, torch._neg_view),
    "aten::_reshape_alias": (x34, lambda x: torch.ops.aten._reshape_alias(x, [12], [1])),
    "aten::alias": (x34, torch.ops.aten.alias),
    "aten::as_strided": (x34, lambda x: x.as_strided((2, 2), (4, 1), 1)),
    "aten::detach": (x34, torch.detach),
    "aten::diagonal": (x34, lambda x: x.diagonal(1)),
    "aten::expand": (x34, lambda x: x.expand(2, 3, 4)),
    "aten::lift_fresh": (x34, torch.ops.aten.lift_fresh),
    "aten::permute": (x34, lambda x: x.permute(1, 0)),
    "aten::select.int": (x34, lambda x: x.select(1, -1)),
    "aten::slice.Tensor": (x34, lambda x: x[1:, ::2]),
    "aten::split.Tensor": (x34, lambda x: x.split(2)),
    "aten::split_with_sizes": (x34, lambda x: x.split([1, 3], 1)),
    "aten::squeeze": ((1, 3, 1), torch.squeeze),
    "aten::squeeze.dim": ((1, 3, 1), lambda x: x.squeeze(0)),
    "aten::squeeze.dims": ((1, 3, 1), lambda x: x.squeeze((0, 2))),
    "aten::t": (x34, torch.t),
    "aten::transpose.int": (x34, lambda x: x.transpose(0, 1)),
    "aten::unbind.int": (x34, lambda x: x.unbind(1)),
    "aten::unfold": (x34, lambda x: x.unfold(1, 2, 2)),
    "aten::unsqueeze": (x34, lambda x: x.unsqueeze(1)),
    "aten::view": (x34, lambda x: x.view(2, 6)),
    "aten::view.dtype": (x34, lambda x: x.view(torch.int32)),
    "aten::view_as_complex": ((3, 2), torch.view_as_complex),
    "aten::view_as_real": (x34, torch.view_as_real),
}

# Of sparse tensors, which have kernels of their own; of nested and functional ones, which do not
# exist on the device; and a test's.
REFUSED = {
    "aten::_indices",
    "aten::_nested_get_values",
    "aten::_nested_view_from_buffer",
    "aten::_nested_view_from_jagged",
    "aten::_sparse_broadcast_to",
    "aten::_test_autograd_multiple_dispatch_view",
    "aten::_values",
    "aten::ccol_indices",
    "aten::col_indices",
    "aten::crow_indices",
    "aten::indices",
    "aten::row_indices",
    "aten::slice_inverse",
    "aten::values",
}


def test_every_view_operator_is_native_composed_or_refused():
    """A composite kernel would compute `as_strided` from strides that we only show."""
    refused = set(_XLAC._xla_refused_views())
    native = set()
    for s in schemas():
        name = full_name(s)
        if not is_view(s) or name in refused or s.is_mutable:
            continue
        if has(name, "XLA"):
            native.add(name)
        else:
            assert has(name, "CompositeImplicitAutograd"), name  # made of other views
    assert refused == REFUSED
    assert native == set(NATIVE)


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_view_shares_its_memory(device, name):
    shape, view = NATIVE[name]
    dtype = torch.complex64 if name in ("aten::_conj", "aten::view_as_real") else torch.float32
    c = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    x = c.to(device)
    for ours, theirs in zip(_list(view(x)), _list(view(c)), strict=True):
        assert _XLAC._xla_get_tensor_id(ours) == _XLAC._xla_get_tensor_id(x)
        assert torch.equal(ours.cpu(), theirs.resolve_conj().resolve_neg())
        if name != "aten::expand":
            ours.mul_(2)
            theirs.mul_(2)
        assert torch.equal(x.cpu(), c)


def _make_dual(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        return torch._make_dual(x, torch.ones_like(x), 0)


def _list(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("name", ["crow_indices", "_values", "_indices", "ccol_indices"])
def test_a_refused_view_says_so(device, name):
    with pytest.raises(RuntimeError, match=f"aten::{name}.*no kernel for this view"):
        getattr(torch.ops.aten, name)(torch.ones(2, device=device))


def writes(a: Any) -> bool:
    return a.alias_info is not None and a.alias_info.is_write


COMPOSITE_PARTNERS = {
    "aten::adaptive_avg_pool2d",
    "aten::adaptive_avg_pool3d",
    "aten::bernoulli",
    "aten::conj_physical",
    "aten::linalg_eigvals",
    "aten::mvlgamma",
}


def test_every_mutating_form_has_a_route():
    """None runs on the host, or recurses, where its functional form has a kernel."""
    by_name: dict[str, list[Schema]] = defaultdict(list)
    for s in schemas():
        by_name[s.name].append(s)
    routes = {name: (how, partner) for name, how, partner in _XLAC._xla_mutation_routes()}
    mutating = {full_name(s) for ss in by_name.values() for s in ss if s.is_mutable}
    assert mutating == set(routes)
    missing = []
    for ss in list(by_name.values()):
        for s in ss:
            how, partner = routes.get(full_name(s), ("", ""))
            if how == "adapter":
                # The partner writes nothing, and has a kernel of its own, from which no way leads
                # back. That none leads from the composite ones is seen below, by calling them.
                assert has(partner, "XLA") or partner in COMPOSITE_PARTNERS, (full_name(s), partner)
                assert partner not in routes, (full_name(s), partner)
            if how != "fallback":
                continue
            in_place = s.name.endswith("_") and not s.name.endswith("__")
            wanted = [(a.name, str(a.type)) for a in s.arguments if in_place or not writes(a)]
            for f in by_name[s.name[:-1] if in_place else s.name]:
                same = [(a.name, str(a.type)) for a in f.arguments] == wanted
                if same and not f.is_mutable and has(full_name(f), "XLA"):
                    missing.append((full_name(s), full_name(f)))
    assert missing == []


CALL_ALL = """
    import sys, torch, torch_xla, warnings
    from torch_xla import _XLAC
    warnings.simplefilter("ignore")
    def tensor():
        return torch.ones(2, 2, device="xla")
    KINDS = {"Tensor": tensor, "int": lambda: 1, "SymInt": lambda: 1, "float": lambda: 1.0,
             "number": lambda: 1, "Scalar": lambda: 1, "bool": lambda: False, "str": lambda: "",
             "List[int]": lambda: [2, 2], "List[Tensor]": lambda: [tensor()],
             "List[number]": lambda: [1], "List[float]": lambda: [1.0],
             "List[bool]": lambda: [True] * 3}
    called = 0
    for name, how, partner in _XLAC._xla_mutation_routes():
        if how not in ("composite", "adapter"):
            continue
        schema = torch._C._get_schema(*(name.split(".") + [""])[:2])
        packet = getattr(torch.ops.aten, schema.name[6:])
        operator = getattr(packet, schema.overload_name or "default")
        args, kwargs = [], {}
        for a in schema.arguments:
            kind = str(a.type)
            value = None
            if not kind.startswith("Optional["):
                if a.has_default_value():
                    value = a.default_value
                elif kind in KINDS:
                    value = KINDS[kind]()
            if a.kwarg_only:
                kwargs[a.name] = value
            else:
                args.append(value)
        print(name, flush=True)
        try:
            operator(*args, **kwargs)
            called += 1
        except Exception as e:
            if isinstance(e, RecursionError):
                raise
    print("called", called)
"""


def test_no_mutating_form_recurses(run_python):
    """Each is called once with whatever arguments; a cycle of kernels would end the process."""
    done = run_python(CALL_ALL, timeout=200)
    lines = done.stdout.split("\n")
    assert done.returncode == 0, (lines[-3:], done.stderr[-500:])
    assert int(lines[-2].split()[1]) > 500
