"""Cases of the sweep for results whose dims depend on numbers: places, distinct elements, parts by number, boxes; for
resampled images and sparse tensors."""

import numpy as np
import tensorflow as tf
from sweep import DIMS, FLOATS, case, numbers


def few(rng, dims, dtype):
    """Numbers among which many are equal, or 0."""
    x = rng.integers(0, 4, dims)
    found = (x > 1 if dtype == tf.bool else x).astype(dtype.as_numpy_dtype)
    if dtype in FLOATS and found.size >= 5:
        found.reshape(-1)[-4:] = [np.nan, 0.0 if dtype.size == 2 else -0.0, np.nan, 2]
    return found


@case("Where")
def _(rng, dtype):
    for dims in DIMS[1:] + [(3, 0), (2, 1, 2, 3)]:
        yield {"condition": few(rng, dims, dtype)}
        yield {"condition": np.zeros(dims, dtype.as_numpy_dtype)}


@case("Unique", "UniqueWithCounts")
def _(rng, dtype):
    for count, index in [(0, tf.int32), (1, tf.int64), (7, tf.int32), (1000, tf.int64)]:
        yield {"x": few(rng, (count,), dtype), "out_idx": index}


@case("UniqueV2", "UniqueWithCountsV2")
def _(rng, dtype):
    for dims, axis in [((9,), []), ((9,), [0]), ((20, 2), [0]), ((2, 20), [-1]), ((2, 12, 2), [1]), ((0, 3), [0]), ((3, 0), [0]), ((3, 0), [1])]:
        for index in (tf.int32, tf.int64):
            yield {"x": few(rng, dims, dtype), "axis": np.array(axis, index.as_numpy_dtype), "out_idx": index}


@case("DynamicPartition")
def _(rng, dtype):
    for dims, rank, parts in [((9,), 1, 3), ((9, 2), 1, 4), ((3, 4, 2), 2, 2), ((3,), 0, 2), ((0, 3), 1, 2), ((4, 0), 1, 2)]:
        places = rng.integers(0, parts, dims[:rank]).astype("int32")
        yield {"data": numbers(rng, dims, dtype), "partitions": places, "num_partitions": parts}


SEGMENTS = [[0, 0, 1, 3, 3, 3], [0, 1, 2, 3, 4, 5], [5, 5, 5, 5, 5, 5]]


@case("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin", scale=8)
def _(rng, dtype):
    for dims in [(6,), (6, 3), (6, 2, 2), (6, 0)]:
        for places, index in zip(SEGMENTS, ["int32", "int64", "int32"], strict=True):
            yield {"data": numbers(rng, dims, dtype, 0, 1), "segment_ids": np.array(places, index)}
    yield {"data": numbers(rng, (0, 3), dtype), "segment_ids": np.zeros(0, "int64")}


@case("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN", scale=8)
@case("SparseSegmentSumWithNumSegments", "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtNWithNumSegments", scale=8)
def _(rng, dtype, name):
    more = {"num_segments": np.int32(8)} if name.endswith("Segments") else {}
    for dims in [(4,), (9, 3), (5, 2, 2)]:
        for places, index in zip(SEGMENTS, ["int32", "int64", "int32"], strict=True):
            rows = rng.integers(0, dims[0], 6).astype(index)
            yield {"data": numbers(rng, dims, dtype, 0, 1), "indices": rows, "segment_ids": np.array(places, "int32")} | more
    yield {"data": numbers(rng, (3, 2), dtype), "indices": np.zeros(0, "int32"), "segment_ids": np.zeros(0, "int32")} | more


@case("SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad", scale=8)
@case("SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2", scale=8)
def _(rng, dtype, name):
    count = "dense_output_dim0" if name.endswith("V2") else "output_dim0"
    for dims in [(6,), (6, 3), (7, 2, 2)]:
        for places, index in zip(SEGMENTS, ["int32", "int64", "int32"], strict=True):
            rows = rng.integers(0, 9, 6).astype(index)
            yield {"grad": numbers(rng, dims, dtype, 0, 1), "indices": rows, "segment_ids": np.array(places, "int32"), count: np.int32(9)}
    none = np.zeros(0, "int32")
    for rows in (9, 0) if name.endswith("V2") else (0,):  # of 9 rows TensorFlow's first version has no contents
        yield {"grad": numbers(rng, (3, 2), dtype), "indices": none, "segment_ids": none, count: np.int32(rows)}


@case("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4")
def _(rng, dtype, name):
    for count, most in [(40, 10), (40, 100), (0, 3), (5, 0)]:
        corners = rng.uniform(0, 8, (count, 2))
        boxes = np.concatenate([corners, corners + rng.uniform(1, 6, (count, 2))], 1).astype(dtype.as_numpy_dtype)
        scores = rng.permutation(count).astype(dtype.as_numpy_dtype)
        found = {"boxes": boxes, "scores": scores, "max_output_size": np.int32(most)}
        found |= {"iou_threshold": tf.constant(0.3, dtype)}
        if name == "NonMaxSuppressionV2":
            yield found
        else:
            padding = [{"pad_to_max_output_size": pads} for pads in (False, True)] if name.endswith("4") else [{}]
            for more in padding:
                yield found | {"score_threshold": tf.constant(4, dtype)} | more


@case("StatelessRandomBinomial")
def _(rng, dtype):
    """Both algorithms, mirrored or not, chances at the ends, counts and chances that are broadcast."""
    for real in (tf.float32, tf.float64, tf.float16):
        for shape, counts, chances in [((3, 4), [5, 40, 100, 0], [0.3, 0.9, 0.5, 0.2]), ((50, 2), 30, [0.2, 0.6]),
                                       ((6, 3), 12, [0.0, 1.0, 2.0]), ((5,), 200, 0.37), ((0, 2), 3, [0.1, 0.2])]:  # fmt: skip
            yield {"shape": np.array(shape, "int32"), "seed": np.array([7, 11], "int32"), "counts": tf.constant(counts, real),
                   "probs": tf.constant(chances, real), "dtype": dtype}  # fmt: skip


@case("DynamicStitch")
def _(rng, dtype):
    """Places that occur twice: the last piece counts. Empty pieces, places of more dims, rows of several dims."""
    for dims in [(), (3,), (2, 2), (0,)]:
        places = [rng.permutation(7)[:4], rng.permutation(9), np.zeros((0,)), np.arange(6).reshape(2, 3) + 3]
        pieces = [numbers(rng, (*place.shape, *dims), dtype) for place in places]
        yield {"indices": [place.astype("int32") for place in places], "data": pieces}


@case("Bucketize")
def _(rng, dtype):
    for dims in DIMS:
        for boundaries in [[-2.5, 0.0, 0.1, 1.0, 1.0, 3.0], [], np.linspace(-4, 4, 100).tolist()]:
            yield {"input": numbers(rng, dims, dtype, special=True), "boundaries": boundaries}


@case("Reverse")
def _(rng, dtype):
    for dims, flags in [((3, 4), [True, False]), ((2, 0, 3), [False, True, True]), ((), []), ((5,), [False])]:
        yield {"tensor": numbers(rng, dims, dtype), "dims": np.array(flags)}


@case("ScaleAndTranslate", "ScaleAndTranslateGrad", scale=16)
def _(rng, dtype, name):
    kernels = ["lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"]
    for kernel in kernels:
        for antialias, size, scale, translation in [(True, (3, 9), (0.6, 1.5), (0.0, 0.0)), (False, (8, 4), (1.7, 0.4), (-1.0, 2.5)),
                                                    (True, (4, 4), (0.3, 0.7), (5.0, -3.0))]:  # fmt: skip
            places = {"scale": np.array(scale, "float32"), "translation": np.array(translation, "float32")}
            more = places | {"kernel_type": kernel, "antialias": antialias}
            images = numbers(rng, (2, 5, 6, 3), dtype)
            if name == "ScaleAndTranslate":
                yield {"images": images, "size": np.array(size, "int32")} | more
            else:
                yield {"grads": numbers(rng, (2, *size, 3), dtype), "original_image": images} | more


@case("HistogramFixedWidth")
def _(rng, dtype):
    for dims, (low, high), bins in [((200,), (-2, 3), 7), ((4, 5), (0, 1), 10), ((0,), (0, 1), 3), ((3,), (-9, 9), 1)]:
        for index in (tf.int32, tf.int64):
            yield {"values": numbers(rng, dims, dtype), "value_range": tf.constant([low, high], dtype), "nbins": np.int32(bins),
                   "dtype": index}  # fmt: skip
