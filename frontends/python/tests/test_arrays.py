"""Arrays against numpy: operators, functions, indices, text, exchange of memory, errors, who sees a write."""

import ast
import copy
import gc
import math
import operator
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
import headrace._arrays
import headrace._names
import headrace.fft
import headrace.linalg
import headrace.random

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split()


def close(actual, expected, dtype=True):
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    if dtype:
        assert str(actual.dtype) == str(expected.dtype)
    kind = expected.dtype.kind
    tolerance = {"float16": 4e-3, "float32": 4e-6, "complex64": 4e-6}.get(str(expected.dtype), 1e-12)
    if kind in "fc":
        np.testing.assert_allclose(np.asarray(actual), expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(np.asarray(actual), expected)


def sample(dtype, shape=(3, 4), seed=0):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3, 3, shape)
    if dtype == "bool":
        return values > 0
    if dtype.startswith("complex"):
        return (values + 1j * rng.uniform(-3, 3, shape)).astype(dtype)
    if dtype.startswith("uint"):
        values = abs(values)
    return values.astype(dtype)


# ---- creation and reading


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_come_back(dtype):
    x = sample(dtype)
    y = hr.array(x)
    assert y.dtype == np.dtype(dtype) and str(y.dtype) == dtype and y.shape == (3, 4)
    assert y.tolist() == x.tolist() and y[1, 2].item() == x[1, 2].item()
    np.testing.assert_array_equal(np.asarray(y), x)
    assert (y.ndim, y.size, y.itemsize, y.nbytes, len(y)) == (2, 12, x.itemsize, x.nbytes, 3)


def test_numbers_have_default_dtypes():
    cases = [(True, "bool"), (3, "int64"), (2**63, "uint64"), (1.5, "float32"), (1 + 2j, "complex64")]
    for value, dtype in cases:
        assert str(hr.array(value).dtype) == dtype and hr.array(value).item() == value
    assert str(hr.array([1, 2.5]).dtype) == "float32" and hr.array([[1, True], [0, 3]]).tolist() == [[1, 1], [0, 3]]
    assert str(hr.array([]).dtype) == "float32" and hr.array([[], []]).shape == (2, 0)
    assert hr.array([hr.array([1, 2]), np.array([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert str(hr.array([1, 2], dtype=float).dtype) == "float32" and str(hr.array(2, dtype="int8").dtype) == "int8"
    assert str(hr.array([1.5], dtype=np.float64).dtype) == "float64"
    assert str(hr.array([1.5], dtype=np.dtype("float16")).dtype) == "float16"


def test_creation_as_numpy():
    close(hr.zeros((2, 3)), np.zeros((2, 3), np.float32))
    close(hr.ones(3, dtype=hr.int8), np.ones(3, np.int8))
    close(hr.full((2, 2), 7), np.full((2, 2), 7))
    close(hr.full((), 2.5), np.full((), 2.5, np.float32))
    close(hr.zeros_like(hr.ones((2, 1), dtype="int16")), np.zeros((2, 1), np.int16))
    close(hr.full_like(hr.ones(2), 3), np.full(2, 3, np.float32))
    for arguments in [(5,), (2, 7), (7, 2, -2), (0, 1, 0.25), (3, 3)]:
        close(hr.arange(*arguments), np.arange(*arguments), dtype=False)
    assert str(hr.arange(3).dtype) == "int64" and str(hr.arange(3.0).dtype) == "float32"
    for arguments in [(0, 1), (2, 3, 5), (1, -1, 1), (0, 1, 0)]:
        close(hr.linspace(*arguments, dtype=hr.float64), np.linspace(*arguments))
    close(hr.linspace(0, 3, 4, endpoint=False), np.linspace(0, 3, 4, endpoint=False, dtype=np.float32))
    close(hr.eye(3), np.eye(3, dtype=np.float32))
    close(hr.eye(2, 4, dtype=hr.bool), np.eye(2, 4, dtype=bool))


def test_scalars():
    x = hr.array([[2.5]])
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5, True, 2.5)
    assert [10, 20, 30][hr.array(1)] == 20 and f"{hr.array(0.5):.2f}" == "0.50"
    assert not hr.array(0) and hr.array(float("nan")) and not hr.array(False)
    assert 3 in hr.array([1, 3]) and 4 not in hr.array([1, 3])
    assert [row.tolist() for row in hr.array([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


# ---- operators and functions

OPERATORS = "add sub mul truediv floordiv mod pow eq ne lt le gt ge and_ or_ xor lshift rshift matmul".split()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_operators(name, dtype):
    function = getattr(operator, name)
    integer = dtype.startswith("int")
    if name in ("and_", "or_", "xor", "lshift", "rshift") and not integer:
        pytest.skip("of integers")
    x, y = sample(dtype), abs(sample(dtype, seed=1)) + 1
    if name == "matmul":
        y = y.T
    if name == "pow":
        x = abs(x)

    def expect(a, b):
        result = function(a, b)
        return result.astype(np.float32) if integer and name == "truediv" else result

    close(function(hr.array(x), hr.array(y)), expect(x, y))
    if name != "matmul":
        number = 2 if integer else 2.5
        close(function(hr.array(y), number), expect(y, number))
        if name not in ("lshift", "rshift", "pow"):
            close(function(number, hr.array(y)), expect(number, y))


def test_weak_numbers_and_promotion():
    assert str((hr.array([1], dtype="int8") + 1).dtype) == "int8"
    assert str((hr.array([1], dtype="int8") + 1.5).dtype) == "float32"
    assert str((hr.array([1], dtype="float16") + 1.5).dtype) == "float16"
    assert str((hr.array([1], dtype="int8") + hr.array([1], dtype="uint8")).dtype) == "int16"
    assert str((hr.array([1.0]) + np.ones(1)).dtype) == "float64"
    assert isinstance(np.ones(2, np.float32) + hr.ones(2), hr.Array)
    assert (np.float32(2) * hr.ones(2)).tolist() == [2, 2]
    x = hr.array([200], dtype="uint8")
    assert (x + x).tolist() == [144] and (-hr.array([-128], dtype="int8")).tolist() == [-128]
    assert (~hr.array([True, False])).tolist() == [False, True] and (~hr.array([5])).tolist() == [-6]
    assert abs(hr.array([3 + 4j])).tolist() == [5] and (+hr.array([1])).tolist() == [1]


NUMPY_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "pow": "power", "permute_dims": "transpose", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "cumulative_sum": "cumsum", "cumulative_prod": "cumprod", "concat": "concatenate",
}  # fmt: skip
ONE = (
    "negative square sqrt abs sign floor ceil round trunc exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh "
    "asin acos atan asinh acosh atanh reciprocal isnan isinf isfinite signbit logical_not real imag conj bitwise_invert"
).split()
TWO = (
    "add subtract multiply divide floor_divide remainder fmod pow maximum minimum fmax fmin hypot copysign nextafter "
    "heaviside logaddexp atan2 equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor"
).split()
INTEGERS = "gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()
REDUCE = "sum prod max min any all mean var std argmax argmin".split()
ELSEWHERE = {  # tested below, or not numpy's
    "where", "clip", "lerp", "softmax", "log_softmax", "logsumexp", "sigmoid", "relu", "silu", "gelu", "softshrink",
    "erf", "erfinv", "lgamma", "digamma", "rsqrt", "sort", "argsort", "topk", "matmul", "conv", "attention",
    "conv_transpose", "layer_norm", "rms_norm", "max_pool", "avg_pool", "broadcast_to", "permute_dims", "expand_dims", "squeeze", "flip",
    "reshape", "astype", "concat", "stack", "pad", "pad_reflect", "pad_edge",
    "pad_symmetric", "pad_wrap", "array_split", "tile", "roll", "tril", "triu", "take",
    "take_along_axis", "cumulative_sum", "cumulative_prod", "broadcast_arrays", "meshgrid",
}  # fmt: skip
ELSEWHERE |= set("max_pool_places reduce_window as_strided conv_general".split())  # test_windows.py
ELSEWHERE |= set("rnn gru lstm rnn_cell gru_cell lstm_cell".split())  # test_recurrent.py
ELSEWHERE |= {"interpolate", "grid_sample"}  # test_interpolate.py
ELSEWHERE |= set("popcount leading_zeros hamming_distance bitcast".split())  # test_bits.py
ELSEWHERE |= set("gather_nd scatter_nd".split())  # test_scatter.py
ELSEWHERE |= set("band_part space_to_depth depth_to_space im2col col2im stencil".split())  # test_blocks.py
ELSEWHERE |= set("lp_pool max_unpool max_pool_gradient".split())  # test_pools.py
ELSEWHERE |= set("sparse_matmul sparse_to_dense".split())  # test_sparse.py
ELSEWHERE |= {"non_max_suppression"}  # test_suppression.py
SCALES = "quantize_linear dequantize_linear dynamic_quantize_linear matmul_integer conv_integer"
ELSEWHERE |= set(SCALES.split())  # test_integer_scales.py
NORMS = "batch_norm batch_norm_training group_norm local_response_norm normalize rotary"
ELSEWHERE |= set(NORMS.split())  # test_norms.py
ELSEWHERE |= {f"{name}_update" for name in "sgd adam adamax lion rmsprop adagrad adadelta".split()}  # test_updates.py
MATRIX, VECTOR, PLACES = sample("float64"), sample("float64", (6,), 1), np.array([[0, 2, 1, 0]] * 2)
RANDOM = {  # of a key: arguments behind it
    "split": (), "fold_in": (7,), "random_bits": ((2, 3),), "uniform": ((2, 3),), "normal": ((2, 3),),
    "truncated_normal": ((2, 3),), "bernoulli": (np.array(0.5), (2, 3)), "randint": ((2, 3), 0, 9), "gumbel": ((2, 3),),
    "exponential": ((2, 3),), "laplace": ((2, 3),), "categorical": (MATRIX,), "permutation": (MATRIX,),
}  # fmt: skip


def put_along(x, places, value):
    x = x.copy()
    np.put_along_axis(x, places, value, 0)
    return x


def updated(x, places, values):
    x = x.copy()
    x[places] = values
    return x


def added(x, places, values):
    x = x.copy()
    np.add.at(x, places, values)
    return x


BY_ARGUMENTS = {  # the call, and what numpy says
    "bincount": (lambda f: f(np.array([1, 3, 1]), length=5), np.bincount([1, 3, 1], minlength=5)),
    "compress": (lambda f: f(np.array([True, False, True]), MATRIX), MATRIX[[0, 2]]),
    "cross": (lambda f: f(MATRIX[:, :3], MATRIX[:, 1:]), np.cross(MATRIX[:, :3], MATRIX[:, 1:])),
    "diag": (lambda f: f(VECTOR, k=1), np.diag(VECTOR, 1)),
    "digitize": (lambda f: f(VECTOR, np.array([-1.0, 0, 1])), np.digitize(VECTOR, [-1, 0, 1])),
    "dynamic_slice": (lambda f: f(MATRIX, np.array([5, -1]), (2, 3)), MATRIX[1:, :3]),
    "dynamic_slice_update": (lambda f: f(VECTOR, np.ones(2), np.array([9])), updated(VECTOR, slice(4, 6), 1)),
    "einsum": (lambda f: f([MATRIX, MATRIX], "ij,kj->ik"), MATRIX @ MATRIX.T),
    "gather_slices": (
        lambda f: f(MATRIX, np.array([[0], [9]]), sizes=[2, 4], map=[0], window=[1, 2]),
        np.stack([MATRIX[:2], MATRIX[1:]]),
    ),
    "generator_bits": (
        lambda f: f(np.array([0x9ABCDEF012345678, 2**64 - 2], np.uint64), shape=[2])[1],
        np.uint32([0x78E50B5C, 0xD13F68CB]),
    ),
    "threefry": (  # random123's known answers
        lambda f: f(*np.array([[0x13198A2E], [0x03707344], [0x243F6A88], [0x85A308D3]], np.uint32))[1],
        np.uint32([0x483DF7A0]),
    ),
    "histogram": (lambda f: f(VECTOR, bins=4, low=-3, high=3), np.histogram(VECTOR, 4, (-3, 3))[0]),
    "index": (lambda f: f([MATRIX, np.array([2, 0])], [1]), MATRIX[:, [2, 0]]),
    "index_put": (lambda f: f([VECTOR, np.array([1.0, 2]), np.array([2, 0])], [0]), updated(VECTOR, [2, 0], [1, 2])),
    "index_add": (lambda f: f(VECTOR, np.array([2, 2]), np.ones(2)), added(VECTOR, [2, 2], 1)),
    "nll_loss": (lambda f: f(MATRIX, np.array([1, 0, 3])), -MATRIX[[0, 1, 2], [1, 0, 3]]),
    "masked_scatter": (lambda f: f(VECTOR, VECTOR == VECTOR, MATRIX.ravel()), MATRIX.ravel()[:6]),
    "moveaxis": (lambda f: f(MATRIX, 0, 1), MATRIX.T),
    "put_along_axis": (lambda f: f(MATRIX, PLACES, np.full((2, 4), 5.0), axis=0), put_along(MATRIX, PLACES, 5.0)),
    "quantile": (lambda f: f(MATRIX, axis=1, q=0.3), np.quantile(MATRIX, 0.3, 1)),
    "repeat": (lambda f: f(MATRIX, 2, 1), np.repeat(MATRIX, 2, 1)),
    "scatter_slices": (
        lambda f: f(VECTOR, np.array([[1], [9]]), np.ones((2, 2)), map=[0], window=[1]),
        updated(VECTOR, slice(1, 3), 1),
    ),
    "searchsorted": (lambda f: f(np.array([-1.0, 0, 1]), VECTOR), np.searchsorted([-1, 0, 1], VECTOR)),
    "slice_update": (lambda f: f(VECTOR, np.ones(2), [1], [2], [3]), updated(VECTOR, slice(1, 5, 3), 1)),
    "swapaxes": (lambda f: f(MATRIX, 0, 1), MATRIX.T),
    "unique": (lambda f: f(np.array([3, 1, 3]))[0], np.unique([3, 1, 3])),
}


FUNCTIONS = sorted(
    name
    for name, value in vars(hr._arrays).items()
    if type(value).__name__.startswith("builtin") and not name.startswith("_")
)
BY_HAND = set(
    "array asarray zeros ones empty full zeros_like ones_like empty_like full_like arange linspace eye eval device stats "
    "from_dlpack load open_model open_package save save_gguf save_safetensors savez stop_gradient".split()
)
QUANTIZED = set("dequantize from_fp8 gather_mm gather_qmm qqmm quantize quantized_matmul to_fp8".split())


ELEMENTWISE = {*ONE, *TWO, *INTEGERS}
IN_MODULES = {*hr.fft.__all__, *hr.linalg.__all__} - headrace._names.NAMES  # test_linalg.py
IN_MODULES |= QUANTIZED  # test_quantized.py
OTHERS = {*FUNCTIONS} - IN_MODULES - ELEMENTWISE - {*REDUCE, *ELSEWHERE, *BY_HAND, *RANDOM, *BY_ARGUMENTS, "key"}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_other_functions_of_arrays(name):
    """Their numbers are those of the core's tests; numpy's, if it has the function."""
    function = getattr(hr._arrays, name)
    head = function.__text_signature__ or ""
    count = sum("=" not in parameter for parameter in head.strip("()").split(","))
    arguments = [sample("float64", (3, 4), seed) for seed in range(count)]
    if name == "ldexp":
        arguments[1] = np.array(2)
    if name == "polygamma":
        arguments[0] = np.array(2.0)
    result = function(*arguments)
    numpy = getattr(np, name, None)
    results, expected = (result, numpy(*arguments) if numpy else None)
    if not isinstance(results, tuple):
        results, expected = (results,), (expected,)
    for actual, value in zip(results, expected or [None] * len(results)):
        assert actual.dtype is not None and len(actual.tolist() if actual.ndim else [0]) > 0
        if value is not None:
            close(actual, value)


@pytest.mark.parametrize("name", BY_ARGUMENTS)
def test_functions_with_arguments_of_their_own(name):
    call, expected = BY_ARGUMENTS[name]
    close(call(getattr(hr._arrays, name)), expected)


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_depend_on_the_key_alone(name):
    function = getattr(hr.random, name)
    first, again, other = (np.asarray(function(hr.random.key(seed), *RANDOM[name])) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == other.shape and (first != other).any()


def test_functions_are_documented():
    assert all(getattr(hr._arrays, name).__doc__ for name in FUNCTIONS) and {*BY_HAND} < {*FUNCTIONS}
    there = {name for name in FUNCTIONS if hasattr(hr, name)}
    assert {*hr.random.__all__} == {"key", "seed", "next_key", "threefry", *RANDOM, *hr.random._LATE}
    submodules = {*hr.random.__all__, *hr.fft.__all__, *hr.linalg.__all__}
    assert {*FUNCTIONS} <= there | submodules


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_array(name):
    x = np.array([[0.3, 0.9, 0.0], [0.5, 1.0, 0.25]], np.float32)
    if name == "acosh":
        x = x + 1
    if name in ("bitwise_invert",):
        x = np.array([1, -2, 7])
    if name in ("isnan", "isinf", "isfinite", "signbit"):
        x = np.array([1, np.nan, np.inf, -np.inf, -0.0], np.float32)
    with np.errstate(all="ignore"):
        close(getattr(hr, name)(x), getattr(np, NUMPY_NAMES.get(name, name))(x))


@pytest.mark.parametrize("name", TWO + INTEGERS)
def test_functions_of_two_arrays(name):
    x, y = sample("float64"), sample("float64", (4,), 1)  # broadcast
    if name in INTEGERS:
        x, y = abs(sample("int64")) + 1, abs(sample("int64", (4,), 1)) + 1
    if name == "pow":
        x = abs(x)
    close(getattr(hr, name)(hr.array(x), y), getattr(np, NUMPY_NAMES.get(name, name))(x, y))


@pytest.mark.parametrize("name", REDUCE)
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims):
    x = sample("float64", (2, 3, 4))
    close(getattr(hr, name)(x, axis=axis, keepdims=keepdims), getattr(np, name)(x, axis=axis, keepdims=keepdims))
    close(getattr(hr.array(x), name)(axis, keepdims), getattr(np, name)(x, axis=axis, keepdims=keepdims))
    if name not in ("argmax", "argmin"):
        close(getattr(hr, name)(x, axis=(0, 2)), getattr(np, name)(x, axis=(0, 2)))


def test_reductions_of_other_dtypes():
    for dtype in ("bool", "int8", "uint8", "int32"):
        x = sample(dtype)
        close(hr.sum(x), np.sum(x.astype(np.uint64 if dtype == "uint8" else np.int64)))
        close(hr.max(x, axis=0), np.max(x, axis=0))
    assert hr.sum(hr.zeros((0, 3))).item() == 0 and hr.sum(hr.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]
    assert str(hr.sum(hr.ones(3), dtype=hr.float64).dtype) == "float64"
    assert np.isnan(hr.max(hr.array([1.0, float("nan")])).item())


def test_shapes_and_copies():
    x = sample("float32", (2, 3, 4))
    y = hr.array(x)
    close(hr.permute_dims(y), np.transpose(x))
    close(hr.permute_dims(y, (1, 2, 0)), np.transpose(x, (1, 2, 0)))
    close(y.T, x.T)
    close(y.mT, np.swapaxes(x, 1, 2))
    close(hr.reshape(y.T, (4, -1)), np.reshape(x.T, (4, -1)))
    close(y.reshape(3, 8), x.reshape(3, 8))
    close(y.reshape((-1,)), x.reshape(-1))
    close(hr.expand_dims(y, (0, 2)), np.expand_dims(x, (0, 2)))
    close(hr.squeeze(y[:, :1], 1), np.squeeze(x[:, :1], 1))
    close(hr.flip(y, 1), np.flip(x, 1))
    close(hr.broadcast_to(y[0], (5, 3, 4)), np.broadcast_to(x[0], (5, 3, 4)))
    close(hr.concat([y, y.T.T], axis=1), np.concatenate([x, x], axis=1))
    close(hr.stack((y, y), axis=-1), np.stack((x, x), axis=-1))
    close(hr._arrays.pad(y, (1, 0, 2), (0, 3, 1), 7), np.pad(x, ((1, 0), (0, 3), (2, 1)), constant_values=7))
    close(hr.pad_edge(y, (0, 1, 1), (0, 0, 1)), np.pad(x, ((0, 0), (1, 0), (1, 1)), mode="edge"))
    close(hr.pad_reflect(y, (0, 1, 1), (0, 0, 1)), np.pad(x, ((0, 0), (1, 0), (1, 1)), mode="reflect"))
    close(hr.tile(y, (2, 1, 2)), np.tile(x, (2, 1, 2)))
    close(hr.roll(y, 2, 1), np.roll(x, 2, 1))
    close(hr.tril(y, -1), np.tril(x, -1))
    close(hr.triu(y), np.triu(x))
    close(hr.take(y, [1, 0, 1], axis=1), np.take(x, [1, 0, 1], axis=1))
    order = np.argsort(x, axis=1)
    close(hr.take_along_axis(y, order, axis=1), np.take_along_axis(x, order, axis=1))
    close(hr.sort(y, axis=1), np.sort(x, axis=1))
    close(hr.argsort(y, axis=1), order)
    close(hr.topk(y, 2, axis=0)[0], -np.sort(-x, axis=0)[:2])
    close(hr.cumulative_sum(y, axis=1), np.cumsum(x, axis=1))
    close(hr.cumulative_prod(y, axis=1), np.cumprod(x, axis=1))
    running = np.concatenate([np.zeros_like(x[:, :1]), np.cumsum(x, axis=1)], axis=1)
    close(hr.cumulative_sum(y, axis=1, include_initial=True), running)
    close(hr.take(y, [-4, 1, 9], axis=1, mode="clip"), np.take(x, [-4, 1, 9], axis=1, mode="clip"))
    close(hr.round(y, 1), np.round(x, 1))
    close(hr.round(hr.array([15, 25, -15]), -1), np.round([15, 25, -15], -1))
    close(hr.einsum([y, x[0]], "...i,ji->...j"), np.einsum("...i,ji->...j", x, x[0]))
    close(hr.astype(y, "int32"), x.astype("int32"))
    close(y.astype(hr.float64), x.astype("float64"))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_sorted_as_in_numpy(dtype):
    rng = np.random.default_rng(3)
    x = (rng.integers(-2, 3, (9, 7, 3)) + 1j * rng.integers(-2, 3, (9, 7, 3))).astype(dtype)
    x.real[rng.random(x.shape) < 0.1] = x.imag[rng.random(x.shape) < 0.1] = np.nan
    for axis in range(3):
        order = np.argsort(x, axis=axis, kind="stable")
        np.testing.assert_array_equal(np.asarray(hr.argsort(hr.array(x), axis=axis)), order)
        np.testing.assert_array_equal(np.asarray(hr.sort(hr.array(x), axis=axis)), np.sort(x, axis=axis))
    assert hr.sort(hr.array([1j, 2, 1, 1j]), descending=True).tolist() == [2, 1, 1j, 1j]
    assert hr.argsort(hr.array([1j, 2, 1, 1j]), descending=True).tolist() == [1, 2, 0, 3]
    assert hr.sort(hr.zeros((0,), dtype=getattr(hr, dtype))).shape == (0,)
    assert hr.median(hr.array([[3, 1j, 2 + 1j], [1, 1 - 2j, 0]]), axis=1).tolist() == [2 + 1j, 1 - 2j]
    assert np.isnan(hr.median(hr.array([1, complex(0, np.nan), 3])).item())
    with pytest.raises(ValueError, match="topk: x has dtype c64, expected a real one"):
        hr.topk(hr.array([1j]).astype(hr.complex64), 1)


def test_gradients_of_sorted_complex_numbers():
    x, weights = hr.array([2 + 1j, 1j, 2 - 1j, 5]), hr.array([1.0, 2, 3, 4])
    gradient = hr.grad(lambda x: (hr.real(hr.sort(x)) * weights).sum())(x)
    assert gradient.tolist() == [3, 1, 2, 4]


def test_functions_that_numpy_lacks():
    x = sample("float32")
    exp = np.exp(x - x.max(-1, keepdims=True))
    close(hr.softmax(x), exp / exp.sum(-1, keepdims=True))
    close(hr.log_softmax(x), np.log(exp / exp.sum(-1, keepdims=True)))
    close(hr.logsumexp(x, axis=0), np.log(np.exp(x).sum(0)))
    close(hr.sigmoid(x), 1 / (1 + np.exp(-x)))
    close(hr.relu(x), np.maximum(x, 0))
    close(hr.silu(x), x / (1 + np.exp(-x)))
    close(hr.softshrink(x, 0.5), np.sign(x) * np.maximum(abs(x) - np.float32(0.5), 0))
    close(hr.where(x > 0, x, 0), np.where(x > 0, x, np.float32(0)))
    close(hr.clip(x, -1, 1), np.clip(x, -1, 1))
    close(hr.lerp(x, x + 2, 0.25), x + np.float32(0.5))
    close(hr.rsqrt(abs(x)), 1 / np.sqrt(abs(x)))
    close(hr.layer_norm(x), (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), dtype=False)
    close(hr.rms_norm(x), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5), dtype=False)
    assert hr.erf(hr.array(0.5)).item() == pytest.approx(0.5204999, 1e-6)
    assert hr.erfinv(hr.array(0.5204999)).item() == pytest.approx(0.5, 1e-5)
    assert hr.gelu(hr.array(1.0)).item() == pytest.approx(0.8413447, 1e-6)
    assert hr.lgamma(hr.array(4.0)).item() == pytest.approx(np.log(6), 1e-6)
    assert hr.digamma(hr.array(1.0)).item() == pytest.approx(-0.5772157, 1e-5)
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    close(hr.max_pool(image, (2, 2), (2, 2), (0, 0)), image[:, :, 1::2, 1::2])
    close(hr.avg_pool(image, (2, 2), (2, 2), (0, 0)), np.array([[[[2.5, 4.5], [10.5, 12.5]]]], np.float32))
    summed = hr.conv(image, np.ones((1, 1, 3, 3), np.float32), None, (1, 1), (0, 0), (0, 0), (1, 1))
    close(summed, np.array([[[[45, 54], [81, 90]]]], np.float32))
    moved = hr.conv_transpose(image[:, :, :2, :2], np.ones((1, 1, 2, 2), np.float32), (2, 2), (1, 0), (0, 0), (1, 1))
    close(moved, np.array([[[[0, 0, 1, 1], [4, 4, 5, 5], [4, 4, 5, 5]]]], np.float32))
    q = sample("float32", (1, 1, 3, 4))
    scores = np.exp(q @ q.swapaxes(-1, -2) / 2)
    close(hr.attention(q, q, q), scores / scores.sum(-1, keepdims=True) @ q)


def test_losses():
    x, t, w = (sample("float64", (5, 4), seed) for seed in range(3))
    d, sigmoid, logs = x - t, 1 / (1 + np.exp(-x)), x - np.log(np.exp(x).sum(-1, keepdims=True))
    p, v = abs(t) / 4, np.maximum(w, 1e-6)
    entropy = -(p * np.log(sigmoid) + (1 - p) * np.log(1 - sigmoid))
    at, norms = np.array([3, -100, 0, 1, 2]), np.linalg.norm(x, axis=1) * np.linalg.norm(t, axis=1)
    kept = np.where(at < 0, 0, 0.9 * -logs[range(5), at * (at >= 0)] - 0.1 * logs.mean(-1))
    smooth = np.where(abs(d) < 0.7, d * d / 1.4, abs(d) - 0.35)

    def distance(y, power):
        return ((abs(x - y) ** power).sum(-1) + 1e-6) ** (1 / power)

    for call, losses in [
        (lambda r: hr.cross_entropy(x, at, None, -1, 0.1, r), kept),
        (lambda r: hr.cross_entropy(x, p, reduction=r), -(p * logs).sum(-1)),
        (lambda r: hr.binary_cross_entropy(x, p, reduction=r), entropy),
        (lambda r: hr.binary_cross_entropy(sigmoid, p, w, with_logits=False, reduction=r), entropy * w),
        (lambda r: hr.mse_loss(x, t, reduction=r), d * d),
        (lambda r: hr.l1_loss(x, t, reduction=r), abs(d)),
        (lambda r: hr.smooth_l1_loss(x, t, 0.7, reduction=r), smooth),
        (lambda r: hr.huber_loss(x, t, 0.7, reduction=r), smooth * 0.7),
        (lambda r: hr.kl_div_loss(x, t, reduction=r), (np.exp(t) * (t - x)).sum(-1)),
        (lambda r: hr.hinge_loss(x, np.sign(t), reduction=r), np.maximum(1 - x * np.sign(t), 0)),
        (lambda r: hr.log_cosh_loss(x, t, reduction=r), np.log(np.cosh(d))),
        (
            lambda r: hr.gaussian_nll_loss(x, t, w, full=True, reduction=r),
            (np.log(v) + d * d / v + np.log(2 * np.pi)) / 2,
        ),
        (lambda r: hr.triplet_loss(x, t, w, reduction=r), np.maximum(distance(t, 2) - distance(w, 2) + 1, 0)),
        (lambda r: hr.triplet_loss(x, t, w, p=3, reduction=r), np.maximum(distance(t, 3) - distance(w, 3) + 1, 0)),
        (lambda r: hr.margin_ranking_loss(x, t, np.sign(w), 0.3, r), np.maximum(0.3 - np.sign(w) * d, 0)),
        (lambda r: hr.cosine_similarity_loss(x, t, reduction=r), (x * t).sum(1) / norms),
    ]:
        close(call("none"), losses)
        close(call("sum"), losses.sum())
        close(call("mean"), losses.sum() / 4 if losses is kept else losses.mean())
    assert hr.binary_cross_entropy(hr.array([1000.0, -1000.0]), hr.array([1.0, 1.0]), reduction="none").tolist() == [
        0,
        1000,
    ]


def test_arguments_by_name():
    assert hr.sum(x=hr.ones((2, 3)), axis=1).tolist() == [3, 3]
    for call, text in [
        (lambda: hr.add(hr.ones(1)), "missing required argument 'y'"),
        (lambda: hr.add(1, 2, 3), r"takes at most 2 arguments \(3 given\)"),
        (lambda: hr.sum(hr.ones(1), axes=1), "unexpected keyword argument 'axes'"),
        (lambda: hr.sum(hr.ones(1), 0, axis=1), "multiple values for argument 'axis'"),
        (lambda: hr.add("a", 1), "expects arrays and numbers"),
        (lambda: hr.ones(2) + "a", "unsupported operand"),
        (lambda: hr.ones(2).sum(dtype="float31"), "is no dtype"),
        (lambda: len(hr.array(1)), "unsized"),
        (lambda: hr.array([1, "a"]), "neither an array nor a number"),
        (lambda: hash(hr.ones(1)), "unhashable"),
        (lambda: hr.Array(), "at least 1 positional"),
        (lambda: operator.index(hr.array(1.5)), "integer scalar"),
    ]:
        with pytest.raises(TypeError, match=text):
            call()
    assert hr.ones(2) != "a" and not (hr.ones(2) == None)  # noqa: E711


def test_errors_are_those_of_the_line():
    for call, error, text in [
        (lambda: hr.ones((2, 3)) + hr.ones(4), ValueError, "can't be broadcast"),
        (lambda: hr.ones((2, 3)) @ hr.ones(4), ValueError, "inner sizes differ: 3 != 4"),
        (lambda: hr.ones(3).reshape(2), ValueError, r"\[3\] can't become \[2\]"),
        (lambda: hr.sum(hr.ones(3), axis=1), ValueError, "axis 1 is out of range"),
        (lambda: bool(hr.ones(2)), ValueError, "truth value"),
        (lambda: hr.ones(2).item(), ValueError, "size 1"),
        (lambda: hr.zeros(-1), ValueError, "negative"),
        (lambda: hr.array([[1], [1, 2]]), ValueError, "differ in length"),
        (lambda: hr.ones(2)[2], IndexError, "index 2 is out of bounds for axis 0 with size 2"),
        (lambda: hr.ones(2)[0, 0], IndexError, "too many indices"),
        (lambda: hr.ones(2)["a"], IndexError, "valid indices"),
        (lambda: hr.ones(2)[::0], ValueError, "step cannot be zero"),
        (lambda: hr.array(2**64), OverflowError, "64 bits"),
        (lambda: hr.array([1.0]) + 2**70, OverflowError, "64 bits"),
        (lambda: hr.device("nothing"), RuntimeError, "nothing"),
        (lambda: hr.ones(2).nothing, AttributeError, "nothing"),
        (lambda: hr.nothing, AttributeError, "nothing"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert hr.ones(2).tolist() == [1, 1]


def test_deferred_errors_are_those_of_the_wait():
    y = hr.take(hr.ones(4), [1, 9])
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        y.tolist()
    assert hr.ones(2).tolist() == [1, 1]


# ---- indices, values, writes


def test_indices_as_numpy():
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    y = hr.array(x)
    keys = [0, -1, (1, 2), (1, 2, 3), slice(None), slice(None, None, -1), slice(5, 0, -2), (slice(1), slice(-2, None))]
    keys += [None, ..., (..., 0), (0, ...), (None, 0, None, ..., None), (slice(None), slice(0, 0)), (), np.int64(1)]
    keys += [(slice(None), 1, slice(-100, 100, 3)), slice(2**70), hr.array(1)]
    for key in keys:
        close(y[key], x[1 if isinstance(key, hr.Array) else key])
        close((y * 2)[key] + 1, (x * 2)[1 if isinstance(key, hr.Array) else key] + 1)
    close(y[[1, 0, 1]], x[[1, 0, 1]])
    close(y[np.array([[0], [1]])], x[np.array([[0], [1]])])
    rng = np.random.default_rng(3)
    for _ in range(200):
        ends = [[None if rng.random() < 0.3 else int(v) for v in rng.integers(-5, 6, 2)] for _ in range(3)]
        key = tuple(slice(*pair, int(rng.choice([-2, -1, 1, 3]))) for pair in ends)
        close(y[key], x[key])


def test_writes_as_numpy():
    rng = np.random.default_rng(5)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = hr.array(x)
    for _ in range(60):
        key = (slice(int(rng.integers(0, 3)), None, int(rng.choice([1, 2]))), int(rng.integers(0, 4)))
        value = float(rng.integers(0, 100))
        x[key] = value
        y[key] = value
        x[..., 0] = x[..., 1]
        y[..., 0] = y[..., 1]
        x[::-1] = x.copy()
        y[::-1] = y
    close(y, x)
    z = hr.zeros((2, 2), dtype=hr.int32)
    z[0] = [1.7, 2.2]
    z[1, 1] = np.float64(3)
    assert z.tolist() == [[1, 2], [0, 3]]
    with pytest.raises(ValueError, match="broadcast"):
        z[0] = [1, 2, 3]
    with pytest.raises(TypeError, match="deleted"):
        del z[0]


def test_views_see_no_later_writes():
    x = hr.arange(6).reshape(2, 3)
    row, same, total = x[0], hr.array(x), x + 0
    x[0, 0] = 100
    assert x.tolist() == [[100, 1, 2], [3, 4, 5]]
    assert row.tolist() == [0, 1, 2] and same.tolist() == total.tolist() == [[0, 1, 2], [3, 4, 5]]
    row[1] = 7
    assert row.tolist() == [0, 7, 2] and x[0, 1].item() == 1
    y = x
    x += 1
    assert y[0, 0].item() == 100 and x[0, 0].item() == 101
    wide = hr.broadcast_to(hr.zeros(2), (3, 2))
    wide[0, 0] = 1
    assert wide.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_writes_alone_are_in_place():
    x = hr.zeros(1 << 16)
    hr.eval(x)
    for i in range(100):
        x[i] = i
    assert hr.sum(x).item() == 4950


# ---- memory of others


@pytest.mark.skipif(os.environ.get("HEADRACE_DEVICE", "cpu") != "cpu", reason="other devices copy")
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_numpy_arrays_of_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    whole = np.array([[1, 2, 4], [0.5, 16, 8]], getattr(ml_dtypes, name))
    for x in (whole, whole.T, whole[:, ::2], whole[:0], np.array(whole[0, 1])):
        made = hr.array(x)
        assert made.dtype == getattr(hr, name) and made.shape == x.shape
        np.testing.assert_array_equal(np.asarray(made.astype("float32")), x.astype("float32"))
        assert hr.asarray(x, dtype="float32").tolist() == x.astype("float32").tolist()
    with pytest.raises(ValueError, match="int4|dtype 'a'"):
        hr.array(whole.astype("float32").astype(ml_dtypes.int4))


def test_numpy_memory_is_shared():
    a = np.arange(64, dtype=np.float32)[::-2]  # no whole allocation, backwards
    base = np.zeros(1 << 18, np.float32)
    x = hr.asarray(base)
    base[0] = 5
    assert x[0].item() == 5 and hr.asarray(a).tolist() == a.tolist()
    assert hr.array(base)[0].item() == 5
    x[0] = 7  # a copy
    assert base[0] == 5 and x[0].item() == 7
    y = hr.array(base)
    base[0] = 6
    assert y[0].item() == 5
    a = np.ones(1 << 16, np.float32)
    results = [hr.ones(1 << 16) + a, hr.sqrt(a), hr.array([a, a])[1], hr.concat([a]), hr.array(a, dtype=hr.float64)]
    a[:] = 9
    assert all(z[5].item() == value for z, value in zip(results, [2, 1, 1, 1, 1]))
    with pytest.raises(ValueError, match="can't be shared"):
        hr.asarray(np.zeros(9, np.float32)[1:], copy=False)
    view = np.asarray(hr.arange(4))
    assert not view.flags.writeable and view.tolist() == [0, 1, 2, 3]
    z = hr.zeros(4)
    seen = np.asarray(z)
    z[0] = 1
    assert seen[0] == 0 and z[0].item() == 1
    assert np.array(z).flags.writeable and np.asarray(z, dtype=np.float64).dtype == np.float64
    assert memoryview(hr.ones((2, 3)).T).strides == (4, 12)
    assert bytes(memoryview(hr.arange(2, dtype="uint8"))) == b"\0\1"
    assert np.asarray(hr.zeros((0, 3))).shape == (0, 3)
    assert np.asarray(hr.ones(2, dtype=hr.bfloat16)).dtype == np.float32
    assert hr.asarray(bytearray(b"ab")).tolist() == [97, 98]


def test_owners_of_shared_memory_are_released():
    base = np.zeros(1 << 16, np.float32)
    before = sys.getrefcount(base)
    x = hr.asarray(base)
    y = x + 1
    del x
    assert y[0].item() == 1
    del y
    hr.eval()
    hr.ones(1)
    assert sys.getrefcount(base) == before


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack(dtype):
    x = sample(dtype)
    np.testing.assert_array_equal(np.from_dlpack(hr.array(x)), x)
    assert hr.from_dlpack(x).tolist() == x.tolist()
    assert hr.from_dlpack(hr.array(x).T).tolist() == x.T.tolist()
    assert hr.ones(1).__dlpack_device__() == (1, 0)


def test_torch_exchanges_memory():
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    assert hr.from_dlpack(x).T.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.from_dlpack(hr.arange(3, dtype=hr.float32)).tolist() == [0, 1, 2]


# ---- copies and pickles

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
COPIES = [copy.copy, copy.deepcopy, *(lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in PROTOCOLS)]
ALL_DTYPES = [name for name, value in vars(headrace._arrays).items() if isinstance(value, hr.dtype)]


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_copies_and_pickles(dtype):
    wide = "complex64" if dtype.startswith("complex") else "float32"
    values = np.array([[1, 0, 2], [4, 8, 0.5]]).astype(wide)
    for x in (hr.array(values), hr.array(values).T, hr.array(values)[::-1, ::2], hr.array(1.0), hr.zeros((0, 3))):
        x = x.astype(dtype)
        for make in COPIES:
            y = make(x)
            assert y.dtype == x.dtype and y.shape == x.shape
            assert y.astype(wide).tolist() == x.astype(wide).tolist()


def test_copies_are_values():
    x = hr.arange(4) * 1.5
    x[0] = float("nan")
    tree = {"a": [x, x], "f": hr.float32, "bits": hr.array([-0.0, float("inf")], dtype=hr.bfloat16)}
    for make in COPIES[1:]:  # copy.copy shares the list
        found = make(tree)
        found["a"][0][1] = 7
        assert x[1].item() == 1.5 and math.isnan(found["a"][1][0].item()) and found["f"] is hr.float32
        assert math.copysign(1, found["bits"][0].item()) == -1
    lazy = pickle.loads(pickle.dumps(hr.ones(3) + 1))
    assert lazy.tolist() == [2, 2, 2]


def test_damaged_pickles():
    function, (elements, dtype, shape) = hr.arange(6, dtype=hr.int16).__reduce__()
    for arguments in (
        (elements[1:], dtype, shape), (elements, dtype, (7,)), (elements, dtype, (-6,)), (elements, hr.int32, shape),
        (elements, dtype, (2**62, 2**62)), (elements, dtype, (1,) * 17), (elements, None, shape), (elements, dtype, 6),
        ("x", dtype, shape), (elements, "int17", shape), (elements, dtype, ("a",)),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            function(*arguments)

    @hr.compile
    def dump(x):
        pickle.dumps(x)

    with pytest.raises(ValueError):
        dump(hr.ones(2))


def test_arrays_go_to_another_process():
    code = "import pickle, sys; x = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write(pickle.dumps(x * 2))"
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(hr.arange(5)), capture_output=True, check=True)
    assert pickle.loads(found.stdout).tolist() == [0, 2, 4, 6, 8]


# ---- text


def test_text_is_that_of_numpy():
    rng = np.random.default_rng(7)
    for k in range(300):
        dtype = rng.choice(["float32", "float64", "float16", "int64", "int8", "bool", "complex64"])
        shape = tuple(int(rng.choice([1, 2, 3, 9])) for _ in range(rng.integers(0, 4)))
        values = rng.standard_normal(shape) * 10.0 ** rng.choice([0, 0, 1, 3, -5])
        x = np.asarray(np.round(values, 1) if k % 3 == 0 else values).astype(dtype)
        if x.dtype.kind == "f" and x.ndim and k % 5 == 0:
            x.flat[0] = rng.choice([np.nan, np.inf, -np.inf])
        assert repr(hr.array(x)) == repr(x)
        assert not x.ndim or str(hr.array(x)) == str(x)
    for x in (np.arange(2000), np.zeros((50, 50), np.float32), np.zeros((0, 3)), np.zeros(0, np.float32)):
        assert repr(hr.array(x)).replace(" ", "") == repr(x).replace(" ", "") and str(hr.array(x)) == str(x)
    assert str(hr.array(0.1)) == "0.1" and str(hr.float32) == "float32" and repr(hr.float32) == "headrace.float32"
    assert pickle.loads(pickle.dumps(hr.float32)) is hr.float32


# ---- life, threads, import


def test_dropped_arrays_leave_nothing():
    def work(count):
        x = hr.ones(4)
        for _ in range(count):
            y = x + 1
            y[0] = 2
            z = [y[1:], y.T]
            del y, z
        hr.eval()
        for call in (lambda: x + hr.ones(3), lambda: x[9], lambda: hr.add(x)):
            for _ in range(100):
                with pytest.raises((ValueError, IndexError, TypeError)):
                    call()

    def memory():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    work(20000)
    blocks, before = sys.getallocatedblocks(), memory()
    work(100000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200 and memory() - before < 16 << 20


def test_threads():
    results = {}

    def work(number):
        x = hr.full((1000,), number, dtype=hr.float64)
        for _ in range(200):
            x = x + 1
        results[number] = hr.sum(x).item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == {number: (number + 200) * 1000.0 for number in range(8)}


def test_the_interpreter_runs_while_an_array_is_awaited():
    x = hr.ones((1000, 1000))
    for _ in range(20):
        x = x @ x / 1000
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    hr.eval(x)
    stop.set()
    thread.join()
    assert x[0, 0].item() == pytest.approx(1, 1e-3) and ticks


def run(code, *flags):
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    code = "import time, sys; t = time.perf_counter(); import headrace as hr; hr.add; t = time.perf_counter() - t; "
    code += "hr.ones(3).tolist(); print(t, 'torch' in sys.modules, 'numpy' in sys.modules)"
    seconds, *heavy = min((run(code).split() for _ in range(3)), key=lambda words: float(words[0]))
    assert heavy == ["False", "False"] and float(seconds) < 0.2  # 0.02 on a quiet machine
    assert run("import headrace, sys; print('headrace._arrays' in sys.modules)").strip() == "False"


def test_torch_does_not_load_arrays():
    pytest.importorskip("torch")
    code = "import torch, sys; torch.ones(2); print('headrace._arrays' in sys.modules)"
    assert run(code).strip() == "False"


def test_one_library_serves_arrays_and_torch():
    pytest.importorskip("torch")
    code = """
import torch, headrace as hr, headrace.torch
x = hr.arange(4, dtype=hr.float32) + 1
y = torch.arange(4, device="headrace") + 1
print(x.tolist() == y.tolist(), len({line.split()[-1] for line in open("/proc/self/maps") if "libheadrace.so" in line}))
"""
    assert run(code).split() == ["True", "1"]


def test_development_mode_finds_nothing():
    code = "import headrace as hr; x = hr.ones((3, 3)); print((x @ x).tolist(), repr(x), x[1:], hr.topk(x, 2)); del x"
    assert "3.0" in run(code, "-X", "dev", "-W", "error")


def test_interrupts_end_a_wait():
    code = """
import headrace as hr, signal, time
x = hr.ones((1500, 1500))
for _ in range(400):
    x = x @ x / 1500
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("late")))
signal.setitimer(signal.ITIMER_REAL, 0.3)
begin = time.perf_counter()
try:
    hr.eval(x)
    print("ended")
except TimeoutError as error:
    print(error, hr.ones(2).tolist())
"""
    assert run(code).strip() in ("late [1.0, 1.0]", "ended")


def test_interrupts_end_a_loop_that_records_faster_than_the_device_runs():
    code = """
import os
os.environ["HEADRACE_PENDING_OPS"] = "32"
import headrace as hr, signal, threading, time
x = hr.ones((1500, 1500))
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("late")))
signal.setitimer(signal.ITIMER_REAL, 0.5)
turns = []
def take_turns():
    while not turns or turns[-1] < begin + 0.4:
        turns.append(time.perf_counter())
        time.sleep(0.01)
begin = time.perf_counter()
other = threading.Thread(target=take_turns)
other.start()
try:
    while True:
        x = x @ x / 1500
except TimeoutError as error:
    other.join()
    waits = [b - a for a, b in zip(turns, turns[1:])]
    print(error, hr.ones(2).tolist(), len(turns) > 3 and max(waits) < 5)
"""
    assert run(code).strip() == "late [1.0, 1.0] True"


def test_short_programs_of_threads_and_signals():
    """eval of short programs keeps the interpreter's lock: threads take turns, and a signal ends the loop."""
    code = """
import headrace as hr, signal, threading
results, is_over = {}, threading.Event()
def work(number):
    x, turns = hr.full(4, number, dtype=hr.float32), 0
    while not is_over.is_set():
        y = x * turns + number
        hr.eval(y)
        if y.tolist() != [number * turns + number] * 4:
            break
        turns = (turns + 1) % 1000
    results[number] = is_over.is_set()
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("late")))
signal.setitimer(signal.ITIMER_REAL, 0.5)
x = hr.ones(4)
try:
    while True:
        hr.eval(x + 1)
except TimeoutError as error:
    is_over.set()
    for thread in threads:
        thread.join()
    print(error, results == {0: True, 1: True, 2: True}, (x + 1).tolist())
"""
    assert run(code).strip() == "late True [2.0, 2.0, 2.0, 2.0]"


def test_a_second_interpreter_of_the_process_is_refused():
    """In a process of its own, because a second interpreter changes what PyGILState_Check says from then on."""
    pytest.importorskip("_xxsubinterpreters")
    code = """
import _xxsubinterpreters as interpreters
import headrace as hr
print(hr.ones(1).tolist())
try:
    interpreters.run_string(interpreters.create(), "import headrace as hr; hr.ones(1)")
except interpreters.RunFailedError as error:
    print("refused" if "interpreter" in str(error) else error)
"""
    assert run(code).split() == ["[1.0]", "refused"]


def test_a_second_import_gives_the_same_types():
    code = """
import sys
import headrace as hr
x = hr.ones(2)
for name in [name for name in sys.modules if name.startswith("headrace")]:
    del sys.modules[name]
import headrace as again
print(again.Array is hr.Array, (x + again.ones(2)).tolist())
"""
    assert run(code).strip() == "True [2.0, 2.0]"


STUBS = [("__init__", hr, "conv"), ("random", hr.random, "key"), ("fft", hr.fft, "fft2"), ("linalg", hr.linalg, "svd")]


@pytest.mark.parametrize(("file", "module", "some"), STUBS)
def test_stubs_are_python_and_name_what_there_is(file, module, some):
    stub = ast.parse((Path(__file__).parents[1] / "headrace" / f"{file}.pyi").read_text())
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert some in functions
    assert not [name for name in functions if not callable(getattr(module, name, None))]


def test_a_program_that_ends_at_once_ends_well():
    """The libraries are being opened meanwhile."""
    program = "import headrace as hr; x = hr.empty(0)"
    for _ in range(8):
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("dtype", [d for d in DTYPES if "float" not in d and "complex" not in d])
def test_moments_of_integers_are_floating(dtype):
    x = np.array([[1, 0, 1, 1], [0, 1, 1, 0]]).astype(dtype)
    y = hr.array(x)
    for function in ("var", "std"):
        for axis in (None, 0, -1):
            expected = getattr(np, function)(x, axis=axis).astype(np.float32)
            close(getattr(hr, function)(y, axis), expected)
            close(getattr(hr, function)(y.T, axis, correction=1), getattr(np, function)(x.T, axis=axis, ddof=1).astype(np.float32))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "float16"])
def test_running_sums_of_lengths_that_never_repeat(name, dtype):
    """They have as many steps as the length has bits, so other lengths need other plans."""
    draw = np.random.default_rng(0)
    lengths = sorted(draw.choice(np.arange(65, 5000), 60, replace=False).tolist())
    for length in [*lengths, *lengths[::-7]]:
        is_sum = name == "cumulative_sum"
        x = (draw.integers(0, 2, length) if is_sum else draw.choice([-1, 1], length)).astype(dtype)
        x = x / np.float16(64) if is_sum and dtype == "float16" else x
        function = np.cumsum if is_sum else np.cumprod
        result = np.asarray(getattr(hr._arrays, name)(hr.asarray(x), 0, False, getattr(hr, dtype)))
        expected = function(x, dtype="int64" if dtype != "float16" else "float64").astype(dtype)
        result, expected = result.astype("float64"), expected.astype("float64")
        np.testing.assert_allclose(result, expected, rtol=0.004, err_msg=str(length))


COMPLEX = [
    [[1 + 2j, 3 - 1j, 3 + 4j, -2 + 9j], [0j, 0j, -0.0 + 1j, 5 - 5j], [2j, 2j, 2j, 2j]],
    [[complex("nan"), 1, complex(2, np.nan), 9], [complex(np.inf, 1), complex(np.inf, 2), -np.inf, 1j], [1, 2, 3, 4]],
]


@pytest.mark.filterwarnings("ignore:All-NaN|invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "nanmax", "nanmin", "ptp"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_best_complex_numbers_are_numpys(name, dtype):
    x = np.array(COMPLEX, dtype)
    y = hr.array(x)
    ours, numpys = getattr(hr, name), getattr(np, name)
    for axis in (None, 0, 1, -1):
        for keepdims in (False, True):
            for a, b in ((y, x), (y.T[::-1], x.T[::-1]), (y[0], x[0]), (y[1, 0], x[1, 0])):
                if axis is None or -b.ndim <= axis < b.ndim:
                    actual = np.asarray(ours(a, axis, keepdims))
                    expected = np.asarray(numpys(b, axis, keepdims=keepdims))
                    assert actual.dtype == expected.dtype and actual.shape == expected.shape
                    np.testing.assert_array_equal(actual, expected)
    if not name.startswith("arg"):
        np.testing.assert_array_equal(np.asarray(ours(y[0], (0, 1))), numpys(x[0], (0, 1)))
        np.testing.assert_array_equal(np.asarray(ours(y, (0, 2), True)), numpys(x, (0, 2), keepdims=True))
        np.testing.assert_array_equal(np.asarray(ours(y[:, :, :1], ())), numpys(x[:, :, :1], ()))
    assert ours(hr.zeros((0, 3), dtype), 1, True).shape == (0, 1)
    assert ours(hr.zeros((0, 0), dtype), 0).shape == (0,)
    for shape, axis in (((2, 0), 1), ((0, 3), 0), ((0, 3), None)):
        with pytest.raises(ValueError, match=rf"^{name}: no elements to reduce in dims \[{shape[0]},{shape[1]}\]$"):
            ours(hr.zeros(shape, dtype), axis)


def test_the_best_complex_numbers_have_gradients_and_vmap():
    x = np.array(COMPLEX[0], "complex64")
    gradient = hr.grad(lambda x: hr.real(hr.max(hr.complex(x, x * x))))(hr.array([1.0, 3.0, 2.0]))
    assert gradient.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(np.asarray(hr.vmap(hr.max)(hr.array(x))), x.max(1))
    np.testing.assert_array_equal(np.asarray(hr.vmap(hr.argmin)(hr.array(x))), x.argmin(1))
    for name, expected in (("nanmax", [0, 0, 1]), ("nanmin", [1, 0, 0]), ("ptp", [-1, 0, 1])):
        best = getattr(hr, name)
        gradient = hr.grad(lambda x: hr.real(best(hr.complex(x, x * x))))(hr.array([1.0, 2.0, 3.0]))  # noqa: B023
        assert gradient.tolist() == expected
        np.testing.assert_array_equal(np.asarray(hr.vmap(best)(hr.array(x))), getattr(np, name)(x, 1))


def test_the_best_complex_numbers_without_nan():
    nan, inf = np.nan, np.inf
    x = np.array([
        [complex(nan, 1), complex(2, nan), complex(nan, 3)], [complex(3, nan), complex(-inf, -inf), -inf],
        [complex(inf, inf), complex(nan, 1), complex(inf, 5)], [1 + 5j, 1 - 7j, complex(0, nan)],
    ])  # fmt: skip
    for axis, numbers in ((1, x), (0, x[1:]), (None, x)):
        for ours, numpys in ((hr.nanmax, np.nanmax), (hr.nanmin, np.nanmin)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                np.testing.assert_array_equal(np.asarray(ours(hr.array(numbers), axis)), numpys(numbers, axis))
