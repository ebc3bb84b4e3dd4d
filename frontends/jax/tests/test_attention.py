"""Attention that JAX composes of products and a softmax: compiled, where it becomes one operation, and operation by
operation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

SHAPES = {  # batch, queries, keys, heads of the queries and of the keys, columns
    "a head": (1, 5, 5, 1, 1, 4),
    "heads": (2, 40, 40, 3, 3, 8),
    "more keys": (2, 5, 9, 3, 3, 4),
    "one query": (2, 1, 9, 3, 3, 4),
    "one key": (2, 5, 1, 3, 3, 4),
    "one": (1, 1, 1, 1, 1, 1),
    "no examples": (0, 5, 5, 3, 3, 4),
    "no queries": (2, 0, 5, 3, 3, 4),
    "groups": (2, 5, 5, 6, 2, 4),
}


def factors(shape, dtype=np.float32):
    batch, queries, keys, heads, groups, columns = SHAPES[shape]
    numbers = np.random.default_rng(0)
    dims = (batch, queries, heads, columns), (batch, keys, groups, columns), (batch, keys, groups, columns)
    return [numbers.standard_normal(each).astype(dtype) for each in dims]


def check(function, *arguments):
    with jax.enable_x64(arguments[0].dtype == np.float64):
        with jax.disable_jit():
            expected = np.asarray(function(*arguments))
        np.testing.assert_allclose(np.asarray(jax.jit(function)(*arguments)), expected, atol=1e-5)
    return expected


def written_out(hidden):
    def function(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        scores = jnp.where(jnp.tri(q.shape[1], k.shape[1], dtype=bool), scores, hidden)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    return function


@pytest.mark.parametrize("hidden", [-np.inf, -1e30, 0.5])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "groups"])
def test_attention_that_is_written_out(shape, hidden):
    check(written_out(hidden), *factors(shape))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, jnp.bfloat16])
def test_other_dtypes(dtype):
    if np.dtype(dtype).itemsize == 2:
        with jax.disable_jit():
            expected = np.asarray(written_out(-np.inf)(*factors("heads", dtype)), np.float32)
        found = np.asarray(jax.jit(written_out(-np.inf))(*factors("heads", dtype)), np.float32)
        np.testing.assert_allclose(found, expected, atol=2e-2)
    else:
        check(written_out(-np.inf), *factors("heads", dtype))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_dot_product_attention(shape, is_causal):
    check(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=is_causal), *factors(shape))


@pytest.mark.parametrize("shape", ["heads", "more keys", "one query", "groups"])
def test_masks_and_biases(shape):
    q, k, v = factors(shape)
    numbers = np.random.default_rng(1)
    mask = numbers.random((q.shape[0], q.shape[2], q.shape[1], k.shape[1])) < 0.5
    bias = numbers.standard_normal((1, q.shape[2], q.shape[1], k.shape[1]), np.float32)
    attention = jax.nn.dot_product_attention
    check(lambda q, k, v, mask, bias: attention(q, k, v, mask=mask, bias=bias), q, k, v, mask, bias)
    check(lambda q, k, v, bias: attention(q, k, v, bias=bias, scale=0.3), q, k, v, bias)
    check(lambda q, k, v, mask: attention(q, k, v, mask=mask), q, k, v, mask[:, :1])


def test_rows_without_a_visible_key():
    q, k, v = factors("heads")
    mask = np.arange(40)[:, None] > np.arange(40)

    def function(q, k, v, hidden):
        scores = jnp.where(mask, jnp.einsum("bqhd,bkhd->bhqk", q, k), hidden)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    assert np.isnan(check(lambda *given: function(*given, -jnp.inf), q, k, v)[:, 0]).all()
    found = check(lambda *given: function(*given, -1e30), q, k, v)
    np.testing.assert_allclose(found[:, 0], v.mean(1), atol=1e-5)


def test_gradients_and_probabilities_that_are_results():
    q, k, v = factors("heads")
    check(jax.grad(lambda q, k, v: written_out(-np.inf)(q, k, v).sum() ** 2 / 1000), q, k, v)

    def function(q, k, v):
        shares = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        return jnp.concatenate([shares.ravel(), jnp.einsum("bhqk,bkhd->bqhd", shares, v).ravel()])

    check(function, q, k, v)
