"""Sorting and selection against torch's CPU device: every dtype, dims, layouts, ties, NaN, out= and nothing at all."""

import pytest
import torch
from support import DEVICE, assert_same

REALS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SORTABLE = [*REALS, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def values_of(shape, dtype, seed=0):
    """Values with ties; floats with NaN, infinities and both zeros."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-20, 20, shape, generator=generator).to(torch.float64)
    if dtype.is_floating_point and x.numel() > 8:
        special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.5], dtype=torch.float64)
        x = torch.where(torch.rand(shape, generator=generator) < 0.3, special[x.long() % 6], x)
    return (x.abs() if dtype in (torch.uint8, torch.bool) else x).to(dtype)


def both(function, *tensors):
    return function(*[t.to(DEVICE) for t in tensors]), function(*tensors)


def same(function, *tensors):
    actual, expected = both(function, *tensors)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_same(a, e, f"result {i}", rtol=0, atol=0)


@pytest.mark.parametrize("dtype", SORTABLE)
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 50), (2, 3, 130), (0,), (2, 0), (0, 3), (1000,)])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dtype, shape, descending):
    x = values_of(shape, dtype)
    for dim in range(-1, len(shape)):
        same(lambda x, dim=dim: torch.sort(x, dim=dim, descending=descending, stable=True), x)


def test_sort_of_layouts_and_numbers():
    x = values_of((6, 40, 5), torch.float32)
    same(lambda x: x.transpose(0, 1).sort(dim=0, stable=True), x)
    same(lambda x: x[1:, ::3].sort(dim=1, stable=True), x)
    same(lambda x: x[:, :1].expand(6, 40, 5).sort(dim=1, stable=True), x)
    same(lambda x: x.flip(1).sort(dim=1, stable=True), x)
    same(lambda x: torch.tensor(3.0, device=x.device).sort(), x)
    same(lambda x: (x.argsort(dim=1, stable=True), x.msort()), x)


def test_sort_into_given_tensors():
    x = values_of((4, 30), torch.float32)
    expected = torch.sort(x, stable=True)
    values, places = torch.empty(0, device=DEVICE), torch.empty(0, dtype=torch.int64, device=DEVICE)
    torch.sort(x.to(DEVICE), stable=True, out=(values, places))
    assert_same(values, expected.values)
    assert_same(places, expected.indices)
    wide = torch.zeros(4, 60, device=DEVICE)
    torch.sort(x.to(DEVICE), stable=True, out=(wide[:, ::2], places))
    assert_same(wide[:, ::2], expected.values)
    assert wide[:, 1::2].eq(0).all()
    itself = x.to(DEVICE)
    torch.sort(itself, stable=True, out=(itself, places))
    assert_same(itself, expected.values)


def test_sort_among_other_operations():
    x = values_of((64, 64), torch.float32)
    same(lambda x: ((x.t() * 2 + 1).sort(dim=0, stable=True).values * 3 - x, x.sort(dim=1, stable=True).values[:, 3:] + 1), x)


def test_gradient_of_sort():
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(1))
    grads = []
    for where in ("cpu", DEVICE):
        y = x.detach().to(where).requires_grad_()
        (y.sort(1).values * torch.arange(9.0, device=where)).sum().backward()
        grads.append(y.grad)
    assert_same(grads[1], grads[0])


def test_complex_numbers_have_no_order():
    with pytest.raises(RuntimeError):
        torch.zeros(3, dtype=torch.complex64, device=DEVICE).sort()


@pytest.mark.parametrize("dtype", [dtype for dtype in SORTABLE if dtype != torch.bool])
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype, largest):
    x = values_of((3, 70, 4), dtype)
    for k in (0, 1, 5, 50, 70):
        (values, places), (expected, _) = both(lambda x, k=k: torch.topk(x, k, dim=1, largest=largest), x)
        assert_same(values, expected, rtol=0, atol=0)
        assert_same(x.to(DEVICE).gather(1, places), expected, rtol=0, atol=0)
    with pytest.raises(RuntimeError):
        x.to(DEVICE).topk(71, dim=1)
