"""The distributions of hr.random: their numbers against scipy's distribution functions, and their arguments."""

import numpy as np
import pytest

import headrace as hr

stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
COUNT = 20000


def shifted(kappa):
    """Von Mises around 0.5, in [-pi, pi]."""
    frozen = stats.vonmises(kappa, loc=0.5)
    return lambda x: frozen.cdf(x) - frozen.cdf(-np.pi)


CONTINUOUS = [
    *(("gamma", (a, 2.0), stats.gamma(a, scale=2).cdf) for a in (0.05, 0.5, 1, 3, 100)),
    ("standard_gamma", (2.5,), stats.gamma(2.5).cdf),
    ("beta", (0.5, 2.0), stats.beta(0.5, 2).cdf),
    ("beta", (2, 5), stats.beta(2, 5).cdf),
    ("chisquare", (3,), stats.chi2(3).cdf),
    ("f", (3, 7), stats.f(3, 7).cdf),
    ("logistic", (1, 2.0), stats.logistic(1, 2).cdf),
    ("lognormal", (0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5)).cdf),
    ("noncentral_chisquare", (3, 20.0), stats.ncx2(3, 20).cdf),
    ("noncentral_chisquare", (3, 0), stats.chi2(3).cdf),
    ("noncentral_f", (3, 9, 2.0), stats.ncf(3, 9, 2).cdf),
    ("pareto", (3.0,), stats.lomax(3).cdf),
    ("power", (3.0,), stats.powerlaw(3).cdf),
    ("rayleigh", (2.0,), stats.rayleigh(scale=2).cdf),
    ("standard_cauchy", (), stats.cauchy.cdf),
    ("standard_exponential", (), stats.expon.cdf),
    ("standard_normal", (), stats.norm.cdf),
    ("standard_t", (4,), stats.t(4).cdf),
    ("triangular", (1, 2, 5), stats.triang(0.25, 1, 4).cdf),
    ("triangular", (1, 1, 5), stats.triang(0, 1, 4).cdf),
    *(("vonmises", (0.5, kappa), shifted(kappa)) for kappa in (0.5, 4.0, 1e4)),
    ("vonmises", (0.5, 0), stats.uniform(-np.pi, 2 * np.pi).cdf),
    ("wald", (2.0, 3.0), stats.invgauss(2 / 3, scale=3).cdf),
    ("weibull", (1.7,), stats.weibull_min(1.7).cdf),
    ("random", (), stats.uniform.cdf),
]
DISCRETE = [
    *(("poisson", (mean,), stats.poisson(mean)) for mean in (0.1, 3, 9.99, 10, 50, 1e6)),
    *(("binomial", pair, stats.binom(*pair)) for pair in ((5, 0.3), (20, 0.5), (100, 0.05), (100, 0.3), (10000, 0.5))),
    *(("binomial", pair, stats.binom(*pair)) for pair in ((100, 0.9), (3, 1.0), (0, 0.5), (7, 0.0))),
    ("negative_binomial", (4, 0.3), stats.nbinom(4, 0.3)),
    ("geometric", (0.2,), stats.geom(0.2)),
    ("geometric", (1.0,), stats.geom(1.0)),
    ("logseries", (0.7,), stats.logser(0.7)),
    *(("zipf", (a,), stats.zipf(a)) for a in (1.1, 2.0, 4.0)),
    ("hypergeometric", (15, 20, 10), stats.hypergeom(35, 15, 10)),
    ("hypergeometric", (2, 3, 5), stats.hypergeom(5, 2, 5)),
    ("integers", (-2, 3), stats.randint(-2, 3)),
]


def check_counts(x, distribution):
    """A chi-square test of the values that are expected more than 5 times, and of the rest."""
    x = np.asarray(x).ravel()
    values, counts = np.unique(x, return_counts=True)
    expected = distribution.pmf(values) * x.size
    assert (expected > 0).all()
    often = expected > 5
    observed = np.append(counts[often], x.size - counts[often].sum())
    expected = np.append(expected[often], max(x.size - expected[often].sum(), 1e-3))
    assert stats.chisquare(observed, expected * x.size / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize("name, parameters, cdf", CONTINUOUS)
def test_continuous_distributions(name, parameters, cdf):
    x = getattr(hr.random, name)(hr.random.key(1), (COUNT,), *parameters)
    assert x.shape == (COUNT,) and x.dtype == hr.float32
    assert stats.kstest(np.asarray(x).astype(np.float64), cdf).pvalue > 1e-4
    wide = getattr(hr.random, name)(hr.random.key(2), (COUNT,), *parameters, dtype=hr.float64)
    assert wide.dtype == hr.float64 and stats.kstest(np.asarray(wide), cdf).pvalue > 1e-4


@pytest.mark.parametrize("name, parameters, distribution", DISCRETE)
def test_discrete_distributions(name, parameters, distribution):
    x = getattr(hr.random, name)(hr.random.key(1), (COUNT // 2, 2), *parameters)
    assert x.shape == (COUNT // 2, 2) and x.dtype == hr.int64
    check_counts(x, distribution)
    assert getattr(hr.random, name)(hr.random.key(1), 3, *parameters, dtype=hr.int32).dtype == hr.int32


@pytest.mark.parametrize("name, parameters", [case[:2] for case in CONTINUOUS + DISCRETE])
def test_the_same_key_gives_the_same_numbers(name, parameters):
    draw = getattr(hr.random, name)
    first, again = (draw(hr.random.key(3), (4,), *parameters) for _ in range(2))
    compiled = hr.compile(lambda key: draw(key, (4,), *parameters))(hr.random.key(3))
    assert first.tolist() == again.tolist() == compiled.tolist()


def test_parameters_may_be_arrays():
    means = hr.array([0.5, 9.0, 11.0, 200.0])
    x = hr.random.poisson(hr.random.key(0), (COUNT, 4), means)
    for i, mean in enumerate(means.tolist()):
        check_counts(x[:, i], stats.poisson(mean))
    x = hr.random.binomial(hr.random.key(0), (COUNT, 3), hr.array([4, 50, 1000]), hr.array([0.75, 0.5, 0.25]))
    for i, pair in enumerate(((4, 0.75), (50, 0.5), (1000, 0.25))):
        check_counts(x[:, i], stats.binom(*pair))
    x = hr.random.gamma(hr.random.key(0), (COUNT, 2), hr.array([0.3, 7.0]))
    for i, a in enumerate((0.3, 7.0)):
        assert stats.kstest(np.asarray(x[:, i]).astype(np.float64), stats.gamma(np.float32(a)).cdf).pvalue > 1e-4
    assert hr.random.normal(hr.random.key(0), ()).shape == hr.random.gamma(hr.random.key(0), (), 2.0).shape == ()


def test_vectors():
    x = np.asarray(hr.random.dirichlet(hr.random.key(0), (COUNT,), [0.5, 2, 3]))
    np.testing.assert_allclose(x.sum(axis=1), 1, rtol=1e-5)
    assert stats.kstest(x[:, 0].astype(np.float64), stats.beta(0.5, 5).cdf).pvalue > 1e-4
    x = np.asarray(hr.random.multivariate_normal(hr.random.key(0), COUNT, [1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]]))
    np.testing.assert_allclose(x.mean(axis=0), [1, 2], atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), [[2, 0.5], [0.5, 1]], atol=0.08)
    assert stats.kstest(x[:, 0].astype(np.float64), stats.norm(1, 2**0.5).cdf).pvalue > 1e-4
    x = hr.random.multinomial(hr.random.key(0), (COUNT,), 50, [0.2, 0.3, 0.5])
    assert (np.asarray(x).sum(axis=1) == 50).all()
    for i, p in enumerate((0.2, 0.3, 0.5)):
        check_counts(x[:, i], stats.binom(50, p))


def test_choices_and_orders():
    key = hr.random.key(5)
    check_counts(hr.random.choice(key, 4, COUNT), stats.randint(0, 4))
    x = np.asarray(hr.random.choice(key, hr.array([10, 20, 30]), (COUNT,), p=[0.5, 0.0, 0.5]))
    assert set(x) == {10, 30} and abs((x == 10).mean() - 0.5) < 0.02
    rows = hr.random.choice(key, hr.arange(8).reshape(4, 2), (3,), replace=False)
    assert rows.shape == (3, 2) and len(set(rows[:, 0].tolist())) == 3
    assert sorted(hr.random.choice(key, 5, (5,), replace=False, p=[0.1, 0.2, 0.3, 0.2, 0.2]).tolist()) == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert sorted(hr.random.permutation(key, 5).tolist()) == [0, 1, 2, 3, 4]
    x = hr.arange(6)
    assert sorted(hr.random.shuffle(key, x).tolist()) == x.tolist() == [0, 1, 2, 3, 4, 5]
    firsts = [hr.random.choice(hr.random.key(i), 3, (), replace=False, p=[0.7, 0.2, 0.1]).item() for i in range(300)]
    assert abs(firsts.count(0) / 300 - 0.7) < 0.1
    drawn = hr.random.bytes(key, 5)
    assert isinstance(drawn, bytes) and len(drawn) == 5 and drawn == hr.random.bytes(key, 5)
    assert {*hr.random.integers(key, (COUNT,), 2, endpoint=True).tolist()} == {0, 1, 2}


LEFT_OUT = set(
    """default_rng get_bit_generator get_state set_bit_generator set_state rand randn random_integers random_sample
    ranf sample test""".split()
)


def test_every_distribution_of_numpy_is_there_or_on_the_list():
    public = {name for name in dir(np.random) if not name.startswith("_")}
    functions = {
        name for name in public if not isinstance(getattr(np.random, name), type) and callable(getattr(np.random, name))
    }
    assert {name for name in functions if not hasattr(hr.random, name)} == LEFT_OUT & functions


def test_names_are_those_of_the_modules():
    from headrace import _counts, _distributions

    assert {name for name, module in hr.random._LATE.items() if module == "_counts"} == {*_counts.__all__}
    assert {name for name, module in hr.random._LATE.items() if module == "_distributions"} == {*_distributions.__all__}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda key: hr.random.gamma(key, 3, -1.0), "gamma: a is -1.0, expected 0 or more"),
        (lambda key: hr.random.beta(key, 3, 0, 1), "beta: a is 0, expected more than 0"),
        (lambda key: hr.random.poisson(key, 3, -2), "lam is -2"),
        (lambda key: hr.random.binomial(key, 3, 4, 1.5), "p is 1.5, expected 0 to 1"),
        (lambda key: hr.random.zipf(key, 3, 1.0), "a is 1.0, expected more than 1"),
        (lambda key: hr.random.triangular(key, 3, 2, 1, 3), "left 2, mode 1 and right 3"),
        (lambda key: hr.random.hypergeometric(key, 3, 2, 2, 5), "nsample is 5 of 4"),
        (lambda key: hr.random.poisson(key, (3,), hr.ones(4)), r"shape \(4,\)"),
        (lambda key: hr.random.gamma(key, (3,), hr.ones((2, 3))), "does not fit shape"),
        (lambda key: hr.random.choice(key, 3, (4,), replace=False), "4 of 3"),
        (lambda key: hr.random.choice(key, 3, p=[0.5, 0.5]), r"p of shape \(2,\), expected \(3,\)"),
        (lambda key: hr.random.choice(key, 0, (1,)), "1 of 0 elements"),
        (lambda key: hr.random.multivariate_normal(key, 3, [1.0], [[1.0, 0.0]]), "multivariate_normal"),
        (lambda key: hr.random.multinomial(key, 3, 5, []), "expected a vector"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(hr.random.key(0))
