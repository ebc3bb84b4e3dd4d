"""Random numbers, transforms, linear algebra and norms of JAX's programs, against JAX's own results on the CPU."""

import numpy as np
import pytest

import headrace as hr

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp, lax = jax.numpy, jax.lax

import jax.scipy.linalg as jsp  # noqa: E402
from test_stablehlo import check, edges, run as run_once  # noqa: E402


def run(tmp_path, function, *arguments, x64=False):
    with jax.enable_x64(x64):
        return run_once(tmp_path, function, *arguments)


# ---- random numbers ----


@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_bits_of_generators_are_those_of_xla(tmp_path, algorithm, dtype):
    key = np.array([7, 0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
    chosen = getattr(lax.RandomAlgorithm, algorithm)
    shapes = [(), (1,), (5,), (4, 6), (3, 5), (3, 4, 2), (0, 3)]
    with jax.enable_x64(True):
        check(tmp_path, lambda k: [lax.rng_bit_generator(k, s, dtype, algorithm=chosen) for s in shapes], key)


RANDOM = {
    "bits": lambda k: jax.random.bits(k, (3, 5)),
    "uniform": lambda k: jax.random.uniform(k, (3, 5)),
    "half": lambda k: jax.random.uniform(k, (7,), jnp.float16),
    "bfloat16": lambda k: jax.random.uniform(k, (7,), jnp.bfloat16).astype(jnp.float32),
    "randint": lambda k: jax.random.randint(k, (4, 3), -5, 1000),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (20,)),
    "split": lambda k: jax.random.key_data(jax.random.split(k, 3)),
    "fold_in": lambda k: jax.random.key_data(jax.random.fold_in(k, 12)),
}


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_jax(tmp_path, name, implementation):
    data = np.asarray(jax.random.key_data(jax.random.key(5, impl=implementation)))
    check(tmp_path, lambda k: RANDOM[name](jax.random.wrap_key_data(k, impl=implementation)), data)


@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel", "laplace", "truncated_normal", "interval"])
def test_distributions_of_jax(tmp_path, name):
    sample = {
        "interval": lambda k: jax.random.uniform(k, (3, 5), minval=-2, maxval=3),
        "truncated_normal": lambda k: jax.random.truncated_normal(k, -1, 2, (6, 3)),
    }.get(name, lambda k: getattr(jax.random, name)(k, (6, 3)))
    data = np.asarray(jax.random.key_data(jax.random.key(3)))
    check(tmp_path, lambda k: sample(jax.random.wrap_key_data(k)), data, tolerance=3e-6)


def run_text(tmp_path, count, text, *arguments):
    """The results of each of several runs of a program in MLIR's text."""
    from jax._src.lib import _jax

    path = tmp_path / "program.stablehlo"
    path.write_bytes(_jax.mlir.serialize_portable_artifact(text, "1.16.2", True))
    session = hr.Session(hr.open_model(str(path)))
    inputs = {f"arg{i}": hr.asarray(np.asarray(value)) for i, value in enumerate(arguments)}
    return [[np.asarray(result) for result in session(**inputs).values()] for _ in range(count)]


RNG = """
func.func @main(%a: tensor<TYPE>, %b: tensor<TYPE>) -> tensor<4000xTYPE> {
  %shape = stablehlo.constant dense<4000> : tensor<1xi64>
  %r = stablehlo.rng %a, %b, %shape, distribution = KIND : (tensor<TYPE>, tensor<TYPE>, tensor<1xi64>) -> tensor<4000xTYPE>
  return %r : tensor<4000xTYPE>
}
"""


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rng_gives_other_numbers_in_each_run(tmp_path, dtype):
    text = RNG.replace("TYPE", f"f{8 * np.dtype(dtype).itemsize}")
    (first,), (second,) = run_text(tmp_path, 2, text.replace("KIND", "UNIFORM"), dtype(-1), dtype(3))
    assert not np.array_equal(first, second)
    for numbers in (first, second):
        assert numbers.dtype == dtype and numbers.min() >= -1 and numbers.max() <= 3
        assert np.abs(np.histogram(numbers, 4, (-1, 3))[0] - 1000).max() < 150
    ((normal,),) = run_text(tmp_path, 1, text.replace("KIND", "NORMAL"), dtype(5), dtype(2))
    assert abs(normal.mean(dtype=np.float64) - 5) < 0.15 and abs(normal.std(dtype=np.float64) - 2) < 0.1
    assert abs(np.mean(normal > 7) - 0.1587) < 0.03


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rng_of_integers(tmp_path, dtype):
    text = RNG.replace("TYPE", f"i{8 * np.dtype(dtype).itemsize}").replace("KIND", "UNIFORM")
    ((numbers,),) = run_text(tmp_path, 1, text, dtype(-2), dtype(4))
    assert np.bincount(numbers + 2, minlength=6).min() > 500 and numbers.max() == 3


# ---- Fourier transforms ----

COMPLEX = [np.complex64, np.complex128]


def draw(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def tolerance_of(dtype):
    return 1e-10 if np.dtype(dtype).name in ("float64", "complex128") else 2e-5


def compare(tmp_path, function, *arguments):
    with jax.enable_x64(True):
        check(tmp_path, function, *arguments, tolerance=tolerance_of(arguments[0].dtype))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("inverse", [False, True])
def test_fft(tmp_path, count, dtype, inverse):
    kind = lax.FftType.IFFT if inverse else lax.FftType.FFT
    for shape in [(2, 3, 4, 5), (1, 7, 6, 8), (0, 3, 4, 5)]:
        compare(tmp_path, lambda x, s=shape: lax.fft(x, kind, s[-count:]), draw(shape, dtype))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("last", [1, 6, 7])
def test_fft_of_real_numbers(tmp_path, count, dtype, last):
    for shape in [(2, 3, 4, last), (0, 3, 4, last)]:
        x = draw(shape, dtype)
        compare(tmp_path, lambda x, s=shape: lax.fft(x, lax.FftType.RFFT, s[-count:]), x)
        half = draw(shape[:-1] + (last // 2 + 1,), np.complex128).astype(np.result_type(dtype, np.complex64))
        compare(tmp_path, lambda x, s=shape: lax.fft(x, lax.FftType.IRFFT, s[-count:]), half)


# ---- matrices ----

FACTORED = [np.float32, np.float64, np.complex64, np.complex128]


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def positive(shape, dtype):
    x = draw(shape, dtype)
    return x @ adjoint(x) + shape[-1] * np.eye(shape[-1], dtype=dtype)


def type_of(x):
    names = {
        "float32": "f32",
        "float64": "f64",
        "complex64": "complex<f32>",
        "complex128": "complex<f64>",
        "float16": "f16",
        "int8": "i8",
        "int32": "i32",
        "uint32": "ui32",
        "bool": "i1",
    }
    return "tensor<" + "".join(f"{n}x" for n in x.shape) + names[np.dtype(x.dtype).name] + ">"


def call(tmp_path, operation, results, *arguments):
    """The results of one operation, as generic text, on arguments; `results` have their dtypes and dims."""
    types = [type_of(x) for x in arguments]
    outs = [type_of(np.empty(shape, dtype)) for dtype, shape in results]
    names = [f"%arg{i}" for i in range(len(types))]
    out = f"%0:{len(outs)}" if len(outs) > 1 else "%0"
    values = ", ".join([f"%0#{i}" for i in range(len(outs))] if len(outs) > 1 else ["%0"])
    parameters = ", ".join(f"{n}: {t}" for n, t in zip(names, types))
    text = f"""module {{
  func.func public @main({parameters}) -> ({", ".join(outs)}) {{
    {out} = {operation.replace("ARGS", ", ".join(names))} : ({", ".join(types)}) -> ({", ".join(outs)})
    return {values} : {", ".join(outs)}
  }}
}}"""
    return run_text(tmp_path, 1, text, *arguments)[0]


@pytest.mark.parametrize("dtype", FACTORED)
@pytest.mark.parametrize("lower", [True, False])
def test_the_cholesky_operation(tmp_path, dtype, lower):
    x = positive((3, 4, 4), dtype)
    x[1] = -x[1]
    x[2, 0, 0] = np.nan
    triangle = (np.tril if lower else np.triu)(x)
    (y,) = call(tmp_path, f'"stablehlo.cholesky"(ARGS) {{lower = {str(lower).lower()}}}', [(dtype, x.shape)], triangle)
    assert y.dtype == dtype and np.isnan(y[1]).all() and np.isnan(y[2, 0, 0])
    expected = np.linalg.cholesky(x[0])
    np.testing.assert_allclose(y[0], expected if lower else adjoint(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FACTORED)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(tmp_path, dtype, left, lower, transpose, unit):
    for batch, columns in (((), 3), ((2,), 1), ((0,), 2), ((2,), 0)):
        a = draw((*batch, 4, 4), dtype) + 3 * np.eye(4, dtype=dtype)
        b = draw((*batch, 4, columns) if left else (*batch, columns, 4), dtype, 1)
        text = f""""stablehlo.triangular_solve"(ARGS) {{left_side = {str(left).lower()}, lower = {str(lower).lower()},
            unit_diagonal = {str(unit).lower()}, transpose_a = #stablehlo<transpose {transpose}>}}"""
        (x,) = call(tmp_path, text, [(dtype, b.shape)], a, b)
        t = (np.tril if lower else np.triu)(a)
        if unit:
            t[..., range(4), range(4)] = 1
        t = {"NO_TRANSPOSE": t, "TRANSPOSE": np.swapaxes(t, -1, -2), "ADJOINT": adjoint(t)}[transpose]
        np.testing.assert_allclose(t @ x if left else x @ t, b, rtol=1e-4, atol=1e-4)


def test_a_triangular_system_of_half_precision(tmp_path):
    a, b = np.array([[2, 0], [1, 4]], np.float16), np.array([[1], [2]], np.float16)
    text = """"stablehlo.triangular_solve"(ARGS) {left_side = true, lower = true, unit_diagonal = false,
        transpose_a = #stablehlo<transpose NO_TRANSPOSE>}"""
    (x,) = call(tmp_path, text, [(np.float16, b.shape)], a, b)
    np.testing.assert_array_equal(x, np.array([[0.5], [0.375]], np.float16))


# ---- the custom calls of JAX's CPU backend ----


@pytest.mark.parametrize("dtype", FACTORED)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 5, 5), (0, 3, 3), (2, 0, 0)])
def test_factors_of_square_matrices(tmp_path, shape, dtype):
    x = draw(shape, dtype)
    compare(tmp_path, lambda x: lax.linalg.cholesky(x, symmetrize_input=False), positive(shape, dtype))
    for function in (lax.linalg.lu, jsp.lu_factor, jnp.linalg.inv):
        compare(tmp_path, function, x + 3 * np.eye(shape[-1], dtype=dtype))


@pytest.mark.parametrize("dtype", FACTORED)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4), (0, 3, 2), (1, 1)])
def test_factors_of_any_matrices(tmp_path, shape, dtype):
    x = draw(shape, dtype)
    k = min(shape[-2:])
    compare(tmp_path, lambda x: jax.lax.linalg.lu(x), x)
    compare(tmp_path, lambda x: jax._src.lax.linalg.geqrf(x), x)
    compare(tmp_path, lambda x: lax.linalg.qr(x, full_matrices=False), x)
    compare(tmp_path, lambda x: lax.linalg.qr(x, pivoting=True, full_matrices=False), x)
    compare(tmp_path, lambda x: lax.linalg.svd(x, compute_uv=False), x)
    for full in (False, True):
        u, s, vh = run(tmp_path, lambda x, full=full: lax.linalg.svd(x, full_matrices=full), x, x64=True)
        np.testing.assert_allclose(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x, atol=1e-4)
    reflectors, tau = jax._src.lax.linalg.geqrf(x[..., :k])
    for left, transpose in ((True, False), (True, True), (False, False), (False, True)):
        y = draw(shape[:-1] + (2,) if left else shape[:-2] + (2, shape[-2]), dtype, 4)

        def apply(y, a, t, left=left, transpose=transpose):
            return jax._src.lax.linalg.ormqr(a, t, y, left=left, transpose=transpose)

        compare(tmp_path, apply, y, np.asarray(reflectors).astype(dtype), np.asarray(tau).astype(dtype))


@pytest.mark.parametrize("dtype", FACTORED)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 3), (0, 3, 3)])
def test_eigenvalues(tmp_path, shape, dtype):
    x = draw(shape, dtype)
    hermitian = x + adjoint(x)
    eye = np.eye(shape[-1])
    for lower in (True, False):
        compare(tmp_path, lambda x, b=lower: lax.linalg.eigh(x, lower=b, symmetrize_input=False)[1], hermitian)
        v, w = run(
            tmp_path, lambda x, b=lower: lax.linalg.eigh(x, lower=b, symmetrize_input=False), hermitian, x64=True
        )
        np.testing.assert_allclose(hermitian @ v, v * w[..., None, :], atol=1e-4)
    w, left, right = run(tmp_path, lambda x: lax.linalg.eig(x), x, x64=True)
    np.testing.assert_allclose(x @ right, right * w[..., None, :], atol=1e-4)
    np.testing.assert_allclose(adjoint(left) @ x, w[..., :, None] * adjoint(left), atol=1e-4)
    form, vectors = run(tmp_path, lambda x: lax.linalg.schur(x), x, x64=True)
    np.testing.assert_allclose(vectors @ form @ adjoint(vectors), x, atol=1e-4)
    np.testing.assert_allclose(vectors @ adjoint(vectors), np.broadcast_to(eye, shape), atol=1e-4)
    compare(tmp_path, lambda x: lax.linalg.hessenberg(x), x)
    for lower in (True, False):
        compare(tmp_path, lambda x, b=lower: lax.linalg.tridiagonal(x, lower=b), hermitian)


@pytest.mark.parametrize("dtype", FACTORED)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
def test_matrices_with_nan_have_nan_results(tmp_path, shape, dtype):
    x = draw(shape, dtype)
    x = x + adjoint(x)
    x[..., 0, 0] = np.nan
    for function in (lax.linalg.eigh, lax.linalg.eig, lax.linalg.svd, lax.linalg.schur):
        for result in run(tmp_path, function, x, x64=True):
            assert np.isnan(result).all()
    y = np.stack([np.eye(3, dtype=dtype), np.full((3, 3), np.inf, dtype)])
    for result in run(tmp_path, lax.linalg.eigh, y, x64=True):
        assert np.isfinite(result[0]).all() and np.isnan(result[1]).all()


@pytest.mark.parametrize("dtype", FACTORED)
def test_tridiagonal_systems(tmp_path, dtype):
    for n, columns in ((1, 2), (2, 1), (5, 3)):
        below, above, main, b = (
            draw((2, n), dtype),
            draw((2, n), dtype, 1),
            draw((2, n), dtype, 2),
            draw((2, n, columns), dtype, 3),
        )
        compare(tmp_path, lambda l, d, u, b: lax.linalg.tridiagonal_solve(l, d, u, b), below, main + 4, above, b)
    zero = np.zeros((2, 3), dtype)
    (x,) = run(tmp_path, lambda d, b: lax.linalg.tridiagonal_solve(d, d, d, b), zero, zero[..., None] + 1, x64=True)
    assert np.isnan(x).all()


@pytest.mark.parametrize("dtype", FACTORED)
def test_triangular_systems_of_lapack(tmp_path, dtype):
    a, b = draw((2, 4, 4), dtype) + 3 * np.eye(4, dtype=dtype), draw((2, 4, 3), dtype, 1)
    for lower in (True, False):
        for transpose, conjugate in ((False, False), (True, False), (True, True), (False, True)):
            for unit in (True, False):
                options = dict(lower=lower, transpose_a=transpose, conjugate_a=conjugate, unit_diagonal=unit)
                compare(tmp_path, lambda a, b, o=options: lax.linalg.triangular_solve(a, b, left_side=True, **o), a, b)
                turned = np.ascontiguousarray(np.swapaxes(b, 1, 2))
                compare(tmp_path, lambda a, b, o=options: lax.linalg.triangular_solve(a, b, **o), a, turned)


@pytest.mark.parametrize("dtype", FACTORED)
def test_matrices_by_the_names_of_xla(tmp_path, dtype):
    x = draw((2, 4, 3), dtype)
    call_of = '"stablehlo.custom_call"(ARGS) {{call_target_name = "{}"}}'.format
    reflectors, tau = call(tmp_path, call_of("Qr"), [(dtype, (2, 4, 3)), (dtype, (2, 3))], x)
    (q,) = call(tmp_path, call_of("ProductOfElementaryHouseholderReflectors"), [(dtype, x.shape)], reflectors, tau)
    np.testing.assert_allclose(q @ np.triu(reflectors[:, :3]), x, atol=1e-5)
    results = [(dtype, x.shape), (np.int32, (2, 3)), (np.int32, (2, 4))]
    lu, pivots, order = call(tmp_path, call_of("LuDecomposition"), results, x)
    np.testing.assert_allclose(
        (np.tril(lu, -1) + np.eye(4, 3)) @ np.triu(lu[:, :3]), np.take_along_axis(x, order[..., None], 1), atol=1e-5
    )
    assert (pivots >= np.arange(3)).all() and (np.sort(order) == np.arange(4)).all()


def test_an_unknown_custom_call_fails_with_its_name(tmp_path):
    with pytest.raises(ValueError, match='custom call "nobody_knows" is not supported'):
        call(
            tmp_path,
            '"stablehlo.custom_call"(ARGS) {call_target_name = "nobody_knows"}',
            [(np.float32, (2,))],
            np.zeros(2, np.float32),
        )


# ---- norms of batches ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 1), ((2, 3, 4, 5), 1), ((2, 3, 4), 0), ((3,), 0)])
def test_norms_of_batches(tmp_path, shape, axis, dtype):
    x, g = draw(shape, np.float64), draw(shape, np.float64, 1)
    n = shape[axis]
    scale, offset, mean, variance = (draw((n,), np.float64, k) for k in range(2, 6))
    variance = np.abs(variance)
    others = tuple(d for d in range(len(shape)) if d != axis)
    wide = [n if d == axis else 1 for d in range(len(shape))]

    def along(v):
        return v.reshape(wide)

    def norm(m, v):
        return along(scale) * (x - along(m)) / np.sqrt(along(v) + 0.125) + along(offset)

    attributes = f"{{epsilon = 0.125 : f32, feature_index = {axis} : i64}}"
    tolerance = 2e-2 if dtype is np.float16 else 2e-5

    def compute(name, results, *arguments):
        return call(
            tmp_path,
            f'"stablehlo.batch_norm_{name}"(ARGS) {attributes}',
            results,
            *(a.astype(dtype) for a in arguments),
        )

    (y,) = compute("inference", [(dtype, shape)], x, scale, offset, mean, variance)
    np.testing.assert_allclose(y, norm(mean, variance), tolerance, tolerance)
    y, m, v = compute("training", [(dtype, shape), (dtype, (n,)), (dtype, (n,))], x, scale, offset)
    np.testing.assert_allclose(m, x.mean(others), tolerance, tolerance)
    np.testing.assert_allclose(v, x.var(others), tolerance, tolerance)
    np.testing.assert_allclose(y, norm(x.mean(others), x.var(others)), tolerance, tolerance)
    gradients = [(dtype, shape), (dtype, (n,)), (dtype, (n,))]
    dx, ds, do = compute("grad", gradients, x, scale, x.mean(others), x.var(others), g)

    def of(x, s, o):
        m, v = x.mean(others), x.var(others)
        return along(s) * (x - along(m)) / jnp.sqrt(along(v) + 0.125) + along(o)

    with jax.enable_x64(True):
        for got, wanted in zip((dx, ds, do), jax.vjp(of, x, scale, offset)[1](g)):
            np.testing.assert_allclose(got, np.asarray(wanted), tolerance, tolerance)


# ---- sizes as operands, and operations that one device has nothing to do for ----

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def program(tmp_path, body, result, *arguments):
    parameters = ", ".join(f"%arg{i}: {type_of(x)}" for i, x in enumerate(arguments))
    text = f"func.func @main({parameters}) -> {result} {{\n{body}\n  return %r : {result}\n}}"
    return run_text(tmp_path, 1, text, *arguments)[0][0]


def constant(name, numbers, dtype="i32"):
    return f"%{name} = stablehlo.constant dense<{numbers}> : tensor<{len(numbers)}x{dtype}>\n"


def test_sizes_that_are_operands(tmp_path):
    body = (
        constant("s", [3, 2])
        + "%r = stablehlo.dynamic_reshape %arg0, %s : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<3x2xf32>"
    )
    np.testing.assert_array_equal(program(tmp_path, body, "tensor<3x2xf32>", X), X.reshape(3, 2))
    body = constant("s", [2, 4]) + "%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> tensor<2x4xi32>"
    np.testing.assert_array_equal(program(tmp_path, body, "tensor<2x4xi32>"), np.broadcast_to(np.arange(4), (2, 4)))
    body = constant("s", [2, 4, 3]) + (
        "%r = stablehlo.dynamic_broadcast_in_dim %arg0, %s, dims = [0, 2] : "
        "(tensor<2x3xf32>, tensor<3xi32>) -> tensor<2x4x3xf32>"
    )
    np.testing.assert_array_equal(
        program(tmp_path, body, "tensor<2x4x3xf32>", X), np.broadcast_to(X[:, None], (2, 4, 3))
    )
    body = (
        constant("l", [1, -1])
        + constant("h", [0, 2])
        + constant("i", [1, 0])
        + (
            '%v = stablehlo.constant dense<7.0> : tensor<f32>\n%r = "stablehlo.dynamic_pad"(%arg0, %v, %l, %h, %i) : '
            "(tensor<2x3xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<4x4xf32>"
        )
    )
    wanted = np.asarray(lax.pad(X, np.float32(7), ((1, 0, 1), (-1, 2, 0))))
    np.testing.assert_array_equal(program(tmp_path, body, "tensor<4x4xf32>", X), wanted)
    body = '%r = "stablehlo.get_dimension_size"(%arg0) {dimension = 1 : i64} : (tensor<2x3xf32>) -> tensor<i32>'
    assert program(tmp_path, body, "tensor<i32>", X) == 3


@pytest.mark.parametrize("strides", [[1, 1], [1, 2]])
def test_slices_whose_places_are_operands(tmp_path, strides):
    kind = "(tensor<2x3xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<1x2xf32>"
    limit = [2, 3]
    begin = [1, 1] if strides == [1, 1] else [1, 0]
    body = constant("b", begin) + constant("l", limit) + constant("s", strides)
    body += f'%r = "stablehlo.real_dynamic_slice"(%arg0, %b, %l, %s) : {kind}'
    wanted = X[1:2, begin[1] : 3 : strides[1]]
    np.testing.assert_array_equal(program(tmp_path, body, "tensor<1x2xf32>", X), wanted)


def test_old_products(tmp_path):
    x, y, v = draw((2, 3), np.float32), draw((3, 4), np.float32, 1), draw((3,), np.float32, 2)
    for a, b in ((x, y), (x, v), (v, y), (v, v)):
        (z,) = call(tmp_path, '"stablehlo.dot"(ARGS)', [(np.float32, np.dot(a, b).shape)], a, b)
        np.testing.assert_allclose(z, np.dot(a, b), 1e-5, 1e-5)
    (z,) = call(tmp_path, '"stablehlo.einsum"(ARGS) {einsum_config = "ab,bc->ca"}', [(np.float32, (4, 2))], x, y)
    np.testing.assert_allclose(z, (x @ y).T, 1e-5, 1e-5)
    (z,) = call(tmp_path, '"stablehlo.unary_einsum"(ARGS) {einsum_config = "ab->b"}', [(np.float32, (3,))], x)
    np.testing.assert_allclose(z, x.sum(0), 1e-5, 1e-5)
    (z,) = call(
        tmp_path, '"stablehlo.broadcast"(ARGS) {broadcast_sizes = array<i64: 2, 1>}', [(np.float32, (2, 1, 3))], v
    )
    np.testing.assert_array_equal(z, np.broadcast_to(v, (2, 1, 3)))


@pytest.mark.parametrize(("dim", "batch"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)])
def test_torch_index_select(tmp_path, dim, batch):
    x = draw((2, 3, 4), np.float32)
    for more in ((2,), (1, 2), ()):
        index = np.random.default_rng(1).integers(0, x.shape[dim], x.shape[:batch] + more).astype(np.int32)
        if batch == 0:
            wanted = np.take(x, index, dim)
        else:
            flat = [
                np.take(part, i, dim - batch)
                for part, i in zip(x.reshape(-1, *x.shape[batch:]), index.reshape(-1, *more))
            ]
            wanted = np.stack(flat).reshape(*x.shape[:batch], *flat[0].shape)
        text = f'"stablehlo.torch_index_select"(ARGS) {{dim = {dim} : i64, batch_dims = {batch} : i64}}'
        (y,) = call(tmp_path, text, [(np.float32, wanted.shape)], x, index)
        np.testing.assert_array_equal(y, wanted)


COLLECTIVES = {
    "all_gather": "all_gather_dim = 0 : i64, ",
    "all_to_all": "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, ",
    "collective_broadcast": "",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_one_device(tmp_path, name):
    text = f'"stablehlo.{name}"(ARGS) {{{COLLECTIVES[name]}replica_groups = dense<GROUPS> : tensor<1xCOUNTxi64>}}'
    (y,) = call(tmp_path, text.replace("GROUPS", "0").replace("COUNT", "1"), [(np.float32, X.shape)], X)
    np.testing.assert_array_equal(y, X)
    if name == "collective_broadcast":
        return
    shape = (4, 3) if name == "all_gather" else (1, 6)
    text = text.replace("split_count = 1", "split_count = 2").replace("concat_dimension = 0", "concat_dimension = 1")
    with pytest.raises(ValueError, match=f"{name}.*result 0 is f32.2,3., the file has f32"):  # of two devices
        call(tmp_path, text.replace("GROUPS", "[[0, 1]]").replace("COUNT", "2"), [(np.float32, shape)], X)


def test_devices_have_numbers_and_tuples_have_elements(tmp_path):
    assert program(tmp_path, "%r = stablehlo.replica_id : tensor<ui32>", "tensor<ui32>") == 0
    assert program(tmp_path, "%r = stablehlo.partition_id : tensor<ui32>", "tensor<ui32>") == 0
    body = (
        "%t = stablehlo.tuple %arg0, %arg1 : tuple<tensor<2x3xf32>, tensor<2x3xf32>>\n"
        "%r = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2x3xf32>, tensor<2x3xf32>>) -> tensor<2x3xf32>"
    )
    np.testing.assert_array_equal(program(tmp_path, body, "tensor<2x3xf32>", X, 2 * X), 2 * X)


# ---- convolutions of every dtype, without planes, with groups of examples; bits; narrow integers ----


def convolve(x, w, **options):
    return lax.conv_general_dilated(x, w, **options)


CONVOLUTION_DTYPES = [np.int8, np.int32, np.uint8, np.float16, np.float32, np.float64, np.complex64, np.complex128]
MORE_CONVOLUTIONS = {
    "no planes": ((4, 6), (3, 6), dict(window_strides=(), padding=())),
    "no planes, groups": ((4, 6), (4, 3), dict(window_strides=(), padding=(), feature_group_count=2)),
    "no planes, groups of examples": ((4, 6), (4, 6), dict(window_strides=(), padding=(), batch_group_count=2)),
    "one": ((2, 4, 9), (6, 2, 3), dict(window_strides=(2,), padding=((1, 2),), feature_group_count=2)),
    "spread groups": (
        (2, 4, 9),
        (6, 2, 3),
        dict(window_strides=(1,), padding=((2, 1),), lhs_dilation=(2,), feature_group_count=2),
    ),
    "groups of examples": ((4, 3, 7), (6, 3, 3), dict(window_strides=(2,), padding=((1, 1),), batch_group_count=2)),
    "groups of examples, spread": (
        (4, 3, 7, 5),
        (4, 3, 3, 2),
        dict(
            window_strides=(2, 1),
            padding=((1, 0), (0, 1)),
            batch_group_count=2,
            lhs_dilation=(1, 2),
            rhs_dilation=(2, 1),
        ),
    ),
    "three": ((1, 2, 4, 5, 3), (2, 2, 2, 3, 1), dict(window_strides=(1, 2, 1), padding="SAME")),
    "nothing": ((0, 2, 4), (3, 2, 3), dict(window_strides=(1,), padding=((0, 0),))),
}


@pytest.mark.parametrize("dtype", CONVOLUTION_DTYPES)
@pytest.mark.parametrize("name", MORE_CONVOLUTIONS)
def test_convolutions_of_every_dtype(tmp_path, name, dtype):
    left, right, options = MORE_CONVOLUTIONS[name]
    x, w = (draw(shape, np.complex128, k) * 3 for k, shape in enumerate((left, right)))
    x, w = (
        (a if np.dtype(dtype).kind == "c" else np.abs(a.real) if np.dtype(dtype).kind == "u" else a.real).astype(dtype)
        for a in (x, w)
    )
    tolerance = 2e-2 if dtype is np.float16 else 1e-4 if np.dtype(dtype).kind in "fc" else 0
    with jax.enable_x64(True):
        check(tmp_path, lambda x, w: convolve(x, w, **options), x, w, tolerance=tolerance)


def test_a_convolution_with_a_wider_result(tmp_path):
    x, w = (draw(shape, np.float64, k).astype(np.float32) * 50 for k, shape in enumerate(((2, 3, 6), (4, 3, 2))))
    x, w = x.astype(np.int8), w.astype(np.int8)
    check(
        tmp_path,
        lambda x, w: convolve(x, w, window_strides=(1,), padding="VALID", preferred_element_type=np.int32),
        x,
        w,
    )


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("exponent", "mantissa"), [(5, 10), (8, 7), (8, 23), (5, 2), (4, 3), (3, 1), (2, 0), (11, 52), (6, 30)]
)
def test_floats_of_fewer_bits(tmp_path, exponent, mantissa, dtype):
    x = np.array(
        [
            0.0,
            -0.0,
            1.0,
            -1.5,
            3.14159,
            65504,
            65520,
            1e30,
            -1e30,
            6e-5,
            6e-8,
            np.inf,
            -np.inf,
            np.nan,
            0.25,
            1.9999999,
            448,
            464,
            2.0**-14,
            2.0**-15,
            2.0**-126,
        ]
    )
    with np.errstate(over="ignore"), jax.enable_x64(True):
        x = np.asarray(jnp.asarray(x, dtype))
        check(tmp_path, lambda x: lax.reduce_precision(x, exponent, mantissa).astype(np.float64), x)


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_integers_of_less_than_a_byte(tmp_path, name):
    bits, is_signed = int(name[-1]), name[0] == "i"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    x, y = (a.ravel() for a in np.meshgrid(np.arange(low, high + 1), np.arange(low, high + 1)))
    x, y = x.astype(np.int8 if is_signed else np.uint8), y.astype(np.int8 if is_signed else np.uint8)
    dtype, wide = getattr(jnp, name), x.dtype

    def wrapped(a):
        a = a.astype(np.int64) & ((1 << bits) - 1)
        return (np.where(a > high, a - (1 << bits), a) if is_signed else a).astype(wide)

    def compute(function, *arguments):
        (result,) = run(tmp_path, lambda *a: function(*(v.astype(dtype) for v in a)).astype(wide), *arguments)
        return result

    a, b = x.astype(np.int64), y.astype(np.int64)
    for function, wanted in (
        (lax.add, a + b),
        (lax.sub, a - b),
        (lax.mul, a * b),
        (lax.max, np.maximum(a, b)),
        (lax.min, np.minimum(a, b)),
        (lax.bitwise_xor, a ^ b),
        (lax.bitwise_and, a & b),
        (lax.bitwise_or, a | b),
    ):
        np.testing.assert_array_equal(compute(function, x, y), wrapped(wanted), err_msg=str(function))
    shifts = y.astype(np.int64) & ((1 << bits) - 1)
    unsigned = a & ((1 << bits) - 1)
    np.testing.assert_array_equal(compute(lax.shift_left, x, y), wrapped(np.where(shifts < bits, a << shifts, 0)))
    np.testing.assert_array_equal(
        compute(lax.shift_right_logical, x, y), wrapped(np.where(shifts < bits, unsigned >> shifts, 0))
    )
    np.testing.assert_array_equal(compute(lax.bitwise_not, x), wrapped(~a))
    np.testing.assert_array_equal(compute(lax.neg, x), wrapped(-a))
    np.testing.assert_array_equal(
        compute(lax.population_count, x), wrapped(np.array([bin(v).count("1") for v in unsigned]))
    )
    np.testing.assert_array_equal(
        compute(lax.clz, x), wrapped(np.array([bits - int(v).bit_length() for v in unsigned]))
    )
    floats = np.array([0.4, -0.6, 1.5, 7.9, 8.1, -8.9, 100, -100, np.inf, -np.inf, np.nan], np.float32)
    (got,) = run(tmp_path, lambda v: v.astype(dtype).astype(wide), floats)
    np.testing.assert_array_equal(got, np.nan_to_num(np.clip(np.trunc(floats), low, high)).astype(wide))


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "bool"])
def test_bits_of_less_than_a_byte(tmp_path, name):
    dtype, count = getattr(jnp, name if name != "bool" else "bool_"), {"4": 2, "2": 4, "l": 8}[name[-1]]
    x = np.array([[0x12, 0xEF, 0x80], [1, 0x7F, 0xFF]], np.uint8)
    width = 8 // count
    parts = np.stack([(x >> (width * i)) & ((1 << width) - 1) for i in range(count)], -1)
    wanted = parts.astype(np.int8)
    if name.startswith("i"):
        wanted = np.where(wanted >= 1 << (width - 1), wanted - (1 << width), wanted)
    kind = {"int4": "i4", "uint4": "ui4", "int2": "i2", "uint2": "ui2", "bool": "i1"}[name]
    wide = "i8" if name[0] != "u" else "ui8"
    text = f"""func.func @main(%arg0: tensor<2x3xui8>) -> (tensor<2x3x{count}x{wide}>, tensor<2x3xui8>, tensor<2xui32>) {{
      %0 = stablehlo.bitcast_convert %arg0 : (tensor<2x3xui8>) -> tensor<2x3x{count}x{kind}>
      %1 = stablehlo.convert %0 : (tensor<2x3x{count}x{kind}>) -> tensor<2x3x{count}x{wide}>
      %2 = stablehlo.bitcast_convert %0 : (tensor<2x3x{count}x{kind}>) -> tensor<2x3xui8>
      %3 = stablehlo.concatenate %0, %0, %0, %0, dim = 1 : (tensor<2x3x{count}x{kind}>, tensor<2x3x{count}x{kind}>, tensor<2x3x{count}x{kind}>, tensor<2x3x{count}x{kind}>) -> tensor<2x12x{count}x{kind}>
      %4 = stablehlo.slice %3 [0:2, 0:4, 0:{count}] : (tensor<2x12x{count}x{kind}>) -> tensor<2x4x{count}x{kind}>
      %5 = stablehlo.reshape %4 : (tensor<2x4x{count}x{kind}>) -> tensor<2x{4 * count}x{kind}>
      %6 = stablehlo.bitcast_convert %5 : (tensor<2x{4 * count}x{kind}>) -> tensor<2xui32>
      return %1, %2, %6 : tensor<2x3x{count}x{wide}>, tensor<2x3xui8>, tensor<2xui32>
    }}"""
    got, back, words = run_text(tmp_path, 1, text, x)[0]
    np.testing.assert_array_equal(got.astype(np.int8), wanted)
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(words, np.ascontiguousarray(np.concatenate([x, x], 1)[:, :4]).view(np.uint32)[:, 0])
    del dtype


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("name", ["div", "rem", "shift_left", "shift_right_logical", "shift_right_arithmetic", "max"])
def test_wide_integers_at_their_edges(tmp_path, name, dtype):
    with jax.enable_x64(True):
        check(tmp_path, getattr(lax, name), *edges(dtype))


@pytest.mark.parametrize("to", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.bool_, np.float16])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex64, np.complex128])
def test_wide_floats_saturate(tmp_path, dtype, to):
    x = np.array(
        [
            0,
            -0.0,
            0.5,
            -0.5,
            127.9,
            128,
            -129,
            255.5,
            256,
            2.0**31,
            -(2.0**31) - 1,
            2.0**32,
            2.0**63,
            -(2.0**63),
            2.0**64,
            1e30,
            -1e30,
            np.inf,
            -np.inf,
            np.nan,
        ]
    ).astype(dtype)
    with jax.enable_x64(True):
        check(tmp_path, lambda a: lax.convert_element_type(a, to), x)


@pytest.mark.parametrize("function", [lax.max, lax.min, lax.cbrt, lax.sign, lax.round, lax.is_finite])
def test_the_rest(tmp_path, function):
    x = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388609.0, np.inf, -np.inf, np.nan], np.float32)
    if function in (lax.max, lax.min):
        z = np.array([1 + 2j, 1 + 3j, -1, 2, 2 - 1j, 2], np.complex64)
        check(tmp_path, function, z, z[::-1].copy())
    else:
        check(tmp_path, function, x, tolerance=1e-6 if function is lax.cbrt else 0)


FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float8_e4m3"]
FLOAT8 += ["float8_e3m4", "float8_e4m3b11fnuz", "float4_e2m1fn"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", FLOAT8)
def test_floats_of_a_byte_round_as_in_xla(tmp_path, name, dtype):
    x = np.array(
        [
            0.0,
            -0.0,
            1,
            -1.5,
            0.001,
            447,
            448,
            463,
            464,
            465,
            480,
            1000,
            -1000,
            57344,
            61439,
            61440,
            65536,
            1e30,
            240,
            247,
            248,
            249,
            np.inf,
            -np.inf,
            np.nan,
            2.0**-9,
            2.0**-10,
            1.5 * 2.0**-10,
            3.0,
            2.0**-17,
            2.0**-18,
        ]
    )
    with np.errstate(over="ignore"), jax.enable_x64(True):
        x = x.astype(dtype)
        check(tmp_path, lambda a: a.astype(getattr(jnp, name)).astype(np.float32), x)
        integers = np.array([0, 1, 2, 3, 448, 460, 470, 100000, -1, -7, -100000], np.int32)
        check(tmp_path, lambda a: a.astype(getattr(jnp, name)).astype(np.float32), integers)
        check(tmp_path, lambda a: a.astype(getattr(jnp, name)).astype(np.int32), x[:5])


@pytest.mark.parametrize("name", FLOAT8)
def test_floats_of_a_byte_compute(tmp_path, name):
    x, y = np.linspace(-3, 4, 16).astype(np.float32), np.linspace(4, -2, 16).astype(np.float32)
    if name == "float8_e8m0fnu":  # powers of two
        x, y = np.exp2(np.arange(-3, 5, 0.5)), np.exp2(np.arange(5, -3, -0.5))
        x, y = x[::2].astype(np.float32), y[::2].astype(np.float32)
    dtype = getattr(jnp, name)
    functions = [
        lambda a, b: a * b,
        jnp.maximum,
        lambda a, b: a < b,
        lambda a, b: jnp.where(a < b, a, b),
        lambda a, b: jnp.sort(a),
        lambda a, b: jnp.isfinite(a),
        lambda a, b: a[::-1].reshape(-1, 2).T,
        lambda a, b: jnp.concatenate([a, b]),
        lambda a, b: a[jnp.array([2, 0])],
        lambda a, b: lax.dynamic_update_slice(a, b[:2], (1,)),
        lambda a, b: a.max(),
    ]
    if name != "float8_e8m0fnu":
        functions += [lambda a, b: a + b, lambda a, b: -a, lambda a, b: a.reshape(4, -1) @ b.reshape(4, -1).T]

    def of(function):
        def compute(a, b):
            result = function(a.astype(dtype), b.astype(dtype))
            return result if result.dtype == bool else result.astype(jnp.float32)

        return compute

    for function in functions:
        check(tmp_path, of(function), x, y)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint32, np.bool_])
def test_the_largest_elements(tmp_path, dtype):
    x = np.random.default_rng(2).integers(0, 9, (3, 40)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[:, 3:9] = [np.nan, -np.inf, np.inf, -0.0, 0.0, -np.nan]
    text = f"""func.func @main(%arg0: {type_of(x)}) -> (tensor<3x7xT>, tensor<3x7xi32>) {{
      %0:2 = stablehlo.custom_call @mhlo.topk(%arg0) {{mhlo.attributes = {{k = 7 : i64, largest = true}}}} :
        ({type_of(x)}) -> (tensor<3x7xT>, tensor<3x7xi32>)
      return %0#0, %0#1 : tensor<3x7xT>, tensor<3x7xi32>
    }}""".replace("xT>", type_of(x).removeprefix("tensor<3x40"))
    values, places = run_text(tmp_path, 1, text, x)[0]
    wanted = [np.asarray(v) for v in jax.jit(lambda a: lax.top_k(a, 7))(x)]
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(places, wanted[1])
    check(tmp_path, lambda a: lax.top_k(a, 40), x)
    check(tmp_path, lambda a: lax.top_k(a, 0), x)


GRADIENTS = {
    "stride": dict(window_strides=(2, 2), padding="SAME"),
    "stride without sides": dict(window_strides=(3, 2), padding="VALID"),
    "wide sides": dict(window_strides=(2, 1), padding=((3, 4), (2, 0))),
    "dilation": dict(window_strides=(2, 2), padding=((1, 2), (0, 1)), rhs_dilation=(2, 3)),
    "groups": dict(window_strides=(2, 3), padding="SAME", feature_group_count=2),
    "spaces": dict(window_strides=(1, 1), padding=((2, 1), (1, 2)), lhs_dilation=(2, 3)),
    "cut": dict(window_strides=(1, 1), padding=((-1, 2), (0, -2)), lhs_dilation=(3, 2)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_convolutions_with_strides(tmp_path, name, layout, dtype):
    options = GRADIENTS[name]
    groups = options.get("feature_group_count", 1)
    sizes = [dict(N=2, C=4, H=11, W=9), dict(O=6, I=4 // groups, H=3, W=2)]
    x, w = (draw([s[c] for c in part], dtype, k) for k, (s, part) in enumerate(zip(sizes, layout)))
    if name == "cut":  # JAX's CPU backend reads wrong elements for negative sides
        (y,) = run(tmp_path, lambda x, w: convolve(x, w, dimension_numbers=layout, **options), x, w, x64=True)
        spaces = [(0, 0, 0 if c in "NC" else options["lhs_dilation"]["HW".index(c)] - 1) for c in layout[0]]
        sides = [(0, 0, 0) if c in "NC" else (*options["padding"]["HW".index(c)], 0) for c in layout[0]]
        with jax.enable_x64(True):
            spaced = lax.pad(lax.pad(x, dtype(0), spaces), dtype(0), sides)
            wanted = convolve(spaced, w, window_strides=(1, 1), padding="VALID", dimension_numbers=layout)
            np.testing.assert_allclose(y, np.asarray(wanted), 1e-4, 1e-4)
        return

    def of(x, w):
        return convolve(x, w, dimension_numbers=layout, **options)

    with jax.enable_x64(True):
        g = draw(jax.eval_shape(of, x, w).shape, dtype, 5)
        check(tmp_path, lambda x, w, g: (of(x, w), *jax.vjp(of, x, w)[1](g)), x, w, g, tolerance=1e-4)


@pytest.mark.parametrize(
    ("element", "name"), [("f8E4M3", "f8E4M3"), ("f4E2M1FN", "f4E2M1FN"), ("!quant.uniform<i8:f32, 0.5>", "quantized")]
)
def test_types_that_are_missing_are_named(tmp_path, element, name):
    text = (
        f"func.func @main(%arg0: tensor<2x{element}>) -> tensor<2x{element}> {{ return %arg0 : tensor<2x{element}> }}"
    )
    with pytest.raises(ValueError, match=f"input 0 has type {name} "):
        run_text(tmp_path, 1, text, np.zeros(2, np.int8))
