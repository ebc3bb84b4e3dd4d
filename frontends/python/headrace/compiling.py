"""compile: a function's operations are captured once and replayed. docs/arrays.md describes it."""

import functools

from headrace import _arrays

__all__ = ["compile"]


def compile(fun, inputs=None, outputs=None, shapeless=False):
    """A function with fun's results, whose operations are captured in the first call for given arguments: shapes, dtypes
    and structure of arrays, and values of numbers and other constants. Later calls run what was captured.

    inputs and outputs are trees of arrays that fun reads and changes beside its arguments: lists, dicts and objects
    with an attribute `state`. Other arrays are constants, and other side effects happen in the first call alone.

    shapeless is for programs of MLX; results do not depend on it.
    """
    if not callable(fun):
        raise TypeError(f"compile: {fun!r} is not a function")
    return functools.update_wrapper(_arrays._compile(fun, inputs, outputs), fun, updated=())
