"""Windows of M points, in float32 without dtype."""

import math
import operator

import headrace as hr

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _window(M, dtype, values):
    """values(n, last) of the places n of M points, of which one alone is 1."""
    M = operator.index(M)
    dtype = dtype or hr.float32
    if M < 1:
        return hr.zeros((0,), dtype=dtype)
    if M == 1:
        return hr.ones((1,), dtype=dtype)
    return hr.astype(values(hr.arange(M, dtype=hr.float64), M - 1), dtype)


def _cosines(*factors):
    """A sum of cosines of 0, 1, ... periods."""

    def values(n, last):
        return sum(factor * hr.cos(n * (2 * math.pi * k / last)) for k, factor in enumerate(factors))

    return values


def bartlett(M, dtype=None):
    """A triangle with ends of 0."""
    return _window(M, dtype, lambda n, last: 1 - hr.abs(n * (2 / last) - 1))


def blackman(M, dtype=None):
    """0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1))."""
    return _window(M, dtype, _cosines(0.42, -0.5, 0.08))


def hamming(M, dtype=None):
    """0.54 - 0.46 cos(2 pi n / (M - 1))."""
    return _window(M, dtype, _cosines(0.54, -0.46))


def hanning(M, dtype=None):
    """0.5 - 0.5 cos(2 pi n / (M - 1))."""
    return _window(M, dtype, _cosines(0.5, -0.5))


def kaiser(M, beta, dtype=None):
    """i0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / i0(beta)."""

    def values(n, last):
        bound = hr.array(float(beta), dtype=hr.float64)
        return hr.i0(bound * hr.sqrt(hr.maximum(1 - (n * (2 / last) - 1) ** 2, 0))) / hr.i0(bound)

    return _window(M, dtype, values)
