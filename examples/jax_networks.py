"""Networks for JAX as pure functions: a convolutional network, a multilayer perceptron, GPT-2. Parameters are trees of
arrays that NumPy draws, so that they are equal on every platform. Training steps are Adam's (Kingma and Ba 2014).
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# ---- training


def adam_start(parameters):
    """The optimizer's state: step, first and second moments."""
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, parameters)


def adam(parameters, state, gradients, rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """New parameters and state."""
    step, first, second = state[0] + 1, state[1], state[2]
    first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, gradients)
    second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, gradients)
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    parameters = jax.tree.map(
        lambda p, m, v: p - rate * (m / correction1) / (jnp.sqrt(v / correction2) + epsilon), parameters, first, second
    )
    return parameters, (step, first, second)


def training_step(loss, rate=1e-3):
    """A step whose parameters and state are donated: (parameters, state, key, *batch) -> (parameters, state, loss)."""

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters, state, key, *batch):
        value, gradients = jax.value_and_grad(loss)(parameters, jax.random.fold_in(key, state[0]), *batch)
        parameters, state = adam(parameters, state, gradients, rate)
        return parameters, state, value

    return step


def nll(scores, classes):
    """The mean negative log-likelihood of classes."""
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), classes[..., None], axis=-1).mean()


def dropout(key, x, rate):
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0) if key is not None else x


def dense_parameters(numbers, inputs, outputs):
    bound = inputs**-0.5
    return {
        "weight": numbers.uniform(-bound, bound, (inputs, outputs)).astype(np.float32),
        "bias": numbers.uniform(-bound, bound, outputs).astype(np.float32),
    }


def dense(layer, x):
    return x @ layer["weight"] + layer["bias"]


# ---- the convolutional network of the demonstration: images (count, height, width, channels)


def cnn_parameters(in_channels=1, dim=28, classes=10, channels=(20, 50, 100), seed=0):
    """Three times 5x5 convolution, ReLU, 2x2 max pooling; then n -> n/2 -> n/4 -> classes."""
    numbers, convolutions = np.random.default_rng(seed), []
    for inputs, outputs in zip((in_channels, *channels), channels):
        bound = (25 * inputs) ** -0.5
        weight = numbers.uniform(-bound, bound, (5, 5, inputs, outputs)).astype(np.float32)
        convolutions.append({"weight": weight, "bias": numbers.uniform(-bound, bound, outputs).astype(np.float32)})
    n = (dim // 8) ** 2 * channels[-1]
    sizes = (n, n // 2, n // 4, classes)
    return {
        "features": convolutions,
        "classifier": [dense_parameters(numbers, *pair) for pair in zip(sizes, sizes[1:])],
    }


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn(parameters, images, key=None, rate=0.3):
    """Scores; with a key for training, with dropout."""
    x = images
    for layer in parameters["features"]:
        x = lax.conv_general_dilated(x, layer["weight"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = max_pool(jax.nn.relu(x + layer["bias"]))
    x = x.reshape(len(x), -1)
    keys = (None, None) if key is None else jax.random.split(key)
    for layer, key in zip(parameters["classifier"], keys):
        x = dropout(key, jax.nn.relu(dense(layer, x)), rate)
    return dense(parameters["classifier"][-1], x)


def cnn_loss(parameters, key, images, classes):
    return nll(cnn(parameters, images, key), classes)


# ---- a multilayer perceptron


def mlp_parameters(sizes=(784, 256, 256, 256, 10), seed=0):
    numbers = np.random.default_rng(seed)
    return [
        {
            "weight": (numbers.standard_normal((i, o)) * 2 / (i + o) ** 0.5).astype(np.float32),
            "bias": np.zeros(o, np.float32),
        }
        for i, o in zip(sizes, sizes[1:])
    ]


def softshrink(x, bound=0.5):
    return jnp.where(x > bound, x - bound, jnp.where(x < -bound, x + bound, 0))


def mlp(parameters, x):
    for layer in parameters[:-1]:
        x = softshrink(dense(layer, x))
    return dense(parameters[-1], x)


def mlp_loss(parameters, key, x, classes):
    return nll(mlp(parameters, x), classes)


# ---- GPT-2 (Radford et al. 2019), with an output layer of its own


@dataclass(frozen=True)
class GPTConfig:
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    context: int = 1024


def gpt_parameters(config=GPTConfig(), seed=0):
    numbers, width = np.random.default_rng(seed), config.width

    def matrix(*dims):
        return 0.02 * numbers.standard_normal(dims, np.float32)

    def layer(inputs, outputs):
        return {"weight": matrix(inputs, outputs), "bias": np.zeros(outputs, np.float32)}

    def norm():
        return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}

    def block():
        parts = {"qkv": layer(width, 3 * width), "projection": layer(width, width)}
        return parts | {
            "up": layer(width, 4 * width),
            "down": layer(4 * width, width),
            "norm1": norm(),
            "norm2": norm(),
        }

    return {
        "tokens": matrix(config.vocabulary, width),
        "positions": matrix(config.context, width),
        "blocks": [block() for _ in range(config.layers)],
        "norm": norm(),
        "head": matrix(width, config.vocabulary),
    }


def layer_norm(layer, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * layer["scale"] + layer["bias"]


def attend(block, x, heads):
    batch, length, width = x.shape
    qkv = dense(block["qkv"], x).reshape(batch, length, 3, heads, width // heads)
    query, key, value = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf)
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
    return dense(block["projection"], y.reshape(batch, length, width))


def gpt(parameters, tokens, heads=12):
    """Scores of the next token at each place."""
    x = parameters["tokens"][tokens] + parameters["positions"][: tokens.shape[1]]
    for block in parameters["blocks"]:
        x = x + attend(block, layer_norm(block["norm1"], x), heads)
        x = x + dense(block["down"], jax.nn.gelu(dense(block["up"], layer_norm(block["norm2"], x))))
    return layer_norm(parameters["norm"], x) @ parameters["head"]


def gpt_loss(parameters, key, tokens, heads=12):
    """Of tokens (batch, length + 1): each place predicts the next one."""
    return nll(gpt(parameters, tokens[:, :-1], heads), tokens[:, 1:])
