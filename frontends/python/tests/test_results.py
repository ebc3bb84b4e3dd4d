"""Functions with as many results as arguments or slices, and members of sets, against NumPy."""

import numpy as np
import pytest

import headrace as hr


def same(actual, expected):
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            same(a, e)
        return
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-6)


X = np.arange(24.0).reshape(2, 3, 4)
V = np.array([3, 1, 2, 3, 0], np.int64)
BOTH = {"x": X, "v": V, "t": X.transpose(2, 0, 1)[::-1], "e": np.zeros((0, 3))}
GIVEN = {name: hr.array(x) for name, x in BOTH.items() if name != "t"}
GIVEN["t"] = hr.permute_dims(GIVEN["x"], (2, 0, 1))[::-1]

CASES = """
np.meshgrid(a.v, a.x[0, 0])
np.meshgrid(a.v, a.x[0, 0], a.v[:2], indexing="ij")
np.meshgrid(a.v, a.x[0, 0], a.v[:2])
np.meshgrid(a.v)
np.meshgrid(a.v, a.e[:, 0])
np.broadcast_arrays(a.x, a.x[:, :1], a.x[0, 0, 0])
np.broadcast_arrays(a.v)
np.unstack(a.x)
np.unstack(a.t, axis=-1)
np.unstack(a.e)
np.matrix_transpose(a.t)
np.isin(a.v, a.x)
np.isin(a.x, a.v, invert=True)
np.isin(a.x, a.v[:0])
np.isin(a.v > 1, a.v[:1] > 5)
np.isin(a.x * 1j, a.v * 1j)
np.isin(a.x / 0, a.x / 0)
np.nonzero(a.x - 3)
np.nonzero(a.t > 4)
np.sign(a.x * 1j - 3)
np.round(a.x * (0.3 + 0.7j))
np.round(a.x * (0.3 + 0.7j) / 7, 2)
"""


class Names:
    def __init__(self, names):
        self.__dict__.update(names)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_as_numpy(case):
    if not hasattr(np, case[3 : case.index("(")]):
        pytest.skip("an older NumPy")
    expected = eval(case, {"np": np, "a": Names(BOTH)})
    actual = eval(case, {"np": hr, "a": Names(GIVEN)})
    same(actual, expected)


def test_kinds_of_results():
    x = hr.ones((2, 3))
    assert isinstance(hr.unstack(x), tuple) and isinstance(hr.meshgrid(x[0]), list) and hr.unstack(x[:0]) == ()
    assert isinstance(hr.broadcast_arrays(x), list) and isinstance(hr.nonzero(x), tuple)
    assert len(hr.unstack(hr.ones(100))) == 100


def test_gradients_go_through_several_results():
    def loss(x):
        a, b = hr.unstack(x)
        c, d = hr.broadcast_arrays(a, b[:1])
        e, f = hr.meshgrid(c, d)
        return (a * b).sum() + (e * f).sum()

    x = hr.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert hr.grad(loss)(x).tolist() == [[16, 17, 18], [1 + 3 * 6, 2, 3]]


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda x: hr.unstack(x, axis=2), ValueError, "axis 2 is out of range"),
        (lambda x: hr.unstack(x[0, 0]), ValueError, "axis 0 is out of range"),
        (lambda x: hr.meshgrid(x), ValueError, "input 0 has 2 dims"),
        (lambda x: hr.meshgrid(x[0], indexing="zz"), ValueError, "expected one of xy, ij"),
        (lambda x: hr.meshgrid(), (TypeError, ValueError), ""),
        (lambda x: hr.meshgrid(x[0], dense=True), TypeError, "dense"),
        (lambda x: hr.broadcast_arrays(x, x.T), ValueError, "broadcast"),
        (lambda x: hr.nonzero(x[0, 0]), ValueError, "no dims"),
    ],
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message or None):
        call(hr.ones((2, 3)))
