"""complex32, of which XLA has no type: held as complex<f32>, every part a half."""

import copy

import pytest
import torch

import torch_xla
from tests.ops.oracle import DEVICE, check, check_error, to_xla
from torch_xla.debug import metrics
from torch_xla.experimental.custom_kernel import stablehlo_op

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

HALF, C32, C64, C128 = torch.float16, torch.complex32, torch.complex64, torch.complex128
INF, NAN = float("inf"), float("nan")
EXACT = {"rtol": 0, "atol": 0}


def bits(z: torch.Tensor) -> torch.Tensor:
    """What NaN cannot be unequal to, and zeros have signs in; all NaN are one."""
    parts = torch.view_as_real(z.cpu().resolve_conj())
    return torch.where(parts.isnan(), torch.tensor(NAN, dtype=HALF), parts).view(torch.int16)


def assert_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype == C32 and got.device == DEVICE
    assert torch.equal(bits(got), bits(want))


def complexes(*shape: int, scale: float = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return (torch.randn(shape, dtype=C64, generator=generator) * scale).to(C32)


def all_halves() -> torch.Tensor:
    """Every half is a real part and an imaginary one."""
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(HALF)
    return torch.complex(x, x.flip(0).roll(77))


def awkward() -> torch.Tensor:
    """float64 about everything where rounding to halves decides."""
    steps = torch.arange(-8, 9, dtype=torch.float64)
    about = [1, 2048, 65504, 65520, 2**-14, 2**-24, 2**-25, 1e-3]
    x = torch.cat([a * (1 + steps * 2**-13) for a in about])
    special = torch.tensor([0.0, INF, NAN, 1e5, 1e-9, 1e-40, 1e38], dtype=torch.float64)
    x = torch.cat([x, special])
    return torch.cat([x, -x])


def test_round_trip():
    z = all_halves()
    assert_bits(z.to(DEVICE), z)
    assert_bits(z.to(DEVICE).clone() * 1, z * 1)  # through a program
    for c in (complexes(), complexes(0, 3), complexes(3, 4).t(), complexes(4)[::2].conj()):
        x = c.to(DEVICE)
        assert (x.dtype, x.shape, x.itemsize) == (C32, c.shape, 4)
        assert_bits(x, c)
        assert_bits(torch.zeros_like(x).copy_(c), c)
        assert torch.equal(bits(torch.zeros_like(c).copy_(x)), bits(c))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, HALF])
def test_from_real(dtype):
    x = awkward().to(dtype)
    assert_bits(x.to(DEVICE).chalf(), x.chalf())


@pytest.mark.parametrize("dtype", [C64, C128])
def test_from_complex(dtype):
    z = torch.complex(awkward(), awkward().flip(0)).to(dtype)
    assert_bits(z.to(DEVICE).chalf(), z.chalf())
    assert_bits(torch.zeros(z.shape, dtype=C32, device=DEVICE).copy_(z.to(DEVICE)), z.chalf())


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_conversions():
    x = torch.tensor([-70000, -2049, -1, 0, 1, 2051, 65519, 65520, 2**40])
    for dtype in (torch.int64, torch.int32, torch.bool, torch.uint8):
        assert_bits(x.to(dtype).to(DEVICE).to(C32), x.to(dtype).to(C32))
    to = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.bfloat16, HALF)
    to += (torch.float32, torch.float64, C64, C128)
    check(lambda z: [z.to(t) for t in to], complexes(9, scale=20), grad=False)


def test_rounds_once():
    """As the CPU does: in float32, then to halves, overflow to infinity."""
    z, w = complexes(500), complexes(2, 500, scale=200)
    big = torch.full((3,), 60000 + 6e-8j, dtype=C32)

    def arithmetic(z, w, big):
        yield from (z + w, z - w, z * w, torch.add(z, w, alpha=0.3), torch.sub(z, w, alpha=2j))
        yield from (z + 1, 1 - z, z * 0.1, z * (2 - 0.3j), -z, z.sgn(), z.abs(), z.conj())
        yield from (torch.addcmul(z, w, z, value=0.7), big + big, big * big.real, big * 0.5)
        yield from ((z == w), (z == z), (z != w), z.isfinite(), big.mul(2).isinf())

    check(lambda *a: list(arithmetic(*a)), z, w, big, grad=False, **EXACT)


def test_steps_round_in_one_program():
    """Each operator's result is of halves, also where the compiler sees several of them."""
    z = complexes(300)
    check(lambda z: ((z + 0.001) + 0.001) * 1.1 - z, z, grad=False, **EXACT)
    check(lambda z: (z * 300) * 300 * 1e-4, z, grad=False, **EXACT)
    check(lambda z: (z * 1e-6) * 1000, z, grad=False, **EXACT)


def test_what_the_cpu_has_not():
    """Computed in complex64 and rounded once."""
    z, w = complexes(7), complexes(7) + 5
    fns = [torch.exp, torch.sqrt, torch.log, torch.tanh, torch.angle, torch.sum, torch.prod]
    fns += [torch.mean, lambda z: z.cumsum(0), lambda z: z / w.to(z.device, z.dtype)]
    fns += [lambda z: z @ z, lambda z: z**2, torch.reciprocal, torch.square]
    for fn in fns:
        want = fn(z.to(C64))
        got = fn(z.to(DEVICE))
        assert got.dtype == (C32 if want.is_complex() else HALF)
        torch.testing.assert_close(got.cpu().to(want.dtype), want, rtol=2e-3, atol=1e-3)


def test_promotion():
    half, z = torch.ones(2, dtype=HALF), complexes(2)
    others = [torch.ones(2, dtype=t) for t in (torch.bool, torch.int32, torch.bfloat16)]
    others += [torch.ones(2, dtype=t) for t in (HALF, torch.float32, torch.float64, C64, C128)]
    others += [
        torch.tensor(2j),
        torch.tensor(2.5, dtype=torch.float64),
        torch.tensor(1j, dtype=C128),
    ]
    others += [2, 2.5, 1 + 2j, True]
    for o in others:
        assert torch.result_type(to_xla(z), to_xla(o)) == torch.result_type(z, o)
        check(lambda z, o: (z * o, o + z), z, o, grad=False)
    check(lambda h: (h * 1j, h + 2, torch.where(h > 0, h, 1j)), half, grad=False)
    check(lambda h, z: (h * z, torch.result_type(h, z)), half, z[0], grad=False)
    check(lambda z: torch.tensor(2.0, device=z.device).double() * z, z, grad=False)


def test_default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(HALF)
    try:
        assert torch.full((2,), 1j, device=DEVICE).dtype == C32
        assert (torch.ones(2, dtype=torch.int64, device=DEVICE) * 1j).dtype == C32
    finally:
        torch.set_default_dtype(before)


def test_numbers_that_do_not_fit():
    z, mask, index = complexes(3), torch.tensor([True, False, True]), torch.tensor([0])
    check_error(lambda z, mask: z.masked_fill(mask, 70000j), z, mask)
    check_error(lambda z, index: z.index_fill(0, index, 70000.0), z, index)
    check(lambda z: torch.nn.functional.pad(z, (1, 1), value=70000.0), z, grad=False)
    check(lambda z: (z.clone().fill_(70000), z.to(C64).mul(1e6).to(C32)), z, grad=False)


def test_a_users_kernel():
    """It sees complex<f32>; its result is rounded."""
    text = """func.func @main(%x: tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>> {
      %y = stablehlo.multiply %x, %x : tensor<3xcomplex<f32>>
      return %y : tensor<3xcomplex<f32>>
    }"""

    def like(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    square = stablehlo_op("t_complex32::square", text, shapes=like)
    z = complexes(3)
    assert_bits(square(z.to(DEVICE)), z * z)
    assert_bits(square(z.to(DEVICE, C64)).to(C32), z * z)


def test_creation():
    def make(z):
        d, t = z.device, C32
        yield from (torch.zeros(2, dtype=t, device=d), torch.ones(2, 1, dtype=t, device=d))
        yield from (torch.full((3,), 0.1 + 70000j, dtype=t, device=d), z.new_full((2,), 1j))
        yield from (
            torch.tensor([1, 2j], dtype=t, device=d),
            torch.scalar_tensor(2j, dtype=t, device=d),
        )
        yield from (torch.ones_like(z), z.new_zeros(2), torch.zeros_like(z.real, dtype=t))
        yield from (torch.complex(z.real, z.imag), torch.view_as_complex(torch.view_as_real(z) * 2))
        yield from (torch.zeros_like(z).fill_(1e-8 + 3j), torch.zeros_like(z).fill_(z[0]))

    check(lambda z: list(make(z)), complexes(4), grad=False, **EXACT)
    assert torch.empty(2, dtype=C32, device=DEVICE).dtype == C32


def test_movement():
    mask, index = torch.tensor([True, False, True]), torch.tensor([2, 0])

    def move(z, w, mask, index):
        yield from (torch.cat([z, w]), torch.stack([z, w]), z.t(), z.roll(1), z.tril())
        yield from (z[1], z[:, 1:], z[index], z.repeat(2, 1), z.expand(2, 3, 3), z.diagonal())
        yield from (torch.where(mask, z, w), z.masked_fill(mask, 1j), z.index_add(0, index, w[:2]))
        yield from (z.index_fill(0, index, 2 - 1j), z.index_copy(0, index, w[:2]))
        yield from (z.index_put((index,), w[:2]), z.index_put((index,), w[:2], accumulate=True))
        yield from (torch.nn.functional.pad(z, (1, 2), value=3), z.reshape(9), z.unfold(0, 2, 1))
        yield from (z.norm(), z.real.sum(), z.bool(), z.any(), z.all(), z.isreal())

    check(lambda *a: list(move(*a)), complexes(3, 3), complexes(3, 3), mask, index, grad=False)
    check(lambda z, mask: (z.nonzero(), z[mask]), complexes(3, 3), mask, grad=False, on_host=True)


def test_views_and_writes():
    def write(z):
        w, v = z.clone(), z * 2
        w.real[1] = 7
        w.imag.mul_(2)
        torch.view_as_real(w)[0, 0] = 0.1
        w[2:].copy_(w[:2])
        w.conj()[0].fill_(3 + 4j)
        v.view(HALF)[1] = 9
        v.view(torch.int32)[3] = 0x3C004000
        v.imag.neg_()
        return w, v, w.conj(), w.conj().imag, v.view(torch.int16), v.view(torch.uint8)

    z = complexes(4)
    check(write, z, grad=False, **EXACT)
    x = z.to(DEVICE)
    assert x.real.dtype == x.imag.dtype == torch.view_as_real(x).dtype == HALF
    check(
        lambda p: torch.view_as_complex(p).mul_(2j) * 1 + p.sum(),
        torch.ones(3, 2).half(),
        grad=False,
    )
    check_error(lambda p: torch.view_as_complex(p), torch.ones(3, 2, dtype=torch.bfloat16))
    check_error(lambda z: z.view(C64), complexes(3))


def test_autograd():
    x = torch.linspace(-2, 2, 9)
    check(lambda x: (x.chalf() * (1 + 2j)).real.float(), x)
    check(lambda x: torch.view_as_real(x.to(C64).chalf()).float().pow(2), x)
    check(lambda z: (z * z.conj()).real, complexes(5))
    check(lambda z, w: z * w + z.abs(), complexes(5), complexes(5))
    check(lambda z: z.chalf().to(C64), torch.complex(x, x.flip(0)))
    leaf = complexes(3).to(DEVICE).requires_grad_()
    leaf.real.float().sum().backward()
    assert leaf.grad.dtype == C32 and leaf.grad.tolist() == [1, 1, 1]


def test_reads():
    z = torch.tensor([1 + 2j, -0.1 + 65504j], dtype=C32)
    x = z.to(DEVICE)
    assert x[0].item() == 1 + 2j and x.tolist() == z.tolist()
    assert repr(x).split() == repr(z).replace("dtype", "device='xla:0', dtype").split()
    assert complex(x[0]) == 1 + 2j and bool(x[0])
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1)


def test_saved(tmp_path):
    z = complexes(5)
    x = z.to(DEVICE)
    torch.save({"x": x, "twice": copy.deepcopy(x)}, tmp_path / "file.pt")
    back = torch.load(tmp_path / "file.pt")
    assert_bits(back["x"], z)
    assert_bits(back["twice"], z)
    assert torch.equal(bits(torch.load(tmp_path / "file.pt", map_location="cpu")["x"]), bits(z))


def test_draws():
    torch.manual_seed(3)
    x = torch.randn(20_000, dtype=C32, device=DEVICE)
    torch.manual_seed(3)
    assert torch.equal(x, torch.randn(20_000, dtype=C32, device=DEVICE))
    for part in (x.real, x.imag):
        part = part.cpu().float()
        assert abs(part.mean()) < 0.02 and abs(part.var() - 0.5) < 0.02
    u = torch.rand_like(x)
    assert u.dtype == C32
    for part in (u.real, u.imag):
        part = part.cpu().float()
        assert part.min() >= 0 and part.max() < 1 and abs(part.mean() - 0.5) < 0.02
    n = torch.empty(20_000, dtype=C32, device=DEVICE).normal_(3, 0.5).cpu().to(C64)
    assert abs(n.real.mean() - 3) < 0.02 and abs(n.imag.mean() - 3) < 0.02


def test_is_another_program_than_complex64s():
    """Though the types have one name in StableHLO."""
    z = complexes(6).to(C64)
    for _ in range(2):
        for dtype in (C64, C32):
            want = z.to(dtype) * 0.1
            got = z.to(DEVICE, dtype) * 0.1
            assert got.dtype == dtype
            torch.testing.assert_close(got.cpu(), want, rtol=1e-6, atol=0)
            got = torch.exp(z.to(DEVICE, dtype))  # a host call, which remembers result types
            assert got.dtype == dtype


def test_numbers_are_inputs():
    x = complexes(6).to(DEVICE)
    compiled = set()
    for i in range(3):
        y = x * (0.1 * i + 1j) + 2.5 * i
        torch_xla.sync()
        compiled.add(metrics.metric_data("CompileTime")[0])
        assert y.dtype == C32
    assert len(compiled) == 1


def test_donated_state():
    """A step's new value may take the old one's memory."""
    w = complexes(100)
    x = w.to(DEVICE)
    for _ in range(4):
        w.mul_(0.9 + 0.1j)
        x.mul_(0.9 + 0.1j)
        torch_xla.sync()
    assert_bits(x, w)


def test_memory():
    """8 bytes for an element on the device."""
    before = metrics.metric_data("OutboundData")[1] if metrics.metric_data("OutboundData") else 0
    complexes(1000).to(DEVICE)
    assert metrics.metric_data("OutboundData")[1] - before == 8000
