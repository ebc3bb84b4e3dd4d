"""How torch's DTensor may shard this device's attention: along the batch, or along the heads.

torch knows that of its own kernels alone.
"""

import torch


def _of_bias(bias, dim, placements):
    """The placement of a mask that is broadcast to the scores, if they are sharded along `dim`."""
    own = dim - (4 - bias.ndim)
    return placements.Shard(own) if own >= 0 and bias.shape[own] != 1 else placements.Replicate()


def register(module):
    """Adds the placements to DTensor's table."""
    try:
        from torch.distributed.tensor import placement_types as placements
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError:  # a torch without the function
        return

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
