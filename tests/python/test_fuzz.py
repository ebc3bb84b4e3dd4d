"""A sample of the differential fuzzer, tests/fuzz/torch_fuzz.py. Others by HEADRACE_TEST_SEED and `make fuzz-torch`."""

import os
import subprocess
import sys

import pytest
from support import ROOT

pytestmark = [pytest.mark.device_only, pytest.mark.cpu_only]


def test_random_programs_agree_with_torch_and_between_modes():
    command = [sys.executable, ROOT / "tests/fuzz/torch_fuzz.py", "--programs", "200", "--jobs", "2", "--no-minimise"]
    environment = os.environ | {"HEADRACE_TEST_SEED": os.environ.get("HEADRACE_TEST_SEED", "1"), "HEADRACE_JIT": "off"}
    found = subprocess.run([*command, "--minutes", "1"], env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
