"""Bad input raises at the call, in PyTorch's words, and the process goes on."""

import pytest
import torch
import torch.nn.functional as F

from .conftest import assert_same

# Each raises on the CPU; the device's error has the type and the words of torch's CPU kernel or of
# its meta kernel.
CASES = {
    "mm shapes": lambda d: torch.ones(2, 3, device=d).mm(torch.ones(2, 3, device=d)),
    "add shapes": lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
    "mm dtypes": lambda d: torch.ones(2, 2, device=d).mm(torch.ones(2, 2, device=d).double()),
    "view size": lambda d: torch.ones(2, 3, device=d).view(7),
    "select index": lambda d: torch.ones(2, 3, device=d).select(0, 5),
    "dim": lambda d: torch.ones(2, 3, device=d).sum(4),
    "transpose dim": lambda d: torch.ones(2, 3, device=d).transpose(0, 2),
    "cat shapes": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 2, device=d)]),
    "in-place cast": lambda d: torch.ones(2, dtype=torch.int64, device=d).add_(0.5),
    "in-place shape": lambda d: torch.ones(2, device=d).add_(torch.ones(3, 2, device=d)),
    "float alpha": lambda d: torch.ones(2, dtype=torch.int64, device=d).add(
        torch.ones(2, dtype=torch.int64, device=d), alpha=0.5
    ),
    "sub bools": lambda d: torch.ones(2, device=d).bool() - torch.ones(2, device=d).bool(),
    "linear shapes": lambda d: torch.nn.Linear(3, 2).to(d)(torch.ones(2, 4, device=d)),
    "conv channels": lambda d: torch.nn.Conv2d(3, 2, 3).to(d)(torch.ones(1, 4, 8, 8, device=d)),
    "embedding dtype": lambda d: F.embedding(torch.ones(2, device=d), torch.ones(3, 2, device=d)),
    "item of many": lambda d: torch.ones(2, device=d).item(),
    "bool of many": lambda d: bool(torch.ones(2, device=d)),
    "expand": lambda d: torch.ones(2, 3, device=d).expand(2, 4),
    "permute": lambda d: torch.ones(2, 3, device=d).permute(0, 0),
    "split": lambda d: torch.ones(5, device=d).split([2, 2]),
    "leaf in-place": lambda d: torch.ones(2, device=d, requires_grad=True).add_(1),
    "negative size": lambda d: torch.empty(-1, device=d),
    "conv dtypes": lambda d: F.conv2d(
        torch.ones(1, 3, 5, 5, device=d), torch.ones(4, 3, 3, 3, device=d).double()
    ),
    "conv1d dtypes": lambda d: F.conv1d(
        torch.ones(1, 3, 5, device=d).double(), torch.ones(4, 3, 3, device=d)
    ),
    "conv bias dtype": lambda d: F.conv2d(
        torch.ones(1, 3, 5, 5, device=d),
        torch.ones(4, 3, 3, 3, device=d),
        torch.ones(4, device=d).double(),
    ),
    "conv dilation": lambda d: F.conv2d(
        torch.ones(1, 3, 5, 5, device=d), torch.ones(4, 3, 3, 3, device=d), dilation=0
    ),
    "conv kernel": lambda d: F.conv2d(
        torch.ones(1, 3, 5, 5, device=d), torch.ones(4, 3, 0, 3, device=d)
    ),
    "conv output padding": lambda d: F.conv_transpose2d(
        torch.ones(1, 3, 5, 5, device=d), torch.ones(3, 4, 3, 3, device=d), output_padding=3
    ),
    "conv output padding 1d": lambda d: F.conv_transpose1d(
        torch.ones(1, 3, 5, device=d), torch.ones(3, 4, 3, device=d), output_padding=1
    ),
    "conv output size": lambda d: F.conv_transpose2d(
        torch.ones(1, 3, 4, 4, device=d), torch.ones(3, 4, 3, 3, device=d), padding=6
    ),
    "batch norm dtypes": lambda d: (
        torch.nn.BatchNorm1d(3).double().to(d)(torch.ones(2, 3, device=d))
    ),
    "layer norm dtypes": lambda d: torch.nn.LayerNorm(3).double().to(d)(torch.ones(2, 3, device=d)),
    "group norm dtypes": lambda d: (
        torch.nn.GroupNorm(1, 3).double().to(d)(torch.ones(2, 3, 4, device=d))
    ),
    "cross entropy weight dtype": lambda d: F.cross_entropy(
        torch.ones(2, 3, device=d),
        torch.ones(2, device=d).long(),
        weight=torch.ones(3, device=d).double(),
    ),
    "binary cross entropy dtype": lambda d: F.binary_cross_entropy(
        torch.ones(2, device=d), torch.ones(2, device=d).double()
    ),
    "full overflow": lambda d: torch.full((2,), 1e10, dtype=torch.int32, device=d),
    "fill overflow": lambda d: torch.zeros(2, dtype=torch.uint8, device=d).fill_(300),
    "fill nan": lambda d: torch.zeros(2, dtype=torch.int64, device=d).fill_(float("nan")),
}

# Numbers that the tensor's type does not hold: all that put one in raise.
UNFIT = {
    "float32": (torch.float32, 1e300),
    "float16": (torch.float16, 1e6),
    "bfloat16": (torch.bfloat16, -1e300),
    "float8": (torch.float8_e4m3fn, 1e6),
    "int32": (torch.int32, 2**40),
    "uint8": (torch.uint8, 300),
    "uint16": (torch.uint16, 2**17),
    "complex64": (torch.complex64, 1e300),
    "complex in float32": (torch.float32, 1 + 1j),
}
INTO = {
    "full": lambda x, v: torch.full((2,), v, dtype=x.dtype, device=x.device),
    "new_full": lambda x, v: x.new_full((2,), v),
    "full_like": lambda x, v: torch.full_like(x, v),
    "fill_": lambda x, v: x.fill_(v),
    "assignment": lambda x, v: x.__setitem__(0, v),
    "masked_fill": lambda x, v: x.masked_fill(x == 0, v),
    "index_fill": lambda x, v: x.index_fill(
        0, torch.zeros(1, dtype=torch.int64, device=x.device), v
    ),
    "pad": lambda x, v: F.pad(x, (1, 1), value=v),
    "clamp": lambda x, v: x.clamp(max=v),
    "scatter": lambda x, v: x.scatter(0, torch.zeros(1, dtype=torch.int64, device=x.device), v),
}
CASES |= {
    f"{how} {kind} does not fit": lambda d, put=put, dtype=dtype, v=v: put(
        torch.zeros(2, device=d).to(dtype), v
    )
    for kind, (dtype, v) in UNFIT.items()
    for how, put in INTO.items()
    # The others promote, have no such kernel, or round.
    if how in ("full", "new_full", "full_like", "fill_")
    or (dtype in (torch.float32, torch.bfloat16) and not isinstance(v, complex))
    if how != "assignment" or dtype.itemsize > 2
}
CASES |= {
    "add alpha overflow": lambda d: torch.ones(2, device=d).add(1, alpha=1e39),
    "addcmul complex": lambda d: torch.ones(2, device=d).addcmul(
        *2 * [torch.ones(2, device=d)], value=1j
    ),
    "addcdiv overflow": lambda d: torch.ones(2, device=d).addcdiv(
        *2 * [torch.ones(2, device=d)], value=1e39
    ),
    "lerp complex": lambda d: torch.ones(2, device=d).lerp(torch.zeros(2, device=d), 1j),
    "lerp overflow": lambda d: (
        torch.ones(2, device=d).half().lerp(torch.zeros(2, device=d).half(), 1e39)
    ),
    "assignment of a complex to a half": lambda d: (
        torch.ones(2, device=d).half().__setitem__(0, 1j)
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_same_error_as_on_the_cpu(device, case):
    errors = {d: error_on(d, case) for d in ("cpu", "meta", device)}
    ours = errors.pop(device)
    assert ours is not None, "no error"
    assert ours in errors.values(), errors


def error_on(device, case) -> tuple[type, str] | None:
    """Type and beginning of the message, the same for all devices."""
    try:
        CASES[case](device)
    except Exception as e:
        return type(e), str(e).replace("xla:0", "cpu")[:40]
    return None


UNSIGNED = {
    "full": lambda d: torch.full((2,), 2**64 - 1, dtype=torch.uint64, device=d),
    "fill_": lambda d: torch.zeros(2, device=d).fill_(2**63),
    "add": lambda d: torch.zeros(2, device=d) + 2**63,
    "mul": lambda d: torch.ones(2, dtype=torch.float64, device=d) * (2**64 - 1),
    "less": lambda d: torch.zeros(2, device=d) < 2**64 - 1,
    "equal": lambda d: torch.full((2,), 2.0**63, device=d) == 2**63,
    "masked_fill": lambda d: torch.ones(2, device=d).masked_fill(
        torch.ones(2, device=d) > 0, 2**63
    ),
    "where": lambda d: torch.where(torch.ones(2, device=d) > 0, 2**63, torch.ones(2, device=d)),
    "clamp": lambda d: torch.ones(2, device=d).clamp(max=2**63),
    "pow": lambda d: torch.full((2,), 0.5, device=d) ** 2**63,
    "halves": lambda d: torch.ones(2, dtype=torch.bfloat16, device=d) * 2**63,
    "complex": lambda d: torch.ones(2, dtype=torch.complex64, device=d) * 2**63,
}


@pytest.mark.parametrize("name", UNSIGNED)
def test_numbers_beyond_int64(device, name):
    assert_same(UNSIGNED[name](device), UNSIGNED[name]("cpu"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_a_single_half_is_rounded(device, dtype):
    """As the CPU has it: only tensors of more elements refuse the number."""

    def put(d):
        x = torch.zeros(2, device=d).to(dtype)
        x[0] = 1e6
        return x, *(
            torch.full(shape, 1e6, dtype=dtype, device=d).fill_(-1e6)
            for shape in ((), (1,), (1, 1))
        )

    for ours, theirs in zip(put(device), put("cpu"), strict=True):
        assert_same(ours.float(), theirs.float())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_convolution_of_a_cpu_tensor(device, transposed, dilation):
    """Torch chooses its kernel by the input: it would run on the host."""
    conv = F.conv_transpose2d if transposed else F.conv2d
    x, w = torch.ones(1, 3, 5, 5), torch.ones(3, 3, 2, 2, device=device)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        conv(x, w, dilation=dilation)


MIXED = {
    "add": lambda x, c: x + c,
    "mm": lambda x, c: x.mm(c),
    "cat": lambda x, c: torch.cat([x, c]),
    "linear": lambda x, c: F.linear(x, c),
    "in-place": lambda x, c: x.add_(c),
    "swapped": lambda x, c: c.mul(x),
    "loss": lambda x, c: F.mse_loss(x, c),
}


@pytest.mark.parametrize("how", MIXED)
def test_mixing_devices(device, how):
    c = torch.ones(2, 2)
    x = c.to(device)
    with pytest.raises(RuntimeError, match=r"(?s)same device.*(xla:0.*cpu|cpu.*xla:0)"):
        MIXED[how](x, c)
    assert_same(x + 1, c + 1)


def test_zero_dim_cpu_tensors_mix(device):
    x = torch.ones(2, device=device)
    assert_same(x * torch.tensor(3.0), torch.full((2,), 3.0))
    assert_same(torch.tensor(3.0) - x, torch.full((2,), 2.0))


def test_cpu_indices_mix(device):
    c = torch.arange(6.0).view(3, 2)
    i = torch.tensor([2, 0])
    assert_same(c.to(device)[i], c[i])


def test_errors_leave_no_trace(device):
    x = torch.ones(2, 2, device=device)
    y = x + 1
    for _ in range(3):
        with pytest.raises(RuntimeError):
            y.mm(torch.ones(3, 3, device=device))
    assert_same(y, torch.full((2, 2), 2.0))


def test_flag_that_does_not_parse(run_python):
    done = run_python(
        "import torch; import torch_xla; torch_xla.device()", CPU_NUM_DEVICES="many", timeout=30
    )
    assert done.returncode == 1
    assert "CPU_NUM_DEVICES='many' is not a whole number" in done.stderr.splitlines()[-1]


def test_foreign_devices(device):
    with pytest.raises(RuntimeError, match="xla:3"):
        torch.ones(2, device="xla:3")
    with pytest.raises(RuntimeError):
        torch.ones(2).to("xla:99")
    assert torch.ones(2, device=device).sum().item() == 2
