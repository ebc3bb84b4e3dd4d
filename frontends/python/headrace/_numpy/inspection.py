"""Questions about arrays and dtypes: array_equiv, iscomplexobj, promote_types, ..."""

import headrace as hr
from headrace._numpy.arguments import array_of, is_complex
from headrace._numpy.shapes import broadcast_shapes

__all__ = [
    "array_equiv", "common_type", "iscomplexobj", "isrealobj", "isscalar", "iterable", "may_share_memory",
    "promote_types", "shares_memory",
]  # fmt: skip


def array_equiv(a1, a2):
    """True if both have the same elements after they are broadcast."""
    a1, a2 = array_of(a1), array_of(a2)
    try:
        broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return hr.array(False)
    return hr.all(a1 == a2)


def promote_types(type1, type2):
    """The dtype of an operation on arrays of these dtypes."""
    return hr.result_type(*(hr.zeros((), dtype=one).dtype for one in (type1, type2)))


def common_type(*arrays):
    """The floating dtype of an operation on these arrays."""
    return hr.result_type(*map(array_of, arrays), 1.0)


def iscomplexobj(x):
    """True if the dtype is complex."""
    return is_complex(array_of(x))


def isrealobj(x):
    """True if the dtype is not complex."""
    return not iscomplexobj(x)


def isscalar(element):
    """True for a number or a text of Python, or a scalar of NumPy; an array without dims is none."""
    if isinstance(element, (int, float, complex, str, bytes)):
        return True
    return type(element).__module__ == "numpy" and type(element).__name__ != "ndarray" and hasattr(element, "dtype")


def iterable(y):
    """True if iter(y) works."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


def shares_memory(a, b, max_work=None):
    """True for an array and itself: a write to one array is never visible in another."""
    return a is b


may_share_memory = shares_memory
