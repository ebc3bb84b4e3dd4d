#!/usr/bin/env python3
"""Writes docs/coverage-tensorflow.md from map.def and gpu_kernels.txt; --check fails if it is stale."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
FRONTEND = ROOT / "frontends/tensorflow"
DOC = ROOT / "docs/coverage-tensorflow.md"
REASONS = {  # the words of gpu_kernels.txt
    "own": ("TensorFlow's own kernels", "views, control flow, lists, shapes: they serve each device"),
    "array": ("TensorArray", "replaced by lists in TensorFlow 2"),
    "reference": ("reference variables", "of TensorFlow 1; resource variables have rows"),
    "removed": ("removed", "no program of this version's graphs has them, or nothing computes them on the CPU"),
    "dims": ("dims that depend on data", "a kernel would have to wait and read them, as those of the rows `Where` and `Unique` do"),
    "ragged": ("ragged and sparse tensors", "but for those of places and values that have rows"),
    "data": ("data sets and iterators", "work of the host"),
    "collective": ("collectives", "over NVIDIA's library"),
    "cuDNN": ("cuDNN", "its recurrent layers"),
    "XLA": ("XLA", "there is no XLA for the device"),
    "debug": ("debugging", ""),
    "special": ("special functions", "the core has none of these; they run on the host, with copies"),
    "second": ("second gradients of pooling", "no optimizer of Keras asks for them; they run on the host, with copies"),
    "rare": ("others", "no layer, loss, metric or operation of Keras makes them; they run on the host, with copies"),
}
HEAD = """\
<!-- Generated from frontends/tensorflow/csrc/map.def and gpu_kernels.txt by scripts/make_tensorflow_coverage.py; do not
edit. -->
# Operations of TensorFlow

The wheel `tensorflow` 2.19.1 has public kernels for GPUs of {names} operations. {rows} of them have a row of
[map.def](../frontends/tensorflow/csrc/map.def); another {others} rows are for operations that have a kernel on the CPU
alone. `make test-tensorflow` compares each row in each of its dtypes with TensorFlow's CPU device.

| operations | | number |
|---|---|---:|
"""


def table():
    """Each name of the wheel with its reason, or None."""
    lines = (FRONTEND / "gpu_kernels.txt").read_text().splitlines()
    return {name: reason or None for name, _, reason in (line.partition("\t") for line in lines)}


def rows():
    """Without those of f8 alone, which belong to TensorFlow's own kernels for other types."""
    text = re.sub(r"/\*.*?\*/", "", (FRONTEND / "csrc/map.def").read_text(), flags=re.DOTALL)
    return re.findall(r'^OP\((\w+),(?! "T", F8,)', text, flags=re.MULTILINE)


def wrap(names):
    text = " ".join(f"`{name}`" for name in names)
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False))


def check(names, ours):
    """The names with neither a row nor a reason, or with both."""
    wrong = [name for name, reason in names.items() if (reason is None) != (name in ours)]
    wrong += [f"{name}: {reason}" for name, reason in names.items() if reason is not None and reason not in REASONS]
    if len(ours) != len(set(ours)) or wrong:
        sys.exit(f"gpu_kernels.txt: neither a row nor a reason, or both: {' '.join(wrong)}")


def write():
    names, ours = table(), rows()
    check(names, ours)
    text = HEAD.format(names=len(names), rows=sum(name in names for name in ours), others=sum(name not in names for name in ours))
    text += f"| rows of map.def | | {len(ours)} |\n"
    groups = {reason: sorted(name for name, found in names.items() if found == reason) for reason in REASONS}
    for reason, (title, why) in REASONS.items():
        text += f"| {title} | {why} | {len(groups[reason])} |\n"
    text += f"\n## Rows\n\n{wrap(sorted(ours))}\n"
    for reason, (title, _) in REASONS.items():
        text += f"\n## {title[0].upper() + title[1:]}\n\n{wrap(groups[reason])}\n" if groups[reason] else ""
    return text


if __name__ == "__main__":
    text = write()
    if "--check" in sys.argv[1:]:
        if DOC.read_text() != text:
            sys.exit(f"{DOC} is stale: run scripts/make_tensorflow_coverage.py")
    else:
        DOC.write_text(text)
