"""Each operation of map.def in each of its dtypes against TensorFlow's CPU device."""

import itertools
import re

import headrace_tensorflow
import numpy as np
import pytest
import tensorflow as tf
from sweep import CASES, COMPLEX, DIMS, EIGHT_BITS, FLOATS, PAIRS, TOLERANCES, binary, case, compare, generator, numbers, run, unary
from table import rows

import sweep_more  # noqa: F401 (registers cases)
import sweep_selected  # noqa: F401
import sweep_sparse  # noqa: F401

unary("Neg", "Abs", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Log", "Sigmoid", "Tanh", "Erf", "Erfc",
      "Ceil", "Floor", "Rint", "Round", "IsNan", "IsInf", "IsFinite", "Invert", "Atan", "Asinh", scale=2)  # fmt: skip
unary("Exp", "Expm1", "Sin", "Cos", "Sinh", "Cosh", scale=4)
unary("Tan", scale=16)
unary("Asin", "Acos", "Atanh", low=-0.99, high=0.99, scale=2)
unary("Acosh", low=1.0, high=9.0, scale=2)
unary("Log1p", low=-0.9, scale=2)
unary("Lgamma", "Digamma", low=0.1, special=False, scale=16)
unary("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu", argument="features", high=12.0, scale=2)
unary("Snapshot", argument="input")
unary("ZerosLike", "OnesLike")
unary("L2Loss", argument="t", special=False, scale=8)
binary("AddV2", "Add", "Sub", "Mul", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
       "SquaredDifference", scale=2)  # fmt: skip
binary("Maximum", "Minimum")
binary("RealDiv", "DivNoNan", "MulNoNan", "Atan2", scale=2)
binary("Xdivy", scale=2, special=False)
binary("FloorDiv", "FloorMod", nonzero=True, special=False)
binary("Pow", low=0.1, special=False, scale=4)
binary("Xlogy", "Xlog1py", low=0.0, special=False, scale=2)
binary("BitwiseAnd", "BitwiseOr", "BitwiseXor")
SAME = [(dims, dims) for dims in DIMS]
binary("ReluGrad", "Relu6Grad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad", arguments=("gradients", "features"),
       pairs=SAME, special=False, scale=4)  # fmt: skip
binary("EluGrad", "SeluGrad", arguments=("gradients", "outputs"), pairs=SAME, special=False, scale=4)
binary("TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad", arguments=("y", "dy"), low=0.1,
       pairs=SAME, special=False, scale=8)  # fmt: skip


@case("LogicalAnd", "LogicalOr")
def _(rng, dtype):
    for left, right in PAIRS:
        yield {"x": numbers(rng, left, tf.bool), "y": numbers(rng, right, tf.bool)}


@case("LogicalNot")
def _(rng, dtype):
    yield {"x": numbers(rng, (3, 4), tf.bool)}


@case("AddN", scale=4)
def _(rng, dtype):
    for count, dims in [(1, (3,)), (2, (2, 3)), (12, (4,)), (3, (0, 2)), (90, (2,))]:
        yield {"inputs": [numbers(rng, dims, dtype, 0, 1) for _ in range(count)]}


@case("BiasAdd")
def _(rng, dtype):
    for dims in [(2, 3), (2, 4, 5, 3), (0, 3)]:
        yield {"value": numbers(rng, dims, dtype), "bias": numbers(rng, dims[-1:], dtype), "data_format": "NHWC"}
    yield {"value": numbers(rng, (2, 3, 4, 5), dtype), "bias": numbers(rng, (3,), dtype), "data_format": "NCHW"}


@case("BiasAddGrad", scale=16)
def _(rng, dtype):
    for dims in [(2, 3), (2, 4, 5, 3), (0, 3)]:
        yield {"out_backprop": numbers(rng, dims, dtype), "data_format": "NHWC"}
    yield {"out_backprop": numbers(rng, (2, 3, 4, 5), dtype), "data_format": "NCHW"}


@case("SelectV2")
def _(rng, dtype):
    for dims in [((3, 4), (3, 4), (3, 4)), ((), (3,), (3,)), ((2, 1), (3,), (2, 3)), ((0, 1), (3,), (1, 3))]:
        yield {"condition": numbers(rng, dims[0], tf.bool), "t": numbers(rng, dims[1], dtype),
               "e": numbers(rng, dims[2], dtype)}  # fmt: skip


@case("Select")
def _(rng, dtype):
    for condition, dims in [((3, 4), (3, 4)), ((), (3, 4)), ((3,), (3, 4))]:
        yield {"condition": numbers(rng, condition, tf.bool), "x": numbers(rng, dims, dtype),
               "y": numbers(rng, dims, dtype)}  # fmt: skip


@case("Softmax", "LogSoftmax", scale=4)
def _(rng, dtype):
    for dims in [(5,), (3, 7), (2, 3, 4), (0, 3), (100, 10)]:
        yield {"logits": numbers(rng, dims, dtype, -9, 9)}


@case("SoftmaxCrossEntropyWithLogits", scale=16)
def _(rng, dtype):
    for logits, labels in [((3, 5), (3, 5)), ((3, 5), (1, 5)), ((0, 5), (0, 5))]:
        yield {"features": numbers(rng, logits, dtype), "labels": numbers(rng, labels, dtype, 0, 1)}


@case("SparseSoftmaxCrossEntropyWithLogits", scale=4)
def _(rng, dtype):
    for rows_, label in itertools.product([4, 0], ["int32", "int64"]):
        yield {"features": numbers(rng, (rows_, 7), dtype), "labels": rng.integers(0, 7, rows_).astype(label)}


@case("Sum", "Mean", "EuclideanNorm", scale=16)
def _(rng, dtype):
    yield from reductions(rng, dtype)


@case("Prod", scale=16)
def _(rng, dtype):
    yield from reductions(rng, dtype, 0.5, 1.5)


@case("Max", "Min")
def _(rng, dtype):
    yield from reductions(rng, dtype)


@case("All", "Any")
def _(rng, dtype):
    yield from reductions(rng, tf.bool)


def reductions(rng, dtype, low=-4.0, high=4.0):
    cases = [((3, 4), [0]), ((3, 4), [1]), ((3, 4), [0, 1]), ((2, 3, 4), [-2]), ((3, 4), []), ((), []), ((0, 3), [0]),
             ((0, 3), [1]), ((130, 70), [1]), ((130, 70), [0])]  # fmt: skip
    for (dims, axes), keep in itertools.product(cases, [False, True]):
        yield {"input": numbers(rng, dims, dtype, low, high), "axis": np.array(axes, "int32"), "keep_dims": keep}
    yield {"input": numbers(rng, (3, 4), dtype, low, high), "axis": np.array([1], "int64"), "keep_dims": False}


@case("ArgMax", "ArgMin")
def _(rng, dtype):
    cases = [((5,), 0), ((3, 4), 1), ((3, 4), -2), ((0, 3), 1)]
    for (dims, axis), index in itertools.product(cases, [tf.int32, tf.int64]):
        yield {"input": numbers(rng, dims, dtype), "dimension": axis, "output_type": index}


@case("Cumsum", scale=8)
def _(rng, dtype):
    yield from running(rng, dtype, -1.0)


@case("Cumprod", scale=16)
def _(rng, dtype):
    yield from running(rng, dtype, 0.5)


def running(rng, dtype, low):
    for exclusive, reverse in itertools.product([False, True], repeat=2):
        for dims, axis in [((5,), 0), ((3, 4), 0), ((2, 3, 4), -1), ((0, 3), 0)]:
            yield {"x": numbers(rng, dims, dtype, low, 1.5), "axis": axis, "exclusive": exclusive, "reverse": reverse}


@case("MatMul", scale=16)
def _(rng, dtype):
    for a, b in itertools.product([False, True], repeat=2):
        for m, k, n in [(3, 4, 5), (1, 7, 1), (0, 3, 2), (3, 0, 2), (33, 65, 17)]:
            x = numbers(rng, (k, m) if a else (m, k), dtype, -1, 1)
            y = numbers(rng, (n, k) if b else (k, n), dtype, -1, 1)
            yield {"a": x, "b": y, "transpose_a": a, "transpose_b": b}


@case("BatchMatMul", "BatchMatMulV2", scale=16)
def _(rng, dtype):
    for a, b in itertools.product([False, True], repeat=2):
        yield {"x": numbers(rng, (2, 4, 3) if a else (2, 3, 4), dtype, -1, 1),
               "y": numbers(rng, (2, 5, 4) if b else (2, 4, 5), dtype, -1, 1), "adj_x": a, "adj_y": b}  # fmt: skip


EINSUMS = [  # with one or two inputs, as TensorFlow's kernel
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("abc,cde->abde", (2, 3, 4), (4, 2, 3)),
    ("bthd,bshd->bhts", (2, 3, 4, 5), (2, 6, 4, 5)),
    ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii->i", (3, 3)),
    ("i,j->ij", (3,), (4,)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    ("ij,jk->ik", (3, 0), (0, 5)),
]


@case("Einsum", scale=16)
def _(rng, dtype):
    for equation, *dims in EINSUMS:
        yield {"inputs": [numbers(rng, d, dtype, -1, 1) for d in dims], "equation": equation}


@case("Cast")
def _(rng, dtype):
    for target in [row[2] for row in rows() if row[0] == "Cast"][0]:
        for dims in [(3, 4), (0, 2), ()]:
            if not {dtype, target} & EIGHT_BITS:
                yield {"x": numbers(rng, dims, dtype, 0, 4), "DstT": target}


@pytest.mark.parametrize("source", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", sorted(EIGHT_BITS, key=str), ids=lambda dtype: dtype.name)
def test_numbers_of_eight_bits(dtype, source):
    """All of them, and those that lie between them, are the largest ones, larger, infinite or NaN, there and back.
    TensorFlow has no constants of these types on a device."""
    every = np.arange(256, dtype=np.uint8).view(dtype.as_numpy_dtype).astype("float64")
    large = [448, 463, 464, 464.1, 480, 57344, 61439, 61440, 61441, 1e9, np.inf, np.nan, 0.0, 2**-10, 2**-17]
    x = np.concatenate([every, every * 1.06, large, np.negative(large)]).astype(tf.as_dtype(source).as_numpy_dtype)
    results = []
    for device in ("CPU", "HEADRACE"):
        with tf.device(device):
            small = tf.raw_ops.Cast(x=tf.constant(x), DstT=dtype)
            assert device in small.device
            results.append([small.numpy().astype("float32"), *(tf.raw_ops.Cast(x=small, DstT=t).numpy() for t in (source, "float32"))])
    for want, have in zip(*results, strict=True):
        np.testing.assert_array_equal(have.astype("float64"), want.astype("float64"))


@case("Bitcast")
def _(rng, dtype):
    for target in [row[2] for row in rows() if row[0] == "Bitcast"][0]:
        times = max(1, target.size // dtype.size)
        yield {"input": numbers(rng, (3, times) if times > 1 else (3,), dtype, 0, 4), "type": target}


@case("Fill")
def _(rng, dtype):
    for dims in [(3, 4), (0, 2), ()]:
        yield {"dims": np.array(dims, "int64"), "value": numbers(rng, (), dtype)}


@case("BroadcastTo")
def _(rng, dtype):
    for dims, shape in [((), (3,)), ((3, 1), (2, 3, 4)), ((1,), (0,)), ((2, 3), (2, 3))]:
        yield {"input": numbers(rng, dims, dtype), "shape": np.array(shape, "int32")}


@case("Transpose")
def _(rng, dtype):
    for dims, order in [((3, 4), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((), ()), ((0, 3), (1, 0))]:
        yield {"x": numbers(rng, dims, dtype), "perm": np.array(order, "int32")}


@case("ReverseV2")
def _(rng, dtype):
    for dims, axes in [((5,), [0]), ((2, 3, 4), [0, -1]), ((3, 4), []), ((0, 3), [1])]:
        yield {"tensor": numbers(rng, dims, dtype), "axis": np.array(axes, "int32")}


@case("ConcatV2")
def _(rng, dtype):
    for dims, axis in [([(2, 3), (4, 3)], 0), ([(2, 3), (2, 1), (2, 0)], -1), ([(3,)] * 70, 0), ([(0, 2), (0, 2)], 0)]:
        yield {"values": [numbers(rng, d, dtype) for d in dims], "axis": axis}


@case("Identity")
def _(rng, dtype):
    for dims in DIMS:
        yield {"input": numbers(rng, dims, dtype)}


@case("Reshape")
def _(rng, dtype):
    for dims, shape in [((3, 4), [2, 6]), ((3, 4), [-1]), ((1,), []), ((), [1, 1])]:
        yield {"tensor": numbers(rng, dims, dtype), "shape": shape}


@case("Squeeze")
def _(rng, dtype):
    for dims, axis in [((1, 3, 1), []), ((1, 3, 1), [-1]), ((1,), [0])]:
        yield {"input": numbers(rng, dims, dtype), "axis": axis}


@case("ExpandDims")
def _(rng, dtype):
    for dims, axis in [((3, 4), 0), ((3, 4), -1), ((), 0)]:
        yield {"input": numbers(rng, dims, dtype), "axis": axis}


@case("Pack")
def _(rng, dtype):
    for count, dims, axis in [(2, (3, 4), 0), (3, (2,), -1), (1, (), 0), (70, (2,), 1), (2, (0, 3), 1)]:
        yield {"values": [numbers(rng, dims, dtype) for _ in range(count)], "axis": axis}


@case("Unpack")
def _(rng, dtype):
    for dims, axis in [((3, 4), 0), ((3, 4), -1), ((3,), 0), ((2, 0, 3), 0)]:
        yield {"value": numbers(rng, dims, dtype), "num": dims[axis], "axis": axis}


@case("Split")
def _(rng, dtype):
    for dims, axis, count in [((4, 3), 0, 2), ((2, 6), -1, 3), ((3,), 0, 1), ((0, 4), 1, 2)]:
        yield {"axis": axis, "value": numbers(rng, dims, dtype), "num_split": count}


@case("SplitV")
def _(rng, dtype):
    for dims, sizes, axis in [((5, 3), [2, 3], 0), ((2, 6), [1, -1, 2], 1), ((4,), [0, 4], 0)]:
        yield {"value": numbers(rng, dims, dtype), "size_splits": np.array(sizes, "int64"), "axis": axis,
               "num_split": len(sizes)}  # fmt: skip


@case("Tile")
def _(rng, dtype):
    for dims, times in [((3,), [2]), ((2, 3), [3, 1]), ((), []), ((2, 3), [0, 2]), ((0, 2), [2, 2])]:
        yield {"input": numbers(rng, dims, dtype), "multiples": np.array(times, "int32")}


@case("Pad", "PadV2", "MirrorPad")
def _(rng, dtype):
    for dims, sides in [((3,), [[1, 2]]), ((3, 4), [[0, 0], [2, 1]]), ((3, 4), [[1, 1], [0, 0]])]:
        yield {"input": numbers(rng, dims, dtype), "paddings": np.array(sides, "int32")}


@case("Slice")
def _(rng, dtype):
    for dims, begin, size in [((5,), [1], [3]), ((3, 4), [1, 0], [-1, 2]), ((3, 4), [3, 0], [0, 4]), ((), [], [])]:
        yield {"input": numbers(rng, dims, dtype), "begin": np.array(begin, "int32"), "size": np.array(size, "int32")}


SLICES = [  # dims, begin, end, strides, masks
    ((5,), [1], [4], [1], {}),
    ((5,), [-1], [-6], [-2], {}),
    ((3, 4), [0, 1], [0, 3], [1, 1], {"begin_mask": 1, "end_mask": 1}),
    ((3, 4), [1], [2], [1], {"shrink_axis_mask": 1}),
    ((2, 3, 4), [0, 0, 1], [0, 0, 2], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2, "shrink_axis_mask": 4}),
    ((3, 4), [2, 0], [1, 4], [1, 1], {}),
    ((4, 4), [0, 0], [0, 0], [-1, 2], {"begin_mask": 3, "end_mask": 3}),
]


@case("StridedSlice")
def _(rng, dtype):
    for dims, begin, end, strides, masks in SLICES:
        yield {"input": numbers(rng, dims, dtype), "begin": np.array(begin, "int32"), "end": np.array(end, "int32"),
               "strides": np.array(strides, "int32"), **masks}  # fmt: skip


@case("StridedSliceGrad")
def _(rng, dtype):
    for dims, begin, end, strides, masks in SLICES:
        spec = {"begin": np.array(begin, "int32"), "end": np.array(end, "int32"),
                "strides": np.array(strides, "int32"), **masks}  # fmt: skip
        with tf.device("CPU"):
            shape = tf.raw_ops.StridedSlice(input=np.zeros(dims, "float32"), **spec).shape
        yield {"shape": np.array(dims, "int32"), "dy": numbers(rng, shape, dtype), **spec}


@case("GatherV2")
def _(rng, dtype):
    for dims, indices, axis, batch in [((5,), (3,), 0, 0), ((4, 3), (2, 2), 1, 0), ((4, 3), (), 0, 0),
                                       ((2, 5, 3), (2, 4), 1, 1), ((4, 3), (0,), 0, 0), ((2, 3, 5), (2, 4), 2, 1),
                                       ((2, 3, 4, 5), (2, 2), 3, 1), ((2, 3, 4, 5, 2), (2, 3), 3, 2)]:  # fmt: skip
        for index in ["int32", "int64"]:
            places = rng.integers(0, dims[axis], indices).astype(index)
            yield {"params": numbers(rng, dims, dtype), "indices": places, "axis": axis, "batch_dims": batch}


@case("OneHot")
def _(rng, dtype):
    for dims, axis, index in [((4,), -1, "int32"), ((2, 3), 0, "int64"), ((), -1, "uint8"), ((0,), 1, "int32")]:
        yield {"indices": rng.integers(0, 6, dims).astype(index), "depth": 5, "axis": axis,
               "on_value": numbers(rng, (), dtype), "off_value": numbers(rng, (), dtype)}  # fmt: skip


@case("UnsortedSegmentSum", scale=8)
def _(rng, dtype):
    for dims, ids in [((6,), (6,)), ((6, 3), (6,)), ((2, 3, 2), (2, 3)), ((0, 2), (0,))]:
        for index in ["int32", "int64"]:
            yield {"data": numbers(rng, dims, dtype, 0, 1), "segment_ids": rng.integers(-1, 4, ids).astype(index),
                   "num_segments": 4}  # fmt: skip


@case("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg")
def _(rng, dtype, name):
    for index in ["int64"] if name.endswith("Alg") else ["int32", "int64"]:
        yield {"seed": rng.integers(-(2**31), 2**31, 2).astype(index)}


@case("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2")
@case("StatelessRandomUniformIntV2", "StatelessRandomUniformFullIntV2")
def _(rng, dtype):
    for dims in [(), (7,), (3, 5), (0, 2), (1001,), (5, 67, 301)]:
        words = rng.integers(0, 2**63, 3).astype("uint64")
        words[1] |= np.uint64(2**32 - 2)  # its lower half overflows
        yield {"shape": np.array(dims, "int32"), "key": words[:1], "counter": words[1:], "alg": 1}


@case("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal", scale=4)
@case("StatelessRandomUniformInt", "StatelessRandomUniformFullInt")
def _(rng, dtype):
    for dims, index in itertools.product([(), (7,), (3, 5), (0, 2), (1001,)], ["int32", "int64"]):
        yield {"shape": np.array(dims, index), "seed": rng.integers(-9, 9, 2).astype(index)}


@case("StatelessRandomGammaV2", "StatelessRandomGammaV3")
def _(rng, dtype, name):
    for dims, alphas in [((7, 2, 3), (2, 3)), ((400,), ()), ((0, 2), (2,)), ((5, 0), (0,)), ((4,), (4,))]:
        alpha = rng.choice([0.1, 0.7, 1.0, 2.5, 40.0, 0.0], alphas).astype(dtype.as_numpy_dtype)
        words = rng.integers(0, 2**63, 3).astype("uint64")
        state = {"key": words[:1], "counter": words[1:], "alg": 1} if name[-1] == "3" else {"seed": rng.integers(0, 9, 2)}
        yield {"shape": np.array(dims, "int32"), "alpha": alpha, **state}


@case("StatelessMultinomial")
def _(rng, dtype):
    for dims, samples in [((4, 7), 9), ((1, 1), 3), ((3, 5), 0), ((0, 4), 2), ((2, 50), 21)]:  # TensorFlow splits large ones among threads
        for index in [tf.int32, tf.int64]:
            yield {"logits": numbers(rng, dims, dtype, special=True), "num_samples": samples,
                   "seed": rng.integers(-9, 9, 2), "output_dtype": index}  # fmt: skip


# ---- tuples of indices, largest elements, diagonals --------------------------------------------------------------------

TUPLES = [((5,), (3, 1)), ((4, 3), (2, 2)), ((4, 3), (2, 5, 1)), ((2, 3, 4), (7, 2)), ((4, 3), (0, 2)), ((0, 3), (0, 1))]


def tuples(rng, dims, shape, index):
    """Random tuples of indices."""
    return np.stack([rng.integers(0, max(1, dims[d]), shape[:-1]) for d in range(shape[-1])], -1).astype(index)


@case("GatherNd")
def _(rng, dtype):
    for (dims, shape), index in itertools.product([*TUPLES, ((2, 3), (4, 0))], ["int32", "int64"]):
        places = np.zeros(shape, index) if shape[-1] == 0 else tuples(rng, dims, shape, index)
        yield {"params": numbers(rng, dims, dtype), "indices": places}


@case("ScatterNd", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin",
      "TensorScatterUpdate", scale=8)  # fmt: skip
def _(rng, dtype, name):
    for (dims, shape), index in itertools.product(TUPLES, ["int32", "int64"]):
        places = tuples(rng, dims, shape, index)
        if name == "TensorScatterUpdate":  # one element may be written once
            flat = places.reshape(-1, shape[-1])
            places = flat[np.sort(np.unique(flat, axis=0, return_index=True)[1])]
        updates = numbers(rng, (*places.shape[:-1], *dims[shape[-1] :]), dtype, 0, 1)
        target = {"shape": np.array(dims, index)} if name == "ScatterNd" else {"tensor": numbers(rng, dims, dtype)}
        yield target | {"indices": places, "updates": updates}


@case("TopKV2")
def _(rng, dtype):
    for dims, k in [((5,), 2), ((3, 40), 5), ((2, 3, 4), 4), ((3, 4), 0), ((0, 4), 2), ((2, 300), 7)]:
        for index in [tf.int16, tf.int32, tf.int64]:
            yield {"input": numbers(rng, dims, dtype), "k": k, "index_type": index}


@case("ApproxTopK")
def _(rng, dtype):
    for dims, k in [((5,), 2), ((3, 40), 5), ((2, 3, 4), 4), ((3, 4), 0), ((0, 4), 2), ((2, 300), 7)]:
        yield {"input": numbers(rng, dims, dtype), "k": k}
    equal = np.array([[1, 3, 1, np.inf, -0.0, 0, -np.inf, 3]], dtype.as_numpy_dtype)
    yield {"input": np.repeat(equal, 3, 0), "k": 8}


@case("InTopKV2")
def _(rng, dtype):
    for rows_, classes, k in [(6, 5, 2), (40, 7, 1), (5, 3, 3), (5, 3, 0), (0, 4, 1), (3, 4, 9)]:
        x = np.round(numbers(rng, (rows_, classes), tf.float32))  # many equal ones
        if rows_ == 40:
            x[:3, 1] = [np.inf, -np.inf, np.nan]
        targets = rng.integers(0, classes, rows_)
        targets[:2] = [-1, classes][: len(targets[:2])]
        yield {"predictions": x, "targets": targets.astype(dtype.as_numpy_dtype), "k": dtype.as_numpy_dtype(k)}


BANDS = [((3, 4), 0), ((3, 4), 1), ((2, 4, 3), -2), ((3, 5), (-1, 2)), ((2, 4, 3), (-3, 1)), ((3, 3), (1, 2)),
         ((3, 3), (-2, -1)), ((0, 3, 2), (0, 1))]  # fmt: skip
ALIGNS = ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"]


@case("MatrixDiagPartV3", "MatrixDiagV3", "MatrixSetDiagV3")
@case("MatrixDiagPartV2", "MatrixDiagV2", "MatrixSetDiagV2")
def _(rng, dtype, name):
    version = name[-2:]
    for (dims, k), align in itertools.product(BANDS, ALIGNS if version == "V3" else [None]):
        x, band = numbers(rng, dims, dtype), {"k": np.array(k, "int32")} | ({"align": align} if align else {})
        padding = {"padding_value": numbers(rng, (), dtype)}
        part = {"input": x, **band, **padding}
        (diagonals,) = run("CPU", f"MatrixDiagPart{version}", part)
        if name == f"MatrixDiagPart{version}":
            yield part
        elif name == f"MatrixSetDiag{version}":
            yield {"input": x, "diagonal": numbers(rng, diagonals.shape, dtype), **band}
        else:
            for rows_, columns in [dims[-2:], (-1, -1)]:
                yield {"diagonal": diagonals, "num_rows": rows_, "num_cols": columns, **band, **padding}


@case("MatrixDiagPart", "MatrixDiag", "MatrixSetDiag")
def _(rng, dtype, name):
    for dims in [(3, 4), (2, 4, 3), (2, 2, 3, 3), (0, 3, 2)]:
        x, diagonal = numbers(rng, dims, dtype), numbers(rng, (*dims[:-2], min(dims[-2:])), dtype)
        if name.endswith("MatrixDiag"):
            yield {"diagonal": diagonal}
        else:
            yield {"input": x} | ({"diagonal": diagonal} if "Set" in name else {})


@case("Diag", "DiagPart")
def _(rng, dtype, name):
    for dims in [(3,), (2, 3), (1,), (0,), (2, 1, 2)]:
        part = name == "DiagPart"
        yield {"input" if part else "diagonal": numbers(rng, dims * 2 if part else dims, dtype)}


@case("MatrixBandPart")
def _(rng, dtype):
    for dims, lower, upper in [((4, 5), 1, 0), ((2, 3, 3), -1, 1), ((3, 2), 0, -1), ((0, 3), 0, 1)]:
        for index in ["int32", "int64"]:
            sides = np.array([lower, upper], index)
            yield {"input": numbers(rng, dims, dtype), "num_lower": sides[0], "num_upper": sides[1]}


# ---- images ------------------------------------------------------------------------------------------------------------

SIZES = [((2, 4, 5, 3), (8, 10)), ((1, 6, 7, 2), (3, 4)), ((2, 3, 3, 1), (1, 5)), ((1, 5, 4, 2), (5, 4)),
         ((1, 2, 3, 1), (7, 5)), ((0, 4, 4, 3), (2, 2))]  # fmt: skip


@case("ResizeBilinear", "ResizeBilinearGrad", "ResizeNearestNeighbor", "ResizeNearestNeighborGrad", scale=8)
def _(rng, dtype, name):
    for (dims, size), grid in itertools.product(SIZES, ["half_pixel_centers", "align_corners", None]):
        options = {grid: True} if grid else {}
        image, target = numbers(rng, dims, dtype), np.array(size, "int32")
        out = (dims[0], *size, dims[3])
        if name == "ResizeBilinearGrad":
            yield {"grads": numbers(rng, out, tf.float32), "original_image": image, **options}
        elif name == "ResizeNearestNeighborGrad":
            yield {"grads": numbers(rng, out, dtype, 0, 1), "size": np.array(dims[1:3], "int32"), **options}
        else:
            yield {"images": image, "size": target, **options}


@case("ImageProjectiveTransformV3", scale=16)
def _(rng, dtype):
    transforms = np.array([[0.9, 0.3, -1.3, -0.2, 1.1, 0.6, 0.01, -0.02], [1, 0, 3.5, 0, 1, -9.25, 0, 0]], "float32")
    for mode, fill in itertools.product(["NEAREST", "BILINEAR"], ["CONSTANT", "REFLECT", "WRAP", "NEAREST"]):
        for dims, size, many in [((2, 5, 6, 3), (5, 6), 2), ((2, 4, 7, 1), (9, 3), 1), ((2, 1, 1, 2), (2, 2), 2),
                                 ((0, 3, 3, 2), (2, 2), 1)]:  # fmt: skip
            yield {"images": numbers(rng, dims, dtype, 0, 20), "transforms": transforms[:many],
                   "output_shape": np.array(size, "int32"), "fill_value": 2.5, "interpolation": mode,
                   "fill_mode": fill}  # fmt: skip


@case("SpaceToBatchND", "BatchToSpaceND")
def _(rng, dtype, name):
    cases = [((2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]), ((1, 5, 4), [2], [[1, 0]]), ((2, 3, 4, 2), [2, 2], [[0, 1], [2, 2]]),
             ((3, 4), [], []), ((0, 4, 2), [2], [[0, 0]])]  # fmt: skip
    for (dims, block, sides), index in itertools.product(cases, ["int32", "int64"]):
        x, block = numbers(rng, dims, dtype), np.array(block, index)
        sides = np.array(sides, index).reshape(-1, 2)
        if name == "SpaceToBatchND":
            yield {"input": x, "block_shape": block, "paddings": sides}
        else:
            (batches,) = run("CPU", "SpaceToBatchND", {"input": x, "block_shape": block, "paddings": sides})
            yield {"input": batches, "block_shape": block, "crops": sides}


# ---- windows -----------------------------------------------------------------------------------------------------------

WINDOWS = [  # image, kernel, stride, padding, dilation
    ((2, 8, 7, 3), (3, 3), 1, "SAME", 1),
    ((2, 8, 7, 3), (3, 2), 2, "SAME", 1),
    ((1, 9, 9, 4), (3, 3), 2, "VALID", 1),
    ((1, 9, 9, 2), (2, 3), 1, "VALID", 2),
    ((2, 5, 5, 1), (1, 1), 1, "SAME", 1),
    ((1, 7, 8, 2), (3, 3), 1, [[0, 0], [2, 1], [0, 2], [0, 0]], 1),
    ((0, 5, 5, 2), (3, 3), 1, "SAME", 1),
]


def window(stride, padding, dilation=None):
    explicit = [] if isinstance(padding, str) else list(np.ravel(padding))
    spec = {"strides": [1, stride, stride, 1], "padding": "EXPLICIT" if explicit else padding}
    spec |= {"explicit_paddings": explicit} if explicit else {}
    return spec if dilation is None else spec | {"dilations": [1, dilation, dilation, 1]}


def convolutions(rng, dtype, name):
    """(image, kernel, gradient of the result, what describes the window) of each case that the CPU computes."""
    is_depthwise, is_gradient = name.startswith("Depthwise"), "Backprop" in name
    for dims, size, stride, padding, dilation in WINDOWS:
        for features, groups in [(4, 1), (2 * dims[3], dims[3])]:
            if is_depthwise and (groups == 1 or dilation > 1):
                continue  # TensorFlow's CPU device ends the process for depthwise ones that are dilated
            if dims[0] == 0 or (is_gradient and not is_depthwise and groups > 1):
                continue  # it gives wrong dims without examples, and has no gradients of groups
            if is_gradient and dilation > 1 and dtype not in (tf.float32, tf.bfloat16):
                continue
            shape = (*size, dims[3], 2) if is_depthwise else (*size, dims[3] // groups, features)
            spec = window(stride, padding, dilation)
            image, kernel = numbers(rng, dims, dtype, -1, 1), numbers(rng, shape, dtype, -1, 1)
            try:
                forward = "DepthwiseConv2dNative" if is_depthwise else "Conv2D"
                (result,) = run("CPU", forward, {"input": image, "filter": kernel, **spec})
            except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
                continue  # no result, or nothing that the CPU can do
            yield image, kernel, numbers(rng, result.shape, dtype, -1, 1), spec


@case("Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput",
      "Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", scale=64)  # fmt: skip
def _(rng, dtype, name):
    for image, kernel, gradient, spec in convolutions(rng, dtype, name):
        if name.endswith("BackpropInput"):
            yield {"input_sizes": np.array(image.shape, "int32"), "filter": kernel, "out_backprop": gradient, **spec}
        elif name.endswith("BackpropFilter"):
            yield {"input": image, "filter_sizes": np.array(kernel.shape, "int32"), "out_backprop": gradient, **spec}
        else:
            yield {"input": image, "filter": kernel, **spec}


# The dims of the image and of the kernel, the dims of examples, strides, dilations.
BATCHES = [((2, 5, 6, 3), (2, 3, 3, 4), 1, (1, 2, 1, 1), ()), ((2, 7, 8, 3), (2, 3, 3, 4), 1, (1, 1, 1, 1), (1, 2, 2, 1)),
           ((2, 3, 5, 6, 3), (2, 3, 3, 4), 2, (1, 1, 2, 1), ()), ((5, 6, 3), (2, 3, 3, 4), 0, (1, 1, 1, 1), ()), ((0, 5, 6, 3), (2, 3, 3, 4), 1, (1, 1, 1, 1), ()),
           ((2, 5, 6, 4, 3), (2, 3, 2, 3, 4), 1, (1, 2, 1, 1, 1), ()), ((2, 1, 3, 5, 6, 4, 3), (2, 3, 2, 3, 4), 3, (1, 1, 1, 2, 1), ())]  # fmt: skip


@case("Conv", scale=64)
def _(rng, dtype, name):
    for dims, kernel, batch_dims, strides, dilations in BATCHES:
        for padding in ["SAME", "VALID"]:
            yield {"input": numbers(rng, dims, dtype, -1, 1), "filter": numbers(rng, kernel, dtype, -1, 1), "strides": strides,
                   "dilations": dilations, "padding": padding, "batch_dims": batch_dims}  # fmt: skip


@case("MaxPool", "AvgPool", "MaxPoolGrad", "AvgPoolGrad", scale=16)
def _(rng, dtype, name):
    for dims, size, stride, padding, dilation in WINDOWS:
        if dilation > 1 or not isinstance(padding, str):
            continue
        spec = {"ksize": [1, *size, 1], **window(stride, padding)}
        image = np.maximum(numbers(rng, dims, dtype), np.zeros((), dtype.as_numpy_dtype))  # many equal ones
        argument = "value" if name.startswith("Avg") else "input"
        if not name.endswith("Grad"):
            yield {argument: image, **spec}
            continue
        (result,) = run("CPU", name.removesuffix("Grad"), {argument: image, **spec})
        gradient = numbers(rng, result.shape, dtype, 0, 4)
        if name == "MaxPoolGrad":
            yield {"orig_input": image, "orig_output": result, "grad": gradient, **spec}
        else:
            yield {"orig_input_shape": np.array(dims, "int32"), "grad": gradient, **spec}


DEEP_WINDOWS = [  # image, kernel, stride, padding
    ((2, 5, 6, 4, 2), (3, 3, 3), 1, "SAME"),
    ((1, 6, 5, 7, 3), (2, 3, 2), 2, "SAME"),
    ((1, 5, 5, 5, 2), (2, 3, 3), 2, "VALID"),
    ((2, 3, 3, 3, 1), (1, 1, 1), 1, "SAME"),
]


@case("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", scale=64)
def _(rng, dtype, name):
    for dims, size, stride, padding in DEEP_WINDOWS:
        spec = {"strides": [1, stride, stride, stride, 1], "padding": padding}
        image, kernel = numbers(rng, dims, dtype, -1, 1), numbers(rng, (*size, dims[4], 4), dtype, -1, 1)
        (result,) = run("CPU", "Conv3D", {"input": image, "filter": kernel, **spec})
        gradient = numbers(rng, result.shape, dtype, -1, 1)
        if name == "Conv3DBackpropInputV2":
            yield {"input_sizes": np.array(dims, "int32"), "filter": kernel, "out_backprop": gradient, **spec}
        elif name == "Conv3DBackpropFilterV2":
            sizes = np.array(kernel.shape, "int32")
            yield {"input": image, "filter_sizes": sizes, "out_backprop": gradient, **spec}
        else:
            yield {"input": image, "filter": kernel, **spec}


def without_ties(rng, dims, dtype):
    """Numbers that differ in each window of up to 4 x 4 x 4: the CPU's MaxPool3DGrad serves each of equal elements."""
    numbers_ = rng.permutation(64).reshape(4, 4, 4)[np.ix_(*(np.arange(size) % 4 for size in dims[1:4]))]
    return ((numbers_[None, ..., None] + np.arange(dims[4])) % 64 + np.zeros(dims)).astype(dtype.as_numpy_dtype)


def deep_pools(rng, dtype, name):
    for dims, size, stride, padding in DEEP_WINDOWS:
        spec = {"ksize": [1, *size, 1], "strides": [1, stride, stride, stride, 1], "padding": padding}
        image = without_ties(rng, dims, dtype)
        if not name.endswith("Grad"):
            yield {"input": image, **spec}
            continue
        (result,) = run("CPU", re.sub("(Grad)+$", "", name), {"input": image, **spec})
        gradient = numbers(rng, dims if name.endswith("GradGrad") else result.shape, dtype, 0, 4)
        if name.startswith("MaxPool3DGrad"):  # raw_ops converts arrays to f32
            image, result, gradient = map(tf.constant, (image, result, gradient))
            yield {"orig_input": image, "orig_output": result, "grad": gradient, **spec}
        else:
            yield {"orig_input_shape": np.array(dims, "int32"), "grad": gradient, **spec}


@case("MaxPool3D", "AvgPool3D", "MaxPool3DGrad", "MaxPool3DGradGrad", "AvgPool3DGrad", scale=16)
def _(rng, dtype, name):
    if dtype != tf.float16:  # the CPU has no kernel of it
        yield from deep_pools(rng, dtype, name)


def is_f32(x):
    return not isinstance(x, (list, str)) and x.dtype in (np.float32, tf.float32)


@pytest.mark.parametrize("name", ["MaxPool3D", "AvgPool3D", "MaxPool3DGrad", "AvgPool3DGrad"])
def test_deep_pools_in_float16(name):
    """Against the CPU's in f32, of numbers that f16 has."""
    for wide in deep_pools(generator(name), tf.float32, name):
        half = {key: tf.cast(x, tf.float16) if is_f32(x) else x for key, x in wide.items()}
        wide = {key: tf.cast(half[key], tf.float32) if is_f32(x) else x for key, x in wide.items()}
        (want,), (have,) = run("CPU", name, wide), run("HEADRACE", name, half)
        assert have.dtype == np.float16
        np.testing.assert_allclose(have.astype("float32"), want, rtol=4e-3, atol=4e-3)


@case("FusedBatchNormV3", "FusedBatchNormGradV3", "FusedBatchNormV2", "FusedBatchNormGradV2", scale=32)
@case("FusedBatchNorm", "FusedBatchNormGrad", scale=16)
def _(rng, dtype, name):
    for dims, is_training in itertools.product([(2, 4, 5, 3), (4, 1, 1, 2), (8, 16, 16, 4)], [True, False]):
        vectors = [rng.uniform(0.5, 2, dims[3]).astype("float32") for _ in range(4)]
        x, options = numbers(rng, dims, dtype), {"epsilon": 1e-3, "is_training": is_training}
        if "Grad" in name:
            third = {"reserve_space_3": np.float32(0)} if name.endswith("V3") else {}
            yield {"y_backprop": numbers(rng, dims, dtype), "x": x, "scale": vectors[0], "reserve_space_1": vectors[1],
                   "reserve_space_2": vectors[2], **third, **options}  # fmt: skip
            continue
        for factor in [1.0, 0.25] if is_training else [1.0]:
            names = ["scale", "offset", "mean", "variance"]
            yield {"x": x, **dict(zip(names, vectors, strict=True)), "exponential_avg_factor": factor, **options}


@case("LRN", "LRNGrad", scale=16)
def _(rng, dtype, name):
    for dims, options in [((2, 3, 4, 5), {}), ((1, 2, 2, 9), {"depth_radius": 2, "bias": 2.0, "alpha": 0.1, "beta": 0.75}),
                          ((2, 2, 2, 3), {"depth_radius": 0}), ((0, 2, 2, 3), {})]:  # fmt: skip
        image = tf.constant(numbers(rng, dims, dtype, -2, 2))  # raw_ops converts arrays to f32
        if name == "LRN":
            yield {"input": image, **options}
            continue
        (result,) = run("CPU", "LRN", {"input": image, **options})
        gradient = tf.constant(numbers(rng, dims, dtype, -1, 1))
        yield {"input_grads": gradient, "input_image": image, "output_image": tf.constant(result), **options}


# ---- linear algebra ----------------------------------------------------------------------------------------------------

SQUARES = [(3, 3), (2, 5, 5), (2, 1, 4, 4), (1, 1), (0, 3, 3), (2, 0, 0)]


def square_matrices(rng, dims, dtype):
    return numbers(rng, dims, dtype, -1, 1) + 3 * np.eye(dims[-1], dtype=dtype.as_numpy_dtype)


@case("Cholesky", "MatrixDeterminant", "LogMatrixDeterminant", scale=64)
def _(rng, dtype, name):
    for dims in SQUARES:
        x = square_matrices(rng, dims, dtype)
        yield {"input": x @ np.conj(np.swapaxes(x, -1, -2)) if name == "Cholesky" else x}


@case("MatrixInverse", "MatrixSolve", scale=64)
def _(rng, dtype, name):
    for dims, adjoint in itertools.product(SQUARES, [False, True]):
        x = square_matrices(rng, dims, dtype)
        if name == "MatrixInverse":
            yield {"input": x, "adjoint": adjoint}
        else:
            yield {"matrix": x, "rhs": numbers(rng, (*dims[:-1], 2), dtype), "adjoint": adjoint}


@case("MatrixTriangularSolve", scale=64)
def _(rng, dtype):
    for lower, adjoint in itertools.product([False, True], repeat=2):
        for left, right in [((3, 3), (3, 2)), ((2, 4, 4), (2, 4, 1)), ((4, 4), (3, 4, 2)), ((2, 1, 3, 3), (4, 3, 1)),
                            ((0, 3, 3), (0, 3, 1))]:  # fmt: skip
            x = square_matrices(rng, left, dtype)
            yield {"matrix": x, "rhs": numbers(rng, right, dtype), "lower": lower, "adjoint": adjoint}


@case("Qr", scale=64)
def _(rng, dtype):
    for dims, full in itertools.product([(3, 3), (5, 3), (2, 3, 5), (1, 1)], [False, True]):
        yield {"input": numbers(rng, dims, dtype), "full_matrices": full}


# The result of the first is in the host's memory, that of the second undefined; others have no kernel of the CPU.
ELSEWHERE = {"StatelessRandomGetAlg", "Empty", "FFTND", "IFFTND", "RFFTND", "IRFFTND",
             "CTCLossV2"}  # fmt: skip
EXACT = {"StatelessRandomUniformV2", "StatelessRandomUniform", "StatelessTruncatedNormal",
         "StatelessTruncatedNormalV2"}  # fmt: skip


def has_state(name):
    return name.startswith(("Assign", "Resource", "Rng", "Stateful", "Random", "Truncated", "Multinomial", "Parameterized"))


def all_cases():
    for name, _, dtypes in rows():
        for dtype in dtypes or [None]:
            if not has_state(name) and name not in ELSEWHERE:
                yield pytest.param(name, dtype, id=f"{name}-{dtype.name}" if dtype else name)


@pytest.mark.parametrize(("name", "dtype"), all_cases())
def test_op(name, dtype):
    arguments_of, scale = CASES[name]
    rng = generator(name, dtype)
    takes_name = arguments_of.__code__.co_argcount == 3
    for arguments in arguments_of(rng, dtype, name) if takes_name else arguments_of(rng, dtype):
        if name == "PadV2":
            arguments["constant_values"] = numbers(rng, (), dtype)
        if name == "MirrorPad":
            for mode in ["REFLECT", "SYMMETRIC"]:
                compare(name, arguments | {"mode": mode})
            continue
        if "shape" in arguments and not {"alpha", "input"} & set(arguments) and name.startswith("Stateless"):
            arguments["dtype"] = dtype
        if name.startswith("StatelessRandomUniformInt"):
            bounds = np.array([-100, 1000], dtype.as_numpy_dtype)
            del arguments["dtype"]
            arguments |= {"minval": bounds[0], "maxval": bounds[1]}
        has_f32_weights = name in ("ResizeBilinearGrad", "ResizeBicubicGrad") and dtype == tf.float64  # on the CPU
        compare(name, arguments, 0 if name in EXACT else 4e-6 if has_f32_weights else None, scale)


SEEDED = {name: dtypes for name, _, dtypes in rows() if name.startswith(("Random", "Truncated")) and not name.endswith("Grad")}
STATEFUL = {name: dtypes for name, _, dtypes in rows() if name.startswith("Stateful") and not name.endswith("Binomial")}


def drawn(device, name, dtype, seeds):
    """Numbers of several calls: each continues where the last one ended."""
    bounds = {"minval": tf.constant(-7, dtype), "maxval": tf.constant(1000, dtype)} if name.endswith("UniformInt") else {}
    kind = bounds or {"dtype": dtype}
    with tf.device(device):
        target = tf.Variable(np.array([2**63 - 1, -1, 77], "int64")) if name in STATEFUL else None
        state = {"resource": target.handle, "algorithm": 1} if target is not None else dict(zip(["seed", "seed2"], seeds, strict=True))
        found = []
        for dims in [(5,), (2, 3), (0, 2), (), (101,), (5,)]:
            result = getattr(tf.raw_ops, name)(shape=np.array(dims, "int32"), **state, **kind)
            assert device in result.device
            found.append(result.numpy())
        return [*found, *([target.numpy()] if target is not None else [])]


@pytest.mark.parametrize(("name", "dtype"), [(name, d) for name, ds in (SEEDED | STATEFUL).items() for d in ds])
def test_stateful_random_numbers(name, dtype):
    bound = 0 if "Truncated" in name or "Normal" not in name else TOLERANCES[dtype.name] * 16
    for seeds in [(3, 5), (0, 2**40 + 1)] if name in SEEDED else [None]:
        for want, have in zip(*(drawn(device, name, dtype, seeds) for device in ["CPU", "HEADRACE"]), strict=True):
            assert have.dtype == want.dtype
            wide = np.float64 if dtype in FLOATS and have.dtype.kind != "i" else have.dtype
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol=bound, atol=bound)


# Of each sampler: dims, means, deviations, bounds. Sets of elements have parameters of their own, or share them.
TRUNCATED = [((1000,), 0, 1, -2, 2), ((33, 7), -1, 1, -2, 2), ((333,), 0, 1, 4, np.inf), ((333,), 0, 1, -np.inf, -4),
             ((333,), 0, 1, -6, -3), ((333,), -5, 1, 2, np.inf), ((333,), 0, 0.1, 0.05, 0.1), ((333,), 0.8, 0.05, -1, 1),
             ((4, 60), [0, 1, -3, 0.5], [1, 2, 0.1, 3], -2, [2, 3, 4, 9]), ((3, 20, 2), 1, [1], [-2], [2]),
             ((3, 41), 0, 1, [-4, 3, 0.1], [1, np.inf, 0.2]), ((0,), 0, 1, -1, 1), ((3, 0), [0, 1, 2], 1, -1, 1), ((1,), 0, 1, -1, 1)]  # fmt: skip


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_truncated_numbers_with_parameters(dtype):
    """Several calls: each continues where the last one ended."""
    found = []
    for device in ["CPU", "HEADRACE"]:
        with tf.device(device):
            names = ["means", "stdevs", "minvals", "maxvals"]
            calls = [({name: tf.constant(x, dtype) for name, x in zip(names, more, strict=True)}, np.array(dims, index))
                     for dims, *more in TRUNCATED for index in ["int32", "int64"]]  # fmt: skip
            function = tf.raw_ops.ParameterizedTruncatedNormal
            found.append([function(shape=dims, seed=5, seed2=7, **more) for more, dims in calls])
            assert all(device in result.device for result in found[-1])
    for want, have in zip(*found, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have.numpy(), want.numpy())


@pytest.mark.parametrize("real", [tf.float16, tf.float32, tf.float64])
@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64, tf.int32, tf.int64])
def test_binomial_numbers_of_a_generator(dtype, real):
    cases = [((3, 4), [5, 40, 100, 0], [0.3, 0.9, 0.5, 0.2]), ((50, 2), 30, [0.2, 0.6]), ((6, 3), 12, [0.0, 1.0, 2.0]), ((5,), 200, 0.37),
             ((0, 2), 3, [0.1, 0.2]), ((0,), [], []), ((), 3, 0.5), ((2, 2, 3), [[1], [50]], [0.1, 0.2, 0.9])]  # fmt: skip
    found = []
    for device in ["CPU", "HEADRACE"]:
        with tf.device(device):
            target = tf.Variable(np.array([2**63 - 1, -1, 77], "int64"))
            target.assign_add([0, 0, 0])  # or TensorFlow's kernel may update the initial value, which the variable shares
            for dims, counts, chances in cases:
                result = tf.raw_ops.StatefulRandomBinomial(
                    resource=target.handle, algorithm=1, shape=np.array(dims, "int32"), counts=tf.constant(counts, real),
                    probs=tf.constant(chances, real), dtype=dtype)  # fmt: skip
                assert device in result.device
                found.append(result.numpy())
            found.append(target.numpy())
    for want, have in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)


# The number of candidates of dims, k, recall and the whole input's size, as of TensorFlow's shape function.
CANDIDATES = [((300,), 2, 0.95, -1, 300), ((2, 300), 0, 0.95, -1, 300), ((2, 300), 0, 0.1, -1, 256), ((2, 300), 1, 0.95, -1, 128), ((2, 300), 2, 0.95, -1, 256),
              ((2, 300), 2, 1.0, -1, 300), ((5000,), 3, 0.9, -1, 2048), ((2, 5000), 50, 0.9, 5000, 640), ((2, 5000), 10, 0.95, -1, 384), ((2, 5000), 10, 0.95, 20000, 128), ((2, 257), 2, 0.95, 10**6, 256),
              ((2, 100), 3, 0.5, 128, 100), ((2, 0), 0, 0.5, -1, 0)]  # fmt: skip


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_approximate_elements(dtype, clusters):
    """They are exact along each axis, the largest and the smallest, equal ones in the order of their places; without a
    last step there are as many as the shape function says."""
    headrace_tensorflow.use_clusters(clusters)
    cases = [((7, 3, 9), 2, axis, True, {}) for axis in (0, 1, -1, -3)]
    cases += [(dims, k, -1, False, {"recall_target": recall, "reduction_input_size_override": whole})
              for dims, k, recall, whole, _ in CANDIDATES]  # fmt: skip
    for (dims, k, axis, aggregates, more), is_max in itertools.product(cases, [True, False]):
        x = numbers(generator(dims, k), dims, dtype)
        arguments = {"k": k, "reduction_dimension": axis, "is_max_k": is_max, "aggregate_to_topk": aggregates, **more}
        with tf.device("HEADRACE"):
            body = lambda x, arguments=arguments: tf.raw_ops.ApproxTopK(input=x + x, **arguments)  # noqa: E731
            function = tf.function(body, jit_compile=True)
            found = [body(tf.constant(x)), function(tf.constant(x))]
        dims_of_function = function.get_concrete_function(tf.TensorSpec(dims, dtype)).output_shapes
        places = np.argsort(-x.astype(float) if is_max else x.astype(float), axis, kind="stable")
        wanted = np.take(places, range(dims_of_function.values[axis]), axis)
        for values, indices in found:
            assert values.shape == dims_of_function.values
            np.testing.assert_array_equal(indices.numpy(), wanted)
            np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x + x, wanted, axis))
    headrace_tensorflow.use_clusters(True)


def test_counts_of_approximate_elements():
    for dims, k, recall, whole, count in CANDIDATES:
        found = tf.raw_ops.ApproxTopK(input=tf.zeros(dims), k=k, recall_target=recall, reduction_input_size_override=whole,
                                      aggregate_to_topk=False)  # fmt: skip
        assert found.indices.shape[-1] == count


@pytest.mark.parametrize("dtype", sorted(FLOATS, key=str))
def test_seeded_categories(dtype):
    logits = tf.cast(np.random.default_rng(2).normal(size=(3, 6)), dtype)
    found = []
    for device in ["CPU", "HEADRACE"]:
        with tf.device(device):
            calls = [tf.raw_ops.Multinomial(logits=logits, num_samples=7, seed=3, seed2=4) for _ in range(3)]
            found.append(np.stack([call.numpy() for call in calls]))
            with pytest.raises(tf.errors.InvalidArgumentError):
                tf.raw_ops.Multinomial(logits=logits[:, :0], num_samples=7).numpy()
    np.testing.assert_array_equal(*found)


def test_numbers_without_seeds_differ():
    with tf.device("HEADRACE"):
        first, second = (tf.raw_ops.RandomUniform(shape=[64], dtype=tf.float32).numpy() for _ in range(2))
    assert (first != second).any()
    assert 0 <= first.min() < first.max() < 1


def test_generator_skips():
    results = []
    for device in ["CPU", "HEADRACE"]:
        with tf.device(device):
            state = tf.Variable(np.array([-5, 8, 9], "int64"))
            before = tf.raw_ops.RngReadAndSkip(resource=state.handle, alg=1, delta=np.uint64(3))
            tf.raw_ops.RngSkip(resource=state.handle, algorithm=1, delta=4)
            assert device in before.device
            results.append((before.numpy().tolist(), state.numpy().tolist()))
    assert results[0] == results[1]


def test_generators_keep_more_elements():
    results = []
    for device in ["CPU", "HEADRACE"]:
        with tf.device(device):
            state = tf.Variable(np.array([-5, 8, 9, 4, -7], "int64"))
            drawn = tf.raw_ops.StatefulUniformFullInt(resource=state.handle, algorithm=1, shape=[5], dtype=tf.int64)
            assert device in drawn.device
            results.append((drawn.numpy().tolist(), state.numpy().tolist()))
    assert results[0] == results[1] and results[0][1][3:] == [4, -7]


@pytest.mark.parametrize("channels", [(6, 4, 2), (4, 4, 4), (4, 8, 4)])
def test_gradients_of_groups(channels):
    """Against those of each group alone on the CPU."""
    inputs, results, groups = channels
    rng = generator("groups", channels)
    image, kernel = rng.normal(size=(2, 7, 6, inputs)), rng.normal(size=(3, 2, inputs // groups, results))
    gradient = rng.normal(size=(2, 4, 3, results))
    spec = window(2, "SAME")
    parts = [np.split(x, groups, axis=3) for x in (image, kernel, gradient)]
    want = [
        (
            *run("CPU", "Conv2DBackpropInput", {"input_sizes": x.shape, "filter": k, "out_backprop": g, **spec}),
            *run("CPU", "Conv2DBackpropFilter", {"input": x, "filter_sizes": k.shape, "out_backprop": g, **spec}),
        )
        for x, k, g in zip(*parts, strict=True)
    ]
    whole = {"out_backprop": gradient, **spec}
    (of_image,) = run("HEADRACE", "Conv2DBackpropInput", {"input_sizes": image.shape, "filter": kernel, **whole})
    (of_kernel,) = run("HEADRACE", "Conv2DBackpropFilter", {"input": image, "filter_sizes": kernel.shape, **whole})
    np.testing.assert_allclose(of_image, np.concatenate([part[0] for part in want], 3), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(of_kernel, np.concatenate([part[1] for part in want], 3), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.complex64, tf.complex128])
def test_decompositions(dtype):
    """Vectors have any sign or phase, so their products are compared."""
    rng, bound = generator("svd", dtype), 1e-4 if dtype in (tf.float32, tf.complex64) else 1e-11
    for dims, full in itertools.product([(4, 4), (5, 3), (2, 3, 5)], [False, True]):
        x = numbers(rng, dims, dtype)
        s, u, v = run("HEADRACE", "Svd", {"input": x, "compute_uv": True, "full_matrices": full})
        shapes = [part.shape for part in run("CPU", "Svd", {"input": x, "compute_uv": True, "full_matrices": full})]
        assert [s.shape, u.shape, v.shape] == shapes
        inner = s.shape[-1]
        product = (u[..., :inner] * s[..., None, :]) @ np.conj(np.swapaxes(v[..., :inner], -1, -2))
        np.testing.assert_allclose(product, x, rtol=bound, atol=bound)
        np.testing.assert_allclose(np.conj(np.swapaxes(u, -1, -2)) @ u, np.broadcast_to(np.eye(u.shape[-1]), u.shape[:-2] + (u.shape[-1],) * 2), atol=bound)
    x = numbers(rng, (2, 4, 4), dtype)
    x = x + np.conj(np.swapaxes(x, -1, -2))
    e, v = run("HEADRACE", "SelfAdjointEigV2", {"input": x, "compute_v": True})
    lu, order = run("HEADRACE", "Lu", {"input": x[0]})
    factors = (np.tril(lu, -1) + np.eye(4)) @ np.triu(lu)
    np.testing.assert_allclose(factors, x[0][order], rtol=bound, atol=bound)
    np.testing.assert_allclose((v * e[..., None, :]) @ np.conj(np.swapaxes(v, -1, -2)), x, rtol=bound, atol=bound)


@pytest.mark.parametrize("version", ["", "V2"])
def test_steps_that_do_not_count(version):
    arguments = sweep_more.lstm(generator("steps"), tf.float32, (5,)) | {"use_peephole": True}
    name = f"BlockLSTM{version}"
    want = run("CPU", name, arguments | {"seq_len_max": np.int64(3)})
    have = run("HEADRACE", name, arguments | {"seq_len_max": np.int64(3)})
    for result, other in zip(have, want, strict=True):
        np.testing.assert_allclose(result[:3], other[:3], rtol=1e-5, atol=1e-5)
        assert not result[3:].any()
    names = sweep_more.LSTM_RESULTS
    saved = dict(zip(names, have, strict=True)) | {"cs_grad": have[0], "h_grad": have[1]}
    for length in (3, 0):
        gradient = arguments | saved | {"seq_len_max": np.int64(length)}
        for result, other in zip(*(run(d, f"BlockLSTMGrad{version}", gradient) for d in ("HEADRACE", "CPU")), strict=True):
            counts = slice(0, length if result.shape == arguments["x"].shape else None)
            np.testing.assert_allclose(result[counts], other[counts], rtol=1e-4, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="seq_len_max 6"):
        run("HEADRACE", name, arguments | {"seq_len_max": np.int64(6)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="the dims of w do not fit"):
        run("HEADRACE", name, arguments | {"seq_len_max": np.int64(3), "w": arguments["w"][:, :-1]})


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_transforms_of_axes(dtype):
    rng, real = generator("axes", dtype), "float32" if dtype == "complex64" else "float64"
    bound = {"rtol": 1e-4, "atol": 1e-4} if dtype == "complex64" else {"rtol": 1e-11, "atol": 1e-11}
    x, y = rng.normal(size=(3, 4, 6)).astype(real), (rng.normal(size=(3, 4, 6)) + 1j).astype(dtype)
    for axes in [[0, 2], [2, 0], [-2], [0, 1, 2]]:
        lengths = [x.shape[axis] for axis in axes]
        places = {"fft_length": np.array(lengths, "int32"), "axes": np.array(axes, "int32")}
        for name, function in [("FFTND", np.fft.fftn), ("IFFTND", np.fft.ifftn)]:
            np.testing.assert_allclose(run("HEADRACE", name, {"input": y, **places})[0], function(y, axes=axes), **bound)
        (result,) = run("HEADRACE", "RFFTND", {"input": x, "Tcomplex": tf.as_dtype(dtype), **places})
        np.testing.assert_allclose(result, np.fft.rfftn(x, axes=axes), **bound)
        (result,) = run("HEADRACE", "IRFFTND", {"input": y, "Treal": tf.as_dtype(real), **places})
        np.testing.assert_allclose(result, np.fft.irfftn(y, s=lengths, axes=axes), **bound)


def test_empty():
    with tf.device("HEADRACE"):
        assert tf.raw_ops.Empty(shape=[2, 0, 3], dtype=tf.int64).numpy().shape == (2, 0, 3)
        assert tf.raw_ops.Empty(shape=[2, 3], dtype=tf.float32, init=True).numpy().tolist() == [[0] * 3] * 2


def test_numbers_that_are_not_finite():
    x = tf.constant([1.0, np.inf, np.nan])
    for part, found in [(x, "Inf and NaN"), (x[:2], "Inf"), (x[2:], "NaN")]:
        with tf.device("HEADRACE"), pytest.raises(tf.errors.InvalidArgumentError, match=f"of mine : Tensor had {found} values"):
            tf.raw_ops.CheckNumerics(tensor=part, message="of mine")


def test_convolution_without_results():
    image, kernel = np.zeros((0, 5, 5, 2), "float32"), np.zeros((3, 3, 2, 4), "float32")
    (result,) = run("HEADRACE", "Conv2D", {"input": image, "filter": kernel, **window(1, "SAME", 1)})
    assert result.shape == (0, 5, 5, 4)
    image, kernel = np.zeros((1, 3, 3, 2), "float32"), np.zeros((4, 4, 2, 5), "float32")
    (result,) = run("HEADRACE", "Conv2D", {"input": image, "filter": kernel, **window(1, "VALID", 1)})
    assert result.shape == (1, 0, 0, 5)
    deep = {"input": np.zeros((0, 4, 5, 6, 2), "float32"), "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    (result,) = run("HEADRACE", "Conv3D", {**deep, "filter": np.zeros((3, 3, 3, 2, 4), "float32")})
    assert result.shape == (0, 2, 3, 3, 4)
    (result,) = run("HEADRACE", "MaxPool3D", {**deep, "ksize": [1, 2, 2, 2, 1]})
    assert result.shape == (0, 2, 3, 3, 2)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [("Xlogy", "x", "y"), ("Xlog1py", "x", "y"), ("Xdivy", "x", "y"), ("MulNoNan", "y", "x"), ("DivNoNan", "y", "x"),
     ("SqrtGrad", "dy", "y"), ("RsqrtGrad", "dy", "y"), ("ReciprocalGrad", "dy", "y")],
)  # fmt: skip
def test_zero_absorbs(name, left, right):
    """A zero on the left gives zero, whatever number the other one is; both are compared with TensorFlow's CPU."""
    numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0, -3.0]
    pairs = np.array(list(itertools.product([0.0, -0.0, 1.0, -2.0], numbers)), np.float32)
    compare(name, {left: pairs[:, 0].copy(), right: pairs[:, 1].copy()}, tolerance=1e-6)


def test_sparse_cross_entropy_of_masked_logits():
    logits = np.array([[1, -np.inf, 2], [-np.inf, -np.inf, 3], [0, 1, -np.inf]], np.float32)
    compare("SparseSoftmaxCrossEntropyWithLogits", {"features": logits, "labels": np.array([0, 2, 2])})


def betainc(a, b, x, dtype="float64"):
    with tf.device("HEADRACE"):
        return tf.math.betainc(*(tf.constant(operand, dtype) for operand in np.broadcast_arrays(a, b, x))).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_betainc_of_infinite_parameters(dtype):
    inf, nan = np.inf, np.nan
    cases = [(inf, 2, 0.5, nan), (2, inf, 0.5, nan), (inf, inf, 0.5, nan), (nan, inf, 0.5, nan), (inf, nan, 0.5, nan),
             (-inf, 2, 0.5, nan), (2, -inf, 0.5, nan), (inf, inf, 0, 0), (inf, inf, 1, 1), (2, inf, 2, nan),
             (1e-30, inf, 1e-30, nan), (inf, 1e30, 1 - 1e-6, nan)]  # fmt: skip
    a, b, x, expected = np.array(cases * 1000).T  # no element takes many terms
    np.testing.assert_array_equal(betainc(a, b, x, dtype), expected)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-7), ("float64", 2e-14)])
def test_betainc_of_unlike_parameters(dtype, tolerance):
    large = np.array([3, 40, 1e3, 1e6, 1e9, 1e12, 1e15, 1e18, 1e30], dtype).astype("float64")[:, None]
    x = np.minimum((np.array([1e-3, 0.5, 1, 5, 20]) / large).astype(dtype), np.array(0.75, dtype)).astype("float64")
    exact = -np.expm1(large * np.log1p(-x))
    np.testing.assert_allclose(betainc(1, large, x, dtype), exact, tolerance)
    small = np.array([1e-6, 0.5, 1, 3], dtype).astype("float64")[:, None]
    x = np.array([1e-6, 1e-3, 0.25, 0.75, 1 - 2.0**-20], dtype).astype("float64")
    np.testing.assert_allclose(betainc(small, 1, x, dtype), x**small, tolerance)
    np.testing.assert_allclose(betainc(large, 1, 1 - 1 / 2 / large, "float64"), (1 - 1 / 2 / large) ** large, 4e-15)


def test_betainc_of_large_parameters():
    a = np.array([1.5e3, 1.5e9, 1.5e12, 1.5e300, 1.5e308])
    np.testing.assert_allclose(betainc(a, a, 0.5), 0.5, 1e-9)
    # A standard deviation above the mean, on both sides of the change to a normal distribution.
    below, above = 1e9, 1.00000001e9
    for b in [1e10, 1e15]:
        x = [(a + np.sqrt(a * b / (a + b))) / (a + b) for a in (below, above)]
        values = betainc([below, above], b, x)
        np.testing.assert_allclose(values[0], values[1], 1e-8)


def ctc_arguments(labels, lengths):
    places = np.array([(b, i) for b, row in enumerate(labels) for i in range(len(row))], "int64").reshape(-1, 2)
    return {"labels_indices": places, "labels_values": np.array([x for row in labels for x in row], "int32"),
            "sequence_length": np.array(lengths, "int32")}  # fmt: skip


def ctc_loss(logits, arguments):
    with tf.device("HEADRACE"):
        loss, gradient = tf.raw_ops.CTCLossV2(inputs=logits, **arguments)
    return loss.numpy(), gradient.numpy()


@pytest.mark.parametrize(("times", "classes", "labels", "lengths"), [
    (6, 4, [[1, 2, 1], [2, 2], [3], [3]], [6, 5, 4, 1]), (1, 2, [[1]], [1]), (9, 3, [[1, 1, 1, 1, 1]], [9]),
    (7, 9, [[8, 3, 8, 8], [1, 2, 3, 4, 5, 6, 7]], [5, 7]), (40, 12, [list(range(1, 12)) * 2, [5]], [40, 33])])  # fmt: skip
def test_ctc_loss(times, classes, labels, lengths):
    """The kernel of the CPU has its blank behind the other classes."""
    logits = 4 * numbers(generator("ctc", times), (times, len(labels), classes), tf.float32)
    arguments = ctc_arguments(labels, lengths)
    with tf.device("CPU"):
        moved = arguments | {"labels_values": arguments["labels_values"] - 1}
        want, gradient = tf.raw_ops.CTCLoss(inputs=np.roll(logits, -1, 2), **moved)
    loss, have = ctc_loss(logits, arguments)
    np.testing.assert_allclose(loss, want.numpy(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(have, np.roll(gradient.numpy(), 1, 2), rtol=2e-4, atol=2e-4)  # the other one computes in f32


@pytest.mark.parametrize(("times", "classes", "lengths"), [(5, 3, [5, 0, 2]), (4, 1, [4]), (0, 3, [0]), (3, 2, [])])
def test_ctc_loss_without_labels(times, classes, lengths):
    """All is blank, which TensorFlow's CPU device refuses."""
    logits = numbers(generator("ctc", times), (times, len(lengths), classes), tf.float32)
    shares = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    is_used = np.arange(times)[:, None] < np.array(lengths, int)
    loss, gradient = ctc_loss(logits, ctc_arguments([[] for _ in lengths], lengths))
    np.testing.assert_allclose(loss, -(np.log(shares[:, :, 0]) * is_used).sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, (shares - np.eye(classes)[0]) * is_used[:, :, None], atol=1e-6)
