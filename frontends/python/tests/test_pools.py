"""Pools of powers, over planes of any dims, places of largest elements, and unpooling, against loops and differences."""

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(41)


def sample(*shape):
    return rng.uniform(-1, 1, shape)


def close(actual, value, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(actual), value, tolerance, tolerance)


# ---- the definition: the windows of a plane, as lists of places inside of it, and the number of those in the padding


def number_of(n, w, s, before, after, d, ceil):
    room = n + before + after - (w - 1) * d - 1
    if room < 0:
        return 0
    count = room // s + 1
    return count + 1 if ceil and room % s and count * s < n + before else count


def windows(plane, window, stride, padding, after=None, dilation=None, ceil=False):
    after, dilation = after or padding, dilation or (1,) * len(window)
    dims = [number_of(*v, ceil) for v in zip(plane, window, stride, padding, after, dilation)]
    for at in np.ndindex(*dims):
        places, locals_, padded = [], [], 0
        for k, inner in enumerate(np.ndindex(*window)):
            place = tuple(i * s + j * d - b for i, s, j, d, b in zip(at, stride, inner, dilation, padding))
            if all(0 <= p < n for p, n in zip(place, plane)):
                places.append(place)
                locals_.append(k)
            padded += all(-b <= p < n + a for p, b, a, n in zip(place, padding, after, plane))
        yield at, dims, places, locals_, padded


def pooled(x, n, function, **options):
    lead, plane = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
    results = None
    for at, dims, places, locals_, padded in windows(plane, **options):
        results = np.zeros((*lead, *dims), object) if results is None else results
        for outer in np.ndindex(*lead):
            results[outer + at] = function(outer, x[outer], places, locals_, padded)
    return results


POOLS = {
    "plain": ((2, 3, 5, 6), 2, {"window": (2, 3), "stride": (1, 2), "padding": (0, 0)}),
    "sides": ((2, 5, 6), 2, {"window": (3, 3), "stride": (2, 2), "padding": (1, 0), "after": (0, 2)}),
    "ceil": ((1, 2, 6, 5), 2, {"window": (3, 2), "stride": (2, 2), "padding": (0, 1), "ceil": True}),
    "ceil in padding": ((1, 1, 2, 2), 2, {"window": (1, 1), "stride": (3, 3), "padding": (0, 0), "after": (2, 2),
                                          "ceil": True}),
    "dilation, ceil": ((1, 2, 8, 7), 2, {"window": (2, 3), "stride": (2, 3), "padding": (1, 2), "dilation": (2, 2),
                                         "ceil": True}),
    "dilation": ((2, 2, 7), 1, {"window": (3,), "stride": (1,), "padding": (1,), "dilation": (2,)}),
    "space": ((2, 1, 3, 4, 3), 3, {"window": (2, 2, 2), "stride": (1, 2, 1), "padding": (0, 1, 0)}),
    "four": ((1, 2, 3, 3, 2, 3), 4, {"window": (2, 1, 2, 2), "stride": (1, 1, 2, 1), "padding": (1, 0, 0, 1)}),
    "four, ceil": ((2, 3, 4, 3, 4), 4, {"window": (2, 2, 2, 3), "stride": (2, 2, 2, 2), "padding": (0, 1, 0, 0),
                                        "ceil": True}),
    "no others": ((4, 5), 2, {"window": (2, 2), "stride": (1, 2), "padding": (1, 0), "after": (0, 1)}),
    "many others": ((2, 1, 2, 4, 3), 2, {"window": (2, 2), "stride": (2, 1), "padding": (1, 1), "ceil": True}),
}  # fmt: skip


@pytest.mark.parametrize("power", [1, 2, 3, 1.5, np.inf])
@pytest.mark.parametrize("name", POOLS)
def test_pools_of_powers(name, power):
    shape, n, options = POOLS[name]
    x = sample(*shape)
    def norm(outer, plane, places, *_):
        sizes = [abs(plane[p]) for p in places]
        return max(sizes, default=0) if power == np.inf else sum(v**power for v in sizes) ** (1 / power)
    expected = pooled(x, n, norm, **options).astype(float)
    close(hr.lp_pool(hr.array(x), p=power, **options), expected)
    view = hr.array(np.ascontiguousarray(x.T))[..., ::-1].T
    close(hr.lp_pool(view[::-1], p=power, **options), expected)


@pytest.mark.parametrize("name", POOLS)
def test_largest_and_mean(name):
    shape, n, options = POOLS[name]
    x = sample(*shape)
    if name != "ceil in padding":
        close(hr.max_pool(hr.array(x), **options), pooled(x, n, lambda o, v, p, *_: max(v[q] for q in p), **options).astype(float))
        mean = pooled(x, n, lambda o, v, p, *_: sum(v[q] for q in p) / len(p), **options).astype(float)
        close(hr.avg_pool(hr.array(x), count_padding=False, **options), mean)
    mean = pooled(x, n, lambda o, v, p, k, padded: sum(v[q] for q in p) / padded, **options).astype(float)
    close(hr.avg_pool(hr.array(x), count_padding=True, **options), mean)


@pytest.mark.parametrize("kind", ["plane", "tensor", "column_major", "window"])
@pytest.mark.parametrize("name", [name for name in POOLS if name != "ceil in padding"])
def test_places_of_largest_elements(name, kind):
    shape, n, options = POOLS[name]
    x = sample(*shape)
    plane = shape[len(shape) - n :]
    def place(outer, v, places, locals_, _):
        best = max(range(len(places)), key=lambda i: v[places[i]])
        if kind == "window":
            return locals_[best]
        at = np.ravel_multi_index(places[best], plane, order="F" if kind == "column_major" else "C")
        lead = np.ravel_multi_index(outer, shape[: len(shape) - n]) if outer else 0
        return at + (lead * int(np.prod(plane)) if kind != "plane" else 0)
    values, found = hr.max_pool_places(hr.array(x), places=kind, **options)
    np.testing.assert_array_equal(np.asarray(found), pooled(x, n, place, **options).astype(int))
    close(values, pooled(x, n, lambda o, v, p, *_: max(v[q] for q in p), **options).astype(float))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["plain", "ceil", "dilation, ceil", "dilation", "space"])
def test_gradients_at_largest_elements(name, dtype):
    shape, n, options = POOLS[name]
    x = rng.integers(0, 4, shape)  # with equal elements
    values, places = hr.max_pool_places(hr.array(x).astype(dtype), **options)
    gradients, found = rng.integers(-4, 4, values.shape), np.zeros(shape)
    lead, plane = shape[: len(shape) - n], shape[len(shape) - n :]
    for at in np.ndindex(*values.shape):
        found[at[: len(lead)] + np.unravel_index(int(np.asarray(places)[at]), plane)] += gradients[at]
    rest = {name: value for name, value in options.items() if name != "ceil"}
    y = hr.max_pool_gradient(hr.array(gradients).astype(dtype), places, shape=plane, **rest)
    assert str(y.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(y.astype(hr.float64)), found)


def test_gradients_of_other_windows_are_refused():
    gradients, places = hr.zeros((1, 2, 2)), hr.zeros((1, 2, 2), dtype=hr.int64)
    with pytest.raises(ValueError, match="take 5 to 4, not 2"):
        hr.max_pool_gradient(gradients, places, shape=(5, 4), window=(2, 2), stride=(1, 2), padding=(0, 0))
    with pytest.raises(ValueError, match="4 integers of shape for 3 dims"):
        hr.max_pool_gradient(gradients, places, shape=(5, 4, 1, 1), window=(2,) * 4, stride=(1,) * 4, padding=(0,) * 4)


@pytest.mark.parametrize("name", ["plain", "sides", "four"])
def test_places_of_windows_without_a_largest_one(name):
    """Elements that are not larger than the padding's are found inside of x."""
    shape, n, options = POOLS[name]
    for x in (np.full(shape, -np.inf), np.full(shape, np.iinfo(np.int32).min, np.int32)):
        _, places = hr.max_pool_places(hr.array(x), **options)
        first = pooled(x, n, lambda o, v, p, *_: np.ravel_multi_index(p[0], shape[len(shape) - n :]), **options)
        np.testing.assert_array_equal(np.asarray(places), first.astype(int))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint8", "int32", "int64"])
def test_dtypes_of_pools(dtype):
    x = rng.integers(0, 9, (1, 2, 3, 3, 2, 2))
    y = hr.max_pool(hr.array(x).astype(dtype), [2, 2, 1, 2], [1] * 4, [0] * 4)
    assert str(y.dtype) == dtype
    options = {"window": (2, 2, 1, 2), "stride": (1,) * 4, "padding": (0,) * 4}
    np.testing.assert_array_equal(np.asarray(y.astype(hr.int64)),
                                  pooled(x, 4, lambda o, v, p, *_: max(v[q] for q in p), **options).astype(int))
    z = hr.lp_pool(hr.array(x).astype(dtype), **options)
    assert str(z.dtype) == (dtype if "float" in dtype else "float32")


@pytest.mark.parametrize("name", ["plain", "sides", "ceil", "four, ceil", "many others"])
def test_gradients_of_pools(name):
    shape, n, options = POOLS[name]
    x = sample(*shape)
    for power in (1, 2, 3):
        difference(lambda x: (hr.lp_pool(x, p=power, **options) ** 2).sum(), x)
    difference(lambda x: (hr.max_pool(x, **options) ** 2).sum(), x)
    difference(lambda x: (hr.avg_pool(x, **options) ** 2).sum(), x)
    difference(lambda x: (hr.max_pool_places(x, places="tensor", **options)[0] ** 2).sum(), x)


def test_pools_of_nothing_and_bad_ones():
    assert hr.lp_pool(hr.zeros((0, 2, 4)), [2], [1], [0]).shape == (0, 2, 3)
    assert hr.max_pool(hr.zeros((0, 2, 3, 3, 3, 3)), [2] * 4, [1] * 4, [0] * 4).shape == (0, 2, 2, 2, 2, 2)
    y = hr.lp_pool(hr.array([[1.0, np.nan, 2, np.inf]]), [1], [1], [0])
    np.testing.assert_array_equal(np.asarray(y), [[1, np.nan, 2, np.inf]])
    with pytest.raises(ValueError, match="p is 0"):
        hr.lp_pool(hr.ones((1, 4)), [2], [1], [0], p=0)
    with pytest.raises(ValueError, match="3 integers of window for 2 dims"):
        hr.lp_pool(hr.ones((1, 4)), [2, 2, 2], [1] * 3, [0] * 3)


# ---- the inverse


@pytest.mark.parametrize("kind", ["plane", "tensor"])
def test_unpooling(kind):
    x = sample(2, 3, 4, 6)
    values, places = hr.max_pool_places(hr.array(x), [2, 3], [2, 3], [0, 0], places=kind)
    y = np.asarray(hr.max_unpool(values, places, [4, 6], kind))
    largest = np.asarray(values).repeat(2, 2).repeat(3, 3) == x
    np.testing.assert_array_equal(y, np.where(largest, x, 0))
    difference(lambda v: (hr.max_unpool(v, places, [4, 6], kind) ** 2).sum(), np.asarray(values))


def test_unpooling_is_the_gradient_of_max_pool():
    x, g = sample(1, 2, 5, 5), sample(1, 2, 4, 4)
    _, places = hr.max_pool_places(hr.array(x), [2, 2], [1, 1], [0, 0])
    dx = hr.grad(lambda x: (hr.max_pool(x, [2, 2], [1, 1], [0, 0]) * hr.array(g)).sum())(hr.array(x))
    close(hr.max_unpool(hr.array(g), places, [5, 5], mode="add"), np.asarray(dx))


def test_unpooling_checks_its_indices():
    x = hr.ones((1, 2))
    with pytest.raises(IndexError):
        hr.eval(hr.max_unpool(x, hr.array([[0, 9]]), [4]))
    with pytest.raises(ValueError, match="must be the same"):
        hr.max_unpool(x, hr.array([[0]]), [4])
    y = hr.max_unpool(hr.array([[3, 4]], dtype=hr.uint8), hr.array([[2, 0]], dtype=hr.int32), [3])
    assert y.tolist() == [[4, 0, 3]] and str(y.dtype) == "uint8"


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_gradient_of_a_window_of_zeros_is_zero(power):
    x = hr.asarray(np.array([[[0, 0, 3, -4.0]]]))
    gradient = np.asarray(hr.grad(lambda x: hr.sum(hr.lp_pool(x, [2], [2], [0], p=power)))(x))
    total = (3.0**power + 4.0**power) ** (1 / power - 1)
    np.testing.assert_allclose(gradient, [[[0, 0, total * 3.0 ** (power - 1), -total * 4.0 ** (power - 1)]]])
