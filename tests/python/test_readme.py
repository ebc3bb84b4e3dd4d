"""The README's first lines of Python print the output shown, and the rest of its Python runs."""

import os
import re
import subprocess
import sys

import pytest
from support import DEVICE, ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
PYTHON = [text for language, text in BLOCKS if language == "python"]
# Names that a snippet uses from the surrounding text.
PREPARED = """
import time
import headrace.torch, torch
model = torch.nn.Linear(4, 4).to("headrace")
def step():
    return model(torch.ones(2, 4, device="headrace"))
"""

pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="the README is about the device")


def run(program, device="cpu"):
    environment = os.environ | {"HEADRACE_DEVICE": device}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def test_first_lines_print_what_is_below_them():
    program, (language, printed) = PYTHON[0], BLOCKS[1]
    assert language == "" and len(program.splitlines()) == 6
    done = run("import headrace.torch\n" + program)
    assert done.stdout == printed, done.stderr


@pytest.mark.parametrize("index", range(1, len(PYTHON)))
def test_other_snippets_run(index):
    done = run(PREPARED + PYTHON[index])
    assert done.returncode == 0, done.stderr
