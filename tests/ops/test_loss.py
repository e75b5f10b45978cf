"""Losses and their gradients against PyTorch on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from .oracle import check, check_error, floats, ints

HALF = torch.bfloat16
REDUCTIONS = ["none", "mean", "sum"]

PAIRS = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, t, **k: F.smooth_l1_loss(x, t, beta=0.7, **k),
    "smooth_l1_0": lambda x, t, **k: F.smooth_l1_loss(x, t, beta=0.0, **k),
    "huber": lambda x, t, **k: F.huber_loss(x, t, delta=0.7, **k),
    "soft_margin": lambda x, t, **k: F.soft_margin_loss(x, t.detach().sign(), **k),
    "poisson_nll": lambda x, t, **k: F.poisson_nll_loss(x, t.detach().abs(), **k),
    "kl_div": lambda x, t, reduction: F.kl_div(
        x, t, log_target=True, reduction="batchmean" if reduction == "mean" else reduction
    ),
    "hinge": lambda x, t, **k: F.hinge_embedding_loss(x, t.detach().sign(), **k),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_pair(name, reduction):
    def fn(x, t):
        return PAIRS[name](x, t, reduction=reduction)

    check(fn, floats(4, 5), floats(4, 5, low=-2))
    check(fn, floats(6, dtype=HALF), floats(6, dtype=HALF, low=-1), rtol=3e-2, atol=2e-2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction):
    p, x, t = floats(4, 5, low=0.01, high=0.99), floats(4, 5), floats(4, 5, low=0, high=1)
    weight, positive = floats(4, 5, low=0.1), floats(5, low=0.1)

    def run(p, x):
        w, t_, pw = weight.to(p.device), t.to(p.device), positive.to(p.device)
        return (
            F.binary_cross_entropy(p, t_, reduction=reduction),
            F.binary_cross_entropy(p, t_, w, reduction=reduction),
            F.binary_cross_entropy_with_logits(x, t_, reduction=reduction),
            F.binary_cross_entropy_with_logits(x, t_, w, pos_weight=pw, reduction=reduction),
        )

    check(run, p, x, rtol=1e-4, atol=1e-5)
    ends = torch.tensor([0.0, 1.0, 0.0, 1.0])
    check(lambda p, t: F.binary_cross_entropy(p, t.detach()), ends, torch.tensor([0.0, 1.0, 1, 0]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 7, 3, 4), (2, 7, 3)], ids=str)
def test_cross_entropy(shape, reduction):
    target = ints(*(shape[:1] + shape[2:] if len(shape) > 1 else ()), low=0, high=7)
    weight = floats(7, low=0.1)

    def run(x):
        t, w = target.to(x.device), weight.to(x.device)
        logs = F.log_softmax(x, 0 if x.dim() == 1 else 1)
        return (
            F.nll_loss(logs, t, reduction=reduction),
            F.nll_loss(logs, t, w, ignore_index=2, reduction=reduction),
            F.cross_entropy(x, t, label_smoothing=0.1, reduction=reduction),
        )

    check(run, floats(*shape), rtol=1e-4)


def test_everything_ignored():
    check(lambda x: F.nll_loss(x, torch.full((3,), -100, device=x.device)), floats(3, 4))
    check(
        lambda x: F.nll_loss(x, torch.full((3,), -100, device=x.device), reduction="sum"),
        floats(3, 4),
    )


def test_half_cross_entropy():
    check(
        lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3], device=x.device)),
        floats(3, 4, dtype=HALF),
        rtol=3e-2,
        atol=2e-2,
    )


def test_probabilities_as_targets():
    check(lambda x, t: F.cross_entropy(x, t.softmax(1)), floats(3, 4), floats(3, 4, low=0))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin(p, reduction):
    weight = floats(4, low=0.1)

    def run(x):
        t = torch.tensor([1, 0, 3], device=x.device)
        w = weight.to(x.device)
        return (
            F.multi_margin_loss(x, t, p, reduction=reduction),
            F.multi_margin_loss(x, t, p, 0.5, w, reduction=reduction),
        )

    check(run, floats(3, 4))


OTHERS = {
    "gaussian_nll": lambda x, t: F.gaussian_nll_loss(x, t, torch.ones_like(x)),
    "margin_ranking": lambda x, t: F.margin_ranking_loss(x, t, torch.ones_like(x)),
    "triplet": lambda x, t: F.triplet_margin_loss(x, t, x * t),
    "cosine": lambda x, t: F.cosine_embedding_loss(x, t, torch.ones(x.shape[0], device=x.device)),
    "multilabel_soft": lambda x, t: F.multilabel_soft_margin_loss(x, (t > 0).to(x.dtype)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_composite(name):
    check(OTHERS[name], floats(4, 5), floats(4, 5, low=-2), rtol=1e-4, atol=1e-5)


ERRORS = {
    "mse_shapes": lambda x, t: torch.ops.aten.mse_loss(x, x[:, :2]),
    "nll_sizes": lambda x, t: F.nll_loss(x, t[:2]),
    "nll_weight": lambda x, t: F.nll_loss(x, t, x[0, :2]),
    "nll_float": lambda x, t: F.nll_loss(x, t.float()),
    "beta": lambda x, t: F.smooth_l1_loss(x, x, beta=-1.0),
    "delta": lambda x, t: F.huber_loss(x, x, delta=0.0),
    "margin_p": lambda x, t: F.multi_margin_loss(x, t, 3),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    check_error(ERRORS[name], floats(3, 4), ints(3, low=0, high=4))
