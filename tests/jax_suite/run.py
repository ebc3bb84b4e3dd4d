"""Runs JAX's own tests on the platform "headrace" and on JAX's CPU backend, each file in a process of its own.

    HEADRACE_JAX_SOURCE=checkout HEADRACE_JAX_LIBRARY=libheadrace_jax.so python tests/jax_suite/run.py --files lax_test

The checkout is that of the installed JAX's tag. Without --files all files of its tests run but those of devices that
are not here. Results are kept in --results, a JSON file for each file and platform; those that are there do not run
again, so that an interrupted run goes on. The rate is the share of the cases that pass on the CPU backend.

--again runs files on Headrace that have results, --failed their failed cases alone. --errors counts the first lines of
failures, --cases lists failed cases. --table writes docs/jax-tests.md from all results.

The exit status is 1 if a case fails that passes on the CPU backend and that expected_failures.txt does not have, or if
one of these passes. --write writes that file. --sample runs a fixed part of some files, without the CPU backend.
"""

import argparse
import collections
import json
import os
import pathlib
import sys

import one_file
import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
import progress  # noqa: E402

LEFT_OUT = ("pallas", "mosaic", "multiprocess", "gpu", "tpu", "x64_context", "documentation_coverage")
EXPECTED = pathlib.Path(__file__).with_name("expected_failures.txt")
SAMPLE = ("api_test", "fft_test", "lax_autodiff_test", "lax_control_flow_test", "lax_numpy_operators_test")
SAMPLE += ("lax_numpy_test", "lax_test", "linalg_test", "nn_test", "random_lax_test")
SAMPLE_EVERY, SAMPLE_SECONDS = 16, 120


class Store:
    """The results of files and platforms in a folder."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, file, platform):
        return self.folder / f"{pathlib.Path(file).stem}.{platform}.json"

    def read(self, file, platform):
        path = self.path(file, platform)
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, result):
        path = self.path(result["file"], result["platform"])
        path.with_suffix(".new").write_text(json.dumps(result, indent=0))
        path.with_suffix(".new").replace(path)

    def files(self):
        return sorted({f"{path.name.split('.')[0]}.py" for path in self.folder.glob("*.json")})


def has_case(result, outcome):
    return [case for case, (found, _) in result["cases"].items() if found == outcome]


def run_named(path, here, cpu, options, store, line):
    """Cases that do not pass run under the name of the CPU backend, if they pass on it: many skip platforms that they do
    not know, and others expect of memory of the host what the CPU backend has."""
    skipped = has_case(here, "skipped") + has_case(here, "failed")
    skipped = [case for case in skipped if cpu["cases"].get(case, [""])[0] == "passed"]
    if not skipped or here.get("is_named") or options.named:
        return
    line.status = f"{path.stem} named cpu, {len(skipped)} cases"
    again = one_file.run_file(path, "headrace", argparse.Namespace(**vars(options) | {"named": "cpu"}), skipped)
    here["cases"] |= {case: found for case, found in again["cases"].items() if found[0] != "skipped"}
    here["seconds"] = round(here["seconds"] + again["seconds"], 1)
    here["peak_megabytes"] = max(here["peak_megabytes"], again["peak_megabytes"])
    here["end"], here["is_named"] = here["end"] or again["end"], True
    if not options.select and options.every == 1:
        store.write(here)


def run_or_read(path, platform, options, store, line):
    """The result of a file on a platform: the one that is kept, or a new one."""
    kept = store.read(path.name, platform)
    is_here = platform != "cpu"
    only = has_case(kept, "failed") if kept and is_here and options.failed else None
    if kept and not only and not (is_here and options.again):
        return kept
    line.status = f"{path.stem} on {platform}"

    def show(cases):
        line.status = f"{path.stem} on {platform}, {cases} cases"

    found = one_file.run_file(path, platform, options, only, show)
    if only:
        found["cases"] = kept["cases"] | found["cases"]
        found["is_named"] = kept.get("is_named", False)
    if not options.select and options.every == 1:
        store.write(found)
    return found


def read_expected():
    """{case: reason}"""
    lines = (line.split("\t") for line in EXPECTED.read_text().splitlines())
    return {case: reason for case, reason in lines}


def write_expected(expected, results):
    """The failures of these results take the place of those that the list has of their cases."""
    found = dict(expected)
    for here, cpu in results:
        failed = table.failures(here, cpu)
        for case in here["cases"]:
            found.pop(case, None)
        found |= {case: expected.get(case) or table.kind_of(error) for case, error in failed.items()}
    EXPECTED.write_text("".join(f"{case}\t{reason}\n" for case, reason in sorted(found.items())))


def print_unexpected(here, cpu, expected):
    """True if there is such a result."""
    failed = table.failures(here, cpu)
    new = [case for case in failed if case not in expected]
    fixed = [case for case in has_case(here, "passed") if case in expected]
    for case in new:
        print(f"    unexpected: {case}: {failed[case][:300]}")
    if fixed:
        print(f"    pass, and are in {EXPECTED.name}: {' '.join(sorted(fixed))}")
    return bool(new or fixed or here["end"])


def print_failures(here, cpu, options):
    failed = table.failures(here, cpu)
    for case, error in sorted(failed.items()) if options.cases else ():
        print(f"    {case}: {error[:200]}", flush=True)
    counts = collections.Counter(map(table.kind_of, failed.values()))
    for kind, count in counts.most_common() if options.errors else ():
        print(f"    {count:5d} {kind}", flush=True)


def run_all(paths, options):
    """1 if a result is unexpected."""
    store, expected, status, results = Store(options.results), read_expected(), 0, []
    line = progress.Line(f"JAX's tests, {len(paths)} files", sys.stderr)
    for path in paths:
        runs = {platform: run_or_read(path, platform, options, store, line) for platform in options.platforms}
        here, cpu = runs.get("headrace"), runs.get("cpu")
        if here is None:
            continue
        if cpu is not None:
            run_named(path, here, cpu, options, store, line)
        print(table.describe(here, cpu), flush=True)
        print_failures(here, cpu, options)
        status |= print_unexpected(here, cpu, expected)
        results.append((here, cpu))
    line.finish("done")
    if options.write:
        write_expected(expected, results)
    if options.table:
        pairs = ((store.read(file, "headrace"), store.read(file, "cpu")) for file in store.files())
        table.write_page([(here, cpu) for here, cpu in pairs if here and cpu], read_expected())
    return 0 if options.write else int(status)


def as_sample(options):
    options.every, options.seconds, options.platforms = SAMPLE_EVERY, SAMPLE_SECONDS, ["headrace"]
    options.count, options.files = 1, SAMPLE


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", nargs="*", help="names of test files, with or without .py")
    parser.add_argument("--platforms", nargs="+", default=["cpu", "headrace"], choices=["cpu", "headrace"])
    parser.add_argument("--count", type=int, help="generated cases of a test; JAX's default is 10")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build/jax-suite", help="folder of the results")
    parser.add_argument("--seconds", type=int, default=3600, help="of a file")
    parser.add_argument("--megabytes", type=int, default=8192, help="of memory for a process")
    parser.add_argument("--again", action="store_true", help="also files that have results of Headrace")
    parser.add_argument("--failed", action="store_true", help="of files that have results, the failed cases again")
    parser.add_argument("--errors", action="store_true", help="count the first lines of failures")
    parser.add_argument("--cases", action="store_true", help="list the failed cases with their errors")
    parser.add_argument("--every", type=int, default=1, help="one case of so many; names select them")
    parser.add_argument("--named", help="the platform's name for the tests, many of which skip those they don't know")
    parser.add_argument("--select", help="cases, as pytest -k selects them")
    parser.add_argument("--table", action="store_true", help="write docs/jax-tests.md")
    parser.add_argument("--write", action="store_true", help="write the failures into expected_failures.txt")
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
    paths = [folder / f"{name}.py" for name in names]
    absent = [path.stem for path in paths if not path.exists()]
    if absent:
        sys.exit(f"{folder} has no {', '.join(absent)}")
    return run_all(paths, options)


if __name__ == "__main__":
    sys.exit(main())
