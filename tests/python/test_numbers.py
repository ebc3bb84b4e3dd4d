"""Python numbers that a tensor's dtype does not have, dtypes that torch refuses, and other rules of torch's CPU
device."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, IS_RECENT, assert_same

UINT8 = [0, 1, 2, 100, 254, 255]
# Numbers wrap, as a tensor of the number that is converted; or torch refuses them.
WRAPPING = {
    "eq": lambda x: x == -1,
    "lt": lambda x: x < -1,
    "ge": lambda x: x >= -2,
    "ne 300": lambda x: x != 300,
    "clamp min": lambda x: x.clamp(min=-1),
    "clamp": lambda x: x.clamp(-3, -1),
    "clamp_min 300": lambda x: x.clamp_min(300),
    "clamp max 2**40": lambda x: x.clamp(max=2**40),
    "remainder": lambda x: x % -1,
    "remainder 2**40": lambda x: x % 2**40,
    "floor_divide": lambda x: x // -1,
    "div trunc": lambda x: torch.div(x, -2, rounding_mode="trunc"),
    "fmod": lambda x: torch.fmod(x, -1),
    "pow 300": lambda x: x.pow(300),
    "pow 2": lambda x: x.pow(2),
    "add alpha 300": lambda x: torch.add(x, x, alpha=300),
    "index_fill 300": lambda x: x.index_fill(0, torch.tensor([0], device=x.device), 300),
    "threshold 300": lambda x: torch.nn.functional.threshold(x, 300, 1),
    "pad without a fill": lambda x: torch.nn.functional.pad(x, (-1, -1), value=300),
    "pad 300": lambda x: torch.nn.functional.pad(x, (1, 0), value=300),
    "where": lambda x: torch.where(x > 1, x, -1),
}


def outcome(function, make):
    try:
        return function(make()).cpu()
    except Exception as error:  # noqa: BLE001: the type is the outcome
        return error


def assert_same_outcome(function, make, what):
    expected, actual = outcome(function, lambda: make("cpu")), outcome(function, lambda: make(DEVICE))
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        assert related and isinstance(expected, Exception), f"{what}: {actual!r}, torch {expected!r}"
    else:
        assert_same(actual, expected, what)


@pytest.mark.parametrize("name", WRAPPING)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_numbers_that_do_not_fit(name, dtype):
    assert_same_outcome(
        WRAPPING[name], lambda d: torch.tensor(UINT8, dtype=torch.uint8).to(dtype).to(d), f"{name} {dtype}"
    )


REFUSED = {
    "gcd": lambda x: torch.gcd(x, x),
    "lcm": lambda x: torch.lcm(x, x),
    "bitwise_or": lambda x: x | x,
    "bitwise_and_": lambda x: x.clone().bitwise_and_(x),
    "bitwise_not": lambda x: ~x,
    "shift": lambda x: torch.bitwise_left_shift(x, x),
    "maximum": lambda x: torch.maximum(x, x),
    "fmax": lambda x: torch.fmax(x, x),
    "isin": lambda x: torch.isin(x, x),
    "clamp_min_": lambda x: x.clone().clamp_min_(0),
    "clamp": lambda x: x.clamp(0, 1),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "cumprod_": lambda x: x.clone().cumprod_(0),
    "cumsum_": lambda x: x.clone().cumsum_(0),
    "argmax": lambda x: x.argmax(),
    "max of a dim": lambda x: x.max(0, keepdim=True)[0],
    "aminmax": lambda x: x.aminmax()[0],
    "sort": lambda x: x.sort()[0],
    "topk": lambda x: x.topk(len(x))[0],
    "unique": lambda x: x.unique(),
    "index_reduce amax": lambda x: x.index_reduce(0, torch.arange(len(x), device=x.device), x, "amax"),
    "scatter_reduce amin": lambda x: x.scatter_reduce(0, torch.arange(len(x), device=x.device), x, "amin"),
    "prod as bool": lambda x: x.prod(dtype=torch.bool),
    "pow 1": lambda x: x.pow(1),
    "roll": lambda x: x.roll(0, 0),
}


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_dtypes_are_refused_as_torch_refuses_them(name, dtype, count):
    if name.startswith("index_reduce") and dtype == torch.bool:
        pytest.skip("torch refuses bools of vectors alone; the device serves them")
    assert_same_outcome(REFUSED[name], lambda d: torch.tensor([0, 1, 2][:count]).to(dtype).to(d), f"{name} {dtype}")


@pytest.mark.parametrize(
    "bounds", [(-1, 1), (-3, 500), (0.5, 5.5), (1, 5), (300, 500), (-5, -3), (-2.5, 2**40)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float32], ids=str)
def test_bounds_of_hardtanh(dtype, bounds):
    assert_same_outcome(lambda x: F.hardtanh(x, *bounds), lambda d: torch.tensor(UINT8).to(dtype).to(d), str(bounds))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize(
    "steps",
    [(0, 5, 2), (0, 5, 0.5), (0, 5, 1.5), (0.5, 5.5, 1.5), (5, 0.5, -0.75), (0, 5, 0), (0, 5, math.nan)],
    ids=str,
)
def test_steps_of_arange(steps, dtype):
    if dtype == torch.uint8 and steps[-1] == -0.75:
        pytest.skip("a negative number has no value of this type")
    if dtype == torch.int64 and 0 < abs(steps[-1]) < 1 and not IS_RECENT:
        pytest.skip("older versions of torch divide by the step as an integer, which ends the process")
    assert_same_outcome(lambda d: torch.arange(*steps, dtype=dtype, device=d), lambda d: d, f"{steps} {dtype}")


@pytest.mark.parametrize("eps", [0.0, 0.3, 0.5, 0.6, 1.0])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.float32, torch.float64], ids=str)
def test_bounds_of_logit(dtype, eps):
    for x in (torch.tensor([-3.0, -1.0, 0.0, 0.25, 0.55, 1.0, 2.0, math.nan]), torch.tensor(0.75)):
        x = x.nan_to_num(5).to(dtype) if not dtype.is_floating_point else x.to(dtype)
        assert_same(torch.logit(x.to(DEVICE), eps), torch.logit(x, eps), f"{eps} {dtype}")


def test_complex_numbers_to_the_power_of_one_are_exact():
    x = torch.tensor([2j, complex(math.inf, 0), -1.5 + 1e-9j, complex(math.nan, 1)])
    assert_same(x.to(DEVICE).pow(1), x.pow(1), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_expm1_of_an_infinite_angle_is_undefined(dtype):
    sizes, angles = (-math.inf, math.inf, math.nan, 1.0), (-math.inf, math.inf, math.nan)
    x = torch.tensor([complex(size, angle) for size in sizes for angle in angles], dtype=dtype)
    assert_same(torch.expm1(x.to(DEVICE)), torch.expm1(x))
    ends = torch.tensor([complex(-math.inf, 2), complex(-math.inf, 0)], dtype=dtype)
    assert_same(torch.expm1(ends.to(DEVICE)), torch.tensor([-1, -1], dtype=dtype))


def test_a_conjugate_view_is_copied_into_real_numbers():
    x = torch.tensor([1 + 2j, -3j])
    for dtype in (torch.int64, torch.float32, torch.bool, torch.complex128):
        made = torch.zeros(2, dtype=dtype, device=DEVICE).copy_(x.to(DEVICE).conj())
        assert_same(made, torch.zeros(2, dtype=dtype).copy_(x.conj()), str(dtype))


@pytest.mark.parametrize(
    "function", [lambda x: x + 1, lambda x: x >= 1, lambda x: torch.where(x > 0, x, 2.0), torch.neg, lambda x: x * x]
)
def test_strides_of_dims_of_one_element(function):
    for sizes, strides in (([3, 1], [1, 2]), ([3, 1], [1, 3]), ([1, 3], [1, 1]), ([2, 1, 3], [3, 1, 1])):
        made = [function(torch.empty_strided(sizes, strides, device=d).fill_(2)).stride() for d in ("cpu", DEVICE)]
        assert made[0] == made[1], (sizes, strides)


def test_ldexp():
    x, e = torch.tensor([0.5, -3.0, 7.0]), torch.tensor([1, -2, 10])
    assert_same(torch.ldexp(x.to(DEVICE), e.to(DEVICE)), torch.ldexp(x, e))
    assert_same(x.to(DEVICE).ldexp_(e.to(DEVICE)), torch.ldexp(x, e))
    halves, power = torch.tensor([-0.5, -0.126953125]).bfloat16(), torch.tensor(33.7791660172101, dtype=torch.float64)
    assert_same(halves.to(DEVICE).ldexp_(power.to(DEVICE)), halves.clone().ldexp_(power))
    ends, far = torch.tensor([0.0, math.inf, -math.inf]), torch.tensor([10**6, -(10**6), -(10**6)])
    assert torch.ldexp(ends.to(DEVICE), far.to(DEVICE)).tolist() == ends.tolist()


@pytest.mark.parametrize("sizes", [((), ()), ((3,), ()), ((), (3,)), ((3,), (3,))], ids=str)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_ldexp_computes_the_power_in_torchs_dtype(dtype, kind, sizes):
    x, e = torch.full(sizes[0], 1.5, dtype=dtype), torch.full(sizes[1], 0.3, dtype=kind)
    try:
        expected = torch.ldexp(x, e)
    except NotImplementedError:
        pytest.skip("torch has no power of complex half precision, since 2.15 neither of complex bfloat16")
    assert_same(torch.ldexp(x.to(DEVICE), e.to(DEVICE)), expected)


def transposed(sizes, strides, dtype=torch.float32):
    """A tensor for each device, of the same values in these strides."""
    values = torch.rand(sizes, generator=torch.Generator().manual_seed(1)).to(dtype)
    return [torch.empty_strided(sizes, strides, dtype=dtype, device=d).copy_(values) for d in ("cpu", DEVICE)]


LIKE_TORCH = {
    "2 ** x": lambda x: 2.0**x,
    "1 ** x": lambda x: torch.pow(1, x),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 1.0),
    "mse": lambda x: F.mse_loss(x, x * 2, reduction="none"),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros(x.shape, device=x.device), reduction="none"),
    "bce": lambda x: F.binary_cross_entropy(x, x, reduction="none"),
    "logsigmoid": F.logsigmoid,
    "logsigmoid gradient": lambda x: torch.autograd.grad(F.logsigmoid(x.requires_grad_()).sum(), x)[0],
    "index_add": lambda x: x.index_add(0, torch.tensor([0], device=x.device), x[:1]),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([0], device=x.device), x[:1]),
    "scatter": lambda x: x.scatter(0, torch.zeros(1, 1, dtype=torch.long, device=x.device), 1.0),
    "scatter_reduce": lambda x: x.scatter_reduce(0, torch.zeros(1, 1, device=x.device).long(), x[:1], "mean"),
    "sort": lambda x: x.sort(-1)[0],
    "argsort": lambda x: x.argsort(0),
    "flip": lambda x: x.flip(0),
    "nextafter": lambda x: torch.nextafter(x.bfloat16(), x.bfloat16() * 2),
    "pad that cuts": lambda x: F.pad(x, [-1, 0, 0, -1]),
    "ldexp": lambda x: torch.ldexp(torch.ones(5, device=x.device), x.long()),
    "ldexp of halves": lambda x: torch.ldexp(torch.ones(5, device=x.device).bfloat16(), x.bfloat16()),
    "ldexp of integers": lambda x: torch.ldexp(torch.ones(5, dtype=torch.int32, device=x.device), x.long()),
}


@pytest.mark.parametrize("name", LIKE_TORCH)
def test_strides_of_results_are_those_of_torch(name):
    for sizes, strides in (([3, 5], [1, 3]), ([3, 5], [2, 12]), ([3, 5], [7, 1])):
        theirs, mine = (LIKE_TORCH[name](x) for x in transposed(sizes, strides))
        assert mine.stride() == theirs.stride(), strides
        assert_same(mine, theirs)


def views_with_ones(ones):
    return [
        ones[:6].view(1, 1, 6),
        ones[:1].view(1, 1, 1),
        ones[:6].view(6),
        ones[:6].view(6, 1, 1),
        ones[:6].view(1, 6, 1),
        ones[:36].view(6, 1, 6),
        ones[:6].view(1, 1, 6).transpose(0, 1),
        ones[:6].view(1, 6, 1).transpose(1, 2),
        ones[:36].view(6, 1, 6).transpose(0, 1),
        ones.as_strided((6, 1, 6), (6, 1, 1)),
        ones.as_strided((1, 6, 1), (1, 1, 9)),
        ones[0],
    ]


def test_strides_of_results_with_dims_of_one_element():
    def strides_of(a, b):
        return [result.stride() for result in (a * b, a + 1, a * 2 - b)]

    ones = torch.ones(60)
    pairs = list(zip(views_with_ones(ones), views_with_ones(ones.to(DEVICE))))
    for (a, x), (b, y) in itertools.product(pairs, pairs):
        assert strides_of(x, y) == strides_of(a, b), (a.shape, a.stride(), b.shape, b.stride())


def test_strides_of_a_complex_angle():
    theirs, mine = transposed([3, 5], [1, 3], torch.complex64)
    assert mine.angle().stride() == theirs.angle().stride() == (5, 1)


@pytest.mark.parametrize("bounds", [(0.5, 1e10), (None, 1e10), (-1e10, None), (math.nan, 1e10), (math.inf, None)])
def test_clamp_to_a_number_that_half_precision_lacks(bounds):
    x = torch.tensor([1.0, -2.0], dtype=torch.float16)
    try:
        expected = x.clamp(*bounds)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)):
            x.to(DEVICE).clamp(*bounds)
    else:
        assert_same(x.to(DEVICE).clamp(*bounds), expected)


def test_logic_with_a_number_of_another_dtype():
    tiny, large = torch.tensor(5e-324, dtype=torch.float64), torch.tensor(-256)
    for x, number in ((torch.tensor([1.0, 0.0]), tiny), (torch.ones(2, dtype=torch.int8), large)):
        for function in (torch.logical_and, torch.logical_or, torch.logical_xor):
            assert_same(function(x.to(DEVICE), number.to(DEVICE)), function(x, number), function.__name__)


def test_sub_takes_the_factors_whose_negative_the_dtype_has():
    for name, alpha in (("int32", 2**31), ("int32", -(2**31)), ("int8", 128), ("uint8", 255), ("uint8", 256)):
        x = torch.tensor([1, 3], dtype=getattr(torch, name))
        try:
            expected = x.sub(x, alpha=alpha)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)):
                x.to(DEVICE).sub(x.to(DEVICE), alpha=alpha)
        else:
            assert_same(x.to(DEVICE).sub(x.to(DEVICE), alpha=alpha), expected, f"{name} {alpha}")


def test_index_reduce_of_no_complex_numbers():
    x, index = torch.ones(2, 3, dtype=torch.complex64), torch.tensor([], dtype=torch.long)
    none = torch.ones(0, 3, dtype=torch.complex64, device=DEVICE)
    made = x.to(DEVICE).index_reduce_(0, index.to(DEVICE), none, "amax")
    assert_same(made, x)
