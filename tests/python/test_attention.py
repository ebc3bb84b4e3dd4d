"""Attention against torch's CPU device, forward and backward: masks, dropout, long sequences, narrow dtypes."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from op_support import FLOATS, HALVES, LAYOUTS, check_summed, flatten, numbers
from support import DEVICE, assert_same, synchronize


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    for dtype in FLOATS:
        for batch, heads, length, width in ((2, 3, 5, 4), (1, 2, 33, 16), (1, 1, 1, 8)):
            parts = [numbers((batch, heads, length, width), dtype, seed) for seed in range(3)]
            check_summed(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *parts, factor=5)
    # As a transformer calls it: heads are a transposed view of one projection.
    qkv = numbers((2, 6, 24))

    def split(qkv):
        q, k, v = (t.view(2, 6, 2, 4).transpose(1, 2) for t in qkv.split(8, 2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(2, 6, 8)

    check_summed(split, qkv, factor=5)
    for layout in LAYOUTS:
        parts = [numbers((2, 3, 5, 4), seed=seed) for seed in range(3)]
        check_summed(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3),
            *parts,
            layout=layout,
            factor=5,
        )


@pytest.mark.device_only
def test_attention_lies_as_its_query_does():
    """Like torch's own: heads adjacent in a projection's rows are adjacent after attention, without a copy."""
    rows = numbers((2, 40, 24)).to(DEVICE).view(2, 40, 3, 8)
    for q in (rows.transpose(1, 2), rows.transpose(1, 2).contiguous()):
        for p in (0.0, 0.5):
            y = F.scaled_dot_product_attention(q, q, q, dropout_p=p)
            assert y.transpose(1, 2).is_contiguous() == q.transpose(1, 2).is_contiguous()
            assert y.is_contiguous() == q.is_contiguous()


def test_attention_with_masks():
    q, k, v = numbers((2, 3, 5, 4)), numbers((2, 3, 7, 4), seed=1), numbers((2, 3, 7, 4), seed=2)
    allowed = numbers((5, 7), torch.bool, 3)
    allowed[:, 0] = True
    bias = numbers((2, 1, 5, 7), seed=4)
    check_summed(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, allowed, factor=5)
    check_summed(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m.detach()), q, k, v, bias, factor=5)
    check_summed(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, bias, factor=5)
    check_summed(F.scaled_dot_product_attention, q, k, v, factor=5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_twice_differentiated(causal):
    """Against torch's composite, its only form with a second derivative."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shapes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7))
    found = []
    for device in ("cpu", DEVICE):
        parts = [numbers(s, torch.float64, i).to(device).requires_grad_() for i, s in enumerate(shapes)]
        mask = None if causal else parts.pop()
        with sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext():
            y = F.scaled_dot_product_attention(*parts[:3], mask, is_causal=causal)
        inputs = parts[:3] if causal else [*parts, mask]
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(g.square().sum() for g in first), inputs)])
    for cpu, ours in zip(*found):
        assert_same(ours, cpu, rtol=1e-9, atol=1e-11)


@pytest.mark.device_only
def test_attention_with_dropout_twice_differentiated():
    """The mask is drawn again: with v the rows of 1, the gradient of v is the weights that were kept."""
    q, k = (numbers((1, 2, 5, 4), torch.float64, i).to(DEVICE).requires_grad_() for i in range(2))
    v = torch.eye(5, dtype=torch.float64, device=DEVICE).expand(1, 2, 5, 5).contiguous().requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
    once = torch.autograd.grad(y.sum(), [q, v], retain_graph=True)
    again = torch.autograd.grad(y.sum(), [q, v], create_graph=True)
    for a, b in zip(once, again):
        assert_same(b, a, rtol=1e-9, atol=1e-11)
    assert torch.autograd.grad(again[0].sum(), [k])[0].isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
def test_narrow_sums_at_one_place_are_rounded_once(dtype):
    """Added one by one, ones stop counting at 256 or 2,048."""
    places, ones = torch.zeros(3000, dtype=torch.int64, device=DEVICE), torch.ones(3000, dtype=dtype, device=DEVICE)
    sums = torch.full((2,), 8.0, dtype=dtype, device=DEVICE).scatter_add(0, places, ones).cpu()
    assert sums.tolist() == [torch.tensor(3008.0).to(dtype).item(), 8.0]


@pytest.mark.parametrize("dtype", HALVES)
def test_narrow_products_are_rounded_once(dtype):
    """A sum within the dtype's range of a product outside it, with any strides of the bias, and with factors."""
    big = 2048.0 if dtype == torch.float16 else 256.0
    a, b = torch.tensor([[big, 1.0]] * 3, dtype=dtype, device=DEVICE), torch.ones(2, 4, dtype=dtype, device=DEVICE)
    ones = torch.ones(3, 8, dtype=dtype, device=DEVICE)
    for bias in (ones[0, :4], ones[0, ::2], ones[:, :4], ones[:, ::2]):
        assert (torch.addmm(bias, a, b) == big + 2).all()
        assert (torch.addmm(bias, a, b, beta=-1) == big).all()
        assert (torch.baddbmm(bias.expand(3, 4)[None], a[None], b[None]) == big + 2).all()
        assert (F.linear(a, b.T, bias) == big + 2).all() if bias.dim() == 1 else True


def test_attention_dropout_is_unbiased():
    q, k = torch.zeros(1, 1, 64, 4, device=DEVICE), torch.zeros(1, 1, 64, 4, device=DEVICE)
    v = torch.ones(1, 1, 64, 4, device=DEVICE)
    total = torch.stack([F.scaled_dot_product_attention(q, k, v, dropout_p=0.5) for _ in range(20)]).mean()
    assert abs(total.item() - 1) < 0.05


# Longer ones run as one node, a block of queries and keys at a time.
LONG_MASKS = {
    "none": lambda length, keys: None,
    "causal": lambda length, keys: None,
    "flags": lambda length, keys: numbers((length, keys), torch.bool, 3) | (torch.arange(keys) % 9 == 0),
    "flags of keys": lambda length, keys: (torch.arange(keys) % 3 != 1).expand(2, 1, 1, keys),
    "numbers": lambda length, keys: numbers((1, 3, length, keys), seed=4),
}


@pytest.mark.parametrize("mask", LONG_MASKS)
@pytest.mark.parametrize("length,keys", [(32, 200), (65, 64), (130, 129), (200, 600)])
def test_long_attention(length, keys, mask):
    shapes = ((2, length, 3, 40), (2, keys, 3, 40), (2, keys, 3, 24))
    m = LONG_MASKS[mask](length, keys)

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        there = m if m is None else m.to(q.device, q.dtype if m.is_floating_point() else m.dtype)
        return F.scaled_dot_product_attention(q, k, v, there, is_causal=mask == "causal").transpose(1, 2)

    parts = [numbers(shape, seed=seed, low=-1.0, high=1.0) for seed, shape in enumerate(shapes)]
    check_summed(attend, *parts, factor=5)
    for dtype in HALVES:
        with torch.no_grad():
            narrow = [part.to(dtype) for part in parts]
            expected = attend(*(part.float() for part in narrow))
            actual = attend(*(part.to(DEVICE) for part in narrow)).cpu().float()
        torch.testing.assert_close(actual, expected, rtol=0, atol=0.02)


def test_long_attention_of_rows_that_see_nothing():
    q, k, v = (numbers((1, 2, 90, 16), seed=seed) for seed in range(3))
    allowed = torch.ones(90, 90, dtype=torch.bool)
    allowed[5] = allowed[80] = False
    q, k, v, allowed = (x.to(DEVICE) for x in (q, k, v, allowed))
    q.requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, allowed)
    y.sum().backward()
    assert (y[:, :, [5, 80]] == 0).all() and (q.grad[:, :, [5, 80]] == 0).all()
    assert y.isfinite().all() and q.grad.isfinite().all()


def test_long_attention_drops_the_same_elements_both_ways():
    q, k = torch.zeros(2, 100, 70, 4, device=DEVICE), torch.zeros(2, 100, 90, 4, device=DEVICE)
    v = torch.ones(2, 100, 90, 1, device=DEVICE, requires_grad=True)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    y.sum().backward()
    assert abs(y.mean().item() - 1) < 0.01
    assert y.sum().item() == pytest.approx(v.grad.sum().item(), rel=1e-5)


@pytest.mark.device_only
@pytest.mark.cpu_only
def test_attention_keeps_no_scores():
    """8 x 4096 x 4096 scores would be 512 MB; operands, results and gradients are 8 MB each."""
    q, k, v = (torch.randn(1, 8, 4096, 64, device=DEVICE, requires_grad=True) for _ in range(3))
    synchronize()
    torch.headrace.empty_cache()
    torch.headrace.reset_peak_memory_stats()
    before = torch.headrace.memory_reserved()
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(torch.ones_like(y))
    synchronize()
    assert torch.headrace.max_memory_reserved() - before < 128 << 20
    assert q.grad.isfinite().all()


@pytest.mark.parametrize("masked", ["no", "alike", "own"])
def test_attention_of_many_examples(masked):
    """torch.func.vmap, also of gradients and over one operand alone."""
    parts = [numbers((3, 2, 2, 5, 4), seed=seed) for seed in range(3)]
    mask = numbers((3, 1, 1, 5, 5), seed=4) > -0.5
    mask[..., 0] = True
    masks = {"no": None, "alike": mask[0, 0, 0], "own": mask}[masked]

    def loss(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask).square().sum()

    for function, dims in ((loss, (0, 0, 0)), (torch.func.grad(loss, (0, 1, 2)), (0, 0, 0)), (loss, (None, 1, None))):
        batched = torch.func.vmap(function, (*dims, 0 if masked == "own" else None), randomness="same")
        results = []
        for where in (DEVICE, "cpu"):
            given = [
                part if dim == 0 else part[0] if dim is None else part.transpose(0, 1)
                for part, dim in zip(parts, dims, strict=True)
            ]
            given = [part.to(where) for part in given]
            results.append(flatten(batched(*given, None if masks is None else masks.to(where))))
        for mine, torchs in zip(*results, strict=True):
            assert_same(mine, torchs, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="dropout"):
        torch.func.vmap(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), randomness="different")(
            parts[0].to(DEVICE)
        )
