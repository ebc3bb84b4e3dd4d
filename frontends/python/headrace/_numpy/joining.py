"""Arrays joined and taken apart: vstack, split, insert, block, ..."""

import operator

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, axis_of, flat_axis, host_list
from headrace._numpy.shapes import atleast_1d, atleast_2d, atleast_3d, ravel

__all__ = [
    "append", "array_split", "block", "column_stack", "delete", "dsplit", "dstack", "hsplit", "hstack", "insert",
    "split", "trim_zeros", "vsplit", "vstack",
]  # fmt: skip


# ---- joined


def _widened(name, arrays, widen):
    arrays = [widen(array) for array in arrays]
    if not arrays:
        raise ValueError(f"{name}: no arrays, expected at least one")
    return arrays


def vstack(tup):
    """One below the other, along axis 0; vectors are rows."""
    return hr.concat(_widened("vstack", tup, atleast_2d), axis=0)


def hstack(tup):
    """One beside the other, along axis 1; vectors along axis 0."""
    arrays = _widened("hstack", tup, atleast_1d)
    return hr.concat(arrays, axis=0 if arrays[0].ndim == 1 else 1)


def dstack(tup):
    """One behind the other, along axis 2."""
    return hr.concat(_widened("dstack", tup, atleast_3d), axis=2)


def column_stack(tup):
    """Vectors as the columns of a matrix; arrays of two dims beside each other."""

    def columns(x):
        x = array_of(x)
        return x if x.ndim >= 2 else hr.reshape(x, (-1, 1))

    return hr.concat(_widened("column_stack", tup, columns), axis=1)


def append(arr, values, axis=None):
    """arr followed by values; without an axis both are flattened."""
    if axis is None:
        return hr.concat([ravel(arr), ravel(values)], axis=0)
    return hr.concat([array_of(arr), array_of(values)], axis=axis)


def _depth(arrays):
    """The depth of nested lists, which is the same everywhere."""
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(entry) for entry in arrays}
    if len(depths) != 1:
        raise ValueError("block: expected lists of one depth, without empty ones")
    return depths.pop() + 1


def _joined(arrays, depth, rank):
    if depth == 0:
        x = array_of(arrays)
        return x[(None,) * (rank - x.ndim)]
    return hr.concat([_joined(entry, depth - 1, rank) for entry in arrays], axis=-depth)


def _largest_rank(arrays):
    return max(map(_largest_rank, arrays)) if isinstance(arrays, list) else array_of(arrays).ndim


def block(arrays):
    """Nested lists of blocks as one array: the innermost lists are joined along the last axis."""
    depth = _depth(arrays)
    return _joined(arrays, depth, max(depth, _largest_rank(arrays)))


# ---- taken apart


def _parts(name, ary, sections, axis, is_exact):
    ary, sections = array_of(ary), host_list(sections)
    axis = axis_of(name, axis, ary.ndim)
    if isinstance(sections, (list, tuple)):
        return _arrays.array_split(ary, axis, indices=[operator.index(cut) for cut in sections])
    count, sections = ary.shape[axis], operator.index(sections)
    if sections < 1:
        raise ValueError(f"{name}: {sections} parts, expected at least 1")
    if is_exact and count % sections:
        raise ValueError(f"{name}: {count} elements do not divide into {sections} equal parts")
    return _arrays.array_split(ary, axis, sections)


def split(ary, indices_or_sections, axis=0):
    """A list of parts along an axis: so many of equal size, or those between these indices."""
    return _parts("split", ary, indices_or_sections, axis, True)


def array_split(ary, indices_or_sections, axis=0):
    """As split; the first parts are longer by one if the size does not divide."""
    return _parts("array_split", ary, indices_or_sections, axis, False)


def _split_along(name, ary, sections, axis, rank):
    ary = array_of(ary)
    if ary.ndim < rank:
        raise ValueError(f"{name}: {ary.ndim} dims, expected at least {rank}")
    return _parts(name, ary, sections, axis, True)


def vsplit(ary, indices_or_sections):
    """split along axis 0."""
    return _split_along("vsplit", ary, indices_or_sections, 0, 2)


def hsplit(ary, indices_or_sections):
    """split along axis 1; of a vector along axis 0."""
    return _split_along("hsplit", ary, indices_or_sections, min(array_of(ary).ndim - 1, 1), 1)


def dsplit(ary, indices_or_sections):
    """split along axis 2."""
    return _split_along("dsplit", ary, indices_or_sections, 2, 3)


# ---- places along an axis


def _places(name, obj, count):
    """The places that an index names, from the front, and whether it is a single number."""
    if isinstance(obj, slice):
        return list(range(*obj.indices(count))), False
    obj = host_list(obj)
    is_single = not isinstance(obj, (list, tuple, range))
    places = [obj] if is_single else list(obj)
    if places and all(isinstance(place, bool) for place in places):
        if len(places) != count:
            raise ValueError(f"{name}: a mask of {len(places)} elements, expected {count}")
        return [i for i, is_set in enumerate(places) if is_set], False
    return [operator.index(place) for place in places], is_single


def _check_places(name, places, count, last):
    for place in places:
        if not -count <= place <= last:
            raise IndexError(f"{name}: index {place} is out of bounds for axis of size {count}")
    return [place % count if place < 0 else place for place in places]


def delete(arr, obj, axis=None):
    """arr without the slices at these indices of an axis; without an axis arr is flattened. obj: an integer, a slice, a
    sequence or a mask; an array is waited for."""
    arr, axis = flat_axis("delete", array_of(arr), axis)
    count = arr.shape[axis]
    places, _ = _places("delete", obj, count)
    gone = set(_check_places("delete", places, count, count - 1))
    kept = [i for i in range(count) if i not in gone]
    return hr.take(arr, hr.array(kept, dtype=hr.int64), axis=axis)


def insert(arr, obj, values, axis=None):
    """arr with values in front of these indices of an axis; without an axis arr is flattened. obj: as delete's."""
    arr, axis = flat_axis("insert", array_of(arr), axis)
    count = arr.shape[axis]
    places, is_single = _places("insert", obj, count)
    places = _check_places("insert", places, count, count)
    values = hr.astype(array_of(values), arr.dtype)
    values = values[(None,) * (arr.ndim - values.ndim)]
    if is_single:
        values = hr.moveaxis(values, 0, axis)
        places = places * values.shape[axis]
    elif len(places) == 1:
        places = places * values.shape[axis]
    return _inserted(arr, places, values, axis)


def _inserted(arr, places, values, axis):
    count, added = arr.shape[axis], len(places)
    values = hr.broadcast_to(values, (*arr.shape[:axis], added, *arr.shape[axis + 1 :]))
    order = sorted([(place, 0, count + i) for i, place in enumerate(places)] + [(i, 1, i) for i in range(count)])
    source = hr.array([entry[2] for entry in order], dtype=hr.int64)
    return hr.take(hr.concat([arr, values], axis=axis), source, axis=axis)


def trim_zeros(filt, trim="fb", axis=None):
    """Without the zeros at the front (f) and the back (b) of axes, which are waited for."""
    filt = array_of(filt)
    trim = trim.lower()
    if not trim or set(trim) - set("fb"):
        raise ValueError(f"trim_zeros: trim {trim!r}, expected 'f', 'b' or 'fb'")
    axes = range(filt.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    key = [slice(None)] * filt.ndim
    for one in axes:
        one = axis_of("trim_zeros", one, filt.ndim)
        others = tuple(i for i in range(filt.ndim) if i != one)
        found = [i for i, is_set in enumerate(hr.any(filt != 0, axis=others).tolist()) if is_set]
        count = filt.shape[one]
        first, last = (found[0], found[-1] + 1) if found else (count, count) if "f" in trim else (0, 0)
        key[one] = slice(first if "f" in trim else None, last if "b" in trim else None)
    return filt[tuple(key)]
