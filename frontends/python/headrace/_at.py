"""x.at[...]: new arrays with updated elements, as in JAX and MLX."""

from headrace import _arrays

_SET, _ADD, _MULTIPLY, _MAX, _MIN = range(5)  # hr_update of headrace/array.h


class _Place:
    """The elements of an array at an index. x does not change: each method returns a new array.

    An element that arrays of indices name twice is combined with both values; set keeps one of them."""

    __slots__ = ("_x", "_key")

    def __init__(self, x, key):
        self._x, self._key = x, key

    def get(self):
        """x[...]"""
        return self._x[self._key]

    def set(self, value):
        """x with the value there."""
        return _arrays._updated(self._x, self._key, value, _SET)

    def add(self, value):
        """x with the value added there."""
        return _arrays._updated(self._x, self._key, value, _ADD)

    def subtract(self, value):
        """x with the value subtracted there."""
        return self.add(_arrays.negative(value))

    def multiply(self, value):
        """x multiplied by the value there."""
        return _arrays._updated(self._x, self._key, value, _MULTIPLY)

    def divide(self, value):
        """x divided by the value there."""
        return self.multiply(_arrays.reciprocal(value))

    def maximum(self, value):
        """The larger one of x and the value there."""
        return _arrays._updated(self._x, self._key, value, _MAX)

    def minimum(self, value):
        """The smaller one of x and the value there."""
        return _arrays._updated(self._x, self._key, value, _MIN)

    max, min = maximum, minimum


class At:
    """x.at, which takes an index: x.at[0].add(1)."""

    __slots__ = ("_x",)

    def __init__(self, x):
        self._x = x

    def __getitem__(self, key):
        return _Place(self._x, key)
