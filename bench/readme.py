#!/usr/bin/env python3
"""Puts the figures of a run of bench/run.py into the README, between its marks.

    python bench/readme.py [bench/results/latest.json]
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(results: dict) -> str:
    machine = results["machine"]
    compiled = any("compiled" in case for case in results["results"])
    vectors = f", {machine['vectors'][-1]}" if machine["vectors"] else ""
    lines = [
        f"Milliseconds a step on a machine with {machine['cores']} cores ({machine['cpu']}{vectors}), "
        f"torch {machine['torch']}, medians; the sides take turns in one process.",
        "",
        "| case | torch eager | Headrace | speed-up |" + (" compiled | speed-up |" if compiled else ""),
        "|---|---:|---:|---:|" + ("---:|---:|" if compiled else ""),
    ]
    for case in results["results"]:
        torch, device = case["torch"]["median_seconds"], case["device"]["median_seconds"]
        line = f"| {case['title']} | {milliseconds(torch)} | {milliseconds(device)} | {torch / device:.2f}x |"
        if compiled:
            median = case.get("compiled", {}).get("median_seconds")
            line += f" {milliseconds(median)} | {torch / median:.2f}x |" if median else "  |  |"
        lines.append(line)
    lines.append(f"| geometric mean | | | {results['geometric_mean']:.2f}x |" + ("  |  |" if compiled else ""))
    memory = [case for case in results["results"] if case["device"].get("memory") and case["torch"].get("memory")]
    if memory:
        lines += ["", "Peak memory of training steps, MiB, torch and Headrace: " + "; ".join(
            f"{case['title'].split(',')[0]} {case['torch']['memory']['growth_bytes'] / 2**20:,.0f} and "
            f"{case['device']['memory']['growth_bytes'] / 2**20:,.0f}"
            for case in memory
        ) + "."]
    return "\n".join(lines)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "results" / "latest.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not re.search(f"{BEGIN}.*{END}", text, re.DOTALL):
        sys.exit(f"README.md has no {BEGIN} ... {END}")
    parts = (text.split(BEGIN)[0], BEGIN, "\n", table(results), "\n", END, text.split(END)[1])
    readme.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
