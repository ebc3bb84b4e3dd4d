#!/usr/bin/env python3
"""Times torch's CPU device against Headrace, operator by operator: every entry of torch's test data (op_db) that has
a size.

Inputs of about 1 K, 100 K and 4 M elements are made for each entry (bench/ops_inputs.py), contiguous and strided (the
first input transposed, or every second element of a line). The call is timed on both sides in turn, forward, and
forward with backward; medians are reported. A call ends when its result exists, while the result is still referenced.
For 1 K elements many calls run from Python, with all results kept and one wait after them. Kernels are compiled
before anything is timed. Views move nothing and are timed at 1 K alone. Entries run in a worker process that may be
killed.

    python bench/ops.py                           everything, into docs/operator-speed.md and bench/results/ops.json
    python bench/ops.py --quick                   float32, contiguous, forward, 1 K and 4 M
    python bench/ops.py --only 'cum*,sort'        some entries, to the terminal alone
    python bench/ops.py --only 'cum*' --update    and their rows anew in the results and on the page
    python bench/ops.py --dtypes float32,bfloat16 --sizes 4M --forward
"""

import argparse
import contextlib
import fnmatch
import gc
import json
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"1K": 1 << 10, "100K": 100_000, "4M": 1 << 22}
DTYPES = ("float32", "int64", "float16", "bfloat16")
ROUND_SAMPLES, SETTLE_SECONDS = 40, 0.01
OF_TORCH = " of torch"  # suffix of a row's key: torch alone runs


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default="", metavar="PATTERNS", help="names or patterns with commas between; nothing is written")
    add(
        "--update",
        action="store_true",
        help="with --only: rows of bench/results/ops.json are replaced, and the page is written anew",
    )
    add("--sizes", default=",".join(SIZES), help="of 1K, 100K, 4M (default all)")
    add(
        "--dtypes", default=",".join(DTYPES), help="other than float32 at 4M, contiguous, forward (default %(default)s)"
    )
    add("--forward", action="store_true", help="no backward passes")
    add("--backward", action="store_true", help="backward passes alone")
    add("--contiguous", action="store_true", help="no strided inputs")
    add("--quick", action="store_true", help="float32, contiguous, forward, 1K and 4M, less time for each")
    add("--seconds", type=float, default=0.05, help="for a side of one row (default %(default)s)")
    add("--limit", type=int, default=20, help="seconds after which a row is given up (default %(default)s)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both sides (default %(default)s)")
    add("--device", default="headrace", help="what is compared with torch's CPU device (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="(default bench/results/ops.json, or nothing with --only)")
    add(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="(default docs/operator-speed.md, or nothing with --only or --quick)",
    )
    add("--from-json", type=Path, metavar="FILE", help="times nothing: writes the page from the rows of an earlier run")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.dtypes, arguments.seconds = "1K,4M", "float32", 0.03
        arguments.forward = arguments.contiguous = True
    return arguments


ARGUMENTS = parse() if __name__ == "__main__" else None
if ARGUMENTS:  # before torch loads
    os.environ["OMP_NUM_THREADS"] = os.environ["HEADRACE_THREADS"] = str(ARGUMENTS.threads)
    if ARGUMENTS.device == "headrace":
        os.environ.setdefault("HEADRACE_FALLBACK", "error")
    warnings.simplefilter("ignore")

sys.path.append(str(ROOT / "tests" / "conformance"))

import headrace.torch  # noqa: E402, F401
import ops_inputs  # noqa: E402
import ops_report  # noqa: E402
import pool  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
from cases import synchronizer  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

ENTRIES = {}
for _entry in op_db:
    ENTRIES.setdefault(ops_inputs.name_of(_entry), _entry)


# ---- one call on one side


def strided(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same values with other strides: transposed if there are two dims, else every second element."""
    if tensor.ndim >= 2:
        return tensor.transpose(-1, -2).contiguous().to(device).transpose(-1, -2)
    wide = torch.empty(2 * tensor.numel(), dtype=tensor.dtype)
    wide[::2] = tensor.reshape(-1)
    return wide.to(device)[::2].view(tensor.shape)


def move(parts, device: torch.device, layout: str):
    """The arguments on the device; with `strided` the first tensor of more than one element is strided."""
    left = [layout == "strided"]

    def moved(leaf):
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return device
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if left[0] and leaf.numel() > 1:
            left[0] = False
            return strided(leaf, device)
        return leaf.to(device)

    return pytree.tree_map(moved, parts)


def differentiable(tree) -> list[torch.Tensor]:
    return [leaf for leaf in ops_inputs.tensors_in(tree) if leaf.dtype.is_floating_point or leaf.dtype.is_complex]


def function_of(entry, parts, device: torch.device, layout: str, direction: str):
    """The function to time, and True if it does any work."""
    first, args, kwargs = move(parts, device, layout)
    if direction == "forward":

        def forward():
            with torch.no_grad():
                return entry.op(first, *args, **kwargs)

        return forward
    leaves = [leaf.requires_grad_() for leaf in differentiable((first, args, kwargs))]
    results = [result for result in differentiable(entry.op(first, *args, **kwargs)) if result.requires_grad]
    if not results:
        raise ops_inputs.Unscalable("no gradient")
    torch.manual_seed(1)
    gradients = [torch.randn(result.shape).to(result.dtype).to(device) for result in results]
    del results

    def backward():
        found = [result for result in differentiable(entry.op(first, *args, **kwargs)) if result.requires_grad]
        return torch.autograd.grad(found, leaves, gradients, allow_unused=True)

    return backward


class Side:
    """A function and its times, in seconds a call."""

    def __init__(self, function, device: torch.device, inner: int):
        self.function, self.inner, self.wait = function, inner, synchronizer(device)
        self.times: list[float] = []
        self.calls = 0

    def sample(self) -> float:
        self.calls += self.inner
        begin = time.perf_counter()
        if self.inner == 1:
            kept = self.function()
        else:
            kept = [self.function() for _ in range(self.inner)]
        self.wait()
        seconds = time.perf_counter() - begin
        del kept
        self.last = seconds / self.inner
        return self.last

    def round(self, seconds: float) -> None:
        if seconds:
            self.settle()
        end = time.perf_counter() + seconds
        for _ in range(ROUND_SAMPLES):
            self.times.append(self.sample())
            if time.perf_counter() > end:
                return

    def settle(self) -> None:
        """Warms up: the other side's data fills the caches, and its threads spin for a while on the same cores."""
        end = time.perf_counter() + SETTLE_SECONDS
        while True:
            self.sample()
            if time.perf_counter() > end:
                return


# ---- one entry


def counters(device: torch.device) -> dict:
    stats = getattr(getattr(torch, device.type), "stats", dict)()
    return {key: value for key, value in stats.items() if isinstance(value, int)}


def warm(side: Side, device: torch.device) -> None:
    """Runs until kernels qualify for compilation; small ones never do."""
    before, end = counters(device).get("bytes_moved", 0), time.perf_counter() + 0.1
    for _ in range(1000 if side.inner == 1 else 1):
        side.sample()
        if time.perf_counter() > end or counters(device).get("bytes_moved", 0) - before > 80e6:
            break
    side.sample()


def wait_for_compiler(device: torch.device) -> None:
    """Waits until the compile thread is idle."""
    begin = time.perf_counter()
    while counters(device).get("jit_waiting", 0) > 0 and time.perf_counter() - begin < 20:
        time.sleep(0.01)


class Row:
    """One line of the table: an entry at a size, in a dtype, a layout and a direction."""

    def __init__(self, entry, size: str, dtype: str, layout: str, direction: str):
        self.entry, self.size, self.dtype, self.layout, self.direction = entry, size, dtype, layout, direction
        self.key = f"{size} {dtype} {layout} {direction}"

    def make(self) -> None:
        """Makes inputs and torch's side, which runs."""
        dtype = getattr(torch, self.dtype)
        self.parts, result = ops_inputs.make(self.entry, dtype, SIZES[self.size])
        inputs = {tensor.untyped_storage().data_ptr() for tensor in ops_inputs.tensors_in(self.parts)}
        results = ops_inputs.tensors_in(result)
        is_view = bool(results) and all(tensor.untyped_storage().data_ptr() in inputs for tensor in results)
        if is_view and self.size != "1K" and not self.entry.name.endswith("_"):
            raise ops_inputs.Unscalable("moves no data: timed at 1 K")
        del result, results
        self.sides = []
        self.add_side(torch.device("cpu"))
        self.slow = self.sides[0].sample() * self.sides[0].inner
        if self.slow > 2:
            raise ops_inputs.Unscalable("a call takes torch more than 2 s")

    def add_side(self, device: torch.device) -> None:
        function = function_of(self.entry, self.parts, device, self.layout, self.direction)
        self.sides.append(Side(function, device, 50 if self.size == "1K" else 1))

    def prepare(self, device: torch.device) -> None:
        """Makes our side, and runs it until its kernels qualify for compilation."""
        self.add_side(device)
        self.parts = None
        ours = self.sides[1]
        warm(ours, device)
        self.slow = max(self.slow, ours.last * ours.inner)

    def measure(self, device: torch.device, seconds: float) -> dict:
        rounds = 4 if self.slow < 0.02 else 2
        seconds = seconds / rounds if self.slow < 0.5 else 0  # then two calls each
        before, calls = counters(device), self.sides[1].calls
        for index in range(rounds):
            for side in self.sides if index % 2 == 0 else reversed(self.sides):
                side.round(seconds)
        after = counters(device)
        calls = self.sides[1].calls - calls
        torch_seconds, our_seconds = (statistics.median(side.times) for side in self.sides)
        found = {
            "torch_us": float(f"{torch_seconds * 1e6:.4g}"),
            "headrace_us": float(f"{our_seconds * 1e6:.4g}"),
            "ratio": float(f"{torch_seconds / our_seconds:.4g}"),
        }
        for key, name in (("kernels", "kernels"), ("kernels_interpreted", "interpreted"), ("library_calls", "calls")):
            if after.get(key, 0) > before.get(key, 0):
                found[name] = round((after[key] - before[key]) / calls, 2)
        return found


def rows_of(entry, arguments) -> list[Row]:
    """The rows of an entry: everything in float32, other dtypes on the largest size."""
    sizes = [size for size in SIZES if size in arguments.sizes.split(",")]
    has = {str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes("cpu")}
    main = next((dtype for dtype in (*DTYPES, "complex64") if dtype in has), None)
    asked = [dtype for dtype in dict.fromkeys((main, *arguments.dtypes.split(","))) if dtype in has]
    rows = []
    for size in sizes:
        for dtype in asked:
            if dtype != main and (size != sizes[-1] or arguments.backward):
                continue
            for layout in ("contiguous", "strided"):
                if layout == "strided" and (arguments.contiguous or dtype != main or size == "1K"):
                    continue
                if not arguments.backward:
                    rows.append(Row(entry, size, dtype, layout, "forward"))
                wants = not arguments.forward and layout == "contiguous" and dtype == main == "float32"
                if wants and entry.supports_autograd:
                    rows.append(Row(entry, size, dtype, layout, "backward"))
    return rows


def run_entry(name: str, skip: list[str]):
    """Runs in a child: prepares all rows, waits for background compilation, then times them."""
    torch.set_num_threads(ARGUMENTS.threads)
    device, entry = torch.device(ARGUMENTS.device), ENTRIES[name]
    prepared = []
    for row in rows_of(entry, ARGUMENTS):
        if row.key in skip or row.key + OF_TORCH in skip:
            continue
        yield "check", row.key + OF_TORCH
        try:
            row.make()
            yield "check", row.key
            row.prepare(device)
            prepared.append(row)
        except ops_inputs.Unscalable as reason:
            yield "done", row.key, "none", {"reason": str(reason)}
        except NotImplementedError as error:
            yield "done", row.key, "missing", {"reason": str(error).splitlines()[0][:160]}
        except Exception as error:
            yield "done", row.key, "error", {"reason": (str(error) or type(error).__name__).splitlines()[0][:160]}
    wait_for_compiler(device)
    for row in prepared:
        yield "check", row.key
        try:
            yield "done", row.key, "timed", row.measure(device, ARGUMENTS.seconds)
        except Exception as error:
            yield "done", row.key, "error", {"reason": (str(error) or type(error).__name__).splitlines()[0][:160]}
        row.sides = None
    prepared.clear()
    gc.collect()
    with contextlib.suppress(Exception):
        synchronizer(device)()
        getattr(torch, device.type).empty_cache()


# ---- all entries


def wanted(arguments) -> list[str]:
    patterns = [pattern.strip() for pattern in arguments.only.split(",") if pattern.strip()] or ["*"]
    chosen = [name for name in ENTRIES if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        sys.exit(f"bench: no entry of op_db is called {arguments.only}")
    return [name for name in chosen if rows_of(ENTRIES[name], arguments)]


def line_of(row: dict) -> str:
    if row["outcome"] != "timed":
        return f"{row['name']:44} {row['key']:36} {row['outcome']}: {row.get('reason', '')}"
    interpreted = (
        f"  {row['interpreted']:g} of {row['kernels']:g} kernels interpreted" if row.get("interpreted") else ""
    )
    times = f"{report.time_text(row['torch_us'] / 1e6):>9} {report.time_text(row['headrace_us'] / 1e6):>9}"
    return f"{row['name']:44} {row['key']:36} {times} {row['ratio']:7.2f}x{interpreted}"


def run_all(arguments) -> list[dict]:
    names, rows, done, begun = wanted(arguments), [], 0, time.monotonic()
    for name, key, outcome, detail in pool.run(names, run_entry, 1, arguments.limit, quiet=True):
        if key is None:
            done += 1
        else:
            detail = detail if isinstance(detail, dict) else {"reason": detail}
            if key.endswith(OF_TORCH):
                key, outcome, detail = key.removesuffix(OF_TORCH), "none", {"reason": f"torch has {detail['reason']}"}
            rows.append({"name": name, "key": key, "outcome": outcome} | detail)
            if arguments.only:
                print(line_of(rows[-1]), flush=True)
        if not arguments.only and key is None:
            left = (time.monotonic() - begun) / done * (len(names) - done)
            print(f"\r{done}/{len(names)} operators, {left:.0f} s left, {name:44}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def merged(old: list[dict], new: list[dict]) -> list[dict]:
    """The rows of both by name; rows that were timed again replace the old ones."""
    again = {(row["name"], row["key"]) for row in new}
    kept = [row for row in old if (row["name"], row["key"]) not in again]
    return sorted(kept + new, key=lambda row: row["name"])


def main(arguments) -> int:
    results = arguments.json or ROOT / "bench/results/ops.json"
    if arguments.from_json:
        written = json.loads(arguments.from_json.read_text(encoding="utf-8"))
    else:
        rows = run_all(arguments)
        if arguments.update and results.exists():
            rows = merged(json.loads(results.read_text(encoding="utf-8"))["rows"], rows)
        written = {
            "commit": report.commit_of_tree(ROOT),
            "machine": report.machine(),
            "threads": arguments.threads,
            "device": arguments.device,
            "rows": rows,
        }
    summary = ops_report.summary(written["rows"])
    print("\n".join(summary))
    whole = arguments.update or not arguments.only
    if arguments.json or (whole and not arguments.from_json):
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(ops_report.as_json(written), encoding="utf-8")
    target = arguments.markdown or (ROOT / "docs/operator-speed.md" if whole and not arguments.quick else None)
    if target:
        target.write_text(ops_report.document(written), encoding="utf-8")
    return 1 if any(row["outcome"] in ("crash", "hang") for row in written["rows"]) else 0


if __name__ == "__main__":
    code = main(ARGUMENTS)
    sys.stdout.flush()
    os._exit(code)
