"""Names the libraries that the core opens at run time, unless the user did: wheels put them where no loader looks."""

import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import warnings


def find_onednn():
    if os.environ.get("HEADRACE_ONEDNN"):
        return
    for package in ("onednn-cpu-gomp", "onednn"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "libdnnl.so.3" and file.locate().exists():
                os.environ["HEADRACE_ONEDNN"] = str(pathlib.Path(file.locate()).resolve())
                return
    path = pathlib.Path(sys.prefix) / "lib" / "libdnnl.so.3"
    if path.exists():
        os.environ["HEADRACE_ONEDNN"] = str(path)


def find_lapack():
    """OpenBLAS, which is not needed before linear algebra is."""
    if os.environ.get("HEADRACE_LAPACK"):
        return
    try:
        files = importlib.metadata.files("scipy-openblas32") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "libscipy_openblas.so" and file.locate().exists():
            os.environ["HEADRACE_LAPACK"] = str(pathlib.Path(file.locate()).resolve())
            return


def find_cuda():
    """The folders where NVIDIA's wheels put their libraries."""
    if os.environ.get("HEADRACE_CUDA_LIBS"):
        return
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec is not None else None) or []
    folders = [str(path) for root in roots for path in sorted(pathlib.Path(root).glob("*/lib")) if path.is_dir()]
    if folders:
        os.environ["HEADRACE_CUDA_LIBS"] = ":".join(folders)


def find():
    find_onednn()
    find_lapack()
    find_cuda()


def warn_without_onednn():
    """Everything works without it, so slowly that somebody would look for the reason."""
    path = os.environ.get("HEADRACE_ONEDNN") or "libdnnl.so.3"
    try:
        ctypes.CDLL(path)
    except OSError as error:
        warnings.warn(
            f"headrace: oneDNN could not be loaded ({error}): matrix products and convolutions run slowly. "
            "`pip install onednn-cpu-gomp` brings it; HEADRACE_ONEDNN says where another libdnnl.so.3 lies.",
            RuntimeWarning,
            stacklevel=2,
        )
