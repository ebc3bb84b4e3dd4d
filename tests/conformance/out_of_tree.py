#!/usr/bin/env python3
"""Conformance of the device: torch's tests of backends outside its tree, torch.accelerator and torch.profiler.

usage: out_of_tree.py [--only PATTERN ...] [--source DIRECTORY] [--seconds N] [--verbose]

    HEADRACE_TORCH_SOURCE=~/pytorch out_of_tree.py             all of them: a minute or two
    out_of_tree.py --source ~/pytorch --only 'test_event.*'    these, with details

torch's wheel lacks these tests, so they are read from a checkout of torch, best of the installed version. Without one
each file is reported as not run. Names of torch's example device become this device's (RENAMED), and in files of
FOR_CUDA those of CUDA. A file runs in a process of its own, with two devices; if a test ends the process, the test
fails and another process runs the rest.

out_of_tree_exceptions.txt has a row for each test that does not pass, with its reason. Other failures fail here, and
so do listed tests that pass. `skip` rows are not run. Tests that torch skips for its own reasons are counted.
"""

import argparse
import fnmatch
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path

HERE = Path(__file__).resolve()
EXCEPTIONS = HERE.with_name("out_of_tree_exceptions.txt")
VARIABLE = "HEADRACE_TORCH_SOURCE"
EXAMPLE = "test/cpp_extensions/open_registration_extension/torch_openreg/tests"
FILES = {  # the name of a file in rows and reports, and its place in torch's sources
    **{
        f"test_{name}": f"{EXAMPLE}/test_{name}.py"
        for name in "event streams memory rng storage autocast autograd device misc distributed profiler".split()
    },
    "test_accelerator": "test/test_accelerator.py",
    "torch_test_profiler": "test/profiler/test_profiler.py",
}
RENAMED = (
    (r"\btorch_openreg\b", "headrace.torch"),
    ("openreg|OpenReg", "headrace"),
    ("OPENREG", "HEADRACE"),
    ("occl", "headrace"),
    ("OCCL", "Headrace"),
)
FOR_CUDA = ("torch_test_profiler",)
RENAMED_OF_CUDA = (
    (r"from torch\.testing\._internal\.common_cuda import (TEST_MULTIGPU)", r"\1 = torch.cuda.device_count() > 1"),
    (r"skipIf\(\s*torch\.cuda\.is_available\(\)", "skipIf(False"),  # tests that CUDA alone can't run
    (r"(Activity|== DeviceType)\.CUDA\b", r"\1.PrivateUse1"),
    (r"\bcuda_runtime\b", "privateuse1_runtime"),
    (r"\bCUDA_RUNTIME\b", "PRIVATEUSE1_RUNTIME"),
    (r"\bTEST_CUDA\b", "TEST_PRIVATEUSE1"),
    (r"device\.upper\(\)", '"PrivateUse1"'),
    (r"(?<!version\.)\bcuda\b", "headrace"),
)
OPTIONAL = ("psutil",)  # packages without which a file is skipped
SETTINGS = {
    "HEADRACE_CPU_DEVICES": "2",
    "HEADRACE_FALLBACK": "error",
    "HEADRACE_JIT": "off",
    "HEADRACE_THREADS": "1",
    "MASTER_ADDR": "127.0.0.1",
}
SETTINGS_OF = {"torch_test_profiler": {"HEADRACE_MODE": "eager"}}  # deferred work without a reader would not run


# ---- in a file's process


class Lines(unittest.TestResult):
    """Writes a line of JSON when a test begins, and one with its outcome when it ends."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def write(self, test, outcome, detail=""):
        self.out.write(json.dumps([name_of(test), outcome, detail]) + "\n")
        self.out.flush()

    def startTest(self, test):  # noqa: N802
        super().startTest(test)
        self.outcome = ("pass", "")
        self.write(test, "begin")

    def stopTest(self, test):  # noqa: N802
        super().stopTest(test)
        self.write(test, *self.outcome)

    def addFailure(self, test, error):  # noqa: N802
        self.outcome = ("fail", self._exc_info_to_string(error, test))
        if not isinstance(test, unittest.TestCase):  # what a class or a module does before its tests
            self.write(test, *self.outcome)

    addError = addFailure  # noqa: N815

    def addSubTest(self, test, subtest, error):  # noqa: N802
        if error is not None:
            self.addFailure(test, error)

    def addSkip(self, test, reason):  # noqa: N802
        self.outcome = ("skip", reason)

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self.outcome = ("fail", "passes, and torch expects a failure")


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}" if isinstance(test, unittest.TestCase) else str(test)


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def run_module(name, out, skipped):
    """Runs a module's tests, apart from those that `skipped` names."""
    import torch

    import headrace.torch  # noqa: F401

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        module = importlib.import_module(name)
    except (unittest.SkipTest, ModuleNotFoundError) as reason:
        if getattr(reason, "name", None) not in (None, *OPTIONAL):
            raise
        out.write(json.dumps(["", "skip", str(reason)]) + "\n")
        return
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    wanted = [test for test in tests_of(suite) if name_of(test) not in skipped]
    unittest.TestSuite(wanted).run(Lines(out))
    out.write(json.dumps(["", "end", ""]) + "\n")


def child(directory, name, outcomes):
    skipped = set(json.load(sys.stdin))
    sys.path.insert(0, directory)
    sys.argv = [name]
    with open(outcomes, "a") as out:
        run_module(name, out, skipped)
        out.flush()
        os._exit(0)  # without the device's and torch's ends, which are no part of a test


# ---- in the runner


def renamed(text, is_for_cuda):
    for pattern, replacement in RENAMED + (RENAMED_OF_CUDA if is_for_cuda else ()):
        text = re.sub(pattern, replacement, text)
    return text


def run_file(directory, name, skipped, seconds):
    """{test: (outcome, detail)}; outcomes: pass, fail, skip."""
    outcomes, found, skipped = Path(directory, f"{name}.outcomes"), {}, set(skipped)
    command = [sys.executable, str(HERE), "--child", directory, name, str(outcomes)]
    variables = {**SETTINGS_OF.get(name, {}), **os.environ}
    while True:
        outcomes.write_text("")
        problem, shown = "", ""
        try:
            sent = json.dumps(sorted(skipped))
            ran = subprocess.run(command, input=sent, env=variables, capture_output=True, text=True, timeout=seconds)
            shown, problem = ran.stderr, f"the process ended with {ran.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"it took longer than {seconds} s"
        lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
        found.update({test: (outcome, detail) for test, outcome, detail in lines if test})
        if lines and not lines[-1][0]:
            if lines[-1][1] == "skip":
                found["file"] = ("skip", lines[-1][2])
            return found
        if not lines:
            found["file"] = ("fail", f"{shown}\n{problem}")
            return found
        found[lines[-1][0]] = ("fail", f"{shown}\n{problem}")
        skipped.update(found)


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


def judge(test, outcome, detail, how):
    """The problem with a test's outcome, or nothing."""
    if outcome == "fail" and how != "fail":
        return f"{test}: {detail}"
    if outcome == "pass" and how:
        return f"{test}: passes, and is listed in {EXCEPTIONS.name}"
    return None


def main():
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="patterns of tests: file.class.test")
    parser.add_argument("--source", default=os.environ.get(VARIABLE), help=f"a checkout of torch (default: ${VARIABLE})")
    parser.add_argument("--seconds", type=int, default=300, help="a file that takes longer fails (default %(default)s)")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    rows, problems = read_exceptions(), []
    for name, place in FILES.items():
        path = Path(options.source or "", place)
        if options.only and not any(pattern.split(".")[0] == name for pattern in options.only):
            continue
        if not options.source or not path.is_file():
            print(f"{name}: not run: " + (f"{path} is no file" if options.source else f"set {VARIABLE}"))
            continue
        problems += report_file(name, path, options, rows)
    if problems:
        print(*problems, sep="\n")
    sys.exit(1 if problems else 0)


def report_file(name, path, options, rows):
    """Runs a file, prints its counts, and returns its problems."""
    begin, counts, problems = time.monotonic(), {}, []
    skipped = [] if options.only else [test.split(".", 1)[1] for test, row in rows.items() if row[0] == "skip"]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, f"{name}.py").write_text(renamed(path.read_text(), name in FOR_CUDA))
        for data in path.parent.glob("*.json"):  # recordings that tests read
            Path(directory, data.name).symlink_to(data.resolve())
        found = run_file(directory, name, skipped, options.seconds)
    for test, (outcome, detail) in found.items():
        test, (how, _) = f"{name}.{test}", rows.get(f"{name}.{test}", ("", ""))
        if options.only and not any(fnmatch.fnmatch(test, pattern) for pattern in options.only):
            continue
        said = "expected" if outcome == "fail" and how else outcome
        counts[said] = counts.get(said, 0) + 1
        if options.verbose or options.only:
            print(f"{said:8}  {test}  {last_line(detail)}")
        if problem := judge(test, outcome, detail if options.only else last_line(detail), how):
            problems.append(problem)
    shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts))
    print(f"{name}: {shown}, {time.monotonic() - begin:.0f} s", flush=True)
    return problems


if __name__ == "__main__":
    main()
