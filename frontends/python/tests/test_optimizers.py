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
    assert slots and slots == set(optimizer.state["second"]["w"])
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
    half, _ = optim.clip_grad_norm(parameters("float16"), 1.0)
    assert str(half["first"][0].dtype) == "float16"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optim.SGD(0.1, nesterov=True), "momentum 0.0"),
        (lambda: optim.SGD(0.1, momentum=0.9, dampening=0.5, nesterov=True), "dampening 0.5"),
        (lambda: optim.Adam(0.1, betas=(0.9, 1.0)), "beta2 is 1.0"),
        (lambda: optim.AdamW(0.1, eps=-1), "AdamW: eps is -1"),
        (lambda: optim.clip_grad_norm({}, -1), "max_norm is -1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
