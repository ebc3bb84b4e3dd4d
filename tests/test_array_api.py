"""tests/conformance/array_api.py judges outcomes by the list of docs/array-api.md; on a stand-in of the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests/conformance/array_api.py"
OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--disable-deadline", action="store_true")
    parser.addoption("--derandomize", action="store_true")
    parser.addoption("--max-examples", type=int)
"""
TESTS = """
import os
import pytest
def test_passes(request):
    assert request.config.getoption("--derandomize") and request.config.getoption("--max-examples") == 100
    assert os.environ["ARRAY_API_TESTS_MODULE"] == "headrace" and os.environ["ARRAY_API_TESTS_VERSION"] == "2024.12"
def test_fails():
    raise ValueError("17 dims")
@pytest.mark.skip
def test_skipped():
    pass
"""


@pytest.fixture
def checkout(tmp_path):
    pytest.importorskip("pytest_jsonreport")
    for folder in ("array_api_tests", "array-api/src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "array_api_tests/test_all.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(OPTIONS)
    return tmp_path


def run(tmp_path, rows, *options):
    """The runner with a page of these rows."""
    page = tmp_path / "page.md"
    page.write_text("\n".join(f"| `{test}` | {reason} |" for test, reason in rows.items()))
    code = f"import sys, pathlib; sys.path.insert(0, {str(SCRIPT.parent)!r}); import array_api; "
    code += f"array_api.read_exceptions.__defaults__ = (pathlib.Path({str(page)!r}),); array_api.main()"
    environment = {key: value for key, value in os.environ.items() if key != "HEADRACE_ARRAY_API_SOURCE"}
    command = [sys.executable, "-c", code, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_failures_are_expected_if_they_are_listed(checkout):
    done = run(checkout, {"test_all.py::test_fails": "at most 16 dims"}, "--source", str(checkout))
    assert "3 tests: 1 expected to fail, 1 passed, 1 skipped" in done.stdout and done.returncode == 0


def test_other_failures_fail(checkout):
    done = run(checkout, {}, "--source", str(checkout))
    assert "test_all.py::test_fails: ValueError: 17 dims" in done.stdout and done.returncode == 1


def test_passes_of_the_list_fail(checkout):
    rows = {"test_all.py::test_fails": "dims", "test_all.py::test_passes": "old", "test_all.py::test_gone": "older"}
    done = run(checkout, rows, "--source", str(checkout))
    assert "test_all.py::test_passes: passed, and is listed" in done.stdout
    assert "test_all.py::test_gone: does not exist" in done.stdout and done.returncode == 1
    done = run(checkout, rows, "--source", str(checkout), "--only", "test_all.py::test_fails")
    assert "1 tests: 1 expected to fail" in done.stdout and done.returncode == 0


def test_without_a_checkout_the_tests_are_not_run(tmp_path):
    assert "array-api-tests: not run: set HEADRACE_ARRAY_API_SOURCE" in run(tmp_path, {}).stdout
    done = run(tmp_path, {}, "--source", str(tmp_path))
    assert "array_api_tests is no folder" in done.stdout and done.returncode == 0
