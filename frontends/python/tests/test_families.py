"""Pools, windows, image samples and integer products of strided, empty and special inputs, beside torch or a loop."""

import headrace as hr
import numpy as np
import pytest

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


X = normal(2, 3, 7, 6)


def strided(x):
    """The same elements with gaps between them, behind an offset."""
    wide = np.zeros([2 * size + 1 for size in x.shape], x.dtype)
    places = tuple(slice(1, None, 2) for _ in x.shape)
    wide[places] = x
    return hr.asarray(wide)[places]


def turned(x):
    """The same elements in the order of other dims."""
    return hr.swapaxes(hr.asarray(np.ascontiguousarray(x.swapaxes(1, -1))), 1, -1)


LAYOUTS = pytest.mark.parametrize("laid_out", [hr.asarray, strided, turned])


def pool_by_loop(x, window, stride, padding, dilation, counts_padding, ceil):
    """avg_pool; a window that would begin behind the padding in front and the elements is left out."""
    sizes = []
    for size, w, step, pad, d in zip(x.shape[2:], window, stride, padding, dilation):
        rest = size + 2 * pad - (w - 1) * d - 1
        count = (-(-rest // step) if ceil else rest // step) + 1
        sizes.append(count - (ceil and (count - 1) * step >= size + pad))
    y = np.zeros((*x.shape[:2], *sizes))
    for place in np.ndindex(*sizes):
        total, count = 0, 0
        for k in np.ndindex(*window):
            at = [i * step - pad + j * d for i, step, pad, j, d in zip(place, stride, padding, k, dilation)]
            is_inside = all(0 <= i < size for i, size in zip(at, x.shape[2:]))
            is_padded = all(-pad <= i < size + pad for i, size, pad in zip(at, x.shape[2:], padding))
            total = total + x[:, :, at[0], at[1]] if is_inside else total
            count += is_padded if counts_padding else is_inside
        y[:, :, place[0], place[1]] = total / count if count else np.nan
    return y


@LAYOUTS
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counts_padding", [False, True])
def test_avg_pool_with_dilation(laid_out, ceil, counts_padding):
    for dilation in ((1, 1), (2, 2), (2, 1), (3, 2)):
        for stride in ((1, 1), (2, 2), (2, 3)):
            for padding in ((0, 0), (1, 1)):
                y = hr.avg_pool(laid_out(X), (2, 3), stride, padding, counts_padding, dilation=dilation, ceil=ceil)
                expected = pool_by_loop(X.astype("d"), (2, 3), stride, padding, dilation, counts_padding, ceil)
                np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-5, atol=1e-6)


@LAYOUTS
def test_conv_integer(laid_out):
    for x_dtype, w_dtype in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
        low = {"uint8": 0, "int8": -100}
        x = RNG.integers(low[x_dtype], 100, (2, 4, 7, 6)).astype(x_dtype)
        w = RNG.integers(low[w_dtype], 100, (6, 2, 3, 2)).astype(w_dtype)
        zeros = np.arange(6).astype(w_dtype)
        y = hr.conv_integer(laid_out(x), laid_out(w), np.array(7, x_dtype), zeros, stride=[2, 1], before=[1, 0],
                            after=[0, 1], dilation=[1, 1], groups=2)  # fmt: skip
        wide = np.pad(x.astype("i8") - 7, ((0, 0), (0, 0), (1, 0), (0, 1)))
        weight = w.astype("i8") - zeros.astype("i8")[:, None, None, None]
        expected = np.zeros((2, 6, 3, 6), "i8")
        for n, o, i, j in np.ndindex(*expected.shape):
            part = wide[n, 2 * (o // 3) : 2 * (o // 3) + 2, 2 * i : 2 * i + 3, j : j + 2]
            expected[n, o, i, j] = (part * weight[o]).sum()
        assert y.dtype == hr.int32
        np.testing.assert_array_equal(np.asarray(y), expected)


@LAYOUTS
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_and_dequantize_along_an_axis(laid_out, axis):
    q, scale = RNG.integers(0, 255, X.shape).astype("u1"), np.abs(normal(X.shape[axis])) + 0.1
    zero, dims = RNG.integers(0, 10, X.shape[axis]).astype("u1"), [1] * 4
    dims[axis] = -1
    y = hr.dequantize_linear(laid_out(q), scale, zero, axis=axis)
    expected = (q.astype("f") - zero.astype("f").reshape(dims)) * scale.reshape(dims)
    np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-6)
    again = hr.quantize_linear(laid_out(expected), scale, zero, axis=axis)
    np.testing.assert_array_equal(np.asarray(again), q)


def test_hamming_distance_of_each_width():
    for dtype in ("uint8", "int8", "uint16", "int32", "int64"):
        a, b = (RNG.integers(0, 120, (3, 5)).astype(dtype) for _ in range(2))
        expected = [sum(bin(int(u) ^ int(v)).count("1") for u, v in zip(r, s)) for r, s in zip(a, b)]
        assert np.asarray(hr.hamming_distance(strided(a), hr.asarray(b))).tolist() == expected
    with pytest.raises((TypeError, ValueError), match="bool, expected integers"):
        hr.hamming_distance(hr.asarray([True]), hr.asarray([True]))


@pytest.mark.parametrize("shape", [(0, 3, 7, 6), (2, 0, 7, 6)])
def test_empty_images(shape):
    x = hr.asarray(np.zeros(shape, "f"))
    assert hr.max_pool(x, (2, 2), (2, 2), (0, 0)).shape == (*shape[:2], 3, 3)
    assert hr.avg_pool(x, (2, 2), (2, 2), (0, 0)).shape == (*shape[:2], 3, 3)
    assert hr.lp_pool(x, (2, 2), (2, 2), (0, 0)).shape == (*shape[:2], 3, 3)
    columns = hr.im2col(x, (2, 2))
    assert columns.shape == (shape[0], 4 * shape[1], 30)
    assert hr.col2im(columns, (7, 6), (2, 2)).shape == shape
    assert hr.grid_sample(x, np.zeros((shape[0], 3, 4, 2), "f")).shape == (*shape[:2], 3, 4)
    assert hr.dequantize_linear(hr.quantize_linear(x, np.float32(0.1), dtype="uint8"), np.float32(0.1)).shape == shape


# ---- against torch, with gradients


def expect_torch(function, reference, *arrays, bound=1e-4):
    """Values and gradients of both, for arrays in memory of their own and strided ones."""
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
    y = reference(torch.nn.functional, *tensors)
    weight = normal(*y.shape)
    (y * torch.from_numpy(weight)).sum().backward()
    for laid_out in (hr.asarray, strided):
        given = [laid_out(x) for x in arrays]
        np.testing.assert_allclose(np.asarray(function(*given)), y.detach().numpy(), rtol=bound, atol=bound)
        total = hr.grad(lambda *given: hr.sum(function(*given) * hr.asarray(weight)), tuple(range(len(arrays))))
        found = total(*given)
        for gradient, tensor in zip(
            found if len(arrays) > 1 else [found[0] if isinstance(found, tuple) else found], tensors
        ):
            np.testing.assert_allclose(np.asarray(gradient), tensor.grad.numpy(), rtol=bound, atol=10 * bound)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode, torch_mode", [("linear", "bilinear"), ("nearest", "nearest"), ("cubic", "bicubic")])
def test_grid_sample(mode, torch_mode, padding, aligned):
    def sample(x, grid):
        return hr.grid_sample(x, grid, mode, padding, aligned)

    def reference(F, x, grid):
        return F.grid_sample(x, grid, torch_mode, padding, aligned)

    expect_torch(sample, reference, X, 1.2 * normal(2, 4, 5, 2), bound=1e-3)
    if mode != "cubic":
        expect_torch(sample, reference, normal(2, 2, 4, 5, 3), normal(2, 3, 2, 4, 3), bound=1e-3)


@pytest.mark.parametrize("ceil", [False, True])
def test_pools_and_windows(ceil):
    positive = np.abs(X) + 0.1
    for stride, pad in (((2, 2), (0, 0)), ((1, 2), (1, 1)), ((3, 1), (1, 0))):
        expect_torch(
            lambda x: hr.avg_pool(x, (3, 2), stride, pad, ceil=ceil),
            lambda F, x: F.avg_pool2d(x, (3, 2), stride, pad, ceil),
            X,
        )
        expect_torch(lambda x: hr.max_pool(x, (3, 2), stride, pad, dilation=(2, 1), ceil=ceil),
                     lambda F, x: F.max_pool2d(x, (3, 2), stride, pad, (2, 1), ceil), X)  # fmt: skip
    for p in (2, 3):
        expect_torch(
            lambda x: hr.lp_pool(x, (3, 2), (2, 2), (0, 0), p, ceil=ceil),
            lambda F, x: F.lp_pool2d(x, p, (3, 2), (2, 2), ceil),
            positive,
        )
    window = (3, 2), (2, 1), (1, 1), (1, 1), (1, 2)
    expect_torch(lambda x: hr.im2col(x, *window), lambda F, x: F.unfold(x, (3, 2), (1, 2), (1, 1), (2, 1)), X)
    columns = np.array(hr.im2col(hr.asarray(X), *window))
    expect_torch(
        lambda x: hr.col2im(x, (7, 6), *window), lambda F, x: F.fold(x, (7, 6), (3, 2), (1, 2), (1, 1), (2, 1)), columns
    )


def test_nan_and_infinities_stay_in_their_windows():
    torch = pytest.importorskip("torch")
    x = X.copy()
    x[0, 0, 2, 2], x[1, 1, 3, 3], x[0, 2, 1, 1] = np.nan, np.inf, -np.inf
    given, tensor = hr.asarray(x), torch.from_numpy(x)
    F = torch.nn.functional
    for y, expected in (
        (hr.max_pool(given, (3, 2), (2, 2), (1, 1)), F.max_pool2d(tensor, (3, 2), (2, 2), (1, 1))),
        (hr.avg_pool(given, (3, 2), (2, 2), (1, 1)), F.avg_pool2d(tensor, (3, 2), (2, 2), (1, 1))),
        (hr.lp_pool(given, (3, 2), (2, 2), (0, 0)), F.lp_pool2d(tensor.abs(), 2, (3, 2), (2, 2))),
        (hr.im2col(given, (2, 2)), F.unfold(tensor, (2, 2))),
    ):
        np.testing.assert_allclose(np.asarray(y), expected.numpy(), rtol=1e-5, atol=1e-6)
