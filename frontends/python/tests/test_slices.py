"""Slices at indices with any order of dims, and bits of generators, against the definitions of XLA's operations."""

import math

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(33)
COMBINE = {
    "set": lambda a, b: b, "add": lambda a, b: a + b, "multiply": lambda a, b: a * b, "max": max, "min": min,
}  # fmt: skip


class Case:
    """One gather: dims of x, dims of indices, and the attributes."""

    def __init__(self, x, indices, sizes, map=(), window=(), collapsed=(), x_batch=(), index_batch=(), vector_dim=-1):
        self.shape, self.index_shape, self.sizes = x, indices, sizes
        self.vector = len(indices) - 1 if vector_dim < 0 else vector_dim
        self.attributes = {
            "map": list(map), "window": list(window), "collapsed": list(collapsed), "x_batch": list(x_batch),
            "index_batch": list(index_batch), "vector_dim": vector_dim,
        }  # fmt: skip
        batch = [n for d, n in enumerate(indices) if d != self.vector]
        self.offsets = [d for d in range(len(x)) if d not in (*collapsed, *x_batch)]
        shape, rest = [], list(batch)
        for d in range(len(batch) + len(window)):
            shape.append(sizes[self.offsets[list(window).index(d)]] if d in window else rest.pop(0))
        self.result_shape = tuple(shape)

    def places(self, indices, clamp):
        """The place in x and the place in the slices, of each element; without `clamp` only slices inside of x."""
        a = self.attributes
        for at in np.ndindex(self.result_shape):
            batch = [i for d, i in enumerate(at) if d not in a["window"]]
            offset = [at[d] for d in a["window"]]
            key = list(batch)
            key.insert(self.vector, 0)
            start = [0] * len(self.shape)
            for k, d in enumerate(a["map"]):
                key[self.vector] = k
                start[d] = int(indices[tuple(key[: indices.ndim])])
            limits = [n - s for n, s in zip(self.shape, self.sizes)]
            if clamp:
                start = [min(max(s, 0), m) for s, m in zip(start, limits)]
            elif not all(0 <= s <= m for s, m in zip(start, limits)):
                continue
            for d, b in zip(a["x_batch"], a["index_batch"]):
                start[d] = batch[b]
            for d, o in zip(self.offsets, offset):
                start[d] += o
            yield tuple(start), at


CASES = {
    "rows": Case((5, 3), (4, 1), (1, 3), [0], [1], [0]),
    "rows, no dim of components": Case((5, 3), (4,), (1, 3), [0], [1], [0], vector_dim=1),
    "columns first": Case((5, 3), (4, 1), (5, 1), [1], [0], [1]),
    "windows": Case((5, 6), (3, 2), (2, 3), [0, 1], [1, 2]),
    "windows before": Case((5, 6), (2, 3), (2, 3), [1, 0], [0, 2], vector_dim=0),
    "one slice": Case((5, 6), (2,), (2, 6), [0, 1], [0, 1]),
    "whole": Case((5, 6), (3, 1), (5, 6), [0], [1, 2]),
    "not indexed": Case((5, 6), (3, 0), (2, 3), [], [0, 2]),
    "part of others": Case((5, 6, 4), (3, 1), (1, 3, 2), [0], [1, 2], [0]),
    "batch": Case((3, 5, 2), (3, 4, 1), (1, 1, 2), [1], [2], [1], [0], [0]),
    "batches": Case((4, 5, 3, 6), (3, 2, 4, 2), (1, 2, 1, 4), [1, 3], [1, 3], [], [2, 0], [0, 2]),
    "sizes of 1": Case((4, 5), (3, 2), (1, 1), [0, 1], [0, 2]),
    "none": Case((4, 5), (0, 1), (1, 5), [0], [1], [0]),
    "empty windows": Case((4, 5), (3, 1), (0, 5), [0], [1, 2]),
}


def operands(case, dtype=np.int64):
    x = rng.standard_normal(case.shape).astype(np.float32)
    return x, rng.integers(-2, 7, case.index_shape).astype(dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int8])
def test_slices_are_read(name, dtype):
    case = CASES[name]
    x, indices = operands(case, dtype)
    expected = np.zeros(case.result_shape, x.dtype)
    for place, at in case.places(indices, True):
        expected[at] = x[place]
    y = hr.gather_slices(hr.array(x), hr.array(indices), sizes=list(case.sizes), **case.attributes)
    np.testing.assert_array_equal(np.asarray(y), expected)
    swapped = hr.swapaxes(hr.array(np.ascontiguousarray(x.swapaxes(0, 1))), 0, 1)
    y = hr.gather_slices(swapped, hr.array(indices), sizes=list(case.sizes), **case.attributes)
    np.testing.assert_array_equal(np.asarray(y), expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", COMBINE)
def test_slices_are_written(name, mode):
    case = CASES[name]
    x, indices = operands(case)
    if mode == "set":  # several values of one place have no order
        rows = rng.permutation(6)[: math.prod(case.index_shape)] if math.prod(case.index_shape) <= 6 else None
        if rows is None:
            pytest.skip("more indices than different ones")
        indices = (np.sort(rows) * 2 - 2).reshape(case.index_shape)
    values = rng.standard_normal(case.result_shape).astype(np.float32)
    expected = x.copy()
    for place, at in case.places(indices, False):
        expected[place] = COMBINE[mode](expected[place], values[at])
    y = hr.scatter_slices(hr.array(x), hr.array(indices), hr.array(values), mode=mode, **case.attributes)
    np.testing.assert_allclose(np.asarray(y), expected, 1e-6, 1e-6)


def test_slices_that_leave_x_write_nothing():
    x, values = np.arange(12.0).reshape(3, 4), -np.ones((3, 2, 2))
    indices = np.array([[2, 3], [1, 2], [-1, 0]])
    expected = x.copy()
    expected[1:3, 2:4] = -1
    y = hr.scatter_slices(hr.array(x), hr.array(indices), hr.array(values), map=[0, 1], window=[1, 2])
    np.testing.assert_array_equal(np.asarray(y), expected)


def test_indices_beyond_i64():
    x = hr.array(np.arange(4.0))
    indices = hr.array(np.array([[2**64 - 1], [2**63], [1]], np.uint64))
    y = hr.gather_slices(x, indices, sizes=[1], map=[0], collapsed=[0])
    assert np.asarray(y).tolist() == [3, 3, 1]
    y = hr.scatter_slices(x, indices, hr.array(np.full(3, 9.0)), map=[0], collapsed=[0])
    assert np.asarray(y).tolist() == [0, 9, 2, 3]


@pytest.mark.parametrize("name", ["rows", "windows", "batches"])
def test_gradients(name):
    case = CASES[name]
    x, indices = (np.asarray(a, np.float64) for a in operands(case))
    values = rng.standard_normal(case.result_shape)
    at = hr.array(indices.astype(np.int64))

    def read(a):
        return hr.sum(hr.square(hr.gather_slices(a, at, sizes=list(case.sizes), **case.attributes)))

    def written(a, b):
        return hr.sum(hr.square(hr.scatter_slices(a, at, b, mode="add", **case.attributes)))

    difference(read, x)
    difference(lambda a: written(a, hr.array(values)), x)
    difference(lambda b: written(hr.array(x), b), values)


@pytest.mark.parametrize(
    "attributes, text",
    [
        ({"map": [0, 0]}, "different dims below 2"),
        ({"map": [0, 2]}, "different dims below 2"),
        ({"map": [0]}, "2 components of indices, expected 1"),
        ({"map": [0, 1], "window": [1, 7]}, "dim 7 of window"),
        ({"map": [0, 1], "window": [1]}, "1 dims of windows, 0 collapsed ones"),
        ({"map": [0, 1], "window": [1], "x_batch": [0], "index_batch": [0]}, "dims of windows"),
        ({"map": [0, 1], "window": [1, 2], "sizes": [2, 9]}, "size 9 of slices along dim 1 of 6 elements"),
        ({"map": [0, 1], "window": [1], "collapsed": [0], "sizes": [2, 2]}, "expected 1"),
        ({"map": [0, 1], "window": [1, 2], "sizes": [2]}, "1 sizes for x of 2 dims"),
        ({"map": [0, 1], "window": [1, 2], "vector_dim": 5}, "vector_dim 5"),
    ],
)
def test_wrong_attributes(attributes, text):
    x, indices = hr.array(np.zeros((5, 6))), hr.array(np.zeros((3, 2), np.int64))
    with pytest.raises(ValueError, match=text):
        hr.gather_slices(x, indices, **{"sizes": [2, 3], **attributes})


def test_wrong_values():
    x, indices = hr.array(np.zeros((5, 6))), hr.array(np.zeros((3, 2), np.int64))
    for shape, text in [((3, 2), "2 dims of values"), ((4, 2, 3), "dim 0 of values is 4"), ((3, 6, 3), "size 6")]:
        with pytest.raises(ValueError, match=text):
            hr.scatter_slices(x, indices, hr.array(np.zeros(shape)), map=[0, 1], window=[1, 2])


# ---- slices at one start


@pytest.mark.parametrize("sizes", [(2, 3, 4), (5, 1, 4), (5, 6, 4), (1, 6, 2), (0, 2, 2)])
def test_dynamic_slices(sizes):
    x = rng.standard_normal((5, 6, 4)).astype(np.float32)
    for start in ([0, 0, 0], [3, 4, 2], [9, -9, 1]):
        at = [min(max(s, 0), n - k) for s, n, k in zip(start, x.shape, sizes)]
        part = tuple(slice(a, a + k) for a, k in zip(at, sizes))
        y = hr.dynamic_slice(hr.array(x), hr.array(np.array(start, np.int32)), sizes=list(sizes))
        np.testing.assert_array_equal(np.asarray(y), x[part])
        values, expected = rng.standard_normal(sizes).astype(np.float32), x.copy()
        expected[part] = values
        y = hr.dynamic_slice_update(hr.array(x), hr.array(values), hr.array(np.array(start, np.int32)))
        np.testing.assert_array_equal(np.asarray(y), expected)


# ---- generators: the algorithms in Python's integers, with XLA's order of words

M = 0xFFFFFFFF


def philox(key, counter):
    k, c = [key & M, key >> 32], [counter >> (32 * i) & M for i in range(4)]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & M, (p >> 32) ^ c[3] ^ k[1], p & M]
        k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
    return c


def threefry(key, counter):
    ks = [key & M, key >> 32, (key & M) ^ (key >> 32) ^ 0x1BD11BDA]
    x, y = (counter & M) + ks[0] & M, (counter >> 32) + ks[1] & M
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y & M
            y = ((y << r | y >> (32 - r)) & M) ^ x
        x, y = x + ks[(group + 1) % 3] & M, y + ks[(group + 2) % 3] + group + 1 & M
    return x, y


def words(algorithm, state, shape, bits):
    """The numbers, flat, and the next counter."""
    n, low, key = math.prod(shape), state[1], state[0]
    if algorithm == "philox":
        counter = low + ((state[2] if len(state) > 2 else key) << 64)
        blocks = -(-n * max(bits, 32) // 128)
        all32 = [w for i in range(blocks) for w in philox(key, counter + i & (1 << 128) - 1)]
        counter = counter + blocks & (1 << 128) - 1
        after = [counter & (1 << 64) - 1, counter >> 64][: len(state) - 1]
        wide = [a | b << 32 for a, b in zip(all32[::2], all32[1::2])]
        return (wide if bits == 64 else all32)[:n], after
    if bits == 64:
        pairs = [threefry(key, low + i & (1 << 64) - 1) for i in range(n)]
        return [x | y << 32 for x, y in pairs], [low + n & (1 << 64) - 1]
    full = list(shape) or [1]
    dim = next((d for d, s in enumerate(full) if s % 2 == 0), full.index(max(full)))
    half = [-(-s // 2) if d == dim else s for d, s in enumerate(full)]
    pairs = np.array([threefry(key, low + i & (1 << 64) - 1) for i in range(math.prod(half))], np.uint64)
    both = np.moveaxis(pairs.reshape(*half, 2), -1, dim + 1)
    both = both.reshape([2 * s if d == dim else s for d, s in enumerate(half)])
    both = both[tuple(slice(s) for s in full)]
    return both.ravel().tolist(), [low + math.prod(half) & (1 << 64) - 1]


@pytest.mark.parametrize("algorithm", ["philox", "threefry"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (3, 4), (2, 3, 3), (0, 3), (7, 59)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int32"])
def test_generators(algorithm, shape, dtype):
    for state in ([0, 0], [0x9ABCDEF012345678, 0xFFFFFFFFFFFFFFFE], [7, 0xFFFFFFFFFFFFFFFF, 5]):
        if len(state) > 2 and algorithm != "philox":
            continue
        bits = 8 * np.dtype(dtype).itemsize
        expected, after = words(algorithm, state, shape, bits)
        next_state, y = hr.generator_bits(
            hr.array(np.array(state, np.uint64)), shape=list(shape), dtype=getattr(hr, dtype), algorithm=algorithm
        )
        expected = (np.array(expected, np.uint64) & np.uint64((1 << bits) - 1)).astype(f"uint{bits}").reshape(shape)
        np.testing.assert_array_equal(np.asarray(y), expected.view(dtype))
        assert np.asarray(next_state).tolist() == [state[0], *after, *state[1 + len(after) :]]


def test_known_bits():
    """From jax 0.10.2 on the CPU: lax.rng_bit_generator([0x12345678, 0x9abcdef0, 0xfffffffe, 0xffffffff], (3, 5))."""
    state = hr.array(np.array([0x9ABCDEF012345678, 0xFFFFFFFFFFFFFFFE], np.uint64))
    _, y = hr.generator_bits(state, shape=[3, 5])
    assert np.asarray(y).ravel()[:5].tolist() == [0x78E50B5C, 0xD13F68CB, 0x7A6012F5, 0xB29A5028, 0x1F9672E0]
    _, y = hr.generator_bits(state, shape=[3, 5], algorithm="threefry")
    assert np.asarray(y).ravel()[3:8].tolist() == [0xFAAB5466, 0xED280379, 0x19101B65, 0x62326731, 0x5E33164E]


def test_wrong_states():
    with pytest.raises(ValueError, match=r"the state is u32 \[4\], expected u64 \[2\] or \[3\]"):
        hr.generator_bits(hr.array(np.zeros(4, np.uint32)), shape=[2])
    with pytest.raises(ValueError, match="expected an integer"):
        hr.generator_bits(hr.array(np.zeros(2, np.uint64)), shape=[2], dtype=hr.float32)
