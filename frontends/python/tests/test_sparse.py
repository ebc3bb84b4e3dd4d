"""Sparse matrices in coordinates, and in compressed rows or columns, against dense ones and differences."""

import numpy as np
import pytest

import headrace as hr
from differences import difference

rng = np.random.default_rng(53)


def sparse(rows, columns, count, format):
    """Values and places in the order of the format, and the dense matrix."""
    at = np.stack([rng.integers(0, rows, count), rng.integers(0, columns, count)])
    if format != "coo":
        at = at[:, np.lexsort(at[::-1] if format == "csr" else at)]
    values = rng.uniform(-1, 1, count)
    dense = np.zeros((rows, columns))
    np.add.at(dense, tuple(at), values)
    first = [np.searchsorted(np.sort(at[i]), np.arange(n + 1)) for i, n in enumerate((rows, columns))]
    places = {"coo": at, "csr": (first[0], at[1]), "csc": (at[0], first[1])}[format]
    return [values, *places], dense


def arrays(parts):
    return [hr.array(np.ascontiguousarray(p)) for p in parts]


@pytest.mark.parametrize("format", ["coo", "csr", "csc"])
@pytest.mark.parametrize("rows, columns, count", [(5, 4, 9), (6, 3, 2), (1, 7, 20), (4, 5, 0)])
def test_products_of_sparse_matrices(format, rows, columns, count):
    parts, dense = sparse(rows, columns, count, format)
    y, vector = rng.uniform(-1, 1, (columns, 3)), rng.uniform(-1, 1, columns)
    for value in (y, vector):
        product = hr.sparse_matmul(*arrays(parts), hr.array(value), format=format, count=rows)
        np.testing.assert_allclose(np.asarray(product), dense @ value, 1e-12, 1e-12)
    whole = hr.sparse_to_dense(*arrays(parts), [rows, columns], format)
    np.testing.assert_allclose(np.asarray(whole), dense, 1e-12, 1e-12)
    if format == "csr":
        np.testing.assert_allclose(np.asarray(hr.sparse_matmul(*arrays(parts), hr.array(y), format=format)), dense @ y,
                                   1e-12, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "complex64"])
def test_dtypes_of_sparse_matrices(dtype):
    at = hr.array([0, 2, 2], dtype=hr.int32), hr.array([1, 0, 1], dtype=hr.int32)
    values = hr.array([2, 3, 4]).astype(dtype)
    y = hr.sparse_matmul(values, *at, hr.array([[1, 2], [5, 6]]).astype(dtype), count=3)
    assert str(y.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(y), np.array([[10, 12], [0, 0], [23, 30]]).astype(dtype))


@pytest.mark.parametrize("format", ["coo", "csr", "csc"])
def test_gradients_of_sparse_matrices(format):
    parts, _ = sparse(4, 5, 7, format)
    values, *at = parts
    y = rng.uniform(-1, 1, (5, 2))
    at = arrays(at)
    difference(lambda v: (hr.sparse_matmul(v, *at, hr.array(y), format=format, count=4) ** 2).sum(), values)
    difference(lambda y: (hr.sparse_matmul(hr.array(values), *at, y, format=format, count=4) ** 2).sum(), y)
    difference(lambda v: (hr.sparse_to_dense(v, *at, [4, 5], format) ** 2).sum(), values)


def test_bad_sparse_matrices():
    values, at = hr.ones(3), hr.array([0, 1, 2])
    with pytest.raises(ValueError, match="rows has dims"):
        hr.sparse_matmul(values, hr.array([0, 1]), at, hr.ones(3), count=3)
    with pytest.raises(ValueError, match="expected 1 or 2 dims, and the number of rows"):
        hr.sparse_matmul(values, at, at, hr.ones(3))
    with pytest.raises(ValueError, match="expected integers"):
        hr.sparse_matmul(values, hr.ones(3), at, hr.ones(3), count=3)
    with pytest.raises(IndexError):
        hr.eval(hr.sparse_matmul(values, at, at, hr.ones(2), count=3))
    with pytest.raises(IndexError):
        hr.eval(hr.sparse_matmul(values, at, at, hr.ones(3), count=2))
