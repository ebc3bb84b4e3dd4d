"""The array API standard beyond functions, against numpy's answers."""

import numpy as np
import pytest

import headrace as hr

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_floating_dtypes_are_described(name):
    ours, theirs = hr.finfo(name), np.finfo(name)
    assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
    assert ours.smallest_normal == theirs.smallest_normal and ours.dtype.name == theirs.dtype.name
    assert hr.finfo(hr.ones(2, dtype=name)) == ours


@pytest.mark.parametrize("name", ["int8", "int32", "int64", "uint8", "uint64"])
def test_dtypes_of_integers_are_described(name):
    ours, theirs = hr.iinfo(name), np.iinfo(name)
    assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)


def test_kinds_of_dtypes():
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")
    for name in DTYPES:
        for kind in kinds:
            assert hr.isdtype(getattr(hr, name), kind) == np.isdtype(np.dtype(name), kind)
    assert hr.isdtype(hr.float32, (hr.int8, "real floating")) and not hr.isdtype(hr.float32, hr.float64)


def test_promotion():
    assert hr.result_type(hr.int8, hr.int32, hr.ones(1, dtype="int16")) == hr.int32
    assert hr.result_type(hr.float64, hr.complex64) == hr.complex128
    assert hr.result_type(hr.int16, 1.5) == hr.float32 and hr.result_type(hr.float64, 1) == hr.float64
    assert hr.can_cast(hr.int8, hr.int16) and not hr.can_cast(hr.float64, hr.float32)


def test_sets():
    x = [[3, 1], [1, 2]]
    for ours, theirs in zip(hr.unique_all(hr.array(x)), np.unique_all(np.array(x)), strict=True):
        assert ours.tolist() == theirs.tolist()
    assert hr.unique_counts(hr.array(x)).counts.tolist() == [2, 1, 1]
    assert hr.unique_inverse(hr.array(x)).inverse_indices.tolist() == [[2, 0], [0, 1]]
    assert hr.unique_values(hr.array(x)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sets_of_complex_numbers(dtype):
    x = np.array([[2 + 1j, 1, 2, 1], [1, -2j, 2 + 1j, 0]], dtype=dtype)
    for part in (x, x.T[1:, ::-1], x[:0]):
        for ours, theirs in zip(hr.unique_all(hr.array(part)), np.unique_all(part), strict=True):
            assert ours.tolist() == theirs.tolist()
        assert hr.unique_values(hr.array(part)).dtype.name == dtype
    nans = hr.unique_all(hr.array([complex(1, float("nan")), 1, complex(1, float("nan")), 1], dtype=dtype))
    assert nans.counts.tolist() == [2, 1, 1] and nans.inverse_indices.tolist() == [1, 0, 2, 0]


def test_namespace():
    x = hr.ones((2, 3))
    assert x.__array_namespace__(api_version="2024.12") is hr
    assert hr.__array_api_version__ == "2024.12" and hr.matrix_transpose(x).shape == (3, 2)
    info = hr.__array_namespace_info__()
    assert info.default_device() in info.devices() and info.default_dtypes()["integral"] == hr.int64
    assert {*info.dtypes()} == {*DTYPES} and {*info.dtypes(kind="bool")} == {"bool"}
    assert x.to_device("cpu").tolist() == x.tolist()


M = np.arange(24.0).reshape(2, 3, 4)
CALLS = {
    "concat": [lambda m, x: m.concat([x, x], axis=None), lambda m, x: m.concat([x, x], axis=1)],
    "diff": [lambda m, x: m.diff(x, axis=0, prepend=x[:1], append=x), lambda m, x: m.diff(x, 2)],
    "moveaxis": [lambda m, x: m.moveaxis(x, (0, -1), (-1, 0)), lambda m, x: m.moveaxis(x, 0, 2)],
    "repeat": [lambda m, x: m.repeat(x, 2), lambda m, x: m.repeat(x, m.asarray([0, 2, 1]), axis=1)],
    "roll": [lambda m, x: m.roll(x, 5), lambda m, x: m.roll(x, (1, -2), axis=(0, 2)), lambda m, x: m.roll(x, 1, axis=0)],
    "tensordot": [lambda m, x: m.tensordot(x, x, axes=((0, 2), (0, 2))), lambda m, x: m.tensordot(x, x[0].T, axes=1)],
    "searchsorted": [lambda m, x: m.searchsorted(-x[0, 0], x[0, :, 0] - 3, sorter=m.asarray([3, 2, 1, 0]))],
    "cumulative": [lambda m, x: m.cumulative_sum(x, axis=1, dtype=m.float32, include_initial=True)],
    "eye": [lambda m, x: m.eye(3, 4, k=1, dtype=m.float64), lambda m, x: m.eye(3, k=-2), lambda m, x: m.eye(2, k=7)],
    "sign": [lambda m, x: m.sign((x - 12) * m.asarray(float("nan"))), lambda m, x: m.sign(x - 12)],
    "sum": [lambda m, x: m.sum(m.asarray([200, 200], dtype=m.uint8))],
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_have_the_standards_arguments(name):
    for call in CALLS[name]:
        actual, expected = call(hr, hr.array(M)), call(np, M)
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(np.asarray(actual), expected)


def test_as_many_results_as_inputs():
    x, y = np.arange(3), np.arange(2.0)
    for indexing in ("xy", "ij"):
        for ours, theirs in zip(hr.meshgrid(x, y, indexing=indexing), np.meshgrid(x, y, indexing=indexing), strict=True):
            assert ours.tolist() == theirs.tolist()
    assert [part.shape for part in hr.broadcast_arrays(hr.ones((3, 1)), hr.ones(2))] == [(3, 2), (3, 2)]
    assert [part.tolist() for part in hr.unstack(hr.array(M), axis=1)] == [M[:, i].tolist() for i in range(3)]
    assert hr.unstack(hr.ones((0, 2))) == () and isinstance(hr.meshgrid(hr.ones(2)), list)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        hr.broadcast_arrays(hr.ones(2), axes=1)
    assert hr.grad(lambda x: (hr.unstack(x)[1] ** 2).sum())(hr.array([[1.0], [3.0]])).tolist() == [[0], [6]]


def test_special_numbers_of_complex_arrays():
    x = np.array([1 + 2j, complex("nan"), complex(1, float("nan")), complex(float("inf"), float("nan"))])
    for name in ("isnan", "isinf", "isfinite"):
        assert getattr(hr, name)(hr.array(x)).tolist() == getattr(np, name)(x).tolist()
    assert hr.round(hr.array([1.26 - 2.5j]), 1).tolist() == pytest.approx([1.3 - 2.5j])
    assert hr.eye(2, k=10**30).tolist() == hr.eye(2, k=-(10**30)).tolist() == [[0, 0], [0, 0]]
    zero = hr.sign(hr.array([complex(-0.0, 0)])).item()
    assert str(zero) == "0j" and hr.trace(hr.ones((2, 2), dtype=hr.uint8)).dtype == hr.uint64
    assert hr.astype(hr.ones(2), hr.int8, device="cpu").dtype == hr.int8


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_expm1_of_complex_infinities(dtype):
    inf, nan = float("inf"), float("nan")
    parts = [inf, -inf, nan, 0.0, -0.0, 1.0, -2.0]
    x = np.array([complex(a, b) for a in parts for b in parts], dtype=dtype)
    y = np.asarray(hr.expm1(hr.array(x)))
    finite = np.isfinite(x)
    np.testing.assert_allclose(y[finite], np.expm1(x[finite].astype("complex128")), rtol=1e-6)
    for z, y in zip(x[~finite], y[~finite]):
        turn = (np.cos(z.imag), np.sin(z.imag)) if np.isfinite(z.imag) else None
        if np.isinf(z.real) and turn is None:  # as in PyTorch and JAX
            assert np.isnan(y.real) and np.isnan(y.imag)
        elif z.real == -inf:
            assert y.real == -1 and y.imag == 0
        elif z.real == inf:
            assert y.real == inf * turn[0] and y.imag == (inf * turn[1] if z.imag else 0)
        else:
            assert np.isnan(y.real) and (y.imag == 0 if z.imag == 0 else np.isnan(y.imag))


def test_asarray_is_the_array_itself_unless_something_changes():
    x = hr.ones((2, 3))
    for same in (hr.asarray(x), hr.asarray(x, copy=False), hr.asarray(x, dtype=x.dtype), hr.asarray(x, device="cpu")):
        assert same is x
    x[0, 0] = 5
    assert hr.asarray(x, copy=False)[0, 0].item() == 5
    other = hr.asarray(x, copy=True)
    x[0, 0] = 6
    assert other[0, 0].item() == 5 and hr.asarray(x, dtype="int8") is not x
    with pytest.raises(ValueError, match="another dtype needs a copy"):
        hr.asarray(x, dtype="int8", copy=False)


def test_division_of_infinities_and_zeros():
    x = hr.array([float("inf"), -float("inf"), 5.0, -5.0, 0.0, -0.0])
    assert (x // 2).tolist() == [float("inf"), -float("inf"), 2, -3, 0, 0]
    below = x[2:4] // float("inf")
    assert below.tolist() == [0, 0] and hr.signbit(below).tolist() == [False, True]
    assert hr.signbit(x[4:] % 2).tolist() == [False, False] and hr.signbit(x[4:] % -2).tolist() == [True, True]
    assert hr.sign(hr.array([0j, 3 + 4j])).tolist() == pytest.approx([0, 0.6 + 0.8j])
    assert (7 // hr.array([2, -3])).tolist() == [3, -3] and (hr.array(1.0) // 0.1).item() == 9


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hr.finfo(hr.int8), "int8 is not floating"),
        (lambda: hr.iinfo(hr.float32), "float32 is no dtype of integers"),
        (lambda: hr.isdtype(hr.int8, "real"), "kind 'real', expected one of 'bool'"),
        (lambda: hr.result_type(1.5), "at least one array or dtype"),
        (lambda: hr.ones(1).__array_namespace__(api_version="1999.1"), "'1999.1', expected one of 2021.12"),
        (lambda: hr.moveaxis(hr.ones((2, 3)), (0, 1), 0), "expected as many different axes"),
        (lambda: hr.moveaxis(hr.ones((2, 3)), 0, 2), "axis 2 is out of range for 2 dims"),
        (lambda: hr.repeat(hr.ones(2), hr.array([1, -1])), "-1 times, expected 0 or more"),
        (lambda: hr.roll(hr.ones((2, 3)), (1, 2, 3), axis=(0, 1)), "3 shifts for 2 axes"),
        (lambda: hr.tensordot(hr.ones(2), hr.ones(2), 2), "2 axes of arrays of 1 and 1 dims"),
        (lambda: hr.ones(1).to_device("cpu", stream=3), "stream is 3, expected None"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
