"""Element-wise functions, reductions and comparisons with MLX's names, arguments and dtypes.

Functions that differ from Headrace's in arguments or dtypes are written here; the others are made from tables. `stream`
is accepted and ignored: there is one stream for each device.
"""

import builtins as _builtins
import operator

import headrace as _hr
from headrace import _arrays
from headrace._arrays import Array

# ---- operands


def as_array(x):
    """An array of an array, number, list or another library's array."""
    return x if isinstance(x, Array) else _arrays.array(x)


def _named(function, name, doc):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# ---- functions of one array

_UNARY = """abs acos acosh asin asinh atan atanh ceil conj cos cosh degrees erf erfinv exp floor isfinite isinf isnan log
log10 log1p log2 logical_not positive radians reciprocal rsqrt sign sin sinh sqrt square stop_gradient tan tanh
trunc""".split()


def _unary(name):
    function = getattr(_arrays, name)

    def call(a, stream=None):
        return function(a)

    return _named(call, name, function.__doc__)


globals().update({name: _unary(name) for name in _UNARY})
arccos, arccosh, arcsin, arcsinh = acos, acosh, asin, asinh  # noqa: F821
arctan, arctanh, conjugate = atan, atanh, conj  # noqa: F821


def negative(a, stream=None):
    """-a; a bool has none."""
    if as_array(a).dtype == _arrays.bool:
        raise ValueError("negative: the array is bool, expected numbers; logical_not negates bool")
    return _arrays.negative(a)


def _real_function(name):
    function = getattr(_arrays, name)

    def call(a, stream=None):
        if isinstance(a, Array) and a.dtype.name.startswith("complex"):
            raise ValueError(f"{name}: dtype {a.dtype}, expected a real one")
        return function(a)

    return _named(call, name, function.__doc__)


expm1, sigmoid = _real_function("expm1"), _real_function("sigmoid")


def isposinf(a, stream=None):
    """True where a is inf; of complex numbers the real part counts."""
    return _arrays.isposinf(real(a))


def isneginf(a, stream=None):
    """True where a is -inf; of complex numbers the real part counts."""
    return _arrays.isneginf(real(a))


def bitwise_invert(a, stream=None):
    """~a"""
    return _arrays.bitwise_invert(a)


def real(a, stream=None):
    """The real part: a itself, if it is real."""
    a = as_array(a)
    return _arrays.real(a) if a.dtype.name.startswith("complex") else a


def imag(a, stream=None):
    """The imaginary part: zeros, if a is real."""
    a = as_array(a)
    return _arrays.imag(a) if a.dtype.name.startswith("complex") else _arrays.zeros_like(a)


def round(a, /, decimals=0, stream=None):
    """The nearest number with so many decimals."""
    return _arrays.round(a, decimals)


def nan_to_num(a, nan=0, posinf=None, neginf=None, stream=None):
    """Numbers instead of NaN and infinities; None: the largest one of the dtype."""
    a = as_array(a)
    names = {name: value for name, value in (("posinf", posinf), ("neginf", neginf)) if value is not None}
    return _arrays.nan_to_num(a, nan, **names)


# ---- functions of two

_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}


def _by_operator(name, apply):
    def call(a, b, stream=None):
        return apply(as_array(a) if not isinstance(b, Array) or isinstance(a, (list, tuple)) else a, b)

    return _named(call, name, apply.__doc__)


globals().update({name: _by_operator(name, apply) for name, apply in _OPERATORS.items()})
pow = power  # noqa: F821

_BINARY = {name: name for name in "arctan2 logaddexp logical_and logical_or logical_xor maximum minimum".split()}
_BINARY["arctan2"] = "atan2"


def _binary(name, own):
    function = getattr(_arrays, own)

    def call(a, b, stream=None):
        return function(a, b)

    return _named(call, name, function.__doc__)


globals().update({name: _binary(name, own) for name, own in _BINARY.items()})
atan2 = arctan2  # noqa: F821


def _shift(function, a, b):
    a, b = as_array(a), as_array(b) if isinstance(b, Array) or not isinstance(a, Array) else b
    if a.dtype == _arrays.bool and (not isinstance(b, Array) or b.dtype == _arrays.bool):
        a = a.astype(_arrays.uint8)
    return function(a, b)


def left_shift(a, b, stream=None):
    """a << b; bool becomes uint8."""
    return _shift(operator.lshift, a, b)


def right_shift(a, b, stream=None):
    """a >> b; bool becomes uint8."""
    return _shift(operator.rshift, a, b)


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


def divmod(a, b, stream=None):
    """A list of a // b and a % b, without gradients."""
    return list(_arrays.divmod(_arrays.stop_gradient(as_array(a)), _arrays.stop_gradient(as_array(b))))


def where(condition, x, y, /, *, stream=None):
    """x where the condition is true, else y."""
    return _arrays.where(condition, x, y)


def clip(a, /, a_min=None, a_max=None, *, stream=None):
    """a between a_min and a_max, one of which may be None."""
    if a_min is None and a_max is None:
        raise ValueError("clip: a_min and a_max are None, expected at least one bound")
    return _arrays.clip(a, a_min, a_max)


def isclose(a, b, /, rtol=1e-5, atol=1e-8, *, equal_nan=False, stream=None):
    """True where |a - b| <= atol + rtol * |b|."""
    return _arrays.isclose(a, b, rtol, atol, equal_nan)


def allclose(a, b, /, rtol=1e-5, atol=1e-8, *, equal_nan=False, stream=None):
    """True if isclose is true everywhere."""
    return _arrays.allclose(a, b, rtol, atol, equal_nan)


def array_equal(a, b, equal_nan=False, stream=None):
    """True if shapes and elements are equal."""
    return _arrays.array_equal(a, b, equal_nan)


# ---- reductions

_SHORT = {"int8": _arrays.int32, "int16": _arrays.int32, "uint8": _arrays.uint32, "uint16": _arrays.uint32}


def _sum_dtype(a):
    """Integers of fewer than 32 bits are summed in 32."""
    return _arrays.int32 if a.dtype == _arrays.bool else _SHORT.get(a.dtype.name, a.dtype)


def _axes(axis):
    return tuple(axis) if isinstance(axis, list) else axis


def _reduction(name):
    function = getattr(_arrays, name)

    def call(a, /, axis=None, keepdims=False, *, stream=None):
        return function(a, _axes(axis), keepdims)

    return _named(call, name, function.__doc__)


globals().update({name: _reduction(name) for name in "all any logsumexp mean median".split()})


def _complex_best(best, a, axis, keepdims):
    """By the real part, then by the imaginary one; NaN if a part of one is NaN."""
    first, second = _arrays.real(a), _arrays.imag(a)
    most = best(first, axis, True)
    ties = _arrays.where(first == most, second, float("-inf") if best is _arrays.max else float("inf"))
    result = _arrays.complex(most, best(ties, axis, True))
    is_nan = _arrays.any(_arrays.isnan(a), axis, True)
    result = _arrays.where(is_nan, complex(float("nan"), float("nan")), result)
    return result if keepdims else _arrays.squeeze(result, tuple(range(a.ndim)) if axis is None else axis)


def _best(name, a, axis, keepdims):
    a, axis = as_array(a), _axes(axis)
    axes = range(a.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    if _builtins.any(a.shape[i] == 0 for i in axes):
        raise ValueError(f"{name}: shape {a.shape} over axis {axis}, expected elements")
    function = getattr(_arrays, name)
    is_complex = a.dtype.name.startswith("complex")
    return _complex_best(function, a, axis, keepdims) if is_complex else function(a, axis, keepdims)


def max(a, /, axis=None, keepdims=False, *, stream=None):
    """The largest element over axes."""
    return _best("max", a, axis, keepdims)


def min(a, /, axis=None, keepdims=False, *, stream=None):
    """The smallest element over axes."""
    return _best("min", a, axis, keepdims)


def sum(a, /, axis=None, keepdims=False, *, stream=None):
    """The sum over axes; integers of fewer than 32 bits are summed in 32."""
    a = as_array(a)
    return _arrays.sum(a, _axes(axis), keepdims, _sum_dtype(a))


def prod(a, /, axis=None, keepdims=False, *, stream=None):
    """The product over axes; integers of fewer than 32 bits are multiplied in 32."""
    a = as_array(a)
    return _arrays.prod(a, _axes(axis), keepdims, _sum_dtype(a))


def var(a, /, axis=None, keepdims=False, ddof=0, *, stream=None):
    """The variance over axes, with divisor n - ddof."""
    return _arrays.var(a, _axes(axis), keepdims, ddof)


def std(a, /, axis=None, keepdims=False, ddof=0, *, stream=None):
    """The standard deviation over axes, with divisor n - ddof."""
    return _arrays.std(a, _axes(axis), keepdims, ddof)


def argmax(a, /, axis=None, keepdims=False, *, stream=None):
    """The place of the largest element, uint32."""
    return _arrays.argmax(a, axis, keepdims).astype(_arrays.uint32)


def argmin(a, /, axis=None, keepdims=False, *, stream=None):
    """The place of the smallest element, uint32."""
    return _arrays.argmin(a, axis, keepdims).astype(_arrays.uint32)


def count_nonzero(a, /, *, axis=None, keepdims=False, stream=None):
    """The number of elements that are not 0, int32."""
    return _arrays.count_nonzero(a, _axes(axis), keepdims).astype(_arrays.int32)


def minmax(a, /, axis=None, keepdims=False, *, stream=None):
    """The smallest and the largest elements over axes."""
    return min(a, axis, keepdims), max(a, axis, keepdims)


# ---- along an axis


def softmax(a, /, axis=None, *, precise=False, stream=None):
    """exp(a) / sum(exp(a)) over axes, None: all. precise: float16 and bfloat16 are computed in float32 in any case."""
    a = as_array(a)
    axes = tuple(range(a.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) == 1:
        return _arrays.softmax(a, axes[0])
    e = _arrays.exp(a - _arrays.stop_gradient(_arrays.max(a, axes, True)))
    return e / _arrays.sum(e, axes, True)


def _scan(function, a, axis, reverse, inclusive, start):
    """A cumulative function, from the end with reverse; without inclusive moved by one element, start in front."""
    a = as_array(a)
    if axis is None:
        a, axis = _arrays.reshape(a, -1), 0
    a = _arrays.flip(a, axis) if reverse else a
    result = function(a, axis)
    if not inclusive and result.shape[axis] > 0:
        index = [slice(None)] * result.ndim
        index[axis] = slice(0, -1)
        first = list(result.shape)
        first[axis] = 1
        before = _arrays.full(first, start(result.dtype), dtype=result.dtype)
        result = _arrays.concat([before, result[tuple(index)]], axis)
    return _arrays.flip(result, axis) if reverse else result


def cumsum(a, /, axis=None, *, reverse=False, inclusive=True, dtype=None, stream=None):
    """Sums of the elements up to each one; without inclusive before each one."""
    a = as_array(a) if dtype is None else as_array(a).astype(dtype)
    dtype = _arrays.int32 if a.dtype == _arrays.bool else a.dtype
    function = lambda x, axis: _arrays.cumulative_sum(x, axis, False, dtype)  # noqa: E731
    return _scan(function, a, axis, reverse, inclusive, lambda _: 0)


def cumprod(a, /, axis=None, *, reverse=False, inclusive=True, dtype=None, stream=None):
    """Products of the elements up to each one; without inclusive before each one."""
    a = as_array(a) if dtype is None else as_array(a).astype(dtype)
    return _scan(
        lambda x, axis: _arrays.cumulative_prod(x, axis, False, x.dtype), a, axis, reverse, inclusive, lambda _: 1
    )


def _lowest(dtype):
    if dtype == _arrays.bool:
        return False
    return _hr.iinfo(dtype).min if "int" in dtype.name else float("-inf")


def _highest(dtype):
    if dtype == _arrays.bool:
        return True
    return _hr.iinfo(dtype).max if "int" in dtype.name else float("inf")


def cummax(a, /, axis=None, *, reverse=False, inclusive=True, stream=None):
    """The largest of the elements up to each one."""
    return _scan(_arrays.cumulative_max, a, axis, reverse, inclusive, _lowest)


def cummin(a, /, axis=None, *, reverse=False, inclusive=True, stream=None):
    """The smallest of the elements up to each one."""
    return _scan(_arrays.cumulative_min, a, axis, reverse, inclusive, _highest)


def logcumsumexp(a, /, axis=None, *, reverse=False, inclusive=True, stream=None):
    """Logarithms of sums of exp of the elements up to each one."""
    return _scan(_arrays.logcumsumexp, a, axis, reverse, inclusive, _lowest)


cumulative_sum, cumulative_prod = cumsum, cumprod


def diff(a, /, n=1, axis=-1, *, stream=None):
    """Differences of neighbours, n times."""
    return _arrays.diff(as_array(a), n, axis)


# ---- order


def _ordered(function, a, axis):
    a = as_array(a)
    return function(_arrays.reshape(a, -1), 0) if axis is None else function(a, axis)


def sort(a, /, axis=-1, *, stream=None):
    """The elements in increasing order along an axis; None: all. Complex ones by the real part, then the imaginary."""
    return _ordered(_arrays.sort, a, axis)


def argsort(a, /, axis=-1, *, stream=None):
    """The places of the elements in increasing order, uint32."""
    return _ordered(_arrays.argsort, a, axis).astype(_arrays.uint32)


def _checked_place(who, a, kth, axis):
    a = as_array(a)
    size = a.size if axis is None else a.shape[axis]
    if not -size <= kth < size:
        raise ValueError(f"{who}: element {kth} of {size} along axis {axis}")


def partition(a, /, kth, axis=-1, *, stream=None):
    """Element kth is at its place in increasing order, smaller ones are before and larger ones behind it."""
    _checked_place("partition", a, kth, axis)
    return sort(a, axis)


def argpartition(a, /, kth, axis=-1, *, stream=None):
    """The places of partition's elements, uint32."""
    _checked_place("argpartition", a, kth, axis)
    return argsort(a, axis)


def topk(a, /, k, axis=-1, *, stream=None):
    """The k largest elements along an axis, in increasing order; None: of all."""
    a = as_array(a)
    if axis is None:
        a, axis = _arrays.reshape(a, -1), 0
    if not 0 <= k <= a.shape[axis]:
        raise ValueError(f"topk: {k} of {a.shape[axis]} elements")
    if k == 0:
        return a[(slice(None),) * (axis % a.ndim) + (slice(0, 0),)]
    return _arrays.flip(_arrays.topk(a, k, axis)[0], axis)


def searchsorted(sorted_sequence, values, /, side="left", *, stream=None):
    """The places that keep the sequence in order, uint32."""
    if as_array(sorted_sequence).ndim != 1:
        raise ValueError(f"searchsorted: the sequence has {as_array(sorted_sequence).ndim} dims, expected 1")
    return _hr.searchsorted(as_array(sorted_sequence), as_array(values), side).astype(_arrays.uint32)
