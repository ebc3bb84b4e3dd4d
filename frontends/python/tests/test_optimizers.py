"""Optimizers against those of torch, on the same gradients; states; bad arguments."""

import numpy as np
import pytest
import torch

import headrace as hr
import headrace.nn as nn
import headrace.optimizers as optim


def parameters(dtype="float32"):
    random = np.random.default_rng(0)
    return {
        "first": [hr.array(random.normal(size=(3, 4)), dtype=dtype), hr.array(random.normal(size=5), dtype=dtype)],
        "second": {"w": hr.array(random.normal(size=(2, 3, 2)), dtype=dtype)},
    }


def gradients_of(tree, number):
    """Random gradients like the tree's arrays."""
    random = np.random.default_rng(number + 1)
    return hr.utils.tree_map(lambda x: hr.array(random.normal(size=x.shape), dtype=x.dtype), tree)


def leaves(tree):
    return [x for _, x in hr.utils.tree_flatten(tree)]


def compare(ours, theirs, steps=5, tolerance=2e-6):
    """Both make the same steps; theirs(list of torch's parameters)."""
    tree = parameters()
    tensors = [torch.nn.Parameter(torch.tensor(np.array(x))) for x in leaves(tree)]
    optimizer = theirs(tensors)
    for number in range(steps):
        gradients = gradients_of(tree, number)
        for tensor, gradient in zip(tensors, leaves(gradients)):
            tensor.grad = torch.tensor(np.array(gradient))
        optimizer.step()
        tree = ours.apply_gradients(gradients, tree)
    assert ours.step.item() == steps and ours.step.dtype == hr.uint64
    for x, tensor in zip(leaves(tree), tensors):
        np.testing.assert_allclose(np.asarray(x), tensor.detach().numpy(), rtol=tolerance, atol=tolerance)


PAIRS = {
    "sgd": (lambda: optim.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd, momentum": (lambda: optim.SGD(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "sgd, decay, nesterov": (
        lambda: optim.SGD(0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (lambda: optim.Adam(0.01, bias_correction=True), lambda p: torch.optim.Adam(p, 0.01)),
    "adam, betas": (
        lambda: optim.Adam(0.01, betas=[0.8, 0.9], eps=1e-3, bias_correction=True),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.9), eps=1e-3),
    ),
    "adamw": (
        lambda: optim.AdamW(0.01, weight_decay=0.1, bias_correction=True),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    ),
    "rmsprop": (lambda: optim.RMSprop(0.01, alpha=0.9), lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9)),
    "adagrad": (lambda: optim.Adagrad(0.1, eps=1e-6), lambda p: torch.optim.Adagrad(p, 0.1, eps=1e-6)),
    "adadelta": (lambda: optim.AdaDelta(0.5, rho=0.8), lambda p: torch.optim.Adadelta(p, 0.5, rho=0.8)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_steps_are_those_of_torch(name):
    ours, theirs = PAIRS[name]
    compare(ours(), theirs)


def test_dampening_holds_from_the_first_step():
    optimizer = optim.SGD(1.0, momentum=0.5, dampening=0.5)
    x = {"x": hr.array([0.0])}
    for expected in (-0.5, -1.25):
        x = optimizer.apply_gradients({"x": hr.array([1.0])}, x)
        assert x["x"].item() == expected


def test_adam_without_bias_correction():
    optimizer = optim.Adam(0.1, betas=(0.5, 0.75), eps=0)
    x = optimizer.apply_gradients({"x": hr.array([3.0])}, {"x": hr.array([1.0])})
    assert abs(x["x"].item() - (1 - 0.1 * 1.5 / np.sqrt(0.25 * 9))) < 1e-6


OPTIMIZERS = {
    "SGD": lambda **options: optim.SGD(0.1, momentum=0.9, **options),
    "Adam": lambda **options: optim.Adam(0.1, bias_correction=True, **options),
    "AdamW": lambda **options: optim.AdamW(0.1, **options),
    "Adamax": lambda **options: optim.Adamax(0.1, **options),
    "RMSprop": lambda **options: optim.RMSprop(0.1, eps=1e-4, **options),
    "Adagrad": lambda **options: optim.Adagrad(0.1, eps=1e-4, **options),
    "AdaDelta": lambda **options: optim.AdaDelta(0.1, eps=1e-4, **options),
    "Lion": lambda **options: optim.Lion(0.1, weight_decay=0.1, **options),
    "Adafactor": lambda **options: optim.Adafactor(beta_1=0.9, weight_decay=0.1, eps=(1e-5, 1e-3), **options),
    "Muon": lambda **options: optim.Muon(0.1, **options),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dtypes_stay(name, dtype):
    optimizer, tree = OPTIMIZERS[name](), parameters(dtype)
    for number in range(2):
        tree = optimizer.apply_gradients(gradients_of(tree, number), tree)
    assert {str(x.dtype) for x in leaves(tree)} == {dtype}
    assert all(bool(hr.isfinite(x).all()) for x in leaves(tree))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_is_a_tree(name):
    optimizer, tree = OPTIMIZERS[name](), parameters()
    optimizer.init(tree)
    slots = set(optimizer.state["first"][1])
    assert slots and (name == "Adafactor" or slots == set(optimizer.state["second"]["w"]))
    assert all(x.tolist() == hr.zeros((5,)).tolist() for x in optimizer.state["first"][1].values())
    middle = optimizer.apply_gradients(gradients_of(tree, 0), tree)
    other = OPTIMIZERS[name]()
    other.state = optimizer.state
    gradients = gradients_of(tree, 1)
    expected = [x.tolist() for x in leaves(other.apply_gradients(gradients, middle))]
    assert other.step.item() == 2
    fresh = OPTIMIZERS[name]()
    fresh.apply_gradients(gradients_of(tree, 0), tree)
    assert expected == [x.tolist() for x in leaves(fresh.apply_gradients(gradients, middle))]


def steps_of(optimizer, x, gradients):
    """x after steps with these gradients, in f64."""
    x = {"x": hr.array(x)}
    for g in gradients:
        x = optimizer.apply_gradients({"x": hr.array(g)}, x)
    return np.asarray(x["x"])


def test_steps_of_formulas():
    """Against the formulas of the papers, in NumPy."""
    random = np.random.default_rng(3)
    x, gradients = random.normal(size=(4, 3)), random.normal(size=(3, 4, 3))
    y, m, v = x.copy(), 0, 0
    for g in gradients:
        m, v = 0.9 * m + 0.1 * g, np.maximum(0.99 * v, abs(g))
        y = y - 0.1 * m / (v + 1e-8)
    np.testing.assert_allclose(steps_of(optim.Adamax(0.1, betas=(0.9, 0.99)), x, gradients), y, rtol=1e-6)
    y, m = x.copy(), 0
    for g in gradients:
        y, m = (1 - 0.1 * 0.5) * y - 0.1 * np.sign(0.8 * m + 0.2 * g), 0.9 * m + 0.1 * g
    np.testing.assert_allclose(steps_of(optim.Lion(0.1, betas=(0.8, 0.9), weight_decay=0.5), x, gradients), y, rtol=1e-6)
    y, rows, columns = x.copy(), np.zeros(4), np.zeros(3)
    for step, g in enumerate(gradients, 1):
        decay = 1 - step**-0.8
        rows = decay * rows + (1 - decay) * (g**2).mean(1)
        columns = decay * columns + (1 - decay) * (g**2).mean(0)
        update = g / np.sqrt(np.outer(rows, columns) / rows.mean())
        update /= max(1, np.sqrt((update**2).mean()))
        y = y - min(1e-2, step**-0.5) * max(1e-3, np.sqrt((y**2).mean())) * update
    np.testing.assert_allclose(steps_of(optim.Adafactor(), x, gradients), y, rtol=1e-6)


def test_muon_makes_steps_orthogonal():
    random = np.random.default_rng(3)
    for shape, factor in (((6, 3), 2**0.5), ((3, 6), 1), ((3, 3), 1)):
        y = steps_of(optim.Muon(1.0, weight_decay=0), np.zeros(shape), [random.normal(size=shape)])
        values = np.linalg.svd(y / factor, compute_uv=False)
        assert (values > 0.6).all() and (values < 1.3).all()
    x = steps_of(optim.Muon(1.0, momentum=0.5, nesterov=False, weight_decay=0.1), np.array([2.0]), [np.array([1.0])])
    assert abs(x[0] - (2 - 0.5 * 1.2)) < 1e-6


def test_several_optimizers():
    tree = parameters()
    gradients = gradients_of(tree, 0)
    both = optim.MultiOptimizer([optim.SGD(0.5), optim.Lion(0.1)], [lambda path, g: path.startswith("first")])
    both.init(tree)
    found = both.apply_gradients(gradients, tree)
    first = optim.SGD(0.5).apply_gradients({"first": gradients["first"]}, tree)
    second = optim.Lion(0.1).apply_gradients({"second": gradients["second"]}, tree)
    assert [x.tolist() for x in leaves(found)] == [x.tolist() for x in leaves({**first, **second})]
    state = both.state
    assert len(state["states"]) == 2 and "second" not in state["states"][0] and "m" in state["states"][1]["second"]["w"]
    both.state = state
    both.learning_rate = 0.25
    assert [optimizer.learning_rate.item() for optimizer in both.optimizers] == [0.25, 0.25]
    with pytest.raises(ValueError, match="list of 2 states"):
        both.state = {"states": []}
    with pytest.raises(ValueError, match="0 filters, expected 1"):
        optim.MultiOptimizer([optim.SGD(0.1), optim.SGD(0.1)])


def test_schedules():
    for schedule, expected in (
        (optim.exponential_decay(0.1, 0.5), [0.1, 0.05, 0.025, 0.0125]),
        (optim.step_decay(0.1, 0.5, 2), [0.1, 0.1, 0.05, 0.05]),
        (optim.linear_schedule(0.0, 0.2, 2), [0, 0.1, 0.2, 0.2]),
        (optim.cosine_decay(0.2, 2, end=0.1), [0.2, 0.15, 0.1, 0.1]),
        (
            optim.join_schedules([optim.linear_schedule(0, 1, 2), optim.exponential_decay(0.5, 0.5)], [2]),
            [0, 0.5, 0.5, 0.25],
        ),
    ):
        for step, value in enumerate(expected):
            for given in (step, hr.array(step, dtype=hr.uint64)):
                np.testing.assert_allclose(np.asarray(hr.array(schedule(given))), value, atol=1e-7)
        optimizer = optim.SGD(schedule)
        x = {"x": hr.array(0.0)}
        for _ in expected:
            x = optimizer.apply_gradients({"x": hr.array(1.0)}, x)
        assert abs(x["x"].item() + sum(expected)) < 1e-6


def test_frozen_and_new_parameters():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model.layers[0].freeze()
    optimizer, x = optim.SGD(0.1, momentum=0.9), hr.ones((4, 2))
    step = nn.value_and_grad(model, lambda: (model(x) ** 2).mean())
    before = model.layers[0].weight
    optimizer.update(model, step()[1])
    assert model.layers[0].weight is before
    model.unfreeze()
    optimizer.init(model.trainable_parameters())
    optimizer.update(model, step()[1])
    assert model.layers[0].weight.tolist() != before.tolist()


def test_learning_rates():
    optimizer = optim.SGD(lambda step: 1 / (1 + step))
    x = {"x": hr.array(0.0)}
    for _ in range(3):
        x = optimizer.apply_gradients({"x": hr.array(1.0)}, x)
    assert abs(x["x"].item() + 1 + 1 / 2 + 1 / 3) < 1e-6
    optimizer = optim.SGD(1.0)
    optimizer.learning_rate = 0.5
    assert optimizer.apply_gradients({"x": hr.array(1.0)}, {"x": hr.array(1.0)})["x"].item() == 0.5
    assert optimizer.learning_rate.item() == 0.5 and optimizer.state["learning_rate"] is optimizer.learning_rate


def test_clip_grad_norm():
    tree = parameters()
    clipped, norm = optim.clip_grad_norm(tree, 1.5)
    expected = np.sqrt(sum(float((np.asarray(x) ** 2).sum()) for x in leaves(tree)))
    assert abs(norm.item() - expected) < 1e-5
    assert abs(optim.clip_grad_norm(clipped, 100)[1].item() - 1.5) < 1e-5
    same, _ = optim.clip_grad_norm(tree, 100.0)
    assert [x.tolist() for x in leaves(same)] == [x.tolist() for x in leaves(tree)]
    whole, _ = optim.clip_grad_norm({"x": hr.array([3, 4])}, 1.0)
    np.testing.assert_allclose(np.asarray(whole["x"]), [0.6, 0.8], rtol=1e-5)
    half, _ = optim.clip_grad_norm(parameters("float16"), 1.0)
    assert str(half["first"][0].dtype) == "float16"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optim.SGD(0.1, nesterov=True), "momentum 0.0"),
        (lambda: optim.SGD(0.1, momentum=0.9, dampening=0.5, nesterov=True), "dampening 0.5"),
        (lambda: optim.Adam(0.1, betas=(0.9, 1.0)), "beta2 is 1.0"),
        (lambda: optim.AdamW(0.1, eps=-1), "AdamW: eps is -1"),
        (lambda: optim.RMSprop(0.1, eps=0), ">0"),
        (lambda: optim.RMSprop(0.1, alpha=-1), "alpha is -1"),
        (lambda: optim.AdaDelta(0.1, rho=-1), "rho is -1"),
        (lambda: optim.Adagrad(0.1, eps=-1.0), "Adagrad: eps is -1.0"),
        (lambda: optim.Lion(0.1, betas=(-1, 0)), "Lion: beta1 is -1"),
        (lambda: optim.Adafactor(relative_step=False), "learning_rate is None"),
        (lambda: optim.step_decay(1, 1, 0), "step_size is 0"),
        (lambda: optim.cosine_decay(1, -1), "decay_steps is -1"),
        (lambda: optim.linear_schedule(1, 1, 0), "steps is 0"),
        (lambda: optim.join_schedules([], []), "0 schedules"),
        (lambda: optim.clip_grad_norm({}, -1), "max_norm is -1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- all parameters at once


ALL = {
    "sgd": lambda: optim.SGD(0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda: optim.Adam(0.01, bias_correction=True),
    "adamw": lambda: optim.AdamW(0.01),
    "adamax": lambda: optim.Adamax(0.01),
    "rmsprop": lambda: optim.RMSprop(0.01),
    "adagrad": lambda: optim.Adagrad(0.01),
    "adadelta": lambda: optim.AdaDelta(0.5),
    "lion": lambda: optim.Lion(0.01, weight_decay=0.1),
}


def mixed_parameters():
    """Dtypes, strides and shapes differ; one array is empty."""
    tree = parameters()
    tree["half"] = hr.array([0.1, -2.0, 3.5], dtype=hr.float16)
    tree["wide"] = hr.arange(6.0, dtype=hr.float64).reshape(2, 3).T
    tree["empty"], tree["number"] = hr.zeros((0, 3)), hr.array(-0.5)
    return tree


@pytest.mark.parametrize("name", ALL)
def test_all_parameters_at_once_are_updated_as_one_by_one(name):
    together, singly = ALL[name](), ALL[name]()
    one_by_one = type("OneByOne", (type(singly),), {"apply_single": lambda self, *x: type(together).apply_single(self, *x)})
    singly.__class__ = one_by_one
    a = b = mixed_parameters()
    for number in range(3):
        gradients = gradients_of(a, number)
        a, b = together.apply_gradients(gradients, a), singly.apply_gradients(gradients, b)
    for x, y in zip(leaves(a) + leaves(together.state), leaves(b) + leaves(singly.state)):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_an_update_is_a_few_records():
    optimizer, tree = optim.Adam(0.01), {"w": [hr.ones((2, 3)) for _ in range(20)]}
    gradients = gradients_of(tree, 0)
    tree = optimizer.apply_gradients(gradients, tree)
    hr.eval()
    before = hr.stats()["operations"]
    tree = optimizer.apply_gradients(gradients, tree)
    assert hr.stats()["operations"] - before < 20
    hr.eval(tree)


def test_updates_inside_of_gradients():
    """The update itself is differentiated, parameter by parameter."""

    def loss(rate):
        optimizer = optim.SGD(0.0)
        optimizer.state["learning_rate"] = rate
        tree = optimizer.apply_gradients({"a": hr.array([1.0, 2.0]), "b": hr.array(3.0)}, {"a": hr.ones(2), "b": hr.ones(())})
        return tree["a"].sum() + tree["b"]

    assert hr.grad(loss)(hr.array(0.1)).item() == -6


def test_updates_replace_the_parameters_of_a_model():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model.layers[0].freeze()
    before = [x for _, x in hr.utils.tree_flatten(model.parameters())]
    loss, gradients = nn.value_and_grad(model, lambda x: (model(x) ** 2).sum())(hr.ones((1, 3)))
    optim.SGD(0.1).update(model, gradients)
    after = [x for _, x in hr.utils.tree_flatten(model.parameters())]
    assert [x is y for x, y in zip(before, after)] == [True, True, False, False]
    expected = optim.SGD(0.1).apply_gradients(gradients["layers"][1], {"weight": before[2], "bias": before[3]})
    np.testing.assert_array_equal(np.asarray(expected["weight"]), np.asarray(model.layers[1].weight))


def test_updates_of_nested_parameters():
    """Dicts, lists and tuples, of which the last can't be changed in place."""
    parameters = {"a": [hr.ones(2), {"b": hr.ones(3)}], "c": (hr.ones(1), hr.ones(4))}
    gradients = {"c": (hr.ones(1) * 2, hr.ones(4)), "a": [hr.ones(2) * 3, {"b": hr.ones(3)}]}
    updated = optim.SGD(1.0).apply_gradients(gradients, parameters)
    assert [x.tolist() for x in updated["c"]] == [[-1], [0] * 4] and updated["a"][0].tolist() == [-2, -2]
    model = nn.Linear(2, 2)
    model.tuple = (hr.ones(2),)
    with pytest.raises(ValueError, match="can't replace parameter 'tuple'"):
        optim.SGD(1.0).update(model, {"weight": hr.zeros((2, 2)), "tuple": (hr.ones(2),)})


def test_bad_gradients_of_a_model():
    model = nn.Linear(2, 2)
    with pytest.raises(KeyError):
        optim.SGD(0.1).update(model, {"weights": hr.ones((2, 2))})
    with pytest.raises(ValueError, match="can't be broadcast"):
        optim.SGD(0.1).update(model, {"weight": hr.ones((3, 3))})
