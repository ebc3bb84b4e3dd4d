#!/usr/bin/env python3
"""The time of a step, split by the kernels and library calls of a case of the benchmark.

Runs some steps of a case with HEADRACE_DEBUG=2 and sums the lines by name: calls a step, the median time over the
steps, bytes moved and bandwidth. Printing between kernels costs time: the sum shows the distribution, run.py the
total.

    python bench/kernels.py resnet50-infer-1            the 20 most expensive
    python bench/kernels.py cnn-train-512 --top 0       all
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

LINE = re.compile(
    r"headrace: +(?P<us>[\d.]+) us +(?P<mb>[\d.]+) MB +[\d.]+ GB/s(?: +\d+ %)?"
    r"(?: +(?P<gflops>[\d.]+) GFLOP/s(?: +\d+ %)?)?  (?P<name>.+)"
)


def read_step(text: str) -> list[tuple[str, float, float, float]]:
    """(name, microseconds, megabytes, operations in millions) of each line of a step."""
    found = []
    for line in text.splitlines():
        match = LINE.fullmatch(line.strip())
        if match is not None:
            us, gflops = float(match["us"]), float(match["gflops"] or 0)
            found.append((match["name"], us, float(match["mb"]), gflops * us * 1e-3))
    return found


def add_up(steps: list[list[tuple]]) -> list[tuple[str, int, float, float, float]]:
    """(name, calls a step, microseconds, megabytes, operations in millions), the most expensive first. Counts the steps
    that have as many lines as most; times are medians over them, place by place."""
    usual = statistics.mode(len(step) for step in steps)
    steps = [step for step in steps if len(step) == usual]
    sums = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for place in range(usual):
        name, _, mb, operations = steps[0][place]
        entry = sums[name]
        entry[0] += 1
        entry[1] += statistics.median(step[place][1] for step in steps)
        entry[2] += mb
        entry[3] += operations
    return sorted(((name, *entry) for name, entry in sums.items()), key=lambda row: -row[2])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help="as `run.py --list` names it")
    parser.add_argument("--steps", type=int, default=15, help="that count (default %(default)s)")
    parser.add_argument("--warm", type=float, default=4.0, help="seconds of steps before them (default %(default)s)")
    parser.add_argument("--top", type=int, default=20, help="lines; 0: all (default %(default)s)")
    return parser.parse_args()


def run_steps(case, arguments, log: Path) -> tuple[list[str], list[float]]:
    """The printed lines of each step, and its seconds."""
    import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
    import torch
    from cases import timed

    device = torch.device("headrace")
    sample = case.prepare(device)
    begin = time.monotonic()
    while time.monotonic() - begin < arguments.warm:
        timed(sample, device)
    texts, seconds = [], []
    with open(log) as lines:
        for _ in range(arguments.steps):
            lines.seek(0, os.SEEK_END)
            seconds.append(timed(sample, device) / case.inner)
            texts.append(lines.read())
    return texts, seconds


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        os.environ |= {"HEADRACE_DEBUG": "2", "HEADRACE_LOG": str(log)}  # read when the device is loaded
        from cases import CASES

        case = next((case for case in CASES if case.name == arguments.case), None)
        if case is None:
            sys.exit(f"kernels: no case is called {arguments.case}; there are {', '.join(c.name for c in CASES)}")
        texts, seconds = run_steps(case, arguments, log)
    steps = [step for step in map(read_step, texts) if step]
    if not steps:
        sys.exit("kernels: nothing ran on the device")
    rows = add_up(steps)
    calls, total = sum(row[1] for row in rows), sum(row[2] for row in rows)
    scale = case.inner
    print(
        f"{case.title}: {statistics.median(seconds) * 1e3:.3f} ms a step with printing; {calls // scale} lines, ",
        end="",
    )
    print(f"{total / scale * 1e-3:.3f} ms, {sum(row[3] for row in rows) / scale:.1f} MB")
    for name, count, us, mb, operations in rows[: arguments.top or None]:
        speed = f"{operations / us * 1e3:7.1f} GFLOP/s" if operations > 0 else " " * 15
        print(
            f"{us / scale:10.1f} us {100 * us / total:5.1f} % {count // scale:4d} x {mb / us * 1e3:6.1f} GB/s {speed} "
            f" {name}"
        )


if __name__ == "__main__":
    main()
