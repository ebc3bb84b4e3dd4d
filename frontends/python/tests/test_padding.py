"""hr.pad and its rows, and array_split, against NumPy: modes, widths, dtypes, strides, spaces, gradients, capture."""

import numpy as np
import pytest

import headrace as hr

rng = np.random.default_rng(3)
MODES = ("edge", "reflect", "symmetric", "wrap")
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


def sample(dtype, *shape):
    values = rng.integers(0, 2 if dtype == "bool" else 100, shape)
    return (values * (1 + 2j) if dtype.startswith("complex") else values).astype(dtype)


def same(actual, expected):
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


def spaced(x, widths, interior, value):
    """As XLA's Pad: spaces between neighbours, then both sides, of which negative ones crop."""
    for axis, ((before, after), space) in enumerate(zip(widths, interior, strict=True)):
        x = np.moveaxis(x, axis, 0)
        size = max(len(x) + (len(x) - 1) * space, 0)
        wide = np.full((size + max(before, 0) + max(after, 0), *x.shape[1:]), value, x.dtype)
        first = max(before, 0)
        wide[first : first + size : space + 1] = x
        x = np.moveaxis(wide[max(-before, 0) : len(wide) - max(-after, 0)], 0, axis)
    return x


# ---- borders


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(mode, dtype):
    x = sample(dtype, 3, 4)
    same(hr.pad(hr.array(x), ((1, 2), (0, 3)), mode), np.pad(x, ((1, 2), (0, 3)), mode))


@pytest.mark.parametrize("mode", MODES)
def test_widths(mode):
    for size in range(1, 6):
        x = sample("int64", size)
        for before in (0, 1, size - 1, size, size + 1, 3 * size + 2):
            for after in (0, 1, size - 1, size, 2 * size + 1, 11):
                same(hr.pad(hr.array(x), (before, after), mode), np.pad(x, (before, after), mode))


@pytest.mark.parametrize("mode", MODES)
def test_views(mode):
    x = sample("float32", 4, 5, 6)
    y = hr.array(x)
    for view in (lambda a: a.T, lambda a: a[::-1, ::2, 1:], lambda a: a[:, 1]):
        widths = [(d, 2 - d % 2) for d in range(view(x).ndim)]
        same(hr.pad(view(y), widths, mode), np.pad(view(x), widths, mode))
    spread = np.broadcast_to(x[0, 0], (3, 6))
    same(hr.pad(hr.broadcast_to(y[0, 0], (3, 6)), 2, mode), np.pad(spread, 2, mode))


def test_nan_and_infinity_are_copied():
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    for mode in MODES:
        same(hr.pad(hr.array(x), 3, mode), np.pad(x, 3, mode))
        assert np.array_equal(np.signbit(np.asarray(hr.pad(hr.array(x), 3, mode))), np.signbit(np.pad(x, 3, mode)))


def test_negative_sides_crop_first():
    x = sample("int32", 6)
    same(hr.pad_wrap(hr.array(x), [-1], [7]), np.pad(x[1:], (0, 7), "wrap"))
    same(hr.pad_reflect(hr.array(x), [4], [-3]), np.pad(x[:3], (4, 0), "reflect"))
    same(hr.pad_symmetric(hr.array(x), [-6], [0]), x[6:])


def test_empty_arrays():
    assert hr.pad(hr.ones((0, 3)), ((0, 0), (1, 1)), "wrap").shape == (0, 5)
    with pytest.raises(ValueError, match="axis 0 without elements"):
        hr.pad(hr.ones((0, 3)), 1, "wrap")
    with pytest.raises(ValueError, match="dim 1 without elements gets 0 before and 1 after"):
        hr.pad_symmetric(hr.ones((2, 0)), [0, 0], [0, 1])


@pytest.mark.parametrize("mode", MODES)
def test_gradients(mode):
    """The weights of each element's copies are added up; twice, by linearity."""
    x = rng.standard_normal((3, 4))
    weights = rng.standard_normal((3 + 5, 4 + 12))

    def loss(x):
        return (hr.pad(x, ((3, 2), (5, 7)), mode) * hr.array(weights)).sum()

    places = np.pad(np.arange(12).reshape(3, 4), ((3, 2), (5, 7)), mode)
    expected = np.bincount(places.ravel(), weights.ravel(), 12).reshape(3, 4)
    np.testing.assert_allclose(np.asarray(hr.grad(loss)(hr.array(x))), expected, 1e-12)
    second = hr.grad(lambda x: (hr.grad(lambda y: loss(y * y))(x)).sum())(hr.array(x))
    np.testing.assert_allclose(np.asarray(second), 2 * expected, 1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_captures(mode):
    x = sample("float32", 3, 4)
    compiled = hr.compile(lambda x: hr.pad(x, 6, mode) + 1)
    same(compiled(hr.array(x)), np.pad(x, 6, mode) + 1)
    same(compiled(hr.array(x + 1)), np.pad(x, 6, mode) + 2)


# ---- spaces


@pytest.mark.parametrize("dtype", DTYPES)
def test_interior(dtype):
    x = sample(dtype, 3, 4)
    for widths in ([(0, 0), (0, 0)], [(1, 2), (3, 0)], [(-2, 1), (0, -3)], [(-5, 4), (2, -9)]):
        for interior in ([0, 0], [1, 0], [2, 3]):
            size = [n + (n - 1) * k + sum(w) for n, k, w in zip(x.shape, interior, widths)]
            if min(size) >= 0:
                actual = hr.pad(hr.array(x), widths, interior=interior, constant_values=1)
                same(actual, spaced(x, widths, interior, 1))


def test_interior_of_views_and_without_elements():
    x = sample("float32", 3, 4)
    same(hr.pad(hr.array(x).T[::-1], 1, interior=2), spaced(x.T[::-1], [(1, 1)] * 2, [2, 2], 0))
    sides = [(1, 2), (0, 0)]
    same(hr.pad(hr.ones((0, 2)), sides, interior=3), spaced(np.ones((0, 2), "f4"), sides, [3, 3], 0))
    for two in (np.int64(2), np.array(2), hr.array(2), np.array([2, 2])):
        same(hr.pad(hr.array(x), 1, interior=two), spaced(x, [(1, 1)] * 2, [2, 2], 0))
    with pytest.raises(TypeError, match="float"):
        hr.pad(hr.ones(3), 1, interior=1.5)
    with pytest.raises(ValueError, match="-1 elements of interior in dim 0"):
        hr.pad(hr.ones(3), 1, interior=-1)
    with pytest.raises(ValueError, match="mode 'edge', expected one of constant"):
        hr.pad(hr.ones(3), 1, "edge", interior=1)


def test_gradient_of_interior():
    weights = rng.standard_normal(8)
    gradient = hr.grad(lambda x: (hr.pad(x, (-2, 3), interior=2) * hr.array(weights)).sum())(hr.array(np.ones(3)))
    np.testing.assert_allclose(np.asarray(gradient), [0, weights[1], weights[4]])


# ---- parts


def test_parts_are_numpys():
    x = sample("int64", 4, 10)
    y = hr.array(x)
    for sections in (1, 3, 4, 10, 13, [], [3], [2, 2, 7], [-3, 1, 99], [5, 2], list(range(1, 10)), [0] * 40):
        actual, expected = hr.array_split(y, sections, 1), np.array_split(x, sections, 1)
        assert isinstance(actual, list) and len(actual) == len(expected)
        for a, e in zip(actual, expected):
            same(a, e)
    for a, e in zip(hr.split(y.T, np.array([3, 4])), np.split(x.T, [3, 4]), strict=True):
        same(a, e)
    with pytest.raises(ValueError, match="0 parts"):
        hr.array_split(y, 0)
    with pytest.raises(ValueError, match="array_split: sections and indices, expected one of both"):
        hr._arrays.array_split(y, 0, 2, [1])
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        hr._arrays.array_split(y, 2, 2)
    with pytest.raises(ValueError, match=r"array_split\(\): 4294967296 integers, expected at most 2147483647"):
        hr._arrays.array_split(y, indices=range(2**32))
    with pytest.raises(TypeError, match="int"):
        hr._arrays.array_split(y, indices=3)


def test_gradient_of_parts():
    x = rng.standard_normal(7)
    gradient = hr.grad(lambda x: sum((k + 1) * p.sum() for k, p in enumerate(hr.split(x, [2, 3]))))(hr.array(x))
    np.testing.assert_allclose(np.asarray(gradient), [1, 1, 2, 3, 3, 3, 3])


@pytest.mark.parametrize("sides", [([2], [5]), ([9], [0]), ([0], [1]), ([-1], [6])])
def test_repetitions_that_alternate(sides):
    x = sample("float64", 4)
    (before,), (after,) = sides
    whole = x[max(-before, 0) :]
    places = np.arange(-max(before, 0), len(whole) + after)
    same(hr.pad_wrap(hr.array(x), *sides, alternate=True),
         whole[places % len(whole)] * (-1.0) ** (places // len(whole)))  # fmt: skip
    y = hr.pad_wrap(hr.array([[1, 2]]), [1, 0], [0, 3], alternate=True)
    assert y.tolist() == [[-1, -2, 1, 2, -1], [1, 2, -1, -2, 1]]
    gradient = hr.grad(lambda x: (hr.pad_wrap(x, *sides, alternate=True) ** 2).sum())(hr.array(x))
    same(gradient, hr.grad(lambda x: (hr.pad_wrap(x, *sides) ** 2).sum())(hr.array(x)))
