"""The device's random numbers have the distributions that they are named for: against SciPy's functions, with seeds
fixed, so that a failure is a fault and no accident. torch's own numbers are another sequence."""

import math

import pytest
import scipy.stats as stats
import torch
from support import DEVICE

COUNT = 20000


def sample(make, seed=5):
    torch.manual_seed(seed)
    return make().detach().cpu().double()


def empty(dtype=torch.float32):
    return torch.empty(COUNT, dtype=dtype, device=DEVICE)


def full(value, dtype=torch.float32):
    return torch.full((COUNT,), value, dtype=dtype, device=DEVICE)


CONTINUOUS = {
    "cauchy": (lambda dtype: empty(dtype).cauchy_(1.5, 2.0), stats.cauchy(1.5, 2.0)),
    "log_normal": (lambda dtype: empty(dtype).log_normal_(0.5, 0.75), stats.lognorm(0.75, scale=math.exp(0.5))),
    "exponential": (lambda dtype: empty(dtype).exponential_(2.0), stats.expon(scale=0.5)),
    "gamma below 1": (lambda dtype: torch._standard_gamma(full(0.5, dtype)), stats.gamma(0.5)),
    "gamma above 1": (lambda dtype: torch._standard_gamma(full(7.5, dtype)), stats.gamma(7.5)),
    "dirichlet": (
        lambda dtype: torch._sample_dirichlet(torch.tensor([[2.0, 3.0]], dtype=dtype).to(DEVICE).expand(COUNT, 2))[
            :, 0
        ],
        stats.beta(2, 3),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name, dtype):
    make, distribution = CONTINUOUS[name]
    values = sample(lambda: make(dtype))
    assert stats.kstest(values.numpy(), distribution.cdf).pvalue > 1e-3


DISCRETE = {
    "geometric": (lambda: empty().geometric_(0.3), stats.geom(0.3)),
    "geometric of integers": (lambda: empty(torch.int64).geometric_(0.3), stats.geom(0.3)),
    "poisson, small": (lambda: torch.poisson(full(2.5)), stats.poisson(2.5)),
    "poisson, large": (lambda: torch.poisson(full(40.0)), stats.poisson(40.0)),
    "binomial, few": (lambda: torch.binomial(full(12.0), full(0.3)), stats.binom(12, 0.3)),
    "binomial, many": (lambda: torch.binomial(full(300.0), full(0.8)), stats.binom(300, 0.8)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 2.0, 0.0, 5.0]).to(DEVICE), COUNT, replacement=True),
        stats.rv_discrete(values=([0, 1, 3], [0.125, 0.25, 0.625])),
    ),
    "multinomial, one of each row": (
        lambda: torch.multinomial(torch.tensor([[1.0, 2.0, 0.0, 5.0]]).to(DEVICE).expand(COUNT, 4), 1)[:, 0],
        stats.rv_discrete(values=([0, 1, 3], [0.125, 0.25, 0.625])),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    make, distribution = DISCRETE[name]
    values = sample(make).long()
    observed, expected, rest = [], [], 1.0
    for k in range(int(values.min()), int(values.max()) + 1):
        p = distribution.pmf(k)
        if p * COUNT >= 10:
            observed.append(int((values == k).sum()))
            expected.append(p * COUNT)
            rest -= p
        else:
            assert p > 0 or not (values == k).any()
    observed.append(COUNT - sum(observed))
    expected.append(max(rest * COUNT, 1e-9))
    keep = [i for i, e in enumerate(expected) if e >= 1]
    observed, expected = [observed[i] for i in keep], [expected[i] for i in keep]
    scale = sum(observed) / sum(expected)
    assert stats.chisquare(observed, [e * scale for e in expected]).pvalue > 1e-3


def test_multinomial_without_replacement_draws_each_once():
    torch.manual_seed(1)
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0, 0.0]]).to(DEVICE).expand(500, 5)
    drawn = torch.multinomial(weights, 4).cpu()
    assert (drawn.sort(1).values == torch.arange(4)).all()
    assert (drawn[:, 0] == 3).float().mean() > 0.3


def test_randperm_is_a_permutation():
    torch.manual_seed(2)
    first, second = torch.randperm(1000, device=DEVICE).cpu(), torch.randperm(1000, device=DEVICE).cpu()
    assert (first.sort().values == torch.arange(1000)).all() and (second.sort().values == torch.arange(1000)).all()
    assert (first != second).any()
    assert torch.randperm(0, device=DEVICE).shape == (0,)


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_a_seed_fixes_the_numbers(name):
    make = CONTINUOUS[name][0] if name in CONTINUOUS else DISCRETE[name][0]
    run = (lambda: make(torch.float32)) if name in CONTINUOUS else make
    first = sample(run)
    assert torch.equal(first, sample(run))
    assert not torch.equal(first, sample(run, seed=6))
