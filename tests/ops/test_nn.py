"""Convolution, normalisation, pooling, padding, resampling and attention against the CPU."""

import pytest
import torch
import torch.nn.functional as F

from .oracle import check, check_error, floats, host_runs, to_xla

CONVOLUTIONS = {
    "1d": (F.conv1d, (2, 4, 9), (6, 4, 3), {}),
    "1d_all": (
        F.conv1d,
        (2, 4, 9),
        (6, 2, 3),
        {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
    ),
    "2d": (F.conv2d, (2, 3, 8, 7), (5, 3, 3, 2), {}),
    "2d_same": (F.conv2d, (2, 3, 8, 7), (5, 3, 3, 5), {"padding": "same"}),
    "2d_stride": (F.conv2d, (2, 3, 8, 7), (5, 3, 3, 2), {"stride": (3, 2), "padding": (1, 0)}),
    "2d_dilation": (F.conv2d, (2, 3, 9, 9), (4, 3, 3, 3), {"dilation": (2, 3), "padding": 2}),
    "2d_depthwise": (F.conv2d, (2, 4, 8, 7), (8, 1, 3, 3), {"groups": 4, "padding": 1}),
    "2d_1x1": (F.conv2d, (2, 3, 4, 4), (5, 3, 1, 1), {}),
    "2d_unbatched": (F.conv2d, (3, 8, 7), (5, 3, 3, 3), {}),
    "3d": (F.conv3d, (2, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"stride": 2, "padding": 1}),
    "transposed_1d": (F.conv_transpose1d, (2, 4, 5), (4, 3, 3), {"stride": 2, "output_padding": 1}),
    "transposed_2d": (F.conv_transpose2d, (2, 4, 5, 4), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "transposed_groups": (
        F.conv_transpose2d,
        (2, 4, 5, 4),
        (4, 3, 3, 2),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 2},
    ),
    "transposed_3d": (F.conv_transpose3d, (1, 2, 3, 4, 3), (2, 3, 2, 2, 2), {"stride": 2}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name):
    fn, x, w, options = CONVOLUTIONS[name]
    channels = w[1] * options.get("groups", 1) if "transposed" in name else w[0]
    check(
        lambda *a: fn(*a, **options), floats(*x), floats(*w), floats(channels), rtol=1e-4, atol=1e-4
    )


def test_convolution_without_bias_or_batch():
    check(F.conv2d, floats(2, 3, 5, 5), floats(4, 3, 3, 3), rtol=1e-4, atol=1e-4)
    check(F.conv2d, torch.zeros(0, 3, 5, 5), floats(4, 3, 3, 3), floats(4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_convolution_types(dtype):
    args = floats(2, 4, 6, 6, dtype=dtype), floats(4, 2, 3, 3, dtype=dtype), floats(4, dtype=dtype)
    tolerance = {"rtol": 3e-2, "atol": 1e-1} if dtype == torch.bfloat16 else {}
    check(lambda *a: F.conv2d(*a, padding=1, groups=2), *args, **tolerance)


@pytest.mark.parametrize("mask", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)])
def test_convolution_of_which_some_need_gradients(mask):
    def fn(*args):
        args = [a if m else a.detach() for a, m in zip(args, mask, strict=True)]
        return F.conv2d(*args)

    check(fn, floats(2, 3, 5, 5), floats(4, 3, 3, 3), floats(4), rtol=1e-4, atol=1e-4)


# ---- Normalisation.


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(shape, training, affine):
    def fn(x, w, b, mean, var):
        mean, var = mean.detach().clone(), var.detach().clone()
        w, b = (w, b) if affine else (None, None)
        y = F.batch_norm(x, mean, var, w, b, training, momentum=0.3, eps=1e-3)
        return y, mean, var

    check(
        fn,
        floats(*shape),
        floats(3),
        floats(3),
        floats(3),
        floats(3, low=0.5),
        rtol=1e-4,
        atol=1e-4,
    )


def test_batch_norm_without_statistics():
    check(
        lambda x: F.batch_norm(x, None, None, training=True), floats(4, 3, 5), rtol=1e-4, atol=1e-4
    )
    check(F.instance_norm, floats(4, 3, 5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_module_keeps_running_statistics(momentum):
    cpu = torch.nn.BatchNorm2d(3, momentum=momentum)
    xla = torch.nn.BatchNorm2d(3, momentum=momentum).to("xla:0")
    for i in range(3):
        x = floats(4, 3, 2, 2) * (i + 1)
        torch.testing.assert_close(
            xla(to_xla(x)).detach().cpu(), cpu(x).detach(), rtol=1e-4, atol=1e-4
        )
    for a, b in zip(xla.buffers(), cpu.buffers(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(n, affine):
    x = floats(3, 4, 5)
    shape = x.shape[-n:]
    check(
        lambda x, w, b: F.layer_norm(x, shape, *((w, b) if affine else ()), eps=1e-3),
        x,
        floats(*shape),
        floats(*shape),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 3, 4)])
def test_group_norm(shape):
    check(
        lambda x, w, b: F.group_norm(x, 3, w, b),
        floats(*shape),
        floats(6),
        floats(6),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("parameters", [torch.bfloat16, torch.float32])
def test_half_norms(parameters):
    x = floats(4, 8, 6, dtype=torch.bfloat16)
    w, b = floats(8, dtype=parameters), floats(8, dtype=parameters)
    loose = {"rtol": 3e-2, "atol": 5e-2}
    check(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, b, **loose)
    check(lambda x, w, b: F.layer_norm(x.mT, (8,), w, b), x, w, b, **loose)
    # PyTorch's meta kernel of the gradient of mixed types disagrees with its CPU kernel.
    check(lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b, grad=parameters == x.dtype, **loose)


# ---- Pooling.

POOLS = {
    "max1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "max2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 8, 9)),
    "max2d_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (2, 3, 8, 9)),
    "max2d_ceil": (lambda x: F.max_pool2d(x, (3, 2), ceil_mode=True), (2, 3, 8, 9)),
    "max2d_dilation": (lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), (3, 8, 9)),
    "max3d": (lambda x: F.max_pool3d(x, 2, 2, 1, return_indices=True), (2, 3, 4, 5, 6)),
    "avg1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "avg2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 8, 9)),
    "avg2d_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (3, 8, 8)),
    "avg2d_exclude": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 8, 8)),
    "avg2d_divisor": (lambda x: F.avg_pool2d(x, 3, divisor_override=5), (2, 3, 8, 9)),
    "avg3d": (lambda x: F.avg_pool3d(x, 2, 2, 1), (2, 3, 4, 5, 6)),
    "adaptive_avg1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 9)),
    "adaptive_avg2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (2, 3, 8, 9)),
    "adaptive_avg2d_divides": (lambda x: F.adaptive_avg_pool2d(x, (4, 1)), (2, 3, 8, 9)),
    "adaptive_avg2d_grows": (lambda x: F.adaptive_avg_pool2d(x, 7), (3, 4, 5)),
    "adaptive_avg3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (2, 3, 4, 5, 6)),
    "adaptive_max1d": (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), (2, 3, 9)),
    "adaptive_max2d": (lambda x: F.adaptive_max_pool2d(x, (3, 5), True), (2, 3, 8, 9)),
    "adaptive_max3d": (lambda x: F.adaptive_max_pool3d(x, 2, True), (2, 3, 4, 5, 6)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pool(name):
    fn, shape = POOLS[name]
    check(fn, floats(*shape))


@pytest.mark.parametrize("name", [n for n in POOLS if "max" in n])
def test_pool_ties_and_nan(name):
    fn, shape = POOLS[name]
    check(fn, floats(*shape).round().clamp(-1, 1))
    x = floats(*shape)
    x.view(-1)[::7] = torch.nan
    x.view(-1)[3::11] = -torch.inf
    check(fn, x)


@pytest.mark.parametrize("name", ["max2d", "avg2d", "adaptive_avg2d", "avg2d_exclude"])
def test_half_pool(name):
    fn, shape = POOLS[name]
    check(fn, floats(*shape, dtype=torch.bfloat16))


# ---- Padding, blocks, resampling.

PADS = {
    "constant": ((1, 2, 0, 3), "constant", (2, 3, 4)),
    "constant_negative": ((1, -2, -1, 3), "constant", (2, 3, 4)),
    "reflect1d": ((1, 2), "reflect", (2, 3, 4)),
    "reflect2d": ((1, 2, 2, 0), "reflect", (2, 3, 4, 5)),
    "reflect3d": ((1, 0, 2, 1, 1, 1), "reflect", (1, 2, 3, 4, 5)),
    "replicate1d": ((1, 5), "replicate", (2, 3, 4)),
    "replicate2d": ((1, 2, 5, 0), "replicate", (3, 4, 5)),
    "replicate3d": ((1, 0, 2, 1, 1, 1), "replicate", (1, 2, 3, 4, 5)),
    "circular": ((1, 2, 2, 0), "circular", (2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", PADS)
def test_pad(name):
    pad, mode, shape = PADS[name]
    check(
        lambda x: F.pad(x, pad, mode, **({"value": 2.5} if mode == "constant" else {})),
        floats(*shape),
    )


BLOCKS = {
    "unfold": (lambda x: F.unfold(x, (3, 2), 2, 1, (2, 1)), (2, 3, 8, 7)),
    "unfold_unbatched": (lambda x: F.unfold(x, 2), (3, 4, 5)),
    "fold": (lambda x: F.fold(x, (6, 5), (3, 2), padding=1, stride=2), (2, 12, 9)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 8, 3, 2)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 2, 4, 6)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 3), (2, 6, 3, 2)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name):
    fn, shape = BLOCKS[name]
    check(fn, floats(*shape))


RESAMPLED = [
    ("nearest", (2, 3, 5), {"size": 9}),
    ("nearest", (2, 3, 4, 5), {"scale_factor": 2}),
    ("nearest", (2, 3, 4, 5), {"size": (3, 7)}),
    ("nearest", (1, 2, 3, 4, 2), {"size": (4, 6, 3)}),
    ("nearest-exact", (2, 3, 4, 5), {"size": (3, 7)}),
    ("linear", (2, 3, 5), {"size": 9, "align_corners": True}),
    ("bilinear", (2, 3, 4, 5), {"scale_factor": 2}),
    ("bilinear", (2, 3, 4, 5), {"scale_factor": 1.7}),
    ("bilinear", (2, 3, 4, 5), {"size": (7, 3), "align_corners": True}),
    ("trilinear", (1, 2, 3, 4, 2), {"size": (4, 6, 3)}),
    ("bicubic", (2, 3, 4, 5), {"size": (7, 4)}),
]


@pytest.mark.parametrize(("mode", "shape", "options"), RESAMPLED)
def test_interpolate(mode, shape, options):
    check(lambda x: F.interpolate(x, mode=mode, **options), floats(*shape), rtol=1e-4, atol=1e-4)


# ---- Attention.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention(causal, mask):
    if causal and mask:
        pytest.skip("PyTorch takes one of them")
    q, k, v = floats(2, 3, 5, 4), floats(2, 3, 6, 4), floats(2, 3, 6, 8)
    m = {None: None, "bool": floats(5, 6) > -1, "float": floats(5, 6)}[mask]
    check(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, is_causal=causal),
        q,
        k,
        v,
        m,
        rtol=1e-4,
        atol=1e-4,
    )


def test_attention_with_dropout_keeps_shape():
    q = to_xla(floats(2, 3, 5, 4))
    y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert y.shape == q.shape and torch.isfinite(y).all()


@pytest.mark.parametrize("padded", [True, False])
def test_transformer_layer_in_evaluation(padded):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = floats(3, 5, 8)
    mask = torch.arange(5) >= torch.tensor([[5], [3], [4]]) if padded else None
    with torch.no_grad():
        want = encoder(x, src_key_padding_mask=mask)
        before = host_runs()
        got = encoder.to("xla:0")(
            to_xla(x), src_key_padding_mask=mask if mask is None else to_xla(mask)
        )
        kept = slice(None) if mask is None else ~mask
        torch.testing.assert_close(got.cpu()[kept], want[kept], rtol=1e-4, atol=1e-5)
    assert host_runs() == before


# ---- Errors.

ERRORS = {
    "conv_channels": lambda x: F.conv2d(x, x.new_ones(2, 4, 3, 3)),
    "conv_groups": lambda x: F.conv2d(x, x.new_ones(4, 1, 3, 3), groups=2),
    "conv_kernel_too_large": lambda x: F.conv2d(x, x.new_ones(2, 3, 9, 9)),
    "layer_norm_shape": lambda x: F.layer_norm(x, (7,)),
    "group_norm_groups": lambda x: F.group_norm(x, 2),
    "max_pool_padding": lambda x: F.max_pool2d(x, 2, padding=2),
    "max_pool_too_large": lambda x: F.max_pool2d(x, 9),
    "avg_pool_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=0),
    "max_pool_empty": lambda x: F.max_pool2d(x[:, :0], 2),
    "adaptive_negative": lambda x: F.adaptive_max_pool2d(x, (-1, 2)),
    "adaptive_rank": lambda x: F.adaptive_avg_pool2d(x[0, 0], 2),
    "reflect_too_large": lambda x: F.pad(x, (9, 0, 0, 0), "reflect"),
    "pad_negative": lambda x: F.pad(x, (-9, 0)),
    "pad_both": lambda x: F.pad(x, (2, -9)),
    "fold_blocks": lambda x: F.fold(x[0], (9, 9), 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "interpolate": lambda x: torch.ops.aten.upsample_nearest2d(x, [0, 4]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check_error(ERRORS[name], floats(2, 3, 4, 5))
