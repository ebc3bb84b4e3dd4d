"""How torch's DTensor may shard this device's attention: along the batch, or along the heads.

torch knows that of its own kernels alone. Its DTensor takes seconds to import, so `_register_late` waits until a
program imports it.
"""

import contextlib
import importlib.abc
import importlib.util
import sys

import torch

_MODULE = "torch.distributed.tensor"


def _of_bias(bias, dim, placements):
    """The placement of a mask that is broadcast to the scores, if they are sharded along `dim`."""
    own = dim - (4 - bias.ndim)
    return placements.Shard(own) if own >= 0 and bias.shape[own] != 1 else placements.Replicate()


def _register():
    """Adds the placements to DTensor's table."""
    from torch.distributed.tensor import placement_types as placements
    from torch.distributed.tensor.experimental import register_sharding

    attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
    gradient = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default
    replicate, partial = placements.Replicate(), placements.Partial()

    def shardings(query, bias):
        """(placement of what has batch and heads, of the mask, of the mask's gradient)"""
        yield replicate, replicate, replicate
        for dim in range(2 if len(query.shape) == 4 else 0):
            shard = placements.Shard(dim)
            of_bias = None if bias is None else _of_bias(bias, dim, placements)
            yield shard, of_bias, partial if of_bias == replicate else of_bias

    @register_sharding(attention)
    def shard_attention(query, key, value, bias=None, *numbers, scale=None):
        # out, logsumexp, sizes of sequences, the random seed and offset, and a mask that is never made
        return [
            ([by, by, None, None, None, None, replicate, replicate, None], [by] * 3 + [of_bias] * (bias is not None))
            for by, of_bias, _ in shardings(query, bias)
        ]

    @register_sharding(gradient)
    def shard_gradient(grad, query, key, value, bias, wanted, out, logsumexp, *rest, scale=None):
        numbers = sum(hasattr(one, "placements") for one in rest)  # seed and offset, if they are DTensors
        return [
            (
                [by, by, by, of_gradient if bias is not None and wanted[3] else None],
                [by] * 4 + [of_bias] * (bias is not None) + [by] * 2 + [replicate] * numbers,
            )
            for by, of_bias, of_gradient in shardings(query, bias)
        ]


class _Loader(importlib.abc.Loader):
    """Another loader, and `_register` after the module has run."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        with contextlib.suppress(ImportError):  # a torch without torch.distributed, or without the function
            _register()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds DTensor's module by the other finders, once."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _register_late():
    if _MODULE in sys.modules:
        _register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
