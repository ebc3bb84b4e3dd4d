"""A plug-in of pytest: writes the outcome of each case to the file HEADRACE_JAX_REPORT as soon as it is known, one JSON
object a line, so that a process that ends early leaves what it has done. A case that began and has no outcome was
running at the end. With HEADRACE_JAX_EVERY=n one case of n runs; its name selects it, so that it is the same one each
time."""

import json
import os
import zlib

OUTCOMES = {}


def write(**line):
    with open(os.environ["HEADRACE_JAX_REPORT"], "a") as file:
        file.write(json.dumps(line) + "\n")


def first_error(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else str(report.longrepr)).strip().split("\n")[0]


def is_selected(item):
    every = int(os.environ.get("HEADRACE_JAX_EVERY", "1"))
    return zlib.crc32(item.name.encode()) % every == 0


def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if not is_selected(item)])
    items[:] = filter(is_selected, items)


def pytest_runtest_logstart(nodeid):
    write(case=nodeid, outcome="began")


def pytest_runtest_logreport(report):
    if report.failed:
        OUTCOMES[report.nodeid] = ("failed", first_error(report))
    elif report.skipped:
        OUTCOMES.setdefault(report.nodeid, ("skipped", ""))
    elif report.when == "call":
        OUTCOMES.setdefault(report.nodeid, ("passed", ""))
    if report.when == "teardown":
        outcome, error = OUTCOMES.pop(report.nodeid, ("passed", ""))
        write(case=report.nodeid, outcome=outcome, error=error)
