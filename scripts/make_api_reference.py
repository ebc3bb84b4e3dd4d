#!/usr/bin/env python3
"""Writes docs/api-python.md and docs/api-c.md from docstrings and header comments; --check fails if they are stale.

The Python page lists the public names of frontends/torch/headrace/torch.py, and those that it imports from its own
package, in the order and sections of the file (`# ---- section`). The C page lists the declarations of
include/headrace/*.h with the comment in front of them, in the sections of the headers (`/* ---- section ---- */`). A
public name without a docstring, and a public function without a comment, are errors. Nothing is imported: the files
are parsed.
"""

import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "frontends/torch/headrace"
HEADERS = ("status", "dtype", "op", "stream")  # in the order of reading; others follow by name
PYTHON_HEAD = """\
<!-- Generated from frontends/torch/headrace by scripts/make_api_reference.py; do not edit. -->
# Python interface

`torch.headrace` is the module `headrace.torch`. Unless a line states otherwise, `device` is a `torch.device`, a name
such as `"headrace:1"`, or an index; `None` is the current device. Functions that wait for the device raise the first
error of the pending work. `torch.compile(model, backend="headrace")` is described in the [README](../README.md).
"""
C_HEAD = """\
<!-- Generated from include/headrace by scripts/make_api_reference.py; do not edit. -->
# C interface

The public headers, `include/headrace/*.h`, in the order of reading. [`examples/c/first.c`](../examples/c/first.c) is a
complete program. Rules for all functions:

- A function that can fail returns an `hr_status`: `HR_OK` (`NULL`) on success; any other is owned by the caller
  (`hr_status_free`).
- Outputs come last, are named `out_...`, and are set only on success.
- Counted objects (`hr_device`, `hr_stream`, `hr_buffer`) are released with their `_release` function, which accepts
  `NULL`.
- Arguments are borrowed for the call unless a comment states otherwise.
- Sizes are in bytes if their name contains *bytes*; dims, strides and offsets are in elements.
"""


def problem(text):
    sys.exit(f"make_api_reference: {text}")


# ---- Python


def section_of(lines, lineno):
    """The last `# ---- name` in front of a line."""
    for line in reversed(lines[: lineno - 1]):
        if line.startswith("# ---- "):
            return line[7:].strip()
    return ""


def functions_of(module):
    """The public functions of a submodule, named with it."""
    for node in ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.name = f"{module}.{node.name}"
            yield node


def python_names(path):
    """(section, node) of each public name, in order; names imported from headrace's own modules are looked up there."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield section_of(lines, node.lineno), node
        elif isinstance(node, ast.ImportFrom) and node.module == "headrace":  # a submodule
            for alias in node.names:
                for inner in functions_of(alias.name):
                    yield section_of(lines, node.lineno), inner
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("headrace.")):
            module = PACKAGE / f"{(node.module or '').removeprefix('headrace.')}.py"
            wanted = {alias.name: alias.asname or alias.name for alias in node.names}
            if module.exists() and any(not name.startswith("_") for name in wanted.values()):
                found = {inner.name: inner for _, inner in python_names(module) if inner.name in wanted}
                for name in (name for name in wanted if name in found):
                    yield section_of(lines, node.lineno), found[name]


def fill(paragraph):
    return textwrap.fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)


def clean(docstring):
    return "\n\n".join(fill(paragraph) for paragraph in re.split(r"\n\s*\n", docstring.strip()))


def signature(node):
    if isinstance(node, ast.FunctionDef):
        return f"{node.name}({ast.unparse(node.args)})"
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name in ("__init__", "__new__"):
            inner.args.args = inner.args.args[1:]
            return f"{node.name}({ast.unparse(inner.args)})"
    return node.name


def python_page():
    out, section, seen = [PYTHON_HEAD], None, set()
    for name, node in python_names(PACKAGE / "torch.py"):
        if node.name in seen:
            continue
        seen.add(node.name)
        doc = ast.get_docstring(node)
        if not doc:
            problem(f"torch.headrace.{node.name} has no docstring")
        if name != section:
            section = name
            out.append(f"\n## {section[:1].upper() + section[1:]}\n")
        kind = "class " if isinstance(node, ast.ClassDef) else ""
        out.append(f"\n**{kind}`{signature(node)}`**\n\n{clean(doc)}\n")
    return "".join(out)


# ---- C

TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
SECTION = re.compile(r"/\*\s*----\s*(.*?)\s*-*\s*\*/", re.DOTALL)


def comment_text(comment):
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment[2:-2].strip().splitlines()]
    return "\n".join(lines).strip()


def reflow(text):
    """Paragraphs in lines of 120 columns; indented lines stay unchanged, in a block."""
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        while lines:
            indented = lines[0].startswith("  ")
            taken = [line for line in lines]
            for at, line in enumerate(lines):
                if line.startswith("  ") != indented:
                    taken = lines[:at]
                    break
            lines = lines[len(taken) :]
            blocks.append("```\n" + "\n".join(taken) + "\n```" if indented else fill(" ".join(taken)))
    return "\n\n".join(blocks)


def without_scaffold(text):
    """The header between its guard and its end, without the preprocessor, extern "C" and bodies of inline functions."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", "\n", text, flags=re.MULTILINE)
    text = re.sub(r'^extern "C" \{\n|^HR_EXTERN_C_(?:BEGIN|END)\n', "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^(static inline [^;{]*?) \{\n.*?\n\}\n", r"\1;\n", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^\}\n", "\n", text, flags=re.MULTILINE)


def declarations(text):
    """(line-comment-free) pieces in order: ('section', name), ('comment', text), ('code', text), ('blank', '')."""
    depth, code = 0, []
    pieces = []
    at = 0
    while at < len(text):
        comment = TOKEN.match(text, at)
        line_start = not code
        if comment and depth == 0 and line_start:
            kind = SECTION.fullmatch(comment.group())
            pieces.append(("section", kind.group(1)) if kind else ("comment", comment_text(comment.group())))
            at = comment.end()
            continue
        if comment:
            code.append(comment.group())
            at = comment.end()
            continue
        char = text[at]
        at += 1
        if not code and char.isspace():
            if char == "\n" and text[at : at + 1] == "\n":
                pieces.append(("blank", ""))
            continue
        code.append(char)
        depth += (char in "{(") - (char in "})")
        if char == ";" and depth == 0:
            end = text.find("\n", at)
            rest = text[at:end]  # a comment after the declaration belongs to it
            if rest.strip().startswith("/*") and rest.strip().endswith("*/"):
                code.append(rest)
                at = end
            pieces.append(("code", "".join(code)))
            code = []
    return pieces


def tidy(code):
    code = re.sub(r"\b(HR_API|HR_MUST_USE) |\s+HR_PRINTF\(\d+, \d+\)", "", code).strip()
    if "{" not in code and "/*" not in code:
        code = textwrap.fill(re.sub(r"\s+", " ", code), 118, subsequent_indent="    ")
    return code


def c_header(path):
    text = path.read_text(encoding="utf-8")
    pieces = declarations(without_scaffold(text))
    if not pieces or pieces[0][0] != "comment":
        problem(f"{path.name} has no comment at its head")
    title, _, head = pieces[0][1].partition(":")
    out = [f"\n## {title}\n\n{reflow(head.strip()[:1].upper() + head.strip()[1:])}\n"]
    comment, group = "", []

    def flush():
        nonlocal comment, group
        if group:
            functions = re.findall(r"\b(hr_\w+)\(", "\n".join(group))
            if not comment and functions and not any("/*" in code for code in group):
                problem(f"{path.name}: {functions[0]} has no comment")
            out.append("\n```c\n" + "\n".join(group) + "\n```\n" + (f"\n{reflow(comment)}\n" if comment else ""))
        comment, group = "", []

    for kind, value in pieces[1:]:
        if kind == "section":
            flush()
            out.append(f"\n### {value[:1].upper() + value[1:]}\n")
        elif kind == "comment":
            flush()
            comment = value
        elif kind == "blank":
            if group:
                flush()
        elif "typedef enum hr_op {" in value:
            comment = ""
            out.append(
                "\n`hr_op` has one value for each row of [operators.md](operators.md): `HR_OP_ADD`, `HR_OP_MATMUL`, "
                "...\n"
            )
        else:
            group.append(tidy(value))
    flush()
    return "".join(out)


def c_page():
    folder = ROOT / "include/headrace"
    names = [name for name in HEADERS if (folder / f"{name}.h").exists()]
    names += sorted(path.stem for path in folder.glob("*.h") if path.stem not in HEADERS)
    return C_HEAD + "".join(c_header(folder / f"{name}.h") for name in names)


def main():
    pages = {ROOT / "docs/api-python.md": python_page(), ROOT / "docs/api-c.md": c_page()}
    for path, text in pages.items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/{path.name} is stale: run scripts/make_api_reference.py")


if __name__ == "__main__":
    main()
