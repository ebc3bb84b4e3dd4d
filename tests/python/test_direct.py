"""Operators whose kernels leave out torch's autograd where it has nothing to do (frontends/torch/csrc/direct.cpp)."""

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("headrace")


def floats(*dims, requires_grad=False):
    values = torch.rand(*dims, generator=torch.Generator().manual_seed(sum(dims)))
    return values.to(DEVICE).requires_grad_(requires_grad)


def direct_operators() -> dict[str, dict[str, str]]:
    """{name: {key: kernel}} of the operators in direct.cpp."""
    torch.zeros(1, device=DEVICE)  # kernels are registered at the first use
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    tables = {name: torch._C._dispatch_dump_table(name) for name in names}
    return {
        name: dict(line.split(": ", 1) for line in table.splitlines() if ": " in line)
        for name, table in tables.items()
        if "direct.cpp" in table
    }


def test_torchs_kernels_of_autograd_are_found():
    """All other calls are dispatched by AutogradOther, where torch's own autograd kernel is."""
    tables = direct_operators()
    assert {"aten::mul.Tensor", "aten::add_.Tensor", "aten::cat", "aten::_foreach_sqrt"} <= tables.keys()
    for name, table in tables.items():
        assert "direct.cpp" in table["AutogradPrivateUse1"], name
        assert table["AutogradOther"] == table["AutogradCPU"] and "autograd kernel" in table["AutogradOther"], name


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: torch.cat((a, b)),
        lambda a, b: torch.nn.functional.gelu(a) - b.sqrt(),
        lambda a, b: a.softmax(1) @ b.t(),
        lambda a, b: torch.where(a > b, a, b).sum(0),
        lambda a, b: torch.stack(torch._foreach_sqrt([a, b])),
    ],
)
def test_gradients_as_before(function):
    a, b = floats(3, 4), floats(3, 4) + 1
    host = [x.cpu().requires_grad_() for x in (a, b)]
    with torch.no_grad():
        plain = function(a, b)
    assert plain.grad_fn is None and not plain.requires_grad
    a.requires_grad_(), b.requires_grad_()
    with torch.no_grad():
        assert not function(a, b).requires_grad
    found, expected = function(a, b), function(*host)
    assert found.grad_fn is not None and found.grad_fn.name() == expected.grad_fn.name()
    assert torch.allclose(found.detach().cpu(), plain.cpu())
    for first in (a, b):  # one after the other, and gradients of gradients
        (given,) = torch.autograd.grad(found.square().sum(), first, create_graph=True, retain_graph=True)
        (wanted,) = torch.autograd.grad(
            expected.square().sum(), host[0 if first is a else 1], create_graph=True, retain_graph=True
        )
        assert torch.allclose(given.detach().cpu(), wanted.detach(), atol=1e-5)
        (given,) = torch.autograd.grad(given.square().sum(), first, retain_graph=True)
        (wanted,) = torch.autograd.grad(wanted.square().sum(), host[0 if first is a else 1], retain_graph=True)
        assert torch.allclose(given.cpu(), wanted, atol=1e-4)


def test_one_argument_that_needs_a_gradient_is_enough():
    a, b = floats(3, 4), floats(3, 4, requires_grad=True)
    for found in (a * b, torch.cat((a, b)), torch.addmm(a[0, :3], a, b.t()), a.clone().add_(b)):
        assert found.requires_grad


def test_writes_count_versions():
    a, b = floats(3, 4), floats(3, 4)
    view = a[1]
    with torch.no_grad():
        before = a._version
        assert a.mul_(b) is a
        view.add_(1)
        torch._foreach_add_([a, b], 1.0)
        assert a._version == view._version == before + 3
        assert b._version == 1
    c = floats(3, 4, requires_grad=True)
    product = c * a  # keeps a for c's gradient
    with torch.no_grad():
        a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_writes_that_autograd_refuses():
    a = floats(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        a.mul_(2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad|a view of a leaf"):
        a[0].add_(1)
    with torch.inference_mode():
        frozen = floats(3, 4).detach() * 2
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        frozen.add_(floats(3, 4))


def test_forward_gradients_without_recording():
    a, tangent = floats(3, 4), floats(3, 4) + 2
    with torch.no_grad(), forward.dual_level():
        dual = forward.make_dual(a, tangent)
        for function, derivative in ((lambda x: x * 3, 3 * tangent), (lambda x: x.exp(), a.exp() * tangent)):
            found = forward.unpack_dual(function(dual)).tangent
            assert torch.allclose(found.cpu(), derivative.cpu())
        both = forward.unpack_dual(torch.cat((a, dual))).tangent
        assert torch.allclose(both.cpu(), torch.cat((torch.zeros_like(a), tangent)).cpu())
        view = forward.unpack_dual(dual[1] * 2).tangent
        assert torch.allclose(view.cpu(), 2 * tangent[1].cpu())


def test_transforms_and_modes_see_the_calls():
    a, b = floats(3, 4), floats(3, 4)
    with torch.no_grad():
        found = torch.vmap(lambda x, y: (x * y).sum(0) + torch.cat((x, y))[:1])(a, b)
        assert torch.allclose(found.cpu(), ((a * b).sum(1, keepdim=True) + a[:, :1]).cpu())
        gradient = torch.func.grad(lambda x: (x * b).exp().sum())(a)
        assert torch.allclose(gradient.cpu(), (b * (a * b).exp()).cpu())

        seen = []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), options=None):
                seen.append(function.overloadpacket)
                return function(*arguments, **(options or {}))

        with Mode():
            (a * b).add_(1)
    assert seen == [torch.ops.aten.mul, torch.ops.aten.add_]
