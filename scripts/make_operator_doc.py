#!/usr/bin/env python3
"""Writes docs/operators.md (every operation, one row each) from src/core/ops/ops.def; --check fails if it is stale."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/operators.md"
ROW = re.compile(r"^HR_(POINTWISE|REDUCE|ARGREDUCE|CONTRACTION|COMPOSITE|LIBRARY|SPECIAL)\((.*)\)$")
RULE = re.compile(r"^ \*   ([a-z_0-9]+) +(\S.*)$")
SECTION = re.compile(r"^/\* ---- (.*) ---- \*/$")
HEAD = """\
<!-- Generated from src/core/ops/ops.def by scripts/make_operator_doc.py; do not edit. -->
# Operations

{count} rows. The family of a row defines how it runs:

- **element-wise**: one element of the output from one element of each input. Runs inside a fused loop.
- **reduction**, **index of the best**: combines the elements over some dims. Runs inside a fused loop.
- **contraction**: run by a library if one supports it, otherwise lowered to loops.
- **composite**: lowered to the rows above before anything runs.
- **library**: has no loops; a library, or kernels of our own for one device, must support it.
- **special**: run by the engine itself.

*Computes in* lists the kinds of arithmetic of the row: integer (including bool), real (f32, f64), complex. Narrow types
compute in the next wider kind and are rounded after each operation. *Accuracy*: exact (correctly rounded, or exact),
ulp (a few units in the last place of the result), abs (a few units in the last place of the largest term).
`?` marks an optional operand; *ints* are part of a program, *scalars* are arguments of each run.

*Dims* names the rule by which `hr_op_infer` (`include/headrace/op.h`) finds the outputs' dims; the last section
explains the rules. A library row has a pattern instead, in the notation of the head of `src/core/ops/ops.def`.
"""
RULES = """\

## Rules of inference

| rule | the outputs' dims |
|---|---|
"""
FAMILY = {
    "POINTWISE": "element-wise",
    "REDUCE": "reduction",
    "ARGREDUCE": "index of the best",
    "CONTRACTION": "contraction",
    "COMPOSITE": "composite",
    "LIBRARY": "library",
    "SPECIAL": "special",
}
KINDS = {"I": "integer", "F": "real", "C": "complex"}


def joined(text):
    """The lines of the table: continuation lines (indented by four spaces) are joined, and so are adjacent strings."""
    return re.sub(r'" +"', "", re.sub(r"\n {4}", " ", text)).splitlines()


def split(arguments):
    """The arguments of a row: splits at commas outside of parentheses and quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for i, char in enumerate(arguments):
        if char == '"':
            quoted = not quoted
        elif not quoted and char in "()":
            depth += 1 if char == "(" else -1
        elif not quoted and char == "," and depth == 0:
            parts.append(arguments[start:i].strip())
            start = i + 1
    return parts + [arguments[start:].strip()]


def cells(family, fields):
    """name, family, inputs, kinds of arithmetic, accuracy, rule of inference, documentation."""
    name, doc = f"`{fields[1]}`", fields[-1].strip('"').replace("|", "\\|").replace("*", "\\*")
    inputs = kinds = accuracy = ""
    rule = {"POINTWISE": "broadcast", "REDUCE": "reduce", "ARGREDUCE": "reduce"}.get(family, "")
    if family == "POINTWISE":
        inputs, kinds, accuracy = fields[2], fields[4], fields[5].lower()
    elif family == "REDUCE":
        inputs, kinds = "1", fields[5]
    elif family == "ARGREDUCE":
        inputs, kinds = "2", "IF"
    elif family == "LIBRARY":
        rule = fields[2].strip('"')
    else:
        rule = fields[3 if family == "COMPOSITE" else 2]
    return [name, FAMILY[family], inputs, ", ".join(KINDS[kind] for kind in kinds), accuracy, f"`{rule}`", doc]


def rules(text, used):
    """The head's list of rules, each of which a row uses."""
    head = text[text.index("by rule of inference") : text.index("*/")]
    known = dict(match.groups() for match in map(RULE.match, head.splitlines()) if match)
    if set(known) != used:
        sys.exit(f"ops.def: its head and its rows have different rules of inference: {sorted(set(known) ^ used)}")
    return RULES + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in known.items())


def render(text):
    lines, count, used = [], 0, set()
    for line in joined(text):
        if section := SECTION.match(line):
            title = section[1].split(";")[0].split(":")[0]
            note = section[1][len(title) + 2 :].replace("*", "\\*")
            lines += ["", f"## {title[0].upper()}{title[1:]}", ""] + ([f"({note})", ""] if note else [])
            lines += [
                "| operation | family | inputs | computes in | accuracy | dims | result |",
                "|---|---|---|---|---|---|---|",
            ]
        elif row := ROW.match(line):
            values = cells(row[1], split(row[2]))
            lines.append("| " + " | ".join(values) + " |")
            used |= set() if row[1] == "LIBRARY" else {values[5].strip("`")}
            count += 1
    return HEAD.format(count=count) + "\n".join(lines) + "\n" + rules(text, used)


def main():
    text = render((ROOT / "src/core/ops/ops.def").read_text())
    if "--check" in sys.argv:
        if not DOC.exists() or DOC.read_text() != text:
            sys.exit("docs/operators.md is stale: run scripts/make_operator_doc.py")
        return
    DOC.write_text(text)


if __name__ == "__main__":
    main()
