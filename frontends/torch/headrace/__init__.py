"""Headrace: lazy execution and fusion of eager tensor operations.

    import headrace as hr
    x = hr.arange(12, dtype=hr.float32).reshape(3, 4)
    print(hr.tanh(x).sum(axis=0))

Arrays are those of the extension `headrace._arrays`, which is loaded when the first of its names is used. The names
are generated from the table of functions (docs/arrays.md).

`headrace.torch` is the PyTorch device. It registers itself when torch is imported (see `headrace._autoload`), so a
script only needs device="headrace".
"""

import importlib

__all__ = ["cpp_extension", "get_include"]
_WRITTEN = ("compiling", "exporting", "files", "standard", "transforms")  # modules whose names are this one's, too
_MODULES = ("data", "fast", "fft", "linalg", "nn", "optimizers", "random", "transforms", "utils")  # of arrays


def get_include():
    """The folder of the headers: `headrace/torch.h` for extensions of torch in C++, and the C interface."""
    import pathlib

    for folder in __path__:
        include = pathlib.Path(folder) / "include"
        if (include / "headrace" / "torch.h").exists():
            return str(include)
    raise FileNotFoundError("headrace: headrace/torch.h is not installed; looked in " + ", ".join(map(str, __path__)))


def _load_arrays(names):
    """Puts the names of arrays into this module: later uses of them are look-ups in a dict. The others, of the modules
    of `_numpy`, follow one by one."""
    extension = importlib.import_module("headrace._arrays")
    constants = {"pi": 3.141592653589793, "e": 2.718281828459045, "inf": float("inf"), "nan": float("nan")}
    globals().update({name: getattr(extension, name) for name in names if hasattr(extension, name)})
    globals().update(constants, newaxis=None)
    for written in _WRITTEN:
        module = importlib.import_module("headrace." + written)
        globals().update({name: getattr(module, name) for name in module.__all__})


def __getattr__(name):
    if name == "cpp_extension":  # not before it is used: it imports torch
        return importlib.import_module("headrace.cpp_extension")
    if name in _MODULES:
        return importlib.import_module("headrace." + name)
    if not name.startswith("__") or name.startswith("__array_"):  # torch's autoload asks for others
        from headrace._names import FAMILY, NAMES

        if name in FAMILY:
            module = importlib.import_module("headrace._numpy." + FAMILY[name])
            globals()[name] = getattr(module, name)
            return globals()[name]
        if name in NAMES:
            _load_arrays(NAMES.difference(FAMILY))
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    from headrace._names import NAMES

    return sorted({*globals(), *__all__, *NAMES, *_MODULES})
