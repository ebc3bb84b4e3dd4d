#!/usr/bin/env python3
"""Writes texts of kernels as C strings: the prelude of emitted kernels (src/core), and kernels of our own
(src/providers).

Comments, includes and header guards are removed; the rest of src/core is the text that the interpreter is compiled
from. --check fails if the files are stale."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUTS = {
    "src/compiler/emit_text.inc": (
        "src/core/math/philox.h",
        "src/core/math/vmath.h",
        "src/core/math/vmath_complex.h",
        "src/core/math/convert.h",
    ),
    "src/compiler/emit_runs.inc": ("src/core/math/philox_run.h",),
    "src/compiler/emit_special.inc": ("src/core/math/special_f32.h", "src/core/math/special.h"),
    "src/providers/flash/flash_text.inc": ("src/providers/flash/words.text", "src/providers/flash/tiles.text"),
    "src/providers/flash/forward_text.inc": ("src/providers/flash/forward.text",),
    "src/providers/flash/backward_text.inc": ("src/providers/flash/backward.text",),
    "src/providers/layers/layers_text.inc": ("src/providers/layers/layers.text",),
    "src/providers/small/small_product_text.inc": (
        "src/providers/small/element.text",
        "src/providers/small/small_product.text",
    ),
    "src/providers/small/small_attention_text.inc": (
        "src/providers/small/element.text",
        "src/providers/small/small_attention.text",
    ),
    "src/providers/small/taps_text.inc": ("src/providers/small/element.text", "src/providers/small/taps.text"),
    "src/providers/small/matrices_text.inc": ("src/providers/small/matrices.text",),
    "src/providers/small/images_text.inc": ("src/providers/small/tensor.text", "src/providers/small/images.text"),
    "src/providers/small/image_weights_text.inc": (
        "src/providers/small/tensor.text",
        "src/providers/small/image_weights.text",
    ),
}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
GUARD = re.compile(r"#ifndef HEADRACE_\w+_H_\n#define HEADRACE_\w+_H_\n(.*)\n#endif\s*$", re.DOTALL)
MOST = 4000  # characters of one string: compilers promise no more than 4,095


def body(name):
    text = COMMENT.sub("", (ROOT / name).read_text())
    guarded = GUARD.search(text)
    lines = [line.rstrip() for line in (guarded[1] if guarded else text).split("\n")]
    return [re.sub(r"\s+\\$", " \\\\", line) for line in lines if line and not line.startswith("#include")]


def quote(line):
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


def render(sources):
    folder = pathlib.PurePath(sources[0]).parent
    out = [f"/* Generated from {folder} by scripts/make_emit_text.py; do not edit. */"]
    for name in sources:
        out.append(f"/* {pathlib.PurePath(name).name} */")
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
    for name, sources in OUTPUTS.items():
        text, output = render(sources), ROOT / name
        if "--check" not in sys.argv:
            output.write_text(text)
        elif not output.exists() or output.read_text() != text:
            sys.exit(f"{name} is stale: run scripts/make_emit_text.py")


if __name__ == "__main__":
    main()
