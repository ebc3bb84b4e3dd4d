"""The `headrace` command, on the example of docs: lines of a profile, and what `explain` says and draws."""

import os
import re
import subprocess

import pytest
from support import ROOT

STEP = ROOT / "docs" / "step.hr"
TOOLS = sorted(ROOT.glob("build/*/bin/headrace"), key=os.path.getmtime)
pytestmark = pytest.mark.skipif(not TOOLS, reason="the command is not built")

LINE = re.compile(
    r"headrace: +(?P<us>\d+\.\d) us +(?P<mb>\d+\.\d{3}) MB +(?P<gbs>\d+\.\d) GB/s +(?P<share>\d+) %"
    r"(?: +(?P<gflops>\d+\.\d) GFLOP/s +\d+ %)?  (?P<name>\S[^,]*)(?:, (?P<rest>.*))?"
)


def run(*arguments, code=0, **environment):
    done = subprocess.run(
        [TOOLS[-1], *map(str, arguments)], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_profile_has_a_line_for_each_kernel_with_time_bytes_and_shares():
    lines = run("run", STEP, HEADRACE_DEBUG="2", HEADRACE_JIT="off").stderr.splitlines()
    machine = [re.fullmatch(r"headrace: this machine reads (\d+) GB/s, \d+ threads, (\d+) GFLOP/s f32", line) for line in lines]
    machine = [match for match in machine if match]
    assert len(machine) == 1 and int(machine[0][1]) > 0 and int(machine[0][2]) > 0
    kernels = [match for match in map(LINE.fullmatch, lines) if match]
    update = kernels[-1]
    assert update["name"] == "sub_scaled" and update["rest"] == "32x16" and float(update["mb"]) == 0.006
    assert float(update["gbs"]) == pytest.approx(6144e-3 / float(update["us"]), rel=0.3)  # both are rounded
    # without the library the products are loops, which are no products of a library's
    for kernel in kernels:
        assert (kernel["gflops"] is None) == (" by " not in kernel["name"])
