"""Bands, blocks of planes as depth or batch, columns of windows, stencils, against loops and differences."""

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(37)


def sample(*shape):
    return rng.uniform(-1, 1, shape)


def close(actual, value):
    np.testing.assert_allclose(np.asarray(actual), value, 1e-12, 1e-12)


# ---- bands


@pytest.mark.parametrize("lower", [-1, 0, 1, 5])
@pytest.mark.parametrize("upper", [-1, 0, 2])
def test_bands(lower, upper):
    x = sample(2, 4, 5)
    expected = x.copy()
    for i, j in np.ndindex(4, 5):
        if (0 <= lower < i - j) or (0 <= upper < j - i):
            expected[:, i, j] = 0
    close(hr.band_part(hr.array(x), lower, upper), expected)
    whole = hr.band_part(hr.array([[True, True], [True, True]]), 0, 0)
    assert whole.tolist() == [[True, False], [False, True]]


def test_bands_of_others():
    x = hr.array([[1, np.nan], [np.inf, 2]])
    np.testing.assert_array_equal(np.asarray(hr.band_part(x, 0, 0)), [[1, 0], [0, 2]])
    assert hr.band_part(hr.zeros((0, 3)), 1, 1).shape == (0, 3)
    difference(lambda x: (hr.band_part(x, 1, 0) ** 2).sum(), sample(3, 4))
    with pytest.raises(ValueError, match="1 dims, expected at least 2"):
        hr.band_part(hr.ones(3), 1, 1)


# ---- blocks


def to_depth(x, blocks, axes, depth, order):
    """The definition: each element's place."""
    blocks = dict(zip(axes, blocks))
    shape, all_ = list(x.shape), int(np.prod(list(blocks.values())))
    for d, b in blocks.items():
        shape[d] //= b
    shape[depth] *= all_
    y = np.zeros(shape, x.dtype)
    for at in np.ndindex(*x.shape):
        place, number = list(at), 0
        for d in axes:
            number = number * blocks[d] + at[d] % blocks[d]
            place[d] = at[d] // blocks[d]
        place[depth] = number * x.shape[depth] + at[depth] if order == "dcr" else at[depth] * all_ + number
        y[tuple(place)] = x[at]
    return y


BLOCKS = {
    "planes": ((2, 3, 4, 6), (2, 3), (2, 3), 1),
    "last": ((2, 4, 6, 3), (2, 3), (1, 2), 3),
    "batch": ((3, 4, 6, 2), (2, 3), (1, 2), 0),
    "swapped": ((2, 4, 6), (3, 2), (2, 1), 0),
    "lines": ((2, 3, 6), (3,), (2,), 1),
    "spaces": ((2, 2, 4, 2, 6), (2, 1, 3), (2, 3, 4), 1),
}


@pytest.mark.parametrize("order", ["dcr", "crd"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_depth(name, order):
    shape, blocks, axes, depth = BLOCKS[name]
    x = np.arange(np.prod(shape)).reshape(shape)
    y = hr.space_to_depth(hr.array(x), blocks, axes, depth, order)
    np.testing.assert_array_equal(np.asarray(y), to_depth(x, blocks, axes, depth, order))
    np.testing.assert_array_equal(np.asarray(hr.depth_to_space(y, blocks, axes, depth, order)), x)
    negative = [a - x.ndim for a in axes]
    again = hr.space_to_depth(hr.array(x.T.copy()).T, blocks, negative, depth - x.ndim, order)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(y))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float64", "complex64"])
def test_dtypes_of_blocks(dtype):
    x = (np.arange(16) % 5).reshape(1, 1, 4, 4).astype(dtype)
    y = hr.space_to_depth(hr.array(x), [2, 2])
    assert str(y.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(y), to_depth(x, (2, 2), (2, 3), 1, "dcr"))


def test_blocks_of_nothing_and_bad_ones():
    assert hr.space_to_depth(hr.zeros((0, 1, 4, 4)), [2, 2]).shape == (0, 4, 2, 2)
    assert hr.depth_to_space(hr.zeros((1, 4, 0, 2)), [2, 2]).shape == (1, 1, 0, 4)
    for order in ("dcr", "crd"):
        difference(lambda x: (hr.space_to_depth(x, [2, 2], order=order) ** 3).sum(), sample(1, 2, 4, 2))
        difference(lambda x: (hr.depth_to_space(x, [2, 2], order=order) ** 3).sum(), sample(1, 8, 1, 2))
    x = hr.ones((1, 3, 4, 4))
    with pytest.raises(ValueError, match="dim 2 has size 4, expected a multiple of 3"):
        hr.space_to_depth(x, [3, 2])
    with pytest.raises(ValueError, match="dim 1 has size 3, expected a multiple of 4"):
        hr.depth_to_space(x, [2, 2])
    with pytest.raises(ValueError, match="axis 1 is given twice, or is the depth"):
        hr.space_to_depth(x, [2, 2], axes=[1, 2])
    with pytest.raises(ValueError, match="block 1 has size 0"):
        hr.space_to_depth(x, [2, 0])


# ---- columns


def counts(sizes, window, stride, before, after, dilation):
    return [(n + b + a - (w - 1) * d - 1) // s + 1 if n + b + a > (w - 1) * d else 0
            for n, w, s, b, a, d in zip(sizes, window, stride, before, after, dilation)]  # fmt: skip


def elements(sizes, window, stride, before, after, dilation):
    """(place in the window, number of the window, place in the plane) of all that are inside."""
    found = counts(sizes, window, stride, before, after, dilation)
    for k, inner in enumerate(np.ndindex(*window)):
        for number, at in enumerate(np.ndindex(*found)):
            place = tuple(i * s + j * d - b for i, s, j, d, b in zip(at, stride, inner, dilation, before))
            if all(0 <= p < n for p, n in zip(place, sizes)):
                yield k, number, place


def columns(x, *windows):
    found = counts(x.shape[2:], *windows)
    y = np.zeros((*x.shape[:2], int(np.prod(windows[0])), int(np.prod(found))), x.dtype)
    for k, number, place in elements(x.shape[2:], *windows):
        y[:, :, k, number] = x[(slice(None), slice(None), *place)]
    return y.reshape(x.shape[0], x.shape[1] * y.shape[2], y.shape[-1])


COLUMNS = {
    "line": ((7,), ((3,), (2,), (1,), (0,), (1,))),
    "plane": ((5, 4), ((2, 3), (1, 1), (0, 0), (0, 0), (1, 1))),
    "strides": ((5, 6), ((2, 2), (2, 1), (1, 0), (0, 2), (1, 2))),
    "space": ((3, 4, 3), ((2, 2, 1), (1, 2, 1), (0, 1, 0), (1, 1, 0), (1, 1, 1))),
    "too large": ((2, 2), ((3, 1), (1, 1), (0, 0), (0, 0), (1, 1))),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_and_their_sums(name):
    sizes, windows = COLUMNS[name]
    window, *others = windows
    x = sample(2, 3, *sizes)
    y = columns(x, *windows)
    close(hr.im2col(hr.array(x), window, *others), y)
    expected = np.zeros_like(x)
    values = sample(*y.shape)
    for k, number, place in elements(sizes, *windows):
        inside = values.reshape(2, 3, int(np.prod(window)), y.shape[-1])
        expected[(slice(None), slice(None), *place)] += inside[:, :, k, number]
    close(hr.col2im(hr.array(values), sizes, window, *others), expected)
    if y.size:
        difference(lambda x: (hr.im2col(x, window, *others) ** 2).sum(), x)
        difference(lambda v: (hr.col2im(v, sizes, window, *others) ** 2).sum(), values)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float32"])
def test_dtypes_of_columns(dtype):
    x = rng.integers(0, 5, (1, 2, 4, 4)).astype(dtype)
    y = hr.im2col(hr.array(x), [2, 2])
    assert str(y.dtype) == dtype and str(hr.col2im(y, [4, 4], [2, 2]).dtype) == dtype
    times = np.array([[sum(1 for i, j in np.ndindex(2, 2) if 0 <= r - i < 3 and 0 <= c - j < 3) for c in range(4)]
                      for r in range(4)])  # fmt: skip
    np.testing.assert_array_equal(np.asarray(hr.col2im(y, [4, 4], [2, 2])), (x * times).astype(dtype))


def test_bad_columns():
    with pytest.raises(ValueError, match="3 dims with a window of 2"):
        hr.im2col(hr.ones((1, 4, 4)), [2, 2])
    with pytest.raises(ValueError, match="expected a multiple of 4, and 9 windows"):
        hr.col2im(hr.ones((1, 8, 8)), [4, 4], [2, 2])


# ---- stencils

STENCILS = {
    "plain": ((5, 6), (2, 3), {}),
    "sides": ((5, 6), (3, 2), {"before": (1, 0), "after": (1, 2), "value": 0.5}),
    "strides": ((2, 5, 6), (2, 2), {"stride": (2, 1), "dilation": (1, 2)}),
    "four": ((3, 2, 3, 4), (2, 1, 2, 2), {"before": (0, 0, 1, 0)}),
}


def stencil(x, weights, mode, stride=None, before=None, after=None, dilation=None, value=0.0):
    n = weights.ndim
    stride, dilation = stride or (1,) * n, dilation or (1,) * n
    before, after = before or (0,) * n, after or (0,) * n
    lead = x.ndim - n
    x = np.pad(x, [(0, 0)] * lead + list(zip(before, after)), constant_values=value)
    found = counts(x.shape[lead:], weights.shape, stride, (0,) * n, (0,) * n, dilation)
    y = np.zeros((*x.shape[:lead], *found), np.int64 if mode.startswith("arg") else x.dtype)
    for at in np.ndindex(*y.shape):
        first = [i * s for i, s in zip(at[lead:], stride)]
        window = [x[(*at[:lead], *(f + k * d for f, k, d in zip(first, inner, dilation)))] * weights[inner]
                  for inner in np.ndindex(*weights.shape)]  # fmt: skip
        y[at] = getattr(np, mode)(window)
    return y


@pytest.mark.parametrize("mode", ["sum", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("name", STENCILS)
def test_stencils(name, mode):
    shape, of, options = STENCILS[name]
    x, weights = sample(*shape), sample(*of)
    close(hr.stencil(hr.array(x), hr.array(weights), mode=mode, **options), stencil(x, weights, mode, **options))
    if mode in ("sum", "max", "min"):
        difference(lambda x: (hr.stencil(x, hr.array(weights), mode=mode, **options) ** 2).sum(), x)
        difference(lambda w: (hr.stencil(hr.array(x), w, mode=mode, **options) ** 2).sum(), weights)


def test_stencils_of_others():
    assert hr.stencil(hr.ones((3, 3)), hr.ones((4, 1))).shape == (0, 3)
    y = hr.stencil(hr.array([1, 2, 3], dtype=hr.int32), hr.array([1, 10], dtype=hr.int32))
    assert y.tolist() == [21, 32] and str(y.dtype) == "int32"
    np.testing.assert_array_equal(np.asarray(hr.stencil(hr.array([1, np.nan, np.inf, 2]), hr.ones(1))),
                                  [1, np.nan, np.inf, 2])
    with pytest.raises(ValueError, match="2 dims of weights for 1 of x"):
        hr.stencil(hr.ones(3), hr.ones((1, 1)))
