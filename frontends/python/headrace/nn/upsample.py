"""Upsampling of x [N, .., C] along its spatial dims, one after the other."""

from fractions import Fraction

from headrace import _arrays
from headrace.nn.module import Module


def _nearest(n, scale):
    """The element for each of the places."""
    m = int(scale * n)
    if m <= n:
        return [i * n // m for i in range(m)]
    return [round(Fraction((2 * i + 1) * n - m, 2 * m)) for i in range(m)]


def _take(x, elements, axis):
    return _arrays.take(x, _arrays.array(elements, dtype=_arrays.int64), axis=axis)


def _nearest_along(x, axis, scale):
    if scale == int(scale) and scale >= 1:
        return _arrays.repeat(x, int(scale), axis=axis)
    return _take(x, _nearest(x.shape[axis], scale), axis)


def _along(x, axis, scale, mode, align_corners, antialias):
    """Resized along one axis; cubic kernels are OpenCV's and PyTorch's, with antialias PIL's."""
    coordinates = "align_corners" if align_corners else "half_pixel_symmetric"
    size, cubic = int(scale * x.shape[axis]), -0.5 if antialias else -0.75
    return _arrays.interpolate(x, [axis], [size], [scale], mode, coordinates, antialias=antialias, cubic=cubic,
                               exclude_outside=antialias)  # fmt: skip


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
