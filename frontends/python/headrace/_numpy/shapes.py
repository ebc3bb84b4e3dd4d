"""Shapes of arrays: ravel, atleast_2d, rot90, ..."""

import operator

import headrace as hr
from headrace._numpy.arguments import array_of, axes_of, axis_of, check_known, shape_of

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "fliplr", "flipud", "ndim", "ravel", "reshape",
    "resize", "rollaxis", "rot90", "shape", "size",
]  # fmt: skip


def ndim(a):
    """The number of dims."""
    return array_of(a).ndim


def shape(a):
    """The sizes of the dims."""
    return array_of(a).shape


def size(a, axis=None):
    """The number of elements, or the size of axes."""
    a = array_of(a)
    count = 1
    for one in axes_of("size", axis, a.ndim):
        count *= a.shape[one]
    return count


def _reversed_dims(a):
    return hr.permute_dims(a, tuple(reversed(range(a.ndim))))


def reshape(a, /, shape, order="C", *, copy=False):
    """The elements with other dims, one of which may be -1. order F: the first index varies fastest, in a and in the
    result."""
    if order == "C":
        return hr._arrays.reshape(a, shape, bool(copy))
    check_known("reshape", order, order="CFA")
    shape = shape_of(shape)
    a = array_of(a)
    if order == "A":
        return hr._arrays.reshape(a, shape, bool(copy))
    return _reversed_dims(hr._arrays.reshape(_reversed_dims(a), shape[::-1], bool(copy)))


def ravel(a, order="C"):
    """The elements in one dim; order F: the first index varies fastest."""
    check_known("ravel", order, order="CFAK")
    return reshape(a, -1, "F" if order == "F" else "C")


def resize(a, new_shape):
    """The elements repeated in row-major order until they fill these dims."""
    new_shape = shape_of(new_shape)
    if min(new_shape, default=0) < 0:
        raise ValueError(f"resize: shape {new_shape}, expected no negative size")
    flat = ravel(a)
    count = size(hr.broadcast_to(hr.zeros(()), new_shape))
    if flat.size == 0:
        return hr.zeros(new_shape, dtype=flat.dtype)
    copies = hr.tile(flat, (-(-count // flat.size),))
    return hr._arrays.reshape(copies[:count], new_shape)


def broadcast_shapes(*args):
    """The shape that arrays of these shapes have in common."""
    shapes = [shape_of(one) for one in args]
    result = []
    for place in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {one[-place] for one in shapes if len(one) >= place} - {1}
        if len(sizes) > 1:
            raise ValueError(f"broadcast_shapes: {', '.join(map(str, shapes))} do not fit: sizes {sorted(sizes)}")
        result.insert(0, sizes.pop() if sizes else 1)
    return tuple(result)


def _at_least(arrays, rank, widen):
    results = [array if array.ndim >= rank else widen(array) for array in map(array_of, arrays)]
    return results[0] if len(results) == 1 else tuple(results)


def atleast_1d(*arys):
    """Arrays with at least one dim."""
    return _at_least(arys, 1, lambda x: x[None])


def atleast_2d(*arys):
    """Arrays with at least two dims: a vector is a row."""
    return _at_least(arys, 2, lambda x: x[(None,) * (2 - x.ndim)])


def atleast_3d(*arys):
    """Arrays with at least three dims: a vector [n] is [1, n, 1], a matrix [m, n, 1]."""
    return _at_least(arys, 3, lambda x: x[None, ..., None] if x.ndim == 1 else x[(..., *(None,) * (3 - x.ndim))])


def _ranked(name, m, rank):
    m = array_of(m)
    if m.ndim < rank:
        raise ValueError(f"{name}: {m.ndim} dims, expected at least {rank}")
    return m


def fliplr(m):
    """The order of columns reversed."""
    return hr.flip(_ranked("fliplr", m, 2), 1)


def flipud(m):
    """The order of rows reversed."""
    return hr.flip(_ranked("flipud", m, 1), 0)


def rot90(m, k=1, axes=(0, 1)):
    """Rotated k times by 90 degrees in the plane of two axes, from the first one towards the second."""
    m = array_of(m)
    if len(axes) != 2:
        raise ValueError(f"rot90: axes {axes}, expected two")
    first, second = axes_of("rot90", tuple(axes), m.ndim)
    k = operator.index(k) % 4
    if k == 2:
        return hr.flip(hr.flip(m, first), second)
    m = hr.flip(m, second) if k == 1 else m
    m = hr.swapaxes(m, first, second) if k else m
    return hr.flip(m, second) if k == 3 else m


def rollaxis(a, axis, start=0):
    """a with an axis moved in front of axis start."""
    a = array_of(a)
    axis = axis_of("rollaxis", axis, a.ndim)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"rollaxis: start {start} is out of range for {a.ndim} dims")
    start = start + a.ndim if start < 0 else start
    return hr.moveaxis(a, axis, start - (axis < start))
