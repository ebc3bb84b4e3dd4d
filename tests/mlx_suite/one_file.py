"""Runs one file of MLX's tests on headrace.mlx. For tests/mlx_suite/run.py, which starts it in a process of its own.

usage: one_file.py CHECKOUT FILE MODULES RESULTS

MODULES: "own" for headrace's nn and optimizers, "mlx" for the checkout's Python files on headrace's mlx.core.
RESULTS gets a line of JSON for each test: [name, outcome, reason]. The first line has all names.
"""

import importlib
import json
import os
import random
import signal
import sys
import time
import types
import unittest

SECONDS = 60  # of one test; those of MLX that take longest need 100 on their own, and fail here


def seed():
    """Each test has the same random numbers, whichever ran before it."""
    import mlx.core
    import numpy

    random.seed(0)
    numpy.random.seed(0)
    mlx.core.random.seed(0)


def install(checkout, modules):
    import headrace.mlx

    headrace.mlx.install(only_core=modules == "mlx")
    if modules == "mlx":
        package = types.ModuleType("mlx")
        package.__path__ = [os.path.join(checkout, "python", "mlx")]
        sys.modules["mlx"] = package
        package.core = sys.modules["mlx.core"]


class Result(unittest.TestResult):
    """Writes the outcome of each test as soon as it is known."""

    def __init__(self, file):
        super().__init__()
        self.file, self.outcome, self.reason = file, "passed", ""

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.reason, self.began = "passed", "", time.time()
        seed()
        signal.alarm(int(os.environ.get("HEADRACE_MLX_SECONDS", SECONDS)))

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        write(self.file, [test.id(), self.outcome, self.reason, round(time.time() - self.began, 2)])

    def _failed(self, error):
        if self.outcome != "failed":
            self.outcome, self.reason = "failed", self._exc_info_to_string(error, self._test)

    def addError(self, test, error):
        self._test = test
        self._failed(error)

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)

    def addSkip(self, test, reason):
        if self.outcome != "failed":
            self.outcome, self.reason = "skipped", reason

    def addExpectedFailure(self, test, error):
        self.outcome = "passed"

    def addUnexpectedSuccess(self, test):
        self.outcome, self.reason = "failed", "unexpected success"


def write(file, line):
    file.write(json.dumps(line) + "\n")
    file.flush()


def names_of(suite):
    if isinstance(suite, unittest.TestSuite):
        return [name for test in suite for name in names_of(test)]
    return [suite.id()]


def ran_out(number, frame):
    raise TimeoutError("the test took too long")


def main(checkout, name, modules, results):
    install(checkout, modules)
    sys.path.insert(0, os.path.join(checkout, "python", "tests"))
    signal.signal(signal.SIGALRM, ran_out)
    with open(results, "w") as file:
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name))
        write(file, names_of(suite))
        suite.run(Result(file))
    sys.stdout.flush()
    os._exit(0)  # tests leave threads behind


if __name__ == "__main__":
    main(*sys.argv[1:])
