"""Programs as data: their costs, their text, as bytes, for a topology, and options that are unknown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable, topologies

X, W = np.ones((8, 3), np.float32), np.ones((3, 4), np.float32)


def compiled():
    return jax.jit(lambda x, w: jnp.exp(x @ w)).lower(X, W).compile()


def test_costs():
    costs = compiled().cost_analysis()
    assert (costs["flops"], costs["transcendentals"]) == (2 * 8 * 3 * 4, 8 * 4)
    assert costs["bytes accessed"] == 4 * (8 * 3 + 3 * 4 + 8 * 4)


def test_memory():
    memory = compiled().memory_analysis()
    assert memory.argument_size_in_bytes == 4 * (8 * 3 + 3 * 4)
    assert memory.output_size_in_bytes == 4 * 8 * 4


def test_text_names_the_operations():
    text = compiled().as_text()
    assert "f32[8,4]" in text and "exponential" in text and "dot" in text


def test_a_program_is_serialized_and_read():
    data = serialize_executable.serialize(compiled())
    got = serialize_executable.deserialize_and_load(*data)(X, W)
    np.testing.assert_allclose(np.asarray(got), np.exp(X @ W), rtol=1e-5)


def test_layouts_are_row_major_unless_others_are_wanted():
    x = jax.device_put(X)
    assert x.format.layout.major_to_minor == (0, 1)
    assert compiled().output_formats.layout.major_to_minor == (0, 1)


def test_a_topology_has_the_devices():
    topology = topologies.get_topology_desc(platform="headrace", topology_name="here")
    assert [str(device) for device in topology.devices] == [str(device) for device in jax.devices()]


def test_options_that_are_unknown_are_refused():
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'bogus'"):
        jax.jit(lambda x: x + 1, compiler_options={"bogus": 1})(X)
    got = jax.jit(lambda x: x + 1, compiler_options={"xla_embed_ir_in_executable": True})(X)
    np.testing.assert_array_equal(np.asarray(got), X + 1)


def test_an_argument_is_not_donated_and_used_at_once():
    x = jax.device_put(np.ones(10, np.float32))
    with pytest.raises(RuntimeError, match="donate a buffer"):
        jax.jit(lambda x, y: x + y, donate_argnums=0)(x, x)
    np.testing.assert_array_equal(np.asarray(x), np.ones(10, np.float32))
