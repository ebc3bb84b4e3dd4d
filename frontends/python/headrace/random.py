"""Random numbers of keys, as in JAX and MLX: a key is an array of two uint32, and the same key gives the same numbers.

    key = hr.random.key(0)
    first, second = hr.random.split(key)
    x = hr.random.normal(first, (2, 3))

`headrace.nn` draws from a key of this module, which each draw replaces: `seed` sets it, `next_key` splits it. The only
entry of the list `state` is that key. It is random until `seed` is called.
"""

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
    permutation,
    randint,
    random_bits,
    split,
    truncated_normal,
    uniform,
)

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
    "permutation",
    "randint",
    "random_bits",
    "seed",
    "split",
    "truncated_normal",
    "uniform",
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
    if name != "state":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _state:
        next_key()
    return _state
