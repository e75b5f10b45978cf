"""Recurrent layers against the CPU; their graphs do not grow with the length."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import torch_xla
from torch_xla.debug import metrics

from .oracle import DEVICE, assert_same, check, floats, host_runs, to_xla

# What the CPU says of its own kernels.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
MODULES = {
    "tanh": lambda *a, **k: torch.nn.RNN(*a, **k),
    "relu": lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k),
    "lstm": lambda *a, **k: torch.nn.LSTM(*a, **k),
    "lstm_projected": lambda *a, **k: torch.nn.LSTM(*a, proj_size=3, **k),
    "gru": lambda *a, **k: torch.nn.GRU(*a, **k),
}


def pair(name, *args, **options):
    """The same module on the CPU and on the device."""
    torch.manual_seed(0)
    cpu = MODULES[name](*args, **options)
    xla = MODULES[name](*args, **options)
    xla.load_state_dict(cpu.state_dict())
    return cpu, xla.to(DEVICE)


def states(name, layers, batch):
    h = floats(layers, batch, 3 if name == "lstm_projected" else 5)
    return (h, floats(layers, batch, 5)) if name.startswith("lstm") else h


def run(module, *inputs):
    """Results, and gradients of the inputs and parameters."""
    inputs = torch.utils._pytree.tree_map(lambda t: t.detach().requires_grad_(), inputs)
    y, last = module(*inputs)
    outs = [y, *(last if isinstance(last, tuple) else (last,))]
    loss = sum((o * o.detach().cos()).sum() for o in outs)
    loss.backward()
    leaves = torch.utils._pytree.tree_leaves(inputs)
    return outs, [t.grad for t in leaves], [p.grad for p in module.parameters()]


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True, "num_layers": 2}])
@pytest.mark.parametrize("name", MODULES)
def test_padded(name, options):
    cpu, xla = pair(name, 4, 5, **options)
    directions = (2 if options.get("bidirectional") else 1) * options.get("num_layers", 1)
    x, h = floats(6, 2, 4), states(name, directions, 2)
    before = host_runs()
    want = run(cpu, x, h)
    got = run(xla, to_xla(x), torch.utils._pytree.tree_map(to_xla, h))
    torch_xla.sync()
    assert_same(got, want, name, **CLOSE)
    assert host_runs() == before


@pytest.mark.parametrize("name", MODULES)
def test_batch_first_without_state_or_batch(name):
    cpu, xla = pair(name, 4, 5, batch_first=True)
    for x in (floats(2, 6, 4), floats(6, 4), floats(2, 1, 4)):
        assert_same(run(xla, to_xla(x)), run(cpu, x), name, **CLOSE)


@pytest.mark.parametrize("sorted_", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_packed(name, sorted_):
    cpu, xla = pair(name, 4, 5, bidirectional=True, num_layers=2)
    lengths = torch.tensor([6, 4, 4, 1] if sorted_ else [4, 1, 6, 4])

    def through(module, x, h):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=sorted_)
        y, last = module(packed, h)
        padded, n = pad_packed_sequence(y, padding_value=0.5, total_length=7)
        assert n.tolist() == lengths.tolist()
        assert y.batch_sizes.tolist() == [4, 3, 3, 3, 1, 1]
        return padded, last

    x, h = floats(6, 4, 4), states(name, 4, 4)
    before = host_runs()
    results = []
    for module, move in ((cpu, lambda t: t), (xla, to_xla)):

        def call(x, h, module=module):
            return through(module, x, h)

        call.parameters = module.parameters
        results.append(run(call, move(x), torch.utils._pytree.tree_map(move, h)))
    assert_same(results[1], results[0], name, **CLOSE)
    assert host_runs() == before


def test_other_lengths_compile_nothing():
    xla = torch.nn.GRU(4, 5).to(DEVICE)
    compiles = []
    for lengths in ([4, 3, 1], [4, 2, 2], [4, 3, 1], [4, 2, 2]):
        x = pack_sequence([floats(n, 4).to(DEVICE) for n in lengths])
        torch_xla.sync()
        y, _ = xla(x)
        y.data.sum().backward()
        torch_xla.sync()
        compiles.append(metrics.metric_data("CompileTime")[0])
    assert compiles[-1] == compiles[1]


@pytest.mark.parametrize("name", MODULES)
def test_dropout_between_layers(name):
    torch.manual_seed(0)
    module = MODULES[name](4, 5, num_layers=2, dropout=1.0).to(DEVICE)
    a, b = module(to_xla(floats(6, 2, 4)))[0], module(to_xla(floats(6, 2, 4) + 1))[0]
    assert_same(a, b.cpu())  # nothing of the input gets to the second layer
    module.dropout = 0.5
    a, b = module(to_xla(floats(6, 2, 4)))[0], module(to_xla(floats(6, 2, 4)))[0]
    assert not torch.equal(a.cpu(), b.cpu())
    module.eval()
    a, b = module(to_xla(floats(6, 2, 4)))[0], module(to_xla(floats(6, 2, 4)))[0]
    assert_same(a, b.cpu())


@pytest.mark.parametrize("name", ["tanh", "lstm_projected", "gru"])
def test_second_derivative(name):
    cpu, xla = pair(name, 4, 5, bidirectional=True)

    def penalty(module, x):
        x = x.detach().requires_grad_()
        y = module(x)[0]
        (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        g.square().sum().backward()
        return x.grad, [p.grad for p in module.parameters()]

    x = floats(3, 2, 4)
    assert_same(penalty(xla, to_xla(x)), penalty(cpu, x), name, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODULES)
def test_bfloat16(name):
    cpu, xla = pair(name, 4, 5)
    x = floats(6, 2, 4)
    y = xla.bfloat16()(to_xla(x).bfloat16())[0]
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float().cpu(), cpu(x)[0], rtol=3e-2, atol=3e-2)


def test_autocast():
    cpu, xla = pair("lstm", 4, 5)
    x = floats(6, 2, 4)
    with torch.autocast("xla", torch.bfloat16):
        y = xla(to_xla(x))[0]
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float().cpu(), cpu(x)[0], rtol=3e-2, atol=3e-2)
    y.float().sum().backward()
    assert xla.weight_hh_l0.grad.dtype == torch.float32


@pytest.mark.parametrize("name", MODULES)
def test_inference(name):
    cpu, xla = pair(name, 4, 5)
    x = floats(6, 2, 4)
    with torch.inference_mode():
        assert_same(xla(to_xla(x)), cpu(x), name, **CLOSE)


CELLS = {
    "tanh": lambda x, h, *w: torch.rnn_tanh_cell(x, h, *w),
    "relu": lambda x, h, *w: torch.rnn_relu_cell(x, h, *w),
    "lstm": lambda x, h, *w: torch.lstm_cell(x, (h, h * 2), *w),
    "gru": lambda x, h, *w: torch.gru_cell(x, h, *w),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name):
    n = {"lstm": 20, "gru": 15}.get(name, 5)
    weights = floats(n, 4), floats(n, 5), floats(n), floats(n, low=0)
    check(CELLS[name], floats(2, 4), floats(2, 5), *weights, **CLOSE)


def nodes_of(module, steps, backward):
    """The number of nodes of the recorded graph."""
    x = torch.randn(steps, 2, 4, device=DEVICE)
    torch_xla.sync()
    before = metrics.metric_data("TensorsGraphSize")[1]
    y = module(x)[0]
    if backward:
        kept = torch.autograd.grad(y.square().sum(), list(module.parameters()))
        assert len(kept) > 0
    torch_xla.sync()
    return metrics.metric_data("TensorsGraphSize")[1] - before


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_graph_does_not_grow_with_the_length(name, backward):
    module = MODULES[name](4, 5, num_layers=2, bidirectional=True).to(DEVICE)
    short, long = nodes_of(module, 8, backward), nodes_of(module, 512, backward)
    assert 0 < short == long < 400


def test_errors():
    lstm = torch.nn.LSTM(4, 5).to(DEVICE)
    x, h = torch.zeros(3, 2, 4, device=DEVICE), torch.zeros(1, 2, 5, device=DEVICE)
    with pytest.raises(RuntimeError, match="lstm expects two hidden states"):
        torch.lstm(x, [h], list(lstm.parameters()), True, 1, 0.0, True, False, False)
    with pytest.raises(RuntimeError, match="Expected hidden"):
        lstm(x, (h[:, :1], h))
    with pytest.raises(RuntimeError, match="larger than 0"):
        lstm(x[:0])
