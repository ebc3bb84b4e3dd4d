"""Checks that no object has instructions that its level of x86-64 lacks.

usage: check_isa.py BUILD      a build with HEADRACE_NATIVE=OFF

Objects named headrace_v3.o and headrace_v4.o, and the folders of the targets headrace_level*, may use the
instructions of their level; all others those of x86-64-v2. Functions in ALLOWED check the processor themselves
(src/base/cpu.h). Reads the output of objdump.
"""

import pathlib
import re
import subprocess
import sys

ALLOWED = {"peak_avx2": 3, "peak_avx512": 4}  # engine/machine.c: peak multiplications per second of the widest vectors
FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:")
INSTRUCTION = re.compile(r"^ +[0-9a-f]+:\t(\S+) *(.*)")
# Not tzcnt: compilers write "rep bsf", which older processors run as bsf.
BITS = re.compile(r"(andn|bextr|blsi|blsmsk|blsr|bzhi|lzcnt|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe)[lqw]?$")
BEYOND = re.compile(
    r"vpdp|vpermb|vperm[it]2b|vpmultishift|vpcompress[bw]|vpexpand[bw]|vpsh[lr]dv?[wdq]|vpopcnt|vpshufbitqmb|v?gf2p|"
    r"vaes|vpclmul"
    r"|vcvtne|vdpbf16|vpmadd52|sha[12r]|vp2intersect|tdp|tile|v(add|sub|mul|fm\w+)ph"
)
WIDE = re.compile(r"%zmm|%[xyz]mm(1[6-9]|2\d|3[01])|%k[0-7]|\{%k")


def level_of(name, operands):
    if BEYOND.match(name):
        return 5
    if WIDE.search(operands) or re.match(r"k(mov|or|and|not|xor|unpck|shift|test|add)\w*$", name):
        return 4
    if (name.startswith("v") and not name.startswith("ver")) or "%ymm" in operands or BITS.match(name):
        return 3
    return 2


def check(path, most):
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    function, found = "", {}
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            function = match[1]
        elif match := INSTRUCTION.match(line):
            level = level_of(match[1], match[2])
            if level > max(most, ALLOWED.get(function.split(".")[0], 0)):
                found.setdefault(function, (level, match[0].strip()))
    for function, (level, instruction) in found.items():
        print(f"{path}: {function}: an instruction of level {level}, where {most} is the most: {instruction}")
    return len(found)


def main():
    build = pathlib.Path(sys.argv[1])
    levels = {path: int(path.stem[-1]) for path in build.glob("headrace_v?.o")}
    if len(levels) < 3:
        sys.exit(
            f"check_isa: {build} has no objects for each level: configure it with -DHEADRACE_NATIVE=OFF and build "
            "headrace"
        )
    objects = {path: 2 for path in (build / "CMakeFiles/headrace_objects.dir").rglob("*.o")}
    failures = sum(check(path, level) for path, level in {**objects, **levels}.items())
    if failures:
        sys.exit(f"check_isa: {failures} functions have instructions that they may not have")
    print(f"check_isa: {len(objects)} objects stay within x86-64-v2, {len(levels)} within their level")


if __name__ == "__main__":
    main()
