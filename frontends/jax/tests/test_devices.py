"""Runs several_devices.py in a process with four devices."""

import os
import pathlib
import subprocess
import sys


def test_several_devices():
    cases = pathlib.Path(__file__).with_name("several_devices.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(cases)]
    environment = os.environ | {"HEADRACE_CPU_DEVICES": "4"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
