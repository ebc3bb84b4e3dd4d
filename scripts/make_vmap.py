#!/usr/bin/env python3
"""Writes docs/vmap.md from src/transform/vmap.def and src/core/ops/ops.def; --check fails if it is stale."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/vmap.md"
ROW = re.compile(r"^HR_VMAP_(LEAD|MASK|DIM|EACH|PLANES|CODE)\((\w+)(?:, (.*))?\)$")
OPERATION = re.compile(r"^HR_(POINTWISE|REDUCE|ARGREDUCE|CONTRACTION|COMPOSITE|LIBRARY|SPECIAL)\((\w+), \w+, (.*)$")
TEXT = re.compile(r'"([^"]*)"')
HEAD = """\
<!-- Generated from src/transform/vmap.def by scripts/make_vmap.py; do not edit. -->
# Operations on examples

A vmap ([transform.h](../include/headrace/transform.h), [arrays.md](arrays.md#many-examples-at-once)) records the
operations of one example ([operators.md](operators.md)) once for all examples: {once} of {count} rows. The other {each}
rows, and rows of tensors that have the most dims already, are recorded once for each example.

- {pointwise} element-wise rows: the examples are one more leading dim, to which operands that are the same in all
  examples are broadcast.
- {reductions} reductions: the same, and the reduced dims move by one.
- {lead} rows: the examples are one more batch dim of each operand: {lead_rows}.
- {dim} rows along a dim, which moves by one: {dim_rows}.
- {mask} rows that reduce dims, which move by one: {mask_rows}.
- {planes} rows on planes with one or two dims in front: the examples are one more dim in front of one, and are folded
  into the first of two: {planes_rows}.

Of other rows the condition is:

| row | once for all examples, if |
|---|---|
{code}

*Folded*: the examples are a part of dim 0. Operands whose memory does not allow that are copied.

## Once for each example

{each_rows}.
"""


def joined(text):
    """The lines of a table: continuation lines (indented by four spaces) are joined, and so are adjacent strings."""
    return re.sub(r'" +"', "", re.sub(r"\n {4}", " ", text)).splitlines()


def has_batch_dims(rest):
    shapes = TEXT.search(rest)[1].split(";")[0].replace(">", " ").split()
    return all(re.match(r"\w\??\.\.", shape) for shape in shapes)


def numbered(side, numbers):
    return f"{side} {numbers[0]} is" if len(numbers) == 1 else f"{side}s {' and '.join(numbers)} are"


def condition(rule, rest):
    texts = TEXT.findall(rest)
    if rule == "CODE":
        return texts[0]
    words = []
    for side, letters in zip(("input", "output"), texts):
        if same := [str(i) for i, letter in enumerate(letters) if letter == "s"]:
            words.append(f"{numbered(side, same)} the same in all examples")
        if absent := [str(i) for i, letter in enumerate(letters) if letter == "n"]:
            words.append(f"{numbered(side, absent)} absent")
        if "m" in letters:
            words.append("the mask is the same in all and does not depend on dim 0, or has all dims; without dropout")
    kind = "folded, operands with steps into dim 1" if "t" in texts[0] else "folded"
    return "; ".join(words + [kind if "f" in texts[0] else "one more leading dim"])


def names(rows):
    return ", ".join(f"`{row.lower()}`" for row in rows)


def wrapped(text):
    return "\n".join(
        textwrap.fill(line, 120, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)
        if len(line) > 120 and not line.startswith("|")
        else line
        for line in text.replace("\n  ", " ").split("\n")
    )


def render(table, operations):
    rules = [match.groups() for line in joined(table) if (match := ROW.match(line))]
    if len(rules) != sum(line.startswith("HR_VMAP_") for line in joined(table)):
        sys.exit("vmap.def: a row that can't be read")
    rows = [match.groups() for line in joined(operations) if (match := OPERATION.match(line))]
    library = [row for family, row, rest in rows if family == "LIBRARY" and has_batch_dims(rest)]
    lead = library + [row for rule, row, _ in rules if rule == "LEAD"]
    kinds = {kind: [row for rule, row, _ in rules if rule == kind.upper()] for kind in ("dim", "mask", "planes")}
    code = [f"| `{row.lower()}` | {condition(rule, rest)} |" for rule, row, rest in rules if rule in ("CODE", "EACH")]
    pointwise = sum(family == "POINTWISE" for family, _, _ in rows)
    reductions = sum(family in ("REDUCE", "ARGREDUCE") for family, _, _ in rows)
    known = {row for _, row, _ in rules} | set(library)
    each = [row for family, row, _ in rows if not family.endswith(("POINTWISE", "REDUCE")) and row not in known]
    text = HEAD.format(
        count=len(rows), once=len(rows) - len(each), each=len(each), each_rows=names(each), pointwise=pointwise,
        reductions=reductions, lead=len(lead), lead_rows=names(lead), code="\n".join(code),
        **{kind: len(found) for kind, found in kinds.items()},
        **{f"{kind}_rows": names(found) for kind, found in kinds.items()},
    )  # fmt: skip
    return wrapped(text)


def main():
    table, operations = (ROOT / "src/transform/vmap.def").read_text(), (ROOT / "src/core/ops/ops.def").read_text()
    text = render(table, operations)
    if "--check" in sys.argv:
        if not DOC.exists() or DOC.read_text() != text:
            sys.exit("docs/vmap.md is stale: run scripts/make_vmap.py")
        return
    DOC.write_text(text)


if __name__ == "__main__":
    main()
