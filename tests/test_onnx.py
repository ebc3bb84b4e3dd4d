"""Samples of the tests of the package onnx, on imported models; `make onnx` runs all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ROOT / "build/release/bin/headrace"
ONEDNN = Path(sys.prefix) / "lib/libdnnl.so.3"


def find_library() -> str:
    """The core that the package has loaded."""
    import headrace

    headrace.array(0)
    mapped = Path("/proc/self/maps").read_text().split()
    return next(name for name in mapped if "/libheadrace.so" in name)


def run(script, *options):
    pytest.importorskip("onnx")
    environment = os.environ | ({"HEADRACE_ONEDNN": str(ONEDNN)} if ONEDNN.exists() else {})
    command = [sys.executable, str(ROOT / "tests/onnx" / script), "--library", find_library(), *options]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_sample_of_the_node_tests():
    run("run.py", "--sample", "200")


def test_a_sample_of_the_node_tests_with_symbols():
    run("symbols.py", "--sample", "200")


def test_answers_of_onnxruntime():
    run("goldens.py")


def test_networks_that_torch_exports():
    pytest.importorskip("torch")
    run("networks.py", "--only", "lstm")


def test_control_flow():
    run("control.py")


def run_command(*arguments):
    return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built in build/release")
def test_a_model_is_converted_and_answers(tmp_path):
    onnx, numpy = pytest.importorskip("onnx"), pytest.importorskip("numpy")
    weight = onnx.numpy_helper.from_array(numpy.array([[1, 2], [3, 4]], "f4"), "w")
    rows = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 2])
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = onnx.helper.make_graph([node], "test", [rows], [out], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    path, package = tmp_path / "model.onnx", tmp_path / "model.hrpkg"
    onnx.save(model, path)
    x = numpy.array([[1, 1], [0, 2], [5, 0]], "f4")
    numpy.save(tmp_path / "x.npy", x)
    result = run_command("convert", path, "-o", package)
    assert result.returncode == 0, result.stderr
    for file in (path, package):
        result = run_command("run", file, "--input", f"x={tmp_path}/x.npy", "--output", f"y={tmp_path}/y.npy")
        assert result.returncode == 0, result.stderr
        numpy.testing.assert_array_equal(numpy.load(tmp_path / "y.npy"), x @ [[1, 2], [3, 4]])
        assert "f32[n, 2]" in run_command("inspect", file).stdout
    path.write_bytes(path.read_bytes().replace(b"MatMul", b"MatMux"))
    result = run_command("convert", path, "-o", package)
    assert result.returncode == 1
    assert 'model.onnx: node 0 "product" (MatMux): the operator is not known' in result.stderr
