"""Processes that answer seeds, and the run that asks them: torch_fuzz.py and jax_fuzz.py.

A front end names its worker's script and the variables of its environment. A worker reads requests from standard input,
a line each, and answers each by a line of JSON. It is started again when it dies.
"""

import argparse
import collections
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).parent
SECONDS_MAX = 300  # of one program, with its minimisation


class Worker:
    """A process that answers seeds; started again when it dies."""

    def __init__(self, options, compiled):
        self.options, self.compiled, self.process = options, compiled, None

    def start(self):
        environment = os.environ | {"HEADRACE_THREADS": os.environ.get("HEADRACE_THREADS", "1"), "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment |= self.options.environment
        if self.compiled:
            environment["HEADRACE_JIT"] = "wait"
        command = [sys.executable, str(HERE / self.options.worker)]
        if not self.options.minimise or self.compiled:
            command.append("--no-minimise")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )
        self.errors = collections.deque(maxlen=15)
        threading.Thread(target=self.drain, args=(self.process.stderr,), daemon=True).start()

    def drain(self, stream):
        for line in stream:
            self.errors.append(line.rstrip())

    def ask(self, seed):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(f"{seed}\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], SECONDS_MAX * (4 if self.compiled else 1))
            line = self.process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        kind = "hang" if line is None else "crash"
        self.stop()
        time.sleep(0.1)
        detail = f"exit status {self.process.returncode}: " + " / ".join(self.errors)
        self.process = None
        found = dict.fromkeys(["line", "repro", "dtypes", "setup"], "")
        found |= {"kind": kind, "op": "program", "seed": seed, "detail": detail}
        return {"seed": seed, "steps": 0, "found": [found], "excused": [], "digest": "", "seconds": 0}

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()


class Run:
    """State shared by all threads: the remaining seeds, the answers, the progress line."""

    def __init__(self, options):
        self.options, self.lock = options, threading.Lock()
        self.seeds = iter(range(options.seed, options.seed + options.programs))
        self.begin, self.done, self.steps, self.compiled = time.time(), 0, 0, 0
        self.found, self.shown, self.excused = [], collections.Counter(), collections.Counter()
        self.last_line = 0.0

    def expired(self):
        return self.options.minutes is not None and time.time() - self.begin > 60 * self.options.minutes

    def work(self):
        worker, compiling = Worker(self.options, False), Worker(self.options, True)
        while not self.expired():
            with self.lock:
                seed = next(self.seeds, None)
            if seed is None:
                break
            answer = worker.ask(seed)
            if self.options.reduce_end and answer["found"] and answer["found"][0]["kind"] in ("crash", "hang"):
                self.options.reduce_end(worker, answer["found"][0])
            if self.options.compiled and seed % self.options.compiled == 0:
                self.compare_compiled(answer, compiling.ask(seed))
            self.take(answer)
        worker.stop(), compiling.stop()

    def compare_compiled(self, answer, again):
        """Adds the differences found only with compiled kernels."""
        self.compiled += 1
        before = {(found["kind"], found["op"]) for found in answer["found"]}
        more = [found for found in again["found"] if (found["kind"], found["op"]) not in before]
        for found in more:
            found["detail"] += " (only where kernels are compiled)"
        if again["digest"] != answer["digest"] and not more:
            detail = "compiled kernels leave other bits"
            more = [{"kind": "bits", "op": "compiled", "seed": answer["seed"], "line": "", "detail": detail}]
        answer["found"] += more

    def take(self, answer):
        with self.lock:
            self.done += 1
            self.steps += answer["steps"]
            self.excused.update(f"{reason} [{op}]" for reason, op in answer["excused"])
            for found in answer["found"]:
                self.found.append(found)
                self.shown[found["kind"], found["op"]] += 1
                if self.shown[found["kind"], found["op"]] <= self.options.show:
                    show(found)
            if time.time() - self.last_line > (5 if sys.stderr.isatty() else 60):
                self.last_line = time.time()
                print(self.progress(), file=sys.stderr, flush=True)

    def progress(self):
        seconds = time.time() - self.begin
        total = f" of {self.options.programs}" if self.options.programs < 1 << 40 else ""
        return (
            f"{self.done}{total} programs, {self.steps} operations, {self.compiled} compiled, "
            f"{len(self.found)} differences, {sum(self.excused.values())} with a reason, {seconds:.0f} s"
        )


def show(found):
    lines = [f"---- seed {found['seed']}: {found['kind']} of {found['op']}: {found.get('line', '')}"]
    lines.append(f"     {found['detail']}")
    lines += (found.get("repro") or found.get("setup") or "").splitlines()
    print("\n".join(lines), flush=True)


def parse(text, worker, environment, reduce_end=None):
    """The options. `reduce_end(worker, found)` adds a script to a difference whose program ended its process."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=int(os.environ.get("HEADRACE_TEST_SEED", 1)))
    parser.add_argument("--compiled", type=int, default=0)
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--report")
    parser.add_argument("--no-minimise", dest="minimise", action="store_false")
    options = parser.parse_args()
    if options.programs is None:
        default = 1000 if options.minutes is None else 1 << 40
        options.programs = int(os.environ.get("HEADRACE_TEST_PROGRAMS", default))
    options.worker, options.environment, options.reduce_end = worker, environment, reduce_end
    return options


def run_all(options):
    """Runs all programs, prints the summary, and exits with 1 if there was a difference."""
    run = Run(options)
    threads = [threading.Thread(target=run.work) for _ in range(run.options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(run.progress())
    kinds = collections.Counter(f"{found['kind']} of {found['op']}" for found in run.found)
    for name, count in kinds.most_common():
        print(f"  {count} {name}")
    if run.options.report:
        report = {"programs": run.done, "operations": run.steps, "compiled": run.compiled}
        report |= {"seconds": time.time() - run.begin, "seed": run.options.seed}
        report |= {"differences": run.found, "excused": dict(run.excused.most_common())}
        pathlib.Path(run.options.report).write_text(json.dumps(report, indent=1))
    sys.exit(bool(run.found))
