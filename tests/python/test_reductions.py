"""Reductions, softmax, losses and normalisation against torch's CPU device, forward and backward."""

import math

import pytest
import torch
import torch.nn.functional as F
from op_support import FLOATS, HALVES, INTEGERS, LAYOUTS, check, check_summed, numbers
from support import DEVICE, assert_same, assert_summed

# ---- reductions

DIMS = [None, 0, 1, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)]
REDUCED = [(3, 4, 5), (2, 33, 70), (4, 0, 3), (1, 1, 1), (5, 130, 3)]
REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "logsumexp": torch.logsumexp,
    "var": lambda x, dim, keepdim=False: torch.var(x, dim, keepdim=keepdim),
    "var biased": lambda x, dim, keepdim=False: torch.var(x, dim, correction=0, keepdim=keepdim),
    "std": lambda x, dim, keepdim=False: torch.std(x, dim, keepdim=keepdim),
    "var_mean": lambda x, dim, keepdim=False: torch.var_mean(x, dim, keepdim=keepdim),
    "norm": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 2, dim, keepdim),
    "norm 1": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 1, dim, keepdim),
    "norm inf": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, math.inf, dim, keepdim),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    function = REDUCTIONS[name]
    for dtype in FLOATS:
        for index, shape in enumerate(REDUCED):
            for dim in DIMS:
                if name in ("amax", "amin", "logsumexp") and dim is None:
                    dim = (0, 1, 2)
                empty = 0 in shape
                if empty and (name in ("amax", "amin", "norm inf") or name.startswith(("var", "std"))):
                    continue
                if shape == (1, 1, 1) and name.startswith(("var", "std")) and name != "var biased":
                    continue  # division by zero, with a warning
                for keepdim in (False, True):
                    if dtype == torch.float32 or not keepdim:
                        x = numbers(shape, dtype, index)
                        check_summed(lambda x, d=dim, k=keepdim: function(x, d, keepdim=k), x, factor=2)
    for layout in LAYOUTS:
        check_summed(lambda x: function(x, (1, 2)), numbers((3, 9, 7, 2), seed=5), layout=layout, factor=2)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 4096, 4097, 100_003])
def test_long_sums(size):
    x = numbers((size,))
    check_summed(torch.sum, x)
    check_summed(lambda x: x.view(1, -1).expand(3, -1).sum(1), x)
    check_summed(lambda x: x.view(-1, 1).expand(-1, 3).sum(0), x)
    check_summed(torch.sum, x.double())


def test_sums_of_integers_and_halves():
    for dtype in (torch.bool, *INTEGERS):
        check(torch.sum, numbers((50, 9), dtype, 0, -100, 100))
        check(lambda x: x.sum(0), numbers((50, 9), dtype, 0, -100, 100))
        check(lambda x: x.sum(1, dtype=torch.float32), numbers((50, 9), dtype, 0, -100, 100))
    for dtype in HALVES:
        check_summed(lambda x: x.sum(1), numbers((5, 300), dtype), grad=False)
        check_summed(lambda x: x.mean(0), numbers((300, 5), dtype), grad=False)
    check(lambda x: x.sum(0, dtype=torch.float64), numbers((50, 9)))


def test_truth():
    for dtype in (torch.bool, torch.float32, torch.int64, torch.uint8):
        x = numbers((3, 4, 5), torch.float32, 0, -1, 1).round().to(dtype)
        for function in (torch.any, torch.all):
            check(function, x, grad=False)
            for dim in (0, 1, -1, (0, 2)):
                check(lambda x, f=function, d=dim: f(x, dim=d), x, grad=False)
                check(lambda x, f=function, d=dim: f(x, dim=d, keepdim=True), x, grad=False)
            check(function, x[:0], grad=False)
    check(torch.any, torch.tensor([0.0, math.nan]), grad=False)


def test_extremes_and_their_places():
    distinct = torch.randperm(60, generator=torch.Generator().manual_seed(0)).float().view(3, 4, 5)
    ties = numbers((6, 7), low=-1, high=1).round()
    with_nan = distinct.clone()
    with_nan[1, 2, 3] = with_nan[0, 0, 1] = math.nan
    for x in (distinct, distinct.long(), with_nan):
        for function in (torch.max, torch.min, torch.argmax, torch.argmin):
            check(function, x, grad=False)
            for dim in range(3):
                check(lambda x, f=function, d=dim: f(x, d), x, grad=False)
                check(lambda x, f=function, d=dim: f(x, d, keepdim=True), x, grad=False)
    for function in (torch.argmax, torch.argmin):  # the first of equals
        check(function, ties, grad=False)
        check(lambda x, f=function: f(x, 1), ties, grad=False)
        check(lambda x, f=function: f(x, 0), ties, grad=False)
    for dim in range(3):
        check(lambda x, d=dim: x.max(d).values, distinct)
        check(lambda x, d=dim: x.min(d).values, distinct)
    check(torch.max, distinct)
    check(lambda x: x.amax((0, 2)), ties[None])
    for layout in LAYOUTS:
        check(lambda x: x.max(1), distinct, layout=layout, grad=False)


def test_reductions_of_specials():
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, math.inf, 88.0, -2.0, 100.0, -100.0, 1e-30, -1e30, 5.0]
    rows = torch.tensor([values[i : i + 4] for i in range(10)])
    for function in (torch.sum, torch.amax, torch.amin, torch.mean, torch.logsumexp):
        check(lambda x, f=function: f(x, 1), rows, grad=False, rtol=1e-5)
    check(lambda x: x.softmax(1), rows, grad=False, rtol=1e-5)


# ---- softmax and losses


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax], ids=lambda f: f.__name__)
def test_softmax(function):
    for dtype in FLOATS:
        for shape in ((5,), (4, 10), (2, 3, 1030), (3, 0), (2, 5, 3, 3)):
            for dim in range(-1, len(shape) - 1):
                check_summed(lambda x, d=dim: function(x, d), numbers(shape, dtype, 0, -8, 8))
    for layout in LAYOUTS:
        check_summed(lambda x: function(x, 1), numbers((3, 9, 4, 2)), layout=layout)
    check_summed(lambda x: function(x, 0), torch.tensor(2.0))
    masked = numbers((4, 6))
    masked[1, 2:] = -math.inf
    masked[2] = -math.inf
    check(lambda x: function(x, 1), masked, grad=False)
    check(lambda x: function(x, 1, dtype=torch.float32), numbers((3, 7), torch.bfloat16))
    check_summed(lambda x: function(x * 1e4, 1), numbers((3, 7)), grad=False)


REDUCE = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCE)
def test_classification_losses(reduction):
    targets = torch.tensor([0, 3, 6, 2, 3])
    weight = numbers((7,), low=0.2, high=2)
    for dtype in FLOATS:
        x = numbers((5, 7), dtype)
        check_summed(lambda x, t: F.cross_entropy(x, t, reduction=reduction), x, targets)
        check_summed(lambda x, t: F.nll_loss(x.log_softmax(1), t, reduction=reduction), x, targets)
    x = numbers((5, 7))
    check_summed(lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction=reduction), x, targets, weight)
    check_summed(lambda x, t: F.cross_entropy(x, t, ignore_index=3, reduction=reduction), x, targets)
    check_summed(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction=reduction), x, targets)
    pixels = (torch.arange(2 * 4 * 3) % 5).view(2, 4, 3)
    for layout in ("contiguous", "channels last", "strided"):
        image = numbers((2, 5, 4, 3), seed=2)
        check_summed(lambda x, t: F.cross_entropy(x, t, reduction=reduction), image, pixels, layout=layout)
    image = numbers((2, 5, 4, 3), seed=2)
    check_summed(lambda x, t, w: F.nll_loss(x, t, w.detach(), reduction=reduction), image, pixels, weight[:5])
    check_summed(lambda x, p: F.cross_entropy(x, p.softmax(1), reduction=reduction), x, numbers((5, 7), seed=9))
    if reduction != "mean":
        check_summed(lambda x, t: F.nll_loss(x, t, reduction=reduction), x[:0], targets[:0])
        check_summed(lambda x, t: F.nll_loss(x, t, ignore_index=3, reduction=reduction), x[1:2], targets[1:2])
    check_summed(lambda x, t: F.nll_loss(x, t, reduction=reduction), x[0], targets[1])


@pytest.mark.parametrize("reduction", REDUCE)
def test_regression_losses(reduction):
    for dtype in FLOATS:
        for shape in ((9,), (4, 5), (3, 70, 20), (2, 0)):
            x, y = numbers(shape, dtype, 1), numbers(shape, dtype, 2)
            if 0 in shape and reduction == "mean":
                continue
            check_summed(lambda x, y: F.mse_loss(x, y, reduction=reduction), x, y)
            check_summed(lambda x, y: F.l1_loss(x, y, reduction=reduction), x, y)
            check_summed(lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.7), x, y)
            check_summed(lambda x, y: F.huber_loss(x, y, reduction=reduction, delta=0.5), x, y)
            p, t = numbers(shape, dtype, 1, 0.02, 0.98), numbers(shape, dtype, 2, 0, 1)
            check_summed(lambda p, t: F.binary_cross_entropy(p, t.detach(), reduction=reduction), p, t)
            check_summed(lambda x, t: F.binary_cross_entropy_with_logits(x, t.detach(), reduction=reduction), x, t)
    x, y, w = numbers((4, 5), seed=1), numbers((4, 5), seed=2, low=0, high=1), numbers((4, 5), seed=3, low=0, high=2)

    def weighted(x, y, w):
        y, w = y.detach(), w.detach()
        plain = F.binary_cross_entropy(x.sigmoid(), y, w, reduction=reduction)
        return plain, F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w[0], reduction=reduction)

    check_summed(weighted, x, y, w)
    for layout in LAYOUTS:
        check_summed(lambda x, y: F.mse_loss(x, y, reduction=reduction), x, y, layout=layout)


def test_binary_cross_entropy_at_its_ends():
    """Its logarithms are cut at -100, so that a certain answer has a finite loss."""
    p = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5])
    t = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    check(lambda p, t: F.binary_cross_entropy(p, t.detach(), reduction="none"), p, t)
    check(lambda x, t: F.binary_cross_entropy_with_logits(x * 200 - 100, t.detach(), reduction="none"), p, t)


# ---- normalisation


def test_layer_norm():
    for dtype in FLOATS:
        for shape, normalized in (((4, 10), 1), ((2, 3, 768), 1), ((2, 3, 4, 5), 2), ((3, 4097), 1), ((0, 5), 1)):
            x, tail = numbers(shape, dtype), shape[len(shape) - normalized :]
            w, b = numbers(tail, dtype, 1), numbers(tail, dtype, 2)
            check_summed(lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, w, b, factor=2)
            check_summed(lambda x: F.layer_norm(x, tail), x, factor=2)
    for layout in LAYOUTS:
        check_summed(lambda x, w: F.layer_norm(x, (9,), w, eps=1e-3), numbers((4, 3, 9)), numbers((9,)), layout=layout)


def test_group_norm():
    for dtype in FLOATS:
        for shape, groups in (((2, 6, 5, 4), 3), ((3, 8, 7), 8), ((2, 4, 33, 31), 1), ((4, 6), 2)):
            x, w, b = numbers(shape, dtype), numbers(shape[1:2], dtype, 1), numbers(shape[1:2], dtype, 2)
            check_summed(lambda x, w, b: F.group_norm(x, groups, w, b), x, w, b, factor=3)
            check_summed(lambda x: F.group_norm(x, groups), x, factor=3)
    for layout in LAYOUTS:
        check_summed(lambda x: F.group_norm(x, 2), numbers((3, 4, 5, 6)), layout=layout, factor=3)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training):
    for dtype in FLOATS:
        for shape in ((6, 5), (4, 3, 7), (3, 5, 6, 7), (2, 3, 40, 33)):
            x, channels = numbers(shape, dtype), shape[1:2]
            w, b = numbers(channels, dtype, 1), numbers(channels, dtype, 2)
            mean, variance = numbers(channels, dtype, 3), numbers(channels, dtype, 4, 0.5, 2)

            def function(x, w, b, mean, variance):
                mean, variance = mean.detach().clone(), variance.detach().clone()
                y = F.batch_norm(x, mean, variance, w, b, training, momentum=0.3)
                return y, mean, variance

            check_summed(function, x, w, b, mean, variance, factor=3)
            if len(shape) == 4:
                check_summed(function, x, w, b, mean, variance, layout="channels last", factor=3)
                check_summed(function, x, w, b, mean, variance, layout="transposed", factor=3)
            if training:
                check_summed(lambda x: F.batch_norm(x, None, None, training=True), x, factor=3)
            else:
                check_summed(lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()), x, mean, variance, factor=3)


def test_batch_norm_module_counts():
    """Momentum None averages over all batches, which the counter counts."""
    modules = [torch.nn.BatchNorm2d(3, momentum=None).to(where) for where in ("cpu", DEVICE)]
    for seed in range(3):
        outputs = [m(numbers((2, 3, 4, 4), seed=seed).to(m.weight.device)) for m in modules]
    assert_summed(outputs[1], outputs[0])
    assert modules[1].num_batches_tracked.item() == 3
    assert_summed(modules[1].running_var, modules[0].running_var)


# ---- exclusive or


@pytest.mark.parametrize("dtype", [*FLOATS, *HALVES, *INTEGERS, torch.bool])
@pytest.mark.skipif(not hasattr(torch, "hash_tensor"), reason="this torch has none")
def test_hash_tensor(dtype):
    for shape in ((33, 65), (3, 5, 7), (3000, 3), (1, 40), (0, 4), ()):
        x = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 100 - 50 * dtype.is_signed).to(dtype)
        for dim in ((), 0, -1) if x.numel() else (1,):
            for keepdim in (False, True):
                expected = torch.hash_tensor(x, dim, keepdim=keepdim)
                actual = torch.hash_tensor(x.to(DEVICE), dim, keepdim=keepdim)
                assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected), (shape, dim)


# ---- running products and the like


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.cumprod(0),
        lambda x: x.logcumsumexp(0),
        lambda x: x.cumsum(0),
        lambda x: x.long().hash_tensor(0) if hasattr(x, "hash_tensor") else x.clone(),
        lambda x: torch.histogram(torch.ones(3, device=x.device), x.squeeze(0))[1],
    ],
)
def test_results_of_one_element_are_no_part_of_the_input(make, device):
    x = torch.arange(4.0).reshape(1, 4).to(device)
    made = make(x)
    made.add_(1)
    assert_same(x, torch.arange(4.0).reshape(1, 4))
