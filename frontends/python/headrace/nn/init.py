"""Initialisers: each returns a function of an array whose result has its shape and other values.

    weight = nn.init.he_uniform()(hr.zeros((64, 32)))

The names fan_in and fan_out mean the inputs of one output and the outputs of one input. For a weight [O, .., I] they
are I and O times the number of places of the kernel.
"""

import math

from headrace import _arrays, linalg, random

__all__ = [
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "normal",
    "orthogonal",
    "sparse",
    "uniform",
]


def constant(value, dtype=_arrays.float32):
    """One number everywhere."""
    return lambda x: _arrays.full(x.shape, value, dtype=dtype)


def normal(mean=0.0, std=1.0, dtype=_arrays.float32):
    """Numbers of a normal distribution."""
    return lambda x: random.normal(random.next_key(), x.shape, mean, std, dtype=dtype)


def uniform(low=0.0, high=1.0, dtype=_arrays.float32):
    """Numbers that are uniform in [low, high)."""
    return lambda x: random.uniform(random.next_key(), x.shape, low, high, dtype=dtype)


def identity(dtype=_arrays.float32):
    """The identity matrix."""

    def initializer(x):
        if x.ndim != 2 or x.shape[0] != x.shape[1]:
            raise ValueError(f"identity: shape {x.shape}, expected a square matrix")
        return _arrays.eye(x.shape[0], dtype=dtype)

    return initializer


def _fans(x):
    """fan_in and fan_out."""
    if x.ndim < 2:
        raise ValueError(f"glorot and he: shape {x.shape}, expected at least 2 dims")
    places = math.prod(x.shape[1:-1])
    return places * x.shape[-1], places * x.shape[0]


def _fan(x, mode):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"he: mode is {mode!r}, expected 'fan_in' or 'fan_out'")
    return _fans(x)[mode == "fan_out"]


def glorot_normal(dtype=_arrays.float32):
    """A normal distribution of deviation gain * sqrt(2 / (fan_in + fan_out)); gain is the result's 2nd argument."""
    return lambda x, gain=1.0: normal(0.0, gain * math.sqrt(2 / sum(_fans(x))), dtype)(x)


def glorot_uniform(dtype=_arrays.float32):
    """Uniform between -limit and limit = gain * sqrt(6 / (fan_in + fan_out)); gain is the result's 2nd argument."""

    def initializer(x, gain=1.0):
        limit = gain * math.sqrt(6 / sum(_fans(x)))
        return uniform(-limit, limit, dtype)(x)

    return initializer


def he_normal(dtype=_arrays.float32):
    """A normal distribution of deviation gain / sqrt(fan). The result's further arguments are mode, "fan_in" or
    "fan_out", and gain."""
    return lambda x, mode="fan_in", gain=1.0: normal(0.0, gain / math.sqrt(_fan(x, mode)), dtype)(x)


def he_uniform(dtype=_arrays.float32):
    """Uniform between -limit and limit = gain * sqrt(3 / fan). The result's further arguments are mode, "fan_in" or
    "fan_out", and gain."""

    def initializer(x, mode="fan_in", gain=1.0):
        limit = gain * math.sqrt(3 / _fan(x, mode))
        return uniform(-limit, limit, dtype)(x)

    return initializer


def sparse(sparsity, mean=0.0, std=1.0, dtype=_arrays.float32):
    """Numbers of a normal distribution, but zeros at sparsity * columns places of each row, rounded up."""

    def initializer(x):
        if x.ndim != 2:
            raise ValueError(f"sparse: shape {x.shape}, expected 2 dims")
        places = _arrays.argsort(random.uniform(random.next_key(), x.shape), axis=1)
        kept = _arrays.argsort(places, axis=1) >= math.ceil(sparsity * x.shape[1])
        values = normal(mean, std, dtype)(x)
        return _arrays.where(kept, values, _arrays.zeros_like(values))

    return initializer


def orthogonal(gain=1.0, dtype=_arrays.float32):
    """A matrix with orthonormal rows or columns, of which there are fewer, times gain."""

    def initializer(x):
        if x.ndim != 2:
            raise ValueError(f"orthogonal: a {x.ndim}D array of shape {x.shape}, expected 2 dims")
        rows, columns = x.shape
        size = max(x.shape)
        q, r = linalg.qr(random.normal(random.next_key(), (size, size)))
        q = q * _arrays.sign(linalg.diagonal(r)) * gain  # the signs make all directions equally likely
        return q[:rows, :columns].astype(dtype)

    return initializer
