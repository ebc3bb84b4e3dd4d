"""Trains a small GPT-2 with flax on the characters of a text, and lets it write.

    JAX_PLATFORMS=headrace python examples/gpt2_flax.py [--text FILE] [--steps 200]

Nothing in it is special to Headrace: without JAX_PLATFORMS it runs on JAX's default platform. Needs flax and optax.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

if os.environ.get("HEADRACE_JAX_LIBRARY"):  # the plug-in of a build folder, which JAX does not find by itself
    import headrace_jax

    headrace_jax.initialize()

TEXT = Path(__file__).resolve().parents[1] / "docs/architecture.md"


class Block(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: nnx.Rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.qkv, self.out = nnx.Linear(width, 3 * width, rngs=rngs), nnx.Linear(width, width, rngs=rngs)
        self.up, self.down = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)
        self.heads = heads

    def attend(self, x):
        parts = jnp.split(self.qkv(x), 3, axis=-1)
        q, k, v = (part.reshape(*part.shape[:-1], self.heads, -1) for part in parts)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.reshape(x.shape))

    def __call__(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=True))


class GPT2(nnx.Module):
    def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int, rngs: nnx.Rngs):
        self.tokens, self.places = nnx.Embed(vocabulary, width, rngs=rngs), nnx.Embed(length, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)

    def __call__(self, tokens):
        x = self.tokens(tokens) + self.places(jnp.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.tokens.attend(self.norm(x))


@nnx.jit
def train_step(model, optimizer, tokens):
    def loss_of(model):
        losses = optax.softmax_cross_entropy_with_integer_labels(model(tokens[:, :-1]), tokens[:, 1:])
        return losses.mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def next_token(model, tokens, place, key):
    """Draws the token after `place`; places after it hold anything, and are not seen."""
    return jax.random.categorical(key, model(tokens)[0, place] / 0.7)


def write(model, start, count: int, length: int) -> np.ndarray:
    tokens, key = np.zeros((1, length), np.int32), jax.random.key(1)
    tokens[0, : len(start)] = start
    for place in range(len(start), min(length, len(start) + count)):
        tokens[0, place] = next_token(model, tokens, place - 1, jax.random.fold_in(key, place))
    return tokens[0, : len(start) + count]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=TEXT, help="default: a page of these docs")
    parser.add_argument("--steps", type=int, default=200, help="default %(default)s")
    parser.add_argument("--batch", type=int, default=16, help="default %(default)s")
    parser.add_argument("--length", type=int, default=128, help="characters of an example (default %(default)s)")
    parser.add_argument("--width", type=int, default=128, help="default %(default)s")
    parser.add_argument("--layers", type=int, default=4, help="default %(default)s")
    arguments = parser.parse_args()
    text = arguments.text.read_text()
    letters = sorted(set(text))
    data = np.array([letters.index(letter) for letter in text], np.int32)
    if len(data) <= arguments.length + 1:
        print(f"gpt2_flax: {arguments.text} has {len(data)} characters, expected more than {arguments.length + 1}")
        return 2

    model = GPT2(len(letters), arguments.length, arguments.width, arguments.layers, 4, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    print(f"{jax.devices()[0]}: {count:,} parameters, {len(data):,} characters, {len(letters)} different ones")
    random, begin = np.random.default_rng(0), time.perf_counter()
    for step in range(1, arguments.steps + 1):
        starts = random.integers(0, len(data) - arguments.length - 1, arguments.batch)
        loss = train_step(model, optimizer, np.stack([data[i : i + arguments.length + 1] for i in starts]))
        if step == 1 or step % 20 == 0:
            print(f"step {step:4}  loss {float(loss):.4f}  {time.perf_counter() - begin:6.1f} s", flush=True)
    written = write(model, data[:16], 100, arguments.length)
    print("".join(letters[index] for index in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
