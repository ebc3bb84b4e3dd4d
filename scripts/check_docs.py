#!/usr/bin/env python3
"""Holds the pages to the code: README.md, CONTRIBUTING.md and docs/*.md name only what exists.

    link        a relative link leads to a file; its #anchor is a heading of that page
    file        a path in backticks (`src/core/ops/op.h`, `engine/stream.c`, `match.c`, `src/providers/host/`) exists
    function    an identifier hr_... or HR_... occurs in the code, and so does every name in backticks with an
                underscore; torch.headrace.x is defined in its package
    row         a line of a code block that quotes a row of a table (HR_POINTWISE(...), `[HR_OP_X] = ...`, a line of
                map.def) is in that table word for word; `...` is an omission
    target      `make x` is a target of the Makefile, `headrace x` a command of tools/headrace.c
    variable    HEADRACE_X is read somewhere, and HEADRACE_X=value is a value that env.def accepts
    count       a number of rows, variables or conformance entries is the real one

Prints one line for each offence and exits 1 if there is any. A folder given as argument replaces the repository's
root. Names that a page invents as an example are in EXAMPLES.
"""

import re
import subprocess
import sys
from pathlib import Path

PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md")
CODE_FOLDERS = ("include", "src", "frontends", "tools", "tests", "bench", "examples", "scripts")
CODE_SUFFIXES = {".c", ".h", ".def", ".inc", ".cpp", ".py", ".sh", ".txt", ".toml", ".hr", ".svg", ".cmake"}
# Names that a page invents, by page: the driver of the guide, files that a command writes.
EXAMPLES = {
    "docs/add-a-driver.md": {"src/drivers/mine/mine_driver.h", "src/drivers/mine/mine_driver.c", "hr_mine_driver"},
    "docs/benchmarks.md": {"bench/results/latest.md"},
}
# Names without a folder that belong to others.
FOREIGN_NAMES = {"__fp16", "set_eval_frame", "target_clones"}
# Pages whose names in backticks are torch's operators.
OPERATOR_PAGES = {"docs/operator-speed.md", "docs/coverage.md", "docs/operators.md"}
FOREIGN_FILES = {"libcuda.so.1", "train.py", "requirements.txt", "setup.py"}
PATH_SUFFIX = re.compile(r"\.(c|h|def|inc|cpp|py|sh|md|txt|toml|hr|svg|png|json)$")
ROW_START = re.compile(
    r"^(HR_(POINTWISE|REDUCE|ARGREDUCE|CONTRACTION|COMPOSITE|LIBRARY|SPECIAL|ENV_\w+)\(|\[HR_OP_|\{HR_OP_)"
)
MAP_ROW = re.compile(r"^[\w.]+\s+: \w+\(.*\)$")


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


class Tree:
    """The names that exist, read once."""

    def __init__(self, root):
        self.root = root
        self.files = self.list_files()
        self.names = {path.rsplit("/", 1)[-1] for path in self.files}
        self.folders = {"/".join(path.split("/")[:n]) for path in self.files for n in range(1, path.count("/") + 1)}
        code = [path for path in self.files if path.split("/")[0] in CODE_FOLDERS or "/" not in path]
        self.code = "\n".join(
            read(root / path) for path in code if Path(path).suffix in CODE_SUFFIXES or "." not in path
        )
        self.identifiers = set(re.findall(r"\b(?:hr_|HR_)\w+", self.code))
        self.words = set(re.findall(r"\w+", self.code)) | {name.split(".")[0] for name in self.names}
        # An expression of a macro makes these: HR_OP_##NAME, hr_op_##name##_f32.
        self.identifiers |= {f"HR_OP_{name}" for name in self.rows("src/**/ops.def")}
        self.identifiers |= {f"HR_ENV_{name}" for name in self.rows("src/**/env.def")}
        self.generated = {f"hr_op_{name.lower()}" for name in self.rows("src/**/ops.def")}
        self.lines = {squeeze(line) for line in joined_lines(self.code)}
        self.targets = (
            set(re.findall(r"^([a-z][a-z-]*):", read(root / "Makefile"), re.M)) if "Makefile" in self.files else set()
        )
        self.variables = self.read_variables()
        self.python = set(re.findall(r"^(?:def |class )?(\w+)(?:[(:]| = )", self.python_text(), re.M))
        self.python |= set(re.findall(r"^from headrace import (\w+)$", self.python_text(), re.M))
        self.commands = (
            set(re.findall(r'\{"(\w+)",', read(root / "tools/headrace.c")))
            if "tools/headrace.c" in self.files
            else set()
        )

    def list_files(self):
        command = ["git", "-C", str(self.root), "ls-files", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and (self.root / ".git").exists():
            return {path for path in done.stdout.splitlines() if (self.root / path).exists()}
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}

    def python_text(self):
        return "\n".join(map(read, sorted(self.root.glob("frontends/torch/headrace/*.py"))))

    def rows(self, pattern):
        """The first argument of each row of a table."""
        found = []
        for path in self.root.glob(pattern):
            found += re.findall(r"^HR_[A-Z_]+\((\w+),", read(path), re.M)
        return found

    def read_variables(self):
        """Name -> None, or a predicate that an accepted value fulfils."""
        known = {}
        for text in re.findall(r"HEADRACE_\w+", re.sub(r"#.*|setenv\([^)]*\)", "", self.code)):
            known[text] = None
        for path in self.root.glob("src/**/env.def"):
            text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.DOTALL)
            for kind, name, rest in re.findall(r"^HR_ENV_(\w+)\((\w+), (.*)", text, re.M):
                known[f"HEADRACE_{name}"] = predicate(kind, rest)
        return known


def predicate(kind, rest):
    if kind == "CHOICE":
        words = rest.split('"')[1].split("|")
        return lambda value: value in words
    if kind == "INT":
        low, high = (int(number) for number in re.findall(r"-?\d+", rest)[:2])
        return lambda value: value.isdigit() and low <= int(value) <= high
    return None


def squeeze(line):
    return re.sub(r"\s+", "", line).rstrip("\\;")


def joined_lines(text):
    """Lines, and pairs and triples of them: a row of a table may be broken."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if "HR_" in line or " : " in line:
            yield line
            if line.rstrip().endswith(("\\", ",", '"')):
                yield line.rstrip("\\") + "".join(lines[at + 1 : at + 2])
                yield line.rstrip("\\") + "".join(lines[at + 1 : at + 3])


# ---- a page's claims: (line number, text) of prose spans and of code lines


def parts(text):
    """Yields (kind, line number, text): 'code' for a block's lines, 'span' for backticks in prose, 'prose' for lines.
    """
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif in_block:
            yield "code", number, line
        else:
            yield "prose", number, line
            for span in re.findall(r"`([^`]+)`", line):
                yield "span", number, span


def anchors(text):
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower().replace("`", "")).strip().replace(" ", "-") for head in heads}


def check_links(tree, page, number, line):
    for target in re.findall(r"\]\(([^)\s]+)\)", line):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (tree.root / page).parent / name if name else tree.root / page
        inside = str(path.resolve()).removeprefix(f"{tree.root.resolve()}/")
        if inside not in tree.files and inside not in tree.folders:
            yield number, "link", f"{target} leads nowhere"
        elif anchor and anchor not in anchors(read(path)):
            yield number, "link", f"{target}: no such heading"


def check_file(tree, page, number, span):
    word = span.split()[0].rstrip(",.:") if span.split() else ""
    word = re.sub(r":\d+$", "", word)
    if not re.fullmatch(r"[\w./*+-]+", word) or word.startswith(("/", "-", ".")) or word in EXAMPLES.get(page, ()):
        return
    is_path = "/" in word and (
        word.split("/")[0] in (*CODE_FOLDERS, "docs") or bool(PATH_SUFFIX.search(word)) or word.endswith("/")
    )
    if not is_path and not (PATH_SUFFIX.search(word) and "/" not in word):
        return
    if word in FOREIGN_FILES:
        return
    if not exists(tree, page, word.rstrip("/")):
        yield number, "file", f"{word} does not exist"


def exists(tree, page, name):
    folder = str(Path(page).parent)
    candidates = [name, f"src/{name}", f"{folder}/{name}", f"frontends/torch/{name}"]
    if "*" in name:
        return any(next(tree.root.glob(candidate), None) is not None for candidate in candidates)
    if any(candidate in tree.files or candidate in tree.folders for candidate in candidates):
        return True
    ending = f"/{name}"
    return any(path.endswith(ending) for path in tree.files) or any(
        f"/{path}".endswith(ending) for path in tree.folders
    )


def check_names(tree, page, number, text):
    for name, star in re.findall(r"\b((?:hr_|HR_)\w+)(\*?)", text):
        known = tree.identifiers | EXAMPLES.get(page, set())
        is_made = any(name == made or name.startswith(f"{made}_") for made in tree.generated)
        is_start = (star or name.endswith("_")) and any(other.startswith(name) for other in known)
        if name not in known and not is_made and not is_start:
            yield number, "function", f"{name} is nowhere in the code"
    for name in re.findall(r"\btorch\.headrace\.([a-z]\w*)", text):
        if tree.python and name not in tree.python:
            yield number, "function", f"torch.headrace.{name} does not exist"


def check_words(tree, page, number, span):
    name = span.removesuffix("()")
    if not re.fullmatch(r"[a-z_][a-z0-9_]*_[a-z0-9_]*", name) or page in OPERATOR_PAGES or name in FOREIGN_NAMES:
        return
    is_made = any(name.startswith(f"{made}_") for made in tree.generated)
    is_start = name.endswith("_") and any(word.startswith(name) for word in tree.words)
    if name not in tree.words and not is_made and not is_start:
        yield number, "function", f"{name} is nowhere in the code"


def check_variables(tree, _, number, text):
    for name, value in re.findall(r"\b(HEADRACE_[A-Z0-9_]*[A-Z0-9])(?:=([\w.%:/+-]+))?", text):
        if name not in tree.variables:
            yield number, "variable", f"{name} is read nowhere"
        elif value and tree.variables[name] and not tree.variables[name](value.rstrip(".,:")):
            yield number, "variable", f"{name}={value}: env.def accepts no such value"


def check_targets(tree, _, number, text):
    for name in re.findall(r"(?:^|[\s(])make ([a-z][a-z-]*)", " " + text):
        if name not in tree.targets:
            yield number, "target", f"make {name}: the Makefile has no such target"


def check_commands(tree, _, number, text):
    for name in re.findall(r"(?:^|\$ )headrace ([a-z]+)\b(?!:)", text.strip()):
        if tree.commands and name not in tree.commands:
            yield number, "command", f"headrace {name}: there is no such command"


def check_row(tree, _, number, line):
    text = line.strip()
    if not (ROW_START.match(text) or MAP_ROW.match(text)):
        return
    pieces = [re.escape(squeeze(piece)) for piece in text.split("...")]
    if len(pieces) == 1 and squeeze(text) in tree.lines:
        return
    pattern = re.compile(".*".join(pieces))
    if not any(pattern.fullmatch(known) for known in tree.lines):
        yield number, "row", f"no table has this row: {text}"


COUNTS = (
    (
        r"(\d[\d,]*) rows (?:in|of) `?(?:src/[\w/]*)?ops\.def",
        lambda tree: len(tree.rows("src/**/ops.def")),
        "rows of ops.def",
    ),
    (r"(\d[\d,]*) environment variables", lambda tree: len(tree.rows("src/**/env.def")), "variables of env.def"),
    (
        r"(\d[\d,]*) entries of PyTorch's OpInfo",
        lambda tree: coverage(tree, "forward", 0),
        "entries in docs/coverage.md",
    ),
    (r"(\d[\d,]*) pairs of entry and dtype", lambda tree: coverage(tree, "forward", 1), "pairs in docs/coverage.md"),
    (r"(\d[\d,]{2,}) gradients\b", lambda tree: coverage(tree, "grad", 1), "gradients in docs/coverage.md"),
)


def coverage(tree, check, column):
    """How many pass, in float32 (column 0) or in all dtypes (1)."""
    path = tree.root / "docs/coverage.md"
    found = re.search(rf"^\| op \| {check} \| (\d+) of \d+ \| (\d+) of", read(path), re.M) if path.exists() else None
    return int(found.group(column + 1)) if found else None


def check_counts(tree, _, number, line):
    for pattern, count, name in COUNTS:
        for shown in re.findall(pattern, line):
            real = count(tree)
            if real is not None and int(shown.replace(",", "")) != real:
                yield number, "count", f"{shown}, but there are {real} {name}"


CHECKS = {
    "prose": (check_links, check_names, check_variables, check_counts),
    "span": (check_file, check_words, check_targets, check_commands),
    "code": (check_names, check_variables, check_targets, check_commands, check_row),
}


def offences(root):
    tree = Tree(root)
    pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
    for path in pages:
        page = str(path.relative_to(root))
        for kind, number, text in parts(read(path)):
            for check in CHECKS[kind]:
                for line, what, message in check(tree, page, number, text):
                    yield f"{page}:{line}: {what}: {message}"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = sorted(set(offences(root)))
    for line in found:
        print(line)
    if found:
        sys.exit(f"check_docs: {len(found)} names in the pages do not exist in the code")
    print("check_docs: the pages name only what exists")


if __name__ == "__main__":
    main()
