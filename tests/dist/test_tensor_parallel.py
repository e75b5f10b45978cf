"""Layers cut over the replicas against the plain ones on the CPU: values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.distributed.tensor_parallel as tp
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla.debug import metrics

V, E, H, T, B = 16, 8, 4, 5, 3


def close(actual, expected):
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)


def pair(make_ours, make_plain):
    """Both under one seed: they hold the same weights."""
    torch.manual_seed(3)
    ours = make_ours().to("xla")
    torch.manual_seed(3)
    return ours, make_plain()


def check(ours, plain, x, call=None, output=None):
    """Values, gradients of the input and of every weight."""
    call = call or (lambda m, v: m(v))
    mine, whole = x.to("xla"), x.clone()
    if x.is_floating_point():
        mine.requires_grad_()
        whole.requires_grad_()
    y, expected = call(ours, mine), call(plain, whole)
    factor = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    (expected * factor).sum().backward()
    cut = output or (lambda t: t)
    close(y, cut(expected))
    (y * cut(factor).to("xla")).sum().backward()
    if x.is_floating_point():
        close(mine.grad, whole.grad)
    return {n: p.grad for n, p in ours.named_parameters()}


def slice_of(t, dim, groups=None):
    n = xr.world_size() if groups is None else len(groups[0])
    return t.chunk(n, dim)[xr.global_ordinal() % n]


def linear(groups):
    x = torch.randn(B, T, E, generator=torch.Generator().manual_seed(1))
    for bias in (True, False):
        ours, plain = pair(
            lambda bias=bias: tp.ColumnParallelLinear(E, 12, bias, groups=groups),
            lambda bias=bias: nn.Linear(E, 12, bias),
        )
        grads = check(ours, plain, x)
        close(grads["weight"], slice_of(plain.weight.grad, 0, groups))
        if bias:
            close(grads["bias"], slice_of(plain.bias.grad, 0, groups))
        ours, plain = pair(
            lambda bias=bias: tp.RowParallelLinear(E, 12, bias, groups=groups),
            lambda bias=bias: nn.Linear(E, 12, bias),
        )
        grads = check(ours, plain, x)
        close(grads["weight"], slice_of(plain.weight.grad, 1, groups))
        if bias:
            close(grads["bias"], plain.bias.grad)

    class Ours(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = tp.ColumnParallelLinear(E, 12, gather_output=False, groups=groups)
            self.down = tp.RowParallelLinear(12, E, input_is_parallel=True, groups=groups)

        def forward(self, x):
            return self.down(torch.tanh(self.up(x)))

    ours, plain = pair(Ours, lambda: nn.Sequential(nn.Linear(E, 12), nn.Tanh(), nn.Linear(12, E)))
    grads = check(ours, plain, x)
    close(grads["up.weight"], slice_of(plain[0].weight.grad, 0, groups))
    close(grads["down.weight"], slice_of(plain[2].weight.grad, 1, groups))
    state = tp.full_state_dict(ours)
    for name, expected in (
        ("up.weight", plain[0].weight),
        ("up.bias", plain[0].bias),
        ("down.weight", plain[2].weight),
        ("down.bias", plain[2].bias),
    ):
        close(state[name], expected)


def embedding(groups):
    ours, plain = pair(
        lambda: tp.VocabParallelEmbedding(V, E, groups=groups), lambda: nn.Embedding(V, E)
    )
    x = torch.tensor([[0, 5, V - 1], [8, 7, 5]])
    grads = check(ours, plain, x)
    close(grads["weight"], slice_of(plain.weight.grad, 0, groups))
    for padding_idx in (5, -1):
        ours, plain = pair(
            lambda i=padding_idx: tp.VocabParallelEmbedding(
                V, E, groups, nn.Embedding(V, E, padding_idx=i)
            ),
            lambda i=padding_idx: nn.Embedding(V, E, padding_idx=i),
        )
        grads = check(ours, plain, x)
        close(grads["weight"], slice_of(plain.weight.grad, 0, groups))


def attention(groups):
    x = torch.randn(B, T, E, generator=torch.Generator().manual_seed(1))
    causal = torch.ones(T, T).tril().bool()
    for options, reference in (
        ({}, {}),
        ({"is_causal": True}, {"attn_mask": ~causal}),
        ({"mask": causal.to("xla")}, {"attn_mask": ~causal}),
    ):
        ours, plain = pair(
            lambda: tp.ParallelSelfAttention(E, H, groups=groups),
            lambda: nn.MultiheadAttention(E, H, batch_first=True),
        )

        def call(m, v, options=options, reference=reference):
            if isinstance(m, nn.MultiheadAttention):
                return m(v, v, v, need_weights=False, **reference)[0]
            return m(v, **options)

        grads = check(ours, plain, x, call)
        whole = plain.in_proj_weight.grad.view(3, E, E)
        close(grads["in_proj_weight"], slice_of(whole, 1, groups))
        close(grads["in_proj_bias"], slice_of(plain.in_proj_bias.grad.view(3, E), 1, groups))
        close(grads["out_proj.weight"], slice_of(plain.out_proj.weight.grad, 1, groups))
    for bias in (True, False):
        ours, plain = pair(
            lambda bias=bias: tp.ParallelSelfAttention(E, H, bias, groups=groups),
            lambda bias=bias: nn.MultiheadAttention(E, H, bias=bias, batch_first=True),
        )
        loaded = nn.MultiheadAttention(E, H, bias=bias, batch_first=True)
        loaded.load_state_dict(tp.full_state_dict(ours))
        assert list(loaded.state_dict()) == list(tp.full_state_dict(ours))
        for name, value in plain.state_dict().items():
            close(loaded.state_dict()[name], value)


def cross_entropy(groups):
    logits = torch.randn(B, T, V, generator=torch.Generator().manual_seed(1)) * 30
    logits[0, 0, ::2] = float("-inf")
    target = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(2))
    target[0, 0], target[1, 2] = 1, -100
    for reduction in ("mean", "sum", "none"):
        whole = logits.clone().requires_grad_()
        mine = slice_of(logits, -1, groups).contiguous().to("xla").requires_grad_()
        expected = F.cross_entropy(whole.flatten(0, 1), target.flatten(), reduction=reduction)
        loss = tp.vocab_parallel_cross_entropy(mine, target.to("xla"), groups, reduction=reduction)
        close(loss.flatten(), expected.flatten())
        expected.sum().backward()
        loss.sum().backward()
        close(mine.grad, slice_of(whole.grad, -1, groups))
    logits[1, 2, 0] = float("-inf")  # where nothing is asked
    for reduction in ("mean", "none"):
        whole = logits.clone().requires_grad_()
        mine = slice_of(logits, -1, groups).contiguous().to("xla").requires_grad_()
        expected = F.cross_entropy(whole.flatten(0, 1), target.flatten(), reduction=reduction)
        loss = tp.vocab_parallel_cross_entropy(mine, target.to("xla"), groups, reduction=reduction)
        close(loss.flatten(), expected.flatten())
        expected.sum().backward()
        loss.sum().backward()
        close(mine.grad, slice_of(whole.grad, -1, groups))
    low = slice_of(logits, -1, groups).bfloat16().to("xla").requires_grad_()
    loss = tp.vocab_parallel_cross_entropy(low, target.to("xla"), groups)
    loss.backward()
    assert loss.dtype == torch.float32 and low.grad.dtype == torch.bfloat16
    close(loss, F.cross_entropy(logits.bfloat16().float().flatten(0, 1), target.flatten()))


def moves(groups):
    x = torch.randn(4, E, generator=torch.Generator().manual_seed(1))
    given = x.to("xla").requires_grad_()
    y = tp.gather_from_group(tp.scatter_to_group(given, 0, groups) * 2, 0, groups)
    close(y, 2 * x)
    (y * x.to("xla")).sum().backward()
    close(given.grad, 2 * x)


def wrong_arguments(groups):
    n = xr.world_size() if groups is None else len(groups[0])
    for call, words in (
        (
            lambda: tp.ColumnParallelLinear(4, 4 * n + 1, groups=groups),
            f"out_features .{4 * n + 1}",
        ),
        (lambda: tp.RowParallelLinear(4 * n + 1, 4, groups=groups), "in_features"),
        (lambda: tp.VocabParallelEmbedding(4 * n + 1, 4, groups=groups), "num_embeddings"),
        (lambda: tp.ParallelSelfAttention(5, 5, groups=groups), f"num_heads .5. .* over {n}"),
        (lambda: tp.scatter_to_group(torch.ones(5, device="xla"), 0, groups), "dimension 0 of"),
        (
            lambda: tp.vocab_parallel_cross_entropy(torch.ones(2, 3), torch.ones(3)),
            "a target of shape",
        ),
        (
            lambda: tp.vocab_parallel_cross_entropy(torch.ones(2, 3), torch.ones(2), reduction="x"),
            "reduction 'x'",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def options_of_plain_modules(groups):
    """Refused, where they would be dropped."""
    for options in (
        {"max_norm": 1.0},
        {"scale_grad_by_freq": True},
        {"sparse": True},
    ):
        (name,) = options
        with pytest.raises(ValueError, match=f"Embedding cannot be cut .* its {name} is"):
            tp.VocabParallelEmbedding(V, E, groups, nn.Embedding(V, E, **options))
    with pytest.raises(ValueError, match="its num_embeddings is 16"):
        tp.VocabParallelEmbedding(V, E, groups, nn.Embedding(V + 1, E))
    for name, options in (
        ("dropout", {"dropout": 0.1}),
        ("batch_first", {"batch_first": False}),
        ("bias_k", {"add_bias_kv": True}),
        ("add_zero_attn", {"add_zero_attn": True}),
        ("num_heads", {"num_heads": 2}),
        ("kdim", {"kdim": 4}),
    ):
        plain = nn.MultiheadAttention(E, **{"num_heads": H, "batch_first": True, **options})
        with pytest.raises(ValueError, match=f"MultiheadAttention cannot be cut .* its {name} is"):
            tp.ParallelSelfAttention(E, H, groups=groups, attention=plain)
    for make in (tp.ColumnParallelLinear, tp.RowParallelLinear):
        with pytest.raises(ValueError, match=r"Linear cannot be cut .* its in_features is 8"):
            make(E, E, groups=groups, linear=nn.Linear(E + 8, E))


def training(groups):
    """Twenty steps of a model of all layers, against the plain one; nothing compiles again."""

    class Model(nn.Module):
        def __init__(self, embedding, attention, up, down, head):
            super().__init__()
            self.embedding, self.attention = embedding(), attention()
            self.up, self.down, self.head = up(), down(), head()

        def forward(self, x):
            x = self.embedding(x)
            if isinstance(self.attention, nn.MultiheadAttention):
                x = x + self.attention(x, x, x, need_weights=False)[0]
            else:
                x = x + self.attention(x)
            return self.head(x + self.down(torch.relu(self.up(x))))

    ours, plain = pair(
        lambda: Model(
            lambda: tp.VocabParallelEmbedding(V, E, groups),
            lambda: tp.ParallelSelfAttention(E, H, groups=groups),
            lambda: tp.ColumnParallelLinear(E, 16, gather_output=False, groups=groups),
            lambda: tp.RowParallelLinear(16, E, input_is_parallel=True, groups=groups),
            lambda: tp.ColumnParallelLinear(E, V, gather_output=False, groups=groups),
        ),
        lambda: Model(
            lambda: nn.Embedding(V, E),
            lambda: nn.MultiheadAttention(E, H, batch_first=True),
            lambda: nn.Linear(E, 16),
            lambda: nn.Linear(16, E),
            lambda: nn.Linear(E, V),
        ),
    )
    x = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))
    y = x.flip(1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in (ours, plain)]
    mine, target = x.to("xla"), y.to("xla")
    compiled = []
    for _ in range(20):
        for o in optimizers:
            o.zero_grad()
        loss = tp.vocab_parallel_cross_entropy(ours(mine), target, groups)
        expected = F.cross_entropy(plain(x).flatten(0, 1), y.flatten())
        loss.backward()
        expected.backward()
        for o in optimizers:
            o.step()
        torch_xla.sync()
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert compiled[3] == compiled[-1], compiled
    torch.testing.assert_close(loss.cpu(), expected, rtol=1e-3, atol=1e-4)
    state = tp.full_state_dict(ours)
    torch.testing.assert_close(
        state["head.weight"].cpu(), plain.head.weight.detach(), rtol=1e-3, atol=1e-4
    )


def run(index):
    for part in (moves, linear, embedding, attention, cross_entropy, training):
        part(None)
    options_of_plain_modules(None)
    if xr.world_size() > 1:
        wrong_arguments(None)
    if xr.world_size() == 4:  # pairs that are copies of each other
        for part in (linear, training):
            part([[0, 1], [2, 3]])


@pytest.mark.parametrize("replicas", [2, 4])
def test_against_the_plain_modules(replicas, monkeypatch):
    monkeypatch.setenv("XLA_WAIT_TIMEOUT_S", "60")
    xmp.spawn(run, nprocs=replicas)


def test_one_replica():
    run(0)
