"""Headrace: lazy execution and fusion of eager tensor operations.

`headrace.torch` is the PyTorch device. It registers itself when torch is imported (see `headrace._autoload`), so a
script only needs device="headrace".
"""

import importlib
import pathlib

__all__ = ["cpp_extension", "get_include"]


def get_include():
    """The folder of the headers: `headrace/torch.h` for extensions of torch in C++, and the C interface."""
    for folder in __path__:
        include = pathlib.Path(folder) / "include"
        if (include / "headrace" / "torch.h").exists():
            return str(include)
    raise FileNotFoundError("headrace: headrace/torch.h is not installed; looked in " + ", ".join(map(str, __path__)))


def __getattr__(name):
    if name == "cpp_extension":  # not before it is used: it imports torch
        return importlib.import_module("headrace.cpp_extension")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
