"""Gradients of functions of arrays: against differences in f64 and closed forms, any order, trees, errors, threads."""

import collections
import gc
import os
import random
import sys
import threading

import numpy as np
import pytest

import headrace as hr
import headrace._arrays


def close(actual, expected, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=tolerance, atol=tolerance)


def sample(*shape, seed=0):
    return hr.array(np.random.default_rng(seed).uniform(-1, 1, shape))


def difference(fun, x, step=1e-6):
    """The gradient of fun at x, in f64, by central differences."""
    base = np.array(x)
    result = np.zeros_like(base)
    for at in np.ndindex(*base.shape):
        sides = []
        for sign in (1, -1):
            moved = base.copy()
            moved[at] += sign * step
            sides.append(fun(hr.array(moved)).item())
        result[at] = (sides[0] - sides[1]) / (2 * step)
    return result


def in_place(x):
    x[0] = x[1] * x[2]
    x[1:, ::2] = hr.sin(x[0, ::2])
    return (x * x).sum()


def onto_zeros(x):
    out = hr.zeros((4, 4), dtype=hr.float64)
    out[1:, 1:] = x[:3, :3]
    out[0] = out[1] * 2
    return (out @ out.T).sum()


FUNCTIONS = {
    "chain": lambda x: hr.tanh(x * 2 + 1).sum(),
    "matmul": lambda x: hr.sum((x @ x.T) ** 2),
    "softmax": lambda x: (hr.log_softmax(x, axis=1) * hr.cos(x)).mean(),
    "views": lambda x: (x.T[1:, ::-1].reshape(-1)[2:9] * hr.exp(x[0, 0])).sum(),
    "rows": lambda x: (hr.take(x, hr.array([0, 2, 2]), axis=0) ** 3).sum(),
    "index": lambda x: (x[[2, 0, 2]] ** 3).sum(),
    "broadcast": lambda x: (x[:, None, :] * x[None, :, :]).max(axis=2).sum(),
    "parts": lambda x: hr.concat([x[:1] * 2, hr.stack([x[1], x[2]])], axis=0).var(),
    "where": lambda x: hr.where(x > 0, x * x, hr.sin(x)).sum(),
    "norm": lambda x: (hr.layer_norm(x) * x).sum(),
    "iteration": lambda x: sum(hr.square(row).sum() for row in x),
    "in place": in_place,
    "onto zeros": onto_zeros,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_differences(name):
    fun, x = FUNCTIONS[name], sample(4, 4)
    before = x.tolist()
    value, gradient = hr.value_and_grad(fun)(x)
    assert gradient.shape == x.shape and gradient.dtype == x.dtype
    close(gradient, difference(fun, x), 2e-8)
    assert x.tolist() == before  # a write in the function was to a copy
    close(value, fun(hr.array(x)))
    close(hr.grad(fun)(x), gradient, 0)


CLASSES, TARGETS, OTHERS = hr.array([0, 3, 1, 1]), abs(sample(4, 4, seed=1)) * 0.9 + 0.05, sample(4, 4, seed=2)
LOSSES = {
    "cross entropy": lambda x: hr.cross_entropy(x, CLASSES, label_smoothing=0.1),
    "cross entropy, probabilities": lambda x: hr.cross_entropy(x, TARGETS),
    "nll": lambda x: hr.nll_loss(x, CLASSES),
    "binary cross entropy": lambda x: hr.binary_cross_entropy(x, TARGETS, reduction="none"),
    "of probabilities": lambda x: hr.binary_cross_entropy(abs(x) * 0.9 + 0.05, TARGETS, with_logits=False),
    "mse": lambda x: hr.mse_loss(x, TARGETS),
    "l1": lambda x: hr.l1_loss(x, TARGETS),
    "smooth l1": lambda x: hr.smooth_l1_loss(x, TARGETS, beta=0.4),
    "huber": lambda x: hr.huber_loss(x, TARGETS, delta=0.4),
    "kl": lambda x: hr.kl_div_loss(OTHERS, x) + hr.kl_div_loss(x, OTHERS),
    "hinge": lambda x: hr.hinge_loss(x, hr.sign(OTHERS)),
    "log cosh": lambda x: hr.log_cosh_loss(x, TARGETS),
    "gaussian": lambda x: hr.gaussian_nll_loss(x, OTHERS, TARGETS, full=True),
    "variances": lambda x: hr.gaussian_nll_loss(TARGETS, OTHERS, abs(x) + 0.1),
    "triplet": lambda x: hr.triplet_loss(x, TARGETS, OTHERS),
    "triplet, cubes": lambda x: hr.triplet_loss(TARGETS, x, OTHERS, p=3),
    "ranking": lambda x: hr.margin_ranking_loss(x, TARGETS, hr.sign(OTHERS), margin=0.3),
    "cosine": lambda x: hr.cosine_similarity_loss(x, OTHERS),
    "bounded indices": lambda x: hr.take(x, hr.array([0, 9]), axis=1, mode="clip") ** 2,
    "Fourier": lambda x: abs(hr.fft.fft2(x)) ** 2 * OTHERS,
    "Fourier, real": lambda x: abs(hr.fft.rfft(x)) ** 2 * OTHERS[:, :3],
    "Fourier, real, odd": lambda x: hr.real(hr.fft.rfft(x, 5, axis=0) ** 3),
    "Fourier, half": lambda x: hr.fft.irfft(hr.fft.rfft(x) * (1 + 2j)) * OTHERS,
    "Fourier, half, odd": lambda x: hr.fft.irfft2(x * (2 - 1j), s=(3, 5), norm="ortho") ** 2,
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_losses_agree_with_differences(name):
    def total(x):
        return hr.sum(LOSSES[name](x))

    close(hr.grad(total)(sample(4, 4)), difference(total, sample(4, 4)), 1e-7)


def test_gradients_of_losses_are_finite_at_equal_and_zero_rows():
    x, zeros = sample(4, 4), hr.zeros((4, 4), dtype=hr.float64)
    equal = hr.grad(lambda x: hr.triplet_loss(x, x, zeros, p=3).sum())(x)
    zero = hr.grad(lambda x: hr.cosine_similarity_loss(x, zeros).sum())(x)
    assert np.isfinite(np.asarray(equal)).all() and np.isfinite(np.asarray(zero)).all()


@pytest.mark.parametrize("call", [lambda x: hr.linalg.qr(x[:, :2], "complete").R])
def test_functions_without_a_gradient_say_so(call):
    with pytest.raises(TypeError, match="qr has no gradient by input 0: reflectors"):
        hr.grad(lambda x: abs(call(x)).sum())(hr.eye(4, dtype=hr.float64))


@pytest.mark.parametrize("name", ["chain", "matmul", "softmax", "views", "in place"])
def test_second_order_agrees_with_differences(name):
    weights = sample(4, 4, seed=1)

    def slope(x):
        return (hr.grad(FUNCTIONS[name])(x) * weights).sum()

    x = sample(4, 4)
    close(hr.grad(slope)(x), difference(slope, x), 2e-7)


def test_any_order():
    fun, x = hr.sin, hr.array(0.7, dtype="float64")
    for i in range(1, 6):
        fun = hr.grad(fun)
        close(fun(x), [np.sin, np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v)][i % 4](0.7))
    # perturbations are kept apart: d/dx (x * d/dy (x + y)) = 1
    nested = hr.grad(lambda x: x * hr.grad(lambda y: x + y)(hr.array(1.0)))
    assert nested(hr.array(3.0)).item() == 1
    mixed = hr.grad(hr.grad(lambda x, y: x * x * y, argnums=1), argnums=0)
    assert mixed(hr.array(3.0), hr.array(5.0)).item() == 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_have_the_dtype_of_the_argument(dtype):
    x = hr.array([1.0, 2.0, 3.0], dtype=dtype)
    gradient = hr.grad(lambda x: (x * x).sum())(x)
    assert str(gradient.dtype) == dtype and gradient.tolist() == [2, 4, 6]
    assert str(hr.grad(lambda x: x.astype("float32").sum())(x).dtype) == dtype


def test_complex_arguments():
    z = hr.array([1 + 2j, -3 + 0.5j])
    close(hr.grad(lambda z: (hr.abs(z) ** 2).sum())(z), 2 * np.asarray(z), 1e-5)


def test_shapes():
    for shape in [(), (1,), (0,), (3, 0), (2, 1, 3)]:
        x = hr.ones(shape)
        close(hr.grad(lambda x: (3 * x).sum())(x), np.full(shape, 3.0))
    x = sample(3, 4).T[::-1]  # not row-major
    close(hr.grad(lambda x: (x**2).sum())(x), 2 * np.asarray(x))
    wide = hr.broadcast_to(hr.array([1.0, 2.0]), (3, 2))
    close(hr.grad(lambda x: (x**2).sum())(wide), 2 * np.asarray(wide))
    nan = hr.array([float("nan"), 1.0])
    assert hr.grad(lambda x: (x * 2).sum())(nan).tolist() == [2, 2]


# ---- random compositions of views and writes, against torch


def composition(seed):
    """Steps, and a number for each. Each step takes and returns an array with two dims."""
    choose = random.Random(seed)
    return [(choose.choice(list(STEPS)), choose.random()) for _ in range(choose.randint(2, 8))]


# A value that a later write changes is copied (* 1.0): torch refuses to differentiate it.


def copy_row(x, to):
    y = x * 1.0
    y[to % len(y)] = x[0] * x[-1]
    return y


def shift_rows(x):
    y = x * 1.0
    y[1:] = x[:-1] * x[1:] * (y[:1] * 1.0)
    return y


def write_columns(lib, x):
    y = lib.cos(x)
    y[:, ::2] = x[:, ::2] * 3
    y[:, -1] = (y[:, 0] * 1.0) * x[:, -1]
    return y


def add_in_place(x):
    y = x * 1.0
    y[1:] += x[:-1] * (y[1:] * 1.0)
    y += x[:1]
    return y


def write_transposed(x):
    y = x.T * 1.0
    y[-1] = x[:, 0] * 2
    y[:1] = (y[-1:] * 1.0) * x.T[:1]
    return y.T


def write_by_index(lib, x):
    y = x * 1.0
    y[[len(x) - 1, 0]] = lib.sin(x[[0, len(x) - 1]])
    y[[0]] += y[[len(x) - 1]] * x[:1]
    return y


def write_by_mask(x):
    y = x * 1.0
    y[x > 0.3] = 0.5
    y[y < -0.4] = x[y < -0.4] ** 2
    return y


def onto_new(lib, x):
    out = lib.zeros((x.shape[0] + 1, x.shape[1]), dtype=lib.float64)
    out[1:] = x
    out[0] = (out[1] * 1.0) * (out[-1] * 1.0)
    return out[: x.shape[0]]


STEPS = {
    "multiply": lambda lib, x, r: x * x * (0.5 + r),
    "sin": lambda lib, x, r: lib.sin(x),
    "slice": lambda lib, x, r: x[int(r * 2) :] if len(x) > 2 else x,
    "transpose": lambda lib, x, r: x.T,
    "reverse": lambda lib, x, r: x[::-1] if lib is hr else x.flip(0),
    "broadcast": lambda lib, x, r: x + x[:1],
    "pairs": lambda lib, x, r: (x[:, None, :] * x[None, :, :]).sum(0),
    "reshape": lambda lib, x, r: x.reshape(x.shape[1], x.shape[0]),
    "take": lambda lib, x, r: x[[0, len(x) - 1, 0]],
    "copy row": lambda lib, x, r: copy_row(x, int(r * 3)),
    "shift rows": lambda lib, x, r: shift_rows(x),
    "columns": lambda lib, x, r: write_columns(lib, x),
    "add": lambda lib, x, r: add_in_place(x),
    "transposed": lambda lib, x, r: write_transposed(x),
    "indices": lambda lib, x, r: write_by_index(lib, x),
    "mask": lambda lib, x, r: write_by_mask(x),
    "zeros": lambda lib, x, r: onto_new(lib, x),
}
COMPOSITIONS = int(os.environ.get("HEADRACE_TEST_COMPOSITIONS", 200))  # `make fuzz-gradients`: 2,000
FIRST = int(os.environ.get("HEADRACE_TEST_SEED", 0))


@pytest.mark.parametrize("part", range(4))
def test_random_compositions_agree_with_torch(part):
    """Gradients, and products of Jacobians with a direction, which are found forwards."""
    torch = pytest.importorskip("torch")

    def run(lib, x, steps):
        for name, number in steps:
            x = STEPS[name](lib, x, number)
        return (x * x).sum()

    for seed in range(FIRST + part, FIRST + COMPOSITIONS, 4):
        draw = np.random.default_rng(seed)
        values, direction = draw.uniform(-1, 1, (4, 3)), draw.uniform(-1, 1, (4, 3))
        steps = composition(seed)
        x = torch.tensor(values, requires_grad=True)
        run(torch, x, steps).backward()
        expected = x.grad.numpy()
        gradient = hr.grad(lambda x, steps=steps: run(hr, x, steps))(hr.array(values))
        scale = max(1.0, abs(expected).max())
        assert np.allclose(np.asarray(gradient), expected, rtol=1e-9, atol=1e-12 * scale), (seed, steps)
        _, (product,) = hr.jvp(lambda x, steps=steps: run(hr, x, steps), [hr.array(values)], [hr.array(direction)])
        assert np.allclose(product.item(), (expected * direction).sum(), rtol=1e-9, atol=1e-11 * scale), (seed, steps)


# ---- updates that combine, against torch


@pytest.mark.parametrize("method, reduce", [("multiply", "prod"), ("maximum", "amax"), ("minimum", "amin")])
def test_gradients_of_combining_updates_are_torchs(method, reduce):
    torch = pytest.importorskip("torch")
    draw, index = np.random.default_rng(5), np.array([4, 0, 4, 2, 0, 4])
    x, v = draw.uniform(-1, 1, (6, 3)), draw.uniform(-1, 1, (6, 3))
    x[2, 0] = v[0, 1] = v[1, 2] = v[2, 1] = v[4, 0] = 0  # zeros alone and in pairs
    x[0, 0] = v[1, 0] = v[4, 0] = 0.5  # equal values
    weights = draw.uniform(-1, 1, (6, 3))

    def loss(x, v):
        return (getattr(x.at[hr.array(index)], method)(v) ** 2 * weights).sum()

    for given in (v, v[0, 1], v[:1] + 0.1):
        tensors = [torch.tensor(a, requires_grad=True) for a in (x, given)]
        places = torch.tensor(index)[:, None].expand(6, 3)
        changed = tensors[0].scatter_reduce(0, places, tensors[1].broadcast_to(6, 3), reduce)
        (changed**2 * torch.tensor(weights)).sum().backward()
        arrays = [hr.array(x), hr.array(np.asarray(given))]
        gradients = hr.grad(loss, argnums=(0, 1))(*arrays)
        for actual, expected in zip(gradients, tensors):
            close(actual, expected.grad.numpy())
        _, (product,) = hr.jvp(loss, arrays, arrays)
        close(product, sum((a * g).sum() for a, g in zip(arrays, gradients)))
    numbers = hr.grad(lambda x: (getattr(x.at[1], method)(0.25) ** 2).sum())(hr.array(x))
    close(numbers, difference(lambda x: (getattr(x.at[1], method)(0.25) ** 2).sum(), x))


def test_gradients_of_combining_updates_keep_nan_apart():
    x = hr.array([float("nan"), 1.0, 3.0])
    assert hr.grad(lambda x: x.at[1].maximum(2.0)[1:].sum())(x).tolist() == [0, 0, 1]
    assert hr.grad(lambda x: x.at[1].maximum(2.0).sum())(x).tolist() == [1, 0, 1]


@pytest.mark.parametrize("method", ["multiply", "maximum"])
def test_second_order_of_combining_updates(method):
    x, v = sample(4, 4), sample(3, 4, seed=1)

    def slope(v):
        def fun(v):
            return (getattr(x.at[hr.array([1, 3, 1])], method)(v) ** 3).sum()

        return (hr.grad(fun)(v) * v).sum()

    close(hr.grad(slope)(v), difference(slope, v), 2e-7)


# ---- arguments


def test_argnums():
    def fun(x, y, z=1):
        return (x * y * z).sum()

    x, y = hr.array([1.0, 2.0]), hr.array([3.0, 4.0])
    assert hr.grad(fun)(x, y).tolist() == [3, 4]
    assert hr.grad(fun, argnums=1)(x, y).tolist() == [1, 2]
    assert hr.grad(fun, argnums=[1])(x, y).tolist() == [1, 2]
    for argnums in [(0, 1), [1, 0]]:
        first, second = hr.grad(fun, argnums=argnums)(x, y, z=2)
        assert first.tolist() == [6, 8] and second.tolist() == [2, 4]
    same = hr.grad(fun, argnums=(0, 1))(x, x)
    assert same[0].tolist() == [1, 2] and same[1].tolist() == [1, 2]


def test_argnames():
    def fun(x, y):
        return (x * y).sum()

    x, y = hr.array([1.0, 2.0]), hr.array([3.0, 4.0])
    none, named = hr.grad(fun, argnames="y")(x, y=y)
    assert none is None and named["y"].tolist() == [1, 2]
    none, named = hr.grad(fun, argnames=["x", "y"])(x=x, y=y)
    assert none is None and list(named) == ["x", "y"] and named["x"].tolist() == [3, 4]
    first, named = hr.grad(fun, argnums=0, argnames=("y",))(x, y=y)
    assert first.tolist() == [3, 4] and named["y"].tolist() == [1, 2]
    value, (_, named) = hr.value_and_grad(fun, argnames="y")(x, y=y)
    assert value.item() == 11 and named["y"].tolist() == [1, 2]


def test_trees():
    Pair = collections.namedtuple("Pair", "a b")
    tree = {"w": [hr.array(2.0), (hr.array(3.0),)], "pair": Pair(hr.array(5.0), {}), "empty": []}

    def fun(t):
        return t["w"][0] * t["w"][1][0] ** 2 * t["pair"].a

    value, gradient = hr.value_and_grad(fun)(tree)
    assert value.item() == 90
    assert list(gradient) == list(tree) and isinstance(gradient["pair"], Pair) and gradient["empty"] == []
    assert gradient["w"][0].item() == 45 and gradient["w"][1][0].item() == 60 and gradient["pair"].a.item() == 18
    two = hr.grad(lambda s, t: fun(s) + fun(t), argnums=(0, 1))(tree, tree)
    assert two[0]["w"][0].item() == 45 and two[1]["pair"].a.item() == 18


def test_other_results_are_returned():
    def fun(x):
        y = x * x
        return y.sum(), y, {"a": "text"}

    x = hr.array([1.0, 2.0])
    (loss, y, other), gradient = hr.value_and_grad(fun)(x)
    assert loss.item() == 5 and y.tolist() == [1, 4] and other == {"a": "text"} and gradient.tolist() == [2, 4]
    values, _ = hr.value_and_grad(lambda x: [x.sum(), 3])(x)
    assert isinstance(values, list) and values[1] == 3


# ---- what depends on what


def test_independent_arguments_get_zeros():
    x, y = hr.array([1.0, 2.0]), hr.ones((2, 3))
    first, second = hr.grad(lambda x, y: x.sum(), argnums=(0, 1))(x, y)
    assert first.tolist() == [1, 1] and second.tolist() == [[0, 0, 0]] * 2
    assert hr.grad(lambda x: hr.array(3.0))(x).tolist() == [0, 0]
    assert hr.grad(lambda x: hr.floor(x).sum())(x).tolist() == [0, 0]
    assert hr.grad(lambda x: x)(hr.array(2.0)).item() == 1  # the argument itself


def test_captured_arrays_are_constants():
    x = hr.array([1.0, 2.0])
    view = x[:]
    assert hr.grad(lambda a: (a * x + view).sum())(x).tolist() == [1, 2]
    assert hr.grad(lambda a: (x * view).sum())(x).tolist() == [0, 0]
    assert hr.grad(lambda a: (a * hr.stop_gradient(a)).sum())(x).tolist() == [1, 2]
    assert hr.stop_gradient(x).tolist() == [1, 2]
    # d2/dx2 of x * stop(x**2) is 0, of x**2 * stop(x) 2 * x
    twice = hr.grad(hr.grad(lambda a: a * hr.stop_gradient(a * a)))
    assert twice(hr.array(3.0)).item() == 0
    assert hr.grad(hr.grad(lambda a: a * a * hr.stop_gradient(a)))(hr.array(3.0)).item() == 6


def test_writes_to_captured_arrays():
    store = hr.zeros(3)
    x = hr.array([1.0, 2.0, 3.0])

    def fun(x):
        store[1:] = x[:2] * 2
        return (store * x).sum()

    assert hr.grad(fun)(x).tolist() == [4, 6 + 2, 4]
    assert store.tolist() == [0, 2, 4]
    kept = []
    hr.grad(lambda x: kept.append(x * 2) or kept[0].sum())(x)
    assert kept[0].tolist() == [2, 4, 6]  # results outlive the tape
    assert hr.grad(lambda x: (kept[0] * x).sum())(x).tolist() == [2, 4, 6]


def test_values_can_be_read_in_the_function():
    def fun(x):
        return (x * x).sum() if x.sum().item() > 0 else (3 * x).sum()

    assert hr.grad(fun)(hr.array([1.0, 2.0])).tolist() == [2, 4]
    assert hr.grad(fun)(hr.array([-1.0, -2.0])).tolist() == [3, 3]


# ---- vjp, jvp


def test_vjp():
    a, b = sample(2, 3), sample(3, 2, seed=1)
    seed = sample(2, 2, seed=2)
    outputs, gradients = hr.vjp(lambda a, b: a @ b, [a, b], [seed])
    close(outputs[0], np.asarray(a) @ np.asarray(b))
    close(gradients[0], np.asarray(seed) @ np.asarray(b).T)
    close(gradients[1], np.asarray(a).T @ np.asarray(seed))
    outputs, gradients = hr.vjp(lambda a: (a * 2, hr.argmax(a), a.sum()), (a,), (a, hr.array(0), hr.array(1.0)))
    assert len(outputs) == 3
    close(gradients[0], 2 * np.asarray(a) + 1)


def test_jvp():
    x, t = sample(3, 3), sample(3, 3, seed=1)

    def fun(x, y):
        return [hr.sin(x) * y, (x @ y).sum(axis=0), hr.argmax(x), hr.zeros(2)]

    outputs, products = hr.jvp(fun, [x, x], [t, hr.zeros_like(t)])
    close(products[0], np.cos(np.asarray(x)) * np.asarray(t) * np.asarray(x))
    close(products[1], (np.asarray(t) @ np.asarray(x)).sum(axis=0))
    assert products[2].item() == 0 and products[3].tolist() == [0, 0]
    close(outputs[0], np.sin(np.asarray(x)) * np.asarray(x))
    _, products = hr.jvp(fun, [x, x], [hr.zeros_like(t), t])
    close(products[0], np.sin(np.asarray(x)) * np.asarray(t))
    close(products[1], (np.asarray(x) @ np.asarray(t)).sum(axis=0))


@pytest.mark.parametrize("name", LOSSES)
def test_jvp_of_losses_agrees_with_the_gradient(name):
    def total(x):
        return hr.sum(LOSSES[name](x))

    x, t = sample(4, 4), sample(4, 4, seed=3)
    _, (product,) = hr.jvp(total, [x], [t])
    close(product, (hr.grad(total)(x) * t).sum())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_products_have_the_dtype_of_the_output(dtype):
    x = hr.array([1.0, 2.0], dtype=dtype)
    (y, total, places), products = hr.jvp(lambda x: (x * x, x.sum().astype("float32"), hr.argsort(hr.real(x))), [x], [x])
    assert [p.dtype for p in products] == [y.dtype, total.dtype, places.dtype]
    assert [p.tolist() for p in products] == [[2, 8], 3, [0, 0]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jvp_agrees_with_the_gradient(name):
    x, t = sample(4, 4), sample(4, 4, seed=3)
    _, (product,) = hr.jvp(FUNCTIONS[name], [x], [t])
    close(product, (np.asarray(hr.grad(FUNCTIONS[name])(x)) * np.asarray(t)).sum())


def test_a_product_with_the_hessian():
    x, t = sample(4, 4), sample(4, 4, seed=3)
    _, (product,) = hr.jvp(hr.grad(FUNCTIONS["matmul"]), [x], [t])
    other = hr.grad(lambda x: (hr.grad(FUNCTIONS["matmul"])(x) * t).sum())(x)
    close(product, other)


# ---- errors


def message_of(kind, call):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_errors_name_the_value_and_what_is_expected():
    x, i = hr.array([1.0, 2.0]), hr.array([1, 2])
    loss = hr.grad(lambda x, *rest, **names: x.sum())
    assert "argument 0 has dtype int64" in message_of(ValueError, lambda: loss(i))
    assert "argument 0 at 'w.1' has dtype int64" in message_of(ValueError, lambda: loss({"w": [x, i]}))
    assert "argument 0 is 3.0, expected an array" in message_of(ValueError, lambda: loss(3.0))
    assert "argument 0 is None" in message_of(ValueError, lambda: loss(None))
    assert "no arrays" in message_of(ValueError, lambda: loss([]))
    assert "shape (2,), expected no dims" in message_of(ValueError, lambda: hr.grad(lambda x: x * 2)(x))
    assert "returned dtype int64" in message_of(ValueError, lambda: hr.grad(lambda x: hr.argmax(x))(x))
    assert "returned 3, expected an array" in message_of(ValueError, lambda: hr.grad(lambda x: 3)(x))
    assert "grad: the function returned (" in message_of(ValueError, lambda: hr.grad(lambda x: (x.sum(), 1))(x))
    assert "returned ()" in message_of(ValueError, lambda: hr.value_and_grad(lambda x: ())(x))
    assert "called with 1 positions" in message_of(ValueError, lambda: hr.grad(loss, argnums=1)(x))
    assert "argnums has -1" in message_of(ValueError, lambda: hr.grad(loss, argnums=-1))
    assert "different positions" in message_of(ValueError, lambda: hr.grad(loss, argnums=(1, 1)))
    assert "'y'" in message_of(ValueError, lambda: hr.grad(loss, argnames="y")(x))
    assert "not a function" in message_of(TypeError, lambda: hr.grad(3))
    assert "nextafter has no gradient" in message_of(TypeError, lambda: hr.grad(lambda x: hr.nextafter(x, x).sum())(x))
    assert "2 cotangents, expected 1" in message_of(ValueError, lambda: hr.vjp(hr.sin, [x], [x, x]))
    assert "cotangent 0 has shape (), expected (2,)" in message_of(
        ValueError, lambda: hr.vjp(hr.sin, [x], [hr.array(1.0)])
    )
    assert "primal 0 has dtype int64" in message_of(ValueError, lambda: hr.jvp(hr.sin, [i], [i]))
    assert "0 tangents, expected 1" in message_of(ValueError, lambda: hr.jvp(hr.sin, [x], []))
    assert "output 0 of the function is 'a'" in message_of(ValueError, lambda: hr.vjp(lambda x: "a", [x], [x]))
    assert hr.grad(lambda x: (x * x).sum())(x).tolist() == [2, 4]  # all tapes are closed


def test_an_exception_closes_the_tape():
    x = hr.array([1.0, 2.0])
    kept = []

    def fails(x):
        raise KeyError("mine")

    for transform in (hr.grad(fails), hr.grad(hr.grad(fails)), lambda x: hr.jvp(fails, [x], [x])):
        try:
            transform(x)
        except KeyError as error:
            kept.append(error)  # with its traceback, whose frames have the tape
    assert len(kept) == 3
    a = np.ones(4, np.float32)
    hr.eval()
    assert hr.asarray(a).sum().item() == 4 and hr.grad(lambda x: (x * x).sum())(x).tolist() == [2, 4]


def test_the_tapes_of_the_extension_check_their_arguments():
    x = hr.array([1.0, 2.0])
    tape = hr._arrays._tape_begin([x])
    y = x.sum()
    assert hr._arrays._tape_gradient(tape, [y], None, [x])[0].tolist() == [1, 1]
    message_of(TypeError, lambda: hr._arrays._tape_gradient(tape, [y], [y, 3], [x]))
    message_of(TypeError, lambda: hr._arrays._tape_gradient(tape, [y], None, [x, None]))
    message_of(ValueError, lambda: hr._arrays._tape_gradient(tape, [y], None, [y]))
    for arrays in ([], [3], [x, 3], [hr.array([1])]):
        message_of((TypeError, ValueError, IndexError), lambda: hr._arrays._tape_begin(arrays))
    hr._arrays._tape_close(tape), hr._arrays._tape_close(tape)
    assert "closed" in message_of(RuntimeError, lambda: hr._arrays._tape_gradient(tape, [y], None, [x]))
    message_of(ValueError, lambda: hr._arrays._tape_close(3))


# ---- threads, memory


def test_threads_do_not_see_each_other():
    shared = hr.array(np.linspace(0, 1, 64))
    failures = []

    def work(seed):
        x = sample(64, seed=seed)
        expected = 2 * np.asarray(x) * np.asarray(shared) + np.cos(np.asarray(x))
        for _ in range(50):
            gradient = hr.grad(lambda x: (x * x * shared + hr.sin(x)).sum() + 0 * hr.array(x[:1].sum().item()))(x)
            if not np.allclose(np.asarray(gradient), expected):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nothing_is_kept_after_many_calls():
    x = sample(8)
    function = hr.value_and_grad(lambda x: (hr.tanh(x) * x).sum())

    def run(count):
        for i in range(count):
            function(x)
            if i % 100 == 0:
                hr.eval()
        hr.eval()
        gc.collect()

    def fails():
        with pytest.raises(ValueError):
            hr.grad(lambda x: x * 2)(x)

    run(200), fails()
    blocks, references = sys.getallocatedblocks(), sys.getrefcount(x)
    resident = memory_in_use()
    run(10_000), fails()
    assert sys.getrefcount(x) == references
    assert sys.getallocatedblocks() < blocks + 500
    assert memory_in_use() < resident + (8 << 20)


def memory_in_use():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


# ---- trees


def test_tree_map():
    Pair = collections.namedtuple("Pair", "a b")
    tree = {"x": [1, (2, None)], "y": Pair(3, {})}
    assert hr.utils.tree_map(lambda v: v and v * 2, tree) == {"x": [2, (4, None)], "y": Pair(6, {})}
    assert isinstance(hr.utils.tree_map(lambda v: v, tree)["y"], Pair)
    assert hr.utils.tree_map(lambda v, w: v + w, [1, {"a": 2}], [10, {"a": 20}]) == [11, {"a": 22}]
    assert hr.utils.tree_map(len, {"x": [1, 2]}, is_leaf=lambda t: isinstance(t, list)) == {"x": 2}
    assert hr.utils.tree_map(lambda v: v + 1, 1) == 2
    assert hr.utils.tree_map_with_path(lambda p, v: f"{p}={v}", {"a": [1, 2]}) == {"a": ["a.0=1", "a.1=2"]}


def test_tree_flatten():
    tree = {"x": [1, (2, None)], "y": {"z": 3}, "e": []}
    flat = [("x.0", 1), ("x.1.0", 2), ("x.1.1", None), ("y.z", 3)]
    assert hr.utils.tree_flatten(tree) == flat
    assert hr.utils.tree_flatten(tree, destination={}) == dict(flat)
    assert hr.utils.tree_flatten(tree, prefix=".model")[0] == ("model.x.0", 1)
    assert hr.utils.tree_flatten(5) == [("", 5)]
    assert hr.utils.tree_unflatten(flat) == {"x": [1, [2, None]], "y": {"z": 3}}
    assert hr.utils.tree_unflatten(dict(flat)) == {"x": [1, [2, None]], "y": {"z": 3}}
    assert hr.utils.tree_unflatten([("", 5)]) == 5 and hr.utils.tree_unflatten([("2", 1)]) == [{}, {}, 1]
    assert hr.utils.tree_unflatten([("10", "k"), ("9.a", "j")])[9:] == [{"a": "j"}, "k"]
    with pytest.raises(ValueError, match="destination must be"):
        hr.utils.tree_flatten(tree, destination=3)


def test_tree_reduce():
    tree = {"x": [1, (2, 3)], "y": 4}
    assert hr.utils.tree_reduce(lambda a, b: a + b, tree) == 10
    assert hr.utils.tree_reduce(lambda a, b: a + b, tree, 100) == 110
    assert hr.utils.tree_reduce(lambda a, b: a + len(b), [[1], [2, 3]], 0, is_leaf=lambda t: t != [[1], [2, 3]]) == 3


def test_gradients_of_products_by_transposed_matrices():
    """They are computed in the matrix's own layout: linear layers' weights need no copy."""
    rng = np.random.default_rng(3)

    def operations(f, *arguments):
        before = hr.stats()["operations"]
        found = hr.grad(f, argnums=(0, 1))(*arguments)
        hr.eval()
        return hr.stats()["operations"] - before, found

    for batch, dtype in (((), "float64"), ((3,), "float64"), ((2, 3), "float32"), ((), "complex128"), ((3,), "complex64")):
        make = lambda *shape: rng.normal(size=shape) + (1j * rng.normal(size=shape) if "complex" in dtype else 0)  # noqa: E731
        x, w, g = (make(*shape).astype(dtype) for shape in ((*batch, 4, 5), (5, 6), (*batch, 4, 6)))
        a, b, c = hr.array(x), hr.array(w), hr.array(g)
        real = (lambda z: hr.real(z)) if "complex" in dtype else (lambda z: z)
        plain, expected = operations(lambda x, w: real((x @ w) * hr.conj(c)).sum(), a, b)
        count, found = operations(lambda x, w: real((x @ w.T) * hr.conj(c)).sum(), a, hr.array(w.T.copy()))
        assert count == plain
        np.testing.assert_allclose(np.asarray(found[0]), np.asarray(expected[0]), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(found[1]).T, np.asarray(expected[1]), rtol=1e-5)
        matrix = x.conj().reshape(-1, 5).T @ g.reshape(-1, 6)
        np.testing.assert_allclose(np.asarray(expected[1]), matrix, rtol=1e-4)
        swapped = hr.array(np.swapaxes(x, -1, -2).copy())
        _, found = operations(lambda x, w: real((hr.swapaxes(x, -1, -2) @ w) * hr.conj(c)).sum(), swapped, b)
        np.testing.assert_allclose(np.swapaxes(np.asarray(found[0]), -1, -2), np.asarray(expected[0]), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
@pytest.mark.parametrize("batch, n", [((7,), 1), ((7,), 2), ((2, 5), 2), ((3,), 40)])
def test_gradients_of_a_matrix_that_a_batch_shares(dtype, batch, n):
    """One product of all columns, unless they are many: then they would be copied."""
    rng = np.random.default_rng(4)

    def make(*shape):
        return rng.integers(-3, 4, shape) + (1j * rng.integers(-3, 4, shape) if "complex" in dtype else 0)

    bound = 2**-7 if dtype == "bfloat16" else 1e-6
    w, x, g = (hr.array(make(*shape)).astype(dtype) for shape in ((9, 8), (*batch, 8, n), (*batch, 9, n)))
    wide = [np.asarray(a.astype("complex128" if "complex" in dtype else "float64")) for a in (x, g)]
    expected = np.einsum("bmn,bkn->mk", wide[1].reshape(-1, 9, n), wide[0].reshape(-1, 8, n).conj())

    def loss(w):
        return hr.real(hr.sum((w @ x) * hr.conj(g))) if "complex" in dtype else ((w @ x) * g).sum()

    for view in (lambda w: w, lambda w: hr.broadcast_to(w, (*batch, 9, 8)), lambda w: w[None]):
        gradient = hr.grad(lambda w, view=view: loss(view(w)))(w)
        assert gradient.shape == (9, 8) and gradient.dtype == w.dtype
        found = np.asarray(gradient.astype("complex128" if "complex" in dtype else "float64"))
        np.testing.assert_allclose(found, expected, rtol=bound)
    turned = hr.grad(lambda v: loss(v.T))(w.T)
    np.testing.assert_allclose(np.asarray(turned.astype("complex128")).T, expected, rtol=bound)


def test_a_shared_matrix_has_no_gradient_for_each_of_the_batch():
    """The bytes of the largest intermediate result would be those of 512 matrices."""
    w, x = hr.ones((64, 64)), hr.ones((512, 64, 1))
    step = hr.grad(lambda w: (w @ x).sum())
    hr.eval(step(w))
    headrace._arrays._memory("reset_peak")
    active = headrace._arrays._memory()["active"]
    hr.eval(step(w))
    assert headrace._arrays._memory()["peak"] - active < 64 * 64 * 4 * 64


def test_vmap_shares_a_matrix():
    rng = np.random.default_rng(5)
    w, x = hr.array(rng.normal(size=(4, 3))), hr.array(rng.normal(size=(6, 3)))
    together = hr.grad(lambda w: (hr.vmap(lambda v: w @ v)(x) ** 2).sum())(w)
    each = sum(np.asarray(hr.grad(lambda w, v=v: ((w @ v) ** 2).sum())(w)) for v in x)
    np.testing.assert_allclose(np.asarray(together), each, rtol=1e-12)
    second = hr.grad(lambda w: (hr.grad(lambda w: ((w @ x[:, :, None]) ** 3).sum())(w) ** 2).sum())(w)
    a, v = np.asarray(w), np.asarray(x)
    y = a @ v.T
    first = 3 * y**2 @ v
    np.testing.assert_allclose(np.asarray(second), 12 * (y * (first @ v.T)) @ v, rtol=1e-10)
