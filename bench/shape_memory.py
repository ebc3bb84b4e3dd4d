#!/usr/bin/env python3
"""What 2,000 shapes take of a process's memory: torch's CPU device and Headrace, each in a process of its own.

Both train an MLP on batches of 1 to 2,000 rows, or run GPT 2 x 64 on batches of 1 to 8 sequences of 2 to 251 tokens; no
shape comes twice. The resident memory is read after 200 shapes and after all. `empty_cache` is called twice at the end,
since it frees the programs that did not run since the call before.

    python bench/shape_memory.py
"""

import argparse
import gc
import json
import subprocess
import sys

from alone import status_bytes

SHAPES, EARLY = 2000, 200
MIB = 1 << 20


def lengths_of(name: str) -> list[tuple]:
    from shape_cases import drawn

    if name == "mlp-train":
        return [(n, 64) for n in drawn(range(1, SHAPES + 1), SHAPES)]
    return drawn([(batch, length) for batch in range(1, 9) for length in range(2, 252)], SHAPES)


def cases() -> dict:
    import torch
    from shape_cases import VOCABULARY, calls, floats_of, gpt, mlp, square_loss

    def tokens_of(dims):
        return torch.randint(0, VOCABULARY, dims, generator=torch.Generator().manual_seed(sum(dims)))

    return {
        "mlp-train": (calls(mlp, square_loss), floats_of),
        "gpt-2x64-infer": (calls(gpt(2, 64), None), tokens_of),
    }


def run_side(name: str, device: str) -> dict:
    import torch

    torch.set_num_threads(1)
    prepare, draw = cases()[name]
    call = prepare(torch.device(device))
    found = {"before": status_bytes("VmRSS")}
    for index, shape in enumerate(lengths_of(name), start=1):
        call(draw(shape)).cpu()
        if index in (EARLY, SHAPES):
            gc.collect()
            found[f"after {index}"] = status_bytes("VmRSS")
    if device == "headrace":
        found["programs"] = torch.headrace.memory_stats()["program_bytes"]
        torch.headrace.empty_cache(), torch.headrace.empty_cache()
        found["programs, freed"] = torch.headrace.memory_stats()["program_bytes"]
        found["after empty_cache"] = status_bytes("VmRSS")
    return found


def measure(name: str, device: str) -> dict:
    command = [sys.executable, __file__, "--side", name, device]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", nargs=2, metavar=("CASE", "DEVICE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(run_side(*arguments.side)))
        return
    for name in ("mlp-train", "gpt-2x64-infer"):
        for device in ("cpu", "headrace"):
            found = measure(name, device)
            print(f"{name}, {device}: " + ", ".join(f"{key} {value / MIB:.1f} MiB" for key, value in found.items()))


if __name__ == "__main__":
    main()
