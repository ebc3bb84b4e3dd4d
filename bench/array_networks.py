#!/usr/bin/env python3
"""Times of networks in arrays (`import headrace as hr`) beside MLX and torch: the convolutional network of the
demonstration and the Softshrink network of bench/run.py, on scikit-learn's digits.

Sides: arrays, eager and compiled; MLX, eager and compiled; torch on the CPU and on device="headrace". Each is a process
of its own with the same weights, images, order of batches and number of threads. They take turns, in another order each
round, while the others wait for their input. Results are held until they exist. The table has medians, and ratios to
torch's device "headrace". The answers of all sides are compared first.

Then each side trains for some epochs, alone, while its use of cores and memory is recorded. Pictures of both are
written.

    python bench/array_networks.py [--rounds 5] [--seconds 2] [--epochs 8] [--sides 'arrays,torch headrace']
    HEADRACE_DEVICE=cuda python bench/array_networks.py --sides 'arrays,arrays compiled,torch cuda,torch headrace'

Everything goes into build/arrays-bench: table.md, results.json, learning.png, machine.png. MLX is installed into a
virtual environment there; without it the table has a line that says so.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "arrays-bench"
MLX = "mlx[cpu]==0.32.4"
SIDES = ("arrays", "arrays compiled", "mlx", "mlx compiled", "torch cpu", "torch headrace")
BASE = "torch headrace"
CASES = {
    "cnn-train-512": ("CNN, train, batch 512, ms", 1e3),
    "cnn-infer-512": ("CNN, infer, batch 512, ms", 1e3),
    "cnn-infer-1": ("CNN, infer, batch 1, ms", 1e3),
    "mlp-train-64": ("Softshrink MLP, train, batch 64, ms", 1e3),
    "mlp-infer-1": ("Softshrink MLP, infer, batch 1, us", 1e6),
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sides", default=",".join(SIDES), help="names with commas between (default: all)")
    add("--cases", default=",".join(CASES), help="the same")
    add("--rounds", type=int, default=5, help="turns of each side in a case (default %(default)s)")
    add("--seconds", type=float, default=2.0, help="of a side in each turn (default %(default)s)")
    add("--images", type=int, default=10000, help="of the case one by one; 0 leaves it out (default %(default)s)")
    add("--epochs", type=int, default=8, help="of the training; 0 leaves it out (default %(default)s)")
    add("--limit", type=float, default=60, help="seconds after which a side stops both (default %(default)s)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of all sides (default %(default)s)")
    add("--folder", default=FOLDER, type=Path, help="of what is written (default %(default)s)")
    add("--quick", action="store_true", help="two short rounds, 500 images, two epochs")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.images, arguments.epochs = 2, 0.5, 500, 2
    return arguments


# ---- what the sides get


def write_data(path):
    """Images, classes and first weights, as torch has them."""
    import numpy as np

    sys.path.insert(0, str(ROOT / "examples"))
    import datasets
    import networks
    import torch

    digits = datasets.load(None)
    found = {
        "images": digits.train.numpy(),
        "classes": digits.train_classes.numpy(),
        "test_images": digits.test.numpy(),
        "test_classes": digits.test_classes.numpy(),
        "rate": np.array(digits.rate),
    }
    for name in ("cnn", "mlp"):
        torch.manual_seed(0)
        found |= {f"{name}.{key}": value.numpy() for key, value in networks.CASES[name].build().state_dict().items()}
    np.savez(path, **found)


def python_of_mlx(folder):
    """The interpreter of an environment that has MLX, which is made if it isn't there; None with a line if it can't."""
    python = folder / "mlx" / "bin" / "python"
    check = [python, "-c", "import mlx.core, numpy"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return python
    try:
        print(f"installing {MLX} into {python.parent.parent}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True, capture_output=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", MLX, "numpy"], check=True, capture_output=True, timeout=900
        )
        subprocess.run(check, check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no MLX beside it: {error}", file=sys.stderr)
        return None
    return python


class Side:
    """A process of bench/array_sides.py."""

    def __init__(self, name, python, data, threads):
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HEADRACE_THREADS": str(threads)}
        command = [python, Path(__file__).with_name("array_sides.py"), name, data]
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer

    def do(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Watch(threading.Thread):
    """Samples a process's processor time and resident memory, by Linux's /proc."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.rows, self.is_over = pid, [], threading.Event()

    def sample(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
        return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGESIZE")

    def run(self):
        begin, used, _ = self.sample()
        last = begin
        while not self.is_over.wait(0.1):
            now, total, memory = self.sample()
            self.rows.append({"at": now - begin, "cores": (total - used) / (now - last), "bytes": memory})
            used, last = total, now

    def end(self):
        self.is_over.set()
        self.join()
        return self.rows


# ---- measurements


def start_sides(names, threads, folder):
    data = folder / "data.npz"
    write_data(data)
    sides = []
    for name in names:
        python = python_of_mlx(folder) if name.startswith("mlx") else sys.executable
        try:
            if python is not None:
                sides.append(Side(name, python, data, threads))
        except RuntimeError as error:
            print(f"left out: {error}", file=sys.stderr)
    return sides


def compare_answers(sides):
    """The largest difference of two sides' logits; they are the same function."""
    import numpy as np

    found = {side.name: np.array(side.do(do="logits")["logits"]) for side in sides}
    first = next(iter(found.values()))
    differences = {name: float(abs(logits - first).max()) for name, logits in found.items()}
    for name, difference in differences.items():
        if not difference < 1e-3:
            raise RuntimeError(f"the answers of {name} differ from those of {sides[0].name} by {difference:g}")
    return differences


def measure(sides, case, rounds, seconds):
    times = {side.name: [] for side in sides}
    for side in sides:
        side.do(do="warm", case=case)
    for i in range(rounds):
        turn = sides[i % len(sides) :] + sides[: i % len(sides)]
        for side in turn:
            times[side.name] += side.do(do="round", case=case, seconds=seconds)["times"]
    return {name: statistics.median(found) for name, found in times.items()}


def measure_all(sides, arguments):
    results = {}
    for case in arguments.cases.split(","):
        results[case] = measure(sides, case, arguments.rounds, arguments.seconds)
        title, scale = CASES[case]
        print(title, {name: round(scale * value, 3) for name, value in results[case].items()}, file=sys.stderr)
    if arguments.images:
        found = {side.name: side.do(do="one_by_one", count=arguments.images, limit=arguments.limit) for side in sides}
        results["one by one"] = {name: row["seconds"] / row["count"] for name, row in found.items()}
    return results


def learn(sides, arguments):
    found = {}
    for side in sides:
        watch = Watch(side.process.pid)
        watch.start()
        rows = side.do(do="epochs", count=arguments.epochs, limit=arguments.limit, batch=64)["epochs"]
        found[side.name] = {"epochs": rows, "machine": watch.end()}
        print(f"{side.name}: accuracy {rows[-1]['accuracy']:.3f} after {len(rows)} epochs", file=sys.stderr)
    return found


# ---- table and pictures


def table(results, names, images):
    """Medians, with the ratio to device="headrace" in brackets."""
    titles = CASES | {"one by one": (f"CNN, {images:,} images one by one, ms an image", 1e3)}
    lines = ["| case | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for case, row in results.items():
        title, scale = titles[case]
        cells = []
        for name in names:
            ratio = f" ({row[name] / row[BASE]:.2f})" if BASE in row and name != BASE else ""
            cells.append(f"{scale * row[name]:.3g}{ratio}" if name in row else "")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    missing = [name for name in SIDES if name not in names]
    return "\n".join(lines) + (f"\n\nNot measured: {', '.join(missing)}." if missing else "") + "\n"


def draw(learned, folder):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, row in learned.items():
        numbers = range(1, len(row["epochs"]) + 1)
        seconds = statistics.median(epoch["seconds"] for epoch in row["epochs"])
        left.plot(numbers, [e["loss"] for e in row["epochs"]], marker=".", label=f"{name}, {seconds:.2f} s an epoch")
        right.plot(numbers, [e["accuracy"] for e in row["epochs"]], marker=".", label=name)
    left.set(xlabel="epoch", ylabel="loss of the training images", yscale="log")
    right.set(xlabel="epoch", ylabel="accuracy on the test images")
    left.legend()
    figure.savefig(folder / "learning.png", dpi=120)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, row in learned.items():
        at = [sample["at"] for sample in row["machine"]]
        left.plot(at, [sample["cores"] for sample in row["machine"]], label=name)
        right.plot(at, [sample["bytes"] / 2**20 for sample in row["machine"]], label=name)
    left.set(xlabel="seconds", ylabel="cores in use", xscale="symlog")
    right.set(xlabel="seconds", ylabel="resident memory, MiB", xscale="symlog", ylim=(0, None))
    right.legend()
    figure.savefig(folder / "machine.png", dpi=120)


def main(arguments):
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sides = start_sides(arguments.sides.split(","), arguments.threads, arguments.folder)
    names = [side.name for side in sides]
    differences = compare_answers(sides)
    results = measure_all(sides, arguments)
    learned = learn(sides, arguments) if arguments.epochs else {}
    for side in sides:
        side.end()
    text = table(results, names, arguments.images)
    written = {"seconds": results, "learned": learned, "differences": differences, "threads": arguments.threads}
    (arguments.folder / "results.json").write_text(json.dumps(written, indent=1) + "\n")
    (arguments.folder / "table.md").write_text(text)
    if learned:
        draw(learned, arguments.folder)
    print(text)
    print(f"wrote {arguments.folder}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(parse()))
