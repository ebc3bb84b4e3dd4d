"""8-bit floating point against torch's CPU device: every byte, rounding to each format, copies and comparisons,
products with scales, and errors of all other operations."""

import pytest
import torch
from support import DEVICE, IS_RECENT, assert_same

FORMATS = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
FACTORS = FORMATS[:4]
OTHERS = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int16,
    torch.bool,
]
# Before 2.12, numbers too large for e4m3fn became NaN in torch; now, and here, they become the largest number.
SATURATES = torch.tensor(1e4).to(torch.float8_e4m3fn).float().item() == 448


def all_bytes(dtype):
    return torch.arange(256, dtype=torch.int64).to(torch.uint8).view(dtype)


def numbers(dtype, *shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_same_bytes(actual, expected):
    """The same bytes, but for those of NaN; NaN in the same places."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    actual, nan = actual.cpu(), expected.float().isnan()
    assert torch.equal(actual.float().isnan(), nan)
    different = (actual.contiguous().view(torch.uint8) != expected.contiguous().view(torch.uint8)) & ~nan
    assert not different.any(), (actual.float()[different][:5], expected.float()[different][:5])


def assert_alike(function, *tensors):
    """The function's result, or the type of its exception, is the same on both devices."""
    try:
        expected = function(*tensors)
    except Exception as error:
        with pytest.raises(type(error)):
            function(*[t.to(DEVICE) for t in tensors]).cpu()
        return
    actual = function(*[t.to(DEVICE) for t in tensors])
    (assert_same_bytes if expected.dtype in FORMATS else assert_same)(actual, expected)


@pytest.mark.parametrize("dtype", FORMATS)
def test_bytes_survive_the_way_there_and_back(dtype):
    x = all_bytes(dtype)
    y = x.to(DEVICE)
    assert y.dtype == dtype and y.element_size() == 1
    assert torch.equal(y.view(torch.uint8).cpu(), x.view(torch.uint8))
    assert torch.equal(y.cpu().view(torch.uint8), x.view(torch.uint8))
    assert_same_bytes(y.clone(), x)


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_byte_widens_and_every_half_rounds_as_in_torch(dtype):
    x = all_bytes(dtype)
    for other in OTHERS:
        finite = x if other.is_floating_point or other.is_complex or other == torch.bool else x[x.float().abs() < 1e4]
        assert_same(finite.to(DEVICE).to(other), finite.to(other), f"{dtype} to {other}", rtol=0, atol=0)
    for other in FORMATS:
        assert_rounded(x.float(), other)
    for half in (torch.float16, torch.bfloat16):
        assert_rounded(torch.arange(65536, dtype=torch.int32).to(torch.int16).view(half), dtype)


def assert_rounded(x, dtype):
    if not SATURATES and dtype == torch.float8_e4m3fn:
        x = x[~(x.float().abs() > 448)]
    assert_same_bytes(x.to(DEVICE).to(dtype), x.to(dtype))


@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_of_every_type_round_as_in_torch(dtype):
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31 - 1, (200000,), generator=generator, dtype=torch.int64).to(torch.int32)
    assert_rounded(bits.view(torch.float32), dtype)
    x = torch.randn(20000, generator=generator) * torch.tensor(10.0) ** torch.randint(
        -9, 6, (20000,), generator=generator
    )
    assert_rounded(x, dtype)
    assert_rounded(x.double(), dtype)
    assert_rounded(torch.arange(-500, 500), dtype)
    assert_rounded(torch.tensor([True, False]), dtype)
    assert_rounded(torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, -1e-45, 3e38]), dtype)


@pytest.mark.parametrize("dtype", FORMATS)
def test_views_and_overlapping_copies(dtype):
    x = numbers(dtype, 6, 8)
    for view in (lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[2], lambda t: t[:1].expand(4, 8), lambda t: t[:0]):
        assert_alike(lambda t, view=view: view(t).clone(), x)
        assert_alike(lambda t, view=view: view(t).float(), x)

    def shift(t):
        t = t.clone()
        t[1:] = t[:-1].clone()
        t[:, 1:].copy_(t[:, :-1].clone())
        t.t()[0] = 1.5
        return t

    assert_alike(shift, x)
    assert_alike(lambda t: torch.empty(8, 6, dtype=dtype, device=t.device).t().copy_(t), x)
    assert_alike(lambda t: torch.zeros(6, 8, 2, device=t.device)[..., 1].copy_(t), x)
    assert_alike(lambda t: torch.empty_like(t).copy_(t.double() * 3 + 1), x)


MOVES = {
    "fill": lambda t: torch.empty_like(t).fill_(1.7),
    "fill too large": lambda t: torch.empty_like(t).fill_(1e6),
    "full": lambda t: torch.full((3, 2), 0.3, dtype=t.dtype, device=t.device),
    "ones": lambda t: torch.ones(3, dtype=t.dtype, device=t.device),
    "eye": lambda t: torch.eye(3, 5, dtype=t.dtype, device=t.device),
    "eye out": lambda t: torch.eye(3, out=torch.empty(0, dtype=t.dtype, device=t.device)),
    "cat": lambda t: torch.cat([t, t[:2]]),
    "stack": lambda t: torch.stack([t, t], 1),
    "index": lambda t: t[torch.tensor([1, 0, -1], device=t.device)],
    "index of two": lambda t: t[torch.tensor([1, 0], device=t.device), torch.tensor([2, 3], device=t.device)],
    "mask": lambda t: t[torch.arange(6, device=t.device) % 2 == 0],
    "index_select": lambda t: t.index_select(1, torch.tensor([3, 3], device=t.device)),
    "index_put": lambda t: t.clone().index_put_((torch.tensor([1], device=t.device),), t[2:3]),
    "embedding": lambda t: torch.nn.functional.embedding(torch.tensor([[0, 2]], device=t.device), t),
    "where": lambda t: torch.where(torch.arange(8, device=t.device) < 3, t, t.flatten()[0]),
    "repeat": lambda t: t.repeat(2, 1),
    "repeat_interleave": lambda t: t.repeat_interleave(2, 0),
    "roll": lambda t: t.roll(1, 0),
    "pad": lambda t: torch.nn.functional.pad(t, (1, 2)),
    "diag": lambda t: torch.diag(t),
    "eq": lambda t: t == t.flip(0) if t.device.type != "cpu" else t == t.float().flip(0).to(t.dtype),
    "ne": lambda t: t != t.t().contiguous().t(),
    "eq number": lambda t: t == 1.1,
    "eq large number": lambda t: t == 1000,
    "isnan": lambda t: t.isnan(),
    "abs": lambda t: t.abs(),
    "any": lambda t: t.any(),
    "all": lambda t: t.all(),
    "any of rows": lambda t: t.any(1),
    "add float": lambda t: torch.ones(3, device=t.device) + t[0, 0],
    "foreach": lambda t: torch._foreach_copy_([torch.empty(6, 8, device=t.device)], [t])[0],
    "sum of floats": lambda t: t.sum(dtype=torch.float32),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_what_moves_and_compares(dtype, name):
    x = numbers(dtype, 6, 8)
    x[0, :3] = torch.tensor([float("nan"), 1.125, -1.0]).to(dtype)
    if name in ("abs", "index_put") and dtype == torch.float8_e8m0fnu:
        pytest.skip("torch has none for this format")
    assert_alike(MOVES[name], x)


REFUSED = {
    "add": lambda t: t + t,
    "mul number": lambda t: t * 2,
    "neg": lambda t: -t,
    "lt": lambda t: t < t,
    "exp": lambda t: t.exp(),
    "sum": lambda t: t.sum(),
    "max": lambda t: t.max(),
    "argmax": lambda t: t.argmax(),
    "cumsum": lambda t: t.cumsum(0),
    "sort": lambda t: t.sort().values,
    "softmax": lambda t: t.softmax(0),
    "relu": lambda t: t.relu(),
    "clamp": lambda t: t.clamp(0, 1),
    "lerp": lambda t: torch.lerp(t, t, 0.5),
    "bmm": lambda t: torch.bmm(t[None], t.t()[None]),
    "mv": lambda t: t @ t[0],
    "arange": lambda t: torch.arange(3, dtype=t.dtype, device=t.device),
    "rand": lambda t: torch.rand(3, dtype=t.dtype, device=t.device),
    "with another type": lambda t: t + torch.ones(8, device=t.device),
    "with another format": lambda t: (
        t == t.float().to(torch.float8_e5m2 if t.dtype != torch.float8_e5m2 else torch.float8_e4m3fn)
    ),
    "cat with another type": lambda t: torch.cat([t, t.float()]),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("dtype", FORMATS)
def test_nothing_else_is_computed(dtype, name):
    x = numbers(dtype, 4, 8)
    with pytest.raises((NotImplementedError, RuntimeError)) as expected:
        REFUSED[name](x)
    with pytest.raises(type(expected.value)):
        REFUSED[name](x.to(DEVICE)).cpu()
    assert_same_bytes(x.to(DEVICE).clone(), x)  # the device goes on


@pytest.mark.parametrize("dtype", FORMATS)
def test_texts_and_numbers(dtype):
    x = numbers(dtype, 5)
    y = x.to(DEVICE)
    assert y.tolist() == x.tolist() and y[1].item() == x[1].item() and bool(y[2]) == bool(x[2])
    assert str(y.cpu()) == str(x) and str(dtype) in repr(y)


# ---- products


def test_products_round_once():
    for dtype in FACTORS[:2]:
        a, b, c = numbers(dtype, 5, 16), numbers(dtype, 16, 6, seed=1), numbers(dtype, 5, 6, seed=2)
        assert_alike(lambda a, b: a @ b, a, b)
        assert_alike(lambda a, b: a.t().contiguous().t() @ b, a, b)
        assert_alike(lambda a, b, c: torch.addmm(c, a, b), a, b, c)
        assert_alike(lambda a, b: torch.nn.functional.linear(a, b.t()), a, b)
        assert_alike(lambda a, b: a[:, :0] @ b[:0], a, b)
        assert_alike(lambda a, b: a[:0] @ b, a, b)


SCALES = {
    "one": lambda m, n: (torch.tensor(1.5), torch.tensor(0.25)),
    "one of two dims": lambda m, n: (torch.full((1, 1), 1.5), torch.full((1,), 0.25)),
    "rows": lambda m, n: (torch.linspace(0.5, 2, m)[:, None].contiguous(), torch.linspace(1, 3, n)[None].contiguous()),
}


def scaled_product(a, b, scale_a, scale_b, bias, dtype):
    """torch._scaled_mm by its documentation; before 2.13 the CPU's has no row-wise scales and few formats."""
    product = (a.double() @ b.double()) * scale_a.double() * scale_b.double()
    return (product if bias is None else product + bias.double()).float().to(dtype)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("b_dtype", FACTORS)
@pytest.mark.parametrize("a_dtype", FACTORS)
def test_scaled_products(a_dtype, b_dtype, scales):
    m, k, n = 7, 32, 9
    a, b = numbers(a_dtype, m, k), numbers(b_dtype, k, n, seed=1)
    scale_a, scale_b = SCALES[scales](m, n)
    bias = torch.linspace(-1, 1, n)
    for out_dtype in (torch.float32, torch.bfloat16, torch.float64, a_dtype, None):
        for both in ((a, b), (a, b.t().contiguous().t()), (a[:, :0], b[:0]), (a[:0], b)):
            sizes = (scale_a[: both[0].shape[0]] if scales == "rows" else scale_a, scale_b)
            for added in (None, bias, bias.bfloat16()):
                expected = scaled_product(*both, *sizes, added, out_dtype or a_dtype)
                for where in ("cpu", DEVICE) if IS_RECENT else (DEVICE,):
                    actual = torch._scaled_mm(
                        *(t.to(where) for t in (*both, *sizes)),
                        bias=None if added is None else added.to(where),
                        out_dtype=out_dtype,
                    )
                    assert actual.dtype == expected.dtype and actual.shape == expected.shape
                    rtol = {None: 0.26, a_dtype: 0.26, torch.float32: 1e-5}.get(out_dtype, 0.02)
                    torch.testing.assert_close(actual.cpu().double(), expected.double(), rtol=rtol, atol=1e-5)


def test_scaled_products_are_written_where_they_are_asked_for():
    a, b = numbers(FACTORS[0], 4, 16), numbers(FACTORS[0], 16, 6, seed=1)
    one = torch.tensor(1.0)
    expected = torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)
    on = [t.to(DEVICE) for t in (a, b, one, one)]
    for out in (torch.empty(0), torch.zeros(4, 6), torch.zeros(6, 4).t(), torch.zeros(4, 12)[:, ::2]):
        memory = out.to(DEVICE) if out.is_contiguous() else torch.zeros(6, 4, device=DEVICE).t()
        assert torch._scaled_mm(*on, out_dtype=torch.float32, out=memory) is memory
        assert_same(memory, expected)


@pytest.mark.skipif(not IS_RECENT, reason="the CPU's is newer")
def test_scaled_products_by_recipe():
    a, b = numbers(FACTORS[0], 4, 16), numbers(FACTORS[1], 16, 6, seed=1)
    for recipe, scales in ((0, SCALES["one"](4, 6)), (1, SCALES["rows"](4, 6))):

        def product(a, b, x, y, recipe=recipe):
            return torch._scaled_mm_v2(a, b, [x], [recipe], [], [y], [recipe], [], None, torch.float32)

        assert_same(product(*(t.to(DEVICE) for t in (a, b, *scales))), product(a, b, *scales))


@pytest.mark.skipif(not IS_RECENT, reason="the CPU refuses other things")
def test_what_scaled_products_refuse():
    a, b, one = numbers(FACTORS[0], 4, 16), numbers(FACTORS[0], 16, 6, seed=1), torch.tensor(1.0)
    wrong = {
        "three dims": lambda a, b, s: torch._scaled_mm(a[None], b, s, s),
        "sizes": lambda a, b, s: torch._scaled_mm(a, b[:3], s, s),
        "floats": lambda a, b, s: torch._scaled_mm(a.float(), b.float(), s, s),
        "scales in double precision": lambda a, b, s: torch._scaled_mm(a, b, s.double(), s),
        "one row wise": lambda a, b, s: torch._scaled_mm(a, b, s.expand(4, 1).contiguous(), s),
        "bias": lambda a, b, s: torch._scaled_mm(a, b, s, s, bias=s.expand(3).contiguous()),
        "out": lambda a, b, s: torch._scaled_mm(
            a, b, s, s, out_dtype=torch.float16, out=torch.empty(4, 6, device=a.device)
        ),
    }
    for name, call in wrong.items():
        with pytest.raises((RuntimeError, ValueError)) as expected:
            call(a, b, one)
        with pytest.raises(type(expected.value)):
            call(a.to(DEVICE), b.to(DEVICE), one.to(DEVICE))
            pytest.fail(name)
