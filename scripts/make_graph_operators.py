#!/usr/bin/env python3
"""Writes docs/graph-operators.md from src/functional/mpsgraph.tsv: the selectors of MPSGraph by name, each with the
functions of src/functional/functional.def that do the same, or a reason. --check fails if the page is stale. Both fail
for a function that does not exist."""

import itertools
import re
import sys

from make_functional import ROOT, write_or_check

TABLE = ROOT / "src/functional/mpsgraph.tsv"
DOC = "docs/graph-operators.md"
HEAD = """\
<!-- Generated from src/functional/mpsgraph.tsv by scripts/make_graph_operators.py; do not edit. -->
# MPSGraph's operators

A [graph](graphs.md) consists of [functions](functional.md). This page lists the {count} selectors of MPSGraph by name,
each with the functions that do the same: {whole} are one function, {several} are several ones, and {others} are something
else, as the last column says. A selector that takes shapes, axes or numbers as tensors has the same functions as the one
without: attributes of a graph may be values that are computed on the host ([graphs.md](graphs.md#dims)).

Gradients need no functions of their own: the operation `gradient` of graphs, and `hr.grad` of arrays, record them.
"""


def functions():
    text = (ROOT / "src/functional/functional.def").read_text(encoding="utf-8")
    return set(re.findall(r"^HR_FUNCTIONAL\(\w+, (\w+),", text, re.MULTILINE))


def rows():
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        yield line.split("\t")


def title(family):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", family)


def page():
    known, table = functions(), list(rows())
    missing = sorted({name for _, _, names, _ in table for name in names.split()} - known)
    if missing:
        sys.exit(f"{TABLE.name}: no functions of functional.def: {', '.join(missing)}")
    counts = [len(names.split()) for _, _, names, _ in table]
    lines = HEAD.format(count=len(table), whole=counts.count(1), others=counts.count(0),
                        several=sum(count > 1 for count in counts)).splitlines()  # fmt: skip
    for family, group in itertools.groupby(table, key=lambda row: row[0]):
        lines += ["", f"## {title(family)}", "", "| selector | functions | |", "|---|---|---|"]
        for _, selector, names, note in group:
            lines.append(f"| `{selector}` | {', '.join(f'`{name}`' for name in names.split())} | {note} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check("make_graph_operators.py", {DOC: page()}))
