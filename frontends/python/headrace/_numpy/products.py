"""Products of arrays: dot, vdot, einsum, ..."""

import string

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import array_of, is_complex
from headrace._numpy.shapes import ravel

__all__ = ["dot", "einsum", "matvec", "vdot", "vecmat"]


def dot(a, b):
    """The sum of products over a's last axis and b's last but one, or only axis; of numbers their product."""
    a, b = array_of(a), array_of(b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    axis = b.ndim - 2 if b.ndim > 1 else 0
    if a.shape[-1] != b.shape[axis]:
        raise ValueError(f"dot: shapes {a.shape} and {b.shape} do not fit: {a.shape[-1]} != {b.shape[axis]}")
    return hr.tensordot(a, b, axes=((a.ndim - 1,), (axis,)))


def vdot(a, b):
    """The sum of products of the flattened arrays, of which a is conjugated."""
    return hr.vecdot(ravel(a), ravel(b))


def matvec(x1, x2):
    """Matrices times vectors; other dims are broadcast."""
    return hr.matmul(array_of(x1), array_of(x2)[..., None])[..., 0]


def vecmat(x1, x2):
    """Conjugated vectors times matrices; other dims are broadcast."""
    x1 = array_of(x1)
    return hr.matmul((hr.conj(x1) if is_complex(x1) else x1)[..., None, :], array_of(x2))[..., 0, :]


def _letters(dims):
    """Lists of numbers, and Ellipsis, as letters."""
    return "".join("..." if dim is Ellipsis else string.ascii_letters[dim] for dim in dims)


def einsum(*operands, optimize=False):
    """Sums of products over named dims: einsum("ij,jk->ik", a, b), or einsum(a, [0, 1], b, [1, 2], [0, 2]), or
    einsum([a, b], "ij,jk->ik"). The core chooses the order of products."""
    if isinstance(operands[0], str):
        return _arrays.einsum(list(operands[1:]), operands[0])
    if len(operands) == 2 and isinstance(operands[1], str):
        return _arrays.einsum(list(operands[0]), operands[1])
    pairs = len(operands) // 2
    equation = ",".join(_letters(dims) for dims in operands[1 : 2 * pairs : 2])
    if len(operands) % 2:
        equation += "->" + _letters(operands[-1])
    return _arrays.einsum(list(operands[: 2 * pairs : 2]), equation)
