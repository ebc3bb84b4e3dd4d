"""Runs Keras' own tests on the device HEADRACE and on TensorFlow's CPU device, each file in a process of its own.

    TF_PLUGGABLE_DEVICE_LIBRARY_PATH=libheadrace_tensorflow.so python tests/keras_suite/run.py --only losses layers/core

The tests are those of the installed Keras, keras/src/**/*_test.py. --only names folders or files in keras/src. Results
are kept in --results, a JSON file for each file and device; those that are there do not run again, so that an
interrupted run goes on. The rate is the share of the cases that pass on the CPU device. An operation that has no kernel
on the device fails, unless --fallback says "allow".

--again runs files on Headrace that have results, --failed their failed cases alone. --errors counts the first lines of
failures, --cases lists failed cases. --table writes docs/keras-tests.md from all results.

The exit status is 1 if a case fails that passes on the CPU device and that expected_failures.txt does not have, or if
one of these passes. --write writes that file.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "tests/suite")]
import processes  # noqa: E402
import progress  # noqa: E402
import results  # noqa: E402
import table  # noqa: E402

EXPECTED = pathlib.Path(__file__).with_name("expected_failures.txt")
LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
PLATFORMS = ("headrace", "cpu")
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


def test_files(folder, only):
    """Names of test files, relative to the folder."""
    every = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*_test.py"))
    if not only:
        return every
    found = [name for word in only for name in every if name.startswith(word.rstrip("/") + "/") or name == word]
    absent = [word for word in only if not any(name.startswith(word.rstrip("/")) for name in found)]
    if absent:
        sys.exit(f"{folder} has no tests in {', '.join(absent)}")
    return list(dict.fromkeys(found))


def environment(platform, options):
    found = os.environ | {
        "PYTHONPATH": processes.python_path(ROOT / "frontends/tensorflow"),
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


def run_or_read(folder, name, platform, options, store, line, place):
    def run(only):
        line.status = f"{place}, {name} on {platform}"

        def show(cases):
            line.status = f"{place}, {name} on {platform}, {cases} cases"

        return run_file(folder, name, platform, options, only, show)

    return store.run_or_read(name, platform, options, run)


def run_all(folder, names, options):
    """1 if a result is unexpected."""
    store, expected, status, found = results.Store(options.results), results.read_expected(EXPECTED), 0, []
    line = progress.Line(f"Keras' tests, {len(names)} files", sys.stderr)

    def both(index):
        place = f"{index + 1} of {len(names)}"
        return [run_or_read(folder, names[index], platform, options, store, line, place) for platform in PLATFORMS]

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for here, cpu in pool.map(both, range(len(names))):
            print(results.describe(here, cpu), flush=True)
            results.print_failures(here, cpu, options)
            status |= results.print_unexpected(here, cpu, expected)
            found.append((here, cpu))
    line.finish("done")
    if options.write:
        results.write_expected(EXPECTED, expected, found)
    if options.table:
        pairs = [(store.read(file, "headrace"), store.read(file, "cpu")) for file in store.files()]
        pairs = [(here, cpu) for here, cpu in pairs if here and cpu]
        table.write_page(pairs, results.read_expected(EXPECTED), len(test_files(folder, None)))
    return 0 if options.write else int(status)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser, ROOT / "build/keras-suite", "docs/keras-tests.md")
    add = parser.add_argument
    add("--only", nargs="*", help="folders or files in keras/src, as losses or layers/core/dense_test.py")
    add("--fallback", choices=["error", "warn", "allow"], default="error", help="HEADRACE_FALLBACK (%(default)s)")
    add("--jobs", type=int, default=1, help="files at a time")
    return parser.parse_args()


def main():
    options = parse()
    folder = source()
    return run_all(folder, test_files(folder, options.only), options)


if __name__ == "__main__":
    sys.exit(main())
