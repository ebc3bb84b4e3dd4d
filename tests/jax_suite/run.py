"""Runs JAX's own tests on the platform "headrace", each file in a process of its own.

    HEADRACE_JAX_SOURCE=checkout HEADRACE_JAX_LIBRARY=libheadrace_jax.so python tests/jax_suite/run.py lax_test.py ...

The checkout is that of the installed JAX's tag. Without names, all files of its tests run but those of devices that are
not here. --cpu runs JAX's CPU backend, too, and compares: the rate is then the share of the cases that pass there.
Otherwise it is passed / (collected - skipped). A file that ends early or takes too long has no cases, and a note.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

LEFT_OUT = ("pallas", "mosaic", "multiprocess", "gpu", "tpu", "x64_context", "documentation_coverage")
START = "import headrace_jax, pytest, sys; headrace_jax.initialize(); sys.exit(pytest.main(sys.argv[1:]))"


def run_file(path, platform, seconds):
    """Names of the cases by outcome: passed, failed, skipped. One more line for a file that did not end."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        package = pathlib.Path(__file__).resolve().parents[2] / "frontends/jax"
        paths = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"JAX_PLATFORMS": platform, "PYTHONPATH": paths}
        command = [sys.executable, "-c", START, "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(path)]
        try:
            done = subprocess.run(
                command, env=environment, cwd=path.parent.parent, capture_output=True, timeout=seconds, check=False
            )
            end = f"ended by signal {-done.returncode}" if done.returncode < 0 else ""
        except subprocess.TimeoutExpired:
            end = f"took more than {seconds} s"
        return outcomes(report), end


def outcomes(report):
    found = {"passed": set(), "failed": set(), "skipped": set()}
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            kind = "skipped" if "skipped" in kinds else "failed" if kinds & {"failure", "error"} else "passed"
            found[kind].add(f"{case.get('classname')}.{case.get('name')}")
    return found


def describe(path, here, end, cpu):
    passed, failed = len(here["passed"]), len(here["failed"])
    line = f"{path.name:36s} {passed:6d} passed {failed:6d} failed {len(here['skipped']):6d} skipped"
    wanted = cpu["passed"] if cpu else here["passed"] | here["failed"]
    share = len(wanted & here["passed"]) / len(wanted) if wanted else 0
    return f"{line} {share:8.2%}{' of the CPU backend' if cpu else ''} {end}".rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seconds", type=int, default=1800, help="of a file")
    parser.add_argument("--cpu", action="store_true", help="compare with JAX's CPU backend")
    options = parser.parse_args()
    source = os.environ.get("HEADRACE_JAX_SOURCE")
    if not source:
        print("JAX's own tests did not run: HEADRACE_JAX_SOURCE names no checkout of JAX")
        return 0
    folder = pathlib.Path(source) / "tests"
    names = options.files or [path.name for path in sorted(folder.glob("*_test.py"))]
    for path in (folder / name for name in names if not any(word in name for word in LEFT_OUT)):
        cpu = run_file(path, "cpu", options.seconds)[0] if options.cpu else None
        print(describe(path, *run_file(path, "headrace", options.seconds), cpu), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
