"""Small editions of well-known nets train on the device as on the CPU: the same losses, nothing on
the host, and no compilation after the second step."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
from torch_xla.debug import metrics

DEVICE = torch.device("xla:0")


def conv(i, o, k=3, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU()
    )


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv(i, o, stride=stride), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        )
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet():
    return nn.Sequential(
        conv(3, 4, 5, stride=2),
        nn.MaxPool2d(3, 2, 1),
        Residual(4, 4, 1),
        Residual(4, 8, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def vgg():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d((3, 3)),
        nn.Flatten(),
        nn.Linear(72, 16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )


class Inverted(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv(i, 2 * i, 1),
            nn.Conv2d(2 * i, 2 * i, 3, stride, 1, groups=2 * i, bias=False),
            nn.BatchNorm2d(2 * i),
            nn.Hardswish(),
            nn.Conv2d(2 * i, o, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.same = stride == 1 and i == o

    def forward(self, x):
        y = self.body(x)
        return x + y if self.same else y


def mobilenet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU6(),
        Inverted(4, 4, 1),
        Inverted(4, 6, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )


class UNet(nn.Module):
    """A transposed convolution on the way up, and a bilinear interpolation."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = conv(3, 4), conv(4, 6), conv(6, 8)
        self.up2 = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.merge2, self.merge1 = conv(12, 6), conv(10, 4)
        self.norm = nn.GroupNorm(2, 4)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        a = self.down1(F.pad(x, (1, 1, 1, 1), "reflect"))[..., 1:-1, 1:-1]
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.avg_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        b = F.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(self.norm(self.merge1(torch.cat([b, a], 1))))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(12, 8))
        self.body = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, source, target):
        def embed(t):
            return self.words(t) + self.places[: t.shape[1]]

        causal = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], device=target.device
        )
        padding = source == 0
        y = self.body(
            embed(source),
            embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.head(y)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.body = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, x):
        return self.head(self.body(self.words(x))[0])


def image_loss(model, g):
    x, y = torch.randn(4, 3, 16, 16, generator=g), torch.randint(5, (4,), generator=g)
    return lambda d: F.cross_entropy(model(x.to(d)), y.to(d), label_smoothing=0.1)


def mask_loss(model, g):
    x = torch.randn(2, 3, 16, 16, generator=g)
    y = torch.randint(2, (2, 16, 16), generator=g)
    return lambda d: F.cross_entropy(model(x.to(d)), y.to(d))


def translation_loss(model, g):
    x, y = (torch.randint(1, 20, (3, n), generator=g) for n in (9, 7))
    x[1, 6:] = 0

    def loss(d):
        source, target = x.to(d), y.to(d)
        words = model(source, target[:, :-1])
        return F.cross_entropy(words.flatten(0, 1), target[:, 1:].flatten())

    return loss


def language_loss(model, g):
    x = torch.randint(20, (3, 11), generator=g)
    return lambda d: F.cross_entropy(model(x.to(d)[:, :-1]).flatten(0, 1), x.to(d)[:, 1:].flatten())


NETS = {
    "resnet": (resnet, image_loss, lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True)),
    "vgg": (vgg, image_loss, lambda p: torch.optim.Adam(p, 1e-2)),
    "mobilenet": (mobilenet, image_loss, lambda p: torch.optim.RMSprop(p, 1e-3)),
    "unet": (UNet, mask_loss, lambda p: torch.optim.AdamW(p, 1e-2)),
    "transformer": (Translator, translation_loss, lambda p: torch.optim.Adam(p, 1e-2)),
    "lstm": (LanguageModel, language_loss, lambda p: torch.optim.Adagrad(p, 1e-2)),
}


def train(name, device):
    """Losses, and the number of compilations after each step."""
    build, batch, optimizer_of = NETS[name]
    torch.manual_seed(0)
    model = build().train().to(device)
    optimizer = optimizer_of(model.parameters())
    g = torch.Generator().manual_seed(1)
    losses, compiled = [], []
    for _ in range(4):
        loss = batch(model, g)(device)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if device != torch.device("cpu"):
            torch_xla.sync()
        losses.append(loss.item())
        compiled.append(metrics.counter_value("UncachedCompile") or 0)
    return losses, compiled


@pytest.mark.parametrize("name", NETS)
def test_trains_as_on_the_cpu(name):
    want, _ = train(name, torch.device("cpu"))
    before = set(metrics.executed_fallback_ops())
    got, compiled = train(name, DEVICE)
    assert set(metrics.executed_fallback_ops()) - before <= {"aten::_local_scalar_dense"}
    assert compiled[-1] == compiled[1], "compiles again"
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=1e-3, atol=1e-4)
    assert got[-1] != got[0]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # the CPU's path
@pytest.mark.parametrize("name", NETS)
def test_evaluates_as_on_the_cpu(name):
    """torch has paths of its own for modules in eval mode, such as a fused encoder layer."""
    build, batch, _ = NETS[name]
    torch.manual_seed(0)
    model = build().train()
    with torch.no_grad():
        batch(model, torch.Generator().manual_seed(1))(torch.device("cpu"))  # running statistics
        model.eval()
        want = batch(model, torch.Generator().manual_seed(2))(torch.device("cpu"))
        before = set(metrics.executed_fallback_ops())
        reads = metrics.counter_value("aten::_local_scalar_dense")
        got = batch(model.to(DEVICE), torch.Generator().manual_seed(2))(DEVICE)
        assert metrics.counter_value("aten::_local_scalar_dense") == reads, "waits for the device"
    assert set(metrics.executed_fallback_ops()) == before
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
