"""Setup of the Python tests: the device under test, fresh seeds, and restoring the device's state.

HEADRACE_TEST_DEVICE    the device to test (default headrace); `cpu` checks the tests themselves on torch's CPU device,
                        and leaves out those that use torch.headrace (marked device_only)
HEADRACE_DEVICE         which driver's device "headrace" is, as everywhere; unless it is the CPU's, tests of the CPU's
                        libraries and kernels are left out (marked cpu_only)
HEADRACE_TEST_EXAMPLES  how many random programs a property is tried on (default 150, the same ones each time; a number
                        given here draws new ones in each run)
"""

import os
import sys

import hypothesis
import pytest
import torch
from support import DEVICE, DRIVER, ROOT

sys.path.insert(0, str(ROOT / "examples"))

# The reference works on small tensors; more threads would wait for each other. HEADRACE_THREADS is the device's own.
torch.set_num_threads(1)

EXAMPLES = os.environ.get("HEADRACE_TEST_EXAMPLES")

hypothesis.settings.register_profile(
    "headrace",
    max_examples=int(EXAMPLES or 150),
    derandomize=EXAMPLES is None,
    deadline=None,
    print_blob=True,
    phases=[phase for phase in hypothesis.Phase if phase != hypothesis.Phase.explain],  # it takes minutes
    database=None if EXAMPLES is None else hypothesis.settings().database,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("headrace")


def pytest_configure(config):
    config.addinivalue_line("markers", "device_only: speaks to torch.headrace; left out when another device is tested")

    config.addinivalue_line(
        "markers", "cpu_only: of the CPU's libraries or kernels; left out where HEADRACE_DEVICE is another"
    )


def pytest_collection_modifyitems(items):
    if DRIVER != "cpu":
        skip = pytest.mark.skip(reason=f"of the CPU's libraries or kernels; HEADRACE_DEVICE is {DRIVER}")
        for item in items:
            if item.get_closest_marker("cpu_only"):
                item.add_marker(skip)
    if DEVICE.type != "headrace":
        skip = pytest.mark.skip(reason=f"needs torch.headrace; HEADRACE_TEST_DEVICE is {DEVICE}")
        for item in items:
            if item.get_closest_marker("device_only"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def settle():
    """Each test starts from the same seed and in the default mode, and fails for errors of its pending work."""
    torch.manual_seed(0)
    yield
    if DEVICE.type == "headrace":
        try:
            torch.headrace.synchronize()
        finally:
            torch.headrace.set_mode("fuse")
            torch.headrace.set_fallback("error")
            torch.headrace.set_memory_limit(0)


@pytest.fixture
def device():
    return DEVICE
