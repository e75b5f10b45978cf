"""Decompositions (host calls inside of the program), FFT, searching, distances."""

import pytest
import torch

import torch_xla
from tests.ops.oracle import check, check_error, floats, host_runs, ints
from torch_xla.debug import metrics

# What follows from a decomposition but not its signs.
DECOMPOSED = {
    "cholesky": lambda a: torch.linalg.cholesky(
        a @ a.mT + 3 * torch.eye(4, dtype=a.dtype, device=a.device)
    ),
    "inv": lambda a: torch.linalg.inv(a + 5 * torch.eye(4, dtype=a.dtype, device=a.device)),
    "solve": lambda a: torch.linalg.solve(
        a + 5 * torch.eye(4, dtype=a.dtype, device=a.device), a[..., :2]
    ),
    "det": lambda a: torch.linalg.det(a),
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "qr": lambda a: torch.linalg.qr(a)[1].abs(),
    "svdvals": lambda a: torch.linalg.svdvals(a),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a + a.mT),
    "pinv": lambda a: torch.linalg.pinv(a),
    "lstsq": lambda a: torch.linalg.lstsq(a, a[..., :1]).solution,
    "triangular": lambda a: torch.linalg.solve_triangular(a.triu() + a, a, upper=True),
    "matrix_exp": lambda a: torch.linalg.matrix_exp(a / 3),
    "lu": lambda a: torch.linalg.lu(a)[0].sum(-1),
    "cross": lambda a: torch.linalg.cross(a[..., :3], a[..., 1:]),
}


@pytest.mark.parametrize("name", DECOMPOSED)
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_linalg(name, batch):
    check(DECOMPOSED[name], floats(*batch, 4, 4, dtype=torch.float64))


def test_one_program():
    """A decomposition does not break the graph."""
    x = floats(5, 5).to("xla")
    torch_xla.sync()
    before = metrics.counter_value("ExecuteComputation") or 0
    runs = host_runs()
    y = torch.linalg.qr(x + 1)[1].abs().sum()
    want = torch.linalg.qr(floats(5, 5) + 1)[1].abs().sum()
    torch.testing.assert_close(y.cpu(), want)
    assert (metrics.counter_value("ExecuteComputation") or 0) == before + 1
    assert host_runs() == runs


def test_errors():
    check_error(torch.linalg.cholesky, floats(3, 4))
    check_error(torch.linalg.inv, torch.zeros(3, 3))
    check_error(torch.linalg.solve, floats(3, 3), floats(4))


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
def test_an_error_in_the_program_surfaces_at_the_read():
    x = (-torch.eye(3)).to("xla")
    factor = torch.cholesky(x)
    with pytest.raises(RuntimeError, match="not positive-definite"):
        factor.cpu()
    torch.testing.assert_close((x + 1).cpu(), 1 - torch.eye(3))


FFT = {
    "fft": lambda x: torch.fft.fft(x, norm="ortho"),
    "ifft": lambda x: torch.fft.ifft(x, n=5, norm="forward"),
    "fft2": lambda x: torch.fft.fft2(x),
    "fftn": lambda x: torch.fft.fftn(x, dim=(0, 2)),
    "rfft": lambda x: torch.fft.rfft(x, dim=1),
    "rfftn": lambda x: torch.fft.rfftn(x),
    "irfft": lambda x: torch.fft.irfft(x, n=7),
    "irfft2": lambda x: torch.fft.irfft2(x, norm="ortho"),
    "hfft": lambda x: torch.fft.hfft(x),
    "ihfft": lambda x: torch.fft.ihfft(x),
    "stft": lambda x: torch.view_as_real(
        torch.stft(
            x.reshape(-1), 8, window=torch.hann_window(8, device=x.device), return_complex=True
        )
    ),
}


@pytest.mark.parametrize("name", FFT)
def test_fft(name):
    check(FFT[name], floats(2, 4, 6), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_sample_frequencies(n):
    def frequencies(d):
        grown = torch.empty(0, device=d)
        torch.fft.fftfreq(n, 0.5, out=grown)
        return (
            torch.fft.fftfreq(n, 0.5, device=d),
            torch.fft.fftfreq(n, 3.0, dtype=torch.float64, device=d),
            torch.fft.fftfreq(n, out=torch.empty(n, dtype=torch.float16, device=d)),
            grown,
            torch.fft.rfftfreq(n, 0.5, device=d),
            torch.fft.rfftfreq(n, 3.0, out=torch.empty(n // 2 + 1, device=d)),
        )

    check(frequencies, torch.device("cpu"))


def test_sample_frequencies_into_a_view():
    out = torch.zeros(10, device="xla")
    torch.fft.fftfreq(5, 0.5, out=out[::2])
    want = torch.zeros(10)
    want[::2] = torch.fft.fftfreq(5, 0.5)  # out= of a view goes wrong on the CPU
    torch.testing.assert_close(out.cpu(), want)


FREQUENCY_ERRORS = {
    "integer": lambda d: torch.fft.fftfreq(4, dtype=torch.int64, device=d),
    "complex": lambda d: torch.fft.fftfreq(4, dtype=torch.complex64, device=d),
    "negative": lambda d: torch.fft.fftfreq(-1, device=d),
    "kaiser_complex": lambda d: torch.kaiser_window(4, dtype=torch.complex64, device=d),
    "kaiser_negative": lambda d: torch.kaiser_window(-1, device=d),
}


@pytest.mark.parametrize("name", FREQUENCY_ERRORS)
def test_frequency_errors(name):
    check_error(FREQUENCY_ERRORS[name], torch.device("cpu"))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8])
def test_windows(n):
    def windows(d):
        made = [getattr(torch, f"{w}_window") for w in ("hann", "hamming", "blackman", "bartlett")]
        kaiser = torch.kaiser_window
        names = ("cosine", "exponential", "gaussian", "nuttall", "kaiser", "hann", "bartlett")
        return (
            [f(n, device=d) for f in made],
            [f(n, periodic=False, dtype=torch.float64, device=d) for f in made],
            kaiser(n, device=d),
            [kaiser(n, True, b, device=d) for b in (0.0, 5.0, 14.0)],
            kaiser(n, False, 5.0, dtype=torch.float64, device=d),
            [kaiser(n, False, dtype=t, device=d) for t in (torch.float16, torch.bfloat16)],
            torch.ops.aten.kaiser_window(n, True, 3.0, out=torch.empty(n, device=d)),
            [getattr(torch.signal.windows, w)(n, sym=n == 7, device=d) for w in names],
        )

    check(windows, torch.device("cpu"))


def test_kaiser_of_another_beta_compiles_nothing():
    torch.kaiser_window(6, True, 4.0, device="xla").cpu()
    before = metrics.counter_value("UncachedCompile")
    torch.kaiser_window(6, True, 7.5, device="xla").cpu()
    assert metrics.counter_value("UncachedCompile") == before


def sorted_floats(*shape):
    return floats(*shape).sort(-1)[0]


def with_nan(x):
    x[..., 1] = torch.nan
    return x


SEARCH = {
    "searchsorted": (torch.searchsorted, sorted_floats(7), with_nan(floats(3, 4))),
    "searchsorted_rows": (
        lambda s, x: torch.searchsorted(s, x, right=True, out_int32=True),
        sorted_floats(3, 7),
        floats(3, 4),
    ),
    "searchsorted_sorter": (
        lambda s, x: torch.searchsorted(s, x, sorter=s.argsort()),
        floats(9),
        floats(4),
    ),
    "searchsorted_number": (lambda s: torch.searchsorted(s, 0.5), sorted_floats(7)),
    "searchsorted_empty": (torch.searchsorted, torch.zeros(0), floats(3)),
    "bucketize": (torch.bucketize, ints(3, 4), torch.tensor([-2, 0, 0, 3])),
    "bucketize_number": (lambda b: torch.bucketize(2, b), torch.tensor([-2, 0, 2, 2, 3])),
    "isin_few": (torch.isin, ints(3, 4), torch.tensor([1, 3])),
    "isin_many": (torch.isin, with_nan(floats(3, 8)), with_nan(floats(40))),
    "isin_invert": (lambda x: torch.isin(x, 2, invert=True), ints(3, 4)),
    "histc": (lambda x: torch.histc(x, 6), floats(4, 5)),
    "histc_half": (lambda x: torch.histc(x, 10, -2, 2), floats(4, 50, dtype=torch.bfloat16)),
    "histc_range": (lambda x: torch.histc(x, 6, -1, 2), with_nan(floats(4, 5))),
    "histogram": (lambda x: torch.histogram(x, 5), floats(4, 5)),
    "mode": (lambda x: torch.mode(x, 1)[0], ints(5, 9, low=0, high=4)),
    "mode_keep": (lambda x: torch.mode(x, 0, keepdim=True)[0], floats(9, 2).round()),
    "mode_0d": (lambda x: torch.mode(x), torch.tensor(3.0)),
    "nonzero_static": (lambda x: torch.nonzero_static(x, size=7, fill_value=-2), ints(3, 4)),
    "nonzero_static_cut": (lambda x: torch.nonzero_static(x, size=2), ints(3, 4)),
}


@pytest.mark.parametrize("name", SEARCH)
def test_search(name):
    fn, *args = SEARCH[name]
    check(fn, *args, grad=False)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, torch.inf])
def test_distances(p):
    check(lambda a, b: torch.cdist(a, b, p), floats(2, 4, 3), floats(1, 5, 3), rtol=1e-4)
    check(lambda a: torch.nn.functional.pdist(a, p), floats(6, 3), rtol=1e-4)


@pytest.mark.parametrize("name", ["view", "permute", "expand", "split", "unbind"])
def test_view_copies(name):
    fn = {
        "view": lambda x: torch.view_copy(x, (6, 2)),
        "permute": lambda x: torch.permute_copy(x, (1, 0)),
        "expand": lambda x: torch.expand_copy(x[:, :1], (3, 4)),
        "split": lambda x: torch.split_copy(x, 2),
        "unbind": lambda x: torch.unbind_copy(x, 1),
    }[name]
    check(fn, floats(3, 4))
    x = floats(3, 4).to("xla")
    copied = fn(x)
    first = copied[0] if isinstance(copied, tuple | list) else copied
    first.zero_()
    torch.testing.assert_close(x.cpu(), floats(3, 4))
