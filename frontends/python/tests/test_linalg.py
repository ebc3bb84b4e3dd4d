"""hr.fft and hr.linalg against numpy: dtypes, batches, strides, padding, empty arrays, errors."""

import numpy as np
import pytest

import headrace as hr

DTYPES = ["float32", "float64", "complex64", "complex128"]


def sample(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, shape)
    return (values + 1j * rng.uniform(-1, 1, shape)).astype(dtype) if "complex" in dtype else values.astype(dtype)


def close(actual, expected, factor=1):
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    assert str(actual.dtype) == str(expected.dtype)
    tolerance = factor * (2e-5 if str(expected.dtype) in ("float32", "complex64") else 1e-11)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tolerance, atol=tolerance)


# ---- Fourier transforms


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_of_one_axis(name, norm, dtype):
    if name in ("rfft", "ihfft") and "complex" in dtype:
        dtype = dtype.replace("complex64", "float32").replace("complex128", "float64")
    x = sample(dtype, (3, 6, 5))
    for n in (None, 1, 4, 7, 12):
        for axis in (-1, 0, 1):
            expected = getattr(np.fft, name)(x, n, axis, norm)
            close(getattr(hr.fft, name)(hr.array(x), n, axis, norm), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_transforms_of_several_axes(name, norm, dtype):
    if name.startswith("rfft") and "complex" in dtype:
        dtype = dtype.replace("complex64", "float32").replace("complex128", "float64")
    x = sample(dtype, (3, 4, 5))
    for s, axes in [(None, (0, 2)), ((4, 6), (2, 0)), ((5, -1), (-2, -1)), (None, (1, 2))]:
        expected = getattr(np.fft, name)(x, s, axes, norm)
        close(getattr(hr.fft, name)(hr.array(x), s=s, axes=axes, norm=norm), expected)
    close(getattr(hr.fft, name)(hr.array(x)), getattr(np.fft, name)(x))


def test_transforms_of_views_and_integers():
    x = sample("complex128", (8, 6))
    y = hr.array(x)
    close(hr.fft.fft(y.T[::2, 1:]), np.fft.fft(x.T[::2, 1:]))
    close(hr.fft.ifft(hr.flip(y, axis=0), axis=0), np.fft.ifft(x[::-1], axis=0))
    close(hr.fft.irfftn(y[1::3, ::-1]), np.fft.irfftn(x[1::3, ::-1]))
    close(hr.fft.fft(hr.broadcast_to(y[0], (3, 6)), axis=0), np.fft.fft(np.broadcast_to(x[0], (3, 6)), axis=0))
    close(hr.fft.fft(hr.arange(5)), np.fft.fft(np.arange(5)).astype("complex64"))
    close(hr.fft.rfft(hr.zeros((0, 4))), np.zeros((0, 3), "complex64"))
    close(hr.fft.irfft(hr.zeros((0, 4), dtype="complex64")), np.zeros((0, 6), "float32"))
    close(hr.fft.ifft(hr.fft.fft(y)), x)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n):
    close(hr.fft.fftfreq(n, d=0.5, dtype="float64"), np.fft.fftfreq(n, 0.5))
    close(hr.fft.rfftfreq(n, d=0.5, dtype="float64"), np.fft.rfftfreq(n, 0.5))
    assert str(hr.fft.fftfreq(n).dtype) == "float32"
    x = sample("float64", (n, 3))
    for axes in (None, 0, (1,), (0, -1)):
        close(hr.fft.fftshift(hr.array(x), axes), np.fft.fftshift(x, axes))
        close(hr.fft.ifftshift(hr.array(x), axes), np.fft.ifftshift(x, axes))


def test_wrong_transforms_name_the_values():
    x = hr.zeros((2, 3))
    for call, text in [
        (lambda: hr.fft.fft(x, 0), "0 points along axis 1"),
        (lambda: hr.fft.fft(x, axis=2), "axis 2 is out of range for 2 dims"),
        (lambda: hr.fft.fft(x, norm="other"), "other"),
        (lambda: hr.fft.rfft(hr.zeros(3, dtype="complex64")), "expected real numbers"),
        (lambda: hr.fft.fftn(x, (1, 2, 3), (0, 1)), "3 sizes for 2 axes"),
        (lambda: hr.fft.irfft(hr.zeros(1)), "0 points"),
        (lambda: hr.fft.fft(hr.zeros(0)), "0 points"),
        (lambda: hr.fft.fftfreq(0), "0 points"),
        (lambda: hr.fft.fftshift(x, 2), "axis 2"),
    ]:
        with pytest.raises((ValueError, IndexError), match=text):
            call()


# ---- linear algebra


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def regular(dtype, shape, seed=0):
    return sample(dtype, shape, seed) + (2 * np.eye(shape[-1])).astype(dtype)


def positive(dtype, shape):
    x = sample(dtype, shape)
    return x @ adjoint(x) + np.eye(shape[-1]).astype(dtype)


SHAPES = [(4, 4), (2, 3, 4, 4), (1, 1), (0, 4, 4), (3, 0, 0), (0, 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_square_matrices(shape, dtype):
    x, p = regular(dtype, shape), positive(dtype, shape)
    close(hr.linalg.inv(hr.array(x)), np.linalg.inv(x))
    close(hr.linalg.det(hr.array(x)), np.linalg.det(x))
    for actual, expected in zip(hr.linalg.slogdet(hr.array(x)), np.linalg.slogdet(x)):
        close(actual, expected)
    close(hr.linalg.cholesky(hr.array(p)), np.linalg.cholesky(p))
    close(hr.linalg.cholesky(hr.array(p), upper=True), adjoint(np.linalg.cholesky(p)))
    for uplo in "LU":
        close(hr.linalg.eigvalsh(hr.array(x), uplo), np.linalg.eigvalsh(x, uplo), 5)
    values, vectors = hr.linalg.eigh(hr.array(p))
    close(values, np.linalg.eigh(p)[0], 5)
    close(vectors @ (hr.expand_dims(values, -1) * hr.conj(vectors).mT), p, 20)
    for n in (-2, 0, 1, 2, 3, 5):
        close(hr.linalg.matrix_power(hr.array(x), n), np.linalg.matrix_power(x, n), 50)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (0, 0)])
def test_eigenvalues(shape, dtype):
    x = regular(dtype, shape)
    values, vectors = hr.linalg.eig(hr.array(x))
    expected = np.linalg.eigvals(x)
    wide = "complex64" if dtype in ("float32", "complex64") else "complex128"
    assert str(values.dtype) == str(vectors.dtype) == wide
    close(hr.array(np.sort_complex(np.asarray(values))), np.sort_complex(expected.astype(wide)), 20)
    close(hr.linalg.eigvals(hr.array(x)), np.asarray(values), 20)
    close(hr.array(x.astype(wide)) @ vectors, np.asarray(vectors * hr.expand_dims(values, -2)), 50)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 3, 4, 4), (2, 4, 3), (0, 3), (3, 0), (2, 0, 3)])
def test_functions_of_any_matrices(shape, dtype):
    x = sample(dtype, shape)
    for mode in ("reduced", "complete"):
        q, r = hr.linalg.qr(hr.array(x), mode)
        expected = np.linalg.qr(x, mode)
        assert (q.shape, r.shape) == (expected.Q.shape, expected.R.shape)
        close(q @ r, x, 5)
        ones = np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), (*shape[:-2], q.shape[-1], q.shape[-1]))
        close(hr.conj(q).mT @ q, ones, 5)
        assert not np.tril(np.asarray(r), -1).any()
    for full in (True, False):
        u, s, vh = hr.linalg.svd(hr.array(x), full_matrices=full)
        expected = np.linalg.svd(x, full)
        close(s, expected.S, 5)
        assert (u.shape, vh.shape) == (expected.U.shape, expected.Vh.shape)
        k = s.shape[-1]
        close((u[..., :k] * hr.astype(hr.expand_dims(s, -2), u.dtype)) @ vh[..., :k, :], x, 5)
    close(hr.linalg.svdvals(hr.array(x)), np.linalg.svd(x, compute_uv=False), 5)
    close(hr.linalg.pinv(hr.array(x)), np.linalg.pinv(x), 50)
    close(hr.linalg.matrix_rank(hr.array(x)), np.linalg.matrix_rank(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_of_lu(dtype):
    for shape in [(4, 4), (5, 3), (2, 3, 5)]:
        x = sample(dtype, shape)
        order, lower, upper = hr.linalg.lu(hr.array(x))
        rows = np.take_along_axis(x, np.asarray(order)[..., None], -2)
        close(lower @ upper, rows)
        assert not np.triu(np.asarray(lower), 1).any() and not np.tril(np.asarray(upper), -1).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems(dtype):
    shapes = [((4, 4), (4, 2)), ((4, 4), (4,)), ((3, 4, 4), (4, 2)), ((4, 4), (2, 4, 3)), ((2, 1, 4, 4), (3, 4, 1))]
    shapes += [((2, 4, 4), (4,)), ((0, 4, 4), (4, 2)), ((4, 4), (4, 0)), ((0, 0), (0, 3))]
    for left, right in shapes:
        x, y = regular(dtype, left), sample(dtype, right, 1)
        close(hr.linalg.solve(hr.array(x), hr.array(y)), np.linalg.solve(x, y), 5)
        for upper in (False, True):
            triangle = np.triu(x) if upper else np.tril(x)
            close(hr.linalg.solve_triangular(hr.array(x), hr.array(y), upper), np.linalg.solve(triangle, y), 50)
    x = regular(dtype, (4, 4))
    unit = np.tril(x, -1) + np.eye(4)
    actual = hr.linalg.solve_triangular(hr.array(x), hr.array(x), unit_diagonal=True)
    close(actual, np.linalg.solve(unit, x).astype(dtype), 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_systems_on_the_right_and_transposed(dtype):
    x = regular(dtype, (2, 4, 4))
    lower = np.tril(x)
    turned = {"none": lower, "transpose": np.swapaxes(lower, 1, 2), "adjoint": adjoint(lower)}
    for transpose, matrix in turned.items():
        rows, vector = sample(dtype, (2, 3, 4), 1), sample(dtype, (4,), 2)
        z = hr.linalg.solve_triangular(hr.array(x), hr.array(rows), left=False, transpose=transpose)
        close(z, rows @ np.linalg.inv(matrix), 50)
        z = hr.linalg.solve_triangular(hr.array(x), hr.array(vector), left=False, transpose=transpose)
        close(z, vector @ np.linalg.inv(matrix), 50)


def test_a_failed_cholesky_factorisation_is_reported():
    x = np.array([[[4.0, 2], [2, 5]], [[1, 0], [0, -1]]], np.float32)
    for upper in (False, True):
        factor, info = hr.linalg.cholesky_ex(hr.array(x), upper)
        assert np.asarray(info).tolist() == [0, 2]
        close(np.asarray(factor)[0], np.linalg.cholesky(x[0]).T if upper else np.linalg.cholesky(x[0]))
    assert hr.linalg.cholesky_ex(hr.zeros((3, 0, 0)))[1].shape == (3,)


def test_views_of_matrices():
    x = regular("float64", (8, 8))
    y = hr.array(x)
    close(hr.linalg.inv(y.T), np.linalg.inv(x.T))
    close(hr.linalg.solve(y[::2, ::2], y[1::2, ::-3].T[0]), np.linalg.solve(x[::2, ::2], x[1::2, ::-3].T[0]))
    close(hr.linalg.det(y[::-1, 2:][2:, :][:6]), np.linalg.det(x[::-1, 2:][2:, :]))
    close(hr.linalg.svdvals(y[1:4, ::2].T), np.linalg.svd(x[1:4, ::2].T, compute_uv=False))
    close(hr.linalg.solve(hr.broadcast_to(y, (3, 8, 8)), y), np.linalg.solve(np.broadcast_to(x, (3, 8, 8)), x))
    whole = hr.array([[2, 1], [1, 3]])
    close(hr.linalg.inv(whole), np.linalg.inv([[2, 1], [1, 3]]).astype("float32"))
    close(hr.linalg.solve(whole, hr.array([1.0, 2.0], dtype="float64")), np.linalg.solve([[2, 1], [1, 3]], [1, 2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype):
    x = sample(dtype, (2, 3, 4))
    y = hr.array(x)
    for ord in ("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf")):
        for keepdims in (False, True):
            expected = np.linalg.matrix_norm(x, ord=ord, keepdims=keepdims)
            close(hr.linalg.matrix_norm(y, ord=ord, keepdims=keepdims), expected, 5)
            expected = np.linalg.norm(x, ord, (2, 0), keepdims)
            close(hr.linalg.norm(y, ord, (2, 0), keepdims), expected, 5)
    close(hr.linalg.norm(y), np.linalg.norm(x))
    close(hr.linalg.norm(y, 3, 1), np.linalg.norm(x, 3, 1))
    close(hr.linalg.norm(y, axis=(0, 1)), np.linalg.norm(x, axis=(0, 1)))
    square = regular(dtype, (3, 3))
    for p in (None, 2, -2, 1, "fro"):
        close(hr.linalg.cond(hr.array(square), p), np.linalg.cond(square, p), 20)


def test_products_of_many():
    sizes = [3, 5, 2, 7, 4]
    matrices = [sample("float64", (a, b), a) for a, b in zip(sizes, sizes[1:])]
    close(hr.linalg.multi_dot([hr.array(x) for x in matrices]), np.linalg.multi_dot(matrices))
    vectors = [sample("float64", 3), *matrices, sample("float64", 4)]
    close(hr.linalg.multi_dot(vectors), np.linalg.multi_dot(vectors))
    assert hr.linalg.matmul is hr.matmul and hr.linalg.tensordot is hr.tensordot
    close(hr.linalg.matrix_transpose(hr.array(matrices[0])), matrices[0].T)


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "int32", "uint8", "bool"])
def test_one_matrix_for_a_batch(dtype):
    rng = np.random.default_rng(0)
    w, x = (rng.integers(0, 2 if dtype == "bool" else 4, shape).astype(dtype) for shape in ((5, 8), (2, 3, 8, 6)))
    a, b = hr.array(w), hr.array(x)
    wt, xt = hr.array(np.ascontiguousarray(w.T)).T, hr.array(np.ascontiguousarray(x.swapaxes(0, 1))).swapaxes(0, 1)
    for left, right, numbers in [
        (a, b, (w, x)),
        (wt, xt, (w, x)),
        (a[::-2, 1:], b[:, 1:, 1:, ::-1], (w[::-2, 1:], x[:, 1:, 1:, ::-1])),
        (b.mT, a.mT, (x.swapaxes(-1, -2), w.T)),
        (a, hr.broadcast_to(b[0, 0], (4, 8, 6)), (w, np.broadcast_to(x[0, 0], (4, 8, 6)))),
        (hr.expand_dims(b[:, 0], 1).mT, b[0], (x[:, :1].swapaxes(-1, -2), x[0])),
        (a, b[:0], (w, x[:0])),
    ]:
        np.testing.assert_array_equal(np.asarray(left @ right), numbers[0] @ numbers[1])


def test_gradients_of_one_matrix_for_a_batch():
    w, x = hr.array(sample("float64", (4, 5))), hr.array(sample("float64", (3, 5, 2), 1))
    loss = lambda w, x: hr.tanh(w @ x).sum()
    gradients = hr.grad(loss, (0, 1))(w, x)
    single = hr.grad(lambda w, x: sum(hr.tanh(w @ x[i]).sum() for i in range(3)), (0, 1))(w, x)
    mapped = hr.vmap(hr.grad(loss, (0, 1)), (None, 0))(w, x)
    close(gradients[0], single[0])
    close(gradients[1], single[1])
    close(mapped[0].sum(axis=0), single[0])
    close(mapped[1], single[1])


def test_ranks():
    x = np.diag([1.0, 1e-3, 0])
    assert hr.linalg.matrix_rank(hr.array(x)).item() == 2
    assert hr.linalg.matrix_rank(hr.array(x), rtol=0.01).item() == 1
    close(hr.linalg.pinv(hr.array(x), rtol=0.01), np.linalg.pinv(x, 0.01))


def test_wrong_matrices_name_the_values():
    x, wide = hr.zeros((3, 3)), hr.zeros((2, 3))
    for name in ("cholesky", "inv", "det", "slogdet", "eigh", "eigvalsh", "eig", "eigvals"):
        with pytest.raises(ValueError, match=rf"{name}: .*\[2,3\], expected square"):
            getattr(hr.linalg, name)(wide)
    for name in ("cholesky", "svd", "qr", "lu"):
        with pytest.raises(ValueError, match="1 dims, expected at least 2"):
            getattr(hr.linalg, name)(hr.zeros(3))
        with pytest.raises(Exception, match="dtype f16"):
            getattr(hr.linalg, name)(hr.zeros((3, 3), dtype="float16"))
    for call, text in [
        (lambda: hr.linalg.solve(x, hr.zeros((2, 3))), r"\[2,3\] don't fit matrices of dims \[3,3\]"),
        (lambda: hr.linalg.solve(hr.zeros((2, 3, 3)), hr.zeros((4, 3, 1))), "can't be broadcast"),
        (lambda: hr.linalg.qr(x, "other"), "other"),
        (lambda: hr.linalg.eigh(x, "X"), "X"),
        (lambda: hr.linalg.matrix_norm(x, ord=3), "ord 3"),
        (lambda: hr.linalg.matrix_power(wide, 2), "expected square"),
        (lambda: hr.linalg.multi_dot([x]), "1 arrays"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()


def test_failed_decompositions_raise_at_the_wait():
    singular = hr.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]])
    for call, text in [
        (lambda: hr.linalg.inv(singular), "inv: matrix 1 of 2 is singular"),
        (lambda: hr.linalg.solve(singular, hr.ones((2, 1))), "solve: matrix 1 of 2 is singular"),
        (lambda: hr.linalg.cholesky(hr.array([[1.0, 0.0], [0.0, -1.0]])), "matrix 0 of 1 is not positive-definite"),
    ]:
        with pytest.raises(ValueError, match=text):
            hr.eval(call())
    assert hr.linalg.det(singular).tolist() == [1, 0]  # the stream goes on
    assert hr.linalg.slogdet(singular).logabsdet.tolist() == [0, float("-inf")]
