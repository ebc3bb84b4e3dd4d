"""scripts/progress.py: what it shows of a command, and what it does if the command fails."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "progress.py"


def run(*command):
    return subprocess.run([sys.executable, SCRIPT, "work", *command], capture_output=True, text=True, check=False)


def test_progress_replaces_the_output():
    done = run(sys.executable, "-c", "print('[7/9] Building C object'); print('noise')")
    first, *_, last = done.stdout.splitlines()
    assert done.returncode == 0
    assert first.startswith("work, 0 s")
    assert last.startswith("work: done, ")
    assert "noise" not in done.stdout + done.stderr


def test_a_failure_shows_the_output_and_its_status():
    done = run(sys.executable, "-c", "print('the reason'); raise SystemExit(3)")
    assert done.returncode == 3
    assert "work: failed" in done.stdout
    assert "the reason" in done.stderr


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("  [12/345] Building CXX object frontends/torch/x.o", "12 of 345"),
        ("Collecting torch==2.13.0 (from -r requirements-dev.txt (line 2))", "looks up torch==2.13.0"),
        ("  Downloading numpy-2.4.6.whl (16.6 MB)", "downloads numpy-2.4.6.whl (16.6 MB)"),
        ("  Downloading https://example.org/a/numpy-2.4.6.whl (16.6 MB)", "downloads numpy-2.4.6.whl (16.6 MB)"),
        ("Installing collected packages: torch", "unpacks the packages"),
        ("something else", None),
    ],
)
def test_lines_of_ninja_and_pip(line, status):
    spec = importlib.util.spec_from_file_location("progress", SCRIPT)
    progress = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(progress)
    assert progress.status_of(line) == status
