"""Runs TensorFlow's tests of kernels on the device HEADRACE and on its CPU device, each file in a process of its own.

    HEADRACE_TF_SOURCE=checkout TF_PLUGGABLE_DEVICE_LIBRARY_PATH=libheadrace_tensorflow.so \
      python tests/tf_suite/run.py --only math_ops nn_ops/relu_op_test.py

The checkout is one of TensorFlow's sources; its tests run with the installed TensorFlow. They are those of the folders
FOLDERS in tensorflow/python/kernel_tests. Results are kept in --results, a JSON file for each file and device; those
that are there do not run again, so that an interrupted run goes on. The rate is the share of the cases that pass on the
CPU device. An operation that TensorFlow has on GPUs and that has no kernel on the device fails, unless --fallback says
"allow".

Names of GPUs mean HEADRACE (device_names.py). Cases that leave themselves out if there is a GPU run again without.

--again runs files on Headrace that have results, --failed their failed cases alone. --errors counts the first lines of
failures, --cases lists failed cases. --table writes docs/tensorflow-tests.md from all results; with --more they are added
to those of the page.

The exit status is 1 if a case fails that passes on the CPU device and that expected_failures.txt does not have, or if
one of these passes. --write writes that file.
"""

import argparse
import functools
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "tests/suite")]
import folder_table  # noqa: E402
import pairs  # noqa: E402
import processes  # noqa: E402
import results  # noqa: E402

FOLDERS = ("array_ops", "control_flow", "math_ops", "nn_ops", "random", "variables")
EXPECTED = pathlib.Path(__file__).with_name("expected_failures.txt")
PAGE_HEAD = """\
<!-- Written by tests/tf_suite/run.py --table; do not edit. -->
# TensorFlow's tests of kernels

The test files of TensorFlow's folder `tensorflow/python/kernel_tests` run on the device HEADRACE and on TensorFlow's
CPU device, on one machine: `make conformance-tensorflow-kernels`. Each file has a process of its own. A case counts if
it passes on the CPU device. Names of GPUs mean HEADRACE. An operation without a kernel on the device fails
(`HEADRACE_FALLBACK=error`) if TensorFlow has it on GPUs for the same types.

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


def environment(platform, options):
    found = os.environ | {
        "PYTHONPATH": processes.python_path(pathlib.Path(__file__).parent, ROOT / "frontends/tensorflow"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HEADRACE_SUITE_DEVICE": "CPU",
        "HEADRACE_SUITE_NAMED": options.named,
        "HEADRACE_FALLBACK": "",
    }
    if platform == "cpu":
        return found | {LIBRARY: ""}
    fallback = "" if options.fallback == "allow" else options.fallback
    return found | {"HEADRACE_SUITE_DEVICE": "HEADRACE", "HEADRACE_FALLBACK": fallback}


def run_file(folder, name, platform, options, only, show=lambda cases: None):
    command = [sys.executable, "-c", START, "-p", "device_names", "--import-mode=importlib"]
    command += [f"--rootdir={folder.parents[3]}"]  # or the folder random would become Python's module of this name
    command += processes.pytest_options(folder / name, options, CASE_SECONDS)
    variables = environment(platform, options)
    found = processes.run_file(name, command, folder, variables, options, only, show)
    return {"platform": platform, "fallback": options.fallback} | found


def run_left_out(folder, pair, options, store):
    """Cases that leave themselves out beside a GPU run without one."""
    here, cpu = pair
    left_out = sorted(results.outcomes(here, "skipped") & results.outcomes(cpu, "passed"))
    if not left_out or here.get("is_named") or options.named:
        return
    options = argparse.Namespace(**vars(options) | {"named": "cpu"})
    again = run_file(folder, here["file"], "headrace", options, left_out)
    here["cases"] |= again["cases"]
    here["seconds"] = round(here["seconds"] + again["seconds"], 1)
    here["end"], here["is_named"] = here["end"] or again["end"], True
    if results.has_all_cases(options):
        store.write(here)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser, ROOT / "build/tf-suite", "docs/tensorflow-tests.md")
    folder_table.add_option(parser)
    add = parser.add_argument
    add("--only", nargs="*", help="folders or files, as math_ops or nn_ops/relu_op_test.py")
    add("--fallback", choices=["error", "warn", "allow"], default="error", help="HEADRACE_FALLBACK (%(default)s)")
    add("--named", choices=["", "cpu"], default="", help="cpu: the tests see no GPU")
    return parser.parse_args()


def main():
    options = parse()
    source = os.environ.get("HEADRACE_TF_SOURCE")
    if not source:
        print("TensorFlow's tests of kernels did not run: HEADRACE_TF_SOURCE names no checkout of TensorFlow")
        return 0
    folder = pathlib.Path(source).resolve() / "tensorflow/python/kernel_tests"
    if not folder.is_dir():
        sys.exit(f"HEADRACE_TF_SOURCE: {source} has no tensorflow/python/kernel_tests")
    names, every = (pairs.test_files(folder, only, FOLDERS) for only in (options.only, None))
    write_page = functools.partial(folder_table.write_page, ROOT / "docs/tensorflow-tests.md", PAGE_HEAD, is_more=options.more)
    run, finish = functools.partial(run_file, folder), functools.partial(run_left_out, folder)
    suite = pairs.Suite("TensorFlow's tests of kernels", EXPECTED, run, write_page, finish)
    return pairs.run_all(suite, names, len(every), options)


if __name__ == "__main__":
    sys.exit(main())
