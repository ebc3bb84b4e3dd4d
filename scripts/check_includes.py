#!/usr/bin/env python3
"""Checks the layers of the folders: which folder may include which.

Folders are the order of dependencies. A file of src/ may include the public headers, its own folder, and the folders
that LAW lists for it (a new folder gets its own row); frontends see include/ alone, but for SHARED; drivers and providers each see
their own folder and none of their siblings. No vendor's SDK is included (libraries are opened at run time), and C++
lives in frontends/torch alone.

Prints one line for each offence and exits 1 if there is any. Folders given as arguments replace the repository's root.
"""

import re
import sys
from pathlib import Path

LAW = {
    "base": set(),
    "core": {"base"},
    "compiler": {"base", "core"},
    "expression": {"base", "core"},
    "interp": {"base", "core"},
    "runtime": {"base"},
    "drivers": {"base", "runtime"},
    "providers": {"base", "core", "runtime"},
    "engine": {"base", "core", "compiler", "interp", "runtime"},
    "group": {"base", "core"},
    "nccl": {"base", "core", "runtime"},
    "functional": {"base", "core"},
    "array": {"base", "core"},
    "transform": {"base", "core", "functional"},
    "graph": {"base", "core", "functional", "transform"},
    "session": {"base", "core", "graph"},
    "importers": {"base", "core", "functional", "transform", "graph"},
    "module": {"base", "core", "compiler", "runtime", "engine"},
}
# Contracts that the engine may see in folders it may not include: tables that it reaches through.
CONTRACTS = {("engine", "providers/provider.h")}
# These have one sub-folder for each device or library.
SPLIT = {"drivers", "providers"}
VENDOR = re.compile(
    r"^(cuda|cudnn|cublas|cufft|cusolver|nvrtc|nccl|nvml|oneapi/|dnnl|mkl|cblas|lapacke|openblas|CL/|vulkan/|hip/|"
    r"rocblas|Metal/|ATen/|torch/|c10/|omp\.h$)"
)
# No two files of these include each other, directly or through others.
WITHOUT_CIRCLES = ("src/engine",)
# The one file that may see OpenMP: everything else runs its loops through it.
OPENMP_FILE = Path("src/base/parallel.c")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
C_SUFFIXES = {".c", ".h", ".def", ".inc"}
CXX_SUFFIXES = {".cc", ".cpp", ".cxx", ".hpp", ".cu", ".mm"}


def files_of(root: Path, folder: str) -> list[Path]:
    base = root / folder
    suffixes = C_SUFFIXES | CXX_SUFFIXES
    found = (path.relative_to(root) for path in base.rglob("*") if path.suffix in suffixes and path.is_file())
    return sorted(path for path in found if not any(part == "build" or part.startswith(".") for part in path.parts))


def includes_of(path: Path) -> list[tuple[int, bool, str]]:
    """The includes of a file: line, True if quoted, name."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return [(text.count("\n", 0, m.start(2)) + 1, m[1] == '"', m[2]) for m in INCLUDE.finditer(text)]


def in_own_folder(root: Path, path: Path, name: str) -> bool:
    return "/" not in name and (root / path.parent / name).is_file()


def src_offence(root: Path, path: Path, quoted: bool, name: str) -> str | None:
    """Why a file of src/ may not include `name`, or None."""
    if not quoted:
        if VENDOR.match(name) and path != OPENMP_FILE:
            return f"<{name}> is a vendor's header: declare what you need and open the library at run time"
        return None
    folder = path.parts[1]
    if name.startswith("headrace/") or in_own_folder(root, path, name):
        return None
    if name == "hr_test.h" or ("/" not in name and (root / "tests/c" / name).is_file()):
        return None if path.stem.endswith("_test") else f"{name} is for *_test.c alone"
    target = Path(name).parts
    if not (root / "src" / name).is_file():
        return f'"{name}" is neither below src/ nor in include/'
    if folder not in LAW:
        return f"the law has no entry for src/{folder}/"
    if target[0] == folder:
        siblings = folder in SPLIT and len(target) > 2 and len(path.parts) > 3
        return (
            f"{'/'.join(path.parts[1:3])} may not see its sibling {'/'.join(target[:2])}"
            if (siblings and target[1] != path.parts[2])
            else None
        )
    if target[0] not in LAW[folder] and (folder, name) not in CONTRACTS:
        return f"{folder} may not include {target[0]} (only {', '.join(sorted(LAW[folder])) or 'nothing'})"
    return None


# The wire format of protocol buffers, whose sources frontends/tensorflow compiles into its own library.
SHARED = {"base/allocator.h", "base/protobuf.h", "base/text.h", "importers/wire.h"}


def public_offence(root: Path, path: Path, quoted: bool, name: str) -> str | None:
    """Why a public header or a file of a frontend may not include `name`, or None."""
    is_shared = path.parts[:2] == ("frontends", "tensorflow") and name in SHARED
    if quoted and (root / "src" / name).is_file() and not in_own_folder(root, path, name) and not is_shared:
        return f'"{name}" is internal: only include/ may be seen from here'
    if path.parts[0] == "include" and quoted and not name.startswith("headrace/"):
        return f'"{name}": public headers include "headrace/..." and system headers'
    return None


def find_circle(root: Path, folder: str) -> list[str]:
    """Modules of a folder (x.c and x.h are one) that include each other in a circle, the first one twice; [] if none
    do."""
    uses: dict[str, set[str]] = {}
    for path in files_of(root, folder):
        if path.stem.endswith("_test"):
            continue
        own = {
            Path(name).stem
            for _, quoted, name in includes_of(root / path)
            if f"src/{name}".rpartition("/")[0] == folder
        }
        uses.setdefault(path.stem, set()).update(own - {path.stem})
    done: set[str] = set()

    def walk(module: str, trail: list[str]) -> list[str]:
        if module in trail:
            return trail[trail.index(module) :] + [module]
        if module not in done:
            for other in sorted(uses.get(module, ())):
                if circle := walk(other, trail + [module]):
                    return circle
        done.add(module)
        return []

    return next((circle for module in sorted(uses) if (circle := walk(module, []))), [])


def check(root: Path) -> list[str]:
    offences = []
    for folder in WITHOUT_CIRCLES:
        if circle := find_circle(root, folder):
            offences.append(f"{folder}: files include each other in a circle: {' -> '.join(circle)}")
    for folder, rule in (("src", src_offence), ("include", public_offence), ("frontends", public_offence)):
        for path in files_of(root, folder):
            for line, quoted, name in includes_of(root / path):
                reason = rule(root, path, quoted, name)
                if reason is not None:
                    offences.append(f"{path}:{line}: {reason}")
    for folder in ("src", "include", "frontends", "tools", "tests"):
        for path in files_of(root, folder):
            if path.suffix in CXX_SUFFIXES and path.parts[:2] != ("frontends", "torch"):
                offences.append(f"{path}:1: C++ lives in frontends/torch alone")
    return offences


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    offences = check(root)
    for offence in offences:
        print(offence)
    print(f"check_includes: {len(offences)} offence(s)" if offences else "check_includes: the law holds")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
