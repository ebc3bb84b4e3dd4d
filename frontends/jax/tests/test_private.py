"""The names of JAX that are not public."""

import importlib

import pytest
from headrace_jax import _private


@pytest.mark.parametrize(("module", "name", "kind"), _private.NAMES)
def test_the_installed_jax_has_the_name(module, name, kind):
    found = getattr(importlib.import_module(module), name)
    assert callable(found) if kind is None else isinstance(found, kind)


def test_every_private_name_is_listed():
    """No other file of the package imports from jax._src."""
    import pathlib

    import headrace_jax

    folder = pathlib.Path(headrace_jax.__file__).parent
    users = {path.name for path in folder.glob("*.py") if "jax._src" in path.read_text()}
    assert users == {"_private.py"}


def test_buffers_may_be_donated():
    from jax._src.interpreters import mlir

    assert "headrace" in mlir._platforms_with_donation
