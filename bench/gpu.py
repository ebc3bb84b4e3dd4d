#!/usr/bin/env python3
"""Times networks on a GPU: torch's CUDA device against Headrace on the same GPU, each in a process of its own.

Every step ends when its result is available. The median of all steps after the first ones counts. torch's defaults
apply (convolutions may use TF32, products may not), and inputs are random.

    python bench/gpu.py                           everything: torch, torch.compile, Headrace eager and compiled
    python bench/gpu.py --cases 'cnn*' --sides torch,device
"""

import argparse
import datetime
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIDES = {"torch": "torch", "inductor": "torch.compile", "device": "Headrace", "compiled": 'backend="headrace"'}
# name: title, network, training, batch, tokens, autocast
CASES = {
    "cnn-train-512": ("CNN 28x28, train, batch 512", "cnn", True, 512, 0, False),
    "cnn-infer-512": ("CNN 28x28, infer, batch 512", "cnn", False, 512, 0, False),
    "cnn-infer-1": ("CNN 28x28, infer, batch 1", "cnn", False, 1, 0, False),
    "mlp-train-64": ("Softshrink MLP, train, batch 64", "mlp", True, 64, 0, False),
    "mlp-infer-1": ("Softshrink MLP, infer, batch 1", "mlp", False, 1, 0, False),
    "resnet50-train-64": ("ResNet-50, train, batch 64", "resnet50", True, 64, 0, False),
    "resnet50-infer-64": ("ResNet-50, infer, batch 64", "resnet50", False, 64, 0, False),
    "resnet50-infer-1": ("ResNet-50, infer, batch 1", "resnet50", False, 1, 0, False),
    "gpt2-train-8x1024": ("GPT-2 small, train, 8 x 1024 tokens", "gpt2", True, 8, 1024, False),
    "gpt2-infer-1x1024": ("GPT-2 small, infer, 1 x 1024 tokens", "gpt2", False, 1, 1024, False),
    "gpt2-infer-1x1": ("GPT-2 small, infer, 1 x 1 token", "gpt2", False, 1, 1, False),
    "resnet50-train-64-bf16": ("ResNet-50, train, batch 64, bf16 autocast", "resnet50", True, 64, 0, True),
    "gpt2-train-8x1024-bf16": ("GPT-2 small, train, 8 x 1024 tokens, bf16 autocast", "gpt2", True, 8, 1024, True),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", default="*", help="names or patterns with commas between; --list names them")
    add("--list", action="store_true", help="names the cases and ends")
    add("--sides", default=",".join(SIDES), help="(default %(default)s)")
    add("--seconds", type=float, default=3.0, help="time for the steps of a side (default %(default)s)")
    add("--limit", type=float, default=180.0, help="seconds after which a side is given up (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="where results go as JSON")
    add("--markdown", type=Path, metavar="FILE", help="where the table goes (default: the terminal alone)")
    add("--alone", nargs=2, metavar=("CASE", "SIDE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def make_sample(case: tuple, side: str):
    import torch

    if side in ("device", "compiled"):
        import headrace.torch  # noqa: F401
    sys.path.insert(0, str(ROOT / "examples"))
    import networks

    _, network, trains, count, tokens, is_autocast = case
    device = torch.device("cuda" if side in ("torch", "inductor") else "headrace")
    known = networks.CASES[network]
    torch.manual_seed(0)
    model = known.build().to(device).train(trains)
    if tokens > 0:
        batch = networks.token_batch(tokens, networks.GPTConfig.vocabulary)(count, torch.Generator().manual_seed(0))
    else:
        batch = known.batch(count)
    batch = tuple(tensor.to(device) for tensor in batch)
    parts = list(model.parameters())
    if side == "inductor":
        model = torch.compile(model)
    elif side == "compiled":
        model = torch.compile(model, backend="headrace")
    forward = model
    if is_autocast:

        def forward(*inputs):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                return model(*inputs)

    wait = getattr(torch, device.type).synchronize
    optimizers = known.optimizers(model, lambda _: torch.optim.Adam(parts, lr=1e-4)) if trains else []

    def train():
        result = known.step(forward, optimizers, batch)
        wait()
        return result

    def infer():
        with torch.no_grad():
            result = forward(batch[0])
        wait()
        return result

    return train if trains else infer


def measure_alone(name: str, side: str, seconds: float) -> None:
    sample = make_sample(CASES[name], side)
    times = []
    begin = time.perf_counter()
    sample()
    first = time.perf_counter() - begin
    for _ in range(5):  # the optimizer's state, caches of compiled code, clocks
        sample()
    begin = time.perf_counter()
    while len(times) < 10 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        sample()
        times.append(time.perf_counter() - start)
    times.sort()
    import torch

    print(
        json.dumps(
            {
                "median_ms": statistics.median(times) * 1e3,
                "low_ms": times[len(times) // 10] * 1e3,
                "high_ms": times[-1 - len(times) // 10] * 1e3,
                "steps": len(times),
                "first_ms": first * 1e3,
                "torch": torch.__version__,
            }
        )
    )


def environment_of(side: str) -> dict:
    """The environment of a side's process: Headrace on the GPU, or torch without it."""
    if side in ("device", "compiled"):
        return {"HEADRACE_DEVICE": "cuda"} | os.environ
    return os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def measure(name: str, side: str, arguments: argparse.Namespace) -> dict:
    environment = environment_of(side)
    command = [sys.executable, __file__, "--alone", name, side, "--seconds", str(arguments.seconds)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {arguments.limit:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return {"error": done.stderr.strip()[-2000:] or f"exit status {done.returncode}"}
    return json.loads(lines[-1])


def markdown(results: dict, sides: list[str]) -> str:
    out = ["| case | " + " | ".join(f"{SIDES[side]}, ms" for side in sides) + " |", "|---" * (len(sides) + 1) + "|"]
    for name, found in results.items():
        cells = [f"{found[s]['median_ms']:.3g}" if "median_ms" in found[s] else "failed" for s in sides]
        out.append(f"| {CASES[name][0]} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def main() -> None:
    arguments = parse()
    if arguments.alone:
        measure_alone(*arguments.alone, arguments.seconds)
        return
    patterns = arguments.cases.split(",")
    names = [name for name in CASES if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    sides = arguments.sides.split(",")
    if unknown := [side for side in sides if side not in SIDES]:
        sys.exit(f"no side is called {unknown[0]}; there are {', '.join(SIDES)}")
    if not names or arguments.list:
        print("\n".join(f"{name:24}{case[0]}" for name, case in CASES.items()))
        sys.exit(0 if arguments.list else f"no case is called {arguments.cases}")
    results: dict = {}
    for index, name in enumerate(names):
        results[name] = {}
        print(f"[{index + 1:2}/{len(names)}] {name:24}", end="", file=sys.stderr, flush=True)
        for side in sides:
            found = results[name][side] = measure(name, side, arguments)
            text = f"{found['median_ms']:.3g} ms" if "median_ms" in found else f"failed: {found['error'][-300:]}"
            print(f"  {SIDES[side]} {text}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        if arguments.json:
            written = {"date": str(datetime.date.today()), "command": " ".join(sys.argv), "results": results}
            arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    table = markdown(results, sides)
    print(table)
    if arguments.markdown:
        arguments.markdown.write_text(table)


if __name__ == "__main__":
    main()
