"""Random numbers of keys, as in JAX and MLX: a key is an array of two uint32, and the same key gives the same numbers.

    key = hr.random.key(0)
    first, second = hr.random.split(key)
    x = hr.random.normal(first, (2, 3))
"""

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
    "normal",
    "permutation",
    "randint",
    "random_bits",
    "split",
    "truncated_normal",
    "uniform",
]
