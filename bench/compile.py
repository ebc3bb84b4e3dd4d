#!/usr/bin/env python3
"""What the first training step of each network costs besides its kernels: compilation, by record, and what the step
takes beyond a steady one.

Each network trains in a process of its own: first with nothing compiled (`cold`, which also opens libraries), then
again with its program forgotten, but the library's and the process's memory in use (`warm`).

The gallery's networks also train on batches of other sizes, each once. `new dims` is what the program of a known
structure costs with them: microseconds a record, the median of the batches that got new numbers.

    python bench/compile.py                      all networks of examples/networks.py
    python bench/compile.py --cases mlp,cnn --small --rounds 3
    python bench/compile.py --gallery            all networks of examples/gallery
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

COLUMNS = ("compile_ns", "library_make_ns", "library_wait_ns")
COUNTERS = ("operations", "compiles", "general_plans", *COLUMNS)
SIZES = 40  # of the batches whose dims are new


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", help="names with commas between (default: all)")
    add("--gallery", action="store_true", help="the networks of examples/gallery instead")
    add("--small", action="store_true", help="networks of a few channels, on which the compiler does the same work")
    add("--rounds", type=int, default=3, help="processes of each network (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="all figures")
    add("--side", metavar="CASE", help=argparse.SUPPRESS)  # one network in this process
    return parser.parse_args()


class Trained:
    """A network with its batch, and steps of training that are counted."""

    def __init__(self, name: str, small: bool):
        import networks
        import torch

        self.case, self.small = networks.CASES[name], small
        self.batch = tuple(tensor.to("headrace") for tensor in self.case.batch(small=small))
        self.adam = lambda parameters: torch.optim.Adam(parameters, lr=1e-4)

    def build(self) -> None:
        self.model = self.case.build(self.small).to("headrace").train()
        self.optimizers = self.case.optimizers(self.model, self.adam)

    def train(self, batch: tuple) -> None:
        self.case.step(self.model, self.optimizers, batch)

    def sizes(self) -> list[tuple]:
        return []


class TrainedOfGallery:
    """The same of a network of the gallery, and its batch in other sizes."""

    def __init__(self, name: str, small: bool):
        import gallery
        import torch

        self.network, self.small, self.name = gallery.network(name), small, name
        whole = self.network.batch(torch.Generator().manual_seed(1), small)
        self.batch = tuple(tensor.to("headrace") for tensor in whole)

    def build(self) -> None:
        import torch

        self.model = self.network.build(self.small).to("headrace").train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.network.RATE)

    def train(self, batch: tuple) -> None:
        loss = self.network.loss(self.model, *batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def sizes(self) -> list[tuple]:
        """Smaller and smaller batches; a graph with fewer and fewer edges."""
        import torch

        if self.name == "graph":
            features, edges, labels = self.batch
            return [(features, edges[:, 2 * n :].contiguous(), labels) for n in range(1, SIZES)]
        count = len(self.batch[0])
        copies = -(-(SIZES + 4) // count)
        largest = tuple(torch.cat((tensor,) * copies)[: SIZES + 4] for tensor in self.batch)
        return [tuple(tensor[:-n].contiguous() for tensor in largest) for n in range(1, SIZES)]


def counted_step(trained, batch: tuple) -> dict:
    import torch

    before, begin = torch.headrace.stats(), time.perf_counter()
    trained.train(batch)
    torch.headrace.synchronize()
    seconds = time.perf_counter() - begin
    after = torch.headrace.stats()
    return {"seconds": seconds} | {key: after.get(key, 0) - before.get(key, 0) for key in COUNTERS}


def first_and_steady(trained) -> dict:
    import torch

    torch.manual_seed(0)
    torch.headrace.empty_cache()
    torch.headrace.empty_cache()  # what has not run since the last call
    trained.build()
    torch.headrace.synchronize()
    first = counted_step(trained, trained.batch)
    steady = [counted_step(trained, trained.batch)["seconds"] for _ in range(6)]
    return first | {"steady_seconds": min(steady)}


def new_dims(trained) -> list[float]:
    """Microseconds a record of each batch whose programs all got new numbers."""
    import torch

    found = []
    for batch in trained.sizes():
        torch.headrace.synchronize()
        step = counted_step(trained, batch)
        if 0 < step["compiles"] == step["general_plans"]:
            found.append(step["compile_ns"] / 1e3 / step["operations"])
    return found


def measure(name: str, small: bool, is_gallery: bool) -> dict:
    import headrace.torch  # noqa: F401
    import torch

    trained = (TrainedOfGallery if is_gallery else Trained)(name, small)
    torch.headrace.synchronize()
    found = {which: first_and_steady(trained) for which in ("cold", "warm")}
    return found | {"new_dims": new_dims(trained)}


def run(name: str, arguments) -> dict:
    command = [sys.executable, __file__, "--side", name]
    command += ["--small"] * arguments.small + ["--gallery"] * arguments.gallery
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


def row(name: str, which: str, runs: list[dict]) -> str:
    of = [result[which] for result in runs]
    middle = {key: statistics.median(one[key] for one in of) for key in of[0]}
    compile_us, records = middle["compile_ns"] / 1e3, middle["operations"]
    beyond = statistics.median(one["seconds"] - one["steady_seconds"] for one in of)
    renumbered = [us for result in runs for us in result["new_dims"]]
    dims = f"{statistics.median(renumbered):.2f} ({len(renumbered)})" if renumbered and which == "warm" else ""
    return (
        f"| {name} | {which} | {records} | {compile_us / records:.2f} | {compile_us / 1e3:.2f} "
        f"| {middle['library_wait_ns'] / 1e6:.2f} | {middle['seconds'] * 1e3:.1f} "
        f"| {middle['steady_seconds'] * 1e3:.1f} | {beyond * 1e3:.1f} | {dims} |"
    )


def main() -> None:
    arguments = parse()
    if arguments.side:
        print(json.dumps(measure(arguments.side, arguments.small, arguments.gallery)))
        return
    import gallery
    import networks

    known = gallery.NETWORKS if arguments.gallery else networks.CASES
    names = arguments.cases.split(",") if arguments.cases else list(known)
    runs = {name: [run(name, arguments) for _ in range(arguments.rounds)] for name in names}
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1), encoding="ascii")
    print(
        "| network | | records | us a record | compile ms | waits for calls ms | first step ms | steady ms "
        "| beyond steady ms | new dims, us a record (batches) |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        for which in ("cold", "warm"):
            print(row(name, which, runs[name]))


if __name__ == "__main__":
    main()
