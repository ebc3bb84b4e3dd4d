"""NumPy's methods of arrays: those that are functions of this package with the array first."""

import importlib

# Methods by the module of their functions.
_FUNCTIONS = {
    "_numpy.ordering": ["argpartition", "argsort", "sort"],
    "_numpy.selection": ["choose", "diagonal", "take", "trace"],
    "_numpy.shapes": ["ravel"],
    "_numpy.statistics": ["cumprod", "cumsum", "std", "var"],
    "_numpy.products": ["dot"],
    "standard": ["nonzero", "repeat", "searchsorted"],
}
_OWN = ["compress", "conj", "conjugate", "fill", "flatten", "swapaxes", "tobytes", "transpose"]


class _Late:
    """A method that is loaded when it is first used."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __get__(self, x, kind=None):
        function = getattr(importlib.import_module("headrace." + self.module), self.name)
        setattr(kind or type(x), self.name, function)
        return function if x is None else function.__get__(x)


def attach(Array):
    """Gives the type of arrays these methods; called when the extension is loaded."""
    for module, names in _FUNCTIONS.items():
        for name in names:
            setattr(Array, name, _Late(module, name))
    for name in _OWN:
        setattr(Array, name, _Late("_numpy.methods", name))


def compress(x, condition, axis=None):
    """The slices along an axis, or elements of the flattened array, where the condition is true."""
    import headrace as hr

    return hr.compress(condition, x, axis)


def conj(x):
    """The complex conjugate."""
    import headrace as hr

    return hr.conj(x)


def conjugate(x):
    """The complex conjugate."""
    return conj(x)


def fill(x, value):
    """Sets all elements, of this array alone."""
    x[...] = value


def flatten(x, order="C"):
    """The elements in one dim."""
    import headrace as hr

    return hr.ravel(x, order)


def swapaxes(x, axis1, axis2):
    """Two dims in each other's place."""
    import headrace as hr

    return hr.swapaxes(x, axis1, axis2)


def tobytes(x, order="C"):
    """The elements' bytes; waits."""
    import headrace as hr

    return bytes(memoryview(hr.array(hr.ravel(x, order))))


def transpose(x, *axes):
    """The dims in the order of axes, a tuple or numbers; without them in reverse order."""
    import headrace as hr

    axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return hr.permute_dims(x, tuple(axes) if axes else None)
