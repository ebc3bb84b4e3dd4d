"""Sides of a comparison, each in a process of its own: for bench/jax_cases.py and bench/tensorflow_cases.py.

A side has as many cores as threads. Sides work in turn, a burst of calls each. A side's figures are the medians of its
bursts: the wall clock's time of a call (`wall`), CPU time of all threads (`cpu`), and what `serve` found of the first
call.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def add_options(parser, cases):
    add = parser.add_argument
    add("--cases", default=",".join(cases), help="default: %(default)s")
    add("--rounds", type=int, default=7, help="default %(default)s")
    add("--seconds", type=float, default=1.0, help="of a burst (default %(default)s)")
    add("--warm-up", type=float, default=4.0, help="seconds before the first burst (default %(default)s)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side (default: all cores)")
    add("--folder", help="where results are left; default: a temporary one")
    add("--json", help="a file for the figures")
    parser.add_argument("--serve", help="the side that this process is; set by the script itself")


# ---- in the process of a side


def status_bytes(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def start_peak():
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again from VmRSS


def burst(call, seconds):
    """Medians of calls that end when their results exist."""
    walls, begin, cpu = [], time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds or len(walls) < 3:
        start = time.perf_counter()
        call()
        walls.append(time.perf_counter() - start)
    return {"wall": statistics.median(walls), "cpu": (time.process_time() - cpu) / len(walls)}


def first_call(call):
    """Its result and its times. Collects garbage before: with JAX's modules that takes Python 45 ms, which would fall
    into the first call of one side or of the other."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, {"first": time.perf_counter() - wall, "first_cpu": time.process_time() - cpu}


def serve(call, first, warm_up, more=dict):
    """Tells of the first call, then runs a burst for each line with seconds. `more()` has further figures of each."""
    burst(call, warm_up)
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        print(json.dumps(burst(call, float(line)) | more()), flush=True)


# ---- in the process that compares


class Side:
    """A process of the script that serves one side of a case, on the first cores of this one."""

    def __init__(self, script, side, case, folder, arguments, variables):
        command = [sys.executable, script, "--serve", side, "--cases", case, "--folder", str(folder)]
        command += ["--warm-up", str(arguments.warm_up), "--threads", str(arguments.threads)]
        self.cache = tempfile.TemporaryDirectory()
        paths = os.pathsep.join(filter(None, (str(ROOT / "examples"), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"HEADRACE_CACHE": self.cache.name, "PYTHONPATH": paths}
        environment |= {name: str(arguments.threads) for name in ("HEADRACE_THREADS", "OMP_NUM_THREADS")}
        cores = sorted(os.sched_getaffinity(0))[: arguments.threads]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.name, self.bursts = side, []
        self.process = subprocess.Popen(
            command, env=environment | variables, preexec_fn=lambda: os.sched_setaffinity(0, cores), **pipes
        )
        self.first = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(line)

    def run(self, seconds):
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}") from None
        self.bursts.append(self.read())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.cache.cleanup()
        return self.first | {key: statistics.median(row[key] for row in self.bursts) for key in self.bursts[0]}


def run_case(case, names, open_side, arguments):
    """{side: figures}. `open_side(side)` starts its process."""
    opened = []
    try:
        for name in names:
            print(f"{case}: {name} opens", file=sys.stderr)
            opened.append(open_side(name))
        for number in range(arguments.rounds):
            print(f"{case}: round {number + 1} of {arguments.rounds}", file=sys.stderr)
            for side in opened:
                side.run(arguments.seconds)
        return {side.name: side.close() for side in opened}
    finally:
        for side in opened:
            side.process.kill()  # no effect on one that has ended
            side.process.wait()


def run_cases(run, cases, arguments):
    """{case: results} of the cases that end; `run(case, folder)` gives those of one."""
    unknown = [case for case in arguments.cases.split(",") if case not in cases]
    if unknown:
        sys.exit(f"{Path(sys.argv[0]).stem}: {unknown[0]!r} is unknown; cases: {', '.join(cases)}")
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in arguments.cases.split(","):
            try:
                results[case] = run(case, folder)
            except RuntimeError as error:
                print(f"{Path(sys.argv[0]).stem}: {case}: {error}", file=sys.stderr)
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(results, indent=1))
    return results
