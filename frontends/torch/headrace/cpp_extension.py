"""headrace.cpp_extension: builds extensions in C++ that use headrace/torch.h, by torch.utils.cpp_extension.

    import headrace
    module = headrace.cpp_extension.load("my_operators", ["my_operators.cpp"])

docs/custom-kernels.md has an example of the C++ side.
"""

import pathlib

import torch.utils.cpp_extension

import headrace
from headrace._library import _C


def libraries():
    """The files that an extension is linked with: the library for this torch, and the core."""
    extension = pathlib.Path(_C.__file__)
    for folder in (extension.parent.parent, *(pathlib.Path(folder) / "lib" for folder in headrace.__path__)):
        core = sorted(folder.glob("libheadrace.so*"))
        if core:
            return [str(extension), str(core[0])]
    raise FileNotFoundError(f"headrace: libheadrace.so is not beside {extension}")


def link_flags():
    """The linker's options for these files. They are found again where they are now, or by any process that has
    imported torch with this package."""
    folders = dict.fromkeys(str(pathlib.Path(library).parent) for library in libraries())
    return [*libraries(), *(f"-Wl,-rpath,{folder}" for folder in folders)]


def _with_paths(options):
    options = dict(options)
    options["extra_include_paths"] = [*_listed(options.get("extra_include_paths")), headrace.get_include()]
    options["extra_ldflags"] = [*_listed(options.get("extra_ldflags")), *link_flags()]
    return options


def _listed(value):
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def load(name, sources, **options):
    """torch.utils.cpp_extension.load with the header's and the library's paths; the same options."""
    return torch.utils.cpp_extension.load(name, sources, **_with_paths(options))


def load_inline(name, cpp_sources, **options):
    """torch.utils.cpp_extension.load_inline with these paths; the same options."""
    return torch.utils.cpp_extension.load_inline(name, cpp_sources, **_with_paths(options))


def CppExtension(name, sources, **options):  # noqa: N802 (torch's name)
    """torch.utils.cpp_extension.CppExtension with these paths, for a setup.py. The process that imports the result has
    imported torch with this package before."""
    options["include_dirs"] = [*_listed(options.get("include_dirs")), headrace.get_include()]
    options["extra_objects"] = [*_listed(options.get("extra_objects")), *libraries()]
    return torch.utils.cpp_extension.CppExtension(name, sources, **options)
