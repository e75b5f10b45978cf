"""Seeds and random states."""

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla._src import random as random_impl


def draw() -> torch.Tensor:
    return torch.rand(64, device="xla").cpu()


SEEDING = {
    "torch.manual_seed": torch.manual_seed,
    "torch.random.manual_seed": torch.random.manual_seed,
    "torch_xla.manual_seed": torch_xla.manual_seed,
    "xm.set_rng_state": xm.set_rng_state,
    "torch.xla.manual_seed": torch.xla.manual_seed,
    "torch.xla.manual_seed_all": torch.xla.manual_seed_all,
}


@pytest.mark.parametrize("how", SEEDING)
@pytest.mark.parametrize("seed", [0, 3, 2**40])
def test_seed_reproduces(how, seed):
    SEEDING[how](seed)
    first, second = draw(), draw()
    SEEDING[how](seed)
    assert torch.equal(first, draw())
    assert not torch.equal(first, second)
    SEEDING[how](seed + 1)
    assert not torch.equal(first, draw())


def test_seeding_function_imported_earlier(run_python):
    done = run_python(
        """
        from torch import manual_seed
        import torch, torch_xla
        draws = []
        for _ in range(2):
            manual_seed(4)
            draws.append(torch.rand(8, device="xla").cpu())
        print(torch.equal(*draws))
        """
    )
    assert done.stdout == "True\n", done.stderr


def test_torch_seed_reaches_the_device():
    seed = torch.seed()
    a = draw()
    torch.manual_seed(seed)
    assert torch.equal(a, draw())


def test_module_initialised_on_the_device():
    torch.manual_seed(5)
    a = torch.nn.Linear(3, 3, device="xla").weight.detach().cpu()
    torch.manual_seed(5)
    assert torch.equal(a, torch.nn.Linear(3, 3, device="xla").weight.detach().cpu())


def test_device_draws_leave_the_cpu_stream():
    torch.manual_seed(11)
    c = torch.rand(8)
    torch.manual_seed(11)
    draw()
    assert torch.equal(c, torch.rand(8))


def test_one_integer_state():
    torch_xla.manual_seed(42)
    assert xm.get_rng_state() == 42
    draw()
    state = xm.get_rng_state()
    assert torch.tensor(state).item() == state  # fits into an int64
    a, b = draw(), draw()
    xm.set_rng_state(state)
    assert torch.equal(a, draw()) and torch.equal(b, draw())


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32, 2**62 - 1, 2**62, 2**63, 2**64 - 1])
@pytest.mark.parametrize("offset", [0, 1, 2**20 + 7, 2**49, 2**64 - 1])
def test_packed_states_are_exact(seed, offset):
    state = random_impl.pack_state(seed, offset)
    assert random_impl.unpack_state(state) == (seed, offset)
    if seed <= 42 and offset <= 2**49:
        assert state < 2**63


def test_packed_states_differ():
    states = {
        random_impl.pack_state(s, o) for s in (0, 1, 2, 5, 2**20) for o in (0, 1, 2, 5, 2**20)
    }
    assert len(states) == 25


def test_seeds_out_of_range():
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(RuntimeError, match="out of range"):
            torch_xla.manual_seed(seed)
    torch_xla.manual_seed(-1)
    assert torch.xla.initial_seed() == 2**64 - 1


def test_fork_rng():
    torch.manual_seed(7)
    a = draw()
    torch.manual_seed(7)
    with torch.random.fork_rng(devices=[0], device_type="xla"):
        draw()
    assert torch.equal(a, draw())
    torch.manual_seed(7)
    with torch.random.fork_rng(device_type="xla"):
        draw()
    assert torch.equal(a, draw())
    torch.manual_seed(7)
    with xm.fork_rng():
        draw()
    assert torch.equal(a, draw())
    torch.manual_seed(7)
    with xm.fork_rng(enabled=False):
        draw()
    assert not torch.equal(a, draw())


def test_device_module_states():
    state = torch.xla.get_rng_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    a = draw()
    torch.xla.set_rng_state(state, "xla:0")
    assert torch.equal(a, draw())
    states = torch.xla.get_rng_state_all()
    a = draw()
    torch.xla.set_rng_state_all(states)
    assert torch.equal(a, draw())
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.xla.set_rng_state(torch.zeros(16))
    with pytest.raises(RuntimeError, match="16 bytes, got 3"):
        torch.xla.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_generator():
    g = torch.Generator(device="xla")
    g.manual_seed(3)
    a = torch.rand(8, device="xla", generator=g)
    g.manual_seed(3)
    assert torch.equal(a.cpu(), torch.rand(8, device="xla", generator=g).cpu())


def test_checkpoint_replays_dropout():
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(256, device="xla", requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(t * 2, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_numbers_do_not_depend_on_the_graph():
    """The same seed gives the same numbers whatever is compiled with them."""
    torch.manual_seed(1)
    alone = draw()
    torch.manual_seed(1)
    x = torch.rand(64, device="xla")
    y = x * 2 + 1
    assert torch.equal(y.cpu(), alone * 2 + 1)
    assert torch.equal(x.cpu(), alone)


def test_a_run_is_reproduced_by_the_seed_alone():
    """Initialisation, dropout, noise and shuffles on the device; another seed, another run."""

    def train(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 16, device="xla"),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(16, 1, device="xla"),
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(4, 8, device="xla")[torch.randperm(4, device="xla")]
            optimizer.zero_grad()
            (net(x) + 0.1 * torch.rand(4, 1, device="xla")).square().mean().backward()
            optimizer.step()
            torch_xla.sync()
        return torch.cat([p.detach().cpu().flatten() for p in net.parameters()])

    first = train(3)
    torch.rand(5, device="xla")
    assert torch.equal(first, train(3))
    assert not torch.equal(first, train(4))


def test_state_restores_across_pending_work():
    """A state is taken when it is asked for, whatever has run by then."""
    torch.manual_seed(2)
    torch.rand(8, device="xla")
    state = torch.xla.get_rng_state()
    a = torch.rand(8, device="xla")
    torch_xla.sync()
    torch.xla.set_rng_state(state)
    b = torch.rand(8, device="xla")
    assert torch.equal(a.cpu(), b.cpu())


def test_generator_is_a_stream_of_its_own():
    g = torch.Generator(device="xla").manual_seed(5)
    torch.manual_seed(5)
    default = draw()
    assert torch.equal(torch.rand(64, device="xla", generator=g).cpu(), default)
    torch.manual_seed(6)  # does not reach it
    state = g.get_state()
    a = torch.randn(8, device="xla", generator=g).cpu()
    copy = torch.Generator(device="xla")
    copy.set_state(state)
    assert torch.equal(a, torch.randn(8, device="xla", generator=copy).cpu())
    twin = copy.clone_state()
    b = torch.randint(100, (50,), device="xla", generator=copy).cpu()
    assert torch.equal(b, torch.randint(100, (50,), device="xla", generator=twin).cpu())
    assert g.initial_seed() == 5 and g.device == torch.device("xla", 0)
    seed = g.seed()
    assert g.initial_seed() == seed
    with pytest.raises(RuntimeError, match="Expected a 'xla' device type for generator"):
        torch.rand(2, device="xla", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="on cpu"):
        torch.rand(2, generator=g)


@pytest.mark.parametrize(
    "fill",
    [
        lambda x, g: x.normal_(generator=g),
        lambda x, g: x.uniform_(generator=g),
        lambda x, g: x.bernoulli_(0.5, generator=g),
        lambda x, g: x.exponential_(generator=g),
        lambda x, g: x.random_(100, generator=g),
        lambda x, g: x.copy_(torch.randperm(64, generator=g, device="xla")),
        lambda x, g: x.cauchy_(generator=g),
    ],
)
def test_every_draw_takes_a_generator(fill):
    torch.manual_seed(0)
    state, cpu = torch.xla.get_rng_state(), torch.get_rng_state()
    g = torch.Generator(device="xla").manual_seed(1)
    values = [fill(torch.zeros(64, device="xla"), g).cpu() for _ in range(2)]
    assert not torch.equal(*values)
    g.manual_seed(1)
    assert torch.equal(values[0], fill(torch.zeros(64, device="xla"), g).cpu())
    # Neither the device's own stream nor the CPU's has moved.
    assert torch.equal(state, torch.xla.get_rng_state())
    assert torch.equal(cpu, torch.get_rng_state())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("preserve", [False, True])
def test_checkpoint_preserves_the_state_or_not(reentrant, preserve):
    from torch.utils.checkpoint import checkpoint

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        x = torch.ones(512, device="xla", requires_grad=True)
        y = checkpoint(
            lambda t: torch.nn.functional.dropout(t * 2, 0.5),
            x,
            use_reentrant=reentrant,
            preserve_rng_state=preserve,
        )
        draw()
        y.sum().backward()
        return y.detach().cpu(), x.grad.cpu()

    y, grad = run()
    assert torch.equal(y, grad) == preserve
    if preserve:  # the backward leaves the stream where it was
        after = draw()
        torch.manual_seed(3)
        torch.nn.functional.dropout(torch.ones(512, device="xla") * 2, 0.5)
        draw()
        assert torch.equal(after, draw())


def test_fork_rng_of_the_device_alone():
    """The other devices' streams and the CPU's move or stay as torch says."""
    torch.manual_seed(1)
    cpu = torch.get_rng_state()
    with torch.random.fork_rng(devices=["xla:0"], device_type="xla"):
        torch.manual_seed(99)
        inside = draw()
    assert torch.equal(cpu, torch.get_rng_state())
    torch.manual_seed(99)
    assert torch.equal(inside, draw())


def test_all_devices_are_seeded(run_python):
    done = run_python(
        """
        import torch, torch_xla
        torch.manual_seed(4)
        a = [torch.rand(4, device=f"xla:{i}").cpu() for i in range(2)]
        assert torch.equal(*a)  # one seed, one stream, as with CUDA
        torch.xla.manual_seed_all(5)
        b = [torch.rand(4, device=f"xla:{i}").cpu() for i in range(2)]
        assert torch.equal(*b) and not torch.equal(a[0], b[0])
        states = torch.xla.get_rng_state_all()
        with torch.random.fork_rng(device_type="xla"):
            torch.manual_seed(6)
        assert all(map(torch.equal, states, torch.xla.get_rng_state_all()))
        print("ok")
        """,
        CPU_NUM_DEVICES="2",
    )
    assert done.stdout == "ok\n", done.stderr
