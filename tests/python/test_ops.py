"""Each operator that the networks use, forward and backward, against torch's CPU device: dtypes, shapes, layouts in
memory (transposed, strided, sliced, expanded), empty tensors, NaN and infinities.

`check` does the comparison: it calls a function on both devices with the same inputs in the same layout, and
differentiates both by the same random gradients.
"""

import contextlib
import math

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, assert_same, assert_summed, synchronize

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0, 2), (1030,), (65, 33)]

# How a tensor of some shape may lie in memory. Each takes a contiguous tensor and gives an equal one.
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x,
    "strided": lambda x: torch.stack([x, torch.zeros_like(x)], -1)[..., 0],
    "offset": lambda x: torch.cat([torch.zeros_like(x[:1]), x])[1:] if x.dim() > 0 else x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
}


def numbers(shape, dtype=torch.float32, seed=0, low=-3.0, high=3.0):
    """Random numbers of a dtype: floats between low and high, integers too, booleans."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if not dtype.is_floating_point:
        values = values.round()
        return values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)
    return values.to(dtype)


def specials(dtype=torch.float32):
    """NaN, infinities, both zeros and numbers around the interesting places of the usual functions."""
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-8, -1e-8, 20.0, -20.0]
    values += [88.0, -88.0, 100.0, -100.0, 1e10, -1e10, 3e38, -3e38, 1e-30, 6.0, 3.0, -3.0]
    return torch.tensor(values, dtype=dtype)


def lay(tensor, layout, where):
    return LAYOUTS[layout](tensor.to(where))


def flatten(result):
    return [t for t in (result if isinstance(result, tuple | list) else [result]) if t is not None]


def check(function, *inputs, layout="contiguous", grad=True, compare=assert_same, **bounds):
    """Compares function(*inputs) on both devices, and its gradients for the float inputs."""
    results = []
    for where in (torch.device("cpu"), DEVICE):
        moved = []
        for value in inputs:
            if isinstance(value, torch.Tensor):
                value = lay(value, layout, where).detach()
                value.requires_grad_(grad and value.is_floating_point())
            moved.append(value)
        outputs = flatten(function(*moved))
        gradients = []
        if grad:
            pairs = [
                (output, numbers(output.shape, output.dtype, 99 + index, -1.0, 1.0).to(where))
                for index, output in enumerate(outputs)
                if output.requires_grad
            ]
            wanted = [value for value in moved if isinstance(value, torch.Tensor) and value.requires_grad]
            if pairs and wanted:
                made, weights = zip(*pairs)
                gradients = torch.autograd.grad(made, wanted, weights, allow_unused=True)
        results.append((outputs, gradients))
    (expected, expected_gradients), (actual, actual_gradients) = results
    assert len(actual) == len(expected)
    for index, (a, e) in enumerate(zip(actual, expected)):
        compare(a, e, f"output {index}", **bounds)
    for index, (a, e) in enumerate(zip(actual_gradients, expected_gradients)):
        assert (a is None) == (e is None), f"gradient {index}"
        if e is not None:
            compare(a, e, f"gradient {index}", **bounds)


def check_summed(function, *inputs, **options):
    check(function, *inputs, compare=assert_summed, **options)


# ---- element-wise, one operand

# name -> (function, lowest and highest argument at which its value and gradient are tame)
UNARY = {
    "abs": (torch.abs, -3, 3),
    "neg": (torch.neg, -3, 3),
    "sign": (torch.sign, -3, 3),
    "floor": (torch.floor, -3, 3),
    "ceil": (torch.ceil, -3, 3),
    "round": (torch.round, -3, 3),
    "trunc": (torch.trunc, -3, 3),
    "square": (torch.square, -3, 3),
    "reciprocal": (torch.reciprocal, 0.3, 3),
    "sqrt": (torch.sqrt, 0.1, 5),
    "rsqrt": (torch.rsqrt, 0.1, 5),
    "exp": (torch.exp, -5, 5),
    "expm1": (torch.expm1, -3, 3),
    "log": (torch.log, 0.1, 5),
    "log1p": (torch.log1p, -0.7, 5),
    "log2": (torch.log2, 0.1, 5),
    "sin": (torch.sin, -6, 6),
    "cos": (torch.cos, -6, 6),
    "tanh": (torch.tanh, -4, 4),
    "sigmoid": (torch.sigmoid, -6, 6),
    "erf": (torch.erf, -3, 3),
    "atan": (torch.atan, -5, 5),
    "relu": (F.relu, -3, 3),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), -3, 3),
    "elu": (F.elu, -3, 3),
    "gelu": (F.gelu, -4, 4),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), -4, 4),
    "silu": (F.silu, -5, 5),
    "softplus": (F.softplus, -5, 5),
    "softshrink": (F.softshrink, -2, 2),
    "hardshrink": (F.hardshrink, -2, 2),
    "hardtanh": (F.hardtanh, -3, 3),
    "relu6": (F.relu6, -3, 9),
    "threshold": (lambda x: F.threshold(x, 0.3, -1.0), -2, 2),
    "clamp": (lambda x: x.clamp(-0.5, 1.5), -3, 3),
    "clamp min": (lambda x: x.clamp(min=0.25), -3, 3),
    "clamp max": (lambda x: x.clamp(max=0.25), -3, 3),
    "pow 2": (lambda x: x.pow(2), -3, 3),
    "pow 3": (lambda x: x**3, -2, 2),
    "pow -1": (lambda x: x**-1, 0.3, 3),
    "pow 0.5": (lambda x: x**0.5, 0.1, 3),
    "pow 2.5": (lambda x: x**2.5, 0.1, 3),
    "2 pow": (lambda x: 2.0**x, -3, 3),
    "scale and shift": (lambda x: 3 - x * 0.5 + 1, -3, 3),
    "divide": (lambda x: 2 / x, 0.3, 3),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    function, low, high = UNARY[name]
    for dtype in FLOATS:
        for index, shape in enumerate(SHAPES):
            check(function, numbers(shape, dtype, index, low, high), rtol=2e-5 if dtype == torch.float32 else 1e-11)
    for layout in LAYOUTS:
        check(function, numbers((4, 6, 5), seed=3, low=low, high=high), layout=layout, rtol=2e-5)


@pytest.mark.parametrize("name", UNARY)
def test_unary_specials(name):
    """NaN, infinities, zeros and large numbers go where torch's CPU device sends them; so do their gradients.

    Left out is where torch disagrees with itself, its vector form with its scalar form or with the formula: gradients
    at NaN, gelu of infinity, sines of huge numbers.
    """
    for dtype in FLOATS:
        x = specials(dtype)
        if name in ("sin", "cos"):
            x = x[(x.abs() < 1e3) | ~x.isfinite()]
        if name == "gelu":
            x = x[(x.abs() < 1e3) | x.isnan()]
        check(UNARY[name][0], x, grad=False, rtol=2e-5, atol=1e-6)
        check(UNARY[name][0], x[~x.isnan()], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["abs", "exp", "sqrt", "tanh", "sigmoid", "relu", "gelu", "silu", "clamp"])
def test_unary_halves(name, dtype):
    function, low, high = UNARY[name]
    check(function, numbers((5, 37), dtype, 1, low, high), grad=False)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_unary_integers(dtype):
    x = numbers((4, 9), dtype, 0, -100, 100)
    for function in (torch.abs, torch.neg, torch.sign, torch.square, F.relu, lambda x: x.clamp(2, 50), lambda x: x**2):
        check(function, x)
    for function in (torch.sqrt, torch.exp, torch.sigmoid, torch.tanh):
        check(function, x % 7 + 1, rtol=2e-5)
    check(torch.bitwise_not, x)


def test_negative_zero_and_sign():
    x = torch.tensor([0.0, -0.0, 1.0, 2.0])
    for function in (torch.neg, torch.abs, lambda x: x + 0.0, lambda x: x * -1, lambda x: x * 0, torch.sqrt):
        check(lambda x, f=function: torch.signbit(f(x)), x, grad=False)


# ---- element-wise, two operands

BINARY = {
    "add": torch.add,
    "add alpha": lambda x, y: torch.add(x, y, alpha=2),
    "sub": torch.sub,
    "sub alpha": lambda x, y: torch.sub(x, y, alpha=3),
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp far": lambda x, y: torch.lerp(x, y, 0.7),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "hypot": torch.hypot,
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "pow": lambda x, y: (x.abs() + 0.1) ** y,
    "mse": lambda x, y: (x - y) ** 2,
}
BROADCASTS = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((), (5,)),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (1, 3)),
    ((1,), (0,)),
    ((70, 40), (70, 1)),
    ((1, 1, 1), (2, 3, 4)),
]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    for dtype in FLOATS:
        for index, (left, right) in enumerate(BROADCASTS):
            y = numbers(right, dtype, index + 50)
            x = numbers(left, dtype, index)
            check_summed(BINARY[name], x, torch.where(y.abs() < 0.2, torch.ones_like(y), y))
    for layout in LAYOUTS:
        check_summed(BINARY[name], numbers((4, 6, 5), seed=1), numbers((4, 6, 5), seed=2, low=0.3), layout=layout)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "where", "lerp"])
def test_binary_specials(name):
    x = specials()
    left, right = torch.broadcast_tensors(x[:, None], x[None, :])
    check(BINARY[name], left.contiguous(), right.contiguous(), grad=False)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "where"])
def test_binary_halves_round_each_operation(name, dtype):
    """One operation on halves is computed in float32 and rounded once: the same bits on every device."""
    x, y = numbers((6, 50), dtype, 1), numbers((6, 50), dtype, 2, 0.3, 3)
    check(BINARY[name], x, y, grad=False, rtol=0, atol=0)
    check(lambda x, y: (x * y + x) * y - x, x, y, grad=False, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integer_arithmetic(dtype):
    """Integers wrap around; division by numbers that aren't zero rounds as asked."""
    x, y = numbers((5, 40), dtype, 1, -120, 120), numbers((5, 40), dtype, 2, -120, 120)
    functions = [torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, torch.logical_and, torch.mul, torch.add]
    functions += [torch.maximum, torch.minimum, torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge]
    if dtype != torch.bool:
        functions += [torch.sub, lambda x, y: x * y * y, lambda x, y: x.sub(y, alpha=2), lambda x, y: x + 7]
        nonzero = torch.where(y == 0, torch.ones_like(y), y)
        for mode in (None, "floor", "trunc"):
            check(lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode), x, nonzero)
        check(torch.remainder, x, nonzero)
        check(torch.fmod, x, nonzero)
    for function in functions:
        check(function, x, y)


PROMOTIONS = [torch.bool, torch.uint8, torch.int32, torch.int64, *HALVES, *FLOATS]


@pytest.mark.parametrize("left", PROMOTIONS, ids=str)
def test_promotion(left):
    x = numbers((3, 4), left, 1, 0, 5)
    for right in PROMOTIONS:
        for shape in ((3, 4), ()):
            y = numbers(shape, right, 2, 1, 5)
            for function in (torch.add, torch.mul, torch.div, torch.eq, torch.lt, torch.maximum):
                check(function, x, y, grad=False)
    for number in (True, 2, 2.5):
        for function in (torch.add, torch.mul, torch.div, torch.eq, torch.gt):
            check(lambda x, f=function, number=number: f(x, number), x, grad=False)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    function = getattr(torch, name)
    x = specials()
    check(function, x[:, None].repeat(1, len(x)), x[None].repeat(len(x), 1), grad=False)
    check(lambda x: function(x, 0.5), x, grad=False)
    check(lambda x: function(x, 1), x, grad=False)
    for layout in LAYOUTS:
        x, y = numbers((3, 4), low=-1, high=1).round(), numbers((3, 4), seed=2).round()
        check(function, x, y, layout=layout, grad=False)


def test_classification_of_floats():
    for dtype in FLOATS:
        for function in (torch.isnan, torch.isinf, torch.isfinite, torch.isneginf, torch.isposinf, torch.signbit):
            check(function, specials(dtype), grad=False)


def test_clamp_with_tensors_and_nan():
    x = specials()
    check(lambda x, low, high: x.clamp(low, high), x, torch.full_like(x, -1), torch.full_like(x, 1.5), grad=False)
    check(lambda x: x.clamp(-1, math.nan), x, grad=False)
    check(lambda x: x.clamp(2, -2), numbers((20,)))
    check(torch.fmax, x, x.flip(0), grad=False)
    check(torch.fmin, x, x.flip(0), grad=False)


def test_where_and_masked_fill():
    x, y, mask = numbers((4, 5), seed=1), numbers((4, 5), seed=2), numbers((4, 5), torch.bool)
    for layout in LAYOUTS:
        check(lambda m, x, y: torch.where(m, x, y), mask, x, y, layout=layout)
    check(lambda m, x: torch.where(m, x, 0.5), mask, x)
    check(lambda m, y: torch.where(m, 1, y), mask, y)
    check(lambda m, x, y: torch.where(m, x, y), mask[:, :1], x[:1], y)
    check(lambda m, x, y: torch.where(m, x, y), mask, x, y.double())
    check(lambda x, m: x.masked_fill(m, -math.inf), x, mask)
    check(lambda x, m: x.masked_fill(m, 2), x, mask[0])
    check(lambda x, m, v: x.masked_fill(m, v.detach()), x, mask, torch.tensor(1.5))


@pytest.mark.parametrize("target", [torch.bool, *INTEGERS, *HALVES, *FLOATS], ids=str)
def test_casts(target):
    for source in (torch.bool, *INTEGERS, *HALVES, *FLOATS):
        check(lambda x: x.to(target), numbers((3, 7), source, 1, 0, 60))
    check(lambda x: x.to(target), numbers((9,), low=0.5, high=7.9))  # towards zero
    if target.is_floating_point or target == torch.bool:
        check(lambda x: x.to(target), specials(torch.float64), grad=False)


def test_round_half_to_even():
    check(torch.round, torch.arange(-4.5, 5, 1.0))
    check(lambda x: x.to(torch.bfloat16), torch.tensor([1.00390625, 1.01171875, 3.3895e38, 1e-40, 65504.0, 65520.0]))
    check(lambda x: x.to(torch.float16), torch.tensor([1.00048828125, 65504.0, 65519.0, 65520.0, 6e-8, 2.9e-8, 1e-9]))


def test_results_lie_as_torch_lays_them():
    """Element-wise results keep the order of their operands' dims, as torch's do: a later view depends on it."""
    cases = [
        lambda x: x + 1,
        lambda x: x * x.clone(),
        lambda x: torch.where(x > 0, x, x),
        lambda x: x.to(torch.float64),
        lambda x: x.exp().clone(),
        lambda x: x.clone(memory_format=torch.contiguous_format),
        lambda x: torch.zeros_like(x),
        lambda x: x.sum(1, keepdim=True),
        lambda x: x + x[:1, :1],
    ]
    views = [lambda x: x, lambda x: x.transpose(0, 2), lambda x: x.permute(2, 0, 1, 3), lambda x: x[:, ::2]]
    views += [lambda x: x.contiguous(memory_format=torch.channels_last), lambda x: x[:1].expand(4, -1, -1, -1)]
    for view in views:
        for function in cases:
            expected, actual = (function(view(torch.ones(2, 4, 5, 3, device=where))) for where in ("cpu", DEVICE))
            assert actual.stride() == expected.stride()


# ---- in place, out=, views


def test_in_place_through_views():
    def function(x):
        y = x.clone()
        y[1:3].add_(10)
        y.t()[::2].mul_(2)
        y[:, 1].copy_(y[:, 0])
        y.view(-1)[::3].zero_()
        y.diagonal().fill_(7)
        y[2:, 2:] -= y[:2, :2].clone()
        return y, y.t().contiguous(), y.flip(0), y.select(1, 2)

    for dtype in (*FLOATS, torch.int64):
        check(function, numbers((4, 4), dtype))


def test_fills_may_repeat_themselves():
    """What one element gets twice is the same both times, so torch lets fills through where it refuses other writes."""

    def function(x):
        y = x.clone()
        y[:, :1].expand(3, 4).fill_(5)
        y[0].expand(2, 4).zero_()
        return y

    check(function, numbers((3, 4)), grad=False)


def test_in_place_operators():
    def function(x, y):
        z = x.clone()
        z.add_(y).mul_(2).sub_(y, alpha=0.5).div_(3).clamp_(-2, 2).addcmul_(x, y, value=0.1).lerp_(y, 0.2)
        z.relu_().add_(1).sqrt_().tanh_().sigmoid_().exp_().neg_().abs_()
        F.leaky_relu_(z.sub_(2), 0.1)
        return z.masked_fill_(y > 1, 0.5)

    def differentiable(x, y):
        z = (x * 1).add_(y).mul_(2).clamp_(-2, 2)
        return z.sigmoid_().clone().sub_(0.5).masked_fill(y > 1, 0.5).addcmul_(x, y, value=0.1)

    for layout in LAYOUTS:
        x, y = numbers((5, 6), seed=1), numbers((5, 6), seed=2)
        check(function, x, y, layout=layout, grad=False, rtol=5e-5, atol=1e-5)
        check(differentiable, x, y, layout=layout, rtol=5e-5, atol=1e-5)


def test_out_arguments():
    def function(x, y):
        z, empty = torch.zeros(3, 4, device=x.device), torch.empty(0, device=x.device)
        torch.add(x, y, out=z)
        torch.mul(x, y, out=empty)
        wide = torch.zeros(3, 8, device=x.device)
        torch.sub(x, y, out=wide[:, ::2])
        doubled = torch.empty(3, 4, dtype=torch.float64, device=x.device)
        torch.add(x, y, out=doubled)
        torch.exp(z, out=z)
        total = torch.empty(0, device=x.device)
        torch.sum(x, 1, out=total)
        return z, empty, wide, doubled, total, torch.matmul(x, y.t(), out=torch.empty(0, device=x.device))

    check(function, numbers((3, 4), seed=1), numbers((3, 4), seed=2), grad=False)


def test_foreach_lists():
    shapes = [(3,), (2, 4), (), (0,), (17, 5)]

    def function(*tensors):
        xs, ys = list(tensors[: len(shapes)]), list(tensors[len(shapes) :])
        made = [*torch._foreach_add(xs, ys, alpha=2), *torch._foreach_mul(xs, 0.5)]
        made += torch._foreach_mul(xs, [1.0, 2.0, 3.0, 4.0, 5.0])
        made += torch._foreach_sqrt(torch._foreach_abs(xs))
        made += torch._foreach_norm(xs)
        changed = [x.clone() for x in xs]
        torch._foreach_lerp_(changed, ys, 0.1)
        torch._foreach_addcmul_(changed, ys, ys, value=0.9)
        torch._foreach_addcdiv_(changed, xs, torch._foreach_add(torch._foreach_abs(ys), 1), [1.0] * len(xs))
        torch._foreach_clamp_max_(changed, 2.0)
        return made + changed

    tensors = [numbers(shape, seed=i) for i, shape in enumerate(shapes + shapes)]
    check(function, *tensors, grad=False, rtol=1e-5, atol=1e-5)
    check(function, *tensors, grad=False, layout="strided", rtol=1e-5, atol=1e-5)


# ---- reductions

DIMS = [None, 0, 1, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)]
REDUCED = [(3, 4, 5), (2, 33, 70), (4, 0, 3), (1, 1, 1), (5, 130, 3)]
REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "logsumexp": torch.logsumexp,
    "var": lambda x, dim, keepdim=False: torch.var(x, dim, keepdim=keepdim),
    "var biased": lambda x, dim, keepdim=False: torch.var(x, dim, correction=0, keepdim=keepdim),
    "std": lambda x, dim, keepdim=False: torch.std(x, dim, keepdim=keepdim),
    "var_mean": lambda x, dim, keepdim=False: torch.var_mean(x, dim, keepdim=keepdim),
    "norm": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 2, dim, keepdim),
    "norm 1": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 1, dim, keepdim),
    "norm inf": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, math.inf, dim, keepdim),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    function = REDUCTIONS[name]
    for dtype in FLOATS:
        for index, shape in enumerate(REDUCED):
            for dim in DIMS:
                if name in ("amax", "amin", "logsumexp") and dim is None:
                    dim = (0, 1, 2)
                empty = 0 in shape
                if empty and (name in ("amax", "amin", "norm inf") or name.startswith(("var", "std"))):
                    continue
                if shape == (1, 1, 1) and name.startswith(("var", "std")) and name != "var biased":
                    continue  # division by zero, with a warning
                for keepdim in (False, True):
                    if dtype == torch.float32 or not keepdim:
                        x = numbers(shape, dtype, index)
                        check_summed(lambda x, d=dim, k=keepdim: function(x, d, keepdim=k), x, factor=2)
    for layout in LAYOUTS:
        check_summed(lambda x: function(x, (1, 2)), numbers((3, 9, 7, 2), seed=5), layout=layout, factor=2)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 4096, 4097, 100_003])
def test_long_sums(size):
    x = numbers((size,))
    check_summed(torch.sum, x)
    check_summed(lambda x: x.view(1, -1).expand(3, -1).sum(1), x)
    check_summed(lambda x: x.view(-1, 1).expand(-1, 3).sum(0), x)
    check_summed(torch.sum, x.double())


def test_sums_of_integers_and_halves():
    for dtype in (torch.bool, *INTEGERS):
        check(torch.sum, numbers((50, 9), dtype, 0, -100, 100))
        check(lambda x: x.sum(0), numbers((50, 9), dtype, 0, -100, 100))
        check(lambda x: x.sum(1, dtype=torch.float32), numbers((50, 9), dtype, 0, -100, 100))
    for dtype in HALVES:
        check_summed(lambda x: x.sum(1), numbers((5, 300), dtype), grad=False)
        check_summed(lambda x: x.mean(0), numbers((300, 5), dtype), grad=False)
    check(lambda x: x.sum(0, dtype=torch.float64), numbers((50, 9)))


def test_truth():
    for dtype in (torch.bool, torch.float32, torch.int64, torch.uint8):
        x = numbers((3, 4, 5), torch.float32, 0, -1, 1).round().to(dtype)
        for function in (torch.any, torch.all):
            check(function, x, grad=False)
            for dim in (0, 1, -1, (0, 2)):
                check(lambda x, f=function, d=dim: f(x, dim=d), x, grad=False)
                check(lambda x, f=function, d=dim: f(x, dim=d, keepdim=True), x, grad=False)
            check(function, x[:0], grad=False)
    check(torch.any, torch.tensor([0.0, math.nan]), grad=False)


def test_extremes_and_their_places():
    distinct = torch.randperm(60, generator=torch.Generator().manual_seed(0)).float().view(3, 4, 5)
    ties = numbers((6, 7), low=-1, high=1).round()
    with_nan = distinct.clone()
    with_nan[1, 2, 3] = with_nan[0, 0, 1] = math.nan
    for x in (distinct, distinct.long(), with_nan):
        for function in (torch.max, torch.min, torch.argmax, torch.argmin):
            check(function, x, grad=False)
            for dim in range(3):
                check(lambda x, f=function, d=dim: f(x, d), x, grad=False)
                check(lambda x, f=function, d=dim: f(x, d, keepdim=True), x, grad=False)
    for function in (torch.argmax, torch.argmin):  # the first of equals
        check(function, ties, grad=False)
        check(lambda x, f=function: f(x, 1), ties, grad=False)
        check(lambda x, f=function: f(x, 0), ties, grad=False)
    for dim in range(3):
        check(lambda x, d=dim: x.max(d).values, distinct)
        check(lambda x, d=dim: x.min(d).values, distinct)
    check(torch.max, distinct)
    check(lambda x: x.amax((0, 2)), ties[None])
    for layout in LAYOUTS:
        check(lambda x: x.max(1), distinct, layout=layout, grad=False)


def test_reductions_of_specials():
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, math.inf, 88.0, -2.0, 100.0, -100.0, 1e-30, -1e30, 5.0]
    rows = torch.tensor([values[i : i + 4] for i in range(10)])
    for function in (torch.sum, torch.amax, torch.amin, torch.mean, torch.logsumexp):
        check(lambda x, f=function: f(x, 1), rows, grad=False, rtol=1e-5)
    check(lambda x: x.softmax(1), rows, grad=False, rtol=1e-5)


# ---- softmax and losses


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax], ids=lambda f: f.__name__)
def test_softmax(function):
    for dtype in FLOATS:
        for shape in ((5,), (4, 10), (2, 3, 1030), (3, 0), (2, 5, 3, 3)):
            for dim in range(-1, len(shape) - 1):
                check_summed(lambda x, d=dim: function(x, d), numbers(shape, dtype, 0, -8, 8))
    for layout in LAYOUTS:
        check_summed(lambda x: function(x, 1), numbers((3, 9, 4, 2)), layout=layout)
    check_summed(lambda x: function(x, 0), torch.tensor(2.0))
    masked = numbers((4, 6))
    masked[1, 2:] = -math.inf
    masked[2] = -math.inf
    check(lambda x: function(x, 1), masked, grad=False)
    check(lambda x: function(x, 1, dtype=torch.float32), numbers((3, 7), torch.bfloat16))
    check_summed(lambda x: function(x * 1e4, 1), numbers((3, 7)), grad=False)


REDUCE = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCE)
def test_classification_losses(reduction):
    targets = torch.tensor([0, 3, 6, 2, 3])
    weight = numbers((7,), low=0.2, high=2)
    for dtype in FLOATS:
        x = numbers((5, 7), dtype)
        check_summed(lambda x, t: F.cross_entropy(x, t, reduction=reduction), x, targets)
        check_summed(lambda x, t: F.nll_loss(x.log_softmax(1), t, reduction=reduction), x, targets)
    x = numbers((5, 7))
    check_summed(lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction=reduction), x, targets, weight)
    check_summed(lambda x, t: F.cross_entropy(x, t, ignore_index=3, reduction=reduction), x, targets)
    check_summed(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction=reduction), x, targets)
    pixels = (torch.arange(2 * 4 * 3) % 5).view(2, 4, 3)
    for layout in ("contiguous", "channels last", "strided"):
        image = numbers((2, 5, 4, 3), seed=2)
        check_summed(lambda x, t: F.cross_entropy(x, t, reduction=reduction), image, pixels, layout=layout)
    image = numbers((2, 5, 4, 3), seed=2)
    check_summed(lambda x, t, w: F.nll_loss(x, t, w.detach(), reduction=reduction), image, pixels, weight[:5])
    check_summed(lambda x, p: F.cross_entropy(x, p.softmax(1), reduction=reduction), x, numbers((5, 7), seed=9))
    if reduction != "mean":
        check_summed(lambda x, t: F.nll_loss(x, t, reduction=reduction), x[:0], targets[:0])
        check_summed(lambda x, t: F.nll_loss(x, t, ignore_index=3, reduction=reduction), x[1:2], targets[1:2])
    check_summed(lambda x, t: F.nll_loss(x, t, reduction=reduction), x[0], targets[1])


@pytest.mark.parametrize("reduction", REDUCE)
def test_regression_losses(reduction):
    for dtype in FLOATS:
        for shape in ((9,), (4, 5), (3, 70, 20), (2, 0)):
            x, y = numbers(shape, dtype, 1), numbers(shape, dtype, 2)
            if 0 in shape and reduction == "mean":
                continue
            check_summed(lambda x, y: F.mse_loss(x, y, reduction=reduction), x, y)
            check_summed(lambda x, y: F.l1_loss(x, y, reduction=reduction), x, y)
            check_summed(lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.7), x, y)
            check_summed(lambda x, y: F.huber_loss(x, y, reduction=reduction, delta=0.5), x, y)
            p, t = numbers(shape, dtype, 1, 0.02, 0.98), numbers(shape, dtype, 2, 0, 1)
            check_summed(lambda p, t: F.binary_cross_entropy(p, t.detach(), reduction=reduction), p, t)
            check_summed(lambda x, t: F.binary_cross_entropy_with_logits(x, t.detach(), reduction=reduction), x, t)
    x, y, w = numbers((4, 5), seed=1), numbers((4, 5), seed=2, low=0, high=1), numbers((4, 5), seed=3, low=0, high=2)

    def weighted(x, y, w):
        y, w = y.detach(), w.detach()
        plain = F.binary_cross_entropy(x.sigmoid(), y, w, reduction=reduction)
        return plain, F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w[0], reduction=reduction)

    check_summed(weighted, x, y, w)
    for layout in LAYOUTS:
        check_summed(lambda x, y: F.mse_loss(x, y, reduction=reduction), x, y, layout=layout)


def test_binary_cross_entropy_at_its_ends():
    """Its logarithms are cut at -100, so that a certain answer has a finite loss."""
    p = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5])
    t = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    check(lambda p, t: F.binary_cross_entropy(p, t.detach(), reduction="none"), p, t)
    check(lambda x, t: F.binary_cross_entropy_with_logits(x * 200 - 100, t.detach(), reduction="none"), p, t)


# ---- normalisation


def test_layer_norm():
    for dtype in FLOATS:
        for shape, normalized in (((4, 10), 1), ((2, 3, 768), 1), ((2, 3, 4, 5), 2), ((3, 4097), 1), ((0, 5), 1)):
            x, tail = numbers(shape, dtype), shape[len(shape) - normalized :]
            w, b = numbers(tail, dtype, 1), numbers(tail, dtype, 2)
            check_summed(lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, w, b, factor=2)
            check_summed(lambda x: F.layer_norm(x, tail), x, factor=2)
    for layout in LAYOUTS:
        check_summed(lambda x, w: F.layer_norm(x, (9,), w, eps=1e-3), numbers((4, 3, 9)), numbers((9,)), layout=layout)


def test_group_norm():
    for dtype in FLOATS:
        for shape, groups in (((2, 6, 5, 4), 3), ((3, 8, 7), 8), ((2, 4, 33, 31), 1), ((4, 6), 2)):
            x, w, b = numbers(shape, dtype), numbers(shape[1:2], dtype, 1), numbers(shape[1:2], dtype, 2)
            check_summed(lambda x, w, b: F.group_norm(x, groups, w, b), x, w, b, factor=3)
            check_summed(lambda x: F.group_norm(x, groups), x, factor=3)
    for layout in LAYOUTS:
        check_summed(lambda x: F.group_norm(x, 2), numbers((3, 4, 5, 6)), layout=layout, factor=3)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training):
    for dtype in FLOATS:
        for shape in ((6, 5), (4, 3, 7), (3, 5, 6, 7), (2, 3, 40, 33)):
            x, channels = numbers(shape, dtype), shape[1:2]
            w, b = numbers(channels, dtype, 1), numbers(channels, dtype, 2)
            mean, variance = numbers(channels, dtype, 3), numbers(channels, dtype, 4, 0.5, 2)

            def function(x, w, b, mean, variance):
                mean, variance = mean.detach().clone(), variance.detach().clone()
                y = F.batch_norm(x, mean, variance, w, b, training, momentum=0.3)
                return y, mean, variance

            check_summed(function, x, w, b, mean, variance, factor=3)
            if len(shape) == 4:
                check_summed(function, x, w, b, mean, variance, layout="channels last", factor=3)
                check_summed(function, x, w, b, mean, variance, layout="transposed", factor=3)
            if training:
                check_summed(lambda x: F.batch_norm(x, None, None, training=True), x, factor=3)
            else:
                check_summed(lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()), x, mean, variance, factor=3)


def test_batch_norm_module_counts():
    """Momentum None averages over all batches, which the counter counts."""
    modules = [torch.nn.BatchNorm2d(3, momentum=None).to(where) for where in ("cpu", DEVICE)]
    for seed in range(3):
        outputs = [m(numbers((2, 3, 4, 4), seed=seed).to(m.weight.device)) for m in modules]
    assert_summed(outputs[1], outputs[0])
    assert modules[1].num_batches_tracked.item() == 3
    assert_summed(modules[1].running_var, modules[0].running_var)


# ---- windows

POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 1, "padding": 1},
]


MAX_POOLS = [*POOLS, {"kernel_size": 2, "dilation": 2}, {"kernel_size": 2, "stride": 3}]


@pytest.mark.parametrize("options", MAX_POOLS, ids=str)
def test_max_pool2d(options):
    for dtype in FLOATS:
        for shape in ((2, 3, 8, 8), (1, 2, 9, 11), (3, 7, 7), (2, 1, 20, 33)):
            count = math.prod(shape)
            x = torch.randperm(count, generator=torch.Generator().manual_seed(1)).to(dtype).view(shape)
            check(lambda x: F.max_pool2d(x, **options), x)
            check(lambda x: F.max_pool2d(x, **options, return_indices=True)[1], x)
    for layout in LAYOUTS:
        check(lambda x: F.max_pool2d(x, **options), numbers((2, 3, 10, 9)), layout=layout)
    ties = numbers((2, 2, 8, 8), low=0, high=1).round()
    check(lambda x: F.max_pool2d(x, **options), ties)
    ties[0, 0, 3, 3] = math.nan
    ties[1, 1] = -math.inf
    check(lambda x: F.max_pool2d(x, **options), ties)


@pytest.mark.parametrize("options", [*POOLS, {"kernel_size": 2, "divisor_override": 3}], ids=str)
def test_avg_pool2d(options):
    for dtype in FLOATS:
        for shape in ((2, 3, 8, 8), (3, 7, 9)):
            check_summed(lambda x: F.avg_pool2d(x, **options), numbers(shape, dtype))
    check_summed(lambda x: F.avg_pool2d(x, **options, count_include_pad=False), numbers((2, 3, 8, 8)))
    for layout in LAYOUTS:
        check_summed(lambda x: F.avg_pool2d(x, **options), numbers((2, 3, 8, 9)), layout=layout)


@pytest.mark.parametrize("size", [1, 2, (3, 5), (None, 2), (8, 9), (11, 13)], ids=str)
def test_adaptive_avg_pool2d(size):
    for dtype in FLOATS:
        for shape in ((2, 3, 8, 9), (4, 7, 7)):
            check_summed(lambda x: F.adaptive_avg_pool2d(x, size), numbers(shape, dtype))
    for layout in LAYOUTS:
        check_summed(lambda x: F.adaptive_avg_pool2d(x, size), numbers((2, 3, 8, 9)), layout=layout)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bilinear corners"])
def test_interpolate(mode):
    options = {"mode": mode.split()[0]}
    if "bilinear" in mode:
        options["align_corners"] = "corners" in mode
    for dtype in FLOATS:
        for size in ((8, 8), (5, 9), (13, 3), (1, 1), (4, 6)):
            check_summed(lambda x: F.interpolate(x, size=size, **options), numbers((2, 3, 4, 6), dtype))
        for scale in (2, 0.5, (1.5, 2.7)):
            check_summed(lambda x: F.interpolate(x, scale_factor=scale, **options), numbers((2, 3, 4, 6), dtype))
    for layout in LAYOUTS:
        check_summed(lambda x: F.interpolate(x, scale_factor=2, **options), numbers((2, 3, 4, 6)), layout=layout)


# ---- contractions

CONVS = [
    {},
    {"padding": 2},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2), "padding": (0, 1), "dilation": (2, 1)},
    {"dilation": 2, "padding": 2},
    {"groups": 2},
    {"groups": 4, "padding": 1},
]

CONV_SHAPES = [((2, 4, 9, 8), (3, 3)), ((1, 4, 7, 7), (1, 1)), ((3, 4, 10, 9), (5, 3)), ((0, 4, 9, 9), (3, 3))]


@pytest.mark.parametrize("options", CONVS, ids=str)
def test_conv2d(options):
    groups = options.get("groups", 1)
    for dtype in FLOATS:
        for shape, kernel in CONV_SHAPES:
            x, w = numbers(shape, dtype), numbers((8, 4 // groups, *kernel), dtype, 1)
            check_summed(lambda x, w, b: F.conv2d(x, w, b, **options), x, w, numbers((8,), dtype, 2), factor=2)
            check_summed(lambda x, w: F.conv2d(x, w, **options), x, w, factor=2)
    x, w = numbers((2, 4, 9, 8)), numbers((8, 4 // groups, 3, 3), seed=1)
    for layout in LAYOUTS:
        check_summed(lambda x, w: F.conv2d(x, w, **options), x, w, layout=layout, factor=2)
    check_summed(lambda x, w: F.conv2d(x[0], w, **options), x, w, factor=2)


CONV_TRANSPOSES = [
    {},
    {"stride": 2},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"dilation": 2},
    {"groups": 2},
]


@pytest.mark.parametrize("options", CONV_TRANSPOSES, ids=str)
def test_conv_transpose2d(options):
    groups = options.get("groups", 1)
    for dtype in FLOATS:
        for shape, kernel in (((2, 4, 5, 6), (3, 3)), ((1, 4, 1, 1), (4, 4)), ((3, 4, 4, 4), (2, 2))):
            if kernel == (2, 2) and "output_padding" in options:
                continue
            x, w, b = (
                numbers(shape, dtype, seed)
                for seed, shape in enumerate((shape, (4, 6 // groups, *kernel), (6,)))
            )
            check_summed(lambda x, w, b: F.conv_transpose2d(x, w, b, **options), x, w, b, factor=2)
    for layout in LAYOUTS:
        x, w = numbers((2, 4, 5, 6)), numbers((4, 6 // groups, 3, 3), seed=1)
        check_summed(lambda x, w: F.conv_transpose2d(x, w, **options), x, w, layout=layout, factor=2)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 2}], ids=str)
def test_transposed_convolutions_round_once_behind_their_bias(options):
    for dtype in (torch.bfloat16, torch.float16):
        x, w, b = numbers((2, 4, 20), dtype), numbers((4, 8 // options.get("groups", 1), 5), dtype, 1), numbers((8,), dtype, 2)
        actual = F.conv_transpose1d(x.to(DEVICE), w.to(DEVICE), b.to(DEVICE), **options).cpu()
        exact = F.conv_transpose1d(x.double(), w.double(), b.double(), **options)
        assert ((actual.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps * 0.51 + 2e-6).all()


def test_conv1d():
    for dtype in FLOATS:
        for options in ({}, {"stride": 2, "padding": 3}, {"dilation": 2}, {"groups": 2}):
            x, w = numbers((3, 4, 17), dtype), numbers((6, 4 // options.get("groups", 1), 3), dtype, 1)
            check_summed(lambda x, w, b: F.conv1d(x, w, b, **options), x, w, numbers((6,), dtype, 2), factor=2)
    check_summed(lambda x, w: F.conv_transpose1d(x, w, stride=2), numbers((2, 4, 5)), numbers((4, 3, 4)), factor=2)


def test_conv_of_frozen_parts():
    """Only what requires a gradient gets one."""
    x, w, b = numbers((2, 3, 6, 6)), numbers((4, 3, 3, 3), seed=1), numbers((4,), seed=2)
    for keep in ((0,), (1,), (2,), (0, 2), (1, 2)):

        def function(*parts, keep=keep):
            return F.conv2d(*(part if index in keep else part.detach() for index, part in enumerate(parts)))

        check_summed(function, x, w, b)


MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((1, 768), (768, 50)),
    ((130, 70), (70, 33)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
    ((2, 3, 4), (4,)),
]


def test_matmul():
    for dtype in FLOATS:
        for left, right in MATMULS:
            check_summed(torch.matmul, numbers(left, dtype), numbers(right, dtype, 1), factor=2)
    for layout in LAYOUTS:
        check_summed(torch.matmul, numbers((5, 6, 7)), numbers((5, 7, 8)), layout=layout, factor=2)
        check_summed(torch.matmul, numbers((6, 7)), numbers((7, 8)), layout=layout, factor=2)
    for dtype in HALVES:
        check_summed(torch.matmul, numbers((6, 40), dtype), numbers((40, 5), dtype, 1), grad=False)
    check_summed(lambda x: x @ x.t(), numbers((6, 7)))
    check_summed(lambda x: x.expand(3, 4) @ x.expand(3, 4).t(), numbers((1, 4)))


def test_matmul_of_specials_and_integers():
    x, y = numbers((4, 6)), numbers((6, 3), seed=1)
    x[0, 1], x[2, 3] = math.nan, math.inf
    check_summed(torch.matmul, x, y, grad=False)
    check(torch.matmul, numbers((4, 6), torch.int64), numbers((6, 3), torch.int64, 1))


def test_linear_and_added_products():
    for dtype in FLOATS:
        for shape in ((5, 6), (6,), (2, 3, 6), (0, 6)):
            check_summed(F.linear, numbers(shape, dtype), numbers((4, 6), dtype, 1), numbers((4,), dtype, 2), factor=2)
            check_summed(F.linear, numbers(shape, dtype), numbers((4, 6), dtype, 1), factor=2)
        c, a, b = numbers((3, 5), dtype, 3), numbers((3, 4), dtype, 4), numbers((4, 5), dtype, 5)
        for beta, alpha in ((1, 1), (0.5, 2), (0, 1)):
            check_summed(lambda c, a, b: torch.addmm(c, a, b, beta=beta, alpha=alpha), c, a, b, factor=2)
            check_summed(lambda c, a, b: torch.addmm(c[0], a, b, beta=beta, alpha=alpha), c, a, b, factor=2)
            batched = [t.expand(3, *t.shape).clone() for t in (c, a, b)]
            check_summed(lambda c, a, b: torch.baddbmm(c, a, b, beta=beta, alpha=alpha), *batched, factor=2)
        check_summed(torch.bmm, numbers((4, 3, 5), dtype), numbers((4, 5, 2), dtype, 1), factor=2)
        check_summed(torch.addmv, numbers((3,), dtype), numbers((3, 4), dtype), numbers((4,), dtype), factor=2)
        check_summed(torch.dot, numbers((100,), dtype), numbers((100,), dtype, 1), factor=2)
        check_summed(torch.outer, numbers((5,), dtype), numbers((6,), dtype, 1))
    with_nan = torch.full((3, 5), math.nan)  # beta 0 doesn't look at it
    check_summed(lambda c, a, b: torch.addmm(c, a, b, beta=0), with_nan, numbers((3, 4)), numbers((4, 5)), grad=False)
    for layout in LAYOUTS:
        check_summed(F.linear, numbers((5, 6)), numbers((4, 6)), numbers((4,)), layout=layout, factor=2)


# ---- attention


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    for dtype in FLOATS:
        for batch, heads, length, width in ((2, 3, 5, 4), (1, 2, 33, 16), (1, 1, 1, 8)):
            parts = [numbers((batch, heads, length, width), dtype, seed) for seed in range(3)]
            check_summed(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *parts, factor=5)
    # As a transformer calls it: heads are a transposed view of one projection.
    qkv = numbers((2, 6, 24))

    def split(qkv):
        q, k, v = (t.view(2, 6, 2, 4).transpose(1, 2) for t in qkv.split(8, 2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(2, 6, 8)

    check_summed(split, qkv, factor=5)
    for layout in LAYOUTS:
        parts = [numbers((2, 3, 5, 4), seed=seed) for seed in range(3)]
        check_summed(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3),
            *parts,
            layout=layout,
            factor=5,
        )


def test_attention_with_masks():
    q, k, v = numbers((2, 3, 5, 4)), numbers((2, 3, 7, 4), seed=1), numbers((2, 3, 7, 4), seed=2)
    allowed = numbers((5, 7), torch.bool, 3)
    allowed[:, 0] = True
    bias = numbers((2, 1, 5, 7), seed=4)
    check_summed(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, allowed, factor=5)
    check_summed(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m.detach()), q, k, v, bias, factor=5)
    check_summed(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, bias, factor=5)
    check_summed(F.scaled_dot_product_attention, q, k, v, factor=5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_twice_differentiated(causal):
    """Against torch's composite, the only one of its ways that has a second derivative."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shapes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7))
    found = []
    for device in ("cpu", DEVICE):
        parts = [numbers(s, torch.float64, i).to(device).requires_grad_() for i, s in enumerate(shapes)]
        mask = None if causal else parts.pop()
        with sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext():
            y = F.scaled_dot_product_attention(*parts[:3], mask, is_causal=causal)
        inputs = parts[:3] if causal else [*parts, mask]
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(g.square().sum() for g in first), inputs)])
    for cpu, ours in zip(*found):
        assert_same(ours, cpu, rtol=1e-9, atol=1e-11)


@pytest.mark.device_only
def test_attention_with_dropout_twice_differentiated():
    """The mask is drawn again: with v the rows of 1, the gradient of v is the weights that were kept."""
    q, k = (numbers((1, 2, 5, 4), torch.float64, i).to(DEVICE).requires_grad_() for i in range(2))
    v = torch.eye(5, dtype=torch.float64, device=DEVICE).expand(1, 2, 5, 5).contiguous().requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
    once = torch.autograd.grad(y.sum(), [q, v], retain_graph=True)
    again = torch.autograd.grad(y.sum(), [q, v], create_graph=True)
    for a, b in zip(once, again):
        assert_same(b, a, rtol=1e-9, atol=1e-11)
    assert torch.autograd.grad(again[0].sum(), [k])[0].isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
def test_narrow_sums_at_one_place_are_rounded_once(dtype):
    """Added one by one, ones stop counting at 256 or 2,048."""
    places, ones = torch.zeros(3000, dtype=torch.int64, device=DEVICE), torch.ones(3000, dtype=dtype, device=DEVICE)
    sums = torch.full((2,), 8.0, dtype=dtype, device=DEVICE).scatter_add(0, places, ones).cpu()
    assert sums.tolist() == [torch.tensor(3008.0).to(dtype).item(), 8.0]


@pytest.mark.parametrize("dtype", HALVES)
def test_narrow_products_are_rounded_once(dtype):
    """A sum that the dtype holds of a product that it does not hold, whatever the strides of the bias, and with factors."""
    big = 2048.0 if dtype == torch.float16 else 256.0
    a, b = torch.tensor([[big, 1.0]] * 3, dtype=dtype, device=DEVICE), torch.ones(2, 4, dtype=dtype, device=DEVICE)
    ones = torch.ones(3, 8, dtype=dtype, device=DEVICE)
    for bias in (ones[0, :4], ones[0, ::2], ones[:, :4], ones[:, ::2]):
        assert (torch.addmm(bias, a, b) == big + 2).all()
        assert (torch.addmm(bias, a, b, beta=-1) == big).all()
        assert (torch.baddbmm(bias.expand(3, 4)[None], a[None], b[None]) == big + 2).all()
        assert (F.linear(a, b.T, bias) == big + 2).all() if bias.dim() == 1 else True


def test_attention_dropout_is_unbiased():
    q, k = torch.zeros(1, 1, 64, 4, device=DEVICE), torch.zeros(1, 1, 64, 4, device=DEVICE)
    v = torch.ones(1, 1, 64, 4, device=DEVICE)
    total = torch.stack([F.scaled_dot_product_attention(q, k, v, dropout_p=0.5) for _ in range(20)]).mean()
    assert abs(total.item() - 1) < 0.05


# Longer ones run as one node, a block of queries and keys at a time.
LONG_MASKS = {
    "none": lambda length, keys: None,
    "causal": lambda length, keys: None,
    "flags": lambda length, keys: numbers((length, keys), torch.bool, 3) | (torch.arange(keys) % 9 == 0),
    "flags of keys": lambda length, keys: (torch.arange(keys) % 3 != 1).expand(2, 1, 1, keys),
    "numbers": lambda length, keys: numbers((1, 3, length, keys), seed=4),
}


@pytest.mark.parametrize("mask", LONG_MASKS)
@pytest.mark.parametrize("length,keys", [(32, 200), (65, 64), (130, 129), (200, 600)])
def test_long_attention(length, keys, mask):
    shapes = ((2, length, 3, 40), (2, keys, 3, 40), (2, keys, 3, 24))
    m = LONG_MASKS[mask](length, keys)

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        there = m if m is None else m.to(q.device, q.dtype if m.is_floating_point() else m.dtype)
        return F.scaled_dot_product_attention(q, k, v, there, is_causal=mask == "causal").transpose(1, 2)

    parts = [numbers(shape, seed=seed, low=-1.0, high=1.0) for seed, shape in enumerate(shapes)]
    check_summed(attend, *parts, factor=5)
    for dtype in HALVES:
        with torch.no_grad():
            narrow = [part.to(dtype) for part in parts]
            expected = attend(*(part.float() for part in narrow))
            actual = attend(*(part.to(DEVICE) for part in narrow)).cpu().float()
        torch.testing.assert_close(actual, expected, rtol=0, atol=0.02)


def test_long_attention_of_rows_that_see_nothing():
    q, k, v = (numbers((1, 2, 90, 16), seed=seed) for seed in range(3))
    allowed = torch.ones(90, 90, dtype=torch.bool)
    allowed[5] = allowed[80] = False
    q, k, v, allowed = (x.to(DEVICE) for x in (q, k, v, allowed))
    q.requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, allowed)
    y.sum().backward()
    assert (y[:, :, [5, 80]] == 0).all() and (q.grad[:, :, [5, 80]] == 0).all()
    assert y.isfinite().all() and q.grad.isfinite().all()


def test_long_attention_drops_the_same_elements_both_ways():
    q, k = torch.zeros(2, 100, 70, 4, device=DEVICE), torch.zeros(2, 100, 90, 4, device=DEVICE)
    v = torch.ones(2, 100, 90, 1, device=DEVICE, requires_grad=True)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    y.sum().backward()
    assert abs(y.mean().item() - 1) < 0.01
    assert y.sum().item() == pytest.approx(v.grad.sum().item(), rel=1e-5)


@pytest.mark.device_only
@pytest.mark.cpu_only
def test_attention_keeps_no_scores():
    """8 x 4096 x 4096 scores would be 512 MB; operands, results and gradients are 8 MB each."""
    q, k, v = (torch.randn(1, 8, 4096, 64, device=DEVICE, requires_grad=True) for _ in range(3))
    synchronize()
    torch.headrace.empty_cache()
    torch.headrace.reset_peak_memory_stats()
    before = torch.headrace.memory_reserved()
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(torch.ones_like(y))
    synchronize()
    assert torch.headrace.max_memory_reserved() - before < 128 << 20
    assert q.grad.isfinite().all()


# ---- gather, scatter, embeddings, joining


def test_embedding():
    for dtype in FLOATS:
        table = numbers((9, 5), dtype)
        for shape in ((4,), (2, 3), (), (0,)):
            index = torch.randint(9, shape, generator=torch.Generator().manual_seed(3))
            check_summed(lambda i, t: F.embedding(i, t), index, table)
            check_summed(lambda i, t: F.embedding(i.int(), t), index, table)
        repeated = torch.tensor([1, 1, 1, 2, 0, 1])
        check_summed(lambda i, t: F.embedding(i, t), repeated, table)
        check_summed(lambda i, t: F.embedding(i, t, padding_idx=1), repeated, table)
        check_summed(lambda i, t: F.embedding(i, t, scale_grad_by_freq=True), repeated, table)
    check_summed(lambda i, t: F.embedding(i.t(), t), torch.arange(6).view(2, 3), table)


def test_gather_and_index_select():
    x = numbers((4, 5, 3))
    for dim in range(3):
        index = torch.randint(x.shape[dim], (2, 3, 2), generator=torch.Generator().manual_seed(dim))
        for layout in LAYOUTS:
            check_summed(lambda x, i, d=dim: x.gather(d, i), x, index, layout=layout)
            check_summed(lambda x, i, d=dim: x.index_select(d, i), x, index[:, 0, 0].contiguous(), layout=layout)
    check(lambda x, i: x.gather(0, i), x.long(), index)
    check(lambda x, i: x.index_select(0, i), x, torch.tensor([], dtype=torch.long))
    check(lambda x, i: x.take_along_dim(i, 1), x, torch.tensor([[[1], [0]]]).expand(4, 2, 3))


def test_scatter():
    x, source = numbers((4, 5)), numbers((3, 5), seed=1)
    distinct = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 1], [2, 3, 0, 1, 2]])
    repeated = torch.tensor([[0, 0, 0, 0, 0], [1, 0, 3, 0, 1], [0, 0, 0, 0, 0]])
    for layout in LAYOUTS:
        check_summed(lambda x, i, s: x.scatter(0, i, s), x, distinct, source, layout=layout)
        check_summed(lambda x, i, s: x.scatter_add(0, i, s), x, repeated, source, layout=layout)
        check_summed(lambda x, i: x.scatter(1, i, 2.5), x, distinct, layout=layout)
        check_summed(lambda x, i, s: x.index_add(0, i[:, 0], s), x, repeated, source, layout=layout)
    check(lambda x, i, s: x.scatter_add(0, i, s), x.long(), repeated, source.long())
    check_summed(lambda i: F.one_hot(i, 7), torch.tensor([0, 3, 6]))


def test_indexing():
    x = numbers((4, 5, 3))
    i, j, mask = torch.tensor([0, 3, 3, -1]), torch.tensor([1, -5, 4, 0]), numbers((4, 5, 3), torch.bool)
    for layout in LAYOUTS:
        check_summed(lambda x, i: x[i], x, i, layout=layout)
        check_summed(lambda x, i, j: x[i, j], x, i, j, layout=layout)
        check_summed(lambda x, i, j: x[i, :, j % 3], x, i, j, layout=layout)
        check_summed(lambda x, i, j: x[:, j], x, i, j, layout=layout)
        check_summed(lambda x, i, j: x[i[:, None] % 4, j[None] % 5, 1], x, i, j, layout=layout)
    check_summed(lambda x, m: torch.where(m, x, 0.0).sum(), x, mask)


def test_index_put():
    x, values = numbers((4, 5)), numbers((4,), seed=1)
    i, j = torch.tensor([0, 3, 3, 0]), torch.tensor([1, 4, 4, 1])

    def assign(x, i, j, v):
        y = x.clone()
        y[i[:2], j[:2]] = v[:2]
        y[2] = v[0]
        y[1:3, ::2] = v[1]
        y[i[:1]] = v[3]
        return y

    def accumulate(x, i, j, v):
        return x.index_put((i, j), v, accumulate=True), x.clone().index_put_((i,), v[:1], accumulate=True)

    for layout in LAYOUTS:
        check_summed(assign, x, i, j, values, layout=layout)
        check_summed(accumulate, x, i, j, values, layout=layout)
    check(lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), x.long(), i, j, values.long())


def test_joining_and_splitting():
    parts = [numbers((2, n, 3), seed=n) for n in (1, 4, 0, 2)]
    for layout in LAYOUTS:
        check(lambda *p: torch.cat(p, 1), *parts, layout=layout)
        check(lambda *p: torch.cat([t.transpose(1, 2) for t in p], -1), *parts, layout=layout)
    check(lambda *p: torch.cat(p), torch.ones(0), numbers((2, 3)), numbers((1, 3), seed=2))
    check(lambda x, y: torch.cat([x, y]), numbers((3,), torch.int64), numbers((2,)))
    check(lambda x, y: torch.stack([x, y], 1), numbers((3, 4)), numbers((3, 4), seed=1))
    check(lambda x: torch.split(x, [1, 3, 2], 1), numbers((2, 6)))
    check(lambda x: x.chunk(3, 1), numbers((2, 7)))
    check(lambda x: x.unbind(1), numbers((2, 3, 4)))
    check(lambda x: x.repeat(2, 3, 1), numbers((2, 3)))
    check(lambda x: torch.tile(x, (2,)), numbers((2, 3)))
    check(lambda x: x.flip(0, 2), numbers((2, 3, 4)))
    check(lambda x: F.pad(x, (1, 2, 0, 3), value=1.5), numbers((2, 3, 4)))
    check(lambda x: F.pad(x, (-1, 2)), numbers((2, 3, 4)))
    check(torch.tril, numbers((2, 4, 5)))
    check(lambda x: torch.triu(x, 1), numbers((4, 5)))
    check(lambda x: x.cumsum(1), numbers((3, 5)), rtol=1e-5, atol=1e-5)


def test_running_sums_of_long_lines():
    """However lines lie: rows, columns, transposed, every second one, backwards by a flip, in place."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool):
        x = numbers((40, 300), torch.float32).mul(3).to(dtype)
        bounds = {"rtol": 2e-2, "atol": 1e-2} if dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-4}
        for along in (0, 1):
            check(lambda x, along=along: x.cumsum(along), x, **bounds)
            check(lambda x, along=along: x.t().cumsum(along), x, **bounds)
    wide = numbers((9, 700, 2), torch.float64)
    check(lambda x: x.cumsum(1), wide)
    check(lambda x: x[:, ::2].cumsum(1), wide)
    check(lambda x: x[::2, 3:, 1].cumsum(-1), wide)
    check(lambda x: x.flip(1).cumsum(1).flip(1), wide)
    check(lambda x: x.clone().cumsum_(1), wide)
    check(lambda x: x[..., :1].expand(9, 700, 5).cumsum(1), wide)
    check(lambda x: torch.stack([x.cumsum(1)[:, -1], x.sum(1)]), torch.zeros(3, 400).copysign(torch.tensor(-1.0)))
    special = numbers((600,))
    special[300], special[450] = float("inf"), float("nan")
    check(lambda x: x.cumsum(0), special, rtol=1e-5, atol=1e-4)
    check(lambda x: x.nonzero(), numbers((70, 300)) > 0)


def test_views_and_their_gradients():
    x = numbers((4, 6, 5))
    views = [
        lambda x: x.view(24, 5),
        lambda x: x.reshape(4, 30)[:, ::7],
        lambda x: x.permute(2, 0, 1).reshape(5, 24),
        lambda x: x.transpose(0, 1)[1:4, ::2],
        lambda x: x[..., None].expand(-1, -1, -1, 2),
        lambda x: x.as_strided((3, 2), (7, 2), 4),
        lambda x: x.diagonal(0, 0, 2),
        lambda x: x.select(1, -1).narrow(0, 1, 2),
        lambda x: x.squeeze().unsqueeze(0).movedim(0, -1),
        lambda x: x.unflatten(1, (2, 3)).flatten(0, 2),
        lambda x: x.T if x.dim() == 2 else x.mT,
    ]
    for view in views:
        check_summed(view, x)
        check_summed(lambda x, view=view: view(x).contiguous() * 2, x)
        check_summed(lambda x, view=view: view(x.exp()).sum(), x, factor=2)
    check(lambda x: x.unfold(1, 3, 2), x, grad=False)


def test_factories():
    pairs = []
    for where in ("cpu", DEVICE):
        options = {"device": where}
        pairs.append(
            [
                torch.zeros(2, 3, **options),
                torch.ones(3, dtype=torch.int64, **options),
                torch.full((2, 2), 2.5, **options),
                torch.full((2,), True, **options),
                torch.arange(5, **options),
                torch.arange(1, 2, 0.3, **options),
                torch.arange(5, 0, -2, dtype=torch.float64, **options),
                torch.eye(3, 4, **options),
                torch.tensor([[1.5, 2], [3, 4]], **options),
                torch.tensor(7, **options),
                torch.ones(3, **options).new_full((2,), 4.0),
                torch.zeros(0, 3, **options),
                torch.linspace(0, 1, 1, **options) if where == "cpu" else torch.zeros(1, **options),
            ]
        )
    for expected, actual in zip(*pairs):
        assert_same(actual, expected)


# ---- recurrent cells


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(kind):
    for dtype in FLOATS:
        for bias in (True, False):
            torch.manual_seed(0)
            cell = getattr(torch.nn, kind)(5, 4, bias=bias, dtype=dtype)
            names = [name for name, _ in cell.named_parameters()]

            def function(x, *parameters):
                state = torch.func.functional_call(cell, dict(zip(names, parameters)), (x,))
                return torch.func.functional_call(cell, dict(zip(names, parameters)), (x * 2, state))

            check_summed(function, numbers((3, 5), dtype), *(p.detach() for p in cell.parameters()), factor=3)


RECURRENT = [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True, "bias": False}]


@pytest.mark.parametrize("options", RECURRENT, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks(kind, options):
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        network = getattr(torch.nn, kind)(5, 4, **options).to(where)
        x = numbers((6, 3, 5)).to(where).requires_grad_()
        output, state = network(x)
        made = [output, *flatten(state)]
        sum((t * t.cos()).sum() for t in made).backward()
        results.append([*made, x.grad, *(p.grad for p in network.parameters())])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=5)


def recurrent(kind, where, dtype=torch.float32, seed=0, **options):
    torch.manual_seed(seed)
    network = getattr(torch.nn, kind)(5, 4, dtype=dtype, **options).to(where)
    first = numbers((options.get("num_layers", 1) * (1 + options.get("bidirectional", False)), 3, 4), dtype, seed=7)
    return network, first.to(where)


def start(kind, h):
    return (h, h.flip(1) * 0.5) if kind == "LSTM" else h


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks_from_a_state(kind, dtype):
    """Both directions of two layers, gradients of the first states, strided inputs, outputs that are changed in place."""
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, dtype, num_layers=2, bidirectional=True, batch_first=True)
        h = h.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        x = numbers((3, 5, 6), dtype).to(where).transpose(1, 2).requires_grad_()
        output, state = network(x, start(kind, h))
        made = [output, *flatten(state)]
        loss = sum((t * t.cos()).sum() for t in made[1:]) + (output.mul_(2) * output.detach().sin()).sum()
        grads = torch.autograd.grad(loss, [x, h, *network.parameters()])
        with torch.no_grad():
            again = network(x, start(kind, h))
        results.append([*made, *grads, again[0], *flatten(again[1])])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=8)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks_by_one_result(kind, part):
    """Gradients where only the output, the last state or the last cell is used, or only one step."""
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where)
        x = numbers((6, 3, 5)).to(where)
        output, state = network(x, start(kind, h))
        chosen = [output[2], flatten(state)[0], flatten(state)[-1]][part]
        results.append(torch.autograd.grad(chosen.sin().sum(), list(network.parameters())))
    for expected, actual in zip(*results):
        assert_summed(actual, expected, kind, factor=5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_second_gradients_of_recurrent_networks(kind):
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, torch.float64, bidirectional=True)
        x = numbers((4, 3, 5), torch.float64).to(where).requires_grad_()
        output, _ = network(x, start(kind, h))
        parts = [x, *network.parameters()]
        grads = torch.autograd.grad(output.sin().sum(), parts, create_graph=True)
        results.append([*grads, *torch.autograd.grad(sum(g.square().sum() for g in grads), parts)])
    for expected, actual in zip(*results):
        assert_summed(actual, expected, kind, factor=20)


def test_unusual_recurrent_networks():
    """What goes through torch's own layers: projections, packed sequences, no batch, transforms, autocast; and its errors."""
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        x = numbers((6, 3, 5)).to(where)
        narrow = torch.nn.LSTM(5, 4, proj_size=2).to(where)
        network, h = recurrent("LSTM", where)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [6, 4, 1])
        parameters = dict(network.named_parameters())
        slopes = torch.func.grad(lambda p: torch.func.functional_call(network, p, (x,))[0].sin().sum())(parameters)
        results.append([narrow(x)[0], network(packed)[0].data, network(x[:, 0])[0], *slopes.values()])
        with pytest.raises(RuntimeError, match="Expected hidden|must be equal|Expected"):
            network(x, (h[:, :2], h[:, :2]))
        with torch.autocast(x.device.type, torch.bfloat16):
            assert torch.isfinite(network(x)[0]).all()
    for expected, actual in zip(*results):
        assert_summed(actual, expected, "unusual", factor=5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_layer_takes_few_products(kind):
    """One for the inputs of all steps, one for each step's state; and for the gradients of both weights one each."""
    network, _ = recurrent(kind, DEVICE)
    x = numbers((6, 3, 5)).to(DEVICE)
    network(x)[0].sum().backward()
    synchronize()
    before = torch.headrace.stats()["library_calls"]
    network(x)[0].sum().backward()
    synchronize()
    assert torch.headrace.stats()["library_calls"] - before <= 6 + 6 + 3


# ---- random numbers


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_dropout(p):
    """What is kept is scaled, the rest is zero, the share is right, and the gradient uses the same mask."""
    n = 40_000
    x = torch.full((n,), 2.0, device=DEVICE, requires_grad=True)
    y = F.dropout(x, p)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    y, gradient = y.detach().cpu(), gradient.cpu()
    kept = y != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n) + 1e-9
    scale = 1 / (1 - p) if p < 1 else 0.0
    assert torch.allclose(y[kept], torch.tensor(2 * scale))
    assert torch.equal(gradient != 0, kept)
    assert torch.allclose(gradient[kept], torch.tensor(scale))
    assert_same(F.dropout(x, p, training=False), x.detach().cpu())
    if 0 < p < 1:
        assert not torch.equal(F.dropout(x, p).detach().cpu() != 0, kept)


def test_dropout_is_independent():
    """Neighbours, rows and successive calls don't correlate."""
    first, second = (F.dropout(torch.ones(200, 300, device=DEVICE), 0.5).cpu() - 1 for _ in range(2))
    n = first.numel()
    pairs = [(first, second), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1]), (first[:, 64:], first[:, :-64])]
    for product in (a * b for a, b in pairs):
        assert abs(product.mean().item()) < 5 / math.sqrt(n)


def moments(x):
    x = x.double().cpu()
    return x.mean().item(), x.std().item()


def test_distributions():
    n = 100_000
    options = {"device": DEVICE}
    cases = {
        "rand": (torch.rand(n, **options), 0.5, math.sqrt(1 / 12)),
        "randn": (torch.randn(n, **options), 0.0, 1.0),
        "uniform_": (torch.empty(n, **options).uniform_(-2, 4), 1.0, 6 * math.sqrt(1 / 12)),
        "normal_": (torch.empty(n, **options).normal_(3, 0.5), 3.0, 0.5),
        "normal double": (torch.empty(n, dtype=torch.float64, **options).normal_(3, 0.5), 3.0, 0.5),
        "exponential_": (torch.empty(n, **options).exponential_(2.0), 0.5, 0.5),
        "bernoulli_": (torch.empty(n, **options).bernoulli_(0.2), 0.2, 0.4),
        "bernoulli": (torch.bernoulli(torch.full((n,), 0.2, **options)), 0.2, 0.4),
        "randint": (torch.randint(0, 10, (n,), **options), 4.5, math.sqrt(99 / 12)),
        "randint low": (torch.randint(-5, 5, (n,), **options), -0.5, math.sqrt(99 / 12)),
    }
    for name, (sample, mean, deviation) in cases.items():
        actual_mean, actual_deviation = moments(sample)
        assert abs(actual_mean - mean) < 6 * deviation / math.sqrt(n), name
        assert abs(actual_deviation - deviation) < 0.02 * deviation, name
    uniform = cases["rand"][0].cpu()
    assert uniform.min() >= 0 and uniform.max() < 1
    normal = cases["randn"][0].cpu()
    assert normal.isfinite().all() and 3.5 < normal.abs().max() < 7
    assert cases["randint"][0].cpu().unique().tolist() == list(range(10))
    counts = torch.histc(uniform, 50, 0, 1)
    assert ((counts - n / 50).square() / (n / 50)).sum().item() < 110  # chi-square with 49 degrees: 99.9999 %


def test_initialisers():
    """torch.nn.init works in place on the device."""
    w = torch.empty(200, 300, device=DEVICE)
    for fill, deviation in (
        (torch.nn.init.xavier_uniform_, math.sqrt(2 / 500)),
        (torch.nn.init.xavier_normal_, math.sqrt(2 / 500)),
        (torch.nn.init.kaiming_uniform_, math.sqrt(2 / 300)),
        (torch.nn.init.kaiming_normal_, math.sqrt(2 / 300)),
        (lambda w: torch.nn.init.normal_(w, 0, 0.02), 0.02),
    ):
        mean, actual = moments(fill(w))
        assert abs(mean) < 0.02 * deviation * 5
        assert abs(actual - deviation) < 0.02 * deviation
    torch.nn.init.zeros_(w)
    torch.nn.init.constant_(w[0], 2.0)
    assert w.sum().item() == 600


# ---- long programs


def test_one_expression_of_many_operators():
    """Fused with everything around it, an operator gives what it gives alone."""

    def function(x, w, b):
        h = F.layer_norm(x, (16,))
        h = F.gelu(h @ w + b) * torch.sigmoid(x.sum(-1, keepdim=True))
        h = h + (h - h.mean(0)).abs().clamp(max=1).sqrt().where(h > 0, h * 0.1 + 1e-3)
        p = h.softmax(-1)
        return p, (p * h).sum(), torch.cat([p[:, ::2], h[:, 1::2]], 1).amax(1)

    for dtype in FLOATS:
        check_summed(function, numbers((8, 16), dtype), numbers((16, 16), dtype, 1), numbers((16,), dtype, 2), factor=5)


def test_many_dims():
    x = numbers((2, 1, 3, 1, 2, 2, 1, 2))
    reverse = tuple(range(7, -1, -1))
    check_summed(lambda x: (x.permute(reverse) + x.sum((2, 5), keepdim=True).transpose(0, 7)).sum((1, 4)), x)
    synchronize()


# ---- linear


def _with_strides(tensor, device):
    """The tensor on the device, in a storage with the same strides."""
    storage = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0).to(device)
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def test_linear_without_gradients_in_every_form(device):
    generator = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(5, 7, generator=generator), torch.randn(5, generator=generator)
    x = torch.randn(4, 6, 7, generator=generator)
    inputs = [x[0], x, x[0, 0], x[:, 0], x.transpose(0, 1), x[:0], x[0].t().contiguous().t(), x[0, :, :1].expand(6, 7)]
    weights = [weight, weight.t().contiguous().t(), weight[:1].expand(5, 7), weight[:0]]
    for given in inputs:
        for matrix in weights:
            for vector in (None, bias[: matrix.shape[0]], bias[::2].repeat(3)[: 2 * matrix.shape[0] : 2]):
                vector = vector if vector is None or vector.shape[0] == matrix.shape[0] else None
                expected = F.linear(given, matrix, vector)
                on = [None if t is None else _with_strides(t, device) for t in (given, matrix, vector)]
                with torch.no_grad():
                    result = F.linear(*on)
                with torch.inference_mode():
                    inferred = F.linear(*on)
                assert result.stride() == expected.stride() and result.dtype == expected.dtype
                torch.testing.assert_close(result.cpu(), expected)
                assert torch.equal(inferred.cpu(), result.cpu())


def test_linear_shows_modes_and_transforms_what_torch_shows_them(device):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x, weight, bias = torch.randn(4, 3), torch.randn(2, 3), torch.randn(2)
    given = [t.to(device) for t in (x, weight, bias)]
    with torch.no_grad(), Watch():
        F.linear(*given)
    assert seen == ["aten.t.default", "aten.addmm.default"]
    batched = torch.func.vmap(F.linear, in_dims=(0, None, None))(*given)
    torch.testing.assert_close(batched.cpu(), F.linear(x, weight, bias))
    gradient = torch.func.grad(lambda w: F.linear(given[0], w, given[2]).sum())(given[1])
    torch.testing.assert_close(gradient.cpu(), x.sum(0).expand(2, 3))


def test_linear_of_shapes_that_do_not_fit_raises_what_torch_raises(device):
    for shapes in (((4, 3), (2, 4)), ((2, 4, 3), (2, 4)), ((3,), (2, 4))):
        tensors = [torch.ones(shape) for shape in shapes]
        with pytest.raises(RuntimeError) as expected:
            F.linear(*tensors)
        with pytest.raises(RuntimeError) as raised, torch.no_grad():
            F.linear(*[t.to(device) for t in tensors])
        assert str(raised.value).split("(")[0] == str(expected.value).split("(")[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.cumprod(0),
        lambda x: x.logcumsumexp(0),
        lambda x: x.cumsum(0),
        lambda x: x.long().hash_tensor(0) if hasattr(x, "hash_tensor") else x.clone(),
        lambda x: torch.histogram(torch.ones(3, device=x.device), x.squeeze(0))[1],
    ],
)
def test_results_of_one_element_are_no_part_of_the_input(make, device):
    x = torch.arange(4.0).reshape(1, 4).to(device)
    made = make(x)
    made.add_(1)
    assert_same(x, torch.arange(4.0).reshape(1, 4))
