"""Functions of each element: rint, fabs, spacing, bitwise_count, nan_to_num, ..."""

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, check_known, flat_axis, floating, is_complex, is_inexact

__all__ = [
    "angle", "bitwise_count", "fabs", "float_power", "imag", "iscomplex", "isreal", "nan_to_num", "packbits",
    "real", "real_if_close", "rint", "spacing", "unpackbits",
]  # fmt: skip


def rint(x):
    """Rounded to the nearest whole number, ties to even, in a floating dtype."""
    return hr.round(floating(x))


def fabs(x):
    """The absolute value of real numbers, in a floating dtype."""
    x = floating(x)
    if is_complex(x):
        raise TypeError(f"fabs: {x.dtype.name}, expected real numbers")
    return hr.abs(x)


def float_power(x1, x2):
    """x1 to the power x2, in float64 or complex128."""
    x1, x2 = array_of(x1), array_of(x2)
    dtype = hr.complex128 if is_complex(x1) or is_complex(x2) else hr.float64
    return hr.pow(hr.astype(x1, dtype), hr.astype(x2, dtype))


def spacing(x):
    """The distance to the next number away from 0, with x's sign."""
    x = floating(x)
    size = hr.abs(x)
    step = hr.nextafter(size, hr.full_like(size, hr.inf)) - size
    step = hr.where(hr.isinf(size), hr.nan, step)
    return hr.where(x < 0, -step, step)


def angle(z, deg=False):
    """The angle in the complex plane, in radians, or with deg in degrees."""
    z = floating(z)
    result = _arrays.angle(z)
    return hr.degrees(result) if deg else result


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """Numbers for NaN and the infinities; without posinf and neginf the dtype's largest and smallest number. copy
    changes nothing: arrays are values."""
    x = array_of(x)
    if not is_inexact(x):
        return x
    if is_complex(x):
        return hr.complex(*(nan_to_num(part, copy, nan, posinf, neginf) for part in (hr.real(x), hr.imag(x))))
    bounds = hr.finfo(x.dtype)
    result = hr.where(hr.isnan(x), nan, x)
    result = hr.where(hr.isposinf(x), bounds.max if posinf is None else posinf, result)
    return hr.where(hr.isneginf(x), bounds.min if neginf is None else neginf, result)


# ---- complex numbers


def real(val):
    """The real part."""
    val = array_of(val)
    return _arrays.real(val) if is_complex(val) else val


def imag(val):
    """The imaginary part; 0 of real numbers."""
    val = array_of(val)
    return _arrays.imag(val) if is_complex(val) else hr.zeros_like(val)


def iscomplex(x):
    """True for each element with an imaginary part."""
    return imag(x) != 0


def isreal(x):
    """True for each element without an imaginary part."""
    return imag(x) == 0


def real_if_close(a, tol=100):
    """The real part if all imaginary parts, which are waited for, are at most tol: an absolute bound up to 1, else so
    many times the dtype's eps."""
    a = array_of(a)
    if not is_complex(a):
        return a
    bound = tol * hr.finfo(a.dtype).eps if tol > 1 else tol
    return hr.real(a) if bool(hr.all(hr.abs(hr.imag(a)) < bound)) else a


# ---- bits


def bitwise_count(x):
    """The number of bits of |x| that are set, in uint8."""
    x = array_of(x)
    if not hr.isdtype(x.dtype, ("integral", "bool")):
        raise TypeError(f"bitwise_count: {x.dtype.name}, expected integers")
    bits = hr.astype(hr.abs(hr.astype(x, hr.int64)) if hr.isdtype(x.dtype, "signed integer") else x, hr.uint64)
    return hr.astype(hr.popcount(bits), hr.uint8)


def _weights(name, bitorder):
    check_known(name, bitorder, bitorder=("big", "little"))
    return hr.array([1 << i for i in range(8)][:: -1 if bitorder == "big" else 1], dtype=hr.uint8)


def packbits(a, /, axis=None, bitorder="big"):
    """Elements that are not 0 as bits of uint8, eight along an axis, or of the flattened array."""
    weights = _weights("packbits", bitorder)
    a = array_of(a)
    if not hr.isdtype(a.dtype, ("integral", "bool")):
        raise TypeError(f"packbits: {a.dtype.name}, expected integers or bool")
    a, axis = flat_axis("packbits", a, axis)
    bits = hr.moveaxis(hr.astype(a != 0, hr.uint8), axis, -1)
    bits = _arrays.pad(bits, (0,) * bits.ndim, (0,) * (bits.ndim - 1) + (-bits.shape[-1] % 8,))
    octets = bits.reshape(*bits.shape[:-1], bits.shape[-1] // 8, 8)
    return hr.moveaxis(hr.sum(octets * weights, axis=-1, dtype=hr.uint8), -1, axis)


def unpackbits(a, /, axis=None, count=None, bitorder="big"):
    """The bits of uint8 as elements 0 and 1, along an axis, or of the flattened array; count: so many, or all but so
    many if it is negative."""
    weights = _weights("unpackbits", bitorder)
    a, axis = flat_axis("unpackbits", array_of(a), axis)
    if a.dtype != hr.uint8:
        raise TypeError(f"unpackbits: {a.dtype.name}, expected uint8")
    octets = hr.moveaxis(a, axis, -1)
    bits = hr.astype((octets[..., None] & weights) != 0, hr.uint8)
    bits = bits.reshape(*octets.shape[:-1], 8 * octets.shape[-1])
    if count is not None and count > bits.shape[-1]:
        bits = _arrays.pad(bits, (0,) * bits.ndim, (0,) * (bits.ndim - 1) + (count - bits.shape[-1],))
    return hr.moveaxis(bits[..., :count], -1, axis)
