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
    same(
        lambda x: (
            (x.t() * 2 + 1).sort(dim=0, stable=True).values * 3 - x,
            x.sort(dim=1, stable=True).values[:, 3:] + 1,
        ),
        x,
    )


def test_gradient_of_sort():
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(1))
    grads = []
    for where in ("cpu", DEVICE):
        y = x.detach().to(where).requires_grad_()
        (y.sort(1).values * torch.arange(9.0, device=where)).sum().backward()
        grads.append(y.grad)
    assert_same(grads[1], grads[0])


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8])
def test_one_value_of_a_line(dtype):
    x = (
        torch.randperm(3 * 40 * 4, generator=torch.Generator().manual_seed(2))
        .reshape(3, 40, 4)
        .remainder(251)
        .to(dtype)
    )
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            actual, expected = both(lambda x, dim=dim, k=keepdim: x.kthvalue(2, dim, k), x)
            assert_same(actual.values, expected.values)
            actual, expected = both(lambda x, dim=dim, k=keepdim: x.median(dim, k), x)
            assert_same(actual.values, expected.values)
            at = actual.indices if keepdim else actual.indices.unsqueeze(dim)
            assert_same(
                x.to(DEVICE).gather(dim, at),
                x.gather(dim, expected.indices if keepdim else expected.indices.unsqueeze(dim)),
            )
            actual, expected = both(lambda x, dim=dim, k=keepdim: x.mode(dim, k), x.remainder(7))
            assert_same(actual.values, expected.values)
    same(lambda x: (x.median(), x.nanmedian()), x)
    same(lambda x: x[..., 0].cummax(1) + x[..., 0].cummin(0), x)
    with pytest.raises(RuntimeError):
        x.to(DEVICE).kthvalue(41, 1)


@pytest.mark.parametrize("dtype", SORTABLE)
def test_running_extremes(dtype):
    x = values_of((40, 33), dtype)
    for dim in (0, 1):
        same(lambda x, d=dim: (*x.cummax(d), *x.cummin(d)), x)
        if dtype.is_floating_point:  # of both zeros the last
            same(
                lambda x, d=dim: (x.cummax(d).values.signbit(), x.cummin(d).values.signbit()),
                x.nan_to_num(0).clamp(-0.0, 0.0),
            )


def test_medians_of_nan():
    x = torch.tensor([[1.0, float("nan"), 0.5, 7.0], [float("nan")] * 4, [4.0, 3.0, 2.0, 1.0]])
    same(lambda x: (*x.median(1), x.nanmedian(1).values, x.median(), x.nanmedian(), *x.cummax(1), *x.cummin(1)), x)
    same(lambda x: (torch.empty(0, device=x.device).median(), torch.tensor(3.0, device=x.device).median()), x)


@pytest.mark.parametrize("dtype", SORTABLE)
def test_unique(dtype):
    x = values_of((5, 24), dtype)
    x = torch.where(x.isnan(), torch.ones((), dtype=dtype), x) if dtype.is_floating_point else x
    options = {"return_inverse": True, "return_counts": True}
    same(lambda x: (*torch.unique(x, **options), torch.unique(x), *torch.unique_consecutive(x, **options)), x)
    y = x.to(torch.float32).clamp(-30, 30)
    same(lambda y: (*torch.unique(y % 2, dim=0, **options), *torch.unique(y, dim=1, **options)), y)
    same(lambda y: torch.unique((y % 2).reshape(5, 4, 6), dim=2, **options), y)
    same(lambda x: torch.unique_consecutive(x[:, :3].sort(dim=0).values, dim=0, **options), x.to(torch.int32))
    assert torch.unique(torch.full((3,), float("nan"), device=DEVICE)).numel() == 3
    same(lambda x: torch.unique(x[:0], **options), x)


def test_searchsorted():
    bounds = torch.tensor([[1.0, 3.0, 3.0, 5.0, 7.0], [0.0, 2.0, 4.0, 6.0, 8.0]])
    x = torch.tensor([[3.0, 6.0, 9.0, -1.0], [3.0, 6.0, 0.0, float("nan")]])
    for right in (False, True):
        same(
            lambda b, x, r=right: (
                torch.searchsorted(b, x, right=r),
                torch.bucketize(x, b[0], right=r),
                torch.searchsorted(b, x.t().contiguous().t(), right=r, out_int32=True),
                torch.bucketize(x.t(), b[1], right=r),
                torch.searchsorted(b[0], 4, right=r),
                torch.bucketize(3, b[0].to(torch.int64), right=r),
            ),
            bounds,
            x,
        )
    mixed = bounds.flip(1)
    order = mixed.argsort(dim=1, stable=True)
    same(lambda b, x, o: (torch.searchsorted(b, x, sorter=o),), mixed, x, order)
    same(lambda b, x: (torch.bucketize(x.long(), b[0].int()),), bounds, x.nan_to_num())


# ---- transforms


def close(function, *tensors, rtol=2e-5):
    actual, expected = both(function, *tensors)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        bound = rtol * (1e-8 if e.dtype in (torch.float64, torch.complex128) else 1)
        largest = e.abs().nan_to_num().max().item() if e.numel() else 0
        assert_same(a, e, f"result {i}", rtol=bound, atol=bound * largest)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms(double, norm):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 15, 34, generator=generator, dtype=torch.float64 if double else torch.float32)
    z = torch.complex(x, x.flip(0))
    fft = torch.fft
    for dim in (0, 1, 2):
        close(
            lambda x, z, d=dim: (
                fft.fft(x, dim=d, norm=norm),
                fft.ifft(z, dim=d, norm=norm),
                fft.rfft(x, dim=d, norm=norm),
                fft.irfft(z, dim=d, norm=norm),
                fft.hfft(z, dim=d, norm=norm),
                fft.ihfft(x, dim=d, norm=norm),
                fft.fft(z, n=37, dim=d, norm=norm),
                fft.irfft(z, n=11, dim=d, norm=norm),
            ),
            x,
            z,
        )
    close(
        lambda x, z: (
            fft.fft2(z, norm=norm),
            fft.ifftn(z, norm=norm),
            fft.rfftn(x, norm=norm),
            fft.irfftn(z, norm=norm),
            fft.rfft2(x, dim=(0, 2), norm=norm),
            fft.fftn(z.conj(), dim=(2, 0), norm=norm),
            fft.fftn(x.transpose(0, 2), norm=norm),
            fft.fft(z.permute(2, 0, 1), dim=1, norm=norm),
            fft.ifft(z[:, ::2], dim=0, norm=norm),
            fft.fft2(z[:1].expand(4, -1, -1), norm=norm),
        ),
        x,
        z,
    )


def test_transforms_into_given_tensors_and_of_nothing():
    x = torch.randn(4, 10)
    out = torch.empty(0, dtype=torch.complex64, device=DEVICE)
    torch.fft.rfft(x.to(DEVICE), out=out)
    assert_same(out, torch.fft.rfft(x), rtol=1e-4, atol=1e-4)
    assert torch.fft.rfft(x.to(DEVICE)[:0]).shape == (0, 6)
    with pytest.raises(RuntimeError):
        torch.fft.fft(x.to(DEVICE)[:, :0])


def test_spectrograms():
    x = torch.randn(2, 400, generator=torch.Generator().manual_seed(4))
    window = torch.hann_window(64)

    def spectrogram(x, window):
        spectrum = torch.stft(x, 64, hop_length=16, window=window, center=False, return_complex=True)
        return (spectrum,)

    close(spectrogram, x, window, rtol=1e-4)


def test_gradients_of_transforms():
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))

    def gradient(x):
        x = x.detach().requires_grad_()
        (
            torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * 2, n=9).square().sum()
            + torch.fft.fft(x).abs().square().sum()
        ).backward()
        return (x.grad,)

    close(gradient, x)
