"""Programs that name JAX's CPU platform: its rules, its branches, functions that were exported for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_rule_of_the_cpu_is_used():
    primitive = Primitive("only_on_the_cpu")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 3, multiple_results=False), platform="cpu")
    np.testing.assert_array_equal(np.asarray(jax.jit(primitive.bind)(X)), X * 3)


def test_a_rule_of_another_platform_is_not_used():
    primitive = Primitive("only_on_a_gpu")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 3, multiple_results=False), platform="cuda")
    with pytest.raises(NotImplementedError, match="only_on_a_gpu"):
        jax.jit(primitive.bind)(X)


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        ({"cpu": 1, "cuda": 2}, 1),
        ({"cuda": 2, "cpu": 1}, 1),
        ({"cpu": 1, "default": 3}, 3),
        ({"cpu": 1, "headrace": 4}, 4),
        ({"cuda": 1, "headrace": 4, "default": 3}, 4),
    ],
    ids=str,
)
def test_branches_of_platforms(branches, expected):
    functions = {name: lambda x, k=k: x + k for name, k in branches.items()}
    got = jax.jit(lambda x: jax.lax.platform_dependent(x, **functions))(X)
    np.testing.assert_array_equal(np.asarray(got), X + expected)
    got = jax.jit(jax.vmap(lambda x: jax.lax.platform_dependent(x, **functions)))(X)
    np.testing.assert_array_equal(np.asarray(got), X + expected)


def test_branches_of_other_platforms_alone_are_an_error():
    with pytest.raises(NotImplementedError, match="platform_index"):
        jax.jit(lambda x: jax.lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.cos))(X)


@pytest.mark.parametrize("platforms", [["cpu"], ["tpu", "cpu"], ["cpu", "headrace"]], ids=str)
def test_a_function_that_was_exported_for_the_cpu(platforms):
    function = jax.jit(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(2, dtype=x.dtype)))
    exported = jax.export.export(function, platforms=platforms)(jax.ShapeDtypeStruct(X.shape, X.dtype))
    got = jax.jit(exported.call)(X)
    expected = np.linalg.cholesky(X @ X.T + np.eye(2, dtype=X.dtype))
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5)


def test_a_function_that_was_exported_for_a_gpu_is_an_error():
    exported = jax.export.export(jax.jit(jnp.sin), platforms=["cuda"])(jax.ShapeDtypeStruct(X.shape, X.dtype))
    with pytest.raises(ValueError, match="exported for platforms"):
        exported.call(X)
