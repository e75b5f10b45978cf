"""An independent MLIR parses and verifies what the constructors print."""

import pytest

pytest.importorskip("jaxlib", reason="pip install jaxlib: its MLIR is the second opinion")

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import stablehlo

OLDEST = "1.13.0"  # the StableHLO of the default plugin


@pytest.fixture(scope="module")
def context():
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    with context, ir.Location.unknown():
        yield context


def test_every_module_verifies(context, modules):
    assert len(modules) > 1500
    refused = {}
    for name, text in modules.items():
        try:
            module = ir.Module.parse(text)
            assert module.operation.verify()
        except ir.MLIRError as error:
            refused[name] = str(error)
    assert refused == {}


def test_a_wrong_module_is_refused(context, modules):
    text = modules["add/f32"].replace("-> tensor<2x3xf32>\n", "-> tensor<2x4xf32>\n")
    assert text != modules["add/f32"]
    with pytest.raises(ir.MLIRError):
        ir.Module.parse(text)


def test_every_operation_is_in_the_oldest_version(context, modules):
    refused = {}
    for name, text in modules.items():
        try:
            stablehlo.serialize_portable_artifact_str(text, OLDEST)
        except ValueError as error:
            refused[name] = str(error)
    assert refused == {}


def test_locations(context, modules):
    module = ir.Module.parse(modules["parameters"])
    main = module.body.operations[0]
    located = {op.operation.name: str(op.location) for op in main.regions[0].blocks[0]}
    assert located["stablehlo.reduce"] == 'loc("train.py":13:0)'
    assert located["stablehlo.add"] == r'loc("aten::add"("dir \22x\22/\C3\A9\\train.py":12:0))'


def test_donation(context, modules):
    main = ir.Module.parse(modules["parameters"]).body.operations[0]
    attributes = [str(a) for a in main.attributes["arg_attrs"]]
    assert attributes == ["{jax.buffer_donor = true}", "{tf.aliasing_output = 0 : i32}", "{}"]
