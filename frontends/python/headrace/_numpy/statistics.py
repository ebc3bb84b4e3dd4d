"""Sums and statistics: cumsum, average, cov, nanargmax, ..."""

import headrace as hr
from headrace._numpy.arguments import array_of, axes_of, common_floating, flat_axis, floating, is_complex, is_inexact

__all__ = [
    "average", "corrcoef", "cov", "cumprod", "cumsum", "ediff1d", "nanargmax", "nanargmin", "nancumprod",
    "nancumsum", "nanstd", "nanvar", "std", "var",
]  # fmt: skip


# ---- running sums and products


def _running(function, name, a, axis, dtype):
    a, axis = flat_axis(name, array_of(a), axis)
    return function(a, axis=axis, dtype=dtype)


def _without_nan(a, value):
    a = array_of(a)
    return hr.where(hr.isnan(a), value, a) if is_inexact(a) else a


def cumsum(a, axis=None, dtype=None):
    """Running sums along an axis, or of the flattened array."""
    return _running(hr.cumulative_sum, "cumsum", a, axis, dtype)


def cumprod(a, axis=None, dtype=None):
    """Running products along an axis, or of the flattened array."""
    return _running(hr.cumulative_prod, "cumprod", a, axis, dtype)


def nancumsum(a, axis=None, dtype=None):
    """cumsum with 0 in place of NaN."""
    return cumsum(_without_nan(a, 0), axis, dtype)


def nancumprod(a, axis=None, dtype=None):
    """cumprod with 1 in place of NaN."""
    return cumprod(_without_nan(a, 1), axis, dtype)


def ediff1d(ary, to_end=None, to_begin=None):
    """Differences of neighbours in the flattened array, between these numbers."""
    flat = hr.reshape(array_of(ary), (-1,))
    parts = [to_begin, flat[1:] - flat[:-1], to_end]
    parts = [hr.reshape(hr.astype(array_of(part), flat.dtype), (-1,)) for part in parts if part is not None]
    return hr.concat(parts)


# ---- deviations


def _deviation(name, a, axis, keepdims, ddof, dtype, correction):
    if correction is not None and ddof:
        raise ValueError(f"{name}: ddof {ddof} and correction {correction}, expected one of them")
    a = floating(a) if dtype is None else hr.astype(array_of(a), dtype)
    return getattr(hr._arrays, name)(a, axis, keepdims, ddof if correction is None else correction)


def var(a, axis=None, keepdims=False, ddof=0, *, dtype=None, correction=None):
    """The variance: squares of deviations by the number of elements less ddof, or correction."""
    return _deviation("var", a, axis, keepdims, ddof, dtype, correction)


def std(a, axis=None, keepdims=False, ddof=0, *, dtype=None, correction=None):
    """The square root of the variance."""
    return _deviation("std", a, axis, keepdims, ddof, dtype, correction)


def nanvar(a, axis=None, keepdims=False, ddof=0, *, dtype=None, correction=None):
    """The variance without NaN."""
    return _deviation("nanvar", a, axis, keepdims, ddof, dtype, correction)


def nanstd(a, axis=None, keepdims=False, ddof=0, *, dtype=None, correction=None):
    """The standard deviation without NaN."""
    return _deviation("nanstd", a, axis, keepdims, ddof, dtype, correction)


# ---- averages, covariances


def _spread_weights(a, axis, weights):
    """Weights of a's shape, or of the axes alone, as an array that can be broadcast to a."""
    if weights.shape == a.shape:
        return weights
    axes = axes_of("average", axis, a.ndim)
    expected = tuple(a.shape[one] for one in axes)
    if axis is None or weights.shape != expected:
        raise ValueError(f"average: weights of shape {weights.shape}, expected {a.shape}, or that of the axes in axis")
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    return hr.permute_dims(weights, order).reshape(*(n if i in axes else 1 for i, n in enumerate(a.shape)))


def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    """The mean, weighted by weights; returned: with the sums of the weights."""
    a = floating(a)
    axis = tuple(axis) if isinstance(axis, list) else axis
    if weights is None:
        result = hr.mean(a, axis=axis, keepdims=keepdims)
        total = hr.full_like(result, a.size / result.size if result.size else 0)
        return (result, total) if returned else result
    a, weights = common_floating(a, weights)
    weights = _spread_weights(a, axis, weights)
    total = hr.sum(hr.broadcast_to(weights, a.shape), axis=axis, keepdims=keepdims)
    result = hr.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return (result, total) if returned else result


def _variables(name, m, y, rowvar, dtype):
    """The variables as the rows of a matrix."""
    arrays = [array_of(x) if dtype is None else hr.astype(array_of(x), dtype) for x in (m, y) if x is not None]
    for x in arrays:
        if x.ndim > 2:
            raise ValueError(f"{name}: {x.ndim} dims, expected at most 2")
    arrays = [x[None] if x.ndim == 1 else x.reshape(1, 1) if x.ndim == 0 else x for x in common_floating(*arrays)]
    is_row = [array_of(x).ndim < 2 for x in (m, y) if x is not None]
    arrays = [x if rowvar or row else x.T for x, row in zip(arrays, is_row, strict=True)]
    return arrays[0] if len(arrays) == 1 else hr.concat(arrays, axis=0)


def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    """Covariances of variables, which are the rows of m and y (rowvar false: the columns). Products of deviations are
    divided by the number of observations less ddof: 1, or 0 with bias. fweights: how often each observation counts;
    aweights: its relative weight."""
    x = _variables("cov", m, y, rowvar, dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None if fweights is None else hr.astype(array_of(fweights), x.dtype)
    if aweights is not None:
        other = hr.astype(array_of(aweights), x.dtype)
        weights = other if weights is None else weights * other
    if weights is None:
        total, squares = x.shape[1], 1
    else:
        if weights.shape != (x.shape[1],):
            raise ValueError(f"cov: weights of shape {weights.shape}, expected ({x.shape[1]},)")
        total = hr.sum(weights)
        squares = 1 if aweights is None else hr.sum(weights * other) / total
    deviations = x - average(x, axis=1, weights=weights, keepdims=True)
    weighted = deviations if weights is None else deviations * weights
    products = hr.matmul(weighted, hr.conj(deviations).T if is_complex(x) else deviations.T)
    return hr.squeeze(products / hr.maximum(hr.astype(array_of(total - ddof * squares), hr.abs(x).dtype), 0))


def corrcoef(x, y=None, rowvar=True, *, dtype=None):
    """Correlation coefficients: covariances by the product of standard deviations."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    deviations = hr.sqrt(hr.real(hr._arrays.diagonal(c)) if is_complex(c) else hr._arrays.diagonal(c))
    c = c / deviations[:, None] / deviations[None]
    if is_complex(c):
        return hr.complex(hr.clip(hr.real(c), -1, 1), hr.clip(hr.imag(c), -1, 1))
    return hr.clip(c, -1, 1)


# ---- without NaN


def _nan_place(name, a, axis, keepdims):
    a = array_of(a)
    if is_inexact(a):
        a = hr.where(hr.isnan(a), -hr.inf if name == "argmax" else hr.inf, a)
    return getattr(hr, name)(a, axis=axis, keepdims=keepdims)


def nanargmax(a, axis=None, *, keepdims=False):
    """The index of the largest number; 0 if all are NaN."""
    return _nan_place("argmax", a, axis, keepdims)


def nanargmin(a, axis=None, *, keepdims=False):
    """The index of the smallest number; 0 if all are NaN."""
    return _nan_place("argmin", a, axis, keepdims)
