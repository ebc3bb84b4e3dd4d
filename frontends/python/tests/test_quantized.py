"""Quantised matrices: their bits and values against numpy, products, gradients, errors."""

import re

import numpy as np
import pytest

import headrace as hr
from headrace import nn

rng = np.random.default_rng(11)
DTYPES = {"float32": hr.float32, "float16": hr.float16, "bfloat16": hr.bfloat16}
FLOATS = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


# ---- numpy's numbers


def rounded(x, dtype):
    """x in float32, with the bits that the dtype holds."""
    x = np.asarray(x, np.float32)
    if dtype == "bfloat16":
        words = x.view(np.uint32)
        words = (words + 0x7FFF + (words >> 16 & 1)) & 0xFFFF0000
        return np.where(np.isnan(x), x, words.astype(np.uint32).view(np.float32))
    return x.astype(dtype).astype(np.float32)


def packed(numbers, bits):
    """The numbers' bits one behind the other, from the lowest one on."""
    each = numbers[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8) & 1
    return np.packbits(each.reshape(*numbers.shape[:-1], -1), axis=-1, bitorder="little").view(np.uint32)


def unpacked(words, bits):
    each = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    each = each.reshape(*words.shape[:-1], -1, bits).astype(np.int64)
    return (each << np.arange(bits)).sum(-1)


def grouped(x, group):
    return x.reshape(*x.shape[:-1], x.shape[-1] // group, group)


def affine(w, group, bits, dtype):
    """words, scales, biases; each step in float32."""
    x, one = grouped(w, group), np.float32(1)
    high, low = x.max(-1), x.min(-1)
    is_low = abs(low) > abs(high)
    step = np.maximum((high - low) / (one * (2**bits - 1)), np.float32(1e-7))
    step = np.where(is_low, step, -step)
    edge = np.where(is_low, low, high)
    count = np.rint(edge / step)
    scale = np.where(count != 0, edge / np.where(count != 0, count, one), step)
    bias = np.where(count != 0, edge, 0 * one)
    numbers = np.clip(np.rint((x - bias[..., None]) / scale[..., None]), 0, 2**bits - 1)
    return packed(numbers.reshape(w.shape), bits), rounded(scale, dtype), rounded(bias, dtype)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def e4m3_numbers():
    sign, exponent, mantissa = np.arange(256) >> 7, np.arange(256) >> 3 & 15, np.arange(256) & 7
    size = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    size[[127, 255]] = np.nan
    return np.where(sign == 1, -size, size)


E4M3 = e4m3_numbers()


def e4m3(x):
    """The byte of the nearest number, ties to an even byte."""
    distance = abs(abs(np.float64(x))[..., None] - E4M3[:127])
    best = distance.min(-1, keepdims=True)
    is_best = distance == best
    is_even = np.arange(127) % 2 == 0
    choice = np.where((is_best & is_even).any(-1), (is_best & is_even).argmax(-1), is_best.argmax(-1))
    choice = np.where(np.isinf(x), 126, choice)
    return (choice | np.signbit(x) << 7).astype(np.uint8)


def e2m1(x):
    """The number of the nearest value, the smaller one between two."""
    return abs(np.float64(x)[..., None] - E2M1).argmin(-1)


def e8m0(x):
    """The exponent of the least power of two that is not below x, plus 127."""
    mantissa, exponent = np.frexp(np.float64(x))
    return np.where(x == 0, 127, exponent - (mantissa == 0.5) + 127).astype(np.uint8)


def scale_of(byte, mode):
    return np.float32(E4M3[byte]) if mode == "nvfp4" else (2.0 ** (byte.astype(np.float64) - 127)).astype(np.float32)


def floats(w, mode, dtype):
    """words, scales; quotients are rounded to the dtype."""
    group, bits = FLOATS[mode]
    x = grouped(w, group)
    largest = rounded(abs(x).max(-1) / np.float32(448 if mode == "mxfp8" else 6), dtype)
    scales = (e4m3 if mode == "nvfp4" else e8m0)(largest)
    with np.errstate(invalid="ignore", divide="ignore"):
        x = rounded(x / scale_of(scales, mode)[..., None], dtype)
    numbers = e4m3(x) if bits == 8 else e2m1(x)
    return packed(numbers.reshape(w.shape), bits), scales


def values(words, scales, mode):
    group, bits = FLOATS[mode]
    numbers = (E4M3 if bits == 8 else E2M1)[unpacked(words, bits)]
    return (grouped(numbers, group) * scale_of(scales, mode)[..., None]).reshape(numbers.shape)


def numpy_of(x):
    return np.asarray(hr.astype(x, hr.float32)) if x.dtype == hr.bfloat16 else np.asarray(x)


def matrices(dtype, *shape):
    """Matrices with rows of different sizes and signs, and a row of zeros."""
    w = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, (*shape[:-1], 1)) + rng.integers(-1, 2, (*shape[:-1], 1))
    w[..., -1, :] = 0
    return rounded(w, dtype)


def in_dtype(w, dtype):
    return hr.astype(hr.array(w), DTYPES[dtype])


# ---- quantize and dequantize


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_affine(group, bits, dtype):
    w = matrices(dtype, 2, 5, 256)
    words, scales, biases = hr.quantize(in_dtype(w, dtype), group, bits)
    expected = affine(w, group, bits, dtype)
    assert words.dtype == hr.uint32 and scales.dtype == biases.dtype == DTYPES[dtype]
    for x, y in zip((words, scales, biases), expected):
        np.testing.assert_array_equal(numpy_of(x), y)
    product = rounded(grouped(unpacked(expected[0], bits), group) * expected[1][..., None], dtype)
    y = rounded(product + expected[2][..., None], dtype).reshape(w.shape)
    result = hr.dequantize(words, scales, biases, group, bits)
    assert result.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(numpy_of(result), y)
    assert hr.dequantize(words, scales, biases, group, bits, dtype=hr.float16).dtype == hr.float16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", FLOATS)
def test_float_modes(mode, dtype):
    w = matrices(dtype, 2, 5, 256)
    words, scales = hr.quantize(in_dtype(w, dtype), mode=mode)
    expected = floats(w, mode, dtype)
    assert words.dtype == hr.uint32 and scales.dtype == hr.uint8
    np.testing.assert_array_equal(np.asarray(scales), expected[1])
    np.testing.assert_array_equal(np.asarray(words), expected[0])
    y = values(*expected, mode)
    np.testing.assert_array_equal(np.asarray(hr.dequantize(words, scales, mode=mode, dtype=hr.float32)), y)
    without = hr.dequantize(words, scales, mode=mode)
    assert without.dtype == hr.bfloat16
    np.testing.assert_array_equal(numpy_of(without), rounded(y, "bfloat16"))


@pytest.mark.parametrize("mode", FLOATS)
def test_all_numbers_and_scales(mode):
    group, bits = FLOATS[mode]
    words = packed(np.arange(256 * 256).reshape(256, 256) % 2**bits, bits)
    bytes_ = np.arange(256, dtype=np.uint8)[:, None]
    bytes_ = bytes_[bytes_ != 255][:, None] if mode != "nvfp4" else bytes_  # 255 is NaN
    scales = np.repeat(bytes_, 256 // group, axis=1)
    with np.errstate(over="ignore"):
        expected = values(words[: len(scales)], scales, mode).astype(np.float32)
    y = hr.dequantize(hr.array(words[: len(scales)]), hr.array(scales), mode=mode, dtype=hr.float32)
    np.testing.assert_array_equal(np.asarray(y), expected)


def test_scales_of_255_are_nan():
    y = hr.dequantize(hr.zeros((1, 4), dtype=hr.uint32), hr.full((1, 1), 255, dtype=hr.uint8), mode="mxfp4")
    assert np.isnan(numpy_of(y)).all()


@pytest.mark.parametrize("numbers", [[5.0, -5.0, 0.3, 1.25, 1.75, 2.5, 3.5, 0.25, 0.75, -0.25, 6.0]])
def test_ties_of_four_bits_are_the_smaller_number(numbers):
    w = np.zeros((1, 32), np.float32)
    w[0, : len(numbers)] = numbers
    words, scales = hr.quantize(hr.array(w), mode="mxfp4")
    assert scales.item() == 127
    y = np.asarray(hr.dequantize(words, scales, mode="mxfp4", dtype=hr.float32))[0, : len(numbers)]
    assert y.tolist() == [4, -4, 0.5, 1, 1.5, 2, 3, 0, 0.5, 0, 6]


@pytest.mark.parametrize("bits", [3, 4])
def test_views_are_read_by_their_strides(bits):
    w = matrices("float32", 128, 64)
    views = {
        "transposed": (lambda x: x.T, w.T),
        "strided": (lambda x: x[1::3], w[1::3]),
        "backwards": (lambda x: x[::-1, ::-1], w[::-1, ::-1]),
        "broadcast": (lambda x: hr.broadcast_to(x[:1], (4, 64)), np.broadcast_to(w[:1], (4, 64))),
    }
    for name, (view, expected) in views.items():
        result = hr.quantize(view(hr.array(w)), 64, bits)
        for x, y in zip(result, affine(np.ascontiguousarray(expected), 64, bits, "float32")):
            np.testing.assert_array_equal(np.asarray(x), y, err_msg=name)
    words, scales, biases = hr.quantize(hr.array(w), 64, bits)
    whole = np.asarray(hr.dequantize(words, scales, biases, 64, bits))
    part = hr.dequantize(words[::-2], scales[::-2], hr.broadcast_to(biases[0], (64, 1)), 64, bits)
    difference = np.asarray(biases)[0] - np.asarray(biases)[::-2]
    np.testing.assert_allclose(np.asarray(part), whole[::-2] + difference, rtol=1e-5, atol=1e-4)
    turned = hr.array(np.asfortranarray(np.asarray(words))).T.copy().T
    np.testing.assert_array_equal(np.asarray(hr.dequantize(turned, scales, biases, 64, bits)), whole)


def test_global_scale():
    w = matrices("float32", 4, 64)
    largest = hr.array(np.float32(abs(w).max()))
    words, scales = hr.quantize(hr.array(w), mode="nvfp4", global_scale=largest)
    y = hr.dequantize(words, scales, mode="nvfp4", global_scale=largest, dtype=hr.float32)
    sizes = abs(grouped(w, 16)).max(-1)
    error = abs(grouped(np.asarray(y) - w, 16)).max(-1)
    assert (error <= sizes / 6 * 1.2 + 1e-6).all() and error.max() > 0
    zeros = hr.quantize(hr.zeros((2, 16)), mode="nvfp4", global_scale=hr.array(np.float32(0)))
    y = hr.dequantize(*zeros, mode="nvfp4", global_scale=hr.array(np.float32(0)))
    assert numpy_of(y).tolist() == [[0] * 16] * 2


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (2, 0, 64)])
@pytest.mark.parametrize("mode", ["affine", *FLOATS])
def test_empty(mode, shape):
    result = hr.quantize(hr.zeros(shape), mode=mode)
    y = hr.dequantize(*result, mode=mode)
    assert y.shape == shape
    x = hr.ones((2, shape[-1]))
    product = hr.quantized_matmul(x, *result, mode=mode)
    assert product.shape == (*shape[:-2], 2, shape[-2])
    assert np.asarray(product).sum() == 0


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_affine_groups_without_a_finite_scale_are_nan(number):
    w = np.ones((2, 64), np.float32)
    w[0, 3] = number
    y = np.asarray(hr.dequantize(*hr.quantize(hr.array(w), 32, 4), 32, 4))
    assert np.isnan(y[0, :32]).all()
    np.testing.assert_array_equal(y[0, 32:], 1)
    np.testing.assert_array_equal(y[1], 1)


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
def test_float_groups_with_nan_are_nan(mode):
    w = np.ones((1, 64), np.float32)
    w[0, 3] = np.nan
    y = np.asarray(hr.dequantize(*hr.quantize(hr.array(w), mode=mode), mode=mode, dtype=hr.float32))
    assert np.isnan(y[0, :32]).all()
    np.testing.assert_array_equal(y[0, 32:], 1)


def test_fp8():
    x = np.concatenate([rng.standard_normal(500) * 10.0 ** rng.integers(-3, 3, 500), E4M3[:127], -E4M3[:127], [1e9, -np.inf]])
    x = np.append(x, (E4M3[:126] + E4M3[1:127]) / 2).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(hr.to_fp8(hr.array(x))), e4m3(np.clip(x, -448, 448)))
    every = hr.arange(256, dtype=hr.uint8)
    np.testing.assert_array_equal(np.asarray(hr.from_fp8(every, hr.float32)), E4M3.astype(np.float32))
    assert hr.from_fp8(every).dtype == hr.bfloat16
    assert np.isnan(hr.from_fp8(hr.to_fp8(hr.array([np.nan])), hr.float32).item())


# ---- products

MODES = [("affine", 64, 4), ("affine", 32, 3), ("affine", 128, 8), *[(mode, *each) for mode, each in FLOATS.items()]]


def quantized(w, mode, group, bits):
    options = {"mode": mode, "group_size": group, "bits": bits}
    result = hr.quantize(w, **options)
    return result, options, np.float64(np.asarray(hr.dequantize(*result, **options, dtype=hr.float32)))


def close(x, y, scale=1):
    np.testing.assert_allclose(np.float64(numpy_of(x)), y, rtol=1e-5 * scale, atol=2e-5 * scale * max(abs(y).max(), 1))


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("case", MODES)
@pytest.mark.parametrize("x_dims,w_dims", [((), ()), ((1,), ()), ((7,), ()), ((2, 5), ()), ((3, 1), (3,)), ((2, 1, 4), (3,)),
                                           ((4,), (2,)), ((40,), ())])
def test_products(x_dims, w_dims, case, transpose):
    w = rng.standard_normal((*w_dims, 24, 128) if transpose else (*w_dims, 24, 128)).astype(np.float32)
    x = rng.standard_normal((*x_dims, 128 if transpose else 24)).astype(np.float32)
    result, options, dense = quantized(hr.array(w), *case)
    y = hr.quantized_matmul(hr.array(x), *result, transpose=transpose, **options)
    expected = np.float64(x) @ (dense.swapaxes(-1, -2) if transpose else dense)
    assert y.shape == expected.shape and y.dtype == hr.float32
    close(y, expected)


@pytest.mark.parametrize("case", MODES)
@pytest.mark.parametrize("dtype,tolerance", [("float16", 1e3), ("bfloat16", 1e4)])
def test_products_of_halves(dtype, tolerance, case):
    w = in_dtype(rng.standard_normal((24, 256)), dtype)
    x = in_dtype(rng.standard_normal((5, 256)), dtype)
    result, options, dense = quantized(w, *case)
    y = hr.quantized_matmul(x, *result, **options)
    assert y.dtype == DTYPES[dtype]
    close(y, np.float64(numpy_of(x)) @ dense.T, tolerance / 4)


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("case", MODES)
def test_products_of_infinities(case, transpose):
    w = rng.standard_normal((64, 128)).astype(np.float32)
    result, options, dense = quantized(hr.array(w), *case)
    dense = dense.T if transpose else dense
    x = rng.standard_normal((6, len(dense))).astype(np.float32)
    x[1, 3], x[2, 5], x[3, [1, 60]], x[4, 7], x[5, [0, 33]] = np.inf, -np.inf, np.inf, np.nan, [np.inf, np.nan]
    y = np.asarray(hr.quantized_matmul(hr.array(x), *result, transpose=transpose, **options))
    with np.errstate(invalid="ignore"):
        expected = np.float64(x) @ dense
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    np.testing.assert_array_equal(y[np.isinf(expected)], expected[np.isinf(expected)])
    close(hr.array(y[0]), expected[0])


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
@pytest.mark.parametrize("rows", [3, 100])
def test_products_of_halves_with_scales_beyond_them(rows, mode):
    w = rng.standard_normal((8, 64)) * 2.0 ** np.array([-23, -21, -18, -10, 0, 5, 9, 12])[:, None]
    result = hr.quantize(hr.array(w.astype(np.float32)), mode=mode)
    dense = np.asarray(hr.dequantize(*result, mode=mode, dtype=hr.float16))
    wide = np.asarray(hr.dequantize(*result, mode=mode, dtype=hr.float32))
    np.testing.assert_array_equal(dense, wide.astype(np.float16))
    assert np.count_nonzero(dense[0]) > 32
    x = np.eye(rows, 64, dtype=np.float16)
    y = np.asarray(hr.quantized_matmul(hr.array(x), *result, mode=mode))
    np.testing.assert_array_equal(y[: min(rows, 64)], dense.T[:rows])


def test_products_are_promoted():
    w = hr.quantize(in_dtype(rng.standard_normal((8, 64)), "float16"))
    assert hr.quantized_matmul(hr.ones((2, 64)), *w).dtype == hr.float32
    assert hr.quantized_matmul(hr.ones((2, 64), dtype=hr.bfloat16), *w).dtype == hr.float32
    assert hr.quantized_matmul(hr.ones((2, 64), dtype=hr.float16), *w).dtype == hr.float16


@pytest.mark.parametrize("case", MODES)
def test_products_of_views(case):
    w = rng.standard_normal((3, 40, 128)).astype(np.float32)
    x = rng.standard_normal((128, 6)).astype(np.float32)
    result, options, dense = quantized(hr.array(w), *case)
    part = [y[1, 5:30:2] for y in result]
    close(hr.quantized_matmul(hr.array(x).T, *part, **options), np.float64(x).T @ dense[1, 5:30:2].T)
    x = rng.standard_normal((2, 64)).astype(np.float32)[:, ::-1]
    w = rng.standard_normal((8, 64)).astype(np.float32)
    result, options, dense = quantized(hr.array(w), "affine", 32, 4)
    close(hr.quantized_matmul(hr.array(np.ascontiguousarray(x[:, ::-1]))[:, ::-1], *result, **options), x @ dense.T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits,group,inner", [(2, 32, 256), (2, 64, 128), (2, 128, 384), (4, 32, 64), (4, 64, 192), (4, 128, 9216),
                                              (8, 32, 96), (8, 128, 128), (4, 32, 96)])
def test_products_of_packed_numbers(bits, group, inner, dtype):
    """Rows and columns around the sizes of tiles; long rows; rows of words that are no whole vectors."""
    w = in_dtype(rng.standard_normal((33, inner)), dtype)
    result, options, dense = quantized(w, "affine", group, bits)
    for rows, columns in [(1, 33), (2, 1), (3, 16), (7, 17), (8, 2), (15, 33), (64, 3), (65, 5)]:
        x = in_dtype(rng.standard_normal((rows, inner)), dtype)
        part = [y[:columns] for y in result]
        y = hr.quantized_matmul(x, *part, **options)
        expected = np.float64(numpy_of(x)) @ dense[:columns].T
        assert y.dtype == DTYPES[dtype] and y.shape == expected.shape
        close(y, expected, {"float32": 2, "float16": 300, "bfloat16": 2500}[dtype])
    x = in_dtype(rng.standard_normal((2 * inner, 9)), dtype)
    strided = hr.quantized_matmul(x[::-2].T, *[y[::2] for y in result], **options)
    expected = np.float64(numpy_of(x))[::-2].T @ dense[::2].T
    close(strided, expected, {"float32": 2, "float16": 300, "bfloat16": 2500}[dtype])


def test_products_of_packed_numbers_keep_nan():
    w = hr.quantize(hr.array(rng.standard_normal((20, 64)).astype(np.float32)))
    x = np.ones((3, 64), np.float32)
    x[1, 5] = np.nan
    y = np.asarray(hr.quantized_matmul(hr.array(x), *w))
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


LEFT = [None, np.array([0, 3]), np.array([[3], [1]])]
RIGHT = [None, np.array([1, 1]), np.array([[0, 2, 1], [2, 2, 0]])]


def expected_gather(x, w, left, right):
    """x [4, ..], w [3, ..]."""
    left = np.arange(4) if left is None else left
    right = np.arange(3) if right is None else right
    try:
        left, right = np.broadcast_arrays(left, right)
    except ValueError:
        return None
    return x[left] @ w[right]


@pytest.mark.parametrize("left", range(3))
@pytest.mark.parametrize("right", range(3))
def test_gathered_products(left, right):
    left, right = LEFT[left], RIGHT[right]
    x, w = rng.standard_normal((4, 2, 64)).astype(np.float32), rng.standard_normal((3, 5, 64)).astype(np.float32)
    expected = expected_gather(np.float64(x), np.float64(w).swapaxes(-1, -2), left, right)
    indices = [i if i is None else hr.array(i) for i in (left, right)]
    if expected is None:
        with pytest.raises(ValueError, match="batch sizes differ"):
            hr.gather_mm(hr.array(x), hr.array(w).mT, *indices)
        return
    close(hr.gather_mm(hr.array(x), hr.array(w).mT, *indices), expected)
    for case in [("affine", 64, 4), ("affine", 32, 6), ("nvfp4", 16, 4)]:
        result, options, dense = quantized(hr.array(w), *case)
        biases = [] if len(result) == 3 else [None]
        y = hr.gather_qmm(hr.array(x), *result, *biases, *indices, **options)
        close(y, expected_gather(np.float64(x), dense.swapaxes(-1, -2), left, right))
        other = rng.standard_normal((4, 2, 5)).astype(np.float32)
        y = hr.gather_qmm(hr.array(other), *result, *biases, *indices, transpose=False, **options)
        close(y, expected_gather(np.float64(other), dense, left, right))


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_a_row_for_each_of_several_experts(bits):
    w = rng.standard_normal((5, 33, 128)).astype(np.float32)
    x = rng.standard_normal((7, 1, 1, 128)).astype(np.float32)
    experts = rng.integers(0, 5, (7, 2))
    result, options, dense = quantized(hr.array(w), "affine", 64, bits)
    y = hr.gather_qmm(hr.array(x), *result, rhs_indices=hr.array(experts), **options)
    expected = np.float64(x) @ dense[experts].swapaxes(-1, -2)
    assert y.shape == (7, 2, 1, 33)
    close(y, expected, 2)
    gradient = hr.grad(lambda x: hr.gather_qmm(x, *result, rhs_indices=hr.array(experts), **options).sum())(hr.array(x))
    close(gradient, dense[experts].sum((1, 2))[:, None, None], 2)
    matrices = hr.quantized_matmul(hr.array(x[:5, 0]), *result, **options)
    close(matrices, np.float64(x[:5, 0]) @ dense.swapaxes(-1, -2), 2)


def test_gathered_products_of_several_batch_dims():
    x, w = rng.standard_normal((2, 2, 3, 8)).astype(np.float32), rng.standard_normal((3, 1, 8, 5)).astype(np.float32)
    left, right = np.array([[3, 1], [0, 2], [1, 1]]), np.array([[2], [0], [1]])
    y = hr.gather_mm(hr.array(x), hr.array(w), hr.array(left), hr.array(right), sorted_indices=False)
    np.testing.assert_allclose(np.asarray(y), x.reshape(4, 3, 8)[left] @ w.reshape(3, 8, 5)[right], rtol=1e-5, atol=1e-5)
    with pytest.raises(IndexError):
        hr.eval(hr.gather_mm(hr.array(x), hr.array(w), hr.array([4]), None))


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("dims", [(), (1,), (2, 3)])
def test_products_of_two_quantized_factors(dims, mode):
    x = rng.standard_normal((*dims, 64)).astype(np.float32)
    w = rng.standard_normal((8, 64)).astype(np.float32)
    dense = [values(*floats(y.reshape(-1, 64), mode, "float32"), mode).reshape(y.shape) for y in (x, w)]
    packed_ = hr.quantize(hr.array(w), mode=mode)
    close(hr.qqmm(hr.array(x), hr.array(w), mode=mode), dense[0] @ dense[1].T)
    close(hr.qqmm(hr.array(x), *packed_, mode=mode), dense[0] @ dense[1].T)


def test_qqmm_with_global_scales():
    x, w = rng.standard_normal((4, 64)).astype(np.float32), rng.standard_normal((8, 64)).astype(np.float32)
    scales = [hr.max(hr.abs(hr.array(y))) for y in (x, w)]
    packs = [hr.quantize(hr.array(y), mode="nvfp4", global_scale=s) for y, s in zip((x, w), scales)]
    dense = [hr.dequantize(*p, mode="nvfp4", global_scale=s, dtype=hr.float32) for p, s in zip(packs, scales)]
    y = hr.qqmm(hr.array(x), *packs[1], global_scale_x=scales[0], global_scale_w=scales[1])
    close(y, np.float64(np.asarray(dense[0])) @ np.asarray(dense[1]).T)


# ---- gradients


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("rows", [1, 6])
def test_gradients(rows, transpose):
    words, scales, biases = hr.quantize(hr.array(rng.standard_normal((64, 64)).astype(np.float32)), 32, 4)
    x = hr.array(rng.standard_normal((rows, 64)).astype(np.float32))
    c = hr.array(rng.standard_normal((rows, 64)).astype(np.float32))

    def loss(x, scales, biases):
        return (hr.quantized_matmul(x, words, scales, biases, transpose, 32, 4) * c).sum()

    def dense(x, scales, biases):
        w = hr.array(unpacked(np.asarray(words), 4).astype(np.float32).reshape(64, 2, 32))
        w = (w * scales[..., None] + biases[..., None]).reshape(64, 64)
        return ((x @ (w.T if transpose else w)) * c).sum()

    for got, want in zip(hr.grad(loss, (0, 1, 2))(x, scales, biases), hr.grad(dense, (0, 1, 2))(x, scales, biases)):
        close(got, np.float64(np.asarray(want)))


@pytest.mark.parametrize("transpose", [True, False])
def test_gradients_of_batches_are_products(transpose):
    w = hr.quantize(hr.array(rng.standard_normal((128, 64)).astype(np.float32)))
    x, c = (hr.array(rng.standard_normal((2, 33, n)).astype(np.float32)) for n in ((64, 128) if transpose else (128, 64)))
    _, gradients = hr.vjp(lambda x: hr.quantized_matmul(x, *w, transpose), [x], [c])
    close(gradients[0], np.float64(np.asarray(hr.quantized_matmul(c, *w, not transpose))))


@pytest.mark.parametrize("case", MODES)
def test_compiled_products(case):
    result, options, dense = quantized(hr.array(rng.standard_normal((32, 128)).astype(np.float32)), *case)
    product = hr.compile(lambda x, w: hr.tanh(hr.quantized_matmul(x, *w, **options)))
    for rows in (1, 5, 1):
        x = rng.standard_normal((rows, 128)).astype(np.float32)
        close(product(hr.array(x), list(result)), np.tanh(x @ dense.T), 4)


def test_gradients_by_x_of_all_modes():
    for mode, group, bits in MODES:
        result, options, dense = quantized(hr.array(rng.standard_normal((32, 128)).astype(np.float32)), mode, group, bits)
        gradient = hr.grad(lambda x: hr.quantized_matmul(x, *result, **options).sum())(hr.ones((3, 128)))
        close(gradient, np.broadcast_to(dense.sum(0), (3, 128)))


# ---- layers


def model():
    return nn.Sequential(nn.Embedding(5, 64), nn.ReLU(), nn.Linear(64, 32, bias=False), nn.Linear(32, 32))


@pytest.mark.parametrize("case", MODES)
def test_quantized_linear(case):
    mode, group, bits = case
    layer = nn.Linear(128, 6)
    x = hr.array(rng.standard_normal((2, 3, 128)).astype(np.float32))
    quantized_layer = layer.to_quantized(group, bits, mode)
    result = hr.quantize(layer.weight, group, bits, mode)
    dense = hr.dequantize(*result, group_size=group, bits=bits, mode=mode, dtype=hr.float32)
    close(quantized_layer(x), np.float64(np.asarray(x @ dense.T + layer.bias)))
    assert isinstance(quantized_layer, nn.QuantizedLinear) and quantized_layer.trainable_parameters() == {}
    assert ("biases" in quantized_layer) == (mode == "affine")
    assert repr(quantized_layer) == (
        f"QuantizedLinear(input_dims=128, output_dims=6, bias=True, group_size={group}, bits={bits}, mode={mode})"
    )
    assert nn.QuantizedLinear(128, 4, False, group, bits, mode)(x).shape == (2, 3, 4)


def test_gradients_of_quantized_linear():
    layer = nn.Linear(64, 8).to_quantized()
    layer.unfreeze(keys=["scales", "biases", "bias"])
    x = hr.ones((3, 64))
    _, gradients = nn.value_and_grad(layer, lambda x: layer(x).sum())(x)
    assert sorted(gradients) == ["bias", "biases", "scales"]
    np.testing.assert_allclose(np.asarray(gradients["biases"]), np.full((8, 1), 3 * 64), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(gradients["bias"]), np.full(8, 3), rtol=1e-6)


@pytest.mark.parametrize("mode", ["affine", *FLOATS])
def test_quantized_embedding(mode):
    layer = nn.Embedding(7, 64)
    quantized_layer = layer.to_quantized(mode=mode)
    dense = hr.dequantize(*hr.quantize(layer.weight, mode=mode), mode=mode)
    at = hr.array([[2, 6, 0], [1, 1, 3]])
    np.testing.assert_array_equal(numpy_of(quantized_layer(at)), numpy_of(dense)[np.asarray(at)])
    np.testing.assert_array_equal(numpy_of(quantized_layer(hr.array(4))), numpy_of(dense)[4])
    x = hr.array(rng.standard_normal((2, 64)).astype(np.float32))
    close(quantized_layer.as_linear(x), np.float64(np.asarray(x)) @ numpy_of(dense).T, 1e3)
    assert repr(nn.QuantizedEmbedding(7, 64)) == "QuantizedEmbedding(7, 64, group_size=64, bits=4, mode=affine)"


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_qq_linear(mode):
    linear = nn.Linear(64, 32, bias=False)
    layer = linear.to_quantized(mode=mode, quantize_input=True)
    assert isinstance(layer, nn.QQLinear) and layer.weight.dtype == hr.float32
    x = hr.array(rng.standard_normal((5, 64)).astype(np.float32))
    y = layer(x)
    dense = [hr.dequantize(*hr.quantize(z, mode=mode), mode=mode, dtype=hr.float32) for z in (x, linear.weight)]
    close(y, np.float64(np.asarray(dense[0])) @ np.asarray(dense[1]).T)
    c = hr.array(rng.standard_normal((5, 32)).astype(np.float32))
    value, gradients = nn.value_and_grad(layer, lambda x: (layer(x) * c).sum())(x)
    close(gradients["weight"], np.float64(np.asarray(c)).T @ np.asarray(dense[0]))
    by_x = hr.grad(lambda x: (layer(x) * c).sum())(x)
    close(by_x, np.float64(np.asarray(c)) @ np.asarray(dense[1]))
    layer.eval()
    assert layer.weight.dtype == hr.uint32 and "input_dims=64, output_dims=32" in repr(layer)
    close(layer(x), np.float64(np.asarray(y)))
    close(hr.grad(lambda x: (layer(x) * c).sum())(x), np.float64(np.asarray(by_x)), 1e3)
    layer.train()
    assert layer.weight.dtype != hr.uint32 and "scales" not in layer


def test_models_are_quantized():
    m = model()
    nn.quantize(m, 32, 8)
    kinds = [type(layer).__name__ for layer in m.layers]
    assert kinds == ["QuantizedEmbedding", "ReLU", "QuantizedLinear", "QuantizedLinear"]
    assert m.layers[3].bits == 8 and m.layers[3].group_size == 32
    m = model()
    nn.quantize(m, class_predicate=lambda path, layer: path == "layers.3" and {"group_size": 32, "bits": 2})
    kinds = [type(layer).__name__ for layer in m.layers]
    assert kinds == ["Embedding", "ReLU", "Linear", "QuantizedLinear"] and m.layers[3].bits == 2
    m = model()
    nn.quantize(m, mode="mxfp8", quantize_input=True, class_predicate=lambda path, layer: path == "layers.2")
    assert type(m.layers[2]) is nn.QQLinear


def test_weights_of_quantized_models_in_files(tmp_path):
    first, second = model(), model()
    for m in (first, second):
        nn.quantize(m, 32)
    first.save_weights(tmp_path / "m.safetensors")
    second.load_weights(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(np.asarray(first(hr.array([1, 4]))), np.asarray(second(hr.array([1, 4]))))


LAYER_ERRORS = {
    "mode": (lambda: nn.QuantizedLinear(64, 4, mode="int4"), "mode is 'int4', expected one of affine, mxfp4"),
    "mode of inputs": (lambda: nn.QQLinear(64, 4, mode="mxfp4"), "mode is 'mxfp4', expected nvfp4 or mxfp8"),
    "embedding": (lambda: nn.Embedding(4, 64).to_quantized(quantize_input=True), "integers are not quantised"),
    "no method": (lambda: nn.quantize(model(), class_predicate=lambda *_: True), "layers.1 is a ReLU, which has no to_quantized"),
    "predicate": (lambda: nn.quantize(model(), class_predicate=lambda *_: 3), "class_predicate returned 3, expected a bool or a dict"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYER_ERRORS)
def test_errors_of_layers(name):
    call, message = LAYER_ERRORS[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_layers_with_a_bias_have_no_quantized_inputs():
    with pytest.raises(NotImplementedError, match="the Linear has a bias, expected none"):
        nn.Linear(64, 4).to_quantized(mode="mxfp8", quantize_input=True)


# ---- errors

W = hr.ones((4, 128))
Q = hr.quantize(W)
QF = hr.quantize(W, mode="mxfp8")
ERRORS = {
    "bits 7": (lambda: hr.quantize(W, bits=7), "quantize: bits is 7, expected 2, 3, 4, 5, 6 or 8"),
    "bits below 0": (lambda: hr.quantize(W, bits=-4), "bits is -1, expected"),
    "group": (lambda: hr.quantize(W, group_size=16), "quantize: group_size is 16, expected 32, 64 or 128"),
    "group of mode": (lambda: hr.quantize(W, 64, mode="mxfp4"), "group_size is 64, expected 32 in mode mxfp4"),
    "bits of mode": (lambda: hr.quantize(W, bits=4, mode="mxfp8"), "bits is 4, expected 8 in mode mxfp8"),
    "mode": (lambda: hr.quantize(W, mode="int4"), '"int4", expected one of affine, mxfp4, mxfp8, nvfp4'),
    "rows": (lambda: hr.quantize(hr.ones((4, 96))), "w has dims [4,96], expected 1 to 15, the last one a multiple of group_size 64"),
    "no dims": (lambda: hr.quantize(hr.array(1.0)), "w has dims [], expected 1 to 15"),
    "integers": (lambda: hr.quantize(hr.ones((4, 64), dtype=hr.int32)), "w has dtype i32, expected f16, bf16, f32 or f64"),
    "global scale": (lambda: hr.quantize(W, global_scale=hr.array(1.0)), "a global scale in mode affine, expected mode nvfp4"),
    "two global scales": (lambda: hr.quantize(W, mode="nvfp4", global_scale=hr.ones(2)), "the global scale is f32 [2], expected one f32"),
    "words": (lambda: hr.dequantize(W, *Q[1:]), "dequantize: w has dtype f32, expected u32"),
    "no biases": (lambda: hr.dequantize(*Q[:2]), "there are no biases, expected them in mode affine"),
    "biases": (lambda: hr.dequantize(*QF, Q[2], mode="mxfp8"), "biases in mode mxfp8, which has none"),
    "scales": (lambda: hr.dequantize(Q[0], Q[1][:, :1], Q[2]), "scales have dims [4,1], expected [4,2] for w [4,16], 4 bits and group_size 64"),
    "biases' dims": (lambda: hr.dequantize(Q[0], Q[1], Q[2][:2]), "biases have dims [2,2], expected [4,2]"),
    "scales' dtype": (lambda: hr.dequantize(*Q[:2], mode="mxfp4", group_size=32), "scales have dims [4,2], expected [4,4]"),
    "scales of bytes": (lambda: hr.dequantize(QF[0], hr.ones((4, 4)), mode="mxfp8"), "scales have dtype f32, expected u8 in mode mxfp8"),
    "integer scales": (lambda: hr.dequantize(Q[0], hr.ones((4, 2), dtype=hr.int32), Q[2]), "scales have dtype i32 and biases f32"),
    "words of a row": (lambda: hr.dequantize(hr.ones((4, 3), dtype=hr.uint32), Q[1], Q[2]), "w has dims [4,3], expected 1 to 15, the last one a multiple of 8"),
    "dtype": (lambda: hr.dequantize(*Q, dtype=hr.int32), "dtype is i32, expected f16, bf16, f32 or f64"),
    "inner": (lambda: hr.quantized_matmul(hr.ones((2, 64)), *Q), "x has dims [2,64], expected 128 as the last one for w [4,16] of 4 bits, transpose true"),
    "inner, not transposed": (lambda: hr.quantized_matmul(hr.ones((2, 128)), *Q, transpose=False), "expected 4 as the last one"),
    "batches": (lambda: hr.quantized_matmul(hr.ones((2, 1, 128)), *[hr.stack([q] * 3) for q in Q]), "batch sizes differ in dim 0: 2 != 3"),
    "integer x": (lambda: hr.quantized_matmul(hr.ones((2, 128), dtype=hr.int32), *QF, mode="mxfp8"), "x has dtype i32"),
    "a vector": (lambda: hr.quantized_matmul(hr.ones(128), *[q[0] for q in Q]), "x has dims [128] and w [16], expected at least 1 and 2"),
    "gathered vectors": (lambda: hr.gather_mm(hr.ones(3), hr.ones((3, 3))), "input 0 has 1 dims, expected at least 2"),
    "qqmm": (lambda: hr.qqmm(W, W, mode="affine"), "mode is affine, expected nvfp4 or mxfp8"),
    "one global scale": (lambda: hr.qqmm(W, W, global_scale_x=hr.array(1.0)), "a global scale of x alone, expected two or none"),
    "to_fp8": (lambda: hr.to_fp8(hr.ones(3, dtype=hr.int32)), "x has dtype i32"),
    "from_fp8": (lambda: hr.from_fp8(hr.ones(3)), "x has dtype f32, expected u8"),
    "from_fp8, dtype": (lambda: hr.from_fp8(hr.ones(3, dtype=hr.uint8), hr.int32), "dtype is i32"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
