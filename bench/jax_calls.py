#!/usr/bin/env python3
"""What a call of JAX costs on Headrace, and how much memory programs take, beside JAX's CPU backend.

    python bench/jax_calls.py [--cases add-one,eager] [--rounds 7] [--threads 1] [--json FILE]
    python bench/jax_calls.py --memory

Calls: each platform is a process of its own on the same core; they work in turn, a burst each. A case's figure is the
least of the bursts' CPU times for a call, with all threads of the process. "nop" is a plug-in that records nothing
(HEADRACE_JAX_NOP=1), as a floor of what JAX's own call costs.

Memory: the peak of resident memory over that before the first step, and the resident memory after the steps.
`--memory` trains the CNN, the MLP and GPT-2 of jax_cases.py with donated parameters; then one function has 300 shapes,
and takes 2,000 steps of these. Memory after 1,000 and 2,000 steps shows growth.

Needs jax, and the plug-in: an installed headrace-jax, or HEADRACE_JAX_LIBRARY with frontends/jax in PYTHONPATH.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "bench"), str(ROOT / "examples")]
import jax_cases  # noqa: E402

NOP = "nop"
REPEATS = 200


# ---- cases: each gives a function of one call, waited for


def add_one(shape=(4,)):
    import jax

    function, x = jax.jit(lambda x: x + 1), jax.device_put(np.ones(shape, np.float32))
    return lambda: function(x).block_until_ready()


def eager_sum():
    import jax

    x, y = jax.device_put((np.ones(4, np.float32), np.full(4, 2, np.float32)))
    return lambda: (x + y).block_until_ready()


def many(count=100):
    import jax

    function = jax.jit(lambda *values: [value + 1 for value in values])
    values = [jax.device_put(np.full(4, i, np.float32)) for i in range(count)]
    return lambda: jax.block_until_ready(function(*values))


def put(count):
    import jax

    x = np.ones(count, np.float32)
    return lambda: jax.device_put(x).block_until_ready()


def get():
    import jax

    function, x = jax.jit(lambda x: x + 1), jax.device_put(np.ones(4, np.float32))
    return lambda: np.asarray(function(x))


# Name: title, function, arguments; the share of the CPU backend's time that is wanted, and calls of a burst.
CASES = {
    "add-one": ("`jit(x + 1)` of 4 floats", add_one, (), None, 50 * REPEATS),
    "eager": ("`x + y` of 4 floats, eager", eager_sum, (), 0.7, 50 * REPEATS),
    "many": ("`jit` with 100 inputs and outputs", many, (), 0.65, 2 * REPEATS),
    "put-4m": ("`device_put` of 4 MiB", put, (1 << 20,), 1.0, 2 * REPEATS),
    "put-4": ("`device_put` of 4 floats", put, (4,), None, 20 * REPEATS),
    "get": ("`np.asarray(jit(x + 1))` of 4 floats", get, (), None, 20 * REPEATS),
}


def burst(run, calls):
    for _ in range(calls // 10):
        run()
    cpu = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - cpu) / calls


# ---- memory


def resident():
    """Bytes now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def train_memory(case, steps):
    import jax

    run = getattr(jax_cases, case)()
    before = resident()
    for _ in range(steps):
        jax.block_until_ready(run())
    return {f"{case}, {steps} steps, peak": peak() - before, f"{case}, after {steps} steps": resident() - before}


def shapes_memory(shapes=300, steps=2000):
    import jax
    import jax.numpy as jnp

    function = jax.jit(lambda x, w: jnp.tanh(x @ w).sum(0))
    w, kept = jax.device_put(np.ones((64, 64), np.float32)), {}
    before = resident()
    for step in range(steps):
        function(np.ones((1 + step % shapes, 64), np.float32), w).block_until_ready()
        if step + 1 in (shapes, steps // 2, steps):
            kept[f"300 shapes, {step + 1} steps"] = resident() - before
    return kept


MEMORY = {
    "cnn": lambda: train_memory("cnn_train", 40),
    "mlp": lambda: train_memory("mlp_train", 100),
    "gpt2": lambda: train_memory("gpt2_train", 8),
    "shapes": shapes_memory,
}


# ---- sides


def serve(arguments):
    jax_cases.open_platform(arguments.serve)
    if arguments.memory:
        print(json.dumps(MEMORY[arguments.memory]()), flush=True)
        return
    _, make, given, _, calls = CASES[arguments.cases]
    run = make(*given)
    burst(run, calls)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(burst(run, calls)), flush=True)


def open_side(side, options, threads, cache):
    platform = "cpu" if side == "cpu" else jax_cases.HEADRACE
    paths = os.pathsep.join(filter(None, (str(ROOT / "examples"), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"JAX_PLATFORMS": platform, "HEADRACE_CACHE": cache, "PYTHONPATH": paths}
    environment |= {name: str(threads) for name in ("HEADRACE_THREADS", "OMP_NUM_THREADS")}
    environment |= {"HEADRACE_JAX_NOP": "1"} if side == NOP else {}
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return subprocess.Popen(
        [sys.executable, __file__, "--serve", platform, *options], env=environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def ask(process):
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a side ended with status {process.wait()}")
    return line


def run_case(case, arguments, cache):
    """{side: seconds of a call}"""
    sides = {side: open_side(side, ["--cases", case], arguments.threads, cache) for side in ("cpu", "headrace", NOP)}
    found = {side: [] for side in sides}
    for process in sides.values():
        ask(process)
    for round_number in range(arguments.rounds):
        print(f"{case}: round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
        for side, process in sides.items():
            process.stdin.write("\n")
            process.stdin.flush()
            found[side].append(json.loads(ask(process)))
    for process in sides.values():
        process.stdin.close()
        process.wait()
    return {side: min(times) for side, times in found.items()}


def print_calls(results, threads):
    print(f"\n{threads} thread{'s' if threads > 1 else ''}; CPU time of a call, us\n")
    print("| call | JAX CPU | Headrace | share | nothing | above it |\n|---|---:|---:|---:|---:|---:|")
    for case, found in results.items():
        own, here, floor = (1e6 * found[side] for side in ("cpu", "headrace", NOP))
        print(f"| {CASES[case][0]} | {own:.2f} | {here:.2f} | {here / own:.2f} | {floor:.2f} | {here - floor:.2f} |")


def measure_memory(arguments, cache):
    results = {}
    for part in MEMORY:
        for side in ("cpu", "headrace"):
            print(f"{part}: {side}", file=sys.stderr)
            process = open_side(side, ["--memory", part], arguments.threads, cache)
            for name, size in json.loads(ask(process)).items():
                results.setdefault(name, {})[side] = size
            process.stdin.close()
            process.wait()
    print("\nresident memory beyond that before, MB\n\n| case | JAX CPU | Headrace |\n|---|---:|---:|")
    for name, found in results.items():
        print(f"| {name} | {found['cpu'] / 1e6:.1f} | {found['headrace'] / 1e6:.1f} |")
    return results


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", default=",".join(CASES), help="default: %(default)s")
    add("--memory", nargs="?", const="all", help="measure memory instead of calls")
    add("--rounds", type=int, default=7, help="default %(default)s")
    add("--threads", type=int, default=1, help="of each side (default %(default)s)")
    add("--json", help="a file for the figures")
    add("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.serve:
        serve(arguments)
        return 0
    cases = arguments.cases.split(",")
    if unknown := [case for case in cases if case not in CASES]:
        print(f"jax_calls: {unknown[0]!r} is unknown; cases: {', '.join(CASES)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as cache:
        if arguments.memory:
            results = measure_memory(arguments, cache)
        else:
            results = {case: run_case(case, arguments, cache) for case in cases}
            print_calls(results, arguments.threads)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
