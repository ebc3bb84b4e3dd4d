"""export_function, exporter and import_function: what a file answers is what the function answers."""

import json
import os

import headrace as hr
import numpy as np
import pytest


def array(*shape, dtype="float32", seed=0):
    return hr.array(np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype))


def check(function, got, *args, **kwargs):
    wanted = function(*args, **kwargs)
    wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def write_row(x):
    y = hr.exp(x)
    y[1] = 0.5
    return y


def write_slice(x):
    x[1:, ::2] = x[:1, ::2] * 2
    return x


def write_at_arrays(x):
    x[hr.array([0, 2]), 1:] = -1.0
    return x, x[[2, 0]] + 1


def write_at_mask(x):
    x[x > 0] = 0.0
    return x


FUNCTIONS = [
    lambda x: x[0],
    lambda x: x[-1, 1:] * 2,
    lambda x: x[..., ::-1],
    lambda x: (x[None, :, 1], x[1:3]),
    lambda x: [row.sum() for row in x],
    lambda x: x[hr.array([2, 0])],
    lambda x: x[1:, [0, 3]],
    lambda x: x[[0, 1], [1, 2]],
    lambda x: x.at[0].add(1.0).at[:, 1].multiply(3.0),
    lambda x: x.at[[0, 0, 2]].add(hr.ones((3, 4))),
    lambda x: x.at[1, 2].set(7.0),
    lambda x: hr.softmax(x @ x.T, axis=1) + hr.array([1.0, 2.0, 3.0]),
    lambda x: hr.zeros((2, 2)) + x[:2, :2],
    lambda x: x,
    lambda x: (x, x),
    lambda x: hr.sort(x, axis=1),
    lambda x: hr.compress(x[:, 0] > 0, x, axis=0),  # data decides the size
    lambda x: hr.unique(x)[0],
    write_row,
    write_slice,
    write_at_arrays,
    write_at_mask,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_file_answers_as_the_function(function, tmp_path):
    path = tmp_path / "f.hrpkg"
    hr.export_function(path, function, array(3, 4))
    imported = hr.import_function(path)
    for seed in (0, 1):
        x = array(3, 4, seed=seed)
        check(function, imported(x), hr.array(x))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(array(3, 4, seed=seed)))


SHAPELESS = [
    lambda x: x * 2 + 1,
    lambda x: x.sum(axis=1) / 4.0,
    lambda x: x[1:, :-1] * 2,
    lambda x: x[-1],
    lambda x: x[::2, ::-1],
    lambda x: x @ hr.ones((4, 2)),
    lambda x: hr.softmax(x, axis=0),
    lambda x: x.T @ x,
]


@pytest.mark.parametrize("function", SHAPELESS)
def test_shapeless_files_answer_for_other_sizes(function, tmp_path):
    path = tmp_path / "f.hrpkg"
    hr.export_function(path, function, array(3, 4), shapeless=True)
    imported = hr.import_function(path)
    for size in (3, 1, 7):
        x = array(size, 4, seed=size)
        check(function, imported(x), x)


def test_sizes_that_operations_need_stay(tmp_path):
    path = tmp_path / "f.hrpkg"
    hr.export_function(path, lambda x: x @ hr.ones((4, 2)), array(3, 4), shapeless=True)
    (x,) = hr.open_package(path).graph.inputs.values()
    assert isinstance(x.shape[0], str) and x.shape[1] == 4
    with pytest.raises(ValueError, match='"x"'):
        hr.import_function(path)(array(3, 5))
    hr.export_function(path, write_slice, array(3, 4), shapeless=True)  # its sizes are numbers
    with pytest.raises(ValueError, match="no example fits"):
        hr.import_function(path)(array(4, 4))


def test_sizes_that_must_be_equal_are_one_symbol(tmp_path):
    path = tmp_path / "f.hrpkg"
    hr.export_function(path, lambda x, y, w: (x + y) @ w, array(3, 4), array(3, 4), array(4, 3), shapeless=True)
    x, y, w = hr.open_package(path).graph.inputs.values()
    assert x.shape == y.shape and x.shape[1] == w.shape[0]
    a, b, c = array(5, 2), array(5, 2, seed=1), array(2, 6, seed=2)
    check(lambda x, y, w: (x + y) @ w, hr.import_function(path)(a, b, c), a, b, c)
    with pytest.raises(ValueError, match='"x".*"y"|"y".*"x"'):
        hr.import_function(path)(a, array(5, 3), c)


def test_inputs_by_position_and_by_name(tmp_path):
    path = tmp_path / "f.hrpkg"

    def fun(x, *more, scale=None):
        return x - sum(more) * (1 if scale is None else scale)

    x, y, z = array(2), array(2, seed=1), array(2, seed=2)
    hr.export_function(path, fun, x, y, scale=z)
    imported = hr.import_function(path)
    check(fun, imported(x, y, scale=z), x, y, scale=z)
    check(fun, imported((x, y), {"scale": z}), x, y, scale=z)
    assert list(hr.open_package(path).graph.inputs) == ["x", "x1", "scale"]
    for call in (lambda: imported(x, y), lambda: imported(x, y, z), lambda: imported(x, y, factor=z)):
        with pytest.raises(ValueError, match=r"no example fits .*; expected \(float32\[2\], float32\[2\], scale="):
            call()
    with pytest.raises(ValueError, match="no example fits"):
        imported(x, y, scale=z.astype("float64"))
    for call in (lambda: imported(x, 1.0), lambda: imported([x, "text"]), lambda: imported(1, 2, 3)):
        with pytest.raises(ValueError, match="inputs are arrays"):
            call()


def test_the_same_example_twice_is_two_inputs(tmp_path):
    path, x = tmp_path / "f.hrpkg", array(2)
    hr.export_function(path, lambda a, b: a - b, x, x)
    check(lambda a, b: a - b, hr.import_function(path)(x, array(2, seed=1)), x, array(2, seed=1))


def test_several_examples_share_a_file(tmp_path):
    path = tmp_path / "f.hrpkg"
    weights = array(200, 30)

    def fun(x, bias=None):
        return x @ weights if bias is None else x @ weights + bias

    with hr.exporter(path, fun) as export:
        export(array(1, 200))
        export(array(5, 200))
        export(array(5, 200), bias=array(30))
    with pytest.raises(RuntimeError, match="closed"):
        export(array(1, 200))
    assert os.path.getsize(path) < weights.nbytes + 8192
    imported = hr.import_function(path)
    for args, kwargs in (((array(1, 200),), {}), ((array(5, 200),), {}), ((array(5, 200),), {"bias": array(30)})):
        check(fun, imported(*args, **kwargs), *args, **kwargs)
    with pytest.raises(ValueError, match="or"):
        imported(array(2, 200))


def test_layers_and_their_weights(tmp_path):
    from headrace import nn

    path = tmp_path / "f.hrpkg"
    model = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
    hr.export_function(path, model, array(4, 3), shapeless=True)
    for size in (4, 9):
        x = array(size, 3, seed=size)
        np.testing.assert_allclose(np.asarray(hr.import_function(path)(x)[0]), np.asarray(model(x)), rtol=1e-5, atol=1e-6)
    answer = hr.Session(path)(array(1, 3))
    np.testing.assert_allclose(np.asarray(answer["y"]), np.asarray(model(array(1, 3))), rtol=1e-5, atol=1e-6)


def test_metadata(tmp_path):
    path, text = tmp_path / "f.hrpkg", json.dumps({"name": "a\nb", "é": 1})
    hr.export_function(path, hr.exp, array(2), metadata=text)
    assert hr.import_function(path, return_metadata=True)[1] == text
    hr.export_function(path, hr.exp, array(2))
    assert hr.import_function(path, return_metadata=True)[1] == ""
    with pytest.raises(TypeError, match="metadata"):
        hr.export_function(path, hr.exp, array(2), metadata=3)


def test_functions_that_can_not_be_exported(tmp_path):
    path = tmp_path / "f.hrpkg"
    with pytest.raises(ValueError, match="inputs are arrays"):
        hr.export_function(path, hr.exp, 1.0)
    for result in (lambda x: 3, lambda x: (x, 1), lambda x: {"y": x}, lambda x: None):
        with pytest.raises(ValueError, match="returns one array"):
            hr.export_function(path, result, array(2))
    with pytest.raises(TypeError, match="not a function"):
        hr.export_function(path, 3, array(2))
    with pytest.raises((TypeError, ValueError)):  # gradients are recorded by other means than functions
        hr.export_function(path, hr.grad(lambda x: (x**2).sum()), array(2))
    with pytest.raises(ZeroDivisionError):
        hr.export_function(path, lambda x: 1 / 0, array(2))
    with pytest.raises(TypeError, match="not supported"):
        hr.export_function(print, hr.exp, array(2))
    assert not path.exists()
    hr.export_function(path, lambda x: x + 1, array(2))  # nothing of the failures is left
    check(lambda x: x + 1, hr.import_function(path)(array(2)), array(2))


def test_files_without_a_function(tmp_path):
    path = tmp_path / "f.hrpkg"
    graph = hr.Graph()
    graph.output("y", graph.input("x", "float32", [2]))
    graph.save(path)
    with pytest.raises(ValueError, match="has no function"):
        hr.import_function(path)
    with pytest.raises(FileNotFoundError):
        hr.import_function(tmp_path / "none.hrpkg")


def test_a_graph_of_some_outputs():
    graph = hr.Graph()
    x, t = graph.input("x", "float32", ["n"]), graph.input("t", "float32", ["n"])
    graph.output("y", x + 1)
    graph.output("z", t * 2)
    part = graph.derive(outputs=["z"])
    assert list(part.inputs) == ["t"] and list(part.outputs) == ["z"]
    fixed = graph.derive(inputs={"x": [3]})
    assert fixed.inputs["x"].shape == (3,) and fixed.inputs["t"].shape == ("n",)
    with pytest.raises(ValueError, match="no output 'w'"):
        graph.derive(outputs=["w"])
