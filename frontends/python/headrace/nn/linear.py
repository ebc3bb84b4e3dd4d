"""Linear maps, embeddings, and layers one after the other."""

import math

from headrace import _arrays, random
from headrace.nn.module import Module


def uniform(bound, *shape):
    """Initial weights between -bound and bound, in float32."""
    return random.uniform(random.next_key(), shape, -bound, bound)


def add_bias(layer, y):
    """y plus the layer's bias, if it has one."""
    return y + layer["bias"] if "bias" in layer else y


class Identity(Module):
    """x itself; arguments are ignored."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def __call__(self, x):
        return x


class Sequential(Module):
    """Layers, or other functions, one after the other."""

    def __init__(self, *modules):
        super().__init__()
        self.layers = list(modules)

    def __call__(self, x):
        for layer in self["layers"]:
            x = layer(x)
        return x


class Linear(Module):
    """x @ weight.T + bias, of x [.., input_dims] with weight [output_dims, input_dims]."""

    def __init__(self, input_dims, output_dims, bias=True):
        super().__init__()
        bound = math.sqrt(1 / input_dims)
        self.weight = uniform(bound, output_dims, input_dims)
        if bias:
            self.bias = uniform(bound, output_dims)

    def _extra_repr(self):
        output_dims, input_dims = self.weight.shape
        return f"input_dims={input_dims}, output_dims={output_dims}, bias={'bias' in self}"

    def __call__(self, x):
        return add_bias(self, x @ self["weight"].T)

    def to_quantized(self, group_size=None, bits=None, mode="affine", quantize_input=False):
        """A QuantizedLinear of this layer, or with quantize_input a QQLinear."""
        from headrace.nn.quantized import QQLinear, QuantizedLinear

        return (QQLinear if quantize_input else QuantizedLinear).from_linear(self, group_size, bits, mode)


class Bilinear(Module):
    """x1 @ weight[k] @ x2 for each output k, of x1 [.., input1_dims] and x2 [.., input2_dims] with weight [output_dims,
    input2_dims, input1_dims], plus bias [output_dims]."""

    def __init__(self, input1_dims, input2_dims, output_dims, bias=True):
        super().__init__()
        bound = math.sqrt(1 / input1_dims)
        self.weight = uniform(bound, output_dims, input2_dims, input1_dims)
        if bias:
            self.bias = uniform(bound, output_dims)

    def _extra_repr(self):
        out, second, first = self.weight.shape
        return f"input1_dims={first}, input2_dims={second}, output_dims={out}, bias={'bias' in self}"

    def __call__(self, x1, x2):
        out, second, first = self.weight.shape
        products = (x1 @ self.weight.reshape((out * second, first)).T).reshape((*x1.shape[:-1], out, second))
        return add_bias(self, (products @ x2[..., None])[..., 0])


class Embedding(Module):
    """Rows of weight [num_embeddings, dims] at integers x: [.., dims]."""

    def __init__(self, num_embeddings, dims):
        super().__init__()
        self.weight = random.normal(random.next_key(), (num_embeddings, dims), 0.0, math.sqrt(1 / dims))

    def _extra_repr(self):
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"

    def __call__(self, x):
        return self["weight"][x]

    def as_linear(self, x):
        """x @ weight.T: of x [.., dims] a number for each row."""
        return x @ self["weight"].T

    def to_quantized(self, group_size=None, bits=None, mode="affine", quantize_input=False):
        """A QuantizedEmbedding of this layer."""
        from headrace.nn.quantized import QuantizedEmbedding

        if quantize_input:
            raise ValueError("Embedding.to_quantized: quantize_input is true, but integers are not quantised")
        return QuantizedEmbedding.from_embedding(self, group_size, bits, mode)
