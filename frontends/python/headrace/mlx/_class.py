"""What the class of arrays has under MLX's rules: methods with MLX's names, arguments and dtypes."""

from headrace import _arrays, transforms
from headrace._arrays import Array
from headrace.mlx import _operations, _shapes, _text


def _axis_arguments(function):
    """x.transpose(0, 2, 1) and x.transpose((0, 2, 1))"""

    def method(self, *axes, **names):
        if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], int)):
            axes = axes[0]
        return function(self, axes if axes is None or len(axes) > 0 else None, **names)

    return method


_OPERATIONS = """abs all any argmax argmin conj cos cummax cummin cumprod cumsum exp imag log log10 log1p log2
logcumsumexp logsumexp max mean min prod real reciprocal round rsqrt sin sqrt square std sum var""".split()
_SHAPES = "diag diagonal flatten moveaxis split squeeze swapaxes view".split()
_PROPERTIES = {"imag", "real"}


def _astype(self, dtype, stream=None):
    """Converted by C's rules."""
    return _arrays.astype(self, dtype)


def _reshape(self, *shape, stream=None):
    """The elements in row-major order with other dims; one of them may be -1."""
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return _arrays.reshape(self, tuple(shape))


def _namespace(self, api_version=None):
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"api_version is {api_version!r}, expected one of 2021.12 to 2024.12")
    import headrace.mlx.core

    return headrace.mlx.core


class ArrayAt:
    """x.at, which takes an index."""

    __slots__ = ("_x",)

    def __init__(self, x):
        self._x = x

    def __getitem__(self, key):
        from headrace._at import _Place

        return _Place(self._x, key)

    def __getattr__(self, name):
        raise ValueError(f"x.at.{name}: there is no index, expected x.at[...].{name}")


def _methods():
    methods = {name: getattr(_operations, name) for name in _OPERATIONS if name not in _PROPERTIES}
    methods.update({name: getattr(_shapes, name) for name in _SHAPES})
    methods.update(astype=_astype, reshape=_reshape, transpose=_axis_arguments(_shapes.transpose))
    methods.update(__repr__=_text.text_of, __str__=_text.text_of, __format__=_text.format_of)
    methods.update(__array_namespace__=_namespace, __hash__=object.__hash__, at=property(ArrayAt))
    methods.update({name: property(getattr(_operations, name)) for name in _PROPERTIES})
    return methods


def install():
    """Sets MLX's rules and methods for the process."""
    _arrays._follow_mlx()
    transforms._Rules.follows_mlx = True
    if "__array_priority__" in Array.__dict__:
        del Array.__array_priority__  # as in MLX, numpy's operators return numpy's arrays
    for name, method in _methods().items():
        setattr(Array, name, method)
