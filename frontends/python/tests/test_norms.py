"""Norms, rotary encodings and hr.fast against NumPy, PyTorch and differences."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")
rng = np.random.default_rng(23)
F = torch.nn.functional


def sample(*shape):
    return rng.uniform(-1, 1, shape)


def close(actual, value, rtol=1e-10):
    np.testing.assert_allclose(np.asarray(actual), value, rtol, 1e-12)


def check_with_torch(ours, theirs, *arrays):
    """Results, gradients by all arrays, second order and forward mode."""
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    value = theirs(*tensors)
    g = sample(*value.shape)
    given = [hr.array(x) for x in arrays]
    close(ours(*given), value.detach().numpy())
    expected = torch.autograd.grad(value, tensors, torch.tensor(g), create_graph=True)
    for a, e in zip(hr.vjp(ours, given, [hr.array(g)])[1], expected):
        close(a, e.detach().numpy(), 1e-8)
    second = torch.autograd.grad(sum((e * e).sum() for e in expected), tensors, allow_unused=True)

    def squares(*xs):
        gradients = hr.vjp(ours, xs, [hr.array(g)])[1]
        return sum((x * x).sum() for x in gradients)

    for a, e in zip(hr.vjp(squares, given, [hr.array(1.0, dtype=hr.float64)])[1], second):
        close(a, np.zeros(a.shape) if e is None else e.numpy(), 1e-7)
    v = [sample(*x.shape) for x in arrays]
    tangent = hr.jvp(ours, given, [hr.array(x) for x in v])[1][0]
    product = sum((e.detach().numpy() * x).sum() for e, x in zip(expected, v))
    np.testing.assert_allclose((np.asarray(tangent) * g).sum(), product, 1e-8)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 2, 4)])
def test_batch_norm(shape):
    x, mean, var, weight, bias = sample(*shape), sample(3), 1 + sample(3) ** 2, sample(3), sample(3)

    def theirs(x, *vectors):
        if not vectors[0].requires_grad:
            return F.batch_norm(x, *vectors, eps=0.25)
        m, v, w, b = (vector.view(3, *[1] * (x.ndim - 2)) for vector in vectors)  # torch has no gradient by the mean
        return (x - m) / (v + 0.25).sqrt() * w + b

    check_with_torch(lambda *xs: hr.batch_norm(*xs, eps=0.25), theirs, x, mean, var, weight, bias)
    check_with_torch(lambda *xs: hr.batch_norm_training(*xs)[0],
                     lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias)  # fmt: skip
    _, by_mean, by_var = hr.batch_norm_training(hr.array(x))
    axes = tuple(d for d in range(len(shape)) if d != 1)
    close(by_mean, x.mean(axes))
    close(by_var, x.var(axes))
    last = np.moveaxis(x, 1, -1)
    close(hr.batch_norm(hr.array(last), *map(hr.array, (mean, var)), axis=-1),
          np.moveaxis(np.asarray(hr.batch_norm(*map(hr.array, (x, mean, var)))), 1, -1))  # fmt: skip


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 2)])
def test_group_norm(groups, shape):
    if len(shape) == 2 and groups == 4:
        return  # of one element each
    xs = sample(*shape), sample(4), sample(4)
    check_with_torch(lambda *xs: hr.group_norm(*xs, groups=groups, eps=1e-3),
                     lambda *xs: F.group_norm(xs[0], groups, *xs[1:], eps=1e-3), *xs)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_local_response_norm(size):
    x = sample(2, 5, 3, 2)
    before, after = (size - 1) // 2, size // 2
    sums = sum(np.pad(x**2, [(0, 0), (before, after), (0, 0), (0, 0)])[:, i : i + 5] for i in range(size))
    close(hr.local_response_norm(hr.array(x), size, 0.5, 0.7, 1.5), x / (1.5 + 0.5 / size * sums) ** 0.7)
    close(hr.local_response_norm(hr.array(x.transpose(0, 2, 3, 1)), size, 0.5, 0.7, 1.5, -1),
          (x / (1.5 + 0.5 / size * sums) ** 0.7).transpose(0, 2, 3, 1))  # fmt: skip
    if size % 2:
        check_with_torch(lambda x: hr.local_response_norm(x, size, 0.5, 0.7, 1.5),
                         lambda x: F.local_response_norm(x, size, 0.5, 0.7, 1.5), x)  # fmt: skip


@pytest.mark.parametrize("order", [1, 2, 3, float("inf")])
@pytest.mark.parametrize("axis", [0, -1])
def test_normalize(order, axis):
    x = sample(3, 4)
    ours, theirs = lambda x: hr.normalize(x, axis, order), lambda x: F.normalize(x, order, axis)
    if order == 2:
        check_with_torch(ours, theirs, x)
    close(ours(hr.array(x)), theirs(torch.tensor(x)).numpy())
    assert hr.normalize(hr.zeros((2, 3))).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dims", [None, 4, 6])
def test_rotary(interleaved, dims):
    n = dims or 8
    x, angles = sample(2, 3, 5, 8), sample(5, n // 2)

    def theirs(x, cos, sin):
        part = x[..., :n]
        pairs = part.unflatten(-1, (n // 2, 2)) if interleaved else part.unflatten(-1, (2, n // 2)).transpose(-1, -2)
        a, b = pairs[..., 0], pairs[..., 1]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
        turned = turned if interleaved else turned.transpose(-1, -2)
        return torch.cat([turned.flatten(-2), x[..., n:]], -1)

    def ours(x, cos, sin):
        return hr.rotary(x, cos, sin, interleaved, **({"dims": dims} if dims else {}))

    check_with_torch(ours, theirs, x, np.cos(angles), np.sin(angles))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_dtypes(dtype):
    x = hr.array(rng.integers(-300, 300, (2, 4, 6))).astype(dtype)
    wide, ones = np.asarray(x.astype(hr.float64)), hr.ones(4)
    result = "float32" if dtype == "int32" else dtype
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-5)
    cases = {
        "batch_norm": (hr.batch_norm(x, ones, ones * 9, eps=0), (wide - 1) / 3),
        "batch_norm_training": (hr.batch_norm_training(x)[0],
                                (wide - wide.mean((0, 2), keepdims=True)) / wide.std((0, 2), keepdims=True)),
        "local_response_norm": (hr.local_response_norm(x, 1, 1.0), wide / (1 + wide**2) ** 0.75),
        "normalize": (hr.normalize(x), wide / np.sqrt((wide**2).sum(-1, keepdims=True))),
        "rotary": (hr.rotary(x, hr.zeros(3), hr.ones(3)), np.concatenate([-wide[..., 3:], wide[..., :3]], -1)),
    }  # fmt: skip
    for name, (actual, expected) in cases.items():
        assert str(actual.dtype) == result, name
        np.testing.assert_allclose(np.asarray(actual.astype(hr.float64)), expected, tolerance, tolerance, err_msg=name)


def test_views_and_empty():
    x = sample(6, 4, 5)
    view, from_numpy = hr.array(x)[::-2, :, 1::2], x[::-2, :, 1::2]
    expected = F.group_norm(torch.tensor(from_numpy.copy()), 2)
    close(hr.group_norm(view, groups=2), expected.numpy())
    close(hr.normalize(view.T, 0), F.normalize(torch.tensor(from_numpy.T.copy()), dim=0).numpy())
    assert hr.batch_norm(hr.zeros((0, 3)), hr.zeros(3), hr.ones(3)).shape == (0, 3)
    assert hr.normalize(hr.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: hr.batch_norm(x, hr.ones(4), hr.ones(3)), r"mean has dims \[4\], expected \[3\]"),
    (lambda x: hr.batch_norm(x, hr.ones(3), hr.ones((3, 1))), r"var has dims \[3,1\], expected \[3\]"),
    (lambda x: hr.batch_norm(x, hr.ones(3), hr.ones(3), axis=3), "axis 3 is out of range for 3 dims"),
    (lambda x: hr.batch_norm_training(x, hr.ones(2)), r"weight\?? has dims \[2\], expected \[3\]"),
    (lambda x: hr.group_norm(x, groups=2), "3"),
    (lambda x: hr.group_norm(x, groups=0), "0"),
    (lambda x: hr.local_response_norm(x, 0), "size is 0, expected at least 1"),
    (lambda x: hr.normalize(x, 5), "axis 5 is out of range"),
    (lambda x: hr.rotary(x, hr.ones(2), hr.ones(2)), "5 dims of 5, expected an even number"),
    (lambda x: hr.rotary(x, hr.ones(2), hr.ones(2), dims=6), "6 dims of 5"),
    (lambda x: hr.rotary(x, hr.ones(2), hr.ones(3), dims=4), r"sin has dims \[3\], expected those of \[2,3,5\] with 2"),
    (lambda x: hr.rotary(x, hr.ones((4, 2)), hr.ones(2), dims=4), r"cos has dims \[4,2\]"),
])  # fmt: skip
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(hr.ones((2, 3, 5)))


# ---- hr.fast


@pytest.mark.parametrize("traditional", [False, True])
def test_rope(traditional):
    x = sample(2, 3, 5, 8).astype(np.float32)
    y = hr.fast.rope(hr.array(x), 6, traditional=traditional, base=100.0, scale=0.5, offset=3)
    angles = (np.arange(5) + 3)[:, None] * 0.5 * 100.0 ** (-np.arange(0, 6, 2) / 6)
    expected = x.copy()
    a, b = (x[..., 0:6:2], x[..., 1:6:2]) if traditional else (x[..., :3], x[..., 3:6])
    turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    if traditional:
        expected[..., 0:6:2], expected[..., 1:6:2] = turned
    else:
        expected[..., :3], expected[..., 3:6] = turned
    np.testing.assert_allclose(np.asarray(y), expected, 1e-5, 1e-6)
    freqs = hr.fast.rope(hr.array(x), 6, traditional=traditional, base=None, scale=0.5, offset=hr.array(3),
                         freqs=hr.array(100.0 ** (np.arange(0, 6, 2) / 6)))  # fmt: skip
    np.testing.assert_allclose(np.asarray(freqs), expected, 1e-4, 1e-5)
    each = hr.fast.rope(hr.array(x), 6, traditional=traditional, base=100.0, scale=0.5, offset=hr.array([3, 0]))
    np.testing.assert_allclose(np.asarray(each)[0], expected[0], 1e-5, 1e-6)


def test_fast_norms_and_attention():
    x, w, b = sample(2, 4, 6), sample(6), sample(6)
    normed = F.layer_norm(torch.tensor(x), (6,), torch.tensor(w), torch.tensor(b))
    close(hr.fast.layer_norm(*map(hr.array, (x, w, b))), normed.numpy())
    close(hr.fast.rms_norm(*map(hr.array, (x, w)), 1e-3), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w)
    q, k, v = sample(2, 4, 3, 8), sample(2, 2, 5, 8), sample(2, 2, 5, 8)
    given = list(map(hr.array, (q, k, v)))
    tensors = [torch.tensor(q)] + [torch.tensor(x).repeat_interleave(2, 1) for x in (k, v)]
    causal = torch.ones(3, 5, dtype=torch.bool).tril(2)
    for mask, theirs in ((None, None), ("causal", causal), (hr.array(causal.numpy()), causal)):
        expected = F.scaled_dot_product_attention(*tensors, attn_mask=theirs).numpy()
        close(hr.fast.scaled_dot_product_attention(*given, mask=mask), expected, 1e-9)
    with pytest.raises(ValueError, match='expected "causal"'):
        hr.fast.scaled_dot_product_attention(*given, mask="full")
    with pytest.raises(ValueError, match="4 heads of q for 3"):
        hr.fast.scaled_dot_product_attention(given[0], *[hr.zeros((2, 3, 5, 8), dtype=hr.float64)] * 2)


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 2.5, -1, np.inf, -np.inf])
def test_gradient_of_norms_of_complex_numbers(order):
    rng = np.random.default_rng(0)
    x, v = (rng.uniform(-1, 1, (3, 4)) + 1j * rng.uniform(-1, 1, (3, 4)) for _ in range(2))
    x[0, 0] = v[0, 0] = 0  # no gradient at 0
    weights = hr.array(rng.uniform(-1, 1, 3))

    def loss(a):
        return hr.sum(hr.vector_norm(a, ord=order, axis=[1]) * weights)

    gradient = np.asarray(hr.grad(loss)(hr.array(x)))
    ends = [float(np.asarray(loss(hr.array(x + step * v)))) for step in (1e-6, -1e-6)]
    assert np.real(np.conj(gradient) * v).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
    assert gradient[0, 0] == 0
