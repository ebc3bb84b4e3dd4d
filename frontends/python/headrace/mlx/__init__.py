"""MLX's names on Headrace's arrays: scripts for MLX run unchanged. docs/mlx.md describes it.

    python -m headrace.mlx script.py

    import headrace.mlx
    headrace.mlx.install()          # from here on
    import mlx.core as mx           # is headrace.mlx.core

`from headrace.mlx import core as mx` needs no install().
"""

import importlib
import sys

__all__ = ["install"]

_MODULES = {
    "mlx": "headrace.mlx",
    "mlx.core": "headrace.mlx.core",
    "mlx.core.distributed": "headrace.mlx.distributed",
    "mlx.core.fast": "headrace.mlx.fast",
    "mlx.core.fft": "headrace.mlx.fft",
    "mlx.core.linalg": "headrace.mlx.linalg",
    "mlx.core.random": "headrace.mlx.random",
    "mlx.nn": "headrace.mlx.nn",
    "mlx.nn.init": "headrace.nn.init",
    "mlx.nn.losses": "headrace.nn.losses",
    "mlx.optimizers": "headrace.mlx.optimizers",
    "mlx.utils": "headrace.mlx.utils",
}


def install(only_core=False):
    """Makes `import mlx.core`, `mlx.nn`, `mlx.optimizers` and `mlx.utils` mean Headrace's, in this process.

    only_core: mlx.core alone, for MLX's own Python files (docs/mlx.md). Raises ImportError if MLX itself is imported.
    """
    for name, own in _MODULES.items():
        loaded = sys.modules.get(name)
        if loaded is not None and loaded.__name__ != own and not (only_core and name == "mlx"):
            where = getattr(loaded, "__file__", None)
            raise ImportError(f"{name} is imported already, from {where}: install() must be first")
    for name, own in _MODULES.items():
        if not only_core or name.startswith("mlx.core"):
            sys.modules[name] = importlib.import_module(own)


def __getattr__(name):
    if name in ("core", "nn", "optimizers", "utils"):
        return importlib.import_module("headrace.mlx." + name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
