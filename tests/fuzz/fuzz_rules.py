"""Differences that have a reason. rules.txt has a row for each:

    <operators>:<dtypes>   <kind> [<condition>] | <reason>

Operators, dtypes and kinds are patterns of fnmatch, separated by commas; a row is used where one operator, one dtype of the
step's tensors and the kind match, and the condition, a function of this file over (difference, inputs), holds.
"""

import fnmatch
import functools
import pathlib

import torch

CONDITIONS = {}


def condition(function):
    CONDITIONS[function.__name__] = function
    return function


@condition
def not_finite(difference, inputs):
    """Some element of the inputs is infinite or not a number."""
    return any(not t.isfinite().all() for t in inputs.values() if t.is_floating_point() or t.is_complex())


@condition
def beyond_integers(difference, inputs):
    """Some element has no integer of the dtype's width, so that C leaves its conversion undefined."""
    return any(not (t.abs() < 127).all() for t in inputs.values() if t.is_floating_point() or t.is_complex())


@functools.cache
def rules():
    rows = []
    for line in (pathlib.Path(__file__).parent / "rules.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            left, reason = line.split("|", 1)
            where, kinds, *conditions = left.split()
            operators, dtypes = where.split(":")
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
