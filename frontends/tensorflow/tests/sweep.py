"""What the sweep over map.def's operations is made of: numbers, comparisons, and a table of cases by operation."""

import collections
import os
import re

import headrace_tensorflow
import numpy as np
import tensorflow as tf
from table import host_arguments
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

DIMS = [(), (5,), (2, 3, 4), (0, 3), (1000,)]
PAIRS = [((3, 4), (3, 4)), ((), (3, 4)), ((3, 4), ()), ((2, 1, 4), (3, 1)), ((0, 3), (1, 3)), ((257,), (257,))]
TOLERANCES = {"float32": 2e-6, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2, "complex64": 4e-6,
              "complex128": 1e-12}  # fmt: skip
FLOATS = {tf.float16, tf.bfloat16, tf.float32, tf.float64}
EIGHT_BITS = {tf.dtypes.experimental.float8_e5m2, tf.dtypes.experimental.float8_e4m3fn}
COMPLEX = {tf.complex64, tf.complex128}
HOST = host_arguments()


def generator(*seed):
    return np.random.default_rng([sum(map(ord, str(part))) for part in seed])


def numbers(rng, dims, dtype, low=-4.0, high=4.0, special=False):
    """Random numbers of a dtype; with special the first ones are 0, -0, infinities and NaN."""
    if dtype == tf.bool:
        return rng.integers(0, 2, dims).astype(bool)
    if dtype in COMPLEX:
        return (rng.uniform(low, high, dims) + 1j * rng.uniform(low, high, dims)).astype(dtype.as_numpy_dtype)
    if dtype not in FLOATS | EIGHT_BITS:
        least = max(low * 8, dtype.min)
        return rng.integers(int(least), int(min(high * 8, dtype.max)), dims).astype(dtype.as_numpy_dtype)
    x = np.asarray(rng.uniform(low, high, dims))
    if special and x.size >= 5:
        x.reshape(-1)[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
    return x.astype(dtype.as_numpy_dtype)


def typed(value):
    """A tensor of an array: an operation whose type has a default would convert the array to it."""
    if isinstance(value, list) and value and all(isinstance(one, np.ndarray) for one in value):
        return [tf.constant(one) for one in value]
    return tf.constant(value) if isinstance(value, np.ndarray) else value


def operation(name):
    """The function of an operation; tf.raw_ops has all but XLA's."""
    return getattr(tf.raw_ops, name, None) or getattr(gen_xla_ops, re.sub("(?!^)([A-Z])", r"_\1", name).lower())


def run(device, name, arguments):
    with tf.device(device):
        arguments = {key: value if key in HOST[name] else typed(value) for key, value in arguments.items()}
        result = operation(name)(**arguments)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    if device != "CPU":
        for tensor in results:
            assert tensor.device.endswith("HEADRACE:0"), f"{name} ran on {tensor.device}"
    return [tensor.numpy() for tensor in results]


# ---- conformance: also functions and gradients (HEADRACE_SWEEP=all) ----------------------------------------------------

CASES_OF_MODES = 3  # of an operation and dtype: a trace takes longer than all else
seen = collections.Counter()
MODES = os.environ.get("HEADRACE_SWEEP") == "all"
PRODUCTS = re.compile("AddN|MatMul|Einsum|Conv|Block|Solve|Cholesky|Inverse|Determinant|Svd|Eig|Qr|Lu|Resize")
F32_INSIDE = {"ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "ResizeBilinear", "ResizeBicubic"}
# The gradients of the first ones depend on signs that are free, those of the last one have no kernel on the device.
NO_GRADIENT = {"Svd", "SelfAdjointEigV2", "Qr", "Lu", "ExtractImagePatches"}
# The device has no kernel of these gradients: TensorFlow computes them on the host where it may.
HOST_GRADIENT = {"SparseAdd", "SparseSlice"}
# TensorFlow folds ones_like of a number of these types to 0, on its CPU device, too, and finds no dims of the range.
WRONG_IN_FUNCTIONS = {("OnesLike", "uint32"), ("OnesLike", "uint64"), ("Range", "float16")}


def split(name, arguments):
    """Inputs of the device, and what a program knows when it is traced."""
    is_data = {
        key: key not in HOST[name] and isinstance(value[0] if isinstance(value, list) and value else value, (np.ndarray, np.generic, tf.Tensor))
        for key, value in arguments.items()
    }
    data = {key: [typed(x) for x in value] if isinstance(value, list) else tf.constant(value)
            for key, value in arguments.items() if is_data[key]}  # fmt: skip
    return data, {key: value for key, value in arguments.items() if not is_data[key]}


def check_functions(name, arguments, eager):
    """A function of the operation has the same bits, as a cluster and as a kernel; products are within 1e-5, and so are
    sums of many terms, which TensorFlow puts in another order."""
    for uses_clusters in (True, False):
        headrace_tensorflow.use_clusters(uses_clusters)
        with tf.device("HEADRACE"):
            data, known = split(name, arguments)
            function = tf.function(lambda data: operation(name)(**data, **known), autograph=False)  # noqa: B023
            result = function(data)
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        for want, have in zip(eager, results, strict=True):
            bound = max(1e-5, TOLERANCES.get(want.dtype.name, 0)) if PRODUCTS.search(name) else 0
            np.testing.assert_allclose(have.numpy(), want, rtol=bound, atol=bound, equal_nan=True, err_msg="function")
    headrace_tensorflow.use_clusters(True)


def gradients(device, name, arguments):
    """Of the sum of all results that are floats, by name; None: TensorFlow has no gradient for the arguments."""
    with tf.device(device):
        data, known = split(name, arguments)
        sources = {key: x for key, x in data.items() if not isinstance(x, list) and (x.dtype.is_floating or x.dtype.is_complex)}
        with tf.GradientTape() as tape:
            tape.watch(list(sources.values()))
            result = operation(name)(**data, **known)
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            total = sum(tf.reduce_sum(x) for x in results if x.dtype.is_floating or x.dtype.is_complex)
        found = tape.gradient(total, sources) if isinstance(total, tf.Tensor) else {}
        return {key: tf.convert_to_tensor(x).numpy() for key, x in found.items() if x is not None}


def check_gradients(name, arguments, bound):
    if name in NO_GRADIENT or "Grad" in name or "Backprop" in name:
        return
    try:
        want = gradients("CPU", name, arguments)
    except (LookupError, NotImplementedError, ValueError, TypeError, AttributeError, tf.errors.OpError):
        return
    tf.config.set_soft_device_placement(name in HOST_GRADIENT)
    try:
        have = gradients("HEADRACE", name, arguments)
    finally:
        tf.config.set_soft_device_placement(False)
    bound = max(bound, 2e-6 if name in F32_INSIDE else 0)
    assert have.keys() == want.keys()
    for key in want:
        wide = np.complex128 if want[key].dtype.kind == "c" else np.float64
        np.testing.assert_allclose(have[key].astype(wide), want[key].astype(wide), rtol=bound, atol=bound, equal_nan=True,
                                   err_msg=f"gradient of {key}")  # fmt: skip


def can_be_made(array):
    """TensorFlow makes no empty tensor of eight bits on a device."""
    return array.size > 0 or getattr(array.dtype, "name", "") not in {dtype.name for dtype in EIGHT_BITS}


def compare(name, arguments, tolerance=None, scale=1.0):
    """Both devices have the same results; tolerance None: that of the dtype, 0: the same bits but for NaN."""
    values = [one for value in arguments.values() for one in (value if isinstance(value, list) else [value])]
    if not all(can_be_made(value) for value in values if isinstance(value, np.ndarray)):
        return
    expected, actual = run("CPU", name, arguments), run("HEADRACE", name, arguments)
    assert len(expected) == len(actual)
    test = os.environ.get("PYTEST_CURRENT_TEST")
    seen[test] += 1
    if MODES and seen[test] <= CASES_OF_MODES:
        if (name, actual[0].dtype.name) not in WRONG_IN_FUNCTIONS:
            check_functions(name, arguments, actual)
        floats = [x.dtype.name for x in expected if x.dtype.name in TOLERANCES]
        check_gradients(name, arguments, TOLERANCES.get(floats[0] if floats else "", 0) * max(scale, 1) * 16)
    kept = {"FusedBatchNorm": 5 if arguments.get("is_training") else 3,
            "FusedBatchNormGrad": 3, "Svd": 1, "SelfAdjointEig": 1}.get(re.sub(r"V?[23]$", "", name))  # fmt: skip
    for want, have in zip(expected[:kept], actual[:kept], strict=True):  # other results are undefined
        assert have.dtype == want.dtype
        assert have.shape == want.shape
        bound = TOLERANCES.get(want.dtype.name, 0) * scale if tolerance is None else tolerance
        if bound == 0:
            np.testing.assert_array_equal(have, want)
            continue
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol=bound, atol=bound, equal_nan=True)


# ---- cases: lists of arguments of tf.raw_ops, by operation -----------------------------------------------------------

CASES = {}  # operation: (function of rng and dtype that yields arguments, scale of the tolerance)


def case(*names, scale=1.0):
    def add(function):
        for name in names:
            CASES[name] = function, scale
        return function

    return add


def unary(*names, argument="x", low=-4.0, high=4.0, special=True, scale=1.0):
    @case(*names, scale=scale)
    def _(rng, dtype):
        for dims in DIMS:
            yield {argument: numbers(rng, dims, dtype, low, high, special)}


def binary(*names, arguments=("x", "y"), low=-4.0, high=4.0, special=True, nonzero=False, scale=1.0, pairs=PAIRS):
    @case(*names, scale=scale)
    def _(rng, dtype):
        for left, right in pairs:
            y = numbers(rng, right, dtype, low, high)
            if nonzero:
                y = np.where(y == 0, np.ones_like(y), y)
            yield dict(zip(arguments, (numbers(rng, left, dtype, low, high, special), y), strict=True))
