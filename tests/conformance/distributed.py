#!/usr/bin/env python3
"""Conformance of the backend of torch.distributed: torch's own tests for backends, from its wheel, on two ranks, and
tests of FSDP and DTensor upon its bases (sharded.py).

usage: distributed.py [--every K] [--only NAME ...] [--seconds N] [--verbose]

    distributed.py                          all tests: some minutes
    distributed.py --only 'test_ddp*'       these, with details

The source of torch.testing._internal.distributed.distributed_test is read with CUDA's names replaced by this device's.
Tests that make tensors of the CPU make those of the device: it is the default device. Each test runs in two processes
that are forked from one that has imported everything and has not opened the device.

distributed_exceptions.txt has a row for each test that does not pass, with its reason. Other failures fail here, and
so do listed tests that pass. `skip` rows are not run. Tests that torch skips for its own reasons (more ranks, other
backends) are counted.
"""

import argparse
import fnmatch
import logging
import multiprocessing
import os
import re
import sys
import time
import types
import unittest
import warnings
from pathlib import Path

os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", BACKEND="headrace", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("HEADRACE_CPU_DEVICES", "2")
os.environ.setdefault("HEADRACE_JIT", "off")
os.environ.setdefault("HEADRACE_THREADS", "1")
os.environ.setdefault("HEADRACE_FALLBACK", "error")

import torch  # noqa: E402

import headrace.torch  # noqa: E402, F401
import sharded  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.common_utils import instantiate_parametrized_tests  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(1)  # before anything is computed: a pool of threads does not survive a fork

EXCEPTIONS = Path(__file__).resolve().with_name("distributed_exceptions.txt")
NAME = "torch.testing._internal.distributed.distributed_test"
RANKS = 2
VERBOSE = False


def keep(function):
    return function


def for_each(*_, **__):
    return keep


def adapt_helpers():
    """torch's decorators look for CUDA; its table of what backends can do lacks this one."""
    helpers = common_distributed
    helpers.skip_if_no_gpu = keep
    helpers.skip_if_lt_x_gpu = lambda count, **_: keep if count <= RANKS else unittest.skip(f"{count} devices")
    helpers.nccl_skip_if_lt_x_gpu = lambda _, count: helpers.skip_if_lt_x_gpu(count)
    helpers.requires_nccl_version = helpers.require_n_gpus_for_nccl_backend = for_each
    helpers.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(size)}
    for feature in ("gpu", "headrace", "ddp", "subgroup", "plugin"):
        helpers.DistTestCases.backend_feature.setdefault(feature, set()).add("headrace")


def load():
    """torch's module, with the names of CUDA replaced."""
    path = Path(torch.__path__[0], *NAME.split(".")[1:]).with_suffix(".py")
    text = path.read_text()
    for pattern, replacement in (
        (r"\btorch\.cuda\.amp\b", "torch.amp"),
        (r"\btorch\.cuda\b", "torch.headrace"),
        (r"\.cuda\(", ".headrace("),
        (r'"cuda(:|")', r'"headrace\1'),
        (r'BACKEND != "nccl"', 'BACKEND != "headrace"'),
        (r'if BACKEND == "nccl":', 'if BACKEND == "headrace":'),
        (r'backend="nccl"', 'backend="headrace"'),
        (r"\bautocast\(\)", 'autocast("headrace")'),
        (r"\bGradScaler\(\)", 'GradScaler("headrace")'),
        (r"torch\.DoubleTensor\(1\)", "torch.empty(1, dtype=torch.double)"),
        (r'{"nccl"}', '{"nccl", "headrace"}'),
    ):
        text = re.sub(pattern, replacement, text)
    module = types.ModuleType(NAME)
    module.__file__ = str(path)
    sys.modules[NAME] = module
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102
    return module


class Forked:
    """A test of two processes, which are forked from this one."""

    def _spawn_processes(self):
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **options):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        torch.headrace.set_device(rank)
        if not VERBOSE:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        super()._run(rank, test_name, file_name, pipe, **options)

    def tearDown(self):
        for process in self.processes:
            process.kill()
        super().tearDown()


def test_class(module):
    class TestHeadrace(Forked, module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

        @classmethod
        def _run(cls, rank, *arguments, **options):
            torch.set_default_device(torch.device("headrace", rank))
            super()._run(rank, *arguments, **options)

    return instantiate_parametrized_tests(TestHeadrace)


def load_classes(seconds):
    """{name of a test: its class}"""
    module = load()
    common_distributed.TIMEOUT_DEFAULT = seconds
    common_distributed.TIMEOUT_OVERRIDE.clear()
    module.default_pg_timeout = seconds // 2
    found = {}
    for cls in (test_class(module), *sharded.test_classes(Forked, RANKS)):
        found.update({name: cls for name in unittest.TestLoader().getTestCaseNames(cls)})
    return found


def run_test(cls, name):
    """(outcome, detail, seconds); outcomes: pass, fail, skip."""
    begin = time.monotonic()
    result = unittest.TestResult()
    cls(name).run(result)
    seconds = time.monotonic() - begin
    problems = result.failures + result.errors
    if problems:
        return "fail", problems[0][1], seconds
    if result.skipped:
        return "skip", result.skipped[0][1], seconds
    return "pass", "", seconds


def read_exceptions():
    """{test: (how, reason)}; how: fail or skip."""
    rows = {}
    for line in EXCEPTIONS.read_text().splitlines() if EXCEPTIONS.exists() else []:
        if line.strip() and not line.startswith("#"):
            head, reason = line.split(" | ", 1)
            test, how = head.split()
            rows[test] = (how, reason)
    return rows


def last_line(detail):
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\w*(\.\w+)*(Error|Exception)\b", line)]
    return (errors[-1] if errors else lines[-1] if lines else "")[:160]


def main():
    global VERBOSE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="each K-th test, a fair sample")
    parser.add_argument("--only", nargs="*", help="names or patterns of tests")
    parser.add_argument("--seconds", type=int, default=60, help="a test that takes longer fails (default %(default)s)")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    VERBOSE = options.verbose
    if not VERBOSE:
        logging.getLogger("torch.testing._internal.common_distributed").setLevel(logging.CRITICAL)
    adapt_helpers()
    classes = load_classes(options.seconds)
    names = list(classes)[:: options.every]
    if options.only:
        names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)]
    rows, counts, unexpected = read_exceptions(), {}, []
    for name in names:
        how, reason = rows.get(name, ("", ""))
        if how == "skip" and not options.only:
            outcome, detail, seconds = "skip", reason, 0.0
        else:
            outcome, detail, seconds = run_test(classes[name], name)
        counts[outcome] = counts.get(outcome, 0) + 1
        if options.verbose or options.only:
            print(f"{outcome:5} {seconds:5.1f} s  {name}  {last_line(detail)}", flush=True)
        if outcome == "fail" and how != "fail":
            unexpected.append(f"{name}: {detail if options.only else last_line(detail)}")
        elif outcome == "pass" and how:
            unexpected.append(f"{name}: passes, and is listed in {EXCEPTIONS.name}")
    print(f"{len(names)} tests: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts)))
    print(*unexpected, sep="\n")
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
