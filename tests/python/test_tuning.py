"""Algorithms of a library's operation, timed while programs repeat: results keep their bits within a process, are
right in all processes, and the timings are on disk for the next one."""

import json
import os
import subprocess
import sys

import pytest
from support import ROOT

pytestmark = pytest.mark.cpu_only

SCRIPT = r"""
import json, sys, torch
torch.use_deterministic_algorithms(sys.argv[2] == "deterministic")
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(8, 24, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(24, 40, 1), torch.nn.ReLU(),
    torch.nn.Conv2d(40, 24, 3, padding=1, stride=2), torch.nn.Flatten(), torch.nn.Linear(24 * 8 * 8, 50))
x = torch.randn(4, 8, 16, 16)
expected = model(x)
expected.square().mean().backward()
gradients = [p.grad.clone() for p in model.parameters()]
there, y = model.to("headrace"), x.to("headrace")
results = set()
for step in range(int(sys.argv[1])):
    there.zero_grad()
    out = there(y)
    out.square().mean().backward()
    made = [out.detach().cpu(), *(p.grad.cpu() for p in there.parameters())]
    results.add(b"".join(t.numpy().tobytes() for t in made))
for a, b in zip(made, [expected.detach(), *gradients]):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
print(json.dumps(len(results)))
"""


def run(folder, choices: str, steps: int, kind: str = "any") -> int:
    """How many different results the steps gave."""
    environment = dict(os.environ, HEADRACE_CACHE=str(folder), HEADRACE_TUNING=choices, HEADRACE_JIT="off")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(steps), kind],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kept(folder) -> set[str]:
    return {path.name for path in (folder / "headrace-kernels").glob("*.choice")}


def test_results_stay_the_same_while_ways_are_measured(tmp_path):
    tmp_path.chmod(0o700)
    measured = set()
    for _ in range(4):  # beside other programs fewer ways are measured
        assert run(tmp_path, "measure", 1500) == 1
        measured = kept(tmp_path)
        if measured:
            break
    assert measured, "nothing was measured in 4 times 1500 steps"
    assert run(tmp_path, "measure", 300) == 1
    assert measured <= kept(tmp_path)


@pytest.mark.parametrize("choices", ["read", "off"])
def test_nothing_is_measured_where_nobody_asks_for_it(tmp_path, choices):
    tmp_path.chmod(0o700)
    assert run(tmp_path, choices, 100) == 1
    assert not kept(tmp_path)


def test_deterministic_algorithms_are_not_chosen_by_measurement(tmp_path):
    """Another process's timings are not read: there is nothing to read, and nothing is added."""
    tmp_path.chmod(0o700)
    assert run(tmp_path, "measure", 300, "deterministic") == 1
    assert not kept(tmp_path)
