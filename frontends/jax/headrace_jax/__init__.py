"""JAX on Headrace: registers the plug-in as the platform "headrace".

JAX finds this package by its entry point `jax_plugins` and calls `initialize`. `JAX_PLATFORMS=headrace` selects the
platform; without it JAX's own default stays. HEADRACE_DEVICE=cpu or cuda selects the devices behind it.

Without this package `PJRT_NAMES_AND_LIBRARY_PATHS=headrace:/path/libheadrace_jax.so` loads the plug-in as well, but
JAX then donates no buffers, and lacks the rules of _rules.py and callbacks.
"""

import ctypes
import os
import pathlib
import warnings

from headrace_jax import _buffers, _callbacks, _cpu, _dlpack, _ffi, _forks, _interrupts, _private, _rules, _shardings

__all__ = ["initialize", "library_path"]
PLATFORM = "headrace"
TESTED_VERSIONS = ("0.10.2",)
OLDEST_VERSION = (0, 10)  # earlier ones lack private names of _private.py
_PRIORITY = -100  # below that of JAX's CPU backend, which is 0


def library_path():
    """The path of the plug-in: HEADRACE_JAX_LIBRARY, or the file of this package."""
    named = os.environ.get("HEADRACE_JAX_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name("libheadrace_jax.so")
    if not path.exists():
        source = "HEADRACE_JAX_LIBRARY" if named else "the package headrace_jax"
        raise ImportError(f"headrace_jax: there is no {path}, which {source} names")
    return path


def _load_core():
    """Loads libheadrace.so of the package `headrace`, if that is installed elsewhere than this package. PyTorch's
    device and arrays then share it."""
    try:
        import headrace
    except ModuleNotFoundError:
        return
    for folder in headrace.__path__:
        for library in sorted(pathlib.Path(folder, "lib").glob("libheadrace.so.*")):
            ctypes.CDLL(str(library))
            return


def _is_selected():
    import jax

    return PLATFORM in (jax.config.jax_platforms or "").split(",")


def _is_named_in_environment():
    pairs = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "").split(",")
    return any(pair.partition(":")[0] == PLATFORM for pair in pairs)


def _check_version():
    import jax

    if jax.__version_info__ < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise ImportError(f"headrace_jax needs jax {oldest} or later; this is {jax.__version__}")
    if jax.__version__ not in TESTED_VERSIONS and _is_selected():
        tested = ", ".join(TESTED_VERSIONS)
        warnings.warn(f"headrace_jax was tested with jax {tested}; this is {jax.__version__}", stacklevel=3)


_is_registered = False


def initialize():
    """Registers the platform; JAX calls this when it looks for plug-ins, and programs may."""
    global _is_registered
    _check_version()
    is_first = not _is_registered
    if not _is_registered and not _is_named_in_environment():
        _load_core()
        _private.register_plugin(PLATFORM, str(library_path()), _PRIORITY)
        if not _is_selected():
            _private.be_quiet(PLATFORM)
    _is_registered = True
    _private.allow_donation(PLATFORM)
    _private.allow_cache(PLATFORM)
    _rules.register(PLATFORM)
    _callbacks.register(PLATFORM, str(library_path()))
    _buffers.register(PLATFORM)
    _cpu.register(PLATFORM)
    _ffi.register(PLATFORM)
    _dlpack.register(PLATFORM)
    _shardings.register(PLATFORM)
    if is_first:
        _forks.register(PLATFORM)
        if not _is_named_in_environment():
            _interrupts.register(str(library_path()))
