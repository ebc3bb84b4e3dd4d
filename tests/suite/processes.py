"""Runs one file of another project's tests, in processes that end each other's place: for tests/jax_suite,
tests/keras_suite and tests/tf_suite.

A process that crashes, hangs or takes too much memory ends; the case that was running has failed, and another process
goes on with the next one. `options` has `seconds` of a file, `megabytes` of a process, `every`, which selects cases,
and may have `done`, {case: [outcome, error]} of a run that was cut: its cases do not run again.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
PROCESSES_MAX = 20  # of one file; a file that crashes more often is broken
PAGE = os.sysconf("SC_PAGE_SIZE")


def python_path(*more):
    """PYTHONPATH with the plug-in of pytest."""
    return os.pathsep.join(filter(None, (str(FOLDER), *map(str, more), os.environ.get("PYTHONPATH"))))


def pytest_options(path, options, case_seconds):
    found = ["-q", "-p", "no:cacheprovider", "-p", "report", str(path)]
    found += ["-o", f"faulthandler_timeout={case_seconds}", "-o", "faulthandler_exit_on_timeout=true"]
    return found + (["-k", options.select] if options.select else [])


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


def write_report(report, done):
    lines = [{"case": case, "outcome": outcome, "error": error} for case, (outcome, error) in done.items()]
    report.write_text("".join(json.dumps(line) + "\n" for line in lines))


def resident_bytes(process):
    try:
        return int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


class Process:
    """One process of pytest. `end` has the reason if it did not run all cases."""

    def __init__(self, command, folder, variables, deadline, options, progress):
        self.peak, self.end = 0, ""
        with tempfile.TemporaryFile("w+") as output:
            pipes = {"stdout": output, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(command, env=variables, cwd=folder, **pipes)
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
        return "a case took too long"
    return f"ended by signal {-code}" if code < 0 else f"ended with {code}: {output.strip()[-600:]}"


def run_cases(command, folder, report, variables, options, progress):
    """(cases, peak of memory in bytes, why the file did not end)"""
    deadline, peak, lost = time.monotonic() + options.seconds, 0, {}
    for _ in range(PROCESSES_MAX):
        process = Process(command, folder, variables, deadline, options, progress)
        peak, running = max(peak, process.peak), read_report(report)[1]
        if not process.end or not running or running in lost:
            break
        lost[running] = ["failed", f"the process {process.end}"]
        if time.monotonic() > deadline:
            break
    return read_report(report)[0] | lost, peak, process.end


def run_file(name, command, folder, variables, options, only=None, progress=lambda cases: None):
    """The result of a file that runs in a folder by a command, as JSON files have it; `only` names the cases to run."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        report = pathlib.Path(temporary, "report.jsonl")
        write_report(report, getattr(options, "done", {}))
        variables = variables | {"HEADRACE_SUITE_REPORT": str(report), "HEADRACE_SUITE_FILE": name}
        variables["HEADRACE_SUITE_EVERY"] = str(options.every)
        if only is not None:
            pathlib.Path(temporary, "only").write_text("\n".join(only))
            variables["HEADRACE_SUITE_ONLY"] = str(pathlib.Path(temporary, "only"))
        count = lambda: progress(len(read_report(report)[0]))  # noqa: E731
        cases, peak, end = run_cases(command, folder, report, variables, options, count)
    seconds = round(time.monotonic() - begin, 1)
    return {"file": name, "seconds": seconds, "peak_megabytes": peak >> 20, "end": end, "cases": cases}
