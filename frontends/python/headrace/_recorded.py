"""Writes to elements of an array while its operations are recorded as a graph: by functions, not in place."""

from headrace import _arrays

_MODES = ("set", "add", "multiply", "max", "min")
_COMBINE = (None, _arrays.add, _arrays.multiply, _arrays.maximum, _arrays.minimum)
_WHOLE = slice(None)


def update(x, key, arrays, value, mode):
    """x with the value at its elements x[key], of which arrays select some. key: integers, slices, None and Ellipsis,
    with whole dims in the place of arrays; arrays: for each entry of the written key an array or None."""
    value = _arrays.astype(value if isinstance(value, _arrays.Array) else _arrays.array(value), x.dtype)
    place = x[key]
    if all(array is None for array in arrays):
        new = _combined(place, value, mode)
    elif len(arrays) == 1 and arrays[0].dtype == _arrays.bool and mode == 0 and value.ndim <= x.ndim - arrays[0].ndim:
        mask = _arrays.reshape(arrays[0], arrays[0].shape + (1,) * (x.ndim - arrays[0].ndim))
        _arrays._fix_sizes()
        new = _arrays.where(mask, value, place)
    else:
        new = _put(place, key, arrays, value, mode)
    return new if _is_whole(key) else _placed(x, key, new)


def _combined(place, value, mode):
    while value.ndim > place.ndim and value.shape[0] == 1:
        value = _arrays.squeeze(value, 0)
    if mode:
        return _COMBINE[mode](place, value)
    return _arrays.where(_arrays.ones_like(place, dtype=_arrays.bool), value, place)


def _put(place, key, arrays, value, mode):
    """The value at arrays of integers."""
    if any(array is not None and array.dtype == _arrays.bool for array in arrays):
        raise TypeError("a write at a mask beside other indices, or of several elements, has no graph: use where()")
    given = [i for i, array in enumerate(arrays) if array is not None]
    between = key[given[0] : given[-1] + 1]
    is_first = any(array is None and not isinstance(entry, int) for array, entry in zip(arrays[given[0] :], between))
    axes, axis = [], 0
    for entry, array in zip(key, arrays):
        if entry is Ellipsis:
            axis += place.ndim - sum(isinstance(one, slice) or one is None for one in key)
        elif isinstance(entry, slice) or entry is None:
            axes += [axis] if array is not None else []
            axis += 1
    indices = [arrays[i] for i in given]
    return _arrays.index_put([place, value, *indices], axes, _MODES[mode], is_first)


def _is_whole(key):
    return all(entry is Ellipsis or isinstance(entry, slice) and entry == _WHOLE for entry in key)


def _placed(x, key, new):
    """x with new elements at integers and slices; sizes are numbers from here on."""
    _arrays._fix_sizes()
    rest = x.ndim - sum(entry is not None and entry is not Ellipsis for entry in key)
    ranges, dim = [], 0
    for entry in key:
        for one in [_WHOLE] * rest if entry is Ellipsis else [entry] * (entry is not None):
            size = x.shape[dim]
            ranges.append(range(size)[one] if isinstance(one, slice) else range(size)[one : one + 1 or None])
            dim += 1
    ranges += [range(size) for size in x.shape[dim:]]
    counts = [len(one) for one in ranges]
    begin = [one.start if count else 0 for one, count in zip(ranges, counts)]
    new = _arrays.reshape(new, counts)
    return _arrays.slice_update(x, new, begin, counts, [one.step for one in ranges], "set")
