"""Nested tensors of the strided layout: equal to torch's CPU device."""

import copy

import pytest
import torch
from support import DEVICE

functional = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def parts(rows=(2, 4, 1), width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, width, generator=generator) for count in rows]


def nested(device, tensors, **names):
    return torch.nested.nested_tensor([tensor.to(device) for tensor in tensors], layout=torch.strided, **names)


def values_of(result):
    parts = result.unbind() if result.is_nested else [result]
    return [part.detach().cpu() for part in parts]


def assert_equal(actual, expected):
    for a, b in zip(values_of(actual), values_of(expected), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def module(device, made):
    torch.manual_seed(0)
    return made.to(device)


WITH_GRADIENTS = {
    "relu": lambda x, d: x.relu(),
    "gelu": lambda x, d: functional.gelu(x),
    "silu": lambda x, d: functional.silu(x),
    "numbers": lambda x, d: (x * 2 + x) / 3,
    "softmax": lambda x, d: torch.softmax(x, -1),
    "linear": lambda x, d: functional.linear(
        x, torch.linspace(-1, 1, 24, device=d).reshape(4, 6), torch.ones(4, device=d)
    ),
    "layer_norm": lambda x, d: functional.layer_norm(
        x, (6,), torch.linspace(1, 2, 6, device=d).requires_grad_(), torch.ones(6, device=d).requires_grad_()
    ),
    "bmm": lambda x, d: torch.bmm(x, x.transpose(1, 2)),
    "matmul": lambda x, d: x @ x.transpose(1, 2),
    "sum": lambda x, d: x.sum(-1, keepdim=True),
    "clone": lambda x, d: x.clone(),
    "chain": lambda x, d: torch.softmax(functional.gelu(x) * 0.5, -1) + x,
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_operations_and_gradients(name):
    def run(device):
        x = nested(device, parts(), requires_grad=True)
        out = WITH_GRADIENTS[name](x, device)
        torch.nested.to_padded_tensor(out, 0.5).square().sum().backward()
        return out, x.grad

    for actual, expected in zip(run(DEVICE), run("cpu"), strict=True):
        assert_equal(actual, expected)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.to(torch.float16),
        lambda x: torch.zeros_like(x),
        lambda x: x[1],
        lambda x: torch.cat([x, x]),
        lambda x: x.detach().fill_(3),
        lambda x: torch.nested.to_padded_tensor(x, -1.0),
        lambda x: torch.nested.to_padded_tensor(x, 0.0, (3, 5, 8)),
        lambda x: x.transpose(1, 2).contiguous(),
        lambda x: torch.nested.as_nested_tensor([x[0], x[1]]),
        lambda x: torch._nested_tensor_from_mask(
            torch.nested.to_padded_tensor(x, 0.0), torch.nested.to_padded_tensor(x * 0 + 1, 0.0)[..., 0] > 0
        ),
    ],
)  # fmt: skip
def test_other_operations(run):
    assert_equal(run(nested(DEVICE, parts())), run(nested("cpu", parts())))


def test_attention():
    def run(device):
        heads = (nested(device, parts((3, 5), 8, seed)).reshape(2, -1, 2, 4) for seed in range(3))
        q, k, v = (x.transpose(1, 2).contiguous() for x in heads)
        return functional.scaled_dot_product_attention(q, k, v)

    assert_equal(run(DEVICE), run("cpu"))


def test_modules_train():
    def step(device):
        stack = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
        layers = module(device, stack)
        optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
        for seed in range(2):
            out = layers(nested(device, parts((3, 1, 2), seed=seed)))
            optimizer.zero_grad()
            torch.nested.to_padded_tensor(out, 0.0).square().sum().backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in layers.parameters()]

    torch.testing.assert_close(step(DEVICE), step("cpu"), rtol=1e-4, atol=1e-5)


def test_copies_between_host_and_device():
    x = nested("cpu", parts())
    assert_equal(x.to(DEVICE).cpu(), x)
    assert "device=" in repr(x.to(DEVICE)) and repr(x.to(DEVICE)).count("tensor(") == 4
    empty = nested(DEVICE, [torch.ones(0, 3), torch.ones(2, 3)])
    assert [tuple(part.shape) for part in empty.relu().unbind()] == [(0, 3), (2, 3)]


@pytest.mark.device_only
def test_other_operators_name_the_alternatives():
    x = nested(DEVICE, parts())
    for call in (lambda: x.cumsum(1), lambda: copy.deepcopy(x)):
        with pytest.raises(NotImplementedError, match="torch.jagged"):
            call()
    with pytest.raises(RuntimeError, match="must have size 5"):
        functional.layer_norm(x, (5,))
