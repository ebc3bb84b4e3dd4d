"""Windows, convolutions and products against torch's CPU device, forward and backward."""

import math

import pytest
import torch
import torch.nn.functional as F
from op_support import FLOATS, HALVES, INTEGERS, LAYOUTS, check, check_summed, numbers
from support import DEVICE, assert_same, assert_summed

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
                numbers(shape, dtype, seed) for seed, shape in enumerate((shape, (4, 6 // groups, *kernel), (6,)))
            )
            check_summed(lambda x, w, b: F.conv_transpose2d(x, w, b, **options), x, w, b, factor=2)
    for layout in LAYOUTS:
        x, w = numbers((2, 4, 5, 6)), numbers((4, 6 // groups, 3, 3), seed=1)
        check_summed(lambda x, w: F.conv_transpose2d(x, w, **options), x, w, layout=layout, factor=2)


@pytest.mark.cpu_only  # a GPU's libraries add the bias to the rounded product, under torch as well
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 2}], ids=str)
def test_transposed_convolutions_round_once_behind_their_bias(options):
    for dtype in (torch.bfloat16, torch.float16):
        x, w, b = (
            numbers((2, 4, 20), dtype),
            numbers((4, 8 // options.get("groups", 1), 5), dtype, 1),
            numbers((8,), dtype, 2),
        )
        actual = F.conv_transpose1d(x.to(DEVICE), w.to(DEVICE), b.to(DEVICE), **options).cpu()
        exact = F.conv_transpose1d(x.double(), w.double(), b.double(), **options)
        assert ((actual.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps * 0.51 + 2e-6).all()


def small_network(x, w, strided, transposed, pixel):
    """Padding, a stride, a transposed window and one of a pixel, with activations between them."""
    first = F.relu(F.conv2d(x, w, padding=1))
    deep = F.leaky_relu(F.conv2d(first, strided, stride=2, padding=(1, 0)), 0.1)
    return F.conv2d(F.conv_transpose2d(deep, transposed, stride=2), pixel)


SIZES = [(9, 12), (14, 8), (20, 33), (11, 26), (30, 13), (17, 17), (22, 40), (3, 28), (35, 6), (16, 21), (12, 19)]


def test_convolutions_of_changing_sizes():
    """After some sizes, programs of new ones are copies of compiled programs."""
    weights = [numbers(dims, seed=1) for dims in ((16, 3, 3, 3), (20, 16, 3, 3), (20, 10, 2, 2), (3, 10, 1, 1))]
    for size in SIZES:
        check_summed(small_network, numbers((1, 3, *size)), *weights, factor=8)


def test_conv1d():
    for dtype in FLOATS:
        for options in ({}, {"stride": 2, "padding": 3}, {"dilation": 2}, {"groups": 2}):
            x, w = numbers((3, 4, 17), dtype), numbers((6, 4 // options.get("groups", 1), 3), dtype, 1)
            check_summed(lambda x, w, b: F.conv1d(x, w, b, **options), x, w, numbers((6,), dtype, 2), factor=2)
    check_summed(lambda x, w: F.conv_transpose1d(x, w, stride=2), numbers((2, 4, 5)), numbers((4, 3, 4)), factor=2)


def test_conv_of_frozen_parts():
    """Only tensors that require a gradient get one."""
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


def wrapping(shape, dtype, seed=0):
    """Integers of all sizes that the dtype has: sums of their products wrap around."""
    info, generator = torch.iinfo(dtype), torch.Generator().manual_seed(seed)
    return torch.randint(info.min, info.max, shape, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_products_of_integers_wrap_around(dtype):
    a, b, c = wrapping((70, 40), dtype), wrapping((40, 90), dtype, 1), wrapping((90,), dtype, 2)
    for layout in LAYOUTS:
        check(torch.matmul, a, b, layout=layout)
    check(torch.addmm, c, a, b)
    check(lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), c, a, b)
    check(torch.bmm, wrapping((3, 20, 30), dtype), wrapping((3, 30, 40), dtype))
    check(torch.matmul, a[:, :3], b[:3])


def test_convolutions_of_integers_wrap_around():
    dtype = torch.int64  # the only one that torch's CPU device takes
    x, w, c = wrapping((2, 6, 20, 17), dtype), wrapping((8, 3, 3, 2), dtype, 1), wrapping((8,), dtype, 2)
    for layout in LAYOUTS:
        check(lambda x, w, c: F.conv2d(x, w, c, stride=(1, 2), padding=1, groups=2), x, w, c, layout=layout)
    check(lambda x, w, c: F.conv_transpose2d(x, w, c, stride=(2, 1), padding=1), x[:, :4], w[:4], c[:3])
    check(lambda x, w, c: F.conv_transpose1d(x, w, c), x[..., 0], wrapping((6, 5, 3), dtype), c[:5])


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_added_to_halves_is_added_before_they_are_rounded(dtype):
    a, b = numbers((40, 64), dtype), numbers((64, 24), dtype, 1)
    product = a.double() @ b.double()
    c = (-product).to(dtype)  # most of the product cancels out
    expected = (c.double() + product).to(dtype)
    assert_same(torch.addmm(c.to(DEVICE), a.to(DEVICE), b.to(DEVICE)), expected, rtol=2**-6, atol=2**-12)


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


# ---- products of groups of rows


def grouped(x, matrices, counts):
    ends = torch.tensor(counts, device=x.device).cumsum(0).int()
    return F.grouped_mm(x, matrices, offs=ends)


COUNTS = [[1], [2, 0, 3], [0, 0, 6, 0], [1, 1, 1, 1], [0, 7, 1], [40, 2]]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products(dtype, turned):
    """Both sizes of matrices: all products without a look at the ends, and torch's own loop over them."""
    for counts in COUNTS:
        for inner, columns in ((16, 8), (32, 64), (512, 1024)):
            x = numbers((sum(counts), inner), dtype)
            shape = (len(counts), columns, inner) if turned else (len(counts), inner, columns)
            matrices = numbers(shape, dtype, low=-1, high=1)
            check_summed(lambda x, m, c=counts: grouped(x, m.mT if turned else m, c), x, matrices)


@pytest.mark.skipif(DEVICE.type != "headrace", reason="about this device")
def test_small_grouped_products_do_not_wait():
    torch.headrace.synchronize()
    x, matrices = numbers((6, 16)).to(DEVICE), numbers((3, 16, 8)).to(DEVICE)
    matrices[1] = math.nan  # no row's
    counts = torch.tensor([4, 0, 1]).to(DEVICE)
    before = torch.headrace.stats()["commits"]
    made = F.grouped_mm(x, matrices, offs=counts.cumsum(0).int())
    assert torch.headrace.stats()["commits"] == before
    assert_summed(made[:4].cpu(), (x[:4] @ matrices[0]).cpu())
    assert_summed(made[4:5].cpu(), (x[4:5] @ matrices[2]).cpu())


def test_gradients_of_grouped_products():
    found = []
    for device in ("cpu", DEVICE):
        x, matrices = (numbers(shape).to(device).requires_grad_() for shape in ((6, 16), (4, 16, 8)))
        y = grouped(x, matrices, [2, 0, 3, 1])
        (y * numbers((6, 8)).to(device)).sum().backward()
        found.append([x.grad, matrices.grad])
    for ours, expected in zip(found[1], found[0]):
        assert_summed(ours.cpu(), expected)


def test_grouped_products_refuse_what_the_cpu_refuses():
    x, matrices, ends = numbers((6, 16)), numbers((2, 16, 8)), torch.tensor([2, 6], dtype=torch.int32)
    wrong = [
        (x[:, :12].contiguous(), matrices, ends),
        (x, matrices, ends.long()),
        (x, matrices, ends[:1]),
        (x, matrices.to(torch.bfloat16), ends),
        (x, matrices[:, :, :7].contiguous(), ends),
    ]
    for arguments in wrong:
        with pytest.raises(Exception) as expected:
            F.grouped_mm(arguments[0], arguments[1], offs=arguments[2])
        with pytest.raises(type(expected.value)):
            F.grouped_mm(*(t.to(DEVICE) for t in arguments[:2]), offs=arguments[2].to(DEVICE))
