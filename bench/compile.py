#!/usr/bin/env python3
"""What the first training step of each network costs besides its kernels: compilation, by record, and what the step
takes beyond a steady one.

Each network trains in a process of its own: first with nothing compiled (`cold`, which also opens libraries), then
again with its program forgotten, but the library's and the process's memory in use (`warm`).

    python bench/compile.py                      all networks of examples/networks.py
    python bench/compile.py --cases mlp,cnn --small --rounds 3
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

COLUMNS = ("compile_ns", "library_make_ns", "library_wait_ns")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", help="names with commas between (default: all)")
    add("--small", action="store_true", help="networks of a few channels, on which the compiler does the same work")
    add("--rounds", type=int, default=3, help="processes of each network (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="all figures")
    add("--side", metavar="CASE", help=argparse.SUPPRESS)  # one network in this process
    return parser.parse_args()


def measure(name: str, small: bool) -> dict:
    import time

    import headrace.torch  # noqa: F401
    import networks
    import torch

    device = torch.device("headrace")
    case = networks.CASES[name]
    batch = tuple(tensor.to(device) for tensor in case.batch(small=small))
    torch.headrace.synchronize()

    def step() -> dict:
        before, begin = torch.headrace.stats(), time.perf_counter()
        case.step(model, optimizers, batch)
        torch.headrace.synchronize()
        seconds = time.perf_counter() - begin
        after = torch.headrace.stats()
        keys = ("operations", "compiles", *COLUMNS)
        return {"seconds": seconds} | {key: after.get(key, 0) - before.get(key, 0) for key in keys}

    found = {}
    for which in ("cold", "warm"):
        torch.manual_seed(0)
        torch.headrace.empty_cache()
        torch.headrace.empty_cache()  # what has not run since the last call
        model = case.build(small).to(device).train()
        optimizers = case.optimizers(model, lambda parameters: torch.optim.Adam(parameters, lr=1e-4))
        torch.headrace.synchronize()
        first = step()
        steady = [step()["seconds"] for _ in range(6)]
        found[which] = first | {"steady_seconds": min(steady)}
        del model, optimizers
    return found


def run(name: str, small: bool) -> dict:
    command = [sys.executable, __file__, "--side", name, *(["--small"] if small else [])]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            env=os.environ | {"HEADRACE_CACHE": folder},
        )
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or "no message").splitlines()[-1][:200])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    arguments = parse()
    if arguments.side:
        print(json.dumps(measure(arguments.side, arguments.small)))
        return
    import networks

    names = arguments.cases.split(",") if arguments.cases else list(networks.CASES)
    runs = {name: [run(name, arguments.small) for _ in range(arguments.rounds)] for name in names}
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1), encoding="ascii")
    print("| network | | records | us a record | compile ms | waits for calls ms | first step ms | beyond steady ms |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in names:
        for which in ("cold", "warm"):
            of = [result[which] for result in runs[name]]
            middle = {key: statistics.median(one[key] for one in of) for key in of[0]}
            compile_us, records = middle["compile_ns"] / 1e3, middle["operations"]
            beyond = statistics.median(one["seconds"] - one["steady_seconds"] for one in of)
            print(
                f"| {name} | {which} | {records} | {compile_us / records:.2f} | {compile_us / 1e3:.2f} "
                f"| {middle['library_wait_ns'] / 1e6:.2f} "
                f"| {middle['seconds'] * 1e3:.1f} | {beyond * 1e3:.1f} |"
            )


if __name__ == "__main__":
    main()
