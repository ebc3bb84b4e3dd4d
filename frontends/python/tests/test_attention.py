"""Attention of grouped heads, with bounded scores and earlier keys, against loops over heads, and differences."""

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(43)


def sample(*shape):
    return rng.uniform(-1, 1, shape)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, mask=None, causal=False, scale=None, offset=0, soft_cap=0):
    """The definition, head by head."""
    shared = q.shape[1] // k.shape[1]
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    y = np.zeros((*q.shape[:3], v.shape[3]))
    if mask is not None:
        mask = np.broadcast_to(mask, (*q.shape[:3], k.shape[2]))
    for b, h in np.ndindex(*q.shape[:2]):
        scores = scale * q[b, h] @ k[b, h // shared].T
        scores = soft_cap * np.tanh(scores / soft_cap) if soft_cap else scores
        if mask is not None:
            scores = np.where(mask[b, h], scores, -np.inf) if mask.dtype == bool else scores + mask[b, h]
        if causal:
            places = np.arange(q.shape[2])[:, None] + offset
            scores = np.where(np.arange(k.shape[2]) <= places, scores, -np.inf)
        y[b, h] = softmax(scores) @ v[b, h // shared]
    return y


def masks(b, h, rows, columns):
    some = rng.random((b, h, rows, columns)) > 0.3
    some[..., 0] = True
    return {
        "none": None, "bool": some, "heads alike": some[:, :1], "examples alike": some[:1], "all alike": some[0, 0],
        "added": sample(b, h, rows, columns), "added, alike": sample(rows, columns), "keys": sample(b, 1, 1, columns),
    }  # fmt: skip


GROUPS = {"alike": (4, 4), "grouped": (6, 2), "one": (4, 1)}
OPTIONS = {
    "plain": {}, "causal": {"causal": True}, "earlier keys": {"causal": True, "offset": 2}, "scale": {"scale": 0.3},
    "bounded": {"soft_cap": 0.5}, "all": {"causal": True, "offset": 2, "soft_cap": 2.0, "scale": 1.5},
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("groups", GROUPS)
def test_attention_of_groups(groups, option):
    heads, keys = GROUPS[groups]
    q, k, v = sample(2, heads, 3, 4), sample(2, keys, 5, 4), sample(2, keys, 5, 6)
    for mask in masks(2, heads, 3, 5).values():
        given = None if mask is None else hr.array(mask)
        y = hr.attention(hr.array(q), hr.array(k), hr.array(v), given, **OPTIONS[option])
        np.testing.assert_allclose(np.asarray(y), attention(q, k, v, mask, **OPTIONS[option]), 1e-9, 1e-9)


@pytest.mark.parametrize("groups", GROUPS)
def test_views_and_dtypes(groups):
    heads, keys = GROUPS[groups]
    q, k, v = sample(2, 3, heads, 4), sample(2, 5, keys, 4), sample(2, 5, keys, 4)
    expected = attention(*(x.swapaxes(1, 2) for x in (q, k, v)), soft_cap=1.0)
    for dtype, tolerance in (("float32", 1e-5), ("float16", 5e-3), ("bfloat16", 4e-2)):
        views = [hr.swapaxes(hr.array(x).astype(dtype), 1, 2) for x in (q, k, v)]
        y = hr.attention(*views, soft_cap=1.0)
        assert str(y.dtype) == dtype
        np.testing.assert_allclose(np.asarray(y.astype(hr.float64)), expected, tolerance, tolerance)
        plain = hr.attention(*views)
        np.testing.assert_allclose(np.asarray(plain.astype(hr.float64)),
                                   attention(*(x.swapaxes(1, 2) for x in (q, k, v))), tolerance, tolerance)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("groups", GROUPS)
def test_gradients_of_attention(groups, option):
    heads, keys = GROUPS[groups]
    arrays = [sample(2, heads, 3, 4), sample(2, keys, 5, 4), sample(2, keys, 5, 2), sample(2, 1, 3, 5)]
    for i in range(4):
        def f(x):
            args = [x if i == j else hr.array(a) for j, a in enumerate(arrays)]
            return (hr.attention(*args, **OPTIONS[option]) ** 2).sum()
        difference(f, arrays[i])


def test_queries_without_keys():
    q, k = sample(1, 4, 3, 2), sample(1, 2, 5, 2)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    for cap in (0.0, 1.0):
        for given in (mask, np.where(mask, 0, -np.inf)):
            def f(x):
                return hr.attention(x, hr.array(k), hr.array(k), hr.array(given), soft_cap=cap)

            y = np.asarray(f(hr.array(q)))
            assert (y[:, :, 1] == 0).all()
            np.testing.assert_allclose(y[:, :, 0], attention(q, k, k, soft_cap=cap)[:, :, 0], 1e-9)
            assert np.isfinite(np.asarray(hr.grad(lambda x: (f(x) ** 2).sum())(hr.array(q)))).all()


def test_nothing_and_bad_heads():
    assert hr.attention(hr.zeros((0, 4, 3, 2)), hr.zeros((0, 2, 5, 2)), hr.zeros((0, 2, 5, 2))).shape == (0, 4, 3, 2)
    q, k = hr.ones((1, 4, 3, 2)), hr.ones((1, 3, 5, 2))
    with pytest.raises(ValueError):
        hr.attention(q, k, k)
    with pytest.raises(ValueError, match="H a multiple of G"):
        hr.attention(q, k, k, soft_cap=1.0)
