"""Sampled functions: interp, gradient, convolve, unwrap, ..."""

import math

import headrace as hr
from headrace import _arrays
from headrace._numpy.arguments import (
    along,
    array_of,
    axes_of,
    axis_of,
    check_known,
    common_floating,
    floating,
    is_complex,
)

__all__ = ["convolve", "correlate", "gradient", "interp", "trapezoid", "unwrap"]


# ---- integrals, differences


def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral of y along an axis by the trapezoidal rule, at places x or in steps of dx."""
    y = floating(y)
    axis = axis_of("trapezoid", axis, y.ndim)
    if x is not None:
        x = floating(x)
        dx = hr.diff(x)[(slice(None), *(None,) * (y.ndim - 1 - axis))] if x.ndim == 1 else hr.diff(x, axis=axis)
    else:
        dx = floating(dx) if not isinstance(dx, (int, float)) else dx
    pairs = y[along(y, axis, 1, None)] + y[along(y, axis, None, -1)]
    return hr.sum(pairs * dx / 2, axis=axis)


def _shaped(vector, rank, axis):
    return vector[(slice(None), *(None,) * (rank - 1 - axis))]


def _inner_differences(f, axis, steps):
    """Central differences; steps: one number, or the distances of neighbours."""
    before, here, after = (f[along(f, axis, *part)] for part in ((None, -2), (1, -1), (2, None)))
    if not getattr(steps, "ndim", 0):
        return (after - before) / (2 * steps)
    left, right = _shaped(steps[:-1], f.ndim, axis), _shaped(steps[1:], f.ndim, axis)
    low, high = -right / (left * (left + right)), left / (right * (left + right))
    return low * before + (right - left) / (left * right) * here + high * after


def _outer_difference(f, axis, steps, edge_order, is_last):
    """The one-sided difference at an end."""
    count = f.shape[axis]
    places = [count - 1 - i if is_last else i for i in range(edge_order + 1)]
    values = [f[along(f, axis, place, place + 1)] for place in places]
    ends = (-1, -2) if is_last else (0, 1)
    near, next_ = (
        (steps[end] for end in ends[:edge_order]) if getattr(steps, "ndim", 0) and edge_order == 2 else (steps,) * 2
    )
    if edge_order == 1:
        step = steps[ends[0]] if getattr(steps, "ndim", 0) else steps
        result = (values[1] - values[0]) / step
    else:
        first = -(2 * near + next_) / (near * (near + next_))
        second, third = (near + next_) / (near * next_), -near / (next_ * (near + next_))
        result = first * values[0] + second * values[1] + third * values[2]
    return -result if is_last else result


def _spacings(f, axes, varargs):
    """For each axis the distance of neighbours: a number, or a vector of them."""
    if len(varargs) not in (0, 1, len(axes)):
        raise ValueError(f"gradient: {len(varargs)} spacings for {len(axes)} axes")
    spacings = (list(varargs) or [1.0]) * (1 if len(varargs) == len(axes) else len(axes))
    results = []
    for axis, spacing in zip(axes, spacings, strict=True):
        if not isinstance(spacing, (int, float)):
            spacing = hr.astype(array_of(spacing), f.dtype)
            if spacing.ndim:
                if spacing.shape != (f.shape[axis],):
                    raise ValueError(f"gradient: places of shape {spacing.shape}, expected ({f.shape[axis]},)")
                spacing = hr.diff(spacing)
        results.append(spacing)
    return results


def gradient(f, *varargs, axis=None, edge_order=1):
    """Differences by distance along axes, in a tuple if there are several: central ones inside, one-sided ones of
    edge_order 1 or 2 at the ends. varargs: one distance, one for each axis, or vectors of places."""
    f = floating(f)
    check_known("gradient", edge_order, edge_order=(1, 2))
    axes = axes_of("gradient", axis, f.ndim)
    results = []
    for one, steps in zip(axes, _spacings(f, axes, varargs), strict=True):
        if f.shape[one] < edge_order + 1:
            raise ValueError(f"gradient: {f.shape[one]} elements along axis {one}, expected at least {edge_order + 1}")
        ends = [_outer_difference(f, one, steps, edge_order, is_last) for is_last in (False, True)]
        results.append(hr.concat([ends[0], _inner_differences(f, one, steps), ends[1]], axis=one))
    return results[0] if len(results) == 1 else tuple(results)


def unwrap(p, discont=None, axis=-1, *, period=2 * math.pi):
    """Jumps along an axis of more than discont, by default half a period, replaced by their complement to the
    period."""
    p = array_of(p)
    is_whole = isinstance(period, int) and hr.isdtype(p.dtype, "integral")
    p = p if is_whole else floating(p)
    axis = axis_of("unwrap", axis, p.ndim)
    steps = hr.diff(p, axis=axis)
    low = -(period // 2) if is_whole else -period / 2
    high = low + period if is_whole else period / 2
    wrapped = (steps - low) % period + low
    if not is_whole or period % 2 == 0:
        wrapped = hr.where((wrapped == low) & (steps > 0), high, wrapped)
    correction = hr.where(hr.abs(steps) < (period / 2 if discont is None else discont), 0, wrapped - steps)
    rest = p[along(p, axis, 1, None)] + hr.cumulative_sum(correction, axis=axis)
    return hr.concat([p[along(p, axis, None, 1)], hr.astype(rest, p.dtype)], axis=axis)


# ---- interpolation


def _periodic(x, xp, fp, period):
    period = abs(period)
    xp = xp % period
    order = hr.argsort(xp)
    xp, fp = hr.take(xp, order, axis=0), hr.take(fp, order, axis=0)
    xp = hr.concat([xp[-1:] - period, xp, xp[:1] + period])
    return x % period, xp, hr.concat([fp[-1:], fp, fp[:1]])


def interp(x, xp, fp, left=None, right=None, period=None):
    """Between the points (xp, fp), xp increasing, linearly; left and right: values outside, by default fp's ends."""
    x, xp = common_floating(x, xp)
    fp = floating(fp)
    if xp.ndim != 1 or fp.shape != xp.shape or xp.size == 0:
        raise ValueError(f"interp: points of shape {xp.shape} and {fp.shape}, expected vectors of one size, at least 1")
    if period is not None:
        if period == 0:
            raise ValueError("interp: period 0")
        left = right = None
        x, xp, fp = _periodic(x, xp, fp, period)
    last = xp.size - 1
    place = hr.clip(hr.searchsorted(xp, x, side="right") - 1, 0, max(last - 1, 0))
    x0, x1 = hr.take(xp, place, axis=0), hr.take(xp, hr.minimum(place + 1, last), axis=0)
    f0, f1 = hr.take(fp, place, axis=0), hr.take(fp, hr.minimum(place + 1, last), axis=0)
    result = f0 + (f1 - f0) / hr.where(x1 == x0, 1.0, x1 - x0) * (x - x0)
    result = hr.where(x == x1, f1, hr.where((x == x0) | (f0 == f1), f0, result))
    result = hr.where(x < xp[0], fp[0] if left is None else left, result)
    result = hr.where(x > xp[-1], fp[-1] if right is None else right, result)
    return hr.where(hr.isnan(x), hr.nan, result)


# ---- convolution


def _full(a, v):
    """All sums of products of a and the reversed v."""
    dtype = hr.result_type(a, v)
    a, v = hr.astype(a, dtype)[None, None], hr.flip(hr.astype(v, dtype))[None, None]
    edge = [v.shape[-1] - 1]
    return _arrays.conv(a, v, stride=[1], before=edge, after=edge, dilation=[1])[0, 0]


def _vectors(name, a, v):
    a, v = array_of(a), array_of(v)
    a, v = (x.reshape(1) if x.ndim == 0 else x for x in (a, v))
    for x in (a, v):
        if x.ndim != 1 or x.size == 0:
            raise ValueError(f"{name}: shape {x.shape}, expected vectors with elements")
    return a, v


def _part(full, sizes, mode):
    """The part of a full convolution that a mode wants."""
    check_known("convolve", mode, mode=("full", "same", "valid"))
    longer, shorter = max(sizes), min(sizes)
    if mode == "full":
        return full
    if mode == "same":
        begin = (shorter - 1) // 2
        return full[begin : begin + longer]
    return full[shorter - 1 : longer]


def convolve(a, v, mode="full"):
    """The convolution of two vectors. mode full: all places where they meet; same: as many as the longer one has;
    valid: those where they meet completely."""
    a, v = _vectors("convolve", a, v)
    if v.size > a.size:
        a, v = v, a
    return _part(_full(a, v), (a.size, v.size), mode)


def correlate(a, v, mode="valid"):
    """Sums of products of a and the conjugate of v, moved along a; mode as convolve's."""
    a, v = _vectors("correlate", a, v)
    v = hr.conj(v) if is_complex(v) else v
    if v.size > a.size:
        return hr.flip(_part(_full(v, hr.flip(a)), (a.size, v.size), mode))
    return _part(_full(a, hr.flip(v)), (a.size, v.size), mode)
