#!/usr/bin/env python3
"""Times how tensors get from the host to the device and back, as copies and in the same memory (headrace.exchange).

Every call ends when its result exists. Results are held until the next call, so that copies reuse no memory that a
program would not reuse. The median of the calls of all rounds is reported, in microseconds; all ways take turns.

    python bench/exchange.py
"""

import argparse
import statistics
import time

import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
import numpy as np
import torch

SIZES = {"4 B": 1, "1 MB": 1 << 18, "100 MB": 25_000_000}


def ways(count: int) -> dict:
    array = np.ones(count, np.float32)
    x = torch.ones(count, device="headrace")
    return {
        "to the host: .cpu()": x.cpu,
        "to the host: host_view": lambda: torch.headrace.host_view(x),
        "to the host: numpy.from_dlpack": lambda: np.from_dlpack(x),
        'to the device: .to("headrace")': lambda: torch.from_numpy(array).to("headrace"),
        "to the device: from_host": lambda: torch.headrace.from_host(array),
    }


def microseconds(call, calls: int) -> list[float]:
    found = []
    for _ in range(calls):
        begin = time.perf_counter()
        held = call()
        torch.headrace.synchronize()
        found.append((time.perf_counter() - begin) * 1e6)
        del held
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often the ways take turns (default %(default)s)")
    arguments = parser.parse_args()
    columns = {}
    for title, count in SIZES.items():
        calls = 5 if count > 1 << 20 else 200
        times: dict[str, list[float]] = {}
        prepared = ways(count)
        for _ in range(arguments.rounds):
            for name, call in prepared.items():
                times.setdefault(name, []).extend(microseconds(call, calls))
        columns[title] = {name: statistics.median(values) for name, values in times.items()}
    print(f"| microseconds | {' | '.join(SIZES)} |\n|---|{'---|' * len(SIZES)}")
    for name in columns["4 B"]:
        print(f"| {name} | {' | '.join(f'{columns[title][name]:,.1f}' for title in SIZES)} |")


if __name__ == "__main__":
    main()
