#!/usr/bin/env python3
"""Times of arrays (`import headrace as hr`) against numpy, in turn, results held: `x + y` of 4 floats, the chain of
nine operations of bench/run.py on 64, 262,144 and 4,194,304 floats, and the time of the import.

    python bench/arrays.py [rounds]

Medians of the rounds, and the best of them, because neighbours on the machine only add time.
"""

import statistics
import subprocess
import sys
import time

import numpy as np

import headrace as hr

OPERATIONS = 1000


def chain(module, x, y):
    """sigmoid(sqrt(abs(tanh((x + y) * 0.5) - y) * x + 1)), nine operations."""
    z = module.sqrt(abs(module.tanh((x + y) * 0.5) - y) * x + 1)
    return module.sigmoid(z) if module is hr else 1 / (1 + np.exp(-z))


def kept(x, y):
    results = [x + y for _ in range(OPERATIONS)]
    hr.eval()
    return results


def dropped(x, y):
    for _ in range(OPERATIONS):
        x + y
    hr.eval()


def evaluated(x, y):
    for _ in range(OPERATIONS):
        z = x + y
        hr.eval(z)


def numpy_kept(x, y):
    return [x + y for _ in range(OPERATIONS)]


def numpy_dropped(x, y):
    for _ in range(OPERATIONS):
        x + y


def seconds(function, *arguments):
    begin = time.perf_counter()
    result = function(*arguments)
    end = time.perf_counter()
    del result
    return end - begin


def measure(rounds, *calls):
    """Pairs of median and best time of each call, the calls in turn."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for i, call in enumerate(calls):
            times[i].append(seconds(*call))
    return [(statistics.median(each), min(each)) for each in times]


def import_seconds(module):
    """The time of the import in a new process."""
    code = f"import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)


def measure_imports(*modules):
    times = [[] for _ in modules]
    for _ in range(9):
        for i, module in enumerate(modules):
            times[i].append(import_seconds(module))
    return [(statistics.median(each), min(each)) for each in times]


def print_row(name, scale, digits, times):
    cells = (f"{scale * median:.{digits}f} ({scale * best:.{digits}f})" for median, best in times)
    print(f"{name:40} " + " ".join(f"{cell:>18}" for cell in cells))


compiled_chain = hr.compile(lambda x, y: chain(hr, x, y))


def evaluate(x, y):
    z = chain(hr, x, y)
    hr.eval(z)
    return z


def evaluate_compiled(x, y):
    z = compiled_chain(x, y)
    hr.eval(z)
    return z


def main():
    rounds = int(sys.argv[1]) if sys.argv[1:] else 300
    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    a, b = hr.array(x), hr.array(y)
    print(f"{'median (best)':40} {'arrays':>18} {'numpy':>18}")
    for name, ours, theirs in (
        ("kept", kept, numpy_kept),
        ("dropped", dropped, numpy_dropped),
        ("evaluated each time", evaluated, numpy_dropped),
    ):
        print_row(f"x + y of 4 floats, {name}, ns", 1e9 / OPERATIONS, 0, measure(rounds, (ours, a, b), (theirs, x, y)))
    print(f"{'':40} {'arrays':>18} {'compiled':>18} {'numpy':>18}")
    for count, times in ((64, 20 * rounds), (262144, rounds), (4194304, max(rounds // 10, 5))):
        x, y = np.random.default_rng(0).random((2, count), np.float32)
        a, b = hr.array(x), hr.array(y)
        np.testing.assert_allclose(np.asarray(chain(hr, a, b)), chain(np, x, y), rtol=1e-5)
        np.testing.assert_array_equal(np.asarray(compiled_chain(a, b)), np.asarray(chain(hr, a, b)))
        results = measure(times, (evaluate, a, b), (evaluate_compiled, a, b), (chain, np, x, y))
        print_row(f"chain of 9, {count:,} floats, us", 1e6, 2, results)
    print(f"{'':40} {'headrace':>18} {'numpy':>18}")
    print_row("import, ms", 1e3, 1, measure_imports("headrace", "numpy"))


if __name__ == "__main__":
    main()
