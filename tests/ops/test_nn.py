"""Convolution, normalisation, pooling, padding, resampling and attention against the CPU."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import torch_xla

from .oracle import check, check_error, floats, host_runs, ints, to_xla

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


@pytest.fixture(params=["highest", "high"])
def convolutions(request):
    """On the host the one is PyTorch's own kernel, the other what every device has."""
    torch_xla.backends.set_mat_mul_precision(request.param)
    yield
    torch_xla._XLAC._xla_set_mat_mul_precision(None)


@pytest.mark.usefixtures("convolutions")
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


@pytest.mark.usefixtures("convolutions")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_convolution_types(dtype):
    args = floats(2, 4, 6, 6, dtype=dtype), floats(4, 2, 3, 3, dtype=dtype), floats(4, dtype=dtype)
    tolerance = {"rtol": 3e-2, "atol": 1e-1} if dtype == torch.bfloat16 else {}
    check(lambda *a: F.conv2d(*a, padding=1, groups=2), *args, **tolerance)


@pytest.mark.usefixtures("convolutions")
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
    "lp1d": (lambda x: F.lp_pool1d(x.abs(), 2, 3, 2), (2, 3, 9)),
    "lp2d": (lambda x: F.lp_pool2d(x.abs(), 2, 3, 2, ceil_mode=True), (2, 3, 8, 9)),
    "lp3d": (lambda x: F.lp_pool3d(x.abs(), 2, 2), (2, 3, 4, 5, 6)),
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


FRACTIONAL = {
    "2d": (F.fractional_max_pool2d, (2, 3, 9, 10), {"kernel_size": 2, "output_size": (4, 5)}),
    "2d_ratio": (
        F.fractional_max_pool2d,
        (3, 9, 10),
        {"kernel_size": (3, 2), "output_ratio": (0.6, 0.5)},
    ),
    "2d_one": (F.fractional_max_pool2d, (2, 3, 5, 6), {"kernel_size": 3, "output_size": (1, 3)}),
    "3d": (F.fractional_max_pool3d, (2, 3, 5, 6, 7), {"kernel_size": 2, "output_size": (2, 3, 4)}),
}


@pytest.mark.parametrize("low", [0, -1])  # the caller's own samples may be negative
@pytest.mark.parametrize("name", FRACTIONAL)
def test_fractional_pool(name, low):
    fn, shape, options = FRACTIONAL[name]
    rank = 2 if name.startswith("2d") else 3
    samples = floats(shape[0] if len(shape) == rank + 2 else 1, 3, rank, low=low, high=low + 1)

    def run(x):
        drawn = samples.to(x.device)
        return fn(x, **options, _random_samples=drawn, return_indices=True)

    check(run, floats(*shape))
    x = floats(*shape).round()
    x.view(-1)[::7] = torch.nan
    check(run, x)


UNPOOLS = {
    "1d": (F.max_pool1d, F.max_unpool1d, (2, 3, 8)),
    "2d": (F.max_pool2d, F.max_unpool2d, (2, 3, 8, 6)),
    "2d_unbatched": (F.max_pool2d, F.max_unpool2d, (3, 8, 6)),
    "3d": (F.max_pool3d, F.max_unpool3d, (2, 3, 4, 6, 4)),
}


@pytest.mark.parametrize("name", UNPOOLS)
def test_unpool(name):
    pool, unpool, shape = UNPOOLS[name]
    check(lambda x: unpool(*pool(x, 2, return_indices=True), 2), floats(*shape))
    size = tuple(n + 1 for n in shape[-int(name[0]) :])
    check(lambda x: unpool(*pool(x, 2, return_indices=True), 2, output_size=size), floats(*shape))


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
    "reflect_negative": ((-1, 2, 2, -1), "reflect", (2, 3, 4, 5)),
    "circular1d": ((3, 4), "circular", (2, 3, 4)),
    "circular": ((1, 2, 2, 0), "circular", (2, 3, 4, 5)),
    "circular3d": ((1, 2, 2, 0, 1, 1), "circular", (1, 2, 3, 4, 5)),
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
    ("nearest-exact", (2, 3, 5), {"scale_factor": 1.7}),
    ("nearest-exact", (1, 2, 3, 4, 2), {"size": (4, 6, 3)}),
    ("area", (2, 3, 8, 9), {"size": (3, 4)}),
    ("bilinear", (2, 3, 9, 8), {"size": (4, 3), "antialias": True}),
    ("bilinear", (2, 3, 4, 5), {"size": (7, 9), "antialias": True}),
    ("bilinear", (2, 3, 19, 18), {"scale_factor": 0.3, "antialias": True}),
    ("bicubic", (2, 3, 9, 8), {"size": (4, 3), "antialias": True}),
    ("bicubic", (2, 3, 4, 5), {"size": (7, 9), "antialias": True, "align_corners": True}),
    ("lanczos", (2, 3, 9, 8), {"size": (4, 3), "antialias": True}),
]
if not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):  # before torch 2.13
    RESAMPLED = RESAMPLED[:-1]


@pytest.mark.parametrize(("mode", "shape", "options"), RESAMPLED)
def test_interpolate(mode, shape, options):
    check(lambda x: F.interpolate(x, mode=mode, **options), floats(*shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"antialias": True}])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolate_pixels(mode, options):
    # PyTorch's own kernels differ by 1 from each other.
    def resized(x, edges, **kwargs):
        return [F.interpolate(t, mode=mode, **options, **kwargs).int() for t in (x, edges)]

    x = ints(2, 3, 16, 12, dtype=torch.uint8, low=0, high=256)
    edges = 255 * ints(1, 1, 16, 12, dtype=torch.uint8, low=0, high=2)  # much overshoots
    for size in ((31, 40), (5, 7), (3, 40), (16, 30), (30, 12)):
        check(partial(resized, size=size), x, edges, atol=1)
    for factor in (0.7, (2.0, 0.5)):
        check(partial(resized, scale_factor=factor), x, edges, atol=1)
    check(partial(resized, size=(3, 3)), x[:, :, :1].clone(), edges[:, :, ::3].clone(), atol=1)


def test_interpolate_pixels_nearest():
    x = ints(2, 3, 6, 5, dtype=torch.uint8, low=0, high=256)
    check(
        lambda x: [F.interpolate(x, size=(9, 3), mode=m) for m in ("nearest", "nearest-exact")], x
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "bicubic", "trilinear"])
def test_interpolate_refuses_other_integers(mode):
    rank = {"nearest": 3, "linear": 3, "bicubic": 4, "trilinear": 5}[mode]
    for dtype in (torch.uint8, torch.int8, torch.int64, torch.bool):
        if dtype == torch.uint8 and mode in ("nearest", "bicubic"):
            continue
        x = ints(*(1, 1, 4, 4, 4)[:rank], dtype=dtype)
        check_error(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x)


# ---- Grids.


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding, align):
    def run(x, grid):
        return F.grid_sample(x, grid, mode, padding, align)

    # Far outside, too.
    close = {"rtol": 1e-3, "atol": 1e-4}
    check(run, floats(2, 3, 4, 5), floats(2, 3, 6, 2, low=-2, high=2), **close)
    check(run, floats(2, 3, 1, 5), floats(2, 3, 6, 2, low=-0.9, high=0.9), **close)
    if mode != "bicubic":
        check(run, floats(2, 3, 4, 5, 3), floats(2, 2, 3, 2, 3, low=-2, high=2), **close)


def test_spatial_transformer():
    def run(x, theta):
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    check(run, floats(2, 3, 5, 4), floats(2, 2, 3, low=-1, high=1), rtol=1e-3, atol=1e-4)
    check(
        lambda x, t: F.grid_sample(
            x, F.affine_grid(t, list(x.shape), align_corners=False), align_corners=False
        ),
        floats(1, 2, 3, 4, 5),
        floats(1, 3, 4, low=-1, high=1),
        rtol=1e-3,
        atol=1e-4,
    )


# ---- Other norms.

NORMS = {
    "local_response": (lambda x: F.local_response_norm(x, 3, 1e-2), (2, 5, 4, 3)),
    "rms": (lambda x: F.rms_norm(x, (4, 3), eps=1e-3), (2, 5, 4, 3)),
    "normalize": (lambda x: F.normalize(x, dim=1), (2, 5, 3)),
    "instance": (lambda x: F.instance_norm(x), (2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms(name):
    fn, shape = NORMS[name]
    check(fn, floats(*shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_weight_norm(dim):
    size = {0: (4, 1, 1), 1: (1, 3, 1), 2: (1, 1, 2), None: ()}[dim]
    check(
        lambda v, g: (
            torch._weight_norm(v, g, -1 if dim is None else dim)
            if dim is not None
            else v * (g / v.norm())
        ),
        floats(4, 3, 2),
        floats(*size),
        rtol=1e-4,
    )


# torch's forward AD scripts its decompositions.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_glu_second_derivatives():
    def jvp(x, dx):
        return torch.func.jvp(lambda v: F.glu(v, 1), (x,), (dx,))

    def of_gradient(x, dx):
        return torch.func.jvp(torch.func.grad(lambda v: F.glu(v, 1).square().sum()), (x,), (dx,))

    check(jvp, floats(3, 4), floats(3, 4, low=-1), grad=False)
    check(of_gradient, floats(3, 4), floats(3, 4, low=-1), grad=False)


# ---- Embeddings.


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("last", [True, False])
def test_embedding_bag(mode, padding, last):
    # Each index as often as the others: the CPU divides by the count of another one.
    indices, offsets = torch.tensor([1, 2, 4, 2, 0, 1, 4, 0]), torch.tensor([0, 3, 3, 6, 8])
    frequent = mode != "max"

    def run(w):
        i, o = indices.to(w.device), offsets.to(w.device)
        options = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
        return (
            F.embedding_bag(i, w, o, **options),
            F.embedding_bag(i, w, o.int().long(), scale_grad_by_freq=frequent, **options),
            F.embedding_bag(i[:6].view(2, 3), w, mode=mode, padding_idx=padding),
        )

    check(run, floats(5, 3))
    check(run, floats(5, 3, dtype=torch.bfloat16), rtol=3e-2, atol=3e-2)


def test_embedding_bag_with_weights_and_of_nothing():
    indices, offsets = torch.tensor([1, 2, 4, 2, 0]), torch.tensor([0, 2, 2])

    def run(w, each):
        i, o = indices.to(w.device), offsets.to(w.device)
        return (
            F.embedding_bag(i, w, o, mode="sum", per_sample_weights=each),
            F.embedding_bag(i, w, o, mode="sum", per_sample_weights=each, padding_idx=2),
        )

    check(run, floats(5, 3), floats(5))
    check(
        lambda w: F.embedding_bag(
            torch.zeros(0, dtype=torch.int64, device=w.device),
            w,
            torch.zeros(2, dtype=torch.int64, device=w.device),
        ),
        floats(5, 3),
    )
    with pytest.raises(RuntimeError):
        F.embedding_bag(to_xla(indices).float(), to_xla(floats(5, 3)), to_xla(offsets))


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, float("inf")])
def test_embedding_with_largest_norm(p):
    def run(w):
        w = w.clone()
        i = torch.tensor([[1, 2], [4, 1]], device=w.device)
        return F.embedding(i, w, max_norm=1.5, norm_type=p), w

    check(run, floats(5, 3), grad=False)


# ---- Attention.


@pytest.mark.parametrize("mask", [None, "causal", "padding", "whole"])
def test_kernels_of_evaluation(mask):
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    w = [p.detach() for p in attention.parameters()]
    masks = {
        None: (None, None),
        "causal": (torch.ones(5, 5).triu(1).bool(), 0),
        "padding": (torch.arange(5) >= torch.tensor([[5], [3], [4]]), 1),
        "whole": (torch.ones(3, 2, 5, 5).triu(1).bool(), 2),
    }
    m, kind = masks[mask]

    def run(x, *w):
        own = None if m is None else m.to(x.device)
        return torch._native_multi_head_attention(
            x, x, x, 8, 2, *w, own, need_weights=True, average_attn_weights=True, mask_type=kind
        )

    check(run, floats(3, 5, 8), *w, grad=False, rtol=1e-4, atol=1e-5)

    def layer(x, *w):
        own = None if m is None else m.to(x.device)
        ones, ffn = x.new_ones(8), x.new_ones(8, 8) / 8
        return [
            torch._transformer_encoder_layer_fwd(
                x, 8, 2, *w, gelu, first, 1e-5, ones, ones, ones, ones, ffn, ones, ffn, ones,
                own, kind,
            )
            for gelu, first in ((True, False), (False, True))
        ]  # fmt: skip

    check(layer, floats(3, 5, 8), *w, grad=False, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["self", "cross", "separate", "masked", "weights"])
@pytest.mark.parametrize("training", [True, False])
def test_multihead_attention(form, training):
    torch.manual_seed(0)
    separate = {"kdim": 6, "vdim": 4} if form == "separate" else {}
    cpu = torch.nn.MultiheadAttention(8, 2, bias=form != "cross", batch_first=True, **separate)
    xla = torch.nn.MultiheadAttention(8, 2, bias=form != "cross", batch_first=True, **separate)
    xla.load_state_dict(cpu.state_dict())
    xla.to("xla:0")
    for m in (cpu, xla):
        m.train(training)
    x, y = floats(3, 5, 8), floats(3, 6, 8)
    key, value = {
        "separate": (floats(3, 6, 6), floats(3, 6, 4)),
        "cross": (y, y),
    }.get(form, (x, x))
    options = {"need_weights": form == "weights"}
    if form == "masked":
        options["key_padding_mask"] = torch.arange(5) >= torch.tensor([[5], [3], [4]])
        options["attn_mask"] = torch.ones(5, 5).triu(1).bool()

    def run(module):
        def fn(q, k, v):
            moved = {
                n: o.to(q.device) if isinstance(o, torch.Tensor) else o for n, o in options.items()
            }
            return module(q, k, v, **moved)

        return fn

    modules = {"cpu": run(cpu), "xla": run(xla)}
    check(lambda q, k, v: modules[q.device.type](q, k, v), x, key, value, rtol=1e-4, atol=1e-5)


def test_grouped_heads_and_scale():
    q, k, v = floats(2, 6, 5, 4), floats(2, 2, 7, 4), floats(2, 2, 7, 4)
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.3),
        q, k, v, rtol=1e-4, atol=1e-5,
    )  # fmt: skip


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
    "interpolate_backward": lambda x: torch.ops.aten.upsample_bilinear2d_backward(
        x.byte(), [4, 5], [2, 3, 2, 3], True
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check_error(ERRORS[name], floats(2, 3, 4, 5))
