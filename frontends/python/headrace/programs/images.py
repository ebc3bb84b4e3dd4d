"""ATen's convolutions, pools and changes of images' sizes."""

from headrace import _arrays as A
from headrace.programs.table import each, of, size, sizes

# ---- convolutions


def _batched(function):
    """An operator on one example as on a batch of one."""

    def apply(c, input, weight, **arguments):
        if input.ndim == weight.ndim:
            return function(c, input, weight, **arguments)
        return A.squeeze(function(c, A.expand_dims(input, 0), weight, **arguments), 0)

    return apply


@of("conv1d", "conv2d", "conv3d")
@_batched
def conv(c, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    count = weight.ndim - 2
    stride, dilation = each(stride, count), each(dilation, count)
    before = after = each(padding, count)
    if padding == "same":
        whole = [step * (size(weight, axis + 2) - 1) for axis, step in enumerate(dilation)]
        before, after = [one // 2 for one in whole], [one - one // 2 for one in whole]
    elif padding == "valid":
        before = after = [0] * count
    return A.conv(input, weight, bias, stride=stride, before=before, after=after, dilation=dilation, groups=groups)


@of("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
@_batched
def conv_transpose(c, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    count = weight.ndim - 2
    before, more = each(padding, count), each(output_padding, count)
    after = [one - other for one, other in zip(before, more)]
    y = A.conv_transpose(
        input,
        weight,
        stride=each(stride, count),
        before=before,
        after=after,
        dilation=each(dilation, count),
        groups=groups,
    )
    return y if bias is None else y + A.reshape(bias, [1, -1] + [1] * count)


@of("convolution")
def convolution(c, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        more = {"output_padding": output_padding, "groups": groups, "dilation": dilation}
        return conv_transpose(c, input, weight, bias=bias, stride=stride, padding=padding, **more)
    return conv(c, input, weight, bias=bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


# ---- pools and sizes of images


def _plane(function):
    """An operator on planes of x [N, C, ..]; x may lack N."""

    def apply(c, count, x, *rest):
        if x.ndim == count + 2:
            return function(x, *rest)
        y = function(A.expand_dims(x, 0), *rest)
        return tuple(A.squeeze(one, 0) for one in y) if isinstance(y, tuple) else A.squeeze(y, 0)

    return apply


_max_pool = _plane(lambda x, window, stride, padding, dilation, ceil: A.max_pool(
    x, window, stride, padding, dilation=dilation, ceil=ceil))  # fmt: skip
_max_pool_places = _plane(lambda x, window, stride, padding, dilation, ceil: A.max_pool_places(
    x, window, stride, padding, dilation=dilation, ceil=ceil))  # fmt: skip
_avg_pool = _plane(lambda x, window, stride, padding, counts, ceil: A.avg_pool(
    x, window, stride, padding, counts, ceil=ceil))  # fmt: skip


def _planes(c):
    """The digit in a name such as max_pool2d."""
    return int(next(letter for letter in c.name if letter.isdigit()))


@of("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices",
     "max_pool1d_with_indices")  # fmt: skip
def max_pool(c, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    count = _planes(c)
    window = each(kernel_size, count)
    function = _max_pool_places if "indices" in c.name else _max_pool
    return function(c, count, self, window, each(stride, count) if stride else window, each(padding, count),
                    each(dilation, count), ceil_mode)  # fmt: skip


@of("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    c, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    count = _planes(c)
    window = each(kernel_size, count)
    stride = each(stride, count) if stride else window
    counts = count_include_pad or divisor_override is not None
    y = _avg_pool(c, count, self, window, stride, each(padding, count), counts, ceil_mode)
    if divisor_override is None:
        return y
    if ceil_mode:
        raise ValueError("divisor_override with ceil_mode is not supported")
    area = 1
    for one in window:
        area *= one
    return y * (area / divisor_override)


def _mean_matrix(old, new):
    """[new, old]: row i averages the elements of part i."""
    rows = []
    for i in range(new):
        begin, end = i * old // new, -(-(i + 1) * old // new)
        rows.append([1 / (end - begin) if begin <= k < end else 0.0 for k in range(old)])
    return rows


@of("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(c, self, output_size):
    count = _planes(c)
    wanted = each(output_size, count)
    ones = [axis - count for axis, one in enumerate(wanted) if one == 1]
    y = A.mean(self, ones, True) if ones else self
    for axis, one in zip(range(-count, 0), wanted):
        old = size(y, axis)
        if one in (1, None) or old == one:
            continue
        if not isinstance(old, int) or not isinstance(one, int):
            raise ValueError("an adaptive pool from or to a size that depends on symbols, expected 1 or numbers")
        matrix = c.graph.constant(A.array(_mean_matrix(old, one), dtype=c.dtype))
        moved = A.matmul(A.swapaxes(y, axis, -1), A.swapaxes(matrix, 0, 1))
        y = A.swapaxes(moved, axis, -1)
    return y


@of("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(c, self, output_size):
    count = _planes(c)
    window = []
    for axis, one in zip(range(-count, 0), each(output_size, count)):
        old = size(self, axis)
        if not isinstance(old, int) or old % one:
            raise ValueError(f"an adaptive max pool from {old} to {one}, expected a multiple")
        window.append(old // one)
    return _max_pool_places(c, count, self, window, window, [0] * count, [1] * count, False)


@of("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
     "_upsample_nearest_exact2d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
     "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")  # fmt: skip
def upsample(c, input=None, output_size=None, align_corners=False, scale_factors=None, self=None, **scales):
    name = c.name
    x, count = input if input is not None else self, _planes(c)
    mode = "nearest" if "nearest" in name else "cubic" if "cubic" in name else "linear"
    places = "align_corners" if align_corners else "half_pixel"
    factors = (
        scale_factors if scale_factors is not None else [one for one in scales.values() if one is not None] or None
    )
    if factors is not None and output_size is None:
        output_size = [c.type.shape[axis] for axis in range(-count, 0)]
        if not all(isinstance(one, int) for one in output_size):
            output_size = None
    if output_size is not None and factors is not None and not align_corners:
        exact = all(
            old * one == new for old, one, new in zip(sizes(x)[-count:], factors, output_size) if isinstance(old, int)
        )
        output_size = output_size if exact else None
    sized = {"sizes": list(output_size)} if output_size is not None else {"scales": [float(one) for one in factors]}
    if mode == "nearest" and "exact" not in name:
        places, sized["rounding"] = "asymmetric", "floor"
    elif mode == "nearest":
        sized["rounding"] = "round_prefer_ceil"
    if name.endswith("aa"):
        sized.update(antialias=True, exclude_outside=True, cubic=-0.5)
    return A.interpolate(x, list(range(2, 2 + count)), mode=mode, coordinates=places, **sized)


@of("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sample(c, input, grid, interpolation_mode, padding_mode, align_corners):
    return A.grid_sample(input, grid, ("linear", "nearest", "cubic")[interpolation_mode],
                         ("zeros", "border", "reflection")[padding_mode], align_corners)  # fmt: skip
