#!/usr/bin/env python3
"""Puts the tables of a run of bench/run.py into the README, between its marks.

    python bench/readme.py [bench/results/latest.json]
"""

import json
import re
import sys
from pathlib import Path

import report

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def section(written: dict) -> str:
    """The report from its machine on, without its title."""
    return report.markdown(written).split("\n", 2)[2].rstrip()


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "results" / "latest.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not re.search(f"{BEGIN}.*{END}", text, re.DOTALL):
        sys.exit(f"README.md has no {BEGIN} ... {END}")
    parts = (text.split(BEGIN)[0], BEGIN, "\n", section(written), "\n", END, text.split(END)[1])
    readme.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
