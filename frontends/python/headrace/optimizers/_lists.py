"""All parameters of a network as one operand: an operation on them is one record for all.

    All([x, y]) * 2 + All([v, w])        All([x * 2 + v, y * 2 + w]), two records instead of four

Operands are arrays of all parameters, or an array or number that all of them share. Results are those of the operation
on each: shapes and dtypes may differ.
"""

from headrace import _arrays


def _operand(x):
    return x.arrays if type(x) is All else x


class All:
    """A list of arrays with the operators of one."""

    __slots__ = ("arrays",)

    def __init__(self, arrays):
        self.arrays = arrays

    def __add__(self, other):
        return All(_arrays._each("add", self.arrays, _operand(other)))

    def __radd__(self, other):
        return All(_arrays._each("add", other, self.arrays))

    def __sub__(self, other):
        return All(_arrays._each("subtract", self.arrays, _operand(other)))

    def __rsub__(self, other):
        return All(_arrays._each("subtract", other, self.arrays))

    def __mul__(self, other):
        return All(_arrays._each("multiply", self.arrays, _operand(other)))

    def __rmul__(self, other):
        return All(_arrays._each("multiply", other, self.arrays))

    def __truediv__(self, other):
        return All(_arrays._each("divide", self.arrays, _operand(other)))

    def __rtruediv__(self, other):
        return All(_arrays._each("divide", other, self.arrays))

    def __abs__(self):
        return All([abs(x) for x in self.arrays])


def map_each(make, like):
    """make(dtype) for the dtype of each array: one array if all have the same."""
    common = _arrays._common_dtype(like.arrays)
    if common is not None:
        return make(common)
    dtypes = [x.dtype for x in like.arrays]
    made = {dtype.name: make(dtype) for dtype in {dtype.name: dtype for dtype in dtypes}.values()}
    return All([made[dtype.name] for dtype in dtypes])


def sqrt(x):
    return All(_arrays._each("sqrt", x.arrays)) if type(x) is All else _arrays.sqrt(x)


def square(x):
    return All(_arrays._each("square", x.arrays)) if type(x) is All else _arrays.square(x)


def maximum(x, y):
    return All(_arrays._each("maximum", x.arrays, _operand(y))) if type(x) is All else _arrays.maximum(x, y)


def sign(x):
    return All([_arrays.sign(y) for y in x.arrays]) if type(x) is All else _arrays.sign(x)
