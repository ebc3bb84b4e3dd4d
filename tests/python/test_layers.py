"""Pools, paddings, gated units, margins and CTC against torch's CPU device, in cases with little coverage in torch's
own test data: layouts in memory, ties, NaN and infinities, windows and borders of all kinds, gradients of long
sequences."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from op_support import check, numbers
from support import DEVICE, assert_same

LAST = ("channels last", "contiguous", "strided", "offset", "transposed")


def last_3d(x):
    return x.contiguous(memory_format=torch.channels_last_3d)


# ---- pools


@pytest.mark.parametrize(
    "kernel,stride,padding,dilation,ceil",
    [(2, 2, 0, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 2, False), (2, 3, 1, 1, True)],
)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pools_of_all_planes(dims, kernel, stride, padding, dilation, ceil):
    x = numbers((2, 3, 7, 8, 9)[: dims + 2])
    largest = getattr(F, f"max_pool{dims}d")
    average = getattr(F, f"avg_pool{dims}d")
    for layout in LAST:
        check(lambda t: largest(t, kernel, stride, padding, dilation, ceil, return_indices=True), x, layout=layout)
        check(lambda t: average(t, kernel, stride, padding, ceil, False), x, layout=layout)
        check(lambda t: average(t, kernel, stride, padding, ceil), x, layout=layout)


def test_pools_keep_the_memory_format():
    x = numbers((2, 3, 6, 6, 6))
    for pool in (lambda t: F.max_pool3d(t, 2), lambda t: F.avg_pool3d(t, 2), lambda t: F.adaptive_avg_pool3d(t, 3)):
        cpu, ours = pool(last_3d(x)), pool(last_3d(x.to(DEVICE)))
        assert_same(ours, cpu)
        assert ours.stride() == cpu.stride()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_adaptive_pools(size):
    for dims in (1, 2, 3):
        x = numbers((2, 3, 7, 5, 6)[: dims + 2])
        x[0, 0] = -math.inf
        x[1, 1] = x[1, 1].round()  # ties
        largest, average = getattr(F, f"adaptive_max_pool{dims}d"), getattr(F, f"adaptive_avg_pool{dims}d")
        for layout in LAST:
            check(lambda t: largest(t, size, return_indices=True), x, layout=layout)
            check(lambda t: average(t, size), x[1:], layout=layout)


@pytest.mark.parametrize("dims", [2, 3])
def test_unpool_and_fractional_pool(dims):
    x = numbers((2, 3, 6, 8, 6)[: dims + 2])
    pool, unpool = getattr(F, f"max_pool{dims}d"), getattr(F, f"max_unpool{dims}d")
    check(lambda t: unpool(*pool(t, 2, return_indices=True), 2), x)
    samples = torch.rand(2, 3, dims)
    fractional = getattr(F, f"fractional_max_pool{dims}d")
    check(lambda t, s: fractional(t, 2, 3, return_indices=True, _random_samples=s), x, samples, grad=False)
    check(lambda t, s: fractional(t, 2, 3, _random_samples=s.detach()), x, samples)
    with pytest.raises(Exception, match="out of"):
        unpool(x.to(DEVICE), torch.full(x.shape, 10**6, device=DEVICE), 2).cpu()


# ---- paddings


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders(mode):
    for dims, pad in (
        (1, (2, 1)),
        (1, (0, 3)),
        (2, (1, 2, 3, 0)),
        (2, (0, 0, 1, 1)),
        (3, (1, 0, 2, 2, 1, 3)),
        (3, (0,) * 6),
    ):
        x = numbers((2, 3, 5, 4, 6)[: dims + 2])
        for layout in LAST:
            check(lambda t: F.pad(t, pad, mode), x, layout=layout)
    for pad in ((-1, 2, 1, -2), (-4, 3, 0, 0), (-3, 2, 4, -5)):  # cropped elements still appear at the other side
        check(lambda t: F.pad(t, pad, "replicate"), numbers((2, 3, 5, 4)))
    check(lambda t: F.pad(t, (2, -1), "reflect"), numbers((3, 5)))
    check(lambda t: F.pad(t, (-3, 2), "reflect"), numbers((3, 4)))
    with pytest.raises(RuntimeError, match="less than the corresponding input dimension"):
        F.pad(torch.ones(1, 2, 3, device=DEVICE), (3, 0), "reflect")


# ---- activations


def test_activations_at_their_corners():
    x = torch.tensor([-3.0, 3.0, -4.0, 4.0, math.nan, math.inf, -math.inf, 0.0, -0.0, -2.9999998, 1e-30])
    for function in (F.hardswish, F.hardsigmoid, F.mish, F.logsigmoid):
        check(function, x)
    check(lambda t, w: F.prelu(t, w), numbers((2, 3, 4)), numbers((3,), seed=1))
    check(lambda t, w: F.prelu(t, w), x, numbers((1,), seed=1))
    check(lambda t: F.glu(t, 1), numbers((3, 8, 2)), layout="strided")


def test_rrelu_in_training():
    x = numbers((1000,)).to(DEVICE).requires_grad_()
    y = F.rrelu(x, 0.25, 0.5, training=True)
    slope = (y / x).detach().cpu()
    negative = x.detach().cpu() < 0
    assert (slope[~negative] == 1).all()
    assert (
        (slope[negative] >= 0.25 - 1e-6).all()
        and (slope[negative] <= 0.5 + 1e-6).all()
        and slope[negative].std() > 0.05
    )
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_same(gradient, slope, atol=1e-6)


# ---- losses


def test_margin_losses():
    x, target = numbers((5, 4)), torch.tensor([0, 3, 2, 2, 1])
    for reduction in ("none", "mean", "sum"):
        for p in (1, 2):
            check(
                lambda t, c, w: F.multi_margin_loss(t, c, p, 0.7, w.detach(), reduction=reduction),
                x,
                target,
                torch.rand(4),
            )
        lists = torch.tensor([[0, 3, -1, 1], [-1, 0, 0, 0], [1, 2, 3, 0], [2, -1, -1, 2], [3, 3, -1, 0]])
        check(lambda t, c: F.multilabel_margin_loss(t, c, reduction=reduction), x, lists)
        special = torch.tensor(
            [[float("nan"), 1, 2, 3], [0, float("inf"), 1, -1], [1, 2, -float("inf"), 0], [1, 1, 1, 1], [0, 0, 0, 0]]
        )
        check(lambda t, c: F.multilabel_margin_loss(t, c, reduction=reduction), special, lists)
    check(lambda t, c: F.multi_margin_loss(t, c), x[0], target[0])
    with pytest.raises(Exception, match="out of"):
        F.multi_margin_loss(x.to(DEVICE), torch.full((5,), 4, device=DEVICE)).item()


@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("form", ["matrix", "joined", "one"])
def test_ctc(blank, form):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(60, 4, 5, generator=generator, dtype=torch.float64)
    lengths, inputs = torch.tensor([7, 0, 12, 5]), torch.tensor([60, 20, 31, 5])
    labels = [k for k in range(5) if k != blank]
    targets = torch.tensor(labels)[torch.randint(0, 4, (4, 12), generator=generator)]
    if form == "joined":
        targets = torch.cat([row[:n] for row, n in zip(targets, lengths)])
    if form == "one":
        logits, lengths, inputs, targets = logits[:, 0], lengths[0], inputs[0], targets[0, :7]
    for reduction in ("none", "mean"):
        for infinite in (False, True):  # the last sequence is too short for repeated labels
            check(
                lambda t, c: F.ctc_loss(t.log_softmax(-1), c, inputs, lengths, blank, reduction, infinite),
                logits,
                targets,
                rtol=1e-9,
                atol=1e-11,
            )
    check(
        lambda t, c, i, n: F.ctc_loss(t.log_softmax(-1), c, i, n, blank),
        logits,
        targets,
        inputs,
        lengths,
        rtol=1e-9,
        atol=1e-11,
    )


# ---- interpolation, samples, windows as columns

SIZES = [{"size": (11, 4, 6)}, {"size": (9, 1, 3)}, {"scale_factor": 2.0}, {"scale_factor": 0.6}]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_interpolation(dims, dtype):
    x = numbers((2, 3, 5, 6, 7)[: dims + 2], dtype)
    modes = ["nearest", "nearest-exact", ("linear", "bilinear", "trilinear")[dims - 1]] + (
        ["bicubic"] if dims == 2 else []
    )
    for mode in modes:
        for size in SIZES:
            to = {"size": size["size"][:dims]} if "size" in size else size
            for corners in (False, True) if "nearest" not in mode else (None,):
                for layout in ("contiguous", "channels last", "transposed"):
                    check(
                        lambda t: F.interpolate(t, mode=mode, align_corners=corners, **to),
                        x,
                        layout=layout,
                        rtol=1e-5,
                        atol=1e-5,
                    )


def test_infinite_gradients_of_interpolation_reach_what_was_read():
    for mode, corners in (("linear", False), ("linear", True), ("nearest", None), ("nearest-exact", None)):
        for size in (4, 20, 31):
            x, g = numbers((2, 3, 9)).requires_grad_(), numbers((2, 3, size))
            g[1, 2, size // 3], g[0, 0, 1] = float("inf"), float("nan")
            ours = x.detach().to(DEVICE).requires_grad_()
            (cpu,) = torch.autograd.grad(F.interpolate(x, size, mode=mode, align_corners=corners), x, g)
            (found,) = torch.autograd.grad(
                F.interpolate(ours, size, mode=mode, align_corners=corners), ours, g.to(DEVICE)
            )
            assert_same(found, cpu, rtol=1e-5, atol=1e-5)


def test_nearest_neighbours_that_are_copies():
    for dims in (1, 2, 3):
        # 2.05 and 2.2 give twice the size, too; torch's gradients then are those of 2.
        for scale in (2.0, 4.0, 2.05, 2.2, (2.0, 4.0, 1.0)[:dims]):
            for mode in ("nearest", "nearest-exact"):
                for dtype in (torch.float32, torch.bfloat16, torch.uint8):
                    x = (100 * torch.rand((2, 3, 4, 4, 5)[: dims + 2])).to(dtype)
                    for layout in ("contiguous", "channels last", "transposed"):
                        check(
                            lambda t: F.interpolate(t, scale_factor=scale, mode=mode),
                            x,
                            layout=layout,
                            grad=dtype == torch.float32 and scale not in (2.05, 2.2),
                        )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_interpolation(mode):
    for size in ({"size": (3, 4)}, {"scale_factor": 2.0}, {"scale_factor": 0.3}, {"size": (1, 20)}):
        for corners in (False, True):
            check(
                lambda t: F.interpolate(t, mode=mode, align_corners=corners, antialias=True, **size),
                numbers((2, 3, 7, 9)),
                rtol=1e-5,
                atol=1e-5,
            )


def test_bytes_are_interpolated_as_torch_rounds_them():
    """Weights of 16 bits, a rounding after each dim, taps clamped at an end; a dim that keeps its size is skipped."""
    torch.manual_seed(3)
    for planes, size, to, antialias in (
        ((1, 3), (13, 17), (7, 9), False),
        ((2, 5), (6, 4), (13, 4), True),
        ((1, 1), (3, 2), (9, 8), False),
        ((1, 2), (40, 3), (3, 40), True),
        ((2, 4), (1, 5), (6, 1), False),
    ):
        pixels = torch.randint(0, 256, (*planes, *size), dtype=torch.uint8)
        for mode in ("bilinear", "bicubic"):
            for corners in (False, True) if min(to) > 1 else (False,):
                for form in (torch.contiguous_format, torch.channels_last):
                    cpu = F.interpolate(
                        pixels.contiguous(memory_format=form), to, None, mode, corners, antialias=antialias
                    )
                    ours = F.interpolate(
                        pixels.to(DEVICE).contiguous(memory_format=form), to, None, mode, corners, antialias=antialias
                    )
                    assert torch.equal(ours.cpu(), cpu), (planes, size, to, antialias, mode, corners)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_of_narrow_types(dtype):
    """Statistics are saved in the type of the parameters; batch norm normalises with the saved ones."""
    torch.manual_seed(4)
    x, w, b = (torch.randn(6, 8, 5) * 3 + 1).to(dtype), torch.randn(8), torch.randn(8)
    for kind in (dtype, torch.float32):
        mean, var = torch.randn(8).to(kind), torch.rand(8).to(kind) + 0.5
        for training in (True, False):
            calls = [
                lambda t, *p: torch.native_batch_norm(t, *p, training, 0.1, 1e-5),
                lambda t, w, b, *_: torch.native_layer_norm(t.transpose(1, 2).contiguous(), [8], w, b, 1e-5),
                lambda t, w, b, *_: torch.native_group_norm(t, w, b, 6, 8, 5, 2, 1e-5),
            ]
            for call in calls:
                given = [x, w.to(kind), b.to(kind), mean, var]
                cpu, ours = call(*(t.clone() for t in given)), call(*(t.to(DEVICE) for t in given))
                for index, (c, o) in enumerate(zip(cpu, ours)):
                    unit = torch.finfo(dtype).eps  # a sum in another order may move one rounding
                    assert_same(o, c, rtol=unit if c.dtype == dtype else 1e-5, atol=4 * unit if index == 0 else 1e-5)


def test_lines_round_as_torch_does():
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16):
        for start, end, steps, base in ((0, 4.9, 7, 2.0), (1.7, 6.3, 50, 1.1), (4.3, 0.2, 3, 2.0), (3, 3, 1, 2.0)):
            for line in (
                lambda d: torch.linspace(start, end, steps, dtype=dtype, device=d),
                lambda d: torch.logspace(start, end, steps, base, dtype=dtype, device=d),
            ):
                assert_same(line(DEVICE), line("cpu"))


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_samples_at_places(outside, corners):
    x, grid = numbers((2, 3, 7, 9)), numbers((2, 5, 4, 2), seed=1, low=-1.5, high=1.5)
    for mode in ("bilinear", "nearest", "bicubic"):
        check(lambda t, g: F.grid_sample(t, g, mode, outside, corners), x, grid, rtol=1e-4, atol=1e-4)
    x, grid = numbers((2, 3, 4, 5, 6)), numbers((2, 3, 4, 2, 3), seed=1, low=-1.5, high=1.5)
    for mode in ("bilinear", "nearest"):
        check(lambda t, g: F.grid_sample(t, g, mode, outside, corners), x, grid, rtol=1e-4, atol=1e-4)
    nowhere = torch.full((1, 1, 1, 2), math.nan)
    check(lambda t, g: F.grid_sample(t, g, "nearest", outside, corners), torch.ones(1, 1, 2, 2), nowhere, grad=False)


@pytest.mark.parametrize("kernel,dilation,padding,stride", [(3, 1, 1, 1), (2, 2, 0, 2), ((2, 3), 1, (0, 1), (3, 1))])
def test_unfold_and_fold(kernel, dilation, padding, stride):
    x = numbers((2, 3, 7, 9))
    columns = F.unfold(x, kernel, dilation, padding, stride)
    for layout in ("contiguous", "channels last", "strided"):
        check(lambda t: F.unfold(t, kernel, dilation, padding, stride), x, layout=layout)
        check(lambda t: F.fold(t, (7, 9), kernel, dilation, padding, stride), columns, layout=layout, atol=1e-5)


@pytest.mark.parametrize("size", [(2, 8, 4, 6), (1, 16, 4, 2), (3, 2, 8, 4, 6), (8, 4, 6)])
def test_pixels_and_channels_change_places(size):
    x = numbers(size)
    for move in (F.pixel_shuffle, F.pixel_unshuffle):
        for layout in LAST if len(size) == 4 else ("contiguous", "strided"):
            check(lambda t: move(t, 2), x, layout=layout)
        for form in (torch.contiguous_format, torch.channels_last) if len(size) == 4 else (torch.contiguous_format,):
            cpu, ours = (move(t.contiguous(memory_format=form), 2) for t in (x, x.to(DEVICE)))
            assert_same(ours, cpu)
            assert ours.stride() == cpu.stride()


# ---- bags of embeddings


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags(mode):
    weight, indices = numbers((10, 4)), torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 0, 0])
    offsets = torch.tensor([0, 4, 4, 7])
    for last in (False, True):
        begins = torch.cat([offsets, torch.tensor([10])]) if last else offsets
        for padding in (None, 4):
            check(
                lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, include_last_offset=last, padding_idx=padding),
                weight,
                indices,
                begins,
                atol=1e-5,
            )
    check(lambda w, i: F.embedding_bag(i, w, mode=mode), weight, indices.view(2, 5), atol=1e-5)
    if mode == "sum":
        check(
            lambda w, i, o, f: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=f),
            weight,
            indices,
            offsets,
            torch.rand(10),
            atol=1e-5,
        )
    with pytest.raises(Exception, match="out of"):
        F.embedding_bag(
            torch.tensor([10], device=DEVICE), weight.to(DEVICE), torch.tensor([0], device=DEVICE), mode=mode
        ).cpu()
    with pytest.raises(Exception, match="out of"):
        F.embedding_bag(indices.to(DEVICE), weight.to(DEVICE), torch.tensor([1, 4], device=DEVICE), mode=mode).cpu()


def test_gradients_of_bags_by_frequency():
    # Each occurrence counts 1 / (how often the word occurs). torch's CPU kernel divides by the counts of other words.
    weight = numbers((6, 2)).to(DEVICE).requires_grad_()
    indices, offsets = torch.tensor([1, 2, 4, 4, 4], device=DEVICE), torch.tensor([0, 3], device=DEVICE)
    y = F.embedding_bag(indices, weight, offsets, mode="sum", scale_grad_by_freq=True)
    (gradient,) = torch.autograd.grad(y.sum(), weight)
    assert_same(gradient[:, 0], torch.tensor([0.0, 1, 1, 0, 1, 0]), atol=1e-6)


# ---- layers of transformers in evaluation: torch calls one operator for each


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layers(norm_first, activation):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, 0.0, activation, batch_first=True, norm_first=norm_first).eval()
    ours, x = copy.deepcopy(layer).to(DEVICE), numbers((3, 5, 16))
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    ahead = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    with torch.no_grad():
        for masks in ({}, {"src_key_padding_mask": padding}, {"src_mask": ahead}):
            there = {name: mask.to(DEVICE) for name, mask in masks.items()}
            assert_same(ours(x.to(DEVICE), **there), layer(x, **masks), rtol=1e-4, atol=1e-5)
        attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
        ours, key = copy.deepcopy(attention).to(DEVICE), numbers((3, 7, 16), seed=2)
        for own, there in (((x, x, x), (x.to(DEVICE),) * 3), ((x, key, key), (x.to(DEVICE), *(key.to(DEVICE),) * 2))):
            for result, expected in zip(ours(*there), attention(*own)):
                assert_same(result, expected, rtol=1e-4, atol=1e-5)


def test_fused_adagrad():
    for numbers_of in (
        {"lr_decay": 0.0, "weight_decay": 0.0, "maximize": False},
        {"lr_decay": 0.1, "weight_decay": 0.01, "maximize": True},
    ):
        results = []
        for where in (torch.device("cpu"), DEVICE):
            parameter, total = numbers((5, 3)).to(where), torch.zeros(5, 3, device=where)
            gradient, step = numbers((5, 3), seed=1).to(where), torch.tensor(3.0, device=where)
            torch._fused_adagrad_([parameter], [gradient], [total], [step], lr=0.1, eps=1e-10, **numbers_of)
            results.append((parameter, total))
        for expected, actual in zip(*results):
            assert_same(actual, expected)


@pytest.mark.device_only
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_chunked_cross_entropy_of_half_precision_adds_up_in_float32(reduction, dtype, device):
    """As on the CPU: torch's choices for devices that it does not list add up in half precision."""
    options = getattr(torch.nn, "LinearCrossEntropyOptions", None)
    if options is None:
        pytest.skip("this torch has no chunked linear_cross_entropy")
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 32, generator=generator).mul(2).to(dtype) for n in (64, 128))
    target = torch.randint(0, 128, (64,), generator=generator)

    def loss(where, to=dtype):
        inputs = (x.to(where, to), weight.to(where, to), target.to(where))
        return F.linear_cross_entropy(*inputs, reduction=reduction, options=options())

    assert_same(loss(device).double(), loss("cpu", torch.float64), rtol=1e-2 if dtype == torch.bfloat16 else 1e-3)
