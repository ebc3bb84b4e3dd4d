"""Compares the results of one step on two devices, and of one program in two modes.

Both devices begin each step with the same bits, so that a bound covers one operation's rounding. If a result is off
by more, the same line in double precision decides: the device may be as near to that as torch is.
"""

from dataclasses import dataclass

import torch

# Relative and absolute bounds of one element-wise operation; sums are also bounded by their largest term.
BOUNDS = {
    torch.float64: (1e-12, 1e-14),
    torch.float32: (5e-6, 1e-6),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-3),
    torch.complex32: (2e-3, 1e-3),
    torch.complex64: (5e-6, 1e-6),
    torch.complex128: (1e-12, 1e-14),
}
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
# Sums have another order here: bounds are of the largest element of inputs and results.
SUMS = set(
    "sum mean nansum prod var std norm logsumexp cumsum cumsum_ cumprod cumprod_ logcumsumexp matmul linear addmm "
    "outer einsum bmm layer_norm batch_norm group_norm conv1d conv2d mse_loss cross_entropy smooth_l1 bce softmax "
    "log_softmax softmin normalize softmax.grad log_softmax.grad softmin.grad normalize.grad avg_pool1d avg_pool2d "
    "interpolate cdist scatter_add_ index_add_ index_put_add put_ scatter_reduce_ index_reduce_".split()
)


@dataclass
class Mismatch:
    """Two results of one shape, and a mask of the elements that differ."""

    detail: str
    actual: torch.Tensor
    expected: torch.Tensor
    wrong: torch.Tensor


def plain(tensor):
    """A contiguous copy on the host, without conjugate and negative bits."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def same_bits(a, b):
    """Equal bits, but that one NaN is as good as another."""
    if torch.equal(bytes_of(a), bytes_of(b)):
        return True
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return False
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    same = (a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()
    return bool(same.all())


def bounds_of(op, dtype, inputs, result):
    rtol, atol = BOUNDS[dtype]
    if op in SUMS:
        sizes = [t.abs()[t.isfinite()].double() for t in [*inputs, result] if t.is_floating_point() or t.is_complex()]
        most = max([t.max().item() for t in sizes if t.numel()] + [1.0])
        atol = max(atol, rtol * most)
    return rtol, atol


def near(a, e, rtol, atol):
    """A mask of the elements that agree; NaN with NaN, and equal infinities. Complex numbers by their parts."""
    if a.is_complex():
        a, e = torch.view_as_real(a), torch.view_as_real(e)
        most = e.abs().amax(-1, keepdim=True)
        most = torch.where(most.isfinite(), most, 0.0)
    else:
        most = e.abs()
    close = (a == e) | (a.isnan() & e.isnan()) | ((a - e).abs() <= atol + rtol * most) & e.isfinite()
    return close


def compare_values(op, actual, expected, inputs, wide):
    """None, or a Mismatch: `wide()` runs the step in double precision and returns this result, or None."""
    a, e = plain(actual), plain(expected)
    if same_bits(a, e):
        return None
    if not (e.is_floating_point() or e.is_complex()):
        wrong = bytes_of(a) != bytes_of(e) if a.dtype == torch.bool else (a != e).reshape(-1)
        if a.dtype == torch.bool:  # of memory that another dtype wrote, torch keeps any byte
            wrong &= (bytes_of(e) <= 1) | (bytes_of(a) == 0)
            if not bool(wrong.any()):
                return None
        return describe(a, e, wrong)
    rtol, atol = bounds_of(op, e.dtype, inputs, e)
    dtype = WIDE.get(e.dtype, e.dtype)
    close = near(a.to(dtype), e.to(dtype), rtol, atol)
    if bool(close.all()):
        return None
    truth = wide()
    if truth is not None and truth.shape == e.shape and (truth.is_floating_point() or truth.is_complex()):
        truth = plain(truth).to(e.dtype).to(dtype)  # rounded: numbers too large for the dtype become infinite
        theirs = (e.to(dtype) - truth).abs()
        theirs = torch.where(theirs.isfinite(), theirs, 0.0)
        if e.is_complex():
            theirs = theirs.unsqueeze(-1)
        close |= near(a.to(dtype), truth, rtol, atol + 2 * theirs)
        if bool(close.all()):
            return None
    close = close.all(-1) if e.is_complex() else close
    return describe(a, e, ~close.reshape(-1))


def describe(a, e, wrong):
    mismatch = Mismatch("", a, e, wrong.reshape(a.shape))
    place = wrong.nonzero()[0].item()
    if a.dtype == torch.bool:
        a, e = bytes_of(a), bytes_of(e)
    shown = lambda t: t.reshape(-1)[place].item()  # noqa: E731
    mismatch.detail = (
        f"{int(wrong.sum())} of {wrong.numel()} elements, the first at {place}: {shown(a)!r}, torch {shown(e)!r}"
    )
    return mismatch


def compare_form(actual, expected):
    """(kind, detail) if dtype, shape or strides differ, else None."""
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        names = f"{type(actual).__name__}, torch {type(expected).__name__}"
        return None if type(actual) is type(expected) else ("type", names)
    if actual.dtype != expected.dtype:
        return "dtype", f"{actual.dtype}, torch {expected.dtype}"
    if actual.shape != expected.shape:
        return "shape", f"{list(actual.shape)}, torch {list(expected.shape)}"
    if actual.stride() != expected.stride() and expected.numel() > 0:
        return "strides", f"{actual.stride()} of {list(actual.shape)}, torch {expected.stride()}"
    return None
