"""Variables of graphs: sessions keep them, runs assign them, programs read and set them; weights of ONNX models."""

import headrace as hr
import numpy as np
import pytest


def make_step(rate=0.25):
    graph = hr.Graph()
    w = graph.variable("w", np.array([4, 1], np.float32))
    loss = hr.sum(hr.square(w - graph.input("t", "float32", [2])))
    graph.assign(w, w - rate * graph.gradient(loss, w))
    graph.output("loss", loss)
    return graph


def test_a_session_trains():
    graph = make_step()
    assert list(graph.variables) == ["w"] and graph.variables["w"].shape == (2,)
    session, other = hr.Session(graph), hr.Session(graph)
    losses = [float(session(t=[2, 1])["loss"]) for _ in range(3)]
    assert losses == [4, 1, 0.25] and session.variable("w").tolist() == [2.25, 1]
    assert other.variable("w").tolist() == [4, 1]


def test_variables_are_set(tmp_path):
    make_step().save(tmp_path / "step.hrpkg")
    session = hr.Session(tmp_path / "step.hrpkg")
    x = np.arange(4, dtype=np.float32)
    session.set_variable("w", x[::-2])
    x[:] = 9
    assert session.variable("w").tolist() == [3, 1]
    y = hr.array([5.0, 1.0])
    session.set_variable("w", y)
    y += 1
    assert float(session(t=[2, 1])["loss"]) == 9 and y.tolist() == [6, 2]
    kept = session.variable("w")
    session(t=[2, 1])
    assert kept.tolist() == [3.5, 1] and session.variable("w").tolist() == [2.75, 1]
    matrix = hr.Graph()
    matrix.output("y", matrix.variable("m", np.zeros((2, 3), np.float32)) + 0)
    session = hr.Session(matrix)
    session.set_variable("m", hr.arange(6, dtype="float32").reshape(3, 2).T)
    np.testing.assert_array_equal(np.asarray(session()["y"]), np.arange(6).reshape(3, 2).T)


def test_values_outside_of_a_session_are_copies():
    session = hr.Session(make_step())
    w = session.variable("w")
    w[0] = 9
    w += 1
    assert session.variable("w").tolist() == [4, 1]


def test_a_snapshot_keeps_what_was_trained(tmp_path):
    session = hr.Session(make_step())
    for _ in range(2):
        session(t=[2, 1])
    session.snapshot().save(tmp_path / "trained.hrpkg")
    again = hr.Session(tmp_path / "trained.hrpkg")
    assert again.variable("w").tolist() == session.variable("w").tolist() == [2.5, 1]
    assert float(again(t=[2, 1])["loss"]) == float(session(t=[2, 1])["loss"]) == 0.25


def test_wrong_variables_are_refused():
    graph = make_step()
    with pytest.raises(ValueError, match="w"):
        graph.variable("w", 1.0)
    with pytest.raises(ValueError):
        graph.assign(graph.variables["w"], graph.variables["w"])  # a second time
    with pytest.raises(ValueError):
        graph.assign(graph.inputs["t"], graph.inputs["t"])
    with pytest.raises(TypeError):
        graph.assign(graph.variables["w"], "x")
    session = hr.Session(graph)
    with pytest.raises(ValueError, match=r'variable "w" is given i64\[3\], expected f32\[2\]'):
        session.set_variable("w", [1, 2, 3])
    with pytest.raises(Exception, match='no variable "x"'):
        session.variable("x")
    assert session.variable("w").tolist() == [4, 1]


def test_weights_of_a_model_are_trained():
    onnx = pytest.importorskip("onnx")
    helper, numbers = onnx.helper, onnx.TensorProto
    weight = onnx.numpy_helper.from_array(np.full((3, 2), 2, np.float32), "w")
    shape = onnx.numpy_helper.from_array(np.array([-1, 2]), "shape")
    model = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Reshape", ["h", "shape"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", numbers.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", numbers.FLOAT, ["n", 2])],
        [weight, shape],
    )
    data = helper.make_model(model, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    assert not hr.open_model(data).variables
    graph = hr.open_model(data, variables=True)
    assert list(graph.variables) == ["w"]  # integers stay constants
    loss = hr.mean(graph.outputs["y"])
    graph.assign(graph.variables["w"], graph.variables["w"] - graph.gradient(loss, graph.variables["w"]))
    session = hr.Session(graph)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(np.asarray(session(x=x)["y"]), x @ np.full((3, 2), 2))
    expected = 2 - np.repeat(x.mean(0)[:, None] / 2, 2, axis=1)
    np.testing.assert_allclose(np.asarray(session.variable("w")), expected, rtol=1e-6)
