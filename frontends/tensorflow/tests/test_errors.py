"""Bad inputs have TensorFlow's exception types, at their line, and the process goes on."""

import numpy as np
import pytest
import tensorflow as tf

ONES = np.ones((2, 3), "float32")


def truncated(**arguments):
    known = {"shape": [2], "means": 0.0, "stdevs": 1.0, "minvals": -1.0, "maxvals": 1.0}
    return tf.raw_ops.ParameterizedTruncatedNormal(**(known | arguments))


def blocks(name, sizes, **sides):
    sides = sides or {"paddings" if name.startswith("Space") else "crops": [[0, 0]] * len(sizes)}
    sides = {key: tf.constant(value, "int64") for key, value in sides.items()}
    images, block = np.ones((10, 5, 5, 2), "float32"), tf.constant(sizes, "int64")
    return getattr(tf.raw_ops, name)(input=images, block_shape=block, **sides)


def generated(state=(1, 2, 3), dtype="int64", algorithm=1):
    variable = tf.Variable(state, dtype=dtype)
    return tf.raw_ops.StatefulStandardNormalV2(resource=variable.handle, algorithm=algorithm, shape=[2])


def convolution(strides=(1, 1, 1, 1), **more):
    image, kernel = np.ones((1, 4, 4, 2), "float32"), np.ones((1, 1, 2, 3), "float32")
    return tf.raw_ops.Conv(input=image, filter=kernel, strides=strides, padding="SAME", **more)


def united(places):
    places, values, dims = np.array(places, "int64"), np.arange(2, dtype="int64"), np.array([3, 4], "int64")
    return tf.raw_ops.SparseToSparseSetOperation(
        set1_indices=places[:1], set1_values=values[:1], set1_shape=dims, set2_indices=places, set2_values=values,
        set2_shape=dims, set_operation="union")  # fmt: skip


def ctc_loss(labels, times, place=0, **attributes):
    places = np.array([(place, i) for i in range(len(labels))], "int64").reshape(-1, 2)
    return tf.raw_ops.CTCLossV2(
        inputs=np.ones((3, 1, 4), "float32"), labels_indices=places, labels_values=np.array(labels, "int32"),
        sequence_length=np.array(times, "int32"), **attributes)  # fmt: skip


BAD = {
    "ctc labels": (lambda: ctc_loss([2, 2], [2]), r"Not enough time .*required: 3, available: 2"),
    "ctc blank": (lambda: ctc_loss([0], [3]), "label 0 is 0, expected 1 to 3"),
    "ctc class": (lambda: ctc_loss([4], [3]), "label 0 is 4, expected 1 to 3"),
    "ctc place": (lambda: ctc_loss([1], [3], 1), "labels batch index must be between 0 and 1 but saw: 1"),
    "ctc times": (lambda: ctc_loss([1], [4]), "sequence_length.0. <= 3, it is 4"),
    "ctc batch": (lambda: ctc_loss([1], [3, 3]), "batch_size. len.sequence_length.:  2 batch_size: 1"),
    "ctc attribute": (lambda: ctc_loss([1], [3], ctc_merge_repeated=False), "the default of each attribute"),
    "ragged rows": (lambda: tf.raw_ops.RaggedFillEmptyRows(value_rowids=[[1]], values=ONES[0], nrows=3, default_value=1.0),
                    "value_rowids must be a vector"),
    "matmul": (lambda: tf.matmul(ONES, ONES), r"size-incompatible: In.0.: .2,3., In.1.: .2,3.: 3 columns, 2 rows"),
    "matmul of vectors": (lambda: tf.raw_ops.MatMul(a=ONES[0], b=ONES), "must be matrices"),
    "add": (lambda: tf.raw_ops.AddV2(x=ONES, y=np.ones((2, 4), "float32")), "Incompatible shapes: .2,3. vs. .2,4."),
    "not equal": (lambda: tf.raw_ops.NotEqual(x=ONES, y=np.ones((2, 4), "float32")), "Incompatible shapes: .2,3. vs. .2,4."),
    "divide": (lambda: tf.math.divide_no_nan(ONES, np.ones((2, 4), "float32")), "Incompatible shapes: .2,3. vs. .2,4."),
    "difference": (lambda: tf.math.squared_difference(ONES, np.ones((2, 4), "float32")), "Incompatible shapes: .2,3. vs. .2,4."),
    "bias": (lambda: tf.nn.bias_add(ONES, np.ones(4, "float32")), "one dim of 3 elements"),
    "axis": (lambda: tf.reduce_sum(tf.constant(ONES), axis=2), "invalid reduction dimension 2"),
    "axis twice": (lambda: tf.raw_ops.Sum(input=ONES, axis=[0, -2]), "Axes contains duplicate dimension: 0"),
    "argmax": (lambda: tf.raw_ops.ArgMax(input=ONES, dimension=5), "out of range"),
    "concat": (lambda: tf.concat([ONES, np.ones((2, 4), "float32")], 0), "3.*4|4.*3"),
    "slice": (lambda: tf.slice(ONES, [1, 0], [2, 3]), "leave dim 0"),
    "index": (lambda: tf.constant(ONES)[5], "out of bounds"),
    "fill": (lambda: tf.raw_ops.Fill(dims=[2, -1], value=1.0), "must not be negative"),
    "paddings": (lambda: tf.raw_ops.Pad(input=ONES, paddings=[[0, -1], [0, 0]]), "non-negative"),
    "tile": (lambda: tf.raw_ops.Tile(input=ONES, multiples=[2]), "1 multiples for 2 dims"),
    "broadcast": (lambda: tf.broadcast_to(ONES, [2, 4]), "3.*4"),
    "unique of a matrix": (lambda: tf.raw_ops.UniqueWithCounts(x=ONES), "1D vector"),
    "unique along an axis": (lambda: tf.raw_ops.UniqueV2(x=ONES, axis=[2]), r"axis has to be between \[0, 2\)"),
    "partitions": (
        lambda: tf.dynamic_partition(tf.constant(ONES), [0, 1, 0], 2),
        "must start with partitions.shape|starts",
    ),
    "boxes": (lambda: tf.raw_ops.NonMaxSuppressionV3(boxes=ONES, scores=ONES[0], max_output_size=2, iou_threshold=0.5,
                                                     score_threshold=0.0), "4 columns|4 column"),
    "overlap": (lambda: tf.raw_ops.NonMaxSuppressionV2(boxes=np.ones((3, 4), "float32"), scores=ONES[0], max_output_size=2,
                                                       iou_threshold=1.5), r"must be in \[0, 1\]"),
    "dim of the largest": (
        lambda: tf.raw_ops.ApproxTopK(input=ONES, k=1, reduction_dimension=2),
        r"dimension: 2.*\[-2, 1\]",
    ),
    "too many of the largest": (lambda: tf.raw_ops.ApproxTopK(input=ONES, k=4), "at least k elements.*Had 3, needed 4"),
    "recall": (lambda: tf.raw_ops.ApproxTopK(input=ONES, k=1, recall_target=0.0), "recall target: 0"),
    "the largest of a number": (lambda: tf.raw_ops.ApproxTopK(input=1.0, k=1), "must be >= 1-D"),
    "candidates": (
        lambda: tf.raw_ops.ApproxTopK(input=np.ones((1, 129), "float32"), k=2, reduction_input_size_override=500,
                                      aggregate_to_topk=False),
        "500 makes 256 candidates of the 129 elements",
    ),
    "size of the whole": (
        lambda: tf.raw_ops.ApproxTopK(input=ONES, k=2, reduction_input_size_override=2, aggregate_to_topk=False),
        "reduction_input_size_override: 2 makes 3 candidates of the 3",
    ),
    "means of truncated numbers": (
        lambda: truncated(means=[1.0, 2.0, 3.0]),
        r"means should have length 1 or shape\[0\]: 3 .* 2",
    ),
    "matrix of bounds": (lambda: truncated(minvals=ONES), "minvals should be a scalar or vector, got 2 dims"),
    "no shape of truncated numbers": (lambda: truncated(shape=np.zeros(0, "int32")), "Shape tensor must not be empty"),
    "negative deviation": (lambda: truncated(stdevs=-1.0).numpy(), "Invalid parameters: standard deviation -1"),
    "equal bounds": (lambda: truncated(minvals=1.0).numpy(), "Invalid parameters: .* minimum 1, maximum 1"),
    "no bounds": (
        lambda: truncated(minvals=-np.inf, maxvals=np.inf).numpy(),
        "Invalid parameters: .* minimum -inf, maximum inf",
    ),
    "counts of binomial numbers": (
        lambda: tf.raw_ops.StatefulRandomBinomial(resource=tf.Variable([1, 2, 3], dtype="int64").handle, algorithm=1,
                                                  shape=[2, 3], counts=[1.0, 2.0], probs=0.5),
        "must end with broadcasted shape",
    ),
    "falling segments": (lambda: tf.math.segment_sum(ONES, [1, 0]), "segment ids are not increasing"),
    "negative segment": (lambda: tf.math.segment_max(ONES, [-1, 0]), "segment ids must be >= 0"),
    "segments": (lambda: tf.raw_ops.SegmentMean(data=ONES, segment_ids=[0]), "same size as dimension 0"),
    "rows of segments": (lambda: tf.sparse.segment_sum(ONES, [0, 2], [0, 1]), r"indices.1. = 2 is out of range .0, 2"),
    "too many segments": (
        lambda: tf.sparse.segment_mean(ONES, [0, 1], [0, 3], num_segments=3),
        "must be < num_segments",
    ),
    "split": (lambda: tf.split(tf.constant(ONES), 2, axis=1), "can't be split|divisible"),
    "select": (lambda: tf.raw_ops.Select(condition=[True], x=ONES, y=ONES), "same dims"),
    "cross entropy": (
        lambda: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=ONES, labels=[0, 1, 2]),
        "one of the same size",
    ),
    "negative part": (
        lambda: tf.raw_ops.SplitV(value=ONES, size_splits=[-2, 5], axis=1, num_split=2),
        "size at index 0 must be >= 0. Got: -2",
    ),
    "other parts": (
        lambda: tf.raw_ops.SplitV(value=ONES, size_splits=[1, 3], axis=1, num_split=2),
        "shape must either match .* dim 1, which has 3",
    ),
    "no axis": (lambda: tf.raw_ops.Split(value=ONES, axis=np.zeros(0, "int32"), num_split=1), "exactly one element"),
    "dims of a fill": (lambda: tf.fill([[0, 1], [2, 3]], 1.0), "must be a vector"),
    "two open parts": (
        lambda: tf.raw_ops.SplitV(value=ONES, size_splits=[-1, -1, 3], axis=1, num_split=3),
        "at index 1 must be >= 0. Got: -1",
    ),
    "too many parts": (
        lambda: tf.raw_ops.SplitV(value=ONES, size_splits=[1, 1, 1], axis=1, num_split=2),
        "for 2 parts",
    ),
    "too few parts": (lambda: tf.raw_ops.SplitV(value=ONES, size_splits=[3], axis=1, num_split=2), "for 2 parts"),
    "far slice": (lambda: tf.raw_ops.Slice(input=ONES[:0], begin=[2**62, 0], size=[2**62, 0]), "leave dim 0"),
    "far more rows": (
        lambda: tf.raw_ops.RaggedTensorToTensor(
            shape=np.int64([-1, -1]), values=ONES[0], default_value=0.0,
            row_partition_tensors=[np.int64(2**61), np.int64([0, 0, 1])],
            row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
        ),
        "first dim is 2305843009213693952",
    ),
    "far more sets": (
        lambda: tf.sets.union(*2 * [tf.SparseTensor(np.int64([[0, 0, 0]]), np.int64([1]), [2**40, 2**40, 3])]),
        "more than 2.63 sets",
    ),
    "ellipses": (
        lambda: tf.raw_ops.StridedSlice(input=ONES, begin=[0, 0], end=[0, 0], strides=[1, 1], ellipsis_mask=3),
        "Multiple ellipses",
    ),
    "running mean": (
        lambda: tf.raw_ops.FusedBatchNormV3(
            x=ONES[None, None], scale=ONES[0], offset=ONES[0], mean=np.ones(5, "float32"), variance=ONES[0],
            is_training=False,
        ),
        "input 3 must have a number for each of 3 channels",
    ),
    "negative padding": (
        lambda: tf.raw_ops.Conv2D(
            input=np.ones((1, 4, 4, 1), "float32"),
            filter=np.ones((1, 1, 1, 2), "float32"),
            strides=[1, 1, 1, 1],
            padding="EXPLICIT",
            explicit_paddings=[0, 0, -1, 0, 0, 0, 0, 0],
        ),
        "must be nonnegative, not -1 and 0",
    ),
    "no channels": (
        lambda: tf.raw_ops.Conv2D(
            input=np.ones((1, 4, 4, 0), "float32"),
            filter=np.ones((1, 1, 1, 2), "float32"),
            strides=[1, 1, 1, 1],
            padding="VALID",
        ),
        "0 channels does not fit",
    ),
    "empty kernel": (lambda: tf.raw_ops.Conv2D(input=np.ones((1, 4, 4, 1)), filter=np.ones((1, 0, 1, 2)), strides=[1] * 4,
                                               padding="SAME"), "filter must not have zero elements"),
    "stride of nothing": (lambda: tf.raw_ops.MaxPool(input=np.ones((1, 4, 4, 2), "float32"), ksize=[1, 2, 2, 1],
                                                 strides=[1, 0, 1, 1],
                                                     padding="SAME"), "strides has 0, it must be positive"),
    "strides of too few dims": (lambda: convolution(strides=[1, 1, 1]), "strides must be 4 numbers, not 3"),
    "dims of a batch": (lambda: convolution(batch_dims=2), "an image of 4 dims, 2 of them of examples"),
    "groups": (lambda: convolution(groups=3), "3 groups of 2 channels do not fit an image of 2"),
    "einsum": (lambda: tf.raw_ops.Einsum(inputs=[ONES, ONES], equation="ij,jk->ik"), "3.*2|2.*3"),
    "gather": (lambda: tf.gather_nd(tf.constant(ONES), [[0, 0, 0]]), "saw: 3 vs. 2"),
    "vector of algorithms": (lambda: generated(algorithm=[1]), r"must have shape \[\], not 1 dims"),
    "algorithm": (lambda: generated(algorithm=123), "Unsupported algorithm id: 123"),
    "matrix of a generator": (lambda: generated([[0]]), "RNG state must have one and only one dimension, not 2"),
    "small generator": (lambda: generated([1, 2]), "the size of state must be at least 3; got 2"),
    "dtype of a generator": (lambda: generated(dtype="float32"), "dtype of RNG state variable must be int64"),
    "number as a key": (
        lambda: tf.raw_ops.StatelessRandomUniformV2(shape=[2], key=tf.constant(1, "uint64"), counter=tf.constant([1, 2], "uint64"), alg=1),
        r"key must have shape \[1\]"),
    "bins": (
        lambda: tf.raw_ops.Bincount(arr=[1], size=[3], weights=np.zeros(0, "float32")),
        "must be rank 0 but is rank 1",
    ),
    "negative bins": (
        lambda: tf.raw_ops.Bincount(arr=[1], size=-2, weights=np.zeros(0, "float32")),
        r"size .-2. must be non-neg",
    ),
    "weights of bins": (lambda: tf.raw_ops.Bincount(arr=[1], size=3, weights=ONES[0]), "3 weights for 1 numbers"),
    "order of sets": (lambda: united([[1, 0], [0, 0]]), r"indices\[1\] = \[0,0\] is out of order"),
    "places of sets": (lambda: united([[1, 0], [1, 0]]), r"indices\[1\] = \[1,0\] is repeated"),
    "bounds of sets": (
        lambda: united([[0, 0], [0, 4]]),
        r"indices\[1\] = \[0,4\] is out of bounds: need 0 <= index < \[3,4\]",
    ),
    "negative block": (
        lambda: blocks("SpaceToBatchND", [-10, 11]),
        "block_shape must be positive, got value -10 at index 0",
    ),
    "no block": (lambda: blocks("BatchToSpaceND", [1, 0]), "block_shape must be positive, got value 0 at index 1"),
    "negative padding of blocks": (
        lambda: blocks("SpaceToBatchND", [1, 1], paddings=[[0, -1], [0, 0]]),
        "Paddings must be non-negative",
    ),
    "negative crop": (lambda: blocks("BatchToSpaceND", [1, 1], crops=[[0, -1], [0, 0]]), "Crops must be non-negative"),
    "all of a large crop": (
        lambda: blocks("BatchToSpaceND", [1, 1], crops=np.full((2, 2), 2**62)),
        r"cropped_shape\[1\] must be non-negative"),
    "large paddings": (
        lambda: blocks("SpaceToBatchND", [1, 1], paddings=np.full((2, 2), 2**62)),
        "padded_shape.0. overflows",
    ),
    "large blocks": (
        lambda: blocks("SpaceToBatchND", [7 << 28] * 2),
        "Negative output dimension size caused by overflow",
    ),
    "product of blocks": (
        lambda: blocks("BatchToSpaceND", [7 << 28] * 3, crops=[[0, 0]] * 3),
        "Product of block sizes",
    ),
    "axis of gather": (
        lambda: tf.gather(tf.constant(ONES), [0], axis=2),
        "2 is out of range: Shape must be at least rank 3",
    ),
    "negative axis of gather": (
        lambda: tf.gather(tf.constant(ONES), [0], axis=-3),
        "must be at least rank 3 but is rank 2",
    ),
    "order of dims": (lambda: tf.transpose(tf.constant(ONES), [0, 2]), r"2 is out of range \[0 .. 2\)"),
    "a dim twice": (lambda: tf.transpose(tf.constant(ONES), [-1, 1]), "0 is missing"),
    "matrix of dims": (lambda: tf.transpose(tf.constant(ONES), [[0, 1]]), "perm must be rank 1, got 2 dims"),
    "too few dims": (
        lambda: tf.transpose(tf.constant(ONES), [0]),
        "a vector of size 2. But input.1. is a vector of size 1",
    ),
    "gather of nothing": (lambda: tf.gather_nd(tf.zeros([0, 3]), [[0, 0]]), r"params is empty\."),
    "scatter": (lambda: tf.scatter_nd([[0]], np.ones((1, 4), "float32"), [2, 3]), "dims of a slice|of the indices"),
    "top k": (lambda: tf.math.top_k(tf.constant(ONES), 4), "at least k columns"),
    "pool": (lambda: tf.raw_ops.MaxPool(input=np.ones((1, 3, 3, 1), "float32"), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
                                        padding="EXPLICIT", explicit_paddings=[0, 0, 0, 1, 0, 2, 0, 0]),
             "Right padding 2 needs to be smaller than the window size 2"),
    "diagonal matrix": (lambda: tf.raw_ops.MatrixDiag(diagonal=np.float32(1)), "diagonal must be at least 1-dim"),
    "diagonals": (lambda: tf.raw_ops.MatrixSetDiag(input=np.zeros((2, 3, 3), "float32"), diagonal=np.ones((2, 4), "float32")),
                  "first dimensions of diagonal don't match .* .2,4., input .2,3,3."),
    "diagonal": (lambda: tf.linalg.diag_part(tf.constant(ONES), k=4), "out of bound"),
    "resize": (lambda: tf.raw_ops.ResizeBilinear(images=ONES, size=[2, 2]), "4-dimensional"),
    "blocks": (lambda: tf.space_to_batch(tf.constant(ONES), [2], [[0, 0]]), "not divisible"),
    "size of a kernel": (
        lambda: tf.raw_ops.Conv2DBackpropFilter(input=np.ones((1, 2, 2, 1), "float32"), filter_sizes=1, strides=[1] * 4,
                                                out_backprop=np.ones((1, 2, 2, 1), "float32"), padding="SAME"),
        "filter_sizes must be rank 1",
    ),  # fmt: skip
    "shape": (lambda: tf.raw_ops.StatelessRandomUniform(shape=3, seed=[1, 2]), "shape must be a vector"),
    "begin": (lambda: tf.raw_ops.Slice(input=np.ones(4, "float32"), begin=[2], size=1), "begin and size .* to be 1-D"),
    "multiples": (lambda: tf.raw_ops.Tile(input=np.ones(4, "float32"), multiples=2), "multiples to be 1-D"),
    "paddings of a number": (
        lambda: tf.raw_ops.Pad(input=np.float32(7), paddings=[[1, 2]]),
        "The first dimension of paddings",
    ),
    "number of segments": (
        lambda: tf.raw_ops.UnsortedSegmentSum(data=np.ones(2, "float32"), segment_ids=[0, 1], num_segments=[4]),
        "num_segments should be a scalar",
    ),
    "axis of sums": (lambda: tf.raw_ops.Cumsum(x=ONES, axis=-3), r"scan axis in the range \[-2, 2\), it is -3"),
    "axes of sums": (lambda: tf.raw_ops.Cumsum(x=ONES, axis=[0]), "axis must be a scalar"),
    "bitcast": (
        lambda: tf.bitcast(tf.constant([1, 2, 3], tf.int8), tf.float32),
        "Cannot bitcast from 6 to 1, i8 to f32",
    ),
    "lengths": (lambda: tf.reverse_sequence(tf.constant(ONES), [1], 1), r"seq_lengths != input.dims\(0\)"),
    "betainc": (lambda: tf.raw_ops.Betainc(a=0.5, b=[0.5], x=[[0.5]]), "Shapes of a, b and x are inconsistent"),
    "pack": (lambda: tf.stack([tf.zeros([0, 3]), tf.zeros([1, 3])]), "Shapes of all inputs must match"),
    "seed": (lambda: tf.raw_ops.StatelessRandomGetKeyCounter(seed=[1, 2, 3]), r"dims \[2\]"),
}


@pytest.mark.parametrize("window", [[2, 1, 1, 1], [1, 1, 1, 2]])
def test_windows_over_examples_and_channels(window):
    image, kernel, usual = np.ones((2, 4, 4, 2), "float32"), np.ones((2, 2, 2, 3), "float32"), [1, 2, 2, 1]
    calls = [
        lambda: convolution(strides=window),
        lambda: tf.raw_ops.Conv2D(input=image, filter=kernel, strides=window, padding="SAME"),
        lambda: tf.raw_ops.DepthwiseConv2dNative(input=image, filter=kernel, strides=window, padding="SAME"),
        lambda: tf.raw_ops.MaxPool(input=image, ksize=window, strides=usual, padding="VALID"),
        lambda: tf.raw_ops.MaxPool(input=image, ksize=usual, strides=window, padding="VALID"),
        lambda: tf.raw_ops.AvgPool(value=image, ksize=usual, strides=window, padding="SAME"),
    ]
    with tf.device("HEADRACE"):
        for call in calls:
            with pytest.raises(tf.errors.UnimplementedError, match="(strides|ksize) in the batch and depth dimensions"):
                call()


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with tf.device("HEADRACE"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call()
        assert float(tf.reduce_sum(ONES)) == 6


def test_too_many_dims():
    with tf.device("HEADRACE"), pytest.raises(tf.errors.UnimplementedError, match="17 dims, at most 16"):
        tf.raw_ops.Bitcast(input=np.zeros([1] * 16), type=tf.float32)


def test_bad_input_in_a_function():
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    def product(x, y):
        return tf.matmul(x, y)

    with tf.device("HEADRACE"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="size-incompatible"):
            product(ONES, ONES)
        assert product(ONES, ONES.T).numpy().tolist() == [[3, 3], [3, 3]]


FOUR = np.ones((2, 4), "float32")
IMAGE, KERNEL = np.ones((1, 4, 4, 2), "float32"), np.ones((3, 3, 2, 5), "float32")
IN_FUNCTIONS = {  # a function, arguments that are right, and others
    "matmul": (tf.matmul, (ONES, ONES.T), (ONES, ONES)),
    "add": (lambda x, y: tf.tanh(x) + y, (ONES, ONES), (ONES, FOUR)),
    "axis": (lambda x: tf.reduce_sum(x * 2, axis=1), (ONES,), (ONES[0],)),
    "concat": (lambda x, y: tf.concat([x + 1, y], 0), (ONES, ONES), (ONES, FOUR)),
    "stack": (lambda x, y: tf.stack([x + 1, y]), (ONES, ONES), (ONES, FOUR)),
    "reshape": (lambda x: tf.reshape(x * 2, [3, 2]), (ONES,), (FOUR,)),
    "negative dim": (lambda n: tf.fill([n, 2], 3.0), (np.int32(2),), (np.int32(-2),)),
    "index": (lambda x: (x * 2)[1], (ONES,), (ONES[:1],)),
    "order of dims": (lambda x: tf.transpose(x * 2, [1, 0]), (ONES,), (ONES[0],)),
    "bias": (lambda x, y: tf.nn.bias_add(x * 2, y), (ONES, ONES[0]), (ONES, FOUR[0])),
    "broadcast": (lambda x: tf.broadcast_to(x * 2, [2, 3]), (ONES,), (FOUR,)),
    "tile": (lambda x: tf.tile(x * 2, [2, 1]), (ONES,), (ONES[0],)),
    "paddings": (lambda x: tf.pad(x * 2, [[0, 1], [1, 0]]), (ONES,), (ONES[0],)),
    "split": (lambda x: tf.split(x * 2, 2, 1)[0], (FOUR,), (ONES,)),
    "select": (lambda c, x: tf.where(c, x, x + 1), (ONES > 0, ONES), (ONES > 0, FOUR)),
    "convolution": (lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), (IMAGE, KERNEL), (IMAGE[..., :1], KERNEL)),
    "pooling": (lambda x: tf.nn.max_pool2d(x + 1, 2, 2, "VALID"), (IMAGE,), (IMAGE[0],)),
    "cross entropy": (
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
        (ONES, np.array([0, 1])),
        (ONES, np.array([0])),
    ),
    "segments": (
        lambda x, y: tf.math.unsorted_segment_sum(x, y, 2),
        (ONES, np.array([0, 1])),
        (ONES, np.array([0, 1, 1])),
    ),
    "gather": (lambda x: tf.gather(x * 2, [0], axis=1), (ONES,), (ONES[0],)),
}  # fmt: skip


def calls_in_a_function(device, name):
    """Right calls before and after each wrong one."""
    body, right, wrong = IN_FUNCTIONS[name]
    specs = [tf.TensorSpec(None, tf.as_dtype(x.dtype)) for x in right]
    found = []
    with tf.device(device):
        function = tf.function(body, input_signature=specs, autograph=False)
        for arguments in [*4 * [right], wrong, right, wrong, right]:
            try:
                found.append(function(*map(tf.constant, arguments)).numpy().tolist())
            except tf.errors.OpError as error:
                found.append(type(error))
    return found


@pytest.mark.parametrize("name", IN_FUNCTIONS)
def test_bad_input_of_a_traced_function(name):
    wanted = calls_in_a_function("CPU", name)
    assert isinstance(wanted[4], type)
    np.testing.assert_equal(calls_in_a_function("HEADRACE", name), wanted)


def calls_of_other_ranks(device):
    """Results and exceptions of functions, also from the call on that finds their cluster."""
    found = []
    with tf.device(device):
        weights = tf.Variable(np.ones((3, 2), "float32"))
        rows = [tf.TensorSpec([None, 3])]
        matrix = tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x @ weights)), input_signature=rows)
        any_rank = tf.function(lambda x: tf.reduce_sum(x * 2 + 1, -1), input_signature=[tf.TensorSpec(None)])
        traced = tf.function(lambda x: tf.reduce_sum(x - 0.5)).get_concrete_function(tf.TensorSpec([None, 3]))
        for function in (matrix, traced, any_rank):
            for dims in 4 * [(2, 3)] + [(3,), (2, 2, 3), (2, 4), (), (5, 3)]:
                try:
                    found.append(function(tf.ones(dims)).numpy().tolist())
                except (TypeError, ValueError, tf.errors.OpError) as error:
                    found.append(type(error))
    return found


def test_functions_called_with_another_rank():
    assert calls_of_other_ranks("HEADRACE") == calls_of_other_ranks("CPU")


def test_uninitialised_variable():
    for device, missing in [("CPU", tf.errors.NotFoundError), ("HEADRACE", tf.errors.InternalError)]:
        with tf.device(device):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2])
            with pytest.raises(tf.errors.FailedPreconditionError):
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            with pytest.raises(missing):
                tf.raw_ops.AssignAddVariableOp(resource=handle, value=[1.0, 1.0])
            with pytest.raises(tf.errors.InternalError, match="Invalid variable reference"):
                tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=1.0, delta=[1.0, 1.0])


def test_types_without_a_kernel_are_named():
    with tf.device("HEADRACE"), pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError)):
        tf.raw_ops.StringLength(input=["a"])
