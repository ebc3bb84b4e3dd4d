"""Layers whose weights are divided among the processes of a group, with MLX's names.

A group has one process (distributed.py), so a layer's part is the whole weight, and its results are those of the layer
that it was made of.
"""

from headrace.mlx import distributed
from headrace.nn.linear import Linear
from headrace.nn.quantized import QuantizedLinear

__all__ = [
    "AllToShardedLinear",
    "QuantizedAllToShardedLinear",
    "QuantizedShardedToAllLinear",
    "ShardedToAllLinear",
    "average_gradients",
    "shard_inplace",
    "shard_linear",
]


def _alone(group):
    group = group or distributed.init()
    if group.size() != 1:
        raise ValueError(f"group has {group.size()} processes, expected 1")
    return group


class _Linear(Linear):
    def __init__(self, input_dims, output_dims, bias=True, group=None):
        super().__init__(input_dims, output_dims, bias)
        self.group = _alone(group)

    @classmethod
    def from_linear(cls, linear_layer, *, segments=1, group=None):
        """The layer with the part of a Linear's weight and bias; segments: matrices that are one weight."""
        output_dims, input_dims = linear_layer.weight.shape
        layer = cls(input_dims, output_dims, "bias" in linear_layer, group)
        layer.update(linear_layer.parameters())
        return layer


class AllToShardedLinear(_Linear):
    """A Linear of which each process computes a part of the outputs."""


class ShardedToAllLinear(_Linear):
    """A Linear of which each process has a part of the inputs; the outputs are sums over the processes."""


class _QuantizedLinear(QuantizedLinear):
    def __init__(self, input_dims, output_dims, bias=True, group_size=None, bits=None, mode="affine", group=None):
        super().__init__(input_dims, output_dims, bias, group_size, bits, mode)
        self.group = _alone(group)

    @classmethod
    def from_quantized_linear(cls, quantized_linear_layer, *, segments=1, group=None):
        """The layer with the part of a QuantizedLinear's weight and bias; segments: matrices that are one weight."""
        output_dims, input_dims = quantized_linear_layer._weight_shape()
        options = quantized_linear_layer._options()
        layer = cls(input_dims, output_dims, "bias" in quantized_linear_layer, **options, group=group)
        layer.update(quantized_linear_layer.parameters())
        return layer


class QuantizedAllToShardedLinear(_QuantizedLinear):
    """A QuantizedLinear of which each process computes a part of the outputs."""


class QuantizedShardedToAllLinear(_QuantizedLinear):
    """A QuantizedLinear of which each process has a part of the inputs; the outputs are sums over the processes."""


_LINEAR = {"all-to-sharded": AllToShardedLinear, "sharded-to-all": ShardedToAllLinear}
_QUANTIZED = {"all-to-sharded": QuantizedAllToShardedLinear, "sharded-to-all": QuantizedShardedToAllLinear}


def _check_sharding(sharding):
    if sharding not in _LINEAR:
        raise ValueError(f'sharding is {sharding!r}, expected "all-to-sharded" or "sharded-to-all"')


def shard_inplace(module, sharding, *, segments=1, group=None):
    """Leaves each process its part of the module's parameters, which is all of them."""
    if not callable(sharding):
        _check_sharding(sharding)
    _alone(group)


def shard_linear(module, sharding, *, segments=1, group=None):
    """The layer of a Linear or QuantizedLinear of which each process has a part."""
    _check_sharding(sharding)
    if isinstance(module, Linear):
        return _LINEAR[sharding].from_linear(module, segments=segments, group=group)
    return _QUANTIZED[sharding].from_quantized_linear(module, segments=segments, group=group)


def average_gradients(gradients, group=None, all_reduce_size=32 * 1024**2, communication_stream=None):
    """The means of a tree over the processes of the group: with one process the tree itself."""
    _alone(group)
    return gradients
