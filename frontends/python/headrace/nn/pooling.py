"""Pools of x [N, L, C], [N, H, W, C] or [N, D, H, W, C]; sizes are integers, or tuples of one for each spatial dim."""

from headrace import _arrays
from headrace.nn.convolution import channels_last, channels_second, per_dim
from headrace.nn.module import Module, _is_floating


class _Pool(Module):
    """One number for each window and channel: [N, .., C], each spatial dim (L + 2 padding - kernel) / stride + 1. By
    default the stride is the window's size. _N: the number of spatial dims."""

    _N = 0

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        who = type(self).__name__
        self._kernel_size = per_dim(who, "kernel_size", kernel_size, self._N)
        self._stride = self._kernel_size if stride is None else per_dim(who, "stride", stride, self._N)
        self._padding = per_dim(who, "padding", padding, self._N)
        for name, values, least in (
            ("kernel_size", self._kernel_size, 1),
            ("stride", self._stride, 1),
            ("padding", self._padding, 0),
        ):
            if min(values) < least:
                raise ValueError(f"{who}: {name} is {values}, expected {least} or more")

    def _extra_repr(self):
        return f"kernel_size={self._kernel_size}, stride={self._stride}, padding={self._padding}"

    def _pool(self, x, function):
        if x.ndim != self._N + 2:
            raise ValueError(f"{type(self).__name__}: x has shape {x.shape}, expected {self._N + 2} dims")
        return channels_last(function(channels_second(x), self["_kernel_size"], self["_stride"], self["_padding"]))


class _MaxPool(_Pool):
    """The largest element of each window."""

    def __call__(self, x):
        return self._pool(x, _arrays.max_pool)


class _AvgPool(_Pool):
    """The mean of each window; padding counts as zeros."""

    def __call__(self, x):
        return self._pool(x if _is_floating(x.dtype) else x.astype(_arrays.float32), _arrays.avg_pool)


class MaxPool1d(_MaxPool):
    """The largest element of each window of x [N, L, C]: [N, (L + 2 padding - kernel_size) / stride + 1, C]."""

    _N = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of x [N, H, W, C]."""

    _N = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window of x [N, D, H, W, C]."""

    _N = 3


class AvgPool1d(_AvgPool):
    """The mean of each window of x [N, L, C]: [N, (L + 2 padding - kernel_size) / stride + 1, C]."""

    _N = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of x [N, H, W, C]."""

    _N = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of x [N, D, H, W, C]."""

    _N = 3
