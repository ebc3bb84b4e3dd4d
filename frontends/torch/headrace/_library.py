"""Finds and loads the extension module headrace._C, the device in C++, for the torch that is imported."""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys

import torch

import headrace


def _find():
    """The library: installed with this package, or named by HEADRACE_TORCH_LIBRARY in a source tree."""
    named = os.environ.get("HEADRACE_TORCH_LIBRARY")
    if named:
        return pathlib.Path(named)
    candidates = [pathlib.Path(folder) / "lib" / "libheadrace_torch.so" for folder in headrace.__path__]
    for path in candidates:
        if path.exists():
            return path
    raise ImportError("headrace: libheadrace_torch.so is not built; looked at " + ", ".join(map(str, candidates)))


def _check_version(path):
    """The library fits one minor version of torch; in another it could crash instead of failing to load."""
    note = path.with_name("torch_version")
    built_for = note.read_text().strip() if note.exists() else torch.__version__
    if built_for.split(".")[:2] != torch.__version__.split(".")[:2]:
        raise ImportError(
            f"headrace was built for torch {built_for}, and this is torch {torch.__version__}: install headrace again"
        )


def _load():
    path = _find()
    _check_version(path)
    loader = importlib.machinery.ExtensionFileLoader("headrace._C", str(path))
    spec = importlib.util.spec_from_file_location("headrace._C", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["headrace._C"] = headrace._C = module
    return module


_C = _load()
