"""pad, with NumPy's modes. A mode is a row of the table, or blocks that are joined, one axis at a time."""

import operator

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import along, array_of, check_known, floating, host_list, is_inexact

__all__ = ["pad"]


_BORDERS = {
    "edge": _arrays.pad_edge,
    "reflect": _arrays.pad_reflect,
    "symmetric": _arrays.pad_symmetric,
    "wrap": _arrays.pad_wrap,
}
_STATISTICS = {"maximum": hr.max, "minimum": hr.min, "mean": hr.mean, "median": hr.median}
_OPTIONS = {"constant": "constant_values", "linear_ramp": "end_values"}
_MODES = ("constant", "empty", "linear_ramp", *_BORDERS, *_STATISTICS)


def _pairs(name, values, rank):
    """(before, after) of each axis, of a number, one for both sides, a pair for all axes, or one for each."""
    values = host_list(values)
    if isinstance(values, dict):
        pairs = [(0, 0)] * rank
        for axis, pair in values.items():
            pairs[axis] = tuple(pair) if isinstance(pair, (tuple, list)) else (pair, pair)
        return pairs
    if not isinstance(values, (tuple, list)):
        return [(values, values)] * rank
    entries = [tuple(entry) if isinstance(entry, (tuple, list)) else (entry,) for entry in map(host_list, values)]
    if all(len(entry) == 1 for entry in entries) and not isinstance(host_list(values[0]), (tuple, list)):
        entries = [tuple(entry[0] for entry in entries)]
    if len(entries) not in (1, rank) or any(len(entry) not in (1, 2) for entry in entries):
        raise ValueError(f"pad: {name} {values!r}, expected a number, a pair, or a pair for each of {rank} axes")
    entries = entries * rank if len(entries) == 1 else entries
    return [entry * 2 if len(entry) == 1 else entry for entry in entries]


def _block(x, axis, count, value):
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if isinstance(value, hr.Array) and value.ndim == x.ndim:
        return hr.broadcast_to(hr.astype(value, x.dtype), shape)
    return hr.broadcast_to(hr.astype(array_of(value), x.dtype), shape)


def _ramp(x, axis, count, end, is_after):
    """From an end value outside to x's first or last slice."""
    place = x.shape[axis] - 1 if is_after else 0
    edge = floating(x[along(x, axis, place, place + 1)])
    shape = (count, *(1,) * (x.ndim - 1 - axis))
    steps = hr.arange(count, dtype=edge.dtype).reshape(*shape) / count
    ramp = end + (edge - end) * steps
    ramp = ramp if is_inexact(x) else hr.floor(ramp)
    return hr.astype(hr.flip(ramp, axis) if is_after else ramp, x.dtype)


def _rounded(value, dtype):
    return value if is_inexact(hr.zeros((), dtype=dtype)) else hr.round(value)


def _statistic(x, axis, mode, length, is_after):
    size = x.shape[axis]
    count = size if length is None else min(operator.index(length), size)
    if count < 1:
        raise ValueError(f"pad: stat_length {length}, expected at least 1")
    part = x[along(x, axis, size - count if is_after else 0, size if is_after else count)]
    return hr.astype(_rounded(_STATISTICS[mode](part, axis=axis, keepdims=True), x.dtype), x.dtype)


def _side(x, axis, mode, count, value, is_after):
    if mode in _STATISTICS:
        return _block(x, axis, count, _statistic(x, axis, mode, value, is_after))
    if mode == "linear_ramp":
        return _ramp(x, axis, count, value, is_after)
    return _block(x, axis, count, value)


def _bordered(x, mode, widths):
    for axis, (count, pair) in enumerate(zip(x.shape, widths, strict=True)):
        if count == 0 and pair != (0, 0):
            raise ValueError(f"pad: mode {mode!r} of axis {axis} without elements")
    return _BORDERS[mode](x, [pair[0] for pair in widths], [pair[1] for pair in widths])


def _padded(array, widths, mode, values):
    """Blocks before and after, one axis after the other."""
    for axis, ((before, after), pair) in enumerate(zip(widths, values, strict=True)):
        array = hr.concat([_side(array, axis, mode, before, pair[0], False), array,
                           _side(array, axis, mode, after, pair[1], True)], axis=axis)  # fmt: skip
    return array


def _spaced(array, widths, interior, value):
    """Elements between neighbours, too; negative widths crop."""
    interior = host_list(interior)
    counts = [operator.index(n) for n in (interior if hasattr(interior, "__iter__") else [interior] * array.ndim)]
    before, after = ([pair[side] for pair in widths] for side in (0, 1))
    return _arrays.pad(array, before, after, host_list(value), counts)


def pad(
    array, pad_width, mode="constant", *, constant_values=0, end_values=0, stat_length=None, reflect_type="even",
    interior=None,
):  # fmt: skip
    """More elements on both sides of each axis. pad_width: a number, (before, after), or a pair for each axis. mode:
    constant (constant_values), edge, reflect (without the border), symmetric (with it), wrap, linear_ramp (to
    end_values), maximum, minimum, mean or median (of stat_length elements), empty (0). interior, of mode constant with
    one number: so many elements between neighbours, of all axes or of each; negative widths crop then."""
    array = array_of(array)
    check_known("pad", mode, mode=_MODES)
    check_known("pad", reflect_type, reflect_type=("even",))
    widths = [tuple(operator.index(n) for n in pair) for pair in _pairs("pad_width", pad_width, array.ndim)]
    if interior is not None:
        check_known("pad", mode, mode=("constant",))
        return _spaced(array, widths, interior, constant_values)
    if min((n for pair in widths for n in pair), default=0) < 0:
        raise ValueError(f"pad: pad_width {pad_width!r}, expected no negative numbers")
    if mode in _BORDERS:
        return _bordered(array, mode, widths)
    given = {"constant": constant_values, "linear_ramp": end_values, "empty": 0}.get(mode, stat_length)
    return _padded(array, widths, mode, _pairs(_OPTIONS.get(mode, "stat_length"), given, array.ndim))
