"""Numbers of bits, rounding with ties away from zero, and cube roots, against Python's integers and fractions."""

from fractions import Fraction

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(29)
INTEGERS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()


def integers(dtype, *shape):
    ends = np.iinfo(dtype)
    x = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    x.flat[:6] = [ends.min, ends.max, 0, 1, 2, ends.max // 2]
    return x


def bits(x):
    """The bits of a NumPy integer as text, the highest one first."""
    width = 8 * x.dtype.itemsize
    return format(int(x) % 2**width, f"0{width}b")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_counts_of_bits(dtype):
    x = integers(dtype, 3, 9)
    ones, zeros = hr.popcount(hr.array(x)[:, ::-1].T), hr.leading_zeros(hr.array(x))
    assert str(ones.dtype) == str(zeros.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(ones), np.array([[bits(v).count("1") for v in row[::-1]] for row in x]).T)
    expected = [[len(bits(v)) - len(bits(v).lstrip("0")) for v in row] for row in x]
    np.testing.assert_array_equal(np.asarray(zeros), expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_hamming_distances(dtype):
    x, y = integers(dtype, 4, 7), integers(dtype, 2, 1, 7)
    distances = hr.hamming_distance(hr.array(x), hr.array(y))
    expected = [[sum(bits(a ^ b).count("1") for a, b in zip(v, w[0])) for v in x] for w in y]
    assert str(distances.dtype) == "uint32"
    np.testing.assert_array_equal(np.asarray(distances), expected)
    pairs = hr.hamming_distance(hr.array(x)[:, None], hr.array(x), dtype=hr.uint16)  # all pairs of two sets
    assert str(pairs.dtype) == "uint16" and (np.asarray(pairs).diagonal() == 0).all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise_functions_of_all_widths(dtype):
    x, y = integers(dtype, 3, 9), integers(dtype, 9)
    for ours, theirs in (("bitwise_and",) * 2, ("bitwise_or",) * 2, ("bitwise_xor",) * 2):
        np.testing.assert_array_equal(np.asarray(getattr(hr, ours)(hr.array(x), hr.array(y))), getattr(np, theirs)(x, y))
    np.testing.assert_array_equal(np.asarray(hr.bitwise_invert(hr.array(x))), ~x)
    places = rng.integers(0, 8 * x.dtype.itemsize, 9).astype(dtype)
    np.testing.assert_array_equal(np.asarray(hr.bitwise_left_shift(hr.array(x), hr.array(places))), x << places)
    np.testing.assert_array_equal(np.asarray(hr.bitwise_right_shift(hr.array(x), hr.array(places))), x >> places)


def test_bits_of_nothing_and_of_others():
    assert hr.popcount(hr.zeros((0, 3), dtype=hr.int32)).shape == (0, 3)
    assert hr.hamming_distance(hr.zeros((2, 0), dtype=hr.uint8), hr.zeros((2, 0), dtype=hr.uint8)).tolist() == [0, 0]
    for name in ("popcount", "leading_zeros"):
        with pytest.raises(ValueError, match="f32, expected integers"):
            getattr(hr, name)(hr.ones(2))
        with pytest.raises(ValueError, match="bool, expected integers"):
            getattr(hr, name)(hr.array([True]))
    with pytest.raises(ValueError, match="expected vectors"):
        hr.hamming_distance(hr.array(1), hr.array([1]))


# ---- rounding


def away(x, unit=Fraction(1)):
    """To the nearest multiple, ties away from zero."""
    size = abs(Fraction(x)) / unit
    nearest = (size + Fraction(1, 2)).__floor__() * unit
    return float(nearest if x >= 0 else -nearest)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_ties_go_away_from_zero(dtype):
    x = hr.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.3, -0.3, 0.7, -0.7, 3.0, 0.0]).astype(dtype)
    y = np.asarray(hr.round(x, ties="away").astype(hr.float64))
    np.testing.assert_array_equal(y, [away(v) for v in np.asarray(x.astype(hr.float64))])
    assert np.signbit(np.asarray(hr.round(hr.array([-0.3, -0.0]), ties="away"))).all()


def test_ties_of_numbers_near_a_half_and_of_none():
    x = np.array([0.49999997, -0.49999997, 8388609.0, 4194303.5, 1e30], np.float32)
    np.testing.assert_array_equal(np.asarray(hr.round(hr.array(x), ties="away")), [away(v) for v in x.tolist()])
    y = np.asarray(hr.round(hr.array([np.nan, np.inf, -np.inf]), ties="away"))
    np.testing.assert_array_equal(y, [np.nan, np.inf, -np.inf])
    assert hr.round(hr.array([2, -3]), ties="away").tolist() == [2, -3]
    np.testing.assert_array_equal(np.asarray(hr.round(hr.array([2.5 - 0.5j]), ties="away")), [3 - 1j])
    with pytest.raises(ValueError, match="ties"):
        hr.round(hr.ones(2), ties="up")


def test_ties_of_decimals():
    x = [0.125, -0.125, 2.375, 0.0625]
    np.testing.assert_array_equal(np.asarray(hr.round(hr.array(x), 2, ties="away")),
                                  np.array([away(v, Fraction(1, 100)) for v in x], np.float32))
    whole = [25, -25, 15, -15, 14, -16, 5, -5, 0]
    for dtype in ("int8", "int32", "int64", "float64"):
        y = hr.round(hr.array(whole).astype(dtype), -1, ties="away")
        np.testing.assert_array_equal(np.asarray(y), [away(v, Fraction(10)) for v in whole])
        np.testing.assert_array_equal(np.asarray(hr.round(hr.array(whole).astype(dtype), -1)), np.round(whole, -1))


def test_roundings_are_constant():
    assert hr.grad(lambda x: hr.round(x, ties="away").sum())(hr.array([0.2, 0.7])).tolist() == [0, 0]


# ---- bits as another dtype


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("other", [*INTEGERS, "float16", "float32", "float64", "complex64"])
def test_bits_as_another_dtype(dtype, other):
    x = rng.integers(0, 2**32, (3, 16), np.uint32).view(dtype)
    half = x.shape[1] // 2
    for given, whole in ((hr.array(x), x), (hr.array(x)[1:, half:], x[1:, half:]), (hr.array(x)[::-1], x[::-1])):
        y = hr.bitcast(given, other)
        assert str(y.dtype) == other
        np.testing.assert_array_equal(np.asarray(y).view(np.uint8), np.ascontiguousarray(whole).view(other).view(np.uint8))


def test_other_bitcasts():
    assert hr.bitcast(hr.array([1.5]).astype("bfloat16"), "uint16").tolist() == [0x3FC0]
    assert hr.bitcast(hr.array([True, False]), hr.uint8).tolist() == [1, 0]
    assert hr.bitcast(hr.array(1.0), hr.int32).item() == 0x3F800000
    assert hr.bitcast(hr.zeros((2, 0)), hr.int8).shape == (2, 0)
    assert hr.grad(lambda x: (hr.bitcast(hr.bitcast(x, "int32"), "float32") + x).sum())(hr.array([2.0])).tolist() == [1]
    for call in (lambda: hr.bitcast(hr.ones(3), hr.float64), lambda: hr.bitcast(hr.array(1.0), hr.int8)):
        with pytest.raises(ValueError, match="expected a last dim that is a multiple"):
            call()
    with pytest.raises(ValueError, match="other than bool"):
        hr.bitcast(hr.array([2], dtype=hr.uint8), hr.bool)


# ---- roots


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cube_roots(dtype):
    whole = np.arange(-40, 41, dtype=dtype)
    np.testing.assert_array_equal(np.asarray(hr.cbrt(hr.array(whole**3))), whole)
    ends = np.finfo(dtype)
    x = np.concatenate([rng.uniform(-1, 1, 1000), 10.0 ** rng.uniform(-30, 30, 1000), [ends.max, ends.tiny]]).astype(dtype)
    y = np.cbrt(x.astype(np.longdouble)).astype(dtype)
    assert (abs(np.asarray(hr.cbrt(hr.array(x))) - y) <= np.spacing(abs(y))).all()
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    np.testing.assert_array_equal(np.asarray(hr.cbrt(hr.array(special))), special)
    assert np.signbit(np.asarray(hr.cbrt(hr.array(special)))).tolist()[:4] == [False, True, False, True]


def test_cube_roots_have_gradients():
    difference(lambda x: hr.cbrt(x).sum(), np.array([0.3, -2.0, 40.0]))
    difference(lambda x: (hr.grad(lambda x: hr.cbrt(x).sum())(x) ** 2).sum(), np.array([0.3, -2.0, 40.0]))
