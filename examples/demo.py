"""Trains a convolutional network on real images, on torch's CPU device and then on Headrace, and compares the two.

Both start from the same weights and see the same batches in the same order; dropout draws its own numbers on each.
The time of a step includes everything: copy of the batch, forward, backward, Adam, and reading the loss. The images
are scikit-learn's digits, or MNIST or CIFAR-10 files in a folder named with --data. Writes demo.png.
"""

import argparse
import copy
import os
import resource
import sys
import time
from dataclasses import dataclass, field

import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
import torch
import torch.nn.functional as F
from datasets import DataError, Images, load
from demo_output import Progress, Run, draw, positive, print_table
from networks import ConvNet


def main() -> int:
    arguments = parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
        os.environ.setdefault("HEADRACE_THREADS", str(arguments.threads))  # read when the device is first used
    try:
        devices = [open_device(name) for name in arguments.device.split(",")]
        data = load(arguments.data)
    except (DataError, DeviceError, ImportError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2

    batch = min(arguments.batch, len(data.train))
    steps = max(1, (arguments.epochs or data.epochs) * len(data.train) // batch)
    torch.manual_seed(arguments.seed)
    model = ConvNet(in_channels=data.train.shape[1], dim=data.train.shape[2], dropout=arguments.dropout)
    count = sum(p.numel() for p in model.parameters())
    height, width = data.train.shape[2:]
    print(f"data      {data.name}: {len(data.train):,} images to train, {len(data.test):,} to test, {height}x{width}")
    arguments.lr = arguments.lr or data.rate
    settings = f"batch {batch}, Adam {arguments.lr:g}, dropout {arguments.dropout:g}"
    print(f"network   {count:,} parameters; {settings}; {steps} steps")

    runs = [train(device, model, data, batch, steps, arguments) for device in devices]
    print()
    print_table(runs, MEMORY_ROWS)
    for run in runs:
        if run.stats:
            print()
            print_stats(run)
    if arguments.output:
        print(f"\nwrote {draw(runs, data.name, arguments.output)}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", metavar="FOLDER", help="MNIST (idx) or CIFAR-10 (Python) files; without it, scikit-learn's digits")
    add(
        "--device",
        default="cpu,headrace",
        metavar="A,B",
        help="devices in turn; the first is what the others are compared with (default %(default)s)",
    )
    add("--epochs", type=positive, help="passes over the training images (default: until the network is good)")
    add("--batch", type=positive, default=512, help="images a step (default %(default)s)")
    add("--lr", type=float, help="Adam's learning rate (default: one that suits the images)")
    add("--dropout", type=float, default=0.3, help="probability (default %(default)s)")
    add("--seed", type=int, default=0, help="of weights, batches and dropout (default %(default)s)")
    add("--threads", type=positive, help="threads of both devices (default: all cores)")
    add("--output", default="demo.png", metavar="FILE", help="the picture; '' for none (default %(default)s)")
    return parser.parse_args()


# ---- devices


class DeviceError(Exception):
    pass


def open_device(name: str) -> torch.device:
    """The device of that name, tested on one number; DeviceError names the remedy if it is missing."""
    name = name.strip()
    try:
        torch.ones(1, device=name).add(1).item()
        return torch.device(name)
    except Exception as error:
        if name.partition(":")[0] == "headrace" and not hasattr(torch, "headrace"):
            raise DeviceError(
                "the device `headrace` is not there. `make demo` builds and installs it into .venv; elsewhere, run "
                "`pip install .` in the repository. `--device cpu` trains on torch's CPU device alone."
            ) from error
        raise DeviceError(f"the device `{name}` does not work: {error}") from error


def synchronize(device: torch.device) -> None:
    module = getattr(torch, device.type, None)
    if device.type != "cpu" and module is not None:
        module.synchronize()


# ---- memory of the process


def status_bytes(key: str) -> int:
    """VmRSS (now) or VmHWM (peak) in bytes; if the system has no /proc, the peak since the start serves for both."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass  # then the peak is that of the whole process


# ---- training


@dataclass
class DeviceRun(Run):
    resident_bytes: int = 0  # growth of the process from before the first step to its peak
    device_bytes: int = 0  # the device's peak of allocated memory
    stats: dict = field(default_factory=dict)


def batches(count: int, batch: int, steps: int, seed: int):
    """Indices of each step's images: shuffled passes one after the other, cut into batches of one size."""
    generator = torch.Generator().manual_seed(seed)
    waiting = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(waiting) < batch:
            waiting = torch.cat([waiting, torch.randperm(count, generator=generator)])
        yield waiting[:batch]
        waiting = waiting[batch:]


def train(device: torch.device, start: ConvNet, data: Images, batch: int, steps: int, arguments) -> DeviceRun:
    run = DeviceRun("torch cpu" if device.type == "cpu" else str(device))
    module = getattr(torch, device.type)
    for reset in ("reset_stats", "reset_peak_memory_stats"):
        getattr(module, reset, lambda: None)()
    reset_peak()
    before = status_bytes("VmRSS")

    torch.manual_seed(arguments.seed)
    model = copy.deepcopy(start).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    progress = Progress(run.name, steps)
    for index in batches(len(data.train), batch, steps, arguments.seed):
        images, classes = data.train[index], data.train_classes[index]
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.nll_loss(model(images.to(device)), classes.to(device))
        loss.backward()
        optimizer.step()
        run.losses.append(loss.item())
        synchronize(device)
        run.seconds.append(time.perf_counter() - begin)
        progress.show(len(run.losses), run.losses[-1], run.median)

    run.resident_bytes = status_bytes("VmHWM") - before
    if device.type != "cpu":
        run.device_bytes = getattr(module, "max_memory_allocated", lambda: 0)()
        run.stats = getattr(module, "stats", dict)()
    run.accuracy = accuracy(model, data, device, batch)
    return run


def accuracy(model: ConvNet, data: Images, device: torch.device, batch: int) -> float:
    model.eval()
    right = 0
    with torch.no_grad():
        for images, classes in zip(data.test.split(batch), data.test_classes.split(batch)):
            right += (model(images.to(device)).argmax(1).cpu() == classes).sum().item()
    return right / len(data.test)


# ---- results


def mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


MEMORY_ROWS = [
    ("peak memory of the process", lambda run: "+" + mebibytes(run.resident_bytes)),
    ("peak memory of the device", lambda run: mebibytes(run.device_bytes) if run.device_bytes else "-"),
]


def print_stats(run: DeviceRun) -> None:
    print(f"what {run.name} did in {len(run.seconds)} steps")
    for name, value in run.stats.items():
        if name.endswith("_ns"):
            name, value = name[:-3] + " milliseconds", round(value / 1e6)
        if isinstance(value, int | float) and value:
            print(f"  {name.replace('_', ' '):26}{value:>16,}")


if __name__ == "__main__":
    sys.exit(main())
