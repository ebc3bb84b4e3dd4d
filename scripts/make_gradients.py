#!/usr/bin/env python3
"""Writes docs/gradients.md from src/transform/gradients.def; --check fails if it is stale."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/gradients.md"
ROW = re.compile(r"^(HR_GRADIENT(?:_LOOPS|_ROW|_CODE|_MISSING)?|HR_NO_GRADIENT)\((\w+)(?:, (.*))?\)$")
SECTION = re.compile(r"^/\* ---- (.*) ---- \*/$")
TEXT = re.compile(r'"([^"]*)"')
HEAD = """\
<!-- Generated from src/transform/gradients.def by scripts/make_gradients.py; do not edit. -->
# Gradients

A tape ([transform.h](../include/headrace/transform.h)) differentiates these operations ([operators.md](operators.md)).
Of {count} rows, {rules} have a gradient, {none} have the gradient 0, and {missing} are an error if a gradient reaches
them.

A cell has an expression for each input, in `g` (the gradient of the output; `g1` of output 1), the inputs `x0`, `x1`,
..., the outputs `y`, `y1`, and `n`, the number of elements of `x0` for each of `y`. The expressions are those of C on
the rows of ops.def; `conj` of a real number is the number. After a bar: the form for complex numbers. A dash: the
function is constant, or constant between steps. A question mark: the gradient is not known. Gradients of broadcast
inputs are summed. If an expression reads an output that the record leaves out, the tape adds it to the record.

Of composites without a rule the tape records the loops instead, and differentiates those. So it does for composites
with a rule, if an active input has none, or if the record has a floating output whose gradient no rule reads. Loops
that combine by index otherwise than by sums have no gradient.

Products of Jacobians and tangents, the forward mode, follow from the same rules
([decisions.md](decisions.md)).
"""


def joined(text):
    """The lines of the table: continuation lines (indented by four spaces) are joined, and so are adjacent strings."""
    return re.sub(r'" +"', "", re.sub(r"\n {4}", " ", text)).splitlines()


def code(text):
    shown = text.replace("|", "\\|")
    return f"`{shown}`" if text not in ("", "?") else {"": "-", "?": "?"}[text]


def cell(kind, rest):
    if kind == "HR_GRADIENT_LOOPS":
        return "that of its loops"
    texts = TEXT.findall(rest)
    if kind == "HR_GRADIENT":
        return "; ".join(code(text) for text in texts) if len(texts) < 2 else "<br>".join(code(t) for t in texts)
    if kind == "HR_GRADIENT_ROW":
        return f"`{rest.split(',')[0].lower()}({', '.join(texts[0].split(';')[0].split())})` gives {texts[1]}"
    if kind == "HR_GRADIENT_CODE":
        return "a function"
    return ("0: " if kind == "HR_NO_GRADIENT" else "an error: ") + texts[0]


def render(text):
    lines, counts = [], {"rules": 0, "none": 0, "missing": 0}
    for line in joined(text):
        if section := SECTION.match(line):
            lines += ["", f"## {section[1][0].upper()}{section[1][1:]}", "", "| operation | gradient |", "|---|---|"]
        elif row := ROW.match(line):
            kind = {"HR_NO_GRADIENT": "none", "HR_GRADIENT_MISSING": "missing"}.get(row[1], "rules")
            counts[kind] += 1
            lines.append(f"| `{row[2].lower()}` | {cell(row[1], row[3])} |")
        elif line.startswith("HR_"):
            sys.exit(f"gradients.def: a row that can't be read: {line}")
    return HEAD.format(count=sum(counts.values()), **counts) + "\n".join(lines) + "\n"


def main():
    text = render((ROOT / "src/transform/gradients.def").read_text())
    if "--check" in sys.argv:
        if not DOC.exists() or DOC.read_text() != text:
            sys.exit("docs/gradients.md is stale: run scripts/make_gradients.py")
        return
    DOC.write_text(text)


if __name__ == "__main__":
    main()
