"""Finds and loads the extension module headrace._C, the device in C++, for the torch that is imported."""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("headrace.torch needs torch: pip install headrace[torch]", name="torch") from None

import headrace


def _find():
    """The library for this minor version of torch: installed with this package, or named by HEADRACE_TORCH_LIBRARY."""
    named = os.environ.get("HEADRACE_TORCH_LIBRARY")
    if named:
        return pathlib.Path(named)
    minor = ".".join(torch.__version__.split(".")[:2])
    folders = [pathlib.Path(folder) / "lib" for folder in headrace.__path__]
    for folder in folders:
        path = folder / f"torch-{minor}" / "libheadrace_torch.so"
        if path.exists():
            return path
    built = {
        path.parent.name.removeprefix("torch-")
        for folder in folders
        for path in folder.glob("torch-*/libheadrace_torch.so")
    }
    if not built:
        raise ImportError(
            "headrace was built without torch, so that it has arrays alone: install torch, then headrace again; looked in "
            + ", ".join(map(str, folders))
        )
    has = ", ".join(sorted(built, key=lambda name: [int(part) for part in name.split(".")]))
    raise ImportError(
        f"this headrace has libraries for torch {has}, and this is torch {torch.__version__}: install one of these"
    )


def _load():
    path = _find()
    loader = importlib.machinery.ExtensionFileLoader("headrace._C", str(path))
    spec = importlib.util.spec_from_file_location("headrace._C", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["headrace._C"] = headrace._C = module
    return module


_C = _load()
