"""Sets of elements: unique, intersect1d, ... Their sizes depend on values, which are waited for."""

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, axis_of, is_inexact
from headrace._numpy.ordering import lexsort
from headrace._numpy.shapes import ravel

__all__ = ["intersect1d", "setdiff1d", "setxor1d", "union1d", "unique"]


def _one_nan(values, first, inverse, counts):
    """NaNs, which are the last values, as one."""
    numbers = values.size - int(hr.sum(hr.isnan(values)))
    if numbers >= values.size - 1:
        return values, first, inverse, counts
    joined = hr.concat([counts[:numbers], hr.sum(counts[numbers:])[None]])
    return values[: numbers + 1], first[: numbers + 1], hr.minimum(inverse, numbers), joined


def _unique_slices(ar, axis):
    """As the core's unique, of slices along an axis."""
    rows = hr.moveaxis(ar, axis, 0)
    shape = rows.shape
    rows = rows.reshape(shape[0], -1) if rows.size else hr.zeros((shape[0], 1), dtype=rows.dtype)
    order = lexsort(list(hr.unstack(rows, axis=1))[::-1])
    ordered = hr.take(rows, order, axis=0)
    differs = hr.any(ordered[1:] != ordered[:-1], axis=1)
    is_first = hr.concat([hr.ones((min(shape[0], 1),), dtype=hr.bool), differs])
    (starts,) = hr.nonzero(is_first)
    group = hr.cumulative_sum(hr.astype(is_first, hr.int64), axis=0) - 1
    inverse = hr.put_along_axis(hr.zeros_like(group), order, group, axis=0)
    counts = hr.diff(hr.concat([starts, hr.array([shape[0]])]))
    first = hr.take(order, starts, axis=0)
    return hr.take(ar, first, axis=axis), first, inverse, counts


def unique(
    ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True, sorted=True
):
    """The distinct elements in order, or the distinct slices along an axis. return_index: and the first index of each;
    return_inverse: and the number of each element among them; return_counts: and how often each occurs. equal_nan: all
    NaN are one, but not in slices."""
    ar = array_of(ar)
    if axis is None:
        values, first, inverse, counts = _arrays.unique(ar)
        if equal_nan and is_inexact(ar):
            values, first, inverse, counts = _one_nan(values, first, inverse, counts)
    else:
        values, first, inverse, counts = _unique_slices(ar, axis_of("unique", axis, ar.ndim))
    wanted = [(first, return_index), (inverse, return_inverse), (counts, return_counts)]
    results = (values, *(result for result, is_wanted in wanted if is_wanted))
    return results if len(results) > 1 else values


def union1d(ar1, ar2):
    """The distinct elements of both, in order."""
    return unique(hr.concat([ravel(ar1), ravel(ar2)]))


def intersect1d(ar1, ar2, assume_unique=False, return_indices=False):
    """The distinct elements that both have, in order; return_indices: and the first index of each in both."""
    ar1, ar2 = ravel(ar1), ravel(ar2)
    first, places1 = unique(ar1, return_index=True)
    second, places2 = unique(ar2, return_index=True)
    dtype = hr.result_type(first, second)
    first, second = hr.astype(first, dtype), hr.astype(second, dtype)
    in_second, in_first = hr.isin(first, second), hr.isin(second, first)
    values = first[in_second]
    return (values, places1[in_second], places2[in_first]) if return_indices else values


def setdiff1d(ar1, ar2, assume_unique=False):
    """The distinct elements of ar1 that ar2 lacks, in order; with assume_unique in ar1's order."""
    values = ravel(ar1) if assume_unique else unique(ar1)
    return values[hr.isin(values, ravel(ar2), invert=True)]


def setxor1d(ar1, ar2, assume_unique=False):
    """The distinct elements that only one of both has, in order."""
    both, counts = unique(hr.concat([unique(ar1), unique(ar2)]), return_counts=True, equal_nan=False)
    return both[counts == 1]
