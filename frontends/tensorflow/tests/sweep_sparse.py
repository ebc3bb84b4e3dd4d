"""Cases of the sweep for sparse tensors: places, values and dims, also without elements."""

import numpy as np
import tensorflow as tf
from sweep import case, numbers

SHAPES = [(5,), (3, 4), (2, 3, 4), (4, 0)]


def sparse(rng, dims, dtype, share=0.5, is_ordered=True):
    """Places and values of some elements."""
    places = np.argwhere(rng.uniform(size=dims) < share).astype("int64")
    if not is_ordered:
        places = rng.permutation(places)
    return places, numbers(rng, (len(places),), dtype), np.array(dims, "int64")


@case("SparseToDense")
def _(rng, dtype):
    for dims in SHAPES:
        for index in ("int32", "int64"):
            places, values, shape = sparse(rng, dims, dtype)
            number = {"default_value": numbers(rng, (), dtype), "validate_indices": True}
            yield {"sparse_indices": places.astype(index), "output_shape": shape.astype(index), "sparse_values": values} | number
            yield {"sparse_indices": places.astype(index), "output_shape": shape.astype(index), "sparse_values": numbers(rng, (), dtype)} | number
    vector = {"output_shape": np.array([9], "int64"), "default_value": numbers(rng, (), dtype)}
    yield {"sparse_indices": np.array([1, 4, 8]), "sparse_values": numbers(rng, (3,), dtype)} | vector
    yield {"sparse_indices": np.array(4), "sparse_values": numbers(rng, (), dtype)} | vector


@case("SparseTensorDenseAdd")
def _(rng, dtype):
    for dims in SHAPES:
        places, values, shape = sparse(rng, dims, dtype)
        yield {"a_indices": places, "a_values": values, "a_shape": shape, "b": numbers(rng, dims, dtype)}


@case("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv", scale=2)
def _(rng, dtype):
    for dims, other in [((5,), (5,)), ((3, 4), (4,)), ((2, 3, 4), (3, 1)), ((3, 4), ()), ((3, 2), (3, 2))]:
        places, values, shape = sparse(rng, dims, dtype, 0.0 if dims == (3, 2) else 0.5)
        yield {"sp_indices": places, "sp_values": values, "sp_shape": shape, "dense": numbers(rng, other, dtype, 1, 4)}


@case("SparseReshape")
def _(rng, dtype):
    for dims, new in [((6,), (2, 3)), ((3, 4), (2, -1)), ((2, 3, 4), (24,)), ((2, 3, 4), (4, 3, 2)), ((4, 0), (0, 7))]:
        places, _, shape = sparse(rng, dims, tf.float32)
        yield {"input_indices": places, "input_shape": shape, "new_shape": np.array(new, "int64")}


@case("SparseReorder")
def _(rng, dtype):
    for dims in SHAPES:
        places, values, shape = sparse(rng, dims, dtype, is_ordered=False)
        yield {"input_indices": places, "input_values": values, "input_shape": shape}


@case("SparseConcat")
def _(rng, dtype):
    for axis, every in [(0, [(2, 3), (4, 3), (1, 3)]), (-1, [(2, 3), (2, 1)]), (1, [(2, 2, 2), (2, 5, 2)])]:
        parts = [sparse(rng, dims, dtype) for dims in every]
        yield {"indices": [p[0] for p in parts], "values": [p[1] for p in parts], "shapes": [p[2] for p in parts], "concat_dim": axis}


@case("SparseSlice")
def _(rng, dtype):
    for dims, start, size in [((6,), (2,), (3,)), ((5, 6), (1, 2), (2, 9)), ((2, 3, 4), (0, 0, 3), (2, 2, 1)), ((3, 4), (2, 3), (0, 1))]:
        places, values, shape = sparse(rng, dims, dtype)
        yield {"indices": places, "values": values, "shape": shape, "start": np.array(start, "int64"), "size": np.array(size, "int64")}


@case("SparseAdd", "SparseSparseMaximum", "SparseSparseMinimum")
def _(rng, dtype, name):
    for dims in SHAPES:
        for share in (0.5, 0.0):
            a, b = sparse(rng, dims, dtype), sparse(rng, dims, dtype, share)
            found = {f"{side}_{part}": x for side, s in (("a", a), ("b", b)) for part, x in zip(("indices", "values", "shape"), s, strict=True)}
            if name == "SparseAdd":
                found["thresh"] = np.array(1.5 if share else 0).astype(dtype.real_dtype.as_numpy_dtype)
            yield found


@case("SparseReduceSum", "SparseReduceMax", "SparseReduceSumSparse", "SparseReduceMaxSparse", scale=4)
def _(rng, dtype):
    for dims, axes, share in [((5,), [0], 0.6), ((4, 5), [1], 0.5), ((4, 5), [-2], 0.5), ((3, 4, 5), [0, 2], 0.3), ((3, 4), [], 0.5), ((3, 4), [1], 0.0), ((2, 3, 2), [1], 1.0)]:
        for keeps in (False, True):
            places, values, shape = sparse(rng, dims, dtype, share)
            yield {"input_indices": places, "input_values": values, "input_shape": shape, "reduction_axes": np.array(axes, "int32"), "keep_dims": keeps}


@case("SparseFillEmptyRows")
def _(rng, dtype):
    for dims, share in [((6, 3), 0.3), ((5, 1), 0.5), ((4, 2, 2), 0.2), ((3, 2), 0.0), ((3, 4), 1.0)]:
        places, values, shape = sparse(rng, dims, dtype, share)
        yield {"indices": places, "values": values, "dense_shape": shape, "default_value": numbers(rng, (), dtype)}


@case("RaggedFillEmptyRows")
def _(rng, dtype):
    for rows, count in [([0, 0, 2, 4], 6), ([], 3), ([0, 1, 1, 2], 3), ([3, 0, 3, 1], 5)]:
        yield {"value_rowids": np.array(rows, "int64"), "values": numbers(rng, (len(rows),), dtype), "nrows": np.int64(count), "default_value": numbers(rng, (), dtype)}


@case("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad", scale=4)
def _(rng, dtype):
    for places, count in [([0, 2, 3], 6), ([], 3), ([0, 1], 2)]:
        yield {"reverse_index_map": np.array(places, "int64"), "grad_values": numbers(rng, (count,), dtype)}


@case("DenseCountSparseOutput")
def _(rng, dtype):
    for dims, least, most, is_binary in [((9,), -1, -1, False), ((3, 7), 9, -1, False), ((3, 7), -1, 4, True), ((0,), 3, -1, False), ((2, 0), -1, 5, False), ((2, 6), 1, 3, False)]:
        for index in ("int32", "int64"):
            for share in (0, 1):
                weights = numbers(rng, dims if share and not is_binary else (0,), dtype)
                yield {"values": rng.integers(0, 6, dims).astype(index), "weights": weights, "minlength": least, "maxlength": most, "binary_output": is_binary}
    yield {"values": np.array([5, 7]), "weights": numbers(rng, (0,), dtype), "maxlength": 4, "binary_output": False}


SPLITS, IDS, FIRST = "ROW_SPLITS", "VALUE_ROWIDS", "FIRST_DIM_SIZE"
RAGGED = [([[0, 2, 2, 6]], [SPLITS], [-1, -1]), ([3, [0, 0, 1, 1, 1, 2]], [FIRST, IDS], [4, 2]), ([[0, 2, 3], [0, 1, 4, 6]], [SPLITS] * 2, [-1, 3, 2]),
          ([3, [0, 0, 2], [0, 2, 2, 2, 2, 2]], [FIRST, IDS, IDS], [-1, -1, -1]), ([6], [FIRST], [-1]), ([6], [FIRST], [8]), ([[0]], [SPLITS], [2, 3]),
          ([[0, 1, 5]], [SPLITS], [1, -1])]  # fmt: skip


@case("RaggedTensorToTensor")
def _(rng, dtype):
    for rows, types, dims in RAGGED:
        for inner in [(), (3,), (2, 2), (0,)]:
            count = 0 if rows == [[0]] else 6
            for index, is_open in (("int64", False), ("int32", True)):
                shape = np.array(-1 if is_open else dims + [-1] * len(inner), index)
                yield {"shape": shape, "values": numbers(rng, (count, *inner), dtype), "default_value": numbers(rng, inner[1:] if is_open else (), dtype),
                       "row_partition_tensors": [np.array(x, index) for x in rows], "row_partition_types": types}  # fmt: skip


@case("RaggedRange")
def _(rng, dtype):
    def parts(starts, limits, steps):
        return {key: tf.constant(x, dtype) for key, x in (("starts", starts), ("limits", limits), ("deltas", steps))}

    for starts, steps in [([0, 3, 2, 2, 1], [1, 2, -2, 1, 3]), (2, [1, 5, -1, 1, 1]), ([1, 2, -3, 0, 1], 2), ([5, 9, -3, 4, 8], -1)]:
        for split in (tf.int32, tf.int64):
            yield parts(starts, [4, 9, -3, 2, 5], steps) | {"Tsplits": split}
    yield parts(0, 9, 2)
    yield parts([], [], 1)
    if dtype.is_floating:
        yield parts([0, 1], [1, -1], [0.1, -0.3])


@case("SparseCountSparseOutput")
def _(rng, dtype):
    for dims, least, most, is_binary in [((9,), -1, -1, False), ((3, 7), 9, -1, False), ((3, 7), -1, 4, True), ((2, 6), 1, 3, False)]:
        for index, share in [("int32", 0.5), ("int64", 0.8), ("int64", 0.0)]:
            places, weights, shape = sparse(rng, dims, dtype, share)
            values = rng.integers(0, 6, len(places)).astype(index)
            yield {"indices": places, "values": values, "dense_shape": shape, "weights": weights[: 0 if is_binary else None], "minlength": least,
                   "maxlength": most, "binary_output": is_binary}  # fmt: skip


@case("SparseToSparseSetOperation")
def _(rng, dtype):
    for dims, share in [((4, 5), 0.6), ((2, 3, 4), 0.5), ((3, 4), 0.0)]:
        for operation in ("a-b", "b-a", "intersection", "union"):
            found = {"set_operation": operation, "validate_indices": False}
            for side in ("set1", "set2"):
                places, _, shape = sparse(rng, dims, dtype, share)
                values = tf.constant(rng.integers(0, 7, len(places)), dtype)
                found |= {f"{side}_indices": places, f"{side}_values": values, f"{side}_shape": shape}
            yield found
