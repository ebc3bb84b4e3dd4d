#!/usr/bin/env python3
"""Keras and TensorFlow on Headrace beside TensorFlow's CPU device: the same programs, the same numbers.

    python bench/tensorflow_cases.py [--cases cnn-train,lstm-train] [--threads 1] [--rounds 7] [--json FILE]
    python bench/tensorflow_cases.py --sides headrace-eager,eager --cases mlp-train

Sides: "headrace" and "graph" (the CPU device) run `tf.function`s, "xla" those with jit_compile=True on the CPU device,
"headrace-eager" and "eager" the same programs without functions. Each side is a process of its own with as many cores
as threads. Sides work in turn, a burst each, and the table has medians of the bursts; calls end when the host has read
the result, of training the loss. Ratios are times of the CPU device's faster side divided by Headrace's. `first` is the
CPU time of the first call, with tracing and compilation and a cold disk cache; `peak` the growth of the resident memory
from TensorFlow's import to its peak. `difference` compares results with those of the first other side: the largest
difference, divided by the standard deviation; of training the largest difference of the losses of the first 12 steps.

Needs tensorflow 2.19.1, and the plug-in: an installed headrace-tensorflow, or TF_PLUGGABLE_DEVICE_LIBRARY_PATH.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import numpy as np
import sides

SIDES = ("headrace", "graph", "xla", "headrace-eager", "eager")
LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
STEPS = 12
EAGER_SUMS = 100


def is_headrace(side):
    return side.startswith("headrace")


def function(side, body):
    """The side's form of a Python function."""
    import tensorflow as tf

    return body if side.endswith("eager") else tf.function(body, jit_compile=True if side == "xla" else None)


# ---- cases: each gives a function without arguments that ends when the host has its result


class Training:
    """Steps of an optimizer on one batch. A step may be a concrete function, without Python's part of a call."""

    def __init__(self, side, model, x, classes, optimizer="Adam", concrete=False):
        import keras
        import tensorflow as tf

        optimizer = getattr(keras.optimizers, optimizer)(1e-4)
        optimizer.build(model.trainable_variables)
        measure = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def body(x, classes):
            with tf.GradientTape() as tape:
                loss = measure(classes, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        self.step, self.batch, self.losses = function(side, body), (tf.constant(x), tf.constant(classes)), []
        if concrete and hasattr(self.step, "get_concrete_function"):
            self.step = self.step.get_concrete_function(*self.batch)

    def __call__(self):
        loss = self.step(*self.batch).numpy()
        if len(self.losses) < STEPS:
            self.losses.append(float(loss))
        return loss


def calls(side, body, *arguments):
    import tensorflow as tf

    step, arguments = function(side, body), [tf.constant(argument) for argument in arguments]
    return lambda: step(*arguments).numpy()


def inference(side, model, x):
    return calls(side, lambda x: model(x, training=False), x)


def images(count):
    numbers = np.random.default_rng(1)
    return numbers.standard_normal((count, 28, 28, 1), np.float32), numbers.integers(0, 10, count, np.int32)


def cnn():
    import demo_tensorflow

    return demo_tensorflow.cnn(0)


def perceptron(sizes, activation):
    import keras

    hidden = [keras.layers.Dense(size, activation) for size in sizes[1:-1]]
    return keras.Sequential([keras.layers.Input((sizes[0],)), *hidden, keras.layers.Dense(sizes[-1])])


def mlp():
    return perceptron((784, 256, 256, 256, 10), "softplus")


def lstm():
    import keras

    layers = keras.layers
    cells = [layers.LSTM(128, return_sequences=True), layers.LSTM(128)]
    return keras.Sequential([layers.Input((64, 128)), *cells, layers.Dense(10)])


def resnet():
    import keras

    return keras.applications.ResNet50(weights=None, classifier_activation=None)


def cnn_train(side):
    return Training(side, cnn(), *images(512))


def cnn_infer(side, count):
    return inference(side, cnn(), images(count)[0])


def mlp_train(side):
    x, classes = images(64)
    return Training(side, mlp(), x.reshape(64, -1), classes)


def mlp_infer(side):
    return inference(side, mlp(), images(1)[0].reshape(1, -1))


def wide_train(side):
    x, classes = images(512)
    return Training(side, perceptron((784, 1024, 1024, 1024, 10), "relu"), x.reshape(512, -1), classes)


def layers_train(side):
    """Small layers, so that the time is that of dispatch."""
    numbers = np.random.default_rng(2)
    x, classes = numbers.standard_normal((4, 8), np.float32), numbers.integers(0, 8, 4, np.int32)
    return Training(side, perceptron((8,) * 14, "relu"), x, classes, concrete=True)


def sequences(count):
    numbers = np.random.default_rng(3)
    return numbers.standard_normal((count, 64, 128), np.float32), numbers.integers(0, 10, count, np.int32)


def lstm_train(side):
    return Training(side, lstm(), *sequences(32))


def lstm_infer(side):
    return inference(side, lstm(), sequences(1)[0])


def photos(count):
    numbers = np.random.default_rng(4)
    return numbers.standard_normal((count, 224, 224, 3), np.float32), numbers.integers(0, 1000, count, np.int32)


def resnet_train(side):
    return Training(side, resnet(), *photos(2))


def resnet_infer(side):
    return inference(side, resnet(), photos(1)[0])


def eager_sums(side):
    import tensorflow as tf

    x, y = tf.zeros((2, 2)), tf.ones((2, 2))

    def run():
        z = x
        for _ in range(EAGER_SUMS):
            z = z + y
        return z.numpy()

    return run


def small_function(side, pairs):
    """Operations that no optimizer of graphs removes."""
    import tensorflow as tf

    def body(x, y):
        for i in range(pairs):
            x = tf.maximum(x, y) if i % 2 == 0 else tf.minimum(x, y)
        return x

    return calls(side, body, np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32))


# Name: title, function, arguments.
CASES = {
    "cnn-train": ("CNN 28x28, train, batch 512, Adam", cnn_train),
    "cnn-infer": ("CNN 28x28, infer, batch 512", cnn_infer, 512),
    "cnn-infer-1": ("CNN 28x28, infer, batch 1", cnn_infer, 1),
    "mlp-train": ("MLP 784-256x3-10 softplus, train, batch 64, Adam", mlp_train),
    "mlp-infer-1": ("MLP 784-256x3-10 softplus, infer, batch 1", mlp_infer),
    "wide-train": ("MLP 784-1024x3-10 ReLU, train, batch 512, Adam", wide_train),
    "lstm-train": ("LSTM 128x2, 64 steps, train, batch 32, Adam", lstm_train),
    "lstm-infer-1": ("LSTM 128x2, 64 steps, infer, batch 1", lstm_infer),
    "resnet-train": ("ResNet-50, train, batch 2, Adam", resnet_train),
    "resnet-infer-1": ("ResNet-50, infer, batch 1", resnet_infer),
    "eager": (f"eager `x + y`, 2x2, {EAGER_SUMS} in a row", eager_sums),
    "function-1": ("`tf.function` of 1 operation, 2x2", small_function, 1),
    "function-100": ("`tf.function` of 100 operations, 2x2", small_function, 100),
    "layers-train": ("13 layers of 8, train, batch 4, Adam, concrete function", layers_train),
}


# ---- a side: a process


def open_device(side, threads):
    """The scope of the side's device; TensorFlow selects HEADRACE by itself."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if not is_headrace(side):
        return tf.device("CPU")
    if not tf.config.list_physical_devices("HEADRACE"):
        raise RuntimeError("TensorFlow has no device HEADRACE")
    return contextlib.nullcontext()


def serve(side, arguments):
    """Writes the values that are compared, tells of the first call, then runs bursts."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(5)
    tf.constant(1.0).numpy()
    resident = sides.status_bytes("VmRSS")
    sides.start_peak()
    title, make, *more = CASES[arguments.cases]
    run = make(side, *more)
    result, first = sides.first_call(run)
    while hasattr(run, "losses") and len(run.losses) < STEPS:
        run()
    np.save(Path(arguments.folder, f"{arguments.cases}-{side}.npy"), getattr(run, "losses", result))
    sides.serve(run, first, arguments.warm_up, lambda: {"peak": sides.status_bytes("VmHWM") - resident})


# ---- the run


def difference(case, folder, names):
    """Of the first side from the second one."""
    here, theirs = (np.load(folder / f"{case}-{side}.npy").astype(np.float64) for side in names[:2])
    spread = 1 if "train" in case else theirs.std() or 1
    return float(np.abs(theirs - here).max() / spread)


def run_case(case, folder, names, arguments):
    if case == "eager":
        names = [name for name in names if name != "xla"]

    def open_side(side):
        variables = {"TF_CPP_MIN_LOG_LEVEL": "3"} | ({} if is_headrace(side) else {LIBRARY: ""})
        return sides.Side(__file__, side, case, folder, arguments, variables)

    found = sides.run_case(case, names, open_side, arguments)
    return found | ({"difference": difference(case, folder, names)} if len(names) > 1 else {})


def cells(found, names, key, unit, digits):
    return [f"{found[name][key] * unit:.{digits}f}" if name in found else "" for name in names]


def ratio(found, names, key):
    here, *others = [found[name][key] for name in names if name in found]
    return f"{min(others) / here:.2f}" if others else ""


def print_table(results, names, threads):
    title = f"{threads} thread{'s' if threads > 1 else ''}"
    print(f"\n{title}; CPU time of a call and of the first one in ms, memory in MB\n")
    columns = [*names, "ratio", "ratio, wall", *[f"first: {names[0]}", *names[1:]], *[f"peak: {names[0]}", *names[1:]]]
    print("| case | " + " | ".join([*columns, "difference"]) + " |")
    print("|---" + "|---:" * (len(columns) + 1) + "|")
    for case, found in results.items():
        row = [*cells(found, names, "cpu", 1e3, 2), ratio(found, names, "cpu"), ratio(found, names, "wall")]
        row += cells(found, names, "first_cpu", 1e3, 0) + cells(found, names, "peak", 2**-20, 0)
        far = f"{found['difference']:.0e}" if "difference" in found else ""
        print("| " + " | ".join([CASES[case][0], *row, far]) + " |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sides.add_options(parser, CASES)
    parser.add_argument("--sides", default=",".join(SIDES[:3]), help=f"of {', '.join(SIDES)}; default: %(default)s")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.serve:
        with open_device(arguments.serve, arguments.threads):
            serve(arguments.serve, arguments)
        return 0
    names = arguments.sides.split(",")
    if unknown := [name for name in names if name not in SIDES]:
        sys.exit(f"tensorflow_cases: {unknown[0]!r} is unknown; sides: {', '.join(SIDES)}")
    results = sides.run_cases(lambda case, folder: run_case(case, folder, names, arguments), CASES, arguments)
    print_table(results, names, arguments.threads)
    return int(len(results) < len(arguments.cases.split(",")))


if __name__ == "__main__":
    sys.exit(main())
