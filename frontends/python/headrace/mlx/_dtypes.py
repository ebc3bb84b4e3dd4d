"""Dtypes and their categories with MLX's names."""

from headrace import _arrays
from headrace._arrays import Array

_PARENTS = {
    "generic": None,
    "number": "generic",
    "integer": "number",
    "signedinteger": "integer",
    "unsignedinteger": "integer",
    "inexact": "number",
    "floating": "inexact",
    "complexfloating": "inexact",
}


class DtypeCategory:
    """A set of dtypes."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"DtypeCategory.{self.name}"

    def __reduce__(self):
        return self.name


generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating = map(
    DtypeCategory, _PARENTS
)
for _category in (generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating):
    setattr(DtypeCategory, _category.name, _category)


def _category_of(dtype):
    name = dtype.name
    starts = (("bool", "generic"), ("uint", "unsignedinteger"), ("int", "signedinteger"))
    starts += (("complex", "complexfloating"),)
    return next((category for start, category in starts if name.startswith(start)), "floating")


def issubdtype(arg1, arg2):
    """True if a dtype or category is in a category, or is the same dtype."""
    if not isinstance(arg2, DtypeCategory):
        return arg1 == arg2
    name = arg1.name if isinstance(arg1, DtypeCategory) else _category_of(arg1)
    while name is not None and name != arg2.name:
        name = _PARENTS[name]
    return name is not None


def _dtype_of(x):
    return x.dtype if isinstance(x, Array) else x


def result_type(*arrays_and_dtypes):
    """The dtype of an operation on these arrays and dtypes."""
    if not arrays_and_dtypes:
        raise ValueError("result_type: expected at least one array or dtype")
    dtypes = [_dtype_of(x) for x in arrays_and_dtypes]
    result = _arrays.zeros((0,), dtypes[0])
    for dtype in dtypes[1:]:
        result = result + _arrays.zeros((0,), dtype)
    return result.dtype


def can_cast(from_, to):
    """True if a dtype, or that of an array, becomes the other one in an operation with it."""
    return result_type(from_, to) == to


