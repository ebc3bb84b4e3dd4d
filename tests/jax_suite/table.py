"""Results of JAX's tests as text: a line for each file, and the page docs/jax-tests.md."""

import collections
import pathlib
import re

import results

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/jax-tests.md"
HEAD = """\
<!-- Written by tests/jax_suite/run.py --table; do not edit. -->
# JAX's own tests

The test files of JAX 0.10.2 run on Headrace and on JAX's CPU backend, each file in a process of its own, on one
machine: `make jax-tests`. A case counts if it passes on the CPU backend. Files whose tests want several devices have as
many of the host (`HEADRACE_CPU_DEVICES`). Cases that skip platforms whose names they do not know, or fail under this
name, run under the name of the CPU backend. Tests of Pallas, of several processes, and of GPUs and TPUs are left out,
as are files without a case that passes on the CPU backend. Others that are absent below have not been compared.

"""


def row(here, cpu, expected):
    failed = results.failures(here, cpu)
    reasons = collections.Counter(expected.get(case) or results.kind_of(error) for case, error in failed.items())
    texts = [f"{reason.replace('|', ' ')} ({count})" for reason, count in reasons.most_common(4)]
    if cpu["end"]:
        texts.append(f"only the first {len(cpu['cases'])} cases count: the CPU backend took too long")
    text = "; ".join(texts)
    name, passed = here["file"].removesuffix(".py"), len(results.wanted(here, cpu)) - len(failed)
    return f"| {name} | {passed + len(failed)} | {passed} | {results.share(here, cpu):.1%} | {text} |"


def kept_rows():
    """{file: row} of the page that is there."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if re.match(r"\| \w+_test \|", line)}


def counts(line):
    """The cases of a row that pass on the CPU backend, and here."""
    return [int(cell) for cell in line.split("|")[2:4]]


def write_page(pairs, expected, _):
    """The page for (result of Headrace, result of the CPU backend) of files. Other files keep their rows."""
    rows = kept_rows() | {
        here["file"].removesuffix(".py"): row(here, cpu, expected)
        for here, cpu in pairs
        if results.wanted(here, cpu)
    }
    totals = [counts(line) for line in rows.values()]
    count, passed = (sum(total[i] for total in totals) for i in range(2))
    lines = [f"{passed:,} of {count:,} cases pass: {passed / max(count, 1):.2%}.", ""]
    lines += ["| file | CPU backend | Headrace | share | fails, with the reason |", "|---|---:|---:|---:|---|"]
    lines += [rows[file] for file in sorted(rows)]
    PAGE.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"wrote {PAGE}")
