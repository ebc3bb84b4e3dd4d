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
@pytest.mark.parametrize(
    "scale, zero, low, high", [(0.1, 3, 0, 255), (0.037, -7, -128, 127), (0.5, 2**30, 0, 2**31 - 1)]
)
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


def learned(device, x, zero, axis, low, high, factor):
    x, zero = x.to(device).requires_grad_(), zero.to(device).requires_grad_()
    scale = (torch.arange(len(zero)) * 0.03 + 0.07).to(device).requires_grad_()
    if axis is None:
        out = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, low, high, factor)
    else:
        out = torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, axis, low, high, factor)
    out.backward(torch.linspace(-1, 2, x.numel()).reshape(x.shape).to(device))
    return [t.detach().cpu() for t in (out, x.grad, zero.grad, scale.grad)]


@pytest.mark.parametrize("factor", [1.0, 0.37])
@pytest.mark.parametrize(
    "axis, zeros", [(None, [2.5]), (None, [-3.5]), (None, [99.0]), (0, [0.5, -3.5, 2.49, -99.0]), (1, [1.5] * 6)]
)
def test_learned_fake_quantisation(axis, zeros, factor):
    x = torch.randn(4, 6, 3)
    x[0, 0] = torch.tensor([torch.nan, -torch.inf, 0.07])  # of +inf torch makes the smallest integer
    x = x.transpose(1, 2).contiguous().transpose(1, 2) if axis == 1 else x
    actual, expected = (learned(device, x, torch.tensor(zeros), axis, -8, 7, factor) for device in (DEVICE, "cpu"))
    assert_equal(actual[:2], expected[:2])
    for a, b in zip(actual[2:], expected[2:], strict=True):  # sums
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_learned_fake_quantisation_of_nothing_and_of_one_dim():
    out, x, zero, scale = learned(DEVICE, torch.ones(0, 3), torch.tensor([1.0]), None, -8, 7, 1.0)
    assert out.shape == x.shape == (0, 3) and (zero.tolist(), scale.tolist()) == ([0], [0])
    assert learned(DEVICE, torch.ones(2, 0), torch.zeros(2), 0, -8, 7, 1.0)[3].tolist() == [0, 0]
    assert learned(DEVICE, torch.ones(0, 3), torch.zeros(0), 0, -8, 7, 1.0)[3].tolist() == []
    x = torch.tensor([9.0, 0.1, -9.0])  # the first and the last are outside
    by_zero = learned(DEVICE, x, torch.zeros(3), 0, -8, 7, 1.0)[2]
    torch.testing.assert_close(by_zero, torch.tensor([1 * 0.07, 0, -2 * 0.13]))
    with pytest.raises(RuntimeError, match="include 0|quant_min` <= 0"):
        learned(DEVICE, x, torch.ones(1), None, 1, 7, 1.0)


@pytest.mark.parametrize("by_rows, is_symmetric", [(False, False), (False, True), (True, True)])
def test_observed_fake_quantisation(by_rows, is_symmetric):
    def steps(device):
        count = 0 if by_rows else 1
        state = [torch.full((count,), s * torch.inf, device=device) for s in (1, -1)] + [
            torch.ones(count, device=device), torch.zeros(count, dtype=torch.int32, device=device)
        ]  # fmt: skip
        results = []
        for seed, observes, quantises in ((0, 1, 1), (1, 1, 0), (2, 0, 1)):
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed)).to(device).requires_grad_()
            flags = [torch.tensor([flag], device=device) for flag in (observes, quantises)]
            out = torch.fused_moving_avg_obs_fake_quant(x, *flags, *state, 0.1, -128, 127, 0, by_rows, is_symmetric)
            out.square().sum().backward()
            results += [out.detach(), x.grad, *(t.clone() for t in state)]
        return [t.cpu() for t in results]

    assert_equal(steps(DEVICE), steps("cpu"))


def test_training_for_quantisation_equals_torchs():
    quantization = pytest.importorskip("torch.ao.quantization")

    def train(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
        model.qconfig = quantization.get_default_qat_qconfig("x86")
        model = quantization.prepare_qat(model.train()).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step)).to(device)
            model(x).square().sum().backward()
            optimizer.step()
        return {name: value.cpu() for name, value in model.state_dict().items()}

    actual, expected = train(DEVICE), train("cpu")
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.device_only
def test_tensors_of_quantised_dtypes_are_refused_with_the_alternatives():
    x = torch.randn(4)
    calls = (
        lambda: torch.quantize_per_tensor(x.to(DEVICE), 0.1, 3, torch.quint8),
        lambda: torch.quantize_per_channel(x.to(DEVICE), torch.ones(4), torch.zeros(4), 0, torch.qint8),
        lambda: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).to(DEVICE),
        lambda: torch.empty(3, dtype=torch.qint8, device=DEVICE),
    )
    for call in calls:
        with pytest.raises(NotImplementedError, match="fake quantisation"):
            call()
    actual = torch.choose_qparams_optimized(x.to(DEVICE), 4, 10, 0.1, 8)
    assert_equal(actual, torch.choose_qparams_optimized(x, 4, 10, 0.1, 8))


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
