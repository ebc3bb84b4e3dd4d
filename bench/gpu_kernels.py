#!/usr/bin/env python3
"""Times single kernels on a GPU: their share of the memory's bandwidth, one large product, and chains of dependent
kernels.

Each side runs in a process of its own: torch's CUDA device, Headrace, and for the product cuBLASLt called directly
with the fastest of its proposed algorithms. For the product the sides run in turn, since a GPU's clocks under such
work differ from minute to minute; the median of turns is reported. A sample is a few operations, each submitted at
once, and the wait for their end. For chains it is the difference between a long and a short one. Bytes are the
necessary ones: each input read once, each result written once.

    python bench/gpu_kernels.py                      a table, torch against Headrace
    python bench/gpu_kernels.py --sides device --json FILE
"""

import argparse
import ctypes
import datetime
import functools
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from gpu import environment_of

SIDES = {"torch": "torch", "device": "Headrace", "cublaslt": "cuBLASLt"}
ELEMENTS = 1 << 28
IN_A_ROW = 4  # operations of a sample: waiting takes as long as a few hundredths of one
SIDE_OF_PRODUCT = 8192
PRODUCT = f"product of {SIDE_OF_PRODUCT} x {SIDE_OF_PRODUCT}, bf16"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sides", default=",".join(SIDES), help="(default %(default)s)")
    add("--samples", type=int, default=25, help="of each operation (default %(default)s)")
    add("--turns", type=int, default=5, help="of each side at the product (default %(default)s)")
    add("--limit", type=float, default=180.0, help="seconds after which a side is given up (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="where results go as JSON")
    add("--markdown", type=Path, metavar="FILE", help="where the table goes (default: the terminal alone)")
    add("--alone", nargs=2, metavar=("SIDE", "PART"), help=argparse.SUPPRESS)
    return parser.parse_args()


def seconds_of(run, wait) -> float:
    """Seconds of one sample; its result lives until the clock is read."""
    start = time.perf_counter()
    result = run()
    wait()
    taken = time.perf_counter() - start
    del result
    return taken


def median_us(run, wait, samples: int) -> float:
    """Median time of a sample, in microseconds, after the first ones."""
    times = []
    for index in range(samples + 6):
        wait()
        taken = seconds_of(run, wait)
        if index >= 6:
            times.append(taken)
    return statistics.median(times) * 1e6


def repeat(run, commit):
    """A sample's operations, each submitted before the next one is recorded."""

    def run_all():
        results = []
        for _ in range(IN_A_ROW):
            results.append(run())
            commit()
        return results

    return run_all


def cases_of_memory(device):
    """Yields title, operation, bytes that it moves."""
    import torch
    from torch.nn import functional

    n = ELEMENTS
    x, y = torch.randn(n, device=device), torch.randn(n, device=device)
    yield "copy", lambda: x.clone(), 8 * n
    yield "x * 2", lambda: x * 2, 8 * n
    yield "x + y", lambda: x + y, 12 * n
    yield "gelu", lambda: functional.gelu(x), 8 * n
    yield "sum", lambda: x.sum(), 4 * n
    narrow = x.to(torch.bfloat16)
    yield "x * 2, bf16", lambda: narrow * 2, 4 * n
    yield "gelu, bf16", lambda: functional.gelu(narrow), 4 * n
    for count in (768, 1024, 2048, 4096, 8192, 16384):
        rows, weight = x[: n // count * count].view(-1, count), torch.ones(count, device=device)
        moved = 8 * rows.numel()
        yield f"softmax, rows of {count}", lambda rows=rows: torch.softmax(rows, 1), moved
        normal = functools.partial(functional.layer_norm, rows, weight.shape, weight, weight)
        yield f"layer_norm, rows of {count}", normal, moved
    matrix, square = x.view(16384, -1), x.view(16384, 16384)
    yield "sums of columns", lambda: matrix.sum(0), 4 * n
    yield "transpose", lambda: square.t().contiguous(), 8 * n
    images = x.view(64, 64, 256, 256)
    yield "images to channels last", lambda: images.contiguous(memory_format=torch.channels_last), 8 * n


def measure_chain(device, wait, samples: int, compiled: bool) -> float:
    """Microseconds of one more kernel in a chain, each of which needs its predecessor's whole result."""
    import torch

    matrix, start = torch.full((64, 64), 1 / 64, device=device), torch.ones(64, device=device)

    def chain(length: int):
        vector = start
        for _ in range(length):
            vector = (matrix * vector).sum(1)
        return vector

    run = torch.compile(chain, backend="headrace", dynamic=False) if compiled else chain

    def begin(length: int):
        start.mul_(1)  # values computed repeatedly from equal contents would be cached
        return run(length)

    times = [median_us(lambda length=length: begin(length), wait, samples) for length in (50, 250)]
    return (times[1] - times[0]) / 200


def fastest_product(algorithms, wait) -> float:
    """The median time of the fastest algorithm, in microseconds, when the GPU's clocks follow its power limit: a
    second after the start they are far below that for a moment."""

    def times_of(algorithm, seconds: float) -> list[float]:
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            times.append(seconds_of(algorithm, wait))
        return times

    times_of(algorithms[0], 2)
    return min(statistics.median(times_of(algorithm, 1)) for algorithm in algorithms) * 1e6


def matrices(device):
    import torch

    return [torch.randn(SIDE_OF_PRODUCT, SIDE_OF_PRODUCT, device=device).to(torch.bfloat16) for _ in range(3)]


def check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"cuBLASLt answers {status}, expected 0")


def algorithms_of_cublaslt():
    """cuBLASLt's algorithms for the product of two matrices in bf16, with sums in f32, each a function that starts
    it."""
    import torch

    library = ctypes.CDLL("libcublasLt.so.13" if torch.version.cuda.startswith("13") else "libcublasLt.so.12")
    void, size = ctypes.c_void_p, SIDE_OF_PRODUCT
    a, b, c = matrices("cuda")
    space = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    handle, product, layout, preference = void(), void(), void(), void()
    check(library.cublasLtCreate(ctypes.byref(handle)))
    check(library.cublasLtMatmulDescCreate(ctypes.byref(product), 68, 0))  # COMPUTE_32F, R_32F
    check(
        library.cublasLtMatrixLayoutCreate(ctypes.byref(layout), 14, *[ctypes.c_uint64(size)] * 2, ctypes.c_int64(size))
    )
    check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
    most = ctypes.c_size_t(space.numel())
    check(library.cublasLtMatmulPreferenceSetAttribute(preference, 1, ctypes.byref(most), ctypes.c_size_t(8)))
    count, words = 8, 12  # results are 96 bytes: the algorithm, bytes of workspace, and status
    results, found = (ctypes.c_uint64 * (count * words))(), ctypes.c_int()
    check(
        library.cublasLtMatmulAlgoGetHeuristic(
            handle, product, layout, layout, layout, layout, preference, count, results, ctypes.byref(found)
        )
    )
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    stream = void(torch.cuda.current_stream().cuda_stream)

    def start(index: int):
        algorithm = ctypes.byref(results, index * words * 8)
        status = library.cublasLtMatmul(
            *(handle, product, ctypes.byref(one), void(a.data_ptr()), layout, void(b.data_ptr()), layout),
            *(ctypes.byref(zero), void(c.data_ptr()), layout, void(c.data_ptr()), layout, algorithm),
            *(void(space.data_ptr()), ctypes.c_size_t(space.numel()), stream),
        )
        check(status)

    return [lambda index=index: start(index) for index in range(found.value)]


def measure_alone(side: str, part: str, samples: int) -> None:
    """Prints a line of JSON for each row: the product, or all other kernels."""
    import torch

    if side == "device":
        import headrace.torch  # noqa: F401
    device = torch.device("headrace" if side == "device" else "cuda")
    wait = getattr(torch, device.type).synchronize
    commit = torch.headrace.commit if side == "device" else lambda: None

    def say(title: str, found: dict) -> None:
        print(json.dumps({"title": title} | found), flush=True)

    with torch.no_grad():
        if part == "product":
            a, b, _ = matrices(device)
            algorithms = algorithms_of_cublaslt() if side == "cublaslt" else [lambda: a @ b]
            say(PRODUCT, {"us": round(fastest_product(algorithms, wait), 1)})
            return
        for title, run, moved in cases_of_memory(device):
            taken = median_us(repeat(run, commit), wait, samples) / IN_A_ROW
            say(title, {"us": round(taken, 1), "tbs": round(moved / taken * 1e-6, 2)})
        say("one more dependent kernel", {"us": round(measure_chain(device, wait, samples, False), 2)})
        if side == "device":
            say("one more, compiled", {"us": round(measure_chain(device, wait, samples, True), 2)})


def measure(side: str, part: str, arguments: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--alone", side, part, "--samples", str(arguments.samples)]
    found = {}
    process = subprocess.Popen(command, env=environment_of(side), stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(arguments.limit, process.kill)
    timer.start()
    for line in process.stdout:
        row = json.loads(line)
        found[row.pop("title")] = row
        print(f"{SIDES[side]}: {len(found)} rows", end="\r", file=sys.stderr, flush=True)
    timer.cancel()
    print(file=sys.stderr)
    if process.wait() != 0:
        print(f"{SIDES[side]} ended with {process.returncode}", file=sys.stderr)
    return found


def measure_in_turn(sides: list[str], arguments: argparse.Namespace) -> dict:
    """Each side's row of the product: the median of its turns, and all of them."""
    turns: dict = {side: [] for side in sides}
    for _ in range(arguments.turns):
        for side in sides:
            if found := measure(side, "product", arguments):
                turns[side].append(found[PRODUCT]["us"])
    rows = {}
    for side, times in turns.items():
        if times:
            taken = statistics.median(times)
            tflops = round(2 * SIDE_OF_PRODUCT**3 / taken * 1e-6, 1)
            rows[side] = {"us": taken, "tflops": tflops, "turns": times}
    return rows


def cell(row: dict | None) -> str:
    if row is None:
        return ""
    more = f" ({row['tbs']} TB/s)" if "tbs" in row else f" ({row['tflops']} TFLOP/s)" if "tflops" in row else ""
    return f"{row['us']} us{more}"


def markdown(results: dict) -> str:
    sides = list(results)
    titles = list(dict.fromkeys(title for found in results.values() for title in found))
    out = ["| kernel | " + " | ".join(SIDES[side] for side in sides) + " |", "|---" * (len(sides) + 1) + "|"]
    for title in titles:
        out.append(f"| {title} | " + " | ".join(cell(results[side].get(title)) for side in sides) + " |")
    return "\n".join(out) + "\n"


def main() -> None:
    arguments = parse()
    if arguments.alone:
        measure_alone(*arguments.alone, arguments.samples)
        return
    sides = arguments.sides.split(",")
    if unknown := [side for side in sides if side not in SIDES]:
        sys.exit(f"no side is called {unknown[0]}; there are {', '.join(SIDES)}")
    results = {side: {} if side == "cublaslt" else measure(side, "kernels", arguments) for side in sides}
    for side, row in measure_in_turn(sides, arguments).items():
        results[side][PRODUCT] = row
    if arguments.json:
        written = {"date": str(datetime.date.today()), "command": " ".join(sys.argv), "results": results}
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    table = markdown(results)
    print(table)
    if arguments.markdown:
        arguments.markdown.write_text(table)


if __name__ == "__main__":
    main()
