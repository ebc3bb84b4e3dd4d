"""jax.experimental.buffer_callback: the memory of operands and results, effects, failures."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.buffer_callback import ExecutionStage, buffer_callback

DTYPES = ["bool", "int8", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
DTYPES = [np.dtype(name) for name in DTYPES] + [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.int4)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 2)], ids=str)
def test_results_are_written_in_place(dtype, shape):
    def copy(context, out, x):
        assert context.stage == ExecutionStage.EXECUTE
        assert (x.shape, x.dtype, x.ndim, x.writeable) == (shape, dtype, len(shape), False)
        assert (out.shape, out.dtype, out.writeable) == (shape, dtype, True)
        np.asarray(out)[...] = np.asarray(x)

    x = np.ones(shape, dtype)
    got = jax.jit(buffer_callback(copy, jax.ShapeDtypeStruct(shape, dtype)))(x)
    np.testing.assert_array_equal(np.asarray(got), x)


def test_trees_of_views_and_keywords():
    def split(context, out, pair, *, factor):
        np.asarray(out["sum"])[...] = np.asarray(pair[0]) + np.asarray(pair[1])
        np.asarray(out["scaled"])[...] = np.asarray(pair[0]) * np.asarray(factor)

    like = jax.ShapeDtypeStruct((4, 3), np.float32)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = jax.jit(lambda x: buffer_callback(split, {"sum": like, "scaled": like})((x.T, x.T + 1), factor=x[0, 2]))(x)
    np.testing.assert_array_equal(np.asarray(got["sum"]), 2 * x.T + 1)
    np.testing.assert_array_equal(np.asarray(got["scaled"]), 2 * x.T)


def test_an_aliased_operand_is_the_result():
    def add_one(context, out, x, y):
        assert np.asarray(out).ctypes.data == np.asarray(y).ctypes.data != np.asarray(x).ctypes.data
        np.asarray(out)[...] += 1

    x = jnp.arange(5.0)
    got = buffer_callback(add_one, jax.ShapeDtypeStruct((5,), x.dtype), input_output_aliases={1: 0})(x, x * 2)
    np.testing.assert_array_equal(np.asarray(got), 2 * np.arange(5.0) + 1)
    np.testing.assert_array_equal(np.asarray(x), np.arange(5.0))


def test_dlpack_and_copies():
    seen = []

    def look(context, out, x):
        seen.append(np.from_dlpack(x).copy())
        assert np.from_dlpack(out).ctypes.data == np.asarray(out).ctypes.data
        assert np.array(x, copy=True).ctypes.data != np.asarray(x).ctypes.data
        with pytest.raises(ValueError):
            np.asarray(x)[...] = 0
        np.asarray(out)[...] = np.asarray(x, dtype=np.float64)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = buffer_callback(look, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    np.testing.assert_array_equal(np.asarray(got), x)
    np.testing.assert_array_equal(seen[0], x)


def test_effects_run_without_a_use_and_in_order():
    seen = []
    none = jax.ShapeDtypeStruct((), np.float32)

    @jax.jit
    def function(x):
        for k in range(3):
            buffer_callback(lambda context, out, x, k=k: seen.append((k, float(np.asarray(x)))), none,
                            has_side_effect=True)(x + k)
        return x

    jax.block_until_ready(function(np.float32(1)))
    jax.effects_barrier()
    assert seen == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_failures_are_those_of_the_call():
    like = jax.ShapeDtypeStruct((2,), np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="must not return"):
        jax.block_until_ready(buffer_callback(lambda context, out: 1, like)())
    with pytest.raises(jax.errors.JaxRuntimeError, match="GPU context is not available"):
        jax.block_until_ready(buffer_callback(lambda context, out: context.stream, like)())
