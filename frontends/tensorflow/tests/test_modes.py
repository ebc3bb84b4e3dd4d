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


def run(**settings):
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True).stdout


def test_bits_do_not_depend_on_the_mode():
    fused = run(HEADRACE_MODE="fuse")
    assert fused == run(HEADRACE_MODE="strict")
    assert fused == run(HEADRACE_MODE="fuse", HEADRACE_THREADS="1", HEADRACE_JIT="off")
