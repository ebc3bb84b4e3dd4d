"""Quantiles, with all of NumPy's methods (R. Hyndman, Y. Fan: Sample quantiles in statistical packages, 1996)."""

import headrace as hr
from headrace._numpy.arguments import array_of, axes_of, floating, is_complex, leaves

__all__ = ["nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

# alpha and beta of the methods whose place is q n + alpha + q (1 - alpha - beta) - 1.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "linear": (1, 1),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_ROUNDED = {"lower": hr.floor, "higher": hr.ceil, "nearest": hr.round}
_DISCRETE = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "midpoint", *_ROUNDED)


def _places(method, n, q):
    """The places in order of the two neighbours, and how far the quantile is from the first; n and q: f64."""
    last = n - 1
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        place = hr.clip(n * q + (alpha + q * (1 - alpha - beta)) - 1, 0, last)
        low = hr.floor(place)
        return low, hr.minimum(low + 1, last), place - low
    if method in _ROUNDED:
        low = _ROUNDED[method](last * q)
        return low, low, hr.zeros_like(low)
    if method == "midpoint":
        low, high = hr.floor(last * q), hr.ceil(last * q)
        return low, high, hr.where(low == high, 0.0, hr.full_like(low, 0.5))
    place = n * q
    if method == "closest_observation":
        low = hr.clip(hr.round(place) - 1, 0, last)
        return low, low, hr.zeros_like(low)
    low = hr.clip(hr.ceil(place) - 1, 0, last)
    is_whole = (hr.floor(place) == place) & (place > 0) & (place < n)
    if method == "inverted_cdf":
        return low, low, hr.zeros_like(low)
    return low, hr.where(is_whole, low + 1, low), hr.where(is_whole, hr.full_like(low, 0.5), 0.0)


def _weighted_places(x, weights, q):
    """The elements in order at which the running sum of weights reaches q of the total."""
    order = hr.argsort(x, axis=-1)
    x = hr.take_along_axis(x, order, axis=-1)
    sums = hr.cumulative_sum(hr.astype(hr.take_along_axis(weights, order, axis=-1), hr.float64), axis=-1)
    bounds = sums[..., -1:] * q
    is_below = (sums[..., None, :] < bounds[..., None]) | (sums[..., None, :] == 0)
    place = hr.sum(is_below, axis=-1)
    return x, hr.clip(place, 0, x.shape[-1] - 1)


def _rows(name, a, axis):
    """a with the axes flattened, as the last one, and the shape with keepdims."""
    axes = axes_of(name, axis, a.ndim)
    others = [i for i in range(a.ndim) if i not in axes]
    kept = tuple(1 if i in axes else n for i, n in enumerate(a.shape))
    rows = hr.permute_dims(a, (*others, *axes)).reshape(*(a.shape[i] for i in others), -1)
    return rows, kept


def _interpolated(x, low, high, t):
    """Between neighbours, as numpy's lerp: from the nearer one."""
    low, high = (hr.take_along_axis(x, hr.astype(place, hr.int64), axis=-1) for place in (low, high))
    low, high = floating(low), floating(high)
    t = hr.astype(t, low.dtype)
    step = high - low
    between = hr.where(t >= 0.5, high - step * (1 - t), low + step * t)
    return hr.where((t == 0) | (low == high), low, between)


def _fractions(name, q, scale):
    """q as an f64 vector, and its shape; numbers of the host are checked."""
    values = q if isinstance(q, hr.Array) else hr.array(q, dtype=hr.float64)
    if not isinstance(q, hr.Array):
        for one in leaves(q):
            if not 0 <= one <= scale:
                raise ValueError(f"{name}: {one} is out of range, expected 0 to {scale}")
    return hr.reshape(hr.astype(values, hr.float64), (-1,)) / scale, values.shape


def _spread(x, place):
    """Places for each row of x."""
    return hr.broadcast_to(place, (*x.shape[:-1], place.shape[-1]))


def _at_places(rows, q, method, skips_nan):
    ordered = hr.sort(rows, axis=-1)
    n = hr.array(float(rows.shape[-1]), dtype=hr.float64)
    missing = hr.isnan(ordered[..., -1:])
    if skips_nan:
        count = hr.sum(~hr.isnan(rows), axis=-1, keepdims=True)
        missing, n = count == 0, hr.astype(hr.maximum(count, 1), hr.float64)
    low, high, t = (_spread(ordered, place) for place in _places(method, n, q))
    is_rounded = method in _ROUNDED or method in ("inverted_cdf", "closest_observation")
    if is_rounded and not hr.isdtype(rows.dtype, "real floating"):
        return hr.take_along_axis(ordered, hr.astype(low, hr.int64), axis=-1)
    result = _interpolated(ordered, low, high, t)
    return hr.where(missing, hr.nan, result)


def _weighted(name, a, rows, q, axis, weights, method, skips_nan):
    if method != "inverted_cdf":
        raise ValueError(f"{name}: weights with method {method!r}, expected 'inverted_cdf'")
    weights = array_of(weights)
    if weights.shape != a.shape:
        one = axes_of(name, axis, a.ndim)
        if len(one) != 1 or weights.shape != (a.shape[one[0]],):
            raise ValueError(f"{name}: weights of shape {weights.shape}, expected {a.shape} or that of the axis")
        weights = hr.broadcast_to(weights.reshape(*(-1 if i == one[0] else 1 for i in range(a.ndim))), a.shape)
    weights, _ = _rows(name, weights, axis)
    is_missing = hr.isnan(rows)
    if skips_nan:
        weights = hr.where(is_missing, 0, weights)
    ordered, place = _weighted_places(rows, weights, q)
    result = hr.take_along_axis(ordered, place, axis=-1)
    if not hr.isdtype(rows.dtype, "real floating"):
        return result
    none = hr.all(is_missing, axis=-1, keepdims=True) if skips_nan else hr.any(is_missing, axis=-1, keepdims=True)
    return hr.where(none, hr.nan, result)


def _quantile(name, a, q, axis, method, keepdims, weights, skips_nan, scale=1):
    a = array_of(a)
    if method not in _CONTINUOUS and method not in _DISCRETE:
        raise ValueError(f"{name}: method {method!r}, expected one of {', '.join(sorted((*_CONTINUOUS, *_DISCRETE)))}")
    if is_complex(a):
        raise TypeError(f"{name}: {a.dtype.name}, expected real numbers")
    q, shape = _fractions(name, q, scale)
    axis = tuple(axis) if isinstance(axis, list) else axis
    rows, kept = _rows(name, a, axis)
    if rows.shape[-1] == 0:
        raise ValueError(f"{name}: no elements in shape {a.shape}")
    if weights is None:
        result = _at_places(rows, q, method, skips_nan)
    else:
        result = _weighted(name, a, rows, q, axis, weights, method, skips_nan)
    return hr.moveaxis(result, -1, 0).reshape(*shape, *(kept if keepdims else rows.shape[:-1]))


def quantile(a, q, axis=None, *, method="linear", keepdims=False, weights=None):
    """The quantiles q (0 to 1), whose dims come first, along axes or of all elements; NaN if any element is NaN.
    method: one of NumPy's. weights: of each element, with method inverted_cdf."""
    return _quantile("quantile", a, q, axis, method, keepdims, weights, False)


def percentile(a, q, axis=None, *, method="linear", keepdims=False, weights=None):
    """quantile for q of 0 to 100."""
    return _quantile("percentile", a, q, axis, method, keepdims, weights, False, 100)


def nanquantile(a, q, axis=None, *, method="linear", keepdims=False, weights=None):
    """quantile of the elements that are not NaN."""
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights, True)


def nanpercentile(a, q, axis=None, *, method="linear", keepdims=False, weights=None):
    """percentile of the elements that are not NaN."""
    return _quantile("nanpercentile", a, q, axis, method, keepdims, weights, True, 100)


def nanmedian(a, axis=None, *, keepdims=False):
    """The median of the elements that are not NaN."""
    return _quantile("nanmedian", a, 0.5, axis, "linear", keepdims, None, True)
