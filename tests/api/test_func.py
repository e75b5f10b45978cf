"""Derivatives of derivatives: torch.func, double backward, and checkpoints that draw numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

import torch_xla

from .conftest import assert_same

# What torch imports for its forward derivatives.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
DEVICE = torch.device("xla:0")
D = torch.float64
G = torch.Generator().manual_seed(0)
M = torch.randn(4, 4, generator=G, dtype=D)
I = torch.tensor([0, 2, 1])  # noqa: E741

# f(x), x of four elements, to up to four.
FAMILIES = {
    "pointwise": lambda x: x.sin() * x.exp() + torch.erf(x) + torch.lgamma(x.abs() + 1),
    "activations": lambda x: F.silu(x) + F.gelu(x) + F.softplus(x) + F.relu(x) * x,
    "binary": lambda x: torch.atan2(x, x.flip(0)) + x.abs() ** 2.5 / (x * x + 1),
    "reductions": lambda x: x.var() * x + x.norm() * x + x.prod() * x + x.logsumexp(0) * x,
    "extremes": lambda x: x.max() * x + x.sort().values * x + x.clamp(-1, 1),
    "scans": lambda x: x.cumsum(0) * x + x.cumprod(0),
    "softmax": lambda x: F.softmax(x, -1) * x + F.log_softmax(x, -1),
    "products": lambda x: M.to(x.device) @ x * x + (x.view(2, 2) @ x.view(2, 2)).flatten(),
    "linalg": lambda x: torch.linalg.inv(x.view(2, 2) + 3 * torch.eye(2).to(x)).flatten() * x,
    "indexing": lambda x: x[I.to(x.device)] * x.gather(0, I.to(x.device)) + x.topk(3).values,
    "scatter": lambda x: torch.zeros_like(x).scatter_add(0, I.to(x.device), (x * x)[:3]),
    "embedding": lambda x: F.embedding(I.to(x.device), x.view(4, 1)).flatten() * x[:3],
    "shapes": lambda x: torch.cat([x, x * x])[2:6].roll(1) + F.pad(x[1:3] ** 2, (1, 1)),
    "norms": lambda x: F.layer_norm(x, (4,)) * x + F.normalize(x, dim=0),
    "losses": lambda x: F.mse_loss(x, x * x) * x + F.huber_loss(x, x.cos()) + F.l1_loss(x, x * x),
    "cross_entropy": lambda x: F.cross_entropy(x[None], I[1:2].to(x.device)) * x,
    "convolution": lambda x: F.conv1d(x.view(1, 1, 4), x[:2].view(1, 1, 2)).flatten(),
    "pooling": lambda x: F.avg_pool1d((x * x).view(1, 1, 4), 2).flatten() * x[:2],
    "fft": lambda x: torch.fft.rfft(x * x).abs(),
    "in_place": lambda x: x.clone().mul_(2).add_(x * x),
}
TRANSFORMS = {
    "vmap": lambda f: lambda x: vmap(f)(torch.stack([x, 2 * x, -x])),
    "vmap_last": lambda f: lambda x: vmap(f, 1, 1)(torch.stack([x, 2 * x, -x], 1)),
    "vmap_grad": lambda f: lambda x: vmap(grad(lambda y: f(y).sum()))(torch.stack([x, 2 * x])),
    "jvp": lambda f: lambda x: jvp(f, (x,), (x.cos(),)),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_torch_func(family, transform):
    fn = TRANSFORMS[transform](FAMILIES[family])
    x = torch.tensor([0.3, -1.2, 0.7, 2.1], dtype=D)
    got, want = fn(x.to(DEVICE)), fn(x)
    for g, w in zip(*((t if isinstance(t, tuple) else (t,)) for t in (got, want)), strict=True):
        assert_same(g, w, rtol=1e-6, atol=1e-8)


def test_what_torch_batches_wrongly_is_refused():
    with pytest.raises(NotImplementedError, match="_cdist_backward: vmap over the gradient"):
        jacrev(lambda x: torch.cdist(x, x.t()))(torch.randn(2, 2, device=DEVICE))


def test_ensembles_and_gradients_per_sample():
    models = [nn.Linear(3, 2).to(DEVICE) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    x = torch.randn(4, 3, device=DEVICE)

    def loss(p, b, x):
        return functional_call(models[0], (p, b), (x,)).square().sum()

    out = vmap(loss, (0, 0, None))(parameters, buffers, x)
    assert_same(out, torch.stack([m(x).square().sum() for m in models]).cpu())
    one = {k: v[0] for k, v in parameters.items()}
    per_sample = vmap(grad(loss), (None, None, 0))(one, buffers, x)
    for i in range(4):
        want = torch.autograd.grad(
            loss(dict(models[0].named_parameters()), {}, x[i]), list(models[0].parameters())
        )
        for name, w in zip(("weight", "bias"), want, strict=True):
            assert_same(per_sample[name][i], w.cpu(), rtol=1e-4, atol=1e-5)


def randn(*shape):
    return torch.randn(shape, generator=G, dtype=D)


def positive(*shape):
    return randn(*shape).abs() + 0.5


DOUBLE = {
    "exp": (torch.exp, positive(3)),
    "rsqrt": (torch.rsqrt, positive(3)),
    "lgamma": (torch.lgamma, positive(3)),
    "tanh": (torch.tanh, randn(3)),
    "gelu": (F.gelu, randn(3)),
    "silu": (F.silu, randn(3)),
    "softplus": (F.softplus, randn(3)),
    "elu": (F.elu, randn(3)),
    "logsigmoid": (F.logsigmoid, randn(3)),
    "prelu": (F.prelu, randn(2, 3), positive(1)),
    "div": (torch.div, randn(2, 3), positive(3)),
    "pow": (torch.pow, positive(2, 3), randn(3)),
    "logaddexp": (torch.logaddexp, randn(3), randn(3)),
    "addcdiv": (torch.addcdiv, randn(3), randn(3), positive(3)),
    "var": (lambda x: x.var(1), randn(2, 3)),
    "prod": (lambda x: x.prod(1), positive(2, 3)),
    "cumprod": (lambda x: x.cumprod(1), positive(2, 3)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), randn(2, 3)),
    "norm": (lambda x: x.norm(3, 1), positive(2, 3)),
    "log_softmax": (lambda x: x.log_softmax(1), randn(2, 3)),
    "bmm": (torch.bmm, randn(2, 2, 3), randn(2, 3, 2)),
    "linear": (F.linear, randn(2, 3), randn(4, 3), randn(4)),
    "conv2d": (
        lambda x, w: F.conv2d(x, w, groups=2, stride=2, padding=1, dilation=2),
        randn(2, 4, 6, 6),
        randn(4, 2, 2, 2),
    ),
    "conv_transpose1d": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1),
        randn(1, 2, 4),
        randn(2, 2, 3),
        randn(2),
    ),
    "conv3d": (F.conv3d, randn(1, 2, 3, 3, 3), randn(2, 2, 2, 2, 2), randn(2)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2) ** 2, randn(1, 2, 4, 4)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2) ** 2, randn(1, 2, 4, 4)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), randn(2, 3), randn(3), randn(3)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), randn(2, 4, 3), randn(4), randn(4)),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        randn(3, 2, 4),
        randn(2),
        randn(2),
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, I.to(x.device)), randn(3, 4)),
    "bce_with_logits": (F.binary_cross_entropy_with_logits, randn(3), positive(3)),
    "huber_loss": (F.huber_loss, randn(3), randn(3)),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="sum"), randn(3, 2), positive(3, 2)),
    "gather": (lambda x: x.gather(1, I[None].to(x.device)) ** 2, randn(2, 3)),
    "index_put": (lambda x, v: x.index_put((I.to(x.device),), v, True) ** 2, randn(3), randn(3)),
    "scatter_reduce": (
        lambda x, s: x.scatter_reduce(0, I.to(x.device), s, "prod"),
        positive(3),
        positive(3),
    ),
    "embedding": (lambda w: F.embedding(I.to(w.device), w) ** 2, randn(3, 2)),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic") ** 2,
        randn(1, 1, 3, 3),
    ),
    "solve": (torch.linalg.solve, randn(3, 3) + 3 * torch.eye(3, dtype=D), randn(3, 2)),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3).to(x)), randn(3, 3)),
    "rfft": (lambda x: torch.fft.rfft2(x).abs(), randn(3, 4)),
}


@pytest.mark.parametrize("name", DOUBLE)
def test_double_backward(name):
    fn, *inputs = DOUBLE[name]

    def derive(device):
        g = torch.Generator().manual_seed(1)

        def weights(t):
            return torch.randn(t.shape, generator=g, dtype=D).to(device)

        leaves = [x.to(device).requires_grad_() for x in inputs]
        out = fn(*leaves)
        v = weights(out).requires_grad_()
        first = torch.autograd.grad(out, leaves, v, create_graph=True)
        total = sum((f * weights(f)).sum() for f in first)
        second = torch.autograd.grad(total, [*leaves, v], materialize_grads=True)
        return [out, *first, *second]

    for got, want in zip(derive(DEVICE), derive("cpu"), strict=True):
        assert_same(got, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_draw_the_same_numbers_again(use_reentrant, sync):
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6)).to(DEVICE)
    x = torch.randn(8, 6, device=DEVICE, requires_grad=True)
    results = []
    for checkpointed in (True, False):
        model.zero_grad()
        torch.manual_seed(3)
        y = x
        for _ in range(2):
            y = checkpoint(model, y, use_reentrant=use_reentrant) if checkpointed else model(y)
        if sync:
            torch_xla.sync()
        y.square().sum().backward()
        after = torch.rand(3, device=DEVICE)  # the stream goes on where it would have
        results.append([y, after, *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        assert_same(a, b.detach().cpu(), rtol=1e-4, atol=1e-5)


def test_forked_streams_come_back():
    torch.manual_seed(3)
    want = torch.rand(6, device=DEVICE).cpu(), torch.rand(6)
    torch.manual_seed(3)
    with torch.random.fork_rng(device_type="xla"):
        torch.rand(5, device=DEVICE)
        torch.rand(5)
    assert_same(torch.rand(6, device=DEVICE), want[0])
    assert_same(torch.rand(6), want[1])
