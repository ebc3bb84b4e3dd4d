"""Encodings of positions."""

import math

from headrace import _arrays
from headrace._arrays import arange, concat, cos, sin
from headrace.nn.module import Module


class RoPE(Module):
    """Rotary encoding: of x [.., L, D] pair i of the first `dims` elements at place t is turned by the angle
    (t + offset) * scale * base^(-2 i / dims). Pairs are elements i and i + dims / 2, or with traditional 2 i and
    2 i + 1."""

    def __init__(self, dims, traditional=False, base=10000, scale=1.0):
        super().__init__()
        if dims < 2 or dims % 2:
            raise ValueError(f"RoPE: dims is {dims}, expected a positive even number")
        self.dims, self.traditional, self.base, self.scale = dims, traditional, base, scale

    def _extra_repr(self):
        return f"{self.dims}, traditional={self.traditional}"

    def __call__(self, x, offset=0):
        if x.ndim < 2 or x.shape[-1] < self.dims:
            raise ValueError(f"RoPE: x has shape {x.shape}, expected [.., L, D] with D of at least {self.dims}")
        places = (arange(x.shape[-2], dtype=_arrays.float32) + offset) * self.scale
        rates = _arrays.exp(arange(0, self.dims, 2, dtype=_arrays.float32) * (-math.log(self.base) / self.dims))
        angles = places[:, None] * rates
        cosines, sines = (function(angles).astype(x.dtype) for function in (cos, sin))
        return _arrays.rotary(x, cosines, sines, self.traditional, self.dims)


class SinusoidalPositionalEncoding(Module):
    """Sines and cosines of positions x [..] at dims / 2 frequencies from max_freq down to min_freq: [.., dims]. They are
    multiplied by scale, by default sqrt(2 / dims). full_turns: frequencies are turns, not radians."""

    def __init__(self, dims, min_freq=0.0001, max_freq=1, scale=None, cos_first=False, full_turns=False):
        super().__init__()
        if dims < 2 or dims % 2:
            raise ValueError(f"SinusoidalPositionalEncoding: dims is {dims}, expected a positive even number")
        steps = max(dims // 2 - 1, 1)
        low, high = math.log(min_freq), math.log(max_freq)
        turn = 2 * math.pi if full_turns else 1
        frequencies = [turn * math.exp(low + (high - low) * (1 - i / steps)) for i in range(dims // 2)]
        self._sigmas = _arrays.array(frequencies, dtype=_arrays.float32)
        self.scale = (2 / dims) ** 0.5 if scale is None else scale
        self.cos_first = cos_first

    def __call__(self, x):
        angles = x[..., None] * self["_sigmas"]
        parts = [cos(angles), sin(angles)] if self.cos_first else [sin(angles), cos(angles)]
        return concat(parts, axis=-1) * self.scale


def _slopes(num_heads):
    """2^(-8 i / n) for i = 1 to n, a power of two; other numbers of heads add every second slope of 2 n."""
    whole = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    return slopes + [2 ** (-8 * (2 * i + 1) / (2 * whole)) for i in range(num_heads - whole)]


class ALiBi(Module):
    """Attention scores [N, heads, L, S] less the distance of query and key times a slope of each head, plus mask. The
    first query is at the place `offset`."""

    @staticmethod
    def create_alibi_slope(num_heads, dtype=_arrays.float32):
        """Slopes [heads, 1, 1]."""
        return _arrays.array(_slopes(num_heads), dtype=dtype)[:, None, None]

    @staticmethod
    def create_alibi_matrix(q_sequence_length, k_sequence_length, num_heads, offset, dtype=_arrays.float32):
        """What is added to scores, [1, heads, q_sequence_length - offset, k_sequence_length]."""
        queries = arange(offset, q_sequence_length, dtype=_arrays.float32)
        keys = arange(k_sequence_length, dtype=_arrays.float32)
        distances = abs(queries[:, None] - keys)
        return (-distances * ALiBi.create_alibi_slope(num_heads)).astype(dtype)[None]

    def __call__(self, attention_scores, offset=0, mask=None):
        heads, queries, keys = attention_scores.shape[-3:]
        added = ALiBi.create_alibi_matrix(queries + offset, keys, heads, offset, attention_scores.dtype)
        return attention_scores + (added if mask is None else added + mask)
