"""Elements in order: sort, lexsort, partition, ..."""

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, axis_of, check_known, flat_axis, is_complex

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"]

_KINDS = ("quicksort", "mergesort", "heapsort", "stable")


def _sorted(name, a, axis, descending, kind):
    if kind is not None:
        check_known(name, kind, kind=_KINDS)
    if isinstance(a, hr.Array) and axis is not None:
        return getattr(_arrays, name)(a, axis, descending)
    a, axis = flat_axis(name, array_of(a), axis)
    return getattr(_arrays, name)(a, axis, descending)


def sort(a, axis=-1, kind=None, *, stable=None, descending=False):
    """The elements in order along an axis, or those of the flattened array; equal ones keep their order for any
    kind."""
    return _sorted("sort", a, axis, descending, kind)


def argsort(a, axis=-1, kind=None, *, stable=None, descending=False):
    """The indices of sort."""
    return _sorted("argsort", a, axis, descending, kind)


def lexsort(keys, axis=-1):
    """Indices that put the keys in order; the last key counts first, the one before it among equals."""
    keys = [array_of(key) for key in keys]
    if not keys:
        raise ValueError("lexsort: no keys, expected at least one")
    axis = axis_of("lexsort", axis, keys[0].ndim) if keys[0].ndim else 0
    if keys[0].ndim == 0:
        return hr.zeros((), dtype=hr.int64)
    order = hr.argsort(keys[0], axis=axis)
    for key in keys[1:]:
        step = hr.argsort(hr.take_along_axis(key, order, axis=axis), axis=axis)
        order = hr.take_along_axis(order, step, axis=axis)
    return order


def _check_place(name, a, kth, axis):
    for place in kth if isinstance(kth, (tuple, list)) else (kth,):
        axis_of(f"{name}: kth", place, a.shape[axis])


def partition(a, kth, axis=-1):
    """The elements in an order with the kth at its place, smaller ones in front of it: sort has it."""
    a, axis = flat_axis("partition", array_of(a), axis)
    _check_place("partition", a, kth, axis)
    return hr.sort(a, axis=axis)


def argpartition(a, kth, axis=-1):
    """The indices of partition: those of sort."""
    a, axis = flat_axis("argpartition", array_of(a), axis)
    _check_place("argpartition", a, kth, axis)
    return hr.argsort(a, axis=axis)


def sort_complex(a):
    """As complex numbers in order of their real, then their imaginary parts, along the last axis."""
    a = hr.sort(array_of(a), axis=-1)
    return a if is_complex(a) else hr.astype(a, hr.complex128 if a.dtype == hr.float64 else hr.complex64)
