"""Sessions whose products have factors in bf16 or f16: each product is that of rounded factors, and nothing else is."""

import headrace as hr
import numpy as np
import pytest

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def rounded(x, dtype):
    return np.asarray(hr.asarray(x).astype(dtype).astype("float32"))


def answers(build, arrays, **options):
    graph = hr.Graph()
    graph.output("y", build(*[graph.input(f"x{i}", "float32", x.shape) for i, x in enumerate(arrays)]))
    session = hr.Session(graph, **options)
    return np.asarray(session.run(None, {f"x{i}": x for i, x in enumerate(arrays)})[0])


PRODUCTS = {
    "matmul": (lambda x, y: x @ y, normal(5, 16), normal(16, 7)),
    "batches": (lambda x, y: x @ y, normal(3, 5, 16), normal(3, 16, 7)),
    "einsum": (lambda x, y: hr.einsum("ij,kj->ik", x, y), normal(5, 16), normal(7, 16)),
    "conv": (lambda x, w: hr.conv(x, w, None, stride=[1, 1], before=[1, 1], after=[1, 1], dilation=[1, 1]),
             normal(2, 4, 6, 6), normal(3, 4, 3, 3)),
    "conv_transpose": (lambda x, w: hr.conv_transpose(x, w, [2, 2], [0, 0], [0, 0], [1, 1]), normal(2, 4, 5, 5),
        normal(4, 3, 2, 2)),
}  # fmt: skip
EPS = {"bf16": 2.0**-8, "f16": 2.0**-11}


@pytest.mark.parametrize("precision", EPS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_have_rounded_factors_and_sums_of_f32(name, precision):
    build, *arrays = PRODUCTS[name]
    dtype = {"bf16": "bfloat16", "f16": "float16"}[precision]
    got = answers(build, arrays, precision=precision)
    exact = answers(build, [rounded(x, dtype) for x in arrays])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, rounded(got, dtype))
    np.testing.assert_allclose(got, exact, rtol=EPS[precision], atol=1e-4 * np.abs(exact).max())
    plain = answers(build, arrays)
    assert np.abs(got - plain).max() > 0
    np.testing.assert_allclose(got, plain, rtol=0, atol=8 * EPS[precision] * np.abs(plain).max())
    np.testing.assert_array_equal(answers(build, arrays, precision="f32"), plain)


def test_attention_with_masks():
    q, k, v, mask = normal(2, 3, 5, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 4), normal(5, 6)
    for build, arrays in (
        (lambda q, k, v: hr.attention(q, k, v), (q, k, v)),
        (lambda q, k, v, m: hr.attention(q, k, v, m), (q, k, v, mask)),
        (lambda q, k, v, m: hr.attention(q, k, v, m > 0), (q, k, v, mask)),
    ):
        plain, got = answers(build, arrays), answers(build, arrays, precision="bf16")
        assert 0 < np.abs(got - plain).max() < 0.05


def test_other_operations_and_dtypes_stay():
    x = normal(4, 4)
    for build in (lambda x: hr.exp(x) + x.sum(), lambda x: hr.softmax(x, 1),
        lambda x: x.astype("float64") @ x.astype("float64"),
                  lambda x: (x * 100).astype("int32") @ (x * 100).astype("int32")):  # fmt: skip
        np.testing.assert_array_equal(answers(build, [x], precision="bf16"), answers(build, [x]))


def test_inner_graphs_variables_and_gradients():
    x, w = normal(5, 8), normal(8, 8)

    def build(x, w):
        graph = x.graph
        (y,) = graph.for_loop(2, lambda i, c, w: hr.tanh(c @ w), [x], [w])
        return graph.gradient(hr.sum(y), [w])[0]

    plain, got = answers(build, [x, w]), answers(build, [x, w], precision="bf16")
    assert 0 < np.abs(got - plain).max() < 0.05 * np.abs(plain).max()
    graph = hr.Graph()
    a = graph.input("a", "float32", (5, 8))
    v = graph.variable("v", w)
    graph.output("y", a @ v)
    graph.assign(v, v + 0.001)
    session = hr.Session(graph, precision="bf16")
    for step in range(2):
        np.testing.assert_allclose(np.asarray(session(a=x)["y"]), x @ (w + 0.001 * step), atol=0.1)
    np.testing.assert_allclose(np.asarray(session.variable("v")), w + 0.002, rtol=1e-6, atol=1e-6)


def test_unknown_precisions_are_refused():
    graph = hr.Graph()
    graph.output("y", graph.input("x", "float32", (2, 2)))
    with pytest.raises(ValueError, match='precision is "int8", expected f32, bf16 or f16'):
        hr.Session(graph, precision="int8")
