"""Functions that are applied to slices: apply_along_axis, apply_over_axes."""

import headrace as hr
from headrace._numpy.arguments import array_of, axes_of, axis_of

__all__ = ["apply_along_axis", "apply_over_axes"]


def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    """func1d of each vector along an axis; its result's dims replace the axis. func1d is called for each vector;
    hr.vmap calls it once."""
    arr = array_of(arr)
    axis = axis_of("apply_along_axis", axis, arr.ndim)
    rows = hr.moveaxis(arr, axis, -1)
    others = rows.shape[:-1]
    if 0 in others:
        raise ValueError(f"apply_along_axis: shape {arr.shape} has no vectors along axis {axis}")
    rows = rows.reshape(-1, arr.shape[axis])
    results = [array_of(func1d(row, *args, **kwargs)) for row in hr.unstack(rows)]
    result = hr.stack(results)
    rank = result.ndim - 1
    result = result.reshape(*others, *result.shape[1:])
    order = (*range(axis), *range(len(others), len(others) + rank), *range(axis, len(others)))
    return hr.permute_dims(result, order)


def apply_over_axes(func, a, axes):
    """func(a, axis) for one axis after the other; a dim that it removes is kept with size 1."""
    a = array_of(a)
    for axis in axes_of("apply_over_axes", axes, a.ndim):
        result = array_of(func(a, axis))
        if result.ndim not in (a.ndim, a.ndim - 1):
            raise ValueError(f"apply_over_axes: func returned {result.ndim} dims, expected {a.ndim} or {a.ndim - 1}")
        a = result if result.ndim == a.ndim else hr.expand_dims(result, axis)
    return a
