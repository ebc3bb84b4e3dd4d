"""Runs JAX's own tests on the platform "headrace", each file in a process of its own.

    HEADRACE_JAX_SOURCE=checkout HEADRACE_JAX_LIBRARY=libheadrace_jax.so python tests/jax_suite/run.py lax_test.py ...

The checkout is that of the installed JAX's tag. Without names, all files of its tests run but those of devices that are
not here. --cpu runs JAX's CPU backend, too, and compares: the rate is then the share of the cases that pass there.
Otherwise it is passed / (collected - skipped). A process that ends early or takes too long has the cases until then,
and a note with the case that was running. --errors counts the first lines of failures, --cases lists failed cases.

--sample runs a fixed part of some files, and fails if a case fails that expected_failures.txt does not have. --write
writes that file.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LEFT_OUT = ("pallas", "mosaic", "multiprocess", "gpu", "tpu", "x64_context", "documentation_coverage")
# The installed JAX, not the checkout's, whose compiled part is missing.
START = """
import os, sys
sys.path[:] = filter(None, sys.path)
import headrace_jax, pytest
headrace_jax.initialize()
if os.environ.get("HEADRACE_JAX_NAMED"):
    from jax._src import test_util
    test_util._TEST_DUT._set(os.environ["HEADRACE_JAX_NAMED"])
sys.exit(pytest.main(sys.argv[1:]))
"""
FOLDER = pathlib.Path(__file__).resolve().parent
EXPECTED = FOLDER / "expected_failures.txt"
SAMPLE = ("api_test", "fft_test", "lax_autodiff_test", "lax_control_flow_test", "lax_numpy_operators_test")
SAMPLE += ("lax_numpy_test", "lax_test", "linalg_test", "nn_test", "random_lax_test")
SAMPLE_EVERY, SAMPLE_SECONDS = 16, 120


class Outcomes:
    """Cases of one run: sets of names by outcome, errors by name, and how the process ended if it ended early."""

    def __init__(self, report, end):
        self.passed, self.failed, self.skipped = set(), {}, set()
        last = None
        for line in report.read_text().splitlines() if report.exists() else ():
            found = json.loads(line)
            last = found
            if found["outcome"] == "failed":
                self.failed[found["case"]] = found["error"]
            elif found["outcome"] != "began":
                getattr(self, found["outcome"]).add(found["case"])
        running = f", in {last['case']}" if last and last["outcome"] == "began" else ""
        self.end = f"{end}{running}" if end else ""


def describe_end(done):
    """How a process ended, if it has not run all cases. Without any pytest's status is 5."""
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    if done.returncode == 5 or re.search(r"\d+ (passed|failed|skipped)", done.stdout):
        return ""
    return f"ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-600:]}"


def run_file(path, platform, options):
    """The outcomes of the cases of a file on a platform."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.jsonl")
        package = FOLDER.parents[1] / "frontends/jax"
        paths = os.pathsep.join(filter(None, (str(package), str(FOLDER), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {
            "JAX_PLATFORMS": platform if platform == "cpu" else f"{platform},cpu",
            "PYTHONPATH": paths,
            "HEADRACE_JAX_REPORT": str(report),
            "HEADRACE_JAX_NAMED": options.named or "",
            "HEADRACE_JAX_EVERY": str(options.every),
        }
        if options.sample:
            environment["JAX_NUM_GENERATED_CASES"] = "1"
        command = [sys.executable, "-c", START, "-q", "-p", "no:cacheprovider", "-p", "report", str(path)]
        command += ["-k", options.select] if options.select else []
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=path.parent.parent,
                capture_output=True,
                text=True,
                timeout=options.seconds,
                check=False,
            )
            end = describe_end(done)
        except subprocess.TimeoutExpired:
            end = f"took more than {options.seconds} s"
        return Outcomes(report, end)


def describe(path, here, cpu):
    line = f"{path.name:36s} {len(here.passed):6d} passed {len(here.failed):6d} failed {len(here.skipped):6d} skipped"
    wanted = cpu.passed if cpu else here.passed | here.failed.keys()
    share = len(wanted & here.passed) / len(wanted) if wanted else 0
    return f"{line} {share:8.2%}{' of the CPU backend' if cpu else ''} {here.end}".rstrip()


def kind_of(error):
    """An error without numbers and places, so that equal reasons count together."""
    return re.sub(r"\d+", "N", re.sub(r"\(\"[^)]*\)+", "()", error))[:110]


def run_sample(folder, options):
    """1 if a case fails that is not expected to, or a file ends early."""
    expected, found, status = set(EXPECTED.read_text().split()), [], 0
    options.every, options.seconds = SAMPLE_EVERY, SAMPLE_SECONDS
    for path in (folder / f"{name}.py" for name in SAMPLE):
        here = run_file(path, "headrace", options)
        print(describe(path, here, None), flush=True)
        names = {case: case.rpartition("/")[2] for case in here.passed | here.failed.keys()}
        found += [names[case] for case in here.failed]
        new = [case for case in here.failed if names[case] not in expected]
        for case in new:
            print(f"    {names[case]}: {here.failed[case][:300]}")
        fixed = [names[case] for case in here.passed if names[case] in expected]
        if fixed:
            print(f"    pass, and are in {EXPECTED.name}: {' '.join(sorted(fixed))}")
        status |= bool(new or here.end)
    if options.write:
        EXPECTED.write_text("".join(f"{name}\n" for name in sorted(found)))
    return 0 if options.write else status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seconds", type=int, default=1800, help="of a file")
    parser.add_argument("--cpu", action="store_true", help="compare with JAX's CPU backend")
    parser.add_argument("--errors", action="store_true", help="count the first lines of failures")
    parser.add_argument("--cases", action="store_true", help="list the failed cases with their errors")
    parser.add_argument("--every", type=int, default=1, help="one case of so many; names select them")
    parser.add_argument("--named", help="the platform's name for the tests, many of which skip those they don't know")
    parser.add_argument("--select", help="cases, as pytest -k selects them")
    parser.add_argument("--sample", action="store_true", help="a fixed sample, held against expected_failures.txt")
    parser.add_argument("--write", action="store_true", help="the sample's failures into expected_failures.txt")
    options = parser.parse_args()
    source = os.environ.get("HEADRACE_JAX_SOURCE")
    if not source:
        print("JAX's own tests did not run: HEADRACE_JAX_SOURCE names no checkout of JAX")
        return 0
    folder = pathlib.Path(source).resolve() / "tests"
    if options.sample:
        return run_sample(folder, options)
    names = options.files or [path.name for path in sorted(folder.glob("*_test.py"))]
    for path in (folder / name for name in names if not any(word in name for word in LEFT_OUT)):
        cpu = run_file(path, "cpu", options) if options.cpu else None
        here = run_file(path, "headrace", options)
        print(describe(path, here, cpu), flush=True)
        for case, error in sorted(here.failed.items()) if options.cases else ():
            print(f"    {case}: {error[:200]}", flush=True)
        counts = collections.Counter(kind_of(error) for error in here.failed.values())
        for kind, count in counts.most_common() if options.errors else ():
            print(f"    {count:5d} {kind}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
