"""Counts of values: bincount, histogram, digitize, ..."""

import math
import operator

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, check_known, host_list, is_inexact, leaves
from headrace._numpy.indices import ravel_multi_index
from headrace._numpy.shapes import ravel

__all__ = ["bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]


def bincount(x, /, weights=None, minlength=0, *, length=None):
    """How often each number from 0 on occurs in a vector of integers, or the sum of its weights, up to the largest
    number, which is waited for, and of at least minlength numbers. length: of so many numbers, without a wait; a larger
    one raises IndexError when the result is needed."""
    x = array_of(x)
    if x.ndim != 1:
        raise ValueError(f"bincount: {x.ndim} dims, expected 1")
    if not hr.isdtype(x.dtype, ("integral", "bool")) and x.size:
        raise TypeError(f"bincount: {x.dtype.name}, expected integers")
    if length is None:
        minlength = operator.index(minlength)
        if minlength < 0:
            raise ValueError(f"bincount: minlength {minlength}, expected 0 or more")
        low, high = (int(hr.min(x)), int(hr.max(x))) if x.size else (0, -1)
        if low < 0:
            raise ValueError(f"bincount: {low} in x, expected no negative numbers")
        length = max(minlength, high + 1)
    if weights is not None:
        weights = array_of(weights)
        weights = weights if is_inexact(weights) else hr.astype(weights, hr.float64)
        if weights.shape != x.shape:
            raise ValueError(f"bincount: weights of shape {weights.shape}, expected {x.shape}")
    if length == 0:
        return hr.zeros((0,), dtype=hr.int64 if weights is None else weights.dtype)
    return _arrays.bincount(hr.astype(x, hr.int64), weights, length)


def digitize(x, bins, right=False):
    """The number of the interval of increasing or decreasing bins in which x is; right: intervals include the upper
    end."""
    bins = array_of(bins)
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins of {bins.ndim} dims, expected 1")
    side = "left" if right else "right"
    rising = hr.searchsorted(bins, x, side=side)
    if bins.size < 2:
        return rising
    falling = bins.size - hr.searchsorted(hr.flip(bins), x, side=side)
    return hr.where(bins[0] > bins[-1], falling, rising)


# ---- edges


def _spread(a):
    """(75th percentile - 25th) of the elements."""
    low, high = hr.quantile(a, [0.25, 0.75]).tolist()
    return high - low


def _doane(a, n):
    deviation = float(hr.std(a))
    if n < 3 or deviation == 0:
        return 0.0
    skew = float(hr.mean(((a - hr.mean(a)) / deviation) ** 3))
    scale = math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
    return float(hr.ptp(a)) / (1 + math.log2(n) + math.log2(1 + abs(skew) / scale))


_WIDTHS = {
    "sqrt": lambda a, n: float(hr.ptp(a)) / math.sqrt(n),
    "sturges": lambda a, n: float(hr.ptp(a)) / (math.log2(n) + 1),
    "rice": lambda a, n: float(hr.ptp(a)) / (2 * n ** (1 / 3)),
    "scott": lambda a, n: (24 * math.sqrt(math.pi) / n) ** (1 / 3) * float(hr.std(a)),
    "fd": lambda a, n: 2 * _spread(a) * n ** (-1 / 3),
    "doane": _doane,
}


def _auto(a, n):
    by_spread, sturges = _WIDTHS["fd"](a, n), _WIDTHS["sturges"](a, n)
    rice = _WIDTHS["sqrt"](a, n) / 2
    return min(max(by_spread, rice), sturges) if by_spread else sturges


_WIDTHS["auto"] = _auto


def _count_by_rule(a, rule, low, high):
    """The number of bins that a rule gives; the elements are waited for."""
    check_known("histogram", rule, bins=tuple(_WIDTHS))
    inside = hr.astype(a[(a >= low) & (a <= high)], hr.float64)
    if inside.size == 0:
        return 1
    width = _WIDTHS[rule](inside, inside.size)
    if width and not is_inexact(a):
        width = max(width, 1)
    return max(math.ceil((float(high) - float(low)) / width), 1) if width else 1


def _range(a, range):
    """The outer edges as arrays without dims."""
    if range is not None:
        low, high = (float(bound) for bound in range)
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(f"histogram: range {low} to {high}, expected finite numbers in order")
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        return hr.array(low, dtype=hr.float64), hr.array(high, dtype=hr.float64)
    if a.size == 0:
        return hr.array(0.0, dtype=hr.float64), hr.array(1.0, dtype=hr.float64)
    low, high = hr.astype(hr.min(a), hr.float64), hr.astype(hr.max(a), hr.float64)
    widen = hr.where(low == high, 0.5, hr.zeros_like(low))
    return low - widen, high + widen


def _host_shape(bins):
    """A sequence for edges; a number for their count."""
    return bins if not hasattr(bins, "shape") else list(bins.shape) or 0


def _edges(a, bins, range):
    """The edges in order: given ones, or those of bins of one width."""
    if isinstance(bins, str) or not hasattr(_host_shape(bins), "__len__"):
        low, high = _range(a, range)
        count = _count_by_rule(a, bins, low, high) if isinstance(bins, str) else operator.index(host_list(bins))
        if count < 1:
            raise ValueError(f"histogram: {count} bins, expected at least 1")
        edges = low + hr.arange(count, dtype=hr.float64) * ((high - low) / count)
        edges = hr.concat([edges, high[None]])
        return hr.astype(edges, a.dtype) if is_inexact(a) else edges
    edges = array_of(bins)
    if edges.ndim != 1:
        raise ValueError(f"histogram: bins of {edges.ndim} dims, expected 1")
    if not isinstance(bins, hr.Array) and leaves(bins) != sorted(leaves(bins)):
        raise ValueError("histogram: bins are not in order")
    return edges


def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of histogram's bins."""
    a = ravel(a)
    if isinstance(bins, str) and weights is not None:
        raise TypeError("histogram: weights and a rule for bins, expected one of them")
    return _edges(a, bins, range)


# ---- histograms


def _bins_of(a, edges):
    """The bin of each element, and the number of bins for those outside: the last bin includes its upper edge."""
    count = edges.size - 1
    place = hr.searchsorted(edges, hr.astype(a, hr.result_type(a, edges)), side="right") - 1
    place = hr.where(a == edges[-1], count - 1, place)
    return hr.where((place < 0) | (place >= count) | hr.isnan(a), count, place)


def histogram(a, bins=10, range=None, density=None, weights=None):
    """How many elements are in each bin, and the edges of bins. bins: their number between the smallest and the largest
    element, or those of range; edges; or the name of a rule, which waits. weights: the sum of these; density: of an
    integral of 1."""
    a = ravel(a)
    edges = histogram_bin_edges(a, bins, range, weights)
    weights = None if weights is None else ravel(weights)
    counts = bincount(_bins_of(a, edges), weights, length=edges.size)[:-1]
    if density:
        counts = counts / hr.astype(hr.diff(edges), hr.float64) / hr.sum(counts)
    return counts, edges


def _columns(sample):
    """The coordinates of points: columns of a matrix, or a sequence of vectors."""
    if hasattr(sample, "shape"):
        sample = array_of(sample)
        sample = sample[:, None] if sample.ndim == 1 else sample
        return hr.unstack(sample, axis=1)
    return [ravel(column) for column in sample]


def histogramdd(sample, bins=10, range=None, density=None, weights=None):
    """The histogram of points, the rows of sample or a sequence of coordinates, and a tuple of edges. bins and range:
    one for each dim."""
    columns = _columns(sample)
    rank = len(columns)
    is_one = not isinstance(bins, (list, tuple)) and not getattr(bins, "ndim", 0)
    bins = [bins] * rank if is_one else list(bins)
    ranges = [None] * rank if range is None else list(range)
    if not len(bins) == len(ranges) == rank:
        raise ValueError(f"histogramdd: {len(bins)} bins and {len(ranges)} ranges for {rank} dims")
    edges = [_edges(column, one, span) for column, one, span in zip(columns, bins, ranges, strict=True)]
    places = [_bins_of(column, edge) for column, edge in zip(columns, edges, strict=True)]
    sizes = tuple(edge.size for edge in edges)
    weights = None if weights is None else ravel(weights)
    counts = bincount(ravel_multi_index(places, sizes), weights, length=math.prod(sizes)).reshape(*sizes)
    counts = hr.astype(counts[(slice(None, -1),) * rank], hr.float64)
    if density:
        counts = counts / hr.sum(counts)
        for i, edge in enumerate(edges):
            counts = counts / hr.diff(edge)[(slice(None), *(None,) * (rank - 1 - i))]
    return counts, tuple(edges)


def histogram2d(x, y, bins=10, range=None, density=None, weights=None):
    """The histogram of points with coordinates x and y, and both edges. bins: one for both, or a pair."""
    if not isinstance(bins, str) and hasattr(_host_shape(bins), "__len__") and len(host_list(bins)) not in (1, 2):
        bins = [array_of(bins)] * 2
    elif hasattr(_host_shape(bins), "__len__") and len(host_list(bins)) == 1:
        bins = list(bins) * 2
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, *edges
