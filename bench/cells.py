#!/usr/bin/env python3
"""The cost of compiling a cell that repeats: programs of few and of many steps or layers, recorded through torch, and
the slope between the two.

    python bench/cells.py --write FOLDER         records all cases (torch with headrace)
    python bench/cells.py FOLDER                 compiles them: microseconds a record, and a record of one more cell
    python bench/cells.py FOLDER --compile-bench build/release/bench/compile_bench --repeat 60 --rounds 4

A record is an operation as it was issued; one over lists, such as an optimizer's, counts once.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BATCH, INPUTS, UNITS, LENGTH, WIDTH, HEADS = 8, 16, 32, 16, 64, 4

LINE = re.compile(r"^(\S+)\s+(\d+) records: first +\S+ us a record, best +(\S+), median +(\S+)$", re.MULTILINE)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", nargs="?", type=Path, help="where the programs are")
    add("--write", type=Path, metavar="FOLDER", help="record the programs")
    add("--compile-bench", default="build/release/bench/compile_bench", help="default %(default)s")
    add("--repeat", type=int, default=60, help="compilations in each process (default %(default)s)")
    add("--rounds", type=int, default=4, help="processes (default %(default)s)")
    add("--side", nargs=2, metavar=("CASE", "CELLS"), help=argparse.SUPPRESS)  # one program in this process
    return parser.parse_args()


def lstm_by_hand(torch, device, steps, trains):
    """Products, sigmoids and tanh of plain tensors."""
    weights = [torch.randn(n, 4 * UNITS, device=device, requires_grad=trains) for n in (INPUTS, UNITS)]
    bias = torch.zeros(4 * UNITS, device=device, requires_grad=trains)
    x = torch.randn(steps, BATCH, INPUTS, device=device)
    h = c = torch.zeros(BATCH, UNITS, device=device)
    for t in range(steps):
        i, f, g, o = (x[t] @ weights[0] + h @ weights[1] + bias).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h, [*weights, bias]


def gru_by_hand(torch, device, steps, trains):
    weights = [torch.randn(n, UNITS, device=device, requires_grad=trains) for n in (INPUTS, UNITS) * 3]
    x = torch.randn(steps, BATCH, INPUTS, device=device)
    h = torch.zeros(BATCH, UNITS, device=device)
    for t in range(steps):
        z = torch.sigmoid(torch.matmul(x[t], weights[0]) + torch.matmul(h, weights[1]))
        r = torch.sigmoid(torch.matmul(x[t], weights[2]) + torch.matmul(h, weights[3]))
        n = torch.tanh(torch.matmul(x[t], weights[4]) + torch.matmul(r * h, weights[5]))
        h = (1 - z) * n + z * h
    return h, weights


def lstm_cells(torch, device, steps, trains):
    """torch.nn.LSTMCell."""
    cell = torch.nn.LSTMCell(INPUTS, UNITS).to(device)
    x = torch.randn(steps, BATCH, INPUTS, device=device)
    state = None
    for t in range(steps):
        state = cell(x[t], state)
    return state[0], list(cell.parameters())


def bert(torch, device, layers, trains):
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, activation="gelu", batch_first=True)
    net = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
    net.train(trains)
    return net(torch.randn(BATCH, LENGTH, WIDTH, device=device)), list(net.parameters())


def gpt(torch, device, layers, trains):
    """Norm first, one product for query, key and value, causal attention."""
    functional, parameters = torch.nn.functional, []

    def weights(*shape):
        parameters.append((0.1 * torch.randn(*shape)).to(device).requires_grad_(trains))
        return parameters[-1]

    x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
    for _ in range(layers):
        y = functional.layer_norm(x, (WIDTH,), weights(WIDTH), weights(WIDTH))
        y = functional.linear(y, weights(3 * WIDTH, WIDTH), weights(3 * WIDTH))
        q, k, v = (part.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for part in y.chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + functional.linear(y, weights(WIDTH, WIDTH), weights(WIDTH))
        y = functional.layer_norm(x, (WIDTH,), weights(WIDTH), weights(WIDTH))
        y = functional.gelu(functional.linear(y, weights(4 * WIDTH, WIDTH), weights(4 * WIDTH)))
        x = x + functional.linear(y, weights(WIDTH, 4 * WIDTH), weights(WIDTH))
    return x, parameters


STEPS, LAYERS = (50, 150), (12, 24)
NETWORKS = {
    "lstm_by_hand": (lstm_by_hand, STEPS),
    "gru_by_hand": (gru_by_hand, STEPS),
    "lstm_cells": (lstm_cells, STEPS),
    "bert": (bert, LAYERS),
    "gpt": (gpt, LAYERS),
}
CASES = {f"{name}_{mode}": (*of, mode == "train") for name, of in NETWORKS.items() for mode in ("infer", "train")}


def run(name: str, count: int) -> None:
    """One program: a forward pass, or a training step with stochastic gradient descent."""
    import headrace.torch  # noqa: F401
    import torch

    torch.manual_seed(0)
    network, _, trains = CASES[name]
    with torch.set_grad_enabled(trains):
        result, parameters = network(torch, torch.device("headrace"), count, trains)
        loss = result.square().mean()
        if trains:
            loss.backward()
            torch.optim.SGD(parameters, lr=0.1, foreach=True).step()
        del result
    loss.item()


def write_program(name: str, count: int, target: Path) -> None:
    limits = {"HEADRACE_PENDING_OPS": "100000", "HEADRACE_PENDING_BYTES": str(1 << 40)}
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | limits | {"HEADRACE_DUMP": folder}
        subprocess.run([sys.executable, __file__, "--side", name, str(count)], env=environment, check=True)
        largest = max(Path(folder).iterdir(), key=lambda path: path.stat().st_size)
        target.write_text(largest.read_text(encoding="ascii"), encoding="ascii")


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, counts, _) in CASES.items():
        for count in counts:
            write_program(name, count, folder / f"{name}-{count}.hr")


def compile_all(arguments: argparse.Namespace) -> dict:
    """By file: the records, and the best and the median microseconds of a compilation of all rounds."""
    files = [str(path) for path in sorted(arguments.folder.glob("*.hr"))]
    environment = {"HEADRACE_THREADS": "1"} | os.environ
    found = {}
    for _ in range(arguments.rounds):
        command = [arguments.compile_bench, "--repeat", str(arguments.repeat), *files]
        text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        for path, records, best, median in LINE.findall(text):
            found.setdefault(Path(path).stem, []).append((int(records), float(best), float(median)))
    return {
        name: (of[0][0], of[0][0] * min(one[1] for one in of), of[0][0] * statistics.median(one[2] for one in of))
        for name, of in found.items()
    }


def report(found: dict) -> None:
    print("| program | cells | records | us a record, best | records of a cell | us a record of a cell, best | median |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (_, (few, many), _) in CASES.items():
        if f"{name}-{few}" not in found or f"{name}-{many}" not in found:
            continue
        a, b = found[f"{name}-{few}"], found[f"{name}-{many}"]
        more = b[0] - a[0]
        print(
            f"| {name} | {many} | {b[0]} | {b[1] / b[0]:.2f} | {more / (many - few):.1f} "
            f"| {(b[1] - a[1]) / more:.2f} | {(b[2] - a[2]) / more:.2f} |"
        )


def main() -> None:
    arguments = parse()
    if arguments.side:
        run(arguments.side[0], int(arguments.side[1]))
    elif arguments.write:
        write(arguments.write)
    else:
        report(compile_all(arguments))


if __name__ == "__main__":
    main()
