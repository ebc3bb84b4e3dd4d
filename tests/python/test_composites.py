"""torch's composites that are one step without gradients."""

import itertools

import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F
from support import DEVICE, assert_same


def recorded(function):
    """The function's result, and the operations that it recorded."""
    torch.headrace.synchronize()
    before = torch.headrace.stats()["operations"]
    result = function()
    return result, torch.headrace.stats()["operations"] - before


def drawn(*shape, dtype=torch.float32, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_layer_norm_has_the_bits_of_that_with_gradients(dtype):
    host = drawn(3, 5, 24, dtype=dtype)
    x, weight, bias = (t.to(DEVICE) for t in (host, drawn(24, dtype=dtype, seed=2), drawn(24, dtype=dtype, seed=3)))
    for w, b in itertools.product((weight, None), (bias, None)):
        with_gradient = F.layer_norm(x.clone().requires_grad_(), (24,), w, b)
        assert with_gradient.grad_fn is not None
        plain, count = recorded(lambda w=w, b=b: F.layer_norm(x, (24,), w, b))
        assert count == 1 and plain.grad_fn is None
        assert torch.equal(plain.cpu(), with_gradient.detach().cpu())
    turned = F.layer_norm(x.transpose(0, 1), (24,))
    assert_same(turned, F.layer_norm(host.transpose(0, 1), (24,)), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2)


def test_layer_norm_refuses_what_torch_refuses():
    x = drawn(2, 3).to(DEVICE)
    with pytest.raises(RuntimeError, match=r"Given normalized_shape=\[4\]"):
        F.layer_norm(x, (4,))
    with pytest.raises(RuntimeError, match="weight to be of same shape"):
        F.layer_norm(x, (3,), drawn(4).to(DEVICE))


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "number", "row"])
def test_attention_has_the_bits_of_that_with_gradients(mask):
    query, key, value = (drawn(2, 3, n, 8, seed=n).to(DEVICE) for n in (5, 7, 7))
    allowed = drawn(2, 1, 5, 7, seed=9) > -0.5
    allowed[..., 0] = True
    given = {"bool": allowed, "number": drawn(5, 7, seed=9), "row": allowed[0, 0, 0]}.get(mask)
    given = None if given is None else given.to(DEVICE)

    def attend(q):
        return F.scaled_dot_product_attention(q, key, value, given, is_causal=mask == "causal", scale=0.3)

    with_gradient = attend(query.clone().requires_grad_())
    assert with_gradient.grad_fn is not None
    plain, count = recorded(lambda: attend(query))
    assert count == 1 and plain.grad_fn is None
    assert torch.equal(plain.cpu(), with_gradient.detach().cpu())


def test_forward_gradients_and_transforms_go_through_torch():
    x = drawn(4, 6)
    tangent = drawn(4, 6, seed=2)
    results = []
    for place in ("cpu", DEVICE):
        with torch.no_grad(), forward.dual_level():
            y = F.layer_norm(forward.make_dual(x.to(place), tangent.to(place)), (6,))
            results.append(forward.unpack_dual(y).tangent.cpu())
    assert_same(results[1], results[0], rtol=1e-5, atol=1e-6)
    assert_same(torch.vmap(lambda v: F.layer_norm(v, (6,)))(x.to(DEVICE)), F.layer_norm(x, (6,)), rtol=1e-5, atol=1e-6)


def test_embedding():
    weight = drawn(10, 4)
    for indices in (
        torch.tensor([3, 1, 9]),
        torch.tensor([[3, 1], [9, 0], [2, 2]]),
        torch.tensor([[3, 1], [9, 0]]).t(),
        torch.tensor([[3, 1]], dtype=torch.int32),
        torch.tensor(7),
        torch.zeros(2, 0, dtype=torch.int64),
    ):
        assert_same(F.embedding(indices.to(DEVICE), weight.to(DEVICE)), F.embedding(indices, weight))
    _, count = recorded(lambda: F.embedding(torch.empty(2, 3, dtype=torch.int64, device=DEVICE), weight.to(DEVICE)))
    assert count == 1
    with pytest.raises(IndexError):
        F.embedding(torch.tensor([[10]]).to(DEVICE), weight.to(DEVICE)).cpu()
