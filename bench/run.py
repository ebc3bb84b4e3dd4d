#!/usr/bin/env python3
"""Times torch's CPU device against Headrace, in turn in one process, and writes a table.

Each case runs on all sides with the same weights, batches and number of threads: torch eager on the CPU, Headrace
eager, Headrace through torch.compile(backend="headrace"), and, on request, torch.compile on the CPU. Warm-up steps
come first, then rounds. In each round all sides run a few steps, in an order that changes from round to round, so
that a change of the machine's speed affects all sides. The median of all steps is reported. Every step ends when its
result exists: on Headrace with torch.headrace.synchronize(), while the result is still referenced.

If a network only reads its weights once, a plain matrix-vector product reads as many bytes, in turn with the others:
its bandwidth is the limit.

A fresh process for each side, with an empty cache of compiled kernels, measures a network's first step and the time
until steps are at full speed. For training steps it also measures the peak memory: the growth of the resident memory
from the moment when model and batch are on the device until three steps have run. It includes gradients, the
optimizer's state and all temporaries.

    python bench/run.py                       everything, into bench/results/latest.md and .json
    python bench/run.py --quick               the same in less time, with more noise
    python bench/run.py --cases 'cnn*,chain*' some of it
    python bench/run.py --sides all           also torch.compile on the CPU and installed engines: minutes more
"""

import argparse
import copy
import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
SIDES = ("torch", "device", "compiled", "inductor", "onnxruntime", "openvino")


def parse_sides(text: str) -> list[str]:
    names = SIDES if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in SIDES:
            raise argparse.ArgumentTypeError(f"no side is called {name}; there are {', '.join(SIDES)}")
    return [name for name in SIDES if name in names or name in ("torch", "device")]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", default="*", help="names or patterns with commas between; --list names them")
    add("--list", action="store_true", help="names the cases and ends")
    add("--device", default="headrace", help="what is compared with torch's CPU device (default %(default)s)")
    add("--rounds", type=int, default=6, help="how often the sides take turns (default %(default)s)")
    add("--seconds", type=float, default=4.0, help="time for a side in all rounds of a case (default %(default)s)")
    add("--quick", action="store_true", help="two rounds of half a second, nothing in a process of its own")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of all sides (default %(default)s)")
    add(
        "--sides",
        type=parse_sides,
        default="torch,device,compiled",
        help="besides torch and device: compiled, the device through torch.compile; inductor, torch.compile on the "
        "CPU; onnxruntime and openvino for inference, where they are installed; or all (default %(default)s)",
    )
    add("--not-alone", action="store_true", help="leaves out what needs a process of its own")
    add("--json", default=RESULTS / "latest.json", type=Path, metavar="FILE", help="(default %(default)s)")
    add("--markdown", default=RESULTS / "latest.md", type=Path, metavar="FILE", help="(default %(default)s)")
    add(
        "--alone", nargs=2, metavar=("CASE", "SECONDS"), help=argparse.SUPPRESS
    )  # one side by itself, for measure_alone
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.not_alone = 2, 1.0, True
    return arguments


ARGUMENTS = parse() if __name__ == "__main__" else None
if ARGUMENTS:  # before torch loads: all sides read the number of threads when they start
    os.environ["OMP_NUM_THREADS"] = os.environ["HEADRACE_THREADS"] = str(ARGUMENTS.threads)

import engines  # noqa: E402
import headrace.torch  # noqa: E402, F401  (torch finds it by itself, except where torch also drives CUDA)
import report  # noqa: E402
import row_product  # noqa: E402
import torch  # noqa: E402
from alone import measure, measure_sides  # noqa: E402
from cases import CASES, Case, as_it_is, chosen, synchronize, timed  # noqa: E402


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def stats_of(device: torch.device) -> dict:
    stats = getattr(getattr(torch, device.type), "stats", dict)()
    return {key: value for key, value in stats.items() if isinstance(value, (int, float))}


class Side:
    """One side of a case: its work and its time, in seconds per operation."""

    def __init__(self, device: torch.device, sample, inner: int):
        self.device, self.sample, self.inner = device, sample, inner
        self.counted: dict[str, float] = {}  # the device's counters over all rounds
        synchronize(device)
        self.first = timed(sample, device) / inner
        self.times: list[float] = []
        for _ in range(3 if self.first < 1 else 1):  # the optimizer's state, caches, clocks
            self.estimate = timed(sample, device)

    def run_round(self, seconds: float) -> None:
        before = stats_of(self.device)
        timed(self.sample, self.device)  # the other side's threads may still be spinning, and its data fills the caches
        for _ in range(max(1, min(200, round(seconds / self.estimate)))):
            self.times.append(timed(self.sample, self.device) / self.inner)
        for key, value in stats_of(self.device).items():
            self.counted[key] = self.counted.get(key, 0) + value - before.get(key, 0)

    def result(self, rounds: int) -> dict:
        ordered = sorted(self.times)
        tenth = len(ordered) // 10
        found = {
            "median_seconds": statistics.median(ordered),
            "low_seconds": ordered[tenth],
            "high_seconds": ordered[-1 - tenth],
            "samples": len(ordered),
            "first_seconds": self.first,
        }
        if self.counted:
            per_sample = {key: round(value / (len(ordered) + rounds), 3) for key, value in self.counted.items()}
            found["stats_per_sample"] = per_sample
        return found


def make_sides(case: Case, device: torch.device, names: list[str]) -> dict[str, Side]:
    cpu = torch.device("cpu")
    prepared = {
        "torch": (cpu, as_it_is),
        "device": (device, as_it_is),
        "compiled": (device, lambda function: torch.compile(function, backend="headrace")),
        "inductor": (cpu, torch.compile),
    }
    wanted = [name for name in names if name in prepared and (case.counts or name in ("torch", "device"))]
    sides = {name: Side(prepared[name][0], case.prepare(*prepared[name]), case.inner) for name in wanted}
    answers = case.is_network and not case.trains
    for name in [name for name in names if name in engines.ENGINES and answers]:
        try:
            sides[name] = Side(cpu, case.prepare(cpu, engines.ENGINES[name]), case.inner)
        except Exception as error:  # an operator it does not have, a package that is not there
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            say(f"no {report.TITLES[name]} beside it: {reason[:160]}")
    if case.reads_weights:
        try:
            sides["row_product"] = Side(cpu, row_product.make(case.reads_weights), 1)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"no plain product of rows beside it: {error}")
    return sides


def run_case(case: Case, device: torch.device, arguments) -> dict:
    sides = make_sides(case, device, arguments.sides)
    for index in range(arguments.rounds):
        for side in list(sides.values()) if index % 2 == 0 else reversed(sides.values()):
            side.run_round(arguments.seconds / arguments.rounds)
    result = {"name": case.name, "title": case.title, "counts_in_mean": case.counts}
    result |= {name: side.result(arguments.rounds) for name, side in sides.items()}
    for name, key in report.RATIOS.items():
        if name in result:
            result[key] = result["torch"]["median_seconds"] / result[name]["median_seconds"]
    if "row_product" in result:
        result["row_product"]["bytes"] = case.reads_weights
    return result


def run_alone(case: Case, device: torch.device, result: dict, threads: int) -> None:
    try:
        torch_side, our_side = measure_sides(case, [torch.device("cpu"), device], threads)
    except RuntimeError as error:
        say(f"\n  {case.name} could not be measured by itself:\n{error}")
        return
    result["torch"]["alone"], result["device"]["alone"] = torch_side, our_side


def release(device: torch.device) -> None:
    """The case's memory is released before the next one."""
    torch._dynamo.reset()
    gc.collect()
    synchronize(device)
    getattr(getattr(torch, device.type), "empty_cache", lambda: None)()


def run_cases(cases: list[Case], device: torch.device, arguments) -> list[dict]:
    results = []
    for index, case in enumerate(cases):
        say(f"[{index + 1:2}/{len(cases)}] {case.name:18}", end=" ")
        try:
            result = run_case(copy.copy(case), device, arguments)
        except Exception as error:
            say(f"failed: {error}")
            results.append({"name": case.name, "title": case.title, "error": str(error).splitlines()[0][:200]})
            continue
        finally:
            release(device)
        say(report.progress(result), end="")
        if case.is_network and not arguments.not_alone:
            run_alone(case, device, result, arguments.threads)
            say(report.progress_alone(result), end="")
        say("")
        results.append(result)
    return results


def main(arguments) -> int:
    if arguments.list:
        print("\n".join(f"{case.name:20}{case.title}" for case in CASES))
        return 0
    torch.set_num_threads(arguments.threads)
    try:
        device = torch.device(arguments.device)
        torch.ones(2, device=device).add(1).sum().item()
    except Exception as error:
        sys.exit(f"bench: the device `{arguments.device}` does not work: {error}")
    if arguments.alone:
        name, seconds = arguments.alone
        print(json.dumps(measure(next(case for case in CASES if case.name == name), device, float(seconds))))
        return 0

    results = run_cases(chosen(CASES, arguments.cases), device, arguments)
    written = {
        "date": datetime.date.today().isoformat(),
        "commit": report.commit_of_tree(ROOT),
        "machine": report.machine(),
        "threads": arguments.threads,
        "device": str(device),
        "rounds": arguments.rounds,
        "seconds_per_side": arguments.seconds,
        "load_average": os.getloadavg(),
        "geometric_means": {key: report.geometric_mean(results, key) for key in report.RATIOS.values()},
        "results": results,
    }
    text = report.markdown(written)
    for path, content in ((arguments.json, json.dumps(written, indent=1) + "\n"), (arguments.markdown, text)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    print(text)
    say(f"wrote {arguments.markdown} and {arguments.json}")
    return 1 if any("error" in result for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
