#!/usr/bin/env python3
"""Counts the mutable variables of file scope (and static ones of functions) in the objects of src/, and names them.

State belongs to the runtime context (src/base/context.h). State that truly belongs to the process may stay a
variable, LIMIT of them in all. The symbols are those of types b, d, B and D; tables that only relocation writes
(.data.rel.ro) are constant and don't count.

usage: check_statics.py [build folder]      exits 1 above the limit, or when the folder has no objects
"""

import re
import subprocess
import sys
from pathlib import Path

LIMIT = 10
SYMBOL = re.compile(r"^[0-9a-f]+ .{7} (?P<section>\S+)\s+(?P<size>[0-9a-f]+)\s+(?:\.\w+\s+)?(?P<name>\S+)$")
MUTABLE = re.compile(r"^(\.bss|\.data|\.tbss|\.tdata|\*COM\*)")
CONSTANT = re.compile(r"^\.data\.rel\.ro")


def variables_of(path: Path) -> list[tuple[str, int]]:
    """Names and sizes of an object's mutable variables."""
    table = subprocess.run(["objdump", "-t", str(path)], check=True, capture_output=True, text=True).stdout
    found = []
    for line in table.splitlines():
        symbol = SYMBOL.match(line)
        if symbol is None or CONSTANT.match(symbol["section"]) or not MUTABLE.match(symbol["section"]):
            continue
        if int(symbol["size"], 16) > 0:  # sections themselves have none
            found.append((symbol["name"], int(symbol["size"], 16)))
    return found


def main(arguments: list[str]) -> int:
    root = Path(__file__).resolve().parent.parent
    builds = [Path(arguments[0])] if arguments else [root / "build" / name for name in ("check-gcc", "release", "dev")]
    for build in builds:
        objects = build / "CMakeFiles/headrace_objects.dir/src"
        paths = sorted(objects.rglob("*.o"))
        if paths:
            break
    else:
        print(f"check_statics: no objects in {', '.join(str(build) for build in builds)}: build first")
        return 1
    variables = [(str(path.relative_to(objects))[:-2], *found) for path in paths for found in variables_of(path)]
    if len(variables) > LIMIT:
        for file, name, size in variables:
            print(f"src/{file}: {name}, {size} bytes")
    print(f"check_statics: {len(variables)} mutable variables, at most {LIMIT} may be")
    return 0 if len(variables) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
