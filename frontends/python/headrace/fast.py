"""Norms, rotary encodings and attention in few records, with the names of MLX's mx.fast."""

import math

import headrace as hr
from headrace import _arrays
from headrace._arrays import Array

__all__ = ["cross_entropy", "layer_norm", "rms_norm", "rope", "scaled_dot_product_attention"]


def _check_weight(who, name, x, weight):
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != x.shape[-1]):
        raise ValueError(f"{who}: {name} has shape {weight.shape}, expected ({x.shape[-1]},)")


def rms_norm(x, weight=None, eps=1e-5):
    """x / sqrt(mean(x * x) + eps) over the last dim, times weight."""
    if x.ndim == 0:
        raise ValueError("rms_norm: the array has no dims, expected at least one")
    _check_weight("rms_norm", "weight", x, weight)
    return _arrays.rms_norm(x, weight, eps)


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) over the last dim, times weight, plus bias."""
    if x.ndim == 0:
        raise ValueError("layer_norm: the array has no dims, expected at least one")
    _check_weight("layer_norm", "weight", x, weight)
    _check_weight("layer_norm", "bias", x, bias)
    return _arrays.layer_norm(x, weight, bias, 1, eps)


def cross_entropy(logits, targets):
    """logsumexp(logits) less the logit of each target, in float32."""
    return _arrays.cross_entropy(logits.astype(_arrays.float32), targets)


def _rates(who, dims, base, freqs):
    """Radians per place for each pair of elements."""
    if (base is None) == (freqs is None):
        raise ValueError(f"{who}: base is {base!r} and freqs {freqs!r}, expected one of them to be None")
    if freqs is None:
        return _arrays.exp(_arrays.arange(0, dims, 2, dtype=_arrays.float32) * (-math.log(base) / dims))
    if freqs.ndim != 1 or freqs.shape[0] != dims // 2:
        raise ValueError(f"{who}: freqs of shape {freqs.shape}, expected ({dims // 2},)")
    return _arrays.reciprocal(freqs.astype(_arrays.float32))


def _places(x, offset):
    """The places of rows: [T], or [B, 1, .., T] for offsets of examples."""
    rows = _arrays.arange(x.shape[-2], dtype=_arrays.float32)
    if not isinstance(offset, Array) or offset.ndim == 0:
        return rows + (offset.astype(_arrays.float32) if isinstance(offset, Array) else float(offset))
    if offset.ndim != 1 or offset.shape[0] not in (1, x.shape[0]):
        raise ValueError(f"rope: offset of shape {offset.shape}, expected one number or {x.shape[0]}")
    return _arrays.reshape(offset.astype(_arrays.float32), (-1,) + (1,) * (x.ndim - 2)) + rows


def rope(a, dims, *, traditional=False, base=10000.0, scale=1.0, offset=0, freqs=None):
    """Rotary encoding: pairs of the first `dims` elements at place t are turned by (t + offset) * scale times the
    pair's rate: base^(-2 i / dims), or 1 / freqs. Pairs are elements i and i + dims / 2; traditional: 2 i and 2 i + 1."""
    if a.ndim < 3:
        raise ValueError(f"rope: {a.ndim} dims, expected at least 3")
    if dims <= 0 or dims % 2 or dims > a.shape[-1]:
        raise ValueError(f"rope: dims is {dims}, expected an even number up to {a.shape[-1]}")
    if not a.dtype.name.startswith(("float", "bfloat")):
        raise ValueError(f"rope: dtype {a.dtype}, expected a floating one")
    angles = _arrays.expand_dims(_places(a, offset) * scale, -1) * _rates("rope", dims, base, freqs)
    cosine, sine = _arrays.cos(angles).astype(a.dtype), _arrays.sin(angles).astype(a.dtype)
    return _arrays.rotary(a, cosine, sine, traditional, dims)


def _check_heads(q, k, v):
    who = "scaled_dot_product_attention"
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{who}: {name} has shape {x.shape}, expected 4 dims")
        if not x.dtype.name.startswith(("float", "bfloat")):
            raise ValueError(f"{who}: {name} is {x.dtype}, expected a floating array")
    if not q.shape[0] == k.shape[0] == v.shape[0] or k.shape[2] != v.shape[2] or q.shape[3] != k.shape[3]:
        raise ValueError(f"{who}: q {q.shape}, k {k.shape} and v {v.shape} don't fit")
    if k.shape[1] != v.shape[1] or q.shape[1] % max(k.shape[1], 1):
        raise ValueError(f"{who}: {q.shape[1]} heads of q for {k.shape[1]} of k and {v.shape[1]} of v")


def _mask(mask, q, k, dtype):
    """The mask [B, H, T, S] or of fewer dims, and True if later keys are hidden as by the aligned causal mask."""
    who = "scaled_dot_product_attention"
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f'{who}: mask is {mask!r}, expected "causal", an array or None')
        rows, columns = q.shape[2], k.shape[2]
        if rows == columns:
            return None, True
        places = _arrays.arange(rows) + (columns - rows)
        return _arrays.expand_dims(places, -1) >= _arrays.arange(columns), False
    if mask is None:
        return None, False
    if mask.ndim > 4:
        raise ValueError(f"{who}: mask has {mask.ndim} dims, expected at most 4")
    if mask.dtype != _arrays.bool:
        if hr.result_type(mask.dtype, dtype) != dtype:
            raise ValueError(f"{who}: mask is {mask.dtype}, expected one that becomes {dtype}")
    return mask, False


def scaled_dot_product_attention(q, k, v, *, scale=None, mask=None, sinks=None):
    """softmax(scale q k^T + mask) v of q [B, H, T, E], k [B, G, S, E] and v [B, G, S, V]; H is a multiple of G. A bool
    mask is true where attention is; "causal": of queries that are the last T of S places. Without scale 1 / sqrt(E).
    sinks [H]: scores of keys without values."""
    _check_heads(q, k, v)
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale
    dtype = hr.result_type(q, k, v)
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    mask, is_causal = _mask(mask, q, k, dtype)
    groups = q.shape[1] // max(k.shape[1], 1)
    if groups > 1:
        k, v = _arrays.repeat(k, groups, 1), _arrays.repeat(v, groups, 1)
    if sinks is None:
        if mask is not None and mask.dtype != _arrays.bool:
            mask = mask.astype(dtype)
        return _arrays.attention(q, k, v, mask, is_causal, scale)
    return _with_sinks(q, k, v, scale, mask, is_causal, sinks)


def _with_sinks(q, k, v, scale, mask, is_causal, sinks):
    if sinks.ndim != 1 or sinks.shape[0] != q.shape[1]:
        raise ValueError(f"scaled_dot_product_attention: sinks of shape {sinks.shape}, expected ({q.shape[1]},)")
    if hr.result_type(sinks.dtype, q.dtype) != q.dtype:
        raise ValueError(f"scaled_dot_product_attention: sinks are {sinks.dtype}, expected what becomes {q.dtype}")
    scores = _arrays.matmul(q * scale, k.mT).astype(_arrays.float32)
    if is_causal:
        mask = _arrays.expand_dims(_arrays.arange(q.shape[2]), -1) >= _arrays.arange(k.shape[2])
    if mask is not None:
        is_bool = mask.dtype == _arrays.bool
        scores = _arrays.where(mask, scores, float("-inf")) if is_bool else scores + mask.astype(_arrays.float32)
    first = _arrays.broadcast_to(
        _arrays.reshape(sinks.astype(_arrays.float32), (-1, 1, 1)), (*scores.shape[:-1], 1)
    )
    weights = _arrays.softmax(_arrays.concat([first, scores], -1), -1)[..., 1:]
    return _arrays.matmul(weights.astype(v.dtype), v)
