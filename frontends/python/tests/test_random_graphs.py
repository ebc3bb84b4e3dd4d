"""Random graphs answer as the same functions of arrays do, for several sizes of their symbols.

A program is a list of steps, each of which applies functions to values made before. The same program runs on arrays,
and on the values of a graph. HEADRACE_TEST_EXAMPLES sets how many programs are tried.
"""

import os
import random

import headrace as hr
import numpy as np
import pytest

COUNT = int(os.environ.get("HEADRACE_TEST_EXAMPLES", "150"))
SIZES = [{"n": 4, "m": 3}, {"n": 2, "m": 5}, {"n": 1, "m": 7}, {"n": 6, "m": 1}, {"n": 0, "m": 3}]
DTYPES = ["float32", "float64", "int32", "int64", "bool", "bfloat16", "uint8"]
SHAPES = [("n", "m"), ("m",), ("n", 1), (), ("m", "n"), (2, "n"), (1, "m"), ("n", 2, "m"), (3,)]

# ---- steps: functions of (random numbers, values), which draw the same numbers for arrays and for values


def is_float(x):
    return "float" in x.dtype.name


def unary(draw, x):
    of_all = [hr.abs, hr.sign, hr.negative, hr.square] if x.dtype.name not in ("bool",) else [hr.logical_not]
    of_floats = [hr.sin, hr.tanh, hr.exp, hr.floor, hr.sigmoid, hr.relu, hr.isnan, hr.erf, hr.trunc, hr.gelu]
    return draw.choice(of_all + (of_floats if is_float(x) else []))(x)


def binary(draw, x, y):
    both = [hr.add, hr.multiply, hr.subtract, hr.maximum, hr.minimum, hr.less, hr.equal, hr.greater_equal]
    if "bool" in (x.dtype.name, y.dtype.name):
        both = [hr.equal, hr.not_equal, hr.logical_and, hr.logical_or]
    return draw.choice(both)(x, y)


def number(draw, x):
    if x.dtype.name == "bool":
        return hr.logical_xor(x, True)
    return draw.choice(
        [lambda x: x + 2, lambda x: 3 - x, lambda x: x * 2, lambda x: x > 1, lambda x: hr.maximum(x, 1)]
    )(x)


def convert(draw, x):
    y = x.astype("float32") if is_float(x) else x  # from floats to integers a bound is needed
    to = draw.choice(DTYPES)
    if is_float(x) and "int" in to:
        return hr.clip(hr.where(hr.isnan(y), 0.0, y), 0, 100).astype(to)
    return x.astype(to)


def reduce(draw, x):
    functions = [hr.sum, hr.max, hr.min, hr.mean, hr.prod, hr.any, hr.all, hr.argmax]
    if x.dtype.name == "bool":
        functions = [hr.any, hr.all, hr.sum]
    axis = draw.choice([None, *range(-x.ndim, x.ndim)])
    return draw.choice(functions)(x, axis=axis, keepdims=draw.random() < 0.4)


def scan_along(draw, x):
    axis = draw.randrange(-x.ndim, x.ndim) if x.ndim else None
    if axis is None or x.dtype.name == "bool":
        return x
    functions = [lambda x: hr.cumulative_sum(x, axis), lambda x: x.sort(axis=axis), lambda x: x.argsort(axis=axis)]
    functions += [lambda x: hr.cumulative_max(x, axis), lambda x: hr.flip(x, axis)]
    functions += [lambda x: hr.softmax(x, axis), lambda x: hr.logsumexp(x, axis)] if x.dtype.name == "float32" else []
    return draw.choice(functions)(x)


def reshape(draw, x):
    kinds = [
        lambda x: x.reshape(-1),
        lambda x: hr.expand_dims(x, draw.randrange(x.ndim + 1)),
        lambda x: hr.reshape(x, (1, -1)),
    ]
    if x.ndim > 1:
        order = draw.sample(range(x.ndim), x.ndim)
        kinds += [lambda x: hr.permute_dims(x, order), lambda x: hr.swapaxes(x, 0, -1)]
    return draw.choice(kinds)(x)


def cut(draw, x):
    if x.ndim == 0:
        return x[None]
    key = []
    for _ in range(draw.randrange(1, x.ndim + 1)):
        begin, end = draw.choice([None, 0, 1, -2, -1]), draw.choice([None, 2, 3, -1, 100])
        key.append(draw.choice([slice(begin, end, draw.choice([1, 2, -1, None])), slice(None), slice(begin, None)]))
    return x[tuple(key)]


def join(draw, x, y):
    y = y.astype(x.dtype)
    if draw.random() < 0.5 and x.ndim:
        return hr.concat([x, y], axis=draw.randrange(x.ndim))
    return hr.stack([x, x * 2 if x.dtype.name != "bool" else x, y], axis=draw.randrange(x.ndim + 1))


def choose(draw, x, y):
    return hr.where(x if x.dtype.name == "bool" else x > 0, y, draw.choice([y, x]))


def broadcast(draw, x, y):
    return hr.broadcast_arrays(x, y)[0]


def product(draw, x, y):
    return hr.matmul(x.astype("float32"), y.astype("float32"))


def take(draw, x):
    if x.ndim == 0:
        return x
    return hr.take(x, hr.array([0, 0]), axis=draw.randrange(x.ndim))


def pad(draw, x):
    return hr.concat([x, x], axis=0)[1:] if x.ndim else x


STEPS = [unary, binary, number, convert, reduce, scan_along, reshape, cut, join, choose, broadcast, product, take, pad]
ARITY = {binary: 2, join: 2, choose: 2, broadcast: 2, product: 2}

# ---- control flow, which Python does for arrays


def graph_of(values):
    return next((x.graph for x in values if isinstance(x, hr._arrays.Value)), None)


def some_steps(draw, count):
    """A function of one value that keeps dtype and dims: iterations may pass its result on."""
    kinds = [draw.randrange(4) for _ in range(count)]

    def function(x):
        for kind in kinds:
            if x.dtype.name == "bool":
                x = hr.logical_not(x)
            else:
                y = (x * 2, hr.maximum(x, 1), x + 1, hr.minimum(x, 5))[kind]
                x = y.astype(x.dtype)
        return x

    return function


def loop(draw, x):
    count, function = draw.randrange(4), some_steps(draw, 2)
    if isinstance(x, hr._arrays.Value):
        return x.graph.for_loop(count, lambda i, x: [function(x)], [x])[0]
    for _ in range(count):
        x = function(x)
    return x


def branch(draw, x):
    first, second = some_steps(draw, 1), some_steps(draw, 2)
    truth = hr.sum(x.astype("float32")) > 1
    if isinstance(x, hr._arrays.Value):
        return x.graph.cond(truth, first, second, x)[0]
    return first(x) if bool(truth) else second(x)


def each_slice(draw, x):
    function = some_steps(draw, 2)
    if x.ndim == 0:
        return x
    if isinstance(x, hr._arrays.Value):
        return x.graph.vmap(lambda x: [function(x)], x)[0] if draw.random() < 0.5 else x.graph.scan(
            lambda x: [function(x)], [], [x])[0]  # fmt: skip
    draw.random()
    return function(x)


CONTROL = [loop, branch, each_slice]

# ---- programs


def program_of(seed):
    """Steps, each with a seed of its own and the numbers of its operands."""
    draw = random.Random(seed)
    inputs = [(draw.choice(SHAPES), draw.choice(DTYPES)) for _ in range(draw.randrange(1, 4))]
    steps = []
    for i in range(draw.randrange(2, 12)):
        step = draw.choice(STEPS) if draw.random() < 0.85 else draw.choice(CONTROL)
        operands = [draw.randrange(len(inputs) + i) for _ in range(ARITY.get(step, 1))]
        steps.append((step, draw.randrange(1 << 30), operands))
    return inputs, steps


def build(inputs, steps):
    """A graph with all values as outputs, and the steps that it has: those that no size forbids."""
    graph = hr.Graph()
    values = [graph.input(f"x{i}", dtype, shape) for i, (shape, dtype) in enumerate(inputs)]
    kept = []
    for step, seed, operands in steps:
        try:
            y = step(random.Random(seed), *[values[k] for k in operands])
            kept.append((step, seed, operands))
        except (ValueError, TypeError, IndexError, NotImplementedError):
            y = values[operands[0]]
            kept.append(("same", operands[0]))
        values.append(y)
    for i, y in enumerate(values):
        graph.output(f"y{i}", y)
    return graph, kept


def run_arrays(arrays, kept):
    values = list(arrays)
    for one in kept:
        values.append(
            values[one[1]] if one[0] == "same" else one[0](random.Random(one[1]), *[values[k] for k in one[2]])
        )
    return values


def elements(rng, shape, dtype, sizes):
    dims = tuple(sizes.get(size, size) for size in shape)
    x = rng.normal(size=dims) * 3
    if dtype == "bool":
        return hr.array(x > 0)
    x = np.abs(np.round(x)) if "int" in dtype else x
    return hr.array(np.asarray(x, np.float32)).astype(dtype)


def expect_same(got, wanted, what, has_products):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, what
    a, b = (np.asarray(x.astype("float64") if is_float(x) else x) for x in (got, wanted))
    if has_products and is_float(got):
        np.testing.assert_allclose(a, b, rtol=1e-2 if got.dtype.name == "bfloat16" else 1e-4, atol=1e-4, err_msg=what)
    else:
        np.testing.assert_array_equal(a, b, err_msg=what)


def check(seed):
    return check_program(seed, *program_of(seed))


def check_program(seed, inputs, steps):
    """How often it ran, and how many of its steps the graph has, and in all."""
    graph, kept = build(inputs, steps)
    assert str(hr.Graph.parse(str(graph), data=[])) == str(graph) or "#0" in str(graph)
    sessions = [hr.Session(graph), hr.Session(graph, simplify=False)]
    ran = 0
    for s, sizes in enumerate(SIZES):
        rng = np.random.default_rng(seed * 10 + s)
        arrays = [elements(rng, shape, dtype, sizes) for shape, dtype in inputs]
        try:
            wanted = run_arrays(arrays, kept)
            hr.eval(*wanted)
        except (ValueError, TypeError, IndexError):
            continue  # such as the largest of no elements
        has_products = any(one[0] is product for one in kept)
        for session in sessions:
            try:
                got = session.run(None, {f"x{i}": x for i, x in enumerate(arrays)})
            except ValueError:  # types are those of sizes from 1 on: x[-1:] has no element then
                assert sizes["n"] == 0
                continue
            for i, (y, z) in enumerate(zip(got, wanted)):
                expect_same(y, z, f"seed {seed}, {sizes}, y{i} of\n{graph}", has_products)
        ran += 1
    return ran, sum(one[0] != "same" for one in kept), len(kept)


@pytest.mark.parametrize("block", range(5))
def test_random_graphs(block):
    counts = [check(seed) for seed in range(block, COUNT, 5)]
    ran, kept, steps = (sum(column) for column in zip(*counts))
    assert ran > 2 * len(counts) and kept > 0.6 * steps  # most programs are valid, for most sizes


def test_graphs_of_hypothesis():
    """The same programs, drawn by hypothesis, which reduces one that fails to its smallest form."""
    hypothesis = pytest.importorskip("hypothesis")
    st = pytest.importorskip("hypothesis.strategies")

    @st.composite
    def programs(draw):
        inputs = draw(st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)), min_size=1, max_size=3))
        kinds, steps = st.sampled_from([*STEPS, *CONTROL]), []
        for i in range(draw(st.integers(1, 10))):
            step, places = draw(kinds), st.integers(0, len(inputs) + i - 1)
            operands = [draw(places) for _ in range(ARITY.get(step, 1))]
            steps.append((step, draw(st.integers(0, 1 << 30)), operands))
        return inputs, steps

    @hypothesis.settings(max_examples=max(1, COUNT // 3), deadline=None, derandomize=True, database=None)
    @hypothesis.given(programs())
    def check_each(program):
        check_program(1, *program)

    check_each()


@pytest.mark.parametrize("simplify", [True, False])
def test_results_of_no_iterations_are_operands(simplify):
    """Stacked results of a loop that does not run are empty, and may be read."""
    graph = hr.Graph()
    x = graph.input("x", "float32", ("n", 3))
    stacks = [
        graph.for_loop(0, lambda i, x: [x, x * 2], [x])[1],
        graph.scan(lambda x: [x * 2], [], [x[:0]])[0],
        graph.while_loop(lambda x: hr.sum(x) > 1e9, lambda x: [x, x * 2], [x])[1],
    ]
    for i, y in enumerate(stacks):
        graph.output(f"y{i}", y + 1)
        graph.output(f"s{i}", hr.sum(y))
    got = hr.Session(graph, simplify=simplify)(x=np.ones((2, 3), np.float32))
    assert [got[f"y{i}"].shape for i in range(3)] == [(0, 2, 3), (0, 3), (0, 2, 3)]
    assert [float(got[f"s{i}"]) for i in range(3)] == [0, 0, 0]
