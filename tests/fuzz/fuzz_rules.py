"""Differences that have a reason. rules.txt has a row for each:

    <operators>:<dtypes>   <kind> [<condition>] | <reason>

Operators, dtypes and kinds are patterns of fnmatch, separated by commas; a row is used where one operator, one dtype
of the step's tensors and the kind match, and the condition, a function of this file over (difference, inputs), holds.
"""

import fnmatch
import functools
import math
import pathlib
import re

import torch
from fuzz_compare import SUMS, plain
from fuzz_generate import overlaps

CONDITIONS = {}
# Operators whose elements depend on others of the same shape: where one differs, any element of the inputs may be why.
ROWS = SUMS | set(
    "cummax cummin sort msort argsort topk searchsorted mode median kthvalue isin roll pad flip copy_ setitem "
    "cat".split()
)


def condition(function):
    CONDITIONS[function.__name__] = function
    return function


def real_parts(inputs):
    """Numbers of the floating point inputs, complex ones as pairs."""
    tensors = [t for t in inputs.values() if t.is_floating_point() or t.is_complex()]
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]


def numbers_in(line):
    """The numbers of the line that are no part of a name."""
    found = re.findall(r"(?<![\w.])-?(?:inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?=j?(?![\w.]))", line.split("=", 1)[-1])
    return [float(number) for number in found]


def each_wrong(difference, inputs, odd, result=None):
    """True if each element that differs is odd: by itself, or by an input's element that it was made from."""
    mismatch = difference.mismatch
    if mismatch is None:
        return any(bool(odd(t).any()) for t in inputs.values())
    shape, marked = mismatch.wrong.shape, torch.zeros_like(mismatch.wrong)
    if result is not None:
        marked |= result(mismatch.actual) | result(mismatch.expected)
    for t in inputs.values():
        mask = odd(t)
        fits = t.dim() <= len(shape) and all(a in (1, b) for a, b in zip(reversed(t.shape), reversed(shape)))
        marked |= mask.any() if difference.op in ROWS or not fits else mask
    return bool((marked | ~mismatch.wrong).all())


def operands(difference, inputs):
    """The first two operands of the line, in double precision and of the result's shape, and the result's rounding."""
    line, mismatch = difference.line, difference.mismatch
    tokens = re.findall(
        r"\bv\d+\b|(?<![\w.])-?(?:inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])", line.split(" = ", 1)[-1]
    )[:2]
    pair = [
        inputs[token].double() if token in inputs else torch.tensor(float(token), dtype=torch.float64)
        for token in tokens
    ]
    types = [inputs[token].dtype for token in tokens if token in inputs and inputs[token].is_floating_point()]
    eps = max([torch.finfo(dtype).eps for dtype in types] + [2**-23])
    return *(t.expand(mismatch.wrong.shape) for t in pair), eps


@condition
def not_finite(difference, inputs):
    """Each element that differs is infinite or NaN in one result, or made from such a number."""
    if any(not math.isfinite(number) for number in numbers_in(difference.line)):
        return True
    return each_wrong(difference, inputs, lambda t: ~t.isfinite(), lambda t: ~t.isfinite())


@condition
def special(difference, inputs):
    """As not_finite, or a number is zero."""
    if any(number == 0 or not math.isfinite(number) for number in numbers_in(difference.line)):
        return True
    return each_wrong(difference, inputs, lambda t: ~t.isfinite() | (t == 0), lambda t: ~t.isfinite())


def beyond(t, limits):
    """Which elements have no integer between the limits, so that C leaves their conversion undefined."""
    if not t.is_floating_point() and not t.is_complex():
        return torch.zeros(t.shape, dtype=torch.bool)
    t = (t.real if t.is_complex() else t).double()
    return ~((t < limits.max + 1.0) & (t > limits.min - 1.0))


@condition
def beyond_integers(difference, inputs):
    """Each element that differs was made from a number that its integer dtype does not have."""
    dtype = difference.mismatch.expected.dtype
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return False
    return each_wrong(difference, inputs, lambda t: beyond(t, torch.iinfo(dtype)))


@condition
def complex_result(difference, inputs):
    """The line asks for complex numbers."""
    return "dtype=torch.complex" in difference.line


@condition
def integer_result(difference, inputs):
    """The line asks for an integer dtype."""
    return "dtype=torch.int" in difference.line or "dtype=torch.uint" in difference.line


@condition
def beyond_int32(difference, inputs):
    """Each element that differs was made from an integer of more than 32 bits."""
    return each_wrong(
        difference,
        inputs,
        lambda t: (t >= 2**31) | (t < -(2**31)) if t.dtype == torch.int64 else torch.zeros_like(t, dtype=torch.bool),
    )


@condition
def zero_of_overflow(difference, inputs):
    """Each element that differs is NaN in torch, and made from a zero."""
    return each_wrong(difference, inputs, lambda t: t == 0) and bool(
        difference.mismatch.expected.isnan()[difference.mismatch.wrong].all()
    )


@condition
def infinite_by_denormal(difference, inputs):
    """Inputs have an infinity and a denormal number; where results differ, one is NaN, the other infinite."""
    m, real = difference.mismatch, real_parts(inputs)
    ours, theirs = m.actual[m.wrong], m.expected[m.wrong]
    apart = (ours.isnan() & theirs.isinf()) | (ours.isinf() & theirs.isnan())
    denormal = any(((t != 0) & (t.abs() < torch.finfo(torch.bfloat16).tiny)).any() for t in real)
    return bool(apart.all()) and denormal and any(t.isinf().any() for t in real)


@condition
def beyond_half(difference, inputs):
    """A number is finite, but infinite in the result's dtype."""
    numbers = [t for t in inputs.values() if t.dim() == 0]
    return any(bool(t.isfinite() & ~t.to(difference.mismatch.expected.dtype).isfinite()) for t in numbers)


@condition
def lowest(difference, inputs):
    """Each element that differs was made from the lowest number of its dtype, which has no negative."""
    low = torch.iinfo(difference.mismatch.expected.dtype).min
    return each_wrong(difference, inputs, lambda t: t == low)


@condition
def empty(difference, inputs):
    """Every tensor has no elements, or one of them has none and the others are read for it alone."""
    return any(t.numel() == 0 for t in inputs.values())


@condition
def mixed_bools(difference, inputs):
    """Each element that differs was made from a bool whose byte is neither 0 nor 1: it was written as another dtype."""
    mixed = lambda t: (
        plain(t).view(torch.uint8) > 1 if t.dtype == torch.bool else torch.zeros(t.shape, dtype=torch.bool)
    )  # noqa: E731
    return each_wrong(difference, inputs, mixed)


@condition
def too_large(difference, inputs):
    """A number does not fit the dtype."""
    return "without overflow" in difference.detail


@condition
def expanded(difference, inputs):
    """Elements of an input share memory."""
    return any(overlaps(t.shape, difference.strides[name]) for name, t in inputs.items())


@condition
def reads_written(difference, inputs):
    """The step reads memory that it writes, in another order."""
    return difference.reads_written


@condition
def ties(difference, inputs):
    """The second result, or that of argsort, names other places of equal elements."""
    call, mismatch = re.search(r"torch\.\w+\((v\d+), (?:dim=)?(-?\d+)", difference.line), difference.mismatch
    is_second = difference.op == "argsort" or re.match(rf"v\d+, {difference.name} = ", difference.line)
    if call is None or not is_second or inputs[call[1]].dim() == 0:
        return False
    x, dim, places = inputs[call[1]], int(call[2]), [mismatch.actual, mismatch.expected]
    places = [place if place.dim() == x.dim() else place.unsqueeze(dim) for place in places]
    ours, theirs = (x.gather(dim, place.clamp(0, x.shape[dim] - 1)) for place in places)
    return bool(((ours == theirs) | ours.isnan() & theirs.isnan()).all())


@condition
def overflows(difference, inputs):
    """Some products or sums are too large for the dtype, so that their order decides which are infinite or NaN."""
    mismatch = difference.mismatch
    parts = real_parts({name: t if t.is_complex() else t.double() for name, t in inputs.items()})
    sizes = torch.cat([p.double().abs().reshape(-1) for p in parts])
    logs = sizes[sizes.isfinite() & (sizes > 1)].log2()
    most = logs.max().item() if logs.numel() else 0.0
    terms = logs.sum().item() if "prod" in difference.op else most + 8 if "sum" in difference.op else 2 * most + 8
    odd = ~mismatch.actual.isfinite() | ~mismatch.expected.isfinite()
    return terms > math.log2(torch.finfo(mismatch.expected.dtype).max) - 1 and bool((odd | ~mismatch.wrong).all())


@condition
def turns(difference, inputs):
    """The imaginary parts differ by whole turns, or torch's exponential overflows."""
    m = difference.mismatch
    actual, expected = m.actual[m.wrong].to(torch.complex128), m.expected[m.wrong].to(torch.complex128)
    apart, most = actual - expected, torch.maximum(actual.imag.abs(), expected.imag.abs())
    turns = apart.imag / (2 * math.pi)
    rounding = 1e-3 + 4 * torch.finfo(m.expected.dtype).eps * most
    same = (apart.real.abs() < 1e-3) & ((turns - turns.round()).abs() < rounding)
    from_odd = any(not t.isfinite().all() for t in real_parts(inputs))
    return bool((same | ~expected.isfinite() | ~actual.isfinite() & from_odd).all())


@condition
def near_whole(difference, inputs):
    """Each quotient that differs is near a whole number, as far as its dtype can tell, so that its rounding decides."""
    a, b, eps = operands(difference, inputs)
    quotient = (a / b)[difference.mismatch.wrong]
    far = (quotient - quotient.round()).abs() > 8 * eps * quotient.abs().clamp(min=1)
    return not bool((far & quotient.isfinite()).any())


@condition
def near_equal(difference, inputs):
    """The two numbers of each element that differs are the same when rounded."""
    a, b, eps = operands(difference, inputs)
    return bool(((a - b).abs() <= 2 * eps * b.abs() + 1e-7)[difference.mismatch.wrong].all())


@condition
def rounding_steps(difference, inputs):
    """The results differ by no more than the rounding of each step to the dtype."""
    m = difference.mismatch
    steps = max(t.numel() for t in inputs.values()) + 2
    a, e = m.actual[m.wrong].double(), m.expected[m.wrong].double()
    return bool(((a - e).abs() <= torch.finfo(m.expected.dtype).eps * steps * torch.maximum(a.abs(), e.abs())).all())


@condition
def rounding_of_terms(difference, inputs):
    """The results differ by no more than the rounding of a few terms of size 1."""
    m = difference.mismatch
    apart = (m.actual.double() - m.expected.double()).abs()
    return bool((apart <= 4 * torch.finfo(m.expected.dtype).eps)[m.wrong].all())


@condition
def sixth(difference, inputs):
    """The results differ by no more than 1/6 does in float32."""
    m = difference.mismatch
    return bool(((m.actual - m.expected).abs() <= 1e-7 * m.expected.abs()).all())


@condition
def many_points(difference, inputs):
    """More than 25 points, and squares of distances that differ by no more than their rounding."""
    m, x = difference.mismatch, next(iter(inputs.values()))
    error = 64 * torch.finfo(x.dtype).eps * x.abs().max().double() ** 2 * x.shape[-1]
    return x.shape[0] > 25 and bool(((m.actual.double() ** 2 - m.expected.double() ** 2).abs() <= error).all())


def groups(difference, x):
    """The rows of x over each of which the operator has one mean."""
    x = x.double()
    if difference.op == "batch_norm":
        return x.movedim(1, 0).reshape(x.shape[1], -1)
    if difference.op == "group_norm":
        return x.reshape(x.shape[0], -1)
    dim = re.search(r"dim=(-?\d+)", difference.line)
    if difference.op in ("var", "std"):
        return (
            x.reshape(1, -1)
            if dim is None or x.dim() == 0
            else x.movedim(int(dim[1]), -1).reshape(-1, x.shape[int(dim[1])])
        )
    return x.reshape(-1, x.shape[-1])


@condition
def small_variance(difference, inputs):
    """The values are close relative to their size, and the results differ by at most the rounding of their mean."""
    m, x = difference.mismatch, next(iter(inputs.values()))
    rows, eps = groups(difference, x), max(torch.finfo(x.dtype).eps, 2**-23 if x.dtype != torch.float64 else 0)
    rows = rows[rows.isfinite().all(-1)]
    if rows.numel() == 0:
        return False
    most, a, e = rows.abs().max(), m.actual.double(), m.expected.double()
    if difference.op in ("var", "std"):
        power = 1 if difference.op == "var" else 2
        return bool((((a**power - e**power).abs() <= 16 * eps * most**2) | ~m.wrong).all())
    spread = (rows.var(-1, correction=0) + 1e-5).sqrt().min()
    return bool((((a - e).abs() <= 16 * eps * most / spread * e.abs().clamp(min=1)) | ~m.wrong).all())


@condition
def cancels(difference, inputs):
    """The gradient of a length is a difference of equal terms, divided by the length. It is off by their rounding."""
    m, x = difference.mismatch, next(iter(inputs.values()))
    dim = re.search(r"dim=(-?\d+)", difference.line)
    length = x.double().norm(2, int(dim[1]), keepdim=True).clamp(min=1e-12)
    return bool(
        (((m.actual.double() - m.expected.double()).abs() <= 16 * torch.finfo(x.dtype).eps / length) | ~m.wrong).all()
    )


@condition
def bits_of_nan(difference, inputs):
    """With the same bits of each NaN the modes agree."""
    return difference.again("one_nan") is None


@condition
def layout_of_convolution(difference, inputs):
    """The results are within bounds of each other, and the modes agree if convolutions are programs of their own."""
    return "within bounds" in difference.detail and difference.again("fixed_convolutions") is None


@condition
def complex_number(difference, inputs):
    return "omplex" in difference.detail


@condition
def no_kernel(difference, inputs):
    """torch's CPU device has no kernel for the dtype."""
    return "not implemented for '" in difference.detail or "does not support complex inputs" in difference.detail


@condition
def complex_half(difference, inputs):
    """torch's CPU device has no kernel for pairs of half precision."""
    return "not implemented for 'ComplexHalf'" in difference.detail


@condition
def internal_error(difference, inputs):
    """torch reports a mistake of its own."""
    return "please report a bug to PyTorch" in difference.detail


@condition
def overlapping(difference, inputs):
    return "single memory location" in difference.detail


@condition
def no_view(difference, inputs):
    return "view size is not compatible" in difference.detail


@condition
def channels_last_by_ones(difference, inputs):
    """An input is channels-last but for the stride of a dim of one element."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    lasts = [(t, torch.empty_strided(t.shape, difference.strides[name], device="meta")) for name, t in inputs.items()]
    return any(
        1 in t.shape and t.dim() in formats and strided.is_contiguous(memory_format=formats[t.dim()])
        for t, strided in lasts
    )


@condition
def ones(difference, inputs):
    """The strides differ in dims of one element alone."""
    ours, sizes, theirs = (eval(text) for text in re.match(r"(.*) of (.*), torch (.*)", difference.detail).groups())
    return all(a == b for a, b, size in zip(ours, theirs, sizes) if size != 1)


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
