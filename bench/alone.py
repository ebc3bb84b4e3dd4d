"""What needs a process of its own: the first step of an unseen network, how soon it is at full speed, peak memory.

A process of its own has the memory of one side alone, and has seen no kernel, no shape and no cached code before; the
folder for compiled kernels is an empty one.
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

SECONDS = 6.0  # to reach full speed in


def status_bytes(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def seconds_to_settle(steps: list[tuple[float, float]]) -> float:
    """From (end, duration) of each step: when steps began to take what they take in the end, give or take a tenth.

    What counts is the median of five steps, so that a single slow one does not."""
    durations = [duration for _, duration in steps]
    final = statistics.median(durations[len(durations) // 2 :])
    settled = 0.0
    for index, (end, _) in enumerate(steps):
        around = durations[max(0, index - 2) : index + 3]
        if statistics.median(around) > 1.1 * final:
            settled = end
    return settled


def measure(case: Case, device: torch.device) -> dict:
    """The growth of the resident memory over three steps, at the peak, in bytes; the first step and the time until
    later ones are at full speed, in seconds."""
    sample = case.prepare(device)
    synchronize(device)
    gc.collect()
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again from VmRSS
    begin = time.perf_counter()
    steps = []
    growth = 0
    while len(steps) < 10 or (time.perf_counter() - begin < SECONDS and len(steps) < 5000):
        duration = timed(sample, device)
        steps.append((time.perf_counter() - begin, duration / case.inner))
        if len(steps) == 3:
            growth = status_bytes("VmHWM") - before
        if len(steps) == 1 and duration > SECONDS:
            break
    return {
        "before_bytes": before,
        "growth_bytes": growth,
        "first_seconds": steps[0][1],
        "settled_seconds": seconds_to_settle(steps),
    }


def measure_alone(case: Case, device: torch.device, threads: int) -> dict:
    """`measure`, in a process of its own. Raises RuntimeError with what the process said."""
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--alone", case.name]
    command += ["--device", str(device), "--threads", str(threads)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"HEADRACE_CACHE": folder}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-400:])
    return json.loads(done.stdout.splitlines()[-1])
