"""Runs Keras' own tests on the device HEADRACE and on TensorFlow's CPU device, each file in a process of its own.

    TF_PLUGGABLE_DEVICE_LIBRARY_PATH=libheadrace_tensorflow.so python tests/keras_suite/run.py --only losses layers/core

The tests are those of the installed Keras, keras/src/**/*_test.py. --only names folders or files in keras/src. Results
are kept in --results, a JSON file for each file and device; those that are there do not run again, so that an
interrupted run goes on. The rate is the share of the cases that pass on the CPU device. An operation that has no kernel
on the device fails, unless --fallback says "allow".

--again runs files on Headrace that have results, --failed their failed cases alone. --errors counts the first lines of
failures, --cases lists failed cases. --table writes docs/keras-tests.md from all results; with --more they are added to
those of the page.

The exit status is 1 if a case fails that passes on the CPU device and that expected_failures.txt does not have, or if
one of these passes. --write writes that file.
"""

import argparse
import functools
import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "tests/suite")]
import folder_table  # noqa: E402
import pairs  # noqa: E402
import processes  # noqa: E402
import results  # noqa: E402

EXPECTED = pathlib.Path(__file__).with_name("expected_failures.txt")
PAGE_HEAD = """\
<!-- Written by tests/keras_suite/run.py --table; do not edit. -->
# Keras' own tests

The test files of Keras 3.15.1 run on the device HEADRACE and on TensorFlow's CPU device, each file in a process of its
own, on one machine: `make conformance-keras`. A case counts if it passes on the CPU device. An operation without a
kernel on the device fails (`HEADRACE_FALLBACK=error`). Some files import other packages (JAX, PyTorch, pandas, SciPy,
scikit-learn, Grain, Pillow); without them they have no cases.

"""
LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
CASE_SECONDS = 300
START = """
import os, sys
sys.path[:] = filter(None, sys.path)
import pytest, tensorflow
if os.environ.get("HEADRACE_FALLBACK"):
    import headrace_tensorflow
device = os.environ["HEADRACE_SUITE_DEVICE"]
if not tensorflow.config.list_physical_devices(device):
    sys.exit("TensorFlow has no device " + device)
sys.exit(pytest.main(sys.argv[1:]))
"""


def source():
    """The folder keras/src."""
    found = importlib.util.find_spec("keras")
    if found is None:
        sys.exit("Keras' own tests did not run: this Python has no keras")
    return pathlib.Path(found.submodule_search_locations[0], "src")


def environment(platform, options):
    found = os.environ | {
        "PYTHONPATH": processes.python_path(pathlib.Path(__file__).with_name("stand_ins"), ROOT / "frontends/tensorflow"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "KERAS_BACKEND": "tensorflow",
        "HEADRACE_SUITE_DEVICE": "CPU",
        "HEADRACE_FALLBACK": "",
    }
    if platform == "cpu":
        return found | {LIBRARY: ""}
    fallback = "" if options.fallback == "allow" else options.fallback
    return found | {"HEADRACE_SUITE_DEVICE": "HEADRACE", "HEADRACE_FALLBACK": fallback}


def run_file(folder, name, platform, options, only, show):
    command = [sys.executable, "-c", START]
    command += processes.pytest_options(folder / name, options, CASE_SECONDS)
    variables = environment(platform, options)
    found = processes.run_file(name, command, folder.parent.parent, variables, options, only, show)
    return {"platform": platform, "fallback": options.fallback} | found


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser, ROOT / "build/keras-suite", "docs/keras-tests.md")
    folder_table.add_option(parser)
    add = parser.add_argument
    add("--only", nargs="*", help="folders or files in keras/src, as losses or layers/core/dense_test.py")
    add("--fallback", choices=["error", "warn", "allow"], default="error", help="HEADRACE_FALLBACK (%(default)s)")
    return parser.parse_args()


def main():
    options = parse()
    folder = source()
    names, every = pairs.test_files(folder, options.only), len(pairs.test_files(folder, None))
    write_page = functools.partial(folder_table.write_page, ROOT / "docs/keras-tests.md", PAGE_HEAD, is_more=options.more)
    suite = pairs.Suite("Keras' tests", EXPECTED, functools.partial(run_file, folder), write_page)
    return pairs.run_all(suite, names, every, options)


if __name__ == "__main__":
    sys.exit(main())
