"""Attention of jagged nested tensors: padded, with a mask, by scaled_dot_product_attention.

torch's own way for devices without a fused kernel converts to strided nested tensors, and runs one item after another.
"""

import functools

import torch


def _padded(x, longest):
    """[items, heads, longest, size] of a nested tensor [items, heads, length, size], by operations with gradients."""
    values, offsets = x.transpose(1, 2).values(), x.offsets()  # values: [rows, heads, size]
    places = offsets[:-1, None] + torch.arange(longest, device=values.device)
    rows = values.index_select(0, places.clamp(max=max(values.shape[0] - 1, 0)).flatten()).unflatten(0, places.shape)
    return torch.where((places < offsets[1:, None])[..., None, None], rows, 0).transpose(1, 2)


def _longest(x):
    return int((x.offsets()[1:] - x.offsets()[:-1]).max())


def _attend(query, key, value, is_causal, **names):
    rows, columns = _longest(query), _longest(key)
    lengths = key.offsets()[1:] - key.offsets()[:-1]
    mask = torch.arange(columns, device=query.device) < lengths[:, None, None, None]
    if is_causal:
        mask = mask & torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril()
    out = torch.nn.functional.scaled_dot_product_attention(
        _padded(query, rows), _padded(key, columns), _padded(value, columns), attn_mask=mask, **names
    )
    row = torch.arange(query.transpose(1, 2).values().shape[0], device=query.device)
    item = torch.searchsorted(query.offsets()[1:].contiguous(), row, right=True)
    places = item * rows + row - query.offsets()[item]
    values = out.transpose(1, 2).flatten(0, 1).index_select(0, places)
    return torch.nested.nested_tensor_from_jagged(values, query.offsets()).transpose(1, 2)


def _can_attend(query, key, value, attn_mask):
    return attn_mask is None and all(
        getattr(x, "layout", None) == torch.jagged
        and x.device.type == "headrace"
        and x.dim() == 4
        and getattr(x, "_ragged_idx", 0) == 2
        and x.lengths() is None
        for x in (query, key, value)
    )


def register(module):
    attend = module.jagged_scaled_dot_product_attention

    @functools.wraps(attend)
    def jagged_scaled_dot_product_attention(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        if not _can_attend(query, key, value, attn_mask):
            return attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        names = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
        return _attend(query, key, value, is_causal, **names)

    module.jagged_scaled_dot_product_attention = jagged_scaled_dot_product_attention
