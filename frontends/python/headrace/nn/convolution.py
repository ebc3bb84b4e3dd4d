"""Convolutions and transposed ones, of x [N, L, C], [N, H, W, C] or [N, D, H, W, C] with weight [O, .., C / groups].

Sizes, strides and so on are integers, or tuples of one for each spatial dim.
"""

import math

from headrace import _arrays
from headrace.nn.linear import add_bias, uniform
from headrace.nn.module import Module


def per_dim(who, name, value, n):
    """A tuple of n integers, of one integer or as many."""
    values = (value,) * n if isinstance(value, int) else value
    if not isinstance(values, (tuple, list)) or len(values) != n or not all(isinstance(i, int) for i in values):
        raise ValueError(f"{who}: {name} is {value!r}, expected an integer or a tuple of {n}")
    return tuple(values)


def channels_second(x):
    """A view [N, C, ..] of x [N, .., C]."""
    return _arrays.moveaxis(x, -1, 1)


def channels_last(x):
    """A view [N, .., C] of x [N, C, ..]."""
    return _arrays.moveaxis(x, 1, -1)


class _Convolution(Module):
    """What convolutions and transposed ones have in common. _N: the number of spatial dims."""

    _N = 0
    _SIZES = ("stride", "padding", "dilation", "output_padding", "groups")

    def __init__(self, in_channels, out_channels, kernel_size, groups, bias, **sizes):
        super().__init__()
        who = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{who}: {in_channels} input and {out_channels} output channels, groups is {groups}, expected a divisor"
            )
        for name, value in sizes.items():
            values = per_dim(who, name, value, self._N)
            setattr(self, name, values if self._N > 1 else values[0])
        kernel = per_dim(who, "kernel_size", kernel_size, self._N)
        self.weight = uniform(
            math.sqrt(1 / (in_channels * math.prod(kernel))), out_channels, *kernel, in_channels // groups
        )
        if bias:
            self.bias = _arrays.zeros((out_channels,))
        self.groups = groups

    def _sizes(self, *names):
        """Tuples of integers, for a call."""
        return [(getattr(self, name),) for name in names] if self._N == 1 else [self[name] for name in names]

    def _check_rank(self, x):
        if x.ndim != self._N + 2:
            raise ValueError(f"{type(self).__name__}: x has shape {x.shape}, expected {self._N + 2} dims")

    def _extra_repr(self):
        out, *kernel, channels = self.weight.shape
        kernel = kernel[0] if self._N == 1 else tuple(kernel)
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in self._SIZES if hasattr(self, name))
        return f"{channels * self.groups}, {out}, kernel_size={kernel}, {sizes}, bias={'bias' in self}"


class _Conv(_Convolution):
    """sum(x at the window's place * weight) + bias: [N, .., O]."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True):
        sizes = {"stride": stride, "padding": padding, "dilation": dilation}
        super().__init__(in_channels, out_channels, kernel_size, groups, bias, **sizes)

    def __call__(self, x):
        self._check_rank(x)
        stride, padding, dilation = self._sizes("stride", "padding", "dilation")
        x, weight = channels_second(x), channels_second(self["weight"])
        return channels_last(_arrays.conv(x, weight, self.get("bias"), stride, padding, padding, dilation, self.groups))


class Conv1d(_Conv):
    """A convolution of x [N, L, C] with zeros at both ends (padding): [N, (L + 2 padding - dilation (kernel - 1) - 1) /
    stride + 1, O]."""

    _N = 1


class Conv2d(_Conv):
    """A convolution of x [N, H, W, C]: [N, .., O], each spatial dim as in Conv1d."""

    _N = 2


class Conv3d(_Conv):
    """A convolution of x [N, D, H, W, C]: [N, .., O], each spatial dim as in Conv1d."""

    _N = 3

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, bias=True):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, 1, bias)


class _ConvTranspose(_Convolution):
    """The gradient of a convolution by its input, plus bias: [N, .., O]."""

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, output_padding=0, bias=True
    ):
        sizes = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
        super().__init__(in_channels, out_channels, kernel_size, 1, bias, **sizes)

    def __call__(self, x):
        self._check_rank(x)
        stride, before, dilation, more = self._sizes("stride", "padding", "dilation", "output_padding")
        after = [removed - added for removed, added in zip(before, more)]
        weight = _arrays.swapaxes(channels_second(self["weight"]), 0, 1)
        return add_bias(
            self, channels_last(_arrays.conv_transpose(channels_second(x), weight, stride, before, after, dilation))
        )


class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution of x [N, L, C]: [N, (L - 1) stride - 2 padding + dilation (kernel - 1) + output_padding +
    1, O]."""

    _N = 1


class ConvTranspose2d(_ConvTranspose):
    """A transposed convolution of x [N, H, W, C]: [N, .., O], each spatial dim as in ConvTranspose1d."""

    _N = 2


class ConvTranspose3d(_ConvTranspose):
    """A transposed convolution of x [N, D, H, W, C]: [N, .., O], each spatial dim as in ConvTranspose1d."""

    _N = 3
