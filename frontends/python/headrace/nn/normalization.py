"""Norms: x less its mean, divided by its deviation, sqrt(variance + eps), then times weight plus bias."""

import math

from headrace import _arrays
from headrace._arrays import float32
from headrace.nn.convolution import channels_last, channels_second
from headrace.nn.module import Module

_HALVES = frozenset({"float16", "bfloat16"})


class _Norm(Module):
    """A norm with weight and bias of the channels, which are the last dim; affine=False: without them."""

    def __init__(self, dims, eps, affine, bias=True):
        super().__init__()
        if not eps > 0:
            raise ValueError(f"{type(self).__name__}: eps is {eps}, must be positive")
        self.eps = eps
        if affine:
            self.weight = _arrays.ones((dims,))
            if bias:
                self.bias = _arrays.zeros((dims,))

    def _scaled(self, x):
        return self["weight"] * x + self["bias"] if "weight" in self else x


class LayerNorm(_Norm):
    """The norm of x [.., dims] over its last dim."""

    def __init__(self, dims, eps=1e-5, affine=True, bias=True):
        super().__init__(dims, eps, affine, bias)
        self.dims = dims

    def _extra_repr(self):
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"

    def __call__(self, x):
        return _arrays.layer_norm(x, self.get("weight"), self.get("bias"), 1, self.eps)


class RMSNorm(_Norm):
    """x [.., dims] / sqrt(mean(x * x) + eps) * weight over its last dim."""

    def __init__(self, dims, eps=1e-5):
        super().__init__(dims, eps, affine=True, bias=False)

    def _extra_repr(self):
        return f"{self.weight.shape[0]}, eps={self.eps}"

    def __call__(self, x):
        return _arrays.rms_norm(x, self["weight"], self.eps)


class InstanceNorm(_Norm):
    """The norm of each channel of each x [N, .., C] over its spatial dims."""

    def __init__(self, dims, eps=1e-5, affine=False):
        super().__init__(dims, eps, affine)
        self.dims = dims

    def _extra_repr(self):
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"

    def __call__(self, x):
        if x.ndim < 3:
            raise ValueError(f"InstanceNorm: x has shape {x.shape}, expected 3 dims or more")
        return self._scaled(channels_last(_arrays.layer_norm(channels_second(x), None, None, x.ndim - 2, self.eps)))


class GroupNorm(_Norm):
    """The norm of each group of channels of each x [N, .., C] over its spatial dims and channels. Channel c belongs to
    group c % num_groups; with pytorch_compatible groups are channels side by side."""

    def __init__(self, num_groups, dims, eps=1e-5, affine=True, pytorch_compatible=False):
        if num_groups < 1 or dims < 1 or dims % num_groups:
            raise ValueError(f"GroupNorm: {dims} channels and {num_groups} groups, expected a divisor")
        super().__init__(dims, eps, affine)
        self.num_groups, self.dims, self.pytorch_compatible = num_groups, dims, pytorch_compatible

    def _extra_repr(self):
        return (
            f"{self.num_groups}, {self.dims}, eps={self.eps}, affine={'weight' in self}, "
            f"pytorch_compatible={self.pytorch_compatible}"
        )

    def __call__(self, x):
        if x.ndim < 2 or x.shape[-1] != self.dims:
            raise ValueError(f"GroupNorm: x has shape {x.shape}, expected {self.dims} channels in its last dim")
        groups, places = self.num_groups, x.ndim - 2
        parts, axis = (self.dims // groups, groups), places + 2  # of the groups
        if self.pytorch_compatible:
            parts, axis = parts[::-1], places + 1
        y = _arrays.moveaxis(x.reshape((*x.shape[:-1], *parts)), axis, 1)
        y = _arrays.layer_norm(y, None, None, places + 1, self.eps)
        return self._scaled(_arrays.moveaxis(y, 1, axis).reshape(x.shape))


class BatchNorm(_Norm):
    """The norm of each channel of x [N, C], [N, L, C] or [N, H, W, C] over all other dims. In training the running mean
    and variance become (1 - momentum) times themselves plus momentum times those of x; in evaluation they are used. They
    stay frozen."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__(num_features, eps, affine)
        self.num_features, self.momentum, self.track_running_stats = num_features, momentum, track_running_stats
        if track_running_stats:
            self.running_mean, self.running_var = _arrays.zeros((num_features,)), _arrays.ones((num_features,))
            self._unfreeze_own([])

    def _unfreeze_own(self, keys):
        super()._unfreeze_own(keys)
        self._no_grad.update(name for name in ("running_mean", "running_var") if name in self)

    def _extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={'weight' in self}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _track(self, mean, var, count):
        """count: of elements of x for each channel."""
        for name, new in (("running_mean", mean), ("running_var", var * (count / (count - 1)))):
            old = self[name]
            self[name] = (1 - self.momentum) * old + self.momentum * new.astype(old.dtype)

    def __call__(self, x):
        if not 2 <= x.ndim <= 4:
            raise ValueError(f"BatchNorm: x has shape {x.shape}, expected 2 to 4 dims")
        count = math.prod(x.shape[:-1])
        if self._training and count == 1:
            raise ValueError(f"BatchNorm: x has shape {x.shape}, expected more than one element of each channel")
        wide = x.astype(float32) if x.dtype.name in _HALVES else x
        if self._training or not self.track_running_stats:
            axes = tuple(range(x.ndim - 1))
            mean, var = _arrays.mean(wide, axis=axes), _arrays.var(wide, axis=axes)
            if self._training and self.track_running_stats:
                self._track(mean, var, count)
        else:
            mean, var = self["running_mean"], self["running_var"]
        return self._scaled(((wide - mean) * _arrays.rsqrt(var + self.eps)).astype(x.dtype))
