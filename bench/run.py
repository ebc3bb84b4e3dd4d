#!/usr/bin/env python3
"""Times torch's CPU device against Headrace, in turn in one process, and writes a table.

Each case runs on both sides with the same weights, batches and number of threads. The first step is timed by itself;
then come rounds, in each of which both sides run a few steps, the order changing from round to round, so that a machine
that gets slower or faster under us does so to both. What counts is the median of all steps. Every step ends when its
result is there: on Headrace with torch.headrace.synchronize(), while the result is still referenced. With --compiled
the networks run on a third side: on Headrace, the model through torch.compile(backend="headrace").

The memory of a training step is measured in a process of its own for each side: by how much the resident memory grows,
at its peak, from the moment when model and batch are on the device until three steps have run. That holds gradients,
the optimizer's state and all temporaries.

    python bench/run.py                       everything, into bench/results/latest.md and .json
    python bench/run.py --quick               the same in less time, with more noise
    python bench/run.py --cases 'cnn*,chain*' some of it
"""

import argparse
import copy
import datetime
import fnmatch
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
sys.path.insert(0, str(ROOT / "examples"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", default="*", help="names or patterns with commas between; --list names them")
    add("--list", action="store_true", help="names the cases and ends")
    add("--device", default="headrace", help="what is compared with torch's CPU device (default %(default)s)")
    add("--rounds", type=int, default=6, help="how often the sides take turns (default %(default)s)")
    add("--seconds", type=float, default=4.0, help="time for a side in all rounds of a case (default %(default)s)")
    add("--quick", action="store_true", help="two rounds of half a second")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both sides (default %(default)s)")
    add("--compiled", action="store_true", help="the networks also on Headrace with torch.compile, as a third side")
    add("--no-memory", action="store_true", help="leaves out the peak memory of training steps")
    add("--json", default=RESULTS / "latest.json", type=Path, metavar="FILE", help="(default %(default)s)")
    add("--markdown", default=RESULTS / "latest.md", type=Path, metavar="FILE", help="(default %(default)s)")
    add("--memory-of", metavar="CASE", help=argparse.SUPPRESS)  # the process that measures one side's memory
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 1.0
    return arguments


ARGUMENTS = parse() if __name__ == "__main__" else None
if ARGUMENTS:  # before torch loads: both sides read the number of threads when they start
    os.environ["OMP_NUM_THREADS"] = os.environ["HEADRACE_THREADS"] = str(ARGUMENTS.threads)

import headrace.torch  # noqa: E402, F401  (torch finds it by itself, except where torch also drives CUDA)
import networks  # noqa: E402
import torch  # noqa: E402

# ---- cases


@dataclass(frozen=True)
class Case:
    """`prepare(device)` gives a function that runs one sample and returns what must be there when it is timed. Networks
    take a function for their model, too: `prepare(device, torch.compile)`."""

    name: str
    title: str
    prepare: Callable[..., Callable[[], object]]
    inner: int = 1  # operations in a sample: times are for one of them
    trains: bool = False
    counts: bool = True  # in the geometric mean
    is_network: bool = False


def model_of(network: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return networks.CASES[network].build()


def as_it_is(model: torch.nn.Module) -> torch.nn.Module:
    return model


def training(network: str, count: int) -> Callable:
    def prepare(device, compiled=as_it_is):
        case = networks.CASES[network]
        model = compiled(model_of(network).to(device).train())
        optimizers = case.optimizers(model, lambda parameters: torch.optim.Adam(parameters, lr=1e-4))
        batch = tuple(tensor.to(device) for tensor in case.batch(count))
        return lambda: case.step(model, optimizers, batch)

    return prepare


def inference(network: str, count: int, calls: int = 1, inputs: torch.Tensor | None = None) -> Callable:
    def prepare(device, compiled=as_it_is):
        model = compiled(model_of(network).eval().to(device))
        batch = (networks.CASES[network].batch(count)[0] if inputs is None else inputs).to(device)

        def sample():
            with torch.no_grad():
                for _ in range(calls):
                    result = model(batch)
                    synchronize(device)
            return result

        return sample

    return prepare


def chain(size: int, calls: int) -> Callable:
    def prepare(device):
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.rand(size, generator=generator).to(device) for _ in range(2))

        def sample():
            for _ in range(calls):
                result = ((((x + y) * 0.5).tanh() - y).abs() * x + 1).sqrt().sigmoid()
                synchronize(device)
            return result

        return sample

    return prepare


def additions(count: int, keep: bool) -> Callable:
    """Fresh results of x + y, kept until the end or dropped at once; nothing waits until all are issued."""

    def prepare(device):
        x, y = torch.rand(4).to(device), torch.rand(4).to(device)

        def kept():
            return [x + y for _ in range(count)]

        def dropped():
            for _ in range(count):
                result = x + y
            return result

        return kept if keep else dropped

    return prepare


TOKEN = torch.tensor([[464]])
CASES = [
    Case("cnn-train-512", "CNN 28x28, train, batch 512", training("cnn", 512), trains=True, is_network=True),
    Case("cnn-infer-512", "CNN 28x28, infer, batch 512", inference("cnn", 512), is_network=True),
    Case("cnn-infer-1", "CNN 28x28, infer, batch 1", inference("cnn", 1, 20), inner=20, is_network=True),
    Case("mlp-train-64", "Softshrink MLP, train, batch 64", training("mlp", 64), trains=True, is_network=True),
    Case("mlp-infer-1", "Softshrink MLP, infer, batch 1", inference("mlp", 1, 100), inner=100, is_network=True),
    Case("resnet50-train-2", "ResNet-50, train, batch 2", training("resnet50", 2), trains=True, is_network=True),
    Case("resnet50-infer-2", "ResNet-50, infer, batch 2", inference("resnet50", 2), is_network=True),
    Case("resnet50-infer-1", "ResNet-50, infer, batch 1", inference("resnet50", 1), is_network=True),
    Case("gpt2-train-128", "GPT-2 small, train, 1 x 128 tokens", training("gpt2", 1), trains=True, is_network=True),
    Case("gpt2-infer-128", "GPT-2 small, infer, 1 x 128 tokens", inference("gpt2", 1), is_network=True),
    Case("gpt2-infer-1", "GPT-2 small, infer, 1 x 1 token", inference("gpt2", 1, inputs=TOKEN), is_network=True),
    Case("chain-4m", "element-wise chain, 4,194,304 floats", chain(1 << 22, 1)),
    Case("chain-256k", "element-wise chain, 262,144 floats", chain(1 << 18, 10), inner=10),
    Case("chain-64", "element-wise chain, 64 floats", chain(64, 200), inner=200),
    Case("add-4", "x + y, 4 floats, results kept", additions(2000, True), inner=2000, counts=False),
    Case("add-4-dropped", "x + y, 4 floats, results dropped", additions(2000, False), inner=2000, counts=False),
]


# ---- running


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def timed(sample: Callable, device: torch.device) -> float:
    begin = time.perf_counter()
    result = sample()
    synchronize(device)
    seconds = time.perf_counter() - begin
    del result
    return seconds


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def stats_of(device: torch.device) -> dict:
    return getattr(getattr(torch, device.type), "stats", dict)()


class Side:
    """One device in one case: what it ran and how long that took, in seconds an operation."""

    def __init__(self, device: torch.device, case: Case, is_compiled: bool = False):
        self.device, self.case = device, case
        compiler = [lambda model: torch.compile(model, backend="headrace")] if is_compiled else []
        self.sample = case.prepare(device, *compiler)
        self.counted: dict[str, float] = {}  # what the device did in all rounds
        synchronize(device)
        self.first = timed(self.sample, device) / case.inner
        self.times: list[float] = []
        for _ in range(3 if self.first < 1 else 1):  # the optimizer's state, caches, clocks
            self.estimate = timed(self.sample, device)

    def run_round(self, seconds: float) -> None:
        before = stats_of(self.device)
        timed(self.sample, self.device)  # the other side's threads may still be spinning, and its data fills the caches
        for _ in range(max(1, min(200, round(seconds / self.estimate)))):
            self.times.append(timed(self.sample, self.device) / self.case.inner)
        for key, value in stats_of(self.device).items():
            self.counted[key] = self.counted.get(key, 0) + value - before.get(key, 0)

    def stats_per_sample(self, rounds: int) -> dict:
        return {key: round(value / (len(self.times) + rounds), 3) for key, value in self.counted.items()}

    def result(self) -> dict:
        ordered = sorted(self.times)
        tenth = len(ordered) // 10
        return {
            "median_seconds": statistics.median(ordered),
            "low_seconds": ordered[tenth],
            "high_seconds": ordered[-1 - tenth],
            "samples": len(ordered),
            "first_seconds": self.first,
        }


def run_case(case: Case, devices: list[torch.device], arguments) -> dict:
    sides = [Side(device, case) for device in devices]
    if arguments.compiled and case.is_network:
        sides.append(Side(devices[1], case, is_compiled=True))
    for index in range(arguments.rounds):
        for side in sides if index % 2 == 0 else reversed(sides):
            side.run_round(arguments.seconds / arguments.rounds)
    torch_side, our_side, *compiled = (side.result() for side in sides)
    more = {}
    if compiled:
        more["compiled"] = compiled[0] | {"stats_per_sample": sides[2].stats_per_sample(arguments.rounds)}
        more["compiled_ratio"] = torch_side["median_seconds"] / compiled[0]["median_seconds"]
    return more | {
        "name": case.name,
        "title": case.title,
        "torch": torch_side,
        "device": our_side,
        "ratio": torch_side["median_seconds"] / our_side["median_seconds"],
        "counts_in_mean": case.counts,
        "device_stats_per_sample": sides[1].stats_per_sample(arguments.rounds),
    }


def release(device: torch.device) -> None:
    """What the case held goes back before the next one."""
    gc.collect()
    synchronize(device)
    getattr(getattr(torch, device.type), "empty_cache", lambda: None)()


# ---- memory


def status_bytes(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def measure_memory(case: Case, device: torch.device) -> dict:
    """Runs in a process of its own: the growth of its resident memory over three steps, at the peak."""
    sample = case.prepare(device)
    synchronize(device)
    gc.collect()
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from VmRSS
    for _ in range(3):
        timed(sample, device)
    return {"before_bytes": before, "growth_bytes": status_bytes("VmHWM") - before}


def memory_of(case: Case, device: torch.device, arguments) -> dict | None:
    command = [sys.executable, __file__, "--memory-of", case.name, "--device", str(device)]
    done = subprocess.run(
        [*command, "--threads", str(arguments.threads)], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        say(f"  the memory of {case.name} on {device} could not be measured:\n{done.stderr.strip()[-400:]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


# ---- reporting


def machine() -> dict:
    """What matters about this machine, without its name."""
    fields = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(fields.get("flags", "").split())
    known = {
        "avx2": "AVX2",
        "avx512f": "AVX-512",
        "avx512_vnni": "VNNI",
        "avx512_bf16": "AVX-512 BF16",
        "amx_tile": "AMX",
    }
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": fields.get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "vectors": [text for flag, text in known.items() if flag in flags],
        "cache": fields.get("cache size", ""),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def machine_text(described: dict, threads: int) -> str:
    vectors = f" with {', '.join(described['vectors'])}" if described["vectors"] else ""
    return (
        f"{described['cpu']}, {described['cores']} cores{vectors}, {described['memory_gib']} GiB, "
        f"{described['system']}; torch {described['torch']}, Python {described['python']}; "
        f"{threads} threads on both sides"
    )


def commit_of_tree() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def time_text(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def memory_text(measured: dict | None) -> str:
    return f"{measured['growth_bytes'] / 2**20:,.0f} MiB" if measured else ""


def geometric_mean(results: list[dict], key: str = "ratio") -> float | None:
    ratios = [result[key] for result in results if result.get("counts_in_mean") and key in result]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def compiled_cells(result: dict) -> list[str]:
    if "compiled" not in result:
        return ["", "", ""]
    ours = result["compiled"]
    return [time_text(ours["median_seconds"]), f"{result['compiled_ratio']:.2f}", time_text(ours["first_seconds"])]


def markdown(report: dict) -> str:
    name = report["device"]
    has_compiled = any("compiled" in result for result in report["results"])
    lines = [
        f"# torch cpu and {name}",
        "",
        f"{report['date']}{', ' + report['commit'] if report['commit'] else ''}. "
        + machine_text(report["machine"], report["threads"]),
        "",
        "Median time of a step; the ratio says how many times as fast as torch's CPU device. Training steps are "
        "forward, backward and Adam.",
        "",
        f"| case | torch cpu | {name} | ratio | first step: torch cpu | {name} | peak memory: torch cpu | {name} |"
        + (" compiled | ratio | first step |" if has_compiled else ""),
        "|---|---:|---:|---:|---:|---:|---:|---:|" + ("---:|---:|---:|" if has_compiled else ""),
    ]
    for result in report["results"]:
        if "error" in result:
            lines.append(f"| {result['title']} | | failed: {result['error']} | | | | | |")
            continue
        ours, torchs = result["device"], result["torch"]
        cells = [
            result["title"],
            time_text(torchs["median_seconds"]),
            time_text(ours["median_seconds"]),
            f"{result['ratio']:.2f}",
            time_text(torchs["first_seconds"]),
            time_text(ours["first_seconds"]),
            memory_text(torchs.get("memory")),
            memory_text(ours.get("memory")),
            *(compiled_cells(result) if has_compiled else []),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if report["geometric_mean"]:
        lines += ["", f"Geometric mean of the ratios, without the single additions: {report['geometric_mean']:.2f}."]
    if report.get("compiled_geometric_mean"):
        lines[-1] += f" Of the compiled networks: {report['compiled_geometric_mean']:.2f}."
    if any("memory" in result.get("torch", {}) for result in report["results"]):
        lines += [
            "",
            "Peak memory: growth of the resident memory from model and batch on the device to the peak of three "
            "training steps, each side in a process of its own.",
        ]
    return "\n".join(lines) + "\n"


def chosen_cases(patterns: str) -> list[Case]:
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    for pattern in wanted:
        if not any(fnmatch.fnmatch(case.name, pattern) for case in CASES):
            sys.exit(f"bench: no case is called {pattern}; there are {', '.join(case.name for case in CASES)}")
    return [case for case in CASES if any(fnmatch.fnmatch(case.name, pattern) for pattern in wanted)]


def main(arguments) -> int:
    if arguments.list:
        print("\n".join(f"{case.name:20}{case.title}" for case in CASES))
        return 0
    torch.set_num_threads(arguments.threads)
    try:
        device = torch.device(arguments.device)
        torch.ones(2, device=device).add(1).sum().item()
    except Exception as error:
        sys.exit(f"bench: the device `{arguments.device}` does not work: {error}")
    if arguments.memory_of:
        case = next(case for case in CASES if case.name == arguments.memory_of)
        print(json.dumps(measure_memory(case, device)))
        return 0

    cases = chosen_cases(arguments.cases)
    devices = [torch.device("cpu"), device]
    results = []
    for index, case in enumerate(cases):
        say(f"[{index + 1:2}/{len(cases)}] {case.name:18}", end=" ")
        try:
            result = run_case(copy.copy(case), devices, arguments)
        except Exception as error:
            say(f"failed: {error}")
            results.append({"name": case.name, "title": case.title, "error": str(error).splitlines()[0][:200]})
            continue
        finally:
            release(device)
        ours, torchs = result["device"], result["torch"]
        times = f"{time_text(torchs['median_seconds']):>9} {time_text(ours['median_seconds']):>9}"
        say(f"{times} {result['ratio']:6.2f}x", end="")
        if "compiled" in result:
            median = time_text(result["compiled"]["median_seconds"])
            say(f"   compiled {median:>9} {result['compiled_ratio']:6.2f}x", end="")
        if case.trains and not arguments.no_memory:
            for side, where in ((torchs, devices[0]), (ours, devices[1])):
                side["memory"] = memory_of(case, where, arguments)
            say(f"   memory {memory_text(torchs['memory'])}, {memory_text(ours['memory'])}", end="")
        say("")
        results.append(result)

    report = {
        "date": datetime.date.today().isoformat(),
        "commit": commit_of_tree(),
        "machine": machine(),
        "threads": arguments.threads,
        "device": str(device),
        "rounds": arguments.rounds,
        "seconds_per_side": arguments.seconds,
        "load_average": os.getloadavg(),
        "geometric_mean": geometric_mean(results),
        "compiled_geometric_mean": geometric_mean(results, "compiled_ratio"),
        "results": results,
    }
    for path, text in ((arguments.json, json.dumps(report, indent=1) + "\n"), (arguments.markdown, markdown(report))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(markdown(report))
    say(f"wrote {arguments.markdown} and {arguments.json}")
    return 1 if any("error" in result for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
