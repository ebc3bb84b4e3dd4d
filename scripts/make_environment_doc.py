#!/usr/bin/env python3
"""Writes docs/environment.md (every environment variable) from src/base/env.def; --check fails if it is stale."""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/environment.md"
ROW = re.compile(r"^HR_ENV_(CHOICE|INT|BYTES|LIMIT|TEXT)\((\w+), (.*)\)$", re.MULTILINE)
HEAD = """\
<!-- Generated from src/base/env.def by scripts/make_environment_doc.py; do not edit. -->
# Environment variables

All variables are read once, when the first of them is needed; later changes of the environment have no effect. An empty
variable counts as unset. For a value that does not parse, the default is used and one warning is printed.
`headrace env` prints the values in force. The Python module also reads `HEADRACE_TORCH_LIBRARY`: the path of
`libheadrace_torch.so`, if it is not beside the module.

| variable | accepts | default | what it does |
|---|---|---|---|
"""


def accepts(kind, fields):
    """A description of a variable's values; `fields` are its arguments between name and default."""
    if kind == "CHOICE":
        return ", ".join(f"`{word}`" for word in fields[0].split("|"))
    if kind == "INT":
        return f"an integer from {fields[0]} to {fields[1]}"
    if kind == "BYTES":
        return "bytes, such as `512M` (suffix K, M, G, T)"
    if kind == "LIMIT":
        return "bytes, such as `512M`, or `1%` to `100%`"
    return "text"


def render(text):
    text = re.sub(r'([,"])\n +', r"\1 ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    lines = []
    for kind, name, rest in ROW.findall(text):
        *fields, default, doc = ast.literal_eval(f"[{rest}]")
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `HEADRACE_{name}` | {accepts(kind, fields)} | {shown} | {doc.replace('|', chr(92) + '|')} |")
    return HEAD + "\n".join(lines) + "\n"


def main():
    text = render((ROOT / "src/base/env.def").read_text())
    if "--check" in sys.argv:
        if not DOC.exists() or DOC.read_text() != text:
            sys.exit("docs/environment.md is stale: run scripts/make_environment_doc.py")
        return
    DOC.write_text(text)


if __name__ == "__main__":
    main()
