#!/usr/bin/env python3
"""Writes src/compiler/emit_text.inc: the texts of src/core that emitted kernels begin with, as C strings.

Comments, includes and the guards of headers fall away; what is left is the same text that the interpreter is compiled from.
--check says whether the file is fresh."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "src/compiler/emit_text.inc"
SOURCES = ("philox.h", "vmath.h", "convert.h")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
GUARD = re.compile(r"#ifndef HEADRACE_\w+_H_\n#define HEADRACE_\w+_H_\n(.*)\n#endif\s*$", re.DOTALL)
MOST = 4000  # characters of one string: compilers promise no more than 4,095


def body(name):
    text = COMMENT.sub("", (ROOT / "src/core" / name).read_text())
    lines = [line.rstrip() for line in GUARD.search(text)[1].split("\n")]
    return [re.sub(r"\s+\\$", " \\\\", line) for line in lines if line and not line.startswith("#include")]


def quote(line):
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


def render():
    out = ["/* Generated from src/core by scripts/make_emit_text.py; do not edit. */"]
    for name in SOURCES:
        out.append(f"/* {name} */")
        size = 0
        for line in body(name):
            size += len(line) + 1
            if size > MOST:
                out[-1] += ","
                size = len(line) + 1
            out.append(quote(line))
        out[-1] += ","
    return "\n".join(out) + "\n"


def main():
    text = render()
    if "--check" in sys.argv:
        if not OUTPUT.exists() or OUTPUT.read_text() != text:
            sys.exit(f"{OUTPUT.relative_to(ROOT)} is stale: run scripts/make_emit_text.py")
        return
    OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
