"""Attention, and the encoder and decoder of "Attention is all you need"."""

from headrace import _arrays
from headrace._arrays import relu
from headrace.nn.dropout import Dropout
from headrace.nn.gradients import checkpoint as checkpointed
from headrace.nn.linear import Linear
from headrace.nn.module import Module
from headrace.nn.normalization import LayerNorm

_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float64": 1.7976931348623157e308}


def _heads(x, num_heads):
    """[N, heads, L, E] of x [N, L, heads * E]."""
    return _arrays.swapaxes(x.reshape((*x.shape[:2], num_heads, x.shape[2] // num_heads)), 1, 2)


class MultiHeadAttention(Module):
    """softmax(q k^T / sqrt(E) + mask) v of each head, for queries [N, L, query_input_dims], keys [N, S, key_input_dims]
    and values [N, S, value_input_dims]: [N, L, value_output_dims]. Sizes are `dims` by default, value_input_dims is
    key_input_dims. A bool mask is true where attention is; others are added; "causal" hides later keys."""

    def __init__(
        self,
        dims,
        num_heads,
        query_input_dims=None,
        key_input_dims=None,
        value_input_dims=None,
        value_dims=None,
        value_output_dims=None,
        bias=False,
    ):
        super().__init__()
        key_input_dims, value_dims = key_input_dims or dims, value_dims or dims
        if dims % num_heads or value_dims % num_heads:
            raise ValueError(
                f"MultiHeadAttention: dims is {dims}, value_dims {value_dims}, expected multiples of {num_heads} heads"
            )
        self.num_heads = num_heads
        self.query_proj = Linear(query_input_dims or dims, dims, bias=bias)
        self.key_proj = Linear(key_input_dims, dims, bias=bias)
        self.value_proj = Linear(value_input_dims or key_input_dims, value_dims, bias=bias)
        self.out_proj = Linear(value_dims, value_output_dims or dims, bias=bias)

    def __call__(self, queries, keys, values, mask=None):
        for name, x in (("queries", queries), ("keys", keys), ("values", values)):
            if x.ndim != 3:
                raise ValueError(f"MultiHeadAttention: {name} have shape {x.shape}, expected 3 dims")
        q, k, v = (
            _heads(project(x), self.num_heads)
            for project, x in ((self.query_proj, queries), (self.key_proj, keys), (self.value_proj, values))
        )
        is_causal = isinstance(mask, str)
        if is_causal and mask != "causal":
            raise ValueError(f'MultiHeadAttention: mask is {mask!r}, expected an array or "causal"')
        y = _arrays.swapaxes(_arrays.attention(q, k, v, None if is_causal else mask, is_causal), 1, 2)
        return self.out_proj(y.reshape((*y.shape[:2], y.shape[2] * y.shape[3])))

    @staticmethod
    def create_additive_causal_mask(N, dtype=_arrays.float32):
        """A mask [N, N]: the most negative number for later keys, else 0."""
        places = _arrays.arange(N)
        largest = _LARGEST.get(_arrays.zeros((), dtype=dtype).dtype.name, 3.4028234663852886e38)
        return (places[:, None] < places).astype(dtype) * -largest


class _Layer(Module):
    """What layers of encoder and decoder have in common. A part is a function between a norm and dropout: the norm
    comes before it (norm_first), or after the sum."""

    def __init__(self, dims, mlp_dims, dropout, activation, norm_first, parts):
        super().__init__()
        mlp_dims = mlp_dims or 4 * dims
        for i in range(1, parts + 1):
            setattr(self, f"ln{i}", LayerNorm(dims))
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.linear1, self.linear2 = Linear(dims, mlp_dims), Linear(mlp_dims, dims)
        self.activation, self.norm_first = activation, norm_first

    def _part(self, x, norm, function):
        return x + function(norm(x)) if self.norm_first else norm(x + function(x))

    def _mlp(self, dropout):
        return lambda x: self.linear2(dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """x plus its self-attention, then plus a network of one hidden layer, of x [N, L, dims]."""

    def __init__(self, dims, num_heads, mlp_dims=None, dropout=0.0, activation=relu, norm_first=True):
        super().__init__(dims, mlp_dims, dropout, activation, norm_first, 2)
        self.attention = MultiHeadAttention(dims, num_heads)

    def __call__(self, x, mask):
        x = self._part(x, self.ln1, lambda y: self.dropout1(self.attention(y, y, y, mask)))
        return self._part(x, self.ln2, self._mlp(self.dropout2))


class TransformerDecoderLayer(_Layer):
    """x plus its self-attention, plus attention to memory [N, S, dims], plus a network of one hidden layer, of
    x [N, L, dims]."""

    def __init__(self, dims, num_heads, mlp_dims=None, dropout=0.0, activation=relu, norm_first=True):
        super().__init__(dims, mlp_dims, dropout, activation, norm_first, 3)
        self.self_attention = MultiHeadAttention(dims, num_heads)
        self.cross_attention = MultiHeadAttention(dims, num_heads)

    def __call__(self, x, memory, x_mask, memory_mask):
        x = self._part(x, self.ln1, lambda y: self.dropout1(self.self_attention(y, y, y, x_mask)))
        x = self._part(x, self.ln2, lambda y: self.dropout2(self.cross_attention(y, memory, memory, memory_mask)))
        return self._part(x, self.ln3, self._mlp(self.dropout3))


class _Stack(Module):
    """Layers of one kind, and a norm. checkpoint: a layer's intermediate results are computed again for gradients."""

    _LAYER = Module

    def __init__(
        self,
        num_layers,
        dims,
        num_heads,
        mlp_dims=None,
        dropout=0.0,
        activation=relu,
        norm_first=True,
        checkpoint=False,
    ):
        super().__init__()
        self.layers = [
            self._LAYER(dims, num_heads, mlp_dims, dropout, activation, norm_first) for _ in range(num_layers)
        ]
        self.ln = LayerNorm(dims)
        self.checkpoint = checkpoint

    def _apply(self, x, *others):
        for layer in self.layers:
            x = (checkpointed(layer) if self.checkpoint else layer)(x, *others)
        return self.ln(x)


class TransformerEncoder(_Stack):
    """Encoder layers one after the other, and a norm, of x [N, L, dims]."""

    _LAYER = TransformerEncoderLayer

    def __call__(self, x, mask):
        return self._apply(x, mask)


class TransformerDecoder(_Stack):
    """Decoder layers one after the other, and a norm, of x [N, L, dims] and memory [N, S, dims]."""

    _LAYER = TransformerDecoderLayer

    def __call__(self, x, memory, x_mask, memory_mask):
        return self._apply(x, memory, x_mask, memory_mask)


class Transformer(Module):
    """A decoder of tgt [N, L, dims] whose memory is an encoder of src [N, S, dims]."""

    def __init__(
        self,
        dims=512,
        num_heads=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        mlp_dims=None,
        dropout=0.0,
        activation=relu,
        custom_encoder=None,
        custom_decoder=None,
        norm_first=True,
        checkpoint=False,
    ):
        super().__init__()
        rest = (dims, num_heads, mlp_dims, dropout, activation, norm_first, checkpoint)
        self.encoder = TransformerEncoder(num_encoder_layers, *rest) if custom_encoder is None else custom_encoder
        self.decoder = TransformerDecoder(num_decoder_layers, *rest) if custom_decoder is None else custom_decoder

    def __call__(self, src, tgt, src_mask, tgt_mask, memory_mask):
        return self.decoder(tgt, self.encoder(src, src_mask), tgt_mask, memory_mask)
