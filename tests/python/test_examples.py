"""The short programs of examples/ run, print the expected output, and stay under 30 lines. The one in C is a ctest."""

import os
import subprocess
import sys

import pytest
from support import DEVICE, ROOT

EXPECTED = {
    "first": ["tensor([0., 0., 1., 2., 3.]", "6 operations ran as 2 kernels; 1 program was compiled"],
    "train": ["step   0: loss 0.7", "accuracy "],
    "timing": ["cpu ", "headrace "],
    "softshrink": [
        "plain  9 operations, groups: 2",
        "kernel 8 operations, groups: 1, commits: 1",
        "in C   3 operations, groups: 3, commits: 1",
        "equal: True",
    ],
    "compiled": ["largest difference: ", "1 graph captured, 3 runs, 1 commit"],
}

pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="the examples are about the device")


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name):
    program = f"import headrace.torch, runpy; runpy.run_path('examples/{name}.py', run_name='__main__')"
    environment = os.environ | {"HEADRACE_DEVICE": "cpu"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    for text in EXPECTED[name]:
        assert text in done.stdout, done.stdout


def test_they_are_short():
    names = [f"{name}.py" for name in EXPECTED] + ["c/first.c"]
    lengths = {name: len((ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()) for name in names}
    assert len(lengths) == 6 and max(lengths.values()) < 30, lengths
