"""Linear layers with gradients: one node of our own instead of torch's three."""

import itertools

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from support import DEVICE, assert_same

OURS = "HeadraceLinearBackward"


def given(shape, *, places=(True, True, True), dtype=torch.float64, seed=1):
    """Input, weight and bias on the host, and those that want gradients."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(s, generator=generator, dtype=dtype) for s in (shape, (5, shape[-1]), (5,))]
    return [t.requires_grad_(wants) for t, wants in zip(tensors, places, strict=True)]


def on_device(tensors):
    return [t.detach().to(DEVICE).requires_grad_(t.requires_grad) for t in tensors]


def gradients(tensors, change=lambda y: y, with_bias=True):
    y = change(F.linear(tensors[0], tensors[1], tensors[2] if with_bias else None))
    weights = torch.arange(y.numel(), dtype=torch.float64).view(y.shape).to(y.device, y.dtype)
    (y * weights).sum().backward()
    return [y.detach()] + [t.grad for t in tensors if t.grad is not None]


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (2, 3, 4), (2, 1, 3, 4)])
def test_gradients_are_those_that_are_wanted(shape):
    for *places, with_bias in itertools.product((True, False), repeat=4):
        if not any(places[: 2 + with_bias]):
            continue
        host = given(shape, places=places)
        device = on_device(host)
        for mine, torchs in zip(
            gradients(device, with_bias=with_bias), gradients(host, with_bias=with_bias), strict=True
        ):
            assert_same(mine, torchs, str(places), rtol=1e-12, atol=1e-12)
        assert [t.grad is None for t in device] == [t.grad is None for t in host]


def test_gradients_that_lie_otherwise():
    """Turned, spread over, cut: of the input, the weight and the gradient that comes in."""
    for change in (lambda y: y.t(), lambda y: y[:, ::2], lambda y: y.sum(0).expand(7, 5), lambda y: y.unsqueeze(1) * 2):
        host = given((3, 4))
        for mine, torchs in zip(gradients(on_device(host), change), gradients(host, change), strict=True):
            assert_same(mine, torchs, rtol=1e-12, atol=1e-12)
    results = []
    for place in (DEVICE, "cpu"):
        x = torch.arange(24.0).view(4, 6).to(place)[:, ::2].requires_grad_()
        weight = torch.arange(15.0).view(3, 5).to(place).t()
        weight = weight.detach().requires_grad_()
        y = F.linear(x, weight)
        y.square().sum().backward()
        results.append((y.detach(), x.grad, weight.grad))
    for mine, torchs in zip(*results, strict=True):
        assert_same(mine, torchs, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    host = given((6, 4), dtype=dtype)
    bound = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    for mine, torchs in zip(gradients(on_device(host)), gradients(host), strict=True):
        assert_same(mine, torchs, rtol=bound, atol=10 * bound)


def test_whose_node_it_is():
    x, weight, bias = on_device(given((3, 4)))
    assert F.linear(x, weight, bias).grad_fn.name() == OURS
    assert F.linear(x.detach(), weight.detach(), bias.detach()).grad_fn is None
    with torch.no_grad():
        assert F.linear(x, weight, bias).grad_fn is None
    assert F.linear(x[0], weight, bias).grad_fn.name() != OURS  # a vector is torch's
    complex_x = x.detach().to(torch.complex64).requires_grad_()
    assert F.linear(complex_x, weight.detach().to(torch.complex64)).grad_fn.name() != OURS
    nothing = torch.empty(0, 4, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert F.linear(nothing, weight).shape == (0, 5)


def test_gradients_of_gradients():
    host = given((2, 3, 4))
    seconds = []
    for tensors in (on_device(host), host):
        y = F.linear(*tensors).square().sum()
        firsts = torch.autograd.grad(y, tensors, create_graph=True)
        total = sum((first * first).sum() for first in firsts)
        seconds.append(torch.autograd.grad(total, tensors))
    for mine, torchs in zip(*seconds, strict=True):
        assert_same(mine, torchs, rtol=1e-12, atol=1e-12)


def test_what_autograd_promises():
    x, weight, bias = on_device(given((3, 4)))
    y = F.linear(x, weight, bias)
    y.sum().backward(retain_graph=True)
    once = weight.grad.clone()
    y.sum().backward()
    assert_same(weight.grad, 2 * once.cpu())
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    y = F.linear(x, weight, bias)
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = F.linear(x, weight.detach(), bias)  # the input is not needed: it may change
    x.detach().mul_(3)
    y.sum().backward()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t.cpu(), lambda t: t.to(DEVICE)):
        y = F.linear(x, weight, bias)
    assert len(packed) == 2
    (gradient,) = torch.autograd.grad(y.sum(), [bias])
    assert gradient.tolist() == [3] * 5


def test_transforms_and_checkpoints():
    host = given((3, 4))
    results = []
    for tensors in (on_device(host), host):
        x, weight, bias = tensors
        loss = lambda w, x=x, bias=bias: F.linear(x, w, bias).square().sum()  # noqa: E731
        per_row = torch.func.vmap(torch.func.grad(lambda row, w=weight: F.linear(row, w).sum()))(x.detach())
        forwards = torch.func.jvp(loss, (weight.detach(),), (torch.ones_like(weight),))[1]
        again = torch.utils.checkpoint.checkpoint(F.linear, x, weight, bias, use_reentrant=False).sum()
        results.append(
            [torch.func.grad(loss)(weight.detach()), per_row, forwards, *torch.autograd.grad(again, tensors)]
        )
    for mine, torchs in zip(*results, strict=True):
        assert_same(mine.detach(), torchs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_batches_of_gradients(shape):
    """They have no memory of their own."""
    host = given(shape)
    results = []
    for tensors in (on_device(host), host):
        y = F.linear(*tensors)
        batch = torch.eye(y.numel(), dtype=y.dtype, device=y.device).view(-1, *y.shape)
        results.append(torch.autograd.grad(y, tensors, batch, is_grads_batched=True))
    for mine, torchs in zip(*results, strict=True):
        assert_same(mine, torchs, rtol=1e-12, atol=1e-12)


# ---- large products, which some GPUs make of parts (HEADRACE_SPLIT_PRODUCTS=on)

LARGE = [(1024, 768, 2048), (1100, 1733, 1024), (1501, 512, 1024), (1024, 5025, 1024), (1024, 768, 2501)]


def error_of(made, exact):
    return ((made.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("sizes", LARGE, ids=str)
def test_large_products_have_the_precision_of_f32(sizes):
    rows, depth, columns = sizes
    generator = torch.Generator().manual_seed(1)
    x, w, bias = (torch.randn(s, generator=generator) for s in ((rows, depth), (columns, depth), (columns,)))
    exact = x.double() @ w.double().t()
    products = [
        (lambda x, w, bias: F.linear(x, w, bias), exact + bias),
        (lambda x, w, bias: torch.relu(x @ w.t()), exact.relu()),
        (lambda x, w, bias: w @ x.t().contiguous(), exact.t()),
        (lambda x, w, bias: x.t().contiguous().t() @ w.t().contiguous(), exact),
    ]
    for product, expected in products:
        assert error_of(product(*on_device([x, w, bias])).cpu(), expected) < 2e-6


def test_large_products_keep_infinities_and_nan():
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(1024, 1024, generator=generator), torch.randn(1024, 2048, generator=generator)
    x[5, 7], x[9, 3], x[20, 8], w[8, 100] = float("inf"), float("nan"), 0.0, float("-inf")
    made, expected = (x.to(DEVICE) @ w.to(DEVICE)).cpu(), x @ w
    for is_special in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(is_special(made), is_special(expected))
