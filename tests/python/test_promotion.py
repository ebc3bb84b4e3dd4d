"""Types of results, out=, in-place and overlap rules."""

import itertools

import pytest
import torch

D = "headrace"
pytestmark = pytest.mark.device_only


def on_device(tensor):
    return tensor.to(D)


NUMBERS = [True, 2, 1.5, 1 + 1j]

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


def same(device_result, expected):
    assert device_result.dtype == expected.dtype and device_result.shape == expected.shape
    torch.testing.assert_close(device_result.cpu(), expected)


@pytest.mark.parametrize("op", [torch.add, torch.mul, torch.true_divide, torch.eq])
def test_promotion_of_tensors_and_numbers(op):
    for a, b in itertools.product(DTYPES, DTYPES):
        if {a, b} == {torch.float16, torch.complex64}:
            continue  # torch's half complex numbers have no dtype here
        x, y = torch.ones(3).to(a), torch.ones(3).to(b)
        same(op(x.to(D), y.to(D)), op(x, y))
        same(op(x.to(D), y[0].to(D)), op(x, y[0]))
        same(op(x.to(D), y[0]), op(x, y[0]))  # a host tensor without dims is a number
    for a, number in itertools.product(DTYPES, NUMBERS):
        if a == torch.float16 and isinstance(number, complex):
            continue
        x = torch.ones(3).to(a)
        same(op(x.to(D), number), op(x, number))
        same(op(x[0].to(D), number), op(x[0], number))


def test_broadcast_and_strides_of_results():
    x, y = torch.randn(2, 3, 4).transpose(0, 2), torch.randn(3, 1).expand(4, 3, 2)
    result = x.to(D) + y.to(D)
    assert result.stride() == (x + y).stride()
    same(result, x + y)
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.relu(image.to(D)).is_contiguous(memory_format=torch.channels_last)


def test_out_is_resized_and_cast():
    x = on_device(torch.tensor([1.0, 2.0]))
    out = torch.empty(0, device=D)
    assert torch.add(x, 1, out=out) is out and out.cpu().tolist() == [2, 3]
    wide = torch.empty(2, dtype=torch.float64, device=D)
    torch.exp(x, out=wide)
    torch.testing.assert_close(wide.cpu(), torch.exp(x.cpu()).double())
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.exp(x, out=torch.empty(2, dtype=torch.int64, device=D))
    with pytest.raises(RuntimeError, match="device"):
        torch.add(x, 1, out=torch.empty(2))
    product = torch.empty(0, device=D)
    torch.mm(torch.ones(2, 3, device=D), torch.ones(3, 4, device=D), out=product)
    assert product.shape == (2, 4) and product.sum().item() == 24


def test_out_may_overlap_inputs_of_products():
    x = on_device(torch.randn(3, 3))
    expected = x.cpu() @ x.cpu()
    torch.mm(x, x, out=x)
    torch.testing.assert_close(x.cpu(), expected)


def test_overlap_is_refused():
    x = torch.ones(4, device=D)
    with pytest.raises(RuntimeError, match="memory"):
        x.expand(2, 4).add_(1)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x[:3], 1, out=x[1:])
    spread = torch.tensor([1.0, 2.0], device=D).expand(2, 2)
    assert spread.copy_(spread[0:2]).cpu().tolist() == [[1, 2], [1, 2]]  # a copy of itself is none
    with pytest.raises(RuntimeError, match="memory"):
        spread.copy_(torch.zeros(2, 2, device=D))


def test_in_place_rules():
    x = torch.ones(3, dtype=torch.int64, device=D)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.add_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3, device=D).add_(torch.ones(2, 3, device=D))
    half = torch.ones(3, dtype=torch.float16, device=D)
    half.add_(torch.full((3,), 0.5, device=D))
    assert half.dtype == torch.float16 and half.cpu().tolist() == [1.5] * 3


def test_comparing_tensors_of_two_dtypes():
    x = torch.arange(3, device=D)
    assert torch.equal(x, x.double()) and not torch.equal(x, x + 0.5)
    assert on_device(torch.tensor([1j, complex("nan"), 1])).isnan().tolist() == [False, True, False]


def test_numbers_above_the_largest_int64():
    large = 2**63 + 5
    values = [0, 7, large - 1, large, 2**64 - 1]
    host = torch.tensor(values, dtype=torch.uint64)
    x = host.to(D)
    assert torch.full((2,), large, dtype=torch.uint64, device=D).cpu().tolist() == [large, large]
    assert torch.empty(2, dtype=torch.uint64, device=D).fill_(large).cpu().tolist() == [large, large]
    assert torch.full((2,), large, dtype=torch.float64, device=D).cpu().tolist() == [2.0**63, 2.0**63]
    assert (x < large).cpu().tolist() == [value < large for value in values]
    assert (x == large).cpu().tolist() == [value == large for value in values]
    assert (x + large).cpu().tolist() == [(value + large) % 2**64 for value in values]
    assert torch.clamp(x, min=large).cpu().tolist() == [max(value, large) for value in values]
