"""hr.compile: the results of compiled functions against those of the functions themselves."""

import functools
import gc
import inspect
import threading
from typing import NamedTuple

import numpy as np
import pytest

import headrace as hr


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def counted(function):
    """The function, and a list that has one entry for each time it ran."""
    runs = []

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        runs.append(1)
        return function(*args, **kwargs)

    return wrapper, runs


def chain(x, y):
    return hr.sigmoid(hr.sqrt(abs(hr.tanh((x + y) * 0.5) - y) * x + 1))


def test_later_calls_replay_with_new_inputs():
    function, runs = counted(chain)
    compiled = hr.compile(function)
    for seed in range(5):
        a, b = np.random.default_rng(seed).random((2, 7, 3), np.float32)
        x, y = hr.array(a), hr.array(b)
        same(compiled(x, y), chain(x, y))
        same(compiled(y, x), chain(y, x))
    assert len(runs) == 1


def test_results_stay_when_the_function_runs_again():
    compiled = hr.compile(lambda x: x * 2)
    results = [compiled(hr.array([float(i)])) for i in range(10)]
    assert [r.item() for r in results] == [2.0 * i for i in range(10)]


def test_shapes_dtypes_and_structure_have_captures_of_their_own():
    function, runs = counted(lambda x: x + 1)
    compiled = hr.compile(function)
    for x in (hr.array(1.0), hr.array([1.0, 2]), hr.array([1, 2]), hr.zeros((2, 1)), hr.zeros((1, 2))):
        result = compiled(x)
        assert (result.dtype, result.shape) == ((x + 1).dtype, x.shape)
        same(result, x + 1)
    assert len(runs) == 5
    compiled(hr.array([5.0, 6]))
    assert len(runs) == 5


@pytest.mark.parametrize(
    "one, other",
    [(1, 2), (1.0, 2.0), (1, 1.0), (0.0, -0.0), (True, 1), ("a", "b"), (None, 0), (2**70, 2**70 + 1), (1j, 2j),
     ([1], (1,)), ([1, [2]], [1, [3]]), ({"a": 1}, {"b": 1}), (hr.float32, hr.float16), (b"a", b"b"),
     (np.float64(1), 1.0)],
)  # fmt: skip
def test_constants_are_a_part_of_the_key(one, other):
    function, runs = counted(lambda x, constant: (x + 1, constant))
    compiled = hr.compile(function)
    for constant in (one, other, one, other):
        result = compiled(hr.array(1.0), constant)[1]
        assert result == constant and type(result) is type(constant)
    assert len(runs) == 2


def test_numbers_compute_with_their_values():
    compiled = hr.compile(lambda x, y=3: x * y)
    x = hr.array([1.0, 2])
    same(compiled(x, 2.0), [2, 4])
    same(compiled(x, 2.5), [2.5, 5])
    same(compiled(x), [3, 6])
    same(compiled(x, y=4), [4, 8])
    same(compiled(2, y=x), [2, 4])
    same(compiled(x, hr.array([3.0, 4])), [3, 8])


def test_unknown_objects_are_no_arguments():
    compiled = hr.compile(lambda x, y: x)
    for bad in (object(), np.zeros(3), {1, 2}, lambda: 1):
        with pytest.raises(ValueError, match="an argument is"):
            compiled(hr.array(1.0), bad)
        with pytest.raises(ValueError, match="an argument is"):
            compiled(hr.array(1.0), y=[bad])
    with pytest.raises(TypeError, match="not a function"):
        hr.compile(3)
    with pytest.raises(TypeError, match="missing"):
        compiled(hr.array(1.0))


class Pair(NamedTuple):
    a: hr.Array
    b: hr.Array


class Vector(tuple):
    pass


class Table(dict):
    pass


def test_trees_of_arguments_and_results():
    x = hr.array([1.0, 2])
    cases = [
        (lambda t: t["a"] + t["b"][0], {"a": x, "b": [x, None]}),
        (lambda t: [t[0] + 1, (t[1],)], [x, x]),
        (lambda t: {"a": t + 1, "n": None, "s": "text", "l": [t, [t * 2, {}]]}, x),
        (lambda t: Pair(t.a + 1, t.b * 2), Pair(x, x)),
        (lambda t: Vector([t[0] + 1, t[1]]), Vector([x, x])),
        (lambda t: t, {"a": x, 1: x, ("b", 2): x}),
        (lambda t: None, x),
        (lambda t: (), x),
    ]
    for function, tree in cases:
        compiled = hr.compile(function)
        expected = function(tree)
        for _ in range(2):
            result = compiled(tree)
            assert type(result) is type(expected)
            pairs = zip(hr.utils.tree_flatten(result), hr.utils.tree_flatten(expected), strict=True)
            for (path, value), (expected_path, wanted) in pairs:
                assert path == expected_path
                same(value, wanted) if isinstance(wanted, hr.Array) else None
                assert isinstance(value, hr.Array) or value == wanted


def test_dicts_keep_their_type():
    tree = Table(a=hr.array(2.0))
    tree.factor = 3
    function = hr.compile(lambda t: t["a"] * t.factor if type(t) is Table else None)
    assert function(tree).item() == 6
    assert function(tree).item() == 6


def test_results_of_one_call_are_not_those_of_another():
    compiled = hr.compile(lambda x: [x + 1, {"a": x}])
    first = compiled(hr.array(1.0))
    first.append(3)
    first[1]["a"] = None
    second = compiled(hr.array(2.0))
    assert len(second) == 2 and second[1]["a"].item() == 2


def test_views_of_arguments_share_their_memory():
    function, runs = counted(lambda x: (x, x.T, x[1:], x.reshape(-1), x.copy()))
    compiled = hr.compile(function)
    for x in (hr.arange(6.0).reshape(2, 3), hr.ones((2, 3))):
        for _ in range(2):
            for result, expected in zip(compiled(x), function(x), strict=True):
                same(result, expected)
    result = compiled(x)[0]
    x[0, 0] = 9
    assert result[0, 0].item() == 1
    result[0, 1] = 8
    assert x[0, 1].item() == 1


def test_layouts_of_arguments():
    x = hr.arange(24.0).reshape(4, 6)
    function, runs = counted(lambda t: (t * 2, t.sum(axis=0), t.T @ t))
    compiled = hr.compile(function)
    for view in (x, x[::-1], x[:, ::-1], x.T.reshape(4, 6), hr.broadcast_to(x[0], (4, 6)), x.reshape(6, 4).T):
        for result, expected in zip(compiled(view), function(view), strict=True):
            np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-6)
    same(hr.compile(lambda t: t + 1)(x[1:3, 2:4]), np.asarray(x)[1:3, 2:4] + 1)
    rows = hr.compile(lambda t: t + 1)
    for i in range(4):
        same(rows(x[i]), np.asarray(x)[i] + 1)


def test_one_array_for_two_arguments():
    compiled = hr.compile(lambda x, y: x * 2 + y)
    x, y = hr.array([1.0, 2]), hr.array([10.0, 20])
    same(compiled(x, y), [12, 24])
    same(compiled(x, x), [3, 6])


def test_writes_inside_change_no_argument():
    def function(x, y):
        x[0] = y[0] * 2
        y = y.reshape(-1)
        y[1] = 7
        z = x + 1
        view = z[1:]
        z[1] = 5
        return x, y, z, view

    compiled = hr.compile(function)
    for a, b in (([1.0, 2, 3], [4.0, 5]), ([6.0, 7, 8], [9.0, 10])):
        x, y = hr.array(a), hr.array(b)
        results = compiled(x, y)
        same(x, a)
        same(y, b)
        for result, expected in zip(results, function(hr.array(a), hr.array(b)), strict=True):
            same(result, expected)


def test_captured_arrays_are_constants():
    w = hr.array([1.0, 2])
    later = w * 3  # pending
    function, runs = counted(lambda x: x * w + later + w[0] + np.ones(2, np.float32))
    compiled = hr.compile(function)
    x = hr.array([1.0, 1])
    expected = np.asarray(function(x))
    same(compiled(x), expected)
    w[0] = 100
    later = None
    same(compiled(x), expected)
    assert len(runs) == 2


def test_written_constants_stay():
    w = hr.array([1.0, 2])

    def function(x):
        own = w.copy()
        own[0] = x
        made = hr.array([3.0, 4])
        made[1] = x
        return own, made

    compiled = hr.compile(function)
    for value in (5.0, 6.0):
        own, made = compiled(hr.array(value))
        same(own, [value, 2])
        same(made, [3, value])
    same(w, [1, 2])


def test_constant_results():
    w = hr.array([1.0, 2])
    compiled = hr.compile(lambda x: (w, w * 2, hr.array([3.0]), hr.zeros(2), hr.arange(3), x))
    for _ in range(2):
        results = compiled(hr.array(1.0))
        for result, expected in zip(results, ([1, 2], [2, 4], [3], [0, 0], [0, 1, 2], 1.0), strict=True):
            same(result, expected)
        results[0][0] = 50
        results[2][0] = 50
    same(w, [1, 2])


def test_without_arguments():
    function, runs = counted(lambda: [0.1 * hr.zeros(2), hr.ones(3) + 1])
    compiled = hr.compile(function)
    for _ in range(2):
        same(compiled()[1], [2, 2, 2])
    assert len(runs) == 1


def test_random_numbers_by_keys():
    compiled = hr.compile(lambda key: hr.random.normal(key, (4,)))
    for seed in range(3):
        key = hr.random.key(seed)
        same(compiled(key), hr.random.normal(key, (4,)))


def test_random_numbers_of_the_module():
    state = hr.random.state
    draw = hr.compile(lambda: hr.random.uniform(hr.random.next_key(), (4,)), inputs=state, outputs=state)
    hr.random.seed(3)
    compiled = [draw().tolist() for _ in range(3)]
    hr.random.seed(3)
    assert compiled == [hr.random.uniform(hr.random.next_key(), (4,)).tolist() for _ in range(3)]
    state.clear()
    frozen = hr.compile(lambda: hr.random.uniform(hr.random.next_key(), (4,)))
    same(frozen(), frozen())
    assert np.asarray(hr.random.next_key()).shape == (2,)


def test_indices():
    x, rows = hr.arange(12.0).reshape(4, 3), hr.array([2, 0, 2])
    y = hr.arange(12.0).reshape(4, 3) * 2
    w = hr.arange(12.0).reshape(4, 3) * 3

    def function(a, i):
        b = a.copy()
        b[i, 1] = 50
        b[hr.array([3])] = w[0]
        c = w.copy()
        c[i] = a[0]
        return a[i], a[1:, i[1]], b, c, a.at[i].add(1), w[i], a[a.shape[0] - 1, ::-1], a.at[:, 1].multiply(i.sum())

    compiled = hr.compile(function)
    for a, i in ((x, rows), (y, rows + 1), (x, rows)):
        for result, expected in zip(compiled(a, i), function(a, i), strict=True):
            same(result, expected)
    same(w, np.arange(12).reshape(4, 3) * 3)


def test_masks_in_writes():
    def function(x):
        y = x + 0
        y[y > 1] = 9
        return y

    compiled = hr.compile(function)
    for values in ([0.0, 1, 2], [3.0, 0, 1]):
        same(compiled(hr.array(values)), function(hr.array(values)))


def test_empty_arrays():
    compiled = hr.compile(lambda x: (x + 1, x.sum(), hr.zeros((0, 3)) + 1, hr.concat([x, x])))
    for _ in range(2):
        x = hr.zeros((0, 2))
        for result, expected in zip(compiled(x), (x, 0.0, hr.zeros((0, 3)), x), strict=True):
            same(result, expected)


def test_nan_and_dtypes():
    for dtype in (hr.bool, hr.int8, hr.uint8, hr.int32, hr.int64, hr.float16, hr.bfloat16, hr.float64, hr.complex64):
        x = hr.array([0, 1, 2]).astype(dtype)
        result, expected = hr.compile(lambda t: t * 1 + 0)(x), x * 1 + 0
        assert result.dtype == expected.dtype
        same(result.astype(hr.complex64), expected.astype(hr.complex64))
    x = hr.array([float("nan"), float("inf"), -0.0])
    same(hr.compile(lambda t: t + 0)(x), np.asarray(x) + 0)


# ---- values while tracing

READS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "float": lambda x: float(x.sum()),
    "tolist": lambda x: x.tolist(),
    "repr": repr,
    "numpy": np.asarray,
    "memoryview": memoryview,
    "dlpack": np.from_dlpack,
    "eval": hr.eval,
    "eval of a tree": lambda x: hr.eval({"a": [x]}),
    "if": lambda x: 1 if x[0] > 0 else 2,
    "in": lambda x: 3 in x,
    "created": lambda x: hr.ones(3).sum().item(),
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: hr.nonzero(x),
    "index": lambda x: [1, 2, 3][x.astype(hr.int32)[0]],
}


@pytest.mark.parametrize("name", READS)
def test_values_can_not_be_read(name):
    compiled = hr.compile(lambda x: (READS[name](x), x)[1])
    x = hr.array([1.0, 2])
    for _ in range(2):
        with pytest.raises(ValueError, match="no value while"):
            compiled(x)
    same(x + 1, [2, 3])
    same(hr.compile(lambda t: t + 1)(x), [2, 3])


def test_values_of_captured_arrays_can_be_read():
    w = hr.array([3.0])
    compiled = hr.compile(lambda x: x * w.item() if w[0] > 0 else x)
    assert compiled(hr.array(2.0)).item() == 6


def test_shapes_are_known():
    compiled = hr.compile(lambda x: x.reshape(x.shape[0] * x.shape[1], -1) * len(x) * x.ndim * x.size)
    assert compiled(hr.ones((2, 3, 4))).shape == (6, 4)
    assert compiled(hr.ones((5, 5, 5))).shape == (25, 5)


def test_arrays_that_leave_the_trace_have_no_value():
    left = []
    compiled = hr.compile(lambda x: (left.append(x), left.append(x + 1), x * 2)[2])
    assert compiled(hr.array(2.0)).item() == 4
    assert compiled(hr.array(3.0)).item() == 6
    for x in left:
        assert x.shape == () and x.dtype == hr.float32
        uses = [x.item, lambda: repr(x), lambda: x + 1, lambda: -x, lambda: hr.array(x).item(), lambda: hr.array([x, x]),
                lambda: np.asarray(x), lambda: compiled(x), lambda: x.sum(), lambda: hr.array([1.0]) * x,
                lambda: hr.grad(lambda t: t)(x), lambda: hr.stop_gradient(x).item(), lambda: x.T.item(),
                lambda: x[...].item(), lambda: x.copy().item(), lambda: hr.where(x, 1, 2)]  # fmt: skip
        for use in uses:
            with pytest.raises(ValueError):
                use()
        with pytest.raises(ValueError):
            x[...] = 3
        y = hr.zeros(())
        with pytest.raises(ValueError):
            y[...] = x
        assert y.item() == 0


def test_files_of_traced_arrays(tmp_path):
    with pytest.raises(ValueError, match="no value"):
        hr.compile(lambda x: hr.save(str(tmp_path / "x.npy"), x))(hr.array(1.0))


def test_exceptions_leave_everything_usable():
    state = {"a": hr.array(1.0), "list": [hr.array(2.0)], "n": 3}
    held = state["list"]

    def function(x, fails):
        state["a"] = state["a"] + x
        state["list"] = [x]
        held.append(x)
        state["new"] = x
        del state["n"]
        if fails:
            raise KeyError("on purpose")
        return x

    compiled = hr.compile(function, inputs=state, outputs=state)
    with pytest.raises(KeyError, match="on purpose"):
        compiled(hr.array(1.0), True)
    assert sorted(state) == ["a", "list", "n"] and state["list"] is held and len(held) == 1
    assert state["a"].item() == 1 and held[0].item() == 2
    with pytest.raises(ValueError, match="shape|broadcast|dims"):
        hr.compile(lambda x: x + hr.ones(3))(hr.ones(2))
    assert hr.compile(lambda x: x + 1)(hr.array(1.0)).item() == 2


# ---- state


def test_state_that_is_read():
    state = {"y": hr.array(2)}
    compiled = hr.compile(lambda x: x + state["y"], inputs=state)
    assert compiled(hr.array(1)).item() == 3
    assert state["y"].item() == 2
    state["y"] = hr.array(3)
    assert compiled(hr.array(1)).item() == 4
    state["y"] = hr.array([3, 4])
    same(compiled(hr.array(1)), [4, 5])
    state["y"][0] = 9
    same(compiled(hr.array(1)), [10, 5])


def test_state_in_lists_and_tuples():
    for state, get in (([hr.array(2)], lambda s: s), (([hr.array(2)],), lambda s: s[0])):
        compiled = hr.compile(lambda x: x + get(state)[0], inputs=state)
        assert compiled(hr.array(1)).item() == 3
        get(state)[0] = hr.array(3)
        assert compiled(hr.array(1)).item() == 4


def test_state_that_is_made():
    state = {}

    def function(x):
        state["y"] = x + 3
        return abs(x)

    compiled = hr.compile(function, outputs=state)
    assert compiled(hr.array(-1)).item() == 1
    assert state["y"].item() == 2
    state.clear()
    compiled(hr.array(-2))
    assert state["y"].item() == 1


def test_state_that_is_read_and_changed():
    state = {}

    def function(x):
        y = state.get("y", hr.array(0))
        state["y"] = x + y
        return x + 2 * y

    function, runs = counted(function)
    compiled = hr.compile(function, inputs=state, outputs=state)
    for i in range(6):
        assert compiled(hr.array(1)).item() == 1 + 2 * i
        assert state["y"].item() == i + 1
    assert len(runs) == 2


def test_state_of_other_dtypes_and_results():
    state = [hr.array(1.0)]

    def function(y):
        x = state[0]
        if y.dtype == hr.float32:
            state[0] = 2 * y
            return [x, y, x + y]
        state[0] *= 2
        return x + y

    compiled = hr.compile(function, inputs=state, outputs=state)
    for _ in range(10):
        assert len(compiled(hr.array(1.0))) == 3
        compiled(hr.array(1))
    assert state[0].item() == 4


class Optimizer:
    def __init__(self):
        self.state = {"step": hr.array(0), "rate": hr.array(0.5)}

    def update(self, model, gradients):
        self.state["step"] = self.state["step"] + 1
        for name, gradient in gradients.items():
            moment = self.state.setdefault(name, {}).get("m", hr.zeros_like(gradient))
            self.state[name]["m"] = 0.9 * moment + gradient
            model[name] = model[name] - self.state["rate"] * self.state[name]["m"]


def train(steps, compiles):
    model, optimizer = {"w": hr.array([1.0, -1]), "b": hr.array(0.5), "name": "model"}, Optimizer()
    state = [model, optimizer]

    def loss(parameters, x):
        return ((x @ parameters["w"] + parameters["b"] - 1) ** 2).mean()

    def step(x):
        parameters = {"w": model["w"], "b": model["b"]}
        value, gradients = hr.value_and_grad(loss)(parameters, x)
        optimizer.update(model, gradients)
        return value

    step, runs = counted(step)
    call = hr.compile(step, inputs=state, outputs=state) if compiles else step
    x = np.random.default_rng(0).random((steps, 8, 2), np.float32)
    losses = [call(hr.array(batch)).item() for batch in x]
    assert optimizer.state["step"].item() == steps
    return losses, np.asarray(model["w"]), np.asarray(optimizer.state["w"]["m"]), len(runs)


def test_training_step_with_an_optimizer():
    *compiled, runs = train(6, True)
    *eager, _ = train(6, False)
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert runs == 2  # the first step makes the moments


def test_state_keeps_its_containers():
    inner = {"a": hr.array(1.0), "old": hr.array(0.0)}
    state = {"inner": inner, "list": [hr.array(1.0), hr.array(2.0)], "pair": (hr.array(1.0), "x")}
    rows = state["list"]

    def function(x):
        inner["a"] = inner["a"] + x
        inner.pop("old", None)
        inner["n"] = "new"
        if len(rows) > 1:
            rows.pop()
        state["pair"] = (x, "y")
        state["more"] = {"deep": [x]}
        return x

    compiled = hr.compile(function, inputs=state, outputs=state)
    for i in range(3):
        compiled(hr.array(2.0))
        assert state["inner"] is inner and state["list"] is rows
        assert inner["a"].item() == 3 + 2 * i and sorted(inner) == ["a", "n"] and inner["n"] == "new"
        assert len(rows) == 1 and rows[0].item() == 1
        assert state["pair"][0].item() == 2 and state["pair"][1] == "y"
        assert state["more"]["deep"][0].item() == 2


def test_state_must_be_a_container():
    x = hr.array(1.0)
    with pytest.raises(ValueError, match="the state must be"):
        hr.compile(lambda: x + 1, inputs=x)()


# ---- other transforms


def loss(x):
    return (hr.exp(x) * x).sum()


def test_gradients_inside():
    x = hr.array([0.5, -0.5, 1.2])
    for function in (hr.grad(loss), hr.value_and_grad(loss), hr.grad(lambda t: hr.grad(loss)(t).sum())):
        compiled = hr.compile(function)
        for t in (x, x * 2):
            for result, expected in zip(compiled(t), function(t), strict=True):
                same(result, expected)


def test_gradients_by_captured_arrays_inside():
    w = hr.array([1.0, 2])
    function = lambda x: hr.grad(lambda t: (t * x).sum())(w)  # noqa: E731
    compiled = hr.compile(function)
    for x in (hr.array([3.0, 4]), hr.array([5.0, 6])):
        same(compiled(x), x)
    constant = hr.compile(lambda x: hr.grad(lambda t: (t * t * w).sum())(w) + x)
    same(constant(hr.array(0.0)), [2, 8])


def test_custom_functions_inside():
    w = hr.array([2.0, 3])

    @hr.custom_function
    def f(x, y):
        return x * y, w

    @f.vjp
    def f_vjp(primals, cotangents, outputs):
        return [cotangents[0] * 10, primals[0] * w]

    @hr.custom_function
    def g(x):
        return hr.sin(x) + w

    @g.jvp
    def g_jvp(primals, tangents):
        return hr.cos(primals) * tangents + w * 0

    cases = [
        lambda x: hr.grad(lambda t: f(t, w)[0].sum())(x),
        lambda x: hr.grad(lambda t: f(w, t)[0].sum())(x),
        lambda x: hr.grad(lambda t: (f(w, t)[1] * t).sum())(x),
        lambda x: hr.grad(lambda t: g(t).sum())(x),
        lambda x: hr.grad(lambda t: (g(t) * x).sum())(w),
        lambda x: hr.grad(lambda t: hr.checkpoint(g)(t).sum())(x),
    ]
    for function in cases:
        compiled = hr.compile(function)
        for x in (hr.array([0.5, 1]), hr.array([1.5, 4])):
            same(compiled(x), function(x))


def test_vjp_and_jvp_inside():
    x, t = hr.array([0.5, 2]), hr.array([1.0, 3])
    for transform in (hr.vjp, hr.jvp):
        for function in (
            lambda a, b: transform(hr.tanh, (a,), (b,)),  # noqa: B023
            lambda a, b: transform(hr.tanh, (a,), (t,)),  # noqa: B023
        ):
            compiled = hr.compile(function)
            for _ in range(2):
                for result, expected in zip(compiled(x, t), function(x, t), strict=True):
                    same(result[0], expected[0])


def test_gradients_of_compiled_functions():
    compiled = hr.compile(loss)
    x = hr.array([0.5, -0.5, 1.2])
    for _ in range(2):
        same(hr.grad(compiled)(x), hr.grad(loss)(x))
        same(compiled(x), loss(x))
        same(hr.grad(lambda t: hr.grad(compiled)(t).sum())(x), hr.grad(lambda t: hr.grad(loss)(t).sum())(x))
    same(hr.compile(hr.grad(compiled))(x), hr.grad(loss)(x))


def test_compiled_in_compiled():
    inner, inner_runs = counted(lambda x: x * 2 + 1)
    compiled_inner = hr.compile(inner)
    outer = hr.compile(lambda x: compiled_inner(x) + compiled_inner(x + 1))
    for value in (1.0, 2.0):
        assert outer(hr.array(value)).item() == 4 * value + 4
        assert compiled_inner(hr.array(value)).item() == 2 * value + 1
    assert len(inner_runs) == 3
    twice = hr.compile(hr.compile(chain))
    x = hr.array([1.0, 2])
    same(twice(x, x), chain(x, x))


def test_recursion():
    @hr.compile
    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)

    assert power(hr.array(2.0), 5).item() == 32
    assert power(hr.array(3.0), 3).item() == 27


# ---- the object


def test_attributes_are_those_of_the_function():
    def inner(x: hr.Array, y: str = "a"):
        """A useful function."""
        return x

    inner.extra = 1
    compiled = hr.compile(inner)
    assert (compiled.__name__, compiled.__qualname__, compiled.__doc__) == (
        inner.__name__,
        inner.__qualname__,
        inner.__doc__,
    )
    assert inspect.signature(compiled) == inspect.signature(inner)
    assert "inner" in repr(compiled)
    compiled.other = 2
    functools.wraps(compiled)(lambda: None)
    hr.compile(functools.partial(chain, hr.array(1.0)))


def test_as_a_method():
    class Model(dict):
        @hr.compile
        def double(self, x):
            return self["w"] * x * 2

    model = Model(w=hr.array(3.0))
    assert model.double(hr.array(2.0)).item() == 12


def test_cycles_are_collected():
    alive = []

    def make():
        table = {}

        class Marker:
            def __del__(self):
                alive.append(1)

        marker = Marker()

        def function(x):
            return (table["x"] + x, marker)[0]

        table["f"] = hr.compile(function)
        table["x"] = hr.array([0.0] * 1000)
        table["f"](hr.array(1.0))

    for _ in range(3):
        make()
    gc.collect()
    assert len(alive) == 3


def test_captures_are_bounded():
    function, runs = counted(lambda x, n: x + n)
    compiled = hr.compile(function)
    x = hr.array(1.0)
    for n in range(200):
        assert compiled(x, n).item() == 1 + n
        assert compiled(x, 0).item() == 1  # always among the last used
    assert len(runs) == 200
    compiled(x, 199)
    assert len(runs) == 200
    compiled(x, 1)
    assert len(runs) == 201


def test_many_arrays():
    compiled = hr.compile(lambda arrays, *rest: (sum(arrays), [x + 1 for x in arrays], sum(rest)))
    arrays = [hr.array([float(i), 1]) for i in range(150)]
    for _ in range(2):
        total, each, rest = compiled(arrays, *arrays)
        same(total, [150 * 149 / 2, 150])
        same(rest, total)
        for x, y in zip(arrays, each, strict=True):
            same(y, np.asarray(x) + 1)


def test_deep_trees_raise():
    tree = []
    tree.append(tree)
    with pytest.raises(RecursionError):
        hr.compile(lambda t: t)(tree)


def test_threads_share_a_function():
    compiled = hr.compile(chain)
    errors = []

    def work(seed):
        try:
            rng = np.random.default_rng(seed)
            for size in [3, 5, 8] * 10:
                a, b = rng.random((2, size), np.float32)
                x, y = hr.array(a), hr.array(b)
                same(compiled(x, y), chain(x, y))
                same(hr.grad(lambda t: compiled(t, y).sum())(x), hr.grad(lambda t: chain(t, y).sum())(x))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_other_threads_while_one_traces():
    inside, done, found = threading.Event(), threading.Event(), []

    def other():
        inside.wait(10)
        x = hr.array([1.0, 2]) + 1
        found.append(x.tolist())
        found.append(hr.compile(lambda t: t * 2)(x).tolist())
        done.set()

    def function(x):
        inside.set()
        assert done.wait(10)
        return x + hr.ones(2)

    thread = threading.Thread(target=other)
    thread.start()
    same(hr.compile(function)(hr.array([1.0, 1])), [2, 2])
    thread.join()
    assert found == [[2, 3], [4, 6]]


def test_shapeless_functions_have_right_results():
    compiled = hr.compile(lambda x: x * x.sum(axis=-1, keepdims=True), shapeless=True)
    for shape in ((3, 2), (1, 2), (4, 5)):
        x = hr.arange(float(np.prod(shape))).reshape(shape)
        same(compiled(x), np.asarray(x) * np.asarray(x).sum(axis=-1, keepdims=True))


def test_batches_inside_and_around():
    w = hr.array([1.0, 2, 3])

    def one(x, y):
        return hr.tanh(x * w + y).sum()

    x, y = hr.arange(12.0).reshape(4, 3), hr.array([1.0, 2, 3, 4])
    cases = [
        hr.vmap(one),
        hr.vmap(hr.grad(one)),
        lambda a, b: hr.grad(lambda t: hr.vmap(one)(t, b).sum())(a),
        lambda a, b: hr.vmap(one, in_axes=(0, None))(a, b[0]) + hr.vmap(lambda t: (t * a[0]).sum())(w).sum(),
    ]
    for function in cases:
        compiled = hr.compile(function)
        for a in (x, x * 0.1):
            same(compiled(a, y), function(a, y))
    for function in (hr.vmap(hr.compile(one)), hr.vmap(hr.grad(hr.compile(one)))):
        for _ in range(2):
            same(function(x, y), hr.vmap(one)(x, y) if function(x, y).ndim == 1 else hr.vmap(hr.grad(one))(x, y))
