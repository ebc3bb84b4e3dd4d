"""Quantised matrices with MLX's names and arguments: None stands for the mode's own group size and bits."""

from headrace import _arrays

__all__ = ["dequantize", "from_fp8", "gather_qmm", "gather_qqmm", "qqmm", "quantize", "quantized_matmul", "to_fp8"]


def quantize(w, /, group_size=None, bits=None, mode="affine", *, global_scale=None, stream=None):
    """Packed integers, scales and biases of groups of the last dim."""
    return _arrays.quantize(w, group_size or 0, bits or 0, mode, global_scale)


def dequantize(
    w, /, scales, biases=None, group_size=None, bits=None, mode="affine", global_scale=None, dtype=None, *, stream=None
):
    """The matrix of packed integers."""
    return _arrays.dequantize(w, scales, biases, group_size or 0, bits or 0, mode, global_scale, dtype)


def quantized_matmul(
    x, w, /, scales, biases=None, transpose=True, group_size=None, bits=None, mode="affine", *, stream=None
):
    """x times a quantised matrix, or with transpose its transposed one."""
    return _arrays.quantized_matmul(x, w, scales, biases, transpose, group_size or 0, bits or 0, mode)


def gather_qmm(
    x,
    w,
    /,
    scales,
    biases=None,
    lhs_indices=None,
    rhs_indices=None,
    transpose=True,
    group_size=None,
    bits=None,
    mode="affine",
    *,
    sorted_indices=False,
    stream=None,
):
    """quantized_matmul of the matrices of x and w with these numbers in the flattened batch."""
    return _arrays.gather_qmm(
        x, w, scales, biases, lhs_indices, rhs_indices, transpose, group_size or 0, bits or 0, mode, sorted_indices
    )


def _taken(x, indices):
    """Matrices at flat indices of the dims in front; all of them without indices."""
    if x is None or indices is None:
        return x
    return _arrays.take(x.reshape(-1, *x.shape[-2:]), indices, 0)


def gather_qqmm(
    x,
    w,
    /,
    scales=None,
    lhs_indices=None,
    rhs_indices=None,
    group_size=None,
    bits=None,
    mode="nvfp4",
    global_scale_x=None,
    global_scale_w=None,
    *,
    sorted_indices=False,
    stream=None,
):
    """qqmm of the matrices of x and w with these numbers in the flattened batch."""
    x, w, scales = _taken(x, lhs_indices), _taken(w, rhs_indices), _taken(scales, rhs_indices)
    return qqmm(x, w, scales, group_size, bits, mode, global_scale_x, global_scale_w)


def qqmm(
    x,
    w,
    scales=None,
    group_size=None,
    bits=None,
    mode="nvfp4",
    global_scale_x=None,
    global_scale_w=None,
    *,
    stream=None,
):
    """The product of quantised x and w."""
    return _arrays.qqmm(x, w, scales, group_size or 0, bits or 0, mode, global_scale_x, global_scale_w)


def to_fp8(x, *, stream=None):
    """The bits of x as float8_e4m3fn, uint8."""
    return _arrays.to_fp8(x)


def from_fp8(x, dtype=_arrays.bfloat16, *, stream=None):
    """The numbers whose float8_e4m3fn bits are x, or those of an array of that dtype."""
    return x.astype(dtype) if x.dtype == _arrays.float8_e4m3fn else _arrays.from_fp8(x, dtype)
