"""Steps of optimizers as functions, against hr.optimizers and PyTorch."""

import numpy as np
import pytest

import headrace as hr
from headrace import optimizers

torch = pytest.importorskip("torch")
rng = np.random.default_rng(29)


def sample(*shape):
    return rng.uniform(-1, 1, shape)


# Our optimizer, the function and the arguments behind gradient and states, PyTorch's optimizer
CASES = {
    "sgd": (optimizers.SGD(0.1, 0.9), lambda *x: hr.sgd_update(*x, 0.1, momentum=0.9), 1,
            lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    "sgd, all": (optimizers.SGD(0.1, 0.9, 0.2, 0.3), lambda *x: hr.sgd_update(*x, 0.1, 0.9, 0.3, 0.2), 1, None),
    "sgd, nesterov": (optimizers.SGD(0.1, 0.9, 0.2, nesterov=True),
                      lambda *x: hr.sgd_update(*x, 0.1, 0.9, weight_decay=0.2, nesterov=True), 1,
                      lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.2, nesterov=True)),
    "adam": (optimizers.Adam(0.1), lambda *x, step: hr.adam_update(*x, 0.1, step, bias_correction=False), 2, None),
    "adam, corrected": (optimizers.Adam(0.1, bias_correction=True), lambda *x, step: hr.adam_update(*x, 0.1, step), 2,
                        lambda p: torch.optim.Adam(p, 0.1)),
    "adam, decay": (None, lambda *x, step: hr.adam_update(*x, 0.1, step, weight_decay=0.3), 2,
                    lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.3)),
    "adamw": (optimizers.AdamW(0.1, weight_decay=0.3, bias_correction=True),
              lambda *x, step: hr.adam_update(*x, 0.1, step, weight_decay=0.3, decoupled=True), 2,
              lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.3)),
    "adamax": (optimizers.Adamax(0.1), lambda *x: hr.adamax_update(*x, 0.1), 2, None),
    "lion": (optimizers.Lion(0.1, weight_decay=0.2), lambda *x: hr.lion_update(*x, 0.1, weight_decay=0.2), 1, None),
    "rmsprop": (optimizers.RMSprop(0.1), lambda *x: hr.rmsprop_update(*x, 0.1), 1,
                lambda p: torch.optim.RMSprop(p, 0.1)),
    "adagrad": (optimizers.Adagrad(0.1, 1e-10), lambda *x: hr.adagrad_update(*x, 0.1, eps=1e-10), 1,
                lambda p: torch.optim.Adagrad(p, 0.1)),
    "adadelta": (optimizers.AdaDelta(0.1), lambda *x: hr.adadelta_update(*x, 0.1), 2, None),
    "adadelta, torch": (None, lambda *x: hr.adadelta_update(*x, 0.1), 2, lambda p: torch.optim.Adadelta(p, 0.1)),
}  # fmt: skip


def steps(function, parameter, gradients, states):
    state = [hr.zeros_like(parameter) for _ in range(states)]
    for t, g in enumerate(gradients, 1):
        named = {"step": t} if "step" in function.__code__.co_varnames else {}
        parameter, *state = function(parameter, g, *state, **named)
    return parameter


@pytest.mark.parametrize("name", CASES)
def test_steps(name):
    ours, function, states, theirs = CASES[name]
    start, gradients = sample(3, 4), [sample(3, 4) for _ in range(4)]
    result = steps(function, hr.array(start), map(hr.array, gradients), states)
    if ours is not None:
        tree = {"p": hr.array(start)}
        for g in gradients:
            tree = ours.apply_gradients({"p": hr.array(g)}, tree)
        np.testing.assert_allclose(np.asarray(result), np.asarray(tree["p"]), 1e-4, 1e-5)  # corrections in f32
    if theirs is not None:
        parameter = torch.tensor(start, requires_grad=True)
        optimizer = theirs([parameter])
        for g in gradients:
            parameter.grad = torch.tensor(g)
            optimizer.step()
        np.testing.assert_allclose(np.asarray(result), parameter.detach().numpy(), 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_have_the_dtypes_of_what_they_replace(dtype):
    p, g = hr.array(sample(3)).astype(dtype), hr.array(sample(3)).astype(dtype)
    state = [hr.zeros(3), hr.zeros(3)]
    rate, step = hr.array(0.1), hr.array(1)
    new, m, v = hr.adam_update(p, g, *state, rate, step)
    assert str(new.dtype) == dtype and m.dtype == v.dtype == hr.float32
    number = hr.adam_update(p, g, *state, 0.1, 1)[0]
    np.testing.assert_allclose(np.asarray(new.astype(hr.float64)), np.asarray(number.astype(hr.float64)), 2e-2)
    assert str(hr.sgd_update(p, g, state[0], rate)[0].dtype) == dtype


def test_a_rate_is_no_part_of_the_program():
    p, v = hr.array(sample(8)), hr.zeros(8)
    step = hr.compile(lambda p, g, v, rate: hr.sgd_update(p, g, v, rate, 0.9))
    for rate in (0.1, 0.2, 0.3):
        new, _ = step(p, p, v, hr.array(rate))
        np.testing.assert_allclose(np.asarray(new), np.asarray(p) * (1 - rate), 1e-6)


def test_gradients_go_through_updates():
    p, g, v = (hr.array(sample(4)) for _ in range(3))
    by_rate = hr.grad(lambda r: hr.sgd_update(p, g, v, r, 0.5)[0].sum())(hr.array(0.1))
    np.testing.assert_allclose(by_rate.item(), -(np.asarray(g) + 0.5 * np.asarray(v)).sum(), 1e-6)


@pytest.mark.parametrize(("call", "message"), [
    (lambda p: hr.sgd_update(p, p[:2], p, 0.1), r"gradient has dims \[2\], expected \[3\]"),
    (lambda p: hr.sgd_update(p, p, p[None], 0.1), r"velocity has dims \[1,3\], expected \[3\]"),
    (lambda p: hr.sgd_update(p, p, p, p), r"rate has dims \[3\], expected \[\]"),
    (lambda p: hr.adam_update(p, p, p, p, 0.1, p), r"step has dims \[3\], expected \[\]"),
])  # fmt: skip
def test_bad_dims(call, message):
    with pytest.raises(ValueError, match=message):
        call(hr.ones(3))
