"""headrace.Graph: values, functions of the table, indices, gradients, text, and packages."""

import os

import headrace as hr
import headrace._arrays
import numpy as np
import pytest


def run(graph, **inputs):
    """The outputs of a graph as NumPy arrays."""
    return {name: np.asarray(x) for name, x in hr.Session(graph)(**inputs).items()}


def result_of(build, *shapes, dims=None, dtype="float32"):
    """build(values) on a graph whose inputs have symbols in the place of dims, for arrays of these shapes."""
    graph = hr.Graph()
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]
    dims = dims or [[f"s{i}{d}" for d in range(len(shape))] for i, shape in enumerate(shapes)]
    values = [graph.input(f"x{i}", dtype, d) for i, d in enumerate(dims)]
    graph.output("y", build(*values))
    got = run(graph, **{f"x{i}": x for i, x in enumerate(arrays)})["y"]
    return got, build(*[hr.array(x) for x in arrays]), arrays


def test_a_graph_of_operators_and_functions():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 3])
    w = graph.constant(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
    y = hr.relu(x @ w - 4.0) + 1
    graph.output("y", y)
    graph.output("total", y.sum())
    assert y.shape == ("n", 2) and y.dtype == hr.float32 and y.ndim == 2 and y.graph is graph
    assert list(graph.inputs) == ["x"] and list(graph.outputs) == ["y", "total"] and graph.symbols == ("n",)
    assert graph["w"].name == "w" and graph.constant_bytes == 24
    for n in (1, 4, 0):
        given = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        wanted = np.maximum(given @ np.arange(6, dtype=np.float32).reshape(3, 2) - 4, 0) + 1
        got = run(graph, x=given)
        np.testing.assert_array_equal(got["y"], wanted)
        np.testing.assert_array_equal(got["total"], wanted.sum())


def test_text_is_parsed_again():
    graph = hr.Graph()
    x = graph.input("x", hr.float32, ["n", 2])
    graph.output("p", hr.softmax(x * 2, axis=1))
    again = hr.Graph.parse(str(graph))
    assert str(again) == str(graph) and "softmax(" in str(graph)
    given = np.array([[0, 1], [2, 2]], np.float32)
    np.testing.assert_array_equal(run(again, x=given)["p"], run(graph, x=given)["p"])
    assert "1 inputs" in repr(graph) and "float32('n', 2)" in repr(x)


def test_text_with_large_constants_gets_them():
    graph = hr.Graph()
    weights = np.arange(100, dtype=np.float32)
    graph.output("y", graph.input("x", "float32", [100]) + weights)
    text = str(graph)
    assert "#0" in text
    again = hr.Graph.parse(text, data=[weights])
    np.testing.assert_array_equal(run(again, x=weights)["y"], 2 * weights)
    with pytest.raises(ValueError):
        hr.Graph.parse(text)
    with pytest.raises(ValueError, match="line 1"):
        hr.Graph.parse("graph x")


OPERATORS = [
    lambda x, y: x + y,
    lambda x, y: x - y * 2,
    lambda x, y: 2 - x / y,
    lambda x, y: x // y + x % y,
    lambda x, y: abs(x) ** 2.0,
    lambda x, y: -x + (+y),
    lambda x, y: (x < y) | ~(x >= 0) & (x != y) ^ (x == y),
    lambda x, y: hr.where(x > y, x, 0.5),
    lambda x, y: hr.maximum(x, y).clip(0, 1),
    lambda x, y: hr.concat([x, y], axis=1),
    lambda x, y: hr.stack([x, y]),
    lambda x, y: x.T @ y,
    lambda x, y: x.astype("float64").mean(axis=0),
    lambda x, y: hr.argmax(x, axis=1),
    lambda x, y: hr.reshape(x, -1),
    lambda x, y: hr.clip(x, None, y),
]


@pytest.mark.parametrize("build", OPERATORS)
def test_functions_are_those_of_arrays(build):
    got, wanted, _ = result_of(build, (3, 4), (3, 4), dims=[["n", "m"], ["n", "m"]])
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


CREATE = "array asarray zeros ones empty full zeros_like ones_like empty_like full_like arange linspace eye".split()
OF_THE_PROCESS = "eval device stats from_dlpack load open_model open_package save savez save_gguf save_safetensors".split()
WITHOUT_A_ROW = {"stop_gradient", *CREATE, *OF_THE_PROCESS}


def row_names():
    members = vars(hr._arrays).items()
    names = {name for name, value in members if type(value).__name__ == "builtin_function_or_method"}
    return sorted(name for name in names - WITHOUT_A_ROW if not name.startswith("_"))


def sample_arguments(name, count):
    """Arrays that most rows take: positive, of a dtype and dims that the row expects."""
    rng = np.random.default_rng(len(name))
    for dtype, shape in (("float32", (4, 4)), ("int32", (4, 4)), ("float32", (2, 4, 4)), ("float32", (2, 4, 4, 4))):
        yield [np.asarray(rng.uniform(0.1, 0.9, shape) * (1 if dtype == "float32" else 9), dtype) for _ in range(count)]


def answers(function, arguments):
    result = function(*arguments)
    results = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(x.astype("float32") if x.dtype == hr.bfloat16 else x) for x in results]


def answers_of_graph(function, arguments):
    graph = hr.Graph()
    result = function(*[graph.input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(arguments)])
    for i, value in enumerate(result if isinstance(result, (tuple, list)) else [result]):
        graph.output(f"y{i}", value)
    inputs = {f"x{i}": x for i, x in enumerate(arguments)}
    again = graph if "#" in str(graph) else hr.Graph.parse(str(graph))
    return [np.asarray(x) for x in hr.Session(again).run(None, inputs)]


def test_every_row_takes_values():
    """Each function of the table with its required arguments alone: the bits are those of arrays."""
    compared = []
    for name in row_names():
        function = getattr(hr._arrays, name)
        parameters = (function.__text_signature__ or "").strip("()").split(", ")
        if parameters[0] == "arrays":
            function = lambda *arrays, many=function: many(list(arrays))  # noqa: E731
        count = sum("=" not in parameter and parameter not in ("*", "") for parameter in parameters)
        for arguments in sample_arguments(name, count):
            try:
                wanted = answers(function, [hr.array(x) for x in arguments])
            except (TypeError, ValueError, IndexError, RuntimeError):
                continue  # these arguments are none of the row's
            for got, expected in zip(answers_of_graph(function, arguments), wanted, strict=True):
                assert got.dtype == expected.dtype or expected.dtype == np.float32, name
                np.testing.assert_array_equal(got, expected, err_msg=name)
            compared.append(name)
            break
    assert len(compared) > 270, len(compared)


WITH_ATTRIBUTES = [
    lambda x: hr.pad(x, [(1, 2), (0, 1)]),
    lambda x: hr.conv(x[None, None], hr.ones((2, 1, 2, 2)), stride=[2, 1], before=[1, 0], after=[0, 1], dilation=[1, 1]),
    lambda x: hr.max_pool(x[None, None], [2, 2], stride=[1, 1], padding=[0, 0]),
    lambda x: hr.tile(x, (2, 1)),
    lambda x: hr.split(x, 2, axis=1),
    lambda x: hr.take(x, hr.array([1, 0, 1]), axis=1),
    lambda x: hr.take_along_axis(x, hr.argsort(x, axis=0), axis=0),
    lambda x: hr.einsum("ij,kj->ik", x, x),
    lambda x: hr.broadcast_to(x, (2, 4, 4)),
    lambda x: hr.cumulative_sum(x, axis=1),
    lambda x: hr.expand_dims(x, axis=[0, 2]),
    lambda x: hr.reshape(x, (2, -1), copy=True),
    lambda x: x.sum(axis=(0, 1), keepdims=True, dtype=hr.float64),
    lambda x: hr.index_put([x, hr.array([5.0]), hr.array([1])], [0], "add"),
    lambda x: hr.moveaxis(x, 0, 1),
    lambda x: hr.std(x, axis=0, correction=1),
    lambda x: hr.clip(x, min=-0.5, max=0.5),
    lambda x: hr.searchsorted(hr.sort(x.reshape(16)), x),
    lambda x: hr.diff(x, axis=0),
    lambda x: hr.roll(x, 1, axis=1),
    lambda x: hr.repeat(x, 2, axis=0),
    lambda x: hr.tensordot(x, x, axes=1),
    lambda x: hr.vstack([x, x]),
    lambda x: hr.linalg.solve(x + hr.eye(4) * 9, x),
    lambda x: x + hr.random.uniform(shape=(4, 4), key=hr.random.key(3)),
]


@pytest.mark.parametrize("build", WITH_ATTRIBUTES)
def test_functions_with_attributes(build):
    x = np.random.default_rng(5).standard_normal((4, 4)).astype(np.float32)
    wanted, got = answers(build, [hr.array(x)]), answers_of_graph(build, [x])
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


MATRICES = {
    "qr": lambda x: hr.linalg.qr(x), "r": lambda x: [hr.linalg.qr(x, "r")],
    "complete": lambda x: hr.linalg.qr(x[:, :2], "complete"), "pinv": lambda x: [hr.linalg.pinv(x)],
    "rank": lambda x: [hr.linalg.matrix_rank(x)], "power": lambda x: [hr.linalg.matrix_power(x, 3)],
    "matrix_norm": lambda x: [hr.linalg.matrix_norm(x)], "cond": lambda x: [hr.linalg.cond(x)],
    "norm": lambda x: [hr.linalg.norm(x)], "chain": lambda x: [hr.linalg.multi_dot([x, x, x])],
    "tensorinv": lambda x: [hr.linalg.tensorinv(x.reshape(2, 2, 4), 2)],
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_linalg_takes_values(name):
    x = np.random.default_rng(6).uniform(size=(4, 4)) + np.eye(4)
    wanted, got = answers(MATRICES[name], [hr.array(x)]), answers_of_graph(MATRICES[name], [x])
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


KEYS = [
    np.s_[0], np.s_[-1], np.s_[1:], np.s_[:-1], np.s_[::2], np.s_[1::2, 1:3], np.s_[-2:], np.s_[:100], np.s_[-100:2],
    np.s_[5:2], np.s_[::-1], np.s_[-2::-1], np.s_[:0:-2], np.s_[4:1:-1], np.s_[..., 0], np.s_[..., -1:], np.s_[None],
    np.s_[:, None], np.s_[0, ..., None], np.s_[..., None, 1], np.s_[1, 2], np.s_[:, -3], np.s_[()], np.s_[...],
    np.s_[2:2], np.s_[-1:0:-1, ::-2], np.s_[7:], np.s_[:-7], np.s_[:, 1:][1:],
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dims", [["n", "m"], [5, 4], [5, "m"]], ids=str)
def test_indices_are_those_of_numpy(key, dims):
    got, _, (x,) = result_of(lambda x: x[key], (5, 4), dims=[dims])
    np.testing.assert_array_equal(got, x[key])


def test_a_slice_follows_the_size():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n"])
    graph.output("y", x[1::2])
    graph.output("last", x[-1])
    for n in (1, 2, 7, 8):
        given = np.arange(n, dtype=np.float32)
        got = run(graph, x=given)
        np.testing.assert_array_equal(got["y"], given[1::2])
        np.testing.assert_array_equal(got["last"], given[-1])


@pytest.mark.parametrize("step", [1, 2, -1, -3])
@pytest.mark.parametrize("dims", [[7], ["n"]])
def test_values_are_bounds_of_slices_and_of_arange(dims, step):
    """Bounds of the host, by Python's rules for all of them."""
    graph = hr.Graph()
    x = graph.input("x", "int64", dims)
    begin, end = graph.input("begin", "int64", ["b"]), graph.input("end", "int64", ["e"])
    first, last = graph.shape(begin)[0] - 12, graph.shape(end)[0] - 12
    graph.output("both", x[first:last:step])
    graph.output("begin", x[first::step])
    graph.output("end", x[:last:step])
    graph.output("numbers", hr.arange(first, last, step))
    graph.output("count", hr.arange(graph.shape(end)[0], dtype="float32"))
    session, elements = hr.Session(graph), np.arange(7) * 10
    for b in range(-12, 12, 3):
        for e in range(-12, 12, 2):
            got = session(x=elements, begin=np.zeros(b + 12, np.int64), end=np.zeros(e + 12, np.int64))
            np.testing.assert_array_equal(np.asarray(got["both"]), elements[b:e:step])
            np.testing.assert_array_equal(np.asarray(got["begin"]), elements[b::step])
            np.testing.assert_array_equal(np.asarray(got["end"]), elements[:e:step])
            np.testing.assert_array_equal(np.asarray(got["numbers"]), np.arange(b, e, step))
            assert np.asarray(got["count"]).tolist() == [float(i) for i in range(e + 12)]


def test_a_value_is_an_index():
    graph = hr.Graph()
    x, n = graph.input("x", "float32", ["n", 3]), graph.input("k", "int64", ["k"])
    at = graph.shape(n)[0] - 4
    graph.output("row", x[at])
    graph.output("element", x[..., at, 1])
    session, elements = hr.Session(graph), np.arange(12, dtype=np.float32).reshape(4, 3)
    for k in range(-4, 4):
        got = session(x=elements, k=np.zeros(k + 4, np.int64))
        np.testing.assert_array_equal(np.asarray(got["row"]), elements[k])
        assert np.asarray(got["element"]) == elements[k, 1]
    for bad in (n, x[0, 0]):
        with pytest.raises(TypeError, match="no integer without dims"):
            x[bad]
        with pytest.raises(TypeError, match="no integer without dims"):
            x[:bad]


def test_wrong_indices():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 3])
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 1 with size 3"):
        x[:, 3]
    with pytest.raises(IndexError):
        x[0, 0, 0]
    with pytest.raises(IndexError):
        x[..., ...]
    with pytest.raises(TypeError, match="headrace.take"):
        x[[0, 1]]
    with pytest.raises(ValueError, match="step is 0"):
        x[::0]
    with pytest.raises(TypeError):
        x[0] = 1
    graph.output("y", x[2])
    with pytest.raises(ValueError):
        hr.Session(graph)(x=np.zeros((2, 3), np.float32))


def test_shapes_of_symbols_and_values():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", "m"])
    y = x.reshape("m", -1)
    assert y.shape[0] == "m"
    graph.output("flat", hr.reshape(x, (graph.symbol("n") * graph.symbol("m"),)))
    graph.output("same", y.reshape(x.shape))
    graph.output("like", hr.broadcast_to(graph.constant(1.0), graph.shape(x)))
    graph.output("size", graph.symbol("n"))
    got = run(graph, x=np.ones((2, 5), np.float32))
    assert got["flat"].shape == (10,) and got["same"].shape == (2, 5) and got["like"].shape == (2, 5)
    assert got["size"] == 2 and got["size"].dtype == np.int64
    with pytest.raises(ValueError, match="no symbol"):
        x.reshape("k", -1)
    with pytest.raises(ValueError, match="graph.shape"):
        x.reshape(hr.concat([x, x]).shape)


def test_gradients():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 3])
    w = graph.input("w", "float32", [3])
    loss = ((x @ w) ** 2).sum()
    (dw, dx) = graph.gradient(loss, [w, x])
    graph.output("dw", dw)
    graph.output("dx", dx)
    graph.output("second", graph.gradient(dw.sum(), w))
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((4, 3)).astype("f"), rng.standard_normal(3).astype("f")
    got = run(graph, x=a, w=b)
    np.testing.assert_allclose(got["dw"], 2 * a.T @ (a @ b), rtol=1e-5)
    np.testing.assert_allclose(got["dx"], 2 * np.outer(a @ b, b), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["second"], 2 * a.T @ a @ np.ones(3), rtol=1e-4, atol=1e-5)


def test_an_error_is_that_of_its_line_and_the_graph_goes_on():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 3])
    with pytest.raises(ValueError, match="matmul"):
        x @ graph.constant(np.zeros((4, 2), np.float32))
    with pytest.raises(ValueError, match='two values have the name "x"'):
        graph.input("x", "float32", [2])
    with pytest.raises(ValueError, match='two values have the name "x"'):
        graph.constant(1.0, name="x")
    with pytest.raises(ValueError):
        graph.input("y", "float32", ["1n"])
    with pytest.raises(ValueError, match="dim 0 is -2"):
        graph.input("y", "float32", [-2])
    with pytest.raises(TypeError):
        graph.input("y", "float17", [2])
    with pytest.raises(TypeError):
        graph.input("y", None, [2])
    with pytest.raises(ValueError, match="another graph"):
        x + hr.Graph().input("x", "float32", [])
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        hr.relu(x, 3)
    with pytest.raises(TypeError, match="headrace.where"):
        bool(x > 0)
    with pytest.raises(TypeError):
        list(x)
    with pytest.raises(ValueError):
        graph.gradient(x.astype("int32"), [x])
    with pytest.raises(KeyError):
        graph["y"]
    graph.output("y", x + 1)
    with pytest.raises(ValueError, match='two outputs have the name "y"'):
        graph.output("y", x)
    assert list(graph.inputs) == ["x"] and list(graph.outputs) == ["y"] and graph.symbols == ("n",)
    np.testing.assert_array_equal(run(graph, x=np.zeros((1, 3), np.float32))["y"], np.ones((1, 3)))


def test_two_symbols_are_two_dims():
    graph = hr.Graph()
    x, y = graph.input("x", "float32", ["n"]), graph.input("y", "float32", ["m"])
    with pytest.raises(ValueError, match="add"):
        x + y


def test_arrays_and_lists_become_constants():
    graph = hr.Graph()
    x = graph.input("x", "float32", [2])
    graph.output("y", hr.array([1.0, 2.0]) + x * np.array([3, 4], np.float32))
    graph.output("z", np.float32([1, 1]) - hr.maximum(x, [0.5, 0.5]))
    got = run(graph, x=np.float32([1, 0]))
    np.testing.assert_array_equal(got["y"], [4, 2])
    np.testing.assert_array_equal(got["z"], [0, 0.5])


def test_functions_with_several_results():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 4])
    parts = hr.unstack(x, axis=1)
    assert len(parts) == 4
    values, places = hr.topk(x, 2)
    graph.output("a", parts[1])
    graph.output("values", values)
    graph.output("places", places)
    given = np.float32([[3, 1, 4, 2]])
    got = run(graph, x=given)
    np.testing.assert_array_equal(got["a"], [1])
    np.testing.assert_array_equal(got["values"], [[4, 3]])
    np.testing.assert_array_equal(got["places"], [[2, 0]])


def test_layers_of_nn_build_graphs():
    from headrace import nn

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    graph = hr.Graph()
    graph.output("y", model(graph.input("x", "float32", ["n", 3])))
    given = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(run(graph, x=given)["y"], np.asarray(model(hr.array(given))), rtol=1e-5, atol=1e-6)


def test_simplify_folds_constants_and_drops_the_rest():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n"])
    hr.exp(x)
    graph.output("y", x + hr.sqrt(graph.constant(np.float32([4.0]))))
    small = graph.simplify()
    assert graph.operations == 3 and small.operations == 1 and list(small.inputs) == ["x"]
    np.testing.assert_array_equal(run(small, x=np.float32([1, 2]))["y"], [3, 4])


def test_packages(tmp_path):
    graph = hr.Graph()
    weights = np.arange(5000, dtype=np.float32)
    graph.output("y", graph.input("x", "float32", ["n", 1]) * weights)
    path = tmp_path / "model.hrpkg"
    graph.save(path, notes={"producer": "a test", "count": "1"})
    package = hr.open_package(path)
    assert package.notes == {"producer": "a test", "count": "1"} and package.path == path
    assert package.bytes == os.path.getsize(path) and package.text_bytes > 0
    package.verify()
    loaded = package.graph
    package.close()
    assert str(loaded) == str(graph)
    given = np.float32([[1], [2]])
    for source in (loaded, path, str(path)):
        session = hr.Session(source)
        np.testing.assert_array_equal(np.asarray(session(x=given)["y"]), given * weights)
        is_host = hr.device().startswith("cpu")
        assert session.stats()["constant_bytes_copied"] == (0 if is_host else weights.nbytes)
    for use in (package.verify, lambda: package.graph, lambda: package.notes, package.__enter__):
        with pytest.raises(ValueError, match="closed"):
            use()
    with hr.open_package(path) as package:
        assert package.notes["count"] == "1"
    assert "closed" in repr(package)


def test_files_that_are_no_packages(tmp_path):
    path = tmp_path / "model.hrpkg"
    with pytest.raises(FileNotFoundError, match="model.hrpkg"):
        hr.open_package(path)
    with pytest.raises(FileNotFoundError):
        hr.Session(path)
    path.write_bytes(b"no package")
    with pytest.raises(ValueError, match="model.hrpkg"):
        hr.open_package(path)
    graph = hr.Graph()
    graph.output("y", graph.input("x", "float32", [2]) + np.arange(1000, dtype=np.float32)[:2])
    with pytest.raises((TypeError, ValueError)):
        graph.save(path, notes={"a": 1})
    with pytest.raises(ValueError):
        graph.save(path, notes={"a=b": "c"})
    with pytest.raises(TypeError):
        hr.open_package(3.5)
    large = hr.Graph()
    large.output("y", large.input("x", "float32", [1000]) + np.arange(1000, dtype=np.float32))
    large.save(path)
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="model.hrpkg"):
        hr.open_package(path).verify()


# ---- control flow and variables


def test_choices():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n"])
    (y,) = graph.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, x)
    graph.output("y", y)
    session = hr.Session(graph)
    for given in (np.float32([1, 2]), np.float32([-1, -2, -3])):
        np.testing.assert_array_equal(np.asarray(session(x=given)["y"]), given + 1 if given.sum() > 0 else given * 2)


def test_loops():
    graph = hr.Graph()
    x, n = graph.input("x", "float32", [2]), graph.input("n", "int64", [])
    end, steps = graph.for_loop(n, lambda i, a, b: (a * 2 + b, a + i.astype("float32")), [x], [graph.constant([1.0, 0.0])])
    graph.output("end", end)
    graph.output("steps", steps)
    (doubled,) = graph.while_loop(lambda a: a.max() < 100, lambda a: a * 2, [x])
    graph.output("doubled", doubled)
    session = hr.Session(graph)
    for count in (0, 3):
        a, rows = np.float32([1, 2]), []
        for i in range(count):
            rows.append(a + i)
            a = a * 2 + np.float32([1, 0])
        got = session(x=np.float32([1, 2]), n=count)
        np.testing.assert_array_equal(np.asarray(got["end"]), a)
        np.testing.assert_array_equal(np.asarray(got["steps"]), np.reshape(rows, (count, 2)))
        np.testing.assert_array_equal(np.asarray(got["doubled"]), [64, 128])


def test_scans_and_calls():
    inner = hr.Graph()
    inner.output("square", inner.input("a", "float32", ["k"]) ** 2.0)
    graph = hr.Graph()
    start, xs = graph.input("start", "float32", ["m"]), graph.input("xs", "float32", ["n", "m"])
    end, sums = graph.scan(lambda total, row: (total + row, total + row), [start], [xs])
    (squared,) = graph.call(inner, end)
    graph.output("sums", sums)
    graph.output("squared", squared)
    graph.output("gradient", graph.gradient(squared.sum(), start))
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    got = hr.Session(hr.Graph.parse(str(graph)))(start=np.zeros(3, np.float32), xs=x)
    np.testing.assert_allclose(np.asarray(got["sums"]), np.cumsum(x, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(got["squared"]), x.sum(axis=0) ** 2, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(got["gradient"]), 2 * x.sum(axis=0), rtol=1e-4, atol=1e-5)


def fourth_power(graph, kind, x, n):
    """x^4 by an operation of control flow; n is 4, as an integer that the host does not know."""
    one = x * 0 + 1
    if kind == "for":
        return graph.for_loop(4, lambda i, c, x: [c * x], [one], [x])[0]
    if kind == "for, unknown":
        return graph.for_loop(n, lambda i, c, x: [c * x], [one], [x])[0]
    if kind == "for, long":
        return graph.for_loop(40, lambda i, c, x: [hr.where(i < 4, c * x, c)], [one], [x])[0]
    if kind == "while":
        body, more = (lambda c, k, x, n: [c * x, k + 1]), (lambda c, k, x, n: k < n)
        return graph.while_loop(more, body, [one, n * 0], [x, n])[0]
    if kind == "scan":
        return graph.scan(lambda c, s, x: [c * x * s], [one], [np.ones(4)], [x])[0]
    if kind == "cond":
        return graph.cond(n > 3, lambda x: [x * x * x * x], lambda x: [hr.sin(x)], x)[0]
    if kind == "vmap":
        return graph.vmap(lambda x: [graph_call(x.graph, x)], hr.stack([x, x]))[0][1]
    return graph_call(graph, x)


def graph_call(graph, x):
    return graph.call(lambda x: [x * x * x * x], x)[0]


@pytest.mark.parametrize("kind", ["for", "for, unknown", "for, long", "while", "scan", "cond", "call", "vmap"])
def test_gradients_of_any_order_through_control_flow(kind):
    graph = hr.Graph()
    x, n = graph.input("x", "float64", []), graph.input("n", "int64", [])
    y = fourth_power(graph, kind, x, n)
    for order in range(5):
        graph.output(f"y{order}", y)
        y = graph.gradient(y, x)
    got = hr.Session(graph)(x=np.float64(1.5), n=4)
    powers = [1.5**4, 4 * 1.5**3, 12 * 1.5**2, 24 * 1.5, 24]
    np.testing.assert_allclose([got[f"y{order}"].item() for order in range(5)], powers, 1e-12)


def test_variables_are_kept_between_runs(tmp_path):
    graph = hr.Graph()
    w = graph.variable("w", np.float32([1, 2]))
    x = graph.input("x", "float32", [2])
    loss = ((w - x) ** 2.0).sum()
    graph.assign(w, w - 0.25 * graph.gradient(loss, w))
    graph.output("loss", loss)
    graph.save(tmp_path / "step.hrpkg")
    session = hr.Session(tmp_path / "step.hrpkg")
    value, target = np.float32([1, 2]), np.float32([3, -1])
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(session(x=target)["loss"]), ((value - target) ** 2).sum(), rtol=1e-6)
        value = value - 0.5 * (value - target)
        np.testing.assert_allclose(np.asarray(session.variable("w")), value, rtol=1e-6)
    session.set_variable("w", np.float32([5, 5]))
    assert np.asarray(session.variable("w")).tolist() == [5, 5]
    with pytest.raises(KeyError, match="u"):
        session.variable("u")
    with pytest.raises(ValueError):
        session.set_variable("w", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="variables"):
        hr.grad(lambda x: session(x=x)["loss"])(hr.array(target))
    assert np.asarray(session.variable("w")).tolist() == [5, 5]


def test_numbers_that_are_read():
    graph = hr.Graph()
    x, n = graph.input("x", "float32", ["n"]), graph.input("k", "int64", [])
    graph.output("y", x.reshape(graph.read(n), -1))
    assert np.asarray(hr.Session(graph)(x=np.zeros(6, np.float32), k=2)["y"]).shape == (2, 3)


@pytest.mark.parametrize("size", ["5", "n"])
def test_nonzero_with_a_size_has_dims_and_waits_for_nothing(size):
    text = f"graph 1\ninput %x bool[n]\n%0 = nonzero(%x, size={size})\n%1 = add(%0, 1)\noutput y = %1\n"
    graph = hr.Graph.parse(text)
    assert f"; i64[1, {size}]" in str(graph)
    session = hr.Session(graph)
    got = np.asarray(session(x=[False, True, False, False, True])["y"])
    np.testing.assert_array_equal(got, [[2, 5, 0, 0, 0]])
    assert session.stats()["waits"] == 0
    (mapped,) = hr.Session(graph_of_slices(text)).run(None, {"x": np.eye(3, 5, 1, dtype=bool)})
    np.testing.assert_array_equal(np.asarray(mapped), [[[k + 2, 0, 0, 0, 0]] for k in range(3)])


def graph_of_slices(text):
    """The graph for all slices of its input %x."""
    inner = "\n".join(text.splitlines()[1:]).replace("[n]", "[5]").replace("size=n", "size=5")
    mapped = "input %x bool[3, 5]\n%0 = vmap(@0, %x, in=[0], out=[0])\noutput y = %0\n"
    return hr.Graph.parse(f"graph 2\nfunction @0 {{\n{inner}\n}}\n{mapped}")


def test_wrong_control_flow():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n"])
    with pytest.raises(TypeError, match="cond"):
        graph.cond(x)
    with pytest.raises(TypeError, match="neither a Graph nor a function"):
        graph.call(3, x)
    with pytest.raises(ValueError, match="another graph"):
        graph.call(lambda a: a + x, x)
    with pytest.raises((TypeError, ValueError)):
        graph.cond(x.sum() > 0, lambda a: a, lambda a: (a, a), x)
    with pytest.raises((TypeError, ValueError)):
        graph.while_loop(lambda a: a.sum() > 0, lambda a: a.astype("int32"), [x])
    with pytest.raises(TypeError):
        graph.scan(lambda a, b: a, [x], None)
    with pytest.raises(ValueError):
        graph.assign(x, x + 1)
    graph.output("y", x + 1)  # the graph goes on
    np.testing.assert_array_equal(run(graph, x=np.float32([1]))["y"], [2])
