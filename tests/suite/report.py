"""A plug-in of pytest: writes the outcome of each case to the file HEADRACE_SUITE_REPORT as soon as it is known, one
JSON object a line, so that a process that ends early leaves what it has done. A case that began and has no outcome was
running at the end. Cases that the file has already do not run: a second process goes on where the first one ended.

With HEADRACE_SUITE_EVERY=n one case of n runs; its name selects it, so that it is the same one each time. With
HEADRACE_SUITE_ONLY=file the cases run that the file names, one a line."""

import json
import os
import pathlib
import zlib

OUTCOMES = {}
REPORT = pathlib.Path(os.environ["HEADRACE_SUITE_REPORT"])
DONE = {json.loads(line)["case"] for line in REPORT.read_text().splitlines()} if REPORT.exists() else set()
ONLY = os.environ.get("HEADRACE_SUITE_ONLY")
NAMED = set(pathlib.Path(ONLY).read_text().splitlines()) if ONLY else None


def name_of(nodeid):
    """file.py::Class::case, with the file's name as the suite has it."""
    _, colons, rest = nodeid.partition("::")
    return os.environ["HEADRACE_SUITE_FILE"] + colons + rest


def write(**line):
    with open(REPORT, "a") as file:
        file.write(json.dumps(line) + "\n")


def first_error(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else str(report.longrepr)).strip().split("\n")[0]


def is_selected(item):
    every = int(os.environ.get("HEADRACE_SUITE_EVERY", "1"))
    is_named = NAMED is None or name_of(item.nodeid) in NAMED
    return is_named and name_of(item.nodeid) not in DONE and zlib.crc32(item.name.encode()) % every == 0


def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if not is_selected(item)])
    items[:] = filter(is_selected, items)


def pytest_runtest_logstart(nodeid):
    write(case=name_of(nodeid), outcome="began")


def pytest_runtest_logreport(report):
    was_skipped = OUTCOMES.get(report.nodeid, ("", ""))[0] == "skipped"
    if report.failed and not was_skipped:
        OUTCOMES[report.nodeid] = ("failed", first_error(report))
    elif report.skipped:
        OUTCOMES.setdefault(report.nodeid, ("skipped", ""))
    elif report.when == "call":
        OUTCOMES.setdefault(report.nodeid, ("passed", ""))
    if report.when == "teardown":
        outcome, error = OUTCOMES.pop(report.nodeid, ("passed", ""))
        write(case=name_of(report.nodeid), outcome=outcome, error=error)
