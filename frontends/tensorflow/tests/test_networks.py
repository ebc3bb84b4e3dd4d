"""Keras trains on the device as on TensorFlow's CPU device: the losses of each epoch agree to 1e-4."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def soft_placement():
    """Datasets and iterators are TensorFlow's, on the host."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


def train(device, build, optimizer, x, y, eager):
    keras.utils.set_random_seed(3)
    with tf.device("CPU") if device == "CPU" else contextlib.nullcontext():
        model = build()
        model.compile(optimizer(), "sparse_categorical_crossentropy", run_eagerly=eager, jit_compile=False)
        history = model.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0).history
        assert all(device in variable.value.device for variable in model.trainable_variables)
        return history["loss"], model.predict(x, verbose=0)


def compare(build, optimizer, x, y, eager):
    losses, outputs = train("CPU", build, optimizer, x, y, eager)
    ours, answers = train("HEADRACE", build, optimizer, x, y, eager)
    np.testing.assert_allclose(ours, losses, rtol=1e-4)
    np.testing.assert_allclose(answers, outputs, rtol=1e-3, atol=1e-4)


def mlp():
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((40,)), layers.Dense(32, "relu"), layers.Dense(32, "softplus"), layers.Dense(10, "softmax")]
    )


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
}


@pytest.mark.parametrize(
    ("name", "eager"), [("sgd", True), ("adam", True), *((name, False) for name in OPTIMIZERS if name != "sgd")]
)
def test_mlp(name, eager):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(128, 40)).astype("float32"), rng.integers(0, 10, 128)
    compare(mlp, OPTIMIZERS[name], x, y, eager)


def test_dropout_has_the_same_bits():
    def build():
        layers = keras.layers
        return keras.Sequential(
            [layers.Input((40,)), layers.Dense(32, "relu"), layers.Dropout(0.3), layers.Dense(10, "softmax")]
        )

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(128, 40)).astype("float32"), rng.integers(0, 10, 128)
    compare(build, OPTIMIZERS["adam"], x, y, False)


def cnn():
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((12, 12, 1)),
            layers.Conv2D(8, 3, activation="relu", padding="same"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.AveragePooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(10, "softmax"),
        ]
    )


def test_cnn():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(128, 12, 12, 1)).astype("float32"), rng.integers(0, 10, 128)
    compare(cnn, OPTIMIZERS["adam"], x, y, False)


def embedding():
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((6,)), layers.Embedding(20, 8), layers.LSTM(8), layers.Dense(10, "softmax")]
    )


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_embedding_and_lstm(name):
    rng = np.random.default_rng(0)
    compare(embedding, OPTIMIZERS[name], rng.integers(0, 20, (64, 6)), rng.integers(0, 10, 64), False)


def test_default_of_keras_asks_for_xla():
    """The mark is removed, so that `fit` runs; TensorFlow has no XLA for the device."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 40)).astype("float32"), rng.integers(0, 10, 64)
    model = mlp()
    model.compile("adam", "sparse_categorical_crossentropy")
    assert model.jit_compile
    losses = model.fit(x, y, epochs=2, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert model.predict(x, verbose=0).shape == (64, 10)
