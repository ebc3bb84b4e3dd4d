"""Polynomials as vectors of coefficients, the highest degree first: polyval, polyfit, roots, ..."""

import operator

import headrace as hr
from headrace import linalg
from headrace._numpy.arguments import array_of, common_floating, floating, is_complex, leaves
from headrace._numpy.shapes import atleast_1d
from headrace._numpy.signals import convolve

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots",
    "vander",
]  # fmt: skip


def _coefficients(name, p):
    p = atleast_1d(p)
    if p.ndim != 1:
        raise ValueError(f"{name}: {p.ndim} dims, expected a vector of coefficients")
    return p


def _trimmed(p):
    """Without leading zeros, which are waited for."""
    used = [i for i, is_set in enumerate((p != 0).tolist()) if is_set]
    return p[used[0] :] if used else p[-1:]


def _aligned(name, a1, a2):
    a1, a2 = _coefficients(name, a1), _coefficients(name, a2)
    count = max(a1.size, a2.size)
    return tuple(hr.concat([hr.zeros((count - p.size,), dtype=p.dtype), p]) for p in (a1, a2))


def polyadd(a1, a2):
    """The sum of two polynomials."""
    a1, a2 = _aligned("polyadd", a1, a2)
    return a1 + a2


def polysub(a1, a2):
    """The difference of two polynomials."""
    a1, a2 = _aligned("polysub", a1, a2)
    return a1 - a2


def polymul(a1, a2):
    """The product of two polynomials, whose leading zeros are waited for."""
    return convolve(_trimmed(_coefficients("polymul", a1)), _trimmed(_coefficients("polymul", a2)))


def polydiv(u, v):
    """Quotient and remainder of two polynomials; leading zeros of the remainder are waited for."""
    u, v = common_floating(_coefficients("polydiv", u), _coefficients("polydiv", v))
    steps = u.size - v.size + 1
    quotient = []
    for k in range(max(steps, 0)):
        factor = u[k] / v[0]
        quotient.append(factor)
        rest = u[k + 1 : k + v.size] - factor * v[1:]
        u = hr.concat([u[:k], hr.zeros((1,), dtype=u.dtype), rest, u[k + v.size :]])
    while u.size > 1 and bool(hr.isclose(u[0], 0, rtol=1e-14, atol=1e-8)):
        u = u[1:]
    return (hr.stack(quotient) if quotient else hr.zeros((1,), dtype=u.dtype)), u


def polyval(p, x):
    """The polynomial at x, by Horner's rule."""
    p, x = _coefficients("polyval", p), array_of(x)
    result = hr.zeros(x.shape, dtype=hr.result_type(p, x))
    for coefficient in hr.unstack(p):
        result = result * x + coefficient
    return result


def polyder(p, m=1):
    """The m-th derivative."""
    p = _coefficients("polyder", p)
    if m < 0:
        raise ValueError(f"polyder: derivative {m}, expected 0 or more")
    for _ in range(m):
        p = p[:-1] * hr.arange(p.size - 1, 0, -1)
    return p


def polyint(p, m=1, k=None):
    """The m-th integral, with the constants k, one for each step or one for all; 0 without k."""
    p = _coefficients("polyint", p)
    if m < 0:
        raise ValueError(f"polyint: integral {m}, expected 0 or more")
    constants = [0.0] * m if k is None else leaves(k)
    constants = constants * m if len(constants) == 1 else constants
    if len(constants) < m:
        raise ValueError(f"polyint: {len(constants)} constants for {m} integrals")
    for constant in constants[:m]:
        p = floating(p)
        p = hr.concat([p / hr.arange(p.size, 0, -1), hr.full((1,), constant, dtype=p.dtype)])
    return p


def poly(seq_of_zeros):
    """The coefficients of the polynomial with these zeros, or the characteristic polynomial of a matrix."""
    zeros = floating(seq_of_zeros)
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1]:
        is_real, zeros = not is_complex(zeros), hr.linalg.eigvals(zeros)
    else:
        zeros, is_real = _coefficients("poly", zeros), False
    result = hr.ones((1,), dtype=zeros.dtype)
    for zero in hr.unstack(zeros):
        ends = hr.zeros((1,), dtype=result.dtype)
        result = hr.concat([result, ends]) - hr.concat([ends, result]) * zero
    if not is_complex(result):
        return result
    return hr.real(result) if is_real or _are_conjugates(zeros) else result


def _are_conjugates(zeros):
    """True if complex zeros come in conjugate pairs; they are waited for."""
    above = sorted((z.real, z.imag) for z in zeros.tolist() if z.imag > 0)
    below = sorted((z.real, -z.imag) for z in zeros.tolist() if z.imag < 0)
    return above == below


def roots(p):
    """The zeros of a polynomial, as eigenvalues of its companion matrix; its coefficients are waited for."""
    p = floating(_coefficients("roots", p))
    used = [i for i, is_set in enumerate((p != 0).tolist()) if is_set]
    if not used:
        return hr.zeros((0,), dtype=p.dtype)
    at_zero = p.size - 1 - used[-1]
    p = p[used[0] : used[-1] + 1]
    found = hr.zeros((0,), dtype=p.dtype)
    if p.size > 1:
        below = hr.eye(p.size - 2, p.size - 1, dtype=p.dtype)
        found = hr.linalg.eigvals(hr.concat([(-p[1:] / p[0])[None], below], axis=0))
        found = (
            hr.real(found) if is_complex(found) and not is_complex(p) and not bool(hr.any(hr.imag(found))) else found
        )
    return hr.concat([found, hr.zeros((at_zero,), dtype=found.dtype)])


def vander(x, N=None, increasing=False):
    """Powers of a vector in the columns of a matrix: x^(N - 1), ..., x^0; increasing: in the other order."""
    x = _coefficients("vander", x)
    count = x.size if N is None else operator.index(N)
    powers = [hr.ones_like(x)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    powers = powers[:count]
    if not powers:
        return hr.zeros((x.size, 0), dtype=x.dtype)
    return hr.stack(powers if increasing else powers[::-1], axis=1)


def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    """The coefficients of degree deg that fit y at x with the least squares, weighted by w. full: with residuals, rank,
    singular values and rcond; cov: with the covariances of coefficients, "unscaled": by weights alone."""
    x, y = common_floating(x, y)
    order = operator.index(deg) + 1
    if order < 1 or x.ndim != 1 or x.size == 0 or y.ndim not in (1, 2) or y.shape[0] != x.size:
        raise ValueError(f"polyfit: degree {deg}, x {x.shape}, y {y.shape}, expected x [n], y [n] or [n, k]")
    rcond = x.size * hr.finfo(x.dtype).eps if rcond is None else rcond
    left, right = vander(x, order), y
    if w is not None:
        w = hr.astype(array_of(w), y.dtype)
        left, right = left * w[:, None], right * (w if y.ndim == 1 else w[:, None])
    scale = hr.sqrt(hr.sum(left * left, axis=0))
    if full:
        found, *others = hr.linalg.lstsq(left / scale, right, rcond)
        return (found.T / scale).T, *others, rcond
    found = (linalg._least_squares(left / scale, right, rcond)[0].T / scale).T
    if not cov:
        return found
    inverse = hr.linalg.inv(left.T @ left)
    if cov != "unscaled":
        if x.size <= order:
            raise ValueError(f"polyfit: {x.size} points, expected more than {order} for covariances")
        factor = hr.sum(hr.square(right - left @ found), axis=0) / (x.size - order)
        inverse = inverse[..., None] * factor if y.ndim == 2 else inverse * factor
    return found, inverse
