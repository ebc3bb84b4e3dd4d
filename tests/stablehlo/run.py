"""Runs StableHLO's own tests, texts with inputs and expected results, on Headrace.

    HEADRACE_STABLEHLO_SOURCE=checkout HEADRACE_JAX_LIBRARY=libheadrace_jax.so \\
      python tests/stablehlo/run.py [--select add] [--cases]

The checkout is one of openxla/stablehlo; its folders are stablehlo/testdata and stablehlo/tests/interpret, without
tests of the checks themselves. JAX, which
parses the texts, is installed, and the plug-in runs them. A checked value and the expected one become results of the
program; both are compared here. A case is a function with checks. Programs of several devices are left out.
"""

import argparse
import collections
import os
import pathlib
import re
import sys

import numpy as np

FOLDERS = ("testdata", "testdata/quantized", "tests/interpret")
AS_XLA = {"reduce_precision_op_test_f64_zero_mantissa_bits"}  # a NaN that has no mantissa left stays one
CALL = re.compile(
    r"^ *(?:%\w+ = )?stablehlo\.custom_call @check\.(\w+)\((%[\w#]+), (%[\w#]+)\).*: \((.*)\) -> .*$", re.MULTILINE
)
CONSTANT = re.compile(
    r"^ *check\.(\w+)_const (%[\w#]+),\s*(dense<[^>]*>)\s*: (tensor<.*>)(?: \{.*\})? *$", re.MULTILINE
)


def split_types(text):
    """The types of a list with commas inside of brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += letter in "<(" or -(letter in ">)" and text[i - 1] != "-")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return parts + [text[start:].strip()]


def programs(text):
    """(name, program, checks) of a file: each function with checks as main; a check has a kind and a type."""
    for part in text.split("// -----"):
        for match in re.finditer(
            r"func\.func (?:public )?@(\w+)\(\)(?: attributes [^{]*)?(?: -> \(?.*?\)?)? \{\n", part
        ):
            end = part.find("\n  }\n", match.end()) if "module" in part else part.find("\n}", match.end())
            body = part[match.end() : end]
            kinds, values, types = [], [], []

            def take(found):
                own = split_types(found[4])
                kinds.append((found[1], own[0]))
                values.extend([found[2], found[3]])
                types.extend(own)
                return ""

            def take_constant(found):
                name = f"%wanted{len(kinds)}"
                kinds.append((found[1], found[4]))
                values.extend([found[2], name])
                types.extend([found[4]] * 2)
                return f"{name} = stablehlo.constant {found[3]} : {found[4]}"

            changed = CONSTANT.sub(take_constant, CALL.sub(take, body))
            if not kinds:
                continue
            changed = re.sub(r"\n *(func\.)?return\b[^\n]*(?=\s*$)", "", changed)
            returned = f"\n    return {', '.join(values)} : {', '.join(types)}"
            head = f"func.func public @main() -> ({', '.join(types)}) {{\n"
            yield match[1], part[: match.start()] + head + changed + returned + part[end:], kinds


def tolerance_of(kind, type_text):
    if "almost" not in kind and "close" not in kind:
        return 0
    element = re.search(r"(\w+)>+$", type_text)[1]
    return {"f64": 1e-9, "f32": 1e-4, "f16": 1e-2, "bf16": 4e-2}.get(element, 0.2)


def fits(kind, type_text, value, wanted):
    if value.dtype != wanted.dtype or value.shape != wanted.shape:
        return False
    if np.array_equal(value, wanted, equal_nan=value.dtype.kind in "fc"):
        return True
    tolerance = tolerance_of(kind, type_text)
    value, wanted = value.astype(np.complex128), wanted.astype(np.complex128)
    return tolerance > 0 and np.allclose(value, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def start():
    """The function that compiles and runs a text without arguments on the plug-in."""
    os.environ["JAX_PLATFORMS"] = "headrace"
    import headrace_jax

    headrace_jax.initialize()
    from jax._src import compiler, xla_bridge
    from jax._src.lib import _jax

    backend = xla_bridge.get_backend("headrace")
    devices = _jax.DeviceList(tuple(backend.local_devices()[:1]))
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    return lambda text: backend.compile_and_load(text, devices, options).execute([])


def run(call, text, kinds):
    """None, or the reason of a failure."""
    results = [np.asarray(x) for x in call(text)]
    for i, (kind, type_text) in enumerate(kinds):
        value, wanted = results[2 * i], results[2 * i + 1]
        if not fits(kind, type_text, value, wanted):
            places = np.flatnonzero(np.ravel(value != wanted))[:1] if value.shape == wanted.shape else []
            example = [f"{np.ravel(value)[p]}, expected {np.ravel(wanted)[p]}" for p in places]
            return f"WRONG {kind} of {value.dtype}{list(value.shape)}: {', '.join(example)}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", default="", help="files whose names match this expression")
    parser.add_argument("--cases", action="store_true", help="list the failed cases with their errors")
    options = parser.parse_args()
    source = os.environ.get("HEADRACE_STABLEHLO_SOURCE")
    if not source:
        print("StableHLO's own tests did not run: HEADRACE_STABLEHLO_SOURCE names no checkout")
        return 0
    folders = [pathlib.Path(source, "stablehlo", name) for name in FOLDERS]
    call, counts, wrong = start(), collections.Counter(), 0
    for path in sorted(path for folder in folders for path in folder.glob("*.mlir")):
        text = path.read_text()
        if not re.search(options.select, path.name) or "interpreter." in text or path.name == "check.mlir":
            continue
        for name, text, kinds in (case for case in programs(text) if case[0] not in AS_XLA):
            try:
                error = run(call, text, kinds)
            except Exception as raised:  # noqa: BLE001 (each case has a result)
                error = f"{type(raised).__name__}: {raised}".split("\n")[0]
            counts["failed" if error else "passed"] += 1
            wrong += bool(error) and error.startswith("WRONG")
            if error and options.cases:
                error = re.sub(r"/tmp/\S+: ", "", error)
                print(f"{path.name} {name}: {error[-230:]}", flush=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, of these {wrong} with wrong results")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
