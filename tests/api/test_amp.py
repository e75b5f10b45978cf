"""Mixed precision: the cast lists of autocast, loss scaling without the host, and optimizers that
skip a step on the device. The CPU is the reference."""

import copy
import pickle
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_xla
from torch_xla import amp
from torch_xla.amp import GradScaler, autocast, syncfree
from torch_xla.debug import metrics

from .conftest import assert_same, compiles, executions

DEVICE = torch.device("xla:0")
LOW = [torch.float16, torch.bfloat16]
INF = float("inf")
NAN = float("nan")


def host_runs():
    return set(metrics.executed_fallback_ops())


# --- the two operators of GradScaler


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("bad", [2.0, 1e30, INF, -INF, NAN])
@pytest.mark.parametrize("dtype", [*LOW, torch.float32, torch.float64])
def test_unscale(dtype, bad, shape):
    def unscale(device, found):
        x = torch.arange(12.0, device=device).to(dtype).view(3, 4)
        grads = [
            torch.tensor([1.0, bad, -1e-6], dtype=dtype, device=device),
            torch.ones((), dtype=dtype, device=device),
            torch.ones(0, 3, dtype=dtype, device=device),
            x.t()[1:],
            x[0],  # shares memory with the one before
        ]
        found = torch.full(shape, found, device=device)
        scale = torch.full((1,), 1 / 3, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        return [*grads, x, found]

    before = host_runs()
    for found in (0.0, 7.0):
        for got, want in zip(unscale(DEVICE, found), unscale("cpu", found), strict=True):
            assert_same(got, want, rtol=0, atol=0)
    assert host_runs() == before


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("found", [0.0, 1.0, 2.0, INF, NAN])
@pytest.mark.parametrize("tracker", [0, 1, 5])
@pytest.mark.parametrize("scale", [65536.0, 3e38, 1e-30])
def test_update_scale(scale, tracker, found, shape):
    def update(device):
        s = torch.full(shape, scale, device=device)
        t = torch.full(shape, tracker, dtype=torch.int32, device=device)
        assert (
            torch._amp_update_scale_(s, t, torch.full(shape, found, device=device), 2.1, 0.37, 2)
            is s
        )
        return s, t

    for got, want in zip(update(DEVICE), update("cpu"), strict=True):
        assert_same(got, want, rtol=0, atol=0)


def test_arguments_are_checked_in_torchs_words():
    def ones(*shape, dtype=torch.float32):
        return torch.ones(shape, dtype=dtype, device=DEVICE)

    unscale = torch._amp_foreach_non_finite_check_and_unscale_
    for found, scale, message in [
        (ones(2), ones(1), "found_inf must be a 1-element tensor"),
        (ones(1), ones(2), "inv_scale must be a 1-element tensor"),
        (ones(1, dtype=torch.float64), ones(1), "found_inf must be a float tensor"),
        (ones(1), ones(1, dtype=torch.float16), "inv_scale must be a float tensor"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            unscale([ones(2)], found, scale)
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        unscale([ones(2, dtype=torch.int32)], ones(1), ones(1))
    with pytest.raises(RuntimeError, match="growth_tracker must be an int tensor"):
        torch._amp_update_scale_(ones(1), ones(1, dtype=torch.int64), ones(1), 2.0, 0.5, 2)
    with pytest.raises(RuntimeError, match="current_scale must be a 1-element tensor"):
        torch._amp_update_scale_(ones(2), ones(1, dtype=torch.int32), ones(1), 2.0, 0.5, 2)


# --- GradScaler

SCALERS = [torch.amp.GradScaler, GradScaler]


def net(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(device)


def train_step(model, optimizer, scaler, g, device, region, overflows, clip):
    """One step on a drawn batch, forward inside of the autocast region; the loss."""
    x = torch.randn(5, 6, generator=g).to(device)
    y = torch.randint(3, (5,), generator=g).to(device)
    factor = torch.tensor(INF if overflows else 1.0).to(device)
    optimizer.zero_grad()
    with region:
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss * factor).backward()
    if clip:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    return loss


def train(device, make_optimizer, steps=8, bad=(0, 3), dtype=torch.float16, clip=False):
    """Losses, parameters and scales; the gradients of the steps `bad` overflow."""
    model = net(device)
    optimizer = make_optimizer(model.parameters())
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=256.0, growth_interval=2)
    g = torch.Generator().manual_seed(1)
    losses, scales, compiled = [], [], []
    for step in range(steps):
        region = torch.autocast(torch.device(device).type, dtype=dtype)
        loss = train_step(model, optimizer, scaler, g, device, region, step in bad, clip)
        losses.append(loss.detach())
        scales.append(scaler._scale.clone())
        if torch.device(device).type == "xla":
            torch_xla.sync()
        compiled.append(compiles())
    parameters = [p.detach().cpu() for p in model.parameters()]
    return torch.stack(losses).cpu(), torch.stack(scales).cpu(), parameters, compiled


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("dtype", LOW)
def test_training_with_torchs_optimizer(dtype, clip):
    make = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    before = host_runs()
    losses, scales, parameters, compiled = train(DEVICE, make, dtype=dtype, clip=clip)
    # Torch's step reads found_inf.
    assert host_runs() - before <= {"aten::_local_scalar_dense"}
    want_losses, want_scales, want, _ = train("cpu", make, dtype=dtype, clip=clip)
    assert scales.tolist() == want_scales.tolist() == [128, 128, 256, 128, 128, 256, 256, 512]
    torch.testing.assert_close(losses, want_losses, rtol=2e-2, atol=2e-2)
    for got, w in zip(parameters, want, strict=True):
        torch.testing.assert_close(got, w, rtol=2e-2, atol=2e-2)
    assert compiled[-1] == compiled[5], compiled


SYNCFREE = {
    "SGD": (syncfree.SGD, torch.optim.SGD, {}),
    "SGD-momentum": (syncfree.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "SGD-nesterov": (syncfree.SGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD-dampening": (syncfree.SGD, torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
    "SGD-maximize": (syncfree.SGD, torch.optim.SGD, {"momentum": 0.5, "maximize": True}),
    "SGD-foreach": (syncfree.SGD, torch.optim.SGD, {"momentum": 0.5, "foreach": True}),
    "Adam": (syncfree.Adam, torch.optim.Adam, {}),
    "Adam-decay": (syncfree.Adam, torch.optim.Adam, {"weight_decay": 0.1, "maximize": True}),
    "Adam-amsgrad": (syncfree.Adam, torch.optim.Adam, {"amsgrad": True, "betas": (0.5, 0.9)}),
    "Adam-foreach": (syncfree.Adam, torch.optim.Adam, {"foreach": True}),
    "AdamW": (syncfree.AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
    "AdamW-amsgrad": (syncfree.AdamW, torch.optim.AdamW, {"amsgrad": True, "eps": 1e-4}),
}


@pytest.mark.parametrize("name", SYNCFREE)
def test_syncfree_skips_on_the_device(name):
    """Steps 0, 1 and 4 are skipped; the learning rate is 0, then changes at each step."""
    make, make_torch, options = SYNCFREE[name]

    def run(device, make):
        torch.manual_seed(0)
        ps = [nn.Parameter(torch.randn(3, 4).to(device)), nn.Parameter(torch.randn(4).to(device))]
        optimizer = make(ps, lr=0.1, **options)
        g = torch.Generator().manual_seed(1)
        compiled = []
        for step in range(9):
            skip = step in (0, 1, 4)
            for group in optimizer.param_groups:
                group["lr"] = 0.0 if step == 2 else 0.1 / (step + 1)
            for p in ps:
                p.grad = torch.randn(p.shape, generator=g).to(device)
                p.grad[..., :1].mul_(0)  # as of a row that is never looked up
            if make is make_torch:
                if not skip:
                    optimizer.step()
                continue
            if skip:
                for p in ps:
                    p.grad.fill_(NAN)
            optimizer.step(found_inf=torch.tensor(float(skip)).to(device))
            torch_xla.sync()
            compiled.append(compiles())
        if compiled:
            assert compiled[-1] == compiled[2], compiled
        return [p.detach().cpu() for p in ps], optimizer

    before = host_runs()
    got, optimizer = run(DEVICE, make)
    assert host_runs() == before
    want, reference = run("cpu", make_torch)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=2e-6, atol=2e-6)
    for p, q in zip(
        optimizer.param_groups[0]["params"], reference.param_groups[0]["params"], strict=True
    ):
        for key, value in reference.state[q].items():
            other = optimizer.state[p][key]
            if value is not None:
                torch.testing.assert_close(other.cpu().to(value.dtype), value, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "clip", "scaler_class"),
    [
        ("SGD-momentum", True, GradScaler),
        ("SGD-dampening", False, GradScaler),
        ("Adam", True, GradScaler),
        ("AdamW", False, torch.amp.GradScaler),
    ],
)
def test_training_never_waits(name, clip, scaler_class):
    """One program per step after the first ones, nothing on the host, the CPU's parameters."""
    make, make_torch, options = SYNCFREE[name]
    model = net(DEVICE)
    optimizer = make(model.parameters(), lr=0.02, **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scaler = scaler_class("xla", init_scale=256.0, growth_interval=2)
    g = torch.Generator().manual_seed(1)
    before = host_runs()
    counts = []
    for step in range(8):
        region = autocast(DEVICE, dtype=torch.float16)
        train_step(model, optimizer, scaler, g, DEVICE, region, step in (0, 3), clip)
        schedule.step()
        torch_xla.sync(wait=True)  # so that it is counted
        counts.append((compiles(), executions()))
    assert host_runs() == before
    (compiled, executed), (last_compiled, last_executed) = counts[2], counts[-1]
    assert last_compiled == compiled, counts
    assert last_executed == executed + 5, counts
    assert scaler.get_scale() == 512.0

    reference = net("cpu")
    ref_optimizer = make_torch(reference.parameters(), lr=0.02, **options)
    g = torch.Generator().manual_seed(1)
    for step in range(8):
        x, y = torch.randn(5, 6, generator=g), torch.randint(3, (5,), generator=g)
        ref_optimizer.param_groups[0]["lr"] = 0.02 * 0.9**step
        ref_optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(reference(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        if step not in (0, 3):
            ref_optimizer.step()
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        assert_same(p, q, rtol=2e-2, atol=2e-2)


def test_without_a_scaler_syncfree_is_torchs():
    for make, make_torch, options in SYNCFREE.values():
        got, want = net(DEVICE), net("cpu")
        ours, theirs = (
            make(got.parameters(), lr=0.1, **options),
            make_torch(want.parameters(), lr=0.1, **options),
        )
        x = torch.randn(5, 6)
        for _ in range(3):
            for model, optimizer, device in ((got, ours, DEVICE), (want, theirs, "cpu")):
                loss = optimizer.step(partial(closure, model, optimizer, x.to(device)))
            torch_xla.sync()
            assert loss.ndim == 0
        for p, q in zip(got.parameters(), want.parameters(), strict=True):
            assert_same(p, q, rtol=1e-4, atol=1e-5)


def closure(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("where", ["cpu", DEVICE])
@pytest.mark.parametrize("make", [syncfree.SGD, syncfree.Adam, syncfree.AdamW])
def test_learning_rate_as_tensor(make, where):
    p, q = nn.Parameter(torch.ones(3, device=DEVICE)), nn.Parameter(torch.ones(3))
    ours = make([p], lr=torch.tensor(0.1, device=where))
    theirs = getattr(torch.optim, make.__name__)([q], lr=0.1)
    before = host_runs()
    for _ in range(3):
        p.grad, q.grad = torch.full((3,), 0.5, device=DEVICE), torch.full((3,), 0.5)
        ours.step(found_inf=0.0)
        theirs.step()
    if where != "cpu" or make is not syncfree.SGD:
        assert host_runs() == before
    assert ours.param_groups[0]["lr"].requires_grad is False
    assert_same(p, q, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("options", [{"momentum": 0.9, "dampening": 0.5}, {}])
def test_state_of_skipped_steps_is_saved(options):
    make = syncfree.SGD if options else syncfree.Adam
    p = nn.Parameter(torch.ones(3, device=DEVICE))
    optimizer = make([p], lr=0.1, **options)
    q = nn.Parameter(torch.ones(3))
    reference = getattr(torch.optim, make.__name__)([q], lr=0.1, **options)
    for step in range(4):
        p.grad, q.grad = torch.full((3,), step + 1.0, device=DEVICE), torch.full((3,), step + 1.0)
        optimizer.step(found_inf=float(step == 0))
        if step != 0:
            reference.step()
        loaded = make([p], lr=0.5, **options)
        loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer = loaded
    assert_same(p, q, rtol=1e-6, atol=1e-6)
    # There and back again: torch's own class on the CPU goes on with it.
    theirs = getattr(torch.optim, make.__name__)([q], lr=0.5, **options)
    theirs.load_state_dict(reference.state_dict())
    ours = make([p], lr=0.5, **options)
    ours.load_state_dict(reference.state_dict())
    p.grad, q.grad = torch.ones(3, device=DEVICE), torch.ones(3)
    ours.step(found_inf=0.0)
    theirs.step()
    assert_same(p, q, rtol=1e-6, atol=1e-6)


def test_hooks_run_once():
    torch.optim.Adam([nn.Parameter(torch.ones(1))])  # torch wraps the class's step now
    p = nn.Parameter(torch.ones(1, device=DEVICE))
    optimizer = syncfree.Adam([p])
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert calls == ["before", "after"]


@pytest.mark.parametrize("scaler_class", SCALERS)
def test_scaler_state(scaler_class):
    scaler = scaler_class("xla", init_scale=8.0, growth_interval=3)
    p = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = torch.optim.SGD([p], lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        outputs = scaler.scale([p.sum(), (p * 2).sum()])
        torch.autograd.backward(outputs)
        scaler.step(optimizer)
        scaler.update()
    state = scaler.state_dict()
    assert state["scale"] == 8.0
    assert state["_growth_tracker"] == 2
    assert_same(p, torch.ones(2) - 3.0)
    loaded = scaler_class("xla")
    loaded.load_state_dict(state)
    copied = pickle.loads(pickle.dumps(scaler))
    for s in (scaler, loaded, copied):
        s.scale(p.sum()).backward()
        s.step(optimizer)
        s.update()
        assert s.get_scale() == 16.0
        s.update(4.0) if s is scaler else s.update(torch.full((), 4.0, device=DEVICE))
        assert s.get_scale() == 4.0


def test_fp16_gradients_are_refused():
    p = nn.Parameter(torch.ones(2, device=DEVICE, dtype=torch.float16))
    scaler, optimizer = GradScaler(), torch.optim.SGD([p], lr=1.0)
    scaler.scale(p.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


def test_scaler_that_is_off():
    scaler = GradScaler(enabled=False)
    p = nn.Parameter(torch.ones(2, device=DEVICE))
    loss = p.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.step(syncfree.SGD([p], lr=1.0))
    scaler.update()
    assert_same(p, torch.zeros(2))


# --- autocast


def test_ways_to_write_it():
    x, w = torch.randn(2, 3, device=DEVICE), torch.randn(3, 2, device=DEVICE)
    for context, dtype in [
        (autocast(), torch.bfloat16),
        (autocast(DEVICE), torch.bfloat16),
        (autocast("xla", dtype=torch.float16), torch.float16),
        (amp.autocast(DEVICE, True, torch.float16, False), torch.float16),
        (autocast(DEVICE, enabled=False), torch.float32),
        (torch.autocast("xla"), torch.bfloat16),
        (torch.amp.autocast("xla", dtype=torch.float16), torch.float16),
    ]:
        with context:
            assert (x @ w).dtype == dtype
        assert context(lambda: (x @ w).dtype)() == dtype
    assert (x @ w).dtype == torch.float32
    assert isinstance(autocast(), torch.autocast)
    with autocast("cpu"):
        assert (x.cpu() @ w.cpu()).dtype == torch.bfloat16


def test_state_is_seen():
    assert not torch.is_autocast_enabled("xla")
    with torch.autocast("xla", dtype=torch.float16):
        assert torch.is_autocast_enabled("xla")
        assert torch.get_autocast_dtype("xla") == torch.float16
        with torch.autocast("xla", enabled=False):
            assert not torch.is_autocast_enabled("xla")
            x = torch.randn(2, 2, device=DEVICE)
            assert (x @ x).dtype == torch.float32
            with torch.autocast("xla", dtype=torch.bfloat16):
                assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float16
    assert not torch.is_autocast_enabled("xla")


def lists(device, dtype):
    """Name: the function, its result's dtype inside of autocast(dtype)."""
    g = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, generator=g).to(device)

    x, y, v = randn(3, 4), randn(4, 4), randn(4)
    image, low = randn(2, 3, 6, 6), randn(3, 4).to(dtype)
    target = torch.tensor([1, 0, 3]).to(device)
    return {
        # lower precision
        "matmul": lambda: x @ y,
        "linear": lambda: F.linear(x, y, v),
        "addmm": lambda: torch.addmm(v, x, y),
        "mv": lambda: torch.mv(x, v),
        "bmm": lambda: torch.bmm(x[None], y[None]),
        "baddbmm": lambda: torch.baddbmm(x[None], x[None], y[None]),
        "einsum": lambda: torch.einsum("ij,jk->ik", x, y),
        "conv2d": lambda: F.conv2d(image, image[:, :, :3, :3]),
        "conv1d": lambda: F.conv1d(image[0], image[0, :, :, :3]),
        "conv_transpose2d": lambda: F.conv_transpose2d(
            image, image[0:1].transpose(0, 1)[:, :, :2, :2]
        ),
        "prelu": lambda: F.prelu(x, v[:1]),
        "sdpa": lambda: F.scaled_dot_product_attention(image, image, image),
        # float32
        "exp": lambda: low.exp(),
        "log": lambda: low.abs().log(),
        "rsqrt": lambda: low.abs().rsqrt(),
        "pow": lambda: low**2,
        "pow_tensor": lambda: low.abs() ** low,
        "softplus": lambda: F.softplus(low),
        "softmax": lambda: low.softmax(-1),
        "log_softmax": lambda: low.log_softmax(-1),
        "layer_norm": lambda: F.layer_norm(low, (4,)),
        "group_norm": lambda: F.group_norm(low, 2),
        "sum": lambda: low.sum(),
        "sum_dim": lambda: low.sum(0),
        "sum_dtype": lambda: low.sum(0, dtype=torch.float64),
        "prod": lambda: low.prod(),
        "cumsum": lambda: low.cumsum(0),
        "norm": lambda: low.norm(),
        "norm_dim": lambda: torch.norm(low, 2, 0),
        "vector_norm": lambda: torch.linalg.vector_norm(low),
        "logsumexp": lambda: low.logsumexp(0),
        "cross_entropy": lambda: F.cross_entropy(low, target),
        "nll_loss": lambda: F.nll_loss(low, target),
        "mse_loss": lambda: F.mse_loss(low, x),
        "l1_loss": lambda: F.l1_loss(low, low + 1),
        "smooth_l1": lambda: F.smooth_l1_loss(low, x),
        "bce_with_logits": lambda: F.binary_cross_entropy_with_logits(low, low.sigmoid()),
        "kl_div": lambda: F.kl_div(low, low.sigmoid(), reduction="sum"),
        "cosine_similarity": lambda: F.cosine_similarity(low, low),
        "cdist": lambda: torch.cdist(low, low),
        # the widest of the arguments
        "addcmul": lambda: torch.addcmul(x, low, low),
        "addcdiv": lambda: torch.addcdiv(low, low, x),
        "atan2": lambda: torch.atan2(low, x),
        "dot": lambda: torch.dot(low[0], v),
        "cross": lambda: torch.cross(low[:, :3], x[:, :3], dim=1),
        "cat": lambda: torch.cat([low, x]),
        "stack": lambda: torch.stack([low, x]),
        "scatter_add": lambda: torch.scatter_add(x, 1, target[None], low[:1, :3]),
        "index_put": lambda: x.index_put((target[:2] * 0,), low[:2]),
        # as they come
        "relu": lambda: low.relu(),
        "add": lambda: low + low,
        "add_float": lambda: low + x,
        "batch_norm": lambda: F.batch_norm(image, None, None, training=True),
    }


LOWER = {"matmul", "linear", "addmm", "mv", "bmm", "baddbmm", "einsum", "conv2d", "conv1d"}
LOWER |= {"conv_transpose2d", "prelu", "sdpa", "relu", "add"}


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", lists("cpu", torch.float16))
def test_cast_lists(name, dtype):
    fn = lists(DEVICE, dtype)[name]
    with torch.autocast("xla", dtype=dtype):
        got = fn()
    expected = dtype if name in LOWER else torch.float64 if name == "sum_dtype" else torch.float32
    assert got.dtype == expected
    reference = lists("cpu", torch.float32)[name]()
    tolerance = 2e-3 if dtype == torch.float16 else 2e-2
    # norms of differences cancel
    scale = reference.abs().max().item()
    torch.testing.assert_close(
        got.cpu().double(), reference.double(), rtol=4 * tolerance, atol=4 * tolerance * scale
    )


def test_binary_cross_entropy_is_refused_in_float16():
    x = torch.rand(4, device=DEVICE, requires_grad=True)
    with (
        torch.autocast("xla", dtype=torch.float16),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        F.binary_cross_entropy(x, x.detach())
    with torch.autocast("xla", dtype=torch.bfloat16):
        loss = F.binary_cross_entropy(x.bfloat16(), x.detach())
        assert loss.dtype == torch.float32
    loss.backward()
    assert x.grad is not None


def test_weights_are_cast_once_per_region():
    w = nn.Parameter(torch.randn(3, 3).to(DEVICE))
    x = torch.randn(2, 3).to(DEVICE)

    def casts(**options):
        with torch.autocast("xla", dtype=torch.bfloat16, **options):
            out = [F.linear(x, w) for _ in range(4)]
        graph = torch_xla._XLAC._xla_dump_graph(0, out, False)
        return sum("tensor<3x3xbf16> xla::convert" in line for line in graph.splitlines())

    assert casts() == 1
    assert casts(cache_enabled=False) == 4


class Scaled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="xla")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        Scaled.dtypes.append((x @ w).dtype)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="xla")
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        Scaled.dtypes.append((x @ w).dtype)
        return grad.to(w.dtype) @ w.t(), x.t() @ grad.to(x.dtype)


class In32(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="xla", cast_inputs=torch.float32)
    def forward(ctx, x):
        Scaled.dtypes.append((x @ x.t()).dtype)
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="xla")
    def backward(ctx, grad):
        Scaled.dtypes.append((grad @ grad.t()).dtype)
        return grad * 2


def test_custom_functions():
    x = torch.randn(2, 3, device=DEVICE, requires_grad=True)
    w = torch.randn(3, 2, device=DEVICE, requires_grad=True)
    Scaled.dtypes = []
    with torch.autocast("xla", dtype=torch.float16):
        out = Scaled.apply(x, w)
        low = In32.apply((x * 1).half())
    (out.float().sum() + low.sum()).backward()
    assert Scaled.dtypes.count(torch.float16) == 2
    assert Scaled.dtypes.count(torch.float32) == 2
    assert x.grad is not None


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_recomputes_in_the_same_precision(use_reentrant):
    model = net(DEVICE)
    x = torch.randn(4, 6, device=DEVICE, requires_grad=True)
    dtypes = []

    def forward(x):
        dtypes.append((x @ x.t()).dtype)
        return model(x)

    grads = []
    for checkpointed in (True, False):
        model.zero_grad()
        with torch.autocast("xla", dtype=torch.float16):
            out = (
                checkpoint(forward, x, use_reentrant=use_reentrant) if checkpointed else forward(x)
            )
            assert out.dtype == torch.float16
        out.float().sum().backward()
        grads.append([p.grad.cpu() for p in model.parameters()])
    assert dtypes == [torch.float16] * 3
    for a, b in zip(*grads, strict=True):
        assert_same(a, b, rtol=1e-3, atol=1e-3)
