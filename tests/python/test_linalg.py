"""Linear algebra against torch's CPU device: real and complex, batches, layouts, empty matrices, out=, info and errors.

Factors are unique up to signs and phases, so some are compared by their product.
"""

import pytest
import torch
from support import DEVICE, assert_same

L = torch.linalg
TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(3, 3), (1, 1), (2, 4, 4), (2, 1, 5, 5), (30, 30), (0, 0), (0, 3, 3)]
TALL = [(5, 3), (3, 5), (2, 4, 3), (2, 3, 4), (0, 3), (3, 0), (0, 2, 3)]


def matrix(shape, dtype, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def positive(shape, dtype):
    a = matrix(shape, dtype)
    return a @ a.mH + torch.eye(shape[-1], dtype=dtype)


def rows_and_columns(a):
    """The same matrix with dense rows, dense columns, and neither."""
    yield a
    yield a.mT.contiguous().mT
    yield torch.stack([a, a], -1)[..., 0]


def bound_of(dtype):
    return 2e-4 if dtype in (torch.float32, torch.complex64) else 1e-11


def close(function, *tensors, factor=1):
    """True if the function gives the same on both devices, within a bound relative to the largest element."""
    actual, expected = function(*[t.to(DEVICE) for t in tensors]), function(*tensors)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if e.dtype.is_floating_point or e.dtype.is_complex:
            bound = factor * bound_of(e.dtype)
            largest = e.abs().nan_to_num(posinf=0).max().item() if e.numel() else 0
            assert_same(a, e, f"result {i}", rtol=bound, atol=bound * max(largest, 1e-3))
        else:
            assert_same(a, e, f"result {i}")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_square_matrices(dtype, shape):
    b = matrix((*shape[:-1], 2), dtype, 1)
    for a in rows_and_columns(matrix(shape, dtype)):
        close(
            lambda a, b: (
                L.inv(a),
                L.solve(a, b),
                L.solve(a.mT, b),
                L.solve(a.mH, b),
                L.solve(a, b.mT, left=False),
                *L.lu_factor_ex(a),
                *torch.lu_unpack(*L.lu_factor(a)),
                *L.lu(a),
            ),
            a,
            b,
            factor=10,
        )
        close(lambda a: (L.det(a), *L.slogdet(a)), a)
        close(lambda a: (L.matrix_exp(a / 4), L.matrix_power(a, 3)), a)
        close(
            lambda a, b: (
                L.lu_solve(*L.lu_factor(a), b),
                L.lu_solve(*L.lu_factor(a), b, adjoint=True),
                L.lu_solve(*L.lu_factor(a), b.mT, left=False),
                L.lu_solve(*L.lu_factor(a), b.mT, left=False, adjoint=True),
            ),
            a,
            b,
            factor=10,
        )
        close(
            lambda a, b: (
                L.solve_triangular(a.tril(), b, upper=False),
                L.solve_triangular(a, b, upper=True, unitriangular=True),
                L.solve_triangular(a.mH, b.mT, upper=False, left=False),
                *torch.triangular_solve(b, a, upper=False, transpose=True),
            ),
            a,
            b,
            factor=100,
        )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_hermitian_matrices(dtype, shape):
    b = matrix((*shape[:-1], 2), dtype, 1)
    for a in rows_and_columns(positive(shape, dtype)):
        close(
            lambda a: (
                L.cholesky(a),
                L.cholesky(a, upper=True),
                *L.cholesky_ex(a),
                torch.cholesky_inverse(L.cholesky(a)),
                torch.cholesky_inverse(L.cholesky(a, upper=True), upper=True),
                L.eigvalsh(a),
                L.eigvalsh(a, UPLO="U"),
            ),
            a,
        )
        close(
            lambda a, b: (
                torch.cholesky_solve(b, L.cholesky(a)),
                torch.cholesky_solve(b, L.cholesky(a, upper=True), upper=True),
            ),
            a,
            b,
        )
        close(lambda a, b: (L.ldl_solve(*L.ldl_factor(a, hermitian=True), b, hermitian=True),), a, b)
        close(lambda a: L.ldl_factor_ex(a, hermitian=True), a)
        values, vectors = L.eigh(a.to(DEVICE))
        made = ((vectors * values.unsqueeze(-2)) @ vectors.mH).cpu()
        assert_same(
            made, a, rtol=bound_of(dtype), atol=bound_of(dtype) * max(1, a.abs().max().item() if a.numel() else 1)
        )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", TALL)
def test_other_matrices(dtype, shape):
    for a in rows_and_columns(matrix(shape, dtype)):
        close(lambda a: (*L.qr(a), *L.qr(a, mode="complete"), *L.qr(a, mode="r"), *torch.geqrf(a), L.svdvals(a)), a)
        for full in (False, True):
            u, s, v = L.svd(a.to(DEVICE), full_matrices=full)
            least = min(shape[-2:])
            made = ((u[..., :least] * s.unsqueeze(-2)) @ v[..., :least, :]).cpu()
            assert_same(made, a, rtol=bound_of(dtype), atol=bound_of(dtype) * 10)
            expected = L.svd(a, full_matrices=full)
            assert [x.shape for x in (u, s, v)] == [x.shape for x in expected]
        close(lambda a: (L.pinv(a), L.lu(a)[0] @ L.lu(a)[1] @ L.lu(a)[2]), a, factor=10)
        if shape[-2] >= shape[-1]:
            close(
                lambda a: (
                    L.householder_product(*torch.geqrf(a)),
                    torch.ormqr(*torch.geqrf(a), a),
                    torch.ormqr(*torch.geqrf(a), a, transpose=True),
                    torch.ormqr(*torch.geqrf(a), a.mT, left=False),
                ),
                a,
            )


def right_hand_sides(shape, lines):
    """Wide and tall ones, in each of which columns, or rows, go to several workers."""
    *batch, n, _ = shape
    return (*batch, n, lines), (*batch, lines, n)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(150, 150), (3, 120, 120)])
@pytest.mark.parametrize("lines", [1, 7, 131])
def test_right_hand_sides_of_many_lines(dtype, shape, lines):
    a, wide, tall = matrix(shape, dtype), *(matrix(s, dtype, 1) for s in right_hand_sides(shape, lines))
    a = a + 30 * torch.eye(shape[-1], dtype=dtype)
    for b in rows_and_columns(wide):
        close(lambda a, b: [L.solve_triangular(a, b, upper=False), L.solve_triangular(a.mT, b, upper=True)], a, b)
        close(lambda lu, p, b: [L.lu_solve(lu, p, b), L.lu_solve(lu, p, b, adjoint=True)], *L.lu_factor(a), b)
        close(lambda f, b: [torch.cholesky_solve(b, f)], L.cholesky(positive(shape, dtype) + a.mH @ a), b)
        close(lambda ld, p, b: [L.ldl_solve(ld, p, b)], *L.ldl_factor(positive(shape, dtype) + a.mH @ a), b)
        close(lambda q, t, b: [torch.ormqr(q, t, b), torch.ormqr(q, t, b, transpose=True)], *torch.geqrf(a), b)
    for b in rows_and_columns(tall):
        close(lambda a, b: [L.solve_triangular(a, b, upper=True, left=False)], a, b)
        close(lambda q, t, b: [torch.ormqr(q, t, b, left=False)], *torch.geqrf(a), b)


@pytest.mark.parametrize("dtype", TYPES)
def test_eigenvalues(dtype):
    for shape in [(3, 3), (2, 6, 6), (0, 0), (20, 20)]:
        for a in rows_and_columns(matrix(shape, dtype)):
            values, vectors = L.eig(a.to(DEVICE))
            wide = a.to(values.dtype)
            assert_same(
                wide.to(DEVICE) @ vectors,
                (vectors * values.unsqueeze(-2)).cpu(),
                rtol=1e-3 if bound_of(dtype) > 1e-6 else 1e-9,
                atol=1e-3 if bound_of(dtype) > 1e-6 else 1e-9,
            )
            got, want = L.eigvals(a.to(DEVICE)).cpu(), L.eigvals(a)
            if got.numel():
                distance = (got.unsqueeze(-1) - want.unsqueeze(-2)).abs()
                assert distance.min(-1).values.max() < (1e-3 if bound_of(dtype) > 1e-6 else 1e-9)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares(dtype, driver):
    for shape in [(6, 3), (3, 6), (2, 5, 4), (4, 4)]:
        a, b = matrix(shape, dtype), matrix((*shape[:-1], 2), dtype, 1)
        close(lambda a, b: L.lstsq(a, b, driver=driver), a, b, factor=10)
    close(lambda a, b: L.lstsq(a, b, driver=driver), matrix((5, 2), dtype), matrix((5,), dtype, 2), factor=10)


def test_errors_of_the_data():
    singular = torch.zeros(2, 3, 3, device=DEVICE)
    for function in (L.inv, lambda a: L.solve(a, a), L.cholesky):
        with pytest.raises(L.LinAlgError):
            function(singular)
    with pytest.raises(RuntimeError):  # torch 2.15 has removed it and says so
        torch.cholesky(singular)
    assert L.inv_ex(singular).info.tolist() == [1, 1]
    assert L.det(singular).tolist() == [0, 0]
    with pytest.raises(L.LinAlgError):
        L.svd(torch.full((2, 2), float("nan"), device=DEVICE)).S.cpu()
    assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2, 2]  # the failure has been reported
    with pytest.raises(RuntimeError):
        L.inv(torch.zeros(2, 3, device=DEVICE))
    with pytest.raises(RuntimeError):
        L.inv(torch.zeros(2, 2, dtype=torch.int64, device=DEVICE))


def test_results_into_given_tensors():
    a = positive((4, 4), torch.float64)
    out = torch.empty(0, dtype=torch.float64, device=DEVICE)
    assert_same(L.inv(a.to(DEVICE), out=out), L.inv(a), rtol=1e-10, atol=1e-10)
    wide = torch.zeros(4, 8, dtype=torch.float64, device=DEVICE)
    L.cholesky(a.to(DEVICE), out=wide[:, ::2])
    assert_same(wide[:, ::2], L.cholesky(a), rtol=1e-10, atol=1e-10)
    itself = a.to(DEVICE)
    L.inv(itself, out=itself)
    assert_same(itself, L.inv(a), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128])
def test_products(dtype):
    a, b, c = matrix((40, 17), dtype), matrix((17, 23), dtype, 1), matrix((40, 23), dtype, 2)
    close(
        lambda a, b, c: (
            a @ b,
            a.mT.conj().mT @ b,
            (b.mH @ a.mH),
            torch.addmm(c, a, b, beta=0.5, alpha=2),
            a[:, 0].dot(a[:, 1]),
            torch.vdot(a[:, 0], a[:, 1]),
            a.conj() @ b[:, 0],
            a[::2] @ b[:, 1:],
        ),
        a,
        b,
        c,
    )
    batch, other = matrix((3, 20, 8), dtype), matrix((3, 8, 9), dtype, 1)
    close(
        lambda a, b, c: (
            a @ b,
            a.mT.contiguous().mT @ b,
            a[:, :1] @ b,
            torch.addbmm(c, a, b, beta=2, alpha=3),
            a[:1] @ b,
        ),
        batch,
        other,
        matrix((20, 9), dtype, 3),
    )


def test_gradients():
    a, b = positive((2, 4, 4), torch.float64), matrix((2, 4, 2), torch.float64)

    def gradients(function, *tensors):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        results = function(*leaves)
        sum((r.abs().square().sum() for r in results), torch.zeros((), device=leaves[0].device)).backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    for function in (
        lambda a, b: (L.solve(a, b),),
        lambda a, b: (L.inv(a), L.det(a)),
        lambda a, b: (L.cholesky(a), L.slogdet(a)[1]),
        lambda a, b: (L.svdvals(a), L.eigvalsh(a)),
        lambda a, b: L.qr(b),
        lambda a, b: (L.matrix_exp(a / 9),),
        lambda a, b: (L.solve_triangular(a, b, upper=True), torch.cholesky_solve(b, a)),
        lambda a, b: (L.pinv(b),),
    ):
        close(lambda a, b, f=function: gradients(f, a, b), a, b, factor=100)
