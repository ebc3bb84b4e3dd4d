"""A fixed sample of the random programs of tests/fuzz/jax_fuzz.py, on Headrace and on JAX's CPU backend."""

import os
import pathlib
import subprocess
import sys

import numpy as np

FUZZ = pathlib.Path(__file__).resolve().parents[3] / "tests/fuzz/jax_fuzz.py"


def test_random_programs_have_the_results_of_the_cpu_backend():
    environment = os.environ | {"JAX_PLATFORMS": "headrace,cpu", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, str(FUZZ), "--programs", "25", "--seed", "1", "--jobs", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_largest_of_two_zeros_may_have_another_sign(monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ.parent))
    from jax_compare import compare

    one = np.array([0, 1], np.float32)
    for kind, got, verdict in (("exact", -0.0, "value"), ("order", -0.0, None), ("order", np.float32(1e-30), "value")):
        found = compare(kind, np.array([got, 1], np.float32), one, [one], lambda: None, lambda: None)
        assert found is None if verdict is None else found[0] == verdict
