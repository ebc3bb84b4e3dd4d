"""Networks: layers against torch.nn, values and gradients; modules as trees; bad arguments."""

import copy

import numpy as np
import pytest
import torch

import headrace as hr
import headrace.nn as nn
import headrace.optimizers as optim
from headrace import _arrays

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


# ---- convolutions and pools


def convolution(name, n, size, *args, **options):
    """The layer compared with torch's of this name, on x of n spatial dims."""
    layer, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    weights = BOTH if options.get("bias", True) else BOTH[:1]
    turn = (lambda w: np.moveaxis(w, -1, 1)) if "Transpose" not in name else None
    x = sample(2, *(size + i for i in range(n)), args[0])
    if turn is not None:
        compare(layer, theirs, x, weights=weights, to_theirs=to_first, from_theirs=to_last, tolerance=2e-5)
        return
    theirs.weight.data = torch.tensor(np.moveaxis(np.array(layer.weight), (-1, 0), (0, 1)).copy())
    if len(weights) == 2:
        layer.bias = hr.array(sample(args[1], seed=4))
        theirs.bias.data = torch.tensor(np.array(layer.bias))
    tensor = torch.tensor(to_first(x).copy(), requires_grad=True)
    expected = theirs(tensor)
    (expected**2).sum().backward()
    close(layer(hr.array(x)), to_last(expected), 2e-5)
    _, grads = nn.value_and_grad(layer, lambda: (layer(hr.array(x)) ** 2).sum())()
    by_x = hr.grad(lambda x: (layer(x) ** 2).sum())(hr.array(x))
    close(by_x, to_last(tensor.grad), 2e-4)
    close(grads["weight"], torch.movedim(theirs.weight.grad, (0, 1), (-1, 0)), 2e-4)
    if len(weights) == 2:
        close(grads["bias"], theirs.bias.grad, 2e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": 3, "dilation": 2, "bias": False},
        {"groups": 2, "stride": 2},
    ],
)
def test_convolutions(options):
    convolution("Conv1d", 1, 9, 4, 6, 3, **options)
    convolution("Conv2d", 2, 6, 4, 6, (2, 3), **options)
    if "groups" not in options:
        convolution("Conv3d", 3, 5, 2, 3, (1, 2, 3), **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": 3, "dilation": 2, "output_padding": 2, "bias": False},
        {"dilation": 2, "padding": 1, "output_padding": 1},
    ],
)
def test_transposed_convolutions(options):
    convolution("ConvTranspose1d", 1, 5, 4, 6, 3, **options)
    convolution("ConvTranspose2d", 2, 4, 4, 6, (2, 3), **options)
    convolution("ConvTranspose3d", 3, 3, 2, 3, (1, 2, 3), **options)


def test_convolutions_describe_themselves():
    conv = nn.Conv2d(4, 6, (2, 3), stride=2, groups=2)
    assert repr(conv) == (
        "Conv2d(4, 6, kernel_size=(2, 3), stride=(2, 2), padding=(0, 0), dilation=(1, 1), groups=2, bias=True)"
    )
    assert conv.weight.shape == (6, 2, 3, 2)
    assert "kernel_size=3, stride=1" in repr(nn.ConvTranspose1d(2, 2, 3)) and nn.Conv1d(2, 5, 3).weight.shape == (5, 3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "3 input and 4 output channels, groups is 2"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), r"kernel_size is \(3, 3, 3\), expected an integer or a tuple of 2"),
        (lambda: nn.Conv1d(3, 4, 3, stride=1.5), "stride is 1.5"),
        (lambda: nn.Conv2d(3, 4, 3)(hr.ones((8, 8, 3))), r"shape \(8, 8, 3\), expected 4 dims"),
        (lambda: nn.Conv2d(3, 4, 3)(hr.ones((1, 8, 8, 4))), "x has 4 channels, the weight expects 3"),
        (lambda: nn.ConvTranspose1d(3, 4, 3)(hr.ones((1, 8, 4))), "4"),
        (lambda: nn.ConvTranspose1d(3, 4, 3, padding=9)(hr.ones((1, 4, 3))), "-12"),
        (lambda: nn.MaxPool2d(0), r"kernel_size is \(0, 0\), expected 1 or more"),
        (lambda: nn.AvgPool1d(2, padding=-1), r"padding is \(-1,\)"),
        (lambda: nn.MaxPool2d(2, stride=(1, 2, 3)), "tuple of 2"),
        (lambda: nn.MaxPool1d(2)(hr.ones((4, 3))), r"shape \(4, 3\), expected 3 dims"),
    ],
)
def test_convolutions_and_pools_refuse_other_sizes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("kind", ["MaxPool", "AvgPool"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"stride": 3, "padding": 1}])
def test_pools(kind, n, options):
    name = f"{kind}{n}d"
    kernel = (2, 3, 2)[:n]
    layer, theirs = getattr(nn, name)(kernel, **options), getattr(torch.nn, name)(kernel, **options)
    compare(layer, theirs, sample(2, *(5 + i for i in range(n)), 3), to_theirs=to_first, from_theirs=to_last)


def test_pools_of_integers_and_wide_padding():
    x = hr.array(np.arange(6).reshape(1, 6, 1))
    assert nn.MaxPool1d(2)(x).tolist() == [[[1], [3], [5]]]
    assert nn.AvgPool1d(2)(x).tolist() == [[[0.5], [2.5], [4.5]]]
    assert repr(nn.AvgPool2d((1, 2), stride=2, padding=(1, 2))) == (
        "AvgPool2d(kernel_size=(1, 2), stride=(2, 2), padding=(1, 2))"
    )
    assert nn.MaxPool1d(2, padding=2)(x).tolist() == [[[0 * i + v] for i, v in enumerate([-(2**63), 1, 3, 5, -(2**63)])]]


# ---- norms


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (0, 6)])
def test_layer_norm(shape):
    compare(nn.LayerNorm(6), torch.nn.LayerNorm(6), sample(*shape), weights=BOTH)
    compare(nn.LayerNorm(6, bias=False), torch.nn.LayerNorm(6, bias=False), sample(*shape), weights=BOTH[:1])
    compare(nn.LayerNorm(6, affine=False), torch.nn.LayerNorm(6, elementwise_affine=False), sample(*shape))


def test_rms_norm():
    compare(nn.RMSNorm(6), torch.nn.RMSNorm(6, eps=1e-5), sample(4, 6), weights=BOTH[:1])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_instance_norm(n):
    x = sample(2, *(3 + i for i in range(n)), 5)
    theirs = getattr(torch.nn, f"InstanceNorm{n}d")(5, affine=True)
    compare(nn.InstanceNorm(5, affine=True), theirs, x, weights=BOTH, to_theirs=to_first, from_theirs=to_last)


@pytest.mark.parametrize("shape", [(3, 6), (2, 4, 6), (2, 3, 4, 6)])
def test_group_norm(shape):
    x, theirs = sample(*shape), torch.nn.GroupNorm(2, 6)
    layer = nn.GroupNorm(2, 6, pytorch_compatible=True)
    layer.weight, layer.bias = hr.array(sample(6, seed=1)), hr.array(sample(6, seed=2))
    compare(layer, theirs, x, weights=BOTH, to_theirs=to_first, from_theirs=to_last)
    order = [0, 2, 4, 1, 3, 5]  # channels of one group side by side
    ours = nn.GroupNorm(2, 6, affine=False)(hr.array(x))
    close(ours[..., order], nn.GroupNorm(2, 6, affine=False, pytorch_compatible=True)(hr.array(x[..., order])))


@pytest.mark.parametrize(("shape", "kind"), [((5, 4), "1d"), ((2, 5, 4), "1d"), ((2, 3, 3, 4), "2d")])
def test_batch_norm(shape, kind):
    layer, theirs = nn.BatchNorm(4, momentum=0.2), getattr(torch.nn, f"BatchNorm{kind}")(4, momentum=0.2)
    layer.weight, layer.bias = hr.array(sample(4, seed=1)), hr.array(sample(4, seed=2))
    plain = nn.BatchNorm(4, momentum=0.2)
    compare(layer, theirs, sample(*shape), weights=BOTH, to_theirs=to_first, from_theirs=to_last, tolerance=1e-4)
    theirs.reset_running_stats()
    for i in range(3):
        x = sample(*shape, seed=i)
        plain(hr.array(x))
        theirs(torch.tensor(to_first(x)))
    close(plain.running_mean, theirs.running_mean)
    close(plain.running_var, theirs.running_var)
    theirs.eval()
    plain.eval().update({"weight": layer.weight, "bias": layer.bias})
    compare(plain, theirs, sample(*shape), weights=BOTH, to_theirs=to_first, from_theirs=to_last)


def test_running_statistics_are_not_trained():
    layer = nn.Sequential(nn.BatchNorm(3))
    assert names(layer.trainable_parameters()) == ["layers.0.weight", "layers.0.bias"]
    layer.unfreeze()
    assert names(layer.trainable_parameters()) == ["layers.0.weight", "layers.0.bias"]
    assert len(names(layer.parameters())) == 4
    x = hr.array(sample(4, 3))
    before = layer.layers[0].running_mean
    nn.value_and_grad(layer, lambda: layer(x).sum())()
    close(layer.layers[0].running_mean, 0.9 * before + 0.1 * hr.mean(x, axis=0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_of_halves_do_not_overflow(dtype):
    x = np.where(np.indices((4, 4, 4)).sum(axis=0) % 2, -512, 512)[None]
    for layer in (nn.InstanceNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm(4), nn.LayerNorm(4), nn.RMSNorm(4)):
        layer.set_dtype(dtype)
        y = layer(hr.array(x, dtype=dtype))
        assert str(y.dtype) == dtype
        np.testing.assert_allclose(np.asarray(y.astype(hr.float32)), np.sign(x), atol=1e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.LayerNorm(3, eps=0), "LayerNorm: eps is 0, must be positive"),
        (lambda: nn.BatchNorm(3, eps=-1), "BatchNorm: eps is -1"),
        (lambda: nn.GroupNorm(4, 6), "6 channels and 4 groups"),
        (lambda: nn.GroupNorm(0, 6), "0 groups"),
        (lambda: nn.GroupNorm(2, 6)(hr.ones((2, 5))), r"\(2, 5\), expected 6 channels"),
        (lambda: nn.InstanceNorm(3)(hr.ones((2, 3))), r"\(2, 3\), expected 3 dims or more"),
        (lambda: nn.BatchNorm(3)(hr.ones((2, 2, 2, 2, 3))), r"\(2, 2, 2, 2, 3\), expected 2 to 4"),
        (lambda: nn.BatchNorm(3)(hr.ones((1, 3))), "more than one element"),
        (lambda: nn.LayerNorm(3)(hr.ones((2, 4))), "4"),
    ],
)
def test_norms_refuse_other_sizes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- dropout


@pytest.mark.parametrize(("kind", "shape"), [("Dropout", (50, 40)), ("Dropout2d", (20, 3, 4, 50)), ("Dropout3d", (20, 2, 2, 2, 50))])
def test_dropout(kind, shape):
    hr.random.seed(3)
    layer, x = getattr(nn, kind)(0.3), hr.ones(shape)
    y = np.asarray(layer(x))
    np.testing.assert_allclose(np.unique(y), [0, 1 / 0.7], rtol=1e-6)
    assert abs((y == 0).mean() - 0.3) < 0.05
    if kind != "Dropout":
        flat = y.reshape(shape[0], -1, shape[-1])
        assert (flat == flat[:, :1]).all()
        assert layer(x[0]).shape == shape[1:]
    assert np.asarray(layer(x)).tolist() != y.tolist()
    layer.eval()
    assert layer(x) is x and nn.Dropout(0.0)(x) is x
    assert layer.train()(x.astype(hr.float16)).dtype == hr.float16 and repr(nn.Dropout(0.5)) == "Dropout(p=0.5)"


def test_dropout_refuses_other_arguments():
    for p in (-0.1, 1):
        with pytest.raises(ValueError, match=f"p is {p}"):
            nn.Dropout(p)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        nn.Dropout2d()(hr.ones((2, 3)))


def test_gradients_go_through_what_is_kept():
    layer, x = nn.Dropout(0.5), hr.array(sample(100))
    (total, y), gradient = hr.value_and_grad(lambda x: (lambda y: (y.sum(), y))(layer(x)))(x)
    close(gradient, np.where(np.asarray(y) != 0, 2.0, 0.0))


# ---- recurrent layers


def recurrent(kind, ours, bias, first=None):
    """The layer and torch's, with its weights."""
    layer, theirs = getattr(nn, kind)(3, 4, bias=bias), getattr(torch.nn, kind)(3, 4, batch_first=True, bias=bias)
    theirs.weight_ih_l0.data = torch.tensor(np.array(layer[ours[0]]))
    theirs.weight_hh_l0.data = torch.tensor(np.array(layer[ours[1]]))
    if bias:
        theirs.bias_ih_l0.data = torch.tensor(np.array(layer[ours[2]]))
        theirs.bias_hh_l0.data = torch.zeros_like(theirs.bias_hh_l0)
        if kind == "GRU":
            theirs.bias_hh_l0.data[-4:] = torch.tensor(np.array(layer.bhn))
    return layer, theirs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("has_first", [True, False])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers(kind, bias, has_first):
    ours = {"RNN": ("Wxh", "Whh", "bias"), "GRU": ("Wx", "Wh", "b"), "LSTM": ("Wx", "Wh", "bias")}[kind]
    layer, theirs = recurrent(kind, ours, bias)
    x, hidden, cell = sample(2, 5, 3), sample(2, 4, seed=1), sample(2, 4, seed=2)
    first = [hidden, cell][: 2 if kind == "LSTM" else 1] if has_first else []
    tensor, states = torch.tensor(x, requires_grad=True), [torch.tensor(h)[None] for h in first]
    expected, last = theirs(tensor, *([tuple(states)] if kind == "LSTM" and states else states))
    (expected**2).sum().backward()

    def loss(layer, x):
        y = layer(x, *map(hr.array, first))
        return ((y[0] if kind == "LSTM" else y) ** 2).sum(), y

    (_, y), (by_layer, by_x) = hr.value_and_grad(loss, argnums=(0, 1))(layer, hr.array(x))
    close(y[0] if kind == "LSTM" else y, expected)
    if kind == "LSTM":
        close(y[1][:, -1], last[1][0])
    close(by_x, tensor.grad, 1e-4)
    close(by_layer[ours[0]], theirs.weight_ih_l0.grad, 1e-4)
    close(by_layer[ours[1]], theirs.weight_hh_l0.grad, 1e-4)
    assert (ours[2] in layer) == bias
    close(layer(hr.array(x[0]), *[hr.array(h[0]) for h in first])[0 if kind == "LSTM" else ...], expected[0])


def test_recurrent_layers_have_bad_arguments():
    with pytest.raises(ValueError, match="nonlinearity is 3"):
        nn.RNN(2, 3, nonlinearity=3)
    for kind in (nn.RNN, nn.GRU, nn.LSTM):
        with pytest.raises(ValueError, match="expected 2 dims or more"):
            kind(2, 3)(hr.ones(2))
        with pytest.raises(ValueError, match="at least one step"):
            kind(2, 3)(hr.ones((0, 2)))
    assert nn.RNN(2, 3, nonlinearity=hr.relu)(hr.ones((1, 4, 2))).min().item() >= 0


# ---- attention


def test_attention_is_that_of_torch():
    layer = nn.MultiHeadAttention(8, 2, query_input_dims=5, key_input_dims=6, value_input_dims=7, bias=True)
    q, k, v = sample(2, 3, 5), sample(2, 4, 6, seed=1), sample(2, 4, 7, seed=2)
    parts = [torch.tensor(np.array(p)) for name in ("query", "key", "value") for p in layer[f"{name}_proj"].values()]
    projected = [F.linear(torch.tensor(x), *parts[2 * i : 2 * i + 2]) for i, x in enumerate((q, k, v))]
    heads = [x.unflatten(-1, (2, 4)).transpose(1, 2) for x in projected]
    for mask in (None, "causal", np.array([[True, False, True, True]] * 3), sample(2, 1, 3, 4, seed=5)):
        is_causal = isinstance(mask, str)
        theirs = None if mask is None or is_causal else torch.tensor(mask)
        y = F.scaled_dot_product_attention(*heads, attn_mask=theirs, is_causal=is_causal)
        out = [torch.tensor(np.array(p)) for p in layer.out_proj.values()]
        expected = F.linear(y.transpose(1, 2).flatten(-2), *out)
        ours = mask if mask is None or is_causal else hr.array(mask)
        close(layer(*map(hr.array, (q, k, v)), mask=ours), expected)


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_layers(norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, mlp_dims=16, norm_first=norm_first)
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True, norm_first=norm_first, bias=True)
    attention = theirs.self_attn
    stacked = [np.array(layer.attention[f"{name}_proj"].weight) for name in ("query", "key", "value")]
    attention.in_proj_weight.data = torch.tensor(np.concatenate(stacked))
    attention.in_proj_bias.data.zero_()
    attention.out_proj.weight.data = torch.tensor(np.array(layer.attention.out_proj.weight))
    attention.out_proj.bias.data.zero_()
    for name in ("linear1", "linear2"):
        getattr(theirs, name).weight.data = torch.tensor(np.array(layer[name].weight))
        getattr(theirs, name).bias.data = torch.tensor(np.array(layer[name].bias))
    x = sample(2, 5, 8)
    mask = nn.MultiHeadAttention.create_additive_causal_mask(5)
    expected = theirs(torch.tensor(x), src_mask=torch.nn.Transformer.generate_square_subsequent_mask(5))
    close(layer(hr.array(x), mask), expected)


def test_masks_of_halves():
    mask = nn.MultiHeadAttention.create_additive_causal_mask(3, hr.float16)
    assert mask.dtype == hr.float16 and mask[0].tolist() == [0, -65504, -65504]
    layer = nn.MultiHeadAttention(8, 2)
    layer.set_dtype(hr.bfloat16)
    x = hr.ones((1, 3, 8), dtype=hr.bfloat16)
    assert layer(x, x, x, nn.MultiHeadAttention.create_additive_causal_mask(3, hr.bfloat16)).dtype == hr.bfloat16


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformers(norm_first):
    hr.random.seed(5)
    options = {"num_encoder_layers": 2, "num_decoder_layers": 1, "norm_first": norm_first}
    plain = nn.Transformer(8, 2, **options)
    again = nn.Transformer(8, 2, **options, checkpoint=True)
    again.update(plain.parameters())
    src, tgt = hr.array(sample(2, 5, 8)), hr.array(sample(2, 3, 8, seed=1))
    results = []
    for model in (plain, again):
        step = nn.value_and_grad(model, lambda: (model(src, tgt, None, "causal", None) ** 2).mean())
        results.append(step())
    (value, gradients), (value2, gradients2) = results
    close(value2, value)
    for (name, x), (name2, y) in zip(utils.tree_flatten(gradients), utils.tree_flatten(gradients2)):
        assert name == name2
        close(y, x, 1e-4)
        assert abs(x).max().item() > 0 or "ln" not in name
    custom = nn.Transformer(8, 2, custom_encoder=lambda x, mask: x, custom_decoder=lambda x, *rest: x)
    assert custom(src, tgt, None, None, None) is tgt


def test_attention_refuses_other_sizes():
    with pytest.raises(ValueError, match="dims is 7"):
        nn.MultiHeadAttention(7, 2)
    layer = nn.MultiHeadAttention(8, 2)
    with pytest.raises(ValueError, match=r"keys have shape \(3, 8\)"):
        layer(hr.ones((1, 3, 8)), hr.ones((3, 8)), hr.ones((3, 8)))
    with pytest.raises(ValueError, match="'all'"):
        layer(hr.ones((1, 3, 8)), hr.ones((1, 3, 8)), hr.ones((1, 3, 8)), "all")


# ---- encodings of positions


@pytest.mark.parametrize("traditional", [True, False])
def test_rope_turns_pairs(traditional):
    x = sample(2, 3, 5, 8)
    y = np.asarray(nn.RoPE(6, traditional=traditional, base=100, scale=0.5)(hr.array(x), offset=3))
    angles = 0.5 * np.arange(3, 8)[:, None] * 100 ** (-np.arange(3) / 3)
    first, second = (x[..., 0:6:2], x[..., 1:6:2]) if traditional else (x[..., :3], x[..., 3:6])
    turned = (first + 1j * second) * np.exp(1j * angles)
    found = y[..., 0:6:2] + 1j * y[..., 1:6:2] if traditional else y[..., :3] + 1j * y[..., 3:6]
    np.testing.assert_allclose(found, turned, atol=1e-5)
    np.testing.assert_array_equal(y[..., 6:], x[..., 6:])
    half = nn.RoPE(8)(hr.array(x, dtype=hr.float16))
    assert half.dtype == hr.float16 and repr(nn.RoPE(8)) == "RoPE(8, traditional=False)"


def test_sinusoidal_encoding():
    x = sample(3, 4, high=50)
    frequencies = np.exp(np.linspace(0, np.log(1e-4), 3))
    angles = x[..., None] * frequencies
    expected = np.concatenate([np.sin(angles), np.cos(angles)], -1) * (2 / 6) ** 0.5
    close(nn.SinusoidalPositionalEncoding(6)(hr.array(x)), expected)
    layer = nn.SinusoidalPositionalEncoding(2, max_freq=3, scale=1, cos_first=True, full_turns=True)
    close(layer(hr.array([0.25])), [[np.cos(1.5 * np.pi), np.sin(1.5 * np.pi)]])
    assert layer.parameters() == {}


def test_alibi():
    slopes = np.asarray(nn.ALiBi.create_alibi_slope(12)).ravel()
    np.testing.assert_allclose(slopes[:8], 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(slopes[8:], 2.0 ** -np.arange(0.5, 4.5))
    scores = hr.array(sample(2, 8, 3, 5))
    distances = abs(np.arange(2, 5)[:, None] - np.arange(5))
    expected = np.asarray(scores) - distances * slopes[:8, None, None] + 1
    close(nn.ALiBi()(scores, offset=2, mask=hr.ones((3, 5))), expected)
    assert nn.ALiBi()(scores.astype(hr.float16)).dtype == hr.float16


def test_encodings_refuse_odd_sizes():
    for call, message in (
        (lambda: nn.RoPE(3), "dims is 3"),
        (lambda: nn.RoPE(8)(hr.ones((3, 4))), r"\(3, 4\)"),
        (lambda: nn.SinusoidalPositionalEncoding(0), "dims is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# ---- upsampling


@pytest.mark.parametrize(
    ("mode", "theirs", "align", "antialias"),
    [
        ("nearest", "nearest", None, False),
        ("linear", "bilinear", False, False),
        ("linear", "bilinear", True, False),
        ("linear", "bilinear", False, True),
        ("cubic", "bicubic", False, False),
        ("cubic", "bicubic", True, False),
        ("cubic", "bicubic", False, True),
    ],
)
@pytest.mark.parametrize("scale", [2, (3.0, 2.0), 0.5, (0.5, 4)])
def test_upsampling(mode, theirs, align, antialias, scale):
    def torchs(x):
        factor = scale if isinstance(scale, tuple) else (scale, scale)
        options = {} if align is None else {"align_corners": align, "antialias": antialias}
        return F.interpolate(x, scale_factor=factor, mode=theirs, **options)

    layer = nn.Upsample(scale, mode, align_corners=bool(align), antialias=antialias)
    compare(layer, torchs, sample(2, 6, 8, 3), to_theirs=to_first, from_theirs=to_last, tolerance=2e-5)


def test_upsampling_of_other_ranks_and_dtypes():
    x = sample(2, 4, 3)
    expected = F.interpolate(torch.tensor(to_first(x)), scale_factor=1.5, mode="linear")
    close(nn.Upsample(1.5, "linear")(hr.array(x)), to_last(expected))
    cube = sample(1, 2, 3, 2, 2)
    expected = F.interpolate(torch.tensor(to_first(cube)), scale_factor=2, mode="trilinear")
    close(nn.Upsample(2, "linear")(hr.array(cube)), to_last(expected))
    ints = hr.array([[[0], [4]]])
    assert nn.Upsample(2)(ints).tolist() == [[[0], [0], [4], [4]]] and nn.Upsample(2)(ints).dtype == hr.int64
    assert nn.Upsample(2, "linear")(ints).tolist() == [[[0], [1], [3], [4]]]
    assert nn.Upsample(1.5)(hr.array(np.arange(4).reshape(1, 4, 1))).shape == (1, 6, 1)


def test_upsampling_refuses_other_arguments():
    for call, message in (
        (lambda: nn.Upsample(2, "area"), "mode is 'area'"),
        (lambda: nn.Upsample(2, antialias=True), "antialias with mode 'nearest'"),
        (lambda: nn.Upsample(2, "linear", True, True), "align_corners=True"),
        (lambda: nn.Upsample((2, 3))(hr.ones((1, 4, 1))), "1 spatial dims"),
        (lambda: nn.Upsample(2)(hr.ones((1, 4))), "0 spatial dims"),
        (lambda: nn.Upsample(-2)(hr.ones((1, 4, 1))), "-2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert repr(nn.Upsample((2, 3), "cubic", antialias=True)) == (
        "Upsample(scale_factor=(2.0, 3.0), mode='cubic', align_corners=False, antialias=True)"
    )


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


class Odd(nn.Module):
    """Entries of all kinds: nested lists and dicts, frozen, private, constant, and an attribute that is none."""

    def __init__(self):
        super().__init__()
        inner = [hr.ones(2), "text", {"deep": hr.ones(3), 7: hr.ones(1)}]
        self.parts = [nn.Linear(2, 2), inner, (hr.ones(4),), None, 3]
        self.named = {"a": hr.ones(2), "b": {"c": nn.Linear(1, 1), "d": None}, "_e": hr.ones(5)}
        self._hidden = hr.ones(6)
        self.sizes = (1, 2)
        self.integers = {"n": 1.5}
        self["7"] = hr.ones(7)


@pytest.mark.parametrize(
    "freeze",
    [
        lambda m: None,
        lambda m: m.freeze(),
        lambda m: m.parts[0].freeze(keys="bias"),
        lambda m: m._no_grad.update({"parts.1", "named.a", "7"}),
        lambda m: m._no_grad.add("parts.1.2.deep"),
        lambda m: m._no_grad.add("parts"),
    ],
)
def test_trainable_parameters_are_found_in_one_walk(freeze):
    model = Odd()
    freeze(model)
    expected = utils.tree_flatten(model.trainable_parameters())
    found = _arrays._parameters(model, nn.Module)
    if not expected:
        assert found is None
        return
    tree, owners, keys, arrays, targets, target_keys = found
    assert [x is owner[key] for owner, key, x in zip(owners, keys, arrays)] == [True] * len(arrays)
    _arrays._store(targets, target_keys, arrays)
    assert repr(tree) == repr(model.trainable_parameters()) and len(expected) == len(arrays)


def test_a_walk_of_parameters_refuses_what_it_can_not_do():
    model = nn.Linear(2, 2)
    assert _arrays._parameters(nn.Tanh(), nn.Module) is None
    model.weight = hr.ones((2, 2), hr.int32)
    assert _arrays._parameters(model, nn.Module) is None
    with pytest.raises(TypeError, match="expects a module, not 3"):
        _arrays._parameters(3, nn.Module)
    model.inner = model
    with pytest.raises(RecursionError):
        nn.value_and_grad(model, lambda: model(hr.ones((1, 2))).sum())()


def test_keys_of_parameters_may_be_numbers():
    model = nn.Linear(2, 2)
    model[0] = {"a": hr.ones((2,)), "b": [hr.ones((2,))]}
    model.freeze(keys="bias", recurse=False)
    _, gradients = nn.value_and_grad(model, lambda: (model[0]["a"] * 3).sum() + model(hr.ones((1, 2))).sum())()
    assert set(gradients) == {"weight", 0} and gradients[0]["a"].tolist() == [3.0, 3.0]
    assert gradients[0]["b"][0].tolist() == [0.0, 0.0]


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
