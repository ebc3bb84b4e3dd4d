"""vmap of graphs: against a loop over slices, through control flow and gradients, and what is refused."""

import headrace as hr
import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def run(build, *arrays):
    """The outputs of a graph of build(graph, *inputs), by a session and by the text read back."""
    graph = hr.Graph()
    inputs = []
    for i, array in enumerate(arrays):
        inputs.append(graph.input(f"x{i}", str(array.dtype), array.shape))
    for i, value in enumerate(build(graph, *inputs)):
        graph.output(f"y{i}", value)
    again = hr.Graph.parse(str(graph))
    assert str(again) == str(graph)
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    first, second = (hr.Session(one).run(None, feeds) for one in (graph, again))
    for a, b in zip(first, second):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return [np.asarray(a) for a in first]


def expect_loop(function, *arrays, axes=0, others=()):
    """function(graph, *values) for slices along an axis has the bits of a loop; the others are the same in all."""
    into = (*[axes] * len(arrays), *[None] * len(others))

    def mapped(graph, *values):
        return graph.vmap(lambda *v: function(v[0].graph, *v), *values, in_axes=into)

    count = arrays[0].shape[axes]
    got = run(mapped, *arrays, *others)
    assert all(y.shape[0] == count for y in got)
    for i in range(count):
        slices = [np.take(x, i, axes) for x in arrays]
        for y, z in zip(got, run(lambda graph, *v: function(graph, *v), *slices, *others)):
            np.testing.assert_array_equal(y[i], z)


def test_functions_shapes_and_views():
    expect_loop(lambda g, a: [hr.softmax(a), a.sum(), a.reshape(-1, 1), a[::-1] + a.max(), hr.concat([a, a])], X)
    expect_loop(lambda g, a, w: [hr.exp(a) * w, hr.cumsum(a + w)], X, others=[X[0]])
    expect_loop(lambda g, a, w: [a * w[:2], hr.sort(a)], np.ascontiguousarray(X[:, :2].T), axes=1, others=[X[0]])
    expect_loop(lambda g, a, b: [a + b], X, X[::-1].copy())


def test_sizes_of_one_and_none():
    expect_loop(lambda g, a: [hr.sin(a), a.sum()], X[:1])
    (y, s) = run(lambda g, x: g.vmap(lambda a: [hr.sin(a), a.sum()], x), X[:0])
    assert y.shape == (0, 3) and s.shape == (0,)
    expect_loop(lambda g, a: [hr.sin(a), a.sum()], X[:, :0].copy())


def test_control_flow():
    expect_loop(lambda g, a: g.for_loop(3, lambda i, c: [c * 0.5 + i.astype("float32"), c.sum()], [a]), X)
    expect_loop(lambda g, a, s: g.scan(lambda c, x: [c * x, c + x], [a], [s]), X, others=[X[1:, :]])
    expect_loop(lambda g, a: g.scan(lambda c, x: [c + x, c], [a[0]], [a]), X)
    expect_loop(lambda g, a: g.call(lambda v: [v - v.max(), v.min()], a), X)
    for c in (True, False):
        expect_loop(lambda g, a, c: g.cond(c, lambda v: v * 2, lambda v: hr.cos(v), a), X, others=[np.array(c)])
    limit = np.array(4, np.int64)
    expect_loop(
        lambda g, a, n: g.while_loop(lambda v, k, n: k < n, lambda v, k, n: [v * 0.5, k + 1], [a, n * 0], [n])[:1],
        X,
        others=[limit],
    )


def test_in_control_flow_and_in_itself():
    def body(carry, x):
        (y,) = carry.graph.vmap(lambda a, b: a * b + 1, carry, x)
        return [y, y]

    (last, all_of) = run(lambda g, x: g.scan(body, [x[0]], [x]), X)
    expected = X[0]
    for row in X:
        expected = expected * row + np.float32(1)
    np.testing.assert_allclose(last, expected, rtol=1e-6)
    np.testing.assert_array_equal(all_of[-1], last)

    def outer(g, x, y):
        return g.vmap(
            lambda a, b: a.graph.vmap(lambda c, d: hr.sum(c * d), a, b, in_axes=(None, 0)), x, y, in_axes=(0, None)
        )

    (table,) = run(outer, X, X)
    np.testing.assert_array_equal(
        table, np.array([[np.asarray(hr.sum(hr.asarray(a) * hr.asarray(b))) for b in X] for a in X])
    )


def test_axes():
    (y, z) = run(lambda g, x: g.vmap(lambda a: [a * 2, a], x, in_axes=-1, out_axes=(1, -2)), X)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(z, X.T)
    (y, z) = run(lambda g, x, w: g.vmap(lambda a, b: [a, b + 1], x, w, in_axes=(0, None), out_axes=(0, None)), X, X[0])
    np.testing.assert_array_equal(z, X[0] + 1)


def test_symbols():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["b", "n"])
    (y,) = graph.vmap(lambda a: [a.reshape("n", 1) / hr.astype(a.graph.shape(a)[0], "float32")], x)
    assert y.shape == ("b", "n", 1)
    graph.output("y", y)
    session = hr.Session(graph)
    for shape in ((2, 3), (4, 1), (3, 7)):
        z = np.ones(shape, np.float32)
        np.testing.assert_array_equal(np.asarray(session(x=z)["y"]), (z / np.float32(shape[1]))[..., None])


def loss(a):
    graph = a.graph
    (c,) = graph.for_loop(2, lambda i, v: v * v * 0.5, [a])
    total = hr.sum(hr.sin(c))
    return [*graph.gradient(total, [a]), total]


def test_gradients_of_slices_and_of_vmaps():
    expect_loop(lambda g, a: loss(a), X)

    def around(g, x):
        total = hr.sum(g.vmap(lambda a: loss(a)[1], x)[0])
        return g.gradient(total, [x])

    (whole,) = run(around, X)
    (each, _) = run(lambda g, x: g.vmap(loss, x), X)
    np.testing.assert_allclose(whole, each, rtol=1e-5, atol=1e-6)

    def second(g, x):
        return g.gradient(hr.sum(g.vmap(lambda a: loss(a)[0], x)[0]), [x])

    def one_by_one(g, x):
        return [hr.stack([g.gradient(hr.sum(loss(row)[0]), [row])[0] for row in [x[i] for i in range(5)]])]

    np.testing.assert_allclose(run(second, X)[0], run(one_by_one, X)[0], rtol=1e-4, atol=1e-5)


def test_hr_vmap_takes_values():
    tree = {"w": X[0], "b": np.float32(2)}

    def function(a, parameters):
        return {"y": a * parameters["w"] + parameters["b"], "s": (a.sum(), None)}

    def build(graph, x, w):
        found = hr.vmap(function, in_axes=(0, None))(x, {"w": w, "b": 2.0})
        assert found["s"][1] is None
        return [found["y"], found["s"][0]]

    (y, s) = run(build, X, tree["w"])
    expected = hr.vmap(function, in_axes=(0, None))(hr.asarray(X), {"w": hr.asarray(X[0]), "b": 2.0})
    np.testing.assert_array_equal(y, np.asarray(expected["y"]))
    np.testing.assert_array_equal(s, np.asarray(expected["s"][0]))
    (z,) = run(lambda g, x: [hr.vmap(lambda a, b: a - b)(x, hr.asarray(X[:, 0]))], X)
    np.testing.assert_array_equal(z, X - X[:, :1])


def inner_condition(a):
    """A branch within a loop."""
    return a.graph.for_loop(2, lambda i, v: v.graph.cond(v[0] > 0, abs, abs, v), [a])


def second_iteration(a):
    """The condition reads what the slice reaches after two iterations."""
    graph = a.graph
    zero = hr.sum(graph.constant(np.zeros(2, np.float32)))
    return graph.while_loop(lambda p, q, v: q < 3, lambda p, q, v: [hr.sum(v), p + 1, v], [zero, zero, a])


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda a: a.graph.while_loop(lambda v: hr.sum(v) < 10, lambda v: v * v + 1, [a]), "the condition of while"),
        (lambda a: a.graph.cond(hr.sum(a) > 0, lambda v: v, lambda v: -v, a), "the condition of if"),
        (lambda a: list(hr.nonzero(a)), "the size of nonzero"),
        (lambda a: a.graph.for_loop(a[0].astype("int64"), lambda i, v: v, [a]), "the count of for"),
        (lambda a: a + a.graph.read(a[:1].astype("int64"))[0], "the value of read"),
        (inner_condition, "the condition of if"),
        (second_iteration, "the condition of while"),
        (lambda a: a.graph.vmap(lambda b: b.graph.cond(b > 0, lambda v: v, lambda v: -v, b), a), "the condition of if"),
        (lambda a: a.graph.cond(hr.sum(a.graph.gradient(hr.sum(a * a), [a])[0]) > 0, abs, abs, a), "condition of if"),
    ],
)
def test_what_slices_decide_is_refused(function, message):
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n", 3])
    with pytest.raises(ValueError, match=f'vmap: .*{message} ".*" differs between slices'):
        graph.vmap(function, x)
    y = graph.vmap(lambda a: a + 1, x)  # the graph is as before
    graph.output("y", y[0])
    np.testing.assert_array_equal(np.asarray(hr.Session(graph)(x=X)["y"]), X + 1)


def test_what_is_the_same_in_all_slices_may_decide():
    counter = [np.int64(0)]
    expect_loop(lambda g, a, n: g.while_loop(lambda i, v: i < 3, lambda i, v: [i + 1, v * 2], [*counter, a * n])[1:],
                X, others=[np.float32(1)])  # fmt: skip
    expect_loop(lambda g, a, n: g.cond(n > 0, lambda v: v, lambda v: -v, a), X, others=[np.float32(1)])
    expect_loop(lambda g, a, n: [a * hr.sum(hr.nonzero(n)[0])], X, others=[X[0]])
    expect_loop(lambda g, a, n: [a[: g.read(n)]], X, others=[np.int64(2)])

    def unused(a):
        a.graph.cond(hr.sum(a) > 0, lambda v: v, lambda v: -v, a)
        return a * 2

    (y,) = run(lambda g, x: g.vmap(unused, x), X)
    np.testing.assert_array_equal(y, X * 2)


def test_bad_arguments_are_refused():
    graph = hr.Graph()
    x, y = graph.input("x", "float32", (5, 3)), graph.input("y", "float32", (4, 3))
    for bad, message in [
        (lambda: graph.vmap(lambda a, b: a + b, x, y), "argument 1 has 4 slices, expected 5"),
        (lambda: graph.vmap(lambda a: a, x, in_axes=None), "no argument is sliced"),
        (lambda: graph.vmap(lambda a: a, x, in_axes=2), r"in_axes\[0\] is 2, expected -2 to 1"),
        (lambda: graph.vmap(lambda a: a, x, in_axes=(0, 1)), "in_axes has 2 entries, expected 1"),
        (lambda: graph.vmap(lambda a: a, x, out_axes=2), r"out_axes\[0\] is 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            bad()
    with pytest.raises(ValueError, match="result 0 differs between slices, but has no axis"):
        graph.vmap(lambda a: a, x, out_axes=None)
    with pytest.raises(TypeError, match="expects a graph or a function"):
        graph.vmap(lambda a: a)


@pytest.mark.parametrize(
    "line",
    ["vmap(@0, %x)", "vmap(@0, %x, in=[0])", "vmap(@0, %x, in=[0], out=[])", "vmap(@0, %x, in=[99], out=[0])",
     "vmap(@0, %x, in=[0, 0], out=[0])", "vmap(@0, %x, out=[0], in=[0])", "vmap(@0, %x, in=[0], out=[0], in=[0])",
     "vmap(@0, in=[0], out=[0], %x)", "vmap(@0, %x, in=[_], out=[0])", "vmap(@0, %x, in=[0], out=[5])",
     "vmap(@0, %x, in=[-1], out=[0])"],
)  # fmt: skip
def test_bad_text_is_refused(line):
    text = "graph 2\nfunction @0 {\ninput %a f32[n]\noutput a = %a\n}\ninput %x f32[b, n]\n%0 = "
    hr.Graph.parse(text + "vmap(@0, %x, in=[0], out=[1])\n")
    with pytest.raises(ValueError):
        hr.Graph.parse(text + line + "\n")
