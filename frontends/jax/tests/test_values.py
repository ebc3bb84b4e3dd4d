"""Values at the ends of their types: XLA's results, where others fail or have none."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def pairs(dtype):
    """All pairs of some numbers of a type, as Python's integers."""
    ends = np.iinfo(dtype)
    numbers = sorted({ends.min, ends.min + (ends.min < 0), -1 if ends.min < 0 else 0, 0, 1, 2, 7, ends.bits - 1,
                      min(ends.bits, ends.max), ends.max // 2, ends.max})
    return [(a, b) for a in numbers for b in numbers]


def wrapped(value, dtype):
    bits = np.iinfo(dtype).bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if np.iinfo(dtype).min < 0 and value >> (bits - 1) else value


def divided(a, b, dtype):
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b, dtype):
    return a if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


def is_beyond(b, dtype):
    return not 0 <= b < np.iinfo(dtype).bits


def shifted_left(a, b, dtype):
    return 0 if is_beyond(b, dtype) else a << b


def shifted_with_sign(a, b, dtype):
    return wrapped(a, np.dtype(dtype).name.lstrip("u")) >> min(b if b >= 0 else 64, np.iinfo(dtype).bits - 1)


def shifted_with_zeros(a, b, dtype):
    return 0 if is_beyond(b, dtype) else (a & ((1 << np.iinfo(dtype).bits) - 1)) >> b


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("function, wanted", [
    (jax.lax.div, divided), (jax.lax.rem, remainder), (jax.lax.shift_left, shifted_left),
    (jax.lax.shift_right_arithmetic, shifted_with_sign), (jax.lax.shift_right_logical, shifted_with_zeros),
])
def test_integers(function, wanted, dtype):
    a, b = (np.array(numbers, dtype) for numbers in zip(*pairs(dtype)))
    expected = np.array([wrapped(wanted(x, y, dtype), dtype) for x, y in pairs(dtype)], dtype)
    side = round(len(a) ** 0.5)
    for change in (lambda x: x, lambda x: x.reshape(side, side).T):
        np.testing.assert_array_equal(np.asarray(jax.jit(function)(change(a), change(b))), change(expected))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_floats_become_the_nearest_integer_that_there_is(source, dtype):
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3.7, -3.7, 300, -1, -0.0, 2**31, -(2.0**31)], np.float64)
    with np.errstate(over="ignore"):
        x = x.astype(jnp.dtype(source))
    ends = np.iinfo(dtype)
    wide = x.astype(np.float64)
    expected = [0 if np.isnan(v) else ends.max if v >= ends.max else ends.min if v <= ends.min else int(v) for v in wide]
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x.astype(dtype))(x)), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("function", [jnp.maximum, jnp.minimum])
@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, np.nan])
def test_extremes_of_numbers(function, number, dtype):
    """-0 is less than 0."""
    x = np.array([0.0, -0.0, 1, -1, 1.5, np.nan, -np.nan, np.inf, -np.inf] * 5).astype(jnp.dtype(dtype))
    wide = x.astype(float)
    best = np.maximum if function is jnp.maximum else np.minimum
    sign = np.logical_and if function is jnp.maximum else np.logical_or
    expected = best(wide, number)
    zeros = (wide == 0) & (number == 0)
    expected[zeros] = np.where(sign(np.signbit(wide), np.signbit(number)), -0.0, 0.0)[zeros]
    for order in (1, -1):
        got = jax.jit(lambda x, order=order: function(*(x, jnp.asarray(number, dtype))[::order]))(x)
        got = np.asarray(got).astype(float)
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.signbit(got)[zeros], np.signbit(expected)[zeros])


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16, np.float32, np.float64])
def test_erf(dtype):
    x = np.array([-2, -0.5, 0, 0.25, 1], dtype)
    wanted = np.array([math.erf(number) for number in x.astype(np.float64)]).astype(dtype)
    np.testing.assert_allclose(np.asarray(jax.lax.erf(x)).astype(np.float64), wanted.astype(np.float64), rtol=1e-2)
    assert jax.jit(jax.grad(lambda x: jax.lax.erf(x).sum()))(x).dtype == dtype


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_angles_of_complex_numbers(dtype):
    """-i log((x + i y) / sqrt(x x + y y))"""
    y, x = np.array([[1 + 2.5j, -3 + 0.5j, 0, 1, 2.5], [2 - 1j, 0.5, 1j, 0, -3]], dtype)
    wanted = -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))
    np.testing.assert_allclose(jax.lax.atan2(y, x), wanted, rtol=1e-5, atol=1e-6)


def test_complex_numbers_are_clamped_by_their_real_parts():
    """XLA's results: a number whose real part is that of `least` becomes `least`."""
    x = np.array([1 + 5j, 2 - 1j, 2 + 1j, 3, -4 + 2j, 2 + 0.5j], np.complex64)
    wanted = [2 - 0.5j, 2 - 0.5j, 2 - 0.5j, 2 + 0.75j, 2 - 0.5j, 2 - 0.5j]
    for least, most in ((2 - 0.5j, 2 + 0.75j), (np.full(6, 2 - 0.5j), np.full(6, 2 + 0.75j))):
        got = jax.jit(jax.lax.clamp)(np.asarray(least, np.complex64), x, np.asarray(most, np.complex64))
        np.testing.assert_array_equal(got, wanted)


def test_indices_outside():
    x, index = np.arange(12.0).reshape(4, 3), np.array([-5, -1, 0, 3, 4, 2**31 - 1, -(2**31)])
    inside = np.clip(np.where((index < 0) & (index >= -4), index + 4, index), 0, 3)
    np.testing.assert_array_equal(np.asarray(jnp.take(x, index, axis=0, mode="clip")), x[np.clip(index, 0, 3)])
    is_in = (index >= -4) & (index < 4)
    filled = np.asarray(jnp.take(x, index, axis=0, mode="fill"))
    np.testing.assert_array_equal(filled, np.where(is_in[:, None], x[inside], np.nan))
    dropped = x.copy()
    np.add.at(dropped, inside[is_in], 1)
    np.testing.assert_array_equal(np.asarray(jnp.asarray(x).at[index].add(1.0, mode="drop")), dropped)
    at = jax.jit(lambda x, i: jax.lax.dynamic_slice(x, (i, i), (2, 2)))
    for start, begin in ((-9, (0, 0)), (-3, (1, 0)), (1, (1, 1)), (2**31 - 1, (2, 1))):
        np.testing.assert_array_equal(
            np.asarray(at(x, np.int32(start))), x[begin[0] : begin[0] + 2, begin[1] : begin[1] + 2]
        )


@pytest.mark.parametrize("function", [
    lambda x: x.sum(), lambda x: x.prod(1), jnp.sort, lambda x: jnp.cumsum(x, 0), lambda x: x.T @ x,
    lambda x: jnp.concatenate([x, x]), lambda x: (x > 0).any(0), lambda x: x.max(1), lambda x: x[np.zeros(0, int)],
    lambda x: x.at[np.zeros(0, int)].add(1.0), lambda x: jnp.pad(x, 1), lambda x: jnp.flip(x), jnp.exp,
    lambda x: jax.lax.scan(lambda c, row: (c + row.sum(), row * 2), 0.0, x)[1],
])
def test_empty_arrays(function):
    got = np.asarray(jax.jit(function)(np.zeros((0, 3))))
    like = jax.eval_shape(function, jax.ShapeDtypeStruct((0, 3), np.float64))
    assert got.shape == like.shape and got.dtype == like.dtype
    assert got.size == 0 or set(np.unique(got)) <= {0.0, 1.0}
