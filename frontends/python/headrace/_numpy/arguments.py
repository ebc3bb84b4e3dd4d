"""Arguments of NumPy's functions: arrays, axes, dtypes and numbers of the host."""

import operator

import headrace as hr
from headrace._arrays import Array

__all__ = []


def array_of(x):
    """x as an array, or a value of a graph; memory of others is copied, since it may change before the work runs."""
    return x if isinstance(x, (Array, hr.Value)) else hr.array(x)


_COMPLEX = frozenset(["complex64", "complex128"])
_INEXACT = _COMPLEX | {"float16", "bfloat16", "float32", "float64"}


def is_inexact(x):
    return x.dtype.name in _INEXACT


def is_complex(x):
    return x.dtype.name in _COMPLEX


def floating(x):
    """x in a floating dtype: float32 for integers and bool."""
    x = array_of(x)
    return x if is_inexact(x) else hr.astype(x, hr.float32)


def common_floating(*arrays):
    """The arrays in one floating dtype; Python's numbers are weak."""
    arrays = [x if isinstance(x, (int, float)) else floating(x) for x in arrays]
    dtype = hr.result_type(*[x for x in arrays if isinstance(x, Array)] or [hr.float32])
    return [hr.astype(x, dtype) if isinstance(x, Array) else hr.array(x, dtype=dtype) for x in arrays]


def axis_of(name, axis, rank):
    """An axis counted from the front."""
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"{name}: axis {axis} is out of range for {rank} dims")
    return axis % rank


def axes_of(name, axis, rank):
    """A tuple of different axes, counted from the front; all of them for None."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(axis_of(name, one, rank) for one in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: axis {axis} has an axis twice")
    return axes


def flat_axis(name, x, axis):
    """x and its axis; without an axis the flattened x and 0."""
    if axis is None:
        return hr.reshape(x, (-1,)), 0
    return x, axis_of(name, axis, x.ndim)


def host_list(x):
    """Nested lists of an argument that decides about shapes; an array is waited for."""
    return x.tolist() if hasattr(x, "tolist") else x


def leaves(x):
    """The numbers of an argument of the host, nested in any way."""
    x = host_list(x)
    return [leaf for entry in x for leaf in leaves(entry)] if isinstance(x, (list, tuple, range)) else [x]


def shape_of(shape):
    """A shape as a tuple; one integer is that of one dim."""
    shape = host_list(shape)
    return (
        tuple(operator.index(n) for n in shape) if isinstance(shape, (tuple, list, range)) else (operator.index(shape),)
    )


def check_known(name, value, **expected):
    """A choice among words."""
    ((parameter, words),) = expected.items()
    if value not in words:
        raise ValueError(f"{name}: {parameter} {value!r}, expected one of {', '.join(map(str, words))}")


def along(x, axis, *slices):
    """The index of a slice along one axis of x."""
    return (slice(None),) * axis + (slice(*slices),)
