"""Mixed precision with Keras' LossScaleOptimizer: steps read nothing, and have the bits of Keras' own branches."""

import contextlib

import headrace_tensorflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.optimizers import loss_scale_optimizer

INNER = {
    "Adam": keras.optimizers.Adam,
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0),
    "Nadam": keras.optimizers.Nadam,  # has a variable that its list lacks
}


@pytest.fixture(autouse=True)
def half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def build(inner, layers=()):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([*layers, keras.layers.Dense(16, "relu"), keras.layers.Dense(10, dtype="float32")])
    model.build((8, 12))
    optimizer = keras.optimizers.LossScaleOptimizer(inner(), dynamic_growth_steps=3)
    optimizer.build(model.trainable_variables)
    measure = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(measure(y, model(x, training=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, optimizer, model


def train(inner, layers=(), x=None):
    """The variables after each step. Gradients are not finite in the fifth and the sixth."""
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((8, 12), np.float32) if x is None else x
    y = tf.constant(numbers.integers(0, 10, 8))
    step, optimizer, model = build(inner, layers)
    found = []
    for i in range(10):
        if i in (4, 5):
            model.trainable_variables[-1].assign(np.full(10, np.nan, "float32"))
        step(tf.constant(x), y)
        if i in (4, 5):
            model.trainable_variables[-1].assign(np.zeros(10, "float32"))
        found.append([value.numpy() for value in [*model.trainable_variables, *optimizer.variables]])
    return found


@contextlib.contextmanager
def branches_of_keras(monkeypatch):
    """Without the change: a subclass is the program's own."""
    with monkeypatch.context() as patch:
        kind = type("Optimizer", (loss_scale_optimizer.LossScaleOptimizer,), {})
        patch.setattr(keras.optimizers, "LossScaleOptimizer", kind)
        yield


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])  # of the latter, gradients are float16, too
@pytest.mark.parametrize("name", INNER)
def test_bits_are_those_of_branches(name, policy, monkeypatch):
    keras.config.set_dtype_policy(policy)
    found = train(INNER[name])
    with branches_of_keras(monkeypatch):
        wanted = train(INNER[name])
    for values, others in zip(found, wanted, strict=True):
        for value, other in zip(values, others, strict=True):
            np.testing.assert_array_equal(value, other)
    scale = next(i for i, value in enumerate(found[0]) if value.shape == () and value == 32768)
    assert [values[scale] / 32768 for values in found] == [1, 1, 2, 2, 1, 0.5, 0.5, 0.5, 1, 1]


def test_steps_read_nothing():
    step, _, _ = build(keras.optimizers.Adam)
    x, y = tf.ones((8, 12)), tf.constant(np.arange(8))
    for _ in range(3):
        step(x, y)
    float(step(x, y))
    headrace_tensorflow.reset_stats()
    for _ in range(5):
        step(x, y)
    counters = headrace_tensorflow.stats()
    assert counters["commits_by_read"] == counters["bytes_copied_out"] == 0


def test_rows_of_an_embedding_stay_branches():
    """Their updates are of some rows alone."""
    rows = np.random.default_rng(0).integers(0, 9, (8, 12))
    found = train(keras.optimizers.SGD, [keras.layers.Embedding(9, 4), keras.layers.Flatten()], rows)
    assert all(np.isfinite(value).all() for value in found[-1])
