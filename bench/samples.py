#!/usr/bin/env python3
"""Counts the samples of `perf` in generated code, and those of them that have the name of a function.

A program is recorded twice: the first process compiles its kernels, a later one loads them from the cache. Generated
code is that of libraries which the system's compiler made from kernels, and that of oneDNN, which is in no file:
ONEDNN_JIT_PROFILE=2 makes oneDNN write its names to /tmp/perf-PID.map.

    python bench/samples.py --seconds 4                          the networks of bench/tools.py
    python bench/samples.py -- python program.py                 another program
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINE = re.compile(r"^\s*[0-9a-f]+\s+(?P<symbol>.*) \((?P<file>.*)\)$")
GENERATED = re.compile(r"(/[0-9a-f]{16}-[0-9a-f]{32}|kernels)\.so( \(deleted\))?$|/perf-\d+\.map$|/memfd:|^//anon|^\[anon")


def is_permitted() -> bool:
    """True if perf is installed and may sample processes."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                ["perf", "record", "-o", f"{folder}/samples", "--", "true"], capture_output=True, check=False
            )
        except OSError:
            return False
        return done.returncode == 0


def record(command: list[str], samples: Path, environment: dict[str, str], rate: int = 1999) -> None:
    """Runs a command under perf. A failure has the end of its output."""
    done = subprocess.run(
        ["perf", "record", "-F", str(rate), "-o", str(samples), "--", *command],
        env=os.environ | {"ONEDNN_JIT_PROFILE": "2"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")


def count(samples: Path) -> dict[str, tuple[int, int]]:
    """For each file of generated code: its samples, and those without a name."""
    text = subprocess.run(
        ["perf", "script", "-i", str(samples), "-F", "ip,sym,dso"], capture_output=True, text=True, check=True
    ).stdout
    found = collections.defaultdict(lambda: [0, 0])
    for match in filter(None, map(LINE.match, text.splitlines())):
        if GENERATED.search(match["file"]):
            found[match["file"]][0] += 1
            found[match["file"]][1] += match["symbol"] == "[unknown]"
    return {name: (total, unnamed) for name, (total, unnamed) in found.items()}


def total(counts: dict[str, tuple[int, int]]) -> tuple[int, int]:
    return sum(total for total, _ in counts.values()), sum(unnamed for _, unnamed in counts.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4, help="for which each network trains (default %(default)s)")
    parser.add_argument("command", nargs="*", help="another program, after --")
    arguments = parser.parse_args()
    if not is_permitted():
        sys.exit("samples: perf is not installed or not permitted")
    train = [sys.executable, str(HERE / "tools.py"), "--train", "mlp,cnn", "--seconds", str(arguments.seconds)]
    least = 1.0
    with tempfile.TemporaryDirectory() as folder:
        for process in ("first process", "later process"):
            samples = Path(folder, "samples")
            record(arguments.command or train, samples, {"HEADRACE_CACHE": folder})
            for name, (here, unnamed) in sorted(count(samples).items(), key=lambda item: -item[1][0]):
                print(f"  {here:7} samples, {here - unnamed:7} with a name: {Path(name).name}")
            here, unnamed = total(count(samples))
            least = min(least, 1 - unnamed / max(here, 1))
            print(f"{process}: {here} samples in generated code, {100 * (1 - unnamed / max(here, 1)):.2f} % have a name")
    return 0 if least >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
