"""All of torch.optim but SparseAdam: the parameters of the CPU, nothing on the host, and no
compilation when the learning rate changes from step to step."""

import pytest
import torch
from torch import nn

import torch_xla
from torch_xla.debug import metrics

DEVICE = torch.device("xla:0")
optim = torch.optim
FOREACH = [{}, {"foreach": True}, {"foreach": False}]

OPTIMIZERS = {
    "Adadelta": (optim.Adadelta, [{}, {"weight_decay": 0.1, "maximize": True}]),
    "Adagrad": (optim.Adagrad, [{}, {"lr_decay": 0.1, "weight_decay": 0.1, "maximize": True}]),
    "Adam": (optim.Adam, [{}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True}]),
    "AdamW": (optim.AdamW, [{}, {"amsgrad": True}, {"weight_decay": 0.0}]),
    "Adamax": (optim.Adamax, [{}, {"weight_decay": 0.1, "maximize": True}]),
    "ASGD": (optim.ASGD, [{}, {"weight_decay": 0.1}]),
    "NAdam": (optim.NAdam, [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}]),
    "RAdam": (optim.RAdam, [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}]),
    "RMSprop": (optim.RMSprop, [{}, {"centered": True, "momentum": 0.9, "weight_decay": 0.1}]),
    "Rprop": (optim.Rprop, [{}, {"maximize": True}]),
    "SGD": (
        optim.SGD,
        [
            {},
            {"momentum": 0.9, "nesterov": True},
            {"momentum": 0.9, "dampening": 0.5},
            {"weight_decay": 0.1, "maximize": True},
        ],
    ),
}
CASES = [
    pytest.param(make, {**options, **foreach}, id=f"{name}-{i}-{foreach or 'default'}")
    for name, (make, all_options) in OPTIMIZERS.items()
    for i, options in enumerate(all_options)
    for foreach in (FOREACH if i == 0 else FOREACH[:1])
]


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def compiles():
    return metrics.counter_value("UncachedCompile") or 0


def host_runs():
    return set(metrics.executed_fallback_ops()) - {"aten::_local_scalar_dense"}


def train(make, device, steps=6, schedule=None, clip=None):
    """The parameters after the steps, and the compilations after each."""
    model = model_of().to(device)
    optimizer = make(model.parameters())
    scheduler = schedule(optimizer) if schedule else None
    g = torch.Generator().manual_seed(1)
    x = torch.randn(5, 4, generator=g).to(device)
    y = torch.randint(3, (5,), generator=g).to(device)
    compiled = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if clip:
            clip(model.parameters())
        optimizer.step()
        if scheduler is not None:
            takes_loss = isinstance(scheduler, optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(*((loss.item(),) if takes_loss else ()))
        torch_xla.sync()
        compiled.append(compiles())
    return [p.detach().cpu() for p in model.parameters()], compiled


def compare(make, stable=2, **options):
    want, _ = train(make, torch.device("cpu"), **options)
    before = host_runs()
    got, compiled = train(make, DEVICE, **options)
    assert host_runs() == before
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
    assert compiled[-1] == compiled[stable], f"compiles again: {compiled}"


@pytest.mark.parametrize(("make", "options"), CASES)
def test_optimizer(make, options):
    # RAdam rectifies from its sixth step on, which is another graph.
    compare(lambda p: make(p, lr=0.05, **options), stable=-1 if make is optim.RAdam else 2)


LATE = {
    "RAdam": lambda p: optim.RAdam(p, lr=0.05),
    "ASGD": lambda p: optim.ASGD(p, lr=0.05, t0=2.0),
}


@pytest.mark.parametrize("name", LATE)
def test_what_changes_later_settles(name):
    compare(LATE[name], stable=7, steps=10)


def test_foreach_clipping_is_refused_as_torch_does():
    parameters = list(model_of().to(DEVICE).parameters())
    for p in parameters:
        p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="foreach=True was passed"):
        nn.utils.clip_grad_norm_(parameters, 0.1, foreach=True)


@pytest.mark.parametrize("make", [optim.Adam, optim.SGD, optim.AdamW])
def test_learning_rate_as_tensor(make):
    compare(lambda p: make(p, lr=torch.tensor(0.05), foreach=False))


def test_muon():
    def train_matrix(device):
        torch.manual_seed(0)
        w = nn.Parameter(torch.randn(4, 6).to(device))
        optimizer = optim.Muon([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (w * w.detach().cos()).sum().backward()
            optimizer.step()
            torch_xla.sync()
        return w.detach().cpu()

    before = host_runs()
    # It computes in bfloat16.
    got, want = train_matrix(DEVICE), train_matrix("cpu")
    torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)
    assert host_runs() == before


def test_adafactor():
    compare(lambda p: optim.Adafactor(p, lr=0.05))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search):
    def run(device):
        model = model_of().to(device)
        optimizer = optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn=search)
        g = torch.Generator().manual_seed(1)
        x = torch.randn(5, 4, generator=g).to(device)
        y = torch.randn(5, 3, generator=g).to(device)

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).detach().cpu() for _ in range(3)]
        return torch.stack(losses)

    torch.testing.assert_close(run(DEVICE), run("cpu"), rtol=1e-3, atol=1e-4)


def test_sparse_adam_is_not_for_dense_gradients():
    p = nn.Parameter(torch.ones(2, device=DEVICE))
    p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        optim.SparseAdam([p]).step()


S = optim.lr_scheduler
SCHEDULES = {
    "step": lambda o: S.StepLR(o, 2),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "cosine": lambda o: S.CosineAnnealingLR(o, 6),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 3),
    "one_cycle": lambda o: S.OneCycleLR(o, 0.1, total_steps=8),
    "cyclic": lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "sequential": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 3), S.ConstantLR(o)], [3]),
    "polynomial": lambda o: S.PolynomialLR(o, 8),
    "lambda": lambda o: S.LambdaLR(o, lambda n: 1 / (n + 1)),
    "plateau": lambda o: S.ReduceLROnPlateau(o, patience=0, threshold=10.0),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_compiles_nothing(name):
    compare(lambda p: optim.SGD(p, lr=0.1, momentum=0.9), schedule=SCHEDULES[name])


@pytest.mark.parametrize("make", [optim.AdamW, optim.Adam, optim.RMSprop])
def test_schedule_of_adaptive_optimizers(make):
    compare(lambda p: make(p, lr=0.01), schedule=SCHEDULES["cosine"])


CLIPS = {
    "norm": lambda p: nn.utils.clip_grad_norm_(p, 0.1),
    "norm_inf": lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=float("inf")),
    "norm_1": lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=1.0, foreach=False),
    "value": lambda p: nn.utils.clip_grad_value_(p, 0.01),
}


@pytest.mark.parametrize("name", CLIPS)
def test_clip(name):
    compare(lambda p: optim.SGD(p, lr=0.1), clip=CLIPS[name])


def test_averaged_model():
    def run(device):
        model = model_of().to(device)
        averaged = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(2, 4, device=device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
            averaged.update_parameters(model)
            torch_xla.sync()
        return [p.detach().cpu() for p in averaged.parameters()]

    for g, w in zip(run(DEVICE), run("cpu"), strict=True):
        torch.testing.assert_close(g, w)
