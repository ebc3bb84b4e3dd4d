"""Upsampling of x [N, .., C] along its spatial dims, one after the other: an element of the result is a sum of
elements of x (taps) with weights that depend on its place."""

import functools
import math
from fractions import Fraction

from headrace import _arrays
from headrace.nn.module import Module, _is_floating


def _nearest(n, scale):
    """The element for each of the places."""
    m = int(scale * n)
    if m <= n:
        return [i * n // m for i in range(m)]
    return [round(Fraction((2 * i + 1) * n - m, 2 * m)) for i in range(m)]


def _places(n, scale, align_corners):
    """The place in x, a number from about 0 to n - 1, of each place of the result."""
    m = int(scale * n)
    if align_corners:
        return [i * (n - 1) / max(m - 1, 1) for i in range(m)]
    start = ((m - 1) / scale - n + 1) / 2
    return [i / scale - start for i in range(m)]


def _triangle(distance):
    return max(1 - distance, 0)


def _cubic(a):
    """The cubic kernel of parameter a; -0.75 is OpenCV's and PyTorch's, -0.5 PIL's."""

    def kernel(x):
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0

    return kernel


_KERNELS = {  # with the distance from which on they are 0, without and with antialias
    ("linear", False): (_triangle, 1),
    ("linear", True): (_triangle, 1),
    ("cubic", False): (_cubic(-0.75), 2),
    ("cubic", True): (_cubic(-0.5), 2),
}


@functools.lru_cache(256)
def _taps(n, scale, mode, align_corners, antialias):
    """Pairs of lists: elements of x and their weights, for each place of the result. Elements outside of x are those
    at its border, with antialias they have no weight."""
    kernel, reach = _KERNELS[mode, antialias]
    width = max(1 / scale, 1) if antialias else 1
    places = _places(n, scale, align_corners)
    if mode == "linear" and not antialias:
        places = [min(max(place, 0), n - 1) for place in places]
    least, most = (1 - math.ceil(reach * width), math.ceil(reach * width))
    elements = [[math.floor(place) + k for place in places] for k in range(least, most + 1)]
    weights = [[kernel(abs(place - e) / width) for place, e in zip(places, row)] for row in elements]
    if antialias:
        weights = [[w if 0 <= e < n else 0 for w, e in zip(*rows)] for rows in zip(weights, elements)]
        sums = [sum(column) or 1 for column in zip(*weights)]
        weights = [[w / total for w, total in zip(row, sums)] for row in weights]
    return [([min(max(e, 0), n - 1) for e in row], weight) for row, weight in zip(elements, weights)]


def _take(x, elements, axis):
    return _arrays.take(x, _arrays.array(elements, dtype=_arrays.int64), axis=axis)


def _nearest_along(x, axis, scale):
    if scale == int(scale) and scale >= 1:
        return _arrays.repeat(x, int(scale), axis=axis)
    return _take(x, _nearest(x.shape[axis], scale), axis)


def _along(x, axis, scale, *mode):
    """The sum of all taps along one axis."""
    x = x if _is_floating(x.dtype) else x.astype(_arrays.float32)
    shape = [1] * x.ndim
    shape[axis] = -1
    parts = [
        _take(x, elements, axis) * _arrays.array(weights, dtype=x.dtype).reshape(shape)
        for elements, weights in _taps(x.shape[axis], scale, *mode)
    ]
    return sum(parts[1:], parts[0])


class Upsample(Module):
    """x [N, .., C] with int(scale_factor * L) elements along each spatial dim L; scale_factor is a number or one for each
    spatial dim. mode: "nearest", "linear" or "cubic". align_corners: the first and last elements stay in place, else
    elements are the middle of equal parts. antialias: the kernel is as wide as the distance of the result's elements."""

    def __init__(self, scale_factor, mode="nearest", align_corners=False, antialias=False):
        super().__init__()
        if mode not in ("nearest", "linear", "cubic"):
            raise ValueError(f"Upsample: mode is {mode!r}, expected 'nearest', 'linear' or 'cubic'")
        if antialias and (mode == "nearest" or align_corners):
            raise ValueError(f"Upsample: antialias with mode {mode!r} and align_corners={align_corners}")
        is_many = isinstance(scale_factor, (list, tuple))
        self.scale_factor = tuple(map(float, scale_factor)) if is_many else float(scale_factor)
        self.mode, self.align_corners, self.antialias = mode, align_corners, antialias

    def _extra_repr(self):
        text = f"scale_factor={self.scale_factor}, mode={self.mode!r}, align_corners={self.align_corners}"
        return text + ", antialias=True" * self.antialias

    def _scales(self, dims):
        scales = self.scale_factor if isinstance(self.scale_factor, tuple) else (self.scale_factor,) * dims
        if dims < 1 or len(scales) != dims or min(scales) <= 0:
            raise ValueError(f"Upsample: x has {dims} spatial dims, expected as many positive factors as {scales}")
        return scales

    def __call__(self, x):
        for axis, scale in enumerate(self._scales(x.ndim - 2), 1):
            if self.mode == "nearest":
                x = _nearest_along(x, axis, scale)
            else:
                x = _along(x, axis, scale, self.mode, self.align_corners, self.antialias)
        return x
