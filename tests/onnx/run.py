#!/usr/bin/env python3
"""Runs the tests of the package onnx on models that Headrace imports, within onnx's own bounds.

    python tests/onnx/run.py                 all of them
    python tests/onnx/run.py --only Resize   those with this word in their name
    python tests/onnx/run.py --sample 200    so many of them, evenly spaced
    python tests/onnx/run.py --report        the failures, by their reasons

tests/onnx/expected.txt lists the tests that fail, each with its reason. A failure that it does not list, and a test on
it that passes, are errors. Inputs on which dims of other values depend, such as a shape, are constants of the graph.
"""

import argparse
import collections
import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from library import LIBRARY, NUMBERS, Failure, Library  # noqa: E402

DATA = Path(onnx.__file__).parent / "backend/test/data"
SUITES = ("node", "simple", "pytorch-operator", "pytorch-converted")
EXPECTED = Path(__file__).with_name("expected.txt")
# Integers and floats of less than eight bits, and the dtype in which Headrace has them.
NARROW = {21: np.uint8, 22: np.int8, 23: np.float32, 25: np.uint8, 26: np.int8}


class Wrong(Exception):
    """Another result than the expected one."""


class Skipped(Exception):
    """A test with inputs or outputs that are no tensors of numbers."""


def to_array(tensor: onnx.TensorProto) -> np.ndarray:
    array = numpy_helper.to_array(tensor)
    if tensor.data_type in NARROW:
        return array.astype(NARROW[tensor.data_type])
    if array.dtype not in NUMBERS:
        raise Skipped(f"data type {onnx.TensorProto.DataType.Name(tensor.data_type)}")
    return array


def load(path: Path, info: onnx.ValueInfoProto):
    """A tensor, a list of them, or None."""
    kind, data = info.type.WhichOneof("value"), path.read_bytes()
    if kind == "tensor_type":
        return to_array(onnx.TensorProto.FromString(data))
    if kind == "sequence_type":
        return [to_array(x) for x in onnx.SequenceProto.FromString(data).tensor_values]
    optional = onnx.OptionalProto.FromString(data)
    if optional.HasField("tensor_value"):
        return to_array(optional.tensor_value)
    return [to_array(x) for x in optional.sequence_value.tensor_values] if optional.HasField("sequence_value") else None


def named(values: dict) -> dict[str, np.ndarray]:
    """Elements of lists as values of their own: name.0, name.1, ..."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, list):
            flat |= {f"{name}.{i}": x for i, x in enumerate(value)}
        elif value is not None:
            flat[name] = value
    return flat


def compare(name: str, actual: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> None:
    if actual.dtype != wanted.dtype or actual.shape != wanted.shape:
        raise Wrong(f"{name} is {actual.dtype}{list(actual.shape)}, expected {wanted.dtype}{list(wanted.shape)}")
    if wanted.dtype.kind not in "fciub":  # of ml_dtypes
        actual, wanted = actual.astype(np.float32), wanted.astype(np.float32)
    if not np.allclose(actual, wanted, rtol=rtol, atol=atol, equal_nan=True):
        with np.errstate(all="ignore"):
            worst = np.nanmax(np.abs(actual.astype(np.complex128) - wanted)) if actual.size else 0
        raise Wrong(f"{name} differs by {worst:.3g}")


def find_sizes(infos: list, inputs: dict) -> dict[str, int]:
    """The sizes of symbols in the inputs of a test."""
    sizes = {}
    for info in infos:
        if info.type.WhichOneof("value") == "tensor_type" and info.name in inputs:
            dims = info.type.tensor_type.shape.dim
            sizes |= {dim.dim_param: size for dim, size in zip(dims, inputs[info.name].shape) if dim.dim_param}
    return sizes


def open_model(library: Library, path: Path, constants: dict, sizes: dict[str, int]):
    """With symbols, or with their sizes if the model needs these."""
    try:
        return library.open(path, constants)
    except Failure:
        if not sizes:
            raise
    return library.open(path, constants, sizes)


def read_bounds(folder: Path) -> tuple[float, float]:
    """rtol and atol: onnx's defaults, or those that the test has."""
    path = folder / "data.json"
    data = json.loads(path.read_text()) if path.exists() else {}
    return data.get("rtol", 1e-3), data.get("atol", 1e-7)


def find_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that are no initializers, too."""
    initializers = {x.name for x in model.graph.initializer}
    return [x for x in model.graph.input if x.name not in initializers or len(initializers) == 0]


def load_inputs(data: Path, infos: list) -> dict[str, np.ndarray]:
    files = [(info, data / f"input_{i}.pb") for i, info in enumerate(infos)]
    return named({info.name: load(path, info) for info, path in files if path.exists()})


def load_outputs(data: Path, model: onnx.ModelProto) -> dict:
    return {x.name: load(data / f"output_{i}.pb", x) for i, x in enumerate(model.graph.output)}


def run_test(library: Library, folder: Path, bounds: tuple[float, float]) -> None:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    infos = find_inputs(model)
    for data in sorted(folder.glob("test_data*")):
        inputs, wanted = load_inputs(data, infos), load_outputs(data, model)
        graph = open_model(library, folder / "model.onnx", inputs, find_sizes(infos, inputs))
        try:
            actual = library.run(graph, inputs)
        finally:
            library.c.hr_graph_release(graph)
        wanted = named(wanted)
        if actual.keys() != wanted.keys():
            raise Wrong(f"outputs {sorted(actual)}, expected {sorted(wanted)}")
        for name in wanted:
            compare(name, actual[name], wanted[name], *bounds)


def read_expected() -> dict[str, str]:
    lines = EXPECTED.read_text().splitlines() if EXPECTED.exists() else []
    rows = [line.split(":", 1) for line in lines if line.strip() and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, reason in rows}


def find_tests(only: str, sample: int) -> list[tuple[str, Path]]:
    found = [
        (f"{suite}/{folder.name}", folder)
        for suite in SUITES
        for folder in sorted((DATA / suite).iterdir())
        if only in f"{suite}/{folder.name}" and (folder / "model.onnx").exists()
    ]
    return found[:: max(1, len(found) // sample)][:sample] if sample else found


def outcome(library: Library, folder: Path) -> tuple[str, str]:
    try:
        run_test(library, folder, read_bounds(folder))
    except Failure as failure:
        return "refused", str(failure).replace(str(folder) + "/", "")
    except Wrong as wrong:
        return "wrong", str(wrong)
    except Skipped as skipped:
        return "skipped", str(skipped)
    return "pass", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=LIBRARY)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    library, expected = Library(str(options.library)), read_expected()
    tests = find_tests(options.only, options.sample)
    counts, errors, reasons = collections.Counter(), [], collections.defaultdict(list)
    for name, folder in tests:
        if options.verbose:
            print(name, flush=True)
        kind, why = outcome(library, folder)
        counts[name.split("/")[0], kind] += 1
        if kind != "pass":
            reasons[re.sub(r'"[^"]*"|[0-9]+', "_", why) if kind == "refused" else kind].append((name, why))
        if (kind == "pass") == (name in expected):
            errors.append(f"{name}: {'passes, but is expected to fail' if kind == 'pass' else kind + ': ' + why}")
    for suite in SUITES:
        kinds = {kind: count for (s, kind), count in counts.items() if s == suite}
        if kinds:
            print(f"{suite}: {kinds.get('pass', 0)} of {sum(kinds.values())} pass", kinds)
    if options.report:
        for why, rows in sorted(reasons.items(), key=lambda x: -len(x[1])):
            print(len(rows), why, *[f"\n    {name[-60:]}: {text[-150:]}" for name, text in rows[:6]])
    else:
        print(*errors, sep="\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
