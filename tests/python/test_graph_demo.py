"""The demonstration of graphs: a short run of it."""

import subprocess
import sys

import pytest
from support import ROOT


def test_a_short_run(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("sklearn")
    command = [sys.executable, ROOT / "examples/graph_demo.py", "--folder", tmp_path, "--batch", "256"]
    done = subprocess.run([*command, "--output", tmp_path / "x.png"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {line[:28].strip(): line[28:].split() for line in done.stdout.splitlines() if len(line) > 28}
    first, last = ([float(x) for x in rows[name]] for name in ("first loss", "last loss"))
    assert abs(first[0] - first[1]) < 1e-5 and abs(last[0] - last[1]) < 1e-4 and last[1] < first[1]
    assert "scores differ by" in done.stdout and (tmp_path / "x.png").stat().st_size > 10_000
    assert (tmp_path / "cnn.hrpkg").exists()
