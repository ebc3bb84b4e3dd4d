#!/usr/bin/env python3
"""Times programs whose shapes never repeat, and the same shapes again: a device of torch's against Headrace.

Each side of a case runs in a process of its own, with an empty cache of compiled kernels unless --code names another:
a call with a shape that the program does not use, then every shape once (`new`), then every shape again (`seen`).
Processes of the two sides take turns. Both sides have the same weights, inputs, order of shapes and number of threads,
and each result exists before the next call.

CPU time is the process's, background threads included; time of compilers is a column of its own, because those are
processes of their own. The ratio is torch's median by Headrace's: above 1 Headrace is faster.

    python bench/shapes.py                       everything, into bench/results/shapes.md and .json
    python bench/shapes.py --cases 'gpt*' --rounds 1
    HEADRACE_DEVICE=cuda python bench/shapes.py --reference cuda
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PASSES = ("new", "seen")


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


def run_side(name: str, device_name: str, threads: int) -> dict:
    import torch

    if not device_name.startswith(("cpu", "cuda")):  # a process has one accelerator: not CUDA and this one
        import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
    from alone import status_bytes
    from cases import synchronizer
    from shape_cases import CASES

    torch.set_num_threads(threads)
    case = next(case for case in CASES if case.name == name)
    device = torch.device(device_name)
    wait = synchronizer(device)
    stats = getattr(getattr(torch, device.type), "stats", dict)
    call = case.prepare(device)
    call(case.warm)
    wait()
    found = {}
    for which in PASSES:
        before, begin, cpu = os.times(), time.perf_counter(), time.process_time()
        counted = stats()
        for shape in case.shapes:
            result = call(shape)
            wait()
        del result
        after = os.times()
        found[which] = {
            "wall_seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time() - cpu,
            "compiler_seconds": after.children_user
            + after.children_system
            - before.children_user
            - before.children_system,
            "resident_bytes": status_bytes("VmRSS"),
            "stats": {key: value - counted.get(key, 0) for key, value in stats().items() if isinstance(value, int)},
        }
    return found


def measure(case, device: str, threads: int, code: str | None) -> dict:
    command = [sys.executable, __file__, "--side", case.name, device, "--threads", str(threads)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "HEADRACE_CACHE": code or folder,
            "HEADRACE_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
        }
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or "no message").splitlines()[-1][:200])
    return json.loads(done.stdout.splitlines()[-1])


# ---- both sides in turn, and the table


def median_of(runs: list[dict], which: str, key: str) -> float:
    return statistics.median(run[which][key] for run in runs)


def compare(case, arguments) -> dict:
    runs: dict[str, list[dict]] = {arguments.reference: [], arguments.device: []}
    for index in range(arguments.rounds):
        for device in list(runs) if index % 2 == 0 else reversed(list(runs)):
            runs[device].append(measure(case, device, arguments.threads, arguments.code))
    result = {"name": case.name, "title": case.title, "shapes": len(case.shapes), "runs": runs}
    theirs, ours = runs[arguments.reference], runs[arguments.device]
    for which in PASSES:
        for key in ("cpu_seconds", "wall_seconds"):
            result[f"{which}_{key}_ratio"] = median_of(theirs, which, key) / median_of(ours, which, key)
        ratios = sorted(a[which]["cpu_seconds"] / b[which]["cpu_seconds"] for a, b in zip(theirs, ours))
        result[f"{which}_spread"] = [ratios[0], ratios[-1]]
        result[f"{which}_compiler_seconds"] = median_of(ours, which, "compiler_seconds")
    return result


def row(result: dict) -> str:
    if "error" in result:
        return f"| {result['title']} | failed: {result['error']} | | | | | |"
    cells = [result["title"]]
    for which in PASSES:
        low, high = result[f"{which}_spread"]
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
        "torch's time by Headrace's: above 1 "
        "is faster. In brackets the spread of the rounds. Compilers: seconds of CPU time that they took beside it.",
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
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            result = {"name": case.name, "title": case.title, "error": str(error)}
            line = f"failed: {error}"
        print(line, file=sys.stderr, flush=True)
        results.append(result)
    return results


def main(arguments) -> int:
    if arguments.side:
        print(json.dumps(run_side(*arguments.side, arguments.threads)))
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
