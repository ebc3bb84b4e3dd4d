#!/usr/bin/env python3
"""Writes include/headrace/op.h (the public enum of operations) from src/core/ops/ops.def."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r"^HR_(POINTWISE|REDUCE|ARGREDUCE|CONTRACTION|COMPOSITE|LIBRARY|SPECIAL)\((\w+), (\w+),.*\"(.*)\"\)$")


def render(text):
    rows = [match.groups() for match in map(ROW.match, text.splitlines()) if match]
    width = max(len(name) for _, name, _, _ in rows)
    lines = [
        "/* op.h: the operations. Generated from src/core/ops/ops.def by scripts/make_op_header.py; do not edit. */",
        "#ifndef HEADRACE_OP_H_",
        "#define HEADRACE_OP_H_",
        "",
        "typedef enum hr_op {",
        "  HR_OP_NONE = 0,",
    ]
    for _, name, _, doc in rows:
        lines.append(f"  HR_OP_{name + ',':<{width + 1}} /* {doc} */")
    lines += ["  HR_OP_COUNT", "} hr_op;", "", "#endif", ""]
    return "\n".join(lines)


def main():
    header = ROOT / "include/headrace/op.h"
    text = render((ROOT / "src/core/ops/ops.def").read_text())
    if "--check" in sys.argv:
        if header.read_text() != text:
            sys.exit("include/headrace/op.h is stale: run scripts/make_op_header.py")
        return
    header.write_text(text)


if __name__ == "__main__":
    main()
