#!/usr/bin/env python3
"""Times what the built-in tools cost while they are off: two builds of the core take turns under the same frontend.

The first build is the usual one, the second has no probes:

    cmake -S . -B build/noprobe -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-DHEADRACE_NO_PROBES
    cmake --build build/noprobe --target headrace
    python bench/probe_cost.py build/release/libheadrace.so.0 build/noprobe/libheadrace.so.0
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def best_seconds(call, count, rounds):
    """The smallest mean of a call, of all rounds."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def measure():
    import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
    import torch
    from tools import make_step, run_for

    x, y = torch.ones(4, device="headrace"), torch.ones(4, device="headrace")

    def add_and_wait():
        z = x + y
        torch.headrace.synchronize()
        return z

    step = make_step("mlp")
    run_for(step, 3)  # compiled
    add = best_seconds(lambda: x + y, 1000, 200)
    wait = best_seconds(add_and_wait, 200, 200)
    print(add, wait, best_seconds(step, 20, 60))


def run(library):
    command = [sys.executable, __file__, "--side", library]
    environment = os.environ | {"LD_PRELOAD": str(Path(library).resolve()), "HEADRACE_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{library}: {done.stderr.strip()[-400:]}")
    return [float(word) for word in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", help="with probes, and without")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each (default %(default)s)")
    parser.add_argument("--side", help=argparse.SUPPRESS)  # one process
    arguments = parser.parse_args()
    if arguments.side:
        measure()
        return
    if len(arguments.libraries) != 2:
        parser.error("two libraries are needed: with probes, and without")
    found = {library: [] for library in arguments.libraries}
    for _ in range(arguments.rounds):
        for library, runs in found.items():
            runs.append(run(library))
    for i, name in enumerate(("x + y, 4 floats", "the same with synchronize()", "MLP training step")):
        with_probes, without = ([one[i] * 1e6 for one in runs] for runs in found.values())
        pairs = [a / b - 1 for a, b in zip(with_probes, without)]
        print(
            f"{name:28} {min(with_probes):9.3f} us, {min(without):9.3f} us without: "
            f"{100 * (min(with_probes) / min(without) - 1):+.2f} % (median of pairs {100 * statistics.median(pairs):+.2f} %)"
        )


if __name__ == "__main__":
    main()
