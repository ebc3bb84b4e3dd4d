"""Tests of JAX on the plug-in that HEADRACE_JAX_LIBRARY names; they are skipped where JAX is not installed."""

import os

import pytest

os.environ["JAX_PLATFORMS"] = "headrace"  # JAX reads these when it is imported
os.environ.setdefault("JAX_ENABLE_X64", "1")
pytest.importorskip("jax")

import headrace_jax  # noqa: E402

headrace_jax.initialize()
