#!/usr/bin/env python3
"""Writes docs/onnx.md from src/importers/onnx/operators.def and tests/onnx/expected.txt; --check fails if it is stale."""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/onnx.md"
ROW = re.compile(r'^HR_ONNX\((\w+), (\w+), (\w+), "([^"]*)", "([^"]*)"\)$', re.MULTILINE)
ROW_IN = re.compile(r'^HR_ONNX_IN\("([^"]*)", (\w+), (\w+), "([^"]*)", "([^"]*)"\)$', re.MULTILINE)
REFUSED = re.compile(r'^HR_ONNX_REFUSED\((\w+), "([^"]*)", "([^"]*)"\)$', re.MULTILINE)
HEAD = """\
<!-- Generated from src/importers/onnx/operators.def and tests/onnx/expected.txt by scripts/make_onnx.py; do not edit. -->
# ONNX models

`headrace convert model.onnx -o model.hrpkg` writes an ONNX model as a package ([graphs.md](graphs.md#packages)).
`headrace inspect` and `headrace run` read models, too, and so does a program in C with
[importer.h](../include/headrace/importer.h). Models of operator sets 1 to 27 are read; of an operator of several
versions, the one of the model's set.

- Nodes become functions ([functional.md](functional.md)). Functions of the model are mapped in their place. A dim that
  the model leaves open is a symbol.
- Sizes that follow from shapes and constants are computed on the host. Of other integers on which dims depend, such as
  a shape that is an input, a run reads up to 16, for which it waits. A value in the options of `hr_onnx_open` makes such
  an input a constant. RoiAlign without `sampling_ratio` waits for the largest number of samples.
- If, Loop and Scan become [control flow](graphs.md#control-flow), and their subgraphs functions. A branch whose condition
  is known takes the place of its node. A body is mapped as often as it runs if a state or a result is a sequence, a state
  changes its dtype or rank, or dims differ in the iterations of a count of at most 1,024. Both branches are computed if
  their dims follow from sizes around them in a way that a function can't express.
- Integers of 2 and 4 bits are stored in bytes, and FLOAT4E2M1 in f32.
- Constants of 64 KB and more stay in the mapped file, wherever they are in it. External data is read from the model's
  folder alone; links are not followed. Tensors of one type at one range of such a file are one constant. Tensors that
  overlap otherwise are refused if they have more bytes in all than twice the file and 4 MiB.

## Operators

{count} operators are supported. *Versions* are those that changed the operator.

| operator | versions | refused |
|---|---|---|
{rows}

These are refused:

| operator | versions | reason |
|---|---|---|
{refused}

## Tests

`make onnx` runs the tests of the package `onnx` 1.22 within its own bounds: {suites}. `tests/onnx/expected.txt` lists
the {failures} tests that fail:

| reason | tests |
|---|---|
{reasons}

`tests/onnx/goldens.py` compares small models (recurrent layers, quantised products, resizing, loops, branches) with
kept answers of ONNX Runtime 1.32, and `--write` makes these anew. `tests/onnx/networks.py` exports the benchmarks' and the gallery's networks with torch, in small, and compares their
answers with those of ONNX Runtime, where it is installed, or of torch. The root mean square of the differences is at
most 1e-5 of the answers' standard deviation. With 1 and 2 threads the bits are the same.
"""


def build():
    table = (ROOT / "src/importers/onnx/operators.def").read_text()
    lines = (ROOT / "tests/onnx/expected.txt").read_text().splitlines()
    failing = [line.split(":", 1) for line in lines if line.strip() and not line.startswith("#")]
    reasons = collections.Counter(reason.strip() for _, reason in failing)
    others = ROW_IN.findall(table)
    rows = sorted(ROW.findall(table), key=lambda row: row[0].lower())
    return HEAD.format(
        count=len(rows) + len(others),
        rows="\n".join(
            [f"| {name} | {since} | {note} |" for name, _, _, since, note in rows]
            + [f"| {name} of {domain} | {since} | {note} |" for domain, name, _, since, note in others]
        ),
        refused="\n".join(f"| {name} | {since} | {reason} |" for name, since, reason in REFUSED.findall(table)),
        suites="1,765 of nodes, 23 simple ones, 35 of PyTorch's operators and 82 of its modules",
        failures=len(failing),
        reasons="\n".join(f"| {reason} | {count} |" for reason, count in reasons.most_common()),
    )


def main():
    text = build()
    if sys.argv[1:] == ["--check"]:
        if not DOC.exists() or DOC.read_text() != text:
            sys.exit("docs/onnx.md is stale: run scripts/make_onnx.py")
        return
    DOC.write_text(text)


if __name__ == "__main__":
    main()
