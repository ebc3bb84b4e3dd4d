"""A fixed sample of the random programs of tests/fuzz/jax_fuzz.py, on Headrace and on JAX's CPU backend."""

import os
import pathlib
import subprocess
import sys

FUZZ = pathlib.Path(__file__).resolve().parents[3] / "tests/fuzz/jax_fuzz.py"


def test_random_programs_have_the_results_of_the_cpu_backend():
    environment = os.environ | {"JAX_PLATFORMS": "headrace,cpu", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, str(FUZZ), "--programs", "25", "--seed", "1", "--jobs", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
