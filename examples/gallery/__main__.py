"""Trains well-known networks on torch's CPU device and on Headrace, from the same weights, and compares the two.

Each network gets a line of progress, and in the end a row of the table: losses, the largest differences, the time of
a training step (batch to loss, the median of the second half) and of an inference, and how many operators left the
device.
Pictures go to the folder --output, one for each network and one of all.
"""

import argparse
import os
import sys
import time

os.environ.setdefault("HEADRACE_FALLBACK", "error")  # read when the device is first used

import headrace.torch  # noqa: E402, F401  (torch finds it by itself, except where torch also drives CUDA)
import torch  # noqa: E402

from . import NETWORKS, compare, network, report  # noqa: E402


def main() -> int:
    arguments = parse()
    if arguments.cpu_time:
        arguments.threads, compare.clock = 1, time.process_time
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
        os.environ.setdefault("HEADRACE_THREADS", str(arguments.threads))
    started, rows = time.perf_counter(), []
    for name in arguments.only or NETWORKS:
        try:
            rows.append(show(name, network(name), arguments))
        except ImportError as error:
            print(f"{name:10} left out: {error}. `make venv` installs what is needed.", flush=True)
    if not rows:
        return 1
    print(f"\n{report.table(rows)}\n\n{report.BOUNDS}")
    if arguments.output:
        print(f"\npictures: {report.write_sheet(rows, arguments.output)}, and one for each network beside it")
    if arguments.report:
        report.write_page(rows)
        print("wrote docs/gallery.md and docs/gallery.png")
    print(f"{time.perf_counter() - started:.0f} seconds")
    return 0 if all(row.is_right for row in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gallery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", type=names, metavar="A,B", help=f"of {', '.join(NETWORKS)}")
    add("--device", default="headrace", help="what is compared with torch's CPU device (default %(default)s)")
    add("--steps", type=int, metavar="N", help="training steps of each network (default: what its picture needs)")
    add("--threads", type=int, metavar="N", help="threads of both devices (default: all cores)")
    add("--cpu-time", action="store_true", help="one thread, without what it waits: for busy machines")
    add("--seed", type=int, default=0, help="of the first weights (default %(default)s)")
    add("--output", default=report.FOLDER, metavar="FOLDER", help="of pictures; '' for none (default %(default)s)")
    add("--report", action="store_true", help="write docs/gallery.md and docs/gallery.png")
    return parser.parse_args()


def names(text: str) -> list[str]:
    chosen = text.split(",")
    for name in chosen:
        if name not in NETWORKS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(NETWORKS)}")
    return chosen


def show(name: str, net, arguments: argparse.Namespace) -> report.Row:
    """Trains `net` on both devices, compares, and draws."""
    torch.manual_seed(arguments.seed)
    model = net.build()
    steps = arguments.steps or net.STEPS
    runs = []
    for device in ("cpu", arguments.device):
        runs.append(compare.train(net, model, steps, device, progress=Progress(name, device)))
    expected, actual = (compare.infer(net, runs[0].model, run) for run in runs)
    row = report.Row(name, net, sum(p.numel() for p in model.parameters()), *runs)
    row.loss_difference = compare.loss_difference(runs[1].losses, runs[0].losses)
    row.output_difference = compare.output_difference(actual, expected)
    if arguments.output:
        report.write_picture(row, arguments.output)
    return row


class Progress:
    """A line that redraws itself in a terminal, and one at the end anywhere else."""

    def __init__(self, name: str, device: str):
        self.name, self.device, self.drawn = name, device, 0.0

    def __call__(self, done: int, steps: int, run: compare.Run) -> None:
        now, is_last, alive = time.perf_counter(), done == steps, sys.stdout.isatty()
        if not is_last and (not alive or now - self.drawn < 0.1):
            return
        self.drawn = now
        ms = 1e3 * compare.median(run.step_seconds[-20:])
        text = f"{self.name:10} {self.device:9} {done:4}/{steps} steps  loss {run.losses[-1]:8.4f}  {ms:7.1f} ms a step"
        sys.stdout.write(("\r\x1b[K" if alive else "") + text + ("\n" if is_last or not alive else ""))
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
