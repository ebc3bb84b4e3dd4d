"""Networks and optimizers train as on TensorFlow's CPU device: 20 steps, whose losses agree to 1e-4.

Steps without functions and those of kernels agree with those of clusters to 1e-5. HEADRACE_SWEEP=all trains the large
networks, too, in f64 and with small steps: a change of 1e-6 of the images changes gradients of ResNet-50 by 0.2 % on
TensorFlow's CPU device, and its losses in f32 by a third after 20 steps of 1e-4.
"""

import os

import headrace_tensorflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

STEPS, EAGER_STEPS = 20, 5  # from the third step on eager updates are functions (eager_keras.py)
ALL = os.environ.get("HEADRACE_SWEEP") == "all"


@pytest.fixture(autouse=True)
def defaults():
    keras.backend.clear_session()
    tf.config.set_soft_device_placement(True)  # variables of int32 are the host's
    yield
    tf.config.set_soft_device_placement(False)
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    headrace_tensorflow.use_clusters(True)


def images(count=4, size=32, channels=3):
    return lambda numbers: numbers.random((count, size, size, channels), np.float32)


def rows(*dims):
    return lambda numbers: numbers.standard_normal(dims, np.float32)


def words(count=8, steps=12, different=30):
    return lambda numbers: numbers.integers(0, different, (count, steps), np.int32)


def mlp():
    return keras.Sequential([layers.Dense(64, "softplus"), layers.Dense(64, "relu"), layers.Dense(10)])


def cnn():
    return keras.Sequential(
        [layers.Conv2D(8, 3, activation="relu"), layers.BatchNormalization(), layers.MaxPooling2D(), layers.Dropout(0.2),
         layers.Conv2D(16, 3, 2, "same", activation="relu"), layers.Flatten(), layers.Dense(10)])  # fmt: skip


def recurrent(kind, wrap=lambda layer: layer):
    def build():
        cells = [wrap(kind(16, return_sequences=True)), wrap(kind(16))]
        return keras.Sequential([*cells, layers.Dense(10)])

    return build


def convlstm():
    return keras.Sequential(
        [layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True), layers.ConvLSTM2D(4, 3), layers.Flatten(),
         layers.Dense(10)])  # fmt: skip


def transformer():
    text = layers.Input((12,), dtype="int32")
    x = layers.Embedding(30, 16)(text) + layers.Embedding(12, 16)(keras.ops.arange(12))
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(2, 8, dropout=0.1)(normal, normal, use_causal_mask=True)
        x = x + layers.Dense(16)(layers.Dense(32, "gelu")(layers.LayerNormalization()(x)))
    return keras.Model(text, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def autoencoder():
    return keras.Sequential(
        [layers.Conv2D(8, 3, 2, "same", activation="relu"), layers.Flatten(), layers.Dense(16, "tanh"),
         layers.Dense(16 * 16 * 4, "relu"), layers.Reshape((16, 16, 4)),
         layers.Conv2DTranspose(3, 3, 2, "same", activation="sigmoid"), layers.Flatten(), layers.Dense(10)])  # fmt: skip


def unet():
    def block(x, count):
        for _ in range(2):
            x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(count, 3, padding="same")(x)))
        return x

    image = layers.Input((32, 32, 3))
    fine = block(image, 8)
    middle = block(layers.MaxPooling2D()(fine), 16)
    deep = block(layers.MaxPooling2D()(middle), 32)
    middle = block(layers.concatenate([middle, layers.Conv2DTranspose(16, 2, 2)(deep)]), 16)
    fine = block(layers.concatenate([fine, layers.UpSampling2D(interpolation="bilinear")(middle)]), 8)
    return keras.Model(image, layers.GlobalAveragePooling2D()(layers.Conv2D(10, 1)(fine)))


def convnext():
    """Keras' own has convolutions of groups, whose gradients TensorFlow's CPU device has in XLA alone."""
    image = layers.Input((32, 32, 3))
    x = layers.LayerNormalization()(layers.Conv2D(16, 4, 4)(image))
    for _ in range(2):
        normal = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(7, padding="same")(x))
        x = x + layers.Dense(16)(layers.Dense(64, "gelu")(normal)) * 0.1
    return keras.Model(image, layers.Dense(10)(layers.LayerNormalization()(layers.GlobalAveragePooling2D()(x))))


def augmented():
    return keras.Sequential(
        [layers.Rescaling(2.0, -1.0), layers.RandomFlip(seed=1), layers.RandomRotation(0.1, seed=2),
         layers.RandomZoom(0.2, seed=3), layers.RandomTranslation(0.1, 0.1, seed=4), layers.RandomContrast(0.2, seed=5),
         layers.RandomBrightness(0.1, (-1, 1), seed=6), layers.RandomCrop(28, 28, seed=7),
         layers.GaussianNoise(0.1, seed=8), layers.Conv2D(8, 3, 2, activation="relu"), layers.Flatten(),
         layers.Dense(10)])  # fmt: skip


def embeddings():
    return keras.Sequential([layers.Embedding(30, 8, mask_zero=True), layers.LSTM(8), layers.Dense(10)])


def application(name, **options):
    def build():
        return getattr(keras.applications, name)(
            weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None, **options
        )

    return build


NETWORKS = {
    "mlp": (mlp, rows(16, 40)),
    "cnn": (cnn, images()),
    "lstm": (recurrent(layers.LSTM), rows(8, 12, 6)),
    "gru": (recurrent(layers.GRU), rows(8, 12, 6)),
    "bidirectional": (recurrent(layers.LSTM, layers.Bidirectional), rows(8, 12, 6)),
    "convlstm": (convlstm, rows(2, 4, 10, 10, 2)),
    "transformer": (transformer, words()),
    "autoencoder": (autoencoder, images()),
    "unet": (unet, images()),
    "convnext": (convnext, images()),
    "augmentation": (augmented, images()),
    "embeddings": (embeddings, words()),
}
LARGE = {
    "resnet50": application("ResNet50"),
    "mobilenetv2": application("MobileNetV2", alpha=0.35),
    "efficientnetv2": application("EfficientNetV2B0"),
    "densenet": application("DenseNet121"),
}
OPTIMIZERS = "SGD RMSprop Adam AdamW Adagrad Nadam Ftrl Lion Adafactor Lamb".split()


def train(device, mode, build, x, y, optimizer, steps):
    """Losses and the trained weights."""
    headrace_tensorflow.use_clusters(mode == "cluster")
    keras.utils.set_random_seed(3)
    with tf.device(device):
        model = build()
        model.build(x.shape)
        optimizer = optimizer()
        optimizer.build(model.trainable_variables)
        measure = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = measure(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        step = step if mode == "eager" else tf.function(step)
        x, y = tf.constant(x), tf.constant(y)
        losses = [step(x, y).numpy() for _ in range(steps)]
        assert all(device in variable.value.device for variable in model.trainable_variables)
        return np.array(losses), [weight.numpy() for weight in model.trainable_variables]


def compare(build, data, optimizer):
    numbers = np.random.default_rng(0)
    x = data(numbers)
    y = numbers.integers(0, 10, len(x), np.int32)
    wanted, _ = train("CPU", "function", build, x, y, optimizer, STEPS)
    losses, weights = train("HEADRACE", "cluster", build, x, y, optimizer, STEPS)
    assert np.isfinite(losses).all() and losses[-1] != losses[0]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    for mode, steps in (("kernels", STEPS), ("eager", EAGER_STEPS)):
        others, trained = train("HEADRACE", mode, build, x, y, optimizer, steps)
        np.testing.assert_allclose(others, losses[:steps], rtol=1e-5, err_msg=mode)
        for value, want in zip(trained, weights, strict=True) if steps == STEPS else ():
            np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5, err_msg=mode)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    compare(*NETWORKS[name], lambda: keras.optimizers.SGD(1e-2))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    compare(mlp, rows(16, 40), getattr(keras.optimizers, name))


@pytest.mark.skipif("not ALL", reason="HEADRACE_SWEEP=all runs it")
@pytest.mark.parametrize("name", LARGE)
def test_large_networks(name):
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    compare(LARGE[name], images(8, 64), lambda: keras.optimizers.SGD(1e-6))
