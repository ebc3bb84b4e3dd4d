#!/usr/bin/env python3
"""Times a training step under each profiler, against the step without one.

The step is that of a multilayer perceptron (examples/networks.py), batch 64, Adam, whose loss is read. In each round
every way runs some steps, in short turns and in changing order; starts and ends of profiles are not timed. A cost is
the median of the rounds' ratios: a round's ways meet the same slow and fast moments of the machine.

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


def measure_round(step, count, number):
    """Seconds of a step by way. The number of the round says which way begins."""
    names = list(WAYS)
    times = {}
    for name in names[number % len(names) :] + names[: number % len(names)]:
        with WAYS[name]():
            times[name] = median_seconds(step, count)
    return times


def cost(name, base, rounds):
    """The median of a way's time over another's, in percent beyond it, with the middle half of the rounds."""
    ratios = [100 * (times[name] / times[base] - 1) for times in rounds]
    low, middle, high = statistics.quantiles(ratios * 2 if len(ratios) == 1 else ratios, n=4)
    return f"{middle:+6.1f} % ({low:+.1f} to {high:+.1f})"


def report(name, rounds):
    host = "torch.profiler, host alone"
    against = f", {cost(name, host, rounds)} of the host alone" if name.endswith("device") else ""
    median = statistics.median(times[name] for times in rounds)
    print(f"{name:32} {median * 1e6:8.1f} us a step  {cost(name, 'no profiler', rounds)}{against}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30, help="in each round")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    step = make_step(options.batch)
    median_seconds(step, 300)  # compiled
    rounds = [measure_round(step, options.steps, number) for number in range(options.rounds)]
    for name in WAYS:
        report(name, rounds)


if __name__ == "__main__":
    main()
