"""Results of test files on Headrace and on the CPU backend of the framework: where they are kept, which cases count,
what is expected, and lines of text about them.

A result is the JSON object of processes.run_file. The cases that count are those that pass on the CPU backend, or
without its result those that passed or failed here.
"""

import collections
import json
import pathlib
import re


def add_options(parser, folder, page):
    add = parser.add_argument
    add("--results", type=pathlib.Path, default=folder, help="folder of the results")
    add("--seconds", type=int, default=3600, help="of a file")
    add("--megabytes", type=int, default=8192, help="of memory for a process")
    add("--jobs", type=int, default=1, help="files at a time")
    add("--again", action="store_true", help="also files that have results of Headrace")
    add("--failed", action="store_true", help="of files that have results, the failed cases again")
    add("--more", action="store_true", help="files that were cut go on with their other cases")
    add("--errors", action="store_true", help="count the first lines of failures")
    add("--cases", action="store_true", help="list the failed cases with their errors")
    add("--every", type=int, default=1, help="one case of so many; names select them")
    add("--select", help="cases, as pytest -k selects them")
    add("--table", action="store_true", help=f"write {page}")
    add("--write", action="store_true", help="write the failures into expected_failures.txt")


def has_all_cases(options):
    """True if files run with all of their cases, so that their results are kept."""
    return not options.select and options.every == 1


class Store:
    """The results of files and platforms in a folder."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, file, platform):
        return self.folder / f"{file.removesuffix('.py').replace('/', '@')}.{platform}.json"

    def read(self, file, platform):
        path = self.path(file, platform)
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, result):
        path = self.path(result["file"], result["platform"])
        path.with_suffix(".new").write_text(json.dumps(result, indent=0))
        path.with_suffix(".new").replace(path)

    def run_or_read(self, file, platform, options, run):
        """The result of a file on a platform: the one that is kept, or that of `run(only, done)`, which is kept."""
        kept = self.read(file, platform)
        is_here = platform != "cpu"
        only = has_case(kept, "failed") if kept and is_here and options.failed else None
        done = ended(kept) if kept and kept["end"] and options.more else {}
        if kept and not only and not done and not (is_here and options.again):
            return kept
        found = run(only, done)
        if only:
            found["cases"] = kept["cases"] | found["cases"]
            found["is_named"] = kept.get("is_named", False)
        if has_all_cases(options):
            self.write(found)
        return found

    def files(self):
        return sorted({f"{path.name.split('.')[0].replace('@', '/')}.py" for path in self.folder.glob("*.json")})


def ended(result):
    """The cases of a result without the one that was running when the file was cut."""
    return {case: found for case, found in result["cases"].items() if not found[1].endswith(result["end"])}


def has_case(result, outcome):
    return [case for case, (found, _) in result["cases"].items() if found == outcome]


def outcomes(result, *kinds):
    return {case for case, (outcome, _) in result["cases"].items() if outcome in kinds}


def wanted(here, cpu):
    return outcomes(cpu, "passed") if cpu else outcomes(here, "passed", "failed")


def failures(here, cpu):
    """{case: error} of those that should pass. A skipped case counts as one that fails."""
    cases = wanted(here, cpu) - outcomes(here, "passed")
    found = {case: here["cases"].get(case, ("absent", "")) for case in cases}
    return {case: error or f"the case is {outcome}" for case, (outcome, error) in found.items()}


def share(here, cpu):
    cases = wanted(here, cpu)
    return len(cases & outcomes(here, "passed")) / len(cases) if cases else 1


def kind_of(error):
    """An error without numbers and places, so that equal reasons count together."""
    return re.sub(r"\d+", "N", re.sub(r"\(\"[^)]*\)+", "()", error))[:110].replace("\t", " ")


def describe(here, cpu):
    counts = " ".join(f"{len(outcomes(here, kind)):5d} {kind}" for kind in ("passed", "failed", "skipped"))
    of = f" of {len(wanted(here, cpu))} of the CPU backend" if cpu else ""
    rate, took = f"{share(here, cpu):8.2%}{of}", f"{here['seconds']} s, {here['peak_megabytes']} MB"
    return f"{here['file']:36s} {counts} {rate}, {took} {here['end']}".rstrip()


def read_expected(path):
    """{case: reason}"""
    lines = (line.split("\t") for line in path.read_text().splitlines())
    return {case: reason for case, reason in lines}


def write_expected(path, expected, results):
    """The failures of these results take the place of those that the list has of their cases."""
    found = dict(expected)
    for here, cpu in results:
        failed = failures(here, cpu)
        for case in here["cases"]:
            found.pop(case, None)
        found |= {case: expected.get(case) or kind_of(error) for case, error in failed.items()}
    path.write_text("".join(f"{case}\t{reason}\n" for case, reason in sorted(found.items())))


def print_unexpected(here, cpu, expected):
    """True if there is such a result."""
    failed = failures(here, cpu)
    new = [case for case in failed if case not in expected]
    fixed = [case for case in has_case(here, "passed") if case in expected]
    for case in new:
        print(f"    unexpected: {case}: {failed[case][:300]}")
    if fixed:
        print(f"    pass, and are in expected_failures.txt: {' '.join(sorted(fixed))}")
    return bool(new or fixed or here["end"])


def print_failures(here, cpu, options):
    failed = failures(here, cpu)
    for case, error in sorted(failed.items()) if options.cases else ():
        print(f"    {case}: {error[:200]}", flush=True)
    counts = collections.Counter(map(kind_of, failed.values()))
    for kind, count in counts.most_common() if options.errors else ():
        print(f"    {count:5d} {kind}", flush=True)
