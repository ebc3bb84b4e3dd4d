"""Creation, shapes, indices and copies with MLX's names and arguments."""

import math
import operator

import headrace as _hr
from headrace import _arrays
from headrace._arrays import Array
from headrace.mlx._operations import as_array

# ---- creation


def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


def zeros(shape, dtype=None, *, stream=None):
    """0 everywhere, float32 without dtype."""
    return _arrays.zeros(_shape(shape), dtype)


def ones(shape, dtype=None, *, stream=None):
    """1 everywhere, float32 without dtype."""
    return _arrays.ones(_shape(shape), dtype)


empty = zeros


def full(shape, vals, dtype=None, *, stream=None):
    """A number or a broadcast array everywhere."""
    vals = as_array(vals) if dtype is None else _arrays.array(vals, dtype=dtype)
    return _arrays.broadcast_to(vals, _shape(shape))


def zeros_like(a, /, dtype=None, *, stream=None):
    """0 in a's shape."""
    return _arrays.zeros_like(as_array(a), dtype)


def ones_like(a, /, dtype=None, *, stream=None):
    """1 in a's shape."""
    return _arrays.ones_like(as_array(a), dtype)


empty_like = zeros_like


def full_like(a, vals, dtype=None, *, stream=None):
    """A number or a broadcast array in a's shape, by default in a's dtype."""
    return full(a.shape, vals, a.dtype if dtype is None else dtype)


def _number(x):
    return x.item() if isinstance(x, Array) else x


_NARROW, _MOST = range(-(2**31), 2**31), 2**31 - 1


def _check_range(start, stop, step):
    if any(isinstance(x, float) and math.isnan(x) for x in (start, stop, step)):
        raise ValueError(f"arange: {start} to {stop} with step {step}, expected no NaN")
    if step == 0 or math.isinf(start) or math.isinf(stop):
        raise ValueError(f"arange: {start} to {stop} with step {step}, expected finite numbers and a step other than 0")
    if not math.isinf(step) and (stop - start) / step > _MOST:
        raise ValueError(f"arange: {start} to {stop} with step {step}, expected at most {_MOST} elements")


def arange(*bounds, start=None, stop=None, step=None, dtype=None, stream=None):
    """arange(stop), arange(start, stop, step): start, start + step, ... before stop. int32 for integers if it holds
    them, else int64; float32 for others."""
    if len(bounds) > 3 or (bounds and start is not None) or (not bounds and stop is None):
        raise TypeError("arange: expected stop, or start and stop, and then a step")
    if len(bounds) > 1 and bounds[1] is None and stop is None:
        bounds, step = bounds[:1], bounds[2] if step is None and len(bounds) == 3 else step
    if len(bounds) == 1 and stop is None:
        stop = bounds[0]
    else:
        start, stop, step = (a if b is None else b for a, b in zip((*bounds, None, None, None), (start, stop, step)))
    start, stop, step = (_number(x) for x in (0 if start is None else start, stop, 1 if step is None else step))
    _check_range(start, stop, step)
    is_integral = all(isinstance(x, int) for x in (start, stop, step))
    is_narrow = is_integral and all(x in _NARROW for x in (start, stop, step))
    natural = _arrays.float32 if not is_integral else _arrays.int32 if is_narrow else _arrays.int64
    if math.isinf(step):
        return _arrays.full((1 if (stop - start) * step > 0 else 0,), start, dtype=dtype or natural)
    if is_integral and not is_narrow:
        return _arrays.arange(start, stop, step, _arrays.int64).astype(dtype or natural)
    return _arrays.arange(start, stop, step, dtype or natural)


def linspace(start, stop, num=50, endpoint=True, dtype=None, stream=None):
    """Evenly spaced numbers, float32 without dtype."""
    return _arrays.linspace(_number(start), _number(stop), num, endpoint, dtype)


def eye(n, m=None, k=0, dtype=None, *, stream=None):
    """Ones on diagonal k."""
    return _arrays.eye(n, m, k=k, dtype=dtype)


def identity(n, dtype=None, *, stream=None):
    """Ones on the diagonal."""
    return _arrays.eye(n, dtype=dtype)


def tri(n, m=None, k=0, dtype=None, *, stream=None):
    """Ones at and below diagonal k."""
    return _arrays.tril(_arrays.ones((n, n if m is None else m), dtype), k)


def tril(x, k=0, *, stream=None):
    """The elements at and below diagonal k, others are 0."""
    return _arrays.tril(x, k)


def triu(x, k=0, *, stream=None):
    """The elements at and above diagonal k, others are 0."""
    return _arrays.triu(x, k)


def _cosines(M, weights):
    """Sums of cosines of M points of one period."""
    if M < 1:
        return _arrays.zeros((0,))
    if M == 1:
        return _arrays.ones((1,))
    angles = _arrays.arange(M, dtype=_arrays.float32) * (2 * math.pi / (M - 1))
    return _hr.sum(_arrays.stack([_arrays.cos(angles * i) * w for i, w in enumerate(weights)]), 0)


def hanning(M, *, stream=None):
    """The Hann window: 0.5 - 0.5 cos(2 pi n / (M - 1))."""
    return _cosines(M, (0.5, -0.5))


def hamming(M, *, stream=None):
    """The Hamming window: 0.54 - 0.46 cos(2 pi n / (M - 1))."""
    return _cosines(M, (0.54, -0.46))


def blackman(M, *, stream=None):
    """The Blackman window: 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1))."""
    return _cosines(M, (0.42, -0.5, 0.08))


def bartlett(M, *, stream=None):
    """The Bartlett window: 1 - |2 n / (M - 1) - 1|."""
    if M <= 1:
        return _arrays.ones((max(M, 0),))
    return 1 - _arrays.abs(_arrays.arange(M, dtype=_arrays.float32) * (2 / (M - 1)) - 1)


# ---- shapes


def reshape(a, /, shape, *, stream=None):
    """The elements in row-major order with other dims; one of them may be -1."""
    return _arrays.reshape(a, shape)


def _range(who, rank, start, end):
    first, last = (i + rank if i < 0 else i for i in (start, end))
    first, last = max(first, 0), min(last, max(rank - 1, 0))
    if not -rank <= start < max(rank, 1) and rank:
        raise ValueError(f"{who}: axis {start} is out of range for {rank} dims")
    if last < first:
        raise ValueError(f"{who}: axes {start} to {end} of {rank} dims, expected them in order")
    return first, last


def flatten(a, /, start_axis=0, end_axis=-1, *, stream=None):
    """Dims start_axis to end_axis become one."""
    if a.ndim == 0:
        return _arrays.reshape(a, (1,))
    first, last = _range("flatten", a.ndim, start_axis, end_axis)
    return _arrays.reshape(a, (*a.shape[:first], math.prod(a.shape[first : last + 1]), *a.shape[last + 1 :]))


def unflatten(a, /, axis, shape, *, stream=None):
    """Dim axis becomes the dims of shape, one of which may be -1."""
    if not shape:
        raise ValueError("unflatten: the shape has no dims, expected at least one")
    axis = _axis("unflatten", axis, a.ndim)
    known = math.prod(s for s in shape if s != -1)
    sizes = [a.shape[axis] // known if s == -1 and known else s for s in shape]
    if math.prod(sizes) != a.shape[axis]:
        raise ValueError(f"unflatten: dim of {a.shape[axis]} elements to {tuple(shape)}")
    return _arrays.reshape(a, (*a.shape[:axis], *sizes, *a.shape[axis + 1 :]))


def _axis(who, axis, rank):
    if not -rank <= axis < rank:
        raise ValueError(f"{who}: axis {axis} is out of range for {rank} dims")
    return axis % rank


def squeeze(a, /, axis=None, *, stream=None):
    """Without dims of one element, or without those of axis."""
    return _arrays.squeeze(a, tuple(axis) if isinstance(axis, list) else axis)


def expand_dims(a, /, axis, *, stream=None):
    """With new dims of one element."""
    return _arrays.expand_dims(a, tuple(axis) if isinstance(axis, list) else axis)


def flip(a, /, axis=None, *, stream=None):
    """The order of elements reversed along axes; None: all."""
    return _arrays.flip(a, tuple(axis) if isinstance(axis, list) else axis)


def moveaxis(a, /, source, destination, *, stream=None):
    """Dim source at place destination, a view."""
    return _hr.moveaxis(a, source, destination)


def swapaxes(a, /, axis1, axis2, *, stream=None):
    """Two dims exchanged, a view."""
    return _arrays.swapaxes(a, axis1, axis2)


def transpose(a, /, axes=None, *, stream=None):
    """The dims in this order; None: in reverse order."""
    return _arrays.permute_dims(a, axes)


permute_dims = transpose


def matrix_transpose(a, /, *, stream=None):
    """The last two dims exchanged, a view."""
    return a.mT


def broadcast_to(a, /, shape, *, stream=None):
    """Repeated to a shape, a view."""
    return _arrays.broadcast_to(as_array(a), shape)


def broadcast_arrays(*arrays, stream=None):
    """Repeated to their common shape."""
    return tuple(_arrays.broadcast_arrays(*(as_array(a) for a in arrays)))


def broadcast_shapes(*shapes):
    """The shape of an operation on arrays of these shapes."""
    if not shapes:
        raise ValueError("broadcast_shapes: no shapes, expected at least one")
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    sizes = [{size for size in dims if size != 1} or {1} for dims in zip(*padded)]
    if any(len(size) > 1 for size in sizes):
        raise ValueError(f"broadcast_shapes: {', '.join(map(str, shapes))} can't be broadcast to one shape")
    return tuple(size.pop() for size in sizes)


def _at_least(rank, shape_of, arrays):
    results = [_arrays.reshape(a, shape_of(a.shape)) if a.ndim < rank else a for a in map(as_array, arrays)]
    return results[0] if len(results) == 1 else results


def atleast_1d(*arys, stream=None):
    """With at least one dim."""
    return _at_least(1, lambda shape: (1,), _unpacked(arys))


def atleast_2d(*arys, stream=None):
    """With at least two dims."""
    return _at_least(2, lambda shape: (1, 1) if not shape else (1, *shape), _unpacked(arys))


def atleast_3d(*arys, stream=None):
    """With at least three dims."""
    return _at_least(
        3, lambda shape: (1, 1, 1) if not shape else (1, *shape, 1) if len(shape) == 1 else (*shape, 1), _unpacked(arys)
    )


def _unpacked(arys):
    return arys[0] if len(arys) == 1 and isinstance(arys[0], (list, tuple)) else arys


def as_strided(a, /, shape=None, strides=None, offset=0, *, stream=None):
    """Element i of the result is element offset + sum(i * strides) of a's elements in row-major order."""
    shape = a.shape if shape is None else tuple(shape)
    if strides is None:
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    if len(strides) != len(shape) or any(size < 0 for size in shape):
        raise ValueError(f"as_strided: shape {shape} with strides {tuple(strides)}")
    low = offset + sum((n - 1) * s for n, s in zip(shape, strides) if s < 0 and n)
    high = offset + sum((n - 1) * s for n, s in zip(shape, strides) if s > 0 and n)
    if 0 not in shape and not (low >= 0 and high < a.size):
        raise ValueError(f"as_strided: elements {low} to {high} of an array of {a.size} elements")
    places = _arrays.full((), offset, dtype=_arrays.int64)
    for size, stride in zip(shape, strides):
        places = _arrays.expand_dims(places, -1) + _arrays.arange(size, dtype=_arrays.int64) * stride
    return _arrays.take(_arrays.reshape(a, -1), places, 0)


def contiguous(a, /, allow_col_major=False, *, stream=None):
    """The array in row-major order, which all results have; a itself."""
    return a.copy()


# ---- dtypes


def astype(a, dtype, /, *, stream=None):
    """Converted by C's rules."""
    return as_array(a).astype(dtype)


def view(a, dtype, stream=None):
    """The bytes of the elements as elements of another dtype; the last dim changes with its size."""
    return _arrays._bits(as_array(a), dtype)


# ---- several arrays


def _joined(arrays):
    arrays = list(arrays)
    if not arrays:
        raise ValueError("concatenate: no arrays, expected at least one")
    return [as_array(a) for a in arrays]


def concatenate(arrays, axis=0, *, stream=None):
    """The arrays one after the other along an axis; None: their elements."""
    return _hr.concat(_joined(arrays), axis=axis)


concat = concatenate


def stack(arrays, axis=0, *, stream=None):
    """The arrays one after the other along a new axis."""
    arrays = _joined(arrays)
    return _arrays.stack(arrays, axis) if axis is not None else concatenate(arrays, None)


def unstack(x, /, *, axis=0, stream=None):
    """A list of the slices along an axis."""
    return list(_arrays.unstack(x, axis))


def split(a, /, indices_or_sections, axis=0, *, stream=None):
    """A list of so many equal parts along an axis, or of those between indices."""
    axis = _axis("split", axis, a.ndim)
    size = a.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0 or size % indices_or_sections:
            raise ValueError(f"split: {size} elements in {indices_or_sections} equal parts")
        return _arrays.array_split(a, axis, indices_or_sections)
    return _arrays.array_split(a, axis, indices=indices_or_sections)


slice_type = type(slice(None))


def meshgrid(*arrays, sparse=False, indexing="xy", stream=None):
    """Coordinates of the grid of these axes; sparse: without repeating them."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f'meshgrid: indexing is {indexing!r}, expected "xy" or "ij"')
    arrays = [_arrays.reshape(as_array(a), -1) for a in arrays]
    if not sparse:
        return tuple(_arrays.meshgrid(*arrays, indexing=indexing))
    rank, order = len(arrays), list(range(len(arrays)))
    order[:2] = reversed(order[:2]) if indexing == "xy" else order[:2]
    return tuple(_arrays.reshape(a, [-1 if d == i else 1 for d in range(rank)]) for a, i in zip(arrays, order))


def repeat(array, repeats, axis=None, *, stream=None):
    """Each element so often in a row."""
    return _hr.repeat(as_array(array), repeats, axis=axis)


def tile(a, reps, /, *, stream=None):
    """The array so often along each axis."""
    return _arrays.tile(as_array(a), reps)


def roll(a, shift, axis=None, /, *, stream=None):
    """Elements moved along axes; those that leave one end enter at the other."""
    if axis is None and not isinstance(shift, int):
        shift = sum(shift)
    return _hr.roll(a, shift, axis)


def _pad_widths(a, pad_width):
    if isinstance(pad_width, int):
        pairs = [(pad_width, pad_width)] * a.ndim
    elif all(isinstance(entry, int) for entry in pad_width):
        pairs = [tuple(pad_width) if len(pad_width) == 2 else (pad_width[0],) * 2] * a.ndim
    else:
        pairs = [tuple(entry) if len(entry) == 2 else (entry[0],) * 2 for entry in pad_width]
        pairs = pairs * a.ndim if len(pairs) == 1 else pairs
    if len(pairs) != a.ndim or any(width < 0 for pair in pairs for width in pair):
        raise ValueError(f"pad: widths {pad_width!r} of an array of {a.ndim} dims, expected a pair from 0 on for each")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


_BORDERS = {"edge": _arrays.pad_edge, "reflect": _arrays.pad_reflect, "symmetric": _arrays.pad_symmetric}


def pad(a, pad_width, mode="constant", constant_values=0, *, stream=None):
    """With more elements at both ends of each dim; mode: constant, edge, reflect, symmetric."""
    a = as_array(a)
    before, after = _pad_widths(a, pad_width)
    if mode in _BORDERS:
        return _BORDERS[mode](a, before, after)
    if mode != "constant":
        raise ValueError(f'pad: mode is {mode!r}, expected "constant", "edge", "reflect" or "symmetric"')
    value = constant_values
    if isinstance(value, Array):
        shape = [first + size + last for first, size, last in zip(before, a.shape, after)]
        inside = tuple(slice_type(first, first + size) for first, size in zip(before, a.shape))
        return full(shape, value.astype(a.dtype)).at[inside].set(a)
    return _arrays.pad(a, before, after, value)


# ---- indices


def take(a, /, indices, axis=None, *, stream=None):
    """The elements at these places along an axis; None: of all elements. Negative ones count from the end."""
    if axis is None:
        a, axis = _arrays.reshape(a, -1), 0
    axis = _axis("take", axis, a.ndim)
    if isinstance(indices, int):
        return a[(slice_type(None),) * axis + (indices,)]
    indices = as_array(indices)
    if a.shape[axis] == 0 and indices.size > 0:
        raise ValueError(f"take: {indices.size} elements of dim {axis}, which is empty")
    return a[(slice_type(None),) * axis + (indices,)]


def take_along_axis(a, /, indices, axis=None, *, stream=None):
    """The elements whose places along an axis are those of the array of indices."""
    if axis is None:
        return _arrays.take_along_axis(_arrays.reshape(a, -1), _arrays.reshape(indices, -1), 0)
    return _arrays.take_along_axis(*_alike(a, indices, axis), axis)


def _alike(a, indices, axis):
    """The arrays repeated to a common shape but for one axis."""
    axis = _axis("take_along_axis", axis, a.ndim)
    if indices.ndim != a.ndim:
        raise ValueError(f"take_along_axis: indices have {indices.ndim} dims, expected {a.ndim} as the array")
    shape = list(broadcast_shapes(*([1 if d == axis else n for d, n in enumerate(x.shape)] for x in (a, indices))))
    shapes = [[n if d != axis else x.shape[axis] for d, n in enumerate(shape)] for x in (a, indices)]
    return [x if list(x.shape) == to else _arrays.broadcast_to(x, to) for x, to in zip((a, indices), shapes)]


def put_along_axis(a, /, indices, values, axis=None, *, stream=None):
    """The array with these values at the places of indices along an axis."""
    values = as_array(values).astype(a.dtype)
    if axis is None:
        flat, indices = _arrays.reshape(a, -1), _arrays.reshape(indices, -1)
        indices = indices if indices.size else indices.astype(_arrays.int32)
        values = _arrays.reshape(_arrays.broadcast_to(values, indices.shape) if values.size == 1 else values, -1)
        return _arrays.reshape(_arrays.put_along_axis(flat, indices, values, 0), a.shape)
    _, indices = _alike(a, indices, axis)
    return _arrays.put_along_axis(a, indices, _arrays.broadcast_to(values, indices.shape), axis)


def _starts(a, start_indices, axes):
    """The place of the first element along each axis, an int32 array."""
    axes = [_axis("slice", axis, a.ndim) for axis in axes]
    start = _arrays.reshape(as_array(start_indices), -1).astype(_arrays.int32)
    if start.size != len(axes):
        raise ValueError(f"slice: {start.size} start indices for {len(axes)} axes")
    whole = _arrays.zeros((a.ndim,), _arrays.int32)
    if not axes:
        return whole
    return whole.at[_arrays.array(axes, dtype=_arrays.int32)].set(start)


def slice(a, start_indices, axes, slice_size, *, stream=None):
    """The part of this size that begins at start_indices along axes, at 0 along others."""
    return _arrays.dynamic_slice(a, _starts(a, start_indices, axes), slice_size)


def slice_update(a, update, start_indices, axes, *, stream=None):
    """The array with the part that begins at start_indices along axes replaced."""
    update = as_array(update).astype(a.dtype)
    shape = (1,) * (a.ndim - update.ndim) + update.shape
    return _arrays.dynamic_slice_update(a, _arrays.reshape(update, shape), _starts(a, start_indices, axes))


def diag(a, /, k=0, *, stream=None):
    """The matrix with a vector on diagonal k, or diagonal k of a matrix."""
    if a.ndim not in (1, 2):
        raise ValueError(f"diag: {a.ndim} dims, expected 1 or 2")
    return _arrays.diag(a, k) if a.ndim == 1 else _arrays.diagonal(a, k, 0, 1)


def diagonal(a, offset=0, axis1=0, axis2=1, stream=None):
    """A diagonal of the matrices of two axes, as the last dim."""
    return _arrays.diagonal(a, offset, axis1, axis2)


def unique(a, /, size, return_index=False, return_inverse=False, return_counts=False, fill_value=None, *, stream=None):
    """The `size` smallest distinct elements in order, then fill_value, by default the smallest one."""
    a = as_array(a)
    size = operator.index(size)
    if size < 0:
        raise ValueError(f"unique: size is {size}, expected 0 or more")
    if a.size == 0 and size > 0 and fill_value is None:
        raise ValueError("unique: the array is empty, expected a fill_value")
    found = _arrays.unique(_arrays.reshape(a, -1))
    first = found[0][:1] if fill_value is None else as_array(fill_value).astype(a.dtype)
    values = _filled(found[0], size, first)
    parts = [values]
    if return_index:
        parts.append(_filled(found[1], size, found[1][:1] if a.size else as_array(0)).astype(_arrays.uint32))
    if return_inverse:
        inverse = _arrays.reshape(found[2], a.shape)
        parts.append(_arrays.minimum(inverse, max(size - 1, 0)).astype(_arrays.uint32))
    if return_counts:
        parts.append(_filled(found[3], size, as_array(0)).astype(_arrays.int32))
    return parts[0] if len(parts) == 1 else tuple(parts)


def _filled(x, size, fill):
    x = x[:size]
    rest = size - x.shape[0]
    return _arrays.concat([x, _arrays.broadcast_to(fill.astype(x.dtype), (rest,))]) if rest else x
