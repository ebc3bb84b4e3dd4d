"""Random numbers with MLX's names: without a key they are drawn from that of headrace.random."""

import math

import headrace as _hr
from headrace import _arrays
from headrace import random as _random
from headrace._arrays import Array
from headrace.mlx._operations import as_array
from headrace.mlx._shapes import broadcast_shapes

__all__ = [
    "bernoulli",
    "categorical",
    "gumbel",
    "key",
    "laplace",
    "multivariate_normal",
    "normal",
    "permutation",
    "randint",
    "seed",
    "split",
    "truncated_normal",
    "uniform",
]

seed = _random.seed


def __getattr__(name):
    if name != "state":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _random.state


def _key(key):
    if key is None:
        return _random.next_key()
    if not isinstance(key, Array) or key.shape[-1:] != (2,) or key.dtype != _arrays.uint32:
        raise ValueError(f"key is {key!r}, expected an array of two uint32")
    return key


def key(seed):
    """The key of a seed."""
    return _arrays.key(seed)


def split(key, num=2, stream=None):
    """Independent keys."""
    return _arrays.split(_key(key), num)


def _floating(who, dtype):
    dtype = _arrays.float32 if dtype is None else dtype
    if not dtype.name.startswith(("float", "bfloat")):
        raise ValueError(f"{who}: dtype is {dtype}, expected a floating one")
    return dtype


def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


def uniform(low=0, high=1, shape=(), dtype=None, key=None, stream=None):
    """Numbers from low, included, to high."""
    dtype = _floating("uniform", dtype)
    shape = _shape(shape)
    if not isinstance(low, Array) and not isinstance(high, Array):
        return _arrays.uniform(_key(key), shape, low, high, dtype)
    low, high = as_array(low).astype(dtype), as_array(high).astype(dtype)
    _check_shape("uniform", shape, low.shape, high.shape)
    unit = _arrays.uniform(_key(key), shape, 0, 1, dtype)
    return _arrays.minimum(unit * (high - low) + low, _arrays.nextafter(high, low))


def _check_shape(who, shape, *shapes):
    if broadcast_shapes(shape, *shapes) != tuple(shape):
        found = " and ".join(map(str, shapes))
        raise ValueError(f"{who}: shape {shape}, expected one that {found} can be broadcast to")


def normal(shape=(), dtype=None, loc=None, scale=None, key=None, stream=None):
    """Normal numbers of mean loc and deviation scale."""
    dtype = _arrays.float32 if dtype is None else dtype
    if dtype == _arrays.complex64:
        parts = _arrays.normal(_key(key), (2, *_shape(shape)), 0, math.sqrt(0.5))
        x = _arrays.complex(parts[0], parts[1])
    else:
        x = _arrays.normal(_key(key), _shape(shape), 0, 1, _floating("normal", dtype))
    x = x if scale is None else x * (scale.astype(dtype) if isinstance(scale, Array) else scale)
    return x if loc is None else x + (loc.astype(dtype) if isinstance(loc, Array) else loc)


def multivariate_normal(mean, cov, shape=(), dtype=None, key=None, stream=None):
    """Normal vectors of these means [.., n] and covariances [.., n, n]."""
    dtype = _floating("multivariate_normal", dtype)
    if dtype != _arrays.float32:
        raise ValueError(f"multivariate_normal: dtype is {dtype}, expected float32")
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-1] != cov.shape[-2] or cov.shape[-1] != mean.shape[-1]:
        raise ValueError(f"multivariate_normal: mean {mean.shape} and cov {cov.shape}, expected (.., n) and (.., n, n)")
    batch = broadcast_shapes(_shape(shape), mean.shape[:-1], cov.shape[:-2])
    if shape and batch != _shape(shape):
        _check_shape("multivariate_normal", _shape(shape), mean.shape[:-1], cov.shape[:-2])
    u, s, vh = _arrays.svd(cov, False)
    x = _arrays.normal(_key(key), (*batch, mean.shape[-1]))
    root = _arrays.expand_dims(_arrays.sqrt(s), -1) * vh
    return _arrays.squeeze(_arrays.matmul(_arrays.expand_dims(x, -2), root), -2) + mean


def randint(low, high, shape=(), dtype=None, key=None, stream=None):
    """Integers from low, included, to high, excluded."""
    dtype = _arrays.int32 if dtype is None else dtype
    if dtype == _arrays.bool:
        return randint(low, high, shape, _arrays.int32, key).astype(dtype)
    if "int" not in dtype.name:
        raise ValueError(f"randint: dtype is {dtype}, expected one of integers")
    shape = _shape(shape)
    if not isinstance(low, Array) and not isinstance(high, Array):
        low, high = int(low), int(high)
        if high <= low:
            return _arrays.full(shape, low, dtype=dtype)
        return _arrays.randint(_key(key), shape, low, high, dtype)
    low, high = as_array(low), as_array(high)
    _check_shape("randint", shape, low.shape, high.shape)
    low, high = low.astype(_arrays.int64), high.astype(_arrays.int64)
    unit = _arrays.uniform(_key(key), shape, 0, 1, _arrays.float64)
    places = low + _arrays.floor(unit * (high - low).astype(_arrays.float64)).astype(_arrays.int64)
    return _arrays.maximum(_arrays.minimum(places, high - 1), low).astype(dtype)


def bernoulli(p=0.5, shape=None, key=None, stream=None):
    """True with probability p."""
    p = as_array(p)
    if not p.dtype.name.startswith(("float", "bfloat")):
        raise ValueError(f"bernoulli: p is {p.dtype}, expected a floating one")
    shape = p.shape if shape is None else _shape(shape)
    _check_shape("bernoulli", shape, p.shape)
    return _arrays.bernoulli(_key(key), p, shape)


def _phi(x):
    return _arrays.erf(x * (1 / math.sqrt(2)))


def truncated_normal(lower, upper, shape=None, dtype=None, key=None, stream=None):
    """Normal numbers between lower and upper, by the inverse of the distribution function."""
    dtype = _floating("truncated_normal", dtype)
    low, high = as_array(lower).astype(_arrays.float32), as_array(upper).astype(_arrays.float32)
    shape = broadcast_shapes(low.shape, high.shape) if shape is None else _shape(shape)
    _check_shape("truncated_normal", shape, low.shape, high.shape)
    a, b = _phi(low), _phi(high)
    x = math.sqrt(2) * _arrays.erfinv(a + _arrays.uniform(_key(key), shape) * (b - a))
    return _arrays.maximum(_arrays.minimum(x, high), low).astype(dtype)


def gumbel(shape=(), dtype=None, key=None, stream=None):
    """Numbers of Gumbel's distribution."""
    return _arrays.gumbel(_key(key), _shape(shape), _floating("gumbel", dtype))


def laplace(shape=(), dtype=None, loc=0.0, scale=1.0, key=None, stream=None):
    """Numbers of Laplace's distribution of mean loc and scale."""
    x = _arrays.laplace(_key(key), _shape(shape)).astype(_floating("laplace", dtype))
    return x * scale + loc


def categorical(logits, axis=-1, shape=None, num_samples=None, key=None, stream=None):
    """Numbers of the entries along an axis whose logarithms of weights are logits, uint32."""
    if shape is not None and num_samples is not None:
        raise ValueError("categorical: shape and num_samples are given, expected one of them")
    if not -logits.ndim <= axis < logits.ndim:
        raise ValueError(f"categorical: axis {axis} is out of range for {logits.ndim} dims")
    logits = _hr.moveaxis(logits.astype(_arrays.float32), axis, -1)
    batch = logits.shape[:-1]
    if num_samples is not None:
        logits, batch = _arrays.expand_dims(logits, -2), (*batch, num_samples)
    elif shape is not None:
        _check_shape("categorical", _shape(shape), batch)
        batch = _shape(shape)
    noise = _arrays.gumbel(_key(key), (*batch, logits.shape[-1]))
    return _arrays.argmax(noise + logits, -1).astype(_arrays.uint32)


def permutation(x, axis=0, key=None, stream=None):
    """The numbers below x, or the slices of an array along an axis, in random order."""
    if isinstance(x, int):
        x, axis = _arrays.arange(x, dtype=_arrays.uint32), 0
    return _arrays.permutation(_key(key), x, axis)
