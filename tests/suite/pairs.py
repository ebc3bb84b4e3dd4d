"""Runs test files on the device and on the CPU device of a framework, and compares: for tests/jax_suite,
tests/keras_suite and tests/tf_suite. `platforms` of the options may name one of them alone."""

import argparse
import concurrent.futures
import dataclasses
import pathlib
import sys
import typing

import progress
import results

PLATFORMS = ("headrace", "cpu")


@dataclasses.dataclass
class Suite:
    """`run(name, platform, options, only, show)` runs one file; show(cases) gets how many cases have ended.
    `options.done` has the cases that ended in a run before. `finish(pair, options, store)` may change the result of the
    device before it is shown."""

    title: str
    expected: pathlib.Path
    run: typing.Callable
    write_page: typing.Callable  # of pairs of results, expected failures, and the number of files
    finish: typing.Callable = lambda pair, options, store: None


def test_files(folder, only, parts=("",)):
    """Names of test files, relative to the folder; `parts` are the folders in it that have them."""
    paths = sorted(path for part in parts for path in (folder / part).rglob("*_test.py"))
    every = [path.relative_to(folder).as_posix() for path in paths]
    if not only:
        return every
    found = [name for word in only for name in every if name.startswith(word.rstrip("/") + "/") or name == word]
    absent = [word for word in only if not any(name.startswith(word.rstrip("/")) for name in found)]
    if absent:
        sys.exit(f"{folder} has no tests in {', '.join(absent)}")
    return list(dict.fromkeys(found))


def run_or_read(suite, name, platform, options, store, line, place):
    def run(only, done):
        line.status = f"{place}, {name} on {platform}"

        def show(cases):
            line.status = f"{place}, {name} on {platform}, {cases} cases"

        return suite.run(name, platform, argparse.Namespace(**vars(options) | {"done": done}), only, show)

    return store.run_or_read(name, platform, options, run)


def run_all(suite, names, every, options):
    """1 if a result is unexpected. `every`: the number of files that the suite has."""
    store, expected, status, found = results.Store(options.results), results.read_expected(suite.expected), 0, []
    platforms = getattr(options, "platforms", PLATFORMS)
    line = progress.Line(f"{suite.title}, {len(names)} files", sys.stderr)

    def both(index):
        place = f"{index + 1} of {len(names)}"
        name = names[index]
        runs = {platform: run_or_read(suite, name, platform, options, store, line, place) for platform in platforms}
        here, cpu = (runs.get(platform) for platform in PLATFORMS)
        if here and cpu:
            suite.finish((here, cpu), options, store)
        return here, cpu

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for here, cpu in pool.map(both, range(len(names))):
            if here is None:
                continue
            print(results.describe(here, cpu), flush=True)
            results.print_failures(here, cpu, options)
            status |= results.print_unexpected(here, cpu, expected)
            found.append((here, cpu))
    line.finish("done")
    if options.write:
        results.write_expected(suite.expected, expected, found)
    if options.table:
        pairs = [(store.read(file, "headrace"), store.read(file, "cpu")) for file in store.files()]
        suite.write_page([(here, cpu) for here, cpu in pairs if here and cpu], results.read_expected(suite.expected),
                         every)
    return 0 if options.write else int(status)
