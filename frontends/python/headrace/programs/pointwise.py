"""ATen's operators on elements: arithmetic, comparisons and activations."""

from headrace import _arrays as A
from headrace._arrays import Value
from headrace.programs.table import OPERATORS, cast, of, size, with_value

# ---- arithmetic, element by element


def _unary(names):
    """ATen's name, or name=ours."""
    for name in names.split():
        aten, _, ours = name.partition("=")
        function = getattr(A, ours or aten)
        OPERATORS[aten] = lambda c, function=function, **arguments: function(
            cast(next(iter(arguments.values())), c.dtype)
        )


def _binary(names):
    for name in names.split():
        aten, _, ours = name.partition("=")
        function = getattr(A, ours or aten)

        def apply(c, function=function, **arguments):
            first, second = list(arguments.values())[:2]
            return function(*with_value(c, [cast(first, c.dtype), cast(second, c.dtype)]))

        OPERATORS[aten] = apply


def _comparison(names):
    """Operands are compared in the dtype that they have in common."""
    for name in names.split():
        aten, _, ours = name.partition("=")
        function = getattr(A, ours)

        def apply(c, function=function, **arguments):
            common = c.common()
            first, second = list(arguments.values())[:2]
            return function(cast(first, common), cast(second, common))

        OPERATORS[aten] = apply


_unary(
    "abs neg=negative sign sgn=sign square reciprocal sqrt rsqrt floor ceil trunc frac exp exp2 expm1 log log2 log10"
    " log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid relu"
    " silu mish hardswish relu6 positive"
)
_binary(
    "mul=multiply maximum minimum fmax fmin atan2 hypot copysign nextafter heaviside logaddexp logaddexp2 remainder"
    " fmod floor_divide pow xlogy gcd lcm bitwise_left_shift bitwise_right_shift"
    " __lshift__=bitwise_left_shift __rshift__=bitwise_right_shift"
)
_comparison("eq=equal ne=not_equal lt=less le=less_equal gt=greater ge=greater_equal")
_comparison("logical_and=logical_and logical_or=logical_or logical_xor=logical_xor")


@of("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not")
def test(c, self):
    return getattr(A, c.name)(self)


@of("add", "sub")
def add(c, self, other, alpha=1):
    function = A.add if c.name == "add" else A.subtract
    other = cast(other, c.dtype)
    return function(*with_value(c, [cast(self, c.dtype), other if alpha == 1 else other * alpha]))


@of("rsub")
def rsub(c, self, other, alpha=1):
    return A.subtract(cast(other, c.dtype), cast(self, c.dtype) * alpha if alpha != 1 else cast(self, c.dtype))


@of("div", "divide", "true_divide")
def div(c, self, other, rounding_mode=None):
    x, y = with_value(c, [cast(self, c.dtype), cast(other, c.dtype)])
    if rounding_mode == "floor":
        return A.floor_divide(x, y)
    if rounding_mode == "trunc" and "int" in c.dtype:
        return A.floor_divide(A.subtract(x, A.fmod(x, y)), y)
    return A.divide(x, y) if rounding_mode is None else A.trunc(A.divide(x, y))


@of("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
def bitwise(c, self, other):
    name = c.name.strip("_").removeprefix("bitwise_")
    kind = "logical" if c.dtype == "bool" else "bitwise"
    return getattr(A, f"{kind}_{name}")(cast(self, c.dtype), cast(other, c.dtype))


@of("bitwise_not")
def bitwise_not(c, self):
    return A.logical_not(self) if c.dtype == "bool" else A.bitwise_invert(self)


@of("round")
def round_(c, self, decimals=0):
    return A.round(self, decimals)


@of("clamp", "clip")
def clamp(c, self, min=None, max=None):
    return A.clip(cast(self, c.dtype), *[cast(bound, c.dtype) for bound in (min, max)])


@of("clamp_min", "clamp_max")
def clamp_one(c, self, min=None, max=None):
    return clamp(c, self, min, max)


@of("where")
def where(c, condition, self, other):
    return A.where(condition, *[cast(x, c.dtype) if isinstance(x, Value) else c.constant(x) for x in (self, other)])


@of("masked_fill")
def masked_fill(c, self, mask, value):
    value = cast(value, c.dtype) if isinstance(value, Value) else c.constant(value)
    return A.where(mask, value, self)


@of("addcmul", "addcdiv")
def fused(c, self, tensor1, tensor2, value=1):
    combine = A.multiply if c.name == "addcmul" else A.divide
    return self + combine(tensor1, tensor2) * value if value != 1 else self + combine(tensor1, tensor2)


@of("lerp")
def lerp(c, self, end, weight):
    return A.lerp(self, end, weight)


# ---- activations


@of("gelu")
def gelu(c, self, approximate="none"):
    return A.gelu(self, approximate)


@of("elu")
def elu(c, self, alpha=1, scale=1, input_scale=1):
    if input_scale != 1:
        self = A.where(self > 0, self, self * input_scale)
    y = A.elu(self, alpha)
    return y * scale if scale != 1 else y


@of("celu")
def celu(c, self, alpha=1):
    return A.celu(self, alpha)


@of("selu")
def selu(c, self):
    return A.selu(self)


@of("leaky_relu")
def leaky_relu(c, self, negative_slope=0.01):
    return A.leaky_relu(self, negative_slope)


@of("prelu")
def prelu(c, self, weight):
    count = size(weight, 0) if weight.ndim else 1
    return A.prelu(
        self, A.reshape(weight, [count if axis == 1 else 1 for axis in range(self.ndim)]) if count != 1 else weight
    )


@of("hardtanh")
def hardtanh(c, self, min_val=-1, max_val=1):
    return A.clip(self, min_val, max_val)


@of("hardsigmoid")
def hardsigmoid(c, self):
    return A.hard_sigmoid(self)


@of("softplus")
def softplus(c, self, beta=1, threshold=20):
    return A.softplus(self, beta, threshold)


@of("softshrink", "hardshrink")
def shrink(c, self, lambd=0.5):
    return (A.softshrink if c.name == "softshrink" else A.hard_shrink)(self, lambd)


@of("threshold")
def threshold(c, self, threshold, value):
    return A.threshold(self, threshold, value)


@of("log_sigmoid")
def log_sigmoid(c, self):
    return A.log_sigmoid(self)


@of("glu")
def glu(c, self, dim=-1):
    return A.glu(self, dim)


@of("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(c, self, dim, dtype=None, half_to_float=False):
    function = A.log_softmax if "log" in c.name else A.softmax
    return function(cast(self, c.dtype), dim) if self.ndim else function(A.reshape(cast(self, c.dtype), [1]), 0)[0]
