"""nn.Module.to keeps Parameter objects when it moves to or from the device."""

import copy
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_xla import _XLAC

from .conftest import assert_same


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, i):
        return self.out(self.emb(i))


def test_objects_are_kept(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = dict(model.named_parameters())
    values = copy.deepcopy(model.state_dict())
    for where in (device, "cpu", device):
        assert model.to(where) is model
        for name, p in model.named_parameters():
            assert p is before[name] and p.is_leaf and p.requires_grad
            assert type(p) is nn.Parameter
            assert p.device.type == torch.device(where).type
            assert_same(p, values[name])
        assert all(b.device.type == torch.device(where).type for b in model.buffers())


def test_optimizer_made_before_the_move(device):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to(device)
    before = model.weight.detach().cpu()
    model(torch.ones(2, 4, device=device)).sum().backward()
    optimizer.step()
    assert_same(model.weight, before - 0.5 * 2)


def test_tied_parameters_stay_tied(device):
    torch.manual_seed(0)
    cpu = Tied()
    xla = copy.deepcopy(cpu).to(device)
    assert xla.out.weight is xla.emb.weight
    assert len(list(xla.parameters())) == 1
    i = torch.tensor([1, 2, 3])
    for model, where in ((cpu, "cpu"), (xla, device)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(i.to(where)), i.to(where)).backward()
            optimizer.step()
    assert_same(xla.emb.weight, cpu.emb.weight)
    assert_same(xla.out.weight, cpu.emb.weight)


def test_gradients_move(device):
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    grad = model.weight.grad.clone()
    model.to(device)
    assert model.weight.grad.device.type == "xla"
    assert_same(model.weight.grad, grad)
    model.cpu()
    assert_same(model.weight.grad, grad)


def test_dtype_and_device_together(device):
    model = nn.Linear(2, 2)
    p = model.weight
    model.to(device, torch.bfloat16)
    assert model.weight is p and p.dtype == torch.bfloat16 and p.device.type == "xla"
    model.to(torch.float32)
    assert model.weight is p and p.dtype == torch.float32 and p.device.type == "xla"


def test_refused_swap_warns_and_replaces(device):
    model = nn.Linear(2, 2)
    held = weakref.ref(model.weight)
    with pytest.warns(UserWarning, match=r"Linear\.weight is a new Parameter"):
        model.to(device)
    assert model.weight is not held() and model.weight.device.type == "xla"
    assert model.bias.device.type == "xla"


def test_a_frozen_parameter(device):
    model = nn.Linear(2, 2)
    model.weight.requires_grad_(False)
    p = model.weight
    model.to(device)
    assert model.weight is p and not p.requires_grad


def test_recurrent_layer(device):
    model = nn.LSTM(2, 3)
    params = list(model.parameters())
    model.to(device)
    assert all(a is b for a, b in zip(params, model.parameters(), strict=True))
    assert all(a is b for a, b in zip(params, model._flat_weights, strict=True))


def test_moves_on_the_cpu_are_untouched():
    model = nn.Linear(2, 2)
    p = model.weight
    model.double()
    assert model.weight is p and p.dtype == torch.float64


def test_the_users_switch_wins(device):
    model = nn.Linear(2, 2)
    p = model.weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.to(device)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert model.weight is not p and model.weight.device.type == "xla"


def test_data_assignment_and_tensor_ids(device):
    a = torch.zeros(2, 3, device=device)
    b = nn.Parameter(torch.empty(3, 2, device=device))
    b.data = a.t()
    a[0, 1] = 5
    assert_same(b, torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 0.0]]))
    same, other = _XLAC._xla_get_tensor_id, torch.zeros(1, device=device)
    assert same(a) == same(a[0]) == same(b) != same(other)
