"""A fair sample of torch's own test data on the device: every eleventh operator and dtype, module and optimizer.

tests/conformance/expected_failures.txt lists today's failures. Other failures fail here, and so do listed checks that
pass: then run `tests/conformance/run.py --every 11 --update`. The checks run in processes of their own, so that a
crash or a hang is an ordinary result.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch
from support import ROOT

FOLDER = ROOT / "tests" / "conformance"


def failures(results):
    found = set()
    for unit, checks in results.items():
        found |= {(unit, check) for check, (outcome, _) in checks.items() if outcome not in ("pass", "none")}
    return found


def listed():
    found = set()
    for line in (FOLDER / "expected_failures.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            unit, *checks = line.split()
            found |= {(unit, check) for check in checks}
    return found


@pytest.mark.device_only
@pytest.mark.cpu_only
def test_sample_of_torchs_own_test_data(tmp_path):
    path = tmp_path / "results.json"
    command = [sys.executable, str(FOLDER / "run.py"), "--every", "11", "--json", str(path)]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=1200, env={**os.environ, "HEADRACE_FALLBACK": "error"}
    )
    assert path.exists(), run.stdout[-2000:] + run.stderr[-2000:]
    results = json.loads(path.read_text())
    assert len(results) > 500
    failed, expected = failures(results), listed()
    told = [f"{unit} {check}: {results[unit][check]}" for unit, check in sorted(failed - expected)]
    assert not told, "unexpected failures:\n" + "\n".join(told)
    passed = [f"{unit} {check}" for unit, check in sorted(expected - failed)]
    assert not passed, "listed in expected_failures.txt, and pass:\n" + "\n".join(passed)


@pytest.mark.device_only
@pytest.mark.cpu_only
def test_sample_of_device_generic_tests():
    """Every seventh test of device_types.py: views, dtypes, indexing, copies, texts, autograd."""
    command = [sys.executable, str(FOLDER / "device_types.py"), "--every", "7"]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "HEADRACE_FALLBACK": "error"}
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert int(run.stdout.split()[0]) > 100  # tests run


@pytest.mark.device_only
@pytest.mark.cpu_only
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_sample_of_torchs_tests_for_distributed_backends():
    command = [sys.executable, str(FOLDER / "distributed.py"), "--every", "5"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " pass" in run.stdout


@pytest.fixture
def pool():
    spec = importlib.util.spec_from_file_location("conformance_pool", FOLDER / "pool.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unit_for_the_pool(name, skip):
    """Three checks, of which the second crashes, hangs or works, as the unit is called."""
    for check in ("first", "second", "third"):
        if check in skip:
            continue
        yield "check", check
        if check == "second" and name == "crashes":
            os.abort()
        while check == "second" and name == "hangs":
            pass
        yield "done", check, "pass", ""


def test_a_crash_or_a_hang_costs_one_check(pool):
    found = {}
    for unit, check, outcome, _ in pool.run(["works", "crashes", "hangs"], unit_for_the_pool, jobs=2, seconds=2):
        if check is not None:
            found.setdefault(unit, []).append((check, outcome))
    assert found["works"] == [("first", "pass"), ("second", "pass"), ("third", "pass")]
    assert found["crashes"] == [("first", "pass"), ("second", "crash"), ("third", "pass")]
    assert found["hangs"] == [("first", "pass"), ("second", "hang"), ("third", "pass")]
