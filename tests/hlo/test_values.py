"""The printed modules compute, on JAX's CPU backend, what NumPy computes."""

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="pip install jax: its CPU backend runs the modules")
from jaxlib import xla_client  # noqa: E402

DTYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}


def make_input(rng, dims, dtype):
    if dtype == np.bool_:
        return rng.random(dims) < 0.5
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 6, dims).astype(dtype)  # small: in range as shifts and indices too
    if np.issubdtype(dtype, np.complexfloating):
        return (rng.random(dims) + 1j * rng.random(dims)).astype(dtype)
    return np.asarray(rng.random(dims) * 0.8 + 0.1, dtype)


def make_inputs(text):
    signature = text[text.index("@main(") : text.index(") -> (")]
    rng = np.random.default_rng(0)
    inputs = []
    for dims, element in re.findall(r"tensor<((?:\d+x)*)(complex<\w+>|\w+)>", signature):
        shape = tuple(int(d) for d in dims.split("x")[:-1])
        inputs.append(make_input(rng, shape, DTYPES[element]))
    return inputs


@pytest.fixture(scope="module")
def run():
    with jax.enable_x64(True):
        device = jax.devices("cpu")[0]

        def run(text, inputs):
            program = device.client.compile_and_load(
                text, xla_client.DeviceList((device,)), xla_client.CompileOptions()
            )
            results = program.execute_sharded([jax.device_put(x, device) for x in inputs])
            return [np.asarray(r[0]) for r in results.disassemble_into_single_device_arrays()]

        yield run


def windows(x, size):
    return np.lib.stride_tricks.sliding_window_view(x, size)


def reduce_window_max(x):
    padded = np.pad(x, ((1, 1), (0, 0)), constant_values=-np.inf)
    return windows(padded, (3, 3))[::2, :, :, ::2].max((-2, -1))


def pad(x, value):
    out = np.full((8, 3), value)  # rows: 1 + 3 + 2 in between + 2; columns: one cut off
    out[1:7:2] = x[:, 1:]
    return out


def scatter_add(x, i, update):
    out = x.copy()
    np.add.at(out, i[:, 0], update)
    return out


def select_and_scatter(x, source):
    out = np.zeros_like(x)
    for r in range(2):
        for c in range(2):
            window = x[2 * r : 2 * r + 2, 2 * c : 2 * c + 2]
            at = np.unravel_index(window.argmax(), (2, 2))
            out[2 * r + at[0], 2 * c + at[1]] += source[r, c]
    return out


def correlate(x, w):
    """[n, i, x] and [o, i, k] -> [n, o, x - k + 1]"""
    return np.einsum("nixabk,oik->nox", windows(x, (1, 1, w.shape[2])), w)


def whole_loop(x):
    while x.sum(dtype=np.float32) < 50:
        x = x if x.max() > 100 else x + x
    return x


def halves(z):
    with np.errstate(over="ignore"):
        return z.view(np.float32).astype(np.float16).astype(np.float32).view(np.complex64)


# Name of a module -> what it means.
EXPECTED = {
    "add/f32": np.add,
    "add/i1": np.logical_or,
    "add/ui8": np.add,
    "add/complex<f64>": np.add,
    "subtract/ui16": np.subtract,
    "multiply/i1": np.logical_and,
    "multiply/complex<f32>": np.multiply,
    "divide/f64": np.divide,
    "divide/i32": lambda a, b: (a / b).astype(np.int32),
    "remainder/f32": np.fmod,
    "maximum/f32": np.maximum,
    "minimum/i64": np.minimum,
    "power/f64": np.power,
    "atan2/f32": np.arctan2,
    "and/i8": np.bitwise_and,
    "or/i1": np.logical_or,
    "xor/ui64": np.bitwise_xor,
    "shift_left/i32": np.left_shift,
    "shift_right_arithmetic/i16": np.right_shift,
    "shift_right_logical/ui32": np.right_shift,
    "complex/f64": lambda a, b: a + 1j * b,
    "eq/i32": np.equal,
    "ne/complex<f32>": np.not_equal,
    "lt/ui8": np.less,
    "le/f32": np.less_equal,
    "gt/i1": np.greater,
    "ge/f16": np.greater_equal,
    "negate/ui8": np.negative,
    "abs/complex<f64>": np.abs,
    "sign/f32": np.sign,
    "exponential/f64": np.exp,
    "exponential_minus_one/f32": np.expm1,
    "log/complex<f32>": np.log,
    "log_plus_one/f64": np.log1p,
    "sqrt/f16": np.sqrt,
    "rsqrt/f64": lambda x: 1 / np.sqrt(x),
    "cbrt/f64": np.cbrt,
    "tanh/f32": np.tanh,
    "logistic/f64": lambda x: 1 / (1 + np.exp(-x)),
    "sine/f64": np.sin,
    "cosine/f64": np.cos,
    "tan/f32": np.tan,
    "ceil/f32": np.ceil,
    "floor/f64": np.floor,
    "round_nearest_even/f32": np.rint,
    "round_nearest_afz/f32": lambda x: np.floor(x + np.float32(0.5)),
    "not/i1": np.logical_not,
    "not/ui8": np.invert,
    "popcnt/i32": np.bitwise_count,
    "count_leading_zeros/ui8": lambda x: np.asarray(8 - np.frexp(x)[1], np.uint8),
    "real/complex<f64>": np.real,
    "imag/complex<f32>": np.imag,
    "is_finite/f32": np.isfinite,
    "convert_to_i32/f64": lambda x: x.astype(np.int32),
    "convert_to_i1/i8": lambda x: x != 0,
    "convert_to_f32/i1": lambda x: x.astype(np.float32),
    "convert_to_complex<f32>/f32": lambda x: x.astype(np.complex64),
    "real/complex<f16>": lambda z: z.real.astype(np.float16),
    "abs/complex<f16>": lambda z: np.abs(z).astype(np.float16),
    "complex/f16": lambda a, b: a.astype(np.float32) + 1j * b.astype(np.float32),
    "round_to_halves": lambda z: [halves(z * 2.0**e) for e in (0, -14, -18, -24, 17)],
    "bitcast_1_to_i32/f32": lambda x: x.view(np.int32),
    "bitcast_4_to_f32/ui8": lambda x: x.view(np.float32)[:, 0],
    "bitcast_1_to_ui16/f32": lambda x: x.view(np.uint16).reshape(3, 1, 2),
    "select/f32": lambda p, s, x, y: [np.where(p, x, y), x if s else y],
    "clamp/i32": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "limits/i8": lambda: [-128, 127, -128, 127],
    "limits/ui64": lambda: [0, 2**64 - 1, 0, 2**64 - 1],
    "limits/i1": lambda: [False, True, False, True],
    "limits/f16": lambda: [-np.inf, np.inf, -np.inf, 65504],
    "limits/f32": lambda: [-np.inf, np.inf, -np.inf, np.finfo(np.float32).max],
    "scalar_int/ui64": lambda: [2**64 - 1, 100],
    "iota/i32": lambda: [np.array([[0, 1, 2]] * 2), np.zeros(0)],
    "full/f64": lambda: [np.ones((2, 3)), np.zeros((0, 2)), np.full((2, 3), 3)],
    "movement/f32": lambda x: [
        np.broadcast_to(x[..., None], (2, 4, 3, 5)),
        np.broadcast_to(x, (7, 2, 4, 3)),
        x.reshape(3, 2),
        x.transpose(2, 0, 1),
        x[::-1, :, ::-1],
    ],
    "transpose": lambda x: x.transpose(2, 0, 1),
    "broadcast": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "slice": lambda x: [x[1::2, ::3], x[:, 2:4], x[3:3]],
    "concatenate": lambda *xs: np.concatenate(xs, 1),
    "pad": pad,
    "reverse": lambda x: x[:, ::-1],
    "gather_rows": lambda x, i: x[i],
    "gather_batched": lambda x, i: np.take_along_axis(x, i, 1),
    "scatter_add_rows": scatter_add,
    "reduce_sum/f32": lambda x, e: [x.sum((0, 2)), x, e.sum(0)],
    "reduce_prod/f64": lambda x, e: [x.prod((0, 2)), x, e.prod(0)],
    "reduce_max/i32": lambda x, e: [x.max((0, 2)), x, [-(2**31)] * 2],
    "reduce_max/f32": lambda x, e: [x.max((0, 2)), x, [-np.inf] * 2],
    "reduce_min/ui8": lambda x, e: [x.min((0, 2)), x, [255] * 2],
    "reduce_min/i1": lambda x, e: [x.all((0, 2)), x, [True] * 2],
    "reduce_and/i64": lambda x, e: [np.bitwise_and.reduce(x, (0, 2)), x, [-1] * 2],
    "reduce_or/i1": lambda x, e: [x.any((0, 2)), x, [False] * 2],
    "reduce_window_max": reduce_window_max,
    "cumsum": lambda x: x.cumsum(1),
    "argmax": lambda x: [x.max(1), x.argmax(1)],
    "argmax_window": lambda x: [
        windows(x, (1, 2)).max((-2, -1)),
        windows(x, (1, 2))[..., 0, :].argmax(-1) + np.arange(4),
    ],
    "scalar_window": lambda x: x,
    "select_and_scatter": select_and_scatter,
    "sort": lambda x: [np.sort(x, 1), x.argsort(1, kind="stable")],
    "dot/f64": lambda x, y: x @ y,
    "dot/i32": lambda x, y: x @ y,
    "dot_outer": np.outer,
    "convolution_weight_gradient": lambda x, w: correlate(
        x.transpose(1, 0, 2), w.transpose(1, 0, 2)
    ).transpose(1, 0, 2),
    "convolution_batch_groups": lambda x, w: np.concatenate(
        [correlate(x[:2], w[:3]), correlate(x[2:], w[3:])], 1
    ),
    "convolution_pointless": lambda x, w: x @ w.T,
    "while": lambda x, step: [5, x + 5 * step],
    "if": lambda x: [-x, x] if x.sum() > 0 else [x, np.ones(3)],
    "nested": whole_loop,
    "optimization_barrier": lambda x, p: [x, p],
    "triangular_solve/f64": lambda a, x, y: [
        np.linalg.solve(np.tril(a), x),
        # z a^T = y with the upper triangle and ones on the diagonal
        np.linalg.solve(np.triu(a, 1) + np.eye(3), y.mT).mT,
    ],
    "fft/f32": lambda x: np.fft.rfft2(x),
    "fft/complex<f64>": lambda x: [np.fft.fft(x), np.fft.ifftn(x), np.fft.irfft(x, 10)],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_value(name, modules, run):
    inputs = make_inputs(modules[name])
    expected = EXPECTED[name](*inputs)
    results = run(modules[name], inputs)
    if not isinstance(expected, list):
        expected = [expected]
    assert len(results) == len(expected)
    for got, want in zip(results, expected, strict=True):
        tolerance = 2e-3 if got.dtype == np.float16 else 2e-5 if got.dtype.itemsize <= 8 else 1e-10
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_indices_out_of_range_are_clamped(modules, run):
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    text = modules["dynamic_slice"]  # the second start is 9
    got = run(text, [x, np.int32(7), np.full((2, 2), -1, np.float32)])
    want = x.copy()
    want[3:, 2:] = -1
    np.testing.assert_array_equal(got[0], x[3:5, 1:4])
    np.testing.assert_array_equal(got[1], want)


def test_scatter_skips_indices_out_of_range(modules, run):
    x = np.zeros((6, 4), np.float32)
    got = run(modules["scatter_add_rows"], [x, np.int32([[1], [6], [1]]), np.ones((3, 4), "f4")])
    x[1] = 2
    np.testing.assert_array_equal(got[0], x)


def test_scatter_by_batch(modules, run):
    x = np.zeros((2, 6), np.float32)
    i = np.int32([[0, 2, 4], [1, 3, 5]])  # sorted and unique, as the module promises
    update = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = run(modules["scatter_batched"], [x, i, update])
    np.put_along_axis(x, i, update, 1)
    np.testing.assert_array_equal(got[0], x)


def test_maximum_and_minimum_keep_nan(modules, run):
    x = np.float32([[1, np.nan, 3], [np.nan, 0, -np.inf]])
    y = np.float32([[np.nan, 1, 2], [np.nan, 1, np.nan]])
    np.testing.assert_array_equal(run(modules["maximum/f32"], [x, y])[0], np.maximum(x, y))
    np.testing.assert_array_equal(run(modules["minimum/f32"], [x, y])[0], np.minimum(x, y))
    x = np.zeros((2, 3, 4), np.float32)
    x[0, 1, 2] = np.nan
    for name in ("reduce_max/f32", "reduce_min/f32"):
        got = run(modules[name], [x, np.zeros((0, 2), np.float32)])[0]
        np.testing.assert_array_equal(got, [0, np.nan, 0])


def test_special_floats_keep_their_bits(modules, run):
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38, 0.1, 1], np.float32)
    *scalars, whole = run(modules["constant_special/f32"], [])
    np.testing.assert_array_equal(np.stack(scalars).view(np.uint32), values.view(np.uint32))
    np.testing.assert_array_equal(whole.view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_keep_their_bits(dtype, modules, run):
    t = np.dtype(DTYPES[dtype])
    i = np.arange(64 * t.itemsize)
    data = (i % 3 == 0) if dtype == "i1" else (i * 37 + 11)
    data = data.astype(np.uint8)
    want = [
        data.reshape(8, -1),
        data[: 6 * t.itemsize].reshape(2, -1),
        np.tile(data[: t.itemsize], (3, 2)),
        data[: t.itemsize],
        data[:0],
    ]
    for got, bytes_ in zip(run(modules[f"constant/{dtype}"], []), want, strict=True):
        assert got.dtype == t
        assert got.tobytes() == bytes_.tobytes()


def test_cholesky(modules, run):
    x = np.random.default_rng(0).random((2, 3, 3))
    x = x @ x.mT + np.eye(3)
    lower, upper = run(modules["cholesky/f64"], [x])
    np.testing.assert_allclose(np.tril(lower) @ np.tril(lower).mT, x)
    np.testing.assert_allclose(np.triu(upper).mT @ np.triu(upper), x)
