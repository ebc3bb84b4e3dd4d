"""Trains a convolutional network on real images with Keras, on TensorFlow's CPU device and then on Headrace, and
compares the two.

Both start from the same weights, and see the same batches and the same dropout in the same order. Keras' `fit` trains;
the time of a step is that of its training function, with the copy of the batch and the reading of the loss. The images
are scikit-learn's digits. Writes demo-tensorflow.png.
"""

import argparse
import contextlib
import os
import sys
import time

from demo_output import Progress, Run, draw, positive, print_table
from digits import batches, load_digits

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads both at its first import
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402


def main() -> int:
    arguments = parse()
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        os.environ.setdefault("HEADRACE_THREADS", str(arguments.threads))
    try:
        devices = [open_device(name) for name in arguments.devices.split(",")]
        data = load_digits()
    except (ImportError, RuntimeError) as error:
        print(f"demo-tensorflow: {error}", file=sys.stderr)
        return 2
    steps = max(1, arguments.epochs * len(data.train) // arguments.batch)
    with tf.device("CPU"):
        start = cnn(arguments.seed)
    print(f"data      scikit-learn's digits: {len(data.train):,} images to train, {len(data.test):,} to test")
    count = start.count_params()
    print(f"network   {count:,} parameters; batch {arguments.batch}, Adam {arguments.lr:g}; {steps} steps")

    runs = [train(device, start.get_weights(), data, steps, arguments) for device in devices]
    print()
    print_table(runs)
    if arguments.output:
        print(f"\nwrote {draw(runs, 'digits with Keras', arguments.output)}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--devices", default="CPU,HEADRACE", metavar="A,B", help="TensorFlow's devices in turn (default %(default)s)")
    add("--epochs", type=positive, default=32, help="passes over the training images (default %(default)s)")
    add("--batch", type=positive, default=512, help="images a step (default %(default)s)")
    add("--lr", type=float, default=3e-4, help="Adam's learning rate (default %(default)s)")
    add("--seed", type=int, default=0, help="of weights, batches and dropout (default %(default)s)")
    add("--threads", type=positive, help="threads of both devices (default: all cores)")
    add("--xla", action="store_true", help="compile the CPU device's step with XLA, whose dropout differs")
    output = "demo-tensorflow.png"
    add("--output", default=output, metavar="FILE", help="the picture; '' for none (default %(default)s)")
    return parser.parse_args()


def open_device(name: str) -> str:
    name = name.strip().upper()
    if tf.config.list_physical_devices(name):
        return name
    if name != "HEADRACE":
        found = ", ".join(device.device_type for device in tf.config.list_physical_devices())
        raise RuntimeError(f"TensorFlow has no device {name}, but {found}")
    raise RuntimeError(
        "TensorFlow has no device HEADRACE. `make demo-tensorflow` builds it; elsewhere, run `pip install .` and then "
        "`pip install ./frontends/tensorflow` in the repository. `--devices CPU` trains on the CPU device alone."
    )


def cnn(seed: int, channels=(20, 50, 100)) -> keras.Model:
    """Three times 5x5 convolution, ReLU, 2x2 max pooling; then n -> n/2 -> n/4 -> scores of ten classes."""
    keras.utils.set_random_seed(seed)  # of weights and dropout
    layers = keras.layers
    model = keras.Sequential([layers.Input((28, 28, 1))])
    for count in channels:
        model.add(layers.Conv2D(count, 5, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    n = model.output_shape[-1]
    for units in (n // 2, n // 4):
        model.add(layers.Dense(units, activation="relu"))
        model.add(layers.Dropout(0.3))
    model.add(layers.Dense(10))
    return model


class Watch(keras.callbacks.Callback):
    """Notes the loss and the time of each step of `fit`."""

    def __init__(self, run: Run, steps: int):
        super().__init__()
        self.run, self.progress = run, Progress(run.name, steps)

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()  # the loss of `logs` is the mean since then
        self.before = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.run.losses.append(float(logs["loss"]))
        self.run.seconds.append(time.perf_counter() - self.before)
        self.progress.show(len(self.run.losses), self.run.losses[-1], self.run.median)


def train(device: str, weights: list, data, steps: int, arguments) -> Run:
    """Trains from the weights. Variables are created on HEADRACE by themselves; only the CPU needs a scope."""
    run = Run(device)
    order = batches(len(data.train), arguments.batch, steps, arguments.seed)
    pairs = ((data.train[index], data.train_classes[index]) for index in order)
    with contextlib.nullcontext() if device == "HEADRACE" else tf.device(device):
        model = cnn(arguments.seed)
        model.set_weights(weights)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        xla = arguments.xla and device != "HEADRACE"
        model.compile(keras.optimizers.Adam(arguments.lr), loss, jit_compile=xla)
        model.fit(pairs, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[Watch(run, steps)])
        answers = model.predict(data.test, batch_size=arguments.batch, verbose=0).argmax(1)
    run.accuracy = float((answers == data.test_classes).mean())
    return run


if __name__ == "__main__":
    sys.exit(main())
