"""Arrays of indices: tril_indices, ix_, unravel_index, ..."""

import operator

import headrace as hr
from headrace._numpy.arguments import array_of, check_known, leaves, shape_of
from headrace._numpy.shapes import ravel

__all__ = [
    "argwhere", "diag_indices", "diag_indices_from", "flatnonzero", "indices", "ix_", "mask_indices",
    "ravel_multi_index", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index",
]  # fmt: skip


def argwhere(a):
    """The indices of the elements that are not 0, one in a row; they are waited for."""
    a = array_of(a)
    if a.ndim == 0:
        return hr.zeros((int(a != 0), 0), dtype=hr.int64)
    return hr.stack(hr.nonzero(a), axis=1)


def flatnonzero(a):
    """The indices in the flattened array of the elements that are not 0; they are waited for."""
    return hr.nonzero(ravel(a))[0]


def indices(dimensions, dtype=int, sparse=False):
    """The index along each dim of a grid of this shape: one array, or with sparse a tuple that can be broadcast."""
    dimensions = shape_of(dimensions)
    rank = len(dimensions)
    steps = []
    for i, count in enumerate(dimensions):
        place = (1,) * i + (count,) + (1,) * (rank - i - 1)
        steps.append(hr.arange(count, dtype=dtype).reshape(place))
    if sparse:
        return tuple(steps)
    if rank == 0:
        return hr.zeros((0,), dtype=dtype)
    return hr.stack([hr.broadcast_to(step, dimensions) for step in steps])


def ix_(*args):
    """Index vectors as an open grid: x[ix_(rows, columns)]. A mask stands for the places where it is true."""
    vectors = [array_of(vector) for vector in args]
    for vector in vectors:
        if vector.ndim != 1:
            raise ValueError(f"ix_: {vector.ndim} dims, expected vectors")
    vectors = [hr.nonzero(v)[0] if v.dtype == hr.bool else v for v in vectors]
    vectors = [hr.astype(v, hr.int64) if v.size == 0 else v for v in vectors]
    rank = len(vectors)
    return tuple(v.reshape((1,) * i + (-1,) + (1,) * (rank - i - 1)) for i, v in enumerate(vectors))


# ---- diagonals and triangles


def diag_indices(n, ndim=2):
    """The indices of the main diagonal of an array with ndim dims of size n."""
    return (hr.arange(n),) * ndim


def diag_indices_from(arr):
    """diag_indices of an array whose dims have one size."""
    arr = array_of(arr)
    if arr.ndim < 2 or len(set(arr.shape)) != 1:
        raise ValueError(f"diag_indices_from: shape {arr.shape}, expected at least 2 dims of one size")
    return diag_indices(arr.shape[0], arr.ndim)


def _triangle(n, k, m, is_lower):
    """Indices of a triangle without a wait: their number is known."""
    n, m = operator.index(n), n if m is None else operator.index(m)
    below = [min(max(row + k + (1 if is_lower else 0), 0), m) for row in range(n)]
    count = sum(below) if is_lower else n * m - sum(below)
    mask = (hr.tril if is_lower else hr.triu)(hr.ones((n, m), dtype=hr.uint8), k)
    return hr.nonzero(mask, size=count)


def tril_indices(n, k=0, m=None):
    """The indices of a lower triangle of an n x m matrix, from diagonal k on."""
    return _triangle(n, k, m, True)


def triu_indices(n, k=0, m=None):
    """The indices of an upper triangle of an n x m matrix, from diagonal k on."""
    return _triangle(n, k, m, False)


def _matrix_shape(name, arr):
    arr = array_of(arr)
    if arr.ndim != 2:
        raise ValueError(f"{name}: {arr.ndim} dims, expected a matrix")
    return arr.shape


def tril_indices_from(arr, k=0):
    """tril_indices of a matrix."""
    rows, columns = _matrix_shape("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr, k=0):
    """triu_indices of a matrix."""
    rows, columns = _matrix_shape("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


def mask_indices(n, mask_func, k=0):
    """The indices of an n x n matrix that mask_func(ones, k) keeps, such as hr.triu."""
    return hr.nonzero(mask_func(hr.ones((n, n), dtype=hr.int64), k) != 0)


# ---- indices of the flattened array


def _strides(shape, order):
    check_known("order", order, order="CF")
    strides, step = [], 1
    for count in shape[:: -1 if order == "C" else 1]:
        strides.append(step)
        step *= count
    return (strides[::-1] if order == "C" else strides), step


def _check_range(name, values, count):
    """Numbers of the host are checked; those of an array are not known yet."""
    if isinstance(values, hr.Array):
        return
    for value in leaves(values):
        if not 0 <= value < count:
            raise ValueError(f"{name}: index {value} is out of bounds for size {count}")


def unravel_index(indices, shape, order="C"):
    """Indices of the flattened array as a tuple of indices along its dims. Indices in an array are not checked."""
    shape = shape_of(shape)
    strides, count = _strides(shape, order)
    _check_range("unravel_index", indices, count)
    flat = array_of(indices)
    if not hr.isdtype(flat.dtype, "integral"):
        raise TypeError(f"unravel_index: indices of {flat.dtype.name}, expected integers")
    return tuple(flat // max(stride, 1) % max(size, 1) for stride, size in zip(strides, shape, strict=True))


def ravel_multi_index(multi_index, dims, mode="raise", order="C"):
    """Indices along dims as those of the flattened array. mode raise checks indices of the host, not those in arrays;
    wrap and clip bring indices into range; a tuple has one for each dim."""
    dims = shape_of(dims)
    modes = mode if isinstance(mode, (tuple, list)) else (mode,) * len(dims)
    multi_index = list(multi_index)
    if not len(multi_index) == len(dims) == len(modes):
        raise ValueError(f"ravel_multi_index: {len(multi_index)} indices and {len(modes)} modes for {len(dims)} dims")
    result = 0
    strides, _ = _strides(dims, order)
    for index, count, stride, one in zip(multi_index, dims, strides, modes, strict=True):
        check_known("ravel_multi_index", one, mode=("raise", "wrap", "clip"))
        if one == "raise":
            _check_range("ravel_multi_index", index, count)
        index = array_of(index)
        index = index % count if one == "wrap" else hr.clip(index, 0, count - 1) if one == "clip" else index
        result = result + index * stride
    return result
