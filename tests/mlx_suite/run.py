"""Runs MLX's own tests on headrace.mlx: `make mlx-tests`. They are read from a checkout, and are no part of this tree.

usage: run.py [--modules own,mlx] [--only test_ops,test_nn] [--verbose] [--report FILE]

HEADRACE_MLX_SOURCE is the checkout, of the commit in docs/mlx.md. The tests run twice: with headrace's nn and
optimizers ("own"), and with MLX's Python files on headrace's mlx.core ("mlx"). Each file runs in a process of its own.
Tests that fail are rows of the table in docs/mlx.md, with the reason; a row whose test passes is an error, too.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "..", "..", "docs", "mlx.md")
SECONDS = 900  # of one file
ROW = re.compile(r"^\| (test_\w+(?:\.\w+)*) \| (both|own|mlx) \| (.+) \|$")


def exceptions():
    """The rows of the page's table: (test, modules) and the reason."""
    found = {}
    with open(PAGE) as page:
        for line in page:
            row = ROW.match(line.rstrip())
            for modules in (("own", "mlx") if row[2] == "both" else (row[2],)) if row else ():
                found[row[1], modules] = row[3]
    return found


def test_files(checkout, only):
    folder = os.path.join(checkout, "python", "tests")
    names = sorted(name[:-3] for name in os.listdir(folder) if name.startswith("test_") and name.endswith(".py"))
    return [name for name in names if not only or name in only]


def read_results(path):
    """{test: [outcome, reason, seconds]}; tests without an outcome failed with the process."""
    try:
        with open(path) as file:
            lines = [json.loads(line) for line in file]
    except (OSError, ValueError):
        lines = []
    results = {name: ["failed", "the process ended before", 0] for name in (lines[0] if lines else [])}
    results.update({name: [outcome, reason, seconds] for name, outcome, reason, seconds in lines[1:]})
    return results


def environment():
    """The process's, with absolute paths: tests run in another folder."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in paths if path)}


def run_file(checkout, name, modules, folder):
    path = os.path.join(folder, f"{name}.{modules}.json")
    command = [sys.executable, os.path.join(HERE, "one_file.py"), checkout, name, modules, path]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS
        )
        text, code = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired:
        text, code = f"more than {SECONDS} seconds", "timeout"
    results = read_results(path)
    if code != 0:
        results[name] = ["failed", f"the process ended with {code}: {text[-2000:]}", 0]
    return results


def judge(results, modules, expected):
    """Names of tests that failed without a row, and of those that passed with one."""
    has_row = {name: (name, modules) in expected for name in results}
    failed = [name for name, (outcome, *_) in results.items() if outcome == "failed" and not has_row[name]]
    passed = [name for name, (outcome, *_) in results.items() if outcome == "passed" and has_row[name]]
    return failed, passed


def count(results, outcome):
    return sum(1 for found, *_ in results.values() if found == outcome)


def show(name, modules, results, failed, passed, seconds, verbose):
    print(
        f"{name:22} {modules:4} {count(results, 'passed'):4} passed {count(results, 'failed'):3} failed "
        f"{count(results, 'skipped'):3} skipped {seconds:6.1f} s",
        flush=True,
    )
    for test in failed:
        last = results[test][1].strip().splitlines()[-1:] or [""]
        print(f"    {test}: {last[0][:200]}", flush=True)
        if verbose:
            print(results[test][1])
    for test in passed:
        print(f"    {test} passed: remove its row from docs/mlx.md", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", default="own,mlx")
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--report")
    options = parser.parse_args()
    checkout = os.environ.get("HEADRACE_MLX_SOURCE", "")
    if not os.path.isdir(os.path.join(checkout, "python", "tests")):
        print("mlx-tests: not run: HEADRACE_MLX_SOURCE does not name a checkout of MLX")
        return 0
    expected, totals, is_bad, report = exceptions(), {}, False, {}
    with tempfile.TemporaryDirectory() as folder:
        for modules in options.modules.split(","):
            for name in test_files(checkout, [only for only in options.only.split(",") if only]):
                began = time.time()
                results = run_file(os.path.abspath(checkout), name, modules, folder)
                failed, passed = judge(results, modules, expected)
                show(name, modules, results, failed, passed, time.time() - began, options.verbose)
                is_bad |= bool(failed or passed)
                report[f"{modules} {name}"] = results
                for outcome in ("passed", "failed", "skipped"):
                    totals[modules, outcome] = totals.get((modules, outcome), 0) + count(results, outcome)
    for modules in options.modules.split(","):
        counts = [f"{totals.get((modules, key), 0)} {key}" for key in ("passed", "failed", "skipped")]
        print(f"{modules:4}", ", ".join(counts))
    if options.report:
        with open(options.report, "w") as file:
            json.dump(report, file)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
