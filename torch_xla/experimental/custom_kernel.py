"""Operators of your own inside of the compiled program.

`stablehlo_op` makes one out of StableHLO text, `ffi_op` one out of a function in a shared library
that XLA calls (its typed FFI). Both become operators of `torch.library`: they have a schema, are
reachable as ``torch.ops.my.name``, and take what torch offers to such operators::

    def cube(x: torch.Tensor) -> torch.Tensor:  # the schema, and what the result looks like
        return torch.empty_like(x)

    def text(x):
        t = tensor_type(x)
        return f'''
        func.func @main(%x: {t}) -> {t} {{
          %0 = stablehlo.multiply %x, %x : {t}
          %1 = stablehlo.multiply %0, %x : {t}
          return %1 : {t}
        }}'''

    my_cube = stablehlo_op("my::cube", text, shapes=cube)
    my_cube.register_autograd(backward, setup_context=setup)  # gradients
    my_cube.register_kernel("cpu")(lambda x: x**3)  # other devices

What is made of PyTorch's own operators needs neither: `torch.library.custom_op` and
`torch.autograd.Function` work on XLA tensors as they are.
"""

import array
import ctypes
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.utils._pytree import tree_map_only

from .. import _XLAC

__all__ = ["ffi_op", "stablehlo_op", "tensor_type"]

# The results of an operator for arguments, all of them on the meta device.
Shapes = Callable[..., Any]
Arguments = dict[str, Any]

_ELEMENT = {
    torch.bool: "i1",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex32: "complex<f32>",  # as XLA holds it
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
}
_libraries: list[ctypes.CDLL] = []  # loaded for ever: programs call into them
_handlers: dict[str, list[int]] = {}  # the addresses of "namespace::name:symbol"
_OURS = "torch_xla."  # attributes that begin so are not the user's


def tensor_type(tensor: Tensor) -> str:
    """The tensor's type as StableHLO spells it, such as ``"tensor<2x3xf32>"``.

    That of complex32 is complex64's, as which XLA holds it; results are rounded to halves.
    """
    if tensor.dtype not in _ELEMENT:
        raise TypeError(f"XLA devices have no dtype {tensor.dtype}")
    return f"tensor<{''.join(f'{d}x' for d in tensor.shape)}{_ELEMENT[tensor.dtype]}>"


def stablehlo_op(name: str, text: str | Callable[..., str], *, shapes: Shapes) -> CustomOpDef:
    """An operator that is a module of StableHLO.

    Args:
        name: "namespace::name".
        text: the module, or just its functions, such as ``jax.jit(f).lower(x).as_text()``; `@main`
            takes the tensors among the arguments in their order and returns the results. Types are
            static, so text for more than one shape is a function of the operator's arguments (its
            tensors on the meta device) that returns text, asked once for equal arguments. Numbers,
            flags and strings among the arguments become part of the program: each value is
            compiled.
        shapes: a function with the operator's arguments, whose annotations are its schema, that
            returns tensors of the results' shapes and dtypes, such as ``torch.empty_like(x)``. It
            is the operator's fake implementation, too.

    Returns:
        What `torch.library.custom_op` returns: call it, or add gradients and kernels for other
        devices to it. For XLA, the results depend on the arguments alone.

    Raises (when it is called for such arguments for the first time):
        ValueError: the text is no StableHLO, or does not fit the arguments or `shapes`.
    """

    def make(arguments: Arguments, results: list[Tensor]) -> _XLAC._XlaCustomKernel:
        module = text if isinstance(text, str) else text(**arguments)
        return _XLAC._xla_stablehlo_kernel(name, module, results)

    return _define(name, shapes, make)


def ffi_op(
    name: str,
    *,
    library: str | os.PathLike[str],
    symbol: str,
    shapes: Shapes,
    attributes: Mapping[str, Any] | None = None,
) -> CustomOpDef:
    """An operator that is an XLA FFI handler in a shared library.

    The handler gets the tensors among the arguments, then the results, as dense row-major buffers
    on the device; and by their names the other arguments as attributes: int64, double, bool,
    string, or an array of int64 or double (a list, a tuple, or an array of numpy's with one
    dimension; an empty one is of double where the annotation or numpy's dtype says so). Scalars of
    numpy's int32 and float32 stay what they are.

    Args:
        name: "namespace::name".
        library: its file.
        symbol: of the handler, as ``XLA_FFI_DEFINE_HANDLER_SYMBOL`` makes it.
        shapes: as in `stablehlo_op`.
        attributes: more of them, for all calls.

    Returns:
        As `stablehlo_op`. An error that the handler returns is raised when the results, or others
        of the same program, are used.

    Raises:
        OSError: the library cannot be loaded.
        ValueError: it has no such symbol, or an attribute has a name or a value that cannot be.
        TypeError: an attribute is of another type.
        NotImplementedError (when it is called): the PJRT plugin takes no handlers.
    """
    path = Path(library)
    loaded = ctypes.CDLL(str(path.absolute() if path.exists() else path))
    try:
        handler = ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p).value
    except AttributeError:
        raise ValueError(f"{name}: {library} has no symbol {symbol}") from None
    assert handler is not None
    _libraries.append(loaded)
    # Not the address itself: the name is part of programs, which all processes share.
    target = f"{name}:{symbol}"
    taken = _handlers.setdefault(target, [])
    if handler not in taken:  # the first, or the operator is defined again
        taken.append(handler)
    if number := taken.index(handler):
        target += f":{number}"
    fixed = {k: _attribute(name, k, v) for k, v in (attributes or {}).items()}

    def make(arguments: Arguments, results: list[Tensor]) -> _XLAC._XlaCustomKernel:
        _XLAC._xla_register_ffi_handler(target, handler)
        given = {
            a.name: _attribute(name, a.name, arguments[a.name], floats="float" in str(a.type))
            for a in op._opoverload._schema.arguments
            if "Tensor" not in str(a.type) and arguments[a.name] is not None
        }
        return _XLAC._xla_ffi_kernel(name, target, {**fixed, **given}, results)

    op = _define(name, shapes, make)
    return op


def _define(
    name: str,
    shapes: Shapes,
    make: Callable[[Arguments, list[Tensor]], _XLAC._XlaCustomKernel],
) -> CustomOpDef:
    signature = inspect.signature(shapes)
    known: dict[Any, tuple[_XLAC._XlaCustomKernel, type]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        tensors: list[Tensor] = []
        key = tuple(_key(v, tensors) for v in bound.arguments.values())
        if key not in known:
            arguments = tree_map_only(Tensor, _to_meta, dict(bound.arguments))
            declared = shapes(**arguments)
            results = [declared] if isinstance(declared, Tensor) else list(declared)
            known[key] = make(arguments, results), type(declared)
        kernel, kind = known[key]
        results = kernel.record(tensors)
        return results if kind is list else tuple(results) if kind is tuple else results[0]

    schema = torch.library.infer_schema(shapes, mutates_args=())
    op = torch.library.custom_op(name, call, mutates_args=(), device_types="xla", schema=schema)
    op.register_fake(shapes)
    return op


def _to_meta(t: Tensor) -> Tensor:
    return torch.empty(t.shape, dtype=t.dtype, device="meta")


def _attribute(op: str, name: Any, value: Any, floats: bool = False) -> Any:
    """The value as the extension takes it. `floats`: it is declared to be of them."""
    what = f"{op}: the FFI attribute {name!r}"
    if not isinstance(name, str):
        raise TypeError(f"{what} must have a string as its name")
    if not name or name.startswith(_OURS):
        raise ValueError(f"{what} must have a name, and one that does not begin with {_OURS}")
    if isinstance(value, (np.int32, np.float32)):
        return value
    if isinstance(value, str):
        return str(value)
    wrong = TypeError(
        f"{what} cannot be {value!r}: it is a number, a bool, a string or a list of numbers"
    )
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "biuf" or value.ndim > 1:
            raise wrong
        floats = floats or value.dtype.kind == "f"
        value = value.tolist()
    is_list = isinstance(value, (list, tuple))
    numbers = list(value) if is_list else [value]
    numbers = [v.item() if isinstance(v, np.generic) else v for v in numbers]
    for v in numbers:
        if not isinstance(v, (int, float)):
            raise wrong
        if isinstance(v, int) and not -(2**63) <= v < 2**63:
            raise ValueError(f"{what} is {v}, which has more than 64 bits")
    if floats or (is_list and any(isinstance(v, float) for v in numbers)):
        numbers = [float(v) for v in numbers]
        floats = True
    if is_list:
        return array.array("d" if floats else "q", numbers)
    return numbers[0]


def _key(v: Any, tensors: list[Tensor]) -> Any:
    """Equal for arguments that one kernel serves; adds the tensors to the list."""
    if isinstance(v, Tensor):
        tensors.append(v)
        return (v.dtype, *v.shape)
    if isinstance(v, (list, tuple)):
        return tuple(_key(e, tensors) for e in v)
    return type(v), repr(v)  # 1, 1.0 and True are equal, and so are 0.0 and -0.0
