"""Differences that have a reason. rules.txt has a row for each:

    <operators>:<dtypes>   <kind> [<condition>] | <reason>

Operators, dtypes and kinds are patterns of fnmatch, separated by commas; a row is used where one operator, one dtype
of the step's tensors and the kind match, and the condition, a function of this file over (difference, inputs), holds.
"""

import fnmatch
import functools
import pathlib
import re

import torch
from fuzz_compare import bytes_of, plain

CONDITIONS = {}


def condition(function):
    CONDITIONS[function.__name__] = function
    return function


def real_parts(inputs):
    """Numbers of the floating point inputs, complex ones as pairs."""
    tensors = [t for t in inputs.values() if t.is_floating_point() or t.is_complex()]
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]


@condition
def not_finite(difference, inputs):
    """Some element of the inputs, or a number in the line, is infinite or not a number."""
    return bool(re.search(r"\b(inf|nan)\b", difference.line)) or any(not t.isfinite().all() for t in real_parts(inputs))


@condition
def special(difference, inputs):
    """As not_finite, or some element or number is zero."""
    return not_finite(difference, inputs) or any(bool((t == 0).any()) for t in real_parts(inputs)) or "0" in difference.line


@condition
def beyond_integers(difference, inputs):
    """Some element has no integer of the dtype's width, so that C leaves its conversion undefined."""
    return any(not (t.abs() < 127).all() or bool((t < 0).any()) for t in real_parts(inputs))


@condition
def empty(difference, inputs):
    """Every tensor has no elements, or one of them has none and the others are read for it alone."""
    return any(t.numel() == 0 for t in inputs.values())


@condition
def mixed_bools(difference, inputs):
    """A bool has a byte that is neither 0 nor 1: it was written as another dtype."""
    return any(t.dtype == torch.bool and t.numel() > 0 and int(bytes_of(plain(t)).max()) > 1 for t in inputs.values())


@condition
def too_large(difference, inputs):
    """A number does not fit the dtype."""
    return "without overflow" in difference.detail


@condition
def expanded(difference, inputs):
    """Elements of an input share memory."""
    return "expand" in difference.line or any(0 in s for s in re.findall(r"empty_strided\(.*?\], \[(.*?)\]", difference.setup))


@condition
def ties(difference, inputs):
    """The place of one of several equal elements, in the second result."""
    return difference.detail.split(": ")[-1].replace(", torch ", "").isdigit()


@condition
def bits_of_nan(difference, inputs):
    """The program sees bits of one dtype as another, after something that gives NaN."""
    return "seen as another dtype" in difference.detail


@condition
def behind_convolution(difference, inputs):
    """The program has a convolution in front of the step."""
    return "within bounds" in difference.detail and "behind a convolution" in difference.detail


@condition
def integer_result(difference, inputs):
    return "dtype=torch.int" in difference.line or "dtype=torch.uint" in difference.line


@condition
def complex_number(difference, inputs):
    return "omplex" in difference.detail


@condition
def overlapping(difference, inputs):
    return "single memory location" in difference.detail


@condition
def ones(difference, inputs):
    """The result has a dim of one element."""
    shape = re.search(r"of \[(.*?)\]", difference.detail)
    return shape is not None and "1" in shape[1].split(", ")


@condition
def small_variance(difference, inputs):
    """The values are close relative to their size, so that rounding of their mean is a large part of the remainder."""
    for t in real_parts(inputs):
        if not t.isfinite().all() or t.numel() < 4:
            return True
        rows = t.double().reshape(-1, t.shape[-1]) if t.dim() else t.double().reshape(1, -1)
        if bool((rows.std(-1, correction=0) <= 1e-2 * rows.abs().amax(-1)).any()):
            return True
    return any(bool((t.abs() > 1e3).any()) for t in real_parts(inputs))


@functools.cache
def rules():
    rows = []
    for line in (pathlib.Path(__file__).parent / "rules.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            left, reason = line.split("|", 1)
            where, kinds, *conditions = left.split()
            operators, dtypes = where.rsplit(":", 1)
            rows.append((operators.split(","), dtypes.split(","), kinds.split(","), conditions, reason.strip()))
    return rows


def matches(patterns, names):
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns for name in names)


def excuse(difference, inputs):
    """The reason of the first row that covers the difference, or None."""
    dtypes = [str(t.dtype).removeprefix("torch.") for t in inputs.values() if isinstance(t, torch.Tensor)] or [""]
    for operators, wanted, kinds, conditions, reason in rules():
        if matches(operators, [difference.op]) and matches(wanted, dtypes) and matches(kinds, [difference.kind]):
            if all(CONDITIONS[name](difference, inputs) for name in conditions):
                return reason
    return None
