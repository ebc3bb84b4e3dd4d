"""Scatters into zeros: gradients of embeddings and of take_along_axis. They are computed where they are read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

DTYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "uint16", "int64", "complex64"]
ROWS, WIDTH = 100, 64


def numbers(dims, dtype, seed=0):
    return np.asarray(jnp.asarray(np.random.default_rng(seed).integers(-3, 4, dims)).astype(dtype))


def added(dims, indices, values):
    """Row by row in the order of the values, in their dtype; rows outside are dropped."""
    out = np.zeros(dims, values.dtype)
    for i, value in zip(np.ravel(indices).astype(object), values.reshape(-1, *dims[1:])):
        if 0 <= i < dims[0]:
            with np.errstate(invalid="ignore"):
                out[int(i)] = out[int(i)] + value
    return out


def same_bits(got, wanted):
    got = np.asarray(got)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)
    if wanted.dtype.kind in "fc":
        np.testing.assert_array_equal(np.signbit(got.real), np.signbit(wanted.real))


def rows_added(dims, indices, values):
    """XLA's scatter itself, whose indices outside of x write nothing and are not counted from the end."""
    inner = tuple(range(indices.ndim, indices.ndim + len(dims) - 1))
    places = lax.ScatterDimensionNumbers(inner, (0,), (0,))
    zeros = jnp.zeros(dims, values.dtype)
    return lax.scatter_add(zeros, indices[..., None], values, places, mode=lax.GatherScatterMode.FILL_OR_DROP)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_rows(dtype):
    indices = np.array([[5, 99, 0], [5, 5, 7]], np.int32)
    values = numbers((2, 3, WIDTH), dtype)
    same_bits(jax.jit(lambda i, v: rows_added((ROWS, WIDTH), i, v))(indices, values),
              added((ROWS, WIDTH), indices, values))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_indices_of_rows_outside(dtype):
    ends = np.iinfo(dtype)
    indices = np.array([3, ends.max, 99, ends.min, 100, 3, 127], dtype)
    values = numbers((7, WIDTH), "float32")
    same_bits(jax.jit(lambda i, v: rows_added((ROWS, WIDTH), i, v))(indices, values),
              added((ROWS, WIDTH), indices, values))
    one = jax.jit(lambda i, v: lax.scatter_add(
        jnp.zeros((7, 100), "float32"), i[:, None], v,
        lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,)), mode=lax.GatherScatterMode.FILL_OR_DROP))
    wanted = np.zeros((7, 100), np.float32)
    for row, i in enumerate(indices.astype(object)):
        if 0 <= i < 100:
            wanted[row, i] = values[row, 0]
    same_bits(one(indices, values[:, 0]), wanted + np.float32(0))


def test_sums_of_rows_keep_their_order_and_their_values():
    values = np.random.default_rng(0).standard_normal((24, 2, 32)).astype(np.float32)
    values[0], values[1, 0, :3], values[2, 0, :3] = -0.0, [np.nan, np.inf, -np.inf], [1, -np.inf, -0.0]
    values[3:6, 1] = [[1e30], [1], [-1e30]]
    indices = np.array([9, 3, 3, 5, 5, 5] + [1, 8, 8, 1, 1, 8] * 3, np.int32)
    jitted = jax.jit(lambda i, v: rows_added((ROWS, 2, 32), i, v))
    same_bits(jitted(indices, values), added((ROWS, 2, 32), indices, values))
    same_bits(jitted(indices[::-1].copy(), values), added((ROWS, 2, 32), indices[::-1], values))


def test_sums_of_rows_have_several_readers():
    indices, values = np.array([7, 2, 7], np.int64), numbers((3, WIDTH), "float32")
    x, y = numbers((ROWS, WIDTH), "float32", 1), numbers((WIDTH, 3), "float32", 2)
    sums = added((ROWS, WIDTH), indices, values)

    def function(x, y, i, v):
        g = rows_added((ROWS, WIDTH), i, v)
        return x - 2 * g, g @ y, g.sum(0), g.T, jnp.flip(g, 0), g, g.at[1].set(5), v + 1

    wanted = x - 2 * sums, sums @ y, sums.sum(0), sums.T, sums[::-1], sums, sums.copy(), values + 1
    wanted[6][1] = 5
    for got, each in zip(jax.jit(function)(x, y, indices, values), wanted):
        np.testing.assert_array_equal(np.asarray(got), each)


def test_embeddings_in_loops_and_under_vmap():
    tokens, weights = np.array([[4, 4, 9], [1, 4, 0]], np.int32), numbers((ROWS, WIDTH), "float32", 3)
    loss = lambda w, t: (w[t] ** 2).sum() / 2  # noqa: E731
    each = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(weights, tokens)
    for got, row in zip(each, tokens):
        same_bits(got, added((ROWS, WIDTH), row, weights[row]))
    step = lambda i, w: w - jax.grad(loss)(w, tokens[0]) / 4  # noqa: E731
    wanted = weights
    for _ in range(3):
        wanted = wanted - added((ROWS, WIDTH), tokens[0], wanted[tokens[0]]) / 4
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda w: lax.fori_loop(0, 3, step, w))(weights)), wanted)


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_element_of_each_line(axis, dtype):
    dims = (3, 5, 4)
    lines = tuple(1 if d == axis else n for d, n in enumerate(dims))
    indices = np.random.default_rng(1).integers(0, dims[axis], lines)
    values = numbers(lines, dtype)
    others = tuple(d for d in range(3) if d != axis)
    places = lax.ScatterDimensionNumbers((), (axis,), (axis,), others, (0, 1))
    squeezed = (indices.squeeze(axis)[..., None], values.squeeze(axis))
    wanted = np.zeros(dims, values.dtype)
    np.put_along_axis(wanted, indices, values, axis)
    for function in (lax.scatter, lax.scatter_add)[: 1 if dtype == "bool" else 2]:
        got = jax.jit(lambda i, v, f=function: f(jnp.zeros(dims, v.dtype), i, v, places))(*squeezed)
        np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("dims, axis", [((1, 6, 50), 2), ((6, 50), 1), ((50, 6), 0), ((2, 50, 3), 1), ((50,), 0)])
def test_gradients_of_take_along_axis(dims, axis):
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    at = np.random.default_rng(1).integers(-dims[axis], dims[axis], [1 if d == axis else n for d, n in enumerate(dims)])
    gradient = jax.jit(jax.grad(lambda x: (jnp.take_along_axis(x, at, axis=axis) ** 2).sum() / 2))(x)
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, at, np.take_along_axis(x, at, axis), axis)
    same_bits(gradient, wanted)


def test_windows_and_batches_in_any_order():
    """x is (window, batch, indexed, batch); values are (batch of dim 3, window, batch of dim 1)."""
    dims, values = (2, 3, 7, 4), numbers((4, 2, 3), "float32")
    indices = np.random.default_rng(0).integers(-1, 8, (4, 3, 1)).astype(np.int32)
    places = lax.ScatterDimensionNumbers((1,), (2,), (2,), (1, 3), (1, 0))
    got = jax.jit(lambda i, v: lax.scatter_add(
        jnp.zeros(dims, v.dtype), i, v, places, mode=lax.GatherScatterMode.FILL_OR_DROP))(indices, values)
    wanted = np.zeros(dims, np.float32)
    for b in range(3):
        for c in range(4):
            if 0 <= indices[c, b, 0] < 7:
                wanted[:, b, indices[c, b, 0], c] = values[c, :, b]
    np.testing.assert_array_equal(np.asarray(got), wanted)


def test_signs_and_nan_of_single_elements():
    values = np.array([-0.0, np.nan, np.inf, -1], np.float32)
    places = lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))
    at = np.array([0, 1, 2, 9], np.int32)[:, None]
    for function, zero in ((lax.scatter, -0.0), (lax.scatter_add, 0.0)):
        got = np.asarray(jax.jit(lambda v, f=function: f(
            jnp.zeros((4, 3), v.dtype), at, v, places, mode=lax.GatherScatterMode.FILL_OR_DROP))(values))
        wanted = np.zeros((4, 3), np.float32)
        wanted[0, 0], wanted[1, 1], wanted[2, 2] = zero, np.nan, np.inf
        same_bits(got, wanted)


def test_zeros_that_are_none():
    """-0 is no zero that can be left out, and other numbers are none."""
    indices, values = np.array([3, 3], np.int32), np.full((2, WIDTH), -0.0, np.float32)
    for number in (-0.0, 1.0):
        got = jax.jit(lambda i, v, n=number: jnp.full((ROWS, WIDTH), n, jnp.float32).at[i].add(v))(indices, values)
        same_bits(got, np.full((ROWS, WIDTH), number, np.float32) + np.float32(-0.0))


@pytest.mark.parametrize("dims, count", [((0, WIDTH), 0), ((ROWS, WIDTH), 0), ((ROWS, 0), 3)])
def test_empty(dims, count):
    got = jax.jit(lambda i, v: rows_added(dims, i, v))(np.zeros(count, np.int32), np.ones((count, dims[1]), np.float32))
    same_bits(got, np.zeros(dims, np.float32))
