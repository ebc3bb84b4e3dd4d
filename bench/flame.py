#!/usr/bin/env python3
"""Draws where the time below a function goes, from samples of `perf`, as an SVG: a box is a function, its width its
share of the time, and the functions that it calls stand below it.

    perf record -F 9999 --call-graph fp -o samples -- python program.py
    python bench/flame.py samples hr_compile docs/compile.svg

Call graphs need frame pointers: build with -DCMAKE_C_FLAGS="-fno-omit-frame-pointer -g1".
"""

import argparse
import html
import subprocess
import sys
from pathlib import Path

WIDTH, ROW, FONT, LEAST = 1000, 18, 11, 1.5  # pixels; narrower boxes are left out
COLOURS = ("#f6d5a8", "#f2c98f", "#f9e0bf", "#efbf80")


class Box:
    def __init__(self, name: str):
        self.name, self.count = name, 0
        self.calls: dict[str, Box] = {}

    def add(self, names: list[str]) -> None:
        box = self
        box.count += 1
        for name in names:
            box = box.calls.setdefault(name, Box(name))
            box.count += 1

    def depth(self) -> int:
        return 1 + max((box.depth() for box in self.calls.values()), default=0)


def stacks(samples: str) -> list[list[str]]:
    """Of each sample, the functions from the outermost one."""
    command = ["perf", "script", "-i", samples, "-F", "ip,sym"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = ([line.split(None, 1) for line in block.splitlines() if line.strip()] for block in text.split("\n\n"))
    return [[parts[1] if len(parts) > 1 else "?" for parts in reversed(block)] for block in lines]


def read(samples: str, root: str) -> Box:
    tree = Box(root)
    for names in stacks(samples):
        if root in names:
            below = names[names.index(root) + 1 :]
            tree.add([name for name in below if not name.startswith("0x") and name not in ("?", "[unknown]")])
    if tree.count == 0:
        sys.exit(f"flame: no sample in {samples} is below {root}")
    return tree


def draw(box: Box, x: float, row: int, scale: float, total: int, out: list[str]) -> None:
    width = box.count * scale
    if width < LEAST:
        return
    share = f"{100 * box.count / total:.1f} %"
    name = html.escape(box.name)
    y, fits = row * ROW, int(width / (FONT * 0.58))
    label = html.escape(box.name[:fits]) if fits > 3 else ""
    out.append(
        f'<g><title>{name}, {share}</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" '
        f'height="{ROW - 1}" fill="{COLOURS[row % len(COLOURS)]}"/>'
        f'<text x="{x + 3:.1f}" y="{y + 13}">{label}</text></g>'
    )
    for call in sorted(box.calls.values(), key=lambda call: -call.count):
        draw(call, x, row + 1, scale, total, out)
        x += call.count * scale


def picture(tree: Box) -> str:
    height = tree.depth() * ROW
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        f'font-size="{FONT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    draw(tree, 0, 0, WIDTH / tree.count, tree.count, out)
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", help="what `perf record` has written")
    parser.add_argument("root", help="the function whose time is drawn")
    parser.add_argument("svg", type=Path, help="the picture")
    arguments = parser.parse_args()
    tree = read(arguments.samples, arguments.root)
    arguments.svg.write_text(picture(tree), encoding="utf-8")
    print(f"{tree.count} samples below {tree.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
