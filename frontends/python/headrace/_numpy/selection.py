"""Elements chosen by conditions and indices: where, take, select, piecewise, ..."""

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, check_known, flat_axis
from headrace._numpy.shapes import ravel

__all__ = [
    "choose", "compress", "diagonal", "extract", "isin", "piecewise", "select", "take", "trace", "where",
]  # fmt: skip

_MODES = ("raise", "error", "wrap", "clip", "drop")


def where(condition, x=None, y=None, /):
    """x if condition, else y; with the condition alone nonzero's indices."""
    if x is None and y is None:
        return hr.nonzero(array_of(condition))
    if x is None or y is None:
        raise ValueError("where: one of x and y, expected both or neither")
    return _arrays.where(condition, x, y)


def take(a, indices, axis=None, mode="raise"):
    """The elements at these indices of an axis, or of the flattened array; the indices' dims replace the axis. mode
    raise: an index out of range raises IndexError at the wait; wrap and clip bring it into range; drop gives 0."""
    if mode != "raise":
        check_known("take", mode, mode=_MODES)
    a, axis = flat_axis("take", array_of(a), axis)
    if mode == "wrap":
        indices, mode = array_of(indices) % a.shape[axis], "raise"
    return _arrays.take(a, indices, axis, "error" if mode == "raise" else mode)


def compress(condition, a, axis=None):
    """The slices along an axis, or elements of the flattened array, where the condition is true, which is waited for;
    it may be shorter."""
    a, axis = flat_axis("compress", array_of(a), axis)
    condition = array_of(condition)
    if condition.ndim != 1:
        raise ValueError(f"compress: a condition of {condition.ndim} dims, expected 1")
    return hr.take(a, hr.nonzero(condition)[0], axis=axis)


def extract(condition, arr):
    """The elements of the flattened array where the condition is true, which is waited for."""
    return compress(ravel(condition), ravel(arr))


def choose(a, choices, mode="raise"):
    """For each index in a the element of the choice of that number, broadcast; mode as take's."""
    check_known("choose", mode, mode=_MODES[:4])
    if isinstance(choices, hr.Array):
        choices = hr.unstack(choices)
    index, *choices = hr.broadcast_arrays(array_of(a), *map(array_of, choices))
    stacked = hr.stack(choices)
    if mode == "wrap":
        index = index % len(choices)
    mode = "clip" if mode == "clip" else "error"
    return hr.take_along_axis(stacked, index[None], axis=0, mode=mode)[0]


def select(condlist, choicelist, default=0):
    """The choice of the first condition that is true, broadcast; default where none is."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"select: {len(condlist)} conditions and {len(choicelist)} choices, expected as many, at least 1"
        )
    result = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        condition = array_of(condition)
        if condition.dtype != hr.bool:
            raise TypeError(f"select: a condition of {condition.dtype.name}, expected bool")
        result = _arrays.where(condition, choice, result)
    return result


def piecewise(x, condlist, funclist, *args, **kw):
    """Functions of x, or numbers, by conditions; the last true one counts. One function more is for the rest. Each
    function gets all of x; the result has x's dtype."""
    x = array_of(x)
    first = condlist[0] if hasattr(condlist, "__getitem__") and getattr(condlist, "ndim", 1) else condlist
    if x.ndim > 0 and not isinstance(first, (list, tuple)) and getattr(first, "ndim", 0) == 0 or first is condlist:
        condlist = [condlist]
    conditions = [hr.astype(array_of(condition), hr.bool) for condition in condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(f"piecewise: {len(funclist)} functions for {len(conditions)} conditions")
    result = hr.zeros_like(x)
    if len(funclist) > len(conditions):
        rest = conditions[0]
        for condition in conditions[1:]:
            rest = rest | condition
        conditions.append(~rest)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function(x, *args, **kw) if callable(function) else function
        result = _arrays.where(condition, hr.astype(array_of(value), x.dtype), result)
    return result


def isin(element, test_elements, assume_unique=False, invert=False, *, kind=None):
    """True for each element that equals one of test_elements; invert: that equals none. Other arguments only concern
    NumPy's algorithms."""
    return _arrays.isin(element, ravel(test_elements), invert)


def diagonal(a, offset=0, axis1=0, axis2=1):
    """A diagonal of two dims, as the last dim."""
    return _arrays.diagonal(a, offset, axis1, axis2)


def trace(a, offset=0, axis1=0, axis2=1, dtype=None):
    """The sum of a diagonal of two dims."""
    return hr.sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)
