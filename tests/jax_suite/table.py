"""Results of JAX's tests as text: a line for each file, and the page docs/jax-tests.md.

A result is the JSON object of one_file.run_file. The cases that count are those that pass on JAX's CPU backend, or
without its result those that passed or failed here.
"""

import collections
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/jax-tests.md"
HEAD = """\
<!-- Written by tests/jax_suite/run.py --table; do not edit. -->
# JAX's own tests

The test files of JAX 0.10.2 run on Headrace and on JAX's CPU backend, each file in a process of its own, on one
machine: `make jax-tests`. A case counts if it passes on the CPU backend. Files whose tests want several devices have as
many of the host (`HEADRACE_CPU_DEVICES`). Cases that skip platforms whose names they do not know, or fail under this
name, run under the name of the CPU backend. Tests of Pallas, of several processes, and of GPUs and TPUs are left out;
files that are absent below have not been compared.

"""


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
    rate = f"{share(here, cpu):8.2%}{of}"
    return f"{here['file']:36s} {counts} {rate}, {here['seconds']} s, {here['peak_megabytes']} MB {here['end']}".rstrip()


def row(here, cpu, expected):
    failed = failures(here, cpu)
    reasons = collections.Counter(expected.get(case) or kind_of(error) for case, error in failed.items())
    text = "; ".join(f"{reason.replace('|', ' ')} ({count})" for reason, count in reasons.most_common(4))
    passed = len(wanted(here, cpu)) - len(failed)
    return f"| {here['file'].removesuffix('.py')} | {passed + len(failed)} | {passed} | {share(here, cpu):.1%} | {text} |"


def kept_rows():
    """{file: row} of the page that is there."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if re.match(r"\| \w+_test \|", line)}


def counts(line):
    """The cases of a row that pass on the CPU backend, and here."""
    return [int(cell) for cell in line.split("|")[2:4]]


def write_page(pairs, expected):
    """The page for (result of Headrace, result of the CPU backend) of files. Other files keep their rows."""
    rows = kept_rows() | {
        here["file"].removesuffix(".py"): row(here, cpu, expected) for here, cpu in pairs if wanted(here, cpu)
    }
    totals = [counts(line) for line in rows.values()]
    count, passed = (sum(total[i] for total in totals) for i in range(2))
    lines = [f"{passed:,} of {count:,} cases pass: {passed / max(count, 1):.2%}.", ""]
    lines += ["| file | CPU backend | Headrace | share | fails, with the reason |", "|---|---:|---:|---:|---|"]
    lines += [rows[file] for file in sorted(rows)]
    PAGE.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"wrote {PAGE}")
