"""Runs several_devices.py in a process with four devices of the host, two_devices.py in one with two of any kind."""

import os
import pathlib
import subprocess
import sys

import jax
import pytest


def run(name, count):
    cases = pathlib.Path(__file__).with_name(name)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(cases)]
    environment = os.environ | {"HEADRACE_CPU_DEVICES": str(count)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.cpu
def test_several_devices():
    run("several_devices.py", 4)


def test_two_devices():
    is_host = os.environ.get("HEADRACE_DEVICE", "cpu") == "cpu"
    if not is_host and len(jax.devices()) < 2:
        pytest.skip("there is one device")
    run("two_devices.py", 2)
