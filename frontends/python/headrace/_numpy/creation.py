"""New arrays: tri, logspace, fromfunction, frombuffer, ..."""

import math
import operator

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, axis_of, check_known, is_complex
from headrace._numpy.indices import indices
from headrace._numpy.shapes import atleast_1d, ravel

__all__ = [
    "asarray_chkfinite", "ascontiguousarray", "copy", "diag", "diagflat", "eye", "frombuffer", "fromfunction",
    "fromiter", "geomspace", "identity", "linspace", "logspace", "meshgrid", "tri",
]  # fmt: skip


# ---- from other objects


def copy(a, order="K", subok=False):
    """A new array with these elements. Arrays are values, so order and subok change nothing."""
    return hr.array(a)


def ascontiguousarray(a, dtype=None):
    """An array with at least one dim. The layout of memory is not visible."""
    return atleast_1d(hr.asarray(a, dtype=dtype))


def asarray_chkfinite(a, dtype=None, order=None):
    """asarray, whose elements are waited for: NaN and infinities raise ValueError."""
    a = hr.asarray(a, dtype=dtype)
    if not bool(hr.all(hr.isfinite(a))):
        raise ValueError("asarray_chkfinite: the array has infinite or NaN elements")
    return a


_CODES = {"bool": "|b1", "bfloat16": "<V2"}


def _code(dtype):
    """The dtype's name in npy files."""
    kind = {"i": "i", "u": "u", "f": "f", "c": "c"}[dtype.name[0]] if dtype.name not in _CODES else ""
    return _CODES.get(dtype.name) or f"<{kind}{dtype.itemsize}"


def frombuffer(buffer, dtype=float, count=-1, offset=0):
    """A copy of a buffer's bytes, from offset on, as a vector of count elements; -1: of all. Without dtype float64."""
    import io

    dtype = hr.float64 if dtype is float else hr.zeros((), dtype=dtype).dtype
    data = memoryview(buffer).cast("B")
    if not 0 <= offset <= len(data):
        raise ValueError(f"frombuffer: offset {offset} of a buffer of {len(data)} bytes")
    rest = len(data) - offset
    if count < 0 and rest % dtype.itemsize:
        raise ValueError(f"frombuffer: {rest} bytes, expected a multiple of {dtype.itemsize}")
    count = rest // dtype.itemsize if count < 0 else count
    if count * dtype.itemsize > rest:
        raise ValueError(f"frombuffer: {count} elements of {dtype.itemsize} bytes in {rest} bytes")
    header = f"{{'descr': '{_code(dtype)}', 'fortran_order': False, 'shape': ({count},), }}".ljust(117) + "\n"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    return hr.load(io.BytesIO(start + data[offset : offset + count * dtype.itemsize].tobytes()))


def fromiter(iter, dtype, count=-1):
    """A vector of an iterable's numbers, of the first count ones unless it is -1."""
    import itertools

    values = list(iter if count < 0 else itertools.islice(iter, count))
    if len(values) < count:
        raise ValueError(f"fromiter: {len(values)} numbers, expected {count}")
    return hr.array(values, dtype=dtype) if values else hr.zeros((0,), dtype=dtype)


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """function of arrays of this shape with the index along each dim; without dtype float32."""
    return function(*indices(shape, dtype=hr.float32 if dtype is float else dtype), **kwargs)


# ---- matrices


def eye(N, M=None, k=0, dtype=None, *, device=None):
    """Ones on diagonal k of an N x M matrix; float32 without dtype."""
    return _arrays.eye(N, M, k=k, dtype=dtype, device=device)


def identity(n, dtype=None):
    """Ones on the diagonal of an n x n matrix."""
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    """Ones on diagonal k and below it, float32 without dtype."""
    return hr.tril(hr.ones((N, N if M is None else M), dtype=dtype), k)


def diag(v, k=0):
    """The matrix with vector v on diagonal k; of a matrix this diagonal."""
    v = array_of(v)
    if v.ndim not in (1, 2):
        raise ValueError(f"diag: {v.ndim} dims, expected 1 or 2")
    return _arrays.diag(v, k) if v.ndim == 1 else _arrays.diagonal(v, k)


def diagflat(v, k=0):
    """The matrix with the flattened v on diagonal k."""
    return diag(ravel(v), k)


# ---- steps


def _is_number(x):
    return isinstance(x, (int, float)) or (
        hasattr(x, "__float__") and not getattr(x, "ndim", 0) and not hasattr(x, "tolist")
    )


def _between(start, stop, num, endpoint, axis):
    """Evenly spaced elements between those of two arrays, along a new axis, in f64 or c128."""
    start, stop = array_of(start), array_of(stop)
    wide = hr.complex128 if is_complex(start) or is_complex(stop) else hr.float64
    start, stop = (hr.astype(x, wide) for x in hr.broadcast_arrays(start, stop))
    parts = max(num - 1 if endpoint else num, 1)
    steps = hr.arange(num, dtype=hr.float64)[(slice(None), *(None,) * start.ndim)]
    result = start + steps * ((stop - start) / parts)
    if endpoint and num > 1:
        result = hr.concat([result[:-1], stop[None]])
    return hr.moveaxis(result, 0, axis_of("linspace", axis, result.ndim))


def _dtype_between(start, stop, dtype):
    """That of a result without dtype: of the arrays' floating one, float32 for other numbers."""
    arrays = [x for x in (start, stop) if not isinstance(x, (int, float, complex))]
    return dtype or hr.result_type(hr.float32 if not arrays else array_of(arrays[0]), *map(array_of, arrays), 1.0)


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    """num evenly spaced numbers, or arrays along a new axis; retstep: and their distance. endpoint: stop is the last
    one. Without dtype float32, or that of floating arrays."""
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"linspace: {num} elements, expected 0 or more")
    if _is_number(start) and _is_number(stop):
        result = _arrays.linspace(start, stop, num, endpoint, dtype=dtype, device=device)
    else:
        result = hr.astype(
            _between(start, stop, num, endpoint, axis), _dtype_between(start, stop, dtype), device=device
        )
    if not retstep:
        return result
    parts = num - 1 if endpoint else num
    return result, (stop - start) / parts if parts > 0 else math.nan


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """Powers of a base: their exponents are evenly spaced from start to stop."""
    exponents = _between(start, stop, num, endpoint, axis)
    base = base if isinstance(base, (int, float)) else hr.expand_dims(hr.astype(array_of(base), hr.float64), axis)
    powers = hr.pow(hr.array(base, dtype=hr.float64), exponents)
    return hr.astype(powers, _dtype_between(start, stop, dtype))


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """Numbers of a constant ratio from start to stop, neither of which is 0."""
    for bound in (start, stop):
        if isinstance(bound, (int, float, complex)) and bound == 0:
            raise ValueError("geomspace: a bound is 0, expected other numbers")
    first, last = array_of(start), array_of(stop)
    wide = hr.complex128 if is_complex(first) or is_complex(last) else hr.float64
    first, last = (hr.astype(x, wide) for x in hr.broadcast_arrays(first, last))
    # Powers of the ratio: both bounds may be negative, or complex.
    powers = hr.exp(_between(hr.zeros_like(first), hr.log(last / first), num, endpoint, 0))
    result = first * powers
    if num > 0:
        ends = [first[None]] + ([result[1:-1], last[None]] if endpoint and num > 1 else [result[1:]])
        result = hr.concat(ends)
    return hr.astype(hr.moveaxis(result, 0, axis), _dtype_between(start, stop, dtype))


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """A list of the coordinates of a grid: vector i repeated along all dims but i, or with sparse of size 1 there.
    indexing xy: the first two dims swapped, or ij."""
    check_known("meshgrid", indexing, indexing=("xy", "ij"))
    if not sparse:
        return _arrays.meshgrid(*xi, indexing=indexing)
    rank, results = len(xi), []
    for i, x in enumerate(xi):
        place = {0: 1, 1: 0}.get(i, i) if indexing == "xy" and rank > 1 else i
        results.append(ravel(x).reshape((1,) * place + (-1,) + (1,) * (rank - place - 1)))
    return results
