"""Inputs of a given size for the operators in torch's test data (op_db).

op_db tests with small tensors. `make(entry, dtype, count)` grows one of its samples: all dims that are not 1 become
equally long, so that the largest tensor has about `count` elements, and values are drawn from the sample's range. If
sizes depend on each other in another way (convolutions, pooling, linear algebra, indices), a factory by name makes
them. SKIPPED lists operators with nothing to time. Everything is on the CPU; integers beside floating-point data are
treated as indices.
"""

import fnmatch
import itertools
import math
import random

import numpy
import torch
from torch.utils import _pytree as pytree

MOST_SAMPLES = 60  # of an entry that are looked at
MOST_TRIED = 10  # that are grown

SKIPPED = {
    "empty*": "makes no values",
    "new_empty*": "makes no values",
    "item": "one element by definition",
    "scalar_tensor": "one element by definition",
    "broadcast_shapes": "works on shapes alone",
    "resize_*": "moves no data where the size stays",
    "resize_as_": "moves no data where the size stays",
    "jiterator*": "for CUDA alone",
    "sparse.*": "sparse layouts",
    "to_sparse": "sparse layouts",
    "*linear_cross_entropy.*": "as linear_cross_entropy",
    "*scaled_mm*": "8-bit floats",
    "*_flash_attention_forward*": "for CUDA alone",
    "*_efficient_attention_forward*": "for CUDA alone",
    "combinations": "quadratic results",
    "*.cond": "as svdvals",
    "norm.nuc": "as svdvals",
    "bmm.triton_optimized": "as bmm",
    "histogramdd": "one bin for each dim",
    "*.without_cudnn": "as batch_norm",
}


class Unscalable(Exception):
    """Why an entry has no inputs of a size."""


def name_of(entry) -> str:
    return entry.name + ("." + entry.variant_test_name if entry.variant_test_name else "")


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


# ---- growing a sample


def draw(values: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """New values in the range of the old ones; of two different values at most, those."""
    flat = values.detach().reshape(-1)
    few = flat[:64].unique() if not flat.dtype.is_complex else flat[:0]
    if flat.dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if 0 < len(few) <= 2 and len(flat) > 2:
        return few[torch.randint(0, len(few), shape)]
    if flat.dtype.is_complex:
        return torch.randn(shape, dtype=flat.dtype)
    if flat.dtype.is_floating_point:
        low, high = (float(edge) for edge in (flat.min(), flat.max()))
        if not (math.isfinite(low) and math.isfinite(high) and high > low):
            low, high = (low - 0.5, low + 0.5) if math.isfinite(low) else (0.1, 0.9)
        return (torch.rand(shape) * (high - low) + low).to(flat.dtype)
    return torch.randint(int(flat.min()), int(flat.max()) + 1, shape).to(flat.dtype)


def draw_index(values: torch.Tensor, shape: list[int], bound: int) -> torch.Tensor:
    """Indices below the bound: a permutation if the sample has no index twice."""
    flat = values.reshape(-1)
    if len(shape) == 1 and shape[0] <= bound and len(flat.unique()) == len(flat):
        return torch.randperm(bound)[: shape[0]].to(values.dtype)
    return torch.randint(0, bound, shape).to(values.dtype)


def tensors_in(tree) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def is_list_of_ints(value) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(type(item) is int for item in value)


def grow(sample, dtype: torch.dtype, count: int, shapes: bool):
    """The sample with all dims that are not 1 of one length; `shapes`: also in lists of numbers that are sizes."""
    parts = (sample.input, tuple(sample.args), dict(sample.kwargs))
    tensors = tensors_in(parts)
    largest = max(tensors, key=lambda tensor: tensor.numel())
    rank = sum(size > 1 for size in largest.shape)
    side = round(count ** (1 / rank))
    side = side if side < 16 else side // 8 * 8

    def grown(leaf):
        if isinstance(leaf, torch.Tensor):
            if leaf.is_sparse or leaf.layout != torch.strided:
                raise Unscalable("sparse layouts")
            shape = [side if size > 1 else size for size in leaf.shape]
            if math.prod(shape) > 4 * count:
                raise Unscalable("no sample grows to that size")
            is_index = not leaf.dtype.is_floating_point and leaf.dtype != torch.bool and dtype.is_floating_point
            if is_index and leaf.numel() and int(leaf.min()) >= 0:
                return draw_index(leaf, shape, side)
            return draw(leaf, shape) if leaf.numel() else leaf
        if shapes and is_list_of_ints(leaf):
            return type(leaf)(side if item > 1 else item for item in leaf)
        return leaf

    return pytree.tree_map(grown, parts, is_leaf=is_list_of_ints)


def rank_of(sample) -> int:
    """Distance of a sample from the ideal: two or three dims, all tensors alike."""
    tensors = tensors_in((sample.input, sample.args, sample.kwargs))
    sizes = [tensor.numel() for tensor in tensors]
    if not sizes or max(sizes) < 2:
        return -1
    largest = tensors[sizes.index(max(sizes))]
    rank = sum(size > 1 for size in largest.shape)
    alike = all(tensor.shape == largest.shape for tensor in tensors)
    return 2 * abs(rank - 2) + (0 if alike else 1) + (4 if tensors[0].numel() != max(sizes) else 0)


def candidates(entry, dtype: torch.dtype) -> list:
    seed()
    found = []
    try:
        for sample in itertools.islice(entry.sample_inputs("cpu", dtype), MOST_SAMPLES):
            rank = rank_of(sample)
            if rank >= 0:
                found.append((rank, len(found), sample))
    except Exception as error:  # torch's own samples may fail in the middle
        if not found:
            raise Unscalable(f"no samples: {str(error).splitlines()[0][:80]}") from None
    if not found:
        raise Unscalable("no sample has a tensor of two elements")
    return [sample for _, _, sample in sorted(found, key=lambda row: row[:2])[:MOST_TRIED]]


# ---- factories


def values(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.float32 if dtype.is_floating_point else dtype).to(dtype)
    return torch.randint(-9, 10, shape).to(dtype)


def square(count: int, most: int) -> tuple[int, ...]:
    """Matrices: one if count allows no more, else the largest that the algorithm is timed with."""
    side = math.isqrt(count)
    return (side, side) if side <= most else (max(1, min(16, count // most**2)), most, most)


def images(count: int, dims: int, channels: int, batch: int = 4) -> list[int]:
    channels, batch = (channels, batch) if count > 5000 else (4, 1)
    return [batch, channels, *[max(4, round((count / channels / batch) ** (1 / dims)))] * dims]


def factory_conv(dims: int):
    def make(count, dtype):
        shape = images(count, dims, 64)
        weight = values(shape[1], shape[1], *[3] * dims, dtype=dtype)
        return values(*shape, dtype=dtype), (weight, values(shape[1], dtype=dtype)), {"padding": 1}

    return make


def factory_image(dims: int, channels: int, *args, **kwargs):
    return lambda count, dtype: (values(*images(count, dims, channels), dtype=dtype), args, kwargs)


def factory_interpolate(dims: int, mode: str):
    align = {"align_corners": False} if mode in ("linear", "bilinear", "bicubic", "trilinear") else {}
    scale = {"scale_factor": 2.0, "mode": mode, "recompute_scale_factor": False}
    return lambda count, dtype: (values(*images(count // 2**dims, dims, 16), dtype=dtype), (), scale | align)


def factory_grid(dims: int, *args, **kwargs):
    def make(count, dtype):
        shape = images(count, dims, 16)
        grid = (torch.rand(shape[0], *shape[2:], dims) * 2 - 1).to(dtype)
        return values(*shape, dtype=dtype), (grid, *args), kwargs

    return make


def factory_unpool(dims: int):
    def make(count, dtype):
        x = values(*images(count, dims, 16), dtype=dtype)
        pooled, where = getattr(torch.nn.functional, f"max_pool{dims}d")(x.float(), 2, return_indices=True)
        return pooled.to(dtype), (where, 2), {}

    return make


def positive(shape, dtype) -> torch.Tensor:
    root = torch.randn(shape)
    return (root @ root.mT / shape[-1] + torch.eye(shape[-1])).to(dtype)


def factory_positive(most: int, *args, **kwargs):
    return lambda count, dtype: (positive(square(count, most), dtype), args, kwargs)


def factory_matrix(most: int, *args, **kwargs):
    return lambda count, dtype: (values(*square(count, most), dtype=dtype), args, kwargs)


def factory_solve(most: int, kind: str, **kwargs):
    def make(count, dtype):
        shape = square(count, most)
        a, b = positive(shape, dtype), values(*shape[:-1], 16, dtype=dtype)
        if kind == "solve":
            return a, (b,), kwargs
        if kind == "triangular":
            return a.tril(), (b,), kwargs
        if kind == "old triangular":
            return b, (a.triu(),), kwargs
        if kind == "cholesky":
            return b, (torch.linalg.cholesky(a),), kwargs
        lu, pivots = torch.linalg.lu_factor(a)
        return (lu, (pivots, b), kwargs) if kind == "lu" else (b, (lu, pivots), kwargs)

    return make


def factory_rows(kind: str):
    """[rows, columns] with an index for each row or a list of rows."""

    def make(count, dtype):
        columns = 64 if count > 5000 else 8
        rows = count // columns
        x, index = values(rows, columns, dtype=dtype), torch.randint(0, rows, (rows,))
        many = torch.randint(0, rows, (rows, columns))
        by_kind = {
            "index_add": (x, (0, index, values(rows, columns, dtype=dtype)), {}),
            "index_put": (x, ((index,), values(rows, columns, dtype=dtype)), {"accumulate": True}),
            "index_copy": (x, (0, torch.randperm(rows), values(rows, columns, dtype=dtype)), {}),
            "index_fill": (x, (0, index, 1), {}),
            "index_select": (x, (0, index), {}),
            "getitem": (x, (index,), {}),
            "gather": (x, (0, many), {}),
            "scatter": (x, (0, many, values(rows, columns, dtype=dtype)), {}),
            "take": (x, (torch.randint(0, rows * columns, (rows, columns)),), {}),
            "put": (x, (torch.randperm(rows * columns).view(rows, columns), x.clone()), {}),
            "take_along_dim": (x, (many, 0), {}),
            "embedding": (torch.randint(0, 1000, (rows,)), (values(1000, columns, dtype=dtype),), {}),
            "embedding of op_db": (values(1000, columns, dtype=dtype), (torch.randint(0, 1000, (rows,)),), {}),
            "bag": (
                values(1000, columns, dtype=dtype),
                (torch.randint(0, 1000, (rows * 4,)),),
                {"offsets": torch.arange(0, rows * 4, 4), "mode": "sum"},
            ),
            "classes": (values(rows, columns, dtype=dtype), (torch.randint(0, columns, (rows,)),), {}),
            "log classes": (-torch.rand(rows, columns).to(dtype), (torch.randint(0, columns, (rows,)),), {}),
            "weights": (torch.rand(rows, columns).to(dtype), (8, True), {}),
        }
        return by_kind[kind]

    return make


def factory_index_reduce(reduce: str, scatter: bool):
    def make(count, dtype):
        x, args, _ = factory_rows("scatter" if scatter else "index_add")(count, dtype)
        return x, (*args, reduce), {}

    return make


def factory_segments(offsets: bool):
    def make(count, dtype):
        x = values(count // 64 * 64, dtype=dtype)
        lengths = torch.full((len(x) // 64,), 64)
        by = {"offsets": torch.arange(0, len(x) + 1, 64)} if offsets else {"lengths": lengths}
        return x, ("sum",), {"axis": 0, "unsafe": True} | by

    return make


def make_ctc(count, dtype):
    steps, batch, classes = 64, 16, max(8, count // 1024)
    x = torch.randn(steps, batch, classes).log_softmax(-1).to(dtype)
    lengths = [steps] * batch, [20] * batch
    return x, (torch.randint(1, classes, (batch, 20)), *lengths), {}


def make_attention(count, dtype):
    heads, size = (12, 64) if count > 5000 else (2, 16)
    length = max(8, count // heads // size // 4)
    query, key, value = (values(4, heads, length if length < 512 else 512, size, dtype=dtype) for _ in range(3))
    return query, (key, value), {"is_causal": True}


def make_linear(count, dtype):
    side = math.isqrt(count)
    return values(side, side, dtype=dtype), (values(side, side, dtype=dtype), values(side, dtype=dtype)), {}


def make_bilinear(count, dtype):
    rows = max(8, count // 64)
    return values(rows, 64, dtype=dtype), (values(rows, 32, dtype=dtype), values(16, 64, 32, dtype=dtype)), {}


def factory_line(*args, **kwargs):
    return lambda count, dtype: (values(count, dtype=dtype), args, kwargs)


def factory_plane(*args, **kwargs):
    return lambda count, dtype: (values(math.isqrt(count), math.isqrt(count), dtype=dtype), args, kwargs)


def factory_lists(count_of_parts: int, dim=None):
    def make(count, dtype):
        side = math.isqrt(count // count_of_parts)
        parts = [values(side, side, dtype=dtype) for _ in range(count_of_parts)]
        return parts, (), {} if dim is None else {"dim": dim}

    return make


def factory_size(*args, tuple_of=1, **kwargs):
    """Operators that make a tensor of a size."""

    def make(count, dtype):
        size = (count,) if tuple_of else count
        return size, args, {"dtype": dtype, "device": "cpu"} | kwargs

    return make


def factory_range(kind: str):
    def make(count, dtype):
        options = {"dtype": dtype, "device": "cpu"}
        by_kind = {"arange": (0, (count,), options), "linspace": (-1.0, (1.0, count), options)}
        by_kind["eye"] = (math.isqrt(count), (), options)
        by_kind["indices"] = (math.isqrt(count), (math.isqrt(count),), {"device": "cpu"})
        by_kind["randint"] = (10, ((count,),), {"device": "cpu"})
        by_kind["normal"] = (0.5, (1.0, (count,)), options)
        return by_kind[kind]

    return make


def make_fold(count, dtype):
    shape = images(count // 9, 2, 16)
    return values(shape[0], shape[1] * 9, (shape[2] - 2) * (shape[3] - 2), dtype=dtype), (tuple(shape[2:]), 3), {}


def make_batch_norm(count, dtype):
    shape = images(count, 2, 64)
    statistics = torch.zeros(shape[1], dtype=dtype), torch.ones(shape[1], dtype=dtype)
    weights = torch.ones(shape[1], dtype=dtype), torch.zeros(shape[1], dtype=dtype)
    return values(*shape, dtype=dtype), (*statistics, *weights), {"training": True}


def factory_native_norm(update: bool):
    def make(count, dtype):
        x, (mean, variance, weight, bias), _ = make_batch_norm(count, dtype)
        return x, (weight, bias, mean, variance, *(() if update else (True,)), 0.1, 1e-5), {}

    return make


def make_layer_norm(count, dtype):
    columns = 1024 if count > 5000 else 32
    weight, bias = torch.ones(columns, dtype=dtype), torch.zeros(columns, dtype=dtype)
    return values(count // columns, columns, dtype=dtype), ((columns,), weight, bias), {}


def make_rms_norm(count, dtype):
    x, args, _ = make_layer_norm(count, dtype)
    return x, args[:2], {}


def make_native_layer_norm(count, dtype):
    x, args, _ = make_layer_norm(count, dtype)
    return x, (*args, 1e-5), {}


def make_group_norm(count, dtype):
    x, (_, _, weight, bias), _ = make_batch_norm(count, dtype)
    return x, (4,), {"weight": weight, "bias": bias}


def make_native_group_norm(count, dtype):
    x, (_, _, weight, bias), _ = make_batch_norm(count, dtype)
    return x, (weight, bias, x.shape[0], x.shape[1], x.shape[2] * x.shape[3], 4, 1e-5), {}


def make_searched(count, dtype):
    return torch.linspace(-3, 3, 1000).to(dtype), (values(count, dtype=dtype),), {}


def make_bucketize(count, dtype):
    return values(count, dtype=dtype), (torch.linspace(-3, 3, 1000).to(dtype),), {}


def make_isin(count, dtype):
    return torch.randint(0, 1000, (count,)).to(dtype), (torch.randint(0, 1000, (100,)).to(dtype),), {}


def make_cdist(count, dtype):
    rows = math.isqrt(count)
    return values(rows, 32, dtype=dtype), (values(rows, 32, dtype=dtype), 2.0), {}


def make_pdist(count, dtype):
    return values(math.isqrt(2 * count), 32, dtype=dtype), (), {}


def factory_lists_of_lines(count_of_parts: int):
    def make(count, dtype):
        side = round(count ** (1 / count_of_parts))
        return values(side, dtype=dtype), tuple(values(side, dtype=dtype) for _ in range(count_of_parts - 1)), {}

    return make


def make_householder(count, dtype):
    reflectors, scales = torch.geqrf(values(*square(count, 512), dtype=dtype))
    return reflectors, (scales,), {}


def make_ldl_solve(count, dtype):
    a = positive(square(count, 512), dtype)
    factors, pivots = torch.linalg.ldl_factor(a)
    return factors, (pivots, values(*a.shape[:-1], 16, dtype=dtype)), {}


def make_lu_unpack(count, dtype):
    lu, pivots = torch.linalg.lu_factor(values(*square(count, 1024), dtype=dtype))
    return lu, (pivots,), {}


def make_blocks(count, dtype):
    first, second = (values(math.isqrt(count) // 2, math.isqrt(count) // 2, dtype=dtype) for _ in range(2))
    return first, (second,), {}


def make_halves(count, dtype):
    side = math.isqrt(count) // 2 * 2
    return values(side, side, dtype=dtype), ([side // 2, side // 2],), {}


def make_istft(count, dtype):
    length = 256 if count > 5000 else 32
    lines = torch.stft(torch.randn(count), length, return_complex=True, window=torch.ones(length))
    return lines.to(dtype), (length,), {"window": torch.ones(length)}


def make_heads(count, dtype):
    """Self-attention with eight heads of 32 channels."""
    size, length = (256, max(8, count // 4 // 256)) if count > 5000 else (16, 16)
    x = values(min(length, 512), 4, size, dtype=dtype)
    project, bias = values(3 * size, size, dtype=dtype), values(3 * size, dtype=dtype)
    out, out_bias = values(size, size, dtype=dtype), values(size, dtype=dtype)
    return x, (x, x, size, 8, project, bias, None, None, False, 0.0, out, out_bias), {"need_weights": False}


def make_spans(count, dtype):
    return torch.randint(0, 1000, (count,)), (), {}


FFT_SIDE = {"fft": 1024, "fft2": 256, "fftn": 64}
F = "nn.functional."
FACTORIES = {
    F + "conv1d": factory_conv(1),
    F + "conv2d": factory_conv(2),
    F + "conv3d": factory_conv(3),
    F + "conv_transpose1d": factory_conv(1),
    F + "conv_transpose2d": factory_conv(2),
    F + "conv_transpose3d": factory_conv(3),
    **{F + f"{kind}_pool{d}d": factory_image(d, 16, 3, 2) for kind in ("avg", "max") for d in (1, 2, 3)},
    "max_pool2d_with_indices_backward": factory_image(
        2, 16, kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False, return_indices=True
    ),
    **{F + f"adaptive_{kind}_pool{d}d": factory_image(d, 16, (7,) * d) for kind in ("avg", "max") for d in (1, 2, 3)},
    F + "fractional_max_pool2d": factory_image(2, 16, 2, output_size=4),
    F + "fractional_max_pool3d": factory_image(3, 16, 2, output_size=2),
    **{F + f"max_unpool{d}d{grad}": factory_unpool(d) for d in (1, 2, 3) for grad in ("", ".grad")},
    F + "lp_pool1d": factory_image(1, 16, 2.0, 3, 2),
    F + "lp_pool2d": factory_image(2, 16, 2.0, 3, 2),
    F + "interpolate.nearest": factory_interpolate(2, "nearest"),
    F + "interpolate.nearest-exact": factory_interpolate(2, "nearest-exact"),
    F + "interpolate.linear": factory_interpolate(1, "linear"),
    F + "interpolate.bilinear": factory_interpolate(2, "bilinear"),
    F + "interpolate.bicubic": factory_interpolate(2, "bicubic"),
    F + "interpolate.trilinear": factory_interpolate(3, "trilinear"),
    F + "interpolate.area": factory_interpolate(2, "area"),
    F + "upsample_bilinear": lambda n, t: (values(*images(n // 4, 2, 16), dtype=t), (), {"scale_factor": 2}),
    F + "upsample_nearest": lambda n, t: (values(*images(n // 4, 2, 16), dtype=t), (), {"scale_factor": 2}),
    "_upsample_bilinear2d_aa": lambda n, t: (
        values(*images(n, 2, 16), dtype=t),
        (),
        {"output_size": [math.isqrt(n // 64) // 2 or 2] * 2, "align_corners": False, "scale_factors": None},
    ),
    F + "grid_sample": factory_grid(2, mode="bilinear", padding_mode="zeros", align_corners=False),
    "grid_sampler_2d": factory_grid(2, 0, 0, False),
    "grid_sampler_3d": factory_grid(3, 0, 0, False),
    F + "unfold": factory_image(2, 4, 3),
    F + "fold": make_fold,
    F + "pixel_shuffle": factory_image(2, 64, upscale_factor=2),
    F + "pixel_unshuffle": lambda n, t: (values(4, 4, *[math.isqrt(n // 16) // 2 * 2] * 2, dtype=t), (2,), {}),
    F + "channel_shuffle": factory_image(2, 64, 4),
    F + "local_response_norm": factory_image(2, 16, 5),
    F + "batch_norm": make_batch_norm,
    F + "instance_norm": factory_image(2, 16),
    "native_batch_norm": factory_native_norm(False),
    "_native_batch_norm_legit": factory_native_norm(False),
    "_batch_norm_with_update": factory_native_norm(True),
    F + "layer_norm": make_layer_norm,
    F + "rms_norm": make_rms_norm,
    "native_layer_norm": make_native_layer_norm,
    F + "group_norm": make_group_norm,
    "native_group_norm": make_native_group_norm,
    F + "linear": make_linear,
    F + "bilinear": make_bilinear,
    F + "scaled_dot_product_attention": make_attention,
    F + "ctc_loss": make_ctc,
    F + "embedding": factory_rows("embedding of op_db"),
    F + "embedding_bag": factory_rows("bag"),
    F + "cross_entropy": factory_rows("classes"),
    F + "nll_loss": factory_rows("log classes"),
    F + "multi_margin_loss": factory_rows("classes"),
    F + "one_hot": lambda n, t: (torch.randint(0, 64, (max(8, n // 64),)), (), {"num_classes": 64}),
    F + "pdist": make_pdist,
    "cdist": make_cdist,
    "multinomial": factory_rows("weights"),
    **{name: factory_rows(name) for name in ("index_add", "index_put", "index_copy", "index_fill", "index_select")},
    **{name: factory_rows(name) for name in ("gather", "scatter", "take", "put", "take_along_dim")},
    "scatter_add": factory_rows("scatter"),
    "__getitem__": factory_rows("getitem"),
    **{f"index_reduce.{r}": factory_index_reduce(r, False) for r in ("mean", "prod", "amin", "amax")},
    **{f"scatter_reduce.{r}": factory_index_reduce(r, True) for r in ("sum", "mean", "prod", "amin", "amax")},
    "_segment_reduce.lengths": factory_segments(False),
    "_segment_reduce.offsets": factory_segments(True),
    "searchsorted": make_searched,
    "bucketize": make_bucketize,
    "isin": make_isin,
    "bincount": make_spans,
    "unravel_index": lambda n, t: (torch.randint(0, 1 << 20, (n,)), ((1024, 1024),), {}),
    "histc": factory_line(100, -3, 3),
    "histogram": factory_line(100),
    "unique": lambda n, t: (torch.randint(0, 1000, (n,)).to(t), (), {}),
    "unique_consecutive": lambda n, t: (torch.randint(0, 3, (n,)).to(t), (), {}),
    "mode": lambda n, t: (torch.randint(0, 100, (math.isqrt(n),) * 2).to(t), (), {}),
    "sort": factory_plane(),
    "argsort": factory_plane(),
    "msort": factory_plane(),
    "topk": factory_plane(10),
    "kthvalue": factory_plane(10),
    "median": factory_plane(),
    "nanmedian": factory_plane(),
    "quantile": factory_plane(0.3, 1),
    "nanquantile": factory_plane(0.3, 1),
    "masked.median": factory_plane(1),
    "cat": factory_lists(4, 0),
    "stack": factory_lists(4, 0),
    "hstack": factory_lists(4),
    "vstack": factory_lists(4),
    "dstack": factory_lists(4),
    "column_stack": factory_lists(4),
    "_chunk_cat": lambda n, t: (
        [values(math.isqrt(n // 4), math.isqrt(n // 4), dtype=t) for _ in range(4)],
        (0, 4),
        {},
    ),
    "block_diag": make_blocks,
    "cartesian_prod": factory_lists_of_lines(2),
    "einsum": lambda n, t: ([values(math.isqrt(n), math.isqrt(n), dtype=t) for _ in range(2)], ("ij,jk->ik",), {}),
    "diag": lambda n, t: (values(math.isqrt(n), dtype=t), (), {}),
    "diagflat": lambda n, t: (values(math.isqrt(n), dtype=t), (), {}),
    "diag_embed": lambda n, t: (
        values(64 if n > 5000 else 4, math.isqrt(n // (64 if n > 5000 else 4)), dtype=t),
        (),
        {},
    ),
    "kron": lambda n, t: (
        values(16, 16, dtype=t),
        (values(max(2, math.isqrt(n) // 16), max(2, math.isqrt(n) // 16), dtype=t),),
        {},
    ),
    "outer": factory_lists_of_lines(2),
    "ger": factory_lists_of_lines(2),
    "repeat": lambda n, t: (values(math.isqrt(n) // 2, math.isqrt(n) // 2, dtype=t), ((2, 2),), {}),
    "tile": lambda n, t: (values(math.isqrt(n) // 2, math.isqrt(n) // 2, dtype=t), ((2, 2),), {}),
    "repeat_interleave": lambda n, t: (
        values(math.isqrt(n) // 2, math.isqrt(n), dtype=t),
        (),
        {"repeats": 2, "dim": 0},
    ),
    "tensor_split": factory_plane(4),
    "slice_scatter": lambda n, t: (
        values(math.isqrt(n), math.isqrt(n), dtype=t),
        (values(math.isqrt(n) // 2, math.isqrt(n), dtype=t), 0, 0, math.isqrt(n) // 2),
        {},
    ),
    "roll": factory_plane((5, 7), (0, 1)),
    "rot90": factory_plane(1, (0, 1)),
    "flip": factory_plane((0, 1)),
    "unfold_copy": factory_line(0, 4, 4),
    "view_as_complex": lambda n, t: (values(n // 2, 2, dtype=t), (), {}),
    "linalg.vander": lambda n, t: (values(math.isqrt(n), dtype=t), (), {"N": min(16, math.isqrt(n))}),
    "stft": lambda n, t: (values(n, dtype=t), (256 if n > 5000 else 32,), {"return_complex": True}),
    "triu_indices": factory_range("indices"),
    "tril_indices": factory_range("indices"),
    "arange": factory_range("arange"),
    "linspace": factory_range("linspace"),
    "logspace": factory_range("linspace"),
    "eye": factory_range("eye"),
    "randint": factory_range("randint"),
    "normal.number_mean": factory_range("normal"),
    "randn": factory_size(),
    "ones": factory_size(),
    "zeros": factory_size(),
    "full": factory_size(1.5),
    "signal.windows.exponential": factory_size(tuple_of=0, tau=2.0),
    "signal.windows.gaussian": factory_size(tuple_of=0, std=2.0),
    "signal.windows.general_cosine": factory_size(tuple_of=0, a=[0.5, 0.5]),
    "signal.windows.*": factory_size(tuple_of=0),
    "new_zeros": lambda n, t: (values(4, dtype=t), ((n,),), {}),
    "new_ones": lambda n, t: (values(4, dtype=t), ((n,),), {}),
    "new_full": lambda n, t: (values(4, dtype=t), ((n,), 2.0), {}),
    "as_strided_scatter": lambda n, t: (values(n + 8, dtype=t), (values(n // 8, 8, dtype=t), (n // 8, 8), (8, 1)), {}),
    "as_strided*": lambda n, t: (values(n + 8, dtype=t), ((n // 8, 8), (8, 1)), {}),
    "to": lambda n, t: (values(math.isqrt(n), math.isqrt(n), dtype=t), (torch.float64,), {}),
    # linear algebra: the largest matrix by how long its algorithm takes
    "cholesky": factory_positive(2048),
    "linalg.cholesky*": factory_positive(2048),
    "cholesky_inverse": lambda n, t: (torch.linalg.cholesky(positive(square(n, 1024), t)), (), {}),
    "cholesky_solve": factory_solve(1024, "cholesky"),
    "linalg.solve": factory_solve(1024, "solve"),
    "linalg.solve_ex": factory_solve(1024, "solve"),
    "linalg.solve_triangular": factory_solve(2048, "triangular", upper=False),
    "triangular_solve": factory_solve(2048, "old triangular"),
    "linalg.lu_solve": factory_solve(1024, "lu"),
    "lu_solve": factory_solve(1024, "old lu"),
    **{
        f"linalg.{name}": factory_matrix(1024)
        for name in ("lu_factor", "lu_factor_ex", "lu", "inv", "inv_ex", "det", "slogdet")
    },
    "lu": factory_matrix(1024),
    "logdet": factory_positive(1024),
    "linalg.ldl_factor*": factory_positive(512),
    "linalg.qr": factory_matrix(512),
    "qr": factory_matrix(512),
    "geqrf": factory_matrix(512),
    "linalg.householder_product": make_householder,
    "linalg.svd": factory_matrix(128),
    "linalg.svdvals": factory_matrix(128),
    "svd": factory_matrix(128),
    "linalg.eigh": factory_positive(128),
    "linalg.eigvalsh": factory_positive(128),
    "linalg.eig": factory_matrix(64),
    "linalg.eigvals": factory_matrix(64),
    "linalg.pinv": factory_matrix(128),
    "linalg.pinv.hermitian": factory_positive(128, hermitian=True),
    "pinverse": factory_matrix(128),
    "linalg.matrix_rank": factory_matrix(128),
    "linalg.matrix_rank.hermitian": factory_positive(128, hermitian=True),
    "linalg.matrix_power": factory_matrix(512, 3),
    "matrix_exp": factory_matrix(256),
    "linalg.matrix_norm": factory_matrix(2048, "fro"),
    "linalg.multi_dot": lambda n, t: ([values(math.isqrt(n), math.isqrt(n), dtype=t) for _ in range(3)], (), {}),
    "linalg.ldl_solve": make_ldl_solve,
    "lu_unpack": make_lu_unpack,
    F + "multi_head_attention_forward": make_heads,
    "cross": lambda n, t: (values(n // 3, 3, dtype=t), (values(n // 3, 3, dtype=t),), {}),
    "linalg.cross": lambda n, t: (values(n // 3, 3, dtype=t), (values(n // 3, 3, dtype=t),), {}),
    "broadcast_tensors": lambda n, t: (values(math.isqrt(n), 1, dtype=t), (values(1, math.isqrt(n), dtype=t),), {}),
    "istft": make_istft,
    "split.list_args": make_halves,
    "split_with_sizes*": make_halves,
    "trace": factory_plane(),
    "tril": factory_plane(),
    "triu": factory_plane(),
    "_softmax_backward_data": lambda n, t: (
        (values(math.isqrt(n), math.isqrt(n), dtype=t),) + ((values(math.isqrt(n), math.isqrt(n), dtype=t), 1, t), {})
    ),
    "softmax*": factory_plane(1),
    "log_softmax*": factory_plane(1),
    F + "softmin": factory_plane(1),
    "cumsum": factory_plane(1),
    "cumprod": factory_plane(1),
    "cummax": factory_plane(1),
    "cummin": factory_plane(1),
    "logcumsumexp": factory_plane(1),
}
for padding in ("constant", "reflect", "replicate", "circular"):
    FACTORIES[F + "pad." + padding] = factory_image(2, 16, (1, 1, 1, 1), padding)
FACTORIES["constant_pad_nd"] = factory_image(2, 16, (1, 1, 1, 1))
for transform in ("", "i"):
    for kind in ("fft", "rfft", "hfft"):
        for dims, side in (("", 1024), ("2", 256), ("n", 64)):
            rank = {"": 1, "2": 2, "n": 3}[dims]
            FACTORIES[f"fft.{transform}{kind}{dims}"] = lambda n, t, side=side, rank=rank: (
                values(max(1, n // (side if n > 5000 else 8) ** rank), *[side if n > 5000 else 8] * rank, dtype=t),
                (),
                {"dim": tuple(range(-rank, 0))} if rank > 1 else {},
            )


def pattern_of(name: str, table: dict):
    if name in table:
        return table[name]
    return next((value for pattern, value in table.items() if fnmatch.fnmatchcase(name, pattern)), None)


# ---- requests


def elements_of(tree) -> int:
    return max([tensor.numel() for tensor in tensors_in(tree)], default=0)


def runs(entry, parts):
    """The result of the call on the CPU; None if the operator refuses it."""
    first, args, kwargs = parts
    try:
        return entry.op(first, *args, **kwargs)
    except Exception:
        return None


def make(entry, dtype: torch.dtype, count: int):
    """((input, args, kwargs), result on the CPU) of about `count` elements; raises Unscalable with a reason."""
    name = name_of(entry)
    reason = pattern_of(name, SKIPPED)
    if reason:
        raise Unscalable(reason)
    factory = pattern_of(name, FACTORIES)
    seed()
    if factory:
        try:
            parts = factory(count, dtype)
        except RuntimeError as error:
            raise Unscalable(f"no inputs: {str(error).splitlines()[0][:80]}") from None
        result = runs(entry, parts)
        if result is None:
            raise Unscalable(f"torch takes no such {str(dtype).removeprefix('torch.')}")
        return parts, result
    reason = "no sample grows to that size"
    for sample in candidates(entry, dtype):
        for shapes in (False, True):
            seed()
            try:
                parts = grow(sample, dtype, count, shapes)
            except Unscalable as found:
                reason = str(found)
                continue
            result = runs(entry, parts)
            if result is not None and elements_of((parts, result)) * 4 > count and elements_of(result) <= 8 * count:
                return parts, result
    raise Unscalable(reason)
