"""Random numbers: dropout, distributions, initialisers: moments, independence, and the gradient's mask."""

import math

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, assert_same


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_dropout(p):
    """What is kept is scaled, the rest is zero, the share is right, and the gradient uses the same mask."""
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
