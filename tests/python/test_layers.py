"""Pools, paddings, gated units, margins and CTC against torch's CPU device, where torch's own test data is thin: layouts in
memory, ties, NaN and infinities, windows and borders of all kinds, gradients of long sequences."""

import math

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, assert_same
from test_ops import check, numbers

LAST = ("channels last", "contiguous", "strided", "offset", "transposed")


def last_3d(x):
    return x.contiguous(memory_format=torch.channels_last_3d)


# ---- pools


@pytest.mark.parametrize("kernel,stride,padding,dilation,ceil", [(2, 2, 0, 1, False), (3, 2, 1, 1, True),
                                                                 (3, 1, 1, 2, False), (2, 3, 1, 1, True)])
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
    for dims, pad in ((1, (2, 1)), (1, (0, 3)), (2, (1, 2, 3, 0)), (2, (0, 0, 1, 1)), (3, (1, 0, 2, 2, 1, 3)), (3, (0,) * 6)):
        x = numbers((2, 3, 5, 4, 6)[: dims + 2])
        for layout in LAST:
            check(lambda t: F.pad(t, pad, mode), x, layout=layout)
    for pad in ((-1, 2, 1, -2), (-4, 3, 0, 0), (-3, 2, 4, -5)):  # what is cut is still seen at the other side
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
    assert (slope[negative] >= 0.25 - 1e-6).all() and (slope[negative] <= 0.5 + 1e-6).all() and slope[negative].std() > 0.05
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_same(gradient, slope, atol=1e-6)


# ---- losses


def test_margin_losses():
    x, target = numbers((5, 4)), torch.tensor([0, 3, 2, 2, 1])
    for reduction in ("none", "mean", "sum"):
        for p in (1, 2):
            check(lambda t, c, w: F.multi_margin_loss(t, c, p, 0.7, w.detach(), reduction=reduction), x, target, torch.rand(4))
        lists = torch.tensor([[0, 3, -1, 1], [-1, 0, 0, 0], [1, 2, 3, 0], [2, -1, -1, 2], [3, 3, -1, 0]])
        check(lambda t, c: F.multilabel_margin_loss(t, c, reduction=reduction), x, lists)
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
        for infinite in (False, True):  # the last sequence is too short where labels repeat
            check(lambda t, c: F.ctc_loss(t.log_softmax(-1), c, inputs, lengths, blank, reduction, infinite), logits, targets,
                  rtol=1e-9, atol=1e-11)
    check(lambda t, c, i, n: F.ctc_loss(t.log_softmax(-1), c, i, n, blank), logits, targets, inputs, lengths,
          rtol=1e-9, atol=1e-11)
