"""Measurements in a fresh process: the first step of an unseen network, the time to full speed, peak memory.

A fresh process has the memory of one side alone, and no kernel, shape or cached code. The folder for compiled kernels
is empty.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from cases import Case, synchronize, timed
from sides import start_peak, status_bytes

SECONDS = 6.0  # to reach full speed in


def seconds_to_settle(steps: list[tuple[float, float]]) -> float:
    """From (end, duration) of each step: the time from which steps stay within a tenth of their final duration.

    The fastest steps of each quarter of a second count, at least three: a slow step or two, disturbed by other work
    on the machine, do not."""
    windows = []  # (end, fast duration)
    begin = 0
    for index, (end, _) in enumerate(steps):
        if index - begin >= 2 and end - steps[begin][0] >= 0.25:
            durations = sorted(duration for _, duration in steps[begin : index + 1])
            windows.append((end, durations[len(durations) // 10]))
            begin = index + 1
    if not windows:
        return 0.0
    final = statistics.median(duration for _, duration in windows[len(windows) // 2 :])
    return max((end for end, duration in windows if duration > 1.1 * final), default=0.0)


def measure(case: Case, device: torch.device, seconds: float) -> dict:
    """The growth of the resident memory over three steps, at the peak, in bytes; the first step and the time until
    later ones are at full speed, in seconds. Steps go on for `seconds`; 0: there are three."""
    sample = case.prepare(device)
    synchronize(device)
    gc.collect()
    before = status_bytes("VmRSS")
    start_peak()
    begin = time.perf_counter()
    steps = []
    growth = 0
    while len(steps) < 3 or (time.perf_counter() - begin < seconds and len(steps) < 100000):
        duration = timed(sample, device)
        steps.append((time.perf_counter() - begin, duration / case.inner))
        if len(steps) == 3:
            growth = status_bytes("VmHWM") - before
    return {
        "before_bytes": before,
        "growth_bytes": growth,
        "first_seconds": steps[0][1],
        "settled_seconds": seconds_to_settle(steps),
    }


def measure_alone(case: Case, device: torch.device, threads: int, seconds: float) -> dict:
    """`measure`, in a process of its own. Raises RuntimeError with the process's output."""
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--alone", case.name, str(seconds)]
    command += ["--device", str(device), "--threads", str(threads)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"HEADRACE_CACHE": folder}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-400:])
    return json.loads(done.stdout.splitlines()[-1])


def measure_sides(case: Case, devices: list[torch.device], threads: int) -> list[dict]:
    """For each device, three processes in turn: the middle of the first steps; the last process goes on to full
    speed."""
    found = [[measure_alone(case, device, threads, seconds) for device in devices] for seconds in (0, 0, SECONDS)]
    return [
        last | {"first_seconds": statistics.median(run[index]["first_seconds"] for run in found)}
        for index, last in enumerate(found[-1])
    ]
