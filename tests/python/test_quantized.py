"""Products of 8-bit integers, fake quantisation and jagged rows: equal to torch's CPU device."""

import pytest
import torch
from support import DEVICE

aten = torch.ops.aten
SPECIAL = [float("inf"), -float("inf"), float("nan"), 1e30, -1e30, 0.25, 0.05, 0.15, -0.05]


def assert_equal(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, equal_nan=True)


def numbers(dtype):
    x = (torch.randn(6, 50) * 20).to(dtype)
    x[0, : len(SPECIAL)] = torch.tensor(SPECIAL).to(dtype)
    return x


@pytest.mark.parametrize("inner", [0, 1, 31, 1024, 1025, 3000])
def test_products_of_small_integers_are_exact(inner):
    a = torch.randint(-128, 128, (5, inner), dtype=torch.int8)
    b = torch.randint(-128, 128, (inner, 7), dtype=torch.int8)
    a[:1], b[:, :1] = -128, -128
    expected = a.int() @ b.int()
    assert_equal([torch._int_mm(a.to(DEVICE), b.to(DEVICE))], [expected])
    out = torch.empty(5, 7, dtype=torch.int32, device=DEVICE)
    torch._int_mm(a.to(DEVICE), b.to(DEVICE), out=out)
    assert_equal([out], [expected])


def test_products_of_small_integers_refuse_others():
    with pytest.raises(RuntimeError, match="int8"):
        torch._int_mm(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale, zero, low, high", [(0.1, 3, 0, 255), (0.037, -7, -128, 127), (0.5, 2**30, 0, 2**31 - 1)])
def test_fake_quantisation_of_a_tensor(dtype, scale, zero, low, high):
    x = numbers(dtype)
    cachemask = aten.fake_quantize_per_tensor_affine_cachemask
    assert_equal(cachemask(x.to(DEVICE), scale, zero, low, high), cachemask(x, scale, zero, low, high))
    by_tensors = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    for enabled in (0, 1):
        given = torch.tensor([scale]), torch.tensor([zero], dtype=torch.int32), torch.tensor([enabled])
        actual = by_tensors(x.to(DEVICE), *(t.to(DEVICE) for t in given), low, high)
        assert_equal(actual, by_tensors(x, *given, low, high))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.int32, torch.float32, torch.float16])
def test_fake_quantisation_of_channels(dtype, kind):
    x, scale, zero = numbers(dtype), torch.rand(50) * 0.5 + 0.01, (torch.rand(50) * 100).to(kind)
    cachemask = aten.fake_quantize_per_channel_affine_cachemask
    actual = cachemask(x.to(DEVICE), scale.to(DEVICE), zero.to(DEVICE), 1, 0, 255)
    assert_equal(actual, cachemask(x, scale, zero, 1, 0, 255))


def test_gradients_of_fake_quantisation():
    def gradients(device):
        x = torch.linspace(-2, 30, 40).reshape(4, 10).to(device).requires_grad_()
        scale, zero = torch.full((10,), 0.1, device=device), torch.zeros(10, dtype=torch.int32, device=device)
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255).square().sum().backward()
        torch.fake_quantize_per_channel_affine(x, scale, zero, 1, 0, 127).sum().backward()
        return [x.grad]

    assert_equal(gradients(DEVICE), gradients("cpu"))


@pytest.mark.parametrize("longest", [1, 3, 5])
@pytest.mark.parametrize("rest", [(3,), (2, 4)])
def test_jagged_rows_to_padded_and_back(longest, rest):
    values, offsets = torch.randn(7, *rest), torch.tensor([0, 2, 2, 5, 7])
    padded = torch.full((4, longest, *rest), -1.0)
    back = torch.zeros(7, *rest)
    for item in range(4):
        for place in range(min(longest, int(offsets[item + 1] - offsets[item]))):
            padded[item, place] = back[offsets[item] + place] = values[offsets[item] + place]
    moved = aten._jagged_to_padded_dense_forward(values.to(DEVICE), [offsets.to(DEVICE)], [longest], -1.0)
    assert_equal([moved], [padded])
    assert_equal([aten._padded_dense_to_jagged_forward(moved, [offsets.to(DEVICE)], 7)], [back])
