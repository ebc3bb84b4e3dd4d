"""Runs one file of JAX's tests on one platform. Files whose tests want several devices (`request_cpu_devices`) get as
many of Headrace's.
"""

import os
import pathlib
import re
import sys

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASE_SECONDS = 300
# The installed JAX runs, because the checkout has no compiled part. Helpers of tests come from the checkout: no wheel
# has them.
START = """
import os, sys
sys.path[:] = filter(None, sys.path)
import headrace_jax, jax, pytest
headrace_jax.initialize()
jax._src.__path__.append(os.path.abspath("jax/_src"))
if os.environ.get("HEADRACE_JAX_NAMED"):
    from jax._src import test_util
    from jax._src.internal_test_util import export_back_compat_test_util
    name = os.environ["HEADRACE_JAX_NAMED"]
    sys.argv.append("-s")  # test_util, which is imported before, captures the process's own output
    jax.default_backend = lambda: name
    test_util._TEST_DUT._set(name)
    export_back_compat_test_util.CompatTestBase.default_jax_backend = lambda self: name
sys.exit(pytest.main(sys.argv[1:]))
"""


def environment(path, platform, options):
    found = os.environ | {
        "JAX_PLATFORMS": platform if platform == "cpu" else f"{platform},cpu",
        "PYTHONPATH": processes.python_path(ROOT / "frontends/jax"),
        "HEADRACE_JAX_NAMED": options.named or "",
    }
    wanted = re.search(r"request_cpu_devices\((\d+)\)", path.read_text())
    if wanted:
        found.setdefault("HEADRACE_CPU_DEVICES", wanted[1])
    if options.count:
        found["JAX_NUM_GENERATED_CASES"] = str(options.count)
    return found


def run_file(path, platform, options, only=None, progress=lambda cases: None):
    """The result of a file on a platform, as the JSON file has it; `only` names the cases to run."""
    command = [sys.executable, "-c", START, *processes.pytest_options(path, options, CASE_SECONDS)]
    variables, folder = environment(path, platform, options), path.parent.parent
    found = processes.run_file(path.name, command, folder, variables, options, only, progress)
    return {"platform": platform, "count": options.count} | found
