"""Functions with gradients of their own, and functions that run again for their gradients."""

import gc
import threading
import weakref

import numpy as np
import pytest

import headrace as hr
import headrace._arrays


def close(actual, expected, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=tolerance, atol=tolerance)


def sample(*shape, seed=0):
    return hr.array(np.random.default_rng(seed).uniform(-1, 1, shape))


# ---- custom_function


def make_exp():
    return hr.custom_function(hr.exp)


def test_without_transforms_of_its_own_it_is_the_function():
    my_exp, x = make_exp(), hr.array(1.0)
    assert my_exp.__name__ == "exp" and hr.grad(my_exp)(x).item() == hr.exp(x).item()
    (value,), (product,) = hr.jvp(my_exp, [x], [x])
    close(product, value, 1e-6)


def test_vjp_and_jvp_replace_the_functions_own():
    my_exp, x = make_exp(), hr.array(1.0)

    @my_exp.vjp
    def my_vjp(x, dy, y):
        close(y, np.exp(1), 1e-6)
        return hr.ones_like(x) * 42 * dy

    assert my_vjp is my_exp
    assert hr.grad(my_exp)(x).item() == 42
    assert hr.grad(lambda x: 2 * my_exp(3 * x))(x / 3).item() == 42 * 6
    _, (product,) = hr.jvp(my_exp, [x], [x])  # still the function's
    close(product, np.exp(1), 1e-6)

    @my_exp.jvp
    def my_jvp(x, dx):
        return hr.ones_like(x) * 7 * dx

    assert hr.grad(my_exp)(x).item() == 42
    _, (product,) = hr.jvp(lambda x: 2 * my_exp(x * 3), [x / 3], [x])
    assert product.item() == pytest.approx(42)
    alone = hr.custom_function(hr.exp).jvp(lambda x, dx: 7 * dx)
    close(hr.grad(alone)(x), np.exp(1), 1e-6)  # the function's


def test_trees():
    @hr.custom_function
    def double(params):
        return {"out": 2 * params["x"] * params["y"], "text": "as it is"}

    x, y = sample(2), sample(2, seed=1)
    loss = hr.grad(lambda p: double(p)["out"].sum())
    close(loss({"x": x, "y": y})["x"], 2 * np.asarray(y))

    @double.vjp
    def vjp(primals, cotangents, outputs):
        assert cotangents["text"] == "as it is" and outputs["out"].shape == (2,)
        return {"x": hr.zeros_like(primals["x"]), "y": cotangents["out"]}

    gradients = loss({"x": x, "y": y})
    assert gradients["x"].tolist() == [0, 0] and gradients["y"].tolist() == [1, 1]

    def outer(a, b):
        return double({"x": a, "y": b})["out"]

    tangents = [sample(2, seed=2), sample(2, seed=3)]
    out1, product1 = hr.jvp(outer, [x, y], tangents)

    @double.jvp
    def jvp(primals, tangents):
        return {"out": 2 * primals["x"] * tangents["y"] + 2 * primals["y"] * tangents["x"] + 1}

    out2, product2 = hr.jvp(outer, [x, y], tangents)
    close(out1[0], out2[0])
    close(product1[0] + 1, product2[0])  # a constant part arrives, too
    _, (product3,) = hr.jvp(lambda a, b: 3 * outer(a, b) ** 2, [x, y], tangents)
    close(product3, 6 * np.asarray(out1[0]) * np.asarray(product2[0]))


def test_several_arguments_and_results():
    seen = []

    @hr.custom_function
    def f(x, i, y, scale=1.0):
        return [x * scale, i + 1, y * x]

    @f.vjp
    def f_vjp(primals, cotangents, outputs, scale):
        x, i, y = primals
        seen.append([c.tolist() for c in cotangents])
        return cotangents[0] * scale + cotangents[2] * y, None, cotangents[2] * x

    x, i, y = hr.array(2.0), hr.array([1, 2]), hr.array(3.0)
    gradients = hr.grad(lambda x, y: f(x, i, y, scale=5)[0] + f(x, i, y, scale=5)[2], argnums=(0, 1))(x, y)
    assert [g.item() for g in gradients] == [8, 2]
    assert sorted(seen) == [[0, [0, 0], 1], [1, [0, 0], 0]]
    outputs, gradients = hr.vjp(lambda x, y: f(x, i, y, scale=5), [x, y], [x, i, y])
    assert [g.item() for g in gradients] == [10 + 9, 6] and outputs[1].tolist() == [2, 3]


@pytest.mark.parametrize("wrap", [lambda f: f, hr.custom_function, hr.checkpoint])
def test_second_order(wrap):
    f = wrap(lambda x: hr.sin(x) * x)
    if isinstance(f, hr.custom_function):
        f.vjp(lambda x, dy, y: dy * (hr.sin(x) + hr.cos(x) * x))
    x = hr.array(0.7, dtype="float64")
    for i, derivative in enumerate(
        [
            lambda v: np.sin(v) * v,
            lambda v: np.sin(v) + np.cos(v) * v,
            lambda v: 2 * np.cos(v) - np.sin(v) * v,
            lambda v: -3 * np.sin(v) - np.cos(v) * v,
        ]
    ):
        g = f
        for _ in range(i):
            g = hr.grad(g)
        close(g(x), derivative(0.7))
    _, (product,) = hr.jvp(hr.grad(f), [x], [hr.array(2.0, dtype="float64")])
    close(product, 2 * (2 * np.cos(0.7) - np.sin(0.7) * 0.7))
    wrapped = hr.grad(wrap(hr.grad(f)))  # a transform inside of the function
    close(wrapped(x), 2 * np.cos(0.7) - np.sin(0.7) * 0.7)


def test_the_second_derivative_is_that_of_the_vjp():
    f = hr.custom_function(lambda x: x).vjp(lambda x, dy, y: dy * x * x * x)
    assert hr.grad(hr.grad(f))(hr.array(2.0)).item() == 12
    assert hr.grad(lambda x: hr.grad(lambda y: f(y) * x)(x))(hr.array(2.0)).item() == 12 * 2 + 8


def test_captured_arrays_are_constants():
    def g(x, y):
        @hr.custom_function
        def f(x):
            return x * y

        f.vjp(lambda x, dx, fx: dx * 10)
        return f(x)

    x, y = hr.array(2.0), hr.array(3.0)
    assert g(x, y).item() == 6
    assert [v.item() for v in hr.grad(g, argnums=(0, 1))(x, y)] == [10, 0]
    assert hr.grad(lambda x: hr.checkpoint(lambda y: x * y)(y))(x).item() == 0
    store = hr.zeros(2)

    def write(x):  # in the middle of what the tape keeps
        nonlocal store
        store = store * 1 + x
        f = hr.custom_function(lambda y: store.__setitem__(0, 5.0) or y).vjp(lambda y, dz, z: dz)
        z = f(x[:1])
        return (store * store).sum() + z.sum()

    assert hr.grad(write)(hr.array([1.0, 2.0])).tolist() == [1, 4]  # store[0] is a constant, then


def test_outputs_that_are_inputs():
    same = hr.custom_function(lambda x: (x, x, x[:1])).vjp(lambda x, c, y: 10 * c[0] + 100 * c[1])

    def loss(x):
        a, b, part = same(x)
        return (a + 2 * b + x).sum() + part.sum()

    x = hr.array([1.0, 2.0])
    assert hr.grad(loss)(x).tolist() == [211, 211]
    constant = hr.array([5.0, 6.0])
    f = hr.custom_function(lambda x: constant).vjp(lambda x, c, y: c)
    assert hr.grad(lambda x: (f(x) + constant * 3).sum())(x).tolist() == [1, 1]
    assert constant.tolist() == [5, 6]


def test_writes_in_the_function_stay_there():
    def f(x):
        x[0] = 7.0
        return x.sum()

    x = hr.array([1.0, 2.0])
    assert hr.grad(lambda x: hr.checkpoint(f)(x) + (x * x).sum())(x).tolist() == [2, 5]
    assert x.tolist() == [1, 2]


def test_errors_arrive_and_close_the_tape():
    x, f = hr.array([1.0, 2.0]), make_exp()

    def loss(x):
        return f(x).sum()

    class Mine(Exception):
        pass

    def fails(*args):
        raise Mine

    for vjp, kind, message in [
        (fails, Mine, ""),
        (lambda x, c, y: x[:1], ValueError, r"gradient 0 has shape \(1,\), expected \(2,\)"),
        (lambda x, c, y: (x, x), ValueError, "2 gradients, expected 1"),
        (lambda x, c, y: 3.0, ValueError, "gradient 0 is 3.0, expected an array"),
        (lambda x, c, y: hr.array([1, 2]), ValueError, "gradient of input 0 is i64"),
    ]:
        f.vjp(vjp)
        with pytest.raises(kind, match=message or None):
            hr.grad(loss)(x)
        with pytest.raises(kind, match=message or None):
            hr.grad(lambda x: hr.grad(loss)(x).sum())(x)
    with pytest.raises(Mine):
        hr.grad(lambda x: hr.checkpoint(fails)(x))(x)
    with pytest.raises(Mine):
        hr.jvp(f.jvp(fails), [x], [x])
    assert hr.grad(lambda x: (x * x).sum())(x).tolist() == [2, 4]
    a = np.ones(4, np.float32)
    assert hr.asarray(a).sum().item() == 4  # no hook is left
    assert hr._arrays._custom_begin(x) is None
    for wrong in (hr.custom_function, hr.checkpoint):
        with pytest.raises(TypeError, match="3 is not a function"):
            wrong(3)


def test_the_extension_checks_its_arguments():
    x = hr.array([1.0, 2.0])
    tape = hr._arrays._tape_begin([x])
    custom = hr._arrays._custom_begin(x)
    for inputs, outputs in [([], [x]), ([3], [x]), ([x], [3]), ([x, 3], [x])]:
        with pytest.raises((TypeError, IndexError)):
            hr._arrays._custom_end(custom, inputs, (None, None), outputs)
    (y,) = hr._arrays._custom_end(custom, [x], (lambda *_: [x, x], None), [x])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has ended"):
            hr._arrays._custom_end(custom, [x], (None, None), [x])
        hr._arrays._custom_cancel(custom)
    with pytest.raises(TypeError, match="expected a list of 1"):
        hr._arrays._tape_gradient(tape, [y.sum()], None, [x])
    hr._arrays._tape_close(tape)
    with pytest.raises(TypeError):
        hr._arrays._custom_begin(3)


# ---- checkpoint


def test_checkpoint_has_the_same_gradients():
    w, x = sample(4, 4), sample(3, 4, seed=1)

    def layer(w, x):
        return hr.tanh(x @ w) + x

    def loss(w, layer):
        y = x
        for _ in range(3):
            y = layer(w, y)
        return (y * y).sum()

    close(hr.grad(loss)(w, hr.checkpoint(layer)), hr.grad(loss)(w, layer), 1e-12)
    calls = []
    counted = hr.checkpoint(lambda w, x: calls.append(1) or layer(w, x))
    hr.value_and_grad(loss)(w, counted)
    assert len(calls) == 6
    loss(w, counted)
    assert len(calls) == 9  # without a tape it is the function


def test_checkpoint_of_trees_and_keywords():
    @hr.checkpoint
    def f(model, *, scale, count):
        return {"y": [model["w"] * scale * count, (model["b"], "text")]}

    def loss(model):
        result = f(model, scale=model["s"], count=hr.array(3))
        assert result["y"][1][1] == "text"
        return result["y"][0].sum() + 2 * result["y"][1][0].sum()

    model = {"w": hr.array([1.0, 2.0]), "b": hr.array([1.0]), "s": hr.array(4.0)}
    gradients = hr.grad(loss)(model)
    assert gradients["w"].tolist() == [12, 12] and gradients["b"].tolist() == [2] and gradients["s"].item() == 9


# ---- threads, memory


def test_threads_do_not_see_each_other():
    failures = []
    f = hr.custom_function(lambda x: hr.array((x * 2).tolist())).vjp(lambda x, c, y: c * x + 0 * hr.array(c.tolist()))

    def work(seed):
        x = sample(16, seed=seed)
        for _ in range(30):
            gradient = hr.grad(lambda x: (f(x) + hr.checkpoint(hr.sin)(x) + x * hr.array(x.tolist())).sum())(x)
            if not np.allclose(np.asarray(gradient), np.asarray(x) * 2 + np.cos(np.asarray(x))):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("transform", [hr.custom_function, hr.checkpoint, hr.grad])
def test_cycles_are_collected(transform):
    class Marker:
        pass

    def outer():
        d, marker = {}, Marker()

        def f(x):
            return (d["x"] * x).sum() + 0 * len(repr(marker))

        d["f"] = transform(f)
        d["x"] = hr.array([1.0, 2.0])
        if transform is hr.custom_function:
            d["f"].vjp(lambda x, c, y: c * d["x"])
        if transform is not hr.grad:
            assert hr.grad(d["f"])(d["x"]).tolist() == [1, 2]
        return weakref.ref(marker)

    references = [outer() for _ in range(5)]
    gc.collect()
    assert all(reference() is None for reference in references)
