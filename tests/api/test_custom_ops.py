"""Operators of users: of PyTorch's own calls, of StableHLO text, and out of a shared library."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import torch_xla
from tests.ops.oracle import host_runs
from torch_xla.debug import metrics
from torch_xla.experimental.custom_kernel import ffi_op, stablehlo_op, tensor_type

from .conftest import assert_same, compiles

DEVICE = torch.device("xla:0")


# --- made of ATen's


@torch.library.custom_op("t_aten::scale_add", mutates_args=())
def scale_add(x: Tensor, y: Tensor, factor: float = 2.0) -> Tensor:
    return x * factor + y


@scale_add.register_fake
def _(x, y, factor=2.0):
    return torch.empty_like(x)


scale_add.register_autograd(
    lambda ctx, g: (g * ctx.factor, g, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[2]),
)


@torch.library.custom_op("t_aten::add_into", mutates_args={"x"}, device_types="xla")
def add_into(x: Tensor, y: Tensor) -> None:
    x.add_(y)


def test_custom_op():
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    dx, dy = (t.detach().to(DEVICE).requires_grad_() for t in (x, y))
    for scale in (2.0, 3.0):
        want, got = scale_add(x, y, scale), scale_add(dx, dy, scale)
        assert_same(got, want)
        want.sin().sum().backward()
        got.sin().sum().backward()
    assert_same(dx.grad, x.grad)
    assert_same(dy.grad, y.grad)
    assert_same(torch.ops.t_aten.scale_add(dx, dy), x * 2 + y)


def test_custom_op_that_writes():
    x = torch.zeros(2, 3, device=DEVICE)
    view = x[1]
    add_into(view, torch.ones(3, device=DEVICE))
    assert_same(x, torch.tensor([[0.0] * 3, [1.0] * 3]))
    with pytest.raises(RuntimeError, match="t_aten::add_into"):
        add_into(torch.zeros(3), torch.ones(3))


def test_fake_implementations():
    x = torch.empty(2, 3, device="meta")
    for op in (lambda t: scale_add(t, t), cube, torch.ops.t_hlo.cube):
        assert op(x).shape == x.shape
        with torch._subclasses.FakeTensorMode():
            fake = op(torch.empty(2, 3, device="cpu"))
            assert fake.shape == x.shape


@pytest.mark.parametrize("key", ["XLA", "CompositeExplicitAutograd", "CompositeImplicitAutograd"])
def test_library_impl(key):
    with torch.library._scoped_library(f"t_{key}", "DEF") as library:
        library.define("pair(Tensor x, int n) -> (Tensor, Tensor)")
        library.define("double_(Tensor(a!) x) -> Tensor(a!)")
        library.impl("pair", lambda x, n: (x + n, x * n), key)
        library.impl("double_", lambda x: x.mul_(2), key)
        ops = getattr(torch.ops, f"t_{key}")
        x = torch.arange(3.0, device=DEVICE)
        a, b = ops.pair(x, 3)
        assert_same(a, torch.arange(3.0) + 3)
        assert_same(b, torch.arange(3.0) * 3)
        assert ops.double_(x) is x
        assert_same(x, torch.arange(3.0) * 2)


def test_a_kernel_for_the_cpu_alone_runs_there():
    with torch.library._scoped_library("t_cpu", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: torch.from_numpy(np.flip(x.numpy()).copy()), "CPU")
        assert_same(torch.ops.t_cpu.f(torch.arange(3.0, device=DEVICE)), torch.tensor([2.0, 1, 0]))
        assert metrics.counter_value("t_cpu::f") == 1


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        ctx.power = power
        ctx.mark_non_differentiable(mask := x > 0)
        return x**power, mask

    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return grad * ctx.power * x ** (ctx.power - 1), None


def test_autograd_function():
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    d = x.detach().to(DEVICE).requires_grad_()
    for t in (x, d):
        out, mask = Cube.apply(t, 3)
        assert not mask.requires_grad
        (grad,) = torch.autograd.grad(out.sum(), t, create_graph=True)
        grad.square().sum().backward()
    assert_same(d.grad, x.grad)


# --- StableHLO


def _same(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def cube_text(x):
    t = tensor_type(x)
    return f"""
    // @main calls another function. "quotes" {{
    module @cube attributes {{mhlo.num_replicas = 1 : i32}} {{
      func.func public @main(%x: {t}) -> ({t} {{jax.result_info = "@main"}}) {{
        %0 = call @square(%x) : ({t}) -> {t} loc(#where)
        %1 = stablehlo.multiply %0, %x : {t}
        return %1 : {t}
      }}
      func.func private @square(%x: {t}) -> {t} {{
        %0 = stablehlo.multiply %x, %x : {t}  // @square
        return %0 : {t}
      }}
    }}
    #where = loc("cube.mlir":1:2)
    """


cube = stablehlo_op("t_hlo::cube", cube_text, shapes=_same)
cube.register_autograd(
    lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
cube.register_kernel("cpu")(lambda x: x**3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_stablehlo(shape, dtype):
    x = (
        torch.arange(6).resize_(shape).to(dtype)
        if shape != (0, 2)
        else torch.ones(0, 2, dtype=dtype)
    )
    assert_same(cube(x.to(DEVICE)), x**3)
    assert_same(
        torch.ops.t_hlo.cube(x.to(DEVICE).t() if x.dim() == 2 else x.to(DEVICE)),
        x.t() ** 3 if x.dim() == 2 else x**3,
    )
    assert_same(cube(x), x**3)


def test_stablehlo_in_a_larger_program():
    x = torch.randn(3, 4)
    d = x.to(DEVICE).requires_grad_()
    before = host_runs()
    # Twice with one shape, once with another.
    y = cube(d.sin()) + cube(d) + cube(d.t()).t() + cube(d[:2]).sum()
    text = torch_xla._XLAC._xla_dump_graph(0, [y], True)
    assert text.count("func.func private") == 6
    y.sum().backward()
    torch_xla.sync()
    e = x.clone().requires_grad_()
    want = e.sin() ** 3 + 2 * e**3 + (e[:2] ** 3).sum()
    want.sum().backward()
    assert_same(y, want)
    assert_same(d.grad, e.grad)
    assert host_runs() == before


def test_same_shapes_compile_once():
    def run():
        y = cube(torch.randn(5).to(DEVICE)).sum()
        torch_xla.sync(wait=True)
        return y

    run()
    before = compiles()
    run()
    assert compiles() == before


def affine_text(x, scale, shift, negate):
    t = tensor_type(x)
    sign = "negate" if negate else "abs"
    return f"""
    func.func @main(%x: {t}) -> ({t}, {t}) {{
      %a = stablehlo.constant dense<{float(scale)}> : {t}
      %b = stablehlo.constant dense<{float(shift)}> : {t}
      %0 = stablehlo.multiply %x, %a : {t}
      %1 = stablehlo.add %0, %b : {t}
      %2 = stablehlo.{sign} %1 : {t}
      func.return %1, %2 : {t}, {t}
    }}"""


def _affine(x: Tensor, scale: float, shift: int = 1, negate: bool = False) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


def test_numbers_are_part_of_the_program():
    affine = stablehlo_op("t_hlo::affine", affine_text, shapes=_affine)
    x = torch.randn(3)
    d = x.to(DEVICE)
    for scale, shift, negate in [(2.0, 1, False), (2.0, 1, True), (3.0, 1, True), (3.0, 0, True)]:
        a, b = affine(d, scale, shift, negate=negate)
        assert_same(a, x * scale + shift)
        assert_same(b, -(x * scale + shift) if negate else (x * scale + shift).abs())
    assert_same(torch.ops.t_hlo.affine(d, 4.0)[0], x * 4 + 1)


def test_lists_and_optional_tensors():
    def shapes(xs: list[Tensor], bias: Tensor | None) -> list[Tensor]:
        return [torch.empty_like(x) for x in xs]

    def text(xs, bias):
        types = [tensor_type(x) for x in xs]
        names = [f"%x{i}: {t}" for i, t in enumerate(types)]
        lines = [f"%y{i} = stablehlo.negate %x{i} : {t}" for i, t in enumerate(types)]
        if bias is not None:
            names.append(f"%b: {tensor_type(bias)}")
            lines += [f"%z{i} = stablehlo.add %y{i}, %b : {t}" for i, t in enumerate(types)]
        letter = "y" if bias is None else "z"
        results = ", ".join(f"%{letter}{i}" for i in range(len(xs)))
        all_types = ", ".join(types)
        return (
            f"func.func @main({', '.join(names)}) -> ({all_types}) {{\n"
            + "\n".join(lines)
            + f"\nreturn {results} : {all_types}\n}}"
        )

    op = stablehlo_op("t_hlo::negate_all", text, shapes=shapes)
    xs = [torch.randn(3), torch.randn(3)]
    on_device = [x.to(DEVICE) for x in xs]
    for got, x in zip(op(on_device, None), xs, strict=True):
        assert_same(got, -x)
    for got, x in zip(op(on_device, torch.ones(3, device=DEVICE)), xs, strict=True):
        assert_same(got, 1 - x)


@pytest.mark.parametrize("debug_info", [False, True])
def test_what_jax_writes(debug_info):
    import jax
    import jax.numpy as jnp

    def fn(x):
        y = jax.lax.fori_loop(0, 3, lambda i, a: jnp.sin(a) * jax.nn.softmax(a), x)
        return jnp.sort(y)[::-1] + jnp.linalg.norm(x) + jnp.cumsum(x) + jax.jit(jnp.dot)(x, x)

    lowered = jax.jit(fn, donate_argnums=0).lower(jnp.zeros(4, jnp.float32))
    name = f"t_hlo::of_jax_{debug_info}".lower()
    op = stablehlo_op(name, lowered.as_text(debug_info=debug_info), shapes=_same)
    x = torch.randn(4)
    d = x.to(DEVICE)
    assert_same(op(d), torch.from_numpy(np.array(fn(jnp.array(x.numpy())))))
    twice = torch.from_numpy(np.array(fn(fn(jnp.array(x.numpy())))))
    assert_same(op(op(d)), twice, rtol=1e-5, atol=1e-5)
    assert_same(d, x)


FIXED = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.{} %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
"""


def test_texts_are_told_apart():
    sine = stablehlo_op("t_hlo::sine", FIXED.format("sine"), shapes=_same)
    cosine = stablehlo_op("t_hlo::cosine", FIXED.format("cosine"), shapes=_same)
    x = torch.randn(2)
    assert_same(sine(x.to(DEVICE)), x.sin())
    assert_same(cosine(x.to(DEVICE)), x.cos())
    # Redefined, as in a notebook: the same name and shapes, another text.
    sine = stablehlo_op("t_hlo::sine", FIXED.format("tanh"), shapes=_same)
    assert_same(sine(x.to(DEVICE)), x.tanh())


def test_wrong_texts_raise_at_the_call():
    x = torch.randn(2, device=DEVICE)
    fixed = stablehlo_op("t_hlo::fixed", FIXED.format("sine"), shapes=_same)
    with pytest.raises(ValueError, match=r"t_hlo::fixed.*tensor<2xf32>.*tensor<3xf32>"):
        fixed(torch.randn(3, device=DEVICE))
    with pytest.raises(ValueError, match=r"t_hlo::fixed.*tensor<2xf32>.*tensor<2xf64>"):
        fixed(x.double())

    def sums(x: Tensor) -> Tensor:
        return x.new_empty(())

    declared = stablehlo_op("t_hlo::declared", FIXED.format("sine"), shapes=sums)
    with pytest.raises(ValueError, match=r"t_hlo::declared.*\(tensor<2xf32>\).*\(tensor<f32>\)"):
        declared(x)
    for text, message in [
        ("", "no function @main"),
        ("module { func.func @other() { return } }", "no function @main"),
        (FIXED.format("sign_of"), "sign_of"),
        (FIXED.format("sine")[:-4], "expected"),
        (
            "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }",
            "static",
        ),
    ]:
        bad = stablehlo_op("t_hlo::bad", text, shapes=_same)
        with pytest.raises(ValueError, match=r"t_hlo::bad[\s\S]*" + message):
            bad(x)
    with pytest.raises(RuntimeError, match="t_hlo::bad"):
        bad(x.cpu())
    assert_same(x + 0, x.cpu())  # nothing of it is left in the graph


def test_names_of_custom_calls_are_not_the_modules():
    text = """
    module @m {
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"}
          : (tensor<2xf32>) -> tensor<2xf32>
        %1 = call @Sharding(%0) : (tensor<2xf32>) -> tensor<2xf32>
        return %1 : tensor<2xf32>
      }
      func.func private @Sharding(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.negate %x : tensor<2xf32>
        return %0 : tensor<2xf32>
      }
    }"""
    x = torch.randn(2)
    assert_same(stablehlo_op("t_hlo::sharding", text, shapes=_same)(x.to(DEVICE)), -x)


def test_symbols_of_two_texts_do_not_meet():
    meshes = """
    sdy.mesh @mesh = <["x"=1]>
    func.func @main(%x: tensor<2xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}})
        -> tensor<2xf32> {{
      %0 = stablehlo.{} %x : tensor<2xf32>
      return %0 : tensor<2xf32>
    }}"""
    sine = stablehlo_op("t_hlo::mesh_sine", meshes.format("sine"), shapes=_same)
    cosine = stablehlo_op("t_hlo::mesh_cosine", meshes.format("cosine"), shapes=_same)
    x = torch.randn(2)
    d = x.to(DEVICE)
    assert_same(sine(d) + cosine(d), x.sin() + x.cos())


def test_what_cannot_be_embedded_raises_at_the_call():
    x = torch.randn(2, device=DEVICE)
    generic = '"sdy.mesh"() <{mesh = #sdy.mesh<["x"=1]>, sym_name = "mesh"}> : () -> ()\n'
    op = stablehlo_op("t_hlo::generic", generic + FIXED.format("sine"), shapes=_same)
    with pytest.raises(ValueError, match=r't_hlo::generic: .* "sdy\.mesh" in MLIR\'s generic form'):
        op(x)
    # Alone it is a program, but not as a part of one.
    resources = FIXED.format("sine") + "{-# dialect_resources: { builtin: { } } #-}"
    with pytest.raises(ValueError, match="t_hlo::resources: its StableHLO is refused"):
        stablehlo_op("t_hlo::resources", resources, shapes=_same)(x)


DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:.*quantize")
def test_tensor_type(dtype):
    """It has all dtypes that the device has."""
    x = torch.empty(2, 3, dtype=dtype, device="meta")
    try:
        d = torch.empty(2, 3, dtype=dtype, device=DEVICE)
    except (TypeError, NotImplementedError):
        with pytest.raises(TypeError, match=f"XLA devices have no dtype {dtype}"):
            tensor_type(x)
        return
    t = tensor_type(x)
    text = f"func.func @main(%x: {t}) -> {t} {{ return %x : {t} }}"
    result = stablehlo_op("t_hlo::of_type", text, shapes=_same)(d)
    assert (result.cpu().dtype, result.shape) == (dtype, d.shape)


def test_the_readmes_example(capsys):
    readme = Path(__file__).parents[2] / "README.md"
    blocks = readme.read_text().split("```python\n")[1:]
    (example,) = (b.split("```")[0] for b in blocks if "stablehlo_op(" in b)
    exec(example, {})
    assert capsys.readouterr().out == "tensor([3., 3.], device='xla:0')\n"


def test_needs_a_schema():
    with pytest.raises(ValueError, match="annotation"):
        stablehlo_op("t_hlo::bare", "", shapes=lambda x: x)


# --- FFI

SOURCE = r"""
#include <algorithm>
#include <string>
#include <thread>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;

ffi::Error Axpy(ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> y, double alpha,
                ffi::ResultBuffer<ffi::F32> out) {
  if (alpha < 0) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      "alpha is " + std::to_string(static_cast<int>(alpha)));
  }
  for (size_t i = 0; i < x.element_count(); ++i) {
    out->typed_data()[i] = static_cast<float>(alpha) * x.typed_data()[i] + y.typed_data()[i];
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(AxpyHandler, Axpy,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Attr<double>("alpha")
                                  .Ret<ffi::Buffer<ffi::F32>>());

// The sum, and how many there are, as a text says.
ffi::Error Stats(ffi::AnyBuffer x, std::string_view kind, bool square, int64_t shift, float extra,
                 ffi::Span<const int64_t> dims, ffi::ResultBuffer<ffi::F64> sum,
                 ffi::ResultBuffer<ffi::S64> count) {
  double total = 0;
  for (size_t i = 0; i < x.element_count(); ++i) {
    double v = x.typed_data<float>()[i];
    total += square ? v * v : v;
  }
  sum->typed_data()[0] = kind == "mean" ? total / x.element_count() : total;
  sum->typed_data()[0] += extra;
  count->typed_data()[0] = x.dimensions().size() * 1000 + dims.size() * 100 + shift;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(StatsHandler, Stats,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Attr<std::string_view>("kind")
                                  .Attr<bool>("square")
                                  .Attr<int64_t>("shift")
                                  .Attr<float>("extra")
                                  .Attr<ffi::Span<const int64_t>>("dims")
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::S64>>());

// What kind of attribute "values" is, how many tensors, attributes and values there are, and these.
ffi::Error Show(ffi::RemainingArgs tensors, ffi::Dictionary attributes,
                ffi::ResultBuffer<ffi::F64> out) {
  double* to = out->typed_data();
  std::fill(to, to + 6, 0);
  to[1] = tensors.size();
  to[2] = attributes.size();
  auto put = [&](int kind, const auto* values, size_t size) {
    to[0] = kind;
    to[3] = size;
    for (size_t i = 0; i < size && i < 2; ++i) to[4 + i] = values[i];
  };
  auto scalar = [&](int kind, auto value) {
    if (value.has_value()) put(kind, &*value, 1);
  };
  auto array = [&](int kind, auto value) {
    if (value.has_value()) put(kind, value->begin(), value->size());
  };
  array(1, attributes.get<ffi::Span<const int64_t>>("values"));
  array(2, attributes.get<ffi::Span<const double>>("values"));
  scalar(3, attributes.get<int64_t>("values"));
  scalar(4, attributes.get<double>("values"));
  scalar(5, attributes.get<bool>("values"));
  scalar(6, attributes.get<int32_t>("values"));
  scalar(7, attributes.get<float>("values"));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    ShowHandler, Show, ffi::Ffi::Bind().RemainingArgs().Attrs().Ret<ffi::Buffer<ffi::F64>>());

template <int factor>
ffi::Error Scale(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out) {
  for (size_t i = 0; i < x.element_count(); ++i) out->typed_data()[i] = factor * x.typed_data()[i];
  return ffi::Error::Success();
}
// Goes on after it has returned.
ffi::Future Later(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([=]() mutable {
    Scale<4>(x, out);
    promise.SetAvailable();
  }).detach();
  return future;
}
auto OneToOne() {
  return ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(TwiceHandler, Scale<2>, OneToOne());
XLA_FFI_DEFINE_HANDLER_SYMBOL(ThriceHandler, Scale<3>, OneToOne());
XLA_FFI_DEFINE_HANDLER_SYMBOL(LaterHandler, Later, OneToOne());
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Compiled against the headers that jaxlib brings."""
    import jaxlib

    folder = tmp_path_factory.mktemp("ffi")
    source, library = folder / "handlers.cc", folder / "handlers.so"
    source.write_text(SOURCE)
    include = Path(jaxlib.__file__).parent / "include"
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True, timeout=300)
    return library


def _axpy(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.empty_like(x)


def test_ffi(library):
    axpy = ffi_op("t_ffi::axpy", library=library, symbol="AxpyHandler", shapes=_axpy)
    axpy.register_autograd(
        lambda ctx, g: (g * ctx.alpha, g, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "alpha", inputs[2]),
    )
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    dx, dy = x.to(DEVICE).requires_grad_(), y.to(DEVICE)
    before = host_runs()
    out = axpy(dx.sin(), dy.t().contiguous().t(), 2.0) + axpy(dx, dy, 0.5)
    out.sum().backward()
    torch_xla.sync()
    assert_same(out, x.sin() * 2 + y + x * 0.5 + y)
    assert_same(dx.grad, 2 * x.cos() + 0.5)
    assert_same(torch.ops.t_ffi.axpy(dx[1:], dy[1:], 1.0), x[1:] + y[1:])
    assert host_runs() == before

    # What the handler says is an error of the execution, and the next one is fine.
    with pytest.raises(RuntimeError, match=r"alpha is -1[\s\S]*computing t_ffi::axpy"):
        axpy(dx, dy, -1.0).cpu()
    assert_same(axpy(dx, dy, 1.0), x + y)


def test_ffi_attributes(library):
    def shapes(
        x: Tensor, kind: str, square: bool = False, shift: int = 0, dims: list[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        return x.new_empty((), dtype=torch.float64), x.new_empty((), dtype=torch.int64)

    stats = ffi_op(
        "t_ffi::stats",
        library=library,
        symbol="StatsHandler",
        shapes=shapes,
        attributes={"extra": np.float32(0.5)},
    )
    x = torch.arange(6.0).view(2, 3)
    d = x.to(DEVICE)
    total, count = stats(d, "mean", dims=[1, 2, 3])
    assert_same(total, torch.tensor(3.0, dtype=torch.float64))
    assert_same(count, torch.tensor(2300))
    total, count = stats(d, "sum", True, 7, dims=[4])
    assert_same(total, torch.tensor(55.5, dtype=torch.float64))
    assert_same(count, torch.tensor(2107))


def test_ffi_that_is_not_there(library, tmp_path):
    with pytest.raises(OSError, match=r"none\.so"):
        ffi_op("t_ffi::none", library=tmp_path / "none.so", symbol="X", shapes=_axpy)
    with pytest.raises(ValueError, match=r"t_ffi::none: .* has no symbol Missing"):
        ffi_op("t_ffi::none", library=library, symbol="Missing", shapes=_axpy)


def test_ffi_that_goes_on_after_it_has_returned(library):
    later = ffi_op("t_ffi::later", library=library, symbol="LaterHandler", shapes=_same)
    x = torch.randn(5)
    assert_same(later(later(x.to(DEVICE))), x * 16)


def test_ffi_defined_again(library, tmp_path):
    x = torch.randn(5)
    d = x.to(DEVICE)
    twice = ffi_op("t_ffi::scale", library=library, symbol="TwiceHandler", shapes=_same)
    first = twice(d)
    thrice = ffi_op("t_ffi::scale", library=library, symbol="ThriceHandler", shapes=_same)
    second = thrice(d)
    assert_same(first, x * 2)  # recorded before, run after
    assert_same(second, x * 3)
    # Built anew: the same symbol at another address.
    copy = tmp_path / library.name
    shutil.copy(library, copy)
    again = ffi_op("t_ffi::scale", library=copy, symbol="ThriceHandler", shapes=_same)
    assert_same(again(d), x * 3)
    back = ffi_op("t_ffi::scale", library=library, symbol="TwiceHandler", shapes=_same)
    assert_same(back(d), x * 2)


def _show(x: Tensor) -> Tensor:
    return x.new_empty(6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "kind", "values"),
    [
        (3, 3, [3]),
        (-(2**63), 3, [-(2**63)]),
        (2.5, 4, [2.5]),
        (float("inf"), 4, [float("inf")]),
        (float("nan"), 4, [float("nan")]),
        (-0.0, 4, [-0.0]),
        (True, 5, [1]),
        (np.bool_(True), 5, [1]),
        (np.int32(3), 6, [3]),
        (np.float32(2.5), 7, [2.5]),
        (np.int8(3), 3, [3]),
        (np.float16(2.5), 4, [2.5]),
        (np.float64(2.5), 4, [2.5]),
        ([1, 2], 1, [1, 2]),
        ((1, 2.5), 2, [1, 2.5]),
        ([np.int64(1), np.float32(2.5)], 2, [1, 2.5]),
        (torch.Size([3, 4]), 1, [3, 4]),
        ([], 1, []),
        (np.array([1, 2]), 1, [1, 2]),
        (np.array([1, 2], np.int32), 1, [1, 2]),
        (np.array([1, 2.5], np.float32), 2, [1, 2.5]),
        (np.array([], np.float64), 2, []),
        (np.array(7), 3, [7]),
    ],
    ids=repr,
)
def test_ffi_attribute_values(library, value, kind, values):
    op = ffi_op(
        "t_ffi::show",
        library=library,
        symbol="ShowHandler",
        shapes=_show,
        attributes={"values": value},
    )
    want = [kind, 1, 1, len(values), *values, 0, 0][:6]
    assert_same(op(torch.ones(2, device=DEVICE)), torch.tensor(want, dtype=torch.float64))


def test_ffi_attributes_are_what_the_schema_says(library):
    def shapes(x: Tensor, ys: list[Tensor], values: list[float], z: Tensor | None = None) -> Tensor:
        return _show(x)

    op = ffi_op("t_ffi::show_list", library=library, symbol="ShowHandler", shapes=shapes)
    x = torch.ones(2, device=DEVICE)
    for ys, values in [([], []), ([x, x], [1.0]), ([], [1, 2]), ([x], [])]:
        want = [2, 1 + len(ys), 1, len(values), *values, 0, 0][:6]
        assert_same(op(x, ys, values), torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("", 1, ValueError, "must have a name"),
        ("torch_xla.handler", "x", ValueError, "does not begin with torch_xla."),
        (3, 1, TypeError, "must have a string as its name"),
        ("a", 2**63, ValueError, "9223372036854775808.* more than 64 bits"),
        ("a", -(2**63) - 1, ValueError, "more than 64 bits"),
        ("a", [1, 2**63], ValueError, "more than 64 bits"),
        ("a", np.uint64(2**63), ValueError, "more than 64 bits"),
        ("a", b"x", TypeError, "cannot be b'x'"),
        ("a", {"b": 1}, TypeError, "cannot be {'b': 1}"),
        ("a", None, TypeError, "cannot be None"),
        ("a", 1j, TypeError, "cannot be 1j"),
        ("a", ["x"], TypeError, "cannot be"),
        ("a", [[1]], TypeError, "cannot be"),
        ("a", np.ones((2, 2)), TypeError, "cannot be"),
        ("a", np.array(["x"]), TypeError, "cannot be"),
        ("a", torch.ones(1), TypeError, "cannot be"),
        ("a", torch.float32, TypeError, "cannot be torch.float32"),
    ],
    ids=repr,
)
def test_wrong_ffi_attributes(library, name, value, error, message):
    start = re.escape(f"t_ffi::wrong: the FFI attribute {name!r} ")
    with pytest.raises(error, match=f"{start}(.|\n)*{message}"):
        ffi_op(
            "t_ffi::wrong",
            library=library,
            symbol="ShowHandler",
            shapes=_show,
            attributes={name: value},
        )


def test_wrong_ffi_arguments(library):
    def shapes(x: Tensor, kind: torch.dtype) -> Tensor:
        return _show(x)

    op = ffi_op("t_ffi::dtype", library=library, symbol="ShowHandler", shapes=shapes)
    with pytest.raises(
        TypeError, match=r"t_ffi::dtype: the FFI attribute 'kind' cannot be torch\."
    ):
        op(torch.ones(2, device=DEVICE), torch.float64)
