"""Discrete distributions of headrace.random: counts, choices and orders. See headrace/_distributions.py."""

import math
import operator

import headrace as hr
from headrace import _arrays
from headrace._arrays import exponential, gumbel, randint, random_bits, split, uniform
from headrace._distributions import check, first_accepted, full_shape, gamma, open_uniform, values_of
from headrace._numpy.arguments import array_of

__all__ = [
    "binomial", "bytes", "choice", "geometric", "hypergeometric", "integers", "logseries", "multinomial",
    "negative_binomial", "permutation", "poisson", "random", "shuffle", "zipf",
]  # fmt: skip

_SMALL, _TERMS = 10, 64  # inversion for means below 10: a count of 64 or more is rarer than one in 10^30


def _whole(x, dtype):
    return hr.astype(x, dtype or hr.int64)


# ---- by inversion below a mean of 10, by rejection above


def _by_inversion(key, shape, first, ratio):
    """How many sums of probabilities are below u; first: the probability of 0, ratio(j): that of j + 1 to that of j."""
    u = uniform(key, shape, dtype=hr.float64)
    term = total = first
    count = hr.zeros(shape, dtype=hr.float64)
    for j in range(_TERMS):
        count = count + (u >= total)
        term = term * ratio(j)
        total = total + term
    return count


def _chosen(key, shape, mean, by_inversion, by_rejection):
    """The method for the mean: a number of the host chooses it, an array gets both."""
    if isinstance(mean, (int, float)):
        return (by_inversion if mean < _SMALL else by_rejection)(key)
    first, second = split(key)
    return hr.where(mean < _SMALL, by_inversion(first), by_rejection(second))


def poisson(key, shape, lam=1.0, dtype=None):
    """Poisson distribution; int64 without dtype, as all counts. Large means: W. Hoermann, The transformed rejection
    method for generating Poisson random variables, 1993, which accepts at least 75 % of its proposals."""
    check("poisson", 0, lam=lam)
    (lam,) = values_of(hr.float64, lam)
    shape = full_shape("poisson", shape, lam)
    small, large = (
        hr.minimum(hr.array(lam, dtype=hr.float64), _SMALL),
        hr.maximum(hr.array(lam, dtype=hr.float64), _SMALL),
    )

    def by_rejection(key):
        b = 0.931 + 2.53 * hr.sqrt(large)
        a = -0.059 + 0.02483 * b
        scale, bound = hr.log(1.1239 + 1.1328 / (b - 3.4)), 0.9277 - 3.6224 / (b - 2)
        log_lam = hr.log(large)

        def propose(one):
            keys = split(one)
            u, v = uniform(keys[0], shape, -0.5, 0.5, dtype=hr.float64), open_uniform(keys[1], shape, hr.float64)
            us = hr.maximum(0.5 - hr.abs(u), 1e-300)
            k = hr.floor((2 * a / us + b) * u + large + 0.43)
            known = hr.maximum(k, 0)
            height = -large + known * log_lam - hr.lgamma(known + 1)
            fits = hr.log(v) + scale - hr.log(a / (us * us) + b) <= height
            return known, (k >= 0) & (((us >= 0.07) & (v <= bound)) | (fits & ((us >= 0.013) | (v <= us))))

        return first_accepted(key, 16, propose)

    def by_inversion(key):
        return _by_inversion(key, shape, hr.exp(-small), lambda j: small / (j + 1))

    return _whole(_chosen(key, shape, lam, by_inversion, by_rejection), dtype)


def binomial(key, shape, n, p, dtype=None):
    """How many of n trials of probability p succeed. Large means: W. Hoermann, The generation of binomial random
    variates, 1993, which accepts at least 70 % of its proposals."""
    check("binomial", 0, n=n, p=p)
    if isinstance(p, (int, float)) and p > 1:
        raise ValueError(f"binomial: p is {p}, expected 0 to 1")
    n, p = values_of(hr.float64, n, p)
    shape = full_shape("binomial", shape, n, p)
    is_host = isinstance(n, (int, float)) and isinstance(p, (int, float))
    mean = (
        n * min(p, 1 - p)
        if is_host
        else hr.array(n, dtype=hr.float64) * hr.minimum(hr.array(p, dtype=hr.float64), 1 - p)
    )
    n, p = hr.array(n, dtype=hr.float64), hr.array(p, dtype=hr.float64)
    q = hr.minimum(p, 1 - p)
    count = _chosen(key, shape, mean, *_binomials(shape, n, q, hr.array(mean, dtype=hr.float64)))
    return _whole(hr.where(p > 0.5, n - count, count), dtype)


def _binomials(shape, n, q, mean):
    """Both methods, for probabilities q of at most 1/2."""
    ratio = q / (1 - q)

    def by_inversion(key):
        first = hr.exp(n * hr.log1p(-q))
        return hr.minimum(_by_inversion(key, shape, first, lambda j: hr.maximum(n - j, 0) / (j + 1) * ratio), n)

    def by_rejection(key):
        few = mean < _SMALL  # not used: numbers that stay finite
        trials, chance = hr.where(few, 40.0, n), hr.where(few, 0.5, q)
        deviation = hr.sqrt(trials * chance * (1 - chance))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * chance
        alpha, bound = (2.83 + 5.1 / b) * deviation, 0.92 - 4.2 / b
        mode, odds = hr.floor((trials + 1) * chance), hr.log(chance / (1 - chance))
        top = hr.lgamma(mode + 1) + hr.lgamma(trials - mode + 1)

        def propose(one):
            keys = split(one)
            u, v = uniform(keys[0], shape, -0.5, 0.5, dtype=hr.float64), open_uniform(keys[1], shape, hr.float64)
            us = hr.maximum(0.5 - hr.abs(u), 1e-300)
            k = hr.floor((2 * a / us + b) * u + trials * chance + 0.5)
            known = hr.clip(k, 0, trials)
            height = top - hr.lgamma(known + 1) - hr.lgamma(trials - known + 1) + (known - mode) * odds
            fits = hr.log(v * alpha / (a / (us * us) + b)) <= height
            return known, (k >= 0) & (k <= trials) & (((us >= 0.07) & (v <= bound)) | fits)

        return first_accepted(key, 18, propose)

    return by_inversion, by_rejection


def negative_binomial(key, shape, n, p, dtype=None):
    """How many trials of probability p fail before n of them succeed."""
    check("negative_binomial", 0, True, n=n, p=p)
    first, second = split(key)
    n, p = values_of(hr.float64, n, p)
    shape = full_shape("negative_binomial", shape, n, p)
    return poisson(second, shape, gamma(first, shape, n, dtype=hr.float64) * ((1 - p) / p), dtype)


def multinomial(key, shape, n, pvals, dtype=None):
    """How often each outcome occurs in n trials, along a last dim; pvals: its probability."""
    check("multinomial", 0, n=n)
    pvals = hr.array(pvals, dtype=hr.float64)
    if pvals.ndim != 1 or pvals.size == 0:
        raise ValueError(f"multinomial: pvals of shape {pvals.shape}, expected a vector of at least 1")
    shape, keys = full_shape("multinomial", shape), split(key, pvals.size)
    left = hr.broadcast_to(hr.array(n, dtype=hr.float64), shape)
    rest = hr.flip(hr.cumulative_sum(hr.flip(pvals)))
    counts = []
    for i in range(pvals.size - 1):
        chance = hr.clip(pvals[i] / hr.maximum(rest[i], 1e-300), 0, 1)
        counts.append(binomial(keys[i], shape, left, chance, hr.float64))
        left = left - counts[-1]
    return _whole(hr.stack([*counts, left], axis=-1), dtype)


# ---- of one or two numbers


def geometric(key, shape, p, dtype=None):
    """How many trials of probability p it takes until one succeeds."""
    check("geometric", 0, True, p=p)
    (p,) = values_of(hr.float64, p)
    shape = full_shape("geometric", shape, p)
    p = hr.array(p, dtype=hr.float64)
    return _whole(hr.floor(exponential(key, shape, dtype=hr.float64) / -hr.log1p(-p)) + 1, dtype)


def logseries(key, shape, p, dtype=None):
    """Logarithmic series distribution (A. W. Kemp, 1981)."""
    check("logseries", 0, True, p=p)
    (p,) = values_of(hr.float64, p)
    shape = full_shape("logseries", shape, p)
    first, second = split(key)
    q = -hr.expm1(uniform(first, shape, dtype=hr.float64) * hr.log1p(-hr.array(p, dtype=hr.float64)))
    number = hr.floor(1 + hr.log(open_uniform(second, shape, hr.float64)) / hr.log(hr.maximum(q, 1e-300)))
    return _whole(hr.maximum(number, 1), dtype)


def zipf(key, shape, a, dtype=None):
    """Zeta distribution: k with a probability proportional to k^-a (L. Devroye, 1986, X.6.1). Numbers above 2^62 are
    2^62."""
    check("zipf", 1, True, a=a)
    (a,) = values_of(hr.float64, a)
    shape = full_shape("zipf", shape, a)
    less = hr.array(a, dtype=hr.float64) - 1
    b = hr.exp2(less)

    def propose(one):
        keys = split(one)
        x = hr.floor(hr.pow(open_uniform(keys[0], shape, hr.float64), -1 / less))
        x = hr.minimum(x, 2.0**62)
        t = hr.pow(1 + 1 / x, less)
        return x, uniform(keys[1], shape, dtype=hr.float64) * x * (t - 1) / (b - 1) <= t / b

    return _whole(first_accepted(key, 40, propose), dtype)


def hypergeometric(key, shape, ngood, nbad, nsample, dtype=None):
    """How many good ones are among nsample of ngood and nbad ones, which are numbers of Python."""
    ngood, nbad, nsample = (operator.index(n) for n in (ngood, nbad, nsample))
    check("hypergeometric", 0, ngood=ngood, nbad=nbad, nsample=nsample)
    if nsample > ngood + nbad:
        raise ValueError(f"hypergeometric: nsample is {nsample} of {ngood + nbad}")
    low, high = max(0, nsample - nbad), min(nsample, ngood)
    if high - low > 1 << 20:
        raise ValueError(f"hypergeometric: {high - low + 1} possible results, expected at most {1 << 20}")

    def log_ways(n, k):
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    total, sums, running = log_ways(ngood + nbad, nsample), [], 0.0
    for k in range(low, high + 1):
        running += math.exp(log_ways(ngood, k) + log_ways(nbad, nsample - k) - total)
        sums.append(running)
    u = uniform(key, full_shape("hypergeometric", shape), dtype=hr.float64) * running
    return _whole(
        hr.minimum(hr.searchsorted(hr.array(sums, dtype=hr.float64), u, side="right"), high - low) + low, dtype
    )


# ---- integers, choices, orders


def random(key, shape=(), dtype=None):
    """Uniform in [0, 1)."""
    return uniform(key, shape, dtype=dtype)


def integers(key, shape, low, high=None, endpoint=False, dtype=None):
    """Integers from low to high - 1, or to high with endpoint; with low alone from 0 to it. int64 without dtype."""
    low, high = (0, low) if high is None else (low, high)
    return randint(key, shape, operator.index(low), operator.index(high) + bool(endpoint), dtype or hr.int64)


def bytes(key, length):
    """So many random bytes, as an object of Python; waits."""
    return random_bits(key, (length,), dtype=hr.uint8).tobytes()


def permutation(key, x, axis=0):
    """x's slices along an axis in random order, or the numbers below an integer x."""
    return _arrays.permutation(key, hr.arange(x) if isinstance(x, int) else x, axis)


def shuffle(key, x, axis=0):
    """permutation of an array; x stays as it is."""
    return _arrays.permutation(key, x, axis)


def _choices(key, count, shape, number, replace, p):
    """Indices below count."""
    if not replace:
        if number > count:
            raise ValueError(f"choice: {number} of {count} without replacement")
        if p is None:
            return permutation(key, count)[:number].reshape(*shape)
        noise = gumbel(key, (count,), dtype=hr.float64) + hr.log(p)
        return hr.argsort(-noise)[:number].reshape(*shape)
    if p is None:
        return randint(key, shape, 0, count, hr.int64)
    sums = hr.cumulative_sum(p)
    u = uniform(key, shape, dtype=hr.float64) * sums[-1]
    return hr.minimum(hr.searchsorted(sums, u, side="right"), count - 1)


def choice(key, a, shape=(), replace=True, p=None, axis=0):
    """Slices of an array along an axis, or integers below a, with probabilities p, all the same without p. Without
    replace each one at most once."""
    a = a if isinstance(a, int) else array_of(a)
    count = a if isinstance(a, int) else a.shape[axis]
    shape = full_shape("choice", shape)
    number = math.prod(shape)
    if count < 1 and number:
        raise ValueError(f"choice: {number} of {count} elements")
    if p is not None:
        p = hr.array(p, dtype=hr.float64)
        if p.shape != (count,):
            raise ValueError(f"choice: p of shape {p.shape}, expected ({count},)")
    index = _choices(key, count, shape, number, replace, p)
    return index if isinstance(a, int) else hr.take(a, index, axis=axis)
