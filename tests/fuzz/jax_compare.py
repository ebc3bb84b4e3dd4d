"""Compares one step's results on Headrace with those of JAX's CPU backend, which had the same operands.

If a result is off by more than its kind's bound, the same line in double precision decides: Headrace may be as near to
that as the CPU backend is. The CPU backend reads and writes denormal numbers as 0: they have no bound.
"""

import jax.numpy as jnp
import numpy as np

ULPS = {"few": 16, "sum": 16, "loose": 200}
HALVES = ("float16", "bfloat16")
WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}


def is_float(array):
    return jnp.issubdtype(array.dtype, jnp.inexact)


def parts(array):
    """Real numbers in double precision, at least one axis: the parts of complex numbers are its last."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    return np.atleast_1d(array.astype(np.float64))


def real_dtype(dtype):
    return jnp.dtype({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype))


def tiny(dtype):
    """The bound of a result that the CPU backend may write as 0."""
    return float(jnp.finfo(real_dtype(dtype)).tiny)


def has_denormals(arrays):
    def some(array):
        sizes = np.abs(parts(array))
        return bool(((sizes > 0) & (sizes < tiny(array.dtype))).any())

    return any(some(array) for array in arrays if is_float(array) and array.size)


def rtol(kind, dtype):
    epsilon = float(jnp.finfo(real_dtype(dtype)).eps)
    if dtype.name in HALVES:
        return epsilon * {"exact": 0, "few": 2, "sum": 8, "loose": 16}[kind]
    return epsilon * ULPS.get(kind, 0) * (4 if dtype.kind == "c" else 1)


def largest(arrays):
    sizes = [np.abs(parts(array)) for array in arrays if array.size]
    return max([float(size[np.isfinite(size)].max(initial=0)) for size in sizes], default=0.0)


def same(got, want, signs):
    """A mask of elements that are equal, NaN with NaN; of zeros also the sign, if `signs`."""
    equal = (got == want) | (np.isnan(got) & np.isnan(want))
    return equal & ((np.signbit(got) == np.signbit(want)) | np.isnan(got)) if signs else equal


def describe(got, want, wrong):
    wrong = wrong.reshape(-1)
    place = int(np.flatnonzero(wrong)[0])
    shown = [array.reshape(-1)[place].item() for array in (got, want)]
    return f"{int(wrong.sum())} of {wrong.size} elements, the first at {place}: {shown[0]!r}, CPU {shown[1]!r}"


def compare(kind, got, want, operands, magnitude, wide):
    """None, ("excused", reason) or ("value", detail). `magnitude()` is the step's result on the operands' absolute
    values, `wide()` its result in double precision; both may be None. "order": exact but for the signs of zeros."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return "form", f"{got.dtype}{list(got.shape)}, CPU {want.dtype}{list(want.shape)}"
    if not is_float(want):
        wrong = got != want
        if not wrong.any():
            return None
        return judge_integers(operands) or ("value", describe(got, want, wrong))
    g, w = parts(got), parts(want)
    signs, kind = kind in ("move", "exact") and want.dtype.kind != "c", "exact" if kind == "order" else kind
    exact = kind in ("move", "exact")
    near = same(g, w, signs)
    if near.all():
        return None
    if kind != "move" and not exact:
        near |= bounded(kind, g, w, want.dtype, operands, magnitude)
    if kind != "move":
        near |= (np.abs(g) < tiny(want.dtype)) & (np.abs(w) < tiny(want.dtype)) & ((g != 0) | (w != 0))
    near = merged(near, want)
    if near.all():
        return None
    return judge(kind, got, want, near, operands, magnitude, wide)


def judge_integers(operands):
    if has_denormals(operands):
        return "excused", "denormal operands"
    if any(array.dtype.kind == "c" and not np.isfinite(parts(array)).all() for array in operands):
        return "excused", "complex numbers with infinite parts"
    return None


def merged(near, want):
    return near.all(-1).reshape(want.shape) if want.dtype.kind == "c" else near.reshape(want.shape)


def bounded(kind, g, w, dtype, operands, magnitude):
    size = np.abs(w)
    if dtype.kind == "c":
        size = size.max(-1, keepdims=True)
    bound = rtol(kind, dtype) * size + tiny(dtype)
    if kind == "sum":
        total = magnitude()
        if total is not None and total.shape == w.shape[: total.ndim] and total.size:
            bound = bound + rtol(kind, dtype) * (np.abs(total)[..., None] if dtype.kind == "c" else np.abs(total))
        else:
            kind = "loose"
    if kind == "loose":
        scale = max(largest([w]), largest([array for array in operands if is_float(array)]), 1.0)
        bound = bound + rtol(kind, dtype) * scale
    with np.errstate(all="ignore"):
        return np.isfinite(w) & (np.abs(g - w) <= bound)


def judge(kind, got, want, near, operands, magnitude, wide):
    """The verdict on elements outside of the bound."""
    floats = [array for array in operands if is_float(array)]
    if kind == "move":
        return "value", describe(got, want, ~near)
    if has_denormals([*floats]):
        return "excused", "denormal operands"
    has_complex = any(a.dtype.kind == "c" for a in (*floats, want))
    if has_complex and not all(np.isfinite(parts(a)).all() for a in (*floats, got, want)):
        return "excused", "complex numbers with infinite parts"
    if kind == "sum" and not np.isfinite(parts(want)[~near.reshape(parts(want).shape[: near.ndim])]).all():
        total = magnitude()
        if total is None or not np.isfinite(total).all() or (np.abs(total) > 3e38).any():
            return "excused", "a sum that overflows in one order"
    if kind != "exact":
        near |= near_truth(kind, got, want, wide())
        if near.all():
            return None
    return "value", describe(got, want, ~near)


def near_truth(kind, got, want, truth):
    """A mask of the elements that are as near to double precision's result as the CPU backend's."""
    if truth is None or truth.shape != want.shape or not is_float(truth):
        return np.zeros(want.shape, bool)
    with np.errstate(all="ignore"):
        t = parts(truth.astype(want.dtype))
        g, w, full = parts(got), parts(want), parts(truth)
        size = np.abs(full)
        if want.dtype.kind == "c":
            size = size.max(-1, keepdims=True)
        theirs = np.abs(w - full)
        theirs = np.where(np.isfinite(theirs), theirs, 0)
        close = (np.abs(g - full) <= rtol(kind, want.dtype) * size + 2 * theirs + tiny(want.dtype)) | same(g, t, False)
    return merged(close, want)
