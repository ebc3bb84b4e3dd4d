"""Linear algebra with MLX's names."""

import math

import headrace as _hr
from headrace import _arrays
from headrace import linalg as _linalg

__all__ = """cholesky cholesky_inv cross det eig eigh eigvals eigvalsh inv lu lu_factor norm pinv qr slogdet solve
solve_triangular svd tri_inv""".split()

_DTYPES = ("float32", "float64", "complex64", "complex128")


def _real_matrices(who, a):
    """Square ones; integers become float32."""
    a = a if a.dtype.name.startswith(("float", "complex")) else a.astype(_arrays.float32)
    if a.dtype.name.startswith("complex"):
        raise ValueError(f"{who}: dtype {a.dtype}, expected a real one")
    return _matrices(who, a, True)


def _matrices(who, a, square=False):
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise ValueError(f"{who}: shape {a.shape}, expected {'square ' * square}matrices")
    if a.dtype.name not in _DTYPES:
        raise ValueError(f"{who}: dtype {a.dtype}, expected float32, float64 or complex64")
    return a


def norm(a, /, ord=None, axis=None, keepdims=False, *, stream=None):
    """A norm of vectors (one axis), of matrices (two axes), or of all elements."""
    if a.dtype.name not in (*_DTYPES, "float16", "bfloat16"):
        a = a.astype(_arrays.float32)
    axis = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    count = a.ndim if axis is None else 1 if isinstance(axis, int) else len(axis)
    if ord is not None and count not in (1, 2):
        raise ValueError(f"norm: {count} axes with ord {ord!r}, expected 1 or 2")
    if isinstance(ord, str) and (count != 2 or ord not in ("fro", "f", "nuc")):
        raise ValueError(f"norm: ord {ord!r} of {count} axes, expected fro or nuc of 2")
    if count == 2 and ord is not None and not isinstance(ord, str) and ord not in (1, -1, 2, -2, math.inf, -math.inf):
        raise ValueError(f"norm: ord {ord!r} of matrices, expected 1, -1, 2, -2, inf or -inf")
    result = _linalg.norm(a, "fro" if ord == "f" else ord, axis, keepdims)
    return _arrays.reshape(result, (1,) * a.ndim) if keepdims and result.ndim != a.ndim else result


def qr(a, *, stream=None):
    """Orthonormal Q and upper R with Q R = a."""
    return tuple(_linalg.qr(_matrices("qr", a)))


def svd(a, compute_uv=True, *, stream=None):
    """U, S and Vt of a = U diag(S) Vt with square U and Vt; S alone without compute_uv."""
    a = _matrices("svd", a)
    return tuple(_linalg.svd(a)) if compute_uv else _arrays.svdvals(a)


def inv(a, *, stream=None):
    """The inverse."""
    return _arrays.inv(_matrices("inv", a, True))


def _identity(a):
    return _arrays.broadcast_to(_arrays.eye(a.shape[-1], dtype=a.dtype), a.shape)


def tri_inv(a, upper=False, *, stream=None):
    """The inverse of a triangular matrix."""
    a = _matrices("tri_inv", a, True)
    return _arrays.solve_triangular(a, _identity(a), upper)


def cholesky(a, upper=False, *, stream=None):
    """L with L L^H = a, or with upper its conjugate transpose."""
    return _arrays.cholesky(_matrices("cholesky", a, True), upper)


def cholesky_inv(a, upper=False, *, stream=None):
    """The inverse of the matrix with this Cholesky factor."""
    inverse = tri_inv(a, upper)
    adjoint = _arrays.conj(inverse.mT)
    return _arrays.matmul(inverse, adjoint) if upper else _arrays.matmul(adjoint, inverse)


def pinv(a, *, stream=None):
    """The pseudo-inverse."""
    return _linalg.pinv(_matrices("pinv", a))


def cross(a, b, axis=-1, *, stream=None):
    """The cross product of vectors of 2 or 3 elements along an axis."""
    if not all(-x.ndim <= axis < x.ndim for x in (a, b)):
        raise ValueError(f"cross: axis {axis} is out of range for {a.ndim} and {b.ndim} dims")
    sizes = [x.shape[axis] for x in (a, b)]
    if any(size not in (2, 3) for size in sizes):
        raise ValueError(f"cross: {sizes[0]} and {sizes[1]} elements along axis {axis}, expected 2 or 3")
    if sizes == [3, 3]:
        return _arrays.cross(a, b, axis)
    a, b = (_in_space(_hr.moveaxis(x, axis, -1)) for x in (a, b))
    result = _arrays.cross(a, b, -1)
    return result[..., 2] if sizes == [2, 2] else _hr.moveaxis(result, -1, axis)


def _in_space(x):
    return x if x.shape[-1] == 3 else _arrays.pad(x, [0] * x.ndim, [0] * (x.ndim - 1) + [1])


def eig(a, *, stream=None):
    """Complex eigenvalues and right vectors (columns), complex64."""
    return tuple(x.astype(_arrays.complex64) for x in _linalg.eig(_matrices("eig", a, True)))


def eigvals(a, *, stream=None):
    """Complex eigenvalues, complex64."""
    return _arrays.eigvals(_matrices("eigvals", a, True)).astype(_arrays.complex64)


def eigh(a, UPLO="L", *, stream=None):
    """Increasing eigenvalues and vectors (columns) of Hermitian matrices, of which one triangle is read."""
    return tuple(_linalg.eigh(_matrices("eigh", a, True), UPLO.upper()))


def eigvalsh(a, UPLO="L", *, stream=None):
    """Increasing eigenvalues of Hermitian matrices, of which one triangle is read."""
    return _arrays.eigvalsh(_matrices("eigvalsh", a, True), UPLO.upper())


def lu(a, *, stream=None):
    """P, L and U with L[P, :] U = a; P are indices."""
    rows, lower, upper = _arrays.lu(_matrices("lu", a))
    return _arrays.argsort(rows, -1).astype(_arrays.uint32), lower, upper


def _pivots(rows):
    """The exchanges that bring these rows to the places 0, 1, ...: one for each row."""
    places, pivots = list(range(len(rows))), []
    for i, row in enumerate(rows):
        j = places.index(row)
        places[i], places[j] = places[j], places[i]
        pivots.append(j)
    return pivots


def lu_factor(a, *, stream=None):
    """L below and U above the diagonal of one matrix, and the row with which each row was exchanged, uint32."""
    rows, lower, upper = _arrays.lu(_matrices("lu_factor", a))
    k = min(a.shape[-2:])
    packed = _arrays.tril(lower, -1)
    packed = _arrays.pad(packed, [0] * a.ndim, [0] * (a.ndim - 1) + [a.shape[-1] - packed.shape[-1]])
    above = _arrays.pad(upper, [0] * a.ndim, [0] * (a.ndim - 2) + [a.shape[-2] - upper.shape[-2], 0])
    flat = _arrays.reshape(rows, (-1, rows.shape[-1])).tolist()
    pivots = [_pivots(row)[:k] for row in flat]
    return packed + above, _arrays.reshape(_arrays.array(pivots, dtype=_arrays.uint32), (*rows.shape[:-1], k))


def solve(a, b, *, stream=None):
    """x with a x = b."""
    return _arrays.solve(_matrices("solve", a, True), b)


def solve_triangular(a, b, *, upper=False, stream=None):
    """x with a x = b for a triangular a."""
    a = _matrices("solve_triangular", a, True)
    is_vector = b.ndim < a.ndim and b.ndim == 1
    x = _arrays.solve_triangular(a, _arrays.expand_dims(b, -1) if is_vector else b, upper)
    return _arrays.squeeze(x, -1) if is_vector else x


def det(a, *, stream=None):
    """The determinant."""
    return _arrays.det(_real_matrices("det", a))


def slogdet(a, *, stream=None):
    """Sign and logarithm of the absolute value of the determinant."""
    return tuple(_linalg.slogdet(_real_matrices("slogdet", a)))
