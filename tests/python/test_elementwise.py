"""Element-wise kernels from C expressions: results, types, gradients, refusals, fusion, and torch's machinery."""

import math
import subprocess
import sys
import threading

import pytest
import torch
from support import DEVICE, ROOT, assert_same

SOFTSHRINK = "y = x > l ? x - l : (x < -l ? x + l : 0)", "T x, T l -> T y"
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="an interface of the device")


def kernel(*texts, **names):
    return torch.headrace.elementwise(*texts, **names)


def values(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 2).to(dtype)


def plain_softshrink(x, l):
    return torch.where(x > l, x - l, torch.where(x < -l, x + l, torch.zeros_like(x)))


# ---- results


@pytest.mark.parametrize("dtype", FLOATS)
def test_softshrink_is_torchs(dtype):
    x = values(3, 40, dtype=dtype)
    f = kernel(*SOFTSHRINK)
    for l in (0.5, 0.25, 1.0):
        assert_same(f(x.to(DEVICE), l), torch.nn.functional.softshrink(x, l), rtol=0, atol=0)
        assert_same(f(x, l), torch.nn.functional.softshrink(x, l), "on the host", rtol=0, atol=0)


FUNCTIONS = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc
sqrt rsqrt floor ceil trunc rint sigmoid lgamma digamma erfinv sinc i0 square abs fabs""".split()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_torch(name, dtype):
    x = values(64, dtype=dtype).abs().clamp(0.01, 0.95)
    renamed = {"rint": "round", "fabs": "abs"}
    expected = getattr(torch, renamed.get(name, name))(x.float() if x.itemsize == 2 else x).to(dtype)
    assert_same(kernel(f"y = {name}(x)", "T x -> T y")(x.to(DEVICE)), expected, name)
    assert_same(kernel(f"y = {name}(x)", "T x -> T y")(x), expected, f"{name} on the host")


@pytest.mark.parametrize("name", "pow fmod fmax fmin max min hypot atan2 copysign nextafter logaddexp fdim".split())
def test_functions_of_two_operands_are_those_of_torch(name):
    x, z = values(64).abs(), values(64, seed=1)
    theirs = {"max": torch.maximum, "min": torch.minimum, "fdim": lambda a, b: (a - b).clamp(min=0)}
    expected = theirs.get(name) or getattr(torch, name)
    f = kernel(f"y = {name}(x, z)", "float x, float z -> float y")
    assert_same(f(x.to(DEVICE), z.to(DEVICE)), expected(x, z), name)
    assert_same(f(x, z), expected(x, z), f"{name} on the host")


def test_round_is_cs():
    x = torch.tensor([-2.5, -1.5, -0.5, -0.0, 0.49999997, 0.5, 1.5, 2.5, 8388609.0, math.inf, math.nan])
    expected = torch.tensor([-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0, 8388609.0, math.inf, math.nan])
    y = kernel("y = round(x)", "float x -> float y")(x.to(DEVICE)).cpu()
    assert_same(y, expected)
    assert torch.equal(y.signbit()[:10], expected.signbit()[:10])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8])
def test_integers_compute_as_in_c(dtype):
    a, b = torch.randint(0, 100, (50,)).to(dtype), torch.arange(50).to(dtype) - (10 if dtype.is_signed else 0)
    text = "q = a / b; r = a % b; s = a * b + (a << 1) - (b >> 1); t = a & b | ~a ^ 3"
    f = kernel(text, "T a, T b -> T q, T r, T s, T t")
    wide = torch.int64 if dtype == torch.int64 else torch.int32
    x, z = a.to(wide), b.to(wide)
    safe = torch.where(z == 0, 1, z)
    expected = [
        torch.where(z == 0, 0, torch.div(x, safe, rounding_mode="trunc")),
        torch.where(z == 0, 0, torch.fmod(x, safe)),
        x * z + (x << 1) - (z >> 1),
        x & z | ~x ^ 3,
    ]
    for here in (DEVICE, "cpu"):
        for mine, theirs in zip(f(a.to(here), b.to(here)), expected, strict=True):
            assert_same(mine, theirs.to(dtype), f"on {here}")


def test_types_of_the_signature_are_exact():
    x = torch.ones(3, device=DEVICE)
    f = kernel("y = x * 2", "float x -> double y")
    assert f(x).dtype == torch.float64
    with pytest.raises(TypeError, match=r'x: expected a tensor of Float .* "float x -> double y", found Double'):
        f(x.double())
    with pytest.raises(TypeError, match="input x: expected a tensor of Float .*, found Int"):
        f(x.int())
    with pytest.raises(TypeError, match="input x: expected a tensor of torch.float32, found torch.float64"):
        f(torch.ones(3).double())
    types = "bool char short int long half bfloat16 float double uint8_t".split()
    dtypes = "bool int8 int16 int32 int64 float16 bfloat16 float32 float64 uint8".split()
    outputs = ", ".join(f"{name} y{i}" for i, name in enumerate(types))
    f = kernel(";".join(f"y{i} = x" for i in range(10)), f"float x -> {outputs}")
    assert [y.dtype for y in f(x)] == [getattr(torch, name) for name in dtypes]
    assert all(y.cpu().tolist() == [1, 1, 1] for y in f(x))


@pytest.mark.parametrize(
    "operands",
    [
        (torch.ones(3, dtype=torch.float16), torch.ones(3)),
        (torch.ones(3, dtype=torch.float32), torch.ones((), dtype=torch.float64)),
        (torch.ones(3, dtype=torch.int32), torch.ones((), dtype=torch.float64)),
        (torch.ones(3, dtype=torch.int32), 0.5),
        (torch.ones(3, dtype=torch.int8), 1),
        (torch.ones(3, dtype=torch.bool), 1),
        (torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.int64)),
        (torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.float16)),
        (torch.ones((), dtype=torch.float64), torch.ones((), dtype=torch.float32)),
        (torch.ones(3, dtype=torch.uint8), torch.ones(3, dtype=torch.int8)),
    ],
)
def test_t_is_torchs_promoted_dtype(operands):
    f = kernel("y = a + b", "T a, T b -> T y")
    expected = torch.add(*operands)
    moved = [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in operands]
    assert_same(f(*moved), expected)
    assert_same(f(*operands), expected)
    mixed = [moved[0], operands[1]]
    if not isinstance(operands[1], torch.Tensor) or operands[1].dim() == 0:  # a number of the host
        assert_same(f(*mixed), expected)


def test_half_computes_in_float_and_rounds_once():
    x = values(100, dtype=torch.float16)
    y = kernel("y = x * x + x / 3", "half x -> half y")(x.to(DEVICE))
    wide = x.float()
    assert_same(y, (wide * wide + wide / 3).half(), rtol=0, atol=0)


def test_literals_do_not_widen_and_numbers_have_the_type_of_their_input():
    x = values(100)
    assert_same(kernel("y = x * 0.1 + 1e-3", "float x -> float y")(x.to(DEVICE)), x * 0.1 + 1e-3, rtol=0, atol=0)
    f = kernel("y = x * l", "double x, float l -> double y")
    assert_same(f(x.double().to(DEVICE), 0.1), x.double() * torch.tensor(0.1).double().item() * 1, rtol=1e-7)
    assert f(torch.ones(1, dtype=torch.float64, device=DEVICE), 0.1).item() == torch.tensor(0.1).item()


def test_indices():
    text = "y = i; z = index(0) * 100 + index(-1); s = size(0) * 10 + size(-1)"
    f = kernel(text, "float x -> long y, int z, long s")
    for here in (DEVICE, "cpu"):
        for x in (torch.zeros(3, 5), torch.zeros(5, 3).t(), torch.zeros(3, 10)[:, ::2]):
            y, z, s = f(x.to(here))
            assert torch.equal(y.cpu(), torch.arange(15).view(3, 5))
            assert torch.equal(z.cpu(), (torch.arange(3)[:, None] * 100 + torch.arange(5)).int())
            assert torch.equal(s.cpu(), torch.full((3, 5), 35))
    assert kernel("y = x + i", "float x -> float y")(torch.ones((), device=DEVICE)).item() == 1
    with pytest.raises(RuntimeError, match=r"column 5: expected a dim of a tensor with 1, found 1"):
        kernel("y = index(1)", "float x -> long y")(torch.ones(3, device=DEVICE))


# ---- shapes and memory


def test_broadcasting_and_layouts_are_torchs():
    cases = [
        (values(4, 1), values(3)),
        (values(2, 3, 4, 5).to(memory_format=torch.channels_last), values(3, 1, 1)),
        (values(4, 6).t(), values(4, 6).t()),
        (values(4, 6).t(), values(6, 4)),
        (values(4, 12)[:, ::3], values(1)),
        (values(1).expand(5), values(5)),
        (values(10)[2:7], values(10)[5:]),
        (values(), values()),
        (values(), values(2, 2)),
        (values(0, 3), values(3)),
        (values(0), values(1)),
    ]
    f = kernel("y = a * 2 - b", "float a, float b -> float y")
    for a, b in cases:
        expected = a * 2 - b
        y = f(a.to(DEVICE), b.to(DEVICE))
        assert_same(y, expected, str((a.shape, b.shape)), rtol=0, atol=0)
        assert y.stride() == expected.stride(), (a.stride(), b.stride())


def test_strided_views_of_the_device_and_aliases():
    x = values(20).to(DEVICE)
    f = kernel("y = a + b; z = a - b", "float a, float b -> float y, float z")
    y, z = f(x[::2], x[1::2])
    assert_same(y, x.cpu()[::2] + x.cpu()[1::2])
    assert_same(z, x.cpu()[::2] - x.cpu()[1::2])
    y, _ = f(x, x)
    assert_same(y, x.cpu() * 2)
    y, _ = f(x[:15], x[5:])
    assert_same(y, x.cpu()[:15] + x.cpu()[5:])
    y, _ = f(x.as_strided((5, 5), (1, 1)), x.as_strided((5, 5), (2, 1)))
    assert_same(y, x.cpu().as_strided((5, 5), (1, 1)) + x.cpu().as_strided((5, 5), (2, 1)))
    bits = torch.tensor([0, 2, 255], dtype=torch.uint8, device=DEVICE).view(torch.bool)
    assert kernel("y = b", "bool b -> int y")(bits).cpu().tolist() == [0, 1, 1]


def test_inputs_stay_as_they_were_and_results_are_new():
    x = values(8).to(DEVICE)
    before = x.clone()
    y = kernel("y = x", "float x -> float y")(x)
    y += 1
    assert torch.equal(x.cpu(), before.cpu())


@pytest.mark.parametrize("mode", ["fuse", "eager", "strict"])
def test_bits_are_the_same_in_every_mode(mode):
    f = kernel("t = exp(-x * x) / (1 + fabs(x)); y = t > l ? t - l : pow(t, 3) * 0.1", "T x, float l -> T y")
    torch.headrace.set_mode("fuse")
    before = torch.headrace.get_mode()
    for dtype in FLOATS:
        x = values(5000, dtype=dtype).to(DEVICE)
        torch.headrace.set_mode("fuse")
        expected = (f(x * 2, 0.3) + 1).cpu()
        try:
            torch.headrace.set_mode(mode)
            for _ in range(4):  # recorded, captured, run
                assert torch.equal((f(x * 2, 0.3) + 1).cpu(), expected)
        finally:
            torch.headrace.set_mode(before)


def test_interpreted_and_compiled_code_have_the_same_bits():
    f = kernel("y = x > l ? exp(x) - l : (x < -l ? sin(x) + l : x * x)", "float x, float l -> float y")
    x = values(1 << 18).to(DEVICE)
    first = f(x, 0.5).cpu()
    for _ in range(30):
        assert torch.equal(f(x, 0.5).cpu(), first)


# ---- fusion and cost


def test_a_kernel_fuses_with_its_neighbours():
    f = kernel(*SOFTSHRINK)
    x = values(1 << 12).to(DEVICE)
    for _ in range(4):
        torch.headrace.synchronize()
        torch.headrace.reset_stats()
        y = f((x * 2).sigmoid(), 0.5) * 3 + 1
        y.cpu()
        stats = torch.headrace.stats()
        assert stats["kernels"] == 1, stats
    assert_same(y, plain_softshrink((x.cpu() * 2).sigmoid(), 0.5) * 3 + 1)


def test_another_number_compiles_nothing():
    f = kernel(*SOFTSHRINK)
    x = values(100).to(DEVICE)
    for l in (0.1, 0.2, 0.3):
        f(x, l).cpu()
    torch.headrace.reset_stats()
    for step in range(20):
        assert_same(f(x, step / 10), plain_softshrink(x.cpu(), step / 10))
    stats = torch.headrace.stats()
    assert stats["compiles"] == 0, stats


def test_many_shapes():
    f = kernel("y = a * b + i", "float a, float b -> float y")
    for step in range(3):
        for n in range(1, 150):
            a, b = values(n, seed=n), values(n, seed=step)
            assert_same(f(a.to(DEVICE), b.to(DEVICE)), a * b + torch.arange(n))


def test_many_kernels():
    x = torch.ones(3, device=DEVICE)
    total = sum(kernel(f"y = x * {n}", "float x -> float y")(x) for n in range(700))
    assert total.cpu().tolist() == [sum(range(700))] * 3


# ---- gradients


def gradients(f, operands):
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in operands]
    y = f(*leaves)
    weights = torch.arange(1, y.numel() + 1, dtype=torch.float64).view(y.shape).to(y.device, y.dtype)
    return [y.detach()] + list(torch.autograd.grad((y * weights).sum(), [x for x in leaves if x.requires_grad]))


def test_gradients_are_torchs():
    f = kernel("t = x * z; y = t > 0 ? tanh(t) * x : exp(t) - z / (x * x + 1)", "double x, double z -> double y")

    def plain(x, z):
        t = x * z
        return torch.where(t > 0, torch.tanh(t) * x, torch.exp(t) - z / (x * x + 1))

    for shapes in [((5, 4), (5, 4)), ((5, 4), (4,)), ((5, 1), (1, 4)), ((), (3,)), ((2, 3), ())]:
        host = [values(*shape, dtype=torch.float64, seed=s) for s, shape in enumerate(shapes)]
        expected = gradients(plain, host)
        for mine, theirs in zip(gradients(f, [x.to(DEVICE) for x in host]), expected, strict=True):
            assert_same(mine, theirs, str(shapes))
        for mine, theirs in zip(gradients(f, host), expected, strict=True):
            assert_same(mine, theirs, f"{shapes} on the host")


@pytest.mark.parametrize("dtype", FLOATS)
def test_softshrinks_gradient_is_torchs(dtype):
    x = values(3, 40, dtype=dtype)
    f = kernel(*SOFTSHRINK)
    expected = gradients(lambda x: torch.nn.functional.softshrink(x, 0.5), [x])
    mine = gradients(lambda x: f(x, 0.5), [x.to(DEVICE)])
    assert_same(mine[1], expected[1], rtol=0, atol=0)


def test_gradients_pass_gradcheck():
    text = "y = sin(x) * z + pow(fabs(x) + 1, z); w = x > 0 ? x * z : z"
    f = kernel(text, "double x, double z -> double y, double w")
    x = values(3, 4, dtype=torch.float64).to(DEVICE).requires_grad_()
    z = values(4, dtype=torch.float64, seed=1).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(f, (x, z))
    assert torch.autograd.gradgradcheck(f, (x, z))
    assert torch.autograd.gradcheck(f, (x, z), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda x: f(x, 2.0)[0], (x,))


def test_a_gradient_can_be_given():
    f = kernel("y = floor(x * s)", "double x, double s -> double y", backward="gx = gy * s + 0 * y")
    x = values(5, dtype=torch.float64).to(DEVICE).requires_grad_()
    s = torch.full((1,), 3.0, dtype=torch.float64, device=DEVICE, requires_grad=True)
    f(x, s).sum().backward()
    assert x.grad.tolist() == [3] * 5
    assert s.grad is None
    g = torch.autograd.grad(f(x, s).sum(), x, create_graph=True)[0]
    assert torch.autograd.grad(g.sum(), s)[0].item() == 5


def test_unusual_gradients():
    two = kernel("y = x * 2; n = x > 0; z = x * x", "float x -> float y, int n, float z")
    x = values(4).to(DEVICE).requires_grad_()
    y, n, z = two(x)
    assert not n.requires_grad and y.requires_grad and z.requires_grad
    z.sum().backward()  # only one of the results
    assert_same(x.grad, 2 * x.detach().cpu())
    with torch.no_grad():
        assert not two(x)[0].requires_grad
    with torch.inference_mode():
        assert not two(x)[0].requires_grad
    unknown = kernel("y = nextafter(x, 0)", "float x -> float y")
    y = unknown(x)
    with pytest.raises(NotImplementedError, match="column 5: the derivative of nextafter is not known"):
        y.sum().backward()
    y = two(x)[2]
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = two(x)[2].sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    x32, z64 = values(4).to(DEVICE).requires_grad_(), values(4).double().to(DEVICE).requires_grad_()
    kernel("y = a * b", "T a, T b -> T y")(x32, z64).sum().backward()
    assert x32.grad.dtype == torch.float32 and z64.grad.dtype == torch.float64
    host = torch.tensor(2.0, requires_grad=True)
    kernel("y = a * b", "T a, T b -> T y")(x32.detach(), host).sum().backward()
    assert_same(host.grad, x32.detach().cpu().sum())


def test_a_layer_trains_as_with_torchs_operators():
    f = kernel("y = x * (1 / (1 + exp(-x)))", "float x -> float y")

    def train(device, activation):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = values(32, 8).to(device)
        for _ in range(10):
            optimizer.zero_grad()
            loss = (model[1](activation(model[0](x))) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
        return loss.detach()

    assert_same(train(DEVICE, f), train("cpu", torch.nn.functional.silu), rtol=1e-4)


# ---- torch's machinery


def test_functional_transforms():
    f = kernel("y = x * x * l", "double x, double l -> double y")
    x, l = values(4, 3, dtype=torch.float64).to(DEVICE), values(4, dtype=torch.float64, seed=1).to(DEVICE)
    expected = x.cpu() ** 2 * l.cpu()[:, None]
    assert_same(torch.func.vmap(f)(x, l), expected)
    assert_same(torch.func.vmap(f, in_dims=(1, None))(x, l), (x.cpu() ** 2 * l.cpu()[:, None]).t())
    assert_same(torch.func.vmap(lambda row: f(row, 2.0))(x), x.cpu() ** 2 * 2)
    assert_same(torch.func.grad(lambda x: f(x, 3.0).sum())(x), 6 * x.cpu())
    per_row = torch.func.vmap(torch.func.grad(lambda x, l: f(x, l).sum()), in_dims=(0, 0))(x, l)
    assert_same(per_row, 2 * x.cpu() * l.cpu()[:, None])
    assert_same(torch.func.jacrev(lambda x: f(x, 3.0))(x[0]), torch.diag(6 * x[0].cpu()))
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: f(x, 3.0).sum()))(x[0])
    assert_same(hessian, 6 * torch.eye(3, dtype=torch.float64))
    for operands in ((x, 3.0), (x.cpu(), 3.0)):
        y, tangent = torch.func.jvp(lambda x: f(x, 3.0), (operands[0],), (torch.ones_like(operands[0]),))
        assert_same(tangent, 6 * x.cpu())
    assert_same(torch.func.jacfwd(lambda x: f(x, 3.0))(x[0]), torch.diag(6 * x[0].cpu()))
    mixed = kernel("y = a + b", "T a, T b -> T y")
    narrow = values(3).to(DEVICE)
    assert torch.func.vmap(lambda a: mixed(a, narrow))(x[:, 0]).dtype == torch.float32
    with pytest.raises(NotImplementedError, match="depends on indices"):
        torch.func.vmap(kernel("y = x + i", "double x -> double y"))(x)


def test_custom_operators_and_functions():
    f = kernel(*SOFTSHRINK)

    @torch.library.custom_op("headrace_test::shrink", mutates_args=())
    def shrink(x: torch.Tensor, l: float) -> torch.Tensor:
        return f(x, l)

    @shrink.register_fake
    def _(x, l):
        return torch.empty_like(x)

    x = values(10).to(DEVICE)
    assert_same(shrink(x, 0.5), plain_softshrink(x.cpu(), 0.5))
    torch.library.opcheck(shrink, (x, 0.5))

    class Shrink(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return f(x, 0.5)

        @staticmethod
        def backward(ctx, g):
            return kernel("gx = x > 0.5 || x < -0.5 ? g : 0", "float x, float g -> float gx")(ctx.saved_tensors[0], g)

    x.requires_grad_()
    Shrink.apply(x).sum().backward()
    assert_same(x.grad, (x.detach().cpu().abs() > 0.5).float())


def test_the_operator_passes_opcheck():
    x = values(3, 4).to(DEVICE).requires_grad_()
    z = values(4, seed=1).to(DEVICE).requires_grad_()
    arguments = ("y = x * z * l", "T x, T z, float l -> T y", None, 0, [x, z], [2.0], 4, 1)
    kernel(*arguments[:2])
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")  # the other one knows no such device
    torch.library.opcheck(torch.ops.headrace.elementwise.default, arguments, test_utils=checks)
    host = (*arguments[:4], [x.detach().cpu(), z.detach().cpu()], *arguments[5:])
    torch.library.opcheck(torch.ops.headrace.elementwise.default, host)


@pytest.mark.parametrize("backend", ["headrace", "eager", "aot_eager"])
def test_compiled_code_has_no_graph_break(backend):
    f = kernel(*SOFTSHRINK)

    def block(x):
        return f(x * 2, l=0.5) + 1

    x = values(6, 7).to(DEVICE)
    compiled = torch.compile(block, backend=backend, fullgraph=True)
    for _ in range(3):
        assert_same(compiled(x), block(x), rtol=0, atol=0)
    x.requires_grad_()
    compiled(x).sum().backward()
    assert_same(x.grad, 2 * ((x.detach().cpu() * 2).abs() > 0.5).float())


def test_compiled_code_takes_numbers_in_tensors():
    f = kernel("y = x * l - l", "float x, float l -> float y")
    x = values(6, 7).to(DEVICE)
    compiled = torch.compile(lambda x, l: f(x * 2, l) + 1, backend="headrace", fullgraph=True)
    for step in range(16):
        l = torch.full((), step / 4, device=DEVICE)
        assert_same(compiled(x, l), x.cpu() * 2 * (step / 4) - step / 4 + 1)


def test_exported_programs_contain_the_kernel():
    f = kernel(*SOFTSHRINK)

    class Shrink(torch.nn.Module):
        def forward(self, x):
            return f(x, 0.5) * 2

    x = values(4, 5).to(DEVICE)
    exported = torch.export.export(Shrink(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert "headrace.elementwise" in str(exported.graph)
    assert_same(exported.module()(values(7, 5).to(DEVICE)), plain_softshrink(values(7, 5), 0.5) * 2)


def test_modes_and_fake_tensors_see_the_operator():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    f = kernel(*SOFTSHRINK)
    x = values(3).to(DEVICE)
    with Note():
        f(x, 0.5)
    assert "headrace.elementwise.default" in seen
    with FakeTensorMode():
        y = f(torch.empty(4, 6, device=DEVICE).t(), torch.empty(4, device=DEVICE))
    assert y.shape == (6, 4) and y.device == DEVICE or y.device.type == DEVICE.type


def test_threads_share_a_kernel():
    f = kernel("y = x * l", "float x, float l -> float y")
    wrong = []

    def work(seed):
        x = values(17, seed=seed)
        for step in range(100):
            if not torch.equal(f(x.to(DEVICE), float(step)).cpu(), x * step):
                wrong.append((seed, step))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_a_kernel_is_freed():
    program = """
import gc, sys, weakref, torch, headrace.torch
x = torch.ones(3, device="headrace")
f = torch.headrace.elementwise("y = x + 1", "float x -> float y")
f(x), f(x), f(x), f(x.cpu())
freed = weakref.ref(f)
del f
gc.collect()
assert "torch._dynamo" not in sys.modules and freed() is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.cpu_only  # its function reads the operands on the host
def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs/custom-kernels.md").read_text(encoding="utf-8")
    (tmp_path / "softshrink.cpp").write_text(page.split("```cpp\n")[1].split("```")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    blocks, names = page.split("```python\n")[1:], {}
    for block in blocks:
        exec(block.split("```")[0], names)
    x = torch.tensor([0.26, 1.5], device=DEVICE, requires_grad=True)
    y = names["straight"](x, 2.0)
    y.sum().backward()
    assert y.tolist() == [0.5, 1.5] and x.grad.tolist() == [1, 0]
    assert names["p"].shape == (4, 3) and names["inside"].dtype == torch.bool


# ---- refusals


BAD_TEXTS = [
    ("x[", "column 1: expected an output or a temporary, not an input, found x"),
    ("y = x[", "column 6: expected ';' or an operator, found '\\['"),
    ("y = \u00e9", "column 5: expected an operand, found byte 0xc3"),
    ("y = x; \u00e9\u00e9 = 3", "column 8: expected a name"),
    ('#include "/etc/passwd"\ny = x', "column 1: expected a name, found '#'"),
    ('y = x"', "column 6: expected ';' or an operator, found '\"'"),
    ("y = x; }", "column 8: expected a name, found '}'"),
    ("", 'expression "", column 1: expected a name, found the end'),
    ("y = system(x)", "column 5: expected a known function, found system"),
    ("y = q", "column 5: expected a name of the signature or an assigned one, found q"),
    ("t = x", "expected an assignment to the output y, found the end"),
    ("y = " + "(" * 10000 + "x" + ")" * 10000, "expected at most 200 levels of nesting"),
    ("y = " + "-" + " -" * 10000 + "x", "expected at most 200 levels of nesting"),
    ("y = x" + "+x" * 10000, "expected at most 8192 operations"),
    ("y = x % 2", "column 7: expected integers as operands of %"),
    ("y = x & 1", "column 7: expected integers as operands"),
]


@pytest.mark.parametrize("text,message", BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_bad_texts_are_refused(text, message):
    with pytest.raises((ValueError, MemoryError, RuntimeError), match=message):
        kernel(text, "float x -> float y")


BAD_SIGNATURES = [
    ("", 'signature "", column 1: expected a type'),
    ("float x", "column 8: expected ',' or '->', found the end"),
    ("float3 x -> float y", "column 1: expected a type"),
    ("float x -> float x", "column 18: expected a new name, found x"),
    ("float x -> float y;", "column 19: expected ',' or the end, found ';'"),
    (", ".join(f"float a{n}" for n in range(40)) + " -> float y", "expected at most 32 inputs"),
]


@pytest.mark.parametrize("signature,message", BAD_SIGNATURES)
def test_bad_signatures_are_refused(signature, message):
    with pytest.raises(ValueError, match=message):
        kernel("y = 1", signature)
    with pytest.raises(TypeError, match="expected text to be a str, found bytes"):
        kernel(b"y = 1", "float x -> float y")
    with pytest.raises(ValueError, match="null"):
        kernel("y = 1\0", "float x -> float y")


def test_bad_gradients_are_refused():
    for text, message in [
        ("gz = gy", "expected an assignment to the gradient of an input, gx"),
        ("gx = gy *", "column 10: expected an operand, found the end"),
        ("gx = gw", "column 6: expected a name of the signature or an assigned one, found gw"),
        ("gx = gy % 2", "column 9: expected integers"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernel("y = x", "float x -> float y", backward=text)


def test_bad_calls_are_refused():
    f = kernel("y = x * l + n", "float x, float l, int n -> float y")
    x = values(3).to(DEVICE)
    with pytest.raises(TypeError, match=r"expected 3 operands \(x, l, n\) .*, found 2"):
        f(x, 1.0)
    with pytest.raises(TypeError, match=r"expected 3 operands .*, found 40"):
        f(*[x] * 40)
    with pytest.raises(TypeError, match="found m"):
        f(x, l=1.0, m=3)
    with pytest.raises(TypeError, match="found x twice"):
        f(x, 1.0, x=3)
    with pytest.raises(TypeError, match="input n is i32: expected an integer, found 2.5"):
        f(x, 1.0, 2.5)
    with pytest.raises(ValueError, match="input n is i32, which does not hold 2147483648"):
        f(x, 1.0, 1 << 31)
    with pytest.raises(TypeError, match="input l: expected a real number"):
        f(x, 1j, 1)
    with pytest.raises(TypeError, match="input l: expected a tensor or a real number, found str"):
        f(x, "1", 1)
    with pytest.raises(TypeError, match="expected a tensor among the operands .* found numbers alone"):
        f(1.0, 1.0, 1)
    with pytest.raises(RuntimeError, match="same device.*headrace.* and cpu"):
        f(x, torch.ones(3), 1)
    with pytest.raises((RuntimeError, ValueError), match=r"input l of size \[4\] can't be broadcast"):
        f(x, torch.ones(4, device=DEVICE), 1)
    with pytest.raises(NotImplementedError, match="expected T to be an integer or a floating dtype, found c64"):
        kernel("y = x", "T x -> T y")(torch.ones(3, dtype=torch.complex64, device=DEVICE))
    with pytest.raises(ValueError, match="column 7: expected integers as operands of %"):
        kernel("y = x % 2", "T x -> T y")(x)
    b = kernel("y = b", "bool b, float x -> int y")
    assert b(True, x).cpu().tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="input b is bool: expected True or False, found 2"):
        b(2, x)


def test_numbers_of_other_libraries_are_numbers():
    numpy = pytest.importorskip("numpy")
    f = kernel("y = x * l", "float x, float l -> float y")
    x = torch.ones(3, device=DEVICE)
    for two in (2, 2.0, numpy.float32(2), numpy.int64(2), torch.tensor(2.0), torch.tensor(2.0, device=DEVICE)):
        assert f(x, two).cpu().tolist() == [2, 2, 2]
