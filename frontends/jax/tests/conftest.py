"""Tests of JAX on the plug-in that HEADRACE_JAX_LIBRARY names; they are skipped where JAX is not installed."""

import os

import pytest

os.environ["JAX_PLATFORMS"] = "headrace"  # JAX reads these when it is imported
os.environ.setdefault("JAX_ENABLE_X64", "1")
pytest.importorskip("jax")

import headrace_jax  # noqa: E402

headrace_jax.initialize()


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "cpu: not for other devices. Memory is of one kind and not the host's there, contexts don't survive forks, "
        "calls that run are not interrupted, libraries multiply the padding of convolutions",
    )


def pytest_collection_modifyitems(items):
    if os.environ.get("HEADRACE_DEVICE", "cpu") != "cpu":
        for item in items:
            if item.get_closest_marker("cpu"):
                item.add_marker(pytest.mark.skip(reason="for the CPU alone"))
