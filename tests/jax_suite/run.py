"""Runs JAX's own tests on the platform "headrace" and on JAX's CPU backend, each file in a process of its own.

    HEADRACE_JAX_SOURCE=checkout HEADRACE_JAX_LIBRARY=libheadrace_jax.so python tests/jax_suite/run.py --files lax_test

The checkout is that of the installed JAX's tag. Without --files all files of its tests run but those of devices that
are not here. Results are kept in --results, a JSON file for each file and platform; those that are there do not run
again, so that an interrupted run goes on. The rate is the share of the cases that pass on the CPU backend.

--again runs files on Headrace that have results, --failed their failed cases alone. --more goes on with files that were
cut by --seconds. --errors counts the first lines of failures, --cases lists failed cases. --table writes
docs/jax-tests.md from all results.

The exit status is 1 if a case fails that passes on the CPU backend and that expected_failures.txt does not have, or if
one of these passes. --write writes that file. --sample runs a fixed part of some files, without the CPU backend.
"""

import argparse
import functools
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "tests/suite")]
import one_file  # noqa: E402
import pairs  # noqa: E402
import results  # noqa: E402
import table  # noqa: E402

LEFT_OUT = ("pallas", "mosaic", "multiprocess", "gpu", "tpu", "documentation_coverage")
EXPECTED = pathlib.Path(__file__).with_name("expected_failures.txt")
SAMPLE = ("api_test", "fft_test", "lax_autodiff_test", "lax_control_flow_test", "lax_numpy_operators_test")
SAMPLE += ("lax_numpy_test", "lax_test", "linalg_test", "nn_test", "random_lax_test")
SAMPLE_EVERY, SAMPLE_SECONDS = 16, 120


def run_file(folder, name, platform, options, only, show=lambda cases: None):
    return one_file.run_file(folder / name, platform, options, only, show)


def run_named(folder, pair, options, store):
    """Cases that do not pass run under the name of the CPU backend, if they pass on it: many skip platforms that they
    do not know or have fewer cases for these, and others expect of memory of the host what the CPU backend has."""
    here, cpu = pair
    is_whole = results.has_all_cases(options)
    has_absent = is_whole and not here["end"]
    others = [case for case in results.failures(here, cpu) if has_absent or case in here["cases"]]
    if not others or here.get("is_named") or options.named:
        return
    again = run_file(folder, here["file"], "headrace", argparse.Namespace(**vars(options) | {"named": "cpu"}), others)
    here["cases"] |= {case: found for case, found in again["cases"].items() if found[0] != "skipped"}
    here["seconds"] = round(here["seconds"] + again["seconds"], 1)
    here["peak_megabytes"] = max(here["peak_megabytes"], again["peak_megabytes"])
    here["end"], here["is_named"] = here["end"] or again["end"], True
    if is_whole:
        store.write(here)


def as_sample(options):
    options.every, options.seconds, options.platforms = SAMPLE_EVERY, SAMPLE_SECONDS, ["headrace"]
    options.count, options.files = 1, SAMPLE


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser, ROOT / "build/jax-suite", "docs/jax-tests.md")
    parser.add_argument("--files", nargs="*", help="names of test files, with or without .py")
    parser.add_argument("--platforms", nargs="+", default=["cpu", "headrace"], choices=["cpu", "headrace"])
    parser.add_argument("--count", type=int, help="generated cases of a test; JAX's default is 10")
    parser.add_argument("--named", help="the platform's name for the tests, many of which skip those they don't know")
    parser.add_argument("--sample", action="store_true", help="a fixed sample, held against expected_failures.txt")
    return parser.parse_args()


def main():
    options = parse()
    if options.sample:
        as_sample(options)
    source = os.environ.get("HEADRACE_JAX_SOURCE")
    if not source:
        print("JAX's own tests did not run: HEADRACE_JAX_SOURCE names no checkout of JAX")
        return 0
    folder = pathlib.Path(source).resolve() / "tests"
    every = [path.stem for path in sorted(folder.glob("*_test.py")) if not any(word in path.name for word in LEFT_OUT)]
    names = every if options.files is None else [name.removesuffix(".py") for name in options.files]
    absent = [name for name in names if not (folder / f"{name}.py").exists()]
    if absent:
        sys.exit(f"{folder} has no {', '.join(absent)}")
    run, finish = functools.partial(run_file, folder), functools.partial(run_named, folder)
    suite = pairs.Suite("JAX's tests", EXPECTED, run, table.write_page, finish)
    return pairs.run_all(suite, [f"{name}.py" for name in names], len(every), options)


if __name__ == "__main__":
    sys.exit(main())
