"""Runs one file of JAX's tests on one platform, in processes that end each other's place.

A process that crashes, hangs or takes too much memory ends; the case that was running has failed, and another process
goes on with the next one. Files whose tests want several devices (`request_cpu_devices`) get as many of Headrace's.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
CASE_SECONDS = 300
PROCESSES_MAX = 20  # of one file; a file that crashes more often is broken
PAGE = os.sysconf("SC_PAGE_SIZE")
# The installed JAX, not the checkout's, whose compiled part is missing.
START = """
import os, sys
sys.path[:] = filter(None, sys.path)
import headrace_jax, jax, pytest
headrace_jax.initialize()
if os.environ.get("HEADRACE_JAX_NAMED"):
    from jax._src import test_util
    from jax._src.internal_test_util import export_back_compat_test_util
    name = os.environ["HEADRACE_JAX_NAMED"]
    sys.argv.append("-s")  # test_util, which is imported before, captures the process's own output
    jax.default_backend = lambda: name
    test_util._TEST_DUT._set(name)
    export_back_compat_test_util.CompatTestBase.default_jax_backend = lambda self: name
sys.exit(pytest.main(sys.argv[1:]))
"""


def environment(path, platform, report, options):
    paths = (str(FOLDER.parents[1] / "frontends/jax"), str(FOLDER), os.environ.get("PYTHONPATH"))
    found = os.environ | {
        "JAX_PLATFORMS": platform if platform == "cpu" else f"{platform},cpu",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HEADRACE_JAX_REPORT": str(report),
        "HEADRACE_JAX_NAMED": options.named or "",
        "HEADRACE_JAX_EVERY": str(options.every),
    }
    wanted = re.search(r"request_cpu_devices\((\d+)\)", path.read_text())
    if wanted:
        found.setdefault("HEADRACE_CPU_DEVICES", wanted[1])
    if options.count:
        found["JAX_NUM_GENERATED_CASES"] = str(options.count)
    return found


def read_report(report):
    """{case: [outcome, error]}, and the name of the case that was running at the end, if one was."""
    cases, running = {}, None
    for line in report.read_text().splitlines() if report.exists() else ():
        found = json.loads(line)
        running = found["case"] if found["outcome"] == "began" else None
        if not running:
            cases[found["case"]] = [found["outcome"], found["error"]]
        else:
            cases.setdefault(running, ["began", ""])
    return cases, running


def resident_bytes(process):
    try:
        return int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


class Process:
    """One process of pytest. `end` has the reason if it did not run all cases."""

    def __init__(self, command, path, variables, deadline, options, progress):
        self.peak, self.end = 0, ""
        with tempfile.TemporaryFile("w+") as output:
            pipes = {"stdout": output, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(command, env=variables, cwd=path.parent.parent, **pipes)
            try:
                self.watch(process, deadline, options.megabytes << 20, progress)
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            self.end = self.end or describe_end(process.returncode, output.read())

    def watch(self, process, deadline, bytes_max, progress):
        while process.poll() is None and not self.end:
            self.peak = max(self.peak, resident_bytes(process))
            if self.peak > bytes_max:
                self.end = f"took more than {bytes_max >> 20} MB"
            elif time.monotonic() > deadline:
                self.end = "took too long"
            progress()
            time.sleep(0.2)


def describe_end(code, output):
    """How a process ended, if it has not run all cases. Without any pytest's status is 5."""
    if code == 5 or code >= 0 and re.search(r"\d+ (passed|failed|skipped|deselected)\b.* in ", output):
        return ""
    if "Timeout (" in output:
        return f"a case took more than {CASE_SECONDS} s"
    return f"ended by signal {-code}" if code < 0 else f"ended with {code}: {output.strip()[-600:]}"


def command_for(path, options):
    command = [sys.executable, "-c", START, "-q", "-p", "no:cacheprovider", "-p", "report", str(path)]
    command += ["-o", f"faulthandler_timeout={CASE_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
    return command + (["-k", options.select] if options.select else [])


def run_cases(path, report, variables, options, progress):
    """(cases, peak of memory in bytes, why the file did not end)"""
    deadline, peak, lost = time.monotonic() + options.seconds, 0, {}
    for _ in range(PROCESSES_MAX):
        process = Process(command_for(path, options), path, variables, deadline, options, progress)
        peak, running = max(peak, process.peak), read_report(report)[1]
        if not process.end or not running or running in lost:
            break
        lost[running] = ["failed", f"the process {process.end}"]
        if time.monotonic() > deadline:
            break
    return read_report(report)[0] | lost, peak, process.end


def run_file(path, platform, options, only=None, progress=lambda cases: None):
    """The result of a file on a platform, as the JSON file has it; `only` names the cases to run."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.jsonl")
        variables = environment(path, platform, report, options)
        if only is not None:
            pathlib.Path(folder, "only").write_text("\n".join(only))
            variables["HEADRACE_JAX_ONLY"] = str(pathlib.Path(folder, "only"))
        count = lambda: progress(len(read_report(report)[0]))  # noqa: E731
        cases, peak, end = run_cases(path, report, variables, options, count)
    seconds = round(time.monotonic() - begin, 1)
    done = {"file": path.name, "platform": platform, "count": options.count, "seconds": seconds}
    return done | {"peak_megabytes": peak >> 20, "end": end, "cases": cases}
