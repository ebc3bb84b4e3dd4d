"""Objects that are indexed: grids (mgrid, ogrid), arrays joined by an index (r_, c_), indices (s_), and all of them."""

import itertools
import operator

import headrace as hr
from headrace._numpy.arguments import array_of, shape_of

__all__ = ["c_", "index_exp", "mgrid", "ndenumerate", "ndindex", "ogrid", "r_", "s_"]


def _line(key):
    """The numbers of a slice: from start on in steps before stop, or so many with both ends for an imaginary step."""
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    if key.stop is None:
        raise ValueError(f"a slice {key!r} without an end")
    if isinstance(step, complex):
        return hr.linspace(start, key.stop, int(abs(step)))
    return hr.arange(start, key.stop, step)


class _Grid:
    """Coordinates of a grid of slices: as one array, or sparse, as a tuple of arrays that can be broadcast."""

    def __init__(self, is_sparse):
        self._is_sparse = is_sparse

    def __getitem__(self, key):
        if not isinstance(key, tuple):
            return _line(key)
        lines = [_line(entry) for entry in key]
        dtype = hr.result_type(*lines)
        lines = [hr.astype(line, dtype) for line in lines]
        if self._is_sparse:
            rank = len(lines)
            return tuple(hr.reshape(x, [-1 if d == i else 1 for d in range(rank)]) for i, x in enumerate(lines))
        return hr.stack(hr.meshgrid(*lines, indexing="ij"))


def _directive(text):
    """The axis, the least number of dims and the place of own dims of "axis,dims,place"."""
    numbers = [int(part) for part in text.split(",")]
    if not 1 <= len(numbers) <= 3:
        raise ValueError(f"r_: {text!r}, expected one to three integers")
    return numbers[0], *(numbers[1:] + [0, -1][len(numbers) - 1 :])


class _Joined:
    """Arrays, numbers and slices joined along an axis. A text in front, "axis,dims,place", gives the axis, the least
    number of dims, and the place in them of an array's own dims, by default behind the others."""

    def __init__(self, axis, dims, place):
        self._form = axis, dims, place

    @staticmethod
    def _widened(x, dims, place):
        added = dims - x.ndim
        if added <= 0:
            return x
        place = place if place >= 0 else place + added + 1
        return hr.reshape(x, [1] * place + list(x.shape) + [1] * (added - place))

    def __getitem__(self, key):
        entries = key if isinstance(key, tuple) else (key,)
        form = self._form
        if entries and isinstance(entries[0], str):
            form, entries = _directive(entries[0]), entries[1:]
        axis, dims, place = form
        arrays = [_line(entry) if isinstance(entry, slice) else array_of(entry) for entry in entries]
        return hr.concat([self._widened(x, max(dims, 1), place) for x in arrays], axis=axis)


class _Index:
    """The index itself; always as a tuple, or as it is."""

    def __init__(self, is_tuple):
        self._is_tuple = is_tuple

    def __getitem__(self, key):
        return (key,) if self._is_tuple and not isinstance(key, tuple) else key


mgrid, ogrid = _Grid(False), _Grid(True)
r_, c_ = _Joined(0, 0, -1), _Joined(-1, 2, 0)
s_, index_exp = _Index(False), _Index(True)


def ndindex(*shape):
    """The indices of an array of this shape, in row-major order."""
    shape = shape_of(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    sizes = [operator.index(size) for size in shape]
    if min(sizes, default=0) < 0:
        raise ValueError(f"ndindex: shape {shape}, expected no negative sizes")
    return itertools.product(*map(range, sizes))


def ndenumerate(arr):
    """Pairs of an index and the number there, which is waited for."""
    arr = array_of(arr)
    return zip(ndindex(arr.shape), hr.reshape(arr, (-1,)).tolist(), strict=True)
