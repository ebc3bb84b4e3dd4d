"""Networks: layers against torch.nn, values and gradients; modules as trees; bad arguments."""

import copy

import numpy as np
import pytest
import torch

import headrace as hr
import headrace.nn as nn
import headrace.optimizers as optim

utils = hr.utils


def sample(*shape, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def close(actual, expected, tolerance=1e-5):
    expected = expected.detach().numpy() if isinstance(expected, torch.Tensor) else np.asarray(expected)
    assert tuple(actual.shape) == expected.shape
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tolerance, atol=tolerance)


def to_first(x):
    """Channels from the last dim to the second: [N, H, W, C] to [N, C, H, W]."""
    return x if x.ndim < 3 else np.moveaxis(x, -1, 1)


def to_last(x):
    return x if x.ndim < 3 else x.movedim(1, -1)


def compare(layer, theirs, *inputs, weights=(), to_theirs=lambda x: x, from_theirs=lambda x: x, tolerance=1e-5):
    """The layer's results and gradients are those of torch's module. weights: pairs of names of parameters."""
    for ours, name in weights:
        value = to_theirs(np.array(layer[ours])) if layer[ours].ndim > 2 else np.array(layer[ours])
        setattr(theirs, name, torch.nn.Parameter(torch.tensor(value)))
    tensors = [torch.tensor(to_theirs(x), requires_grad=True) for x in inputs]
    expected = from_theirs(theirs(*tensors))
    factor = sample(*expected.shape, seed=9)
    (expected * torch.tensor(factor)).sum().backward()

    def loss(parameters, *inputs):
        layer.update(parameters)
        return (layer(*inputs) * factor).sum()

    arrays = [hr.array(x) for x in inputs]
    parameters = layer.trainable_parameters()
    close(layer(*arrays), expected, tolerance)
    by_weights, *by_inputs = hr.grad(loss, argnums=tuple(range(len(arrays) + 1)))(parameters, *arrays)
    layer.update(parameters)
    for ours, name in weights:
        grad = getattr(theirs, name).grad
        close(by_weights[ours], from_theirs(grad) if grad.ndim > 2 else grad, 10 * tolerance)
    for ours, x in zip(by_inputs, tensors):
        close(ours, from_theirs(x.grad), 10 * tolerance)


BOTH = (("weight", "weight"), ("bias", "bias"))

# ---- activations

F = torch.nn.functional
ACTIVATIONS = {
    "celu": (nn.CELU, F.celu),
    "celu, alpha": (lambda: nn.CELU(0.7), lambda x: F.celu(x, 0.7)),
    "elu": (nn.ELU, F.elu),
    "elu, alpha": (lambda: nn.ELU(alpha=0.7), lambda x: F.elu(x, 0.7)),
    "gelu": (nn.GELU, F.gelu),
    "gelu, tanh": (lambda: nn.GELU("precise"), lambda x: F.gelu(x, approximate="tanh")),
    "gelu, fast": (lambda: nn.GELU("fast"), lambda x: x * torch.sigmoid(1.702 * x)),
    "glu": (nn.GLU, F.glu),
    "glu, axis": (lambda: nn.GLU(axis=0), lambda x: F.glu(x, dim=0)),
    "hard shrink": (lambda: nn.HardShrink(0.3), lambda x: F.hardshrink(x, 0.3)),
    "hard tanh": (nn.HardTanh, F.hardtanh),
    "hardswish": (nn.Hardswish, F.hardswish),
    "leaky relu": (lambda: nn.LeakyReLU(0.2), lambda x: F.leaky_relu(x, 0.2)),
    "log sigmoid": (nn.LogSigmoid, F.logsigmoid),
    "log softmax": (nn.LogSoftmax, lambda x: F.log_softmax(x, -1)),
    "mish": (nn.Mish, F.mish),
    "relu": (nn.ReLU, F.relu),
    "relu2": (nn.ReLU2, lambda x: F.relu(x) ** 2),
    "relu6": (nn.ReLU6, F.relu6),
    "selu": (nn.SELU, F.selu),
    "silu": (nn.SiLU, F.silu),
    "sigmoid": (nn.Sigmoid, torch.sigmoid),
    "softmax": (nn.Softmax, lambda x: F.softmax(x, -1)),
    "softmin": (nn.Softmin, lambda x: F.softmin(x, -1)),
    "softplus": (nn.Softplus, F.softplus),
    "softshrink": (lambda: nn.Softshrink(lambd=0.3), lambda x: F.softshrink(x, 0.3)),
    "softsign": (nn.Softsign, F.softsign),
    "tanh": (nn.Tanh, torch.tanh),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_torch(name):
    layer, theirs = ACTIVATIONS[name]
    compare(layer(), theirs, sample(4, 6, low=-8, high=8))


def test_prelu_trains_its_slopes():
    compare(nn.PReLU(6, init=0.3), torch.nn.PReLU(6), sample(4, 6), weights=[("weight", "weight")])


def test_step_includes_its_threshold():
    y = nn.Step(0.5)(hr.array([0.0, 0.5, 1.0]))
    assert y.tolist() == [0, 1, 1] and y.dtype == hr.int32


def test_functions_have_names_of_mlx():
    x = hr.array(sample(5))
    for actual, expected in (
        (nn.leaky_relu(x, negative_slope=0.1), nn.LeakyReLU(0.1)(x)),
        (nn.softshrink(x, lambd=0.1), nn.Softshrink(0.1)(x)),
        (nn.hard_shrink(x, lambd=0.1), nn.HardShrink(0.1)(x)),
        (nn.hard_tanh(x, min_val=-0.1, max_val=0.2), hr.clip(x, -0.1, 0.2)),
        (nn.gelu_approx(x), nn.GELU("tanh")(x)),
        (nn.gelu_fast_approx(x), nn.GELU("fast")(x)),
        (nn.step(x, threshold=0.1), nn.Step(0.1)(x)),
    ):
        assert actual.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="'exact'"):
        nn.GELU("exact")


# ---- linear maps


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
def test_linear(shape):
    compare(nn.Linear(5, 4), torch.nn.Linear(5, 4), sample(*shape), weights=BOTH)


def test_linear_without_bias():
    layer = nn.Linear(5, 4, bias=False)
    assert repr(layer) == "Linear(input_dims=5, output_dims=4, bias=False)" and list(layer.parameters()) == ["weight"]
    compare(layer, torch.nn.Linear(5, 4, bias=False), sample(3, 5), weights=BOTH[:1])
    with pytest.raises(ValueError, match="matmul"):
        layer(hr.ones((3, 4)))


def test_bilinear():
    layer = nn.Bilinear(3, 4, 5)
    weight, bias = (torch.tensor(np.array(layer[name])) for name in ("weight", "bias"))
    compare(layer, lambda x, y: F.bilinear(x, y, weight.transpose(1, 2), bias), sample(2, 6, 3), sample(2, 6, 4, seed=1))
    assert repr(layer) == "Bilinear(input1_dims=3, input2_dims=4, output_dims=5, bias=True)"


def test_embedding():
    layer, places = nn.Embedding(6, 3), np.array([[0, 5], [5, 2]])
    theirs = torch.tensor(np.array(layer.weight), requires_grad=True)
    expected = F.embedding(torch.tensor(places), theirs)
    (expected**2).sum().backward()
    close(layer(hr.array(places)), expected)
    _, gradient = nn.value_and_grad(layer, lambda x: (layer(x) ** 2).sum())(hr.array(places))
    close(gradient["weight"], theirs.grad)
    close(layer.as_linear(hr.ones((2, 3))), hr.ones((2, 3)) @ layer.weight.T)
    assert repr(layer) == "Embedding(6, 3)"


def test_identity_and_sequential():
    layer = nn.Sequential(nn.Identity(3, unused=1), hr.tanh, nn.Linear(3, 2))
    x = hr.array(sample(4, 3))
    close(layer(x), layer.layers[2](hr.tanh(x)))


# ---- losses


def test_losses_are_those_of_torch():
    logits, targets = sample(6, 5, low=-3, high=3), np.array([0, 4, 2, 1, 1, 3])
    x, y = hr.array(logits), hr.array(targets)
    theirs, classes = torch.tensor(logits), torch.tensor(targets)
    close(nn.losses.cross_entropy(x, y), F.cross_entropy(theirs, classes, reduction="none"))
    smooth = nn.losses.cross_entropy(x, y, label_smoothing=0.2, reduction="mean")
    close(smooth, F.cross_entropy(theirs, classes, label_smoothing=0.2))
    other = sample(6, 5, seed=3)
    close(nn.losses.mse_loss(x, hr.array(other)), F.mse_loss(theirs, torch.tensor(other)))
    close(nn.losses.huber_loss(x, hr.array(other), reduction="mean"), F.huber_loss(theirs, torch.tensor(other)))
    with pytest.raises(ValueError, match="most"):
        nn.losses.mse_loss(x, x, reduction="most")


# ---- initialisers


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_initialisers(dtype):
    weight = hr.zeros((64, 3, 3, 32))
    for initializer, deviation in (
        (nn.init.constant(2.0, dtype), 0),
        (nn.init.normal(1.0, 0.5, dtype), 0.5),
        (nn.init.uniform(-1.0, 1.0, dtype), 3**-0.5),
        (nn.init.glorot_normal(dtype), (2 / (9 * 96)) ** 0.5),
        (nn.init.glorot_uniform(dtype), (2 / (9 * 96)) ** 0.5),
        (nn.init.he_normal(dtype), (9 * 32) ** -0.5),
        (nn.init.he_uniform(dtype), (9 * 32) ** -0.5),
    ):
        x = initializer(weight)
        assert x.shape == weight.shape and str(x.dtype) == dtype
        assert abs(np.asarray(x, np.float64).std() - deviation) <= 0.05 * deviation
    wide = nn.init.he_normal(dtype)(weight, mode="fan_out", gain=2.0)
    assert abs(np.asarray(wide, np.float64).std() - 2 / 24) < 0.005


def test_initialisers_of_matrices():
    assert nn.init.identity()(hr.zeros((3, 3))).tolist() == np.eye(3).tolist()
    zeros = np.asarray(nn.init.sparse(0.3)(hr.zeros((20, 10)))) == 0
    assert (zeros.sum(axis=1) == 3).all() and len({tuple(row) for row in zeros.tolist()}) > 10
    for shape in ((6, 4), (4, 6), (5, 5)):
        x = np.asarray(nn.init.orthogonal(gain=2.0)(hr.zeros(shape)))
        small = x.T @ x if shape[0] > shape[1] else x @ x.T
        np.testing.assert_allclose(small, 4 * np.eye(min(shape)), atol=1e-5)


@pytest.mark.parametrize(
    ("initializer", "shape", "message"),
    [
        (nn.init.identity(), (2, 3), r"\(2, 3\)"),
        (nn.init.he_normal(), (3,), r"\(3,\)"),
        (nn.init.glorot_uniform(), (), r"\(\)"),
        (nn.init.sparse(0.5), (2, 3, 4), r"\(2, 3, 4\)"),
        (nn.init.orthogonal(), (3,), r"\(3,\)"),
        (lambda x: nn.init.he_uniform()(x, "fan"), (2, 3), "'fan'"),
    ],
)
def test_initialisers_refuse_other_shapes(initializer, shape, message):
    with pytest.raises(ValueError, match=message):
        initializer(hr.zeros(shape))


def test_the_seed_repeats_weights():
    hr.random.seed(7)
    first, second = nn.Linear(3, 4), nn.Linear(3, 4)
    hr.random.seed(7)
    again = nn.Linear(3, 4)
    assert first.weight.tolist() == again.weight.tolist() != second.weight.tolist()
    assert len(hr.random.state) == 1 and hr.random.state[0].shape == (2,)


# ---- modules


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.blocks = [nn.Linear(3, 3), {"deep": nn.Linear(3, 1)}, hr.zeros((2,))]
        self.scales = {"a": hr.ones((2,)), "b": [hr.ones((3,))]}
        self._hidden = hr.zeros((9,))
        self.size, self.name, self.pair = 3, "tree", (1, 2)

    def __call__(self, x):
        return self.blocks[1]["deep"](self.blocks[0](self.first(x))) * self.scales["a"][0]


NAMES = "first.weight first.bias blocks.0.weight blocks.0.bias blocks.1.deep.weight blocks.1.deep.bias blocks.2 scales.a "
NAMES = [*NAMES.split(), "scales.b.0"]


def names(tree):
    return [name for name, leaf in utils.tree_flatten(tree) if not isinstance(leaf, dict)]


def test_parameters_are_a_tree():
    model = Tree()
    assert names(model.parameters()) == names(model.trainable_parameters()) == NAMES
    assert model.parameters()["blocks"][1]["deep"]["weight"] is model.blocks[1]["deep"].weight
    assert model.state is model and model["pair"] == (1, 2) and "size" not in model
    assert [path for path, _ in model.named_modules()] == ["", "blocks.1.deep", "blocks.0", "first"]
    assert set(model.children()) == {"first", "blocks", "scales"} and model.children()["first"] is model.first
    assert model.leaf_modules()["blocks"][1]["deep"] is model.blocks[1]["deep"]
    assert len(model.modules()) == 4 and model.modules()[0] is model


def test_attributes():
    module = nn.Module()
    module.x = None
    module.x = hr.ones(2)
    assert "x" in module and module.x is module["x"]
    module.x = "text"
    assert "x" not in module and module.x == "text"
    module.y = [1]
    del module.y, module.x
    for name in ("x", "y"):
        with pytest.raises(AttributeError, match=f"'Module'.*'{name}'"):
            getattr(module, name)
        with pytest.raises(AttributeError):
            delattr(module, name)


def test_frozen_parameters():
    model = Tree()
    model.freeze()
    assert names(model.trainable_parameters()) == [] and names(model.parameters()) == NAMES
    model.unfreeze(keys="bias")
    assert names(model.trainable_parameters()) == ["first.bias", "blocks.0.bias", "blocks.1.deep.bias"]
    model.unfreeze(keys=["scales.a", "scales.b.0"], recurse=False)
    assert names(model.trainable_parameters())[3:] == ["scales.a", "scales.b.0"]
    assert model.unfreeze() is model and names(model.trainable_parameters()) == NAMES
    model.freeze(recurse=False)
    assert names(model.trainable_parameters()) == NAMES[:6]
    with pytest.raises(KeyError, match="wieght"):
        model.freeze(keys=["weight", "wieght"], strict=True)
    with pytest.raises(KeyError, match="weight"):
        model.unfreeze(keys="weight", recurse=False, strict=True)


def test_training_mode_is_that_of_all_modules():
    model = Tree()
    assert model.training and model.eval() is model
    assert not any(module.training for module in model.modules())
    assert model.train().blocks[1]["deep"].training


def test_updates():
    model = Tree()
    old = model.first.weight
    assert model.update({"first": {"bias": hr.ones(3)}, "blocks": [{}, {"deep": {"bias": hr.zeros(1)}}]}) is model
    assert model.first.bias.tolist() == [1, 1, 1] and model.first.weight is old
    model.update({"other": hr.ones(1), "blocks": [1, 2, hr.ones(2), 4], "first": "text"}, strict=False)
    assert model.blocks[2].tolist() == [1, 1] and isinstance(model.blocks[0], nn.Linear)
    model.apply(lambda x: x * 0, lambda m, k, v: k != "first" and model.valid_parameter_filter(m, k, v))
    assert model.first.weight is old and model.scales["b"][0].tolist() == [0, 0, 0]
    for tree, message in (
        ({"other": hr.ones(1)}, "'other'"),
        ({"first": {"bias": 3}}, "int 3 can't replace parameter 'bias'"),
        ({"first": [hr.ones(3)]}, "list in the place of a Linear"),
        ({"blocks": [{}, {}, {}, {}]}, "length 3 has no parameter 3"),
        (hr.ones(1), "Array"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(tree)


def test_updates_of_modules():
    model = Tree()
    model.update_modules(model.leaf_modules())
    new = nn.Linear(3, 3)
    model.update_modules({"blocks": [{}, {"deep": new}]})
    assert model.blocks[1]["deep"] is new and isinstance(model.blocks[0], nn.Linear)
    model.update_modules({"blocks": [{}, {}, {}, new]}, strict=False)
    assert len(model.blocks) == 3
    for tree in ({"other": new}, {"first": 3}, {"blocks": ["x"]}, {"scales": {"a": new}}, {"blocks": [{}, {}, {}, new]}):
        with pytest.raises(ValueError, match="update: "):
            model.update_modules(tree)


def test_dtypes():
    model = Tree()
    model.blocks[2] = hr.zeros(2, dtype=hr.int32)
    model.set_dtype(hr.float16)
    found = {name: str(x.dtype) for name, x in utils.tree_flatten(model.parameters())}
    assert found.pop("blocks.2") == "int32" and set(found.values()) == {"float16"}
    model.set_dtype(hr.float32, None)
    assert {str(x.dtype) for _, x in utils.tree_flatten(model.parameters())} == {"float32"}


def test_weights_in_files(tmp_path):
    first, second = Tree(), Tree()
    first.save_weights(str(tmp_path / "model.safetensors"))
    assert second.load_weights(str(tmp_path / "model.safetensors")) is second
    for (_, x), (_, y) in zip(utils.tree_flatten(first.parameters()), utils.tree_flatten(second.parameters())):
        assert x.tolist() == y.tolist()
    with pytest.raises(ValueError, match="model.bin"):
        first.save_weights(str(tmp_path / "model.bin"))


def test_weights_must_fit():
    layer = nn.Linear(2, 3)
    weight, bias = hr.ones((3, 2)), hr.ones(3)
    layer.load_weights([("weight", weight), ("bias", bias)])
    assert layer.weight is weight
    layer.load_weights([("weights", weight), ("bias", hr.zeros(3))], strict=False)
    assert layer.weight is weight and layer.bias.tolist() == [0, 0, 0]
    layer.load_weights([], strict=False)
    for pairs, message in (
        ([("weight", weight)], "without weights: bias"),
        ([("weight", weight), ("bias", bias), ("other", bias)], "not in the model: other"),
        ([("weight", weight), ("bias", hr.ones((3, 1)))], r"bias has shape \(3, 1\), expected \(3,\)"),
        ([("weight", weight), ("bias", 3)], "bias is 3"),
    ):
        with pytest.raises(ValueError, match=message):
            layer.load_weights(pairs)


def test_a_copy_is_independent():
    model = Tree()
    model.freeze(keys="bias")
    other = copy.deepcopy(model)
    assert names(other.trainable_parameters()) == names(model.trainable_parameters())
    other.first.weight = other.first.weight + 1
    close(other.first.weight - model.first.weight, np.ones((3, 2)))


# ---- training


def test_value_and_grad_of_trainable_parameters():
    model = Tree()
    model.blocks[0].freeze()
    before, x = model.parameters(), hr.array(sample(4, 2))
    (value, twice), gradients = nn.value_and_grad(model, lambda x, scale: ((model(x) ** 2).mean() * scale, 2))(x, scale=3)
    assert twice == 2 and names(gradients) == [name for name in NAMES if not name.startswith("blocks.0")]
    assert gradients["blocks"][0] == {} and gradients["scales"]["b"][0].tolist() == [0, 0, 0]
    assert all(x is y for (_, x), (_, y) in zip(utils.tree_flatten(before), utils.tree_flatten(model.parameters())))
    close(value, 3 * (model(x) ** 2).mean())
    step = 1e-2
    model.first.bias = before["first"]["bias"] + hr.array([step, 0, 0])
    above = 3 * (model(x) ** 2).mean()
    model.first.bias = before["first"]["bias"] - hr.array([step, 0, 0])
    close(gradients["first"]["bias"][0], (above - 3 * (model(x) ** 2).mean()) / (2 * step), 1e-3)


def test_a_failing_loss_leaves_the_parameters():
    model = nn.Linear(2, 2)
    weight = model.weight

    def fail():
        raise RuntimeError("loss")

    with pytest.raises(RuntimeError, match="loss"):
        nn.value_and_grad(model, fail)()
    assert model.weight is weight


def test_a_module_is_an_argument_of_grad():
    model, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), hr.ones((1, 3))
    gradient = hr.grad(lambda model: model(x).sum())(model)
    assert gradient["layers"][0]["weight"].shape == (2, 3) and isinstance(model.layers[0], nn.Linear)


def test_a_trained_network_learns():
    hr.random.seed(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    x = hr.array(sample(256, 2))
    y = x[:, :1] * x[:, 1:]
    optimizer = optim.Adam(1e-2)
    step = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
    for _ in range(300):
        loss, gradients = step(x, y)
        optimizer.update(model, gradients)
    assert loss.item() < 1e-3 and optimizer.step.item() == 300
