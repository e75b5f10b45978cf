"""Random numbers: the generator's bits, the distributions, reproducibility, dropout."""

import math

import pytest
import torch
import torch.nn.functional as F

import torch_xla

from .oracle import check, check_error, floats, host_runs

DEVICE = torch.device("xla:0")
N = 100_000


def threefry(key, counter):
    """Threefry-2x32 with 13 rounds, as Salmon et al. give it, on Python integers."""
    mask = 0xFFFFFFFF
    ks = [key & mask, key >> 32]
    ks.append(ks[0] ^ ks[1] ^ 0x1BD11BDA)
    x0, x1 = (counter + ks[0]) & mask, ((counter >> 32) + ks[1]) & mask
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    for i in range(13):
        x0 = (x0 + x1) & mask
        r = rotations[i % 8]
        x1 = ((x1 << r | x1 >> (32 - r)) & mask) ^ x0
        if i % 4 == 3:
            turn = i // 4 + 1
            x0 = (x0 + ks[turn % 3]) & mask
            x1 = (x1 + ks[(turn + 1) % 3] + turn) & mask
    return x1 << 32 | x0


def signed(x):
    return x - (1 << 64) if x >> 63 else x


def generator(seed, offset=0):
    state = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    g = torch.Generator(DEVICE)
    g.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return g


def test_published_answers():
    # kat_vectors of the Random123 distribution: threefry2x32, 13 rounds
    assert threefry(0, 0) == 0x8BD50731_9D1C5EC6
    assert threefry((1 << 64) - 1, (1 << 64) - 1) == 0x2D17272C_FD36D048


@pytest.mark.parametrize(
    ("seed", "offset"), [(0, 0), (12345678901234567890, 7), (1, (1 << 32) - 3), (1 << 63, 1 << 63)]
)
def test_bits(seed, offset):
    x = torch.empty(2, 3, dtype=torch.int64, device=DEVICE)
    x.random_(-(1 << 63), None, generator=generator(seed, offset))
    want = [signed(threefry(seed, (offset + i) % (1 << 64))) for i in range(6)]
    assert x.flatten().tolist() == want


# name -> (fill in place, distribution function)
def normal_cdf(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


FILLS = {
    "uniform": (lambda x: x.uniform_(), lambda x: x.clamp(0, 1)),
    "uniform_bounds": (lambda x: x.uniform_(-3, 5), lambda x: ((x + 3) / 8).clamp(0, 1)),
    "normal": (lambda x: x.normal_(), normal_cdf),
    "normal_moved": (lambda x: x.normal_(2, 3), lambda x: normal_cdf((x - 2) / 3)),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.7), lambda x: normal_cdf((x.log() - 0.5) / 0.7)),
    "exponential": (lambda x: x.exponential_(2), lambda x: 1 - (-2 * x).exp()),
    "cauchy": (lambda x: x.cauchy_(1, 2), lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distribution(name, dtype):
    fill, cdf = FILLS[name]
    torch.manual_seed(3)
    x = fill(torch.empty(N // 100, 100, dtype=dtype, device=DEVICE)).cpu().double().flatten()
    assert torch.isfinite(x).all()
    p = cdf(x.sort().values)
    ranks = torch.arange(1, N + 1) / N
    # Kolmogorov-Smirnov: exceeded once in ten thousand
    assert (p - ranks).abs().max() < 2.23 / math.sqrt(N)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["uniform", "normal", "exponential"])
def test_half_distribution(name, dtype):
    fill, cdf = FILLS[name]
    torch.manual_seed(3)
    x = fill(torch.empty(N, dtype=dtype, device=DEVICE)).cpu().double()
    p = cdf(x.sort().values)
    assert (p - torch.arange(1, N + 1) / N).abs().max() < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_never_returns_its_end(dtype):
    torch.manual_seed(0)
    x = torch.rand(1_000_000, dtype=dtype, device=DEVICE)
    assert x.min() >= 0 and x.max() < 1
    y = torch.empty_like(x).uniform_(1, 1 + 2**-6)
    assert y.min() >= 1 and y.max() < 1 + 2**-6


def test_normal_tails():
    torch.manual_seed(0)
    x = torch.randn(1_000_000, device=DEVICE).abs().cpu()
    for sigmas in (3, 4):
        want = math.erfc(sigmas / math.sqrt(2)) * 1e6
        assert abs((x > sigmas).sum().item() - want) < 5 * math.sqrt(want)


def test_complex_normal():
    torch.manual_seed(0)
    x = torch.randn(N, dtype=torch.complex64, device=DEVICE).cpu()
    for part in (x.real, x.imag):
        assert abs(part.mean()) < 0.02 and abs(part.var() - 0.5) < 0.02
    assert abs((x.real * x.imag).mean()) < 0.02


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
def test_bernoulli(dtype):
    torch.manual_seed(0)
    x = torch.empty(N, dtype=dtype, device=DEVICE).bernoulli_(0.3).float()
    assert set(x.unique().tolist()) == {0, 1}
    assert abs(x.mean().item() - 0.3) < 0.01
    assert torch.empty(9, dtype=dtype, device=DEVICE).bernoulli_(1.0).bool().all()
    assert not torch.empty(9, dtype=dtype, device=DEVICE).bernoulli_(0.0).bool().any()


def test_bernoulli_of_tensors():
    p = torch.tensor([0.0, 1.0, 0.25], device=DEVICE).expand(20_000, 3)
    for x in (torch.bernoulli(p), torch.empty_like(p).bernoulli_(p), torch.bernoulli(p.double())):
        mean = x.float().mean(0).tolist()
        assert mean[:2] == [0, 1] and abs(mean[2] - 0.25) < 0.02


def test_geometric():
    torch.manual_seed(0)
    x = torch.empty(N, device=DEVICE).geometric_(0.25).cpu()
    assert x.min() == 1 and abs(x.mean() - 4) < 0.1
    y = torch.empty(N, dtype=torch.int64, device=DEVICE).geometric_(0.25)
    assert y.min() == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
def test_integers(dtype):
    torch.manual_seed(0)
    x = torch.randint(3, 13, (N,), dtype=dtype, device=DEVICE).cpu().long()
    counts = torch.bincount(x, minlength=13)
    assert counts[:3].sum() == 0 and counts.numel() == 13
    assert ((counts[3:] - N / 10) ** 2 / (N / 10)).sum() < 33  # chi square, 9 degrees of freedom


def test_wide_integers():
    torch.manual_seed(0)
    x = torch.randint(-(1 << 62), 1 << 62, (N,), device=DEVICE).cpu().double() / 2**62
    assert x.min() >= -1 and x.max() < 1 and abs(x.mean()) < 0.01 and abs(x.var() - 1 / 3) < 0.01


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (torch.bool, 1),
        (torch.uint8, 255),
        (torch.int8, 127),
        (torch.int32, 2**31 - 1),
        (torch.int64, 2**63 - 1),
        (torch.float32, 2**24),
        (torch.bfloat16, 2**8),
    ],
)
def test_random_covers_the_type(dtype, largest):
    torch.manual_seed(0)
    x = torch.empty(N, dtype=dtype, device=DEVICE).random_().cpu().double()
    assert x.min() >= 0 and largest * 0.99 <= x.max() <= largest
    assert abs(x.mean() / largest - 0.5) < 0.01


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_randperm(n):
    x = torch.randperm(n, device=DEVICE)
    assert x.dtype == torch.int64 and x.sort().values.tolist() == list(range(n))
    assert n < 2 or x.tolist() != list(range(n))
    assert torch.randperm(n, dtype=torch.int32, device=DEVICE).dtype == torch.int32


@pytest.mark.parametrize(("n", "replacement"), [(1, False), (2, False), (20_000, True)])
def test_multinomial(n, replacement):
    torch.manual_seed(0)
    p = torch.tensor([[1.0, 0, 3, 4], [0, 5, 5, 0]], device=DEVICE)
    x = torch.multinomial(p, n, replacement).cpu()
    assert x.shape == (2, n) and x.dtype == torch.int64
    assert not (x[0] == 1).any() and set(x[1].tolist()) <= {1, 2}
    if not replacement:
        assert all(len(set(row.tolist())) == n for row in x)
    else:
        share = torch.bincount(x[0], minlength=4) / n
        torch.testing.assert_close(share, torch.tensor([1.0, 0, 3, 4]) / 8, rtol=0, atol=0.02)


def test_normal_of_tensors():
    torch.manual_seed(0)
    mean, std = torch.tensor([0.0, 5], device=DEVICE), torch.tensor([1.0, 3], device=DEVICE)
    mean, std = mean.expand(N, 2), std.expand(N, 2)
    for x, m, s in (
        (torch.normal(mean, std), [0, 5], [1, 3]),
        (torch.normal(mean, 2.0), [0, 5], [2, 2]),
        (torch.normal(1.0, std), [1, 1], [1, 3]),
    ):
        torch.testing.assert_close(x.mean(0).cpu(), torch.tensor(m).float(), rtol=0, atol=0.05)
        torch.testing.assert_close(x.std(0).cpu(), torch.tensor(s).float(), rtol=0.02, atol=0)


# ---- By rejection.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.3, 0.99, 1.0, 1.5, 12.0, 150.0])
def test_gamma(alpha, dtype):
    torch.manual_seed(3)
    x = torch._standard_gamma(torch.full((N // 100, 100), alpha, dtype=dtype, device=DEVICE))
    assert x.dtype == dtype and x.shape == (N // 100, 100)
    x = x.cpu().double().flatten().sort().values
    p = torch.special.gammainc(torch.tensor(alpha, dtype=torch.float64), x)
    assert (p - torch.arange(1, N + 1) / N).abs().max() < 2.23 / math.sqrt(N)


@pytest.mark.parametrize("alpha", [1e4, 1e8])
def test_gamma_of_large_parameters(alpha):
    torch.manual_seed(3)
    x = torch._standard_gamma(torch.full((N,), alpha, device=DEVICE)).cpu().double()
    z = (x - alpha) / math.sqrt(alpha)
    assert abs(z.mean()) < 0.02 and abs(z.var() - 1) < 0.03


def test_gamma_at_the_edges():
    alpha = torch.tensor([0.0, -1, -3, torch.nan, 1e-30, torch.inf, 1e30])
    tiny = torch.finfo(torch.float32).tiny
    want = [tiny] * 5 + [torch.inf, 1e30]
    assert_close = torch.testing.assert_close
    assert_close(torch._standard_gamma(alpha.to(DEVICE)).cpu(), torch.tensor(want))
    assert torch._standard_gamma(torch.empty(0, 3, device=DEVICE)).shape == (0, 3)


def chi_square_fits(x, log_pmf):
    """Integers x of probabilities exp(log_pmf(k)): exceeded once in ten thousand."""
    x = x.cpu().double()
    low, high = int(x.min()), int(x.max())
    k = torch.arange(low, high + 1, dtype=torch.float64)
    counts = torch.bincount((x - low).long(), minlength=len(k)).double()
    expected = x.numel() * log_pmf(k).exp()
    usual = expected > 10
    rest = x.numel() - expected[usual].sum()
    if rest > 10:
        counts = torch.cat([counts[usual], counts[~usual].sum()[None]])
        expected = torch.cat([expected[usual], rest[None]])
    else:
        counts, expected = counts[usual], expected[usual]
    freedom = len(expected) - 1
    chi2 = ((counts - expected) ** 2 / expected).sum()
    # Wilson and Hilferty
    return chi2 < freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 3.0, 9.99, 10.0, 57.25, 1000.0])
def test_poisson(rate, dtype):
    torch.manual_seed(3)
    x = torch.poisson(torch.full((N,), rate, dtype=dtype, device=DEVICE))
    assert x.dtype == dtype
    rate = torch.tensor(rate, dtype=dtype).double()
    assert chi_square_fits(x, lambda k: k * rate.log() - rate - torch.lgamma(k + 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_poisson(dtype):
    torch.manual_seed(3)
    x = torch.poisson(torch.full((N,), 4.0, dtype=dtype, device=DEVICE))
    assert x.dtype == dtype
    assert chi_square_fits(x, lambda k: k * math.log(4) - 4 - torch.lgamma(k + 1))


@pytest.mark.parametrize("rate", [2e6, 1e12])
def test_poisson_of_large_rates(rate):
    torch.manual_seed(3)
    x = torch.poisson(torch.full((N,), rate, dtype=torch.float64, device=DEVICE)).cpu()
    assert torch.equal(x, x.round())
    z = (x - rate) / math.sqrt(rate)
    assert abs(z.mean()) < 0.02 and abs(z.var() - 1) < 0.03


def test_poisson_at_the_edges():
    rate = torch.tensor([0.0, -1, torch.nan, torch.inf, 1e30], device=DEVICE)
    want = torch.tensor([0.0, torch.nan, torch.nan, torch.inf, 1e30])
    torch.testing.assert_close(torch.poisson(rate).cpu(), want, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n", "p"),
    [(1, 0.5), (10, 0.25), (100, 0.05), (21, 0.5), (100, 0.5), (100, 0.95), (10_000, 0.75)],
)
def test_binomial(n, p, dtype):
    torch.manual_seed(3)
    count = torch.full((N, 1), float(n), dtype=dtype, device=DEVICE)
    x = torch.binomial(count, torch.tensor([p], dtype=dtype, device=DEVICE))
    assert x.dtype == dtype and x.shape == (N, 1)
    p = torch.tensor(p, dtype=dtype).double()

    def log_pmf(k):
        ways = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        return ways + k * p.log() + (n - k) * (1 - p).log()

    assert chi_square_fits(x.flatten(), log_pmf)


def test_binomial_of_large_counts():
    torch.manual_seed(3)
    for n, p in ((10**9, 0.3), (10**9, 1e-9)):
        count = torch.full((N,), n, dtype=torch.float64, device=DEVICE)
        x = torch.binomial(count, torch.full_like(count, p)).cpu()
        z = (x - n * p) / math.sqrt(n * p * (1 - p))
        assert abs(z.mean()) < 0.02 and abs(z.var() - 1) < 0.03


def test_binomial_at_the_edges():
    nan = torch.nan
    count = torch.tensor([0.0, -1, 5, 5, 5, 5.5, 10, 1e6])
    prob = torch.tensor([0.5, 0.5, 0, 1, 2, -1, nan, nan])
    check(torch.binomial, count, prob, grad=False)
    got = torch.binomial(
        torch.tensor([nan, torch.inf], device=DEVICE), torch.full((2,), 0.5).to(DEVICE)
    )
    assert got.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [[1.0, 2, 3], [0.01, 0.02, 0.5], [1e-4, 1e-4, 1e-4], [1e5, 1, 1]])
def test_dirichlet(alpha, dtype):
    torch.manual_seed(3)
    alpha = torch.tensor(alpha, dtype=dtype)
    x = torch._sample_dirichlet(alpha.to(DEVICE).expand(N, 3)).cpu().double()
    torch.testing.assert_close(x.sum(1), torch.ones(N).double(), rtol=0, atol=1e-5)
    total = alpha.double().sum()
    mean = alpha.double() / total
    var = mean * (1 - mean) / (total + 1)
    assert ((x.mean(0) - mean).abs() < 5 * (var / N).sqrt() + 1e-7).all()
    # A share that is almost always 0 has few samples that count.
    assert ((x.var(0) / var - 1).abs() < 0.1).all()


def test_dirichlet_at_the_edges():
    for alpha in (torch.zeros(3), torch.tensor(1.0), torch.tensor([1.0, 0]), torch.ones(2, 1)):
        check(torch._sample_dirichlet, alpha, grad=False)
    assert torch._sample_dirichlet(torch.empty(3, 0, device=DEVICE)).shape == (3, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma_gradient(dtype):
    alpha = torch.logspace(-4, 6, 60, dtype=dtype)[:, None]
    x = alpha * torch.cat([torch.logspace(-3, 2, 40), torch.linspace(0.85, 1.15, 40)]).to(dtype)
    alpha = alpha.expand_as(x)
    want = torch._standard_gamma_grad(alpha, x)
    usual = want != 0  # PyTorch's 0 where its powers under- or overflow
    check(lambda a, x: torch._standard_gamma_grad(a, x), alpha[usual], x[usual], grad=False)


def test_dirichlet_gradient():
    g = torch.Generator().manual_seed(0)
    u = torch.rand(3, 20_000, dtype=torch.float64, generator=g)
    alpha, beta = 10 ** (u[0] * 5 - 2), 10 ** (u[1] * 5 - 2)
    x = torch.cat([u[2, :10_000], (alpha / (alpha + beta))[10_000:]]).clamp(1e-6, 1 - 1e-6)
    check(torch._dirichlet_grad, x, alpha, alpha + beta, grad=False, rtol=1e-6)


def test_distributions_stay_on_the_device():
    """Every distribution of torch.distributions that draws with these operators."""
    d = torch.distributions
    before = host_runs()
    a = torch.tensor([0.5, 1.5, 4.0], device=DEVICE, requires_grad=True)
    g = a.detach() + 2
    for dist in (
        d.Gamma(a, 2.0 * g),
        d.Beta(a, g),
        d.Dirichlet(a),
        d.Chi2(a),
        d.StudentT(a),
        d.FisherSnedecor(a, g),
        d.InverseGamma(a, g),
    ):
        x = dist.rsample((5,))
        assert x.shape[0] == 5 and x.isfinite().all()
        (grad,) = torch.autograd.grad(x.sum(), a)
        assert grad is not None and grad.isfinite().all(), dist
    for dist in (
        d.Poisson(g),
        d.Binomial(10, g / 10),
        d.NegativeBinomial(g, g / 10),
        d.LKJCholesky(3, torch.tensor(1.0, device=DEVICE)),
        d.VonMises(g, g),
        d.Multinomial(10, g),
    ):
        assert dist.sample((5,)).isfinite().all()
    assert host_runs() == before


def test_rejection_is_reproducible():
    def draw(shape):
        torch.manual_seed(11)
        a = torch.full(shape, 3.0, device=DEVICE)
        parts = [
            torch._standard_gamma(a),
            torch.poisson(a),
            torch.poisson(a * 9),
            torch.rand_like(a),
        ]
        parts += [torch.binomial(a * 9, a / 9), torch._standard_gamma(a / 9)]
        return torch.stack([p.flatten() for p in parts]).cpu()

    assert torch.equal(draw((6,)), draw((2, 3)))
    assert len(draw((6,))[0].unique()) == 6
    g, h = generator(5), generator(5)
    a = torch.full((4,), 3.0, device=DEVICE)
    x = torch._standard_gamma(a, generator=g)
    assert torch.equal(x, torch._standard_gamma(a, generator=h))
    assert not torch.equal(x, torch._standard_gamma(a, generator=h))
    # An element's number depends on its own parameter alone.
    b = torch.tensor([3.0, 0.1, 3.0, 400.0], device=DEVICE)
    y = torch._standard_gamma(b, generator=generator(5))
    assert torch.equal(x[::2], y[::2]) and not torch.equal(x[1::2], y[1::2])


# ---- out=


def test_out():
    before = host_runs()
    p = torch.full((50,), 0.5, device=DEVICE)
    x = torch.bernoulli(p, out=torch.empty(50, device=DEVICE))
    assert set(x.tolist()) == {0, 1}
    y = torch.empty(0, device=DEVICE, dtype=torch.int32)
    assert (
        torch.randperm(9, out=y).sort().values.tolist()
        == list(range(9))
        == y.sort().values.tolist()
    )
    for args in ((p, p), (p, 2.0), (1.0, p), (1.0, 2.0, (50,))):
        out = torch.empty(50, device=DEVICE)
        assert torch.normal(*args, out=out) is out and len(set(out.tolist())) > 40
    torch.multinomial(p, 3, out=torch.empty(3, dtype=torch.int64, device=DEVICE))
    torch.rand(5, out=torch.empty(5, device=DEVICE))
    torch_xla.sync()
    assert host_runs() == before


# ---- Streams.


def test_seed_gives_the_same_numbers_however_they_are_computed():
    def draw(sync):
        torch.manual_seed(11)
        parts = []
        for _ in range(3):
            parts.append(torch.randn(5, device=DEVICE) + torch.rand(5, device=DEVICE))
            if sync:
                torch_xla.sync()
        return torch.stack(parts).cpu()

    a, b = draw(True), draw(False)
    assert torch.equal(a, b)
    assert not torch.equal(a[0], a[1])


def test_generator_is_a_stream_of_its_own():
    g, h = generator(5), generator(5)
    a = torch.rand(4, device=DEVICE, generator=g)
    torch.rand(4, device=DEVICE)
    b = torch.rand(4, device=DEVICE, generator=h)
    assert torch.equal(a, b)
    assert not torch.equal(b, torch.rand(4, device=DEVICE, generator=h))


def test_parameters_do_not_compile_again():
    def step(p, lo):
        x = torch.empty(8, device=DEVICE).uniform_(lo, 2)
        y = F.dropout(x, p) + torch.empty(8, device=DEVICE).normal_(lo, p)
        y += torch.randint(0, 3 + int(10 * p), (8,), device=DEVICE)
        torch_xla.sync()
        return y.sum().item()

    step(0.5, 0.0)
    before = torch_xla._XLAC._xla_metric_data("CompileTime")[0]
    step(0.25, 1.0)
    assert torch_xla._XLAC._xla_metric_data("CompileTime")[0] == before


# ---- Dropout.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout(dtype):
    torch.manual_seed(0)
    x = torch.ones(N, dtype=dtype, device=DEVICE, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.01
    assert abs(y.max().item() - 1 / 0.75) < 0.01


def test_dropout_extremes():
    check(
        lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0), F.dropout(x, 0.5, training=False)),
        floats(3, 4),
    )
    check(lambda x: F.dropout(x, 0.5), torch.zeros(0, 3))


def test_native_dropout_mask():
    x = torch.ones(1000, device=DEVICE)
    y, mask = torch.native_dropout(x, 0.5, True)
    assert mask.dtype == torch.bool and torch.equal(y, mask * 2.0)


def test_nothing_runs_on_the_host():
    before = host_runs()
    x = torch.rand(4, 5, device=DEVICE)
    for fill in ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "random_"):
        getattr(x, fill)()
    x.geometric_(0.5).bernoulli_(0.5)
    torch.randperm(9, device=DEVICE)
    torch.multinomial(torch.rand(3, 4, device=DEVICE), 2)
    F.alpha_dropout(x, 0.5)
    F.dropout2d(x[None, None], 0.5)
    F.rrelu(x, training=True)
    F.gumbel_softmax(x)
    torch_xla.sync()
    assert host_runs() == before


ERRORS = {
    "uniform_order": lambda x: x.uniform_(2, 1),
    "uniform_int": lambda x: x.long().uniform_(),
    "normal_std": lambda x: x.normal_(0, -1),
    "exponential": lambda x: x.exponential_(-1),
    "exponential_int": lambda x: x.long().exponential_(),
    "log_normal": lambda x: x.log_normal_(0, 0),
    "cauchy": lambda x: x.cauchy_(0, 0),
    "geometric": lambda x: x.geometric_(1),
    "bernoulli": lambda x: x.bernoulli_(1.5),
    "random_order": lambda x: x.random_(5, 5),
    "random_bounds": lambda x: x.byte().random_(0, 300),
    "randperm": lambda x: torch.randperm(-1, device=x.device),
    "multinomial_many": lambda x: torch.multinomial(x, 9),
    "multinomial_none": lambda x: torch.multinomial(x, 0),
    "dropout": lambda x: F.dropout(x, 1.5),
    "poisson_int": lambda x: torch.poisson(x.long()),
    "gamma_half": lambda x: torch._standard_gamma(x.half()),
    "dirichlet_int": lambda x: torch._sample_dirichlet(x.long()),
    "binomial_int": lambda x: torch.binomial(x.long(), x),
    "binomial_half": lambda x: torch.binomial(x.half(), x.half()),
    "binomial_mixed": lambda x: torch.binomial(x, x.double()),
    "binomial_shapes": lambda x: torch.binomial(x, x[:, :2]),
    "gamma_grad": lambda x: torch._standard_gamma_grad(x, x.double()),
    "dirichlet_grad": lambda x: torch._dirichlet_grad(x.half(), x.half(), x.half()),
    "randperm_half": lambda x: torch.randperm(2050, dtype=torch.half, device=x.device),
    "randperm_int8": lambda x: torch.randperm(129, dtype=torch.int8, device=x.device),
    "randperm_bool": lambda x: torch.randperm(2, dtype=torch.bool, device=x.device),
    "bernoulli_complex": lambda x: torch.bernoulli(x.to(torch.complex64)),
    "bernoulli_int": lambda x: x.bernoulli_(x.long()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check_error(ERRORS[name], floats(2, 3))
