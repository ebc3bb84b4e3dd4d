"""Every name of JAX that is not public, in one place. tests/test_private.py holds them against the installed JAX."""

import importlib
import warnings

# Module, name, and the type that is expected; None: something to call.
NAMES = (
    ("jax._src.xla_bridge", "register_plugin", None),
    ("jax._src.interpreters.mlir", "_platforms_with_donation", list),
)


def _find(module, name):
    return getattr(importlib.import_module(module), name)


def register_plugin(platform, library, priority):
    """Makes the shared library at a path a platform."""
    _find("jax._src.xla_bridge", "register_plugin")(platform, priority=priority, library_path=library)


def allow_donation(platform):
    """Lets JAX write which arguments are donated into programs of this platform."""
    try:
        platforms = _find("jax._src.interpreters.mlir", "_platforms_with_donation")
    except AttributeError:
        warnings.warn(f"headrace_jax: this JAX donates no buffers to the platform {platform}", stacklevel=3)
        return
    if platform not in platforms:
        platforms.append(platform)
