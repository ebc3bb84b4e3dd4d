"""The parts of the array API standard (2024.12) that are not functions of the core's table."""

import collections

from headrace import _arrays
from headrace._arrays import Array, unique

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "astype", "can_cast", "concat", "diff", "finfo", "iinfo", "isdtype",
    "matrix_transpose", "moveaxis", "nonzero", "repeat", "result_type", "roll", "searchsorted", "tensordot", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip

__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

# ---- dtypes

_KINDS = {
    "bool": ["bool"],
    "signed integer": ["int8", "int16", "int32", "int64"],
    "unsigned integer": ["uint8", "uint16", "uint32", "uint64"],
    "real floating": ["float16", "bfloat16", "float32", "float64"],
    "complex floating": ["complex64", "complex128"],
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]
_STANDARD = [name for name in _KINDS["bool"] + _KINDS["numeric"] if name not in ("float16", "bfloat16")]
# Bits of an element, explicit bits of the fraction, exponents of the smallest and of the largest normal number.
_FLOATS = {
    "float16": (16, 10, -14, 15),
    "bfloat16": (16, 7, -126, 127),
    "float32": (32, 23, -126, 127),
    "float64": (64, 52, -1022, 1023),
}
_PARTS = {"complex64": "float32", "complex128": "float64"}

_Finfo = collections.namedtuple("finfo", "bits eps max min smallest_normal dtype")
_Iinfo = collections.namedtuple("iinfo", "bits max min dtype")


def _dtype_of(type):
    """The dtype of an array, or that of a name, a Python type or another library's dtype."""
    return type.dtype if isinstance(type, Array) else _arrays.empty(0, dtype=type).dtype


def finfo(type, /):
    """The numbers of a floating dtype, or of an array's: bits, eps, max, min, smallest_normal, and dtype, which is that
    of the parts of a complex one."""
    name = _dtype_of(type).name
    name = _PARTS.get(name, name)
    if name not in _FLOATS:
        raise ValueError(f"finfo: {name} is not floating")
    bits, fraction, low, high = _FLOATS[name]
    largest = (2.0 - 2.0**-fraction) * 2.0**high
    return _Finfo(bits, 2.0**-fraction, largest, -largest, 2.0**low, getattr(_arrays, name))


def iinfo(type, /):
    """The numbers of an integer dtype, or of an array's: bits, max, min and dtype."""
    dtype = _dtype_of(type)
    if dtype.name not in _KINDS["integral"]:
        raise ValueError(f"iinfo: {dtype.name} is no dtype of integers")
    bits = 8 * dtype.itemsize
    is_signed = dtype.name in _KINDS["signed integer"]
    return _Iinfo(bits, 2 ** (bits - is_signed) - 1, -(2 ** (bits - 1)) if is_signed else 0, dtype)


def isdtype(dtype, kind):
    """True if the dtype is this one, of this kind ("bool", "signed integer", "unsigned integer", "integral",
    "real floating", "complex floating", "numeric"), or one of a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: kind {kind!r}, expected one of {', '.join(map(repr, _KINDS))}")
        return _dtype_of(dtype).name in _KINDS[kind]
    return _dtype_of(dtype) == _dtype_of(kind)


def result_type(*arrays_and_dtypes):
    """The dtype of an operation on these arrays, dtypes and numbers, of which the last are weak."""
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))]
    types = [_dtype_of(x) for x in arrays_and_dtypes if not isinstance(x, (bool, int, float, complex))]
    if not types:
        raise ValueError("result_type: expected at least one array or dtype")
    result = _arrays.empty(0, dtype=types[0])
    for dtype in types[1:]:
        result = result + _arrays.empty(0, dtype=dtype) if dtype != result.dtype else result
    for number in numbers:
        result = result + number if not isinstance(number, bool) else result
    return result.dtype


def can_cast(from_, to, /):
    """True if a dtype, or that of an array, becomes the other one in an operation with it."""
    to = _dtype_of(to)
    return result_type(_dtype_of(from_), to) == to


# ---- sets

_All = collections.namedtuple("unique_all", "values indices inverse_indices counts")
_Counts = collections.namedtuple("unique_counts", "values counts")
_Inverse = collections.namedtuple("unique_inverse", "values inverse_indices")


def unique_all(x, /):
    """The distinct elements in order; the first index of each in the flattened x; for each element of x its number among
    them; how often each occurs."""
    return _All(*unique(x))


def unique_counts(x, /):
    """The distinct elements in order, and how often each occurs."""
    values, _, _, counts = unique(x)
    return _Counts(values, counts)


def unique_inverse(x, /):
    """The distinct elements in order, and for each element of x its number among them."""
    values, _, inverse, _ = unique(x)
    return _Inverse(values, inverse)


def unique_values(x, /):
    """The distinct elements in order."""
    return unique(x)[0]


# ---- functions of the core with the standard's other arguments


def _integers(one_or_more):
    return tuple(one_or_more) if isinstance(one_or_more, (tuple, list, range)) else (one_or_more,)


def astype(x, dtype, /, *, copy=True, device=None):
    """x converted by C's rules, to bool by x != 0; without copy x itself, if it has the dtype and is on the device."""
    return _arrays.astype(x if device is None else _to_device(x, device), dtype, copy)


def concat(arrays, /, axis=0):
    """The arrays one after the other along an axis; None: those without dims but one."""
    if axis is None:
        arrays, axis = [_arrays.reshape(x, -1) for x in arrays], 0
    return _arrays.concat(arrays, axis)


def _array_of(x):
    """x as an array, or a value of a graph; memory of others is copied, since it may change before the work runs."""
    return x if isinstance(x, (Array, _arrays.Value)) else _arrays.array(x)


def _edge(part, x, axis):
    """For diff: a number or an array without dims has x's other dims."""
    part = _array_of(part)
    axis = axis % x.ndim if x.ndim else 0
    return part if part.ndim else _arrays.broadcast_to(part, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))


def diff(x, /, n=1, axis=-1, prepend=None, append=None):
    """Differences of neighbours, n times; x is longer by prepend and append, arrays or numbers. Of bool whether they
    differ."""
    x = _array_of(x)
    if n == 0:
        return x
    parts = [part if part is x else _edge(part, x, axis) for part in (prepend, x, append) if part is not None]
    return _arrays.diff(_arrays.concat(parts, axis) if len(parts) > 1 else x, n, axis)


def moveaxis(x, source, destination):
    """x with dims at other places, the others in their order, a view; integers or sequences of them."""
    x = _array_of(x)
    rank = x.ndim
    source, destination = ([i + rank if i < 0 else i for i in _integers(axes)] for axes in (source, destination))
    if len(source) != len(destination) or len({*source}) < len(source) or len({*destination}) < len(destination):
        raise ValueError(f"moveaxis: from {source} to {destination}, expected as many different axes")
    for axis in source + destination:
        if not 0 <= axis < rank:
            raise ValueError(f"moveaxis: axis {axis} is out of range for {rank} dims")
    order = [i for i in range(rank) if i not in source]
    for to, axis in sorted(zip(destination, source, strict=True)):
        order.insert(to, axis)
    return _arrays.permute_dims(x, order)


def nonzero(x, /, size=None):
    """A tuple of indices, one array for each axis, of the elements that are not 0, which are waited for. size: so many
    instead, without waiting, -1 behind the last one."""
    return _arrays.unstack(_arrays.nonzero(x, size))


def repeat(x, repeats, /, axis=None):
    """Each element so often in a row, along an axis; None: x without dims but one. repeats: one number, or one for each
    element of the axis, which are waited for."""
    x = _array_of(x)
    if axis is None:
        x, axis = _arrays.reshape(x, -1), 0
    if isinstance(repeats, int):
        return _arrays.repeat(x, repeats, axis)
    counts = _arrays.asarray(repeats)
    counts = _arrays.broadcast_to(counts, (x.shape[axis],)).tolist()
    if min(counts, default=0) < 0:
        raise ValueError(f"repeat: {min(counts)} times, expected 0 or more")
    places = [i for i, count in enumerate(counts) for _ in range(count)]
    return _arrays.take(x, _arrays.array(places, dtype=_arrays.int64), axis)


def roll(x, /, shift, axis=None):
    """x's elements moved along axes, or in row-major order without one; those that leave one end enter at the other."""
    x = _array_of(x)
    if axis is None:
        return _arrays.reshape(_arrays.roll(_arrays.reshape(x, -1), shift, 0), x.shape)
    shifts, axes = _integers(shift), _integers(axis)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for one, along in zip(shifts, axes, strict=True):
        x = _arrays.roll(x, one, along)
    return x


def searchsorted(x1, x2, /, side="left", sorter=None):
    """The places where x2's elements keep x1, which is in order, in order; side left: before equal elements, right:
    behind them. sorter: indices that put x1 in order."""
    return _arrays.searchsorted(x1 if sorter is None else _arrays.take(x1, sorter, 0), x2, side)


def tensordot(x1, x2, /, axes=2):
    """The sum of products over pairs of axes: so many last ones of x1 and first ones of x2, or those of two sequences."""
    x1, x2 = _array_of(x1), _array_of(x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot: {axes} axes of arrays of {x1.ndim} and {x2.ndim} dims")
        axes = range(x1.ndim - axes, x1.ndim), range(axes)
    first, second = axes
    return _arrays.tensordot(x1, x2, tuple(_integers(first)), tuple(_integers(second)))


def matrix_transpose(x, /):
    """x with its last two dims exchanged, a view."""
    return _array_of(x).mT


# ---- inspection


class _Info:
    """What headrace offers, as the standard's inspection functions."""

    def capabilities(self):
        """Optional parts of the standard that are supported."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 16}

    def default_device(self):
        """The device of new arrays."""
        return _arrays.device()

    def devices(self):
        """The devices that were used and the current one."""
        return sorted({"cpu", _arrays.device()})

    def default_dtypes(self, *, device=None):
        """The dtypes of Python's numbers and of indices."""
        names = {
            "real floating": "float32",
            "complex floating": "complex64",
            "integral": "int64",
            "indexing": "int64",
        }
        return {kind: getattr(_arrays, name) for kind, name in names.items()}

    def dtypes(self, *, device=None, kind=None):
        """The standard's dtypes, of these kinds."""
        names = _STANDARD if kind is None else [name for name in _STANDARD if isdtype(name, kind)]
        return {name: getattr(_arrays, name) for name in names}


def __array_namespace_info__():
    """What headrace offers: capabilities(), default_device(), default_dtypes(), devices(), dtypes()."""
    return _Info()


def _namespace(x, api_version=None):
    """For Array.__array_namespace__."""
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(f"api_version {api_version!r}, expected one of {', '.join(_VERSIONS)}")
    import headrace

    return headrace


def _to_device(x, device, stream=None):
    """For Array.to_device."""
    if stream is not None:
        raise ValueError(f"to_device: stream is {stream!r}, expected None")
    return x if device == x.device else _arrays.array(x, device=device)
