"""Networks of the examples train on the device as on JAX's CPU backend: twelve steps, the same weights and dropout."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
STEPS = 12


def losses(name):
    import jax

    sys.path.insert(0, str(ROOT / "examples"))
    import jax_networks as networks

    numbers = np.random.default_rng(0)
    if name == "cnn":
        parameters, loss = networks.cnn_parameters(channels=(4, 6, 8)), networks.cnn_loss
        batch = numbers.standard_normal((16, 28, 28, 1), np.float32), numbers.integers(0, 10, 16, np.int32)
    elif name == "mlp":
        parameters, loss = networks.mlp_parameters((64, 32, 10)), networks.mlp_loss
        batch = numbers.standard_normal((16, 64), np.float32), numbers.integers(0, 10, 16, np.int32)
    else:
        config = networks.GPTConfig(layers=2, width=48, heads=12, vocabulary=50, context=16)
        parameters, loss = networks.gpt_parameters(config), networks.gpt_loss
        batch = (numbers.integers(0, 50, (2, 17), np.int32),)
    with jax.enable_x64(False):
        parameters = jax.tree.map(jax.numpy.array, parameters)
        state, step, found = networks.adam_start(parameters), networks.training_step(loss), []
        for _ in range(STEPS):
            parameters, state, value = step(parameters, state, jax.random.key(1), *batch)
            found.append(float(value))
    return found


@pytest.mark.parametrize("name", ["cnn", "mlp", "gpt"])
def test_losses_are_those_of_the_cpu_backend(name):
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, __file__, name], env=environment, capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout)
    assert len(expected) == STEPS and expected[-1] < expected[0]
    np.testing.assert_allclose(losses(name), expected, atol=1e-4)


def test_the_program_of_the_page():
    """docs/jax.md fits a line to weights that are known."""
    import jax

    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/jax.md").read_text(), re.DOTALL)
    names = {}
    with jax.enable_x64(False):
        exec(program, names)
    np.testing.assert_allclose(np.asarray(names["weights"]).ravel(), [1, -2, 3], atol=1e-4)
    assert float(names["loss"]) < 1e-6


if __name__ == "__main__":
    print(json.dumps(losses(sys.argv[1])))
