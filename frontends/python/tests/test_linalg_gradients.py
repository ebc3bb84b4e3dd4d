"""Gradients of hr.linalg: against torch's in f64 and c128, batches, second order against differences, forms of rows."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")

DTYPES = ["float64", "complex128"]
L, T = hr.linalg, torch.linalg


def sample(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, shape)
    return np.asarray(values + 1j * rng.uniform(-1, 1, shape) if "complex" in dtype else values)


def as_tuple(results):
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def weighted(results, weights_of, real):
    """A real number that each result's elements change differently."""
    total = 0
    for i, y in enumerate(as_tuple(results)):
        is_complex = "complex" in str(y.dtype)
        product = y * weights_of(sample(tuple(y.shape), "complex128" if is_complex else "float64", 10 + i))
        total = total + (real(product) if is_complex else product).sum()
    return total


def of_arrays(fun, *xs):
    gradients = hr.grad(lambda *xs: weighted(fun(*xs), hr.array, hr.real), argnums=tuple(range(len(xs))))
    return [np.asarray(g) for g in as_tuple(gradients(*map(hr.array, xs)))]


def of_torch(fun, *xs):
    tensors = [torch.tensor(x, requires_grad=True) for x in xs]
    loss = weighted(fun(*tensors), torch.tensor, torch.real)
    return [g.numpy() for g in torch.autograd.grad(loss, tensors)]


def adjoint(x):
    return hr.conj(x).mT if isinstance(x, hr.Array) else x.mH


def sizes(values_and_vectors):
    """Vectors are unique but for a factor of size 1."""
    values, vectors = values_and_vectors
    return values, abs(vectors)


def singular(module, full):
    def fun(x):
        k = min(x.shape[-2:])
        u, s, vh = module.svd(x, full_matrices=full)
        u, vh = u[..., :, :k], vh[..., :k, :]
        return abs(u), s, abs(vh), u @ vh

    return fun


SQUARE = {
    "cholesky": lambda m: lambda x: m.cholesky(x @ adjoint(x)),
    "cholesky, upper": lambda m: lambda x: m.cholesky(x @ adjoint(x), upper=True),
    "inv": lambda m: m.inv,
    "det": lambda m: m.det,
    "slogdet": lambda m: lambda x: tuple(m.slogdet(x))["complex" not in str(x.dtype) :],
    "eigh": lambda m: lambda x: sizes(m.eigh(x + adjoint(x))),
    "eigh, one triangle": lambda m: lambda x: sizes(m.eigh(x)),
    "eigh, upper": lambda m: lambda x: sizes(m.eigh(x, UPLO="U")),
    "eigvalsh": lambda m: m.eigvalsh,
    "eig": lambda m: lambda x: sizes(m.eig(x)),
    "eigvals": lambda m: m.eigvals,
    "matrix_power": lambda m: lambda x: m.matrix_power(x, -2),
}
ANY = {
    "lu": lambda m: lambda x: tuple(m.lu(x))[1:],
    "qr": lambda m: lambda x: tuple(m.qr(x)),
    "qr, r": lambda m: lambda x: T.qr(x).R if m is T else L.qr(x, mode="r"),
    "svd": lambda m: singular(m, False),
    "svd, full": lambda m: singular(m, True),
    "svdvals": lambda m: m.svdvals,
    "pinv": lambda m: m.pinv,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(2, 1)])
@pytest.mark.parametrize("name", SQUARE)
def test_square_matrices(name, batch, dtype):
    x = sample((*batch, 4, 4), dtype) + 2 * np.eye(4)
    for actual, expected in zip(of_arrays(SQUARE[name](L), x), of_torch(SQUARE[name](T), x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 1, 5, 3), (3, 5)])
@pytest.mark.parametrize("name", ANY)
def test_any_matrices(name, shape, dtype):
    x = sample(shape, dtype, 1)
    for actual, expected in zip(of_arrays(ANY[name](L), x), of_torch(ANY[name](T), x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


SYSTEMS = {
    "solve": (L.solve, T.solve),
    "lower": (lambda a, b: L.solve_triangular(a, b), lambda a, b: T.solve_triangular(a, b, upper=False)),
    "upper": (lambda a, b: L.solve_triangular(a, b, True), lambda a, b: T.solve_triangular(a, b, upper=True)),
    "ones": (
        lambda a, b: L.solve_triangular(a, b, unit_diagonal=True),
        lambda a, b: T.solve_triangular(a, b, upper=False, unitriangular=True),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [((3, 4, 4), (4, 2)), ((2, 1, 4, 4), (3, 4, 1))])
@pytest.mark.parametrize("name", SYSTEMS)
def test_systems(name, shapes, dtype):
    x, y = sample(shapes[0], dtype) + 2 * np.eye(4), sample(shapes[1], dtype, 1)
    ours, theirs = SYSTEMS[name]
    for actual, expected in zip(of_arrays(ours, x, y), of_torch(theirs, x, y), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


def difference(fun, x, step=1e-6):
    """The gradient of fun at x by central differences."""
    result = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][at] += step
        moved[1][at] -= step
        result[at] = (fun(hr.array(moved[0])).item() - fun(hr.array(moved[1])).item()) / (2 * step)
    return result


SECOND = {
    "cholesky": SQUARE["cholesky"](L),
    "solve": lambda x: L.solve(x, x.mT[..., :2]),
    "solve_triangular": lambda x: L.solve_triangular(x, x.mT),
    "inv": L.inv,
    "det": L.det,
    "slogdet": lambda x: L.slogdet(x).logabsdet,
    "eigh": SQUARE["eigh"](L),
    "eigvalsh": lambda x: L.eigvalsh(x + x.mT),
    "lu": ANY["lu"](L),
    "qr": lambda x: L.qr(x[..., :2]),
    "qr, wide": lambda x: L.qr(x[:, :2]),
    "svdvals": L.svdvals,
    "svd": ANY["svd"](L),
}


@pytest.mark.parametrize("name", SECOND)
def test_first_and_second_order_agree_with_differences(name):
    def first(x):
        return weighted(SECOND[name](x), hr.array, hr.real)

    def second(x):
        return (hr.grad(first)(x) * hr.array(sample((2, 3, 3), "float64", 7))).sum()

    x = sample((2, 3, 3), "float64", 2) + 2 * np.eye(3)
    np.testing.assert_allclose(np.asarray(hr.grad(first)(hr.array(x))), difference(first, x), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.asarray(hr.grad(second)(hr.array(x))), difference(second, x), rtol=1e-6, atol=1e-6)
    direction = hr.array(sample(x.shape, "float64", 8))
    _, (product,) = hr.jvp(first, [hr.array(x)], [direction])
    np.testing.assert_allclose(product.item(), (hr.grad(first)(hr.array(x)) * direction).sum().item(), rtol=1e-9)


def test_a_singular_value_without_vectors_reads_them():
    x = hr.array(np.diag([3.0, 2.0, 1.0]))
    np.testing.assert_allclose(np.asarray(hr.grad(lambda x: L.svdvals(x).sum())(x)), np.eye(3), atol=1e-12)


def test_empty_matrices_have_empty_gradients():
    for call in (L.inv, L.cholesky, L.svdvals, L.eigvalsh, lambda x: L.solve(x, x)):
        assert hr.grad(lambda x: call(x).sum())(hr.zeros((2, 0, 0), dtype="float64")).shape == (2, 0, 0)


def test_qr_of_examples():
    x, direction = hr.array(sample((3, 4, 2), "float64")), hr.array(sample((3, 4, 2), "float64", 1))

    def loss(x):
        q, r = L.qr(x)
        return weighted((abs(q), abs(r)), hr.array, hr.real)

    gradients = hr.vmap(hr.grad(loss))(x)
    for i in range(3):
        np.testing.assert_allclose(np.asarray(gradients[i]), np.asarray(hr.grad(loss)(x[i])), atol=1e-12)
    products = hr.vmap(lambda x, t: hr.jvp(loss, [x], [t])[1][0])(x, direction)
    np.testing.assert_allclose(np.asarray(products), np.asarray((gradients * direction).sum((1, 2))), atol=1e-12)
