"""Layers whose weights have a few bits, and the quantisation of models. hr.quantize documents modes and layouts."""

import math

from headrace import _arrays, random
from headrace.nn.linear import add_bias, uniform
from headrace.nn.module import Module
from headrace.transforms import custom_function
from headrace.utils import tree_map_with_path

__all__ = ["QQLinear", "QuantizedEmbedding", "QuantizedLinear", "quantize"]

_DEFAULTS = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}  # group_size, bits


class _Quantized(Module):
    """weight of u32 words, scales, and biases of mode affine; all are frozen."""

    def __init__(self, weight, group_size, bits, mode):
        super().__init__()
        if mode not in _DEFAULTS:
            raise ValueError(f"mode is {mode!r}, expected one of {', '.join(_DEFAULTS)}")
        self.mode = mode
        self.group_size, self.bits = group_size or _DEFAULTS[mode][0], bits or _DEFAULTS[mode][1]
        self._set_weight(weight)

    def _options(self):
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}

    def _set_weight(self, weight):
        self.weight, self.scales, *biases = _arrays.quantize(weight, **self._options())
        self.biases = biases[0] if biases else None

    def _weight_shape(self):
        *dims, words = self.weight.shape
        return (*dims, words * 32 // self.bits)

    def _product(self, x):
        return _arrays.quantized_matmul(x, self["weight"], self["scales"], self.get("biases"), **self._options())

    def _described(self, *parts):
        return ", ".join([*parts, f"group_size={self.group_size}, bits={self.bits}, mode={self.mode}"])


class QuantizedLinear(_Quantized):
    """A Linear whose weight [output_dims, input_dims] is quantised; groups are along input_dims."""

    def __init__(self, input_dims, output_dims, bias=True, group_size=None, bits=None, mode="affine"):
        super().__init__(uniform(math.sqrt(1 / input_dims), output_dims, input_dims), group_size, bits, mode)
        if bias:
            self.bias = _arrays.zeros((output_dims,))
        self.freeze()

    def _extra_repr(self):
        output_dims, input_dims = self._weight_shape()
        return self._described(f"input_dims={input_dims}, output_dims={output_dims}, bias={'bias' in self}")

    def __call__(self, x):
        return add_bias(self, self._product(x))

    @classmethod
    def from_linear(cls, linear_layer, group_size=None, bits=None, mode="affine"):
        """The layer with the weight of a Linear, quantised, and its bias."""
        layer = cls.__new__(cls)
        _Quantized.__init__(layer, linear_layer.weight, group_size, bits, mode)
        if "bias" in linear_layer:
            layer.bias = linear_layer.bias
        return layer.freeze()


class QuantizedEmbedding(_Quantized):
    """An Embedding whose rows are quantised."""

    def __init__(self, num_embeddings, dims, group_size=None, bits=None, mode="affine"):
        weight = random.normal(random.next_key(), (num_embeddings, dims), 0.0, math.sqrt(1 / dims))
        super().__init__(weight, group_size, bits, mode)
        self.freeze()

    def _extra_repr(self):
        num_embeddings, dims = self._weight_shape()
        return self._described(f"{num_embeddings}, {dims}")

    def __call__(self, x):
        biases = self.get("biases")
        rows = biases[x] if biases is not None else None
        return _arrays.dequantize(self["weight"][x], self["scales"][x], rows, **self._options())

    def as_linear(self, x):
        """x @ weight.T: of x [.., dims] a number for each row."""
        return self._product(x)

    @classmethod
    def from_embedding(cls, embedding_layer, group_size=None, bits=None, mode="affine"):
        """The layer with the rows of an Embedding, quantised."""
        layer = cls.__new__(cls)
        _Quantized.__init__(layer, embedding_layer.weight, group_size, bits, mode)
        return layer.freeze()


def _rounded(x, options):
    return _arrays.dequantize(*_arrays.quantize(x, **options), **options, dtype=x.dtype)


def _rounded_product(x, weight, scales, options):
    """hr.qqmm, whose gradients are those of the product of the rounded factors."""

    @custom_function
    def product(x, *weights):
        return _arrays.qqmm(x, *(weights or (weight, scales)), **options)

    @product.vjp
    def vjp(primals, cotangent, output):
        if scales is not None:
            return cotangent @ _arrays.dequantize(weight, scales, **options, dtype=cotangent.dtype)
        x, w = primals
        rows = cotangent.reshape((-1, w.shape[0]))
        return cotangent @ _rounded(w, options), rows.T @ _rounded(x, options).reshape((-1, w.shape[1]))

    return product(x) if scales is not None else product(x, weight)


class QQLinear(Module):
    """x @ weight.T without a bias, both rounded to quantised numbers; mode nvfp4 or mxfp8.

    In training the weight [output_dims, input_dims] has its own dtype, and gradients ignore the rounding; in evaluation
    it is quantised.
    """

    def __init__(self, input_dims, output_dims, group_size=None, bits=None, mode="nvfp4"):
        super().__init__()
        if mode not in ("nvfp4", "mxfp8"):
            raise ValueError(f"mode is {mode!r}, expected nvfp4 or mxfp8")
        self.mode = mode
        self.group_size, self.bits = group_size or _DEFAULTS[mode][0], bits or _DEFAULTS[mode][1]
        self.weight = uniform(math.sqrt(1 / input_dims), output_dims, input_dims)

    def _options(self):
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}

    def _extra_repr(self):
        output_dims, input_dims = self.weight.shape
        if "scales" in self:
            input_dims = input_dims * 32 // self.bits
        options = f"group_size={self.group_size}, bits={self.bits}, mode={self.mode}"
        return f"input_dims={input_dims}, output_dims={output_dims}, {options}"

    def quantize(self):
        """Quantises the weight, unless it is."""
        if "scales" not in self:
            self.weight, self.scales = _arrays.quantize(self.weight, **self._options())

    def dequantize(self):
        """The opposite of quantize; what the weight was before is lost."""
        if "scales" in self:
            self.weight = _arrays.dequantize(self.weight, self.scales, **self._options())
            del self["scales"]

    def _set_training_mode(self, mode):
        super()._set_training_mode(mode)
        if mode:
            self.dequantize()
        else:
            self.quantize()

    def __call__(self, x):
        return _rounded_product(x, self["weight"], self.get("scales"), self._options())

    @classmethod
    def from_linear(cls, linear_layer, group_size=None, bits=None, mode="nvfp4"):
        """The layer with the weight of a Linear, which has no bias."""
        if "bias" in linear_layer:
            raise NotImplementedError("QQLinear: the Linear has a bias, expected none")
        output_dims, input_dims = linear_layer.weight.shape
        layer = cls(input_dims, output_dims, group_size, bits, mode)
        layer.weight = linear_layer.weight
        return layer.train(linear_layer.training)


def quantize(model, group_size=None, bits=None, *, mode="affine", quantize_input=False, class_predicate=None):
    """Replaces layers of a model by quantised ones, by default all that have a method to_quantized.

    class_predicate(path, layer) is true for layers to be replaced, or a dict of arguments of to_quantized.
    quantize_input: the inputs of Linear layers, too; mode nvfp4 or mxfp8.
    """
    options = {"group_size": group_size, "bits": bits, "mode": mode}
    if quantize_input:
        options["quantize_input"] = True

    def replaced(path, layer):
        choice = class_predicate(path, layer) if class_predicate is not None else hasattr(layer, "to_quantized")
        if not choice:
            return layer
        if not hasattr(layer, "to_quantized"):
            raise ValueError(f"quantize: {path} is a {type(layer).__name__}, which has no to_quantized")
        if not isinstance(choice, (bool, dict)):
            raise ValueError(f"quantize: class_predicate returned {choice!r}, expected a bool or a dict")
        return layer.to_quantized(**(choice if isinstance(choice, dict) else options))

    model.update_modules(tree_map_with_path(replaced, model.leaf_modules(), is_leaf=Module.is_module))
