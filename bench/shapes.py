#!/usr/bin/env python3
"""Times programs whose shapes never repeat, and the same shapes again: a device of torch's against Headrace.

Each side of a case runs in a process of its own, with an empty cache of compiled kernels unless --code names another:
a call with a shape that the program does not use, then every shape once (`new`), then every shape again (`seen`, at
least 20 calls). Both processes live at the same time and take turns call by call, so that both meet the same slow and
fast moments of the machine. Both sides have the same weights, inputs, order of shapes and number of threads, and each
result exists before the next call. Inputs are drawn on the host between the calls; the garbage collector skips what
exists before them.

CPU time is the process's, background threads included; time of compilers is a column of its own, because those are
processes of their own. The ratio is torch's time by Headrace's: above 1 Headrace is faster.

    python bench/shapes.py                       everything, into bench/results/shapes.md and .json
    python bench/shapes.py --cases 'gpt*' --rounds 1
    HEADRACE_DEVICE=cuda python bench/shapes.py --reference cuda
"""

import argparse
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from alone import status_bytes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PASSES = ("new", "seen")
SEEN_CALLS = 20  # at least
LIMIT_SECONDS = 900.0  # of a process


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", default="*", help="names or patterns with commas between; --list names them")
    add("--list", action="store_true", help="names the cases and ends")
    add("--device", default="headrace", help="what is compared with the reference (default %(default)s)")
    add("--reference", default="cpu", help="torch's own device (default %(default)s)")
    add("--rounds", type=int, default=5, help="how often the sides take turns (default %(default)s)")
    add("--threads", type=int, default=1, help="of both sides (default %(default)s)")
    add("--code", metavar="FOLDER", help="compiled kernels of earlier runs (default: none)")
    add("--json", default=RESULTS / "shapes.json", type=Path, metavar="FILE", help="(default %(default)s)")
    add("--markdown", default=RESULTS / "shapes.md", type=Path, metavar="FILE", help="(default %(default)s)")
    add("--side", nargs=2, metavar=("CASE", "DEVICE"), help=argparse.SUPPRESS)  # one side by itself
    return parser.parse_args()


# ---- one side, in a process of its own


def run_side(name: str, device_name: str, threads: int) -> None:
    import torch

    if not device_name.startswith(("cpu", "cuda")):  # a process has one accelerator: not CUDA and this one
        import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
    from cases import synchronizer
    from shape_cases import CASES

    torch.set_num_threads(threads)
    case = next(case for case in CASES if case.name == name)
    device = torch.device(device_name)
    wait = synchronizer(device)
    stats = getattr(getattr(torch, device.type), "stats", dict)
    call = case.prepare(device)
    serve(case, call, wait, stats)


def serve(case, call, wait, stats) -> None:
    """Runs a call for each number of a shape that comes from standard input; each other line ends a pass and reports
    it. CPU time is that of all threads, without this thread's between two calls."""
    call(case.draw(case.warm))
    wait()
    gc.collect()
    gc.freeze()  # as timeit: no walks through the modules' objects in the calls
    say({})
    for _ in PASSES:
        wall, between = 0.0, time.thread_time()
        before, cpu, counted = os.times(), time.process_time(), stats()
        idle = 0.0
        while (line := sys.stdin.readline().strip()).isdigit():
            drawn = case.draw(case.shapes[int(line)])
            begin = time.perf_counter()
            idle += time.thread_time() - between
            result = call(drawn)
            wait()
            between = time.thread_time()
            wall += time.perf_counter() - begin
            say({})
        del result
        cpu = time.process_time() - cpu - idle - (time.thread_time() - between)
        after = os.times()
        children = after.children_user + after.children_system - before.children_user - before.children_system
        say(
            {
                "wall_seconds": wall,
                "cpu_seconds": cpu,
                "compiler_seconds": children,
                "resident_bytes": status_bytes("VmRSS"),
                "stats": {key: value - counted.get(key, 0) for key, value in stats().items() if isinstance(value, int)},
            }
        )


def say(report: dict) -> None:
    print(json.dumps(report), flush=True)


class Side:
    """The process of one side, from the parent."""

    def __init__(self, case, device: str, arguments):
        command = [sys.executable, __file__, "--side", case.name, device, "--threads", str(arguments.threads)]
        self.folder = tempfile.TemporaryDirectory()
        self.errors = tempfile.TemporaryFile("w+")
        environment = os.environ | {
            "HEADRACE_CACHE": arguments.code or self.folder.name,
            "HEADRACE_THREADS": str(arguments.threads),
            "OMP_NUM_THREADS": str(arguments.threads),
        }
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True, env=environment
        )
        self.limit = threading.Timer(LIMIT_SECONDS, self.process.kill)
        self.limit.start()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError((self.errors.read().strip() or "no message").splitlines()[-1][:200])
        return json.loads(line)

    def ask(self, text: str) -> dict:
        print(text, file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        self.limit.cancel()
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()
        self.errors.close()


# ---- both sides in turn, and the table


def measure(case, devices: list[str], turn: int, arguments) -> list[dict]:
    """A round: the report of each device, by passes. In even turns the first device is the first to run."""
    sides = []
    try:
        for device in devices:
            sides.append(Side(case, device, arguments))
            sides[-1].answer()
        found: list[dict] = [{} for _ in devices]
        for which in PASSES:
            numbers = list(range(len(case.shapes)))
            for index in numbers if which == "new" else numbers * -(-SEEN_CALLS // len(numbers)):
                for side in sides if turn % 2 == 0 else reversed(sides):
                    side.ask(str(index))
                turn += 1
            for side, report in zip(sides, found):
                report[which] = side.ask("end")
        return found
    finally:
        for side in sides:
            side.close()


def compare(case, arguments) -> dict:
    runs: dict[str, list[dict]] = {arguments.reference: [], arguments.device: []}
    for turn in range(arguments.rounds):
        for device, found in zip(runs, measure(case, list(runs), turn, arguments)):
            runs[device].append(found)
    result = {"name": case.name, "title": case.title, "shapes": len(case.shapes), "runs": runs}
    theirs, ours = runs[arguments.reference], runs[arguments.device]
    for which in PASSES:
        for key in ("cpu_seconds", "wall_seconds"):
            ratios = [a[which][key] / b[which][key] for a, b in zip(theirs, ours)]
            result[f"{which}_{key}_ratio"] = statistics.median(ratios)
            result[f"{which}_{key}_spread"] = [min(ratios), max(ratios)]
        result[f"{which}_compiler_seconds"] = statistics.median(run[which]["compiler_seconds"] for run in ours)
    return result


def row(result: dict) -> str:
    if "error" in result:
        return f"| {result['title']} | failed: {result['error']} | | | | | |"
    cells = [result["title"]]
    for which in PASSES:
        low, high = result[f"{which}_cpu_seconds_spread"]
        cells += [
            f"{result[f'{which}_cpu_seconds_ratio']:.2f} ({low:.2f} to {high:.2f})",
            f"{result[f'{which}_wall_seconds_ratio']:.2f}",
            f"{result[f'{which}_compiler_seconds']:.1f}",
        ]
    return "| " + " | ".join(cells) + " |"


def markdown(results: list[dict], arguments) -> str:
    import report

    head = [
        "# Shapes that do not repeat",
        "",
        f"{report.machine_text(report.machine(), arguments.threads)}, {arguments.rounds} rounds. "
        "torch's time by Headrace's, the median of the rounds: above 1 is faster. In brackets their spread. Compilers: "
        "seconds of CPU time that they took beside it.",
        "",
        "| case | new shapes, CPU time | wall time | compilers | the same again, CPU time | wall time | compilers |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join(head + [row(result) for result in results]) + "\n"


def run_cases(cases: list, arguments) -> list[dict]:
    results = []
    for index, case in enumerate(cases):
        print(f"[{index + 1:2}/{len(cases)}] {case.name:20}", end=" ", file=sys.stderr, flush=True)
        if case.needs and importlib.util.find_spec(case.needs) is None:
            print(f"left out: no package {case.needs}", file=sys.stderr)
            continue
        try:
            result = compare(case, arguments)
            line = ", ".join(f"{which} {result[f'{which}_cpu_seconds_ratio']:.2f}x" for which in PASSES)
        except (RuntimeError, BrokenPipeError) as error:
            result = {"name": case.name, "title": case.title, "error": str(error)}
            line = f"failed: {error}"
        print(line, file=sys.stderr, flush=True)
        results.append(result)
    return results


def main(arguments) -> int:
    if arguments.side:
        run_side(*arguments.side, arguments.threads)
        return 0
    from cases import chosen
    from shape_cases import CASES

    cases = chosen(CASES, arguments.cases)
    if arguments.list:
        print("\n".join(f"{case.name:20}{case.title}" for case in cases))
        return 0
    results = run_cases(cases, arguments)
    text = markdown(results, arguments)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    arguments.markdown.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any("error" in result for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(parse()))
