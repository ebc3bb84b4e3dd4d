"""Reading and writing at tuples of indices, and all modes of updates, against loops and differences."""

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(31)
MODES = "set add subtract multiply divide max min".split()
COMBINE = {
    "set": lambda a, b: b, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "max": max, "min": min,
}  # fmt: skip


def combined(mode, a, b):
    if mode == "divide":
        return a / b if np.asarray(a).dtype.kind == "f" else np.trunc(a / b)
    return COMBINE[mode](a, b)


def close(actual, value):
    np.testing.assert_allclose(np.asarray(actual), value, 1e-12, 1e-12)


# ---- the definitions


def tuples(x, indices, batch):
    """The place of each tuple's slice in x, and its place among the tuples."""
    for at in np.ndindex(indices.shape[:-1]):
        found = [i + (n if i < 0 else 0) for i, n in zip(indices[at].tolist(), x.shape[batch:])]
        yield at, (*at[:batch], *found)


def gathered(x, indices, batch=0):
    y = np.zeros(indices.shape[:-1] + x.shape[batch + indices.shape[-1] :], x.dtype)
    for at, place in tuples(x, indices, batch):
        y[at] = x[place]
    return y


def scattered(x, indices, values, batch=0, mode="set"):
    y = x.copy()
    values = np.broadcast_to(values, indices.shape[:-1] + x.shape[batch + indices.shape[-1] :])
    for at, place in tuples(x, indices, batch):
        for inner in np.ndindex(np.shape(y[place])):
            y[place + inner] = combined(mode, y[place + inner], values[at + inner])
    return y


# x, and the dims of indices; batch dims
CASES = {
    "elements": ((3, 4), (5, 2), 0),
    "slices": ((7, 4, 2), (2, 3, 1), 0),
    "batch": ((2, 6, 4), (2, 5, 1), 1),
    "batches": ((2, 3, 4, 5), (2, 3, 2, 1), 2),
    "one tuple": ((3, 4), (2,), 0),
    "no tuples": ((3, 4), (0, 1), 0),
    "all dims": ((2, 3, 2), (2, 4, 2), 1),
}


def case(name, is_distinct=False, low=None):
    shape, of, batch = CASES[name]
    x = rng.uniform(0.5, 2, shape)
    ends = [shape[batch + k] for k in range(of[-1])]
    indices = np.stack([rng.integers(-n if low is None else low, n, of[:-1]) for n in ends], -1)
    if is_distinct:
        each = int(np.prod(ends))
        flat = [rng.permutation(each)[: int(np.prod(of[batch:-1]))] for _ in range(int(np.prod(shape[:batch])))]
        indices = np.stack(np.unravel_index(np.array(flat).reshape(of[:-1]), ends), -1)
    values = rng.uniform(0.5, 2, of[:-1] + shape[batch + of[-1] :])
    return x, indices, values, batch


@pytest.mark.parametrize("name", CASES)
def test_gathered_tuples(name):
    x, indices, _, batch = case(name)
    for dtype in ("int64", "int32"):
        close(hr.gather_nd(hr.array(x), hr.array(indices.astype(dtype)), batch), gathered(x, indices, batch))
    view = hr.array(np.ascontiguousarray(x.T)).T
    close(hr.gather_nd(view, hr.array(indices), batch), gathered(x, indices, batch))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_scattered_tuples(name, mode):
    x, indices, values, batch = case(name, mode == "set")
    y = hr.scatter_nd(hr.array(x), hr.array(indices), hr.array(values), batch, mode)
    close(y, scattered(x, indices, values, batch, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32".split())
def test_dtypes_of_updates(mode, dtype):
    x, values = rng.integers(7, 14, (4, 3)), rng.integers(1, 4, (5, 3))
    indices = np.array([[0], [2], [3], [1], [1]])
    values[4] = values[3] if mode == "set" else values[4]
    given = [hr.array(v).astype(dtype) for v in (x, values)]
    y = hr.scatter_nd(given[0], hr.array(indices), given[1], mode=mode)
    assert str(y.dtype) == dtype
    if "float" in dtype and mode == "divide":
        np.testing.assert_allclose(np.asarray(y.astype(hr.float64)),
                                   scattered(x.astype(float), indices, values, 0, mode), 2e-2)
    else:
        np.testing.assert_array_equal(np.asarray(y.astype(hr.int64)), scattered(x, indices, values, 0, mode))


def test_values_are_broadcast_and_special_numbers_stay():
    x = np.arange(12.0).reshape(4, 3)
    close(hr.scatter_nd(hr.array(x), hr.array([[1], [3]]), hr.array(7.0)), scattered(x, np.array([[1], [3]]), 7.0))
    y = hr.scatter_nd(hr.array([1.0, np.nan, np.inf, 2]), hr.array([[0], [3]]), hr.array([np.inf, np.nan]), mode="add")
    np.testing.assert_array_equal(np.asarray(y), [np.inf, np.nan, np.inf, np.nan])
    assert hr.scatter_nd(hr.zeros((2, 0)), hr.array([[1]]), hr.zeros((1, 0))).shape == (2, 0)
    bools = hr.scatter_nd(hr.array([True, False, True]), hr.array([[0]]), hr.array([False]))
    assert bools.tolist() == [False, False, True]


def test_indices_out_of_range():
    x, far = hr.array([1.0, 2, 3]), hr.array([[1], [5], [-1], [-4]])
    values = hr.array([10.0, 20, 30, 40])
    for call in (lambda: hr.gather_nd(x, far), lambda: hr.scatter_nd(x, far, values)):
        with pytest.raises(IndexError):
            hr.eval(call())
    assert hr.gather_nd(x, far, mode="clip").tolist() == [2, 3, 1, 1]
    assert hr.gather_nd(x, far, mode="drop").tolist() == [2, 0, 0, 0]
    assert hr.scatter_nd(x, far, values, bounds="drop").tolist() == [1, 10, 3]
    y = hr.gather_nd(hr.ones((2, 3, 2)), hr.array([[[0, 1]], [[2, 0]]]), mode="drop")
    assert y.tolist() == [[[1, 1]], [[0, 0]]]
    two = hr.scatter_nd(hr.zeros((2, 3)), hr.array([[0, 3], [1, 2]]), hr.array([5.0, 6]), mode="add", bounds="drop")
    assert two.tolist() == [[0, 0, 0], [0, 0, 6]]  # [0, 3] is not [1, 0]
    for mode in MODES:
        y = hr.put_along_axis(x, hr.array([1, 5, -1]), hr.array([10.0, 20, 30]), 0, mode, "drop")
        np.testing.assert_allclose(y.tolist(), [1, combined(mode, 2.0, 10.0), 3], 1e-6)
    with pytest.raises(IndexError):
        hr.eval(hr.put_along_axis(x, hr.array([3]), hr.array([1.0]), 0))


def test_bad_tuples():
    x = hr.ones((2, 3))
    with pytest.raises(ValueError, match="expected a last dim of 1 to 2"):
        hr.gather_nd(x, hr.array([[0, 0, 0]]))
    with pytest.raises(ValueError, match="batch dim 0 of indices is 3, of x 2"):
        hr.scatter_nd(x, hr.zeros((3, 1), dtype=hr.int64), hr.zeros(3), 1)
    with pytest.raises(ValueError, match="expected integers"):
        hr.gather_nd(x, hr.ones((2, 1)))
    with pytest.raises(ValueError, match="set, add, multiply, max, min, subtract"):
        hr.scatter_nd(x, hr.array([[0]]), hr.ones(3), mode="mean")


# ---- modes of the others


@pytest.mark.parametrize("mode", MODES)
def test_other_updates_have_these_modes(mode):
    x, values = rng.uniform(1, 2, (3, 4)), rng.uniform(1, 2, (3, 2))
    at = np.array([[0, 3], [1, 2], [2, 0]])
    expected = x.copy()
    for i, j in np.ndindex(3, 2):
        expected[i, at[i, j]] = combined(mode, expected[i, at[i, j]], values[i, j])
    close(hr.put_along_axis(hr.array(x), hr.array(at), hr.array(values), 1, mode), expected)
    rows = np.repeat(np.arange(3), 2)
    put = [hr.array(x), hr.array(values.ravel()), hr.array(rows), hr.array(at.ravel())]
    close(hr.index_put(put, [0, 1], mode=mode), expected)
    expected = x.copy()
    for i, j in np.ndindex(3, 2):
        expected[i, 2 * j] = combined(mode, x[i, 2 * j], values[i, j])
    close(hr.slice_update(hr.array(x), hr.array(values), [0, 0], [3, 2], [1, 2], mode), expected)


# ---- gradients


@pytest.mark.parametrize("name", ["elements", "batch", "slices"])
def test_gradients_of_gathers(name):
    x, indices, _, batch = case(name)
    difference(lambda x: (hr.gather_nd(x, hr.array(indices), batch) ** 2).sum(), x)
    for mode in ("clip", "drop"):
        difference(lambda x: (hr.gather_nd(x, hr.array(indices * 2), batch, mode) ** 2).sum(), x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["elements", "batch", "slices"])
def test_gradients_of_scatters(name, mode):
    x, indices, values, batch = case(name, mode == "set", 0)
    for bounds in ("error", "drop"):
        def f(x, v):
            return (hr.scatter_nd(x, hr.array(indices), v, batch, mode, bounds) ** 2).sum()

        difference(lambda x: f(x, hr.array(values)), x)
        difference(lambda v: f(hr.array(x), v), values)


def test_products_of_divisors_may_be_large():
    cases = ("u1", 255, 20, 0), ("f2", 60000, 300, 60000 / 300 / 300), ("f4", 1e-30, 1e-25, 1e20)
    for dtype, x, by, expected in cases:
        values = hr.asarray(np.array([by, by], dtype))
        once = hr.scatter_nd(hr.asarray(np.array([x], dtype)), hr.asarray([[0], [0]]), values, 0, "divide")
        along = hr.put_along_axis(hr.asarray(np.array([x], dtype)), hr.asarray([0, 0]), values, 0, "divide")
        for y in (once, along):
            assert np.asarray(y).dtype == np.dtype(dtype)
            np.testing.assert_allclose(np.asarray(y, np.float64), [expected], rtol=1e-3)


def test_bools_are_not_subtracted():
    x = hr.asarray([True, False])
    with pytest.raises(ValueError, match="mode subtract of bool"):
        hr.put_along_axis(x, hr.asarray([0]), hr.asarray([True]), 0, "subtract")
