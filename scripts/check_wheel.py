#!/usr/bin/env python3
"""Checks a wheel against its name's guarantees.

usage: check_wheel.py WHEEL

    tag         the name and the file WHEEL have cp310-abi3-manylinux_2_28_x86_64; headrace_jax and headrace_tensorflow,
                whose libraries call no Python, py3-none-manylinux_2_28_x86_64
    symbols     no library or command needs a symbol version beyond NEWEST: glibc's by the tag, the C++ runtime's by the
                needs of torch's own wheels; nor a symbol of glibc that the tag's lacks, which has no version
    libraries   only those of ALLOWED are needed, and they are searched for beside the library alone ($ORIGIN)
    python      only functions of CPython's stable ABI of 3.10 are called: one library serves every CPython
    torch       each folder headrace/lib/torch-X.Y has a library, and of the core there is one
    plug-ins    headrace_jax and headrace_tensorflow have the plug-in where the framework finds it, and no core; they
                need this version of headrace, and headrace_tensorflow the version of TensorFlow that it is for
    processor   the libraries for torch, JAX and TensorFlow have no instruction beyond x86-64-v2 (check_isa.py looks at
                the core's objects)

Prints one line for each offence and exits 1 if there is any. Reads what readelf and objdump print.
"""

import configparser
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass

import check_isa

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLATFORM = "manylinux_2_28_x86_64"
TAGS = {
    "headrace": f"cp310-abi3-{PLATFORM}",
    "headrace_jax": f"py3-none-{PLATFORM}",
    "headrace_tensorflow": f"py3-none-{PLATFORM}",
}
NEWEST = {"GLIBC": "2.28", "GLIBCXX": "3.4.22", "CXXABI": "1.3.11", "GCC": "4.8", "GOMP": "4.5", "OMP": "4.5"}
ALLOWED = set(
    "libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 ld-linux-x86-64.so.2 libgcc_s.so.1 libstdc++.so.6 "
    "libgomp.so.1"
    " libheadrace.so.0 libc10.so libtorch_cpu.so libtorch_python.so".split()
)
# Objects and functions of the stable ABI in 3.10 that the extension uses.
PYTHON = set(
    """
    PyArg_ParseTuple PyBool_FromLong PyBool_Type PyByteArray_AsString PyByteArray_Size PyByteArray_Type PyBytes_AsString
    PyBytes_AsStringAndSize PyBytes_FromStringAndSize PyBytes_Size PyCMethod_New PyCapsule_GetPointer PyCapsule_IsValid
    PyCapsule_New PyCapsule_SetName PyComplex_FromDoubles PyComplex_ImagAsDouble PyComplex_RealAsDouble PyComplex_Type
    PyDict_New PyDict_SetItem PyDict_SetItemString PyErr_CheckSignals PyErr_Clear PyErr_Fetch PyErr_NormalizeException
    PyErr_Occurred PyErr_Restore PyErr_SetString PyEval_RestoreThread PyEval_SaveThread PyExc_RuntimeError
    PyExc_SyntaxError PyExc_TypeError PyExc_ValueError PyFloat_AsDouble PyFloat_FromDouble PyFloat_Type
    PyGILState_Ensure PyGILState_Release PyImport_ImportModule PyList_Append PyList_GetItem PyList_New PyList_SetItem
    PyList_Size PyList_Type PyLong_AsLongLong PyLong_AsLongLongAndOverflow PyLong_FromLong PyLong_FromLongLong
    PyLong_FromSize_t PyLong_FromUnsignedLongLong PyLong_FromVoidPtr PyLong_Type PyModule_AddFunctions PyModule_Create2
    PyObject_CallObject PyObject_GetAttrString PyObject_IsInstance PyObject_Str PyTuple_GetItem PyTuple_New
    PyTuple_SetItem PyTuple_Size PyType_IsSubtype PyUnicode_AsEncodedString PyUnicode_AsUTF8AndSize
    PyUnicode_CompareWithASCIIString PyUnicode_FromString PyUnicode_FromStringAndSize Py_AtExit Py_BuildValue
    Py_IsInitialized
    _Py_Dealloc _Py_FalseStruct _Py_NoneStruct _Py_TrueStruct
    """.split()
)
OWN = re.compile(r"hr_|_?Py|_Z|THP|ParameterClass|GOMP_|omp_")  # symbols without a version: of the core, Python, torch, OpenMP
VERSION = re.compile(r"Name: ([A-Z]+)_(\d[\d.]*)")


@dataclass(frozen=True)
class Plugin:
    """A distribution with one library that a framework loads."""

    library: str  # its path in the wheel
    functions: tuple[str, ...]  # those by which the framework enters it
    entry_point: tuple[str, str] | None = None  # group and module by which the framework finds the package
    tested: tuple[str, str, str] | None = None  # requirement, and the header and macro with the version it must have


PLUGINS = {
    "headrace_jax": Plugin(
        "headrace_jax/libheadrace_jax.so", ("GetPjrtApi",), entry_point=("jax_plugins", "headrace_jax")
    ),
    "headrace_tensorflow": Plugin(
        "tensorflow-plugins/libheadrace_tensorflow.so",
        ("SE_InitPlugin", "TF_InitKernel", "TF_InitGraph"),
        tested=("tensorflow", "frontends/tensorflow/csrc/tf.h", "TF_TESTED_VERSION"),
    ),
}


def read(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def numbers(version):
    return [int(part) for part in version.split(".")]


def check_library(path):
    """Yields the faults of one library or command."""
    for name, version in sorted(set(VERSION.findall(read("readelf", "--version-info", "--wide", path)))):
        if name not in NEWEST or numbers(version) > numbers(NEWEST[name]):
            asks = re.findall(rf"\b(\w+)@{name}_{re.escape(version)}\b", read("readelf", "--dyn-syms", "--wide", path))
            yield f"asks for {name}_{version} ({', '.join(asks)}); {NEWEST.get(name, 'none')} is the newest allowed"
    symbols = read("readelf", "--dyn-syms", "--wide", path)
    names = re.findall(r" GLOBAL DEFAULT +UND (\w+)$", symbols, re.MULTILINE)
    if unknown := [name for name in names if not OWN.match(name)]:
        yield f"needs symbols that glibc {NEWEST['GLIBC']} lacks: {' '.join(unknown)}"
    dynamic = read("readelf", "--dynamic", "--wide", path)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if name not in ALLOWED:
            yield f"needs {name}"
    for folders in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        if not all(folder.startswith("$ORIGIN") for folder in folders.split(":")):
            yield f"is searched for its libraries in {folders}"


def check_extension(path):
    """Yields the faults of a library for torch."""
    asked = re.findall(r" UND (_?Py\w+)", read("readelf", "--dyn-syms", "--wide", path))
    if beyond := sorted(set(asked) - PYTHON):
        yield f"calls what is not in the stable ABI of CPython 3.10: {' '.join(beyond)}"
    if " PyInit__C" not in read("readelf", "--dyn-syms", "--wide", path):
        yield "has no PyInit__C"
    if check_isa.check(path, 2):
        yield "has instructions beyond x86-64-v2"


def check_tag(wheel, folder):
    package = wheel.name.partition("-")[0]
    if package not in TAGS:
        yield f"the name is none of {', '.join(TAGS)}"
        return
    if not wheel.name.endswith(f"-{TAGS[package]}.whl"):
        yield f"the tag is not {TAGS[package]}"
    (notes,) = folder.glob(f"{package}-*.dist-info/WHEEL")
    if f"Tag: {TAGS[package]}" not in notes.read_text().splitlines():
        yield f"{notes.name} has no tag {TAGS[package]}"


def check_torches(folder):
    if len(list(folder.rglob("libheadrace.so*"))) != 1:
        yield "there is not one libheadrace.so"
    torches = sorted((folder / "headrace/lib").glob("torch-*"))
    if not torches:
        yield "there is no library for torch"
    for torch in torches:
        if [path.name for path in torch.iterdir()] != ["libheadrace_torch.so"]:
            yield f"{torch.name} has not the library alone"
    if not (folder / "headrace/include/headrace/torch.h").exists():
        yield "the headers of extensions are not there"


def needs_of(plugin, version):
    """The requirements that a plug-in's distribution must have."""
    yield f"headrace=={version}"
    if plugin.tested:
        package, header, macro = plugin.tested
        text = (ROOT / header).read_text(encoding="utf-8")
        tested = re.search(rf'#define {macro} "(.*)"', text)[1]
        yield f"{package}=={tested}"


def check_plugin_package(plugin, wheel, folder):
    if [str(path.relative_to(folder)) for path in folder.rglob("*.so*")] != [plugin.library]:
        yield f"{plugin.library} is not the only library"
    package, version = wheel.name.split("-")[:2]
    (information,) = folder.glob(f"{package}-*.dist-info")
    if plugin.entry_point:
        group, module = plugin.entry_point
        points = configparser.ConfigParser()
        points.read(information / "entry_points.txt")
        if points.get(group, "headrace", fallback="") != module:
            yield f"the framework does not find it: there is no entry point {group}"
    metadata = (information / "METADATA").read_text(encoding="utf-8").splitlines()
    for need in needs_of(plugin, version):
        if f"Requires-Dist: {need}" not in metadata:
            yield f"it does not need {need}"


def check_files(folder):
    for path in folder.rglob("*"):
        is_header = path.suffix == ".h" and path.is_relative_to(folder / "headrace/include/headrace")
        if path.suffix in (".cpp", ".c", ".h", ".pyc", ".a") and not is_header:
            yield f"{path.relative_to(folder)} does not belong there"


def check_plugin(plugin, path):
    """Yields the faults of the library of a plug-in."""
    symbols = read("readelf", "--dyn-syms", "--wide", path)
    if asked := re.findall(r" UND (_?Py\w+)", symbols):
        yield f"calls Python: {' '.join(sorted(set(asked)))}"
    for function in plugin.functions:
        if not re.search(rf" GLOBAL +DEFAULT +\d+ {function}$", symbols, re.MULTILINE):
            yield f"has no {function}"
    if check_isa.check(path, 2):
        yield "has instructions beyond x86-64-v2"


def main():
    wheel = pathlib.Path(sys.argv[1])
    offences = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        zipfile.ZipFile(wheel).extractall(folder)
        offences += check_tag(wheel, folder)
        offences += check_files(folder)
        plugin = PLUGINS.get(wheel.name.partition("-")[0])
        offences += check_plugin_package(plugin, wheel, folder) if plugin else check_torches(folder)
        binaries = [path for path in folder.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
        for path in binaries:
            found = list(check_library(path))
            if path.name == "libheadrace_torch.so":
                found += check_extension(path)
            if plugin and str(path.relative_to(folder)) == plugin.library:
                found += check_plugin(plugin, path)
            offences += [f"{path.relative_to(folder)} {offence}" for offence in found]
    for offence in offences:
        print(f"{wheel.name}: {offence}")
    if offences:
        sys.exit(1)
    print(f"check_wheel: {wheel.name} keeps its promises: {len(binaries)} libraries and commands")


if __name__ == "__main__":
    main()
