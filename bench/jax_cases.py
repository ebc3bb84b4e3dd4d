#!/usr/bin/env python3
"""JAX on Headrace beside one of JAX's own backends: the same programs, the same numbers.

    python bench/jax_cases.py [--cases cnn-train,scan] [--threads 1] [--rounds 7] [--json FILE]
    HEADRACE_DEVICE=cuda python bench/jax_cases.py --reference cuda

Each side is a process of its own with as many cores as threads. Sides work in turn, a burst each, and the table has the
median of the bursts' medians; calls end when their results exist. `first` is the time of the first call, compilation
included, with a cold disk cache. `difference` compares results with those of JAX's own backend: the largest difference,
divided by the standard deviation; of training the largest difference of the losses of the first 12 steps.

Needs jax, and the plug-in: an installed headrace-jax, or HEADRACE_JAX_LIBRARY with frontends/jax in PYTHONPATH.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import sides

HEADRACE = "headrace"
PLATFORMS = {"cpu": "cpu", "cuda": "gpu", HEADRACE: HEADRACE}  # the names of devices of each backend
STEPS = 12


# ---- cases: each gives a function without arguments, whose result must exist when the clock is read. It has the values
# that are compared as `losses`, if these are other ones than its result.


class Training:
    """Steps on one batch."""

    def __init__(self, loss, parameters, *batch):
        import jax
        import jax_networks as networks

        self.parameters = jax.device_put(parameters)
        self.state = networks.adam_start(self.parameters)
        self.step = networks.training_step(loss, rate=1e-4)
        self.key, self.batch, self.losses = jax.random.key(0), jax.device_put(batch), []

    def __call__(self):
        self.parameters, self.state, loss = self.step(self.parameters, self.state, self.key, *self.batch)
        if len(self.losses) < STEPS:
            self.losses.append(float(loss))
        return self.parameters, loss


def images(count):
    numbers = np.random.default_rng(1)
    return numbers.standard_normal((count, 28, 28, 1), np.float32), numbers.integers(0, 10, count, np.int32)


def cnn_train():
    import jax_networks as networks

    return Training(networks.cnn_loss, networks.cnn_parameters(), *images(512))


def calls(function, *arguments):
    """The jitted function of arguments that are on the device."""
    import jax

    function, arguments = jax.jit(function), jax.device_put(arguments)
    return lambda: function(*arguments)


def cnn_infer(count):
    import jax_networks as networks

    return calls(networks.cnn, networks.cnn_parameters(), images(count)[0])


def mlp_train():
    import jax_networks as networks

    x, classes = images(64)
    return Training(networks.mlp_loss, networks.mlp_parameters(), x.reshape(64, -1), classes)


def mlp_infer():
    import jax_networks as networks

    return calls(networks.mlp, networks.mlp_parameters(), images(1)[0].reshape(1, -1))


def tokens(length):
    return np.random.default_rng(2).integers(0, 50257, (1, length), np.int32)


def gpt2_train():
    import jax_networks as networks

    return Training(networks.gpt_loss, networks.gpt_parameters(), tokens(129))


def gpt2_infer():
    import jax_networks as networks

    return calls(networks.gpt, networks.gpt_parameters(), tokens(128))


def chain(count):
    import jax
    import jax.numpy as jnp

    def function(x, y):
        return jax.nn.sigmoid(jnp.sqrt(jnp.abs(jnp.tanh((x + y) * 0.5) - y) * x + 1))

    numbers = np.random.default_rng(3)
    return calls(function, *(numbers.random(count, np.float32) for _ in range(2)))


def lstm_scan(size=64, steps=1000):
    """A cell of an LSTM, 1,000 times."""
    import jax
    import jax.numpy as jnp

    def function(weights, hidden, cell, inputs):
        def step(state, x):
            hidden, cell = state
            gates = jnp.concatenate([x, hidden]) @ weights
            i, f, g, o = jnp.split(gates, 4)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        return jax.lax.scan(step, (hidden, cell), inputs)[1]

    numbers = np.random.default_rng(4)
    weights = numbers.standard_normal((2 * size, 4 * size), np.float32) * size**-0.5
    zeros = np.zeros(size, np.float32)
    return calls(function, weights, zeros, zeros, numbers.standard_normal((steps, size), np.float32))


def count_while(steps=1000):
    """A loop whose condition is computed on the device."""
    import jax

    def function(x):
        return jax.lax.while_loop(
            lambda state: state[0] < steps, lambda state: (state[0] + 1, state[1] * 0.5 + 1), (0, x)
        )

    return calls(function, np.float32(3))


# Name: title, function, arguments.
CASES = {
    "cnn-train": ("CNN 28x28, train, batch 512", cnn_train),
    "cnn-infer": ("CNN 28x28, infer, batch 512", cnn_infer, 512),
    "cnn-infer-1": ("CNN 28x28, infer, batch 1", cnn_infer, 1),
    "mlp-train": ("Softshrink MLP, train, batch 64", mlp_train),
    "mlp-infer-1": ("Softshrink MLP, infer, batch 1", mlp_infer),
    "gpt2-train": ("GPT-2 small, train, 1 x 128", gpt2_train),
    "gpt2-infer": ("GPT-2 small, infer, 1 x 128", gpt2_infer),
    "chain-4m": ("element-wise chain, 4,194,304 floats", chain, 1 << 22),
    "chain-256k": ("element-wise chain, 262,144 floats", chain, 1 << 18),
    "chain-64": ("element-wise chain, 64 floats", chain, 64),
    "scan": ("scan of 1,000 LSTM cells of 64", lstm_scan),
    "while": ("while of 1,000 steps", count_while),
}


# ---- a side: a process


def open_platform(side):
    """JAX with a backend of its own or with Headrace, if that is not installed from the tree."""
    import jax

    if side == HEADRACE and os.environ.get("HEADRACE_JAX_LIBRARY"):
        import headrace_jax

        headrace_jax.initialize()
    platform = jax.devices()[0].platform
    if platform != PLATFORMS[side]:
        raise RuntimeError(f"JAX's platform is {platform}, expected {PLATFORMS[side]}")


def compared(run, result):
    """The values that both sides must agree on."""
    import jax

    if hasattr(run, "losses"):
        return np.array(run.losses)
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(result)])


def serve(side, case, folder, warm_up):
    """Writes the values that are compared, tells of the first call, then runs bursts."""
    import jax

    open_platform(side)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.float32(1)))
    _, make, *arguments = CASES[case]
    run = make(*arguments)
    call = lambda: jax.block_until_ready(run())  # noqa: E731
    result, first = sides.first_call(call)
    while hasattr(run, "losses") and len(run.losses) < STEPS:
        run()
    np.save(folder / f"{case}-{side}.npy", compared(run, result))
    del result
    sides.serve(call, first, warm_up)


# ---- the run


def difference(case, folder, reference):
    theirs, here = (np.load(folder / f"{case}-{side}.npy").astype(np.float64) for side in (reference, HEADRACE))
    spread = 1 if "train" in case else theirs.std()
    return float(np.abs(theirs - here).max() / spread)


def run_case(case, folder, arguments):
    def open_side(side):
        # Both sides share the device's memory.
        variables = {"JAX_PLATFORMS": side, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        return sides.Side(__file__, side, case, folder, arguments, variables)

    found = sides.run_case(case, (arguments.reference, HEADRACE), open_side, arguments)
    return found | {"difference": difference(case, folder, arguments.reference)}


def print_table(results, threads, reference):
    name = f"JAX {reference.upper()}"
    print(f"\n{threads} thread{'s' if threads > 1 else ''}; ms\n")
    print(f"| case | {name} | Headrace | ratio | CPU time, ratio | first: {name} | Headrace | ratio | difference |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for case, found in results.items():
        cells = [CASES[case][0]]
        own, here = found[reference], found[HEADRACE]
        cells += [f"{1e3 * own['wall']:.3f}", f"{1e3 * here['wall']:.3f}", f"{own['wall'] / here['wall']:.2f}"]
        cells += [f"{own['cpu'] / here['cpu']:.2f}", f"{1e3 * own['first']:.0f}", f"{1e3 * here['first']:.0f}"]
        print("| " + " | ".join([*cells, f"{own['first'] / here['first']:.1f}", f"{found['difference']:.0e}"]) + " |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sides.add_options(parser, CASES)
    own = "JAX's own backend (default %(default)s)"
    parser.add_argument("--reference", default="cpu", choices=["cpu", "cuda"], help=own)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.serve:
        serve(arguments.serve, arguments.cases, Path(arguments.folder), arguments.warm_up)
        return 0
    results = sides.run_cases(lambda case, folder: run_case(case, folder, arguments), CASES, arguments)
    print_table(results, arguments.threads, arguments.reference)
    return int(len(results) < len(arguments.cases.split(",")))


if __name__ == "__main__":
    sys.exit(main())
