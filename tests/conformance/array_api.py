#!/usr/bin/env python3
"""Conformance of arrays: array-api-tests, the array API standard's own tests, against `headrace`.

usage: array_api.py [--only TEST ...] [--source DIRECTORY] [--examples N] [--seconds N]

    HEADRACE_ARRAY_API_SOURCE=~/array-api-tests array_api.py            all of them: some minutes
    array_api.py --source ~/array-api-tests --only test_set_functions.py  these, with details

The tests are read from a checkout with its submodule array-api. Without one they are reported as not run. Hypothesis
draws the same examples in each run.

docs/array-api.md has a row for each test that does not pass, with its reason. Other failures fail here, and so do
listed tests that pass or that do not exist.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
PAGE = HERE.parents[2] / "docs/array-api.md"
VARIABLE = "HEADRACE_ARRAY_API_SOURCE"
VERSION = "2024.12"
FOLDER = "array_api_tests"
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$")


def read_exceptions(page=PAGE):
    """{test: reason} of the page's rows."""
    rows = (ROW.match(line) for line in page.read_text().splitlines())
    return {row[1]: row[2] for row in rows if row}


def why_not(source):
    """Why the tests can't run from here; None: they can."""
    if not source:
        return f"set {VARIABLE}"
    for part in (FOLDER, "array-api/src"):
        if not Path(source, part).is_dir():
            return f"{Path(source, part)} is no folder"
    return None


def run(source, examples, seconds, only):
    """[(test, outcome, detail)] of all tests, or of `only` these, and the end of what pytest printed.

    outcome: passed, failed, error or skipped.
    """
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-deadline"]
        command += [f"{FOLDER}/{test}" for test in only] or [FOLDER]
        command += ["--derandomize", "--max-examples", str(examples), "--json-report", f"--json-report-file={report}"]
        settings = {"ARRAY_API_TESTS_MODULE": "headrace", "ARRAY_API_TESTS_VERSION": VERSION}
        settings |= {"HYPOTHESIS_STORAGE_DIRECTORY": directory, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            command, cwd=source, env=os.environ | settings, capture_output=True, text=True, timeout=seconds
        )
        tests = json.loads(report.read_text())["tests"] if report.exists() else []
    return [(name_of(test), test["outcome"], detail_of(test)) for test in tests], (ran.stdout + ran.stderr)[-2000:]


def name_of(test):
    return test["nodeid"].removeprefix(FOLDER + "/")


def detail_of(test):
    stages = [test.get(stage, {}) for stage in ("setup", "call", "teardown")]
    return next((str(stage["longrepr"]) for stage in stages if stage.get("longrepr")), "")


def last_line(detail):
    lines = [line.removeprefix("E").strip() for line in detail.splitlines() if line.startswith("E ")]
    errors = [line for line in lines if re.match(r"\w*(\.\w+)*(Error|Exception)\b", line)]
    return (errors or lines or [""])[0][:160]


def judge(found, rows):
    """Counts of outcomes, and problems: {test: what is wrong with its outcome}."""
    counts, problems = {}, {}
    for test, outcome, detail in found:
        is_listed, has_failed = test in rows, outcome not in ("passed", "skipped")
        said = "expected to fail" if has_failed and is_listed else outcome
        counts[said] = counts.get(said, 0) + 1
        if has_failed and not is_listed:
            problems[test] = last_line(detail)
        elif is_listed and not has_failed:
            problems[test] = f"{outcome}, and is listed in {PAGE.name}"
    for test in rows.keys() - {test for test, _, _ in found}:
        problems[test] = f"does not exist, and is listed in {PAGE.name}"
    return counts, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="these, with details: file.py::test[case]")
    parser.add_argument("--source", default=os.environ.get(VARIABLE), help=f"the checkout (default: ${VARIABLE})")
    parser.add_argument("--examples", type=int, default=100, help="of each test (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=3600, help="the longest time of a run (default %(default)s)")
    options = parser.parse_args()
    if reason := why_not(options.source):
        print(f"array-api-tests: not run: {reason}")
        return
    begin = time.monotonic()
    found, output = run(options.source, options.examples, options.seconds, options.only)
    if not found:
        sys.exit(output)
    rows = read_exceptions()
    if options.only:
        print(*(f"{outcome:8}  {test}\n{detail}" for test, outcome, detail in found), sep="\n")
        rows = {test: rows[test] for test, _, _ in found if test in rows}
    counts, problems = judge(found, rows)
    for test, problem in sorted(problems.items()):
        print(f"{test}: {problem}")
    shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts))
    print(f"array-api-tests {VERSION}: {len(found)} tests: {shown}, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
