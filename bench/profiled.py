#!/usr/bin/env python3
"""Times a training step under each profiler, against the step without one.

The step is that of a multilayer perceptron (examples/networks.py), batch 64, Adam, whose loss is read. In each round
every way runs some steps; starts and ends of profiles are not timed. The smallest median of the rounds counts.

    python bench/profiled.py
"""

import argparse
import contextlib
import statistics
import sys
import time
from pathlib import Path

import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from networks import CASES  # noqa: E402

HOST, DEVICE = ProfilerActivity.CPU, ProfilerActivity.PrivateUse1
WAYS = {
    "no profiler": contextlib.nullcontext,
    "headrace.profiler": lambda: torch.headrace.profiler.profile(),
    "torch.profiler, host alone": lambda: profile(activities=[HOST]),
    "torch.profiler, host and device": lambda: profile(activities=[HOST, DEVICE]),
}


def make_step(batch):
    torch.manual_seed(0)
    case = CASES["mlp"]
    model = case.build(small=False, dropout=0.0).to("headrace")
    optimizers = case.optimizers(model, lambda parameters: torch.optim.Adam(parameters))
    data = [x.to("headrace") for x in case.batch(batch, small=False, generator=torch.Generator().manual_seed(0))]
    return lambda: [loss.item() for loss in case.step(model, optimizers, data)]


def median_seconds(step, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200, help="in each round")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    step = make_step(options.batch)
    median_seconds(step, 3 * options.steps // 2)  # compiled
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            with way():
                best[name] = min(best[name], median_seconds(step, options.steps))
    base, host = best["no profiler"], best["torch.profiler, host alone"]
    for name, seconds in best.items():
        against = f", {100 * (seconds / host - 1):+.1f} % of the host alone" if name.endswith("device") else ""
        print(f"{name:32} {seconds * 1e6:8.1f} us a step  {100 * (seconds / base - 1):+6.1f} %{against}")


if __name__ == "__main__":
    main()
