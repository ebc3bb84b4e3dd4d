"""Fourier transforms, as in the array API standard and numpy.fft.

    spectrum = hr.fft.rfft(x, n=256)
    y = hr.fft.irfft(spectrum, n=256)
"""

import headrace._arrays as _hr
from headrace._arrays import fft, fftn, hfft, ifft, ifftn, ihfft, irfft, irfftn, rfft, rfftn

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def fft2(x, s=None, axes=(-2, -1), norm="backward"):
    """fftn of two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x, s=None, axes=(-2, -1), norm="backward"):
    """Inverse of fft2."""
    return ifftn(x, s, axes, norm)


def rfft2(x, s=None, axes=(-2, -1), norm="backward"):
    """rfftn of two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x, s=None, axes=(-2, -1), norm="backward"):
    """Inverse of rfft2."""
    return irfftn(x, s, axes, norm)


def _check_points(n):
    if n < 1:
        raise ValueError(f"fftfreq: {n} points, expected at least 1")


def fftfreq(n, d=1.0, dtype=None, device=None):
    """The frequencies of fft's n results, of samples at distance d: 0, 1, ..., -2, -1 over n d."""
    _check_points(n)
    half = (n + 1) // 2
    steps = _hr.concat([_hr.arange(half, device=device), _hr.arange(-(n // 2), 0, device=device)])
    return _hr.divide(_hr.astype(steps, dtype or "float32"), n * d)


def rfftfreq(n, d=1.0, dtype=None, device=None):
    """The frequencies of rfft's n / 2 + 1 results: 0, 1, ... over n d."""
    _check_points(n)
    return _hr.divide(_hr.astype(_hr.arange(n // 2 + 1, device=device), dtype or "float32"), n * d)


def _shifted(x, axes, sign):
    axes = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    for axis in axes:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"fftshift: axis {axis} is out of range for {x.ndim} dims")
        size = x.shape[axis]
        x = _hr.roll(x, size // 2 if sign > 0 else -(size // 2), axis) if size > 1 else x
    return x


def fftshift(x, axes=None):
    """Frequency 0 in the middle."""
    return _shifted(_hr.asarray(x), axes, 1)


def ifftshift(x, axes=None):
    """Inverse of fftshift."""
    return _shifted(_hr.asarray(x), axes, -1)
