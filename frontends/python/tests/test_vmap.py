"""vmap against a loop over examples: all functions, axes, nesting, gradients, errors."""

import itertools
import re

import numpy as np
import pytest

import headrace as hr
from headrace import fft, linalg, random, transforms
from headrace._names import NAMES

EXAMPLES = 3
rng = np.random.default_rng(5)


def real(*shape):
    return rng.uniform(0.1, 0.9, (EXAMPLES, *shape))


def signed(*shape):
    return rng.uniform(-2, 2, (EXAMPLES, *shape))


def whole(*shape, low=0, high=3):
    return rng.integers(low, high, (EXAMPLES, *shape))


def truth(*shape):
    return rng.random((EXAMPLES, *shape)) > 0.5


def complex_(*shape):
    return signed(*shape) + 1j * signed(*shape)


def definite(n):
    x = signed(n, n)
    return x @ x.swapaxes(-1, -2) + n * np.eye(n)


def keys():
    return np.array([[7, 1], [0, 2], [7, 2]], np.uint32)


ONE = """abs sign square sqrt rsqrt reciprocal floor ceil trunc frac positive cbrt frexp degrees radians negative exp exp2
expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc erfinv lgamma digamma trigamma
erfcx ndtr ndtri log_ndtr entr sinc logit i0 i0e i1 i1e k0 k0e k1 k1e j0 j1 y0 y1 spherical_j0 airy_ai sigmoid relu silu
gelu softshrink hard_shrink threshold step relu2 relu6 leaky_relu elu celu selu hard_tanh hard_sigmoid hardswish softplus
softsign mish log_sigmoid isnan isinf isposinf isneginf isfinite signbit logical_not real imag conj angle modf
nan_to_num""".split()
TWO = """add subtract multiply divide floor_divide remainder fmod pow maximum minimum fmax fmin hypot copysign nextafter
heaviside atan2 logaddexp logaddexp2 xlogy xlog1py equal not_equal less less_equal greater greater_equal isclose
logical_and logical_or logical_xor prelu complex polar divmod gammainc gammaincc mse_loss l1_loss smooth_l1_loss
huber_loss kl_div_loss hinge_loss log_cosh_loss binary_cross_entropy cosine_similarity_loss allclose array_equal
""".split()
INTEGERS = """gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift""".split()
POLYNOMIALS = """chebyshev_t chebyshev_u chebyshev_v chebyshev_w shifted_chebyshev_t shifted_chebyshev_u
shifted_chebyshev_v shifted_chebyshev_w hermite_h hermite_he laguerre legendre""".split()
REDUCTIONS = """sum prod max min any all mean logsumexp var std argmax argmin count_nonzero ptp median quantile
vector_norm nansum nanprod nanmax nanmin nanmean nanvar nanstd""".split()
ALONG = """softmax log_softmax softmin cumulative_sum cumulative_prod cumulative_max cumulative_min logcumsumexp diff
trapezoid sort argsort glu""".split()


def along(name, *axes):
    return lambda x: [getattr(hr._arrays, name)(x, axis=axis) for axis in axes]


CASES = {name: (getattr(hr, name), real(2, 4)) for name in ONE}
CASES |= {name: (getattr(hr, name), signed(3, 4), signed(3, 4)) for name in TWO if name != "gammainc"}
CASES |= {name: (getattr(hr, name), real(3, 4), real(4)) for name in ("gammainc", "gammaincc", "pow", "xlogy")}
CASES |= {name: (getattr(hr, name), whole(3, 4, low=1, high=9), whole(4, low=1, high=9)) for name in INTEGERS}
CASES |= {name: (getattr(hr, name), real(2, 4), whole(2, 1)) for name in POLYNOMIALS}
CASES |= {name: (along(name, None, 0, -1), signed(2, 3, 4)) for name in REDUCTIONS}
CASES |= {name: (along(name, 0, 1, -1), signed(2, 4, 6)) for name in ALONG}
def numpy_of(arrays):
    return [np.asarray(x) for x in arrays]


CASES |= {
    "quantize": (lambda w: [y for bits in (2, 3, 5) for y in hr.quantize(w, bits=bits)], signed(2, 64)),
    "quantize, floats": (lambda w: [y for m in ("mxfp4", "mxfp8", "nvfp4") for y in hr.quantize(w, mode=m)],
                         signed(2, 64)),
    "dequantize": (lambda w, s, b: hr.dequantize(w, s, b, bits=3), *numpy_of(hr.quantize(hr.array(signed(2, 64)), bits=3))),
    "dequantize, floats": (lambda w, s: hr.dequantize(w, s, mode="mxfp4", dtype=hr.float64),
                           *numpy_of(hr.quantize(hr.array(signed(2, 64)), mode="mxfp4"))),
    "quantized_matmul": (lambda x, w, s, b: hr.quantized_matmul(x, w, s, b), signed(2, 64),
                         *numpy_of(hr.quantize(hr.array(signed(3, 64))))),
    "gather_mm": (hr.gather_mm, signed(3, 2, 4), signed(3, 4, 2), whole(2), whole(2)),
    "gather_qmm": (lambda x, w, s, b, i: hr.gather_qmm(x, w, s, b, rhs_indices=i), signed(2, 64),
                   *numpy_of(hr.quantize(hr.array(signed(3, 2, 64)))), whole(2)),
    "qqmm": (lambda x, w: hr.qqmm(x, w, mode="mxfp8"), signed(2, 64), signed(3, 64)),
    "to_fp8": (hr.to_fp8, signed(4)),
    "from_fp8": (lambda x: hr.from_fp8(x, hr.float64), whole(4, high=120).astype(np.uint8)),
    "quantize_linear": (lambda x, s, z: [hr.quantize_linear(x, s, z), hr.quantize_linear(x[0], s[0], z[0])],
                        signed(4, 3), real(3), whole(3).astype(np.int8)),
    "dequantize_linear": (hr.dequantize_linear, whole(4, 3).astype(np.uint8), real(3)),
    "dynamic_quantize_linear": (hr.dynamic_quantize_linear, signed(3, 4)),
    "matmul_integer": (lambda x, y, z: hr.matmul_integer(x, y, z, z), whole(3, 4).astype(np.uint8),
                       whole(4, 2).astype(np.uint8), whole().astype(np.uint8)),
    "conv_integer": (lambda x, w: hr.conv_integer(x, w, stride=[1], before=[1], after=[0], dilation=[1]),
                     whole(2, 3, 5).astype(np.uint8), whole(4, 3, 2).astype(np.int8)),
    "sparse_matmul": (lambda v, i, j, y: [hr.sparse_matmul(v, i, j, y, count=3), hr.sparse_matmul(v, i, j, y[:, 0], count=4)],
                      signed(5), whole(5), whole(5), signed(3, 2)),
    "sparse_to_dense": (lambda v, i, j: hr.sparse_to_dense(v, i, j, [3, 4]), signed(5), whole(5), whole(5)),
    "acosh": (hr.acosh, 1 + real(4)),
    "bitwise_invert": (hr.bitwise_invert, whole(4)),
    "clip": (hr.clip, signed(3, 4), signed(4), signed()),
    "lerp": (hr.lerp, signed(3, 4), signed(4), real()),
    "ldexp": (hr.ldexp, signed(3, 4), whole(4)),
    "addcmul": (lambda x, y, z: hr.addcmul(x, y, z, value=0.5), signed(3, 4), signed(4), signed(3, 1)),
    "addcdiv": (lambda x, y, z: hr.addcdiv(x, y, z, value=0.5), signed(3, 4), signed(4), real(3, 1)),
    "round": (lambda x: [hr.round(x), hr.round(x, 1), hr.round(x, ties="away")], signed(4)),
    "bitcast": (lambda x: [hr.bitcast(x, hr.int64), hr.bitcast(x, hr.uint16), hr.bitcast(hr.bitcast(x, "uint8"), "int32")],
                signed(3, 4)),
    "popcount": (lambda x: [hr.popcount(x), hr.leading_zeros(x)], whole(4, low=-9, high=99)),
    "leading_zeros": (hr.leading_zeros, whole(2, 3, high=2**40)),
    "hamming_distance": (hr.hamming_distance, whole(3, 4, high=255), whole(4, high=255)),
    "polygamma": (hr.polygamma, whole(4), real(4)),
    "zeta": (hr.zeta, 1 + real(4), real(4)),
    "where": (hr.where, truth(3, 1), signed(4), signed(3, 4)),
    "masked_fill": (hr.masked_fill, signed(3, 4), truth(4), signed()),
    "masked_scatter": (hr.masked_scatter, signed(3, 4), truth(3), signed(2, 4)),
    "topk": (lambda x: [*hr.topk(x, 2), *hr.topk(x, 1, axis=0, largest=False)], signed(3, 4)),
    "matmul": (hr.matmul, signed(3, 4), signed(4, 2)),
    "matmul, vectors": (lambda x, y: [hr.matmul(x, y), hr.matmul(y, x.T)], signed(3, 4), signed(4)),
    "matmul, batches": (lambda x, y: [x @ y, y @ x, x[0] @ y], signed(2, 4, 4), signed(2, 1, 4, 4)),
    "einsum": (lambda x, y: hr.einsum([x, y], "ijk,kl->lj"), signed(2, 3, 4), signed(4, 2)),
    "tensordot": (lambda x, y: hr.tensordot(x, y, ([1, 2], [1, 0])), signed(2, 3, 4), signed(4, 3, 2)),
    "vecdot": (lambda x, y: hr.vecdot(x, y, axis=0), signed(3, 4), signed(3, 4)),
    "inner": (hr.inner, signed(3, 4), signed(2, 4)),
    "outer": (hr.outer, signed(3), signed(4)),
    "kron": (hr.kron, signed(3, 2), signed(2, 2)),
    "cross": (hr.cross, signed(4, 3), signed(4, 3)),
    "trace": (hr.trace, signed(4, 3)),
    "cov": (hr.cov, signed(3, 5)),
    "layer_norm": (lambda x, w, b: [hr.layer_norm(x), hr.layer_norm(x, w, b)], signed(3, 4), signed(4), signed(4)),
    "rms_norm": (hr.rms_norm, signed(3, 4), signed(4)),
    "attention": (hr.attention, signed(2, 2, 3, 4), signed(2, 2, 5, 4), signed(2, 2, 5, 4)),
    "attention, masks": (
        lambda q, k, m: [hr.attention(q, k, k, m), hr.attention(q, k, k, m[:, :1], causal=True)],
        signed(2, 2, 3, 4), signed(2, 2, 5, 4), truth(2, 2, 3, 5) | True,
    ),
    "attention, groups": (
        lambda q, k: [hr.attention(q, k, k), hr.attention(q, k, k, causal=True, offset=2, soft_cap=1.0)],
        signed(2, 4, 3, 4), signed(2, 2, 5, 4),
    ),
    "conv": (
        lambda x, w, b: hr.conv(x, w, b, stride=[1, 2], before=[1, 0], after=[0, 1], dilation=[1, 1]),
        signed(2, 4, 5, 6), signed(3, 4, 2, 3), signed(3),
    ),
    "conv, groups": (
        lambda x, w: hr.conv(x, w, stride=[1], before=[1], after=[1], dilation=[2], groups=2),
        signed(1, 4, 9), signed(6, 2, 3),
    ),
    "conv_transpose": (
        lambda x, w: hr.conv_transpose(x, w, stride=[2], before=[1], after=[0], dilation=[1], groups=2),
        signed(2, 4, 5), signed(4, 3, 3),
    ),
    "cross_entropy": (lambda x, y: [hr.cross_entropy(x, y), hr.cross_entropy(x, y, reduction="mean")], signed(4, 3),
                      whole(4)),
    "nll_loss": (hr.nll_loss, signed(4, 3), whole(4)),
    "gaussian_nll_loss": (hr.gaussian_nll_loss, signed(4), signed(4), real(4)),
    "triplet_loss": (hr.triplet_loss, signed(3, 4), signed(3, 4), signed(3, 4)),
    "margin_ranking_loss": (hr.margin_ranking_loss, signed(4), signed(4), signed(4)),
    "max_pool": (lambda x: [hr.max_pool(y, [2, 2], [2, 1], [1, 0]) for y in (x, x[0])], signed(2, 3, 5, 6)),
    "avg_pool": (lambda x: [hr.avg_pool(y, [2, 2], [2, 1], [1, 0]) for y in (x, x[0])], signed(2, 3, 5, 6)),
    "max_pool_places": (lambda x: hr.max_pool_places(x, [2, 2], [2, 1], [1, 0], after=[0, 1]), signed(2, 3, 5, 6)),
    "avg_pool, uneven": (lambda x: hr.avg_pool(x, [2, 2], [2, 1], [1, 0], False, [0, 1]), signed(2, 3, 5, 6)),
    "reduce_window": (
        lambda x: [hr.reduce_window(x, (2, 3), stride=(1, 2), mode=m, padding="same") for m in ("sum", "max", "mean")],
        signed(5, 6),
    ),
    "max_pool_places, four": (
        lambda x: hr.max_pool_places(x, [1, 2, 1, 2], [1] * 4, [0] * 4, places="tensor"), signed(2, 3, 2, 3),
    ),
    "max_pool_gradient": (
        lambda x: hr.max_pool_gradient(
            *hr.max_pool_places(x, [2, 2], [2, 1], [1, 0]), shape=(5, 6), window=(2, 2), stride=(2, 1), padding=(1, 0)
        ),
        signed(2, 3, 5, 6),
    ),
    "max_unpool": (lambda x, i: [hr.max_unpool(x, i, [5]), hr.max_unpool(x, i, [6], mode="add")], signed(2, 3),
                   whole(2, 3, high=5)),
    "lp_pool": (lambda x: [hr.lp_pool(x, [2, 2], [2, 1], [1, 0], p) for p in (1, 2, 3)], signed(2, 3, 5, 6)),
    "stencil": (lambda x, w: [hr.stencil(x, w, mode=m) for m in ("sum", "max", "argmax")], signed(2, 4, 5),
                signed(2, 3)),
    "im2col": (lambda x: hr.im2col(x, [2, 3], [1, 2], [1, 0]), signed(2, 3, 4, 5)),
    "col2im": (lambda x: hr.col2im(x, [4, 5], [2, 2], [2, 1], [1, 0], [1, 0]), signed(2, 8, 12)),
    "band_part": (lambda x: [hr.band_part(x, 1, 0), hr.band_part(x, -1, 1)], signed(3, 4)),
    "space_to_depth": (lambda x: [hr.space_to_depth(x, [2, 3], order=o) for o in ("dcr", "crd")], signed(2, 3, 4, 6)),
    "depth_to_space": (lambda x: [hr.depth_to_space(x, [2, 2], order=o) for o in ("dcr", "crd")], signed(2, 8, 2, 3)),
    "as_strided": (lambda x: [hr.as_strided(x, (3, 4), (2, 1)), hr.as_strided(x.T, (2, 3), (-1, 2), 3) * 2],
                   signed(3, 4)),
    "conv_general": (
        lambda x, w: hr.conv_general(x, w, input_dilation=[2], padding="same", layout="b0f,0io->b0f"),
        signed(2, 5, 3), signed(3, 3, 2),
    ),
    "interpolate": (
        lambda x: [hr.interpolate(x, [0, 1], [5, 4], mode=m, coordinates=c) for m in ("nearest", "linear", "cubic")
                   for c in ("half_pixel", "asymmetric")],
        signed(3, 4),
    ),
    "grid_sample": (lambda x, g: [hr.grid_sample(x, g), hr.grid_sample(x, g, "nearest", "border", True)],
                    signed(2, 3, 4, 5), signed(2, 3, 2, 2)),
    "rnn": (hr.rnn, signed(2, 4, 3), signed(2, 3), signed(2, 2), signed(2), signed(2, 2)),
    "gru": (lambda x, w, r: [hr.gru(x, w, r), hr.gru(x, w, r, reset_before=True)],
            signed(4, 3), signed(6, 3), signed(6, 2)),
    "lstm": (lambda x, w, r: [*hr.lstm(x, w, r), *hr.lstm(x, w, r, reverse=True)], signed(2, 4, 3), signed(8, 3),
             signed(8, 2)),
    "lstm, lengths": (lambda x, w, r, n: hr.lstm(x, w, r, lengths=n),
                      signed(2, 3, 3), signed(8, 3), signed(8, 2), whole(2)),
    "rnn_cell": (hr.rnn_cell, signed(2, 3), signed(2, 3), signed(2, 2)),
    "gru_cell": (hr.gru_cell, signed(2, 3), signed(6, 3), signed(6, 2)),
    "lstm_cell": (hr.lstm_cell, signed(3), signed(8, 3), signed(8, 2)),
    "batch_norm": (hr.batch_norm, signed(4, 3, 2), signed(3), real(3), signed(3), signed(3)),
    "batch_norm_training": (hr.batch_norm_training, signed(4, 3, 2), signed(3), signed(3)),
    "group_norm": (lambda x, w, b: [hr.group_norm(x, groups=2), hr.group_norm(x, w, b, 2)], signed(3, 4, 2), signed(4),
                   signed(4)),
    "local_response_norm": (lambda x: hr.local_response_norm(x, 3, 0.5), signed(2, 5, 3)),
    "normalize": (lambda x: [hr.normalize(x), hr.normalize(x, 0, 1)], signed(3, 4)),
    "rotary": (lambda x, c, s: [hr.rotary(x, c, s), hr.rotary(x, c[:, :1], s[:, :1], True, 2)], signed(2, 3, 4),
               signed(3, 2), signed(3, 2)),
    "sgd_update": (lambda p, g, v, r: hr.sgd_update(p, g, v, r, 0.9), signed(4), signed(4), signed(4), real()),
    "adam_update": (lambda p, g, m, v: hr.adam_update(p, g, m, v, 0.1, 2), *[real(4)] * 4),
    "adamax_update": (lambda *xs: hr.adamax_update(*xs, 0.1), *[real(4)] * 4),
    "lion_update": (lambda *xs: hr.lion_update(*xs, 0.1), *[signed(4)] * 3),
    "rmsprop_update": (lambda *xs: hr.rmsprop_update(*xs, 0.1), *[real(4)] * 3),
    "adagrad_update": (lambda *xs: hr.adagrad_update(*xs, 0.1), *[real(4)] * 3),
    "adadelta_update": (lambda *xs: hr.adadelta_update(*xs, 0.1), *[real(4)] * 4),
    "broadcast_to": (lambda x: hr.broadcast_to(x, (2, 3, 4)), signed(3, 1)),
    "permute_dims": (lambda x: hr.permute_dims(x, (2, 0, 1)), signed(2, 3, 4)),
    "expand_dims": (lambda x: hr.expand_dims(x, (0, 2)), signed(3)),
    "squeeze": (hr.squeeze, signed(3, 1)),
    "flip": (lambda x: [hr.flip(x), hr.flip(x, axis=1) + 1], signed(3, 4)),
    "moveaxis": (lambda x: hr.moveaxis(x, 0, -1), signed(2, 3, 4)),
    "swapaxes": (lambda x: hr.swapaxes(x, 0, 1) * 2, signed(2, 3)),
    "diagonal": (lambda x: [hr.diagonal(x, 1), hr.diag(x[0]) * 2], signed(3, 4)),
    "reshape": (lambda x: [x.reshape(4, 3), x.T.reshape(-1)], signed(3, 4)),
    "astype": (lambda x: [hr.astype(x, hr.int32), hr.astype(x, bool)], signed(3, 4)),
    "concat": (lambda x, y: [hr.concat([x, y], axis=1), hr.stack([x[:, 0], y[:, 0]], axis=-1)], signed(3, 4),
               signed(3, 2)),
    "pad": (lambda x: hr._arrays.pad(x, [1, 0], [0, 2], value=3.5), signed(3, 4)),
    "pad_reflect": (lambda x: hr.pad_reflect(x, [1, 0], [0, 2]), signed(3, 4)),
    "pad, interior": (lambda x: hr._arrays.pad(x, [1, -1], [0, 2], 3.5, [2, 1]), signed(3, 4)),
    "pad_edge": (lambda x: hr.pad_edge(x, [1, 0], [0, 2]), signed(3, 4)),
    "pad_symmetric": (lambda x: hr.pad_symmetric(x, [4, 0], [0, 9]), signed(3, 4)),
    "pad_wrap": (lambda x: [hr.pad_wrap(x, [4, 0], [0, 9], a) for a in (False, True)], signed(3, 4)),
    "array_split": (
        lambda x: hr._arrays.array_split(x, 1, indices=[1, -1]) + hr._arrays.array_split(x, 0, 2),
        signed(3, 4),
    ),
    "tile": (lambda x: [hr.tile(x, [2, 1, 2]), hr.repeat(x, 2, axis=0), hr.roll(x, 1, axis=1)], signed(3, 4)),
    "tril": (lambda x: [hr.tril(x), hr.triu(x, 1)], signed(3, 4)),
    "take": (lambda x, i: [hr.take(x, i, axis=1), hr.take(x, i.reshape(2, 2), axis=0)], signed(3, 4), whole(4)),
    "take, modes": (
        lambda x, i: [hr.take(x, i, axis=1, mode="clip"), hr.take(x, i, axis=0, mode="drop")],
        signed(3, 4), whole(4, low=-5, high=6),
    ),
    "take_along_axis": (hr.take_along_axis, signed(3, 4), whole(3, 2)),
    "index": (
        lambda x, i, j: [x[i], hr.index([x, i, j], [0, 2]), hr.index([x, i[:, None], j[:2]], [1, 2])],
        signed(3, 4, 3), whole(4), whole(4),
    ),
    "index_put": (
        lambda x, y, i: [hr.index_put([x, y, i], axes=[1], mode=m) for m in ("set", "add", "max")],
        signed(3, 4), signed(3, 1), whole(4),
    ),
    "index_put, two": (lambda x, y, i: hr.index_put([x, y, i, i], axes=[0, 2], mode="add"), signed(3, 2, 4), signed(2),
                       whole(5)),
    "put_along_axis": (
        lambda x, i, v: [hr.put_along_axis(x, i, v, mode=m) for m in ("set", "add", "multiply", "subtract", "divide")],
        signed(3, 4), whole(3, 1), signed(3, 1),
    ),
    "gather_nd": (lambda x, i: [hr.gather_nd(x, i, 1), hr.gather_nd(x, i - 1, 1, "drop")], signed(2, 3, 4),
                  whole(2, 5, 1)),
    "scatter_nd": (
        lambda x, i, v: [hr.scatter_nd(x, i, v, 1, m, b) for m in ("add", "max", "divide") for b in ("error", "drop")],
        signed(2, 3), whole(2, 4, 1), real(2, 4),
    ),
    "index_add": (lambda x, i, v: hr.index_add(x, i, v, axis=1, alpha=0.5), signed(3, 4), whole(5), signed(3, 5)),
    "slice_update": (lambda x, v: hr.slice_update(x, v, [1, 0], [2, 2], [1, 2], mode="add"), signed(3, 4), signed(2, 2)),
    "gather_slices": (
        lambda x, i: hr.gather_slices(x, i, sizes=[2, 2], map=[0, 1], window=[1, 2]),
        signed(3, 4),
        whole(5, 2, low=-1, high=4),
    ),
    "scatter_slices": (
        lambda x, i, v: [hr.scatter_slices(x, i, v, mode=m, map=[0, 1], window=[1, 2]) for m in ("add", "max")],
        signed(3, 4),
        whole(5, 2, low=-1, high=4),
        signed(5, 2, 2),
    ),
    "generator_bits": (lambda x: hr.generator_bits(x, shape=[3, 5]), whole(3).astype(np.uint64)),
    "dynamic_slice": (lambda x, i: hr.dynamic_slice(x, i, [2, 2]), signed(3, 4), whole(2, low=-1, high=5)),
    "dynamic_slice_update": (hr.dynamic_slice_update, signed(3, 4), signed(2, 2), whole(2, low=-1, high=5)),
    "broadcast_arrays": (lambda x, y: hr.broadcast_arrays(x, y), signed(3, 4), signed(3, 1)),
    "meshgrid": (lambda x, y: [*hr.meshgrid(x, y), *hr.meshgrid(x, y, indexing="ij")], signed(3), signed(4)),
    "unstack": (lambda x: [*hr.unstack(x), *hr.unstack(x, axis=-1)], signed(3, 4)),
    "isin": (lambda x, v: [hr.isin(x, v), hr.isin(x, v, invert=True)], whole(3, 4), whole(2)),
    "searchsorted": (hr.searchsorted, np.sort(signed(5)), signed(3, 2)),
    "digitize": (hr.digitize, signed(3, 2), np.sort(signed(5))),
    "bincount": (lambda x, w: [hr.bincount(x, length=4), hr.bincount(x, w, length=3)], whole(6), signed(6)),
    "histogram": (lambda x: hr.histogram(x, bins=4, range=(-1, 1))[0], signed(9)),
    "nonzero": (lambda x: hr.nonzero(x, size=5), truth(2, 3)),
    "full": (lambda x: [hr.full((2, 2), x), hr.zeros_like(x) + x, hr.full_like(x, 3) * x], signed()),
    "fft": (lambda x: [fft.fft(x), fft.ifft(x, axis=0), fft.fft2(x), fft.hfft(x), fft.fftshift(x)], complex_(4, 6)),
    "rfft": (lambda x: [fft.rfft(x), fft.irfft(x, axis=0), fft.rfft2(x), fft.rfftn(x), fft.ihfft(x)], signed(4, 6)),
    "cholesky": (lambda x: [linalg.cholesky(x), linalg.cholesky(x, upper=True)], definite(3)),
    "solve": (lambda x, y: [linalg.solve(x, y), linalg.solve(x, y[:, 0])], definite(3), signed(3, 2)),
    "solve_triangular": (linalg.solve_triangular, definite(3), signed(3, 2)),
    "inv": (lambda x: [linalg.inv(x), linalg.det(x), *linalg.slogdet(x), linalg.pinv(x)], definite(3)),
    "factors": (lambda x: [*linalg.lu(x), *linalg.qr(x), *linalg.svd(x), linalg.svdvals(x)], signed(4, 3)),
    "eigh": (lambda x: [*linalg.eigh(x), linalg.eigvalsh(x), *linalg.eig(x)], definite(3)),
    "norms": (lambda x: [linalg.matrix_norm(x), linalg.norm(x, ord=1, axis=0), linalg.matrix_rank(x)], signed(3, 4)),
    "powers": (lambda x: [linalg.matrix_power(x, 3), linalg.multi_dot([x, x, x[0]])], signed(3, 3)),
    "split": (lambda k: [random.split(k, 3), random.fold_in(k, 5)], keys()),
    "samples": (
        lambda k: [random.uniform(k, (2, 3)), random.normal(k, (5,)), random.randint(k, (4,), 0, 9),
                   random.truncated_normal(k, (4,)), random.gumbel(k, (4,)), random.exponential(k, ()),
                   random.laplace(k, (4,)), random.random_bits(k, (4,))],
        keys(),
    ),
    "bernoulli": (lambda k, p: random.bernoulli(k, p, (3, 4)), keys(), real(4)),
    "categorical": (random.categorical, keys(), signed(3, 4)),
    "permutation": (random.permutation, keys(), signed(5, 2)),
}
# Products may be computed in another order; their results are close.
CLOSE = re.compile(
    "matmul|quantized_matmul|gather|qqmm|einsum|tensordot|vecdot|inner|kron|cov|attention|conv|fft|solve|inv|factors|"
    "eigh|norms|powers|cholesky|rnn|gru|lstm|interpolate|batch_norm|group_norm|local_response|normalize|avg_pool"
)


def leaves(result):
    return [leaf for _, leaf in hr.utils.tree_flatten(result)]


def check(name, actual, expected):
    """Results against those of all examples."""
    for y, *all_expected in zip(leaves(actual), *[leaves(e) for e in expected]):
        together = np.stack([np.asarray(e) for e in all_expected])
        assert y.shape == together.shape and y.dtype == all_expected[0].dtype
        if CLOSE.match(name):
            np.testing.assert_allclose(np.asarray(y), together, rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_array_equal(np.asarray(y), together)


def one(x, k):
    return hr.array(np.array(x[k]))  # a number of numpy would be a weak one


def check_case(name, fun, arrays, is_mapped, axis=0):
    """vmap over some of the arguments, whose examples stand along an axis."""
    args = [hr.array(np.moveaxis(x, 0, axis) if m else np.array(x[0])) for x, m in zip(arrays, is_mapped)]
    in_axes = tuple(axis if m else None for m in is_mapped)
    each = [[one(x, k if m else 0) for x, m in zip(arrays, is_mapped)] for k in range(EXAMPLES)]
    check(name, hr.vmap(fun, in_axes=in_axes)(*args), [fun(*e) for e in each])


@pytest.mark.parametrize("name", CASES)
def test_functions_agree_with_a_loop(name):
    fun, *arrays = CASES[name]
    for is_mapped in itertools.product([True, False], repeat=len(arrays)):
        if any(is_mapped):
            check_case(name, fun, arrays, is_mapped)
    check_case(name, fun, arrays, [True] * len(arrays), axis=-1)


# These have no arrays, results whose dims depend on values, or are no functions of arrays.
OTHERS = """eval device stats compile from_dlpack load save save_gguf save_safetensors savez Array dtype array asarray zeros ones
empty ones_like empty_like zeros_like full_like arange linspace eye compress unique non_max_suppression Graph Package
Session Value open_model open_package pi e inf nan newaxis stack diag triu repeat roll""".split()


def test_all_functions_have_a_case():
    words = " ".join(CASES).replace(",", "").split()
    dtypes = [name for name in NAMES if isinstance(getattr(hr, name), type(hr.float32))]
    names = {name for name in NAMES if hasattr(hr._arrays, name)} - set(dtypes) - set(transforms.__all__)
    assert sorted(names - set(words) - set(OTHERS)) == []


# ---- views and writes


def in_place(x, v):
    x[0] = x[1] * v
    x[1:, ::2] = hr.sin(x[0, ::2])
    return x


def onto_zeros(x):
    y = hr.zeros((4, 4), dtype=hr.float64)
    y[1:, 1:] = x[::-1]
    y[0] += y[1]
    return y, hr.flip(y, axis=0)[1:, ::-2].T


def in_parts(x):
    y = hr.arange(6.0, dtype=hr.float64)
    for i in range(3):
        y[i] = x[i, 0] * y[i + 1]
    return y[1:], y


VIEWS = {
    "in place": (in_place, signed(3, 4), signed()),
    "onto zeros": (onto_zeros, signed(3, 3)),
    "in parts": (in_parts, signed(3, 3)),
    "iteration": (lambda x: [row * 2 for row in x], signed(3, 4)),
    "complex parts": (lambda x: [hr.real(x) * 2, hr.imag(x.T)], complex_(2, 3)),
    "a chain": (lambda x, y: hr.tanh((x * 2 + y) / 3).sum(axis=0)[:, None] * y[0], signed(3, 4), signed(1, 4)),
    "empty": (lambda x: [x.sum(), hr.concat([x, x])], signed(0, 4)),
    "small numbers": (lambda x: [hr.astype(x, hr.int8)[1:] * 2, hr.astype(x, hr.bfloat16) + 1], signed(5)),
}


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_writes(name, axis):
    fun, *arrays = VIEWS[name]
    is_mapped = [True] * len(arrays)
    if all(x.ndim > 1 for x in arrays) or axis == 0:
        check_case(name, fun, arrays, is_mapped, axis)


def test_arguments_keep_their_values():
    x = hr.array(signed(3, 4))
    before = x.tolist()
    hr.vmap(in_place)(x, hr.array(signed()))
    hr.vmap(in_place, in_axes=(None, 0))(x[0], hr.array(signed()))
    assert x.tolist() == before


def test_many_intermediate_results():
    def f(x):
        for i in range(300):
            x = x * 1.5 - i
        return x

    x = signed(2)
    check("chain", hr.vmap(f)(hr.array(x)), [f(hr.array(e)) for e in x])


# ---- axes and trees


def test_axes_of_arguments_and_results():
    x = hr.array(rng.random((2, 3, 4)))
    assert hr.vmap(lambda r: r, in_axes=1)(x).shape == (3, 2, 4)
    assert hr.vmap(lambda r: r, in_axes=-1, out_axes=1)(x).shape == (2, 4, 3)
    assert hr.vmap(lambda r: r, in_axes=-1, out_axes=-1)(x).tolist() == x.tolist()
    assert hr.vmap(lambda r: (r, r[0]), in_axes=2, out_axes=(2, -1))(x)[0].tolist() == x.tolist()
    y, z = hr.vmap(lambda r, c: (r + c, c * 2), in_axes=(0, None), out_axes=(0, None))(x, hr.array(1.5))
    assert y.shape == x.shape and z.item() == 3


def test_trees_of_arguments_and_results():
    tree = {"a": hr.array(rng.random((3, 2))), "b": [hr.array(rng.random((2, 3))), 7, None]}
    axes = {"a": 0, "b": [1, None, 0]}
    result = hr.vmap(lambda t, k: {"s": t["a"] * k, "t": (t["b"][0] + t["b"][1], None)}, in_axes=(axes, None))(tree, 2)
    assert result["s"].tolist() == (tree["a"] * 2).tolist()
    assert result["t"][0].tolist() == (tree["b"][0].T + 7).tolist() and result["t"][1] is None
    assert hr.vmap(lambda t: t["a"])({"a": tree["a"]}).tolist() == tree["a"].tolist()
    assert hr.vmap(lambda x, *, y: x + y)(tree["a"], y=tree["a"]).tolist() == (2 * tree["a"]).tolist()


def test_results_that_do_not_depend_on_examples():
    x = hr.array(rng.random((3, 2)))
    assert hr.vmap(lambda r: (hr.arange(2), 1.5, True))(x)[0].tolist() == [[0, 1]] * 3
    assert hr.vmap(lambda r: 1.5)(x).tolist() == [1.5] * 3


def test_no_examples():
    y = hr.vmap(lambda r: (r * 2, r.sum(), hr.max_pool(r[None, None], [1, 1], [1, 1], [0, 0])))(hr.zeros((0, 2, 3)))
    assert [leaf.shape for leaf in y] == [(0, 2, 3), (0,), (0, 1, 1, 2, 3)]


# ---- nests


def test_vmap_of_vmap():
    x, y = signed(4), signed(2, 4)

    def f(a, b):
        c = hr.zeros((4,), dtype=hr.float64)
        c[1:] = a[1:] * b[:-1]
        return hr.softmax(c) @ b

    inner = hr.vmap(f, in_axes=(None, 0))
    actual = hr.vmap(inner, in_axes=(0, 1), out_axes=1)(hr.array(x), hr.array(y.swapaxes(0, 1)))
    expected = [[f(hr.array(a), hr.array(b)).item() for a, bs in zip(x, y)] for b in [] for bs in []] or [
        [f(hr.array(x[k]), hr.array(y[k, i])).item() for k in range(EXAMPLES)] for i in range(2)
    ]
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12)
    table = hr.vmap(lambda a: hr.vmap(lambda b: a * b + 1)(hr.array(x[:, 0])))(hr.array(x[:, 1]))
    np.testing.assert_array_equal(np.asarray(table), x[:, 1][:, None] * x[:, 0] + 1)


LOSSES = {
    "chain": lambda x: hr.tanh(x * 2 + x[::-1]).sum(),
    "product": lambda x: ((x @ x.T) ** 2).sum(),
    "softmax": lambda x: (hr.log_softmax(x, axis=1) * hr.cos(x)).mean(),
    "in place": lambda x: in_place(x, x[0, 0]).sum(),
    "onto zeros": lambda x: (onto_zeros(x)[0] ** 2).sum(),
    "norm": lambda x: (hr.layer_norm(x) * x).sum(),
    "index": lambda x: (x[[2, 0, 2]] ** 3).sum() + (hr.take(x, hr.array([0, 2]), axis=1) ** 2).sum(),
    "pool": lambda x: (hr.max_pool(x[None], [2, 2], [1, 1], [0, 0]) ** 2).sum(),
    "sort": lambda x: (hr.sort(x, axis=0) * hr.arange(3)).sum() + hr.max(x, axis=1).sum(),
    "parts": lambda x: hr.concat([x[:1] * 2, hr.stack([x[1], x[2]])]).var() + hr.cumulative_sum(x).prod(),
    "constant": lambda x: (hr.stop_gradient(x) * x).sum(),
    "conv": lambda x: (hr.conv(x[None, None], x[None, None, :2, :2], stride=[1, 1], before=[0, 0], after=[1, 1],
                               dilation=[1, 1]) ** 2).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    fun, x = LOSSES[name], hr.array(signed(3, 3))
    expected = np.stack([np.asarray(hr.grad(fun)(hr.array(e))) for e in np.asarray(x)])
    inside = hr.vmap(hr.grad(fun))(x)
    outside = hr.grad(lambda x: hr.vmap(fun)(x).sum())(x)
    np.testing.assert_allclose(np.asarray(inside), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(outside), expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_shared_arguments_are_sums():
    x, w = hr.array(signed(4)), hr.array(signed(4)[0])
    f = lambda x, w: hr.tanh(x * w).sum()  # noqa: E731
    one = hr.grad(lambda w: hr.vmap(f, in_axes=(0, None))(x, w).sum())(w)
    each = hr.vmap(hr.grad(f, argnums=1), in_axes=(0, None))(x, w)
    np.testing.assert_allclose(np.asarray(one), np.asarray(each).sum(axis=0), rtol=1e-12)


@hr.custom_function
def clipped(x):
    return hr.clip(x, -1, 1)


@clipped.vjp
def clipped_vjp(x, cotangent, output):
    return cotangent * x  # not the derivative


def test_functions_with_gradients_of_their_own():
    x = hr.array(signed(4))
    inside = hr.vmap(hr.grad(lambda r: clipped(r).sum()))(x)
    np.testing.assert_array_equal(np.asarray(inside), np.asarray(x))
    assert hr.vmap(clipped)(x).tolist() == hr.clip(x, -1, 1).tolist()
    again = hr.vmap(hr.grad(lambda r: hr.checkpoint(hr.sin)(r).sum()))(x)
    np.testing.assert_allclose(np.asarray(again), np.cos(np.asarray(x)), rtol=1e-12)
    outside = hr.grad(lambda x: hr.vmap(clipped)(x * 2).sum())(x)
    np.testing.assert_array_equal(np.asarray(outside), 4 * np.asarray(x))
    again = hr.grad(lambda x: hr.vmap(hr.checkpoint(hr.sin))(x).sum())(x)
    np.testing.assert_allclose(np.asarray(again), np.cos(np.asarray(x)), rtol=1e-12)


@hr.custom_function
def scaled(x, w):
    return x * w, hr.zeros(2)


@scaled.vjp
def scaled_vjp(primals, cotangents, outputs):
    x, w = primals
    return 3 * cotangents[0] * w, 5 * (cotangents[0] * x).sum(axis=0)


def test_gradients_of_their_own_by_shared_arguments():
    x, w = hr.array(signed(4, 2)), hr.array(signed(2)[0])

    def total(x, w):
        return (hr.vmap(lambda e, v: scaled(e, v)[0].sum() + scaled(e, v)[1].sum(), in_axes=(1, None))(x, w) ** 2).sum()

    def loop(x, w):
        return sum((scaled(x[:, i], w)[0].sum() + scaled(x[:, i], w)[1].sum()) ** 2 for i in range(4))

    for actual, expected in zip(hr.grad(total, argnums=(0, 1))(x, w), hr.grad(loop, argnums=(0, 1))(x, w)):
        np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-12)
    twice = hr.grad(lambda x: hr.vmap(hr.vmap(clipped))(x).sum())(x)
    np.testing.assert_array_equal(np.asarray(twice), np.asarray(x))
    second = hr.grad(lambda x: hr.grad(lambda x: (hr.vmap(clipped)(x) ** 2).sum())(x).sum())(x)
    third = hr.grad(lambda x: hr.grad(lambda x: (clipped(x) ** 2).sum())(x).sum())(x)
    np.testing.assert_allclose(np.asarray(second), np.asarray(third), rtol=1e-12)
    both = hr.grad(lambda x: hr.vmap(hr.grad(lambda e: (clipped(e) ** 2).sum()))(x).sum())(x)
    np.testing.assert_allclose(np.asarray(both), np.asarray(third), rtol=1e-12)


def test_functions_with_a_vmap_of_their_own():
    calls = []

    @hr.custom_function
    def f(x, tree):
        return hr.tanh(x) * tree["w"], x.sum()

    @f.vmap
    def f_vmap(inputs, axes):
        x, tree = inputs
        calls.append((x.shape, axes))
        return (hr.tanh(x) * tree["w"] + 1, x.sum(axis=1)), (0, 0)

    x, w = hr.array(signed(4)), hr.array(signed(4)[0])
    plain = hr.vmap(lambda x: (hr.tanh(x) * w, x.sum()))(x)
    y, z = hr.vmap(f, in_axes=(0, None))(x, {"w": w})
    assert calls == [((3, 4), (0, {"w": None}))] and y.tolist() == (plain[0] + 1).tolist()
    assert z.tolist() == plain[1].tolist() and f(x[0], {"w": w})[0].tolist() == plain[0][0].tolist()
    nested = hr.vmap(lambda v: hr.vmap(f, in_axes=(0, None))(x, {"w": v})[0])(hr.stack([w, w]))
    assert nested.shape == (2, 3, 4) and len(calls) == 2 and nested[1].tolist() == y.tolist()
    total = lambda x: f(x, {"w": w})[0].sum()  # noqa: E731
    expected = hr.vmap(hr.grad(lambda x: (hr.tanh(x) * w).sum()))(x)
    np.testing.assert_allclose(np.asarray(hr.vmap(hr.grad(total))(x)), np.asarray(expected), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(hr.grad(lambda x: hr.vmap(total)(x).sum())(x)), np.asarray(expected), rtol=1e-12)
    f.vjp(lambda primals, cotangents, outputs: (cotangents[0] * 7, None))
    assert hr.vmap(hr.grad(total))(x).tolist() == np.full((3, 4), 7.0).tolist()
    assert hr.grad(lambda x: hr.vmap(total)(x).sum())(x).tolist() == np.full((3, 4), 7.0).tolist()
    f.vmap(lambda inputs, axes: inputs[0])
    with pytest.raises(ValueError, match="expected outputs and their axes"):
        hr.vmap(f, in_axes=(0, None))(x, {"w": w})


def test_compiled():
    x, y = hr.array(signed(4)), hr.array(signed(4)[0])
    f = lambda r: hr.softmax(r * y) + hr.zeros(4)  # noqa: E731
    expected = hr.vmap(f)(x).tolist()
    compiled = hr.compile(hr.vmap(f))
    assert [compiled(x).tolist() for _ in range(3)] == [expected] * 3
    assert hr.vmap(hr.compile(f))(x).tolist() == expected
    gradient = hr.compile(hr.vmap(hr.grad(lambda r: (f(r) ** 2).sum())))
    assert [gradient(x).tolist() for _ in range(2)] == [hr.vmap(hr.grad(lambda r: (f(r) ** 2).sum()))(x).tolist()] * 2


def test_second_derivatives_and_jacobians():
    x = hr.array(signed(3)[0])
    f = lambda x: (hr.sin(x) * x[::-1]).sum()  # noqa: E731
    rows = hr.vmap(lambda v: hr.vjp(hr.grad(f), [x], [v])[1][0])(hr.eye(3, dtype=hr.float64))
    columns = hr.vmap(lambda v: hr.jvp(hr.grad(f), [x], [v])[1][0])(hr.eye(3, dtype=hr.float64))
    s, c = np.sin(np.asarray(x)), np.cos(np.asarray(x))
    expected = np.diag(-s * np.asarray(x)[::-1]) + np.diag(c)[:, ::-1] + np.diag(c)[::-1]
    np.testing.assert_allclose(np.asarray(rows), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(columns), expected.T, rtol=1e-12, atol=1e-12)
    both = hr.grad(lambda x: hr.vmap(hr.grad(lambda r: (r**3).sum()))(x).sum())(hr.array(signed(2)))
    assert both.shape == (EXAMPLES, 2)


# ---- errors


@pytest.mark.parametrize(
    "use",
    [float, int, bool, complex, list, str, np.asarray, memoryview, lambda x: x.item(), lambda x: x.tolist(),
     lambda x: [0, 1][x], lambda x: hr.nonzero(x[None])],
)  # fmt: skip
def test_values_can_not_be_read(use):
    with pytest.raises((ValueError, TypeError, BufferError), match="vmap|unsized|0-d"):
        hr.vmap(lambda x: use(x))(hr.arange(3))


def test_values_that_leave_the_function_are_errors():
    left, x = [], hr.arange(3)
    hr.vmap(lambda e: left.append(e + 1) or e)(x)
    for use in (float, lambda y: (y * 2).item(), lambda y: hr.vmap(lambda e: e + y)(x).tolist(), np.asarray):
        with pytest.raises(ValueError, match="vmap: a value that differs"):
            use(left[0])
    assert (x + 1).tolist() == [1, 2, 3]


def test_writes_to_captured_arrays():
    captured, x = hr.zeros(3), hr.arange(3.0)

    def write(e):
        captured[0] = e
        return e

    with pytest.raises(ValueError, match="vmap: copy writes values that differ between examples"):
        hr.vmap(write)(x)
    assert captured.tolist() == [0, 0, 0] and (x + 1).tolist() == [1, 2, 3]


ERRORS = {
    "axis 2, which is out of range for shape": lambda x: hr.vmap(lambda e: e, in_axes=2)(x),
    "axis -3, which is out of range": lambda x: hr.vmap(lambda e: e, in_axes=-3)(x),
    "out_axes has axis 2, which is out of range for a result of": lambda x: hr.vmap(lambda e: e, out_axes=2)(x),
    "argument 0 has 3, argument 1 has 2": lambda x: hr.vmap(lambda a, b: a, in_axes=(0, 1))(x, x),
    "argument 0 at 'w' has 3, argument 1 has 2": lambda x: hr.vmap(lambda a, b: a)({"w": x}, x.T),
    "no argument is mapped": lambda x: hr.vmap(lambda e: e, in_axes=None)(x),
    "in_axes has 2 entries": lambda x: hr.vmap(lambda e: e, in_axes=(0, 0))(x),
    "does not fit the structure": lambda x: hr.vmap(lambda e: e, in_axes=((0, 1),))(x),
    "out_axes has .0, 0., which does not fit": lambda x: hr.vmap(lambda e: e, out_axes=(0, 0))(x),
    "in_axes has 'a'": lambda x: hr.vmap(lambda e: e, in_axes="a")(x),
    "argument 1 is 2.5, expected an array": lambda x: hr.vmap(lambda e, f: e)(x, 2.5),
    "returned 'no', expected arrays": lambda x: hr.vmap(lambda e: "no")(x),
    "differs between examples": lambda x: hr.vmap(lambda e: e, out_axes=None)(x),
    "in_axes is {0: 1}": lambda x: hr.vmap(lambda e: e, in_axes={0: 1})(x),
    "shape ..: the|inner sizes|broadcast": lambda x: hr.vmap(lambda e: e + hr.zeros(5))(x),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message):
    x = hr.array(rng.random((3, 2)))
    with pytest.raises(ValueError, match=message):
        ERRORS[message](x)
    assert (x + 1).shape == (3, 2) and hr.vmap(lambda e: e * 2)(x).tolist() == (x * 2).tolist()


def test_errors_inside_end_the_vmap():
    with pytest.raises(ZeroDivisionError):
        hr.vmap(lambda e: 1 / 0)(hr.arange(3))
    with pytest.raises(TypeError, match="vmap: 3 is not a function"):
        hr.vmap(3)
    assert hr.grad(lambda x: x * x)(hr.array(3.0)).item() == 6
    with pytest.raises(IndexError):
        hr.eval(hr.vmap(lambda x, i: hr.take(x, i))(hr.zeros((3, 2)), hr.array([0, 1, 2])))
    hr.eval(hr.vmap(lambda x, i: hr.take(x, i))(hr.zeros((3, 2)), hr.array([0, 1, 1])))


@pytest.mark.parametrize("bad", [-3, 2])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_indices_out_of_range(axes, bad):
    x, i = hr.array(rng.random((3, 2))), hr.array([[0, 1], [1, 0], [1, 1]], dtype=hr.int32)
    x, i = x if axes[0] == 0 else x[0], i if axes[1] == 0 else i[0]
    take = hr.vmap(hr.take, in_axes=axes)
    hr.eval(take(x, i))
    result = take(x, i - i[..., :1] + bad)
    with pytest.raises(IndexError):
        hr.eval(result)
    assert hr.vmap(lambda x, i: x[i], in_axes=axes)(x, i).tolist() == take(x, i).tolist()
