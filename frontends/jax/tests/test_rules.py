"""The lowering rules of the package: cumulative operations against NumPy, and the custom calls of matrices."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

CUMULATIVE = {
    "sum": (lax.cumsum, np.add),
    "prod": (lax.cumprod, np.multiply),
    "max": (lax.cummax, np.maximum),
    "min": (lax.cummin, np.minimum),
    "logsumexp": (lax.cumlogsumexp, np.logaddexp),
}
DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.complex64]


def accumulate(function, x, axis, reverse):
    x = np.flip(x, axis) if reverse else x
    y = function.accumulate(x, axis, dtype=x.dtype)
    return np.flip(y, axis) if reverse else y


def numbers(dtype, shape):
    values = np.random.default_rng(3).integers(1, 4, shape)
    return (values * (1 + 0.5j) if dtype == np.complex64 else values).astype(dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative_operations(name, dtype, reverse):
    function, reference = CUMULATIVE[name]
    if (name == "logsumexp" and np.dtype(dtype).kind != "f") or (name in ("max", "min") and dtype == np.complex64):
        pytest.skip("NumPy has no such function")
    x = numbers(dtype, (3, 5, 4))
    for axis in range(3):
        got = jax.jit(lambda x, axis=axis: function(x, axis=axis, reverse=reverse))(x)
        assert got.dtype == x.dtype
        tolerance = 0 if np.dtype(dtype).kind in "iu" else 2e-3 if dtype == np.float16 else 1e-5
        np.testing.assert_allclose(np.asarray(got), accumulate(reference, x, axis, reverse), rtol=tolerance)


def test_cumulative_operations_of_nan_infinity_and_nothing():
    x = np.array([1, np.inf, 2, np.nan, 3], np.float32)
    for name, (function, reference) in CUMULATIVE.items():
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.asarray(jax.jit(function)(x)), reference.accumulate(x), err_msg=name)
        assert jax.jit(function)(x[:0]).shape == (0,)
    turned = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(np.asarray(jax.jit(jnp.cumsum)(turned)), np.cumsum(turned))


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"])
def test_cumulative_operations_of_floats_of_8_bits(dtype):
    x = np.array([[1, 2, 4, 2, 0.5, 1]] * 2).astype(getattr(jnp, dtype))
    found = np.asarray(jax.jit(lambda x: jax.lax.cumprod(x, 1))(x))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.astype(np.float32), np.cumprod(x.astype(np.float32), 1))


def test_cumulative_operations_have_gradients():
    x = np.random.default_rng(1).normal(size=6).astype(np.float32)
    weights = np.arange(1, 7, dtype=np.float32)
    got = jax.jit(jax.grad(lambda x: (lax.cumsum(x) * weights).sum()))(x)
    np.testing.assert_allclose(np.asarray(got), np.cumsum(weights[::-1])[::-1], rtol=1e-6)


def text_of(function, *arguments):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("headrace",)).as_text()


def test_cumulative_operations_have_no_window():
    text = text_of(jnp.cumsum, np.ones(1000, np.float32))
    assert "headrace.cumulative_sum" in text and "reduce_window" not in text


SQUARE = np.eye(4, dtype=np.float32)
CALLS = [
    (jnp.linalg.eigh, {"lapack_ssyevd_ffi"}),
    (jnp.linalg.eig, {"lapack_sgeev_ffi"}),
    (jnp.linalg.svd, {"lapack_sgesdd_ffi"}),
    (jnp.linalg.qr, {"lapack_sgeqrf_ffi", "lapack_sorgqr_ffi"}),
    (jax.scipy.linalg.lu, {"lapack_sgetrf_ffi"}),
    (jax.scipy.linalg.schur, {"lapack_sgees_ffi"}),
    (jax.scipy.linalg.hessenberg, {"lapack_sgehrd_ffi"}),
    (lambda x: lax.linalg.tridiagonal(x, lower=True), {"lapack_ssytrd_ffi"}),
]


@pytest.mark.parametrize(("function", "names"), CALLS, ids=lambda value: getattr(value, "__name__", ""))
def test_matrices_are_decomposed_by_lapack(function, names):
    found = set(re.findall(r"custom_call @(\w+)", text_of(function, SQUARE)))
    assert names <= found
    assert all(name.startswith("lapack_") for name in found)


@pytest.mark.parametrize(("shape", "rows", "back"), [((3,), 5, 0), ((2, 3), 3, 0), ((2, 2, 4), 4, 0), ((3,), 5, 5)])
def test_the_permutation_of_pivots(shape, rows, back):
    pivots = np.random.default_rng(5).integers(0, rows, shape)
    pivots = np.maximum(pivots, np.arange(shape[-1])).astype(np.int32) - np.int32(back)
    assert "headrace.lu_permutation" in text_of(lambda p: lax.linalg.lu_pivots_to_permutation(p, rows), pivots)
    got = np.asarray(jax.jit(lambda p: lax.linalg.lu_pivots_to_permutation(p, rows))(pivots)).reshape(-1, rows)
    for order, exchanges in zip(got, pivots.reshape(-1, shape[-1])):
        expected = np.arange(rows)
        for i, k in enumerate(exchanges):
            expected[[i, k]] = expected[[k, i]]
        np.testing.assert_array_equal(order, expected)


def test_cumulative_operations_with_symbolic_dims():
    shape = jax.export.symbolic_shape("n, 5")
    for function in (lax.cumsum, lax.cummax, lax.cumlogsumexp):
        program = jax.jit(lambda x, function=function: function(x, axis=1))
        exported = jax.export.export(program)(jax.ShapeDtypeStruct(shape, np.float32))
        x = np.arange(15, dtype=np.float32).reshape(3, 5)
        np.testing.assert_allclose(exported.call(x), program(x), rtol=1e-6)


def test_a_solution_while_tracing():
    """The decomposition of the permutation then has constants as operands."""
    with jax.ensure_compile_time_eval():
        got = jnp.linalg.solve(jnp.array([[0.0, 2.0], [1.0, 1.0]]), jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(got, [2, 1], rtol=1e-6)


def test_the_rules_of_other_platforms_stay():
    text = jax.jit(jnp.cumsum).trace(np.ones(5, np.float32)).lower(lowering_platforms=("cpu",)).as_text()
    assert "reduce_window" in text and "composite" not in text


@pytest.mark.parametrize("name", ["QR", "JACOBI", "QDWH"])
def test_eigenvalues_by_the_algorithms_of_other_platforms(name):
    x = np.random.default_rng(0).normal(size=(2, 5, 5))
    x += x.swapaxes(-1, -2)
    implementation = lax.linalg.EighImplementation[name]
    vectors, values = jax.jit(lambda x: lax.linalg.eigh(x, implementation=implementation))(x)
    np.testing.assert_allclose(np.asarray(values), np.linalg.eigvalsh(x), atol=1e-12)
    np.testing.assert_allclose(x @ np.asarray(vectors), np.asarray(vectors * values[:, None]), atol=1e-12)


def tridiagonal(dl, d, du):
    return np.stack([np.diag(a[1:], -1) + np.diag(b) + np.diag(c[:-1], 1) for a, b, c in zip(dl, d, du)])


@pytest.mark.parametrize("perturbs", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_tridiagonal_systems(size, dtype, perturbs):
    numbers = np.random.default_rng(size)
    dl, d, du = (numbers.normal(size=(3, size)).astype(dtype) for _ in range(3))
    dl[:, 0] = du[:, -1] = 0
    d[0, 0] = 0 if size > 1 else 2  # the first pivot is in the second row
    b = numbers.normal(size=(3, size, 4)).astype(dtype)
    x = jax.jit(lambda *a: lax.linalg.tridiagonal_solve(*a, perturb_singular=perturbs))(dl, d, du, b)
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(tridiagonal(dl, d, du) @ np.asarray(x), b, atol=tolerance, rtol=tolerance)


def test_singular_tridiagonal_systems():
    d, beside = np.array([1.0, 1, 1]), np.array([0.0, 1, 0])  # the first two rows are equal
    dl, du, b = beside, np.array([1.0, 0, 0]), np.ones((3, 1))
    solve = jax.jit(lambda *a: lax.linalg.tridiagonal_solve(*a, perturb_singular=True))
    assert np.isfinite(np.asarray(solve(dl, d, du, b))).all()
    zeros = np.zeros(3)
    assert np.isfinite(np.asarray(solve(zeros, zeros, zeros, b))).all()


def threefry(key, more, x, y):
    """Threefry 2x32 with 20 rounds, by its definition (Salmon et al., 2011)."""
    key, more, x, y = (np.asarray(word, np.uint64) for word in (key, more, x, y))
    keys, mask = (key, more, key ^ more ^ 0x1BD11BDA), np.uint64(2**32 - 1)
    x, y = (x + key) & mask, (y + more) & mask
    for turn in range(20):
        up = np.uint64(((13, 15, 26, 6), (17, 29, 16, 24))[turn // 4 % 2][turn % 4])
        x = (x + y) & mask
        y = ((y << up | y >> (np.uint64(32) - up)) & mask) ^ x
        if turn % 4 == 3:
            group = turn // 4 + 1
            x, y = (x + keys[group % 3]) & mask, (y + keys[(group + 1) % 3] + np.uint64(group)) & mask
    return x.astype(np.uint32), y.astype(np.uint32)


@pytest.mark.parametrize("shapes", [("", "", "", ""), ("", "", "7", "7"), ("3", "3", "", "3"), ("23", "13", "21", "23"),
                                    ("", "", "0", "0"), ("203", "203", "203", "203")])
def test_threefry(shapes):
    from jax.extend.random import threefry2x32_p

    numbers = np.random.default_rng(5)
    words = [numbers.integers(0, 2**32, tuple(map(int, shape)), np.uint32) for shape in shapes]
    rank = max(word.ndim for word in words)
    words = [word if word.ndim in (0, rank) else word.reshape((1,) * (rank - word.ndim) + word.shape) for word in words]
    got = jax.jit(lambda *words: threefry2x32_p.bind(*jnp.broadcast_arrays(*words)))(*words)
    for mine, wanted in zip(got, threefry(*words), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), wanted)
        assert mine.shape == wanted.shape


def test_random_bits_of_the_default_generator():
    """JAX counts the elements in 64 bits and combines both words of each block. Keys may be mapped."""
    text = text_of(lambda key: jax.random.bits(key, (4,)), jax.random.key(3))
    assert "custom_call @headrace.threefry" in text and text.count("stablehlo.xor") <= 1
    data = np.array([[0, 3], [2**32 - 1, 12345]], np.uint32)
    high, low = np.zeros(15, np.uint32), np.arange(15, dtype=np.uint32)
    wanted = np.array([np.bitwise_xor(*threefry(*key, high, low)) for key in data]).reshape(2, 5, 3)
    keys = jax.random.wrap_key_data(data)
    np.testing.assert_array_equal(np.asarray(jax.vmap(lambda key: jax.random.bits(key, (5, 3), np.uint32))(keys)), wanted)
    np.testing.assert_array_equal(np.asarray(jax.random.bits(keys[1], (5, 3), np.uint8)), wanted[1].astype(np.uint8))
    assert jax.random.bits(keys[0], (0, 3)).shape == (0, 3)


def test_programs_with_random_bits_are_exported():
    exported = jax.export.export(jax.jit(lambda key: jax.random.bits(key, (5,))))(jax.random.key(0))
    np.testing.assert_array_equal(exported.call(jax.random.key(8)), jax.random.bits(jax.random.key(8), (5,)))


RANDOM_MEMORY = """
import sys, jax, headrace_jax
headrace_jax.initialize()
count, function = 1 << 22, getattr(jax.random, sys.argv[1])
jax.block_until_ready(jax.jit(lambda key: function(key, (count,)))(jax.random.key(0)))
print(jax.devices()[0].memory_stats()["peak_bytes_in_use"] / count)
"""


@pytest.mark.cpu
@pytest.mark.parametrize("name, limit", [("bits", 5), ("uniform", 10), ("normal", 21)])
def test_random_numbers_need_little_memory(name, limit):
    command = [sys.executable, "-c", RANDOM_MEMORY, name]
    variables = os.environ | {"JAX_ENABLE_X64": "0"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=True)
    assert float(done.stdout) < limit  # bytes for each number, of which the result has 4
