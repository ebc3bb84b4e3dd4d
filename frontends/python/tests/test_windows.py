"""Windows: reductions, pools with all their attributes, convolutions of any layout, views by strides; against loops,
PyTorch and differences."""

import itertools

import numpy as np
import pytest

import headrace as hr
from differences import difference

torch = pytest.importorskip("torch")
rng = np.random.default_rng(17)


def sample(*shape):
    return rng.uniform(-1, 1, shape)


def close(actual, value, rtol=1e-10):
    np.testing.assert_allclose(np.asarray(actual), value, rtol, 1e-12)


# ---- reductions of windows


def sides_of(x, window, stride, dilation, input_dilation, padding):
    sides = []
    for n, w, s, d, e in zip(x.shape, window, stride, dilation, input_dilation):
        n = (n - 1) * e + 1 if n else 0
        total = max((-(-n // s) - 1) * s + (w - 1) * d + 1 - n, 0) if padding != "valid" and n else 0
        sides.append((total - total // 2, total // 2) if padding == "same_lower" else (total // 2, total - total // 2))
    return zip(*sides)


def windows(x, window, stride=None, before=None, after=None, dilation=None, input_dilation=None, mode="sum",
            padding="explicit"):
    """The definition, by a loop."""
    ones, zeros = (1,) * x.ndim, (0,) * x.ndim
    stride, dilation, input_dilation = stride or ones, dilation or ones, input_dilation or ones
    before, after = before or zeros, after or zeros
    if padding != "explicit":
        before, after = sides_of(x, window, stride, dilation, input_dilation, padding)
    sizes = [(n - 1) * e + 1 if n else 0 for n, e in zip(x.shape, input_dilation)]
    counts = [(n + b + a - (w - 1) * d - 1) // s + 1 if n + b + a > (w - 1) * d else 0
              for n, b, a, w, d, s in zip(sizes, before, after, window, dilation, stride)]  # fmt: skip
    function = getattr(np, mode)
    empty = {"sum": 0, "max": -np.inf, "min": np.inf, "prod": 1, "mean": np.nan, "any": False, "all": True}[mode]
    y = np.zeros(counts, bool if mode in ("any", "all") else x.dtype)
    for at in np.ndindex(*counts):
        found = []
        for inside in np.ndindex(*window):
            place = [i * s + k * d - b for i, s, k, d, b in zip(at, stride, inside, dilation, before)]
            if all(0 <= p < n and p % e == 0 for p, n, e in zip(place, sizes, input_dilation)):
                found.append(x[tuple(p // e for p, e in zip(place, input_dilation))])
        y[at] = function(found) if found else empty
    return y


MODES = "sum max min prod mean any all".split()
WINDOWS = {
    "plain": {"window": (2, 3)},
    "strides": {"window": (2, 2), "stride": (1, 2), "dilation": (2, 1)},
    "sides": {"window": (2, 3), "before": (1, 0), "after": (0, 2)},
    "cropped": {"window": (2, 2), "before": (-1, 1), "after": (1, -2)},
    "spaced": {"window": (3, 2), "input_dilation": (2, 3), "stride": (2, 1), "before": (2, 1), "after": (1, 0)},
    "same": {"window": (2, 3), "stride": (2, 2), "padding": "same"},
    "same_lower": {"window": (2, 4), "stride": (1, 3), "padding": "same_lower", "dilation": (1, 2)},
    "valid": {"window": (3, 3), "stride": (2, 1), "padding": "valid"},
    "too large": {"window": (9, 2)},
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WINDOWS)
def test_reduced_windows(mode, name):
    x = sample(5, 6)
    if mode in ("any", "all"):
        x = x > 0
    close(hr.reduce_window(hr.array(x), **WINDOWS[name], mode=mode), windows(x, **WINDOWS[name], mode=mode))
    view = hr.array(np.ascontiguousarray(x.T))[:, ::-1].T
    close(hr.reduce_window(view, **WINDOWS[name], mode=mode), windows(x[::-1], **WINDOWS[name], mode=mode))


@pytest.mark.parametrize("mode", ["sum", "max", "min", "prod", "mean"])
@pytest.mark.parametrize("name", ["strides", "sides", "cropped", "spaced", "same"])
def test_gradients_of_windows(mode, name):
    if name == "spaced" and mode in ("max", "min", "mean"):  # some windows have no element
        return
    difference(lambda x: (hr.reduce_window(x + 2, **WINDOWS[name], mode=mode) ** 2).sum(), sample(5, 6))


@pytest.mark.parametrize("mode", ["sum", "prod"])
def test_second_order_of_windows(mode):
    def f(x):
        return (hr.reduce_window(x + 2, (2, 2), mode=mode, padding="same") ** 2).sum()

    difference(lambda x: (hr.grad(f)(x) ** 2).sum(), sample(3, 4))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
                                   "bfloat16", "float32", "bool"])  # fmt: skip
def test_dtypes_of_windows(dtype):
    x = rng.integers(0, 2 if dtype == "bool" else 5, (4, 5))
    given = hr.array(x).astype(dtype)
    for mode in ("sum", "max", "min", "prod"):
        if dtype == "bool" and mode in ("sum", "prod"):
            continue
        y = hr.reduce_window(given, (2, 2), mode=mode, padding="same")
        assert str(y.dtype) == dtype
        np.testing.assert_array_equal(np.asarray(y.astype(hr.int64)), windows(x, (2, 2), mode=mode, padding="same"))
    if dtype != "bool":
        y = hr.reduce_window(given, (2, 2), mode="mean")
        assert str(y.dtype) == (dtype if "float" in dtype else "float32")


def test_windows_of_empty_and_many_dims():
    assert hr.reduce_window(hr.zeros((0, 3)), (1, 2)).shape == (0, 2)
    assert hr.reduce_window(hr.zeros((3, 0)), (1, 2)).shape == (3, 0)
    assert hr.reduce_window(hr.array(3.0), ()).tolist() == 3
    x = sample(2, 3, 2, 3, 2)
    close(hr.reduce_window(hr.array(x), (1, 2, 2, 1, 2), mode="max"), windows(x, (1, 2, 2, 1, 2), mode="max"))
    values = hr.reduce_window(hr.array([1.0, np.nan, 2.0, np.inf]), (2,), mode="max").tolist()
    assert np.isnan(values[:2]).all() and values[2] == np.inf


# ---- pools


def test_means_count_the_elements_of_spaced_windows():
    """Windows end in the padding between two of their elements."""
    x = np.arange(1.0, 8)[None, None]
    for ceil in (False, True):
        y = np.asarray(hr.avg_pool(hr.array(x), [3], [3], [1], count_padding=False, dilation=[2], ceil=ceil))
        first = range(-1, 6 if ceil else 5, 3)
        places = [[p for p in (f, f + 2, f + 4) if 0 <= p < 7] for f in first]
        close(y, [[[np.mean(x[0, 0, p]) for p in places]]])
    y = np.asarray(hr.avg_pool(hr.array(x), [3], [4], [0], count_padding=True, dilation=[2], ceil=True))
    close(y, [[[3, 6]]])


def torch_pool(kind, x, window, stride, before, after, dilation, ceil, count_padding):
    n = len(window)
    pool = getattr(torch.nn.functional, f"{kind}_pool{n}d")
    x = torch.tensor(x)
    if kind == "max":
        x = torch.nn.functional.pad(x, [p for pair in zip(before[::-1], after[::-1]) for p in pair], value=-torch.inf)
        return pool(x, window, stride, 0, dilation, ceil, return_indices=True)
    return pool(x, window, stride, before, ceil, count_padding)


def begun(sizes, window, stride, before, after, dilation):
    """Whole windows, and those that begin before the padding behind: torch sees a copy that has it."""
    lists = zip(sizes, window, stride, before, after)
    counts = [max(n + b + a - (w - 1) * dilation - 1, -s) // s + 1 for n, w, s, b, a in lists]
    begun = [-(-(n + b) // s) for n, s, b in zip(sizes, stride, before)]
    return (slice(None), slice(None), *(slice(max(pair)) for pair in zip(counts, begun)))


SIZES = [((2,), (1,)), ((3,), (2,)), ((2, 3), (2, 2)), ((3, 2), (3, 1)), ((2, 2, 2), (1, 2, 3))]


@pytest.mark.parametrize(("window", "stride"), SIZES)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("dilation", [1, 2])
def test_max_pools(window, stride, ceil, dilation):
    n = len(window)
    x = sample(2, 3, *(7, 6, 8)[:n])
    for before, after in (((0,) * n, (0,) * n), ((1,) * n, (1,) * n), ((0,) * n, (1,) * n), ((1,) * n, (0,) * n)):
        value, _ = torch_pool("max", x, window, stride, before, after, (dilation,) * n, ceil, True)
        value = value[begun(x.shape[2:], window, stride, before, after, dilation)]
        options = {"after": after, "dilation": (dilation,) * n, "ceil": ceil}
        close(hr.max_pool(hr.array(x), window, stride, before, **options), value.numpy())
        values, indices = hr.max_pool_places(hr.array(x), window, stride, before, **options)
        close(values, value.numpy())
        flat = x.reshape(2, 3, -1)
        picked = np.take_along_axis(flat, np.asarray(indices).reshape(2, 3, -1), 2).reshape(value.shape)
        np.testing.assert_array_equal(picked, value.numpy())
    difference(lambda x: (hr.max_pool(x, window, stride, (1,) * n, after=(0,) * n) ** 2).sum(), x)


@pytest.mark.parametrize(("window", "stride"), SIZES)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("count_padding", [False, True])
def test_avg_pools(window, stride, ceil, count_padding):
    n = len(window)
    x = sample(2, 3, *(7, 6, 8)[:n])
    for padding in (0, 1):
        value = torch_pool("avg", x, window, stride, (padding,) * n, None, None, ceil, count_padding)
        y = hr.avg_pool(hr.array(x), window, stride, (padding,) * n, count_padding, ceil=ceil)
        close(y, value.numpy())
    before, after = (1,) + (0,) * (n - 1), (0,) * (n - 1) + (1,)
    options = {"stride": (1, 1, *stride), "before": (0, 0, *before), "after": (0, 0, *after)}
    sums = windows(x, (1, 1, *window), **options)
    ones = np.ones_like(x)
    if count_padding:
        padded = np.pad(ones, [(0, 0), (0, 0), *zip(before, after)], constant_values=1)
        counts = windows(padded, (1, 1, *window), stride=(1, 1, *stride))
    else:
        counts = windows(ones, (1, 1, *window), **options)
    y = hr.avg_pool(hr.array(x), window, stride, before, count_padding, after=after)
    close(y, sums / counts)
    difference(lambda x: (hr.avg_pool(x, window, stride, before, count_padding, after=after) ** 2).sum(), x)


# ---- convolutions


def convolve(x, weight, stride, before, after, dilation, input_dilation, groups):
    """By torch, on a padded copy with zeros between."""
    n = x.ndim - 2
    sizes = [(s - 1) * d + 1 for s, d in zip(x.shape[2:], input_dilation)]
    spaced = np.zeros((*x.shape[:2], *sizes))
    spaced[(slice(None), slice(None), *(slice(None, None, d) for d in input_dilation))] = x
    pads = [p for pair in zip(before[::-1], after[::-1]) for p in pair]
    padded = torch.nn.functional.pad(torch.tensor(spaced), pads)
    function = getattr(torch.nn.functional, f"conv{n}d")
    return function(padded, torch.tensor(weight), None, stride, 0, dilation, groups).numpy()


CONVOLUTIONS = {
    "plain": ({}, (1, 1), (0, 0), (0, 0), (1, 1), (1, 1), 1),
    "strides": ({"stride": (2, 1), "dilation": (1, 2)}, (2, 1), (0, 0), (0, 0), (1, 2), (1, 1), 1),
    "sides": ({"before": (1, 0), "after": (2, 3)}, (1, 1), (1, 0), (2, 3), (1, 1), (1, 1), 1),
    "cropped": ({"before": (-1, 1), "after": (0, -1)}, (1, 1), (-1, 1), (0, -1), (1, 1), (1, 1), 1),
    "negative on both sides": ({"before": (-1, -1), "after": (-1, -1)}, (1, 1), (-1, -1), (-1, -1), (1, 1), (1, 1), 1),
    "spaced": ({"input_dilation": (2, 3), "before": (1, 1), "after": (1, 2)},
               (1, 1), (1, 1), (1, 2), (1, 1), (2, 3), 1),
    "groups": ({"groups": 2, "before": (1, 1), "after": (1, 1)}, (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), 2),
    "same": ({"padding": "same", "stride": (2, 1)}, (2, 1), (0, 0), (1, 1), (1, 1), (1, 1), 1),
    "same, odd": ({"padding": "same"}, (1, 1), (1, 0), (1, 1), (1, 1), (1, 1), 1),
    "same_lower": ({"padding": "same_lower"}, (1, 1), (1, 1), (1, 0), (1, 1), (1, 1), 1),
    "valid": ({"padding": "valid", "dilation": (2, 2)}, (1, 1), (0, 0), (0, 0), (2, 2), (1, 1), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("layout", ["", "bf01,oi01->bf01", "b01f,01io->b01f", "1b0f,o1i0->f1b0"])
def test_convolutions(name, layout):
    options, *rest = CONVOLUTIONS[name]
    x, weight = sample(2, 4, 6, 7), sample(6, 4 // rest[-1], 3, 2)
    value = convolve(x, weight, *rest)
    given, kernel = hr.array(x), hr.array(weight)
    if layout:
        words = layout.replace("->", ",").split(",")
        given = hr.permute_dims(given, ["bf01".index(c) for c in words[0]])
        kernel = hr.permute_dims(kernel, ["oi01".index(c) for c in words[1]])
        value = value.transpose(["bf01".index(c) for c in words[2]])
    close(hr.conv_general(given, kernel, **options, layout=layout), value, 1e-9)
    biases = np.arange(6.0).reshape([6 if c == "f" else 1 for c in (layout.split("->")[-1] or "bf01")])
    close(hr.conv_general(given, kernel[(slice(None),) * 4], hr.array(np.arange(6.0)), **options, layout=layout),
          value + biases, 1e-9)  # fmt: skip


@pytest.mark.parametrize("n", [1, 3])
def test_other_ranks_flips_and_groups_of_examples(n):
    x, weight = sample(4, 3, *(5, 4, 6)[:n]), sample(6, 3, *(2, 3, 2)[:n])
    ones, zeros = (1,) * n, (0,) * n
    flipped = weight[(slice(None), slice(None), *(slice(None, None, -1),) * n)]
    close(hr.conv_general(hr.array(x), hr.array(weight), flip=True),
          convolve(x, np.ascontiguousarray(flipped), ones, zeros, zeros, ones, ones, 1), 1e-9)  # fmt: skip
    parts = [convolve(xs, ws, ones, zeros, zeros, ones, ones, 1) for xs, ws in zip(np.split(x, 2), np.split(weight, 2))]
    close(hr.conv_general(hr.array(x), hr.array(weight), batch_groups=2), np.concatenate(parts, 1), 1e-9)


@pytest.mark.parametrize("name", ["sides", "cropped", "spaced", "groups", "same"])
def test_gradients_of_convolutions(name):
    options, *rest = CONVOLUTIONS[name]
    x, weight = sample(2, 4, 5, 4), sample(4, 4 // rest[-1], 3, 2)
    difference(lambda x: (hr.conv_general(x, hr.array(weight), **options) ** 2).sum(), x)
    difference(lambda w: (hr.conv_general(hr.array(x), w, **options, flip=True) ** 2).sum(), weight)


# ---- views by strides


def test_strides():
    x = sample(4, 6)
    strided = np.lib.stride_tricks.as_strided
    close(hr.as_strided(hr.array(x), (5, 3), (4, 1), 2), strided(x.reshape(-1)[2:], (5, 3), (32, 8)))
    close(hr.as_strided(hr.array(x), (2, 3), (0, 2), 1), strided(x.reshape(-1)[1:], (2, 3), (0, 16)))
    close(hr.as_strided(hr.array(x).T, (3, 3), (-2, 1), 4), strided(x.T.reshape(-1)[4:], (3, 3), (-16, 8)))
    assert hr.as_strided(hr.array(x), (0, 3), (100, 100), 99).shape == (0, 3)
    assert hr.as_strided(hr.array(x), (), (), 7).item() == x.reshape(-1)[7]


def test_a_write_to_overlapping_elements_changes_one():
    x = hr.arange(6.0)
    y = hr.as_strided(x, (4, 3), (1, 1))
    del x
    y[1] = -1.0
    assert y.tolist() == [[0, 1, 2], [-1, -1, -1], [2, 3, 4], [3, 4, 5]]
    z = hr.as_strided(hr.arange(6.0), (3, 2), (2, 1))
    z[0] += 10
    assert z.tolist() == [[10, 11], [2, 3], [4, 5]]


def test_gradients_of_strides():
    x = sample(8)
    difference(lambda x: (hr.as_strided(x, (6, 3), (1, 1)) ** 3).sum(), x)
    counts = hr.grad(lambda x: hr.as_strided(x, (3, 4), (2, 1)).sum())(hr.array(x))
    assert counts.tolist() == [1, 1, 2, 2, 2, 2, 1, 1]


# ---- bad arguments


X = hr.ones((1, 2, 5))
W = hr.ones((2, 2, 3))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2,)), "1 integers of window for 2 dims"),
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2, 0)), "window of dim 1 is 0, expected 1"),
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2, 2), (0, 1)), "stride of dim 0 is 0"),
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2, 2), mode="median"), "expected one of sum, max"),
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2, 2), padding="full"), "expected one of explicit, same"),
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2, 2), before=(1, 1), padding="same"),
     "before or after with padding same"),
    (lambda: hr.reduce_window(hr.ones((3, 4)), (2, 2), before=(-4, 0)), "padding -4 and 0 of dim 0 with 3 elements"),
    (lambda: hr.max_pool(hr.ones((3, 4)), (2,), (1,), (0,), after=(1, 1)), "2 integers of after for 1 dims"),
    (lambda: hr.max_pool(hr.ones((3, 4)), (2,), (0,), (0,)), "stride of dim 0 is 0"),
    (lambda: hr.max_pool(hr.ones(3), (2, 2), (1, 1), (0, 0)), "2 integers of window for 1 dims, expected 1 to 1"),
    (lambda: hr.conv_general(X, hr.ones((2, 2))), "3 dims of x and 2 of the weight"),
    (lambda: hr.conv_general(X, W, layout="bf1,oi0->bf0"), 'layout "bf1,oi0->bf0" of 3 dims'),
    (lambda: hr.conv_general(X, W, layout="bff,oi0->bf0"), "expected words as in"),
    (lambda: hr.conv_general(X, W, layout="bf0,oi0"), "expected words as in"),
    (lambda: hr.conv_general(X, W, stride=(1, 1)), "2 integers of stride for 1 dims"),
    (lambda: hr.conv_general(X, W, groups=0), "0 groups"),
    (lambda: hr.conv_general(X, W, batch_groups=2), "2 batch_groups of 1 examples"),
    (lambda: hr.conv_general(X, hr.ones((2, 3, 3))), "3"),
    (lambda: hr.as_strided(X, (2, 2), (1,)), "1 strides for 2 dims"),
    (lambda: hr.as_strided(X, (-1,), (1,)), "dim 0 has size -1"),
    (lambda: hr.as_strided(X, (3, 2), (5, 1)), "elements 0 to 11 of 10 ones"),
    (lambda: hr.as_strided(X, (2,), (-1,)), "elements -1 to 0 of 10 ones"),
    (lambda: hr.as_strided(X, (2**40, 2), (2**40, 1)), "of 10 ones"),
])  # fmt: skip
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
