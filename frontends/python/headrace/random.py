"""Random numbers of keys, as in JAX and MLX: a key is an array of two uint32, and the same key gives the same numbers.

    key = hr.random.key(0)
    first, second = hr.random.split(key)
    x = hr.random.normal(first, (2, 3))

`headrace.nn` draws from a key of this module, which each draw replaces: `seed` sets it, `next_key` splits it. The only
entry of the list `state` is that key. It is random until `seed` is called.
"""

import importlib
import os
import threading

from headrace import _arrays
from headrace._arrays import (
    bernoulli,
    categorical,
    exponential,
    fold_in,
    gumbel,
    key,
    laplace,
    normal,
    randint,
    random_bits,
    split,
    threefry,
    truncated_normal,
    uniform,
)

_CONTINUOUS = """beta chisquare dirichlet f gamma logistic lognormal multivariate_normal noncentral_chisquare noncentral_f
pareto power rayleigh standard_cauchy standard_exponential standard_gamma standard_normal standard_t triangular vonmises
wald weibull""".split()
_DISCRETE = """binomial bytes choice geometric hypergeometric integers logseries multinomial negative_binomial permutation
poisson random shuffle zipf""".split()

# Functions of modules that are loaded when one of them is used.
_LATE = {**dict.fromkeys(_CONTINUOUS, "_distributions"), **dict.fromkeys(_DISCRETE, "_counts")}

__all__ = [
    "bernoulli",
    "categorical",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "next_key",
    "normal",
    "randint",
    "random_bits",
    "seed",
    "split",
    "threefry",
    "truncated_normal",
    "uniform",
    *_LATE,
]

_state = []  # empty, or the key
_lock = threading.RLock()


def seed(number):
    """Sets the key of this module."""
    with _lock:
        _state[:] = [_arrays._outside(key, number)]


def next_key():
    """A new key, split from that of this module, on the device of new arrays."""
    with _lock:
        if not _state:
            seed(int.from_bytes(os.urandom(8), "little") >> 1)
        old = _state[0]
        if old.device != _arrays.device():
            old = _arrays.array(old, device=_arrays.device())
        keys = split(old)
        _state[0] = keys[0]
        return keys[1]


def __getattr__(name):
    if name in _LATE:
        globals()[name] = getattr(importlib.import_module("headrace." + _LATE[name]), name)
        return globals()[name]
    if name != "state":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _state:
        next_key()
    return _state
