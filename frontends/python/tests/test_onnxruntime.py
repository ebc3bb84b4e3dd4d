"""headrace.onnxruntime: runs, bindings, options, values and names of ONNX Runtime. The package onnx makes models."""

import os
import subprocess
import sys
import threading

import headrace as hr
import headrace.onnxruntime as ort
import numpy as np
import pytest

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def make_package(path):
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 3])
    graph.output("y", x @ np.eye(3, 2, dtype=np.float32))
    graph.output("z", x.sum(axis=1))
    graph.save(path, notes={"producer": "a test", "version": "7", "other": "note"})
    return path


@pytest.fixture
def session(tmp_path):
    return ort.InferenceSession(make_package(tmp_path / "m.hrpkg"), providers=["CPUExecutionProvider"])


VALUES_OF_ANOTHER_DEVICE = """
import sys
import headrace as hr, headrace.onnxruntime as ort, numpy as np
x = np.arange(6, dtype=np.float32).reshape(2, 3)
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
hr.device("cpu:1")
value = ort.OrtValue.ortvalue_from_numpy(x)
away = ort.OrtValue(hr.array(x))
assert value._array.device == "cpu" and away._array.device == "cpu:1"
for given in (value, away):
    (z,) = session.run_with_ort_values(["z"], {"x": given})
    assert z._array.device == "cpu"
    np.testing.assert_array_equal(z.numpy(), x.sum(axis=1))
"""


def test_values_of_another_device_are_copied(tmp_path):
    command = [sys.executable, "-c", VALUES_OF_ANOTHER_DEVICE, str(make_package(tmp_path / "m.hrpkg"))]
    subprocess.run(command, check=True, env=os.environ | {"HEADRACE_CPU_DEVICES": "2"}, timeout=120)


def make_onnx(path=None):
    onnx = pytest.importorskip("onnx")
    helper, numbers = onnx.helper, onnx.TensorProto
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32) * 2, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", numbers.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", numbers.FLOAT, ["batch", 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if path is not None:
        onnx.save(model, path)
    return model.SerializeToString()


def test_runs(session):
    y, z = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, X[:, :2])
    np.testing.assert_array_equal(z, X.sum(axis=1))
    y[0] = 5  # the caller's own
    (z,) = session.run(["z"], {"x": ort.OrtValue.ortvalue_from_numpy(X)}, ort.RunOptions())
    np.testing.assert_array_equal(z, X.sum(axis=1))
    assert [(a.name, a.shape, a.type) for a in session.get_inputs()] == [("x", ["n", 3], "tensor(float)")]
    assert [(a.name, a.shape) for a in session.get_outputs()] == [("y", ["n", 2]), ("z", ["n"])]
    assert "tensor(float)" in repr(session.get_inputs()[0])
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.version, meta.custom_metadata_map["other"]) == ("a test", 7, "note")
    assert session.get_providers() == ["CPUExecutionProvider"] and session.get_provider_options() == {
        "CPUExecutionProvider": {}
    }
    assert session.get_overridable_initializers() == [] and session.get_profiling_start_time_ns() > 0


def test_inputs_may_change_after_a_run(session):
    x = X.copy()
    y, z = session.run(None, {"x": x})
    x[:] = 0
    np.testing.assert_array_equal(y, X[:, :2])
    (later,) = session.run(["z"], {"x": x})
    np.testing.assert_array_equal(later, [0, 0])


def test_onnx_models_by_path_and_bytes(tmp_path):
    path = tmp_path / "net.onnx"
    data = make_onnx(str(path))
    for source in (path, str(path), data, hr.open_model(data)):
        session = ort.InferenceSession(source)
        assert session.get_inputs()[0].shape == ["batch", 3]
        for n in (1, 4):
            x = np.ones((n, 3), np.float32)
            np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], np.full((n, 2), 6, np.float32))
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    fixed = ort.InferenceSession(data, options)
    assert fixed.get_inputs()[0].shape == [2, 3]
    with pytest.raises(ValueError, match='"x"'):
        fixed.run(None, {"x": np.ones((1, 3), np.float32)})
    np.testing.assert_array_equal(np.asarray(hr.Session(data)(x=X)["y"]), np.maximum(X @ np.full((3, 2), 2.0), 0))


def test_answers_are_those_of_onnx_runtime(tmp_path):
    other = pytest.importorskip("onnxruntime")
    data = make_onnx()
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    wanted = other.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = ort.InferenceSession(data)
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], wanted.run(None, {"x": x})[0], rtol=1e-6)
    for mine, theirs in zip(ours.get_inputs() + ours.get_outputs(), wanted.get_inputs() + wanted.get_outputs()):
        assert (mine.name, mine.shape, mine.type) == (theirs.name, theirs.shape, theirs.type)


def test_run_async(session):
    done, found = threading.Event(), []

    def callback(results, data, error):
        found.append((results, data, error))
        done.set()

    session.run_async(["z"], {"x": X}, callback, "data")
    assert done.wait(60) and found[0][1:] == ("data", "")
    np.testing.assert_array_equal(found[0][0][0], X.sum(axis=1))
    done.clear()
    session.run_async(["z"], {"x": X[0]}, callback, None)
    assert done.wait(60) and found[1][0] == [] and '"x"' in found[1][2]


def test_io_binding(session):
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X.sum(axis=1))
    assert [value.shape() for value in binding.get_outputs()] == [[2]]
    binding.clear_binding_outputs()
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 2], np.float32)
    binding.bind_ortvalue_output("y", value)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X + 1))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), (X + 1)[:, :2])
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32))
    with pytest.raises(ValueError, match="output 'y' is float32.2, 2., its value float32.3, 2."):
        session.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    with pytest.raises(ValueError, match="'x' is missing"):
        session.run_with_iobinding(binding)
    for wrong in (
        lambda: binding.bind_cpu_input("u", X), lambda: binding.bind_output("u"),
        lambda: binding.bind_ortvalue_input("u", value), lambda: binding.bind_ortvalue_output("u", value),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="'u' is not known"):
            wrong()


def test_bindings_of_addresses(session):
    x, z, binding = X.copy(), np.full(2, np.nan, np.float32), session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("z", "cpu", 0, 1, z.shape, z.ctypes.data)
    binding.bind_output("y")
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(z, x.sum(axis=1))
        np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), x[:, :2])
        x += 1
    binding.bind_output("z", element_type=np.float32, shape=(3,), buffer_ptr=z.ctypes.data)
    with pytest.raises(ValueError, match=r"output 'z' is float32\[2\], its value float32\[3\]"):
        session.run_with_iobinding(binding)
    binding.bind_input("x", "cpu", 0, np.float32, (0, 3), 0)
    binding.bind_output("z", element_type=np.float32, shape=[0], buffer_ptr=0)
    session.run_with_iobinding(binding)
    with pytest.raises(NotImplementedError, match="of an address of cuda"):
        binding.bind_input("x", "cuda", 0, np.float32, x.shape, x.ctypes.data)
    with pytest.raises(ValueError, match="expected its element_type and shape"):
        binding.bind_output("z", buffer_ptr=z.ctypes.data)
    with pytest.raises(ValueError, match="2, 3. elements at the address 0"):
        binding.bind_input("x", "cpu", 0, np.float32, x.shape, 0)
    with pytest.raises(ValueError, match="element type 99"):
        binding.bind_input("x", "cpu", 0, 99, x.shape, x.ctypes.data)


def test_values():
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert value.shape() == [2, 3] and value.data_type() == "tensor(float)" and value.element_type() == 1
    assert value.device_name() == "cpu" and value.tensor_size_in_bytes() == 24 and value.is_tensor()
    assert value.has_value() and not value.is_sparse_tensor() and not value.is_tensor_sequence()
    np.testing.assert_array_equal(value.numpy(), X)
    np.testing.assert_array_equal(np.from_dlpack(value), X)
    value.update_inplace(X + 1)
    np.testing.assert_array_equal(value.numpy(), X + 1)
    assert value.data_ptr() > 0
    np.testing.assert_array_equal(ort.OrtValue.from_dlpack(X).numpy(), X)
    with pytest.raises(ValueError, match="update_inplace"):
        value.update_inplace(X[0])
    with pytest.raises(ValueError, match="device"):
        ort.OrtValue.ortvalue_from_numpy(X, "tpu")
    assert ort.OrtValue.ortvalue_from_shape_and_type([2], 7).data_type() == "tensor(int64)"


def test_ort_values_as_results(session):
    (y,) = session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    assert isinstance(y, ort.OrtValue)
    np.testing.assert_array_equal(y.numpy(), X[:, :2])
    with pytest.raises(TypeError, match="expected OrtValue"):
        session.run_with_ort_values(["y"], {"x": X})


def test_options_are_stored(tmp_path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    options.add_provider("CPUExecutionProvider", {})
    assert options.has_providers() and options.enable_mem_pattern and options.logid == ""
    session = ort.InferenceSession(make_package(tmp_path / "m.hrpkg"), sess_options=options)
    assert session.get_session_options() is options
    assert session.run(["z"], {"x": X})[0].tolist() == X.sum(axis=1).tolist()
    with pytest.raises(AttributeError, match="no option 'intra_threads'"):
        options.intra_threads = 3
    with pytest.raises(KeyError):
        options.get_session_config_entry("none")
    with pytest.raises(TypeError):
        options.add_session_config_entry("a", 1)
    run = ort.RunOptions()
    run.terminate = True
    with pytest.raises(RuntimeError, match="terminate"):
        session.run(None, {"x": X}, run)


def test_names_are_those_of_onnx_runtime():
    other = pytest.importorskip("onnxruntime")
    skipped = {"capi", "contextlib", "import_capi_exception", "onnxruntime_validation", "package_name", "cuda_version",
               "print_debug_info"}  # fmt: skip
    for name in {name for name in dir(other) if not name.startswith("_")} - skipped:
        try:
            getattr(ort, name)
        except NotImplementedError as refusal:
            assert name in str(refusal)
    for mine, theirs in (
        (ort.SessionOptions(), other.SessionOptions()), (ort.RunOptions(), other.RunOptions()),
        (ort.InferenceSession, other.InferenceSession), (ort.OrtValue, other.OrtValue),
        (ort.IOBinding, other.IOBinding), (ort.NodeArg("x", hr.Graph().input("x", "float32", [])), other.NodeArg),
        (ort.ModelMetadata({}), other.ModelMetadata),
        (ort.GraphOptimizationLevel, other.GraphOptimizationLevel.__members__),
    ):  # fmt: skip
        names = [name for name in (theirs if isinstance(theirs, dict) else dir(theirs)) if not name.startswith("_")]
        assert not [name for name in names if not hasattr(mine, name)]
    assert len([name for name in dir(ort.SessionOptions()) if not name.startswith("_")]) == 32


def test_names_that_can_not_be_served(session):
    for name in ("LoraAdapter", "SparseTensor", "OrtEpDevice"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(ort, name)
    with pytest.raises(AttributeError):
        ort.nothing
    options = ort.SessionOptions()
    for call in (
        lambda: options.register_custom_ops_library("x.so"), lambda: options.set_provider_selection_policy(1),
        lambda: options.add_free_dimension_override_by_denotation("DATA_BATCH", 1), session.end_profiling,
        lambda: session.set_tuning_results([]), lambda: ort.RunOptions().add_active_adapter(None),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()


def test_providers(session):
    assert "CPUExecutionProvider" in ort.get_available_providers() and ort.get_device() in ("CPU", "GPU")
    session.set_providers([("CPUExecutionProvider", {"arena": "1"})])
    assert session.get_provider_options() == {"CPUExecutionProvider": {"arena": "1"}}
    session.set_providers(["TensorrtExecutionProvider", "CPUExecutionProvider"])  # which this machine lacks
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.run(["z"], {"x": X})[0].shape == (2,)
    with pytest.raises(ValueError, match="provider 'fast'"):
        session.set_providers(["fast"])


def test_wrong_inputs(session, tmp_path):
    with pytest.raises(ValueError, match="'x' is missing"):
        session.run(None, {})
    with pytest.raises(ValueError, match="'u' is not known"):
        session.run(None, {"x": X, "u": X})
    with pytest.raises(ValueError, match="'u' is not known"):
        session.run(["u"], {"x": X})
    with pytest.raises(ValueError, match='"x".*f64'):
        session.run(None, {"x": X.astype(np.float64)})
    with pytest.raises(FileNotFoundError):
        ort.InferenceSession(str(tmp_path / "none.onnx"))
    with pytest.raises(ValueError):
        ort.InferenceSession(b"no model")
    with pytest.raises(TypeError, match="options"):
        ort.InferenceSession(make_package(tmp_path / "m.hrpkg"), {"threads": 1})


def answer(text, opset=22, **feeds):
    """The first answer of a model in onnx's text."""
    parser = pytest.importorskip("onnx.parser")
    domains = f'"" : {opset}, "ai.onnx.preview.training" : 1'
    model = parser.parse_model(f"<ir_version: 9, opset_import: [{domains}]>\n{text}")
    return ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0]


def test_random_operators_have_their_distributions():
    like = np.zeros((200, 50), np.float32)
    normal = answer("g () => (float[a,b] y) { y = RandomNormal<shape=[200,50], mean=2.0, scale=3.0, seed=1.0>() }")
    assert abs(normal.mean() - 2) < 0.1 and abs(normal.std() - 3) < 0.1
    text = "g (float[a,b] x) => (double[a,b] y) { y = RandomUniformLike<dtype=11, low=-1.0, high=3.0>(x) }"
    uniform = answer(text, x=like)
    assert uniform.dtype == np.float64 and uniform.shape == like.shape
    assert -1 <= uniform.min() < -0.9 and 2.9 < uniform.max() < 3 and abs(uniform.mean() - 1) < 0.1
    rare = answer("g (float[a,b] x) => (bool[a,b] y) { y = Bernoulli<dtype=9>(x) }", x=like + np.float32(0.2))
    assert abs(rare.mean() - 0.2) < 0.02
    text = "g (float[a,b] x) => (int64[a,c] y) { y = Multinomial<dtype=7, sample_size=4000, seed=5.0>(x) }"
    odds = np.array([[0.1, 0.2, 0.7], [1, 0, 1]], np.float32)
    with np.errstate(divide="ignore"):
        samples = answer(text, x=np.log(odds))
        np.testing.assert_array_equal(samples, answer(text, x=np.log(odds)))
    assert samples.dtype == np.int64 and samples.shape == (2, 4000)
    shares = [[(row == i).mean() for i in range(3)] for row in samples]
    np.testing.assert_allclose(shares, odds / odds.sum(axis=1, keepdims=True), atol=0.03)
    one = answer("g (float[a,b] x) => (int32[a,c] y) { y = Multinomial(x) }", opset=7, x=np.log(odds[:1]))
    assert one.dtype == np.int32 and one.shape == (1, 1)
    with pytest.raises(ValueError, match="1 dims and 1 samples, expected 2 dims"):
        answer("g (float[a] x) => (int32[a] y) { y = Multinomial(x) }", x=odds[0])


def test_gradients_of_onnx():
    text = """g (float[n] a, float[n] b) => (float[n] y) {{
        c = Mul(a, b)
        d = Sin(c)
        {inputs}
        y = ai.onnx.preview.training.Gradient<
            xs: strings = ["a"], zs: strings = ["b"], y: string = "{of}">({given}) }}"""
    a, b = np.float32([0.5, 1, 2]), np.float32([3, -1, 0.25])
    given = {"inputs": "", "of": "d", "given": "a, b"}
    np.testing.assert_allclose(answer(text.format(**given), a=a, b=b), b * np.cos(a * b), 1e-6)
    with pytest.raises(ValueError, match='input 1 is another value than "b"'):
        answer(text.format(**given | {"inputs": "e = Neg(b)", "given": "a, e"}), a=a, b=b)
    with pytest.raises(ValueError, match='y is "z", expected the name of an earlier tensor'):
        answer(text.format(**given | {"of": "z"}), a=a, b=b)
    with pytest.raises(ValueError, match="xs has no names"):
        answer(text.format(**given).replace('xs: strings = ["a"], ', ""), a=a, b=b)


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("dtype", ["float", "int64", "uint8", "bool"])
def test_distinct_slices(dtype, is_sorted):
    rng = np.random.default_rng(3)
    for shape, axis in (((7, 2), 0), ((2, 6, 2), 1), ((2, 2, 5), -1), ((1, 3), 0), ((4, 1), 0)):
        x = rng.integers(0, 2, shape).astype({"float": "f4"}.get(dtype, dtype))
        kind = f"{dtype}[{', '.join('abc'[: x.ndim])}]"
        parser = pytest.importorskip("onnx.parser")
        node = f"y, i, j, c = Unique<axis={axis}, sorted={is_sorted}>(x)"
        text = f"g ({kind} x) => ({kind} y, int64[k] i, int64[n] j, int64[k] c) {{ {node} }}"
        model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]>\n{text}').SerializeToString()
        y, i, j, c = ort.InferenceSession(model).run(None, {"x": x})
        values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        order = np.arange(len(first)) if is_sorted else np.argsort(first)
        np.testing.assert_array_equal(y, np.take(values, order, axis=axis))
        np.testing.assert_array_equal(i, first[order])
        np.testing.assert_array_equal(c, counts[order])
        np.testing.assert_array_equal(j, np.argsort(order)[inverse.reshape(-1)])
