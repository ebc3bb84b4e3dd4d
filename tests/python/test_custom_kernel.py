"""Kernels in C: the call convention, operands of any form, order, torch's machinery, refusals."""

import math

import pytest
import torch
from support import DEVICE, assert_same

pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="an interface of the device")

SOFTSHRINK = """
kernel void softshrink(in float *x, out float *y, float l) {
  y[i] = x[i] > l ? x[i] - l : (x[i] < -l ? x[i] + l : 0);
}
kernel void softshrink_backward(in float *x, in float *gy, out float *gx, float l) {
  gx[i] = x[i] > l || x[i] < -l ? gy[i] : 0;
}
kernel void grow(inout int *x, int by) { x[i] += by; }
kernel void number(out float *y) { y[thread(1) * threads(0) + i] = 10 * thread(1) + i; }
kernel void truth(in bool *x, out bool *y, in unsigned char *u, out unsigned char *v) { y[i] = !x[i]; v[i] = u[i] + 1; }
kernel void widths(in half *h, in double *d, in long *n, out double *y) { y[i] = to_float(h[i]) + d[i] + n[i]; }
"""


@pytest.fixture(scope="module")
def library():
    return torch.headrace.compile_kernel(SOFTSHRINK)


def softshrink(library, x, l=0.5):
    y = torch.empty(x.shape, device=DEVICE)
    library.softshrink(x, y, l)
    return y


def test_a_kernel_runs_in_order_with_its_neighbours(library):
    x = torch.randn(1000)
    d = x.to(DEVICE)
    torch.headrace.synchronize()
    before = torch.headrace.stats()["commits"]
    y = torch.empty(1000, device=DEVICE)
    library.softshrink(d * 2, y, 0.5)
    z = (y + 1).tanh()
    z = z.cpu()
    assert torch.headrace.stats()["commits"] == before + 1
    assert_same(z, (torch.nn.functional.softshrink(x * 2, 0.5) + 1).tanh())


def test_the_call_convention_is_that_of_mps(library):
    y = torch.zeros(2, 3, device=DEVICE)
    library.number(y, threads=(3, 2), group_size=(1, 1), arg_casts=None)
    assert y.tolist() == [[0, 1, 2], [10, 11, 12]]
    x = torch.tensor([1, 2, 3], dtype=torch.int32, device=DEVICE)
    library.grow(x, 5, threads=2)
    library.grow(x, True)
    library.grow(x, torch.tensor(10))
    assert x.tolist() == [17, 18, 14]
    assert torch.headrace.compile_shader is torch.headrace.compile_kernel
    assert "softshrink" in dir(library) and "in f32 *x" in repr(library.softshrink)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[1:, ::3],
        lambda x: x[:1].expand(8, 12),
        lambda x: x[0, 0],
        lambda x: x[:, :0],
        lambda x: x.flip(0),
    ],
)
def test_operands_have_any_strides(library, form):
    x = torch.randn(8, 12)
    d = form(x.to(DEVICE))
    whole = torch.full((30, 12), 7.0, device=DEVICE)
    y = whole[4:].as_strided(d.shape, (1, d.shape[0]) if d.dim() == 2 else ())
    rest = whole.cpu()
    library.softshrink(d, y, 0.5)
    assert_same(y.cpu(), torch.nn.functional.softshrink(form(x), 0.5))
    assert_same(whole[:4].cpu(), rest[:4])


def test_an_output_that_is_also_an_input(library):
    x = torch.randn(10)
    d = x.to(DEVICE)
    library.softshrink(d, d, 0.5)
    assert_same(d.cpu(), torch.nn.functional.softshrink(x, 0.5))
    d = x.to(DEVICE)
    library.softshrink(d[:9], d[1:], 0.5)
    assert_same(d.cpu(), torch.cat([x[:1], torch.nn.functional.softshrink(x[:9], 0.5)]))


def test_other_dtypes(library):
    x, u = torch.tensor([True, False, True]), torch.tensor([0, 255, 7], dtype=torch.uint8)
    y, v = torch.empty(3, dtype=torch.bool, device=DEVICE), torch.empty(3, dtype=torch.uint8, device=DEVICE)
    library.truth(x.to(DEVICE), y, u.to(DEVICE), v)
    assert y.tolist() == [False, True, False] and v.tolist() == [1, 0, 8]
    mixed = torch.tensor([2, 0, 1], dtype=torch.uint8, device=DEVICE).view(torch.bool)
    library.truth(mixed, y, u.to(DEVICE), v)
    assert y.tolist() == [False, True, False]
    h, d, n = torch.tensor([0.5, math.inf, math.nan]).half(), torch.ones(3, dtype=torch.double), torch.arange(3)
    y = torch.empty(3, dtype=torch.double, device=DEVICE)
    library.widths(h.to(DEVICE), d.to(DEVICE), n.to(DEVICE), y)
    assert_same(y.cpu(), h.double() + d + n)


class Softshrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, library):
        ctx.save_for_backward(x)
        ctx.library = library
        return softshrink(library, x)

    @staticmethod
    def backward(ctx, gy):
        (x,) = ctx.saved_tensors
        gx = torch.empty_like(x)
        ctx.library.softshrink_backward(x, gy, gx, 0.5)
        return gx, None


def test_gradients_by_an_autograd_function(library):
    x = torch.randn(64)
    d = x.to(DEVICE).requires_grad_()
    Softshrink.apply(d, library).square().sum().backward()
    x.requires_grad_()
    torch.nn.functional.softshrink(x, 0.5).square().sum().backward()
    assert_same(d.grad.cpu(), x.grad)
    y = torch.empty(64, device=DEVICE, requires_grad=True)
    with pytest.raises(RuntimeError, match="kernel softshrink writes y, which requires a gradient"):
        library.softshrink(d, y, 0.5)


def test_a_write_counts_as_a_change(library):
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x * 2
    z = y.square().sum()
    with torch.no_grad():
        library.softshrink(x, y.detach(), 0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_under_torch_compile(library):
    @torch.compile(backend="headrace", fullgraph=True)
    def step(x):
        y = torch.empty_like(x)
        library.softshrink(x * 2, y, 0.5)
        return y + 1

    for n in (5, 64):
        x = torch.randn(n)
        assert_same(step(x.to(DEVICE)).cpu(), torch.nn.functional.softshrink(x * 2, 0.5) + 1)


def test_in_a_custom_operator(library):
    @torch.library.custom_op("headrace_test::shrink_in_c", mutates_args=())
    def shrink(x: torch.Tensor) -> torch.Tensor:
        return softshrink(library, x)

    shrink.register_fake(lambda x: torch.empty_like(x))
    x = torch.randn(4, 4)
    torch.library.opcheck(shrink, (x.to(DEVICE),))
    assert_same(shrink(x.to(DEVICE)).cpu(), torch.nn.functional.softshrink(x, 0.5))


def test_vmap_calls_a_kernel_for_each_place(library):
    def shrink(x, shift):
        y = torch.empty_like(x)
        library.softshrink(x + shift, y, 0.5)
        return y

    x, shift = torch.randn(5, 3, 4), torch.randn(3)
    expected = torch.nn.functional.softshrink(x + shift[:, None], 0.5)
    x, shift = x.to(DEVICE), shift.to(DEVICE)
    assert_same(torch.vmap(shrink, (1, 0), 1)(x, shift).cpu(), expected)
    assert_same(torch.vmap(torch.vmap(shrink), (0, None))(x, shift).cpu(), expected)


def test_an_output_that_vmap_does_not_map_is_refused(library):
    with pytest.raises(RuntimeError, match="softshrink: output 0 has no dimension that vmap maps"):
        torch.vmap(lambda x: softshrink(library, x))(torch.ones(2, 3, device=DEVICE)).cpu()


@pytest.mark.parametrize(
    "source, message",
    [
        ("", "line 1: a kernel"),
        ("kernel void f(out float *y) {\n  y[i] = z;\n}", r"source[:(]2"),  # gcc and NVRTC
        ("kernel void f(out float *y) {\n\n  y[i] = unknown(i);\n}", r"source[:(]3"),
        ('#include "/etc/passwd"\nkernel void f(out float *y) {}', "kernels include no files"),
        ('kernel void f(out float *y) { "; }', "the quotation does not end"),
        ("kernel void f(out float *y) { y[i] = 'é'; } }", "'}' without '{'"),
    ],
)
def test_sources_that_do_not_compile(source, message):
    with pytest.raises(SyntaxError, match=message):
        torch.headrace.compile_kernel(source)


def test_arguments_are_checked(library):
    x, y = torch.ones(3, device=DEVICE), torch.ones(3, device=DEVICE)
    for arguments, error, message in [
        ((x, y), TypeError, "softshrink: expected 3 arguments, found 2"),
        ((x.cpu(), y, 1.0), ValueError, "parameter x: expected a tensor of headrace:0, found one of cpu"),
        ((x.double(), y, 1.0), (TypeError, ValueError), "parameter x: expected a tensor of f32, found a tensor of f64"),
        ((1.0, y, 1.0), TypeError, "parameter x: expected a tensor of f32, found float"),
        ((x, y, "1"), TypeError, "parameter l: expected a number, found str"),
        ((x, y, x), TypeError, "parameter l: expected a number, found a tensor of headrace:0"),
        ((x, y[:1].expand(3), 1.0), (RuntimeError, ValueError), "softshrink"),
        ((x.to_sparse(), y, 1.0), TypeError, "parameter x: expected a strided tensor, not Sparse"),
    ]:
        with pytest.raises(error, match=message):
            library.softshrink(*arguments)
    for threads in ((1, 2, 3, 4), 1.5):
        with pytest.raises(TypeError, match="expected threads to be one to three integers"):
            library.softshrink(x, y, 1.0, threads=threads)
    with pytest.raises(ValueError, match="threads"):
        library.softshrink(x, y, 1.0, threads=-1)
    n = torch.ones(3, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="parameter by: expected a number of type int32_t, found 1.5"):
        library.grow(n, 1.5)
    with pytest.raises(ValueError, match="found 4294967296"):
        library.grow(n, 1 << 32)
    with pytest.raises(AttributeError, match="no kernel 'shrink', but softshrink"):
        library.shrink(x, y)
    with pytest.raises(TypeError, match="expected a source of type str, found int"):
        torch.headrace.compile_kernel(1)
    assert n.tolist() == [1, 1, 1]
