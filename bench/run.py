#!/usr/bin/env python3
"""The benchmark: torch's eager CPU device and Headrace in turn, on the same machine and threads.

    make bench                              all cases; writes bench/results/latest.{md,json}
    python bench/run.py --cases cnn,chain   those whose name contains one of the words
    python bench/run.py --quick             fewer rounds

Every case builds one model (or one expression) on each device from the same weights. Rounds alternate between the devices; a
round is timed as a whole and includes a synchronisation after each step. The median of the rounds counts, the first step is
reported apart. Peak memory of a training step is measured in a process of its own for each side: the growth of the
resident set's high-water mark from the loaded model on.
"""

import argparse
import gc
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
from networks import CASES  # noqa: E402

# name, network, what, examples, steps a round
NETWORK_CASES = [
    ("CNN 28x28, train, batch 512", "cnn", "train", 512, 1),
    ("CNN, infer, batch 512", "cnn", "infer", 512, 1),
    ("CNN, infer, batch 1", "cnn", "infer", 1, 100),
    ("Softshrink MLP, train, batch 64", "mlp", "train", 64, 50),
    ("Softshrink MLP, infer, batch 1", "mlp", "infer", 1, 500),
    ("ResNet-50, train, batch 2", "resnet50", "train", 2, 1),
    ("ResNet-50, infer, batch 2", "resnet50", "infer", 2, 2),
    ("ResNet-50, infer, batch 1", "resnet50", "infer", 1, 3),
    ("GPT-2 small, train, 1 x 128", "gpt2", "train", 1, 1),
    ("GPT-2 small, infer, 1 x 128", "gpt2", "infer", 1, 1),
    ("GPT-2 small, infer, 1 x 1", "gpt2", "infer one", 1, 3),
]
CHAIN_CASES = [
    ("element-wise chain, 4M floats", 4 << 20, 3),
    ("element-wise chain, 262,144 floats", 262144, 30),
    ("element-wise chain, 64 floats", 64, 500),
]
MICRO_CASE = "x + y on 4 elements, from Python"


def synchronize(device):
    if device == "headrace":
        torch.headrace.synchronize()


def network_step(network, what, count, device):
    """A function that runs one step on the device."""
    case = CASES[network]
    torch.manual_seed(0)
    model = case.build().to(device)
    batch = tuple(part.to(device) for part in case.batch(count))
    if what == "train":
        model.train()
        optimizers = case.optimizers(model, lambda parameters: torch.optim.Adam(parameters, lr=1e-4))
        return lambda: case.step(model, optimizers, batch)
    model.eval()
    if what == "infer one":
        batch = tuple(part[:, :1] for part in batch)

    def infer():
        with torch.no_grad():
            return case.infer(model, batch)

    return infer


def chain_step(count, device):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(count, generator=generator).to(device) for _ in range(2))
    return lambda: ((((x + y) * 0.5).tanh() - y).abs() * x + 1).sqrt().sigmoid()


def measure(make_step, steps, rounds, devices):
    """Median milliseconds a step and milliseconds of the first step, for each device."""
    step, first, times = {}, {}, {device: [] for device in devices}
    for device in devices:
        step[device] = make_step(device)
        synchronize(device)
        begin = time.perf_counter()
        result = step[device]()  # held until it is made: what nobody can see is not computed
        synchronize(device)
        first[device] = (time.perf_counter() - begin) * 1e3
    for turn in range(rounds + 1):
        for device in devices:
            run = step[device]
            result = run()  # the caches are the device's own again
            synchronize(device)
            begin = time.perf_counter()
            for _ in range(steps):
                result = run()
                synchronize(device)
            if turn > 0:  # the first round warms up
                times[device].append((time.perf_counter() - begin) * 1e3 / steps)
    del result
    return {device: statistics.median(times[device]) for device in devices}, first


def measure_micro(rounds, devices):
    """Milliseconds of a fresh x + y, over 200 that are all kept and a wait at their end."""
    times = {device: [] for device in devices}
    operands = {device: (torch.ones(4, device=device), torch.ones(4, device=device)) for device in devices}
    count, repeats = 200, 50
    for _ in range(rounds + 1):
        for device in devices:
            x, y = operands[device]
            begin = time.perf_counter()
            for _ in range(repeats):
                results = [x + y for _ in range(count)]
                synchronize(device)
            times[device].append((time.perf_counter() - begin) * 1e3 / count / repeats)
            del results
    return {device: statistics.median(times[device][1:]) for device in devices}, dict.fromkeys(devices, 0.0)


def high_water_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def peak_memory(network, count, device):
    """Bytes by which a training step raises the high-water mark, after the model was loaded. Runs in its own process."""
    step = network_step(network, "train", count, device)
    synchronize(device)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = high_water_bytes()
    for _ in range(2):
        step()
        synchronize(device)
    return high_water_bytes() - before


def peak_memory_apart(network, count, device):
    command = [sys.executable, __file__, "--peak-memory", f"{network},{count},{device}"]
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) if done.returncode == 0 and done.stdout.split() else None


def machine():
    flags = ""
    if os.path.exists("/proc/cpuinfo"):
        text = pathlib.Path("/proc/cpuinfo").read_text()
        flags = " AVX-512" if "avx512f" in text else " AVX2" if "avx2" in text else ""
    return f"{len(os.sched_getaffinity(0))}-core {platform.machine()}{flags}, {torch.get_num_threads()} threads"


def run_cases(arguments, devices):
    words = [word for word in arguments.cases.lower().split(",") if word]
    rows = []

    def selected(name):
        return not words or any(word in name.lower() for word in words)

    def add(name, result, memory=None):
        median, first = result
        row = {"case": name, "ms": median, "first_ms": first, "peak_bytes": memory or {}}
        if len(devices) == 2:
            row["ratio"] = median[devices[0]] / median[devices[1]]
        rows.append(row)
        ratio = f"  {row['ratio']:.2f}x" if "ratio" in row else ""
        print("  " + "  ".join(f"{device} {median[device]:.4g} ms" for device in devices) + ratio, file=sys.stderr)
        gc.collect()
        if "headrace" in devices:
            torch.headrace.empty_cache()

    for name, network, what, count, steps in NETWORK_CASES:
        if not selected(name):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        heavy = network in ("gpt2", "resnet50")
        rounds = max(3, arguments.rounds // (3 if heavy and what == "train" else 1))
        memory = None
        if what == "train" and not arguments.quick:
            memory = {device: peak_memory_apart(network, count, device) for device in devices}
        add(name, measure(lambda device: network_step(network, what, count, device), steps, rounds, devices), memory)
    for name, count, steps in CHAIN_CASES:
        if selected(name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            add(name, measure(lambda device: chain_step(count, device), steps, arguments.rounds, devices))
    if selected(MICRO_CASE):
        print(f"{MICRO_CASE} ...", file=sys.stderr, flush=True)
        add(MICRO_CASE, measure_micro(arguments.rounds, devices))
    return rows


def cell(value):
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def markdown(report):
    first, *rest = report["devices"]
    lines = [
        f"Milliseconds a step, medians; torch {report['torch']}, {report['machine']}.",
        "",
        "| case | torch eager | Headrace | speed-up | first step: torch | Headrace | peak MB: torch | Headrace |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        second = rest[0] if rest else None
        peaks = [row["peak_bytes"].get(device) for device in (first, second)]
        cells = [row["case"], cell(row["ms"][first]), cell(row["ms"].get(second)), f"{row['ratio']:.2f}x" if second else "-"]
        cells += [cell(row["first_ms"].get(device) or None) for device in (first, second)]
        cells += [cell(peak / 1e6) if peak is not None else "-" for peak in peaks]
        lines.append("| " + " | ".join(cells) + " |")
    if report["geometric_mean"] is not None:
        lines.append(f"| geometric mean | | | {report['geometric_mean']:.2f}x | | | | |")
    return "\n".join(lines) + "\n"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="words, separated by commas; a case runs when its name has one")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds for each device (default 9)")
    parser.add_argument("--quick", action="store_true", help="3 rounds, no memory")
    parser.add_argument("--device", default="cpu,headrace", help="devices in turn; the first is what speed-ups refer to")
    parser.add_argument("--json", default=str(ROOT / "bench/results/latest.json"))
    parser.add_argument("--markdown", default=str(ROOT / "bench/results/latest.md"))
    parser.add_argument("--peak-memory", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.peak_memory:
        network, count, device = arguments.peak_memory.split(",")
        print(peak_memory(network, int(count), device))
        return
    devices = arguments.device.split(",")
    if "headrace" in devices and not hasattr(torch, "headrace"):
        sys.exit("the headrace device is not installed in this Python: run `make bench`, or `pip install .`")
    arguments.rounds = 3 if arguments.quick else arguments.rounds
    rows = run_cases(arguments, devices)
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    report = {"torch": torch.__version__, "machine": machine(), "devices": devices, "rows": rows, "geometric_mean": mean}
    for path, text in ((arguments.json, json.dumps(report, indent=1) + "\n"), (arguments.markdown, markdown(report))):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text(text)
    print(markdown(report))


if __name__ == "__main__":
    main()
