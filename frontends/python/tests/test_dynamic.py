"""One session and many sizes: memory stays, and kernels are compiled once (bench/sessions.py)."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench"


def run(code, folder, **environment):
    environment = {**os.environ, "HEADRACE_CACHE": str(folder), "HEADRACE_THREADS": "1", **environment}
    text = f"import json, sys; sys.path.insert(0, {str(BENCH)!r}); import sessions; print(json.dumps(list({code})))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


def test_memory_of_many_sizes_is_steady(folder):
    rows = run("sessions.time_lengths(passes=8, lengths=40)", folder)
    steady = rows[-1][1]
    assert all(mib < steady * 1.1 for _, mib, _ in rows)
    assert all(mib > steady * 0.9 for _, mib, _ in rows[5:])  # programs and primitives have been kept since the sixth


def test_a_new_batch_compiles_no_kernel(folder):
    rows = run("sessions.count_kernels(batches=(64, 100, 33, 7, 200))", folder, HEADRACE_JIT="wait")
    assert sum(kernels for _, kernels, _ in rows[:2]) > 0
    assert [kernels for _, kernels, _ in rows[2:]] == [0, 0, 0]


def test_a_new_batch_of_a_classifier_compiles_no_kernel(folder):
    """A softmax of few classes is an element-wise kernel over the batch alone."""
    new = (7, 33, 3, 256, 16, 5, 9, 11, 60, 70, 80, 2, 4, 6, 12, 20, 24, 31, 90, 128)
    rows = run(f"sessions.count_kernels(batches=(64, 100, *{new}), has_classes=True)", folder, HEADRACE_JIT="wait")
    assert sum(kernels for _, kernels, _ in rows[:2]) > 0
    assert [kernels for _, kernels, _ in rows[2:]] == [0] * len(new)
