"""Trains a convolutional network on real images with JAX, on its CPU backend and then on Headrace, and compares the two.

Both start from the same weights, and see the same batches and the same dropout in the same order. The time of a step
includes the copy of the batch, the jitted training step and the reading of the loss. The optimizer is optax's Adam, or
that of jax_networks.py if optax is not installed. The images are scikit-learn's digits. Writes demo-jax.png.
"""

import argparse
import os
import sys
import time
from functools import partial

import numpy as np
from demo_output import Progress, Run, draw, positive, print_table
from digits import batches, load_digits

os.environ.setdefault("JAX_PLATFORMS", "headrace,cpu")  # JAX reads it at its first import
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax_networks import adam_start, cnn, cnn_loss, cnn_parameters, training_step  # noqa: E402

if os.environ.get("HEADRACE_JAX_LIBRARY"):  # the plug-in of a build folder, which JAX does not find by itself
    import headrace_jax

    headrace_jax.initialize()


def main() -> int:
    arguments = parse()
    if arguments.threads:
        os.environ.setdefault("HEADRACE_THREADS", str(arguments.threads))
    try:
        devices = [open_device(name) for name in arguments.platforms.split(",")]
        data = load_digits()
    except (ImportError, RuntimeError) as error:
        print(f"demo-jax: {error}", file=sys.stderr)
        return 2
    steps = max(1, arguments.epochs * len(data.train) // arguments.batch)
    start = cnn_parameters(seed=arguments.seed)
    count = sum(leaf.size for leaf in jax.tree.leaves(start))
    name, begin, step = make_training(arguments.lr)
    print(f"data      scikit-learn's digits: {len(data.train):,} images to train, {len(data.test):,} to test")
    print(f"network   {count:,} parameters; batch {arguments.batch}, {name} {arguments.lr:g}; {steps} steps")

    runs = [train(device, start, begin, step, data, steps, arguments) for device in devices]
    print()
    print_table(runs)
    if arguments.output:
        print(f"\nwrote {draw(runs, 'digits with JAX', arguments.output)}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--platforms", default="cpu,headrace", metavar="A,B", help="JAX's platforms in turn (default %(default)s)")
    add("--epochs", type=positive, default=32, help="passes over the training images (default %(default)s)")
    add("--batch", type=positive, default=512, help="images a step (default %(default)s)")
    add("--lr", type=float, default=3e-4, help="Adam's learning rate (default %(default)s)")
    add("--seed", type=int, default=0, help="of weights, batches and dropout (default %(default)s)")
    add("--threads", type=positive, help="Headrace's threads (default: all cores, as JAX's CPU backend has)")
    add("--output", default="demo-jax.png", metavar="FILE", help="the picture; '' for none (default %(default)s)")
    return parser.parse_args()


def open_device(platform: str):
    try:
        return jax.devices(platform)[0]
    except RuntimeError as error:
        if platform != "headrace":
            raise
        raise RuntimeError(
            "JAX has no platform `headrace`. `make demo-jax` builds it; elsewhere, run `pip install ./frontends/jax` "
            f"in the repository. `--platforms cpu` trains on JAX's CPU backend alone. ({error})"
        ) from error


# ---- training


def make_training(rate: float):
    """The optimizer's name, its first state from parameters, and a training step as jax_networks has it."""
    try:
        import optax
    except ImportError:
        return "the examples' Adam", adam_start, training_step(cnn_loss, rate)
    optimizer = optax.adam(rate)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters, state, key, images, classes):
        loss, gradients = jax.value_and_grad(cnn_loss)(parameters, key, images, classes)
        changes, state = optimizer.update(gradients, state)
        return optax.apply_updates(parameters, changes), state, loss

    return "optax's Adam", optimizer.init, step


def train(device, start, begin, step, data, steps: int, arguments) -> Run:
    """Trains from parameters of NumPy; parameters and the optimizer's state are donated in each step."""
    run = Run(f"JAX {device.platform}")
    with jax.default_device(device):
        parameters = jax.tree.map(jnp.array, start)
        state, key = begin(parameters), jax.random.key(arguments.seed)
        progress = Progress(run.name, steps)
        for number, index in enumerate(batches(len(data.train), arguments.batch, steps, arguments.seed)):
            before = time.perf_counter()
            images, classes = data.train[index], data.train_classes[index]
            parameters, state, loss = step(parameters, state, jax.random.fold_in(key, number), images, classes)
            run.losses.append(float(loss))
            run.seconds.append(time.perf_counter() - before)
            progress.show(len(run.losses), run.losses[-1], run.median)
        answers = np.asarray(jax.jit(cnn)(parameters, data.test)).argmax(1)
        run.accuracy = float((answers == data.test_classes).mean())
    return run


if __name__ == "__main__":
    sys.exit(main())
