"""Element-wise operators, in place and through views, and programs of many operators, against torch's CPU device,
forward and backward: dtypes, shapes, layouts in memory (transposed, strided, sliced, expanded), empty tensors, NaN
and infinities. Operators of other families have files of their own.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from op_support import FLOATS, HALVES, INTEGERS, LAYOUTS, SHAPES, check, check_summed, numbers, specials
from support import DEVICE, synchronize

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
    """NaN, infinities, zeros and large numbers give torch's CPU results; so do their gradients.

    Left out are cases in which torch's vector form disagrees with its scalar form or with the formula: gradients at
    NaN, gelu of infinity, sines of huge numbers.
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
    """Integers wrap around; division by non-zero numbers rounds as requested."""
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex32])
def test_moves_keep_all_bits(dtype):
    """Every pattern of 16 bits, NaNs that carry something among them, is the same after copies, cuts and joins."""
    bits = torch.int32 if dtype == torch.complex32 else torch.int16
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=bits) * (65537 if dtype == torch.complex32 else 1)
    patterns = patterns.reshape(256, 256)
    here = patterns.view(dtype).to(DEVICE)
    for move in (
        lambda x: x.clone(),
        lambda x: x.t().contiguous(),
        lambda x: x.flip(1),
        lambda x: torch.cat((x[1:], x[:7])),
        lambda x: x[:, ::3].contiguous(),
        lambda x: x.roll(5, 0),
        lambda x: x.index_select(0, torch.tensor([3, 200, 3], device=x.device)),
    ):
        assert torch.equal(move(here).cpu().view(bits), move(patterns))


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
    """Fills write an overlapping element twice with the same value, so torch accepts them and rejects other writes."""

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


# ---- long programs


def test_one_expression_of_many_operators():
    """Fused with its neighbours, an operator gives the same result as alone."""

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
