#!/usr/bin/env python3
"""The tests of run.py with a symbol in place of each size of an input: the results must be the same.

    python tests/onnx/symbols.py --only Slice

A model in which a size must be a number is refused when it is opened, which is no error here: the counts tell. Every
other failure is one.
"""

import argparse
import collections
import sys
import tempfile
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parent))
import run  # noqa: E402
from library import LIBRARY, Failure, Library  # noqa: E402


def is_tensor(info: onnx.ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type"


def put_symbols(model: onnx.ModelProto, infos: list) -> bool:
    """Replaces sizes above 1 of inputs: equal sizes by one symbol. False: there is none."""
    dims = [d for x in infos if is_tensor(x) for d in x.type.tensor_type.shape.dim if d.dim_value > 1]
    for dim in dims:
        dim.dim_param = f"size_{dim.dim_value}"
    del model.graph.value_info[:]
    for output in filter(is_tensor, model.graph.output):
        output.type.tensor_type.ClearField("shape")
    return bool(dims)


def outcome(library: Library, folder: Path, path: Path) -> tuple[str, str]:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    infos = run.find_inputs(model)
    data = min(folder.glob("test_data*"))
    if not put_symbols(model, infos):
        return "without sizes", ""
    path.write_bytes(model.SerializeToString())
    inputs, wanted = run.load_inputs(data, infos), run.named(run.load_outputs(data, model))
    try:
        graph = library.open(path, inputs)
    except Failure as failure:
        return "refused", str(failure)
    try:
        actual = library.run(graph, inputs)
        for name in wanted:
            run.compare(name, actual[name], wanted[name], *run.read_bounds(folder))
    except (Failure, run.Wrong) as failure:
        return "wrong", str(failure)
    finally:
        library.c.hr_graph_release(graph)
    return "same", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=LIBRARY)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="lists what is refused")
    options = parser.parse_args()
    library, expected = Library(str(options.library)), run.read_expected()
    counts, errors = collections.Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        for name, folder in run.find_tests(options.only, options.sample):
            if name not in expected:
                kind, why = outcome(library, folder, Path(scratch) / "model.onnx")
                counts[kind] += 1
                errors += [f"{name}: {why}"] if kind == "wrong" or options.report and kind == "refused" else []
    print(*errors, sep="\n", end="\n" if errors else "")
    print(dict(counts))
    return 1 if counts["wrong"] or not counts["same"] else 0


if __name__ == "__main__":
    sys.exit(main())
