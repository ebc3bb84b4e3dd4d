"""Indices with arrays, masks and everything else, against numpy: reading, writing, updates, gradients, errors."""

import random

import numpy as np
import pytest

import headrace as hr

X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)


def entry(rng, d, shape):
    """An index at dim d and the number of dims that it takes; an index of None for one that does not fit there."""
    size = X.shape[d]
    kind = rng.choice(["int", "slice", "array", "list", "new", "rest", "mask", "mask2", "bool"])
    if kind == "int":
        return rng.randrange(-size, size), 1
    if kind == "slice":
        return slice(rng.choice([None, 1, -2]), rng.choice([None, 2, -1]), rng.choice([None, 1, 2, -1])), 1
    if kind == "array":
        dtype = rng.choice([np.int64, np.int32, np.int8])
        return np.array([rng.randrange(-size, size) for _ in range(int(np.prod(shape)))], dtype).reshape(shape), 1
    if kind == "list":
        return [rng.randrange(size) for _ in range(3)], 1
    if kind in ("mask", "mask2"):
        dims = 2 if kind == "mask2" and d < 3 else 1
        return np.array([rng.random() < 0.4 for _ in range(int(np.prod(X.shape[d : d + dims])))]).reshape(
            X.shape[d : d + dims]
        ), dims
    return {"new": None, "rest": Ellipsis, "bool": rng.random() < 0.7}[kind], 0


def draw_key(rng):
    key, d, shape = [], 0, rng.choice([(3,), (2, 1), (1, 3), ()])
    while d < 4 and rng.random() < 0.85:
        index, taken = entry(rng, d, shape)
        if index is Ellipsis and any(other is Ellipsis for other in key):
            continue
        key.append(index)
        d += taken
    return tuple(key)


def fits(key):
    try:
        return X[key].ndim <= 8
    except IndexError:
        return False


def as_ours(rng, key):
    return tuple(hr.array(i) if isinstance(i, np.ndarray) and rng.random() < 0.5 else i for i in key)


def same(actual, expected):
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(actual), expected)


@pytest.mark.parametrize("seed", range(20))
def test_reads_writes_and_updates_are_numpys(seed):
    rng = random.Random(seed)
    for key in filter(fits, [draw_key(rng) for _ in range(40)]):
        x, ours, expected = hr.array(X), as_ours(rng, key), X[key]
        same(x[ours], expected)
        value = np.arange(expected.size).reshape(expected.shape) + 1000 if rng.random() < 0.6 else np.int64(7)
        given = hr.array(value) if value.ndim else int(value)
        count = np.zeros(X.shape, int)
        np.add.at(count, key, 1)
        if count.max() <= 1:  # else it is open which value remains
            changed, y = X.copy(), hr.array(X)
            changed[key] = value
            y[ours] = given
            same(y, changed)
        for name in ("add", "subtract", "multiply", "maximum", "minimum"):
            changed = X.copy()
            getattr(np, name).at(changed, key, value)
            same(getattr(x.at[ours], name)(given), changed)
        same(x, X)


def test_a_write_from_and_at_its_own_elements():
    x = hr.arange(5)
    x[::-1] = x
    assert x.tolist() == [4, 3, 2, 1, 0]
    x[x] = x[::-1] * 10
    assert x.tolist() == [40, 30, 20, 10, 0]


def test_a_mask_with_one_value_does_not_wait():
    x = hr.array([1.0, float("nan"), 3.0]) + 0
    before = hr.stats()["commits"] if "commits" in hr.stats() else None
    x[x != x] = 0
    assert before is None or hr.stats()["commits"] == before
    assert x.tolist() == [1, 0, 3]
    x[hr.array([True, False, True])] = hr.array([5.0, 6.0])
    assert x.tolist() == [5, 0, 6]
    rows = hr.zeros((3, 2))
    before = hr.stats()["commits"]
    rows[hr.array([True, False, True])] = hr.array([[7, 8]])
    assert hr.stats()["commits"] == before
    assert rows.tolist() == [[7, 8], [0, 0], [7, 8]]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_masked_scatter_is_an_assignment_at_a_mask(dims):
    rng = np.random.default_rng(dims)
    x = rng.normal(size=(4, 3, 2))
    mask = rng.random(x.shape[:dims]) < 0.5
    source = rng.normal(size=(mask.sum(), *x.shape[dims:]))
    expected = x.copy()
    expected[mask] = source
    scattered = hr.masked_scatter(hr.array(x), hr.array(mask), hr.array(source))
    np.testing.assert_array_equal(np.asarray(scattered), expected)
    swapped = hr.masked_scatter(hr.array(x.T).T, hr.array(mask.T).T, hr.array(source))
    np.testing.assert_array_equal(np.asarray(swapped), expected)


def test_masked_scatter_of_other_counts():
    x, mask = hr.array([1, 2, 3, 4]), hr.array([True, True, False, True])
    assert hr.masked_scatter(x, mask, hr.array([5.7, 6])).tolist() == [5, 6, 3, 6]  # in x's dtype; the last one again
    assert hr.masked_scatter(x, mask, hr.arange(9)).tolist() == [0, 1, 3, 2]
    assert hr.masked_scatter(x, mask, hr.zeros(0)).tolist() == [1, 2, 3, 4]
    assert hr.masked_scatter(x, mask < mask, hr.array([5])).tolist() == [1, 2, 3, 4]
    assert hr.masked_scatter(hr.zeros((0, 2)), hr.zeros(0, dtype=hr.bool), hr.ones((1, 2))).shape == (0, 2)
    assert hr.masked_scatter(hr.zeros((2, 2)), hr.array([False, True]), hr.array([5])).tolist() == [[0, 0], [5, 5]]
    for mask, source, message in (
        (hr.array([1, 1, 0, 1]), hr.ones(3), "mask of dtype i64 and 1 dims, expected bool"),
        (hr.array([True]), hr.ones(1), "mask of dtype bool and 1 dims, expected bool and the first dims of x"),
        (hr.array([True] * 4), hr.ones((4, 1)), "source has 2 dims, expected 1 to 1"),
        (hr.array([True] * 4), hr.array(1), "source has 0 dims, expected 1 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            hr.masked_scatter(x, mask, source)


def test_a_mask_that_cannot_be_read_is_assigned_to():
    def assigned(x, mask, source):
        x[mask] = source
        return x

    x = hr.array([[1.0, 2, 3], [4, 5, 6]])
    mask = hr.array([[True, False, True], [False, True, True]])
    source = hr.array([[10.0, 20], [30, 40]])
    assert hr.vmap(assigned)(x, mask, source).tolist() == [[10, 2, 20], [4, 30, 40]]
    assert hr.vmap(assigned, (0, 0, None))(x, mask, source[0]).tolist() == [[10, 2, 20], [4, 10, 20]]
    assert hr.vmap(assigned, (0, None, 0))(x, mask[0], source).tolist() == [[10, 2, 20], [30, 5, 40]]
    assert hr.compile(assigned)(x[0], mask[0], source[0]).tolist() == [10, 2, 20]
    gradients = hr.grad(lambda x, s: (hr.vmap(assigned)(x, mask, s) ** 2).sum(), (0, 1))(x, source)
    assert [g.tolist() for g in gradients] == [[[0, 4, 0], [8, 0, 0]], [[20, 40], [60, 80]]]
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(ValueError):
        x[mask] = hr.array([1.0, 2, 3])  # of four


def test_gradients_pass_through_indices():
    w = hr.array([1.0, 2, 3])
    picked = hr.array([0, 0, 1])
    gradient = hr.grad(lambda w: (w[picked] * w.at[hr.array([1])].add(2.0)[::-1]).sum())(w)
    assert gradient.tolist() == [9, 2, 1]
    assert hr.grad(lambda w: (w[w > 1.5] ** 2).sum())(w).tolist() == [0, 4, 6]

    def cut(w):
        w[w > 2.5] = 0.0
        return (w**2).sum()

    assert hr.grad(cut)(w).tolist() == [2, 4, 0]


def test_take_counts_negative_indices_from_the_end():
    x = hr.arange(6).reshape(2, 3)
    assert hr.take(x, [-1, 0], axis=1).tolist() == [[2, 0], [5, 3]]
    assert hr.take_along_axis(x, [[-1], [0]], axis=1).tolist() == [[2], [3]]
    assert hr.put_along_axis(x, [[-1], [0]], 9, axis=1).tolist() == [[0, 1, 9], [9, 4, 5]]
    assert hr.index_add(x, [-1], [[1, 1, 1]]).tolist() == [[0, 1, 2], [4, 5, 6]]


@pytest.mark.parametrize(
    "key, message",
    [
        ([0.5], "dtype f32, expected integers or bool"),
        ([True], "size of axis is 2 but size of corresponding boolean axis is 1"),
        ((0, 0, [0]), "array is 2-dimensional, but 3 were indexed"),
        (np.ones((3, 3), bool), "boolean index did not match"),
        ("a", "only integers, slices"),
        (([0, 1], [0, 1, 2]), "broadcast|differs"),
    ],
)
def test_wrong_indices_are_named(key, message):
    x = hr.arange(6).reshape(2, 3)
    with pytest.raises((IndexError, ValueError), match=message):
        x[key]
    with pytest.raises((IndexError, ValueError), match=message):
        x[key] = 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_index_out_of_range_raises_at_the_wait():
    x = hr.arange(6).reshape(2, 3)[[0, 5]]
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension with size 2"):
        x.tolist()
