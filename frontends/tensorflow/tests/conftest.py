"""Tests of the device that TF_PLUGGABLE_DEVICE_LIBRARY_PATH names; skipped where TensorFlow is not installed."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads it when it is imported
os.environ.setdefault("HEADRACE_TF32", "off")  # on a GPU, for results as exact as those of TensorFlow's CPU device
tf = pytest.importorskip("tensorflow")


@pytest.fixture(autouse=True, scope="session")
def no_host_fallback():
    """An operation without a kernel fails instead of running on the host."""
    tf.config.set_soft_device_placement(False)


@pytest.fixture
def count_calls(monkeypatch):
    """Counts the calls of a method or function of Keras: True for those outside of functions."""

    def count(owner, name):
        calls, method = [], getattr(owner, name)

        def counted(*args, **kwds):
            calls.append(tf.executing_eagerly())
            return method(*args, **kwds)

        monkeypatch.setattr(owner, name, counted)
        return calls

    return count
