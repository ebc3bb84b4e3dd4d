"""Integers with scales and zeros, and their products, against NumPy in wider dtypes."""

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(47)
BOUNDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
          "int32": (-(2**31), 2**31 - 1)}  # fmt: skip


def quantized(x, scale, zero, dtype, bounds=None):
    low, high = bounds or BOUNDS[dtype]
    return np.clip(np.round(x / scale) + zero, low, high).astype(dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("of", ["float32", "float64"])
def test_numbers_as_integers(dtype, of):
    x = rng.uniform(-300, 300, (3, 4)).astype(of)
    zero = np.array(3, dtype)
    y = hr.quantize_linear(hr.array(x), hr.array(np.array(0.5, of)), hr.array(zero))
    assert str(y.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(y), quantized(x, np.array(0.5, of), 3, dtype))
    plain = hr.quantize_linear(hr.array(x), hr.array(np.array(0.5, of)), dtype=dtype)
    np.testing.assert_array_equal(np.asarray(plain), quantized(x, np.array(0.5, of), 0, dtype))
    back = hr.dequantize_linear(y, hr.array(np.array(0.5, np.float32)), hr.array(zero))
    np.testing.assert_array_equal(np.asarray(back), ((np.asarray(y).astype(np.int64) - 3) * 0.5).astype(np.float32))


def test_ties_bounds_and_infinities():
    x = hr.array([0.5, 1.5, 2.5, -0.5, 1000, -1000, np.inf, -np.inf])
    assert hr.quantize_linear(x, hr.array(1.0), dtype=hr.int8).tolist() == [0, 2, 2, 0, 127, -128, 127, -128]
    assert hr.quantize_linear(x, hr.array(1.0), dtype=hr.int8, bits=4).tolist() == [0, 2, 2, 0, 7, -8, 7, -8]
    assert hr.quantize_linear(x, hr.array(1.0), bits=2).tolist() == [0, 2, 2, 0, 3, 0, 3, 0]
    big = hr.quantize_linear(hr.array([3e9, -3e9]), hr.array(1.0), dtype=hr.int32)
    assert big.tolist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scales_along_an_axis(axis):
    x = rng.uniform(-30, 30, (3, 4, 5)).astype(np.float32)
    n = x.shape[axis]
    scale, zero = rng.uniform(0.1, 1, n).astype(np.float32), rng.integers(0, 9, n).astype(np.uint8)
    shape = [1] * 3
    shape[axis] = n
    y = hr.quantize_linear(hr.array(x), hr.array(scale), hr.array(zero), axis=axis)
    np.testing.assert_array_equal(np.asarray(y), quantized(x, scale.reshape(shape), zero.reshape(shape), "uint8"))
    back = hr.dequantize_linear(y, hr.array(scale), hr.array(zero), axis=axis)
    expected = (np.asarray(y).astype(np.int32) - zero.reshape(shape)) * scale.reshape(shape)
    np.testing.assert_allclose(np.asarray(back), expected, 1e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("block", [2, 3])
def test_scales_of_blocks(axis, block):
    x = rng.uniform(-30, 30, (5, 7)).astype(np.float32)
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // block)
    scale, zero = rng.uniform(0.1, 1, shape).astype(np.float32), rng.integers(-5, 9, shape).astype(np.int8)
    wide = [np.take(a.repeat(block, axis), range(x.shape[axis]), axis) for a in (scale, zero.astype(int))]
    y = hr.quantize_linear(hr.array(x), hr.array(scale), hr.array(zero), axis, block)
    np.testing.assert_array_equal(np.asarray(y), quantized(x, *wide, "int8"))
    back = hr.dequantize_linear(y, hr.array(scale), hr.array(zero), axis, block)
    np.testing.assert_allclose(np.asarray(back), (np.asarray(y).astype(int) - wide[1]) * wide[0], 1e-6)
    with pytest.raises(ValueError, match="scale or zero"):
        hr.quantize_linear(hr.array(x), hr.array(scale[:-1, :-1]), axis=axis, block=block)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_of_numbers(dtype):
    q = hr.array(rng.integers(0, 65536, 20).astype(np.uint16))
    scale = hr.array([0.25]).astype(dtype)
    y = hr.dequantize_linear(q, scale, hr.array([7], dtype=hr.uint16))
    assert str(y.dtype) == dtype
    expected = hr.array((np.asarray(q).astype(float) - 7) * 0.25).astype(dtype)
    np.testing.assert_array_equal(np.asarray(y.astype(hr.float64)), np.asarray(expected.astype(hr.float64)))
    assert hr.dequantize_linear(q, scale, dtype=hr.float32).dtype == hr.float32
    x = hr.array([1.0, 2, 3]).astype(dtype)
    assert hr.quantize_linear(x, scale).tolist() == [4, 8, 12]


def test_the_gradient_of_numbers():
    q = hr.array([[3, 200], [7, 9]], dtype=hr.uint8)
    difference(lambda s: (hr.dequantize_linear(q, s, axis=0) ** 2).sum(), np.array([0.5, 0.25]))
    assert hr.grad(lambda x: hr.dequantize_linear(hr.quantize_linear(x, hr.array(0.5)), hr.array(0.5)).sum())(
        hr.array([1.0, 2])).tolist() == [0, 0]


def test_bad_scales():
    x = hr.ones((2, 3))
    with pytest.raises(ValueError, match="expected up to the width"):
        hr.quantize_linear(x, hr.array(1.0), dtype=hr.float32)
    with pytest.raises(ValueError, match="scale or zero"):
        hr.quantize_linear(x, hr.ones(2))
    with pytest.raises(ValueError, match="integers of one dtype"):
        hr.dequantize_linear(hr.array([1]), hr.array(1.0), hr.array([1], dtype=hr.uint8))
    assert hr.quantize_linear(hr.zeros((0, 3)), hr.ones(3)).shape == (0, 3)


# ---- scales of the numbers


@pytest.mark.parametrize("ends", [(-3, 5), (1, 4), (-4, -1), (0, 0)])
def test_dynamic_scales(ends):
    x = rng.uniform(*ends, (3, 4)).astype(np.float32)
    y, scale, zero = hr.dynamic_quantize_linear(hr.array(x))
    low, high = min(x.min(), 0), max(x.max(), 0)
    expected = np.float32((high - low) / np.float32(255)) or np.float32(1)
    at = np.clip(np.round(-low / expected), 0, 255)
    assert scale.shape == zero.shape == () and str(y.dtype) == str(zero.dtype) == "uint8"
    np.testing.assert_allclose(scale.item(), expected, 1e-6)
    assert zero.item() == at
    np.testing.assert_array_equal(np.asarray(y), quantized(x, np.float32(scale.item()), at, "uint8"))
    with pytest.raises(ValueError, match="no elements"):
        hr.dynamic_quantize_linear(hr.zeros((0, 2)))


# ---- products


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
def test_products_of_integers(left, right):
    x = rng.integers(*BOUNDS[left], (2, 5, 70), endpoint=True).astype(left)
    y = rng.integers(*BOUNDS[right], (70, 9), endpoint=True).astype(right)
    product = hr.matmul_integer(hr.array(x), hr.array(y))
    assert str(product.dtype) == "int32"
    np.testing.assert_array_equal(np.asarray(product), x.astype(int) @ y.astype(int))
    for rows, columns in ((np.array(3, left), np.array(7, right)), (np.arange(5).astype(left), np.arange(9).astype(right)),
                          (np.array([3], left), np.array([7], right)),
                          (np.arange(10).reshape(2, 5, 1).astype(left), np.arange(9).reshape(1, 9).astype(right))):
        product = hr.matmul_integer(hr.array(x), hr.array(y), hr.array(rows), hr.array(columns))
        wide = rows.astype(int)[:, None] if rows.shape == (5,) else rows.astype(int)
        np.testing.assert_array_equal(np.asarray(product), (x - wide) @ (y - columns.astype(int)))


def convolved(x, w, stride, before, after, dilation, groups):
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after)])
    n, out, each = x.ndim - 2, w.shape[0], w.shape[0] // groups
    sizes = [(s - (k - 1) * d - 1) // t + 1 for s, k, d, t in zip(x.shape[2:], w.shape[2:], dilation, stride)]
    y = np.zeros((x.shape[0], out, *sizes), int)
    for o, at in np.ndindex(out, int(np.prod(sizes))):
        first = [i * t for i, t in zip(np.unravel_index(at, sizes), stride)]
        window = tuple(slice(f, f + (k - 1) * d + 1, d) for f, k, d in zip(first, w.shape[2:], dilation))
        channels = slice(o // each * w.shape[1], (o // each + 1) * w.shape[1])
        part = x[(slice(None), channels, *window)] * w[o]
        y[(slice(None), o, *np.unravel_index(at, sizes))] = part.sum(tuple(range(1, n + 2)))
    return y


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_integers(left, right, groups):
    x = rng.integers(*BOUNDS[left], (2, 4, 6, 5), endpoint=True).astype(left)
    w = rng.integers(*BOUNDS[right], (6, 4 // groups, 3, 2), endpoint=True).astype(right)
    windows = {"stride": [2, 1], "before": [1, 0], "after": [2, 1], "dilation": [1, 2], "groups": groups}
    y = hr.conv_integer(hr.array(x), hr.array(w), **windows)
    assert str(y.dtype) == "int32"
    np.testing.assert_array_equal(np.asarray(y), convolved(x.astype(int), w.astype(int), **windows))
    for zero in (np.array(5, right), np.arange(6).astype(right)):
        y = hr.conv_integer(hr.array(x), hr.array(w), hr.array(np.array(4, left)), hr.array(zero), **windows)
        wide = zero.astype(int).reshape(-1, 1, 1, 1)
        np.testing.assert_array_equal(np.asarray(y), convolved(x.astype(int) - 4, w - wide, **windows))


def test_bad_products():
    with pytest.raises(ValueError, match="expected i8 or u8"):
        hr.matmul_integer(hr.ones((2, 2)), hr.ones((2, 2)))
    x = hr.ones((2, 2), dtype=hr.int8)
    with pytest.raises(ValueError, match="i8 with a zero of u8"):
        hr.matmul_integer(x, x, hr.array(1, dtype=hr.uint8))
    assert hr.matmul_integer(hr.zeros((0, 2), dtype=hr.int8), x).shape == (0, 2)
