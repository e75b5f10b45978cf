"""Losses and their gradients against PyTorch on the CPU."""

import math

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


@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 3), (5,)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weighted_cross_entropy_with_smoothing(shape, reduction):
    """Nothing on the host, though torch selects the targets that count."""
    classes = shape[0] if len(shape) == 1 else shape[1]
    rows = [d for d in shape if d != classes] if len(shape) > 1 else []
    t = torch.arange(math.prod(rows)).reshape(rows) % classes
    if t.dim():
        t.view(-1)[1] = -100
    check(
        lambda x, w, t: F.cross_entropy(x, t, w.detach(), label_smoothing=0.2, reduction=reduction),
        floats(*shape),
        floats(classes, low=0.1),
        t,
    )


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


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(reduction):
    target = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 0], [1, 1, 2, 3]])

    def run(x):
        return F.multilabel_margin_loss(x, target.to(x.device), reduction=reduction)

    check(run, floats(3, 4))
    check(lambda x: F.multilabel_margin_loss(x, target[0].to(x.device)), floats(4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_cross_entropy_of_no_rows(weighted, reduction):
    def run(x):
        t = torch.zeros(0, dtype=torch.int64, device=x.device)
        w = torch.ones(4, device=x.device) if weighted else None
        return F.cross_entropy(x, t, w, reduction=reduction)

    check(run, torch.zeros(0, 4))
    check(
        lambda x: F.cross_entropy(x, torch.zeros(0, 2, 2, dtype=torch.int64, device=x.device)),
        torch.zeros(0, 4, 2, 2),
    )


# ---- CTC: 6 time steps, 3 rows, 5 classes.

CTC = {
    "padded": ([[1, 2, 2], [3, 4, 1], [2, 1, 3]], [6, 5, 6], [3, 2, 1]),
    "concatenated": ([1, 2, 2, 3, 4, 2], [6, 5, 6], [3, 2, 1]),
    "nothing": ([[1, 2, 2], [3, 4, 1], [2, 1, 3]], [6, 5, 6], [3, 0, 1]),
    "impossible": ([[1, 2, 2], [3, 4, 1], [2, 1, 3]], [3, 5, 1], [3, 2, 1]),
    "no_time": ([[1, 2, 2], [3, 4, 1], [2, 1, 3]], [6, 0, 0], [3, 0, 2]),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", CTC)
def test_ctc(name, reduction):
    targets, inputs, lengths = CTC[name]
    zero = name in ("impossible", "no_time")

    def run(x):
        t = torch.tensor(targets, device=x.device)
        logs = x.log_softmax(-1)
        options = {"blank": 0, "reduction": reduction, "zero_infinity": zero}
        return F.ctc_loss(logs, t, tuple(inputs), tuple(lengths), **options)

    check(run, floats(6, 3, 5), rtol=1e-4, atol=1e-5)
    if not zero:
        check(run, floats(6, 3, 5, dtype=torch.float64))

    def run_tensors(x):
        t = torch.tensor(targets, device=x.device)
        n, m = torch.tensor(inputs, device=x.device), torch.tensor(lengths, device=x.device)
        return F.ctc_loss(x.log_softmax(-1), t, n, m, reduction=reduction, zero_infinity=zero)

    check(run_tensors, floats(6, 3, 5), rtol=1e-4, atol=1e-5)


def test_ctc_of_one_row_and_infinite():
    def run(x):
        t = torch.tensor([1, 2], device=x.device)
        return F.ctc_loss(x.log_softmax(-1), t, torch.tensor(6), torch.tensor(2), blank=4)

    check(run, floats(6, 5), rtol=1e-4, atol=1e-5)
    check(
        lambda x: F.ctc_loss(
            x.log_softmax(-1), torch.tensor([[1, 1]], device=x.device), (2,), (2,), reduction="sum"
        ),
        floats(2, 1, 5),
    )


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
    "multilabel_sizes": lambda x, t: F.multilabel_margin_loss(x, t),
    "ctc_blank": lambda x, t: F.ctc_loss(x[:, None], t[None], (3,), (1,), blank=7),
    "ctc_inputs": lambda x, t: F.ctc_loss(x[:, None], t[None], (9,), (1,)),
    "ctc_rows": lambda x, t: F.ctc_loss(x[:, None], t[None], (3, 3), (1,)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    check_error(ERRORS[name], floats(3, 4), ints(3, low=0, high=4))
