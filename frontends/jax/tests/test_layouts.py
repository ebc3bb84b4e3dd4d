"""Layouts of arrays in memory: orders of dims that a program or device_put chooses (jax.experimental.layout)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

DTYPES = ("bool", "int8", "uint8", "int4", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128", "float8_e4m3fn")


def layout(*order):
    return Format(Layout(order), SingleDeviceSharding(jax.devices()[0]))


def order_of(x):
    return x.format.layout.major_to_minor


def numbers(shape, dtype="float32"):
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(jnp.dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 4, 1), (0, 4, 2), (2, 1, 3)])
def test_elements_are_those_of_the_host(shape, dtype):
    x = numbers(shape, dtype)
    for order in ((2, 1, 0), (0, 2, 1), (1, 0, 2), (0, 1, 2)):
        made = jax.device_put(x, layout(*order))
        assert order_of(made) == order
        np.testing.assert_array_equal(np.asarray(made), x)
        back = jax.device_put(made, layout(0, 1, 2))
        assert order_of(back) == (0, 1, 2)
        np.testing.assert_array_equal(np.asarray(back), x)


def test_strided_arrays_of_the_host_get_a_layout():
    base = numbers((40, 60, 7))
    for x in (base.T, base[::-1, ::2], base.transpose(1, 0, 2)[:, 3:9], np.broadcast_to(base[:, :1], (40, 5, 7))):
        made = jax.device_put(x, layout(1, 2, 0))
        np.testing.assert_array_equal(np.asarray(made), x)


def test_programs_compute_with_arguments_of_any_order():
    x, y = numbers((33, 65)), numbers((65, 33))
    p, q = jax.device_put(x, layout(1, 0)), jax.device_put(y, layout(1, 0))
    for f in (lambda x, y: x + y.T, lambda x, y: x @ y, lambda x, y: x.sum(0) + y.sum(1), lambda x, y: (x, y.T)):
        for result, wanted in zip(jax.tree.leaves(jax.jit(f)(p, q)), jax.tree.leaves(jax.jit(f)(x, y))):
            np.testing.assert_array_equal(np.asarray(result), np.asarray(wanted))


def test_results_have_the_stated_order():
    x = numbers((5, 6, 7))
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        made = jax.jit(lambda x: x * 2, out_shardings=layout(*order))(x)
        assert order_of(made) == order
        np.testing.assert_array_equal(np.asarray(made), x * 2)
        np.testing.assert_array_equal(np.asarray(made[1:, :, 2]), x[1:, :, 2] * 2)
    tokens = jax.jit(lambda x: (x.sum(), 3.0, x[:0]), out_shardings=(layout(), layout(), layout(2, 1, 0)))(x)
    assert float(tokens[0]) == x.sum() and tokens[2].shape == (0, 6, 7)


def test_a_transpose_that_may_have_any_order_has_that_of_a_view():
    x = jax.device_put(numbers((64, 128)))
    compiled = jax.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO)).lower(x).compile()
    made = compiled(x)
    assert order_of(made) == compiled.output_formats.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(np.asarray(made), np.asarray(x).T)
    twice = jax.jit(lambda x: (x * 2).transpose(1, 2, 0).transpose(1, 2, 0), out_shardings=Format(Layout.AUTO))
    x = numbers((2, 3, 4))
    assert order_of(twice(x)) == (1, 2, 0)
    np.testing.assert_array_equal(np.asarray(twice(x)), (x * 2).transpose(2, 0, 1))


def test_donated_arguments_of_any_order():
    x = numbers((128, 256))
    step = jax.jit(lambda x: x * x + 1, donate_argnums=0, in_shardings=layout(1, 0), out_shardings=layout(1, 0))
    held = jax.device_put(x, layout(1, 0))
    made = step(held)
    assert held.is_deleted() and order_of(made) == (1, 0)
    np.testing.assert_array_equal(np.asarray(made), x * x + 1)


def test_others_see_the_elements_in_their_order():
    x = numbers((3, 4))
    made = jax.device_put(x, layout(1, 0))
    np.testing.assert_array_equal(np.from_dlpack(made), x)
    np.testing.assert_array_equal(np.asarray(jnp.array(made, copy=True)), x)
    np.testing.assert_array_equal(np.asarray(jax.lax.bitcast_convert_type(made, jnp.int32)), x.view(np.int32))
    np.testing.assert_array_equal(jax.pure_callback(lambda x: np.asarray(x) + 1, made, made), x + 1)


def test_layouts_with_tiles_are_refused():
    tiled = Format(Layout((0, 1), ((8, 128),)), SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(jax.errors.JaxRuntimeError, match="tiles"):
        jax.block_until_ready(jax.jit(lambda x: x * 2, out_shardings=tiled)(numbers((8, 128))))
