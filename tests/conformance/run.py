"""Conformance of the PyTorch device: every operator, module and optimizer in torch's own test data against torch's
CPU device.

usage: run.py [--quick] [--only NAME ...] [--dtypes float32,int64] [--kinds op,module,optim] [--checks forward,grad]
              [--jobs N] [--seconds N] [--every K [--update]] [--report] [--verbose]

    run.py --quick                 float32, forward and gradient: some minutes
    run.py --only add 'fft*'       these entries, everything, with details
    run.py --report                all of it; writes docs/coverage.md and build/conformance.json
    run.py --every 11 --update     rewrites expected_failures.txt with what the sample of the tests gives now

Failures are grouped by the missing operator. `fallback`: the check passes with HEADRACE_FALLBACK=allow. There are two
files beside this one: exceptions.txt lists the checks that can't be compared, with a reason in each row;
expected_failures.txt lists the failures of the sample in `make test` today, which must shrink.
"""

import argparse
import collections
import fnmatch
import functools
import json
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("HEADRACE_JIT", "off")  # thousands of programs that run once; their compiled bits are the same
os.environ.setdefault("HEADRACE_THREADS", "1")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(1)  # before anything is computed: a pool of threads does not survive a fork

import headrace.torch  # noqa: E402, F401
import modules  # noqa: E402
import operators  # noqa: E402
import optimizers  # noqa: E402
import pool  # noqa: E402
import report  # noqa: E402

KINDS = {"op": operators, "module": modules, "optim": optimizers}
SECONDS = 120
# Checks of the same computation in another form have its rows of exceptions.txt, if none of their own.
ALSO_OF = {"method": ["forward"], "vmap": ["forward"], "jvp": ["grad", "forward"]}
EVERY = 11  # the sample in `make test`


@functools.cache
def entries(kind):
    return KINDS[kind].entries()


def dtype_named(name):
    return getattr(torch, name)


def dtypes_of(kind, entry):
    if kind == "op":
        found = entry.supported_dtypes("cpu")
    else:
        found = {torch.float32, torch.float64}
    return sorted(str(dtype).removeprefix("torch.") for dtype in found)


def all_units():
    """Every (kind, entry, dtype), as kind:entry:dtype, in a fixed order."""
    return [
        f"{kind}:{name}:{dtype}"
        for kind in KINDS
        for name, entry in entries(kind).items()
        for dtype in dtypes_of(kind, entry)
    ]


def sample_units(every=EVERY):
    """A fair sample: every k-th unit of the whole list."""
    return all_units()[::every]


@functools.cache
def exceptions():
    """The rows [(pattern of kind:entry:dtypes, checks or *, what, reason)] of exceptions.txt."""
    rows = []
    for line in (HERE / "exceptions.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            head, reason = line.split("|", 1)
            pattern, check, what = head.split()
            rows.append((pattern, check, what, reason.strip()))
    return rows


def exception_for(unit, check):
    name, dtype = unit.rsplit(":", 1)
    for wanted in (check, *ALSO_OF.get(check, ())):
        for pattern, checks, what, reason in exceptions():
            names, dtypes = pattern.rsplit(":", 1)
            is_unit = fnmatch.fnmatchcase(name, names) and any(fnmatch.fnmatchcase(dtype, d) for d in dtypes.split(","))
            if is_unit and (checks == "*" or wanted in checks.split(",")):
                return what, reason
    return None, ""


def run_unit(unit, skip, checks=None, fallback=False):
    """Runs in a child: the checks of one unit, each reported as it begins and ends."""
    kind, name, dtype = unit.split(":")
    module, entry, dtype = KINDS[kind], entries(kind)[name], dtype_named(dtype)
    for check in module.CHECKS:
        if checks and check not in checks or not module.applies(entry, dtype, check):
            continue
        what, reason = exception_for(unit, check)
        if check not in skip:
            if what == "skip":
                yield "done", check, "none", reason
                continue
            yield "check", check
            outcome, detail = module.run_check(entry, dtype, check, what)
            yield "done", check, outcome, detail
            if outcome != "missing" or not fallback:
                continue
        again = check + " with fallback"
        if fallback and again not in skip and check in skip:
            continue
        if fallback and again not in skip:
            yield "check", again
            torch.headrace.set_fallback("allow")
            try:
                outcome, detail = module.run_check(entry, dtype, check, what)
            finally:
                torch.headrace.set_fallback("error")
            yield "done", again, outcome, detail


def run(units, jobs, checks=None, fallback=False, seconds=SECONDS, progress=True, quiet=True):
    """{unit: {check: [outcome, detail]}}"""
    for kind in KINDS:
        entries(kind)  # before the fork
    results, done, begun = {unit: {} for unit in units}, 0, time.monotonic()
    counts = collections.Counter()
    work = functools.partial(run_unit, checks=checks, fallback=fallback)
    for unit, check, outcome, detail in pool.run(units, work, jobs, seconds, quiet):
        if check is not None:
            results[unit][check] = [outcome, detail]
            counts[outcome] += " with " not in check
            continue
        done += 1
        if progress and (sys.stderr.isatty() or done % 50 == 0 or done == len(units)):
            show_progress(done, len(units), counts, time.monotonic() - begun)
    if progress:
        print(file=sys.stderr)
    return results


def show_progress(done, total, counts, seconds):
    width = 30
    bar = ("#" * (width * done // total)).ljust(width)
    left = seconds / done * (total - done)
    said = " ".join(f"{counts[o]} {o}" for o in ("pass", "missing", "wrong", "error", "crash", "hang") if counts[o])
    print(f"\r[{bar}] {done}/{total} units, {said}, {left:.0f} s left  ", end="", file=sys.stderr, flush=True)


# ---- the sample in the tests


def failures(results):
    """{unit: the checks that do not pass}"""
    found = {}
    for unit, checks in results.items():
        failed = sorted(c for c, (outcome, _) in checks.items() if outcome not in ("pass", "none"))
        if failed:
            found[unit] = failed
    return found


def expected_failures():
    found = {}
    for line in (HERE / "expected_failures.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            unit, *checks = line.split()
            found[unit] = sorted(checks)
    return found


def write_expected_failures(results):
    head = (
        "# Failures of the sample of `make test`: unit, then its checks. It must shrink: passing checks are removed\n"
        f"# (tests/conformance/run.py --every {EVERY} --update), and it grows only with new operators of torch.\n"
    )
    rows = [f"{unit} {' '.join(checks)}\n" for unit, checks in sorted(failures(results).items())]
    (HERE / "expected_failures.txt").write_text(head + "".join(rows))


# ---- the command


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--dtypes", default="")
    parser.add_argument("--kinds", default="op,module,optim")
    parser.add_argument("--checks", default="")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--json", default="")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def wanted_units(options):
    units = sample_units(options.every) if options.every else all_units()
    kinds = options.kinds.split(",")
    dtypes = options.dtypes.split(",") if options.dtypes else ["float32"] if options.quick else []
    chosen = []
    for unit in units:
        kind, name, dtype = unit.split(":")
        base = entries(kind)[name].name if kind != "optim" else name
        asked = not options.only or any(fnmatch.fnmatchcase(n, p) for p in options.only for n in (name, base))
        if kind in kinds and asked and (not dtypes or dtype in dtypes):
            chosen.append(unit)
    return chosen


def main():
    options = arguments()
    units = wanted_units(options)
    checks = options.checks.split(",") if options.checks else None
    if options.quick and checks is None:
        checks = [*operators.QUICK, *modules.CHECKS, *optimizers.CHECKS]
    results = run(units, options.jobs, checks, options.report, options.seconds, quiet=not options.verbose)
    print(report.summary(results))
    if options.only or options.verbose:
        print(report.details(results))
    else:
        print(report.missing_operators(results))
    if options.update:
        write_expected_failures(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=0))
    if options.report:
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build" / "conformance.json").write_text(json.dumps(results, indent=0))
        (ROOT / "docs" / "coverage.md").write_text(report.document(results, exceptions()))
    return 1 if any(outcome in ("wrong", "crash", "hang") for c in results.values() for outcome, _ in c.values()) else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
