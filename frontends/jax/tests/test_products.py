"""Products whose dims are put in another order afterwards, as gradients of weights have them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

DTYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "complex64"]
# Dims of both operands, contracted dims, batch dims, the order afterwards.
CASES = {
    "weight": ((5, 3), (5, 4), ((0,), (0,)), ((), ()), (1, 0)),
    "weight of a sequence": ((2, 5, 3), (2, 5, 4), ((0, 1), (0, 1)), ((), ()), (1, 0)),
    "two free dims": ((5, 2, 3), (4, 5), ((0,), (1,)), ((), ()), (2, 0, 1)),
    "not the free dims": ((5, 2, 3), (4, 5), ((0,), (1,)), ((), ()), (1, 0, 2)),
    "batch": ((6, 5, 3), (6, 5, 4), ((1,), (1,)), ((0,), (0,)), (0, 2, 1)),
    "batch moves": ((6, 5, 3), (6, 5, 4), ((1,), (1,)), ((0,), (0,)), (2, 1, 0)),
    "two batch dims": ((2, 6, 5, 3), (2, 6, 4, 5), ((2,), (3,)), ((0, 1), (0, 1)), (0, 1, 3, 2)),
    "no free dim": ((5,), (5, 4), ((0,), (0,)), ((), ()), (0,)),
    "no dims": ((5,), (5,), ((0,), (0,)), ((), ()), ()),
    "outer": ((3,), (4,), ((), ()), ((), ()), (1, 0)),
    "empty": ((0, 3), (0, 4), ((0,), (0,)), ((), ()), (1, 0)),
    "no rows": ((5, 0), (5, 4), ((0,), (0,)), ((), ()), (1, 0)),
}


def numbers(dims, dtype, seed):
    return jnp.asarray(np.random.default_rng(seed).integers(-3, 4, dims)).astype(dtype)


def expected(x, y, contract, batch, order):
    """By einsum, in f64 or in integers: small integers are exact in every dtype."""
    letters = iter("abcdefghij")
    left, right = [None] * x.ndim, [None] * y.ndim
    for i, j in zip(batch[0] + contract[0], batch[1] + contract[1]):
        left[i] = right[j] = next(letters)
    left, right = [a or next(letters) for a in left], [a or next(letters) for a in right]
    shared = [left[i] for i in batch[0]]
    result = shared + [a for a in left + right if (a in left) != (a in right)]
    wide = np.complex128 if np.iscomplexobj(x) else np.float64
    z = np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}", x.astype(wide), y.astype(wide))
    return z.transpose(order)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_a_product_in_another_order(case, dtype):
    x_dims, y_dims, contract, batch, order = CASES[case]
    x, y = numbers(x_dims, dtype, 0), numbers(y_dims, dtype, 1)
    z = jax.jit(lambda x, y: lax.dot_general(x, y, (contract, batch)).transpose(order))(x, y)
    wanted = expected(np.asarray(x), np.asarray(y), contract, batch, order)
    np.testing.assert_array_equal(np.asarray(z.astype(x.dtype)), wanted)


def test_a_product_that_others_read_too():
    x, y = numbers((5, 3), "float32", 0), numbers((5, 4), "float32", 1)

    def function(x, y):
        z = lax.dot_general(x, y, (((0,), (0,)), ((), ())))
        return z, z.T, z.T * 2

    z = np.asarray(x).T @ np.asarray(y)
    for got, wanted in zip(jax.jit(function)(x, y), (z, z.T, z.T * 2)):
        np.testing.assert_array_equal(np.asarray(got), wanted)


def test_a_product_in_a_loop_whose_body_turns_it():
    x = numbers((4, 4), "float32", 0)
    turn = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, z: lax.dot_general(z, x, (((0,), (0,)), ((), ()))).T, x))
    z = np.asarray(x)
    for _ in range(3):
        z = (z.T @ np.asarray(x)).T
    np.testing.assert_array_equal(np.asarray(turn(x)), z)


def test_nan_and_infinity_stay_where_they_are():
    x = np.array([[np.nan, 1, -0.0], [2, np.inf, 0]], np.float32)
    y = np.eye(2, dtype=np.float32)
    z = jax.jit(lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))).T)(x, y)
    np.testing.assert_array_equal(np.asarray(z), np.einsum("ka,kb->ba", x, y))


@pytest.mark.parametrize(
    "dtype, preferred",
    [("float32", "int32"), ("float64", "int64"), ("complex64", "float32"), ("float64", "float32"), ("int8", "int32")],
)
def test_products_are_converted_to_the_preferred_dtype_at_the_end(dtype, preferred):
    x = (np.arange(1, 7).reshape(2, 3) * (0.75 + 0.5j if dtype[0] == "c" else 0.75)).astype(dtype)
    expected = (x @ x.T).astype(jnp.dtype(preferred))
    product = jax.jit(lambda x: jnp.matmul(x, x.T, preferred_element_type=preferred))(x)
    np.testing.assert_array_equal(np.asarray(product), expected)


# Spatial dims, dilation of the input, strides, dilation of the window, padding, groups of features and of the batch.
WINDOWS = [
    (1, 2, 1, 1, (1, 1), 1, 1),
    (2, 2, 1, 2, (2, 3), 1, 1),
    (2, 3, 2, 1, (-1, 2), 1, 1),
    (1, 2, 3, 2, (3, -2), 2, 1),
    (3, 2, 2, 1, (0, 1), 2, 1),
    (2, 2, 1, 1, (2, 1), 1, 2),
    (2, 1, 2, 1, (1, 2), 1, 1),
    (2, 1, 1, 2, (2, 2), 2, 1),
]


def places(window, out, tap, sizes):
    """The element of the input that a tap of an output meets; None in padding and between elements."""
    _, spread, stride, dilation, pad, *_ = window
    at = [o * stride - pad[0] + k * dilation for o, k in zip(out, tap)]
    inside = all(p % spread == 0 and 0 <= p // spread < n for p, n in zip(at, sizes))
    return tuple(p // spread for p in at) if inside else None


def convolved(x, w, window, dims):
    """Without padding and holes: they are no factors."""
    feature_groups, batch_groups = window[-2:]
    groups = feature_groups * batch_groups
    y = np.zeros(dims)
    for out in np.ndindex(*dims[2:]):
        for tap in np.ndindex(*w.shape[2:]):
            place = places(window, out, tap, x.shape[2:])
            if place is None:
                continue
            parts = np.split(x[(..., *place)], groups, axis=0 if batch_groups > 1 else 1)
            taps = np.split(w[(..., *tap)], groups)
            y[(..., *out)] += np.concatenate([(a[:, None] * b[None]).sum(-1) for a, b in zip(parts, taps)], 1)
    return y


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("where", ["x", "weight"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_padding_and_holes_of_convolutions_are_no_factors(window, value, where, dtype):
    rank, spread, stride, dilation, pad, groups, batch_groups = window
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, (4, 4) + (4,) * rank).astype(np.float64)
    w = random.integers(-3, 4, (4, 4 // groups) + (3,) * rank).astype(np.float64)
    (x if where == "x" else w).flat[::11] = value
    y = jax.jit(
        lambda x, w: lax.conv_general_dilated(
            x,
            w,
            (stride,) * rank,
            [pad] * rank,
            lhs_dilation=(spread,) * rank,
            rhs_dilation=(dilation,) * rank,
            feature_group_count=groups,
            batch_group_count=batch_groups,
        )
    )(jnp.asarray(x, dtype), jnp.asarray(w, dtype))
    np.testing.assert_array_equal(np.asarray(y.astype(float)), convolved(x, w, window, y.shape))
