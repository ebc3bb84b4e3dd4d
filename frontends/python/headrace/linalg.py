"""Linear algebra on the last two dims, as in the array API standard and numpy.linalg.

    q, r = hr.linalg.qr(x)
    z = hr.linalg.solve(x, y)

A decomposition that fails, as of a singular matrix in `solve`, raises when the result is needed.
"""

from collections import namedtuple

import headrace._arrays as _hr
from headrace._arrays import (
    cholesky,
    cholesky_ex,
    cross,
    det,
    diagonal,
    eig_ex,
    eigh_ex,
    eigvals,
    eigvalsh,
    geqp3,
    geqrf,
    hessenberg,
    householder_product,
    inv,
    lu,
    lu_factor,
    lu_permutation,
    matmul,
    ormqr,
    outer,
    schur,
    solve,
    solve_triangular,
    svd_ex,
    svdvals,
    trace,
    tridiagonal,
    tridiagonal_solve,
    vecdot,
    vector_norm,
)
from headrace.standard import result_type, tensordot
from headrace.transforms import custom_function

__all__ = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eig_ex",
    "eigh",
    "eigh_ex",
    "eigvals",
    "eigvalsh",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_permutation",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "ormqr",
    "outer",
    "pinv",
    "qr",
    "schur",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svd_ex",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "tridiagonal",
    "tridiagonal_solve",
    "vecdot",
    "vector_norm",
]

EigResult = namedtuple("EigResult", "eigenvalues eigenvectors")
EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")

_EPS = {"float32": 2.0**-23, "complex64": 2.0**-23, "float64": 2.0**-52, "complex128": 2.0**-52}


def eig(x):
    """Complex eigenvalues and right vectors (columns)."""
    return EigResult(*_hr.eig(x))


def eigh(x, UPLO="L"):
    """Increasing eigenvalues and vectors (columns) of Hermitian matrices, of which one triangle is read."""
    return EighResult(*_hr.eigh(x, UPLO))


def _adjoint(x):
    return _hr.conj(x).mT


@custom_function
def _reduced_qr(x):
    return tuple(_hr.qr(x, "reduced"))


# Of A = Q R with a real diagonal of R, for at least as many rows as columns: with C = dA R^-1, S = Q^H C and its skew
# part W = L - L^H + i Im diag(S), L = tril(S, -1), dQ = Q (W - S) + C and dR = (S - W) R. The further columns of a wide
# matrix are Q^H A2 in R.


def _over(x, r):
    """x R^-1"""
    return _adjoint(solve_triangular(_adjoint(r), _adjoint(x)))


def _diagonal_angle(x):
    """i Im diag(x), as matrices; 0 for real numbers."""
    eye = _hr.eye(x.shape[-1], dtype=x.dtype)
    return (x - _hr.conj(x)) / 2 * eye if "complex" in str(x.dtype) else _hr.zeros_like(x)


def _qr_product(x, dx, q, r):
    c = _over(dx, r)
    s = matmul(_adjoint(q), c)
    low = _hr.tril(s, -1)
    w = low - _adjoint(low) + _diagonal_angle(s)
    return matmul(q, w - s) + c, matmul(s - w, r)


@_reduced_qr.jvp
def _(x, dx):
    q, r = _reduced_qr(x)
    rows, columns = x.shape[-2:]
    if rows >= columns:
        return _qr_product(x, dx, q, r)
    dq, dr = _qr_product(x[..., :rows], dx[..., :rows], q, r[..., :rows])
    more = matmul(_adjoint(dq), x[..., rows:]) + matmul(_adjoint(q), dx[..., rows:])
    return dq, _hr.concat([dr, more], -1)


def _qr_gradient(of_q, of_r, q, r):
    inner = matmul(_adjoint(q), of_q)
    product = matmul(of_r, _adjoint(r))
    p = inner - product
    turn = _hr.tril(p - _adjoint(p), -1) + _diagonal_angle(p) + product
    c = matmul(q, turn - inner) + of_q
    return _adjoint(solve_triangular(r, _adjoint(c), True))


@_reduced_qr.vjp
def _(x, cotangents, outputs):
    (of_q, of_r), (q, r) = cotangents, outputs
    rows, columns = x.shape[-2:]
    of_r = _hr.triu(of_r)
    if rows >= columns:
        return _qr_gradient(of_q, of_r, q, r)
    more = of_r[..., rows:]
    of_q = of_q + matmul(x[..., rows:], _adjoint(more))
    return _hr.concat([_qr_gradient(of_q, of_r[..., :rows], q, r[..., :rows]), matmul(q, more)], -1)


def qr(x, mode="reduced"):
    """Orthonormal Q and upper R with Q R = x; mode: reduced, complete, r (R alone). Of more rows than columns complete
    has no gradient."""
    x = _matrices("qr", x)
    has_words = mode in ("reduced", "complete", "r")
    if isinstance(x, _hr.Value) and has_words:  # the row, which has no gradient
        result = QRResult(*_hr.qr(x, "complete" if mode == "complete" else "reduced"))
        return result.R if mode == "r" else result
    if mode == "complete" and x.shape[-2] > x.shape[-1] or not has_words:
        return QRResult(*_hr.qr(x, mode))
    result = QRResult(*_reduced_qr(x))
    return result.R if mode == "r" else result


def slogdet(x):
    """Sign and logarithm of the absolute value of the determinant."""
    return SlogdetResult(*_hr.slogdet(x))


def svd(x, full_matrices=True):
    """U diag(S) Vh = x with orthonormal U and Vh, S decreasing."""
    return SVDResult(*_hr.svd(x, full_matrices))


def matrix_transpose(x):
    """The matrices transposed, a view."""
    return _hr.swapaxes(x, -2, -1)


def _operand(x):
    """An array, or a value of a graph."""
    return x if isinstance(x, _hr.Value) else _hr.asarray(x)


def _matrices(name, x):
    x = _operand(x)
    if x.ndim < 2:
        raise ValueError(f"{name}: {x.ndim} dims, expected at least 2")
    return x


def _bound(x, values, rtol):
    """The singular values up to this are 0: rtol times the largest one."""
    if rtol is None:
        rtol = max(x.shape[-2:]) * _EPS.get(values.dtype.name, 0)
    rtol = _hr.asarray(rtol, dtype=values.dtype)
    return _hr.expand_dims(rtol, -1) * _hr.max(values, -1, True)


def pinv(x, rtol=None):
    """Pseudo-inverse; singular values up to rtol times the largest count as 0."""
    x = _matrices("pinv", x)
    if 0 in x.shape:
        dtype = x.dtype if x.dtype.name in _EPS else "float32"
        return _hr.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype=dtype)
    u, s, vh = _hr.svd(x, False)
    inverse = _hr.where(s > _bound(x, s, rtol), _hr.reciprocal(s), 0)
    return _hr.matmul(matrix_transpose(_hr.conj(vh)) * _hr.expand_dims(inverse, -2), matrix_transpose(_hr.conj(u)))


def matrix_rank(x, rtol=None):
    """The number of singular values above rtol times the largest."""
    x = _matrices("matrix_rank", x)
    if 0 in x.shape:
        return _hr.zeros(x.shape[:-2], dtype="int64")
    s = _hr.svdvals(x)
    return _hr.count_nonzero(s > _bound(x, s, rtol), -1)


def matrix_power(x, n):
    """x multiplied n times; the inverse for negative n."""
    x = _matrices("matrix_power", x)
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrix_power: dims {list(x.shape)}, expected square matrices")
    if not isinstance(n, int):
        raise TypeError(f"matrix_power: {n!r} is no integer")
    if n == 0:
        return _hr.broadcast_to(_hr.eye(x.shape[-1], dtype=x.dtype), x.shape)
    power, result = _hr.inv(x) if n < 0 else x, None
    for bit in reversed(bin(abs(n))[2:]):
        if bit == "1":
            result = power if result is None else _hr.matmul(result, power)
        power = _hr.matmul(power, power)
    return result


_SINGULAR = {"nuc": _hr.sum, 2: _hr.max, -2: _hr.min}
_SUMS = {1: (_hr.max, -2), -1: (_hr.min, -2), float("inf"): (_hr.max, -1), float("-inf"): (_hr.min, -1)}


def matrix_norm(x, keepdims=False, ord="fro"):
    """Norm of matrices; ord: fro, nuc (sum of singular values), 1, -1, 2, -2, inf, -inf."""
    x = _matrices("matrix_norm", x)
    if ord == "fro":
        return _hr.vector_norm(x, (-2, -1), keepdims)
    if ord in _SINGULAR:
        result = _SINGULAR[ord](_hr.svdvals(x), -1)
    elif ord in _SUMS:
        reduce, axis = _SUMS[ord]
        result = reduce(_hr.sum(_hr.abs(x), axis), -1)
    else:
        raise ValueError(f"matrix_norm: ord {ord!r}, expected fro, nuc, 1, -1, 2, -2, inf or -inf")
    return _hr.expand_dims(result, (-2, -1)) if keepdims else result


def norm(x, ord=None, axis=None, keepdims=False):
    """Norm of a vector (one axis), of a matrix (two axes), or of all elements (without ord and axis)."""
    x = _operand(x)
    if ord is None:
        return _hr.vector_norm(x, axis, keepdims)
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    if len(axes) == 1:
        return _hr.vector_norm(x, tuple(axes), keepdims, ord)
    if len(axes) != 2:
        raise ValueError(f"norm: {len(axes)} axes with ord {ord!r}, expected 1 or 2")
    first, second = (axis % x.ndim for axis in axes)
    others = [d for d in range(x.ndim) if d not in (first, second)]
    result = matrix_norm(_hr.permute_dims(x, (*others, first, second)), ord=ord)
    return _hr.expand_dims(result, (first, second)) if keepdims else result


def cond(x, p=None):
    """Condition number: norm of x times norm of its inverse."""
    if p in (None, 2, -2):
        s = _hr.svdvals(_matrices("cond", x))
        return _hr.min(s, -1) / _hr.max(s, -1) if p == -2 else _hr.max(s, -1) / _hr.min(s, -1)
    return matrix_norm(x, ord=p) * matrix_norm(_hr.inv(x), ord=p)


def multi_dot(arrays):
    """Product of matrices, in the order with the fewest multiplications; the first and last may be vectors."""
    arrays = [_operand(x) for x in arrays]
    if len(arrays) < 2:
        raise ValueError(f"multi_dot: {len(arrays)} arrays, expected at least 2")
    sizes = [1 if arrays[0].ndim == 1 else arrays[0].shape[0]] + [x.shape[0] for x in arrays[1:]]
    sizes.append(1 if arrays[-1].ndim == 1 else arrays[-1].shape[-1])
    best = {(i, i): (0, None) for i in range(len(arrays))}
    for length in range(1, len(arrays)):
        for i in range(len(arrays) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i, j):
        k = best[i, j][1]
        return arrays[i] if k is None else _hr.matmul(product(i, k), product(k + 1, j))

    return product(0, len(arrays) - 1)


def _least_squares(a, b, rcond):
    """The solution, the rank and the singular values of lstsq, without a wait."""
    u, s, vh = _hr.svd(a, False)
    is_used = s > _bound(a, s, rcond)
    inverse = _hr.where(is_used, _hr.reciprocal(s), 0)
    parts = _hr.matmul(matrix_transpose(_hr.conj(u)), b)
    x = _hr.matmul(matrix_transpose(_hr.conj(vh)), (inverse if b.ndim == 1 else inverse[:, None]) * parts)
    return x, _hr.count_nonzero(is_used), s


def lstsq(a, b, rcond=None):
    """Solutions x with the smallest sums of squares of a x - b, for b [m] or [m, k]; those sums, empty unless a [m, n] has
    rank n < m, which is waited for; the rank of a; its singular values, of which those up to rcond times the largest
    count as 0."""
    a, b = _matrices("lstsq", a), _hr.asarray(b)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ValueError(f"lstsq: shapes {a.shape} and {b.shape}, expected [m, n], and [m] or [m, k]")
    dtype = result_type(a, b, 1.0)
    a, b = _hr.astype(a, dtype), _hr.astype(b, dtype)
    x, rank, s = _least_squares(a, b, rcond)
    residuals = _hr.zeros((0,), dtype=s.dtype)
    if a.shape[0] > a.shape[1] and rank.item() == a.shape[1]:
        residuals = _hr.sum(_hr.square(_hr.abs(b - _hr.matmul(a, x))), 0).reshape(
            *((1,) if b.ndim == 1 else b.shape[1:])
        )
    return x, residuals, rank, s


def _elements(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


def tensorinv(a, ind=2):
    """The inverse of a as a map from its last dims to its first `ind` ones: tensordot(tensorinv(a), b, ind) solves."""
    a = _operand(a)
    if ind <= 0:
        raise ValueError(f"tensorinv: ind {ind}, expected at least 1")
    first, last = a.shape[:ind], a.shape[ind:]
    if _elements(first) != _elements(last):
        raise ValueError(f"tensorinv: dims {list(first)} and {list(last)} have different numbers of elements")
    return _hr.inv(a.reshape(_elements(first), -1)).reshape(*last, *first)


def tensorsolve(a, b, axes=None):
    """x with tensordot(a, x, x.ndim) = b; axes of a are moved to its end before."""
    a, b = _hr.asarray(a), _hr.asarray(b)
    if axes is not None:
        moved = [axis % a.ndim for axis in axes]
        a = _hr.permute_dims(a, [i for i in range(a.ndim) if i not in moved] + moved)
    last = a.shape[b.ndim :]
    if a.shape[: b.ndim] != b.shape or _elements(last) != b.size:
        raise ValueError(f"tensorsolve: shapes {a.shape} and {b.shape} do not fit")
    return _hr.solve(a.reshape(b.size, b.size), b.reshape(-1)).reshape(*last)
