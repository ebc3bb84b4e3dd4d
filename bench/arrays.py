#!/usr/bin/env python3
"""Times of arrays (`import headrace as hr`) against numpy, in turn, results held: `x + y` of 4 floats, and the chain
of nine operations of bench/run.py on 64, 262,144 and 4,194,304 floats.

    python bench/arrays.py [rounds]

The best of the rounds, because neighbours on the machine only add time.
"""

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


def best(rounds, *calls):
    """The best time of each call, the calls in turn."""
    times = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            times[i] = min(times[i], seconds(*call))
    return times


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
    print(f"{'x + y of 4 floats, ns an operation':40} {'arrays':>10} {'numpy':>10}")
    for name, ours, theirs in (
        ("kept", kept, numpy_kept),
        ("dropped", dropped, numpy_dropped),
        ("evaluated each time", evaluated, numpy_dropped),
    ):
        times = best(rounds, (ours, a, b), (theirs, x, y))
        print(f"{name:40} " + " ".join(f"{1e9 * t / OPERATIONS:10.0f}" for t in times))
    print(f"{'chain of 9, us':40} {'arrays':>10} {'compiled':>10} {'numpy':>10}")
    for count, times in ((64, 20 * rounds), (262144, rounds), (4194304, max(rounds // 10, 5))):
        x, y = np.random.default_rng(0).random((2, count), np.float32)
        a, b = hr.array(x), hr.array(y)
        np.testing.assert_allclose(np.asarray(chain(hr, a, b)), chain(np, x, y), rtol=1e-5)
        np.testing.assert_array_equal(np.asarray(compiled_chain(a, b)), np.asarray(chain(hr, a, b)))
        results = best(times, (evaluate, a, b), (evaluate_compiled, a, b), (chain, np, x, y))
        print(f"{f'{count:,} floats':40} " + " ".join(f"{1e6 * t:10.2f}" for t in results))


if __name__ == "__main__":
    main()
