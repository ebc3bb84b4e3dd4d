"""TensorFlow on Headrace: counters of the device that TensorFlow loads by itself.

TensorFlow 2.19.1 loads the plug-in of this distribution from the folder tensorflow-plugins beside its packages. In a
checkout the environment variable TF_PLUGGABLE_DEVICE_LIBRARY_PATH names the library of a build folder instead. The
device is `/device:HEADRACE:0`; HEADRACE_DEVICE=cpu or cuda selects what is behind it.
"""

import ctypes
import functools
import os
import pathlib

from headrace_tensorflow.fallback import fallbacks, reset_fallbacks, set_fallback
from headrace_tensorflow.jit import ignore_jit_compile

__all__ = [
    "cluster_stats", "fallbacks", "library_path", "memory_stats", "reset_stats", "set_fallback", "stats", "use_clusters",
]  # fmt: skip


def library_path():
    """The path of the plug-in: TF_PLUGGABLE_DEVICE_LIBRARY_PATH, or the file of this distribution."""
    named = os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    folder = pathlib.Path(__file__).parent.parent / "tensorflow-plugins"
    path = pathlib.Path(named) if named else folder / "libheadrace_tensorflow.so"
    if not path.exists():
        source = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" if named else "the package headrace_tensorflow"
        raise ImportError(f"headrace_tensorflow: there is no {path}, which {source} names")
    return path


@functools.cache
def _library():
    library = ctypes.CDLL(str(library_path()))
    for name in ("stream", "memory"):
        getattr(library, f"hr_{name}_stat_name").restype = ctypes.c_char_p
    for name in ("stats", "memory_stats"):
        function = getattr(library, f"headrace_tensorflow_{name}")
        function.restype, function.argtypes = ctypes.c_bool, [ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
    library.headrace_tensorflow_reset_stats.restype = ctypes.c_bool
    library.headrace_tensorflow_use_clusters.argtypes = [ctypes.c_bool]
    return library


def _no_device(device):
    return RuntimeError(f"headrace_tensorflow: TensorFlow has not created the device HEADRACE:{device}")


def _counters(name_of, read, device):
    names = []
    while (name := name_of(len(names))) is not None:
        names.append(name.decode())
    counters = (ctypes.c_int64 * len(names))()
    if not read(device, ctypes.sizeof(counters), counters):
        raise _no_device(device)
    return dict(zip(names, counters, strict=True))


def stats(device=0):
    """The counters of a device's stream (docs/watching.md) as a dict, since the start or the last reset, and in
    `fallbacks` how often operations ran on the host (set_fallback)."""
    counters = _counters(_library().hr_stream_stat_name, _library().headrace_tensorflow_stats, device)
    return counters | {"fallbacks": fallbacks()}


def memory_stats(device=0):
    """The counters of a device's memory, in bytes. TensorFlow's get_memory_info has two of them (memory.py)."""
    return _counters(_library().hr_memory_stat_name, _library().headrace_tensorflow_memory_stats, device)


def cluster_stats():
    """Counters of clusters: those of functions' graphs, their nodes, captures of one for new dims, and runs."""
    counts = (ctypes.c_int64 * 4)()
    _library().headrace_tensorflow_cluster_stats(counts)
    return dict(zip(("clusters", "nodes", "captures", "runs"), counts, strict=True))


def use_clusters(uses_them):
    """Lets the functions that are built from now on become clusters, which is the default, or run node by node."""
    _library().headrace_tensorflow_use_clusters(bool(uses_them))


def reset_stats(device=0):
    """Sets the counters of a device's stream to 0, and forgets fallbacks."""
    reset_fallbacks()
    if not _library().headrace_tensorflow_reset_stats(device):
        raise _no_device(device)


ignore_jit_compile()
