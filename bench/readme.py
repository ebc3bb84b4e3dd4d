#!/usr/bin/env python3
"""Copies a run of bench/run.py into docs/benchmarks.md, and five rows of it into the README, between their markers.

    python bench/readme.py [bench/results/latest.json]
"""

import json
import re
import sys
from pathlib import Path

import report

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
README_CASES = ["cnn-train-512", "resnet50-train-2", "gpt2-train-128", "gpt2-infer-1", "add-4"]


def section(written: dict) -> str:
    """The report from its machine on, without its title."""
    return report.markdown(written).split("\n", 2)[2].rstrip()


def short_section(written: dict) -> str:
    return report.summary(written, README_CASES)


def replace_between_markers(path: Path, text: str) -> None:
    page = path.read_text(encoding="utf-8")
    if not re.search(f"{BEGIN}.*{END}", page, re.DOTALL):
        sys.exit(f"{path.name} has no {BEGIN} ... {END}")
    path.write_text("".join((page.split(BEGIN)[0], BEGIN, "\n", text, "\n", END, page.split(END)[1])), encoding="utf-8")


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "results" / "latest.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    replace_between_markers(ROOT / "docs" / "benchmarks.md", section(written))
    replace_between_markers(ROOT / "README.md", short_section(written))


if __name__ == "__main__":
    main()
