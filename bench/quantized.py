#!/usr/bin/env python3
"""Times of products with quantised weights: x [batch, 4096] times w [4096, 4096], transposed, or not: --columns.

    python bench/quantized.py [--bits 4] [--group 64] [--mode affine] [--columns] [--rounds 5] [--mlx PYTHON]

Three sides: hr.quantized_matmul; hr.dequantize and a product; mlx.core.quantized_matmul, if PYTHON is an interpreter
that has it. Each side runs in a process of its own, one after the other, so that no pool of threads disturbs another.
A result is computed before the next call. The best of all calls, because neighbours on the machine only add time.
"""

import argparse
import subprocess
import sys
import time

SIZE = 4096
BATCHES = (1, 8, 32, 128)


def sides(name):
    """The module, and a function of x, the packed weights and their options."""
    if name == "mlx":
        import mlx.core as module

        return module, lambda x, w, options: module.quantized_matmul(x, *w, **options)
    import headrace as module

    def dequantized(x, w, options):
        transpose = options["transpose"]
        numbers = {name: value for name, value in options.items() if name != "transpose"}
        matrix = module.dequantize(*w, **numbers)
        return x @ (matrix.T if transpose else matrix)

    def packed(x, w, options):
        return module.quantized_matmul(x, *w, **options)

    return module, dequantized if name == "dequantize" else packed


def best(calls, call):
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times[2:])


def measure(name, given, calls):
    import numpy as np

    module, product = sides(name)
    rng = np.random.default_rng(0)
    options = {"bits": given.bits, "group_size": given.group, "mode": given.mode}
    w = module.quantize(module.array(rng.standard_normal((SIZE, SIZE)).astype(np.float32)), **options)
    options["transpose"] = not given.columns
    module.eval(*w)
    for batch in BATCHES:
        x = module.array(rng.standard_normal((batch, SIZE)).astype(np.float32))
        print(batch, best(calls, lambda: module.eval(product(x, w, options))))


def run(python, arguments):
    """Seconds by batch."""
    output = subprocess.run([python, __file__, *arguments], check=True, capture_output=True, text=True).stdout
    return {int(batch): float(seconds) for batch, seconds in (line.split() for line in output.splitlines())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--mode", default="affine")
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mlx")
    parser.add_argument("--side")
    parser.add_argument("--calls", type=int, default=30)
    options = parser.parse_args()
    if options.side is not None:
        return measure(options.side, options, options.calls)
    names = {"packed": sys.executable, "dequantize": sys.executable, **({"mlx": options.mlx} if options.mlx else {})}
    times = {name: {} for name in names}
    for _ in range(options.rounds):
        for name, python in names.items():
            words = {"--bits": options.bits, "--group": options.group, "--calls": options.calls, "--mode": options.mode}
            arguments = ["--side", name, *(word for key, value in words.items() for word in (key, str(value)))]
            arguments += ["--columns"] * options.columns
            for batch, seconds in run(python, arguments).items():
                times[name][batch] = min(seconds, times[name].get(batch, seconds))
    kind = f"{options.mode}, {options.bits} bits, groups of {options.group}" + ", columns" * options.columns
    print(f"{kind}: milliseconds")
    for batch in BATCHES:
        print(f"batch {batch:4d}  " + "  ".join(f"{name} {times[name][batch] * 1e3:8.3f}" for name in names))


if __name__ == "__main__":
    main()
