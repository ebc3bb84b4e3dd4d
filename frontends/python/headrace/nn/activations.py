"""Activations: functions, and layers that apply them element-wise or along one axis."""

from headrace import _arrays
from headrace._arrays import (
    celu,
    elu,
    gelu,
    glu,
    hardswish,
    log_sigmoid,
    log_softmax,
    mish,
    relu,
    relu2,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softsign,
    tanh,
)
from headrace.nn.module import Module



def gelu_approx(x):
    """gelu by a tanh."""
    return gelu(x, "tanh")


def gelu_fast_approx(x):
    """gelu as x * sigmoid(1.702 * x)."""
    return gelu(x, "sigmoid")


def hard_shrink(x, lambd=0.5):
    """0 inside [-lambd, lambd], else x."""
    return _arrays.hard_shrink(x, lambd)


def hard_tanh(x, min_val=-1.0, max_val=1.0):
    """x bounded to [min_val, max_val]."""
    return _arrays.hard_tanh(x, min_val, max_val)


def leaky_relu(x, negative_slope=0.01):
    """x if x > 0, else negative_slope * x."""
    return _arrays.leaky_relu(x, negative_slope)


def prelu(x, alpha):
    """x if x > 0, else alpha * x; alpha is an array."""
    return _arrays.prelu(x, alpha)


def softshrink(x, lambd=0.5):
    """x moved by lambd towards 0; 0 inside [-lambd, lambd]."""
    return _arrays.softshrink(x, lambd)


def step(x, threshold=0.0):
    """1 if x >= threshold, else 0, in int32."""
    return (x >= threshold).astype(_arrays.int32)


# ---- layers


def _layer(name, function):
    """A class of layers that apply a function."""
    doc = f"The function {function.__name__} as a layer."
    members = {"__call__": lambda self, x: function(x), "__doc__": doc, "__module__": __name__}
    return type(name, (Module,), members)


HardTanh = _layer("HardTanh", hard_tanh)
Hardswish = _layer("Hardswish", hardswish)
LogSigmoid = _layer("LogSigmoid", log_sigmoid)
LogSoftmax = _layer("LogSoftmax", log_softmax)
Mish = _layer("Mish", mish)
ReLU = _layer("ReLU", relu)
ReLU2 = _layer("ReLU2", relu2)
ReLU6 = _layer("ReLU6", relu6)
SELU = _layer("SELU", selu)
SiLU = _layer("SiLU", silu)
Sigmoid = _layer("Sigmoid", sigmoid)
Softmax = _layer("Softmax", softmax)
Softmin = _layer("Softmin", softmin)
Softplus = _layer("Softplus", softplus)
Softsign = _layer("Softsign", softsign)
Tanh = _layer("Tanh", tanh)


class _Parametric(Module):
    """A function with a second argument, which is the layer's."""

    def __init__(self, function, argument):
        super().__init__()
        self._function, self._argument = function, argument

    def __call__(self, x):
        return self._function(x, self._argument)


class CELU(_Parametric):
    """The function celu as a layer."""

    def __init__(self, alpha=1.0):
        super().__init__(celu, alpha)


class ELU(_Parametric):
    """The function elu as a layer."""

    def __init__(self, alpha=1.0):
        super().__init__(elu, alpha)


class GLU(_Parametric):
    """The function glu as a layer."""

    def __init__(self, axis=-1):
        super().__init__(glu, axis)


class HardShrink(_Parametric):
    """The function hard_shrink as a layer."""

    def __init__(self, lambd=0.5):
        super().__init__(hard_shrink, lambd)


class LeakyReLU(_Parametric):
    """The function leaky_relu as a layer."""

    def __init__(self, negative_slope=0.01):
        super().__init__(leaky_relu, negative_slope)


class Softshrink(_Parametric):
    """The function softshrink as a layer."""

    def __init__(self, lambd=0.5):
        super().__init__(softshrink, lambd)


class Step(_Parametric):
    """The function step as a layer."""

    def __init__(self, threshold=0.0):
        super().__init__(step, threshold)


class GELU(_Parametric):
    """gelu as a layer; approx: "none", "precise" or "tanh" for gelu_approx, "fast" for gelu_fast_approx."""

    _APPROXIMATIONS = {"none": "none", "precise": "tanh", "tanh": "tanh", "fast": "sigmoid"}

    def __init__(self, approx="none"):
        if approx not in self._APPROXIMATIONS:
            raise ValueError(f"GELU: approx is {approx!r}, expected one of {list(self._APPROXIMATIONS)}")
        super().__init__(gelu, self._APPROXIMATIONS[approx])


class PReLU(Module):
    """The function prelu as a layer with slopes that are trained: one, or one for each channel (last dim)."""

    def __init__(self, num_parameters=1, init=0.25):
        super().__init__()
        self.weight = _arrays.full([num_parameters], init, dtype=_arrays.float32)

    def __call__(self, x):
        return prelu(x, self["weight"])
