"""More cases of the sweep: recurrent cells, decompositions, other sizes of images by cubic weights."""

import itertools

import numpy as np
import tensorflow as tf
from sweep import case, numbers, run


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
