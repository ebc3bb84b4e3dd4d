"""More cases of the sweep: recurrent cells, decompositions, other sizes of images by cubic weights."""

import itertools

import numpy as np
import tensorflow as tf
from sweep import COMPLEX, DIMS, FLOATS, binary, case, numbers, run, unary


@case("ResizeBicubic", "ResizeBicubicGrad", scale=64)
def _(rng, dtype, name):
    """Ratios whose places are multiples of TensorFlow's table of 1,024 weights."""
    for grid, sizes in [("half_pixel_centers", [((2, 4, 6, 3), (8, 12)), ((1, 4, 4, 2), (16, 2)), ((1, 3, 5, 1), (3, 5))]),
                        ("align_corners", [((2, 5, 3, 3), (9, 5)), ((1, 5, 5, 1), (3, 17))]),
                        (None, [((2, 4, 6, 3), (8, 3)), ((1, 3, 2, 2), (12, 2)), ((0, 3, 2, 2), (6, 2))])]:  # fmt: skip
        for dims, size in sizes:
            image, options = numbers(rng, dims, dtype), {grid: True} if grid else {}
            if name == "ResizeBicubicGrad":
                yield {"grads": numbers(rng, (dims[0], *size, dims[3]), tf.float32), "original_image": image, **options}
            else:
                yield {"images": image, "size": np.array(size, "int32"), **options}


# ---- recurrent cells -----------------------------------------------------------------------------------------------


def lstm(rng, dtype, steps=None):
    batch, inputs, units = 3, 5, 4
    values = {"x": (*(steps or ()), batch, inputs), "cs_prev": (batch, units), "h_prev": (batch, units),
              "w": (inputs + units, 4 * units), "wci": (units,), "wcf": (units,), "wco": (units,), "b": (4 * units,)}  # fmt: skip
    return {name: numbers(rng, dims, dtype, -1, 1) for name, dims in values.items()}


LSTM_RESULTS = ["i", "cs", "f", "o", "ci", "co", "h"]


@case("LSTMBlockCell", "LSTMBlockCellGrad", "BlockLSTM", "BlockLSTMV2", "BlockLSTMGrad", "BlockLSTMGradV2", scale=16)
def _(rng, dtype, name):
    is_block, is_gradient = name.startswith("Block"), "Grad" in name
    version = "V2" if name.endswith("V2") else ""
    for peephole, clip in itertools.product([False, True], [-1.0, 0.2]):
        arguments = lstm(rng, dtype, (4,) if is_block else None) | {"use_peephole": peephole}
        arguments |= {"seq_len_max": np.int64(4)} if is_block else {}
        forward = arguments | {"cell_clip": clip} | ({} if version else {"forget_bias": 0.5})
        if not is_gradient:
            yield forward
            continue
        results = run("CPU", f"BlockLSTM{version}" if is_block else "LSTMBlockCell", forward)
        saved = dict(zip(LSTM_RESULTS, results, strict=True))
        gradients = {key: numbers(rng, results[1].shape, dtype, -1, 1) for key in ("cs_grad", "h_grad")}
        yield arguments | {key: saved[key] for key in LSTM_RESULTS if is_block or key != "h"} | gradients


@case("GRUBlockCell", "GRUBlockCellGrad", scale=8)
def _(rng, dtype, name):
    for batch, inputs, units in [(3, 5, 4), (1, 2, 7), (2, 1, 1)]:
        dims = {"x": (batch, inputs), "h_prev": (batch, units), "w_ru": (inputs + units, 2 * units),
                "w_c": (inputs + units, units), "b_ru": (2 * units,), "b_c": (units,)}  # fmt: skip
        arguments = {key: numbers(rng, shape, dtype, -1, 1) for key, shape in dims.items()}
        if name == "GRUBlockCell":
            yield arguments
        else:
            results = run("CPU", "GRUBlockCell", arguments)[:3]
            yield arguments | dict(zip("ruc", results, strict=True)) | {"d_h": numbers(rng, (batch, units), dtype, -1, 1)}


# ---- linear algebra ------------------------------------------------------------------------------------------------


@case("SelfAdjointEigV2", scale=64)
def _(rng, dtype):
    """Vectors have any sign: test_decompositions multiplies them."""
    for dims in [(1, 1), (3, 3), (2, 5, 5), (0, 3, 3), (0, 0)]:
        x = numbers(rng, dims, dtype)
        yield {"input": x + np.conj(np.swapaxes(x, -1, -2)), "compute_v": False}


@case("Svd", scale=64)
def _(rng, dtype):
    for dims in [(1, 1), (3, 5), (2, 5, 3), (0, 3, 2), (3, 0)]:
        yield {"input": numbers(rng, dims, dtype), "compute_uv": False}


@case("Lu", scale=64)
def _(rng, dtype):
    """Of complex numbers Eigen and LAPACK choose other pivots: test_decompositions multiplies the factors."""
    for dims, index in itertools.product([(1, 1), (0, 2, 2)] + [(4, 4), (2, 3, 3)] * (not dtype.is_complex), [tf.int32, tf.int64]):
        yield {"input": numbers(rng, dims, dtype), "output_idx_type": index}


@case("TridiagonalSolve", "TridiagonalMatMul", scale=256)
def _(rng, dtype, name):
    for batch, rows, columns in [((), 5, 2), ((2, 3), 4, 1), ((), 1, 3), ((0,), 3, 2)]:
        above, main, below = (numbers(rng, (*batch, 1, rows), dtype) for _ in range(3))
        rhs = numbers(rng, (*batch, rows, columns), dtype)
        if name == "TridiagonalMatMul":
            yield {"superdiag": above, "maindiag": main, "subdiag": below, "rhs": rhs}
        else:
            yield {"diagonals": np.concatenate([above, main + 20, below], -2), "rhs": rhs}


# ---- element-wise --------------------------------------------------------------------------------------------------

unary("BesselI0", "BesselI1", "BesselI0e", "BesselI1e", "BesselJ0", "BesselJ1", special=False, scale=32)
unary("BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1", low=0.2, special=False, scale=64)
unary("Ndtri", low=0.01, high=0.99, special=False, scale=64)
unary("Erfinv", low=-0.99, high=0.99, special=False, scale=64)
unary("Conj", argument="input")
unary("DeepCopy")
unary("PopulationCount")
binary("Igamma", "Igammac", arguments=("a", "x"), low=0.1, special=False, scale=128)
binary("Zeta", arguments=("x", "q"), low=1.1, special=False, scale=128)
binary("NextAfter", arguments=("x1", "x2"))
binary("TruncateDiv", "TruncateMod", "Mod", "Div", nonzero=True, special=False)
binary("ApproximateEqual", pairs=[(dims, dims) for dims in DIMS])


@case("ComplexAbs", "Angle", "Real", "Imag", scale=2)
def _(rng, dtype, name):
    for dims in DIMS:
        out = tf.float32 if dtype == tf.complex64 else tf.float64
        yield {"x" if name == "ComplexAbs" else "input": numbers(rng, dims, dtype), "Tout": out}


@case("Complex")
def _(rng, dtype):
    for dims in DIMS:
        out = tf.complex64 if dtype == tf.float32 else tf.complex128
        yield {"real": numbers(rng, dims, dtype, special=True), "imag": numbers(rng, dims, dtype), "Tout": out}


@case("Polygamma", scale=1024)
def _(rng, dtype):
    for dims in DIMS:
        order = rng.integers(1, 4, dims).astype(dtype.as_numpy_dtype)
        yield {"a": order, "x": numbers(rng, dims, dtype, 0.5)}


@case("LeftShift", "RightShift")
def _(rng, dtype):
    for dims in DIMS:
        y = rng.integers(0, dtype.size * 8, dims).astype(dtype.as_numpy_dtype)
        yield {"x": numbers(rng, dims, dtype, -15, 15), "y": y}
    yield {"x": numbers(rng, (9,), dtype), "y": np.array([100, 90, 70, 64, 64, 65, 0, 1, 7], dtype.as_numpy_dtype)}


@case("ClipByValue")
def _(rng, dtype):
    for dims, bound in [((3, 4), ()), ((3, 4), (3, 4)), ((0, 3), ()), ((), ()), ((1000,), ())]:
        low = numbers(rng, bound, dtype, 0, 2)
        yield {"t": numbers(rng, dims, dtype), "clip_value_min": low, "clip_value_max": low + low.dtype.type(1)}


@case("CheckNumerics")
def _(rng, dtype):
    for dims in DIMS:
        yield {"tensor": numbers(rng, dims, dtype), "message": "a message"}


@case("BiasAddV1")
def _(rng, dtype):
    for dims in [(2, 3), (2, 4, 3), (0, 3), (2, 0)]:
        yield {"value": numbers(rng, dims, dtype), "bias": numbers(rng, dims[-1:], dtype)}


@case("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxArgsGradient")
@case("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsGradient")
@case("FakeQuantWithMinMaxVarsPerChannel", "FakeQuantWithMinMaxVarsPerChannelGradient")
def _(rng, dtype, name):
    for dims, (low, high), bits, narrow in [((3, 4), (-2.0, 3.1), 8, False), ((5, 2), (0.5, 3.0), 4, True),
                                            ((0, 3), (-1.0, 1.0), 8, False), ((2, 3, 4), (-3.0, -0.5), 16, False)]:  # fmt: skip
        x, options = numbers(rng, dims, tf.float32), {"num_bits": bits, "narrow_range": narrow}
        kind = np.full(dims[-1:] if "Channel" in name else (), 1, np.float32)
        options |= {"min": low, "max": high} if "Args" in name else {"min": kind * low, "max": kind * high}
        yield ({"gradients": numbers(rng, dims, tf.float32)} if "Gradient" in name else {}) | {"inputs": x, **options}


# ---- order, slices, indices ------------------------------------------------------------------------------------------


@case("ConjugateTranspose")
def _(rng, dtype):
    for dims, order in [((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((0, 2), (1, 0)), ((3,), (0,))]:
        yield {"x": numbers(rng, dims, dtype), "perm": np.array(order, "int32")}


@case("Range")
def _(rng, dtype):
    ranges = [(0, 5, 1), (-3, 8, 4), (7, -7, -3), (2, 2, 1), (0, 1000, 1), (5, 4, -9)]
    if dtype.is_floating:
        ranges += [(0, 1, 0.1), (0.5, -1, -0.25), (1, 1.75, 0.25), (0, 3, 0.7)]
    for start, limit, delta in ranges:
        values = (tf.constant(value, dtype) for value in (start, limit, delta))  # the operation turns arrays into i32
        yield dict(zip(["start", "limit", "delta"], values, strict=True))


@case("InplaceUpdate", "InplaceAdd", "InplaceSub")
def _(rng, dtype):
    for dims, rows in [((5, 3), [3, 0]), ((4,), [1]), ((3, 2), []), ((5, 3), [-1, 7])]:
        x = tf.constant(numbers(rng, dims, dtype))  # the CPU may write an array's memory
        yield {"x": x, "i": np.array(rows, "int32"), "v": numbers(rng, (len(rows), *dims[1:]), dtype)}


@case("ScatterNdNonAliasingAdd", scale=4)
def _(rng, dtype):
    for dims, places, updates in [((4, 3), [[1], [3], [1]], (3, 3)), ((4, 3), [[0, 2], [2, 1]], (2,))]:
        for index in ["int32", "int64"]:
            yield {"input": numbers(rng, dims, dtype, 0, 1), "indices": np.array(places, index),
                   "updates": numbers(rng, updates, dtype, 0, 1)}  # fmt: skip


@case("ReverseSequence")
def _(rng, dtype):
    for dims, seq, batch in [((3, 5), 1, 0), ((5, 3), 0, 1), ((2, 4, 3), 2, 1), ((0, 3), 1, 0)]:
        for index in ["int32", "int64"]:
            lengths = rng.integers(0, dims[seq] + 1, dims[batch]).astype(index)
            yield {"input": numbers(rng, dims, dtype), "seq_lengths": lengths, "seq_dim": seq, "batch_dim": batch}


@case("Roll")
def _(rng, dtype):
    for dims, shift, axis in [((5,), 2, 0), ((3, 4), [-1, 6], [0, 1]), ((2, 3), [1, 1], [1, 1]), ((0, 3), -7, -1)]:
        for index in ["int32", "int64"]:
            yield {"input": numbers(rng, dims, dtype), "shift": np.array(shift, index), "axis": np.array(axis, index)}


@case("Cross", scale=8)
def _(rng, dtype):
    for dims in [(3,), (2, 4, 3), (0, 3)]:
        yield {"a": numbers(rng, dims, dtype, 0, 1), "b": numbers(rng, dims, dtype, 0, 1)}


@case("Concat")
def _(rng, dtype):
    for axis, dims in [(0, [(2, 3), (1, 3)]), (1, [(2, 3), (2, 0), (2, 1)]), (-1, [(2, 2, 1), (2, 2, 4)])]:
        yield {"concat_dim": axis, "values": [numbers(rng, d, dtype) for d in dims]}


@case("MirrorPadGrad", scale=4)
def _(rng, dtype):
    for mode, dims, sides in [("REFLECT", (6, 5), [[1, 2], [0, 2]]), ("SYMMETRIC", (6, 5), [[2, 2], [1, 2]]),
                              ("REFLECT", (4,), [[0, 0]]), ("SYMMETRIC", (2, 4, 3), [[0, 0], [2, 0], [0, 1]])]:  # fmt: skip
        for index in ["int32", "int64"]:
            yield {"input": numbers(rng, dims, dtype, 0, 1), "paddings": np.array(sides, index), "mode": mode}


@case("TensorStridedSliceUpdate")
def _(rng, dtype):
    for dims, begin, end, strides, values, masks in [
        ((4, 5), [1, 0], [3, 5], [1, 2], (2, 3), {}),
        ((4, 5), [3, 0], [0, 5], [-1, 1], (3, 5), {}),
        ((4, 5), [1, 0], [0, 0], [1, 1], (5,), {"shrink_axis_mask": 1, "end_mask": 2}),
        ((3,), [0], [0], [1], (0,), {}),
    ]:
        places = {"begin": begin, "end": end, "strides": strides}
        yield {"input": numbers(rng, dims, dtype), "value": numbers(rng, values, dtype), **places, **masks}


@case("Gather")
def _(rng, dtype):
    for dims, places, index in itertools.product([(5,), (4, 3)], [(), (2, 3), (0,)], ["int32", "int64"]):
        yield {"params": numbers(rng, dims, dtype), "indices": rng.integers(0, dims[0], places).astype(index)}


@case("UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin", scale=8)
def _(rng, dtype):
    for dims, ids in [((6,), (6,)), ((6, 3), (6,)), ((2, 3, 2), (2, 3)), ((0, 2), (0,))]:
        for index in ["int32", "int64"]:
            yield {"data": numbers(rng, dims, dtype, 0, 1), "segment_ids": rng.integers(-1, 4, ids).astype(index),
                   "num_segments": 5}  # fmt: skip


@case("Bincount", "DenseBincount", scale=8)
def _(rng, dtype, name):
    for dims, weighted, binary_output in [((9,), False, False), ((9,), True, False), ((2, 6), True, False),
                                          ((2, 6), False, True), ((0,), False, False), ((7,), True, True)]:  # fmt: skip
        for index in ["int32"] + ["int64"] * (name == "DenseBincount"):
            x = rng.integers(0, 7, dims).astype(index)
            weights = numbers(rng, dims if weighted else (0,), dtype, 0, 1)
            options = {"input": x, "binary_output": binary_output} if name == "DenseBincount" else {"arr": x}
            yield options | {"size": x.dtype.type(5), "weights": weights}


@case("LowerBound", "UpperBound")
def _(rng, dtype):
    for dims, count, out in itertools.product([(2, 5), (1, 1), (3, 4)], [6, 0], [tf.int32, tf.int64]):
        x = np.sort(numbers(rng, dims, dtype), -1)
        values = np.concatenate([numbers(rng, (dims[0], count), dtype), x[:, :count]], -1)
        yield {"sorted_inputs": x, "values": values, "out_type": out}


@case("CumulativeLogsumexp", scale=32)
def _(rng, dtype):
    for dims, axis in [((7,), 0), ((3, 4), -1), ((2, 3, 2), 1), ((0, 2), 0)]:
        for exclusive, reverse in itertools.product([False, True], repeat=2):
            yield {"x": numbers(rng, dims, dtype), "axis": axis, "exclusive": exclusive, "reverse": reverse}


# ---- transforms, products --------------------------------------------------------------------------------------------


@case("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", scale=64)
@case("RFFT", "RFFT2D", "RFFT3D", "IRFFT", "IRFFT2D", "IRFFT3D", scale=64)
def _(rng, dtype, name):
    real = tf.float32 if dtype == tf.complex64 else tf.float64
    count = int(name[-2]) if name[-1] == "D" else 1
    for dims, cut in itertools.product([(3, 4, 5), (2, 3, 4, 6), (1, 8, 7, 3), (0, 3, 2, 4)], [0, 1]):
        if not name.startswith(("RFFT", "IRFFT")):
            yield {"input": numbers(rng, dims, dtype)}
            continue
        length = [size - cut for size in dims[-count:]]
        if name.startswith("RFFT"):
            yield {"input": numbers(rng, dims, real), "Tcomplex": dtype, "fft_length": np.array(length, "int32")}
        else:
            length[-1] = 2 * dims[-1] - 2 - cut
            yield {"input": numbers(rng, dims, dtype), "Treal": real, "fft_length": np.array(length, "int32")}


@case("BatchMatMulV3", scale=16)
def _(rng, dtype):
    out = tf.int32 if dtype in (tf.int8, tf.uint8) else dtype
    for left, right, x, y in [((2, 3), (3, 4), False, False), ((2, 3, 2), (3, 4), True, False),
                              ((2, 1, 3, 2), (4, 5, 2), False, True), ((0, 2, 3), (3, 1), False, False)]:  # fmt: skip
        yield {"x": numbers(rng, left, dtype, 0, 1), "y": numbers(rng, right, dtype, 0, 1), "adj_x": x, "adj_y": y,
               "Tout": out}  # fmt: skip


@case("SparseTensorDenseMatMul", scale=16)
def _(rng, dtype):
    for (rows, columns, count), a, b, index in itertools.product([(4, 3, 5), (2, 6, 0)], [False, True], [False, True],
                                                                 ["int32", "int64"]):  # fmt: skip
        places = np.stack([rng.integers(0, rows, count), rng.integers(0, columns, count)], -1).astype(index)
        inner = rows if a else columns
        y = numbers(rng, (2, inner) if b else (inner, 2), dtype, 0, 1)
        yield {"a_indices": places, "a_values": numbers(rng, (count,), dtype, 0, 1), "b": y, "adjoint_a": a,
               "a_shape": np.array([rows, columns], "int64"), "adjoint_b": b}  # fmt: skip


# ---- images ----------------------------------------------------------------------------------------------------------


@case("RGBToHSV", "HSVToRGB", scale=8)
def _(rng, dtype):
    for dims in [(3,), (2, 4, 3), (0, 3), (50, 3)]:
        yield {"images": numbers(rng, dims, dtype, 0, 1)}


@case("AdjustContrastv2", "AdjustSaturation", "AdjustHue", scale=16)
def _(rng, dtype, name):
    option = {"AdjustContrastv2": "contrast_factor", "AdjustSaturation": "scale", "AdjustHue": "delta"}[name]
    for dims, value in [((4, 5, 3), 0.3), ((2, 4, 3, 3), -0.4 if name == "AdjustHue" else 1.7), ((0, 2, 2, 3), 0.5)]:
        yield {"images": numbers(rng, dims, tf.float32, 0, 1), option: np.float32(value)}


@case("SpaceToDepth", "DepthToSpace")
def _(rng, dtype, name):
    for dims, size in [((2, 4, 6, 8), 2), ((1, 3, 3, 9), 3), ((0, 4, 2, 4), 2)]:
        yield {"input": numbers(rng, dims, dtype), "block_size": size, "data_format": "NHWC"}


@case("SpaceToBatch", "BatchToSpace")
def _(rng, dtype, name):
    for dims, sides, index in itertools.product([(4, 4, 6, 3), (8, 2, 2, 1)], [[[0, 0], [0, 0]], [[1, 1], [0, 2]]],
                                                ["int32", "int64"]):  # fmt: skip
        option = "paddings" if name == "SpaceToBatch" else "crops"
        yield {"input": numbers(rng, dims, dtype), option: np.array(sides, index), "block_size": 2}


@case("ImageProjectiveTransformV2", scale=16)
def _(rng, dtype):
    transforms = np.array([[0.9, 0.3, -1.3, -0.2, 1.1, 0.6, 0.01, -0.02]], "float32")
    for mode, dims in itertools.product(["NEAREST", "BILINEAR"], [(2, 5, 6, 3), (0, 3, 3, 2)]):
        yield {"images": numbers(rng, dims, dtype, 0, 20), "transforms": transforms, "interpolation": mode,
               "output_shape": np.array([5, 6], "int32")}  # fmt: skip


PATCHES = [((2, 7, 8, 3), 3, 2, 1), ((1, 6, 6, 2), 2, 2, 1), ((1, 9, 9, 1), 2, 1, 3), ((0, 5, 5, 2), 3, 1, 1)]


@case("ExtractImagePatches")
def _(rng, dtype):
    for (dims, size, stride, rate), padding in itertools.product(PATCHES, ["SAME", "VALID"]):
        yield {"images": numbers(rng, dims, dtype), "ksizes": [1, size, size, 1], "strides": [1, stride, stride, 1],
               "rates": [1, rate, rate, 1], "padding": padding}  # fmt: skip


@case("MaxPoolV2", "MaxPoolGradV2", "MaxPoolWithArgmax", "MaxPoolGradWithArgmax")
def _(rng, dtype, name):
    for (dims, size, stride, _), padding in itertools.product(PATCHES, ["SAME", "VALID"]):
        if name.startswith("MaxPoolGrad") and stride < size and dtype in FLOATS | COMPLEX and dtype.size == 2:
            continue  # sums of 16 bits in another order
        image = rng.permutation(int(np.prod(dims)) * 2)[: int(np.prod(dims))].reshape(dims)
        image = (image % 100 if dtype.size == 1 else image).astype(dtype.as_numpy_dtype)
        if dims[0] == 0 and "Argmax" in name:
            continue  # an error of the CPU
        spec = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
        whole = {"include_batch_in_index": stride == 1} if "Argmax" in name else {}
        if name in ("MaxPoolV2", "MaxPoolWithArgmax"):
            yield {"input": image, **spec, **whole}
            continue
        forward = {"input": image, **spec}
        if "Argmax" in name:
            result, places = run("CPU", "MaxPoolWithArgmax", forward | whole)
            gradient = numbers(rng, result.shape, dtype, 0, 1)
            yield {"input": image, "grad": gradient, "argmax": places, **spec, **whole}
        else:
            (result,) = run("CPU", "MaxPoolV2", forward)
            gradient = numbers(rng, result.shape, dtype, 0, 1)
            yield {"orig_input": image, "orig_output": result, "grad": gradient, **spec}


XLA_SLICES = [((4, 5), (1, 2), (2, 3)), ((4, 5), (3, -1), (2, 3)), ((7,), (9,), (4,)), ((2, 3, 4), (0, 1, 1), (2, 2, 3)), ((4, 5), (0, 0), (4, 5)), ((), (), ())]


@case("XlaDynamicSlice", "XlaDynamicUpdateSlice")
def _(rng, dtype, name):
    for i, (dims, begin, size) in enumerate(XLA_SLICES):
        where = np.array(begin, ("int32", "int64")[i % 2])
        if name == "XlaDynamicSlice":
            yield {"input": numbers(rng, dims, dtype), "start_indices": where, "size_indices": np.array(size, where.dtype)}
        else:
            yield {"input": numbers(rng, dims, dtype), "update": numbers(rng, size, dtype), "indices": where}


@case("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4", "QuantizeAndDequantizeV4Grad", scale=2)
def _(rng, dtype, name):
    for dims, axis, is_signed, bits, is_given, mode, is_narrow in [
        ((5, 6), -1, True, 8, False, "HALF_TO_EVEN", False),
        ((5, 6), -1, True, 8, True, "HALF_UP", True),
        ((2, 3, 4), 1, True, 4, False, "HALF_UP", False),
        ((2, 3, 4), 2, True, 3, True, "HALF_TO_EVEN", True),
        ((7,), 0, False, 8, True, "HALF_TO_EVEN", False),
        ((7,), -1, False, 5, False, "HALF_UP", False),
        ((0, 3), -1, True, 8, True, "HALF_TO_EVEN", False),
    ]:
        count = () if axis < 0 else (dims[axis],)
        low, high = numbers(rng, count, dtype, -3, -1 if is_signed else 0), numbers(rng, count, dtype, 1, 3)
        found = {"input": numbers(rng, dims, dtype), "input_min": low, "input_max": high, "axis": axis}
        if name == "QuantizeAndDequantizeV4Grad":
            yield found | {"gradients": numbers(rng, dims, dtype)}
            continue
        is_given = is_given and (axis < 0 or name.endswith("3"))  # the CPU device has no ranges of slices in the others
        found |= {"signed_input": is_signed, "range_given": is_given, "narrow_range": is_narrow}
        yield found | ({"num_bits": np.int32(bits)} if name.endswith("3") else {"num_bits": bits, "round_mode": mode})


@case("MaxPoolGradGrad", "MaxPoolGradGradV2")
def _(rng, dtype, name):
    for (dims, size, stride, _), padding in itertools.product(PATCHES, ["SAME", "VALID"]):
        image = rng.permutation(int(np.prod(dims)) * 2)[: int(np.prod(dims))].reshape(dims) % (100 if dtype.size == 1 else 1000)
        image = image.astype(dtype.as_numpy_dtype)
        spec = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
        result = tf.raw_ops.MaxPool(input=tf.constant(image), **spec) if dims[0] > 0 else None
        if result is not None and result.shape.num_elements() > 0:
            yield {"orig_input": image, "orig_output": result.numpy(), "grad": numbers(rng, dims, dtype), **spec}


@case("Dilation2D", "Dilation2DBackpropInput", "Dilation2DBackpropFilter", scale=8)
def _(rng, dtype, name):
    for dims, size, stride, rate, padding in [
        ((2, 5, 6, 3), (2, 3), 1, 1, "SAME"),
        ((1, 7, 7, 2), (3, 3), 2, 1, "VALID"),
        ((2, 8, 6, 1), (2, 2), 2, 2, "SAME"),
        ((1, 6, 9, 2), (3, 2), 1, 2, "VALID"),
        ((1, 4, 4, 1), (1, 1), 3, 1, "SAME"),
    ]:
        spec = {"strides": [1, stride, stride, 1], "rates": [1, rate, rate, 1], "padding": padding}
        image, kernel = numbers(rng, dims, dtype, 0, 4), numbers(rng, (*size, dims[3]), dtype, 0, 2)
        if name == "Dilation2D":
            yield {"input": image, "filter": kernel, **spec}
            continue
        result = tf.raw_ops.Dilation2D(input=tf.constant(image), filter=tf.constant(kernel), **spec)
        gradient = numbers(rng, result.shape, dtype, 0, 2)
        yield {"input": image, "filter": kernel, "out_backprop": gradient, **spec}


@case("Betainc", scale=64)
def _(rng, dtype):
    for dims in [((50,), (50,), (50,)), ((), (3, 4), (3, 4)), ((5,), (), ()), ((0,), (0,), ())]:
        for low, high in [(0.1, 3), (2, 40)]:
            a, b = (numbers(rng, dims[i], dtype, low, high) for i in range(2))
            yield {"a": a, "b": b, "x": numbers(rng, dims[2], dtype, 0, 1)}
    a, b, x = np.array(list(itertools.product([-1, 0, 0.5, 1, 1.5, np.nan], repeat=3)), dtype.as_numpy_dtype).T
    yield {"a": a, "b": b, "x": x}


@case("IgammaGradA", "RandomGammaGrad", scale=64)
def _(rng, dtype, name):
    for left, right in [((50,), (50,)), ((4, 1), (5,)), ((), (3,)), ((0, 2), (2,))]:
        for low, high in [(0.1, 3), (2, 40)]:
            a, x = numbers(rng, left, dtype, low, high), numbers(rng, right, dtype, low, high)
            yield {"a": a, "x": x} if name == "IgammaGradA" else {"alpha": a, "sample": x}
