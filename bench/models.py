#!/usr/bin/env python3
"""Exported models: how soon a file answers, in how much memory, and how fast then, beside other engines.

    python bench/models.py [--cases cnn-1,gpt2-1] [--sides headrace,onnxruntime] [--rounds 7] [--threads 1]

Each side is a process of its own, so that threads that spin disturb nobody. Sides work in turn, a burst each, and the
table has the median of the bursts' medians. `first` is the CPU time from the package or model file to the first
answer, with libraries imported and the files in the system's cache; `memory` what the process then has beyond the
mapped files. Results are compared with torch's. OpenVINO computes in f32 here (its own default is bfloat16). Sides
whose names end with bf16 may round factors of products to bfloat16.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("headrace", "headrace onnx", "onnxruntime", "openvino", "torch headrace", "torch cpu")
BF16_SIDES = ("headrace bf16", "openvino bf16")
# Name: network, dims of its input, largest integer + 1 of it (0: floats).
CASES = {
    "cnn-1": ("cnn", (1, 1, 28, 28), 0),
    "cnn-512": ("cnn", (512, 1, 28, 28), 0),
    "resnet50-1": ("resnet50", (1, 3, 224, 224), 0),
    "gpt2-128": ("gpt2", (1, 128), 50257),
    "gpt2-1": ("gpt2", (1, 1), 50257),
}
TITLES = {
    "cnn-1": "CNN b1",
    "cnn-512": "CNN b512",
    "resnet50-1": "ResNet-50 b1",
    "gpt2-128": "GPT-2 1x128",
    "gpt2-1": "GPT-2 1x1",
}


def make_input(case: str) -> np.ndarray:
    _, dims, limit = CASES[case]
    numbers = np.random.default_rng(0)
    return numbers.integers(0, limit, dims) if limit else numbers.standard_normal(dims, np.float32)


def make_model(name: str):
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    from networks import CASES as networks
    from networks import ConvNet

    torch.manual_seed(0)
    if name == "cnn":
        return ConvNet(dropout=0.0).eval()
    return networks[{"resnet50": "resnet50", "gpt2": "gpt2"}[name]].build(small=False, dropout=0.0).eval()


def export(case: str, folder: Path) -> None:
    """model.onnx, whose first dim is a symbol, and torch's answer."""
    import torch

    name = CASES[case][0]
    x, model = torch.from_numpy(make_input(case)), make_model(name)
    with torch.no_grad():
        np.save(folder / f"{case}.npy", model(x).numpy())
    path = folder / f"{name}.onnx"
    if path.exists():
        return
    dims = {0: "batch", 1: "length"} if name == "gpt2" else {0: "batch"}
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": dims, "y": dims}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), str(path), dynamo=False, **names)


# ---- sides: each gives a function from an array to an array


def open_headrace(path: Path, threads: int, precision: str | None = None):
    import headrace as hr

    session = hr.Session(path, precision=precision)
    return lambda x: np.asarray(session(x=x)["y"])


def open_onnxruntime(path: Path, threads: int):
    import onnxruntime as engine

    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    session = engine.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def open_openvino(path: Path, threads: int, precision: str = "f32"):
    import openvino as engine

    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = engine.Core().compile_model(engine.Core().read_model(path), "CPU", settings).create_infer_request()
    return lambda x: request.infer([x], share_inputs=True)[0]


def open_torch(name: str, backend: str | None, threads: int):
    import torch

    torch.set_num_threads(threads)
    device = "cpu" if backend is None else "headrace"
    model = make_model(name).to(device)
    if backend is not None:
        model = torch.compile(model, backend=backend)

    def run(x):
        with torch.no_grad():
            return model(torch.from_numpy(x).to(device)).cpu().numpy()

    return run


def open_side(side: str, case: str, folder: Path, threads: int):
    name = CASES[case][0]
    if side == "headrace":
        return open_headrace(folder / f"{name}.hrpkg", threads)
    if side == "headrace bf16":
        return open_headrace(folder / f"{name}.hrpkg", threads, "bf16")
    if side == "openvino bf16":
        return open_openvino(folder / f"{name}.onnx", threads, "bf16")
    if side == "headrace onnx":
        return open_headrace(folder / f"{name}.onnx", threads)
    if side.startswith("torch"):
        return open_torch(name, "headrace" if side == "torch headrace" else None, threads)
    opener = open_onnxruntime if side == "onnxruntime" else open_openvino
    return opener(folder / f"{name}.onnx", threads)


def import_libraries(side: str) -> None:
    library = __import__("torch" if side.startswith("torch") else side.split()[0])
    if side.startswith("headrace"):
        _ = library.Session  # the first use of a name of arrays loads their library
    if side == "torch headrace":
        __import__("headrace.torch")


def anonymous_mib() -> float:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    return 0.0


def burst(run, x: np.ndarray, seconds: float) -> dict:
    walls, begin, cpu = [], time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds or len(walls) < 3:
        start = time.perf_counter()
        run(x)
        walls.append(time.perf_counter() - start)
    return {"wall": statistics.median(walls), "cpu": (time.process_time() - cpu) / len(walls)}


def serve(side: str, case: str, folder: Path, threads: int) -> None:
    """Opens the model, tells of the first answer, then runs a burst for each line with its seconds."""
    import_libraries(side)
    x, wanted, before = make_input(case), np.load(folder / f"{case}.npy"), anonymous_mib()
    cpu, wall = time.process_time(), time.perf_counter()
    run = open_side(side, case, folder, threads)
    opened = time.process_time() - cpu
    answer = run(x)
    first = {"open": opened, "first": time.process_time() - cpu, "first_wall": time.perf_counter() - wall}
    first["memory"] = anonymous_mib() - before
    first["difference"] = float(np.abs(answer - wanted).max() / wanted.std())
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        print(json.dumps(burst(run, x, float(line))), flush=True)


# ---- the run


class Side:
    """A process that serves one side of a case."""

    def __init__(self, side: str, case: str, folder: Path, threads: int):
        command = [sys.executable, __file__, "--serve", side, "--cases", case, "--folder", str(folder)]
        command += ["--threads", str(threads)]
        environment = os.environ | {"HEADRACE_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self.name, self.bursts = side, []
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.first = self.read()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(line)

    def run(self, seconds: float) -> None:
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.bursts.append(self.read())

    def close(self) -> dict:
        self.process.stdin.close()
        self.process.wait()
        return self.first | {key: statistics.median(row[key] for row in self.bursts) for key in ("wall", "cpu")}


def is_installed(side: str) -> bool:
    import importlib.util

    engine = side.split()[0]
    return engine not in ("onnxruntime", "openvino") or importlib.util.find_spec(engine) is not None


def run_case(case: str, sides: list[str], folder: Path, arguments) -> dict[str, dict]:
    open_sides = []
    for side in sides:
        print(f"{case}: {side} opens", file=sys.stderr)
        open_sides.append(Side(side, case, folder, arguments.threads))
    for round_number in range(arguments.rounds):
        print(f"{case}: round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
        for side in open_sides:
            side.run(arguments.seconds)
    return {side.name: side.close() for side in open_sides}


def print_table(results: dict[str, dict[str, dict]], threads: int) -> None:
    print(f"\n{threads} thread{'s' if threads > 1 else ''}; ms; the second number: of headrace's time\n")
    print("| case | side | answer, wall | answer, CPU | open | first, CPU | memory, MiB | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for case, rows in results.items():
        base = rows.get("headrace")
        for side, row in rows.items():
            ratio = f" ({row['wall'] / base['wall']:.2f})" if base is not None else ""
            times = f"{1e3 * row['wall']:.3f}{ratio} | {1e3 * row['cpu']:.3f}"
            start = f"{1e3 * row['open']:.1f} | {1e3 * row['first']:.1f} | {row['memory']:.0f}"
            print(f"| {TITLES[case]} | {side} | {times} | {start} | {row['difference']:.0e} |")


def print_packages(cases: list[str], folder: Path) -> None:
    """Bytes of the packages; those beyond the constants are at most 1 % of them and 64 KB."""
    import headrace as hr

    print("\n| package | bytes | constants | beyond them | at most |")
    print("|---|---|---|---|---|")
    for name in dict.fromkeys(CASES[case][0] for case in cases):
        path = folder / f"{name}.hrpkg"
        with hr.open_package(path) as package:
            constants = package.graph.constant_bytes
        beyond = path.stat().st_size - constants
        print(f"| {name} | {path.stat().st_size} | {constants} | {beyond} | {constants // 100 + (64 << 10)} |")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", default=",".join(CASES), help="default: %(default)s")
    sides = f"default: those that are installed of %(default)s; also {', '.join(BF16_SIDES)}"
    add("--sides", default=",".join(SIDES), help=sides)
    add("--rounds", type=int, default=7, help="default %(default)s")
    add("--seconds", type=float, default=1.0, help="of a burst (default %(default)s)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side (default: all cores)")
    add("--folder", default=str(ROOT / "build/models"), help="of the models' files (default %(default)s)")
    add("--json", help="a file for the results")
    add("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    folder = Path(arguments.folder)
    if arguments.serve:
        serve(arguments.serve, arguments.cases, folder, arguments.threads)
        return 0
    cases, sides = arguments.cases.split(","), list(filter(is_installed, arguments.sides.split(",")))
    if unknown := [x for x in cases if x not in CASES] + [x for x in sides if x not in SIDES + BF16_SIDES]:
        known = f"cases: {', '.join(CASES)}; sides: {', '.join(SIDES + BF16_SIDES)}"
        print(f"models: {unknown[0]!r} is unknown; {known}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for case in cases:
        export(case, folder)
        package = folder / f"{CASES[case][0]}.hrpkg"
        if not package.exists():
            import headrace as hr

            hr.open_model(package.with_suffix(".onnx")).simplify().save(package)
        results[case] = run_case(case, sides, folder, arguments)
    print_table(results, arguments.threads)
    print_packages(cases, folder)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
