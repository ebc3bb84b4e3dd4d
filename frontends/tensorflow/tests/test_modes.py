"""Training has the same bits in each mode, and with one thread."""

import os
import subprocess
import sys

PROGRAM = """
import hashlib
import keras
import numpy as np

rng = np.random.default_rng(0)
x, y = rng.normal(size=(64, 40)).astype("float32"), rng.integers(0, 10, 64)
keras.utils.set_random_seed(3)
layers = keras.layers
model = keras.Sequential(
    [layers.Input((40,)), layers.Dense(32, "gelu"), layers.LayerNormalization(), layers.Dropout(0.2),
     layers.Dense(10, "softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
print(hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest())
"""

OTHERS = """
import hashlib
import numpy as np
import tensorflow as tf

tf.config.set_soft_device_placement(False)
rng = np.random.default_rng(0)
image, deep = rng.normal(size=(2, 9, 10, 3)).astype("float32"), rng.normal(size=(2, 5, 6, 7, 3)).astype("float32")
results = []
with tf.device("HEADRACE"):
    image, deep = tf.Variable(image), tf.Variable(deep)
    kernel = tf.Variable(rng.normal(size=(3, 3, 3, 3, 4)).astype("float32"))
    with tf.GradientTape() as tape:
        turned = tf.raw_ops.ImageProjectiveTransformV3(
            images=image, transforms=tf.constant([[0.9, 0.3, -1.3, -0.2, 1.1, 0.6, 0.01, -0.02]]), output_shape=[9, 10],
            fill_value=0.5, interpolation="BILINEAR", fill_mode="REFLECT")
        larger = tf.image.resize(turned, [13, 21])
        planes = tf.nn.avg_pool3d(tf.nn.conv3d(deep, kernel, [1, 2, 1, 1, 1], "SAME"), 3, 2, "SAME")
        loss = tf.reduce_sum(larger**2) + tf.reduce_sum(tf.nn.max_pool3d(planes, 2, 1, "VALID") ** 3)
    results += [turned, larger, planes, loss, *tape.gradient(loss, [image, deep, kernel])]
    results += [tf.scatter_nd([[1], [3], [1]], image[0, :3, 0], [5, 3]), tf.linalg.diag_part(image[..., 0], k=(-2, 3))]
    slots = [tf.Variable(tf.ones_like(kernel)) for _ in range(2)]
    tf.raw_ops.ResourceApplyFtrl(var=kernel.handle, accum=slots[0].handle, linear=slots[1].handle, grad=results[-3],
                                 lr=0.1, l1=0.1, l2=0.2, lr_power=-0.5)
    results += [kernel, *slots]
print(hashlib.sha256(b"".join(result.numpy().tobytes() for result in results)).hexdigest())
"""


def run(program=PROGRAM, **settings):
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True).stdout


def test_bits_do_not_depend_on_the_mode():
    fused = run(HEADRACE_MODE="fuse")
    assert fused == run(HEADRACE_MODE="strict")
    assert fused == run(HEADRACE_MODE="fuse", HEADRACE_THREADS="1", HEADRACE_JIT="off")


def test_bits_of_images_and_optimizers():
    fused = run(OTHERS, HEADRACE_MODE="fuse")
    assert fused == run(OTHERS, HEADRACE_MODE="strict")
    assert fused == run(OTHERS, HEADRACE_MODE="fuse", HEADRACE_THREADS="1", HEADRACE_JIT="off")
