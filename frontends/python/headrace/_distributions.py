"""Continuous distributions of headrace.random, made of uniform, normal and exponential numbers.

Parameters are numbers or arrays that are broadcast to the shape. Numbers of Python are checked; arrays are not, since
that would wait. Rejection methods make a fixed number of proposals, so that nothing waits: the last one is kept if none
is accepted, which is rarer than one in 10^10.
"""

import math

import headrace as hr
from headrace._arrays import exponential, normal, split, uniform
from headrace._numpy.arguments import array_of

__all__ = [
    "beta", "chisquare", "dirichlet", "f", "gamma", "logistic", "lognormal", "multivariate_normal",
    "noncentral_chisquare", "noncentral_f", "pareto", "power", "rayleigh", "standard_cauchy",
    "standard_exponential", "standard_gamma", "standard_normal", "standard_t", "triangular", "vonmises", "wald",
    "weibull",
]  # fmt: skip

# ---- parameters


def check(name, low, is_open=False, **parameters):
    """Numbers of the host are above a bound, or at least at it."""
    for parameter, value in parameters.items():
        if isinstance(value, (int, float)) and not (value > low if is_open else value >= low):
            expected = f"more than {low}" if is_open else f"{low} or more"
            raise ValueError(f"{name}: {parameter} is {value}, expected {expected}")


def values_of(dtype, *parameters):
    """The parameters in the dtype of the computation."""
    return [value if isinstance(value, (int, float)) else hr.astype(array_of(value), dtype) for value in parameters]


def full_shape(name, shape, *parameters):
    """The shape as a tuple; parameters must fit it."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for parameter in parameters:
        sizes = getattr(parameter, "shape", ())
        pairs = zip(reversed(sizes), reversed(shape))
        if len(sizes) > len(shape) or any(size not in (1, whole) for size, whole in pairs):
            raise ValueError(f"{name}: a parameter of shape {sizes} does not fit shape {shape}")
    return shape


def _ready(name, shape, dtype, *parameters):
    """Shape, dtype and parameters; float32 without dtype."""
    dtype = dtype or hr.float32
    parameters = values_of(dtype, *parameters)
    return full_shape(name, shape, *parameters), dtype, *parameters


def open_uniform(key, shape, dtype):
    """Uniform in (0, 1)."""
    smallest = 2.0**-54 if dtype == hr.float64 else 2.0**-25
    return hr.maximum(uniform(key, shape, dtype=dtype), smallest)


def first_accepted(key, rounds, propose):
    """The first value that is accepted; propose(key) returns values and whether they are."""
    keys = split(key, rounds)
    value, is_done = propose(keys[0])
    for i in range(1, rounds):
        other, is_accepted = propose(keys[i])
        value = hr.where(is_done, value, other)
        is_done = is_done | is_accepted
    return value


# ---- gamma and what is made of it


def _gamma_parts(key, shape, a, dtype):
    """x and e with gamma = x exp(e): G. Marsaglia and W. W. Tsang, A simple method for generating gamma variables,
    2000. At least 95 % of its proposals are accepted. Below 1 it is a number of a + 1 times u^(1/a)."""
    first, second = split(key)
    a = hr.broadcast_to(hr.asarray(a, dtype=dtype), shape)
    d = hr.where(a < 1, a + 1, a) - 1 / 3
    c = 1 / hr.sqrt(9 * d)

    def propose(one):
        keys = split(one)
        x = normal(keys[0], shape, dtype=dtype)
        v = (1 + c * x) ** 3
        bound = x * x / 2 + d * (1 - v + hr.log(hr.maximum(v, 1e-30)))
        return hr.maximum(v, 1e-30), (v > 0) & (hr.log(open_uniform(keys[1], shape, dtype)) < bound)

    exponent = hr.where(a < 1, -exponential(second, shape, dtype=dtype) / a, 0)
    return d * first_accepted(first, 8, propose), exponent


def _log_gamma(key, shape, a, dtype):
    x, exponent = _gamma_parts(key, shape, a, dtype)
    return hr.log(x) + exponent


def gamma(key, shape, a, scale=1.0, dtype=None):
    """Gamma distribution with shape parameter a; f32 without dtype, as all of these functions."""
    check("gamma", 0, a=a, scale=scale)
    shape, dtype, a, scale = _ready("gamma", shape, dtype, a, scale)
    x, exponent = _gamma_parts(key, shape, a, dtype)
    return hr.where(hr.asarray(a, dtype=dtype) == 0, 0, x * hr.exp(exponent)) * scale


def standard_gamma(key, shape, a, dtype=None):
    """Gamma distribution of scale 1."""
    return gamma(key, shape, a, dtype=dtype)


def beta(key, shape, a, b, dtype=None):
    """Beta distribution."""
    check("beta", 0, True, a=a, b=b)
    shape, dtype, a, b = _ready("beta", shape, dtype, a, b)
    first, second = split(key)
    return hr.sigmoid(_log_gamma(first, shape, a, dtype) - _log_gamma(second, shape, b, dtype))


def chisquare(key, shape, df, dtype=None):
    """Chi-square distribution with df degrees of freedom."""
    check("chisquare", 0, True, df=df)
    shape, dtype, df = _ready("chisquare", shape, dtype, df)
    return 2 * gamma(key, shape, df / 2, dtype=dtype)


def dirichlet(key, shape, alpha, dtype=None):
    """Dirichlet distribution: the result has a last dim of alpha's size, and sums of 1 along it."""
    alpha = hr.array(alpha, dtype=dtype or hr.float32)
    if alpha.ndim == 0:
        raise ValueError("dirichlet: alpha has no dims, expected at least 1")
    shape = (*full_shape("dirichlet", shape, alpha[..., 0]), alpha.shape[-1])
    return hr.softmax(_log_gamma(key, shape, alpha, alpha.dtype), axis=-1)


def f(key, shape, dfnum, dfden, dtype=None):
    """F distribution: the ratio of two chi-square numbers by their degrees of freedom."""
    check("f", 0, True, dfnum=dfnum, dfden=dfden)
    first, second = split(key)
    shape, dtype, dfnum, dfden = _ready("f", shape, dtype, dfnum, dfden)
    return chisquare(first, shape, dfnum, dtype) / dfnum / (chisquare(second, shape, dfden, dtype) / dfden)


def noncentral_chisquare(key, shape, df, nonc, dtype=None):
    """Sum of squares of df normal numbers whose means have squares that sum up to nonc."""
    check("noncentral_chisquare", 0, True, df=df)
    check("noncentral_chisquare", 0, nonc=nonc)
    first, second = split(key)
    shape, dtype, df, nonc = _ready("noncentral_chisquare", shape, dtype, df, nonc)
    extra = hr.random.poisson(first, shape, nonc / 2)
    return 2 * gamma(second, shape, df / 2 + hr.astype(extra, dtype), dtype=dtype)


def noncentral_f(key, shape, dfnum, dfden, nonc, dtype=None):
    """f with a noncentral numerator."""
    check("noncentral_f", 0, True, dfnum=dfnum, dfden=dfden)
    first, second = split(key)
    shape, dtype, dfnum, dfden, nonc = _ready("noncentral_f", shape, dtype, dfnum, dfden, nonc)
    above = noncentral_chisquare(first, shape, dfnum, nonc, dtype) / dfnum
    return above / (chisquare(second, shape, dfden, dtype) / dfden)


def standard_t(key, shape, df, dtype=None):
    """Student's t distribution with df degrees of freedom."""
    check("standard_t", 0, True, df=df)
    first, second = split(key)
    shape, dtype, df = _ready("standard_t", shape, dtype, df)
    return normal(first, shape, dtype=dtype) / hr.sqrt(chisquare(second, shape, df, dtype) / df)


# ---- of one or two uniform, normal or exponential numbers


def standard_normal(key, shape, dtype=None):
    """Normal distribution of mean 0 and variance 1."""
    return normal(key, shape, dtype=dtype)


def standard_exponential(key, shape, dtype=None):
    """Exponential distribution of mean 1."""
    return exponential(key, shape, dtype=dtype)


def standard_cauchy(key, shape, dtype=None):
    """Cauchy distribution around 0."""
    shape, dtype = _ready("standard_cauchy", shape, dtype)
    return hr.tan(math.pi * (open_uniform(key, shape, dtype) - 0.5))


def logistic(key, shape, loc=0.0, scale=1.0, dtype=None):
    """Logistic distribution."""
    check("logistic", 0, scale=scale)
    shape, dtype, loc, scale = _ready("logistic", shape, dtype, loc, scale)
    u = open_uniform(key, shape, dtype)
    return loc + scale * (hr.log(u) - hr.log1p(-u))


def lognormal(key, shape, mean=0.0, sigma=1.0, dtype=None):
    """exp of normal numbers with this mean and deviation."""
    check("lognormal", 0, sigma=sigma)
    shape, dtype, mean, sigma = _ready("lognormal", shape, dtype, mean, sigma)
    return hr.exp(mean + sigma * normal(key, shape, dtype=dtype))


def pareto(key, shape, a, dtype=None):
    """Pareto distribution of the second kind: numbers from 0 on, with density a / (1 + x)^(a + 1)."""
    check("pareto", 0, True, a=a)
    shape, dtype, a = _ready("pareto", shape, dtype, a)
    return hr.expm1(exponential(key, shape, dtype=dtype) / a)


def power(key, shape, a, dtype=None):
    """Density a x^(a - 1) between 0 and 1."""
    check("power", 0, True, a=a)
    shape, dtype, a = _ready("power", shape, dtype, a)
    return hr.exp(-exponential(key, shape, dtype=dtype) / a)


def rayleigh(key, shape, scale=1.0, dtype=None):
    """Rayleigh distribution."""
    check("rayleigh", 0, scale=scale)
    shape, dtype, scale = _ready("rayleigh", shape, dtype, scale)
    return scale * hr.sqrt(2 * exponential(key, shape, dtype=dtype))


def weibull(key, shape, a, dtype=None):
    """Weibull distribution of scale 1."""
    check("weibull", 0, True, a=a)
    shape, dtype, a = _ready("weibull", shape, dtype, a)
    return hr.pow(exponential(key, shape, dtype=dtype), 1 / a)


def triangular(key, shape, left, mode, right, dtype=None):
    """A density that rises from left to mode and falls to right."""
    if all(isinstance(bound, (int, float)) for bound in (left, mode, right)) and not (left <= mode <= right != left):
        raise ValueError(f"triangular: left {left}, mode {mode} and right {right}, expected them in order")
    shape, dtype, left, mode, right = _ready("triangular", shape, dtype, left, mode, right)
    u, width = uniform(key, shape, dtype=dtype), right - left
    rising = left + hr.sqrt(u * ((mode - left) * width))
    falling = right - hr.sqrt((1 - u) * ((right - mode) * width))
    return hr.where(u * width <= mode - left, rising, falling)


def wald(key, shape, mean, scale, dtype=None):
    """Inverse Gaussian distribution (J. R. Michael, W. R. Schucany, R. W. Haas, 1976)."""
    check("wald", 0, True, mean=mean, scale=scale)
    first, second = split(key)
    shape, dtype, mean, scale = _ready("wald", shape, dtype, mean, scale)
    excess = hr.square(normal(first, shape, dtype=dtype)) * (mean / scale / 2)
    small = mean / (1 + excess + hr.sqrt(excess * (excess + 2)))  # the smaller root, without cancellation
    return hr.where(uniform(second, shape, dtype=dtype) * (mean + small) <= mean, small, mean * (mean / small))


def vonmises(key, shape, mu, kappa, dtype=None):
    """Von Mises distribution of angles in [-pi, pi], with concentration kappa around mu (D. J. Best, N. I. Fisher,
    1979). At least 65 % of its proposals are accepted."""
    check("vonmises", 0, kappa=kappa)
    first, second = split(key)
    dtype = dtype or hr.float32
    mu, kappa = values_of(hr.float64, mu, kappa)
    shape = full_shape("vonmises", shape, mu, kappa)
    kappa = hr.broadcast_to(hr.maximum(hr.asarray(kappa, dtype=hr.float64), 1e-5), shape)
    tau = 1 + hr.sqrt(1 + 4 * kappa * kappa)
    rho = (tau - hr.sqrt(2 * tau)) / (2 * kappa)
    r = (1 + rho * rho) / (2 * rho)

    def propose(one):
        keys = split(one)
        z = hr.cos(math.pi * uniform(keys[0], shape, dtype=hr.float64))
        cosine = (1 + r * z) / (r + z)
        c, u = kappa * (r - cosine), open_uniform(keys[1], shape, hr.float64)
        return cosine, (c * (2 - c) > u) | (hr.log(hr.maximum(c, 1e-300) / u) + 1 >= c)

    angle = hr.acos(hr.clip(first_accepted(first, 24, propose), -1, 1))
    angle = hr.where(uniform(second, shape) < 0.5, -angle, angle) + mu
    return hr.astype((angle + math.pi) % (2 * math.pi) - math.pi, dtype)


def multivariate_normal(key, shape, mean, cov, dtype=None):
    """Normal vectors with this mean [n] and covariance [n, n], along a last dim."""
    dtype = dtype or hr.float32
    mean, cov = hr.array(mean, dtype=dtype), hr.array(cov, dtype=dtype)
    if mean.ndim != 1 or cov.shape != mean.shape * 2:
        raise ValueError(f"multivariate_normal: mean {mean.shape} and cov {cov.shape}, expected [n] and [n, n]")
    values, vectors = hr.linalg.eigh(cov)
    shape = (*full_shape("multivariate_normal", shape), mean.shape[0])
    scaled = normal(key, shape, dtype=dtype) * hr.sqrt(hr.maximum(values, 0))
    return mean + hr.matmul(scaled, vectors.T)
