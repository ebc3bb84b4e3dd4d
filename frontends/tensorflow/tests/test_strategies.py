"""Two devices: copies between them, and tf.distribute.MirroredStrategy. In a process of its own, whose environment
makes this machine two devices."""

import os
import subprocess
import sys

PROGRAMS = {
    "copies": """
import numpy as np, tensorflow as tf
tf.config.set_soft_device_placement(False)
for dtype in ("f4", "f8", "f2", "i1", "u1", "i8", "?", "c8", "c16"):
    x = (np.arange(70).reshape(7, 10) % 5).astype(dtype)
    with tf.device("/device:HEADRACE:0"):
        a = tf.reverse(tf.constant(x), [1])
    with tf.device("/device:HEADRACE:1"):
        b = tf.concat([tf.identity(a), tf.identity(a)], 0)
    with tf.device("/device:HEADRACE:0"):
        c = tf.identity(b)[1:]
    assert b.device.endswith("HEADRACE:1") and c.device.endswith("HEADRACE:0"), (b.device, c.device)
    assert np.array_equal(c.numpy(), np.concatenate([x[:, ::-1]] * 2)[1:]), dtype
with tf.device("/device:HEADRACE:0"):
    empty = tf.zeros((0, 3))
with tf.device("/device:HEADRACE:1"):
    assert tf.identity(empty).shape == (0, 3)
@tf.function
def both(x):
    with tf.device("/device:HEADRACE:0"):
        y = tf.tanh(x) * 2
    with tf.device("/device:HEADRACE:1"):
        z = tf.tanh(y) + 1
    with tf.device("/device:HEADRACE:0"):
        return z * y
x = np.linspace(-1, 1, 12, dtype="f4")
y = np.tanh(x) * 2
for _ in range(3):
    np.testing.assert_allclose(both(tf.constant(x)).numpy(), (np.tanh(y) + 1) * y, rtol=1e-6)
""",
    "fit": """
import contextlib, numpy as np, tensorflow as tf
def losses(scope):
    tf.keras.utils.set_random_seed(1)
    with scope:
        layers = [tf.keras.layers.Input((14, 14, 1)), tf.keras.layers.Conv2D(8, 3), tf.keras.layers.BatchNormalization(),
                  tf.keras.layers.ReLU(), tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(),
                  tf.keras.layers.Dense(10)]
        if not synchronized:
            layers.pop(2)
        model = tf.keras.Sequential(layers)
        model.compile(tf.keras.optimizers.Adam(1e-2), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    numbers = np.random.default_rng(0)
    data = numbers.standard_normal((64, 14, 14, 1)).astype("f4"), numbers.integers(0, 10, 64)
    return model.fit(tf.data.Dataset.from_tensor_slices(data).batch(32), epochs=3, verbose=0).history["loss"], model
strategy = tf.distribute.MirroredStrategy(["/device:HEADRACE:0", "/device:HEADRACE:1"])
synchronized = False
one, both = losses(contextlib.nullcontext())[0], losses(strategy.scope())
np.testing.assert_allclose(both[0], one, rtol=1e-5)
weights = both[1].trainable_variables[0].value.values
assert [value.device[-10:] for value in weights] == ["HEADRACE:0", "HEADRACE:1"]
np.testing.assert_array_equal(weights[0].numpy(), weights[1].numpy())
synchronized = True  # each device has its own batch statistics: the losses differ from those of one device
assert np.isfinite(losses(strategy.scope())[0]).all()
""",
    "reductions": """
import numpy as np, tensorflow as tf
strategy = tf.distribute.MirroredStrategy(["/device:HEADRACE:0", "/device:HEADRACE:1"])
@tf.function
def step(dtype, kind, size):
    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        value = tf.cast(tf.range(size), dtype) + tf.cast(number + 1, dtype)
        return tf.distribute.get_replica_context().all_reduce(kind, value)
    return strategy.run(replica)
for dtype in (tf.float32, tf.float64, tf.float16):
    for size in (1, 3, 1000):
        for kind, want in (("SUM", 2 * np.arange(size) + 3), ("MEAN", np.arange(size) + 1.5)):
            for value in step(dtype, kind, size).values:
                np.testing.assert_allclose(value.numpy(), want.astype(dtype.as_numpy_dtype), rtol=1e-6)
""",
}


def run(name):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name]],
        env=os.environ | {"HEADRACE_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_values_are_copied_between_devices():
    run("copies")


def test_a_mirrored_network_has_the_losses_of_one_device():
    run("fit")


def test_devices_reduce_their_values():
    run("reductions")
