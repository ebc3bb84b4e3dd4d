"""Samples of the tests of the package onnx, on imported models; `make onnx` runs all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ONEDNN = Path(sys.prefix) / "lib/libdnnl.so.3"


def find_library() -> str:
    """The core that the package has loaded."""
    import headrace

    headrace.array(0)
    mapped = Path("/proc/self/maps").read_text().split()
    return next(name for name in mapped if "/libheadrace.so" in name)


def run(script, count):
    pytest.importorskip("onnx")
    environment = os.environ | ({"HEADRACE_ONEDNN": str(ONEDNN)} if ONEDNN.exists() else {})
    command = [sys.executable, str(ROOT / "tests/onnx" / script), "--library", find_library(), "--sample", str(count)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_sample_of_the_node_tests():
    run("run.py", 200)


def test_a_sample_of_the_node_tests_with_symbols():
    run("symbols.py", 200)
