"""Reads the portable artifacts of old and new versions that StableHLO and JAX keep to test compatibility.

    HEADRACE_STABLEHLO_SOURCE=checkout HEADRACE_JAX_SOURCE=checkout HEADRACE_JAX_LIBRARY=libheadrace_jax.so \\
      python tests/stablehlo/artifacts.py [--texts]

StableHLO's are stablehlo/tests/vhlo/*.bc, with --texts also those of stablehlo/testdata, which jaxlib writes as
artifacts. JAX's stand in modules of jax/_src/internal_test_util. Each becomes a graph, or is refused by the name of
something that it wants: calls of libraries of GPUs and TPUs, dims without numbers, several devices, a function main.
None is damaged.
"""

import collections
import ctypes
import os
import pathlib
import runpy
import sys

REFUSALS = ("is not supported", "has no size", "none of them is main", "a constant without elements")
REFUSALS += ("no artifact", "regions", "the file has")  # calls with other operands, programs of several devices


def serialized_modules(value):
    """The artifacts in the values of a module of test data: dicts, lists of them, and objects with `mlir_module`."""
    if isinstance(value, dict) and "mlir_module_serialized" in value:
        yield value["mlir_module_serialized"]
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from serialized_modules(part)


def serialized(text):
    """None if jaxlib's StableHLO cannot parse the text."""
    from jax._src.lib import _jax

    try:
        return _jax.mlir.serialize_portable_artifact(text, "1.13.0", True)
    except Exception:  # noqa: BLE001 (of jaxlib)
        return None


def artifacts():
    """(name, bytes)"""
    stablehlo, jax = (os.environ.get(f"HEADRACE_{name}_SOURCE") for name in ("STABLEHLO", "JAX"))
    for name, source in (("StableHLO", stablehlo), ("JAX", jax)):
        if not source:
            print(f"{name}'s artifacts were not read: HEADRACE_{name.upper()}_SOURCE names no checkout")
    for path in sorted(pathlib.Path(stablehlo, "stablehlo/tests").rglob("*.bc")) if stablehlo else ():
        yield path.name, path.read_bytes()
    texts = pathlib.Path(stablehlo, "stablehlo/testdata").rglob("*.mlir") if stablehlo and "--texts" in sys.argv else ()
    yield from ((path.name, serialized(path.read_text())) for path in sorted(texts))
    folder = pathlib.Path(jax or "", "jax/_src/internal_test_util/export_back_compat_test_data")
    for path in sorted(folder.rglob("*.py")) if jax else ():
        found = serialized_modules(runpy.run_path(str(path)))
        for i, code in enumerate(dict.fromkeys(found)):
            yield f"{path.stem} {i}", code


def refusal(library, code):
    """"" if the artifact becomes a graph, or the message."""
    graph = ctypes.c_void_p()
    status = library.hr_stablehlo_open_bytes(b"artifact", code, ctypes.c_size_t(len(code)), ctypes.byref(graph))
    library.hr_graph_release(graph)
    message = library.hr_status_message(ctypes.c_void_p(status)).decode() if status else ""
    library.hr_status_ignore(ctypes.c_void_p(status))
    return message


def main():
    library = ctypes.CDLL(os.environ["HEADRACE_JAX_LIBRARY"])
    library.hr_stablehlo_open_bytes.restype, library.hr_status_message.restype = ctypes.c_void_p, ctypes.c_char_p
    counts = collections.Counter()
    for name, code in artifacts():
        message = "no artifact" if code is None else refusal(library, code)
        kind = "graphs" if not message else next((text for text in REFUSALS if text in message), "failed")
        counts[kind] += 1
        if kind == "failed":
            print(f"{name}: {message}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
