"""A sample of the tests of the package onnx, on imported models; `make onnx` runs all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build/release/libheadrace.so"


@pytest.mark.skipif(not LIBRARY.exists(), reason="the core is not built in build/release")
def test_a_sample_of_the_node_tests():
    pytest.importorskip("onnx")
    command = [sys.executable, str(ROOT / "tests/onnx/run.py"), "--library", str(LIBRARY), "--sample", "200"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
