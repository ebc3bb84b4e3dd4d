"""Random numbers: dropout, distributions, initialisers: moments, independence, and the gradient's mask."""

import math

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, assert_same


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_dropout(p):
    """Kept elements are scaled, the rest is zero, the share is right, and the gradient uses the same mask."""
    n = 40_000
    x = torch.full((n,), 2.0, device=DEVICE, requires_grad=True)
    y = F.dropout(x, p)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    y, gradient = y.detach().cpu(), gradient.cpu()
    kept = y != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n) + 1e-9
    scale = 1 / (1 - p) if p < 1 else 0.0
    assert torch.allclose(y[kept], torch.tensor(2 * scale))
    assert torch.equal(gradient != 0, kept)
    assert torch.allclose(gradient[kept], torch.tensor(scale))
    assert_same(F.dropout(x, p, training=False), x.detach().cpu())
    if 0 < p < 1:
        assert not torch.equal(F.dropout(x, p).detach().cpu() != 0, kept)


def test_dropout_is_independent():
    """Neighbours, rows and successive calls don't correlate."""
    first, second = (F.dropout(torch.ones(200, 300, device=DEVICE), 0.5).cpu() - 1 for _ in range(2))
    n = first.numel()
    pairs = [(first, second), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1]), (first[:, 64:], first[:, :-64])]
    for product in (a * b for a, b in pairs):
        assert abs(product.mean().item()) < 5 / math.sqrt(n)


def moments(x):
    x = x.double().cpu()
    return x.mean().item(), x.std().item()


def test_distributions():
    n = 100_000
    options = {"device": DEVICE}
    cases = {
        "rand": (torch.rand(n, **options), 0.5, math.sqrt(1 / 12)),
        "randn": (torch.randn(n, **options), 0.0, 1.0),
        "uniform_": (torch.empty(n, **options).uniform_(-2, 4), 1.0, 6 * math.sqrt(1 / 12)),
        "normal_": (torch.empty(n, **options).normal_(3, 0.5), 3.0, 0.5),
        "normal double": (torch.empty(n, dtype=torch.float64, **options).normal_(3, 0.5), 3.0, 0.5),
        "exponential_": (torch.empty(n, **options).exponential_(2.0), 0.5, 0.5),
        "bernoulli_": (torch.empty(n, **options).bernoulli_(0.2), 0.2, 0.4),
        "bernoulli": (torch.bernoulli(torch.full((n,), 0.2, **options)), 0.2, 0.4),
        "randint": (torch.randint(0, 10, (n,), **options), 4.5, math.sqrt(99 / 12)),
        "randint low": (torch.randint(-5, 5, (n,), **options), -0.5, math.sqrt(99 / 12)),
    }
    for name, (sample, mean, deviation) in cases.items():
        actual_mean, actual_deviation = moments(sample)
        assert abs(actual_mean - mean) < 6 * deviation / math.sqrt(n), name
        assert abs(actual_deviation - deviation) < 0.02 * deviation, name
    uniform = cases["rand"][0].cpu()
    assert uniform.min() >= 0 and uniform.max() < 1
    normal = cases["randn"][0].cpu()
    assert normal.isfinite().all() and 3.5 < normal.abs().max() < 7
    assert cases["randint"][0].cpu().unique().tolist() == list(range(10))
    counts = torch.histc(uniform, 50, 0, 1)
    assert ((counts - n / 50).square() / (n / 50)).sum().item() < 110  # chi-square with 49 degrees: 99.9999 %


def test_initialisers():
    """torch.nn.init works in place on the device."""
    w = torch.empty(200, 300, device=DEVICE)
    for fill, deviation in (
        (torch.nn.init.xavier_uniform_, math.sqrt(2 / 500)),
        (torch.nn.init.xavier_normal_, math.sqrt(2 / 500)),
        (torch.nn.init.kaiming_uniform_, math.sqrt(2 / 300)),
        (torch.nn.init.kaiming_normal_, math.sqrt(2 / 300)),
        (lambda w: torch.nn.init.normal_(w, 0, 0.02), 0.02),
    ):
        mean, actual = moments(fill(w))
        assert abs(mean) < 0.02 * deviation * 5
        assert abs(actual - deviation) < 0.02 * deviation
    torch.nn.init.zeros_(w)
    torch.nn.init.constant_(w[0], 2.0)
    assert w.sum().item() == 600


@pytest.mark.device_only
def test_seeds_repeat():
    torch.manual_seed(11)
    first = [
        torch.randn(5, device=DEVICE).cpu(),
        torch.rand(5, device=DEVICE).cpu(),
        torch.randint(9, (5,), device=DEVICE).cpu(),
    ]
    torch.manual_seed(11)
    again = [
        torch.randn(5, device=DEVICE).cpu(),
        torch.rand(5, device=DEVICE).cpu(),
        torch.randint(9, (5,), device=DEVICE).cpu(),
    ]
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert torch.headrace.initial_seed() == 11


@pytest.mark.device_only
def test_rng_state_and_fork():
    state = torch.headrace.get_rng_state()
    x = torch.rand(4, device=DEVICE).cpu()
    torch.headrace.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=DEVICE).cpu(), x)
    torch.headrace.set_rng_state(state)
    with torch.random.fork_rng(device_type=DEVICE.type):
        torch.rand(4, device=DEVICE)
    assert torch.equal(torch.rand(4, device=DEVICE).cpu(), x)


@pytest.mark.device_only
def test_generators():
    g = torch.Generator(DEVICE).manual_seed(5)
    x = torch.rand(3, generator=g, device=DEVICE)
    saved = g.get_state()
    y = torch.rand(3, generator=g, device=DEVICE)
    g.set_state(saved)
    assert torch.equal(y.cpu(), torch.rand(3, generator=g, device=DEVICE).cpu()) and not torch.equal(x.cpu(), y.cpu())
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, generator=torch.Generator(), device=DEVICE)


@pytest.mark.device_only
def test_random_fills_have_their_moments():
    torch.manual_seed(0)
    n = 40000
    assert abs(torch.rand(n, device=DEVICE).mean().item() - 0.5) < 0.01
    normal = torch.randn(n, device=DEVICE).mul(2).add(1)
    assert abs(normal.mean().item() - 1) < 0.05 and abs(normal.std().item() - 2) < 0.05
    assert abs(torch.empty(n, device=DEVICE).bernoulli_(0.3).mean().item() - 0.3) < 0.02
    assert abs(torch.empty(n, device=DEVICE).exponential_(2).mean().item() - 0.5) < 0.02
    dropped = torch.nn.functional.dropout(torch.ones(n, device=DEVICE), 0.25)
    assert abs(dropped.mean().item() - 1) < 0.02
    torch.testing.assert_close(dropped.cpu().unique(), torch.tensor([0, 4 / 3]))


@pytest.mark.device_only
def test_complex_random_numbers():
    z = torch.randn(20000, dtype=torch.complex64, device=DEVICE).cpu()
    assert z.real.std().item() == pytest.approx(0.5**0.5, rel=0.03) and z.imag.mean().abs() < 0.03
    z = torch.rand(20000, dtype=torch.complex128, device=DEVICE).cpu()
    assert z.imag.min() >= 0 and z.real.mean().item() == pytest.approx(0.5, rel=0.03)
