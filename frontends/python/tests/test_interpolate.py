"""hr.interpolate against loops over places and taps, PyTorch, differences; its modes are those of ONNX's Resize."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import headrace as hr
from differences import difference

torch = pytest.importorskip("torch")
rng = np.random.default_rng(3)
COORDINATES = """half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn
tf_crop_and_resize""".split()
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil".split()


# ---- the definition, element by element, in fractions


def place(i, n, m, scale, coordinates, region):
    step = 1 / scale if scale else Fraction(n, m)
    if coordinates == "align_corners":
        return Fraction(i * (n - 1), m - 1) if m > 1 else Fraction(0)
    if coordinates == "tf_crop_and_resize":
        begin, end = map(Fraction, region)
        return (begin * (n - 1) + i * (end - begin) * (n - 1) / (m - 1)) if m > 1 else (begin + end) * (n - 1) / 2
    if coordinates == "pytorch_half_pixel" and m == 1:
        return Fraction(0)
    if coordinates == "asymmetric":
        return i * step
    if coordinates == "tf_half_pixel_for_nn":
        return (i + Fraction(1, 2)) * step
    start = Fraction(n, 2) - m * step / 2 if coordinates == "half_pixel_symmetric" else 0
    return start + (i + Fraction(1, 2)) * step - Fraction(1, 2)


def rounded(x, rounding):
    if rounding == "floor":
        return math.floor(x)
    if rounding == "ceil":
        return math.ceil(x)
    up = x - math.floor(x) > Fraction(1, 2) or (rounding == "round_prefer_ceil" and x - math.floor(x) == Fraction(1, 2))
    return math.floor(x) + up


def kernel(mode, a, d):
    if mode == "linear":
        return max(1 - d, 0)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0


def weights(n, m, scale=None, mode="nearest", coordinates="half_pixel", rounding="round_prefer_floor", antialias=False,
            cubic=-0.75, exclude_outside=False, region=(0, 1), outside=None):
    """The matrix [m, n] of one dim, and the places outside of x."""
    scale = Fraction(scale) if scale else None
    matrix, is_outside = np.zeros((m, n)), np.zeros(m, bool)
    width = max(1 / scale if scale else Fraction(n, m), Fraction(1)) if antialias else Fraction(1)
    for i in range(m):
        x = place(i, n, m, scale, coordinates, region)
        is_outside[i] = outside is not None and not 0 <= x <= n - 1
        if mode == "nearest":
            matrix[i, min(max(rounded(x, rounding), 0), n - 1)] = 1
            continue
        reach = math.ceil((1 if mode == "linear" else 2) * width)
        elements = [math.floor(x) + k for k in range(1 - reach, reach + 1)]
        taps = [float(kernel(mode, Fraction(cubic), abs(x - e) / width)) for e in elements]
        if exclude_outside:
            taps = [t if 0 <= e < n else 0 for t, e in zip(taps, elements)]
        total = sum(taps) if antialias or exclude_outside else 1
        for t, e in zip(taps, elements):
            matrix[i, min(max(e, 0), n - 1)] += t / (total or 1)
    return matrix, is_outside


def expected(x, axis, m, outside=None, **options):
    matrix, is_outside = weights(x.shape[axis], m, outside=outside, **options)
    y = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    if outside is not None:
        shape = [1] * x.ndim
        shape[axis] = m
        y = np.where(is_outside.reshape(shape), outside, y)
    return y


def close(actual, value, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(actual), value, rtol, 1e-12)


# ---- results


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nearest(coordinates, rounding):
    for n, m in itertools.product([1, 2, 3, 5, 8], [1, 2, 3, 4, 6, 7, 10, 16]):
        x = rng.standard_normal((2, n, 3))
        options = {"coordinates": coordinates, "rounding": rounding, "region": (0.25, 0.875)}
        if coordinates != "tf_crop_and_resize":
            del options["region"]
        y = hr.interpolate(hr.array(x), [1], [m], mode="nearest", **options)
        np.testing.assert_array_equal(np.asarray(y), expected(x, 1, m, **options))


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("exclude_outside", [False, True])
def test_sums_of_taps(coordinates, mode, antialias, exclude_outside):
    options = {"coordinates": coordinates, "mode": mode, "antialias": antialias, "exclude_outside": exclude_outside}
    if coordinates == "tf_crop_and_resize":
        options["region"] = (0.1875, 0.75)
    for n, m, cubic in itertools.product([1, 3, 6], [1, 2, 4, 7, 13], [-0.75, -0.5]):
        x = rng.standard_normal((2, n, 3))
        y = hr.interpolate(hr.array(x), [-2], [m], cubic=cubic, **options)
        assert y.dtype == hr.float64 and y.shape == (2, m, 3)
        close(y, expected(x, 1, m, cubic=cubic, **options))


@pytest.mark.parametrize("coordinates", COORDINATES[:6])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [0.375, 0.625, 1.0, 1.75, 2.0, 3.0])
def test_scales(coordinates, mode, scale):
    x = rng.standard_normal((5, 2))
    m = math.floor(5 * scale)
    options = {"coordinates": coordinates, "mode": mode}
    close(hr.interpolate(hr.array(x), [0], scales=[scale], **options), expected(x, 0, m, scale=scale, **options))
    both = hr.interpolate(hr.array(x), [0], [m + 2], [scale], **options)
    close(both, expected(x, 0, m + 2, scale=scale, **options))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_places_outside(mode):
    x = rng.standard_normal((6, 2))
    options = {"mode": mode, "coordinates": "tf_crop_and_resize", "region": (-0.5, 1.25), "outside": 7.5}
    close(hr.interpolate(hr.array(x), [0], [8], **options), expected(x, 0, 8, **options))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_several_dims_and_views(mode, antialias):
    if mode == "nearest" and antialias:
        return
    x = rng.standard_normal((7, 3, 2, 5))
    view = hr.permute_dims(hr.array(x), (1, 2, 0, 3))[:, ::-1, 1:, ::2]
    from_numpy = x.transpose(1, 2, 0, 3)[:, ::-1, 1:, ::2]
    options = {"mode": mode, "antialias": antialias}
    y = hr.interpolate(view, [3, 2], [7, 4], **options)
    close(y, expected(expected(from_numpy, 3, 7, **options), 2, 4, **options))
    everywhere = hr.interpolate(hr.array(x[0, 0]), sizes=[3, 9], **options)
    close(everywhere, expected(expected(x[0, 0], 0, 3, **options), 1, 9, **options))


TORCH = {
    "nearest": ("nearest", {"coordinates": "asymmetric", "rounding": "floor"}, {}),
    "nearest-exact": ("nearest", {"rounding": "round_prefer_ceil"}, {}),
    "bilinear": ("linear", {}, {"align_corners": False}),
    "bilinear, corners": ("linear", {"coordinates": "align_corners"}, {"align_corners": True}),
    "bicubic": ("cubic", {}, {"align_corners": False}),
    "bicubic, corners": ("cubic", {"coordinates": "align_corners"}, {"align_corners": True}),
    "bilinear, antialias": ("linear", {"antialias": True, "exclude_outside": True}, {"antialias": True}),
    "bicubic, antialias": ("cubic", {"antialias": True, "exclude_outside": True, "cubic": -0.5}, {"antialias": True}),
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("size", [(3, 4), (9, 12), (5, 13), (1, 1)])
def test_as_torch_with_gradients(name, size):
    mode, options, theirs = TORCH[name]
    x = rng.standard_normal((2, 3, 6, 5))
    g = rng.standard_normal((2, 3, *size))
    tensor = torch.tensor(x, requires_grad=True)
    value = torch.nn.functional.interpolate(tensor, size, mode=name.split(",")[0], **theirs)
    value.backward(torch.tensor(g))

    def f(x):
        return hr.interpolate(x, [2, 3], size, mode=mode, **options)

    close(f(hr.array(x)), value.detach().numpy(), 1e-6)
    close(hr.vjp(f, [hr.array(x)], [hr.array(g)])[1][0], tensor.grad.numpy(), 1e-6)


@pytest.mark.parametrize("options", [
    {"mode": "nearest", "coordinates": "asymmetric", "rounding": "ceil"},
    {"mode": "linear", "coordinates": "asymmetric"},
    {"mode": "cubic", "cubic": -0.5},
    {"mode": "cubic", "exclude_outside": True, "antialias": True, "coordinates": "align_corners"},
    {"mode": "linear", "coordinates": "tf_crop_and_resize", "region": (-0.25, 1.5), "outside": 2.0},
])  # fmt: skip
@pytest.mark.parametrize("size", [3, 8])
def test_gradients_are_the_transposed_matrix(options, size):
    x, g = rng.standard_normal((5, 2)), rng.standard_normal((size, 2))
    matrix, is_outside = weights(5, size, **options)

    def f(x):
        return hr.interpolate(x, [0], [size], **options)

    by_x = hr.vjp(f, [hr.array(x)], [hr.array(g)])[1][0]
    close(by_x, matrix.T @ np.where(is_outside[:, None], 0, g))
    _, tangent = hr.jvp(f, [hr.array(x)], [hr.array(x * 2)])
    close(tangent[0], np.where(is_outside[:, None], 0, matrix @ (2 * x)))
    second = hr.grad(lambda v: (hr.grad(lambda u: (f(u) ** 2).sum())(v) ** 2).sum())(hr.array(x))
    inside = matrix * ~is_outside[:, None]
    shift = np.where(is_outside, options.get("outside", 0), 0)[:, None] * np.ones((1, 2))
    first = 2 * inside.T @ (inside @ x + shift)
    close(second, 4 * inside.T @ inside @ first, 1e-9)


# ---- dtypes and dims


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
                                   "float64", "complex64", "complex128"])  # fmt: skip
def test_dtypes(dtype):
    x = hr.array(np.arange(6).reshape(2, 3)).astype(dtype)
    nearest = hr.interpolate(x, [1], [5], coordinates="asymmetric", rounding="floor")
    assert nearest.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(nearest.astype(hr.complex128)),
                                  np.asarray(x.astype(hr.complex128))[:, [0, 0, 1, 1, 2]])
    if not dtype.startswith("complex"):
        linear = hr.interpolate(x, [1], [5], mode="linear", coordinates="asymmetric")
        assert linear.dtype == (x.dtype if "float" in dtype else hr.float32)
        values = np.asarray(x.astype(hr.float64))
        close(linear.astype(hr.float64), expected(values, 1, 5, mode="linear", coordinates="asymmetric"), 1e-2)


def test_halves_are_rounded_once():
    x = np.float16(rng.standard_normal((4, 50)))
    y = hr.interpolate(hr.array(x), [1], [77], mode="cubic", cubic=-0.6)
    exact = expected(x.astype(np.float64), 1, 77, mode="cubic", cubic=-0.6)
    np.testing.assert_allclose(np.asarray(y), exact.astype(np.float16), 1e-3, 1e-6)
    assert (np.asarray(y) == exact.astype(np.float16)).mean() > 0.99


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_empty_and_special_numbers(mode):
    options = {"mode": mode, "coordinates": "asymmetric"}
    assert hr.interpolate(hr.zeros((0, 3)), [1], [5], **options).shape == (0, 5)
    assert hr.interpolate(hr.zeros((2, 3)), [1], [0], **options).shape == (2, 0)
    assert hr.interpolate(hr.zeros((2, 0)), [1], [0], **options).shape == (2, 0)
    x = hr.array([1.0, np.nan, 2.0, 3.0, np.inf, 5.0])
    assert np.isnan(np.asarray(hr.interpolate(x, [0], [12], **options))).any()
    assert hr.interpolate(hr.array(3.0), [], [], **options).tolist() == 3


def test_compiled_and_many_examples():
    x = hr.array(rng.standard_normal((3, 4, 5)))

    def f(x):
        return hr.interpolate(x, [0], [7], mode="cubic", cubic=-0.5)

    close(hr.compile(f)(x[0]), np.asarray(f(x[0])))
    close(hr.vmap(f)(x), np.stack([np.asarray(f(row)) for row in x]))


@pytest.mark.parametrize(("arguments", "message"), [
    ({"axes": [0]}, "neither sizes nor scales are given"),
    ({"axes": [0], "sizes": [2, 3]}, "2 sizes for 1 axes"),
    ({"axes": [0], "sizes": [2], "scales": [1, 1]}, "2 scales for 1 axes"),
    ({"axes": [2], "sizes": [2]}, "axis 2 is out of range for 2 dims"),
    ({"axes": [0, -2], "sizes": [2, 2]}, "axis -2 is given twice"),
    ({"axes": [0], "sizes": [-1]}, "size -1 of axis 0"),
    ({"axes": [0], "scales": [0]}, "scale 0 of axis 0"),
    ({"axes": [0], "scales": [math.nan]}, "scale nan of axis 0"),
    ({"axes": [0], "sizes": [2], "mode": "area"}, "expected one of nearest, linear, cubic"),
    ({"axes": [0], "sizes": [2], "coordinates": "corners"}, "expected one of half_pixel, "),
    ({"axes": [0], "sizes": [2], "rounding": "up"}, "expected one of round_prefer_floor, "),
    ({"axes": [0], "sizes": [2], "antialias": True}, "antialias with mode nearest"),
    ({"axes": [0], "sizes": [2], "coordinates": "tf_crop_and_resize"}, "0 numbers of region for 1 axes"),
    ({"axes": [0], "sizes": [2], "region": [0]}, "1 numbers of region for 1 axes"),
    ({"axes": [0], "sizes": [9], "scales": [1e-12], "mode": "linear", "antialias": True}, "taps of axis 0"),
])  # fmt: skip
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        hr.interpolate(hr.ones((3, 4)), **arguments)
    if "sizes" in arguments and arguments["sizes"] == [2]:
        with pytest.raises(ValueError, match="size 2 of axis 0 with 0 elements"):
            hr.interpolate(hr.ones((0, 4)), [0], [2])


# ---- places given by a grid


@pytest.mark.parametrize("mode, theirs", [("linear", "bilinear"), ("nearest", "nearest"), ("cubic", "bicubic")])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
def test_samples_of_a_grid(mode, theirs, padding, aligned):
    for plane, shape in (((4, 5), (3, 2, 2)), ((3, 4, 2), (2, 2, 3, 3))):
        if mode == "cubic" and len(plane) == 3:
            continue
        x, grid = rng.uniform(-1, 1, (2, 3, *plane)), rng.uniform(-1.3, 1.3, (2, *shape))
        expected = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), theirs, padding, aligned)
        y = hr.grid_sample(hr.array(x), hr.array(grid), mode, padding, aligned)
        np.testing.assert_allclose(np.asarray(y), expected.numpy(), 1e-9, 1e-9)
        difference(lambda x: (hr.grid_sample(x, hr.array(grid), mode, padding, aligned) ** 2).sum(), x)
        if mode != "nearest":
            difference(lambda g: (hr.grid_sample(hr.array(x), g, mode, padding, aligned) ** 2).sum(), grid)
