"""Files of one device on another one: .keras, weights, SavedModels and checkpoints with the optimizer's state."""

import numpy as np
import pytest
import tensorflow as tf

WAYS = [("CPU", "HEADRACE"), ("HEADRACE", "CPU"), ("HEADRACE", "HEADRACE")]
X = np.random.default_rng(1).normal(size=(32, 8, 8, 2)).astype("float32")
Y = np.random.default_rng(2).integers(0, 5, 32)


@pytest.fixture(autouse=True)
def soft_placement():
    """Files are read and written by operations of the host."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


def network():
    tf.keras.utils.set_random_seed(3)
    layers = [tf.keras.layers.Input((8, 8, 2)), tf.keras.layers.Conv2D(4, 3, activation="relu"),
              tf.keras.layers.BatchNormalization(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(5)]  # fmt: skip
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.Adam(1e-2), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(model, epochs=1):
    return model.fit(X, Y, batch_size=16, epochs=epochs, shuffle=False, verbose=0).history["loss"]


def check(model, prediction, losses, device):
    """The loaded model predicts the same, and goes on as the saved one does."""
    assert all(device in variable.value.device for variable in model.variables if variable.dtype == "float32")
    np.testing.assert_allclose(model.predict(X, verbose=0), prediction, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(train(model, 2), losses, rtol=1e-4)


@pytest.mark.parametrize(("writer", "reader"), WAYS)
def test_keras_files(writer, reader, tmp_path):
    path = tmp_path / "model.keras"
    with tf.device(writer):
        model = network()
        train(model)
        model.save(path)
        prediction, losses = model.predict(X, verbose=0), train(model, 2)
    with tf.device(reader):
        check(tf.keras.models.load_model(path), prediction, losses, reader)


@pytest.mark.parametrize(("writer", "reader"), WAYS)
def test_weights(writer, reader, tmp_path):
    path = tmp_path / "model.weights.h5"
    with tf.device(writer):
        model = network()
        train(model)
        model.save_weights(path)
        prediction = model.predict(X, verbose=0)
    with tf.device(reader):
        model = network()
        model.load_weights(path)
        np.testing.assert_allclose(model.predict(X, verbose=0), prediction, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("writer", "reader"), WAYS)
def test_checkpoints(writer, reader, tmp_path):
    with tf.device(writer):
        model = network()
        train(model)
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "step"))
        prediction, losses = model.predict(X, verbose=0), train(model, 2)
    with tf.device(reader):
        model = network()
        model.optimizer.build(model.trainable_variables)
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(path).assert_existing_objects_matched()
        check(model, prediction, losses, reader)


@pytest.mark.parametrize(("writer", "reader"), WAYS)
def test_saved_models(writer, reader, tmp_path):
    with tf.device(writer):
        model = network()
        train(model)
        model.export(tmp_path / "model", verbose=False)
        prediction = model.predict(X, verbose=0)
    with tf.device(reader):
        loaded = tf.saved_model.load(str(tmp_path / "model"))
        served = loaded.serve(tf.constant(X))
        assert reader in served.device
        np.testing.assert_allclose(served.numpy(), prediction, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("writer", "reader"), WAYS)
def test_saved_models_of_modules(writer, reader, tmp_path):
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.total = tf.Variable([1.0, 2.0])

        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def add(self, x):
            self.total.assign_add(tf.reduce_sum(x, 0))
            return self.total * 2.0

    with tf.device(writer):
        module = Counter()
        module.add(tf.ones([3, 2]))
        tf.saved_model.save(module, str(tmp_path / "module"))
    with tf.device(reader):
        loaded = tf.saved_model.load(str(tmp_path / "module"))
        assert loaded.add(tf.ones([1, 2])).numpy().tolist() == [10, 12]
        assert reader in loaded.total.device
